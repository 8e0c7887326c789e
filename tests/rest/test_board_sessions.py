"""Tickets and sessions of browsers: good once, for a while, and for one user."""

from __future__ import annotations

import pytest

from rtsched.rest.authentication import (
    COOKIE,
    SESSION_S,
    SESSIONS_EACH,
    TICKET_S,
    NoSessionError,
    Sessions,
    cookie_in,
)


class Clock:
    """A clock that is set."""

    now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def test_a_ticket_is_good_once() -> None:
    """It brings a session of its user; a second visit, or another ticket, brings none."""
    sessions = Sessions(Clock())
    ticket = sessions.ticket(1001)
    cookie = sessions.enter(ticket)
    assert sessions.uid(cookie) == 1001
    assert sessions.uid(ticket) is None
    for wrong in (ticket, cookie, "", "\udcff"):
        with pytest.raises(NoSessionError, match="run `rtsched board` again"):
            sessions.enter(wrong)


def test_they_end() -> None:
    """A ticket after a minute, a session after eight hours."""
    clock = Clock()
    sessions = Sessions(clock)
    late, cookie = sessions.ticket(7), sessions.enter(sessions.ticket(7))
    clock.now += TICKET_S + 1
    with pytest.raises(NoSessionError):
        sessions.enter(late)
    assert sessions.uid(cookie) == 7
    clock.now += SESSION_S
    assert sessions.uid(cookie) is None


def test_one_user_has_so_many_and_none_of_others() -> None:
    """The oldest of a user's give way; those of others stay."""
    sessions = Sessions(Clock())
    other = sessions.enter(sessions.ticket(1))
    own = [sessions.enter(sessions.ticket(2)) for _ in range(SESSIONS_EACH + 3)]
    assert [sessions.uid(each) for each in own] == [None] * 3 + [2] * SESSIONS_EACH
    assert sessions.uid(other) == 1


@pytest.mark.parametrize(
    ("header", "value"),
    [
        (f"{COOKIE}=abc", "abc"),
        (f"a=1; {COOKIE}=abc; b=2", "abc"),
        (f"x{COOKIE}=abc", ""),
        ("", ""),
        (f"{COOKIE}", ""),
    ],
)
def test_the_cookie_among_others(header: str, value: str) -> None:
    """By its whole name."""
    assert cookie_in(header) == value
