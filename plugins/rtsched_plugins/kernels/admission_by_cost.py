"""The admission test in cost order (MCDF): cluster and waiting tasks are prepared, then tested.

Preparing costs about as much as one test, so a caller that judges several new tasks against the
same state keeps what `prepared_by_cost` returned: it holds until a task is admitted, dispatched or
withdrawn or a node's state changes, and `now` may pass. A task that does not fit is passed over. A
heap holds the tasks whose node count grows.

A counter-offer is the least later deadline with which a new task would be admitted. Acceptance is
not monotone in the deadline, so there is nothing to bisect. But the outcome of the test depends on
the deadline only through a few comparisons: how many nodes the new task needs when it comes up.
While a test runs it notes the least later deadline at which one of these could come out
differently; if it rejects, it rejects every deadline up to there, and the search goes on from
there. Nothing accepted is jumped over.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from rtsched.kernels.compiling import compiled, no_refcount
from rtsched_plugins.kernels.admission import (
    ARRAY,
    ARRIVAL,
    DEADLINE,
    HIGH,
    KIND,
    LOW,
    MOLDABLE,
    RANK,
    ROUNDS,
    Plan,
    Rows,
    derivative_of,
    least_deadline,
    least_size,
    least_time,
    meets,
    safe_until,
)
from rtsched_plugins.kernels.admission_events import (
    Heap,
    Offer,
    Trace,
    accepted,
    empty_heap,
    empty_trace,
    next_instant,
    plan_of,
    pop,
    push,
    queue_order,
    rejected,
    release_nodes,
    release_order,
    start_task,
    whole_second,
)
from rtsched_plugins.kernels.admission_of_rows import WorkloadRows, admits_rows
from rtsched_plugins.kernels.order_tree import (
    DERIVATIVE,
    SIZE,
    OrderTree,
    build,
    comes_before,
    copy_tree,
    empty_tree,
    erase,
    insert,
    set_keys,
    take_first,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]

    Integers: TypeAlias = NDArray[np.int64]


class PreparedByCost(NamedTuple):
    """A cluster and n waiting tasks, ready for any number of tests. Read-only.

    The new task of a test is row n of `rows`; there is room for one.
    """

    free: Floats
    """float64[N], when each node becomes free, seconds."""
    by_release: Integers
    """int64[N], nodes in ascending order of `free`."""
    release: Floats
    """`free` of the usable nodes, ascending."""
    rows: Rows
    """n + 1 rows."""
    tree: OrderTree
    """The n waiting tasks by their node counts at 0."""
    due: Floats
    """float64[n], an instant up to which that node count surely does."""
    due_order: Integers
    """int64[n], tasks by `due`."""


@compiled
def first_sizes(rows: Rows, due: Floats) -> OrderTree:
    """Write how long the node counts at 0 do; return an empty tree that knows the keys."""
    tree = empty_tree(len(rows.real))
    for i in range(len(due)):
        n = least_size(rows, i, rows.whole[i, LOW], 0.0)
        due[i] = safe_until(rows, i, n) if n else -math.inf
        note_keys(rows, tree, i, n if n else rows.whole[i, LOW])
    return tree


@compiled
def prepared_by_cost(rows: Rows, free: Floats) -> PreparedByCost:
    """Return the test of all rows but the last, which is kept for a new task."""
    by_release, release = release_order(free)
    due = np.empty(len(rows.real) - 1)
    tree = first_sizes(rows, due)
    build(tree, queue_order(rows, -tree.key[: len(due), DERIVATIVE]))
    return PreparedByCost(free, by_release, release, rows, tree, due, np.argsort(due))


@compiled
def planned_by_cost(question: PreparedByCost, has_new: bool, now: float) -> Plan:
    """Return the plan of the waiting tasks and, if any, the new one; or who cannot be kept.

    `now`: seconds, >= 0; nothing starts before.
    """
    trace = run_by_cost(question, has_new, now, False)
    return plan_of(trace, question.free, question.by_release)


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
    prepared: PreparedByCost,
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
def _walk_by_cost(
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
        n = n - 1 if falls else room  # fewer nodes come later, find less room
    return known


@no_refcount
def _keep_up(rows: Rows, new: int, t: float, known: float, searching: bool) -> tuple[bool, float]:
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
    offered = whole_second(needed)
    if not searching or offered >= known:
        return False, min(known, needed)
    rows.real[new, DEADLINE] = offered
    return True, known


@compiled
def run_by_cost(prepared: PreparedByCost, has_new: bool, now: float, searching: bool) -> Trace:
    """Run the test over the waiting tasks and, if any, the new one.

    While `searching` for a counter-offer, the new task's deadline is written to.
    """
    rows, tree, release = prepared.rows, copy_tree(prepared.tree), prepared.release
    new = len(prepared.due)
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
            return rejected(rows, trace, t, known)
        if pending:
            alive, known = _keep_up(rows, new, t, known, searching)
            if not alive:
                return rejected(rows, trace, t, known)
            _resize(rows, tree, new, least_size(rows, new, rows.whole[new, LOW], t))
        first = trace.done[0]
        available = _walk_by_cost(rows, tree, trace, ends, t, available)
        if pending and searching:
            known = _next_by_cost(rows, tree, trace, first, available, t, known)
        t = next_instant(release, released, ends)
    return accepted(trace, rows.real[new, DEADLINE])


GUESSES: int = 16
"""Tests spent on finding some acceptable deadline once the budget is used up."""


@compiled
def _tested(question: PreparedByCost, deadline: float, now: float) -> tuple[float, float]:
    """Return the deadline that a test from one on accepts (inf: none), and the next to try."""
    question.rows.real[len(question.due), DEADLINE] = deadline
    trace = run_by_cost(question, True, now, True)
    return (trace.deadline if trace.accepted else math.inf), trace.next_deadline


@compiled
def _unhurried(question: PreparedByCost, now: float) -> float:
    """Return the finish with as few nodes as allowed and all the time there is, or inf.

    Raised past the last finite deadline of the waiting tasks.
    """
    rows, new = question.rows, len(question.due)
    rows.real[new, DEADLINE] = math.inf
    trace = run_by_cost(question, True, now, False)
    if not trace.accepted:
        return math.inf
    last = 0.0
    for i in range(new):
        if rows.real[i, DEADLINE] < math.inf:
            last = max(last, rows.real[i, DEADLINE])
    need = least_deadline(rows, new, rows.whole[new, LOW], trace.start[new])
    return max(need, float(np.nextafter(last, math.inf)))


@compiled
def _some_later(
    question: PreparedByCost, now: float, asked: float, deadline: float, left: int
) -> float:
    """Return a good acceptable deadline at or after `deadline`, by guesses; inf if none.

    At least two tests are made, and then no more than `left`.
    """
    late, tests, found = _unhurried(question, now), 1, math.inf
    if late < math.inf:
        found, _ = _tested(question, whole_second(max(late, deadline)), now)
        tests += 1
    step = max(1.0, 1e-3 * (deadline - asked))
    while tests < left and deadline < found:
        better, following = _tested(question, deadline, now)
        tests += 1
        if better < math.inf:
            return min(found, better)
        deadline = whole_second(max(following, deadline + step))
        step *= 4.0
    return found


@compiled
def least_later_by_cost(question: PreparedByCost, now: float, max_tests: int) -> Offer:
    """Return the least whole second, not before the asked deadline, with which it is admitted.

    Parameters
    ----------
    question : PreparedByCost
        The test, with the new task in its last row; the deadline of that row is written to.
    now : float
        Seconds, >= 0: nothing starts before.
    max_tests : int
        Budget. Once it is used up a later deadline that was tested and accepted is offered,
        found with at most `GUESSES` more tests, and flagged as not exact.
    """
    asked = deadline = whole_second(question.rows.real[len(question.due), DEADLINE])
    for _ in range(max_tests):
        found, following = _tested(question, deadline, now)
        if found < math.inf or following == math.inf:
            return Offer(found, True)
        deadline = whole_second(following)
    return Offer(_some_later(question, now, asked, deadline, GUESSES), False)


class ByCost(NamedTuple):
    """All jobs of a workload, planned in cost order."""

    jobs: WorkloadRows


@compiled
def _prepared(_: ByCost, rows: Rows, free: Floats) -> PreparedByCost:
    """Return the test of all rows but the last."""
    return prepared_by_cost(rows, free)


admits_rows(ByCost, _prepared, planned_by_cost, least_later_by_cost)
