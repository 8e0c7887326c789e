"""New jobs beside the plan as it is: what fits there is admitted, and nobody moves."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtsched.core.chain import Chain, Member
from rtsched.core.config import PluginTable
from rtsched.core.decision import judge
from rtsched.core.plan_check import plan_fault
from rtsched.daemon.settings import LiveSite
from rtsched.daemon.start import policy_of
from rtsched.model.cluster import Cluster
from rtsched.model.jobs import Jobs, Kind
from rtsched.model.schedule import Promises, Schedule
from rtsched.model.snapshot import Snapshot
from rtsched.model.verdicts import Verdict
from rtsched_plugins.kernels.beside import Shape, earliest, gaps_of
from rtsched_plugins.mcdf import Mcdf
from rtsched_plugins.portfolio import Portfolio

NOW = 1_795_000_000.0
NODES = 6

PLANNERS = {
    "mcdf": lambda **more: ("mcdf", Mcdf(Mcdf.Config(**more))),
    "portfolio": lambda **more: ("portfolio", Portfolio(Portfolio.Config(**more))),
}


def chain(planner: str, **more: object) -> Chain:
    """Return a chain of one planner."""
    name, plugin = PLANNERS[planner](**more)  # type: ignore[no-untyped-call]
    return Chain([Member(name, plugin)], name)


def job(number: int, deadline: float, size: int, wall: float, **columns: Any) -> Jobs:
    """Return a job with a deadline so many seconds from now."""
    given = {"kind": Kind.RIGID, "size": size, "wall_time": wall} | columns
    return Jobs.build(1, id=number, submit=NOW, deadline=NOW + deadline, **given)


def promised(snapshot: Snapshot, row: Jobs, plan: Schedule) -> Snapshot:
    """Return the snapshot in which one more job is promised its deadline by a plan."""
    more = Promises.build(1, job=row.id, deadline=row.deadline, made_at=NOW)
    return replace(
        snapshot,
        queued=Jobs.joined([snapshot.queued, row]),
        promises=Promises.joined([snapshot.promises, more]),
        plan=plan,
    )


def held_short() -> Snapshot:
    """Return nodes that are busy for an hour, and a short job planned on one without time left."""
    runs = Jobs.build(1, id=900, submit=NOW - 9, size=NODES, wall_time=3609.0)
    on_all = np.arange(NODES, dtype=np.int32)
    allocations = Schedule.build([900], [NOW - 9], [NOW + 3600], np.array([0, NODES]), on_all)
    snapshot = Snapshot(NOW, Cluster.uniform(NODES), running=runs, allocations=allocations)
    short = job(0, 3600 + 60, 1, 60.0)
    at = Schedule.build([0], [NOW + 3600], [NOW + 3660], np.array([0, 1]), np.array([0], np.int32))
    return promised(snapshot, short, at)


def test_a_short_job_without_time_to_spare_is_overtaken_by_everybody_in_cost_order() -> None:
    """As published: a longer job comes first, takes the node, and the short one would be late."""
    long = job(1, 9000, NODES, 600.0)
    found = judge(held_short(), chain("mcdf", offer_tests=0), long).verdicts
    assert found.code.tolist() == [Verdict.REJECT]
    assert found.findings[0].reason.code == "mcdf.breaks-promise"


@pytest.mark.parametrize("planner", PLANNERS)
def test_fifty_newcomers_fit_beside_a_short_job(planner: str) -> None:
    """Each that has room beside the plan is admitted; nobody moves, and nobody lacks an offer."""
    snapshot, policy = held_short(), chain(planner, beside_plan=True)
    random = np.random.default_rng(1)
    admitted = 0
    for number in range(1, 51):
        size, wall = int(random.integers(1, NODES + 1)), float(random.integers(1, 40) * 60)
        row = job(number, 3600 + float(random.integers(1, 400) * 60), size, wall)
        before, found = snapshot.plan, judge(snapshot, policy, row).verdicts
        if found.code[0] != Verdict.ADMIT:
            assert np.isfinite(found.offer[0])
            continue
        admitted += 1
        assert found.plan is not None
        assert plan_fault(found.plan, row, snapshot, row.deadline) is None
        snapshot = promised(snapshot, row, found.plan)
        del before
    assert admitted > 25


@pytest.mark.parametrize("planner", PLANNERS)
def test_what_has_no_room_beside_the_plan_is_planned_anew(planner: str) -> None:
    """A promised job that can wait makes room for one that cannot."""
    patient = job(0, 1000, 1, 100.0)
    plan = Schedule.build([0], [NOW], [NOW + 100], np.array([0, 1]), np.array([0], np.int32))
    snapshot = promised(Snapshot(NOW, Cluster.uniform(1)), patient, plan)
    hurried = job(1, 50, 1, 50.0)
    found = judge(snapshot, chain(planner, beside_plan=True, **in_order(planner)), hurried)
    assert found.verdicts.code.tolist() == [Verdict.ADMIT]


def in_order(planner: str) -> dict[str, object]:
    """Return settings by which a planner may put a later job first."""
    return {"order": "deadline"} if planner == "mcdf" else {}


def test_a_job_that_rejoins_no_order_gets_an_offer() -> None:
    """Where no new plan keeps the others, the offer is the end beside them."""
    row = job(1, 3700, NODES, 600.0)
    found = judge(held_short(), chain("mcdf", beside_plan=True), row).verdicts
    assert found.code.tolist() == [Verdict.REJECT]
    assert found.offer[0] == NOW + 3660 + 600
    again = row.replace(deadline=found.offer)
    assert judge(held_short(), chain("mcdf", beside_plan=True), again).verdicts.code[0] == (
        Verdict.ADMIT
    )


@pytest.mark.parametrize("planner", PLANNERS)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_streams_of_jobs_keep_every_promise_and_always_have_an_offer(
    planner: str, data: st.DataObject
) -> None:
    """Every plan can be carried out, keeps all promises, and what is offered is admitted."""
    policy = chain(planner, beside_plan=True)
    snapshot = Snapshot(NOW, Cluster.uniform(NODES))
    for number in range(data.draw(st.integers(2, 9))):
        kind = data.draw(st.sampled_from([Kind.RIGID, Kind.RIGID, Kind.MOLDABLE, Kind.DIVISIBLE]))
        size, wall = data.draw(st.integers(1, NODES)), float(data.draw(st.integers(1, 50)))
        columns: dict[str, Any] = {"kind": kind}
        if kind == Kind.DIVISIBLE:
            columns |= {"sigma": 10.0, "cms": 0.5, "cps": wall, "wall_time": np.inf}
        if kind == Kind.MOLDABLE:
            columns |= {"size_min": 1, "size_max": NODES}
        row = job(number, data.draw(st.integers(1, 200)), size, wall, **columns)
        found = judge(snapshot, policy, row).verdicts
        if found.code[0] != Verdict.ADMIT:
            assert np.isfinite(found.offer[0])
            row = row.replace(deadline=found.offer)
            found = judge(snapshot, policy, row).verdicts
        assert found.code.tolist() == [Verdict.ADMIT]
        assert found.plan is not None
        assert plan_fault(found.plan, row, snapshot, row.deadline) is None
        snapshot = promised(snapshot, row, found.plan)


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_the_earliest_start_is_what_trying_every_second_finds(data: st.DataObject) -> None:
    """Against a plain search over whole seconds."""
    nodes = data.draw(st.integers(1, 4))
    free = np.array(data.draw(st.lists(st.integers(0, 8), min_size=nodes, max_size=nodes)), float)
    parts = data.draw(
        st.lists(st.tuples(st.integers(0, nodes - 1), st.integers(0, 15), st.integers(1, 6)))
    )
    node = np.array([part[0] for part in parts], np.int64)
    start = np.array([part[1] for part in parts], float)
    end = start + np.array([part[2] for part in parts], float)
    wanted, seconds = data.draw(st.integers(1, nodes)), data.draw(st.integers(1, 6))
    gaps = gaps_of(free, node, start, end, 0.0)
    busy = np.zeros((nodes, 80), np.bool_)
    for which in range(nodes):
        busy[which, : int(free[which])] = True
    for which, begin, over in zip(node, start, end, strict=True):
        busy[which, int(begin) : int(over)] = True
    open_at = [
        (~busy[:, at : at + seconds].any(axis=1)).sum() >= wanted for at in range(80 - seconds)
    ]
    assert earliest(gaps, Shape(wanted, float(seconds)), 0.0) == float(np.argmax(open_at))


def test_parts_that_are_late_last_as_much_longer() -> None:
    """What should have started 5 s ago ends 5 s later than planned, at least."""
    gaps = gaps_of(np.zeros(1), np.array([0]), np.array([-5.0]), np.array([10.0]), 0.0)
    assert gaps.begin.tolist() == [15.0]
    assert gaps_of(np.array([np.inf]), np.array([0]), np.zeros(1), np.ones(1), 0.0).node.size == 0


def test_where_it_is_off_a_replay_has_the_short_form() -> None:
    """As published; with the setting the hook is asked, so that both answer alike."""
    jobs, cluster = job(0, 100, 1, 10.0), Cluster.uniform(2)
    assert Mcdf(Mcdf.Config()).replay_planner(jobs, cluster) is not None
    assert Mcdf(Mcdf.Config(beside_plan=True)).replay_planner(jobs, cluster) is None


@pytest.mark.parametrize("planner", PLANNERS)
def test_live_sites_plan_beside_the_plan_unless_they_say_otherwise(planner: str) -> None:
    """The default differs on live systems; what a site sets stays."""
    for given_, expected in (({}, True), ({"beside_plan": False}, False)):
        table = PluginTable(planner, settings=given_)
        live = policy_of(LiveSite(planner=planner, plugin=[table]))
        assert live.submits.chain.member(planner).plugin.beside_plan is expected
