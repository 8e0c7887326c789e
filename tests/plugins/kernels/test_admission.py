"""Admission tests and counter-offers: worked cases, invariants, references, all deadlines tried."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from admission_reference import plan_reference
from admission_states import (
    State,
    Stream,
    admitted_ones,
    plan,
    random_state,
    random_tasks,
    run_stream,
    sizes,
    taken,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rtsched.kernels import dlt
from rtsched_plugins.kernels import order_tree
from rtsched_plugins.kernels.admission import (
    ARRAY,
    BY_ARRIVAL,
    BY_COST,
    BY_DEADLINE,
    DIVISIBLE,
    FASTEST_NODES,
    LEAST_NODES,
    MOLDABLE,
    RIGID,
    Plan,
    Tasks,
    load_at,
    task_table,
)
from rtsched_plugins.kernels.admission_by_cost import PreparedByCost, least_later_by_cost
from rtsched_plugins.kernels.admission_events import Offer, whole_second
from rtsched_plugins.kernels.admission_in_orders import least_later_in_orders
from rtsched_plugins.planners import Rules

CASES = json.loads((Path(__file__).parents[2] / "data/cases/mcdf.json").read_text("utf-8"))["cases"]
POLICIES = {
    "MCDF": (BY_COST, LEAST_NODES),
    "FIFO-MN": (BY_ARRIVAL, LEAST_NODES),
    "EDF-MN": (BY_DEADLINE, LEAST_NODES),
    "FIFO-AN": (BY_ARRIVAL, FASTEST_NODES),
    "EDF-AN": (BY_DEADLINE, FASTEST_NODES),
}
PLANNERS = pytest.mark.parametrize("planner", [plan_reference, plan])

examples = settings(deadline=None, max_examples=100)
"""A first call compiles, so no example has a deadline."""

seeds = st.integers(0, 2**32)


def cases(kind: str) -> list[Any]:
    """Return the worked cases of one kind, each under every policy, as test parameters."""
    return [
        pytest.param(case, policy, id=f"{case['case_id']}-{policy}")
        for case in CASES
        if case["kind"] == kind
        for policy in POLICIES
    ]


def assert_same(found: Plan, expected: Plan) -> None:
    """Check that two plans are equal to the bit."""
    assert (found.accepted, found.failed) == (expected.accepted, expected.failed)
    assert found.failed_at == expected.failed_at or found.accepted
    for name in ("start", "end", "order", "indptr", "nodes"):
        mine, other = getattr(found, name), getattr(expected, name)
        assert mine.dtype == other.dtype, name
        assert np.array_equal(mine, other), name


@PLANNERS
@pytest.mark.parametrize(("case", "policy"), cases("plan"))
def test_worked_plans(case: dict[str, Any], policy: str, planner: Any) -> None:
    """The plan has the placement order, times and sizes of the worked case, or fails as there."""
    stream, now = Stream.of(case["input"]), case["input"]["now"]
    free = np.array(case["input"]["node_free_times"], float) - now
    table = stream.table(list(range(len(stream.ids))), now)
    found = planner(free, table, *POLICIES[policy])
    expected = case["expected"]["schedule_by_policy"][policy]
    assert found.accepted == (expected is not None)
    if expected is None:
        assert math.isfinite(found.failed_at)
        return
    order = found.order
    assert stream.ids[order].tolist() == [row["id"] for row in expected]
    assert np.diff(found.indptr)[order].tolist() == [row["nodes_used"] for row in expected]
    assert found.start[order] + now == pytest.approx([row["start_time"] for row in expected])
    assert found.end[order] + now == pytest.approx([row["finish_time"] for row in expected])


@PLANNERS
@pytest.mark.parametrize(("case", "policy"), cases("sim"))
def test_worked_runs(case: dict[str, Any], policy: str, planner: Any) -> None:
    """A run over arriving batches admits the tasks of the worked case and starts them as there."""
    stream = Stream.of(case["input"])
    begun = run_stream(stream, planner, *POLICIES[policy])
    expected = case["expected"]["by_policy"][policy]
    assert sorted(begun) == sorted(expected["accepted_ids"])
    assert len(stream.ids) - len(begun) == expected["rejected"]
    starts = {str(row): start for row, (start, _) in begun.items()}
    assert starts == pytest.approx(expected["starts"])
    deadlines = dict(zip(stream.ids.tolist(), stream.deadline, strict=True))
    assert all(end <= deadlines[row] + 1e-6 for row, (_, end) in begun.items())


@PLANNERS
def test_kinds_side_by_side(planner: Any) -> None:
    """By hand: cost derivatives 8 (rigid), 2/3 of 60 (divisible on 2 of n), 0 (moldable)."""
    tasks = task_table(
        3,
        kind=[MOLDABLE, RIGID, DIVISIBLE],
        size=[2, 1, 1],
        size_max=[4, 1, 9],
        wall=[6.0, 8.0, 0.0],
        sigma=6.0,
        cms=1.0,
        cps=1.0,
        deadline=[3.0, 8.0, 8.0],
    )
    found = planner(np.zeros(7), tasks, BY_COST, LEAST_NODES)
    assert sizes(found) == [4, 1, 2]
    assert found.end.tolist() == pytest.approx([3.0, 8.0, 8.0])
    assert found.order.tolist() == [1, 2, 0]
    nodes = [found.nodes[found.indptr[i] : found.indptr[i + 1]].tolist() for i in range(3)]
    assert nodes == [[3, 4, 5, 6], [0], [1, 2]]


@PLANNERS
def test_arrays_run_in_rounds(planner: Any) -> None:
    """By hand: ten rounds of one node's tasks take three rounds on four nodes, and on five two."""
    tasks = task_table(1, kind=ARRAY, sigma=10.0, wall=6.0, size_max=8, deadline=[18.0])
    assert sizes(planner(np.zeros(8), tasks, BY_COST, LEAST_NODES)) == [4]
    sooner = tasks._replace(deadline=np.array([17.9]))
    found = planner(np.zeros(8), sooner, BY_COST, LEAST_NODES)
    assert (sizes(found), found.end.tolist()) == ([5], [12.0])
    fastest = planner(np.zeros(8), tasks, BY_COST, FASTEST_NODES)
    assert (sizes(fastest), fastest.end.tolist()) == ([5], [12.0])  # as fast as on eight
    assert not planner(np.zeros(8), tasks._replace(deadline=np.array([11.9])), BY_COST).accepted


