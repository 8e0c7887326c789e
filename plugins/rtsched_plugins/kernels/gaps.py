"""Gaps in what is left of nodes over time, and the starts at which enough nodes have one together.

A job that cannot be suspended starts where every one of its nodes has room for it, and the cluster
its licences, for its whole length. On unequal nodes it runs as fast as the slowest of them, so each
speed is tried with the nodes that have at least that speed.

`gap_for` is the choice for one job of a table, `GapRows`, for hook and replay alike. For a replay's
own loop the table keeps times and nodes of the jobs that were planned: these stay where they are.

Times are float64 seconds from now; `SLACK` of them is rounding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.api import RowPlan, policy_kernels
from rtsched.kernels.compiling import compiled, no_refcount
from rtsched.kernels.machine_sharing import fits, takes_licenses
from rtsched.kernels.policy import ABSTAIN, ADMIT, REJECT
from rtsched.kernels.room import RoomProfile, empty_profile, occupy, occupy_licenses, reset

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Times = NDArray[np.float64]

    Ints = NDArray[np.int64]

    Floats = NDArray[np.float64]

    Nodes = NDArray[np.int32]


SLACK = 1e-6


class Rigid(NamedTuple):
    """A job that needs several nodes at once, without interruption."""

    demand: NDArray[np.int64]
    """[1, r]: what it takes on each of its nodes, licences once."""
    ready: Times
    """[m]: when it may start on each node."""
    speed: Times
    """[m]: speed of each node; 0: it cannot use the node."""
    wall: float
    """Seconds that it takes at speed 1."""
    width: int
    """Nodes."""
    deadline: float


class Found(NamedTuple):
    """The choice for one job."""

    start: float
    """inf: there is none."""
    end: float
    speed: float
    """The least speed of its nodes."""
    node: int
    """One of its nodes; the others are the lowest that have the same gap."""
    later: float
    """The least end that was too late; inf: none was seen."""
    fits: int
    """The most nodes that have a gap together in time."""


@no_refcount
def gaps_of(
    profile: RoomProfile,
    place: int,
    job: Rigid,
    length: float,
    ready: float,
    until: float,
    first: Times,
    last: Times,
    count: int,
) -> int:
    """Write first and last start of every gap of a node that is long enough, behind `count` others.

    Those that a job can use only after `until` are left out. `place` is the node's row of
    `profile`, or that of licences. Returns how many gaps there are then.
    """
    free, step = ready, profile.first[place]
    while step >= 0 and free <= until:
        following = profile.after[step]
        if not fits(profile.room, step, job.demand, 0):
            if profile.time[step] - length >= free - SLACK:
                first[count], last[count] = free, profile.time[step] - length
                count += 1
            free = max(free, profile.time[following]) if following >= 0 else np.inf
        step = following
    if step < 0 and free < np.inf and free <= until:
        first[count], last[count] = free, np.inf
        count += 1
    return count


@compiled
def windows(
    profile: RoomProfile, job: Rigid, speed: float, until: float
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Return node, first and last start of every gap that is long enough, at one speed.

    Those that a job can use only after `until` are left out.
    """
    m, length = len(job.speed), job.wall / speed
    licensed = takes_licenses(job.demand, 0, profile.licenses)
    most = profile.unused[1]
    node = np.empty(most, np.int64)
    first, last = np.empty(most), np.empty(most)
    opening, closing, kinds = np.empty(0), np.empty(0), 0
    if licensed:
        opening, closing = np.empty(most), np.empty(most)
        kinds = gaps_of(profile, m, job, length, 0.0, until, opening, closing, 0)
    count = 0
    for k in range(m):
        if job.speed[k] < speed:
            continue
        begun, ready = count, max(job.ready[k], 0.0)
        count = gaps_of(profile, k, job, length, ready, until, first, last, count)
        node[begun:count] = k
    if licensed:
        return both(node[:count], first[:count], last[:count], opening[:kinds], closing[:kinds])
    return node[:count], first[:count], last[:count]


