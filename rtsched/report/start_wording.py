"""Start estimates in words: `starts about 14:20, between 13:50 and 16:05 (80 %), ...`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rtsched.model.units import PERIODS
from rtsched.report.wording import MISSING, duration

if TYPE_CHECKING:
    from rtsched.daemon.questions import StartEstimate

_LAST = 2.0**33

TOO_LITTLE = "too little history for a wider interval"
"""In place of a second interval that is the same as the first."""


def about(at: float, now: float) -> str:
    """Return an instant to the minute, in local time, with the date if it is not today."""
    there, here = time.localtime(min(at, _LAST)), time.localtime(now)
    if there[:3] == here[:3]:
        return time.strftime("%H:%M", there)
    return time.strftime("%a %d %b %H:%M" if there[0] == here[0] else "%Y-%m-%d %H:%M", there)


def sentence(estimate: StartEstimate, now: float) -> str:
    """Return what is estimated of a job's start, of one that runs of its end, or why nothing is."""
    if estimate.basis == "none":
        return estimate.why
    if estimate.state == "running":
        return f"ends {ends(estimate, now)}"
    return f"starts {starts(estimate, now)}"


def starts(estimate: StartEstimate, now: float) -> str:
    """Return when a job starts, without the verb."""
    e = estimate
    if e.basis == "plan":
        at = MISSING if e.start is None else about(e.start, now)
        return f"at {at}, as planned for its promise"
    return _spread(e.start, (e.start_low_80, e.start_high_80), e.start_high_95, now)


def ends(estimate: StartEstimate, now: float) -> str:
    """Return when a job ends, without the verb."""
    e = estimate
    if e.basis == "plan":
        at = MISSING if e.end is None else about(e.end, now)
        return f"by {at} at the latest, as planned for its promise"
    return _spread(e.end, (e.end_low_80, e.end_high_80), e.end_high_95, now)


def interval(low: float | None, high: float | None, now: float) -> str:
    """Return an interval: `13:50 to 16:05`, or `after 13:50` if it goes on beyond the estimate."""
    if low is None:
        return MISSING
    if high is None:
        return f"after {about(low, now)}"
    return f"{about(low, now)} to {about(high, now)}"


def period_name(seconds: float) -> str:
    """Return the name of a period: `day`, `week`, `month`, else its length."""
    return PERIODS.get(seconds, duration(seconds))


def _spread(
    median: float | None, between: tuple[float | None, float | None], by: float | None, now: float
) -> str:
    low, high = between
    middle = "later than is simulated" if median is None else f"about {about(median, now)}"
    parts = [middle]
    if low is not None:
        parts.append(
            f"after {about(low, now)} (90 %)"
            if high is None
            else f"between {about(low, now)} and {about(high, now)} (80 %)"
        )
    if by is not None and by == high:
        parts.append(TOO_LITTLE)
    elif by is not None:
        parts.append(f"by {about(by, now)} (95 %)")
    return ", ".join(parts)
