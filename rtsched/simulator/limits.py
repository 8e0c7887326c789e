"""Limits of groups of jobs, laid out for the machine, and whom they held up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels.machine_limits import HELD, REMAINING, LimitCounts
from rtsched.model.limits import JOBS, Limits
from rtsched.model.resources import CPU, MEMORY
from rtsched.model.table import Ragged
from rtsched.model.verdicts import Finding, Reason

if TYPE_CHECKING:
    from rtsched.kernels.machine import MachineState

OVER_JOBS = Reason(
    "site-limit.jobs", "its user, account or QOS may run {most:job} at once, and did"
)
OVER_CORES = Reason(
    "site-limit.cores",
    "it asks for {asked:core}, of which its user, account or QOS may hold {most} at once",
)
OVER_RESOURCE = Reason(
    "site-limit.resource",
    "it asks for {asked} of a resource, of which its user, account or QOS may hold {most} at once",
)
OVER_REMAINING = Reason(
    "site-limit.run-minutes",
    "it asks for {asked} minutes of a resource, of which running jobs of its user, account or QOS "
    "may have {most} left until their time limits",
)
OVER_USED = Reason(
    "site-limit.used-minutes",
    "it asks for {asked} minutes of a resource or of run time, of which its account or QOS may use "
    "{most} in all",
)


def no_limits() -> LimitCounts:
    """Return the counts of a machine without limits."""
    nothing = np.zeros(0, np.int64)
    limits = Limits(
        things=(),
        basis=nothing,
        asked=np.zeros((1, 0), np.int64),
        kind=np.zeros(1, np.int64),
        groups=Ragged(np.zeros(2, np.int64), nothing),
        most=np.zeros((1, 0)),
        half_life=np.full(1, np.inf),
        names=(),
    )
    return _counts(limits)


def with_limits(machine: MachineState, limits: Limits) -> MachineState:
    """Return the machine with limits; `limits` stand row by row with its jobs."""
    machine.state[0].limited = 1
    return machine._replace(limits=_counts(limits))


def _counts(limits: Limits) -> LimitCounts:
    """Return the counts of groups that hold nothing yet."""
    groups, things = len(limits.half_life), len(limits.things)
    units = [
        1.0 if basis == HELD else _minute(thing)
        for basis, thing in zip(limits.basis, limits.things, strict=True)
    ]
    return LimitCounts(
        asked=limits.asked.astype(np.float64),
        kind=limits.kind.copy(),
        group_of=limits.groups.offsets.copy(),
        group=limits.groups.values.astype(np.int64),
        basis=limits.basis.copy(),
        unit=np.array(units, np.float64),
        below=limits.most + np.array(units, np.float64),
        decay=np.log(2.0) / limits.half_life,
        held=np.zeros((groups, things)),
        remaining=np.zeros((groups, things)),
        used=np.zeros((groups, things)) if limits.used is None else limits.used.copy(),
        since=np.zeros(groups),
        recheck=np.full(1, np.inf),
        held_up_by=np.full(len(limits.kind), -1),
    )


def _minute(thing: str) -> float:
    """Return a minute of what Slurm counts, such as 60 core-seconds; memory is in MB."""
    return 60.0 * 2**20 if thing == MEMORY else 60.0


def held_up_by_limits(machine: MachineState, limits: Limits) -> tuple[Finding, ...]:
    """Return which jobs limits held up, with the limit that did so last."""
    rows = np.flatnonzero(machine.limits.held_up_by >= 0)
    at, thing = np.divmod(machine.limits.held_up_by[rows], len(limits.things))
    asked, most = limits.asked[rows, thing].astype(float), limits.most[at, thing].copy()
    name, basis = np.array(limits.things, object)[thing], limits.basis[thing]
    minutes = np.array([_minute(one) for one in limits.things])[thing]
    timed = basis != HELD
    asked[timed] *= (machine.jobs["wall"][rows] / minutes)[timed]
    most[timed] /= minutes[timed]
    is_known = {
        OVER_JOBS: ~timed & (name == JOBS),
        OVER_CORES: ~timed & (name == CPU),
        OVER_REMAINING: basis == REMAINING,
        OVER_USED: timed & (basis != REMAINING),
    }
    others = {OVER_RESOURCE: ~np.logical_or.reduce(list(is_known.values()))}
    return tuple(
        Finding(
            reason,
            rows[mask],
            {"most": most[mask]} | ({} if reason is OVER_JOBS else {"asked": asked[mask]}),
        )
        for reason, mask in (is_known | others).items()
        if mask.any()
    )
