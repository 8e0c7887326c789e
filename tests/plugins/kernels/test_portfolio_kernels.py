"""The portfolio's kernels: plans against the stated rule, counter-offers, what load is read."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from admission_states import State, random_state, taken
from hypothesis import given, settings
from hypothesis import strategies as st
from portfolio_reference import plan_in_order

from rtsched_plugins.kernels.admission import (
    BY_DEADLINE,
    BY_LAXITY,
    DIVISIBLE,
    IN_TURN,
    MOLDABLE,
    Plan,
    Rows,
    Tasks,
    exec_of,
    rows_of,
    task_table,
)
from rtsched_plugins.kernels.admission_events import Offer
from rtsched_plugins.kernels.admission_in_orders import (
    GONE,
    first_within,
    least_later_in_orders,
    queue_tree,
    recount,
    thrifty_count,
)
from rtsched_plugins.kernels.arrivals import Arrivals, Reading, least_work, read_arrivals
from rtsched_plugins.planners import Several

ORDERS = (BY_DEADLINE, BY_LAXITY, IN_TURN)
examples = settings(deadline=None, max_examples=150)
seeds = st.integers(0, 2**32)
generosities = st.sampled_from([0.0, 0.15, 1.0])


def planner(state: State, orders: tuple[int, ...], generosity: float) -> Several:
    """Return how a state is planned."""
    return Several(orders, generosity, state.efficiency, state.rounds)


def planned(state: State, orders: tuple[int, ...], generosity: float) -> Plan:
    """Return the plan of a state's tasks, the last of them new."""
    waiting, new = taken(state.tasks, slice(-1)), taken(state.tasks, slice(-1, None))
    several = planner(state, orders, generosity)
    return several.admit(several.prepare(state.free, waiting), new, state.now)


def plan_of(free: Sequence[float], tasks: Tasks, orders: tuple[int, ...]) -> Plan:
    """Return the plan of tasks that all wait, without generosity."""
    several = Several(orders, 0.0, 1.0, 1)
    return several.admit(several.prepare(np.array(free), tasks), None, 0.0)


@examples
@given(seeds, st.sampled_from(ORDERS), generosities)
def test_plan_equals_the_stated_rule(seed: int, order: int, generosity: float) -> None:
    """In each order the lazy walk places the same tasks at the same time on the same nodes."""
    state = random_state(seed)
    if not len(state.tasks.arrival):
        return
    plan = planned(state, (order,), generosity)
    expected = plan_in_order(state, state.tasks, order, generosity)
    assert plan.accepted == (expected is not None)
    for i, (start, end, nodes) in (expected or {}).items():
        assert (plan.start[i], plan.end[i]) == (start, end)
        assert plan.nodes[plan.indptr[i] : plan.indptr[i + 1]].tolist() == nodes


@examples
@given(seeds, generosities)
def test_accepted_plans_keep_every_promise(seed: int, generosity: float) -> None:
    """Nobody ends late, no node has two tasks at a time, sizes are allowed."""
    state = random_state(seed, most_tasks=12)
    if not len(state.tasks.arrival):
        return
    plan = planned(state, ORDERS, generosity)
    if not plan.accepted:
        return
    tolerance = 1e-9 * np.maximum(1.0, np.abs(state.tasks.deadline)) * 2
    assert (plan.end <= state.tasks.deadline + np.where(np.isinf(tolerance), 0, tolerance)).all()
    busy_until = np.maximum(state.free, state.now)
    for i in np.lexsort((np.argsort(plan.order), plan.start)).tolist():
        nodes = plan.nodes[plan.indptr[i] : plan.indptr[i + 1]]
        assert (busy_until[nodes] <= plan.start[i]).all()
        busy_until[nodes] = plan.end[i]
        if state.tasks.kind[i] in {MOLDABLE, DIVISIBLE}:
            assert state.tasks.size_min[i] <= len(nodes) <= state.tasks.size_max[i]


@examples
@given(seeds, generosities)
def test_the_first_order_that_finds_a_plan_counts(seed: int, generosity: float) -> None:
    """Several orders admit what any of them does, with the plan of the first that can."""
    state = random_state(seed)
    if not len(state.tasks.arrival):
        return
    plan = planned(state, ORDERS, generosity)
    alone = [planned(state, (order,), generosity) for order in ORDERS]
    first = next((one for one in alone if one.accepted), alone[0])
    assert (plan.accepted, plan.failed) == (first.accepted, first.failed)
    assert np.array_equal(plan.start, first.start)
    assert np.array_equal(plan.nodes, first.nodes)


