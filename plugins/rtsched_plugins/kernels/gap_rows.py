"""Gaps for the jobs of one workload, each of which is a row, for a replay's own loop.

What is planned stays where it is: of each job that was planned its times and nodes are kept here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.api import TENANCY, RowPlan, plans_rows
from rtsched.kernels.compiling import compiled
from rtsched.kernels.room_profile import RoomProfile, occupy, reset
from rtsched_plugins.kernels.gaps import SLACK, Found, Rigid, find, nodes_at

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Nodes = NDArray[np.int32]


class GapRows(NamedTuple):
    """The jobs, `n` rows, and the `m` nodes, which have one job at a time."""

    pace: Floats
    """float64[m]: how fast each node is."""
    allowed: NDArray[np.bool_]
    """bool[s + 1, m]: sets of nodes that jobs may use; the last is all of them."""
    code: Ints
    """int64[n]: the set of each job."""
    pinned: Ints
    """int64[n]: the only node that it may use; -1: any of its set."""
    size: Ints
    wall: Floats
    """float64[n]: seconds that each takes at pace 1."""
    begin: Floats
    deadline: Floats
    """float64[n], seconds since the epoch."""
    last: bool
    """Utilisation-first."""
    start: Floats
    end: Floats
    """float64[n], changed: when a job was planned to run, seconds since the epoch; nan: never."""
    at: Ints
    """int64[n]: where its nodes begin in `nodes`."""
    nodes: Nodes
    """int32[k], changed: nodes of the jobs that were planned, room for those of all."""


class Gap(NamedTuple):
    """What was found for one job."""

    found: Found
    """Times in seconds from now."""
    nodes: Nodes
    """Its nodes, ascending; empty where it does not end by its deadline."""


@compiled
def left_by_rows(q: GapRows, rows: Ints, now: float, held_until: Floats) -> RoomProfile:
    """Return what is left of each node beside what runs and the planned jobs in `rows`.

    `held_until` is as a planner's short form is given it; times are seconds from now.
    """
    m, steps = len(q.pace), 3 * len(q.pace) + 2
    for row in rows:
        steps += 2 * q.size[row]
    profile = RoomProfile(
        np.zeros(m, np.int32),
        np.zeros(steps, np.int32),
        np.zeros(steps),
        np.zeros((steps, 1), np.int64),
        np.zeros(2, np.int64),
        np.zeros(m),
        0,
    )
    room, demand = np.full((m, 1), TENANCY), np.full((1, 1), TENANCY)
    reset(profile, room, 0.0)
    for i in range(len(rows) - 1, -1, -1):
        row = rows[i]
        start, end = max(q.start[row] - now, 0.0), max(q.end[row] - now, 0.0)
        for node in q.nodes[q.at[row] : q.at[row] + q.size[row]]:
            occupy(profile, node, start, end, demand, 0, 1)
    for node in range(m):
        if -np.inf < held_until[node] < np.inf:
            occupy(profile, node, 0.0, max(held_until[node] - now, 0.0), demand, 0, 1)
    return profile


@compiled
def gap_for(
    q: GapRows, left: RoomProfile, row: int, now: float, held_until: Floats, deadline: float
) -> Gap:
    """Return where a job goes by a deadline, seconds since the epoch; inf: wherever it can.

    `left` is from `left_by_rows`.
    """
    m = len(q.pace)
    ready, speed = np.full(m, max(q.begin[row] - now, 0.0)), np.zeros(m)
    for node in range(m):
        usable = held_until[node] < np.inf and q.allowed[q.code[row], node]
        if usable and (q.pinned[row] < 0 or q.pinned[row] == node):
            speed[node] = q.pace[node]
    demand = np.full((1, 1), TENANCY)
    job = Rigid(demand, ready, speed, q.wall[row], q.size[row], deadline - now)
    found = find(left, job, q.last)
    if found.end < np.inf and found.end <= job.deadline + SLACK:
        return Gap(found, nodes_at(left, job, found))
    return Gap(found, np.empty(0, np.int32))


@compiled
def keep_row(q: GapRows, row: int, start: float, end: float, nodes: Nodes) -> None:
    """Note when and where a job is planned to run, seconds since the epoch."""
    q.start[row], q.end[row] = start, end
    q.nodes[q.at[row] : q.at[row] + q.size[row]] = nodes


@compiled
def plan_of_rows(q: GapRows, rows: Ints, accepted: bool) -> RowPlan:
    """Return the plan of jobs as it is noted."""
    indptr = np.zeros(len(rows) + 1, np.int64)
    for i in range(len(rows)):
        indptr[i + 1] = indptr[i] + q.size[rows[i]]
    nodes = np.empty(indptr[-1], np.int32)
    for i in range(len(rows)):
        begin = q.at[rows[i]]
        nodes[indptr[i] : indptr[i + 1]] = q.nodes[begin : begin + q.size[rows[i]]]
    return RowPlan(accepted, q.start[rows], q.end[rows], indptr, nodes, -1)


@plans_rows(GapRows)
def plan_into_gaps(
    q: GapRows, rows: Ints, begun: Floats, new: int, now: float, held_until: Floats
) -> RowPlan:
    """Plan a new job beside those that are planned; the kernel of a `RowTest`.

    Not accepted where one of those was planned otherwise than is noted, and without a new job:
    there is no better plan.
    """
    known = new >= 0
    for i in range(len(rows)):
        known = known and q.start[rows[i]] == begun[i]
    if not known:
        return plan_of_rows(q, rows[:0], False)
    left = left_by_rows(q, rows, now, held_until)
    gap = gap_for(q, left, new, now, held_until, q.deadline[new])
    if len(gap.nodes) == 0:
        return plan_of_rows(q, rows[:0], False)
    keep_row(q, new, now + gap.found.start, now + gap.found.end, gap.nodes)
    return plan_of_rows(q, np.append(rows, new), True)
