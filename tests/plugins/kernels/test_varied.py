"""Plans for unequal nodes and for staggered starts: worked values, invariants, played through."""

import math
from typing import Any

import dlt_reference
import msgspec
import numpy as np
import pytest
from admission_states import plan as plain_plan
from admission_states import random_state, sizes
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rtsched.kernels import dlt
from rtsched.kernels.loads import Load
from rtsched.model.cluster import Nodes
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
    task_table,
)
from rtsched_plugins.mcdf import Mcdf
from rtsched_plugins.planners import Rules, Varied

examples = settings(deadline=None, max_examples=60)
seeds = st.integers(0, 2**32)


def planned(
    free: NDArray[np.float64],
    tasks: Tasks,
    nodes: Nodes,
    *,
    rules: tuple[int, int] = (BY_DEADLINE, LEAST_NODES),
    staggered: bool = False,
    now: float = 0.0,
) -> tuple[Plan, NDArray[np.float64]]:
    """Return the plan of some tasks, and the fractions of their nodes."""
    planner = Varied(Rules(*rules, 1.0), staggered).on(nodes, nodes.speed)
    plan = planner.admit(planner.prepare(free, tasks), None, now)
    return plan, planner.division(plan, tasks).fractions if plan.accepted else np.empty(0)


def some_nodes(rng: np.random.Generator, n: int) -> Nodes:
    """Return nodes of which some have times and speeds of their own, many alike."""
    nan = np.nan
    return Nodes.build(
        n,
        speed=rng.choice([0.5, 1.0, 2.0], n),
        cms=rng.choice([nan, nan, 0.0, 0.2, 1.0], n),
        cps=rng.choice([nan, nan, 0.5, 3.0], n),
        setup_link=rng.choice([nan, nan, 0.0, 0.3], n),
        setup_node=rng.choice([nan, 0.4], n),
    )


def node_costs(nodes: Nodes, tasks: Tasks, i: int, node: int) -> tuple[float, float, float, float]:
    """Return (cms, cps, ST, SC) of task i on one node: the node's own, else the task's."""
    own = [float(getattr(nodes, name)[node]) for name in ("cms", "cps", "setup_link", "setup_node")]
    speed = float(nodes.speed[node])
    task = (tasks.cms[i], tasks.cps[i] / speed, tasks.setup_link[i], tasks.setup_node[i])
    cms, cps, link, start = (
        float(b) if math.isnan(a) else a for a, b in zip(own, task, strict=True)
    )
    return cms, cps, link, start


def played(
    plan: Plan, shares: NDArray[np.float64], tasks: Tasks, nodes: Nodes, i: int
) -> list[float]:
    """Return when each node of divisible task i ends if the chunks are sent one by one."""
    ends, clock = [], -math.inf
    for place in range(plan.indptr[i], plan.indptr[i + 1]):
        node = int(plan.nodes[place])
        cms, cps, link, start = node_costs(nodes, tasks, i, node)
        free = plan.node_start[place] if len(plan.node_start) else plan.start[i]
        units = shares[place] * tasks.sigma[i]
        clock = max(clock, float(free)) + link + units * cms
        ends.append(clock + start + units * cps)
    return ends


def check(
    plan: Plan, shares: NDArray[np.float64], free: Any, tasks: Tasks, nodes: Nodes, now: float
) -> None:
    """Check that a plan is sound: no overlap, nobody late, run times as the nodes make them."""
    starts = plan.node_start
    if not len(starts):
        starts = np.repeat(plan.start, sizes(plan))
    busy = np.maximum(free, now)
    assert (plan.end <= tasks.deadline + 1e-9 * np.maximum(1.0, plan.end)).all()
    for i in plan.order:
        mine = slice(plan.indptr[i], plan.indptr[i + 1])
        taken = plan.nodes[mine]
        assert len(np.unique(taken)) == len(taken)
        assert (busy[taken] <= starts[mine]).all()
        assert starts[mine].min() == plan.start[i] >= now
        busy[taken] = plan.end[i]
        if tasks.kind[i] == DIVISIBLE:
            assert (shares[mine] > 0).all()
            assert shares[mine].sum() == pytest.approx(1.0)
            ends = played(plan, shares, tasks, nodes, int(i))
            assert ends == pytest.approx([plan.end[i]] * len(ends), rel=1e-6, abs=1e-6)
            continue
        wall = tasks.wall[i] * (tasks.size[i] / len(taken) if tasks.kind[i] == MOLDABLE else 1)
        if tasks.kind[i] == ARRAY:
            wall = tasks.wall[i] * math.ceil(tasks.sigma[i] / len(taken))
        slowest = nodes.speed[taken].min()
        assert plan.end[i] - plan.start[i] == pytest.approx(wall / slowest, abs=1e-9)