@examples
@given(seeds)
def test_a_test_changes_nothing(seed: int) -> None:
    """Accepted or failed, a test leaves what was prepared and what it is given untouched."""
    state = random_state(seed)
    if not len(state.tasks.arrival):
        return
    for column in (state.free, *state.tasks):
        column.setflags(write=False)
    waiting, new = taken(state.tasks, slice(-1)), taken(state.tasks, slice(-1, None))
    several = planner(state, ORDERS, 0.15)
    ready = several.prepare(state.free, waiting)
    before = [np.copy(x) for x in (*ready.rows[:2], ready.queue, ready.fewest, ready.until)]
    several.admit(ready, new, 0.0)
    several.offer(ready, new, 0.0, 3)
    after = (*ready.rows[:2], ready.queue, ready.fewest, ready.until)
    assert all(np.array_equal(x, y) for x, y in zip(before, after, strict=True))


@settings(deadline=None, max_examples=60)
@given(seeds, st.sampled_from([(BY_DEADLINE,), (BY_LAXITY,), (IN_TURN,), ORDERS]))
def test_counter_offer_is_the_least_accepted_whole_second(
    seed: int, orders: tuple[int, ...]
) -> None:
    """Every whole second is tried by brute force: none before the offer, and the offer, does."""
    state = random_state(seed)
    if not len(state.tasks.arrival):
        return
    waiting, new = taken(state.tasks, slice(-1)), taken(state.tasks, slice(-1, None))
    several = planner(state, orders, 0.15)
    ready = several.prepare(state.free, waiting)
    if not np.isfinite(new.deadline[0]) or several.admit(ready, new, state.now).accepted:
        return
    offer: Offer = least_later_in_orders(several.with_new(ready, new), state.now, 1000)
    assert offer.exact
    last = offer.deadline if math.isfinite(offer.deadline) else 150.0
    for deadline in np.arange(math.ceil(new.deadline[0]), last + 1):
        later = new._replace(deadline=np.array([deadline]))
        accepted = several.admit(ready, later, state.now).accepted
        assert accepted == (deadline == offer.deadline)


@examples
@given(seeds)
def test_counter_offer_is_accepted_when_the_budget_runs_out(seed: int) -> None:
    """With one deadline to try, whatever is offered is later than asked and has been tested."""
    state = random_state(seed)
    if not len(state.tasks.arrival):
        return
    waiting, new = taken(state.tasks, slice(-1)), taken(state.tasks, slice(-1, None))
    several = planner(state, ORDERS, 0.15)
    ready = several.prepare(state.free, waiting)
    offer = several.offer(ready, new, state.now, 1)
    if math.isfinite(offer):
        assert offer >= new.deadline[0]
        later = new._replace(deadline=np.array([offer]))
        assert several.admit(ready, later, state.now).accepted


def rows(**columns: object) -> Rows:
    """Return one task as a row, for a cluster of 16 nodes."""
    return rows_of(task_table(1, **columns), 16, 1.0, 1)  # type: ignore[arg-type]


def test_thrifty_count_by_hand() -> None:
    """With Cms = Cps = 10 and 100 units E(1) = 2000, E(2) = 1333: two nodes cost a third more."""
    load = rows(kind=DIVISIBLE, sigma=100.0, cms=10.0, cps=10.0)
    assert exec_of(load, 0, 2) == pytest.approx(4000 / 3)
    assert thrifty_count(load, 0, 1, 16, 0.33) == 1
    assert thrifty_count(load, 0, 1, 16, 0.34) == 2
    assert thrifty_count(load, 0, 1, 1, 9.0) == 1
    moldable = rows(kind=MOLDABLE, size=2, wall=10.0)
    assert thrifty_count(moldable, 0, 3, 11, 0.0) == 11


def test_later_jobs_overtake_and_spare_nodes_are_used() -> None:
    """One of two nodes is busy: the wide job waits, the narrow one goes first."""
    tasks = task_table(2, size=[2, 1], wall=[10.0, 5.0], deadline=[30.0, 40.0])
    plan = plan_of([0.0, 6.0], tasks, (BY_DEADLINE,))
    assert plan.start.tolist() == [6.0, 0.0]


def test_the_orders_differ_by_hand() -> None:
    """Due at 12 after 4 s or at 8.5 after 0.5 s: the one can wait until 8, so can the other.

    By deadline the short job goes first. By laxity the long one does if it is 0.1 s longer.
    """
    tasks = task_table(2, wall=[4.1, 0.5], deadline=[12.0, 8.5])
    assert plan_of([0.0], tasks, (BY_DEADLINE,)).start.tolist() == [0.5, 0.0]
    assert plan_of([0.0], tasks, (BY_LAXITY,)).start.tolist() == [0.0, 4.1]


def test_laxity_saves_what_deadlines_lose() -> None:
    """Two nodes, a job for both that must start by 1, and one for a node with an earlier deadline.

    By deadline the narrow job starts first and the wide one is late: with both orders both get in.
    """
    tasks = task_table(2, size=[2, 1], wall=[8.0, 1.5], deadline=[9.0, 9.5 - 1.0])
    assert not plan_of([0.0, 0.0], tasks, (BY_DEADLINE,)).accepted
    late = tasks._replace(deadline=np.array([9.0, 9.5]))
    wide_first = plan_of([0.0, 0.0], late, (BY_LAXITY,))
    assert wide_first.start.tolist() == [0.0, 8.0]


