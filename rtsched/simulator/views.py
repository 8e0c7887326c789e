"""Views of the exclusive machine: who waits, who runs where, what became of each job; and its plan.

The plan is laid out for the event loop: what starts when, and what each node is reserved for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.errors import ShapeError
from rtsched.kernels import machine as kernel
from rtsched.kernels import machine_loop as loop
from rtsched.kernels.compiling import ABSENT
from rtsched.kernels.machine_plan import Planned, is_sound, lay_out, put_plan
from rtsched.model import on_disk
from rtsched.model.schedule import Schedule
from rtsched.model.state import EventRows, Events
from rtsched.model.table import Ragged, offsets_of
from rtsched.simulator.interface import JobOutcomes, final_states

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.kernels.machine_plan import Laid
    from rtsched.model.jobs import Jobs
    from rtsched.model.schedule import PlanRows
    from rtsched.simulator.system import Ledger

    Rows = NDArray[np.int64]


_BLOCK = 1 << 16
"""Jobs whose nodes are gathered at a time."""


def waiting(machine: kernel.MachineState) -> Rows:
    """Return the rows of jobs that wait, planned ones included, in order of (submit, id)."""
    state = kernel.scalars(machine)
    places = machine.queue[state["head"] : state["tail"]] if state["waiting"] else machine.queue[:0]
    rows = places["row"][places["width"] != kernel.GONE].astype(np.int64)
    if state["plan_left"]:
        rows = np.concatenate([rows, laid_plan(machine)["row"][unstarted(machine)]])
    if state["sleeping"] or state["gated"]:
        asleep = np.union1d(machine.sleepers["row"][: state["sleeping"]], machine.dependent_rows)
        asleep = asleep[machine.jobs["status"][asleep] == kernel.SLEEPING]
        rows = np.concatenate([rows, asleep])
    return np.sort(rows)


def unstarted(machine: kernel.MachineState) -> NDArray[np.bool_]:
    """Return which entries of the plan are to start a job that waits."""
    plan = laid_plan(machine)
    return np.asarray((plan["row"] >= 0) & (plan["joins"] == kernel.STARTS))


def allocations(machine: kernel.MachineState, jobs: Jobs, origin: float) -> tuple[Rows, Schedule]:
    """Return the rows of running jobs, and their nodes, starts and latest ends.

    Nodes that are still to join a job are its own already.
    """
    count = int(kernel.scalars(machine)["running"])
    rows = np.sort(machine.ends["row"][:count]).astype(np.int64)
    if not count:
        return rows, Schedule.empty()
    entries = machine.jobs[rows]
    offsets = offsets_of(entries["width"])
    nodes = np.empty(offsets[-1], np.int32)
    loop.list_nodes(machine, rows, nodes)
    start = entries["start"] + origin
    end = entries["start"] + entries["wall"] + origin
    held = Schedule.build(jobs.id[rows], start, end, offsets, nodes)
    return rows, _with_joins(machine, rows, held, origin)


def _with_joins(
    machine: kernel.MachineState, rows: Rows, held: Schedule, origin: float
) -> Schedule:
    """Return what running jobs hold and the nodes that are still to join them."""
    if not kernel.scalars(machine)["joining"]:
        return held
    table = laid_plan(machine)
    table = table[(table["row"] >= 0) & (table["joins"] == kernel.JOINS)]
    table = table[machine.jobs["status"][table["row"]] == kernel.RUNNING]
    owner = np.concatenate(
        [np.repeat(np.arange(len(rows)), np.diff(held.indptr)), np.searchsorted(rows, table["row"])]
    )
    order = np.argsort(owner, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(rows)))])
    return Schedule.build(
        held.entries.job,
        held.entries.start,
        held.entries.end,
        offsets,
        np.concatenate([held.nodes, machine.plan_nodes[table["at"]]])[order],
        node_start=np.concatenate([held.starts(), table["start"] + origin])[order],
    )


def take_events(machine: kernel.MachineState, jobs: Jobs, origin: float) -> Events:
    """Return what happened since the last time, and forget it.

    Where a policy observes too, what it has not seen yet is left for the next time.
    """
    state = kernel.scalars(machine)
    count = int(state["observed"] if state["observing"] else state["events"])
    left = int(state["events"]) - count
    table = machine.events[:count].copy()
    machine.events[:left] = machine.events[count : count + left].copy()
    state["events"], state["observed"] = left, 0
    rows = EventRows.build(
        count,
        time=table["time"] + origin,
        kind=table["kind"],
        size=table["width"],
        node=table["node"],
    )
    return Events(rows, jobs.take(np.maximum(table["row"], 0)))


def job_outcomes(machine: kernel.MachineState, ledger: Ledger, origin: float) -> JobOutcomes:
    """Return what happened to each job so far."""
    table, n = machine.jobs, len(machine.jobs)
    status = table["status"]
    ended = (status == kernel.ENDED) | (status == kernel.LOST)
    restarts = np.broadcast_to(np.int32(0), n)
    if kernel.scalars(machine)["extended"]:
        restarts = machine.more["restarts"][:n].copy()
    end = table["end"] + origin
    end[~ended] = np.nan
    return JobOutcomes(
        start=table["start"] + origin,
        end=end,
        size=np.where(np.isfinite(table["start"]), table["width"], np.int32(0)),
        fate=final_states(finished=status == kernel.ENDED, rejected=status == kernel.REJECTED),
        first_node=table["first"].copy(),
        promise=ledger.promises(),
        offer=ledger.offers(),
        rejected=ledger.rejected(),
        restarts=restarts,
        service=_service(machine),
    )


def _service(machine: kernel.MachineState) -> NDArray[np.float64] | None:
    """Return the node-seconds that jobs had, None where all had their nodes from start to end."""
    if not len(machine.awaited):
        return None
    table = machine.jobs
    service = table["width"] * (table["end"] - table["start"]) - machine.awaited
    return np.where(table["status"] == kernel.ENDED, service, 0.0)


def node_rows(machine: kernel.MachineState) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return per job the nodes of its last start, as offsets and nodes; none where not recorded."""
    at, n = machine.log_at, len(machine.jobs)
    if not len(at):
        return np.zeros(n + 1, np.int64), np.zeros(0, np.int32)
    size = np.where(at >= 0, machine.jobs["width"], 0)
    offsets = offsets_of(size)
    nodes = on_disk.zeros(offsets[-1], np.int32)
    for first in range(0, n, _BLOCK):
        part = slice(first, first + _BLOCK)
        within = Ragged.counted(size[part]).values
        begin = int(offsets[first])
        nodes[begin : begin + len(within)] = machine.log_nodes[
            np.repeat(at[part], size[part]) + within
        ]
        on_disk.let_go()
    return offsets, nodes


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
