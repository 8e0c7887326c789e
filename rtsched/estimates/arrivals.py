"""Who is submitted next: weeks of the past once more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

DAY = 86400.0
WEEK = 7 * DAY
BLOCK = DAY
LEAST = 3600.0
"""Seconds of the past below which nothing is known of a rhythm."""

WEEKS = 8
"""So many weeks of the past are drawn from, the latest ones."""


def drawn(
    submit: NDArray[np.float64], now: float, until: float, random: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return who is submitted from now on: rows of the past, and when, seconds since the epoch.

    Each day ahead is a day of the last weeks from the same time of day on, half of them of the same
    weekday. Where less than two days are known, a stretch of them is taken at random; where less
    than an hour is, nobody is submitted.

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
    block = min(BLOCK, known)
    rows, times = [], []
    begin = now
    while begin < until:
        back = begin - now + _back(known, block, begin - now, random)
        first, last = np.searchsorted(submit, [begin - back, begin - back + block])
        rows.append(np.arange(first, last))
        times.append(submit[first:last] + back)
        begin += block
    row, at = np.concatenate(rows), np.maximum(np.concatenate(times), now)
    kept = at < until
    return row[kept], at[kept]


def _back(known: float, block: float, ahead: float, random: np.random.Generator) -> float:
    """Return how long before now the block of the past begins that comes so many seconds ahead."""
    if known < DAY + block:
        return block + (known - block) * random.random()
    days = min(int((known - block) // DAY), 7 * WEEKS)
    same = np.arange(7 - round(ahead / DAY) % 7, days + 1, 7)  # of the same weekday
    if len(same) and random.random() < 0.5:
        return DAY * float(random.choice(same))
    return DAY * float(random.integers(1, days + 1))
