"""Measure whole processes on one core."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

os.environ.setdefault("RTSCHED_COMPILE", "1")  # measured processes wait until all is compiled

HERE = Path(__file__).parent
CORE = max(os.sched_getaffinity(0))
"""The core that measured processes are bound to."""


class Used(NamedTuple):
    """What a process took, from its start to its end."""

    wall: float
    """Seconds."""
    cpu: float
    """Seconds in the process and in the kernel for it."""
    peak_mb: float
    """Greatest resident memory, MiB."""
    output: str
    """What it printed on standard output."""


class ChildError(RuntimeError):
    """A measured process failed; the message is what it said."""


def run_alone(command: Sequence[str | Path], directory: Path | None = None) -> Used:
    """Run a command bound to one core and return what it took.

    The caller must be small: a child's peak memory is at least what its parent held when it
    was made.

    Raises
    ------
    ChildError
        If it does not end well.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        begin = time.perf_counter()
        child = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=directory,
            preexec_fn=lambda: os.sched_setaffinity(0, {CORE}),
        )
        _, status, used = os.wait4(child.pid, 0)
        wall = time.perf_counter() - begin
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if child.returncode:
            last = err.read().strip().splitlines()[-1:]
            words = " ".join(str(word) for word in command)
            raise ChildError(f"`{words}` ended with {child.returncode}: {''.join(last)}")
        return Used(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, out.read())


def processor_s(pid: int) -> float:
    """Return the processor seconds that a running process has used, in steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def script(name: str, *arguments: str | Path) -> list[str | Path]:
    """Return the command that runs a script of this directory."""
    return [sys.executable, HERE / name, *arguments]


def machine() -> dict[str, Any]:
    """Return what the figures depend on."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 2),
    }
