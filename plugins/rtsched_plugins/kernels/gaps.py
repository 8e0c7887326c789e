"""Gaps in what is left of nodes over time, and the starts at which enough nodes have one together.

A job that cannot be suspended starts where every one of its nodes has room for it, and the cluster
its licences, for its whole length. On unequal nodes it runs as fast as the slowest of them, so each
speed is tried with the nodes that have at least that speed.

Times are float64 seconds from now; `SLACK` of them is rounding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.kernels.compiling import compiled
from rtsched.kernels.machine_sharing import fits, takes_licenses
from rtsched.kernels.room_profile import RoomProfile, occupy, occupy_licenses
from rtsched_plugins.kernels.no_refcount import no_refcount

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Times = NDArray[np.float64]

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
