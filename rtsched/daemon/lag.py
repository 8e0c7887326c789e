"""Lag of the loop: how long a submit filter waits before its question is looked at.

A timer that is due every 20 ms says by how much it came too late. What a timer waits for, a
question that came at the same instant waits for too.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

log = structlog.get_logger(__name__)

EVERY = 0.02
"""Seconds from one timer to the next."""

LONG = 0.05
"""Seconds from which on a delay is said in the log: a submit filter waits no longer in all."""

LOG_EVERY = 1.0
"""Seconds between two log lines."""

WINDOW = 60.0
"""Seconds after which the longest delay begins to be forgotten."""


class LoopLag:
    """Measures the lag of the loop that it is started on.

    Parameters
    ----------
    seen : callable
        Called with each lag, in seconds.
    every : float
        Seconds from one measurement to the next.
    """

    def __init__(self, seen: Callable[[float], None], every: float = EVERY) -> None:
        self._seen, self._every = seen, every
        self._timer: asyncio.TimerHandle | None = None
        self._due = self._since = 0.0
        self._last_logged = -LOG_EVERY
        self._blocked = 0
        self._longest = [0.0, 0.0]

    def start(self) -> None:
        """Begin to measure the running loop."""
        loop = asyncio.get_running_loop()
        self._since, self._due = loop.time(), loop.time() + self._every
        self._timer = loop.call_at(self._due, self._tick, loop)

    def stop(self) -> None:
        """Measure no more."""
        if self._timer is not None:
            self._timer.cancel()

    def longest(self) -> float:
        """Return the longest lag of the last minute or two, seconds."""
        return max(self._longest)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        lag = max(now - self._due, 0.0)
        if now >= self._since + WINDOW:
            self._since, self._longest = now, [0.0, self._longest[0]]
        self._longest[0] = max(self._longest[0], lag)
        self._seen(lag)
        if lag >= LONG:
            self._blocked += 1
            if now >= self._last_logged + LOG_EVERY:
                self._last_logged = now
                log.warning("loop_blocked", seconds=round(lag, 3), times=self._blocked)
        self._due = now + self._every
        self._timer = loop.call_at(self._due, self._tick, loop)
