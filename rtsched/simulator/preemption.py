"""Preemption, laid out for the machine, and what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels.machine_preemption import PreemptionRules
from rtsched.model.preemption import Preemption
from rtsched.model.verdicts import Finding, Reason

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.kernels.machine import MachineState

REQUEUED = Reason(
    "preemption.requeued",
    "{runs:of its runs was|of its runs were} ended by jobs that may preempt it, and it began again",
)
CANCELLED = Reason("preemption.cancelled", "a job that may preempt it did so, which cancelled it")


def no_preemption() -> PreemptionRules:
    """Return the rules of a machine on which nobody preempts."""
    nobody = Preemption(
        kind=np.zeros(1, np.int64),
        may=np.zeros((1, 1), np.bool_),
        cancels=np.zeros(1, np.bool_),
        rank=np.zeros(1),
        exempt=np.zeros(1),
    )
    return _rules(nobody, 1, 1, np.zeros((1, 0), np.int64))


def with_preemption(machine: MachineState, preemption: Preemption) -> MachineState:
    """Return the machine with preemption; the rules stand row by row with its jobs."""
    machine.state[0].preempting = 1
    nodes = len(machine.nodes)
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
