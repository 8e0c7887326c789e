"""Who is submitted next: weeks of the past once more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

DAY = 86400.0
WEEK = 7 * DAY
BLOCK = DAY
WEEKS = 8
"""So many weeks of the past are drawn from, the latest ones."""


def drawn(
    submit: NDArray[np.float64], now: float, until: float, random: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return who is submitted from now on: rows of the past, and when, seconds since the epoch.

    Each week ahead is one of the last weeks, from the same weekday and time of day on. Where less
    than a week is known, whole days are drawn; where less than a day is, what there is.

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
    if known <= 0:
        return np.zeros(0, np.int64), np.zeros(0)
    block = min(BLOCK, known)
    rows, times = [], []
    begin = now
    while begin < until:
        end = begin + block - begin % block  # days begin at the same time at each refresh
        back = begin - now + _back(known, block, random)
        first, last = np.searchsorted(submit, [begin - back, end - back])
        rows.append(np.arange(first, last))
        times.append(submit[first:last] + back)
        begin = end
    row, at = np.concatenate(rows), np.maximum(np.concatenate(times), now)
    kept = at < until
    return row[kept], at[kept]


def _back(known: float, block: float, random: np.random.Generator) -> float:
    """Return by how many seconds the past is shifted."""
    if known < DAY + block:
        return block + (known - block) * random.random()
    days = int((known - block) // DAY)
    if days >= 7 and random.random() < 0.5:
        return WEEK * float(random.integers(1, min(days // 7, WEEKS) + 1))
    return DAY * float(random.integers(1, min(days, 7 * WEEKS) + 1))
