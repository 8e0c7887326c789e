"""The admission test in one order: a cluster and its waiting tasks are prepared, then tested.

Preparing costs about as much as one test, so a caller that judges several new tasks against the
same state keeps what `prepared_in_order` returned: it holds until a task is admitted, dispatched or
withdrawn or a node's state changes, and `now` may pass.

In cost order (MCDF) a task that does not fit is skipped; in FIFO or EDF order it stops the walk.

A counter-offer is the least later deadline with which a new task would be admitted (`least_later`).
Acceptance is not monotone in the deadline, so there is nothing to bisect. But the outcome of
the test depends on the deadline only through a few comparisons: how many nodes the new task
needs when it comes up, and in EDF order what it comes before. While a test runs it notes the
least later deadline at which one of these could come out differently; if it rejects, it rejects
every deadline up to there, and the search goes on from there. Nothing accepted is jumped over.
In the queue orders that next test only replays the plan from the step that changes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from rtsched.kernels.compiling import compiled, no_refcount
from rtsched.kernels.order import stable_order
from rtsched_plugins.kernels.admission import (
    ARRAY,
    ARRIVAL,
    BY_COST,
    BY_DEADLINE,
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
    earlier,
    least_deadline,
    least_size,
    least_time,
    safe_until,
)
from rtsched_plugins.kernels.admission_events import (
    DeadlineSearch,
    Heap,
    PreparedInOrder,
    Trace,
    accepted,
    empty_heap,
    empty_trace,
    first_unfit,
    keep_up,
    next_instant,
    on_grid,
    plan_of,
    pop,
    push,
    rejected,
    release_nodes,
    release_order,
    start_task,
)
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


NO_SEARCH = DeadlineSearch(False, 0.0, 0.0, 1)


@compiled
def first_sizes(rows: Rows, due: Floats) -> OrderTree:
    """Write how long the node counts at 0 do; return an empty tree that knows the keys."""
    tree = empty_tree(len(rows.real))
    for i in range(len(due)):
        n = least_size(rows, i, rows.whole[i, LOW], 0.0)
        due[i] = safe_until(rows, i, n) if n else -math.inf
        note_keys(rows, tree, i, n if n else rows.whole[i, LOW])
    return tree


@no_refcount
def last_starts(rows: Rows, queue: Integers, latest: Floats) -> None:
    """Write until when every task from each place of the queue on can surely start."""
    latest[len(queue)] = math.inf
    for place in range(len(queue) - 1, -1, -1):
        i = queue[place]
        last = -math.inf
        if rows.whole[i, LOW] <= rows.whole[i, HIGH]:
            last = safe_until(rows, i, rows.whole[i, HIGH])
        latest[place] = min(last, latest[place + 1])


@compiled
def queue_order(rows: Rows, first: Floats) -> Integers:
    """Return as many rows as `first` has places, in order of (first, arrival, rank)."""
    n = len(first)
    order = stable_order(rows.whole[:n, RANK].astype(np.float64))
    order = order[stable_order(rows.real[:n, ARRIVAL][order])]
    return order[stable_order(first[order])]


@compiled
def prepared_in_order(rows: Rows, order: int, free: Floats) -> PreparedInOrder:
    """Return the test of all rows but the last, which is kept for a new task."""
    by_release, release = release_order(free)
    n = len(rows.real) - 1
    due, latest, queue = np.empty(n), np.empty(n + 1), np.arange(n)
    due_order = queue
    if order == BY_COST:
        tree = first_sizes(rows, due)
        build(tree, queue_order(rows, -tree.key[:n, DERIVATIVE]))
        due_order = np.argsort(due)
    else:
        tree = empty_tree(0)
        if order == BY_DEADLINE:
            queue = queue_order(rows, rows.real[:n, DEADLINE])
        else:
            queue = queue_order(rows, np.zeros(n))
        last_starts(rows, queue, latest)
    return PreparedInOrder(
        order,
        free,
        by_release,
        release,
        rows,
        tree,
        due,
        due_order,
        queue,
        latest,
    )


@compiled
def run(prepared: PreparedInOrder, has_new: bool, now: float, search: DeadlineSearch) -> Trace:
    """Run one test in the order that was prepared for."""
    if prepared.order == BY_COST:
        return run_by_cost(prepared, has_new, now, search)
    return run_in_queue(prepared, has_new, now, search)


@compiled
def planned(question: PreparedInOrder, has_new: bool, now: float) -> Plan:
    """Return the plan of the waiting tasks and, if any, the new one; or who cannot be kept.

    `now`: seconds, >= 0; nothing starts before.
    """
    trace = run(question, has_new, now, NO_SEARCH)
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
    prepared: PreparedInOrder,
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


@compiled
def run_by_cost(
    prepared: PreparedInOrder, has_new: bool, now: float, search: DeadlineSearch
) -> Trace:
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
        available = _walk_by_cost(rows, tree, trace, ends, t, available)
        if pending and search.active:
            known = _next_by_cost(rows, tree, trace, first, available, t, known)
        t = next_instant(release, released, ends)
    return accepted(trace, rows.real[new, DEADLINE], 1)


Moment: TypeAlias = tuple[float, float, int, int, int, int]
"""When the new task came up: the least deadline that would change what it did then, the instant,
and before anything started at it: releases, free nodes, place in the queue, placements."""


@no_refcount
def _goes_first(prepared: PreparedInOrder, new: int, other: int) -> bool:
    """Return whether the new task comes before waiting task `other` in the queue."""
    real = prepared.rows.real
    if prepared.order == BY_DEADLINE and real[new, DEADLINE] != real[other, DEADLINE]:
        return bool(real[new, DEADLINE] < real[other, DEADLINE])
    return earlier(prepared.rows, new, other)


@no_refcount
def _overtaken_at(prepared: PreparedInOrder, new: int, other: int) -> float:
    """Return the least deadline with which the new task no longer comes before `other`."""
    if prepared.order != BY_DEADLINE:
        return math.inf
    deadline = float(prepared.rows.real[other, DEADLINE])
    if earlier(prepared.rows, new, other):
        return float(np.nextafter(deadline, math.inf))
    return deadline


@no_refcount
def _walk_in_queue(
    prepared: PreparedInOrder,
    trace: Trace,
    ends: Heap,
    place: int,
    pending: bool,
    t: float,
    available: int,
) -> tuple[int, int, int, int]:
    """Start what fits at t, in order, up to the first task that does not.

    Returns the place in the queue that was reached, how many nodes are left and, if the new
    task came up, how many were free then and how many it takes (else 0).
    """
    rows, new = prepared.rows, len(prepared.queue)
    room = size = 0
    while available > 0 and (place < new or pending):
        is_new = pending and (place == new or _goes_first(prepared, new, prepared.queue[place]))
        i = new if is_new else prepared.queue[place]
        n = least_size(rows, i, rows.whole[i, LOW], t)
        if is_new:
            room, size = available, n
        if n > available:
            break
        available = start_task(rows, trace, ends, i, n, t, available)
        if is_new:
            pending = False
        else:
            place += 1
    return place, available, room, size


@no_refcount
def _next_in_queue(
    prepared: PreparedInOrder, place: int, started: bool, room: int, n: int, t: float
) -> float:
    """Return the least later deadline that would change what the new task did in a walk at t.

    It came up when `room` nodes were free, and either started on n nodes or stopped the walk.
    With a later deadline it may need fewer nodes, or come after the task at `place`, the first
    of the others that did not start. (To come after one that did makes no difference.)
    """
    rows, new = prepared.rows, len(prepared.queue)
    known = math.inf
    fewer = n - 1 if started else min(n - 1, room)
    if fewer >= rows.whole[new, LOW]:
        known = least_deadline(rows, new, fewer, t)
    if place < new:
        other = prepared.queue[place]
        if started or least_size(rows, other, rows.whole[other, LOW], t) <= room:
            known = min(known, _overtaken_at(prepared, new, other))
    return known


@compiled
def _go_back(
    trace: Trace, ends: Heap, moments: list[Moment], deadline: float
) -> tuple[float, int, int, int]:
    """Undo the plan from the first moment on at which a new deadline makes a difference.

    Returns that instant, the releases and the free nodes by then, and the place in the queue.
    """
    k = 0
    while moments[k][0] > deadline:
        k += 1
    _, t, released, available, place, done = moments[k]
    for j in range(done, trace.done[0]):
        trace.placed[trace.order[j]] = False
    trace.done[0] = done
    while len(moments) > k:
        moments.pop()
    ends.instant[0], ends.used[0] = np.inf, 0
    for j in range(done):
        i = trace.order[j]
        if trace.end[i] > t:
            push(ends, trace.end[i], trace.size[i])
    return t, released, available, place


@compiled
def _earliest(moments: list[Moment]) -> float:
    """Return the least deadline at which anything would come out differently."""
    known = math.inf
    for moment in moments:
        known = min(known, moment[0])
    return known


@compiled
def run_in_queue(
    prepared: PreparedInOrder, has_new: bool, now: float, search: DeadlineSearch
) -> Trace:
    """Run the test in FIFO or EDF order over the waiting tasks and, if any, the new one.

    A search that is rejected goes on with the next deadline from where that makes a difference:
    most of the plan before the new task comes up need not be made again.
    """
    rows, release = prepared.rows, prepared.release
    new = len(prepared.queue)
    trace = empty_trace(new + 1 if has_new else new)
    ends = empty_heap(new + 1)
    moments = [(np.inf, 0.0, 0, 0, 0, 0)]
    released = available = place = 0
    known, tests = math.inf, 1
    t = max(now, release[0]) if len(release) else now
    while trace.done[0] < len(trace.placed):
        released, freed = release_nodes(release, released, ends, t)
        available += freed
        pending = has_new and not trace.placed[new]
        alive, following = True, known
        if prepared.latest[place] < t:
            alive = first_unfit(rows, trace.placed[:new], t) < 0
        if alive and pending:
            alive, following = keep_up(rows, new, t, known, search)
        if not alive:
            deadline = on_grid(following, search.base, search.resolution)
            if not search.active or deadline == math.inf or tests >= search.max_tests:
                return rejected(rows, trace, t, following, tests)
            tests += 1
            rows.real[new, DEADLINE] = deadline
            t, released, available, place = _go_back(trace, ends, moments, deadline)
            known = _earliest(moments)
            continue
        moment = (t, released, available, place, trace.done[0])
        place, available, room, n = _walk_in_queue(
            prepared, trace, ends, place, pending, t, available
        )
        if room > 0 and search.active:
            later = _next_in_queue(prepared, place, trace.placed[new], room, n, t)
            if later < math.inf:
                moments.append((later, *moment))
                known = min(known, later)
        t = next_instant(release, released, ends)
    return accepted(trace, rows.real[new, DEADLINE], tests)


GUESSES: int = 16
"""Tests spent on finding some acceptable deadline once the budget is used up."""


class Offer(NamedTuple):
    """A counter-offer."""

    deadline: float
    """Seconds; the test accepts it. +inf: none was found."""
    exact: bool
    """Whether nothing between the asked deadline and this one is accepted either."""
    tests: int
    """Admission tests that it took."""


@compiled
def _tested(
    question: PreparedInOrder,
    deadline: float,
    now: float,
    base: float,
    resolution: float,
    max_tests: int,
) -> tuple[float, float, int]:
    """Return the deadline that tests from one on accept (or inf), the next to try, and how many.

    Tests may go on, from where a later deadline makes a difference, up to `max_tests`.
    """
    question.rows.real[len(question.queue), DEADLINE] = deadline
    trace = run(question, True, now, DeadlineSearch(True, base, resolution, max_tests))
    return (trace.deadline if trace.accepted else math.inf), trace.next_deadline, trace.tests


@compiled
def _unhurried(question: PreparedInOrder, now: float) -> float:
    """Return the finish with as few nodes as allowed and all the time there is, or inf.

    Raised past the last finite deadline of the waiting tasks, which matters in EDF order.
    """
    rows, new = question.rows, len(question.queue)
    rows.real[new, DEADLINE] = math.inf
    trace = run(question, True, now, NO_SEARCH)
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
    question: PreparedInOrder,
    now: float,
    base: float,
    resolution: float,
    asked: float,
    deadline: float,
    left: int,
) -> tuple[float, int]:
    """Return a good acceptable deadline at or after `deadline`, by guesses; inf if none.

    With it, how many tests were made; at least two, and then no more than `left`.
    """
    late, tests, found = _unhurried(question, now), 1, math.inf
    if late < math.inf:
        late = on_grid(max(late, deadline), base, resolution)
        found, _, made = _tested(question, late, now, base, resolution, 1)
        tests += made
    step = max(1.0, 1e-3 * (deadline - asked), resolution)
    while tests < left and deadline < found:
        better, following, made = _tested(question, deadline, now, base, resolution, 1)
        tests += made
        if better < math.inf:
            return min(found, better), tests
        deadline = on_grid(max(following, deadline + step), base, resolution)
        step *= 4.0
    return found, tests


@compiled
def least_later(
    question: PreparedInOrder, now: float, base: float, resolution: float, max_tests: int
) -> Offer:
    """Return the least acceptable deadline of the new task at or after the one it asks for.

    Parameters
    ----------
    question : PreparedInOrder
        The test, with the new task in its last row; the deadline of that row is written to.
    now : float
        Seconds, >= 0: nothing starts before.
    base, resolution : float
        Only deadlines base + k resolution are offered, seconds; with resolution 0 any is. With
        times relative to t0, base = -(t0 mod 1) makes the absolute deadlines whole seconds.
    max_tests : int
        Budget. Once it is used up a later deadline that was tested and accepted is offered,
        found with at most `GUESSES` more tests, and flagged as not exact. In the queue orders a
        further test takes a fraction of the first, so that 400 cost about as much as 100 do in
        cost order.
    """
    new, tests = len(question.queue), 0
    asked = deadline = on_grid(question.rows.real[new, DEADLINE], base, resolution)
    while tests < max_tests:
        found, following, made = _tested(
            question, deadline, now, base, resolution, max_tests - tests
        )
        tests += made
        if found < math.inf or following == math.inf:
            return Offer(found, True, tests)
        deadline = on_grid(following, base, resolution)
    left = max_tests + GUESSES - tests
    found, made = _some_later(question, now, base, resolution, asked, deadline, left)
    return Offer(found, False, tests + made)
