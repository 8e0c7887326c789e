"""The compiled admission test in cost order (MCDF): a task that does not fit is skipped."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

from rtsched.kernels.compiling import compiled
from rtsched_plugins.kernels.admission import ARRAY, MOLDABLE
from rtsched_plugins.kernels.admission_events import (
    DeadlineSearch,
    Prepared,
    Trace,
    accepted,
    empty_trace,
    keep_up,
    next_instant,
    rejected,
    release_nodes,
    start_task,
)
from rtsched_plugins.kernels.admission_heap import Heap, empty_heap, pop, push
from rtsched_plugins.kernels.admission_rows import (
    ARRIVAL,
    DEADLINE,
    KIND,
    LOW,
    RANK,
    ROUNDS,
    Rows,
    derivative_of,
    least_deadline,
    least_size,
    least_time,
    safe_until,
)
from rtsched_plugins.kernels.no_refcount import no_refcount
from rtsched_plugins.kernels.order_tree import (
    DERIVATIVE,
    SIZE,
    OrderTree,
    comes_before,
    copy_tree,
    erase,
    insert,
    set_keys,
    take_first,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Integers: TypeAlias = NDArray[np.int64]

PATIENCE: int = 64
"""Sizes tried one by one where the cost derivative falls in n, before settling for a bound."""


@no_refcount
def note_keys(rows: Rows, tree: OrderTree, i: int, n: int) -> None:
    """Tell the tree, before it holds task i, that the task takes n nodes."""
    derivative = derivative_of(rows, i, n)
    set_keys(tree, i, n, derivative, rows.real[i, ARRIVAL], rows.whole[i, RANK])


@no_refcount
def _resize(rows: Rows, tree: OrderTree, i: int, n: int) -> None:
    """Give task i, which is in the tree, another node count."""
    if n != tree.link[i, SIZE]:
        erase(tree, i)
        tree.link[i, SIZE] = n
        tree.key[i, DERIVATIVE] = derivative_of(rows, i, n)
        insert(tree, i)


@no_refcount
def _grow(
    prepared: Prepared,
    tree: OrderTree,
    placed: NDArray[np.bool_],
    growing: Heap,
    cursor: int,
    t: float,
) -> int:
    """Bring the waiting tasks' node counts up to date; return the new cursor, -1 on a misfit.

    `growing` is a heap of (instant, task) for tasks whose count was looked at before; the
    others stand in `due_order` from `cursor` on.
    """
    rows = prepared.rows
    while True:
        if cursor < len(prepared.due_order) and prepared.due[prepared.due_order[cursor]] < t:
            i = prepared.due_order[cursor]
            cursor += 1
        elif growing.instant[0] < t:
            i = pop(growing)
        else:
            return cursor
        if placed[i]:
            continue
        n = least_size(rows, i, tree.link[i, SIZE], t)
        if n == 0:
            return -1
        _resize(rows, tree, i, n)
        push(growing, max(t, safe_until(rows, i, n)), i)


@no_refcount
def _walk(
    rows: Rows,
    tree: OrderTree,
    trace: Trace,
    ends: Heap,
    t: float,
    available: int,
) -> int:
    """Start what fits at t, in order; return how many nodes are left."""
    while available > 0:
        i = take_first(tree, available)
        if i == len(rows.real):
            break
        available = start_task(rows, trace, ends, i, tree.link[i, SIZE], t, available)
    return available


@no_refcount
def _room_before(
    tree: OrderTree, trace: Trace, first: int, final: int, new: int, derivative: float
) -> int:
    """Return the nodes free when the walk would have come to the new task.

    The walk made the placements from `first` on and left `final` nodes; the new task, which it
    did not place, is given another cost derivative.
    """
    low, count = first, trace.done[0]
    high = count
    while low < high:  # the placements before `low` come before the new task
        middle = (low + high) // 2
        if comes_before(tree, new, derivative, trace.order[middle]):
            high = middle
        else:
            low = middle + 1
    return int(trace.before[low]) if low < count else final


@no_refcount
def _next_by_cost(
    rows: Rows, tree: OrderTree, trace: Trace, first: int, final: int, t: float, known: float
) -> float:
    """Return the least later deadline that would change what the new task did in a walk at t.

    If it started, that is one with which a node fewer does. If not, with a later deadline it
    needs fewer nodes, comes at another place in the order, and starts if as many are free
    there. Only deadlines below `known` count.
    """
    new = len(rows.real) - 1
    low = rows.whole[new, LOW]
    n = tree.link[new, SIZE] - 1
    if trace.placed[new]:
        return min(known, least_deadline(rows, new, n, t)) if n >= low else known
    opening = trace.before[first] if first < trace.done[0] else final
    kind = rows.whole[new, KIND]
    falls = kind == ARRAY or (kind == MOLDABLE and rows.efficiency != 1.0)
    falls = falls or rows.whole[new, ROUNDS] > 1
    n = min(n, opening)
    tried = 0
    while n >= low and t + least_time(rows, new, n) < known * (1.0 + 1e-8) + 1e-8:
        room = _room_before(tree, trace, first, final, new, derivative_of(rows, new, n))
        tried += 1
        if room >= n or (falls and tried > PATIENCE):
            return min(known, least_deadline(rows, new, n, t))
        n = n - 1 if falls else min(n - 1, room)  # fewer nodes come later, find less room
    return known


@compiled
def run_by_cost(prepared: Prepared, has_new: bool, now: float, search: DeadlineSearch) -> Trace:
    """Run the test in cost order (MCDF) over the waiting tasks and, if any, the new one."""
    rows, tree, release = prepared.rows, copy_tree(prepared.tree), prepared.release
    new = len(prepared.queue)
    trace = empty_trace(new + 1 if has_new else new)
    growing, ends = empty_heap(new), empty_heap(new + 1)
    cursor = released = available = 0
    known = math.inf
    if has_new:
        note_keys(rows, tree, new, rows.whole[new, LOW])
        insert(tree, new)
    t = max(now, release[0]) if len(release) else now
    while trace.done[0] < len(trace.placed):
        released, freed = release_nodes(release, released, ends, t)
        available += freed
        pending = has_new and not trace.placed[new]
        cursor = _grow(prepared, tree, trace.placed, growing, cursor, t)
        if cursor < 0:
            return rejected(rows, trace, t, known, 1)
        if pending:
            alive, known = keep_up(rows, new, t, known, search)
            if not alive:
                return rejected(rows, trace, t, known, 1)
            _resize(rows, tree, new, least_size(rows, new, rows.whole[new, LOW], t))
        first = trace.done[0]
        available = _walk(rows, tree, trace, ends, t, available)
        if pending and search.active:
            known = _next_by_cost(rows, tree, trace, first, available, t, known)
        t = next_instant(release, released, ends)
    return accepted(trace, rows.real[new, DEADLINE], 1)