@PLANNERS
def test_released_nodes_count_within_the_plan(planner: Any) -> None:
    """The second task waits for a node that the first one, placed in this test, gives back."""
    tasks = task_table(2, wall=[5.0, 4.0], deadline=[5.0, 9.0])
    found = planner(np.array([np.inf, 0.0]), tasks, BY_COST, LEAST_NODES)
    assert found.start.tolist() == [0.0, 5.0]
    assert found.nodes.tolist() == [1, 1]
    late = planner(np.array([np.inf, 0.0]), tasks._replace(deadline=np.array([5.0, 8.9])))
    assert (late.accepted, late.failed, late.failed_at) == (False, 1, 5.0)


@PLANNERS
def test_only_cost_order_overtakes(planner: Any) -> None:
    """One node is free: MCDF skips the task that needs two, FIFO lets it hold up the other."""
    tasks = task_table(2, size=[2, 1], wall=[9.0, 1.0], deadline=50.0)
    free = np.array([0.0, 4.0])
    assert planner(free, tasks, BY_COST).start.tolist() == [4.0, 0.0]
    assert planner(free, tasks, BY_ARRIVAL).start.tolist() == [4.0, 13.0]


@PLANNERS
def test_more_nodes_than_are_usable(planner: Any) -> None:
    """Nodes that are down count neither for a rigid task nor for the fastest size."""
    free = np.array([0.0, np.inf, 0.0])
    wide = planner(free, task_table(1, size=3, wall=1.0), BY_COST)
    assert (wide.accepted, wide.failed, wide.failed_at) == (False, 0, 0.0)
    load = task_table(1, kind=DIVISIBLE, sigma=10.0, cps=1.0)
    assert sizes(planner(free, load, BY_COST, FASTEST_NODES)) == [2]
    assert not planner(np.array([np.inf]), load, BY_DEADLINE).accepted
    assert planner(np.array([np.inf]), task_table(0), BY_DEADLINE).accepted


