"""Text for people: counts, spans and instants of time, odds, and names like a mistyped one."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


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


def similar(name: str, known: Iterable[str], most: int = 1, likeness: float = 0.6) -> list[str]:
    """Return the known names that look most like `name`, best first.

    Parameters
    ----------
    name : str
        A name as somebody typed it.
    known : iterable of str
        The names that there are.
    most : int
        How many are returned at most.
    likeness : float
        From 0, anything, to 1, only `name` itself.
    """
    from difflib import get_close_matches  # most commands need it never

    return get_close_matches(name, list(known), most, likeness)


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return `did you mean 'replay'?`; `otherwise` where nothing looks like the name."""
    close = similar(name, known)
    return f"did you mean {close[0]!r}?" if close else otherwise


CLASSES = (0.0, 50.0, 80.0, 85.0, 90.0, 95.0, 97.5, 99.0)
"""Lower ends, in per cent, of the classes in which likely promises are counted by their odds."""


def per_cent(odds: float) -> str:
    """Return odds, 0 to 1, never rounded up to certainty: `95 %`, `99.9 %`."""
    shown = math.floor(round(min(odds, 0.9999) * 1000, 6)) / 10
    return f"{shown:g} %"


def class_of(odds: float) -> str:
    """Return the class of odds, 0 to 1, by its lower end in per cent, such as `95`."""
    return f"{100 * floor_of(odds):g}"


def floor_of(odds: float) -> float:
    """Return the lower end, 0 to 1, of the class of odds, 0 to 1; nan of none."""
    if math.isnan(odds):
        return odds
    return max(low for low in CLASSES if low <= round(100 * odds, 6)) / 100.0


def state_of(state: str, odds: float | None, now: float | None = None) -> str:
    """Return how a promise stands; a likely one with the odds stated, and those it has now."""
    state = state.replace("-", " ")
    if odds is None:
        return state
    return f"{state}, likely {per_cent(odds)}{'' if now is None else f', now {per_cent(now)}'}"


_LAST = 2.0**33
"""What is later is no time that anybody reads: the year 2242."""


def moment(at: float, now: float | None) -> str:
    """Return an instant in local time with its offset from UTC, with the date if it is not today.

    Without `now` it has a date always, for what is read at some other time.

    The site's clock may show one hour twice, and who reads it may be in another zone.
    """
    there = time.localtime(min(at, _LAST))
    same_day = now is not None and there[:3] == time.localtime(now)[:3]
    return time.strftime("%H:%M:%S %z" if same_day else "%Y-%m-%d %H:%M:%S %z", there)
