"""Counts of things and spans of time as people read them."""

from __future__ import annotations

import math


def counted(number: float, one: str, many: str = "") -> str:
    """Return a count of things: `1 job`, `2,000 jobs`; `1 job is`, `2 jobs are`.

    Parameters
    ----------
    number : float
        How many.
    one, many : str
        What one is called, and what several are; `one` and an s if `many` is empty.
    """
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def span(seconds: float, *, up: bool = False) -> str:
    """Return a span of time in its two greatest units: `30 min 10 s`, `2 h`, `45 s`.

    Rounded down, the time left before a deadline is never said to be more than it is; rounded `up`,
    the time needed is never said to be less.
    """
    if not math.isfinite(seconds):
        return "unlimited time"
    left, parts = max(math.ceil(seconds) if up else int(seconds), 0), list[str]()
    if up:
        shown = next((at for at, (size, _) in enumerate(UNITS) if left >= size), len(UNITS) - 1)
        least = UNITS[min(shown + 1, len(UNITS) - 1)][0]
        left = -(-left // least) * least
    for size, unit in UNITS:
        if left >= size and len(parts) < 2:
            parts.append(f"{left // size} {unit}")
            left %= size
        elif parts:
            break
    return " ".join(parts) or "0 s"