@examples
@given(seeds)
def test_fast_equals_reference(seed: int) -> None:
    """Event by event, with or without preparing the waiting tasks, nothing differs."""
    state = random_state(seed)
    expected = state.planned(plan_reference)
    assert_same(state.planned(plan), expected)
    if len(state.tasks.arrival):
        waiting, new = taken(state.tasks, slice(-1)), taken(state.tasks, slice(-1, None))
        prepared = state.planner.prepare(state.free, waiting)
        for _ in range(2):  # a test leaves what was prepared as it was
            assert_same(state.planner.admit(prepared, new, state.now), expected)


@settings(deadline=None, max_examples=20)
@given(seeds)
def test_fast_equals_reference_in_long_queues(seed: int) -> None:
    """The same with more tasks than nodes, wide ranges of sizes and a plan of many steps."""
    rng = np.random.default_rng(seed)
    state = random_state(seed, most_nodes=70)
    tasks = random_tasks(rng, 40, float(rng.choice([30.0, 100.0])))
    tasks.size_max[:] = rng.integers(4, 60, 40)
    assert_same(state.planned(plan, tasks), state.planned(plan_reference, tasks))


def _exec_time(state: State, i: int, n: int) -> float:
    tasks = state.tasks
    if tasks.kind[i] == RIGID:
        return float(tasks.wall[i])
    if tasks.kind[i] == MOLDABLE:
        return float(tasks.wall[i] * (tasks.size[i] / n) ** state.efficiency)
    if tasks.kind[i] == ARRAY:
        return float(tasks.wall[i] * math.ceil(tasks.sigma[i] / n))
    rounds = min(state.rounds, int(tasks.rounds[i]))
    return dlt.rounds_time(n, dlt.chain_of(load_at(tasks, i)), rounds, tasks.setup_once[i])[0]


@examples
@given(seeds)
def test_accepted_plans_keep_every_promise(seed: int) -> None:
    """No node serves two tasks at once or before it is free, and no task is late or torn."""
    state = random_state(seed)
    found = state.planned(plan)
    if not found.accepted:
        return
    assert (found.start >= state.now).all()
    assert (found.end <= state.tasks.deadline + 1e-9 * np.maximum(1.0, found.end)).all()
    assert sorted(found.order.tolist()) == list(range(len(found.start)))
    busy_until = state.free.copy()
    for i in found.order:
        nodes = found.nodes[found.indptr[i] : found.indptr[i + 1]]
        assert len(np.unique(nodes)) == len(nodes)
        assert (busy_until[nodes] <= found.start[i]).all()
        busy_until[nodes] = found.end[i]
        time = _exec_time(state, i, len(nodes))
        assert found.end[i] == pytest.approx(found.start[i] + time)


@examples
@given(seeds)
def test_no_smaller_size_would_do(seed: int) -> None:
    """Under MN a task gets the fewest nodes that meet its deadline from its start on."""
    state = random_state(seed)._replace(node_rule=LEAST_NODES)
    found = state.planned(plan)
    for i, n in enumerate(sizes(found)):
        if state.tasks.kind[i] != RIGID and n > state.tasks.size_min[i]:
            end = found.start[i] + _exec_time(state, i, n - 1)
            assert end > state.tasks.deadline[i] or (
                state.tasks.kind[i] == DIVISIBLE and end > state.tasks.deadline[i] - 1e-6
            )


@examples
@given(seeds)
def test_a_test_changes_nothing(seed: int) -> None:
    """Accepted or failed, a test leaves its inputs and what was prepared untouched."""
    state = random_state(seed)
    if not len(state.tasks.arrival):
        return
    for column in (state.free, *state.tasks):
        column.setflags(write=False)
    waiting, new = taken(state.tasks, slice(-1)), taken(state.tasks, slice(-1, None))
    planner = state.planner
    prepared = planner.prepare(state.free, waiting)
    before = [array.copy() for array in arrays_in(prepared)]
    planner.admit(prepared, new, 0.0)
    planner.offer(prepared, new, 0.0, 3)
    after = arrays_in(prepared)
    assert all(np.array_equal(x, y) for x, y in zip(before, after, strict=True))


