"""Services in a sandbox: started in the background, known by their process ids, logged to files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.errors import TestbedError
from testbed.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from testbed.sandbox import Sandbox

STATE = "/run/testbed"

BACKGROUND = """
pid=$1 log=$2
shift 2
exec setsid --fork sh -c 'echo $$ >"$0"; exec "$@"' "$pid" "$@" </dev/null >>"$log" 2>&1
"""


class Services:
    """The services of a sandbox, by name."""

    def __init__(self, box: Sandbox) -> None:
        self.box = box

    def prepare(self) -> None:
        """Make the directories of process ids and logs."""
        self.box.run(["install", "-d", "-m", "1777", STATE, "/var/log/testbed"])

    def start(
        self,
        name: str,
        argv: Sequence[str],
        *,
        user: str = "root",
        env: Mapping[str, str] | None = None,
        ready: Callable[[], bool] | None = None,
        timeout: float = 30,
    ) -> None:
        """Start a program that stays in the foreground, and wait until it is `ready`.

        Raises
        ------
        TestbedError
            With the end of its log, if it ends or is not ready in time.
        """
        self.box.path(f"{STATE}/{name}.pid").unlink(missing_ok=True)
        words = ["sh", "-c", BACKGROUND, "start", f"{STATE}/{name}.pid", self.log_file(name), *argv]
        self.box.run(words, user=user, env=env, cwd="/")
        wait_for(f"{name} starts", lambda: self.pid(name) != 0)
        if ready is None:
            return
        try:
            wait_for(f"{name} is ready", lambda: not self.alive(name) or ready(), timeout)
        except TestbedError as error:
            raise TestbedError(f"{error}\n{self.log_tail(name)}") from error
        if not self.alive(name):
            raise TestbedError(f"{name} ended at its start\n{self.log_tail(name)}")

    def pid(self, name: str) -> int:
        """Return its process id inside the sandbox; 0 if it never was started."""
        try:
            return int(self.box.path(f"{STATE}/{name}.pid").read_text().strip() or 0)
        except FileNotFoundError:
            return 0

    def alive(self, name: str) -> bool:
        """Whether its process is there."""
        pid = self.pid(name)
        return pid != 0 and self.box.path(f"/proc/{pid}").exists()

    def signal(self, name: str, signal: str) -> None:
        """Send a signal, by name such as TERM, if it is there."""
        if self.alive(name):
            self.box.run(["kill", f"-{signal}", str(self.pid(name))], check=False)

    def stop(self, name: str, signal: str = "TERM", timeout: float = 30) -> None:
        """Send a signal and wait until it is gone; safe to repeat."""
        self.signal(name, signal)
        wait_for(f"{name} ends", lambda: not self.alive(name), timeout)

    def log_file(self, name: str) -> str:
        """Return where it writes what it prints."""
        return f"/var/log/testbed/{name}.log"

    def log_tail(self, name: str, lines: int = 40) -> str:
        """Return the last lines of what it printed and of its own log."""
        found = []
        for path in (self.log_file(name), f"/var/log/slurm/{name}.log"):
            file = self.box.path(path)
            if file.exists():
                found += [f"--- {path}", *file.read_text(errors="replace").splitlines()[-lines:]]
        return "\n".join(found)
