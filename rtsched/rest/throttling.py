"""Limits of requests: of one user to the server, and of all together to the daemon."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rtsched.errors import RtschedError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

REMEMBERED = 10_000
"""Users whose last requests are remembered."""


class TooMuchError(RtschedError):
    """A request that comes too soon; `retry_s` says when to try again, seconds."""

    def __init__(self, text: str, retry_s: float) -> None:
        self.retry_s = retry_s
        super().__init__(text)


class OverloadError(TooMuchError):
    """A request that comes too soon since others ask too much, too."""


class TokenBucket:
    """A number of requests at once, and then so many per second, for each of many users.

    Parameters
    ----------
    rate : float
        Requests per second.
    burst : int
        Requests at once.
    clock : callable
        Seconds that never go back.
    """

    def __init__(
        self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate, self._depth, self._clock = rate, burst / rate, clock
        self._empty: dict[Hashable, float] = {}
        """When the bucket of a user will be full again."""

    def take(self, who: Hashable) -> None:
        """Count a request.

        Raises
        ------
        TooMuchError
            If it is one too many; then it is not counted.
        """
        now = self._clock()
        if len(self._empty) > REMEMBERED:
            self._empty = {user: full for user, full in self._empty.items() if full > now}
        full = max(self._empty.get(who, now), now) + 1 / self._rate
        if full - now > self._depth + 1e-9:
            raise TooMuchError("too many requests; slow down", full - now - self._depth)
        self._empty[who] = full


class ConcurrencyLimit:
    """A number of places, of which one user has a part.

    Parameters
    ----------
    number : int
        In all.
    each : int
        For one user.
    """

    def __init__(self, number: int, each: int) -> None:
        self.number, self.each = number, each
        self.taken = Counter[int]()

    @contextmanager
    def slot(self, uid: int) -> Iterator[None]:
        """Take a place for this block.

        Raises
        ------
        TooMuchError
            If the user has no more.
        OverloadError
            If there is none at all.
        """
        if self.taken[uid] >= self.each:
            raise TooMuchError("too many requests of yours at a time; wait for the answers", 1.0)
        if self.taken.total() >= self.number:
            raise OverloadError("too many requests at a time; try again in a second", 1.0)
        self.taken[uid] += 1
        try:
            yield
        finally:
            self.taken[uid] -= 1
            if not self.taken[uid]:
                del self.taken[uid]