def arrays_in(value: Any) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the arrays of a tuple, and of tuples in it; scratch space is none."""
    for name, part in value._asdict().items():
        if isinstance(part, np.ndarray) and name != "path":
            yield part
        elif hasattr(part, "_asdict"):
            yield from arrays_in(part)


@examples
@given(seeds)
def test_row_order_is_irrelevant(seed: int) -> None:
    """Permuted rows give permuted answers: ties go by arrival and rank, never by row."""
    state = random_state(seed)
    shuffle = np.random.default_rng(seed).permutation(len(state.tasks.arrival))
    one, other = state.planned(plan), state.planned(plan, taken(state.tasks, shuffle))
    assert one.accepted == other.accepted
    if one.accepted:
        for name in ("start", "end"):
            assert np.array_equal(getattr(one, name)[shuffle], getattr(other, name))
        assert np.diff(one.indptr)[shuffle].tolist() == sizes(other)
        assert one.order.tolist() == shuffle[other.order].tolist()
    else:
        assert (shuffle[other.failed], other.failed_at) == (one.failed, one.failed_at)


@examples
@given(st.lists(st.tuples(st.integers(0, 14), st.integers(1, 5), st.integers(0, 3)), max_size=60))
def test_order_tree_is_a_sorted_list(steps: list[tuple[int, int, int]]) -> None:
    """Whatever is inserted and erased, the first that fits is that of a sorted list."""
    tree = order_tree.empty_tree(15)
    held: dict[int, tuple[int, int, int]] = {}
    for i, size, derivative in steps:
        if i in held:
            order_tree.erase(tree, i)
            del held[i]
        else:
            order_tree.set_keys(tree, i, size, float(derivative), float(i % 3), i)
            order_tree.insert(tree, i)
            held[i] = (-derivative, i % 3, i)
    built = order_tree.copy_tree(tree)
    built.link[15, order_tree.LEFT] = 15
    order_tree.build(built, np.array(sorted(held, key=lambda i: held[i]), np.int64))
    for available in (2, 1, 4, 3, 5, 2, 5):
        fitting = [i for i in held if tree.link[i, order_tree.SIZE] <= available]
        expected = min(fitting, key=lambda i: held[i], default=15)
        assert order_tree.take_first(tree, available) == expected
        assert order_tree.take_first(built, available) == expected
        held.pop(expected, None)


def test_benchmark_states_stay_admitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The states that timings are taken on are what they claim: loaded, and all are admitted."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    import states

    for seed in range(3):
        free, tasks = states.random_state(100, 1000, seed)
        assert plan(free, tasks).accepted
        assert np.mean(free > 0) > 0.8


UNCOMPILED = """
import sys
sys.path[:0] = sys.argv[1:]
from admission_states import plan, random_state
from rtsched.kernels.compiling import COMPILING
from admission_reference import plan_reference
assert not COMPILING
for seed in range(60):
    state = random_state(seed)
    one, other = state.planned(plan_reference), state.planned(plan)
    assert one.accepted == other.accepted and one.nodes.tolist() == other.nodes.tolist()
    assert one.end.tolist() == other.end.tolist()