@pytest.mark.parametrize("staggered", [False, True])
@examples
@given(seeds)
def test_plans_are_sound(staggered: bool, seed: int) -> None:
    """Whatever the order: no node serves two, nobody is late, all nodes of a load end together.

    On unequal nodes, or where loads start on their nodes one after the other, each when it is free.
    """
    state = random_state(seed)
    nodes = some_nodes(np.random.default_rng(seed), len(state.free))
    if staggered:
        nodes = Nodes.build(len(state.free))
    rules = (state.order, state.node_rule)
    plan, shares = planned(
        state.free, state.tasks, nodes, rules=rules, staggered=staggered, now=state.now
    )
    if plan.accepted:
        check(plan, shares, state.free, state.tasks, nodes, state.now)


@examples
@given(seeds)
def test_equal_nodes_are_a_case_of_unequal_ones(seed: int) -> None:
    """Where no node has a speed or times of its own the plain test gives the same plan."""
    state = random_state(seed)._replace(rounds=1, efficiency=1.0)
    if state.order == BY_COST:  # where derivatives tie, rounding would order moldable tasks
        state.tasks.kind[state.tasks.kind == MOLDABLE] = RIGID
    state.tasks.wall[:] += 1.0
    rules = (state.order, state.node_rule)
    nodes = Nodes.build(len(state.free))
    found, shares = planned(state.free, state.tasks, nodes, rules=rules, now=state.now)
    expected = state.planned(plain_plan)
    assert found.accepted == expected.accepted
    if found.accepted:
        assert sizes(found) == sizes(expected)
        assert found.nodes.tolist() == expected.nodes.tolist()
        assert found.start == pytest.approx(expected.start)
        assert found.end == pytest.approx(expected.end)
        planner = Rules(*rules, 1.0)
        assert shares == pytest.approx(planner.division(expected, state.tasks).fractions, abs=1e-9)


def test_fast_links_come_first() -> None:
    """Node 2 has the fastest link; with cms 0 it alone computes all 10 units in 10 s."""
    nodes = Nodes.build(3, cms=[2.0, 1.0, 0.0])
    load = task_table(1, kind=DIVISIBLE, sigma=10.0, cms=9.0, cps=1.0, deadline=10.0)
    plan, _ = planned(np.zeros(3), load, nodes)
    assert (plan.nodes.tolist(), plan.end.tolist()) == ([2], [10.0])
    hurried = load._replace(deadline=np.array([9.0]))
    plan, shares = planned(np.zeros(3), hurried, nodes)
    assert plan.nodes.tolist() == [2, 1]
    assert shares == pytest.approx([2 / 3, 1 / 3])  # u_2 = 10/20


def test_a_node_that_would_get_nothing_is_passed_over() -> None:
    """Node 1 takes longer to set up than node 0 to do it all; node 2 helps."""
    nodes = Nodes.build(3, setup_node=[0.0, 99.0, 0.0])
    load = task_table(1, kind=DIVISIBLE, sigma=10.0, cms=0.0, cps=1.0, deadline=6.0)
    plan, shares = planned(np.zeros(3), load, nodes)
    assert plan.nodes.tolist() == [0, 2]
    assert shares == pytest.approx([0.5, 0.5])


def test_a_rigid_job_runs_as_on_its_slowest_node() -> None:
    """The two fastest of three nodes have speeds 2 and 1/2: 10 s take 20 s."""
    nodes = Nodes.build(3, speed=[0.25, 0.5, 2.0])
    job = task_table(1, size=2, wall=10.0, deadline=20.0)
    plan, _ = planned(np.zeros(3), job, nodes)
    assert (plan.nodes.tolist(), plan.end.tolist()) == ([2, 1], [20.0])
    late, _ = planned(np.zeros(3), job._replace(deadline=np.array([19.0])), nodes)
    assert (late.accepted, late.failed) == (False, 0)


def test_waiting_for_a_faster_node_may_be_what_keeps_a_deadline() -> None:
    """The slow node is free but too slow; the fast one comes free in time."""
    nodes = Nodes.build(2, speed=[0.1, 1.0])
    job = task_table(1, wall=10.0, deadline=15.0)
    plan, _ = planned(np.array([0.0, 4.0]), job, nodes)
    assert (plan.start.tolist(), plan.nodes.tolist()) == ([4.0], [1])


@examples
@given(seeds)
def test_staggering_never_ends_a_lone_load_later(seed: int) -> None:
    """On the fastest count it ends no later than if all start together, and as `staggered`."""
    rng = np.random.default_rng(seed)
    release = np.sort(rng.uniform(0, 30, rng.integers(1, 8)))
    costs = (rng.choice([0.0, 0.5, 2.0]), rng.uniform(0.5, 5), rng.choice([0.0, 0.4]), 0.3)
    names = ("cms", "cps", "setup_link", "setup_node")
    load = task_table(1, kind=DIVISIBLE, sigma=8.0, **dict(zip(names, costs, strict=True)))
    nodes = Nodes.build(len(release))
    rules = (BY_ARRIVAL, FASTEST_NODES)
    plan, _ = planned(release, load, nodes, rules=rules, staggered=True)
    together, _ = planned(release, load, nodes, rules=rules)
    assert plan.end[0] <= together.end[0] * (1 + 1e-9)
    best = dlt_reference.staggered(release, Load(8.0, *costs))
    assert plan.end[0] == pytest.approx(best.end, rel=1e-6)


