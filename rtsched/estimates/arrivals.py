"""Who is submitted next: weeks of the past once more."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from rtsched.model.units import DAY, HOUR, WEEK

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST = HOUR
"""Seconds of the past below which nothing is known of a rhythm."""

WEEKS = 8
"""So many weeks of the past are drawn from, the latest ones."""


def drawn(
    submit: NDArray[np.float64], now: float, until: float, random: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return who is submitted from now on: rows of the past, and when, seconds since the epoch.

    Each day ahead is a day of the last weeks, as likely one of the same weekday as any. Where less
    than two days are known, a stretch of them is taken at random; where less than an hour is,
    nobody is submitted.

    Parameters
    ----------
    submit : float64[n]
        Submissions of the past, seconds since the epoch, ascending, none after now.
    now, until : float
        Seconds since the epoch.
    random : numpy Generator
        Source of chance.
    """
    known = now - submit[0] if len(submit) else 0.0
    if known < LEAST or until <= now:
        return np.zeros(0, np.int64), np.zeros(0)
    stretches = []
    begin = now
    while begin < until:
        if known < 2 * DAY:
            end = begin + min(known, DAY)
            back = end - now + (known - min(known, DAY)) * float(random.random())
        else:  # days begin at the same time at each refresh
            end = begin + DAY - begin % DAY
            back = _back(math.ceil((end - now) / DAY), int((known + begin - now) // DAY), random)
        stretches.append((begin, end, back))
        begin = end
    begins, ends, shifted = np.array(stretches).T
    first, last = np.searchsorted(submit, [begins - shifted, ends - shifted])
    count = np.maximum(last - first, 0)
    offset = np.cumsum(count) - count
    row = np.arange(count.sum()) + np.repeat(first - offset, count)
    at = np.maximum(submit[row] + np.repeat(shifted, count), now)
    kept = at < until
    return row[kept], at[kept]


def _back(least: int, most: int, random: np.random.Generator) -> float:
    """Return by how many seconds the past is shifted: whole days, or as likely whole weeks."""
    most = max(min(most, least + 7 * WEEKS), least)
    first, end = -(-least // 7), most // 7 + 1
    if first < end and random.random() < 0.5:
        return WEEK * float(random.integers(first, end))
    return DAY * float(random.integers(least, most + 1))
