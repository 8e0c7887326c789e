"""Lay out for the machine who may preempt whom, and tell what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels.machine_preemption import PreemptionRules
from rtsched.kernels.room_profile import empty_profile
from rtsched.model.verdicts import Finding, Reason
from rtsched.simulator.shared_nodes import counted_profile, no_placement

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.kernels.machine import MachineState
    from rtsched.model.preemption import Preemption

REQUEUED = Reason(
    "preemption.requeued",
    "{runs:of its runs was|of its runs were} ended by jobs that may preempt it, and it began again",
)
CANCELLED = Reason("preemption.cancelled", "a job that may preempt it did so, which cancelled it")


def with_preemption(machine: MachineState, preemption: Preemption) -> MachineState:
    """Return the machine with preemption; the rules stand row by row with its jobs.

    It has also what shared nodes need, if they are not: the loop with preemption is compiled once.
    """
    machine.state[0].preempting = 1
    nodes = len(machine.nodes)
    if not machine.state[0].sharing:
        machine = machine._replace(
            profile=counted_profile(machine),
            step_room=empty_profile(1, 1, 0),
            placement=no_placement(),
        )
    return machine._replace(
        preemption=_rules(preemption, len(machine.jobs), nodes, machine.room.copy())
    )


def _rules(preemption: Preemption, n: int, m: int, room: NDArray[np.int64]) -> PreemptionRules:
    k = len(preemption.rank)
    return PreemptionRules(
        kind=preemption.kind.astype(np.int64),
        may=preemption.may.copy(),
        preempts=np.asarray(preemption.may.any(axis=1), np.bool_),
        cancels=preemption.cancels.copy(),
        rank=preemption.rank.astype(np.float64),
        exempt=preemption.exempt.astype(np.float64),
        promised=np.zeros(n, np.bool_),
        until=np.full(1, np.inf),
        first=np.zeros(k, np.int64),
        place=np.zeros(k, np.int64),
        nodes=np.zeros(k, np.int64),
        gone=np.zeros(n, np.bool_),
        holds=np.zeros(n, np.int64),
        chosen=np.zeros(m, np.bool_),
        room=room,
        later=room.copy(),
        times=np.zeros(n, np.int32),
        lost=np.zeros(n),
    )


def preempted(machine: MachineState) -> tuple[Finding, ...]:
    """Return which jobs were preempted, and whether that cancelled them."""
    times = machine.preemption.times
    rows = np.flatnonzero(times)
    cancelled = machine.preemption.cancels[machine.preemption.kind[rows]]
    again = rows[~cancelled]
    found = (
        Finding(REQUEUED, again, {"runs": times[again].astype(np.float64)}),
        Finding(CANCELLED, rows[cancelled], {}),
    )
    return tuple(finding for finding in found if len(finding.rows))
