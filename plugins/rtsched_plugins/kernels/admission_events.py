"""The admission test event by event: compiled, with the same answers as the reference.

Between two instants at which nodes become free nothing can start, and a task's node count only
changes at known instants (deadline - E(n)). So the test walks through the releases, first of
dispatched work (sorted once), then also of tasks that it placed itself (a heap), and touches
only what changed: a tree gives the first task that fits. Nodes are counted, not named.

The same walk serves the search for a counter-offer: it then also finds the least later deadline of
the new task at which any of its steps could come out differently.

A plan names the nodes of its tasks in the end: always the free ones of lowest index.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from rtsched.kernels.compiling import compiled, no_refcount
from rtsched.kernels.order import stable_order
from rtsched_plugins.kernels.admission import (
    ARRIVAL,
    HIGH,
    LOW,
    RANK,
    Plan,
    Rows,
    earlier,
    exec_of,
    meets,
    rejection,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]

    Integers: TypeAlias = NDArray[np.int64]


class Trace(NamedTuple):
    """What one test did; per-task arrays hold garbage for tasks that were not placed."""

    accepted: bool
    failed: int
    failed_at: float
    deadline: float
    """Of the new task: as given, or raised within this test by a search."""
    next_deadline: float
    """No deadline between the given and this one does better (+inf: none at all)."""
    start: Floats
    end: Floats
    size: Integers
    order: Integers
    """Tasks in placement order."""
    before: Integers
    """Free nodes before each placement, in placement order."""
    done: Integers
    """int64[1], placements so far."""
    placed: NDArray[np.bool_]


WHOLE = 2.0**52
"""Seconds from which on each float is a whole number."""


@no_refcount
def whole_second(instant: float) -> float:
    """Return the first whole second that is not before `instant`."""
    return float(math.ceil(instant)) if abs(instant) < WHOLE else instant


@no_refcount
def first_unfit(rows: Rows, placed: NDArray[np.bool_], t: float) -> int:
    """Return the first task by (arrival, rank) that can no longer meet its deadline, or -1."""
    found = -1
    for i in range(len(placed)):
        if placed[i] or (
            rows.whole[i, LOW] <= rows.whole[i, HIGH] and meets(rows, i, rows.whole[i, HIGH], t)
        ):
            continue
        if found < 0 or earlier(rows, i, found):
            found = i
    return found


@compiled
def queue_order(rows: Rows, first: Floats) -> Integers:
    """Return as many rows as `first` has places, in order of (first, arrival, rank)."""
    n = len(first)
    order = stable_order(rows.whole[:n, RANK].astype(np.float64))
    order = order[stable_order(rows.real[:n, ARRIVAL][order])]
    return order[stable_order(first[order])]


@compiled
def release_order(free: Floats) -> tuple[Integers, Floats]:
    """Return the nodes in the order in which they become free, and when the usable ones do."""
    by_release = np.argsort(free)
    usable = 0
    for node in range(len(free)):
        usable += free[node] < math.inf
    return by_release, free[by_release[:usable]]


@no_refcount
def release_nodes(release: Floats, released: int, ends: Heap, t: float) -> tuple[int, int]:
    """Return how many nodes of `release` are free by t, and how many more are free than before."""
    before = released
    while released < len(release) and release[released] <= t:
        released += 1
    freed = released - before
    while ends.instant[0] <= t:
        freed += pop(ends)
    return released, freed


@no_refcount
def next_instant(release: Floats, released: int, ends: Heap) -> float:
    """Return the next instant at which nodes become free, +inf if there is none."""
    if released < len(release):
        return float(min(release[released], ends.instant[0]))
    return float(ends.instant[0])


@no_refcount
def start_task(
    rows: Rows,
    trace: Trace,
    ends: Heap,
    i: int,
    n: int,
    t: float,
    available: int,
) -> int:
    """Start task i at t on n of the available nodes; return how many are left."""
    end = t + exec_of(rows, i, n)
    count = trace.done[0]
    trace.order[count] = i
    trace.before[count] = available
    trace.done[0] = count + 1
    trace.placed[i] = True
    trace.start[i] = t
    trace.end[i] = end
    trace.size[i] = n
    if end <= t:  # no time at all: the nodes are free again at once
        return available
    push(ends, end, n)
    return available - n


@compiled
def empty_trace(total: int) -> Trace:
    """Return a trace with room for `total` tasks."""
    counts = np.zeros(total, np.int64)
    return Trace(
        False,
        -1,
        np.nan,
        np.inf,
        np.inf,
        np.zeros(total),
        np.zeros(total),
        counts,
        counts.copy(),
        counts.copy(),
        np.zeros(1, np.int64),
        np.zeros(total, np.bool_),
    )


@compiled
def accepted(trace: Trace, deadline: float) -> Trace:
    """Return the trace of a test that placed all tasks."""
    return _closed(trace, True, -1, math.nan, deadline, deadline)


@compiled
def rejected(rows: Rows, trace: Trace, t: float, known: float) -> Trace:
    """Return the trace of a test in which some task can no longer meet its deadline at t."""
    failed = first_unfit(rows, trace.placed, t)
    return _closed(trace, False, failed, t, math.inf, known)


@compiled
def _closed(
    trace: Trace, success: bool, failed: int, t: float, deadline: float, known: float
) -> Trace:
    return Trace(
        success,
        failed,
        t,
        deadline,
        known,
        trace.start,
        trace.end,
        trace.size,
        trace.order,
        trace.before,
        trace.done,
        trace.placed,
    )


class Offer(NamedTuple):
    """A counter-offer."""

    deadline: float
    """Seconds; the test accepts it. +inf: none was found."""
    exact: bool
    """Whether no whole second between the asked deadline and this one is accepted either."""


class Heap(NamedTuple):
    """Pairs of which the earliest comes first; those of one instant in no particular order."""

    instant: NDArray[np.float64]
    """Seconds; the first is +inf while the heap is empty."""
    number: NDArray[np.int64]
    used: NDArray[np.int64]
    """int64[1], how many pairs there are."""


@compiled
def empty_heap(most: int) -> Heap:
    """Return a heap with room for `most` pairs."""
    instant = np.empty(most + 1)
    instant[0] = np.inf
    return Heap(instant, np.empty(most + 1, np.int64), np.zeros(1, np.int64))


@no_refcount
def push(heap: Heap, instant: float, number: int) -> None:
    """Add a pair."""
    place = heap.used[0]
    heap.used[0] = place + 1
    while place > 0:
        above = (place - 1) >> 1
        if heap.instant[above] <= instant:
            break
        heap.instant[place], heap.number[place] = heap.instant[above], heap.number[above]
        place = above
    heap.instant[place], heap.number[place] = instant, number


@no_refcount
def pop(heap: Heap) -> int:
    """Remove the earliest pair, which there must be, and return its number."""
    first = heap.number[0]
    count = heap.used[0] - 1
    heap.used[0] = count
    instant, number = heap.instant[count], heap.number[count]
    place, below = 0, 1
    while below < count:
        if below + 1 < count and heap.instant[below + 1] < heap.instant[below]:
            below += 1
        if heap.instant[below] >= instant:
            break
        heap.instant[place], heap.number[place] = heap.instant[below], heap.number[below]
        place, below = below, 2 * below + 1
    heap.instant[place], heap.number[place] = instant, number
    if count == 0:
        heap.instant[0] = np.inf
    return int(first)


@compiled
def plan_of(trace: Trace, free: Floats, by_release: Integers) -> Plan:
    """Return what a test came to as a plan with nodes; the others as in `PreparedByCost`."""
    if not trace.accepted:
        return rejection(trace.failed, trace.failed_at)
    start, end, order = trace.start, trace.end, trace.order
    indptr, nodes = choose_nodes(free, by_release, start, end, trace.size, order)
    return Plan(True, -1, math.nan, start, end, order, indptr, nodes, np.empty(0))


BLOCK: int = 64


@compiled
def choose_nodes(
    free: Floats, by_release: Integers, start: Floats, end: Floats, size: Integers, order: Integers
) -> tuple[Integers, NDArray[np.int32]]:
    """Return the nodes of each task as (indptr, nodes), replaying a plan in placement order.

    Parameters
    ----------
    free : float64[N]
        When each node becomes free, seconds, +inf where it is unusable.
    by_release : int64[N]
        Node indices in ascending order of `free`.
    start, end : float64[n]
        Seconds, per task.
    size : int64[n]
        Nodes per task.
    order : int64[n]
        Tasks in placement order, that is with ascending starts.

    Returns
    -------
    indptr : int64[n + 1]
    nodes : int32[indptr[n]]
        Task i gets nodes[indptr[i]:indptr[i + 1]], ascending.
    """
    n = len(start)
    indptr = np.zeros(n + 1, np.int64)
    for i in range(n):
        indptr[i + 1] = indptr[i] + size[i]
    nodes = np.empty(indptr[n], np.int32)
    is_free = np.zeros(len(free), np.bool_)
    free_in = np.zeros(len(free) // BLOCK + 1, np.int64)
    running = empty_heap(n)
    released = lowest = 0
    for k in range(n):
        task = order[k]
        while released < len(free) and free[by_release[released]] <= start[task]:
            node = by_release[released]
            is_free[node] = True
            free_in[node // BLOCK] += 1
            lowest = min(lowest, node // BLOCK)
            released += 1
        while running.instant[0] <= start[task]:
            ended = pop(running)
            for place in range(indptr[ended], indptr[ended + 1]):
                is_free[nodes[place]] = True
                free_in[nodes[place] // BLOCK] += 1
                lowest = min(lowest, nodes[place] // BLOCK)
        lowest = _take_lowest(is_free, free_in, lowest, nodes, indptr[task], indptr[task + 1])
        push(running, end[task], task)
    return indptr, nodes


@no_refcount
def _take_lowest(
    is_free: NDArray[np.bool_],
    free_in: Integers,
    block: int,
    nodes: NDArray[np.int32],
    place: int,
    until: int,
) -> int:
    """Move the lowest free nodes into nodes[place:until]; return the block of the last.

    No node of a block before `block` is free.
    """
    while place < until:
        if free_in[block] == 0:
            block += 1
            continue
        for node in range(block * BLOCK, min((block + 1) * BLOCK, len(is_free))):
            if is_free[node]:
                is_free[node] = False
                free_in[block] -= 1
                nodes[place] = node
                place += 1
                if place == until or free_in[block] == 0:
                    break
    return block
