"""Plug-ins made up for these tests beside the real ones, and a runner."""

import os
import threading
import time

import pytest
from click.testing import CliRunner, Result
from made_up import BROKEN, MADE_UP

from rtsched.cli import main
from rtsched.core.plugins import discover


@pytest.fixture
def listed(monkeypatch):
    """Return a function that has exactly these made-up plug-ins installed."""

    def listed(*names: str) -> None:
        every = {**BROKEN, **MADE_UP}
        chosen = {name: every[name] for name in names}
        monkeypatch.setattr("rtsched.core.plugins.discover", lambda: chosen)

    return listed


@pytest.fixture
def made_up(monkeypatch):
    """Install the made-up plug-ins beside the real ones."""
    found = {**discover(), **MADE_UP}
    monkeypatch.setattr("rtsched.core.plugins.discover", lambda: found)
    return found


@pytest.fixture
def zone():
    """Return a function that sets the local time zone; before the first call it is UTC."""
    before = os.environ.get("TZ")

    def zone(name: str | None) -> None:
        os.environ.pop("TZ", None)
        if name is not None:
            os.environ["TZ"] = name
        time.tzset()

    zone("UTC")
    yield zone
    zone(before)


@pytest.fixture
def run(monkeypatch, tmp_path, zone):
    """Return a function that runs a command in an empty directory, as on a fast machine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("rtsched.cli.common.FIRST_LINE", threading.TIMEOUT_MAX)

    def run(*arguments: object) -> Result:
        return CliRunner().invoke(main, [str(argument) for argument in arguments])

    return run


@pytest.fixture
def refused():
    """Return a check of a refusal: status, sentences with these words, no traceback, no output."""

    def refused(result: Result, *words: str, status: int = 2) -> None:
        assert result.exit_code == status, (result.stdout, result.stderr)
        assert result.stdout == ""
        assert "Traceback" not in result.stderr
        lines = result.stderr.splitlines()
        assert [line for line in lines if line.startswith(("rtsched: error: ", "Error: "))]
        for word in words:
            assert word in result.stderr

    return refused


@pytest.fixture
def log(tmp_path):
    """Write a small log: 60 jobs of two users on 16 processors, half of them with long queues."""
    lines = ["; MaxProcs: 16", "; UnixStartTime: 1795219200"]
    for k in range(1, 61):
        run, size = 300 + 97 * (k * k % 23), (1, 2, 4, 7, 16)[k % 5]
        wait, asked = (0 if k % 2 else 600), run + 60 * (k % 7)
        lines.append(
            f"{k} {k * 120} {wait} {run} {size} -1 -1 {size} {asked} -1 1 {k % 3} {k % 2} -1 1 "
            "-1 -1 -1"
        )
    path = tmp_path / "small.swf"
    path.write_text("\n".join(lines) + "\n")
    return path
