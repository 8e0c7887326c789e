"""The admission test event by event: compiled, with the same answers as the reference.

Between two instants at which nodes become free nothing can start, and a task's node count only
changes at known instants (deadline - E(n)). So the test walks through the releases, first of
dispatched work (sorted once), then also of tasks that it placed itself (a heap), and touches
only what changed: in cost order a tree gives the first task that fits and a heap the tasks whose
node count grows; in the queue orders only the head matters. Nodes are counted, not named.

The same walk serves the search for a counter-offer (`DeadlineSearch`): it then also finds the least
later deadline of the new task at which any of its steps could come out differently.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from rtsched.kernels.compiling import compiled
from rtsched_plugins.kernels.admission_heap import Heap, pop, push
from rtsched_plugins.kernels.admission_rows import (
    DEADLINE,
    HIGH,
    LOW,
    Rows,
    earlier,
    exec_of,
    least_deadline,
    meets,
)
from rtsched_plugins.kernels.no_refcount import no_refcount

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched_plugins.kernels.order_tree import (
        OrderTree,
    )

    Floats: TypeAlias = NDArray[np.float64]
    Integers: TypeAlias = NDArray[np.int64]


class Prepared(NamedTuple):
    """A cluster and n waiting tasks, ready for any number of tests. Read-only.

    The new task of a test is row n of `rows`; there is room for one.
    """

    order: int
    node_rule: int
    usable: int
    free: Floats
    """float64[N], when each node becomes free, seconds."""
    by_release: Integers
    """int64[N], nodes in ascending order of `free`."""
    release: Floats
    """float64[usable], `free` of the usable nodes, ascending."""
    rows: Rows
    """n + 1 rows."""
    tree: OrderTree
    """In cost order: the n waiting tasks by their node counts at 0."""
    due: Floats
    """float64[n], in cost order: an instant up to which that node count surely does."""
    due_order: Integers
    """int64[n], tasks by `due`."""
    queue: Integers
    """int64[n], the waiting tasks in queue order."""
    latest: Floats
    """float64[n + 1], up to when every task from this place in the queue on can surely start."""


class DeadlineSearch(NamedTuple):
    """A search for the new task's least deadline, on the grid base + k resolution (0: none)."""

    active: bool
    base: float
    resolution: float
    max_tests: int


class Trace(NamedTuple):
    """What one test did; per-task arrays hold garbage for tasks that were not placed."""

    accepted: bool
    failed: int
    failed_at: float
    deadline: float
    """Of the new task: as given, or raised within this test by a search."""
    next_deadline: float
    """No deadline between the given and this one does better (+inf: none at all)."""
    tests: int
    """How many tests a search made of this one."""
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
"""Steps of a grid up to which each of them is a float of its own."""


@no_refcount
def on_grid(instant: float, base: float, resolution: float) -> float:
    """Return the first instant base + k resolution that is not before `instant`.

    Where floats lie farther apart than the grid, or there is no grid, that is the instant itself.
    """
    if resolution <= 0.0 or not abs(instant - base) < resolution * WHOLE:
        return instant
    k = math.ceil((instant - base) / resolution)  # at most one wrong, by rounding
    if base + k * resolution < instant:
        k += 1
    elif base + (k - 1) * resolution >= instant:
        k -= 1
    return base + k * resolution


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


@no_refcount
def keep_up(
    rows: Rows, new: int, t: float, known: float, search: DeadlineSearch
) -> tuple[bool, float]:
    """Return whether the new task can still start at t, and the next deadline worth trying.

    A search raises a deadline that is too early to what starting at t needs, if that changes
    nothing up to now (that is, if it stays below `known`).
    """
    most = rows.whole[new, HIGH]
    if rows.whole[new, LOW] > most:
        return False, math.inf
    if meets(rows, new, most, t):
        return True, known
    needed = least_deadline(rows, new, most, t)
    offered = on_grid(needed, search.base, search.resolution)
    if not search.active or offered >= known:
        return False, min(known, needed)
    rows.real[new, DEADLINE] = offered
    return True, known


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
        1,
        np.zeros(total),
        np.zeros(total),
        counts,
        counts.copy(),
        counts.copy(),
        np.zeros(1, np.int64),
        np.zeros(total, np.bool_),
    )


@compiled
def accepted(trace: Trace, deadline: float, tests: int) -> Trace:
    """Return the trace of a test that placed all tasks."""
    return _closed(trace, True, -1, math.nan, deadline, deadline, tests)


@compiled
def rejected(rows: Rows, trace: Trace, t: float, known: float, tests: int) -> Trace:
    """Return the trace of a test in which some task can no longer meet its deadline at t."""
    failed = first_unfit(rows, trace.placed, t)
    return _closed(trace, False, failed, t, math.inf, known, tests)


@compiled
def _closed(
    trace: Trace,
    success: bool,
    failed: int,
    t: float,
    deadline: float,
    known: float,
    tests: int,
) -> Trace:
    return Trace(
        success,
        failed,
        t,
        deadline,
        known,
        tests,
        trace.start,
        trace.end,
        trace.size,
        trace.order,
        trace.before,
        trace.done,
        trace.placed,
    )
