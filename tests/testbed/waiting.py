"""Waiting for what is to happen, and how much of the time allowed was left when it did.

Waits are given in seconds of a quiet machine. They are measured on a clock that goes slower while
more processes want to run than there are processors, so that a busy machine has as much time for
its work as a quiet one, and may take `PATIENCE` times longer for what that does not show (disks,
networks). Each wait is noted; pytest's summary shows those with the least slack.
"""

from __future__ import annotations

import linecache
import os
import sys
import textwrap
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from testbed.errors import TestbedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType

T = TypeVar("T")

PATIENCE = 3.0
"""So many times longer than on a quiet machine may things take."""
SLOWEST = 5.0
"""The clock never goes slower than this: a test that fails must end."""
PROCESSORS = len(os.sched_getaffinity(0))
HERE = Path(__file__).parent


class QuietClock:
    """The time that a quiet machine would have needed for what this one did since the start.

    While `n` processes want to run on `p` processors each gets `p / n` of one: of a second, that
    much is counted. `now` has to be read every few seconds.
    """

    def __init__(self) -> None:
        self._at, self._passed = time.monotonic(), 0.0

    def now(self) -> float:
        """Return the seconds of a quiet machine since the start."""
        at = time.monotonic()
        self._passed += (at - self._at) / slowdown()
        self._at = at
        return self._passed


def slowdown() -> float:
    """Return how many times slower a process runs now than on a quiet machine; at least 1."""
    runnable = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
    return min(max(1.0, runnable / PROCESSORS), SLOWEST)


@dataclass(frozen=True)
class Wait:
    """A wait that is over.

    Attributes
    ----------
    what : str
        What was awaited.
    waited, allowed : float
        Seconds of a quiet machine.
    """

    what: str
    waited: float
    allowed: float

    @property
    def slack(self) -> float:
        """Which part of the time allowed was left, at most 1; negative if it was not enough."""
        return 1.0 - self.waited / self.allowed


@dataclass
class Noted:
    """The waits of this process that nobody has taken yet."""

    waits: deque[Wait] = field(default_factory=lambda: deque(maxlen=100_000))

    def add(self, what: str, waited: float, allowed: float) -> None:
        """Note a wait that is over."""
        self.waits.append(Wait(what, waited, allowed))

    def take(self) -> list[Wait]:
        """Return the waits since the last call."""
        found = list(self.waits)
        self.waits.clear()
        return found


NOTED = Noted()


def attempts(seconds: float, what: str) -> Iterator[None]:
    """Yield for each attempt at what a quiet machine does in so many seconds.

    Between two attempts there is a rest three times as long as the last one took, so that asking
    leaves most of a processor to whoever is to act. The wait is noted when its loop is left.
    """
    allowed, clock, waited = PATIENCE * seconds, QuietClock(), 0.0
    try:
        while True:
            begun = time.monotonic()
            yield
            waited = clock.now()
            if waited > allowed:
                return
            time.sleep(min(max(0.05, 3.0 * (time.monotonic() - begun)), 1.0))
    finally:
        NOTED.add(what, max(waited, clock.now()), allowed)


def eventually(
    claim: Callable[[], T], seconds: float = 20, what: str | Callable[[], str] = ""
) -> T:
    """Ask again and again until a claim is true; return what it returned then.

    Parameters
    ----------
    claim : callable
        What is asked.
    seconds : float
        A quiet machine needs less.
    what : str or callable
        What is awaited, or what to say if it never comes; the line that waits, by default.

    Raises
    ------
    TestbedError
        If it never is true.
    """
    line = what if isinstance(what, str) and what else _asker()
    for _ in attempts(seconds, line):
        if found := claim():
            return found
    text = what() if callable(what) else line
    raise TestbedError(f"not within {PATIENCE * seconds:g} s of a quiet machine: {text}")


def wait_for(what: str, claim: Callable[[], T], timeout: float = 30) -> T:
    """Wait as `eventually` does, for what is said first."""
    return eventually(claim, timeout, what)


def least_slack(waits: Iterable[tuple[str, Wait]], count: int = 12) -> list[str]:
    """Return lines about the waits that came closest to failing, each with the test's name."""
    worst = sorted(waits, key=lambda pair: pair[1].slack)[:count]
    return [
        f"{wait.slack:4.0%} left: {wait.waited:.1f} s of {wait.allowed:g} s  {test}  "
        + textwrap.shorten(wait.what, 100)
        for test, wait in worst
    ]


def _asker() -> str:
    """Return the line that waits: of a test where there is one, else outside the testbed."""
    frames = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        frames.append((Path(frame.f_code.co_filename), frame.f_lineno))
        frame = frame.f_back
    tests = (each for each in frames if each[0].name.startswith("test_"))
    others = (each for each in frames if each[0].parent != HERE)
    path, number = next(tests, None) or next(others)
    return f"{path.name}:{number}: {linecache.getline(str(path), number).strip()}"