@compiled
def both(
    node: NDArray[np.int64], first: Times, last: Times, opening: Times, closing: Times
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the gaps as far as starts in them are in one of those from `opening` to `closing`."""
    count, most = 0, len(node) * len(opening)
    where = np.empty(most, np.int64)
    begin, end = np.empty(most), np.empty(most)
    for i in range(len(node)):
        for j in range(len(opening)):
            after, before = max(first[i], opening[j]), min(last[i], closing[j])
            if before >= after - SLACK:
                where[count], begin[count], end[count] = node[i], after, before
                count += 1
    return where[:count], begin[:count], end[:count]


@compiled
def sweep(
    gaps: tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]],
    job: Rigid,
    speed: float,
    starts: NDArray[np.float64],
) -> tuple[float, int]:
    """Find the earliest common start at one speed for each node of that speed.

    Parameters
    ----------
    gaps : tuple of arrays
        From `windows`.
    starts : float64[m]
        Filled in: the earliest start of a set that has this node; inf: none in time.

    Returns
    -------
    float, int
        The earliest start that is too late, inf: none; and the most nodes that could start together
        in time.
    """
    node, first, last = gaps
    latest = job.deadline - job.wall / speed + SLACK
    here = np.zeros(len(starts), np.bool_)
    opening, closing = np.argsort(first), np.argsort(last)
    free, most, i, j = 0, 0, 0, 0
    while i < len(node):
        now = first[opening[i]]
        while last[closing[j]] < now - SLACK:
            here[node[closing[j]]] = False
            free -= 1
            j += 1
        begun = i if free >= job.width else 0
        while i < len(node) and first[opening[i]] == now:
            here[node[opening[i]]] = True
            free += 1
            i += 1
        if now <= latest:
            most = max(most, free)
        if free < job.width:
            continue
        for place in range(begun, i):
            k = node[opening[place]]
            if here[k] and job.speed[k] == speed and starts[k] == np.inf:
                if now > latest:
                    return now, most
                starts[k] = now
    return np.inf, most


@compiled
def speeds_of(job: Rigid) -> Times:
    """Return the speeds of nodes, greatest first; above 0 there is mostly one."""
    fastest = job.speed.max()
    for speed in job.speed:
        if 0.0 < speed < fastest:
            return np.unique(job.speed)[::-1].copy()
    return np.full(1, fastest)


@compiled
def first_together(first: Times, last: Times, width: int, latest: float) -> tuple[float, int]:
    """Find the earliest instant at which enough gaps are open.

    Parameters
    ----------
    first, last : float64[n]
        From `windows`.
    width : int
        So many are to be open.
    latest : float
        The latest start that is in time.

    Returns
    -------
    float, int
        The instant, inf: none; and the most that are open at one in time.
    """
    if len(first) == 0:
        return np.inf, 0
    now, free = first.min(), 0
    for gap in range(len(first)):
        free += first[gap] == now
    if free >= width:
        return now, free if now <= latest else 0
    opening, closing = np.sort(first), np.sort(last)
    most, opened, closed = 0, 0, 0
    while opened < len(opening):
        now = opening[opened]
        while opened < len(opening) and opening[opened] == now:
            opened += 1
        while closing[closed] < now - SLACK:
            closed += 1
        free = opened - closed
        if now <= latest:
            most = max(most, free)
        if free >= width:
            return now, most
    return np.inf, most


@compiled
def find(profile: RoomProfile, job: Rigid, last: bool) -> Found:
    """Return the choice for one job.

    Response-first: the least end; of equal ones that on the fastest nodes. Utilisation-first
    (`last`): for each node the earliest end of a set in which it is the slowest; of those that meet
    the deadline the greatest, of equals the lowest node.

    Response-first answers where the least end is too late as well; `later` is that end then.
    """
    starts = np.full(len(job.speed), np.inf)
    best_start, best_end, best_speed, best_node = np.inf, np.inf, 0.0, -1
    later, fits = np.inf, 0
    for speed in speeds_of(job):
        if speed <= 0.0:
            break
        length = job.wall / speed
        in_time = np.inf if last else job.deadline - length + SLACK
        gaps = windows(profile, job, speed, in_time)
        if last:
            start, most = sweep(gaps, job, speed, starts)
        else:
            start, most = first_together(gaps[1], gaps[2], job.width, in_time)
        if not last and start == np.inf:
            gaps = windows(profile, job, speed, np.inf)
            start, most = first_together(gaps[1], gaps[2], job.width, in_time)
        fits = max(fits, most)
        if start < np.inf and (last or start + length > job.deadline + SLACK):
            later = min(later, start + length)
        if not last and start + length < best_end:
            best_start, best_end, best_speed = start, start + length, speed
    if last:
        for k in range(len(starts)):
            end = starts[k] + job.wall / job.speed[k] if starts[k] < np.inf else np.inf
            if end < np.inf and (best_node < 0 or end > best_end):
                best_start, best_end, best_speed, best_node = starts[k], end, job.speed[k], k
    return Found(best_start, best_end, best_speed, best_node, later, fits)


@compiled
def nodes_at(profile: RoomProfile, job: Rigid, found: Found) -> NDArray[np.int32]:
    """Return int32[n], ascending: the chosen nodes, with room from the start to the end."""
    node, first, last = windows(profile, job, found.speed, found.start + SLACK)
    open_now = (first <= found.start + SLACK) & (found.start <= last + SLACK)
    able = node[open_now]
    chosen = np.empty(job.width, np.int32)
    count = 0
    keep = 1 if found.node >= 0 else 0
    for k in able:
        if k == found.node or count < job.width - keep:
            chosen[count] = k
            count += 1
            keep -= k == found.node
    return chosen


@compiled
def reserve(
    profile: RoomProfile,
    demand: NDArray[np.int64],
    nodes: NDArray[np.int32],
    start: float,
    end: float,
    sign: int,
) -> None:
    """Take a job's demand (int64[1, r]) on nodes from start to end (sign 1), or give it back (-1).

    The store must have two unused steps for each node, and for licences.
    """
    for node in nodes:
        occupy(profile, node, max(start, 0.0), end, demand, 0, sign)
    occupy_licenses(profile, max(start, 0.0), end, demand, 0, sign)


class GapRows(NamedTuple):
    """The jobs, `n` rows, and the `m` nodes."""

    room: Ints
    """int64[m, r]: what empty nodes have, and below it the cluster's licences (`room_of`)."""
    pace: Floats
    """float64[m]: how fast each node is."""
    allowed: NDArray[np.bool_]
    """bool[s, m]: sets of nodes that jobs may use."""
    code: Ints
    """int64[n]: the set of each job."""
    pinned: Ints
    """int64[n]: the only node that it may use; -1: any of its set."""
    size: Ints
    demand: Ints
    """int64[n, r]: what it takes on each of its nodes, licences once."""
    wall: Floats
    """float64[n]: seconds that each takes at pace 1."""
    begin: Floats
    deadline: Floats
    """float64[n], seconds since the epoch."""
    last: bool
    """Utilisation-first."""
    judged: NDArray[np.bool_]
    """bool[n], in a replay: the jobs that are judged by their rows."""
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
    """Return what is left of whole nodes beside what runs and the planned jobs in `rows`.

    `held_until` is as a planner's short form is given it; times are seconds from now.
    """
    m, steps = len(q.pace), 3 * len(q.pace) + 2
    for row in rows:
        steps += 2 * q.size[row]
    profile = empty_profile(m, steps, q.room.shape[1])
    reset(profile, q.room, 0.0)
    for i in range(len(rows) - 1, -1, -1):
        row = rows[i]
        start, end = max(q.start[row] - now, 0.0), max(q.end[row] - now, 0.0)
        for node in q.nodes[q.at[row] : q.at[row] + q.size[row]]:
            occupy(profile, node, start, end, q.demand, row, 1)
    for node in range(m):
        if -np.inf < held_until[node] < np.inf:
            occupy(profile, node, 0.0, max(held_until[node] - now, 0.0), q.room, node, 1)
    return profile


@compiled
def gap_for(q: GapRows, left: RoomProfile, row: int, ready: Times, deadline: float) -> Gap:
    """Return where a job goes by a deadline, seconds from now; inf: wherever it can.

    Parameters
    ----------
    q : GapRows
        Who it is.
    left : RoomProfile
        What is left of the nodes.
    row : int
        Its row.
    ready : float64[m]
        When it may start on each node, seconds from now; inf: the node takes no job.
    deadline : float
    """
    speed = np.zeros(len(q.pace))
    for node in range(len(q.pace)):
        usable = ready[node] < np.inf and q.allowed[q.code[row], node]
        if usable and (q.pinned[row] < 0 or q.pinned[row] == node):
            speed[node] = q.pace[node]
    demand = q.demand[row : row + 1]
    job = Rigid(demand, ready, speed, q.wall[row], q.size[row], deadline)
    found = find(left, job, q.last)
    if found.end < np.inf and found.end <= deadline + SLACK:
        return Gap(found, nodes_at(left, job, found))
    return Gap(found, np.empty(0, np.int32))


@compiled
def keep_row(q: GapRows, row: int, start: float, end: float, nodes: Nodes) -> None:
    """Note when and where a job is planned to run, seconds since the epoch."""
    q.start[row], q.end[row] = start, end
    q.nodes[q.at[row] : q.at[row] + q.size[row]] = nodes


@compiled
def plan_of_rows(q: GapRows, rows: Ints) -> RowPlan:
    """Return the plan of jobs as it is noted."""
    indptr = np.zeros(len(rows) + 1, np.int64)
    for i in range(len(rows)):
        indptr[i + 1] = indptr[i] + q.size[rows[i]]
    nodes = np.empty(indptr[-1], np.int32)
    for i in range(len(rows)):
        begin = q.at[rows[i]]
        nodes[indptr[i] : indptr[i + 1]] = q.nodes[begin : begin + q.size[rows[i]]]
    return RowPlan(ADMIT, q.start[rows], q.end[rows], indptr, nodes, -1)


@compiled
def no_plan(code: int, failed: int) -> RowPlan:
    """Return what is said instead of a plan; as in `RowPlan`."""
    none, nodes = np.empty(0), np.empty(0, np.int32)
    return RowPlan(code, none, none, np.zeros(1, np.int64), nodes, failed)


def plan_into_gaps(
    q: GapRows, rows: Ints, begun: Floats, new: int, now: float, held_until: Floats
) -> RowPlan:
    """Plan a new job beside those that are planned; without one, there is no better plan.

    The planner is asked where one of those was planned otherwise than is noted, and where the new
    one finds no gap.
    """
    if new < 0:
        return no_plan(REJECT, -1)
    known = q.judged[new]
    for i in range(len(rows)):
        known = known and q.start[rows[i]] == begun[i]
    if not known:
        return no_plan(ABSTAIN, -1)
    left = left_by_rows(q, rows, now, held_until)
    ready = np.where(held_until < np.inf, max(q.begin[new] - now, 0.0), np.inf)
    gap = gap_for(q, left, new, ready, q.deadline[new] - now)
    if len(gap.nodes) == 0:
        return no_plan(ABSTAIN, len(rows))
    keep_row(q, new, now + gap.found.start, now + gap.found.end, gap.nodes)
    return plan_of_rows(q, np.append(rows, new))


policy_kernels(GapRows, admit=plan_into_gaps)
