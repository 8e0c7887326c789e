"""The admission test in fixed orders, tried one after the other: the first complete plan counts.

The plans of `portfolio`, and of the FIFO and EDF baselines of MCDF. At each instant at which nodes
come free the tasks are gone through in order. A task that fits with the fewest nodes that still
meet its deadline starts; it is given more than these as long as that costs little more node-seconds
and they are free. One that does not fit is passed over, or, in a queue, keeps those behind it
waiting.

Node counts are looked at only when it matters: a task's fewest nodes never fall while time goes
on, so a count found earlier is a lower bound, and a tree gives the first task in order whose bound
fits. The plan fails at the first instant at which some task can no longer meet its deadline.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from rtsched.kernels.compiling import compiled, no_refcount
from rtsched_plugins.kernels.admission import (
    BY_ARRIVAL,
    BY_LAXITY,
    DEADLINE,
    HIGH,
    IN_TURN,
    LOW,
    Plan,
    Rows,
    earlier,
    exec_of,
    least_deadline,
    least_size,
    meets,
    rejection,
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
    queue_order,
    rejected,
    release_nodes,
    release_order,
    start_task,
    whole_second,
)
from rtsched_plugins.kernels.admission_of_rows import WorkloadRows, admits_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]

    Integers: TypeAlias = NDArray[np.int64]


class PreparedInOrders(NamedTuple):
    """A cluster and n waiting tasks, ready for any number of tests. Read-only.

    The new task of a test is row n of `rows`; there is room for one.
    """

    orders: Integers
    """int64[p], the orders to plan in."""
    generosity: float
    """Further nodes may cost this fraction of node-seconds more than the fewest do; < 0: none."""
    free: Floats
    """float64[N], when each node becomes free, seconds."""
    by_release: Integers
    """int64[N], nodes in ascending order of `free`."""
    release: Floats
    """`free` of the usable nodes, ascending."""
    rows: Rows
    """n + 1 rows."""
    key: Floats
    """float64[p, n], per order the waiting tasks' keys."""
    queue: Integers
    """int64[p, n], per order the waiting tasks in that order."""
    fewest: Integers
    """int64[n], fewest nodes at 0."""
    until: Floats
    """float64[n], an instant up to which that count surely does."""
    last: Floats
    """float64[n], an instant up to which each task can surely start."""
    by_last: Integers
    """int64[n], tasks by `last`."""


class Turn(NamedTuple):
    """The tasks of one test in order; the tree and the instants change while it runs."""

    order: int
    task: Integers
    """int64[m], tasks by place."""
    place_of_new: int
    """-1: there is no new task."""
    tree: Integers
    """Over the places: a lower bound of each task's fewest nodes (`queue_tree`)."""
    until: Floats
    """float64[n + 1], per task an instant up to which that bound surely is the count."""


@no_refcount
def key_of(rows: Rows, i: int, order: int) -> float:
    """Return by what task i stands in an order; the least goes first."""
    if order == BY_ARRIVAL:
        return 0.0
    low, high = rows.whole[i, LOW], rows.whole[i, HIGH]
    if order == BY_LAXITY and low <= high:
        return float(rows.real[i, DEADLINE] - exec_of(rows, i, high))
    return float(rows.real[i, DEADLINE])


@no_refcount
def overtaken_at(rows: Rows, new: int, key: float, order: int) -> float:
    """Return a deadline, at most rounding too early, that puts the new task behind `key`."""
    if order == BY_ARRIVAL:
        return math.inf
    deadline = key + (rows.real[new, DEADLINE] - key_of(rows, new, order))
    if order == BY_LAXITY:
        deadline -= 1e-12 * max(1.0, abs(deadline), abs(key))
    return float(deadline)


@no_refcount
def thrifty_count(rows: Rows, i: int, few: int, most: int, generosity: float) -> int:
    """Return the largest n of few..most with n E(n) <= (1 + generosity) few E(few).

    n E(n) rises with n, so that doubling steps and then bisection find it. (In several rounds,
    and of an array, it may fall now and then; what is found keeps within the limit all the same.)
    """
    limit = (1.0 + generosity) * few * exec_of(rows, i, few) * (1.0 + 1e-12)
    low, high, step = few, most + 1, 1
    while low + step < high:
        n = low + step
        if n * exec_of(rows, i, n) <= limit:
            low, step = n, 2 * step
        else:
            high, step = n, 1
            break
    while high - low > 1:
        n = (low + high) // 2
        if n * exec_of(rows, i, n) <= limit:
            low = n
        else:
            high = n
    return low


