"""Views of the exclusive machine: who waits, who runs where, what became of each job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels import machine as kernel
from rtsched.kernels import machine_scheduler as loop
from rtsched.model import on_disk
from rtsched.model.events import EventRows, Events
from rtsched.model.schedule import Schedule
from rtsched.model.table import Ragged, offsets_of
from rtsched.simulator.interface import HookCalls, JobOutcomes, final_states
from rtsched.simulator.plan import laid_plan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.jobs import Jobs
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

    Where a compiled hook observes, what it has not been told yet is left for the next time.
    """
    state = kernel.scalars(machine)
    count = int(state["told"] if state["observing"] else state["events"])
    left = int(state["events"]) - count
    table = machine.events[:count].copy()
    machine.events[:left] = machine.events[count : count + left].copy()
    state["events"], state["told"] = left, 0
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


def hook_calls(machine: kernel.MachineState) -> HookCalls:
    """Return how often compiled hooks were called."""
    state = kernel.scalars(machine)
    return HookCalls(
        int(state["calls"]),
        int(state["judged"]),
        int(state["moved"]),
        int(state["abstained"]),
        int(state["observed"]),
    )
