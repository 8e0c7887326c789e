"""A plan laid out for the event loop: what starts when, and what each node is reserved for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rtsched.errors import ShapeError
from rtsched.kernels import machine as kernel
from rtsched.kernels.machine_compiling import ABSENT
from rtsched.model.jobs import Kind
from rtsched.model.ragged import offsets_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.jobs import Jobs
    from rtsched.model.schedule import Schedule


def planned_times(
    jobs: Jobs, run_time: NDArray[np.float64], plan: Schedule
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how long each planned job runs, and for how long it holds its nodes at most.

    Parameters
    ----------
    jobs : Jobs
        The planned jobs, row by row with the plan.
    run_time : float64[k]
        Their run times at `jobs.size`.
    plan : Schedule
        Start, end and nodes. A divisible job runs as long as its plan says; a rigid one as long as
        it does, a moldable one by that and its size, both at most until its planned end. The run
        time of an array is that on its planned nodes.
    """
    entries = plan.entries
    span = entries.end - entries.start
    factor = jobs.size / np.maximum(entries.size, 1)
    own = jobs.wall_time * factor
    # A planned end is rounded to the clock's resolution: a job's own limit stands where it can.
    wall = np.where(np.isclose(own, span, rtol=1e-9, atol=1e-5), own, span)
    divisible, array = jobs.kind == Kind.DIVISIBLE, jobs.kind == Kind.ARRAY
    wall = np.where(divisible | array, span, wall)
    run = run_time * np.where(array, 1.0, factor)
    return np.where(divisible, span, run), wall


class _Slots(NamedTuple):
    """Entries of the machine's plan with their nodes, and whose they are."""

    table: NDArray[Any]
    """PLANNED_START."""
    source: NDArray[np.int64]
    """For each the entry of the schedule that it starts, -1 where it starts no job."""
    nodes: NDArray[np.int32]
    start: NDArray[np.float64]
    """float64[k], from when each of `nodes` is reserved."""
    end: NDArray[np.float64]
    """float64[k]"""


def _entries(
    machine: kernel.MachineState,
    rows: NDArray[np.int64],
    plan: Schedule,
    jobs: Jobs,
    run_time: NDArray[np.float64],
    origin: float,
) -> _Slots:
    """Return the entries of a schedule: one that starts each job, one per node that joins later."""
    n, sizes = len(rows), np.diff(plan.indptr)
    run, wall = planned_times(jobs, run_time, plan)
    owner = np.repeat(np.arange(n), sizes)
    late = plan.starts() > plan.entries.start[owner]
    order = np.lexsort((late, owner))
    nodes, begin, late = plan.nodes[order], plan.starts()[order] - origin, late[order]
    start = plan.entries.start - origin
    end = (start + wall)[owner]
    if kernel.scalars(machine)[
        "uneven"
    ]:  # how fast the nodes are is in the plan's run time already
        speed = np.where(late, np.inf, machine.nodes["speed"][nodes])
        pace = np.minimum.reduceat(speed, plan.indptr[:-1]) if n else run
        run = np.where(jobs.kind == Kind.DIVISIBLE, run * pace, run)
    joins = np.flatnonzero(late)
    table = np.zeros(n + len(joins), kernel.PLANNED_START)
    table["start"] = np.concatenate([start, begin[joins]])
    table["run"] = np.concatenate([run, np.zeros(len(joins))])
    table["wall"] = np.concatenate([wall, (end - begin)[joins]])
    table["at"] = np.concatenate([plan.indptr[:-1], joins])
    first = sizes - np.bincount(owner, weights=late, minlength=n).astype(np.int64)
    table["width"] = np.concatenate([first, np.ones(len(joins), np.int64)])
    table["row"] = np.concatenate([rows, rows[owner[joins]]])
    table["joins"][n:] = kernel.JOINS
    source = np.concatenate([np.arange(n), np.full(len(joins), -1)])
    return _Slots(table, source, np.array(nodes, np.int32), begin, end)


def _with_open_joins(machine: kernel.MachineState, slots: _Slots) -> _Slots:
    """Return the entries with those of the present plan that are to join jobs which run."""
    if not kernel.scalars(machine)["joining"]:
        return slots
    old = machine.plan[(machine.plan["row"] >= 0) & (machine.plan["joins"] == kernel.JOINS)]
    old = old[machine.jobs["status"][old["row"]] == kernel.RUNNING].copy()
    nodes = machine.plan_nodes[old["at"]]
    old["at"] = len(slots.nodes) + np.arange(len(old))
    return _Slots(
        np.concatenate([slots.table, old]),
        np.concatenate([slots.source, np.full(len(old), -1)]),
        np.concatenate([slots.nodes, nodes]),
        np.concatenate([slots.start, old["start"]]),
        np.concatenate([slots.end, old["start"] + old["wall"]]),
    )


def lay_out_plan(
    machine: kernel.MachineState,
    rows: NDArray[np.int64],
    plan: Schedule,
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
    rows : int64[k]
        Rows of the planned jobs, row by row with `plan`.
    jobs : Jobs
        The planned jobs.
    run_time : float64[k]
        Their run times at `jobs.size`, seconds.
    origin : float
        The machine's time 0, seconds since the epoch.

    Raises
    ------
    ShapeError
        If an entry has no node, or one that does not exist.
    """
    sizes = np.diff(plan.indptr)
    m = len(machine.picks)
    if (sizes < 1).any() or (len(plan.nodes) and not 0 <= plan.nodes.min() <= plan.nodes.max() < m):
        raise ShapeError("the plan has an entry without nodes, or a node that does not exist")
    slots = _with_open_joins(machine, _entries(machine, rows, plan, jobs, run_time, origin))
    order = np.lexsort((slots.table["row"], slots.table["start"]))
    table = slots.table[order]

    place = np.lexsort((slots.start, slots.nodes))
    spans = np.zeros(len(place), kernel.SPAN)
    spans["start"], spans["end"] = slots.start[place], slots.end[place]
    span_of = offsets_of(np.bincount(slots.nodes, minlength=m))
    nodes = machine.nodes[:m]
    nodes["span"] = span_of[:-1]
    nodes["window"] = np.inf
    reserved = span_of[:-1] < span_of[1:]
    nodes["window"][reserved] = spans["start"][span_of[:-1][reserved]]

    state = kernel.scalars(machine)
    state["planned"], state["plan_left"] = 0, len(table)
    state["joining"] = int((table["joins"] == kernel.JOINS).sum())
    state["settled"], state["rebuild"] = 0, 1
    machine = machine._replace(plan=table, plan_nodes=slots.nodes, span_of=span_of, spans=spans)
    if state["joining"] and not len(machine.awaited):
        machine = machine._replace(awaited=np.zeros(len(machine.jobs)))
    steps = 2 * (len(machine.jobs) + m + len(table)) + 8
    if machine.sweep is not ABSENT and len(machine.sweep) < 2 * (m + len(spans)):
        machine = machine._replace(sweep=np.zeros(4 * (m + len(spans)), kernel.TIMED))
    if state["loop"] == kernel.CONSERVATIVE and len(machine.profile) < steps:
        profile = np.zeros(2 * steps, kernel.TIMED)
        machine = machine._replace(profile=profile)
    return machine, slots.source[order]