def test_needed_is_the_run_time_of_what_an_idle_cluster_could_not_do() -> None:
    """A job of 10 s due in 9, and one that is wider than the machine."""
    planner = Several(ORDERS, 0.15, 1.0, 1)
    ready = planner.prepare(np.array([50.0, 50.0]), task_table(0))
    for columns, expected in (
        ({"wall": 10.0, "deadline": 9.0}, 10.0),
        ({"wall": 10.0, "deadline": 10.0}, math.nan),
        ({"wall": 1.0, "size": 3, "deadline": 99.0}, math.inf),
    ):
        task = task_table(1, **columns)  # type: ignore[arg-type]
        assert planner.needed(ready, task, 0.0) == pytest.approx(expected, nan_ok=True)


def test_least_work_by_hand() -> None:
    """Size times time; a load on one node takes sigma (Cms + Cps)."""
    tasks = task_table(2, kind=[0, 2], size=[3, 1], wall=[10.0, 0.0], sigma=5.0, cms=2.0, cps=3.0)
    assert least_work(rows_of(tasks, 16, 1.0, 1)).tolist() == [30.0, 25.0]


@examples
@given(st.lists(st.tuples(st.integers(0, 11), st.integers(1, 9)), max_size=40))
def test_queue_tree_is_a_list(changes: Sequence[tuple[int, int]]) -> None:
    """Whatever changes, the first place that fits is that of a plain list."""
    counts = [(7 * k) % 5 + 1 for k in range(12)]
    tree = queue_tree(np.array(counts))
    for place, count in changes:
        counts[place] = GONE if count == 9 else count
        recount(tree, place, counts[place])
        for available in range(11):
            fitting = [k for k, value in enumerate(counts) if value <= available]
            assert first_within(tree, available) == (fitting[0] if fitting else -1)


def read(
    time: Sequence[float], work: Sequence[float], patience: float = 0.0, **changes: float
) -> Arrivals:
    """Return what is decided of some arrivals on 2 nodes, due `patience` seconds later."""
    n = len(time)
    arrivals = Arrivals(
        np.array(time, float),
        np.array(work, float),
        np.full(n, patience),
        np.empty(n),
        np.empty(n),
        np.empty(n, bool),
    )
    reading = Reading(2.0, 4, 2, 1.0, 0.0, 0.0)._replace(**changes)
    read_arrivals(arrivals, 0, 0, reading)
    return arrivals


def test_load_is_read_from_the_arrivals_before() -> None:
    """Two nodes do 2 node-seconds a second; of 1 + 3 + 8 in 3 s only 1 + 3 fit in 6.

    The third has two before it that take 4 of the 4 that 2 s offer: nobody is declined. The
    fourth finds 12 before it on room for 6: twice the load, and the job of 8 is the first that
    no longer fits, so only more than 8 is declined.
    """
    arrivals = read([0, 1, 2, 3], [1, 3, 8, 9])
    assert arrivals.load.tolist() == [0.0, 0.0, 1.0, 2.0]
    assert arrivals.threshold.tolist() == [math.inf, math.inf, math.inf, 8.0]
    assert arrivals.declined.tolist() == [False, False, False, True]
    assert not read([0, 1, 2, 3], [1, 3, 8, 8]).declined.any()


def test_what_may_wait_is_not_declined() -> None:
    """The same four arrivals, due 3 s later: 6 s are room for 12, and 12 it is."""
    assert read([0, 1, 2, 3], [1, 3, 8, 9], patience=2.9).declined.any()
    assert not read([0, 1, 2, 3], [1, 3, 8, 9], patience=3.0).declined.any()


def test_a_share_of_the_large_ones_is_heard() -> None:
    """With half of them heard every second one is, and all or none at the ends of the range."""
    time, work = np.arange(12), [1.0] * 4 + [10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0]
    none = read(time, work, heard=0.0).declined
    assert none.sum() >= 6
    assert read(time, work, heard=0.5).declined.sum() == (none.sum() + 1) // 2
    assert not read(time, work, heard=1.0).declined.any()


@examples
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 50)), min_size=1, max_size=60),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_declining_everything_is_impossible(
    steps: list[tuple[int, int]], spared: float, heard: float
) -> None:
    """A job no larger than the smallest before it is never declined, nor a spared one."""
    time, work = np.cumsum([step for step, _ in steps]), np.array([w for _, w in steps], float)
    arrivals = read(time, work, spared=spared, heard=heard)
    for row in np.flatnonzero(arrivals.declined).tolist():
        before = np.sort(work[max(0, row - 4) : row])
        assert work[row] > before[int(spared * len(before))]
    above = arrivals.work > arrivals.threshold
    assert arrivals.declined.sum() == above.sum() - math.floor(above.sum() * heard + 1e-9)
