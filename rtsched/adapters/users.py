"""Users of this machine, by number and by name.

A name service (nsswitch.conf(5)) may be slow, or away for a while. What it said is remembered: a
name is looked up again in the background after an hour and stays if that fails, and a user who was
not found is looked for again after some seconds. Look-ups run in threads of their own, and nobody
waits for one longer than a bound. On an event loop nobody waits at all: `NotKnownYetError` is
raised there, and whoever works on the loop awaits `known` and asks again. So it is in a thread that
works for the loop by `at_once`.
"""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from contextlib import suppress
from contextvars import ContextVar
from threading import Lock, Thread
from time import monotonic as clock
from typing import TYPE_CHECKING, Generic, NamedTuple, ParamSpec, TypeVar

from rtsched.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FRESH = 3600.0
"""Seconds after which a user who was found is looked up again."""

RETRY = 10.0
"""Seconds after which a user who was not found is looked for again."""

PATIENCE = 10.0
"""Seconds that a thread waits for a look-up."""

RUNNING = 8
"""Look-ups that run at a time; while so many hang, others are not begun."""

MOST = 4096
"""Users remembered."""

K = TypeVar("K", int, str)
V = TypeVar("V", int, str)
P = ParamSpec("P")
T = TypeVar("T")


class NotKnownYetError(AdapterError):
    """A user has to be looked up first, and this is an event loop: see `known`."""

    def __init__(self, users: _Users[int, str] | _Users[str, int], key: int | str) -> None:
        super().__init__(f"the name service did not say in time who user {key} is; try again")
        self.users, self.key = users, key


class _Found(NamedTuple, Generic[V]):
    value: V | None
    """None: there is no such user."""
    at: float


class _Users(Generic[K, V]):
    """One direction of look-ups, remembered; safe to use from several threads."""

    def __init__(self, look_up: Callable[[K], V]) -> None:
        self._look_up: Callable[[K], V] = look_up
        self._found: dict[K, _Found[V]] = {}
        self._running: dict[K, Future[V | None]] = {}
        self._lock = Lock()

    def get(self, key: K, patience: float) -> V | None:
        """Return what a user is called; None: there is no such user, or it is not known."""
        found, now = self._found.get(key), clock()
        if found is not None and found.value is not None:
            if now > found.at + FRESH:
                self.begin(key)
            return found.value
        if found is not None and now < found.at + RETRY:
            return None
        if asyncio._get_running_loop() is not None or _AT_ONCE.get():
            raise NotKnownYetError(self, key)  # type: ignore[arg-type]
        try:
            running = self.begin(key)
            return None if running is None else running.result(patience)
        except LateError:
            return None

    def begin(self, key: K) -> Future[V | None] | None:
        """Return the look-up of a user, begun if it does not run yet; None: too many run."""
        with self._lock:
            running = self._running.get(key)
            if running is None and len(self._running) < RUNNING:
                running = self._running[key] = Future()
                Thread(target=self._run, args=(key, running), name="users", daemon=True).start()
            return running

    def late(self, key: K) -> bool:
        """Take a user who was not found before as not found again; return if there was none."""
        with self._lock:
            if key not in self._found:
                return True
            self._found[key] = _Found(self._found[key].value, clock())
            return False

    def forget(self) -> None:
        """Forget what was found."""
        with self._lock:
            self._found.clear()

    def _run(self, key: K, running: Future[V | None]) -> None:
        try:
            value: V | None = self._look_up(key)
        except (KeyError, OverflowError, ValueError, OSError):
            value = None
        with self._lock:
            del self._running[key]
            before = self._found.pop(key, None)
            if value is None and before is not None:
                value = before.value  # it was found once: the name service is away
            self._found[key] = _Found(value, clock())
            if len(self._found) > MOST:
                del self._found[next(iter(self._found))]
        running.set_result(value)


_AT_ONCE = ContextVar("at_once", default=False)
"""Whether a thread works for the event loop, and waits for nobody's name either."""


def at_once(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `work` returns in a thread that waits for no name, as an event loop does not.

    Raises
    ------
    NotKnownYetError
        If a name would have to be waited for.
    """
    token = _AT_ONCE.set(True)
    try:
        return work(*args, **kwargs)
    finally:
        _AT_ONCE.reset(token)


_NAMES: _Users[int, str] = _Users(lambda uid: pwd.getpwuid(uid).pw_name)
_GROUPS: _Users[int, str] = _Users(lambda uid: " ".join(_group_names(uid)))
_UIDS: _Users[str, int] = _Users(lambda name: pwd.getpwnam(name).pw_uid)


def user_name(uid: int, patience: float = PATIENCE) -> str:
    """Return a user's name; the number where there is none, or it is not known in time.

    Raises
    ------
    NotKnownYetError
        If it would have to be waited for on an event loop.
    """
    return _NAMES.get(uid, patience) or str(uid)


def groups_of(uid: int, patience: float = PATIENCE) -> list[str]:
    """Return the names of a user's groups; none where these are not known in time.

    Raises
    ------
    NotKnownYetError
        If they would have to be waited for on an event loop.
    """
    return (_GROUPS.get(uid, patience) or "").split()


def _group_names(uid: int) -> Iterator[str]:
    user = pwd.getpwuid(uid)
    for gid in os.getgrouplist(user.pw_name, user.pw_gid):
        with suppress(KeyError):
            yield grp.getgrgid(gid).gr_name


def uid_of(name: str, patience: float = PATIENCE) -> int:
    """Return a user's number; -1 where there is no such user (yet), or it is not known in time.

    Raises
    ------
    NotKnownYetError
        If it would have to be waited for on an event loop.
    """
    uid = _UIDS.get(name, patience)
    return -1 if uid is None else uid


async def known(missing: NotKnownYetError, patience: float) -> None:
    """Look up, beside the loop, a user whom `user_name` or `uid_of` did not know yet.

    Whoever was not found before is taken as not found again if that takes too long.

    Raises
    ------
    NotKnownYetError
        If it is not known within `patience` seconds; the look-up goes on, for who asks next.
    """
    users, key = missing.users, missing.key
    running = users.begin(key)  # type: ignore[arg-type]
    if running is not None:
        await asyncio.wait([asyncio.wrap_future(running)], timeout=patience)
        if running.done():
            return
    if users.late(key):  # type: ignore[arg-type]
        raise missing


def forget_users() -> None:
    """Forget what the name service said."""
    _NAMES.forget()
    _UIDS.forget()
    _GROUPS.forget()