@compiled
def _turn(prepared: PreparedInOrders, which: int, has_new: bool) -> Turn:
    """Return the waiting tasks in order, and among them the new one."""
    queue, key, rows = prepared.queue[which], prepared.key[which], prepared.rows
    new, order = len(queue), prepared.orders[which]
    until = np.full(new + 1, -math.inf)
    until[:new] = prepared.until
    if not has_new:
        return Turn(order, queue, -1, queue_tree(prepared.fewest[queue]), until)
    own = key_of(rows, new, order)
    low, high = 0, new
    while low < high:
        middle = (low + high) // 2
        other = queue[middle]
        if key[other] < own or (key[other] == own and earlier(rows, other, new)):
            low = middle + 1
        else:
            high = middle
    task, count = np.empty(new + 1, np.int64), np.empty(new + 1, np.int64)
    task[:low], task[low], task[low + 1 :] = queue[:low], new, queue[low:]
    count[:low], count[low + 1 :] = prepared.fewest[queue[:low]], prepared.fewest[queue[low:]]
    count[low] = rows.whole[new, LOW]
    return Turn(order, task, low, queue_tree(count), until)


@no_refcount
def _hopeless(rows: Rows, i: int, t: float) -> bool:
    """Return whether task i can no longer meet its deadline at t with any number of nodes."""
    most = rows.whole[i, HIGH]
    return rows.whole[i, LOW] > most or not meets(rows, i, most, t)


@no_refcount
def _all_alive(prepared: PreparedInOrders, trace: Trace, cursor: int, t: float) -> tuple[bool, int]:
    """Return whether every waiting task that is left can still start at t, and the new cursor.

    The tasks in `by_last` before the cursor have been placed.
    """
    by_last, n = prepared.by_last, len(prepared.by_last)
    while cursor < n and trace.placed[by_last[cursor]]:
        cursor += 1
    if cursor == n or prepared.last[by_last[cursor]] >= t:
        return True, cursor
    for k in range(cursor, n):
        i = by_last[k]
        if prepared.last[i] >= t:
            break
        if not trace.placed[i] and _hopeless(prepared.rows, i, t):
            return False, cursor
    return True, cursor


@no_refcount
def _size_at(rows: Rows, i: int, few: int, available: int, generosity: float, t: float) -> int:
    """Return how many of the available nodes task i gets at t, where `few` are the fewest."""
    most = min(int(rows.whole[i, HIGH]), available)
    if most <= few or generosity < 0.0:
        return few
    n = thrifty_count(rows, i, few, most, generosity)
    return n if least_size(rows, i, n, t) == n else few


