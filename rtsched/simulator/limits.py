"""Lay out limits of groups of jobs for the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels.machine_limits import LimitCounts

if TYPE_CHECKING:
    from rtsched.kernels.machine import MachineState
    from rtsched.model.limits import Limits


def no_limits() -> LimitCounts:
    """Return the counts of a machine without limits."""
    nothing = np.zeros((1, 0), np.int64)
    row = np.zeros(1, np.int64)
    return LimitCounts(nothing, row, np.zeros(2, np.int64), row, nothing, nothing)


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
        )
    )
