"""Limits of what groups of jobs may hold at a time: those of a QOS, a user in it, an account.

A group has counts of what its running jobs hold: jobs, and amounts of resources. Each job counts
in the groups of its kind, and starts only if in none of them it would bring a count above the
limit that holds for its kind. A job over a limit is passed over: it waits, but nobody waits for it,
and it has no reservation. A limit that is less than the job asks for by itself does not hold it up,
as it would wait for ever.

References
----------
Slurm manual, "Resource Limits"; slurm.conf, SchedulerParameters: assoc_limit_stop (not set).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rtsched.kernels.machine_compiling import outline

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NO_LIMIT = 2**62
"""More than any group can hold."""


class LimitCounts(NamedTuple):
    """What groups of jobs hold and may hold, of `r` counted things: jobs, cores, ..."""

    asked: NDArray[np.int64]
    """int64[n, r]: what a running job counts for."""
    kind: NDArray[np.int64]
    """int64[n]: which groups it counts in: those at `group_of[kind]:group_of[kind + 1]`."""
    group_of: NDArray[np.int64]
    """int64[k + 1]."""
    group: NDArray[np.int64]
    """int64[e]: the groups of the kinds, one kind after the other."""
    most: NDArray[np.int64]
    """int64[e, r]: the most that such a group may hold when a job of the kind starts."""
    held: NDArray[np.int64]
    """int64[g, r]: what the running jobs of each group hold."""
    held_up_by: NDArray[np.int64]
    """int64[n]: the limit that held a job up last, as its place in `most`; -1: none did."""


@outline
def limit_reached(limits: LimitCounts, row: int) -> int:
    """Return the first limit that a job would bring a group above if it started now, -1: none."""
    kind, things = limits.kind[row], limits.asked.shape[1]
    for i in range(limits.group_of[kind], limits.group_of[kind + 1]):
        for thing in range(things):
            asked, most = limits.asked[row, thing], limits.most[i, thing]
            if 0 < asked <= most and limits.held[limits.group[i], thing] + asked > most:
                return int(i * things + thing)
    return -1


@outline
def held_up(limits: LimitCounts, row: int) -> bool:
    """Return whether a limit keeps a waiting job from starting now, and note which one."""
    limit = limit_reached(limits, row)
    if limit >= 0:
        limits.held_up_by[row] = limit
    return limit >= 0


@outline
def count_running(limits: LimitCounts, row: int, sign: int) -> None:
    """Count a job in its groups when it starts (sign 1), or no longer when it stops (-1)."""
    kind = limits.kind[row]
    for i in range(limits.group_of[kind], limits.group_of[kind + 1]):
        for thing in range(limits.asked.shape[1]):
            limits.held[limits.group[i], thing] += sign * limits.asked[row, thing]