@no_refcount
def _count_at(rows: Rows, turn: Turn, place: int, t: float) -> int:
    """Return the fewest nodes with which the task at a place meets its deadline from t on."""
    i = turn.task[place]
    few = turn.tree[len(turn.tree) // 2 + place]
    if turn.until[i] < t:
        few = least_size(rows, i, few, t)
        turn.until[i] = max(t, safe_until(rows, i, few))
        recount(turn.tree, place, few)
    return int(few)


@no_refcount
def _is_queue(order: int) -> bool:
    """Return whether a task that does not fit keeps those behind it waiting."""
    return order in (IN_TURN, BY_ARRIVAL)


@no_refcount
def _reach(turn: Turn, available: int) -> int:
    """Return up to which node count a task is looked at: in a queue the first is, however wide."""
    return GONE - 1 if _is_queue(turn.order) else available


@no_refcount
def _if_later(rows: Rows, turn: Turn, few: int, available: int, t: float) -> float:
    """Return the least later deadline that may change how the new task starts at t.

    It then needs fewer nodes, or comes after the next task that would fit.
    """
    new, known = len(rows.real) - 1, math.inf
    following = first_within(turn.tree, _reach(turn, available))
    if following >= 0:
        key = key_of(rows, turn.task[following], turn.order)
        known = overtaken_at(rows, new, key, turn.order)
    if few > rows.whole[new, LOW]:
        known = min(known, least_deadline(rows, new, few - 1, t))
    return known


@no_refcount
def _if_waiting(rows: Rows, turn: Turn, room: int, t: float) -> float:
    """Return the least later deadline that may change that the new task does not start at t.

    `room` nodes were free when it came up (0: it did not). With a later deadline it needs fewer
    nodes, and finds at most as many free, since it comes no earlier; in a queue, it may also let
    others by.
    """
    new, known = len(rows.real) - 1, math.inf
    room = min(room, rows.whole[new, HIGH])
    if room >= rows.whole[new, LOW]:
        known = least_deadline(rows, new, room, t)
    if room > 0 and _is_queue(turn.order):
        recount(turn.tree, turn.place_of_new, GONE)
        following = first_within(turn.tree, GONE - 1)
        if following >= 0:
            key = key_of(rows, turn.task[following], turn.order)
            known = min(known, overtaken_at(rows, new, key, turn.order))
        recount(turn.tree, turn.place_of_new, rows.whole[new, LOW])
        turn.until[new] = -math.inf
    return known


@no_refcount
def _walk(
    prepared: PreparedInOrders,
    turn: Turn,
    trace: Trace,
    ends: Heap,
    t: float,
    available: int,
    searching: bool,
) -> tuple[int, float]:
    """Start what fits at t, in order; return the nodes left, and the next deadline of interest.

    That is the least later deadline of the new task with which anything in this walk could come
    out differently (inf where it is not pending, or nobody is searching).
    """
    rows, new = prepared.rows, len(prepared.fewest)
    pending = searching and turn.place_of_new >= 0 and not trace.placed[new]
    room, known = 0, math.inf
    while available > 0:
        place = first_within(turn.tree, _reach(turn, available))
        if place < 0:
            break
        if room == 0 and place >= turn.place_of_new:
            room = available
        few = _count_at(rows, turn, place, t)
        if few > available:
            if _is_queue(turn.order):
                break
            continue
        i = turn.task[place]
        n = _size_at(rows, i, few, available, prepared.generosity, t)
        recount(turn.tree, place, GONE)
        if pending and i == new:
            known = _if_later(rows, turn, few, available, t)
        available = start_task(rows, trace, ends, i, n, t, available)
    if pending and not trace.placed[new]:
        if room == 0 and not _is_queue(turn.order):
            room = available
        known = _if_waiting(rows, turn, room, t)
    return available, known


@compiled
def run_in_order(
    prepared: PreparedInOrders, which: int, has_new: bool, now: float, searching: bool
) -> Trace:
    """Run the test in one of the orders over the waiting tasks and, if any, the new one.

    Where it rejects while somebody is `searching` for a counter-offer, the trace's `next_deadline`
    is a later deadline of the new task below which no other would be accepted either.
    """
    rows, release, new = prepared.rows, prepared.release, len(prepared.fewest)
    turn = _turn(prepared, which, has_new)
    total = len(turn.task)
    trace, ends = empty_trace(total), empty_heap(total)
    cursor = released = available = 0
    known = math.inf
    t = max(now, release[0]) if len(release) else now
    while trace.done[0] < total:
        released, freed = release_nodes(release, released, ends, t)
        available += freed
        alive, cursor = _all_alive(prepared, trace, cursor, t)
        if alive and has_new and not trace.placed[new] and _hopeless(rows, new, t):
            alive = False
            if rows.whole[new, LOW] <= rows.whole[new, HIGH]:
                needed = least_deadline(rows, new, rows.whole[new, HIGH], t)
                known = min(known, needed)
        if not alive:
            return rejected(rows, trace, t, known)
        available, following = _walk(prepared, turn, trace, ends, t, available, searching)
        known = min(known, following)
        t = next_instant(release, released, ends)
    return accepted(trace, rows.real[new, DEADLINE])


GONE: int = 2**62
"""The node count of a place that holds no task any more."""


@compiled
def queue_tree(counts: Integers) -> Integers:
    """Return a tree over the places 0..n-1 with these node counts.

    A heap-ordered binary tree in one array: row 1 is the root, rows 2k and 2k + 1 are below row k,
    the second half are the places. Each row holds the least count of the places below it.
    """
    half = 1
    while half < len(counts):
        half *= 2
    tree = np.full(2 * half, GONE)
    tree[half : half + len(counts)] = counts
    for row in range(half - 1, 0, -1):
        tree[row] = min(tree[2 * row], tree[2 * row + 1])
    return tree


@no_refcount
def recount(tree: Integers, place: int, count: int) -> None:
    """Give a place another node count."""
    row = len(tree) // 2 + place
    tree[row] = count
    row //= 2
    while row > 0:
        least = min(tree[2 * row], tree[2 * row + 1])
        if tree[row] == least:
            break
        tree[row] = least
        row //= 2


@no_refcount
def first_within(tree: Integers, available: int) -> int:
    """Return the first place with a count of at most `available`, -1 if there is none."""
    if tree[1] > available:
        return -1
    row, half = 1, len(tree) // 2
    while row < half:
        row = 2 * row if tree[2 * row] <= available else 2 * row + 1
    return row - half


GUESSES: int = 12
"""Deadlines tried on the way to some acceptable one once the budget of a search is used up."""


@no_refcount
def first_counts(
    rows: Rows, orders: Integers, count: Integers, until: Floats, last: Floats, key: Floats
) -> None:
    """Write what `PreparedInOrders` says of each waiting task."""
    for i in range(len(count)):
        low, high = rows.whole[i, LOW], rows.whole[i, HIGH]
        count[i] = least_size(rows, i, low, 0.0)
        until[i] = safe_until(rows, i, count[i]) if count[i] else -math.inf
        count[i] = max(count[i], low)
        last[i] = safe_until(rows, i, high) if low <= high else -math.inf
        for which in range(len(orders)):
            key[which, i] = key_of(rows, i, orders[which])


@compiled
def prepared_in_orders(
    rows: Rows, orders: Integers, generosity: float, free: Floats
) -> PreparedInOrders:
    """Return the tests of all rows but the last, which is kept for a new task."""
    by_release, release = release_order(free)
    n = len(rows.real) - 1
    key, queue = np.empty((len(orders), n)), np.empty((len(orders), n), np.int64)
    count, until, last = np.empty(n, np.int64), np.empty(n), np.empty(n)
    first_counts(rows, orders, count, until, last, key)
    for which in range(len(orders)):
        queue[which] = queue_order(rows, key[which])
    return PreparedInOrders(
        orders,
        generosity,
        free,
        by_release,
        release,
        rows,
        key,
        queue,
        count,
        until,
        last,
        np.argsort(last),
    )


@compiled
def planned_in_orders(question: PreparedInOrders, has_new: bool, now: float) -> Plan:
    """Return the first complete plan of the waiting tasks and, if any, the new one, the last.

    Where no order finds one, that is the failure of the first order. `now`: nothing starts before.
    """
    failure = rejection(-1, math.nan)
    for which in range(len(question.orders)):
        trace = run_in_order(question, which, has_new, now, False)
        if trace.accepted:
            return plan_of(trace, question.free, question.by_release)
        if which == 0:
            failure = rejection(trace.failed, trace.failed_at)
    return failure


@compiled
def least_later_in_orders(question: PreparedInOrders, now: float, max_tests: int) -> Offer:
    """Return the least whole second not before the asked deadline with which it is admitted.

    Acceptance is not monotone in the deadline, so there is nothing to bisect. Every rejecting
    test says up to which deadline its outcome cannot change (see `run_in_order`); the search goes
    on from the least of these over all orders. When `max_tests` deadlines have been tried, a later
    one is looked for in growing steps, and flagged as not exact. The new task is the last of the
    rows; its deadline is written to.
    """
    last = len(question.fewest)
    if question.rows.whole[last, LOW] > question.rows.whole[last, HIGH]:
        return Offer(math.inf, True)
    asked = question.rows.real[last, DEADLINE]
    deadline = whole_second(asked)
    for _ in range(max_tests):
        fits, following = _with_deadline(question, deadline, now)
        if fits or following == math.inf:
            return Offer(deadline if fits else math.inf, True)
        deadline = max(whole_second(following), deadline + 1.0)
    step = max(1.0, deadline - asked)
    for _ in range(GUESSES):
        deadline, step = deadline + step, 2.0 * step
        if _with_deadline(question, deadline, now)[0]:
            return Offer(deadline, False)
    return Offer(math.inf, False)


@compiled
def _with_deadline(question: PreparedInOrders, deadline: float, now: float) -> tuple[bool, float]:
    """Return whether some order admits the new task with this deadline, and the next to try."""
    question.rows.real[len(question.fewest), DEADLINE] = deadline
    following = math.inf
    for which in range(len(question.orders)):
        trace = run_in_order(question, which, True, now, True)
        if trace.accepted:
            return True, deadline
        following = min(following, trace.next_deadline)
    return False, following


class InOrders(NamedTuple):
    """All jobs of a workload, and in which orders they are planned."""

    jobs: WorkloadRows
    orders: Integers
    """See `rtsched_plugins.kernels.admission.BY_DEADLINE`; tried one after the other."""
    generosity: float
    """Further nodes may cost this fraction of node-seconds more than the fewest do."""


@compiled
def _prepared(policy: InOrders, rows: Rows, free: Floats) -> PreparedInOrders:
    """Return the tests of all rows but the last."""
    return prepared_in_orders(rows, policy.orders, policy.generosity, free)


admits_rows(InOrders, _prepared, planned_in_orders, least_later_in_orders)
