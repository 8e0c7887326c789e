"""Lay out limits of groups of jobs for the machine, and tell whom they held up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels.machine_limits import LimitCounts
from rtsched.model.limits import JOBS, Limits
from rtsched.model.resources import CPU
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


def no_limits() -> LimitCounts:
    """Return the counts of a machine without limits."""
    nothing = np.zeros((1, 0), np.int64)
    row = np.zeros(1, np.int64)
    return LimitCounts(nothing, row, np.zeros(2, np.int64), row, nothing, nothing, row)


def with_limits(machine: MachineState, limits: Limits) -> MachineState:
    """Return the machine with limits; `limits` stand row by row with its jobs."""
    machine.state[0].limited = 1
    return machine._replace(
        limits=LimitCounts(
            asked=limits.asked.copy(),
            kind=limits.kind.copy(),
            group_of=limits.groups.offsets.copy(),
            group=limits.groups.values.astype(np.int64),
            most=limits.most.copy(),
            held=np.zeros((max(len(limits.names), 1), len(limits.things)), np.int64),
            held_up_by=np.full(len(limits.kind), -1),
        )
    )


def held_up_by_limits(machine: MachineState, limits: Limits) -> tuple[Finding, ...]:
    """Return which jobs limits held up, with the limit that did so last."""
    rows = np.flatnonzero(machine.limits.held_up_by >= 0)
    at, thing = np.divmod(machine.limits.held_up_by[rows], len(limits.things))
    asked, most = limits.asked[rows, thing].astype(float), limits.most[at, thing].astype(float)
    name = np.array(limits.things, object)[thing]
    is_known = {OVER_JOBS: name == JOBS, OVER_CORES: name == CPU}
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
