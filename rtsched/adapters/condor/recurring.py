"""Work that recurs on slots without being a job: periodic work, which promises must not disturb."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.local_days import as_periodic, both_sides

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rtsched.adapters.condor.pool_state import Slots
    from rtsched.adapters.condor.settings import Recurring
    from rtsched.model.jobs import Periodic


def periodic_of(recurring: Sequence[Recurring], slots: Slots, now: float) -> Periodic:
    """Return one row per row of the cluster and recurring work on it.

    Each begins with the occurrence that goes on at `now`, seconds since the epoch, or with the next
    one. Where the period is a number of days, occurrences follow the local clock.
    """
    found = []
    names, machines = slots.texts("name"), slots.texts("machine")
    for each in recurring:
        past = max(0, math.floor((now - each.begins(0)) / each.every_s) - 1)
        while each.begins(past) + each.length_s <= now:
            past += 1
        end = each.begins(past) + each.length_s
        start, length = each.begins(past), each.length_s
        if each.by_local_clock:
            start, length = both_sides(start, length, each.every_s)
        left = end - now if start <= now else 0.0
        wanted = set(each.slots)
        rows = [at for at, both in enumerate(zip(names, machines, strict=True)) if wanted & {*both}]
        found += [(row, length, each.every_s, start, left) for row in rows]
    return as_periodic(found)


def occurrences(periodic: Periodic, rows: int) -> NDArray[np.float64]:
    """Return float64[rows]: when the present or next occurrence begins on each; inf: there is none.

    Seconds since the epoch.
    """
    start = np.full(rows, np.inf)
    np.minimum.at(start, periodic.node, periodic.phase)
    return start
