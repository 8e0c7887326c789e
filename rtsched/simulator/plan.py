"""A plan laid out for the event loop: what starts when, and what each node is reserved for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.errors import ShapeError
from rtsched.kernels import machine as kernel
from rtsched.kernels.compiling import ABSENT
from rtsched.kernels.machine_plan import Planned, is_sound, lay_out, put_plan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.kernels.machine_plan import Laid
    from rtsched.model.jobs import Jobs
    from rtsched.model.schedule import PlanRows


def _open_joins(machine: kernel.MachineState) -> NDArray[Any]:
    """Return the entries of the present plan that are to give running jobs a node more."""
    entries = laid_plan(machine)[:0]
    if kernel.scalars(machine)["joining"]:
        entries = laid_plan(machine)
        entries = entries[(entries["row"] >= 0) & (entries["joins"] == kernel.JOINS)]
        entries = entries[machine.jobs["status"][entries["row"]] == kernel.RUNNING]
    return entries


def laid_plan(machine: kernel.MachineState) -> NDArray[Any]:
    """Return PLANNED_START[n]: the present plan, as it was laid out."""
    return machine.plan[: machine.state["plan_size"][0]]


def writable(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array, or a copy of one that is read-only: numba compiles for either kind."""
    return array if array.flags.writeable else array.copy()


def lay_out_plan(
    machine: kernel.MachineState,
    plan: PlanRows,
    node_start: NDArray[np.float64],
    jobs: Jobs,
    run_time: NDArray[np.float64],
    origin: float,
) -> tuple[kernel.MachineState, NDArray[np.int64]]:
    """Return the machine with a new plan, and for each entry in it that of `plan` which it starts.

    Where an entry only gives a running job a node more, that is -1. Nodes that are still to join
    jobs which run stay reserved for them.

    Parameters
    ----------
    machine : MachineState
        Its nodes' next reservations are set anew.
    plan : PlanRows
        What is planned of which rows.
    node_start : float64[k] or float64[0]
        From when an entry has each of its nodes, as in `Schedule`; empty: all from its start.
    jobs : Jobs
        All jobs of the workload.
    run_time : float64[k]
        The planned jobs' run times at `jobs.size`, seconds; of an array on its planned nodes.
    origin : float
        The machine's time 0, seconds since the epoch.

    Raises
    ------
    ShapeError
        If an entry has no node, or one that does not exist.
    """
    m = len(machine.picks)
    if not is_sound(plan.indptr, plan.nodes, m):
        raise ShapeError("the plan has an entry without nodes, or a node that does not exist")
    row, joins = plan.row, _open_joins(machine)
    planned = Planned(
        *plan,
        node_start,
        jobs.kind[row],
        jobs.size[row],
        jobs.wall_time[row],
        run_time,
    )
    laid = lay_out(planned, origin, machine.nodes[:m], joins, machine.plan_nodes[joins["at"]])
    if not _put(machine, laid, len(row)):
        machine = _with_room(machine, laid)
        _put(machine, laid, len(row))
    if machine.state["joining"][0] and not len(machine.awaited):
        machine = machine._replace(awaited=np.zeros(len(machine.jobs)))
    return machine, laid.source


def _put(machine: kernel.MachineState, laid: Laid, entries: int) -> bool:
    """Put a plan in place of the present one; False: there is no room for it."""
    return put_plan(
        machine.state,
        machine.plan,
        machine.plan_nodes,
        machine.span_of,
        machine.spans,
        laid,
        entries,
    )


def _with_room(machine: kernel.MachineState, laid: Laid) -> kernel.MachineState:
    """Return the machine with room for twice as large a plan, and for what it takes to keep it."""
    m, entries, spans = len(machine.picks), 2 * len(laid.plan), 2 * len(laid.spans)
    machine = machine._replace(
        plan=np.zeros(entries, kernel.PLANNED_START),
        plan_nodes=np.zeros(2 * len(laid.nodes), np.int32),
        spans=np.zeros(spans, kernel.SPAN),
    )
    steps = 2 * (len(machine.jobs) + m + entries) + 8
    if machine.sweep is not ABSENT and len(machine.sweep) < 2 * (m + spans):
        machine = machine._replace(sweep=np.zeros(2 * (m + spans), kernel.TIMED))
    if machine.state["loop"][0] == kernel.CONSERVATIVE and len(machine.profile) < steps:
        machine = machine._replace(profile=np.zeros(steps, kernel.TIMED))
    return machine
