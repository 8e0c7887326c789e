"""What the daemon tells systemd: a real process, and the test in systemd's place."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 1.0
"""Seconds after which systemd would take the daemon for hung."""
LONGEST = 120.0
"""Seconds that anything may take on a busy machine."""

SITE = """
[daemon]
run = "{place}/run"
database = "{place}/rtsched.db"
filters = ["root"]
filter_group = ""
metrics_port = 0
[slurm]
bin_dir = "{place}/none"
"""


class Manager:
    """The service manager's end of a daemon."""

    def __init__(self, place: Path, **variables: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(place / "notify"))
        (place / "run").mkdir()
        (place / "site.toml").write_text(SITE.format(place=place))
        command = Path(sys.executable).with_name("rtsched")
        self.log = (place / "log").open("w+")
        self.process = subprocess.Popen(
            [command, "serve", "--config", place / "site.toml"],
            env={**os.environ, "NOTIFY_SOCKET": str(place / "notify"), **variables},
            stdout=self.log,
            stderr=self.log,
        )

    def heard(self, seconds: float = LONGEST) -> str:
        """Return the next message; empty: none came."""
        self.socket.settimeout(seconds)
        try:
            return self.socket.recv(4096).decode()
        except TimeoutError:
            return ""

    def until(self, state: str) -> list[str]:
        """Return what was heard before a state was."""
        before = []
        deadline = time.monotonic() + LONGEST
        while (said := self.heard()) != state:
            assert said, Path(self.log.name).read_text()
            assert time.monotonic() < deadline
            before.append(said)
        return before

    def close(self) -> None:
        """End the daemon."""
        self.process.kill()
        self.process.wait()
        self.socket.close()
        self.log.close()


@pytest.fixture
def manager(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Manager]:
    """Run a daemon whose batch system does not answer."""
    running = Manager(tmp_path, **request.param)
    yield running
    running.close()


WATCHED = {"WATCHDOG_USEC": f"{LIMIT * 1e6:.0f}", "PYTHONFAULTHANDLER": "1"}


@pytest.mark.parametrize("manager", [WATCHED], indirect=True)
def test_a_loop_that_hangs_falls_silent(manager: Manager) -> None:
    """A daemon pings while it goes round; stopped it does not, and what it was at is written."""
    before = manager.until("READY=1")
    assert before
    assert all(said.startswith("EXTEND_TIMEOUT_USEC=") for said in before)
    for _ in range(3):
        assert manager.heard() == "WATCHDOG=1"
    manager.process.send_signal(signal.SIGSTOP)
    while manager.heard(2 * LIMIT):  # what was under way
        pass
    manager.process.send_signal(signal.SIGCONT)
    assert manager.heard() == "WATCHDOG=1"
    manager.process.send_signal(signal.SIGABRT)  # as systemd ends what hangs
    assert manager.process.wait(LONGEST) == -signal.SIGABRT
    assert "most recent call first" in Path(manager.log.name).read_text()


@pytest.mark.parametrize("manager", [WATCHED | {"WATCHDOG_PID": "1"}, {}], indirect=True)
def test_nobody_watches(manager: Manager) -> None:
    """Without a watchdog, or with another process's, nothing is sent but starts and stops."""
    manager.until("READY=1")
    assert manager.heard(2 * LIMIT) == ""
    manager.process.send_signal(signal.SIGTERM)
    assert manager.heard() == "STOPPING=1"
    assert manager.process.wait(LONGEST) == 0
