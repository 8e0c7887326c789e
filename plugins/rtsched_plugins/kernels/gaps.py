"""Gaps between fixed intervals on nodes, and the starts at which enough nodes have one together.

A node is busy in given intervals. A job that cannot be suspended starts where every one of its
nodes is free for its whole length. On unequal nodes it runs as fast as the slowest of them, so each
speed is tried with the nodes that have at least that speed.

Times are float64 seconds from now; `SLACK` of them is rounding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.kernels.compiling import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Times = NDArray[np.float64]

SLACK = 1e-6


class Busy(NamedTuple):
    """When `m` nodes are busy."""

    of: NDArray[np.int64]
    """[m + 1]: node i has the intervals `of[i]:of[i + 1]`, in order of their starts."""
    start: Times
    end: Times
    reach: Times
    """[m]: until when the intervals are known; inf where the node is free behind the last one."""


class Rigid(NamedTuple):
    """A job that needs several nodes at once, without interruption."""

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


@compiled
def windows(
    busy: Busy, job: Rigid, speed: float, until: float
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Return node, first and last start of every gap that is long enough, at one speed.

    Those that a job can use only after `until` are left out.
    """
    m, length = len(busy.of) - 1, job.wall / speed
    most = m + len(busy.start)
    node = np.empty(most, np.int64)
    first, last = np.empty(most), np.empty(most)
    count = 0
    for k in range(m):
        if job.speed[k] < speed:
            continue
        free = max(job.ready[k], 0.0)
        for i in range(busy.of[k], busy.of[k + 1]):
            if free > until:
                break
            if busy.start[i] - length >= free - SLACK:
                node[count], first[count], last[count] = k, free, busy.start[i] - length
                count += 1
            free = max(free, busy.end[i])
        if busy.reach[k] - length >= free - SLACK and free < np.inf and free <= until:
            node[count], first[count], last[count] = k, free, busy.reach[k] - length
            count += 1
    return node[:count], first[:count], last[:count]


@compiled
def sweep(
    gaps: tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]],
    job: Rigid,
    speed: float,
    every: bool,
    starts: NDArray[np.float64],
) -> tuple[float, int]:
    """Find the earliest common start at one speed, or with `every` one per node of that speed.

    Parameters
    ----------
    gaps : tuple of arrays
        From `windows`.
    starts : float64[m]
        With `every`, filled in: the earliest start of a set that has this node; inf: none in time.

    Returns
    -------
    float, int
        Without `every` the earliest start; with it the earliest that is too late. inf: none. And
        the most nodes that could start together in time.
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
        if not every:
            return now, most
        for place in range(begun, i):
            k = node[opening[place]]
            if here[k] and job.speed[k] == speed and starts[k] == np.inf:
                if now > latest:
                    return now, most
                starts[k] = now
    return np.inf, most


@compiled
def find(busy: Busy, job: Rigid, last: bool) -> Found:
    """Return the choice for one job.

    Response-first: the least end; of equal ones that on the fastest nodes. Utilisation-first
    (`last`): for each node the earliest end of a set in which it is the slowest; of those that meet
    the deadline the greatest, of equals the lowest node.

    Response-first answers where the least end is too late as well; `later` is that end then.
    """
    starts = np.full(len(job.speed), np.inf)
    best_start, best_end, best_speed, best_node = np.inf, np.inf, 0.0, -1
    later, fits = np.inf, 0
    for speed in np.unique(job.speed)[::-1]:
        if speed <= 0.0:
            break
        length = job.wall / speed
        in_time = np.inf if last else job.deadline - length + SLACK
        start, most = sweep(windows(busy, job, speed, in_time), job, speed, last, starts)
        if not last and start == np.inf:
            start, most = sweep(windows(busy, job, speed, np.inf), job, speed, last, starts)
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
def nodes_at(busy: Busy, job: Rigid, found: Found) -> NDArray[np.int32]:
    """Return int32[n], ascending: the chosen nodes, free from the start to the end."""
    node, first, last = windows(busy, job, found.speed, found.start + SLACK)
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