print("same")
"""


def test_works_without_compiling() -> None:
    """Without numba the same source gives the same answers."""
    environment = os.environ | {"RTSCHED_COMPILE": "0"}
    paths = map(str, (Path(__file__).parent, Path(__file__).parents[2]))
    command = [sys.executable, "-W", "error", "-c", UNCOMPILED, *paths]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "same\n", done.stderr


def accepts(state: State, waiting: Tasks, new: Tasks, deadline: float) -> bool:
    """Return whether the reference admits the new task with another deadline."""
    asked = new._replace(deadline=np.array([deadline]))
    both = Tasks(*(np.concatenate(pair) for pair in zip(waiting, asked, strict=True)))
    return state.planned(plan, both).accepted


def offer_case(seed: int) -> tuple[State, Tasks, Tasks]:
    """Return a state, its admitted tasks, and a new one that asks for much."""
    rng = np.random.default_rng(seed)
    state = random_state(seed, most_nodes=9)
    waiting = admitted_ones(state, plan)
    new = random_tasks(rng, 1, 0.0)
    new.rank[0] = rng.choice([-1, 99])
    new.deadline[0] = rng.choice([0.0, 1.0, 3.0, 8.0, 20.5])
    return state, waiting, new


def offered(
    planner: Rules,
    free: Any,
    waiting: Tasks,
    new: Tasks,
    *,
    now: float = 0.0,
    max_tests: int = 10**6,
) -> Offer:
    """Return the counter-offer to a new task."""
    test = planner.with_new(planner.prepare(free, waiting), new)
    by_cost = isinstance(test, PreparedByCost)
    least_later = least_later_by_cost if by_cost else least_later_in_orders
    return least_later(test, now, max_tests)


@settings(deadline=None, max_examples=80)
@given(seeds)
@example(1878)  # by cost, one node fewer finds just as much room: a size that must not be passed
def test_offers_are_the_least_whole_second(seed: int) -> None:
    """Trying every whole second finds none before the offered one."""
    state, waiting, new = offer_case(seed)
    offer = offered(state.planner, state.free, waiting, new, now=state.now)
    first = math.ceil(new.deadline[0])
    tried = (float(k) for k in range(first, first + 250) if accepts(state, waiting, new, float(k)))
    assert offer.exact
    assert offer.deadline == next(tried, math.inf)


def gap() -> tuple[np.ndarray[Any, Any], Tasks, Tasks]:
    """Return a state in which EDF accepts deadlines in [20, 40) and from 45 on, not between.

    The waiting task needs both nodes for 20 of its 45 seconds. The new one halves its 40
    seconds on both: then it may go first. From 40 on one node will do, and keeps the other
    task waiting until 40; from 45 on it comes second, and both fit again.
    """
    waiting = task_table(1, size=2, wall=20.0, deadline=45.0, arrival=-1.0)
    return np.zeros(2), waiting, task_table(1, kind=MOLDABLE, size_max=2, wall=40.0, rank=1)


@pytest.mark.parametrize(("asked", "least"), [(5, 20), (20, 20), (39, 39), (40, 45), (60, 60)])
def test_acceptance_has_gaps(asked: float, least: float) -> None:
    """An offer is the least later deadline even where acceptance is not monotone."""
    free, waiting, new = gap()
    new.deadline[0] = asked
    planner = Rules(BY_DEADLINE, LEAST_NODES, 1.0)
    prepared = planner.prepare(free, waiting)
    assert planner.admit(prepared, new, 0.0).accepted == (asked == least)
    assert planner.offer(prepared, new, 0.0, 100) == least


@pytest.mark.parametrize(
    ("instant", "second"), [(0.0, 0.0), (0.1, 1.0), (-0.1, 0.0), (7.0, 7.0), (-7.5, -7.0)]
)
def test_whole_seconds(instant: float, second: float) -> None:
    """The next one, or the instant itself."""
    assert whole_second(instant) == second


@pytest.mark.parametrize("instant", [2.0**52, 2.0**53 + 2, 2.0**63, 1e300, -(2.0**63), math.inf])
def test_far_instants_are_whole_seconds_as_they_are(instant: float) -> None:
    """Where floats are farther apart than a second there is nothing to look for."""
    assert whole_second(instant) == instant


def test_no_offer_where_none_exists() -> None:
    """More nodes than there are: no deadline helps, and that is known at once."""
    wide = task_table(1, size=4, wall=1.0, deadline=9.0)
    offer = offered(Rules(BY_COST, LEAST_NODES, 1.0), np.zeros(3), task_table(0), wide)
    assert offer == (math.inf, True)


@settings(deadline=None, max_examples=40)
@given(seeds, st.integers(0, 3))
def test_offers_within_a_budget_are_verified(seed: int, max_tests: int) -> None:
    """When the budget ends first, the offer is accepted all the same, at or after the least."""
    state, waiting, new = offer_case(seed)
    asked = state.planner, state.free, waiting, new
    best = offered(*asked, now=state.now)
    offer = offered(*asked, now=state.now, max_tests=max_tests)
    assert offer.deadline >= best.deadline
    assert offer.exact <= (offer.deadline == best.deadline)
    if offer.deadline < math.inf:
        assert accepts(state, waiting, new, offer.deadline)
