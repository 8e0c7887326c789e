"""A short log is replayed at once where kernels are not compiled; they are compiled beside it."""

import errno
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from testbed.waiting import wait_for

from rtsched.cli import replay
from rtsched.kernels import compiling
from rtsched.replay.uncompiled import SHORT, NotCompiled, may_restart, unless_compiling

pytestmark = pytest.mark.skipif(not compiling.COMPILING, reason="nothing is compiled here")


COMMAND = (sys.executable, "-m", "rtsched", "replay")


def write_log(path: Path, jobs: int) -> Path:
    """Write an SWF log of jobs of one node, a minute each."""
    lines = [f"{k + 1} {60 * k} 0 60 1 -1 -1 1 120 -1 1 1 1 -1 1 1 -1 -1" for k in range(jobs)]
    path.write_text("; MaxNodes: 4\n" + "\n".join(lines) + "\n")
    return path


def replayed(
    log: Path, cache: Path, workers: int, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Replay a log by the command, in a process that keeps kernels in `cache`."""
    kept = {name: value for name, value in os.environ.items() if name != "RTSCHED_COMPILE"}
    return subprocess.run(
        [*COMMAND, log, "--policy", "easy,mcdf", "--json", "--workers", str(workers)],
        env=kept | {"NUMBA_CACHE_DIR": str(cache)} | environment,
        cwd=log.parent,
        capture_output=True,
        text=True,
        check=True,
    )


def without_times(summary: str) -> str:
    """Return a summary without what differs from run to run."""
    return re.sub(r'"seconds": ?[\d.e+-]+', "", summary)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_short_log_does_not_wait_for_kernels(tmp_path: Path, workers: int) -> None:
    """The result is there though nothing is compiled, and a process of low priority compiles."""
    log, cache = write_log(tmp_path / "short.swf", 40), tmp_path / "cache"
    cache.mkdir()
    done = replayed(log, cache, workers)
    number = int(re.search(r"in the background \(process (\d+)\)", done.stderr)[1])  # type: ignore[index]
    try:
        assert os.getpriority(os.PRIO_PROCESS, number) == 19
        assert os.getsid(number) == number
        wait_for("a compiled kernel", lambda: any(cache.rglob("machine*.nbi")), 120.0)
    finally:
        os.kill(number, signal.SIGKILL)
    plain = replayed(log, cache, workers, RTSCHED_COMPILE="0")
    assert "background" not in plain.stderr
    assert "resource_tracker" not in done.stderr
    assert without_times(done.stdout) == without_times(plain.stdout)


def test_a_short_log_is_replayed_where_no_process_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit on processes is no error of the replay; nothing is compiled then."""

    def none_left() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def refused(_asked: object) -> int:
        raise NotCompiled

    monkeypatch.setattr(os, "fork", none_left)
    monkeypatch.setattr(replay, "perform", refused)
    monkeypatch.setattr(replay, "again_uncompiled", lambda: print("again"))
    log = write_log(tmp_path / "short.swf", 2)
    done = CliRunner().invoke(replay.command, [str(log)], catch_exceptions=False)
    assert "uncompiled; kernels are not compiled in the background" in done.stderr
    assert "(Resource temporarily unavailable)" in done.stderr
    assert done.stdout == "again\n"


def test_only_this_program_starts_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one that calls it, nor where the environment decides, nor for what is read once."""
    log = write_log(tmp_path / "log.swf", 1)
    monkeypatch.delenv("RTSCHED_COMPILE", raising=False)
    assert not may_restart([log])
    for program in ("/usr/bin/rtsched", "/usr/lib/python3/rtsched/__main__.py"):
        monkeypatch.setattr(sys, "argv", [program])
        assert may_restart([log])
        assert not may_restart([log, Path("/dev/stdin")])
        assert not may_restart([tmp_path / ("x" * 300)])  # as in a directory that may not be read
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert not may_restart([log])
    monkeypatch.undo()
    monkeypatch.setattr(sys, "argv", ["rtsched"])
    monkeypatch.setenv("RTSCHED_COMPILE", "1")
    assert not may_restart([log])


def test_what_would_be_compiled_is_refused() -> None:
    """Where a kernel of rtsched would be compiled; one that was is called, and so are others."""
    kernel, own = (compiling.numba.njit(lambda value: value + 1) for _ in range(2))
    kernel.py_func.__module__ = "rtsched.kernels.added"
    with pytest.raises(NotCompiled), unless_compiling():
        kernel(1)
    with unless_compiling(False):
        assert kernel(1) == 2
    with unless_compiling():
        assert kernel(1) == own(1) == 2


def test_short_is_what_takes_less_than_compiling() -> None:
    """Documents name the number."""
    assert f"{SHORT:,}" in (Path(__file__).parents[2] / "docs" / "design.md").read_text()
