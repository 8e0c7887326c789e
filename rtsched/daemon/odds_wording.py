"""Odds and instants as users read them; apart, so that commands load little of the daemon."""

from __future__ import annotations

import math
import time

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
