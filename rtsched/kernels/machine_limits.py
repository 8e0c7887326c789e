"""Limits of what groups of jobs may hold or use: those of a QOS, a user in it, an account.

A group has counts of what its running jobs hold: jobs, and amounts of resources; of what they may
hold until they end by their time limits, and of what was used, both in amounts times seconds. Each
job counts in the groups of its kind, and starts only if in none of them it would bring a count
above the limit that holds for its kind. A job over a limit is passed over: it waits, but nobody
waits for it, and it has no reservation. A limit that is less than the job asks for by itself does
not hold it up, as it would wait for ever.

Counts of time change while nothing happens. Where one holds a job up, the loop looks again after
`RECHECK` seconds.

References
----------
Slurm manual, "Resource Limits"; slurm.conf, SchedulerParameters: assoc_limit_stop (not set),
PriorityCalcPeriod; slurmctld/acct_policy.c and priority_multifactor.c of Slurm 25.11.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from rtsched.kernels.compiling import outline

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NO_LIMIT = math.inf
"""More than any group can hold."""

HELD, REMAINING, USED, USED_AND_ASKED, ALLOTTED = 0, 1, 2, 3, 4
"""What is compared with a limit when a job starts: what the group holds, with what the job takes;
what it may hold until its jobs end by their time limits, with the job's; what it has used; that,
with the job's; that, with what running jobs may still use and the job's."""

RECHECK = 300.0
"""Seconds after which to look again at a job that a count of time holds up (Slurm's default of
PriorityCalcPeriod)."""


class LimitCounts(NamedTuple):
    """What groups of jobs hold, use and may hold, of `r` counted things: jobs, cores, ..."""

    asked: NDArray[np.float64]
    """float64[n, r]: what a running job counts for."""
    kind: NDArray[np.int64]
    """int64[n]: which groups it counts in: those at `group_of[kind]:group_of[kind + 1]`."""
    group_of: NDArray[np.int64]
    """int64[k + 1]."""
    group: NDArray[np.int64]
    """int64[e]: the groups of the kinds, one kind after the other."""
    basis: NDArray[np.int64]
    """int64[r]: what is compared with the limit, `HELD` or another one."""
    unit: NDArray[np.float64]
    """float64[r]: the unit of limits, such as 1 core or 60 core-seconds; less is rounded down."""
    below: NDArray[np.float64]
    """float64[e, r]: the most that such a group may have when a job of the kind starts, and one
    unit more."""
    decay: NDArray[np.float64]
    """float64[g]: by which part of itself what was used decreases, per second."""
    held: NDArray[np.float64]
    """float64[g, r]: what the running jobs of each group hold."""
    remaining: NDArray[np.float64]
    """float64[g, r]: what they may hold until their time limits, times seconds."""
    used: NDArray[np.float64]
    """float64[g, r]: what was held, times seconds, decayed."""
    since: NDArray[np.float64]
    """float64[g]: when `remaining` and `used` were right."""
    recheck: NDArray[np.float64]
    """float64[1]: when to look again at jobs that counts of time hold up; inf: there are none."""
    held_up_by: NDArray[np.int64]
    """int64[n]: the limit that held a job up last, as its place in `below`; -1: none did."""


@outline
def bring_up_to_date(limits: LimitCounts, group: int, now: float) -> None:
    """Let time pass in a group's counts of time."""
    span = now - limits.since[group]
    if span <= 0.0:
        return
    decay, left, gain = limits.decay[group], 1.0, span
    if decay > 0.0:
        left = math.exp(-decay * span)
        gain = -math.expm1(-decay * span) / decay
    for thing in range(len(limits.basis)):
        if limits.basis[thing] != HELD:
            held = limits.held[group, thing]
            limits.remaining[group, thing] -= held * span
            limits.used[group, thing] = limits.used[group, thing] * left + held * gain
    limits.since[group] = now


@outline
def limit_reached(limits: LimitCounts, row: int, now: float, wall: float) -> int:
    """Return the first limit that a job would bring a group above if it started now, -1: none.

    `wall` are its requested seconds.
    """
    kind, things = limits.kind[row], limits.asked.shape[1]
    for i in range(limits.group_of[kind], limits.group_of[kind + 1]):
        group = limits.group[i]
        for thing in range(things):
            asked, below = limits.asked[row, thing], limits.below[i, thing]
            if asked <= 0.0 or below == NO_LIMIT:
                continue
            basis, has = limits.basis[thing], limits.held[group, thing]
            if basis != HELD:
                bring_up_to_date(limits, group, now)
                asked = limits.unit[thing] if basis == USED else asked * wall
                has = 0.0 if basis == REMAINING else limits.used[group, thing]
                if basis in (REMAINING, ALLOTTED):
                    has += limits.remaining[group, thing]
            if asked < below <= has + asked:
                return int(i * things + thing)
    return -1


@outline
def held_up(limits: LimitCounts, row: int, now: float, wall: float) -> bool:
    """Return whether a limit keeps a waiting job from starting now, and note which one."""
    limit = limit_reached(limits, row, now, wall)
    if limit < 0:
        return False
    limits.held_up_by[row] = limit
    at, thing = limit // len(limits.basis), limit % len(limits.basis)
    basis, decays = limits.basis[thing], limits.decay[limits.group[at]] > 0.0
    if basis == REMAINING or (basis != HELD and decays):
        limits.recheck[0] = now + RECHECK
    return True


@outline
def count_running(limits: LimitCounts, row: int, sign: int, now: float, until: float) -> None:
    """Count a job in its groups when it starts (sign 1), or no longer when it stops (-1).

    `until` is when its time limit ends it.
    """
    kind = limits.kind[row]
    for i in range(limits.group_of[kind], limits.group_of[kind + 1]):
        group = limits.group[i]
        for thing in range(limits.asked.shape[1]):
            asked = sign * limits.asked[row, thing]
            if limits.basis[thing] != HELD:
                bring_up_to_date(limits, group, now)
                limits.remaining[group, thing] += asked * (until - now)
            limits.held[group, thing] += asked
            if limits.held[group, thing] == 0.0:
                limits.remaining[group, thing] = 0.0  # but for rounding it is
