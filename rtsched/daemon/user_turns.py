"""Users in turn: at the door for submissions, and in one thread for their questions.

What users ask for takes time of the interpreter, which the loop needs too. So one user gets a share
of it and no more, and all users together get a share.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rtsched.daemon.server import HungUpError
from rtsched.errors import RtschedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

T = TypeVar("T")

EACH, ALL = 0.1, 0.3
"""Of the time, how much the work for one user may take, and that for all users."""

BURST = 0.2
"""Seconds of work that may be done at once."""

WAITING = 200
"""Pieces of work that wait at the most."""

NAP = 0.02
"""Seconds after which it is looked again whose turn it is, while everybody has to wait."""


USUAL = 0.01
"""Seconds that an evaluation for a user is thought to take before any was made."""

FORGET = 0.9
"""By how much one is thought to take less after one that was left out."""


class BusyError(RtschedError):
    """Too much work waits already."""

    def __init__(self) -> None:
        super().__init__("too many pending requests; try again in a few seconds")


class ClosedError(RtschedError):
    """The thread works no more."""

    def __init__(self) -> None:
        super().__init__("the daemon is stopping or going on standby; try again in a few seconds")


class RateLimiter:
    """When somebody may use the thread again, by how long it was used before."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._paid: dict[int, float] = {}

    def wait(self, who: int, now: float) -> float:
        """Return for how many seconds somebody has to wait."""
        return max(self._paid.get(who, now) - now - BURST / self._share, 0.0)

    def used(self, who: int, now: float, seconds: float) -> None:
        """Remember that somebody used so many seconds."""
        if len(self._paid) > 10_000:
            self._paid = {uid: at for uid, at in self._paid.items() if at > now}
        self._paid[who] = max(self._paid.get(who, now), now) + seconds / self._share


class Turns:
    """Lets one at a time go on, the users in turn, however many of one user wait."""

    def __init__(self) -> None:
        self._taken, self._last = False, -1
        self._waiting: dict[int, deque[asyncio.Future[None]]] = {}

    @contextlib.asynccontextmanager
    async def of(self, uid: int, seconds: float = math.inf) -> AsyncIterator[None]:
        """Wait for a turn of a user.

        Raises
        ------
        TimeoutError
            If it does not come within so many seconds.
        """
        async with asyncio.timeout(max(seconds, 0.0) if math.isfinite(seconds) else None):
            await self._take(uid)
        try:
            yield
        finally:
            self._give_back()

    @property
    def waiting(self) -> int:
        """Return how many wait for a turn."""
        return sum(map(len, self._waiting.values()))

    async def _take(self, uid: int) -> None:
        if not self._taken:
            self._taken, self._last = True, uid
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(uid, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it came at the same moment
                self._give_back()
            raise

    def _give_back(self) -> None:
        while self._waiting:
            others = (uid for uid in self._waiting if uid != self._last)
            uid = next(others, self._last)
            turns = self._waiting.pop(uid)
            turn = turns.popleft()
            if turns:
                self._waiting[uid] = turns
            if not turn.done():
                turn.set_result(None)
                self._last = uid
                return
        self._taken = False


class Usual:
    """How long an evaluation is thought to take, for each user: what one asks slows no other."""

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}

    def of(self, uid: int) -> float:
        """Return how many seconds one for a user is thought to take."""
        return self._seconds.get(uid, USUAL)

    def took(self, uid: int, seconds: float) -> None:
        """Take into account that one for a user took so many seconds."""
        self._seconds[uid] = self.of(uid) + (seconds - self.of(uid)) / 8.0

    def was_left_out(self, uid: int) -> None:
        """Take into account that one was not begun, so that a user is evaluated again some time."""
        self._seconds[uid] = self.of(uid) * FORGET


class _Piece(NamedTuple):
    work: Callable[[], Any]
    wanted: Callable[[], bool]
    done: asyncio.Future[Any]


class FairThread:
    """Does work for users in a thread, one piece at a time, for each user in turn.

    Root is not limited to a share.

    Parameters
    ----------
    name : str
        Of the thread.
    """

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._each, self._all = RateLimiter(EACH), RateLimiter(ALL)
        self._waiting: dict[int, deque[_Piece]] = {}
        self._present: _Piece | None = None
        self._serving: asyncio.Task[None] | None = None

    async def run(self, uid: int, work: Callable[[], T], wanted: Callable[[], bool]) -> T:
        """Return what `work` returns in the thread, or raise what it raises there.

        Parameters
        ----------
        uid : int
            For whom.
        work : callable
            What to do.
        wanted : callable
            Returns whether anybody still waits for it; asked when its turn has come.

        Raises
        ------
        BusyError
            If too much waits already.
        HungUpError
            If it was not wanted any more.
        ClosedError
            If the thread was closed before.
        """
        if sum(map(len, self._waiting.values())) >= WAITING:
            raise BusyError
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(uid, deque()).append(_Piece(work, wanted, done))
        if self._serving is None:
            self._serving = asyncio.create_task(self._serve())
        return await done

    def close(self) -> None:
        """Do no more work, and do not wait for what is being done; who waits is told so."""
        if self._serving is not None:
            self._serving.cancel()
        waiting = [piece for pieces in self._waiting.values() for piece in pieces]
        for piece in (*waiting, *([self._present] if self._present is not None else ())):
            if not piece.done.done():
                piece.done.set_exception(ClosedError())
        self._waiting.clear()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _serve(self) -> None:
        """Work until nothing waits."""
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                uid = self._next()
                if uid is None:
                    await asyncio.sleep(NAP)
                    continue
                piece = self._present = self._taken(uid)
                if piece.done.done():
                    continue
                if not piece.wanted():
                    piece.done.set_exception(HungUpError())
                    continue
                outcome, seconds = await loop.run_in_executor(self._thread, _timed, piece.work)
                self._used(uid, seconds)
                if piece.done.done():
                    continue
                if isinstance(outcome, Exception):
                    piece.done.set_exception(outcome)
                else:
                    piece.done.set_result(outcome)
        finally:
            self._serving = None

    def _next(self) -> int | None:
        """Return whose turn it is, of those that wait; None: nobody's yet."""
        now = time.monotonic()
        if 0 in self._waiting:
            return 0
        if self._all.wait(-1, now) > 0.0:
            return None
        return next((uid for uid in self._waiting if self._each.wait(uid, now) <= 0.0), None)

    def _taken(self, uid: int) -> _Piece:
        """Take a user's first piece of work; what is left comes after that of the others."""
        pieces = self._waiting.pop(uid)
        piece = pieces.popleft()
        if pieces:
            self._waiting[uid] = pieces
        return piece

    def _used(self, uid: int, seconds: float) -> None:
        if uid:
            now = time.monotonic()
            self._each.used(uid, now, seconds)
            self._all.used(-1, now, seconds)


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return what some work came to, and how many seconds of a processor it took."""
    begun = time.thread_time()
    try:
        outcome = work()
    except Exception as error:
        outcome = error
    return outcome, time.thread_time() - begun
