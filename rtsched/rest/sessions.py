"""Browsers' sessions: a browser has no credential of munge, so a command that has one opens them.

`rtsched board` gets a ticket, which is good for one visit within a minute; the visit brings a
cookie. Both are random, and only their hashes are kept, in memory: a restart ends all sessions.
A session reads pages of the board, and nothing else.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from typing import TYPE_CHECKING, NamedTuple

from rtsched.errors import RtschedError

if TYPE_CHECKING:
    from collections.abc import Callable

COOKIE = "rtsched-session"
TICKET_S = 60.0
"""Seconds within which a ticket must be used."""
SESSION_S = 8 * 3600.0
"""Seconds for which a session lasts."""
EACH = 16
"""Tickets, and sessions, of one user at a time; the oldest give way."""


class NoSessionError(RtschedError):
    """A ticket that was used, or is unknown or too old."""


class Pass(NamedTuple):
    """Who may come in, and until when by the clock of `Sessions`."""

    uid: int
    until: float


class Sessions:
    """The tickets and sessions of one server.

    Parameters
    ----------
    clock : callable
        Seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tickets: dict[bytes, Pass] = {}
        self._open: dict[bytes, Pass] = {}

    def ticket(self, uid: int) -> str:
        """Return a ticket for a user."""
        return self._new(self._tickets, uid, TICKET_S)

    def enter(self, ticket: str) -> str:
        """Return the cookie's value of a new session, for a ticket, which is used up.

        Raises
        ------
        NoSessionError
            If it is no ticket, or no longer one.
        """
        found = self._tickets.pop(_hash(ticket), None)
        if found is None or found.until < self._clock():
            raise NoSessionError(
                "this link was used, or is older than a minute; run `rtsched board` again"
            )
        return self._new(self._open, found.uid, SESSION_S)

    def uid(self, cookie: str) -> int | None:
        """Return whose session it is; None: it has ended, or never was."""
        found = self._open.get(_hash(cookie))
        return found.uid if found is not None and found.until >= self._clock() else None

    def _new(self, passes: dict[bytes, Pass], uid: int, seconds: float) -> str:
        now, secret = self._clock(), secrets.token_urlsafe(32)
        for key in [key for key, each in passes.items() if each.until < now]:
            del passes[key]
        own = [key for key, each in passes.items() if each.uid == uid]
        for key in own[: max(len(own) - EACH + 1, 0)]:
            del passes[key]
        passes[_hash(secret)] = Pass(uid, now + seconds)
        return secret


def cookie_in(header: str) -> str:
    """Return the session's cookie in a `Cookie` header; empty: none is there."""
    pairs = (pair.strip().partition("=") for pair in header.split(";"))
    return next((value for name, _, value in pairs if name == COOKIE), "")


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()