def test_staggered_starts_keep_a_deadline_that_others_cannot() -> None:
    """Two nodes, free at 0 and 6, work 10 without send time, due at 8: 8 units and 2 units."""
    load = task_table(1, kind=DIVISIBLE, sigma=10.0, cms=0.0, cps=1.0, deadline=8.0)
    free, nodes = np.array([0.0, 6.0]), Nodes.build(2)
    plan, shares = planned(free, load, nodes, staggered=True)
    assert plan.end.tolist() == pytest.approx([8.0])
    assert plan.node_start.tolist() == [0.0, 6.0]
    assert shares == pytest.approx([0.8, 0.2])
    assert not planned(free, load, nodes)[0].accepted


@examples
@given(seeds)
def test_fewest_staggered_nodes_are_the_fewest(seed: int) -> None:
    """With a node less the earliest common end is after the deadline, by the plain search."""
    rng = np.random.default_rng(seed)
    release = np.sort(rng.uniform(0, 20, 7))
    costs = (float(rng.choice([0.0, 0.3])), 2.0, float(rng.choice([0.0, 0.2])), 0.1)
    end = rng.uniform(2, 40)
    n = dlt.fewest_until(end, release, Load(8.0, *costs))
    ends = [dlt_reference.staggered(release[:k], Load(8.0, *costs)).end for k in range(1, 8)]
    fits = [k for k, found in enumerate(ends, 1) if dlt.at_most(found, end)]
    assert n == (fits[0] if fits else 0)


@examples
@given(seeds, st.booleans())
def test_offers_of_varied_planners_are_accepted(seed: int, staggered: bool) -> None:
    """What is offered was tested, and is at or after the deadline asked for."""
    state = random_state(seed)
    if not len(state.tasks.arrival):
        return
    nodes = some_nodes(np.random.default_rng(seed), len(state.free))
    planner = Varied(Rules(state.order, state.node_rule, 1.0), staggered).on(nodes, nodes.speed)
    new = Tasks(*(column[:1] for column in state.tasks))
    waiting = Tasks(*(column[1:] for column in state.tasks))
    if math.isinf(new.deadline[0]):
        return
    prepared = planner.prepare(state.free, waiting)
    offer = planner.offer(prepared, new, state.now, 16)
    if offer < math.inf:
        assert offer >= new.deadline[0]
        asked = new._replace(deadline=np.array([offer]))
        assert planner.admit(prepared, asked, state.now).accepted


def test_settings_that_exclude_each_other_are_refused() -> None:
    """Several rounds are for equal nodes that start together."""
    with pytest.raises(msgspec.ValidationError, match="set only one of rounds"):
        msgspec.convert({"rounds": 2, "staggered": True}, Mcdf.Config)
    with pytest.raises(msgspec.ValidationError, match="rounds"):
        msgspec.convert({"rounds": 0}, Mcdf.Config)


@pytest.mark.parametrize(
    "columns", [{"speed": 0.0}, {"cms": 0.0, "cps": 0.0}, {"setup_link": -1.0}]
)
def test_nodes_without_sense_are_refused(columns: dict[str, float]) -> None:
    """A speed or a time that is none is named in one sentence."""
    planner = Varied(Rules(BY_COST, LEAST_NODES, 1.0), staggered=False)
    with pytest.raises(ValueError, match="a node's"):
        planner.on(Nodes.build(2, **columns), np.ones(2))


def test_requested_times_may_count_by_the_clock() -> None:
    """Then a fast node takes as long to be free of a rigid job as any, and sooner of a load."""
    nodes, rules = Nodes.build(2, speed=2.0), Rules(BY_COST, LEAST_NODES, 1.0)
    rigid = task_table(1, wall=100.0, size=1)
    load = task_table(1, kind=DIVISIBLE, sigma=100.0, cms=0.0, cps=1.0)
    for pace, ends in ((nodes.speed, (50.0, 25.0)), (np.ones(2), (100.0, 25.0))):
        planner = Varied(Rules(rules.order, FASTEST_NODES, 1.0), staggered=False).on(nodes, pace)
        for task, end in zip((rigid, load), ends, strict=True):
            plan = planner.admit(planner.prepare(np.zeros(2), task), None, 0.0)
            np.testing.assert_allclose(plan.end, [end])
