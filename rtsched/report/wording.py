"""Numbers, names and starts as people read them, the same on a terminal and on the page."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rtsched.daemon.questions import StartEstimate

MISSING = "–"
"""What stands where there is no value."""

EPOCH_DATES = 86400.0 * 365 * 5
"""Times before this (1974-12-31) are no dates: the log counts seconds from its own start."""

_UNITS = ((86400 * 7, "w"), (86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def visible(text: object) -> str:
    r"""Return `text` on one line, with whatever a terminal might obey written out (`\x1b`).

    User and account names come out of logs, and logs out of users' hands: control characters, line
    separators, bidirectional overrides and lone surrogates are shown, never acted upon.
    """
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
        for char in str(text)
    )


def shortened(text: object, width: int) -> str:
    """Return `text` made visible, cut to `width` characters."""
    shown = visible(text)
    return shown if len(shown) <= width else shown[: width - 1] + "…"


def duration(seconds: float | None) -> str:
    """Return a span of time in its two greatest units: `2d 07h`, `3h 20m`, `45s`, `0.25s`."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    sign, seconds = ("−" if seconds < 0 else ""), abs(seconds)
    if seconds < 1 and seconds != 0:
        return f"{sign}{seconds:.2g}s"
    if seconds < 10 and seconds != round(seconds):
        return f"{sign}{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{sign}{whole}s"
    if whole >= 86400 * 14:
        return f"{sign}{whole / 86400:,.0f}d"
    if whole >= 86400:
        hours = round(whole / 3600)
        return f"{sign}{hours // 24}d {hours % 24:02d}h"
    if whole >= 3600:
        minutes = round(whole / 60)
        return f"{sign}{minutes // 60}h {minutes % 60:02d}m" if minutes < 1440 else f"{sign}1d 00h"
    return f"{sign}{whole // 60}m {whole % 60:02d}s"


def clocked(seconds: float | None) -> str:
    """Return a time that was measured, to the millisecond."""
    return duration(None if seconds is None else round(seconds, 3))


def tick(seconds: float) -> str:
    """Return a round span of time in one unit, for an axis: `10 s`, `1 h`, `2 d`."""
    for size, unit in _UNITS:
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {'min' if unit == 'm' else unit}"
    return f"{seconds:g} s"


def count(number: float | None) -> str:
    """Return a whole number with thousands apart."""
    return MISSING if number is None or not math.isfinite(number) else f"{number:,.0f}"


def percent(ratio: float | None) -> str:
    """Return a ratio as per cent: `0 %`, `0.04 %`, `12.3 %`."""
    if ratio is None or not math.isfinite(ratio):
        return MISSING
    value = 100 * ratio
    if value in {0.0, 100.0}:
        return f"{value:.0f} %"
    digits = 1 if 0.1 <= abs(value) <= 99.9 else 2
    return f"{value:,.{digits}f} %".replace("-", "−")


def decimal(number: float | None) -> str:
    """Return a plain number with three digits that count."""
    if number is None or not math.isfinite(number):
        return MISSING
    size = abs(number)
    digits = 0 if size >= 100 or size == 0 else 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{number:,.{digits}f}".replace("-", "−")


def quantity(value: object, name: str, unit: str) -> str:
    """Return a measure's value as its name and unit ask for: a span, per cent, node-hours."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return MISSING
    if unit == "s":
        return duration(value)
    if unit == "node s":
        return f"{decimal(value / 3600)} node-h"
    if unit == "1/h":
        return f"{decimal(value)}/h"
    if name.endswith(("ratio", "utilisation")):
        return percent(value)
    return count(value) if unit == "jobs" else decimal(value)


def compact(number: int) -> str:
    """Return a count in at most six characters or so: `98,765`, `123.5k`, `1.23M`."""
    if number < 100_000:
        return f"{number:,}"
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number / 1e3:.0f}k"


def instant(seconds: float | None) -> str:
    """Return an instant as UTC date and minute, or as a span where the log has no dates."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    if is_dated(seconds):
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"{duration(seconds)} after the start"


def is_dated(seconds: float) -> bool:
    """Return whether an instant is a date rather than seconds from a log's own start."""
    return EPOCH_DATES <= seconds < 253_402_300_800.0


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
    from rtsched.model.units import PERIODS  # with numpy, which commands of users do without

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
