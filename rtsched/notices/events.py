"""Events of promises between two looks at the daemon; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from rtsched.adapters.requirements import Event  # noqa: TC001 - read by msgspec
from rtsched.report.wording import duration, shortened, visible
from rtsched.text import moment, per_cent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rtsched.daemon.questions import PromiseStatus

OVERLAP = 120.0
"""Seconds before the last closed promise for which closed ones are asked about again: one may be
written down after another that was closed later."""

CLOSED: dict[str, Event] = {"kept": "kept", "missed": "broken", "broken": "broken"}


class Notice(msgspec.Struct, frozen=True):
    """One thing that one user is to be told."""

    user: str
    event: Event
    job: str
    name: str
    text: str
    time: float
    """When it was found, seconds since the epoch."""
    deadline: float | None = None
    start: float | None = None
    notify: str = ""
    """What the user chose for this job; empty: nothing."""


class Known(msgspec.Struct, frozen=True):
    """What a user knows of an open promise."""

    start: float | None
    late: bool
    warned: bool = False
    """Whether it was found that its odds have fallen."""


class Memory(msgspec.Struct, frozen=True):
    """What was seen up to now.

    Attributes
    ----------
    open : dict of str to Known
        Promises in the queue, by `key_of`.
    closed : dict of str to float
        Those that were closed lately, and when.
    since : float or None
        The latest time at which one was closed; None: nobody looked yet.
    """

    open: dict[str, Known] = {}
    closed: dict[str, float] = {}
    since: float | None = None


def key_of(promise: PromiseStatus) -> str:
    """Return what tells a promise from all others, once its job is in the queue.

    Promises of one cycle are given at one instant.
    """
    return f"{_older_key_of(promise)} {promise.job}"


def _older_key_of(promise: PromiseStatus) -> str:
    """Return the key under which an earlier release remembered a promise."""
    return f"{promise.user} {promise.made_at}"


def noticed(
    memory: Memory,
    promises: Iterable[PromiseStatus],
    closed: Iterable[tuple[PromiseStatus, float]],
    now: float,
    moved_s: float,
) -> tuple[Memory, list[Notice]]:
    """Return what is known after another look, and what happened in between.

    The first look only remembers.

    Parameters
    ----------
    memory : Memory
        From the look before.
    promises : iterable of PromiseStatus
        The open ones of all users.
    closed : iterable of (PromiseStatus, float)
        Those that were closed since `memory.since` less `OVERLAP`, and when, seconds since the
        epoch.
    now : float
        Seconds since the epoch.
    moved_s : float
        Seconds by which a planned start moves to be worth a notice.
    """
    first, found = memory.since is None, list[Notice]()
    state: dict[str, Known] = {}
    for promise in promises:
        if promise.state not in {"firm", "at-risk"}:
            continue
        key = key_of(promise)
        before = memory.open.get(key) or memory.open.get(_older_key_of(promise))
        if before is None:
            found.append(_notice(promise, "promised", now))
            state[key] = Known(promise.start, promise.late, first and promise.unlikely)
            continue
        start = before.start
        if not promise.running and promise.start is not None:
            if start is not None and abs(promise.start - start) > moved_s:
                found.append(_notice(promise, "moved", now, start))
                start = None
            start = promise.start if start is None else start
        fallen = promise.unlikely and not before.warned
        if fallen or (promise.late and not before.late):
            found.append(_notice(promise, "at-risk", now))
        state[key] = Known(start, promise.late, before.warned or promise.unlikely)
    latest = memory.since or 0.0
    lately = {key: at for key, at in memory.closed.items() if at > latest - OVERLAP}
    for promise, at in closed:
        key = key_of(promise)
        if key not in lately and _older_key_of(promise) not in lately:
            lately[key], latest = at, max(latest, at)
            if event := CLOSED.get(promise.state):
                found.append(_notice(promise, event, now))
    since = max(latest, now) if first else latest
    return Memory(state, lately, since), [] if first else found


def _notice(
    promise: PromiseStatus, event: Event, now: float, before: float | None = None
) -> Notice:
    return Notice(
        user=promise.user,
        event=event,
        job=promise.job,
        name=promise.name,
        text=_text(promise, event, now, before),
        time=now,
        deadline=promise.deadline,
        start=promise.start,
        notify=promise.notify,
    )


def _text(promise: PromiseStatus, event: Event, now: float, before: float | None) -> str:
    """Return one sentence."""
    name = f" ({shortened(promise.name, 60)})" if promise.name else ""
    job = f"job {visible(promise.job)}{name}"
    by = f"by {moment(promise.deadline, now)}" if promise.deadline is not None else "in time"
    start = f"start {moment(promise.start, now)}" if promise.start is not None else "start later"
    match event:
        case "promised" if promise.odds is not None:
            return f"{job} is likely to end {by}: odds {per_cent(promise.odds)}, not guaranteed"
        case "promised":
            return f"{job} is promised to end {by}; it is planned to {start}"
        case "moved":
            gap = (promise.start or 0.0) - (before or 0.0)
            way = "later" if gap > 0 else "earlier"
            moved = f"{duration(abs(gap))} {way}"
            return f"{job} is now planned to {start}, {moved}; still promised {by}"
        case "at-risk" if promise.odds is not None and promise.odds_now is not None:
            odds, present = per_cent(promise.odds), per_cent(promise.odds_now)
            return f"{job} was likely to end {by} with odds of {odds}; they are {present} now"
        case "at-risk":
            if promise.running or promise.end is None:
                return f"{job} runs and may end later than promised ({by})"
            end = moment(promise.end, now)
            return f"{job} is now planned to end by {end}, later than promised ({by})"
        case "kept":
            return f"{job} ended as promised, {by}"
        case "broken":
            why = f": {shortened(promise.why, 200)}" if promise.why else ""
            what = "ended too late" if promise.state == "missed" else "cannot be kept any more"
            kind = "promise"
            if promise.odds is not None:
                kind = f"likely promise (odds {per_cent(promise.odds)}, not guaranteed)"
            return f"the {kind} to {job} to end {by} {what}{why}"


def is_urgent(notice: Notice) -> bool:
    """Return whether a notice is sent at once, and not with others."""
    return notice.event == "broken"
