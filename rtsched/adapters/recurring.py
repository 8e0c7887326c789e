"""Recurring work on nodes that is no job: by the local clock, which is set forth and back.

Cron and Slurm's DAILY and WEEKLY reservations begin at the same local time every day. In seconds
since the epoch that is an hour earlier after clocks were set forth, and an hour later after they
were set back, while periodic work of the models has one period.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from rtsched.model.jobs import Periodic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

DAY_S = 86400.0
AHEAD_S = 14 * DAY_S
"""Seconds before a change of clocks from which on recurring work takes both times."""


def both_sides(start: float, length: float, period: float) -> tuple[float, float]:
    """Return start and length of an occurrence that hold before and after the next clock change.

    Where clocks are not set within `AHEAD_S`, they are as given.

    Parameters
    ----------
    start : float
        An occurrence, seconds since the epoch.
    length, period : float
        Seconds.
    """
    forth = _offset(start + AHEAD_S) - _offset(start)
    return start - max(forth, 0.0), min(length + abs(forth), period)


def _offset(moment: float) -> float:
    """Return how far the local clock is ahead of UTC at a moment, in seconds."""
    return float(time.localtime(moment).tm_gmtoff)


def as_periodic(found: Sequence[tuple[int, float, float, float, float]]) -> Periodic:
    """Return recurring work as the models have it.

    Parameters
    ----------
    found : sequence of (int, float, float, float, float)
        Of each occurrence on a node: the node's row; its length and period, seconds; its start,
        seconds since the epoch; how much of one that has begun is left, seconds.
    """
    rows = Periodic.of_rows(("node", "exec_time", "period", "phase", "left"), found)
    return rows.replace(id=np.arange(len(found)), relative_deadline=rows.exec_time)


def occurrences(periodic: Periodic, rows: int) -> NDArray[np.float64]:
    """Return float64[rows]: when the present or next occurrence begins on each; inf: there is none.

    Seconds since the epoch.
    """
    start = np.full(rows, np.inf)
    np.minimum.at(start, periodic.node, periodic.phase)
    return start
