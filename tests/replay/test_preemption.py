"""Waiting jobs that preempt running ones: whom, and what becomes of them."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from plain_preemption import Job, Plain, Rules, Run
from workloads import workload_of

from rtsched.model.actions import Admit, Reserve
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Jobs
from rtsched.model.log import FinalState
from rtsched.model.preemption import Preemption
from rtsched.model.schedule import Schedule
from rtsched.replay.engine import replay
from rtsched.replay.policies import presets
from rtsched.simulator.exclusive import ExclusiveNodes
from rtsched.simulator.interface import StopConditions
from rtsched.simulator.settings import ExclusiveSettings

LOW, NORMAL, HIGH, URGENT = range(4)
MAY = {NORMAL: set(), HIGH: {LOW}, URGENT: {LOW, HIGH}}
"""Who may preempt whom in these tests: nobody preempts normal jobs, nor do they."""


def rules(**changes: Any) -> Rules:
    """Return the rules: jobs of low rank go first."""
    usual: dict[str, Any] = {"may": MAY, "rank": {LOW: 0.0, NORMAL: 1.0, HIGH: 2.0, URGENT: 3.0}}
    return Rules(**{**usual, **changes})


def as_arrays(given: Rules, kind: NDArray[np.int64]) -> Preemption:
    """Return rules as the system takes them."""
    may = np.array([[b in given.may.get(a, set()) for b in range(4)] for a in range(4)], np.bool_)
    return Preemption(
        kind,
        may,
        np.array([one in given.cancels for one in range(4)]),
        np.array([given.rank[one] for one in range(4)]),
        np.array([given.exempt.get(one, 0.0) for one in range(4)]),
    )


def system_of(
    jobs: list[Job],
    capacity: list[tuple[int, ...]],
    loop: Any,
    given: Rules | None,
    whole: bool = False,
    planned_at: float | None = None,
) -> ExclusiveNodes:
    """Return the system when all has happened, on shared nodes or `whole` ones.

    `planned_at` is when the first job starts on the first node by a plan, None: there is none.
    """
    n, resources = len(jobs), ("cpu", "gres/gpu")[: len(capacity[0])]
    demand = {} if whole else {"demand": np.array([job.demand for job in jobs], np.int64)}
    table = Jobs.build(
        n,
        names={} if whole else {"demand": resources},
        id=np.arange(n),
        submit=np.array([job.submit for job in jobs]),
        wall_time=np.array([job.wall for job in jobs]),
        size=np.array([job.nodes for job in jobs], np.int32),
        **demand,
    )
    cluster = Cluster.uniform(len(capacity))
    if not whole:
        amounts = np.array(capacity, np.int64)
        cluster = Cluster(
            Nodes.build(len(capacity), names={"capacity": resources}, capacity=amounts)
        )
    kind = np.array([job.kind for job in jobs], np.int64)
    system = ExclusiveNodes(
        table,
        np.array([job.run for job in jobs]),
        cluster,
        ExclusiveSettings(loop=loop),
        preemption=None if given is None else as_arrays(given, kind),
        record_events=True,
        record_nodes=True,
        stop_at=StopConditions(arrivals=planned_at is not None),
    )
    while not (point := system.advance()).done:
        system.apply([Admit(point.arrivals, np.full(len(point.arrivals), np.inf))])
        if planned_at is not None and point.arrivals[0] == 0:
            end = planned_at + jobs[0].wall
            plan = Schedule.build([0], [planned_at], [end], np.array([0, 1]), np.zeros(1, np.int32))
            system.apply([Reserve(plan.entries.job, plan)])
    return system


def last_runs(runs: list[Run]) -> dict[int, tuple[float, float, list[int], str]]:
    """Return the last run of each job, by a plain simulation."""
    return {run.job: (run.start, run.end, run.nodes, run.how) for run in runs}


def found(system: ExclusiveNodes) -> dict[int, tuple[float, float, list[int], str]]:
    """Return the same of a system."""
    outcomes, (offsets, nodes) = system.job_outcomes(), system.node_rows()
    how = {FinalState.FINISHED: "ended", FinalState.UNFINISHED: "cancelled"}
    return {
        job: (
            float(outcomes.start[job]),
            float(outcomes.end[job]),
            sorted(nodes[offsets[job] : offsets[job + 1]].tolist()),
            how[FinalState(outcomes.fate[job])],
        )
        for job in range(len(outcomes.start))
    }


FOUR = [(1,)] * 4


def job(
    submit: float, nodes: int, seconds: float, kind: int, demand: tuple[int, ...] = (1,)
) -> Job:
    """Return a job that runs for as long as it asks for."""
    return Job(float(submit), nodes, demand, float(seconds), float(seconds), kind)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("loop", ["easy", "fcfs"])
def test_a_job_is_requeued_and_begins_again(loop: str, whole: bool) -> None:
    """The high job takes the nodes of the younger of two low ones; that one runs from 30 to 80."""
    # Then the last low job has a node: the requeued one came before it.
    jobs = [job(0, 2, 100, LOW), job(1, 2, 50, LOW), job(10, 2, 20, HIGH), job(10, 1, 5, LOW)]
    system = system_of(jobs, FOUR, loop, rules(), whole)
    outcomes = system.job_outcomes()
    assert outcomes.start.tolist() == [0.0, 30.0, 10.0, 80.0]
    assert outcomes.end.tolist() == [100.0, 80.0, 30.0, 85.0]
    assert outcomes.preempted.tolist() == outcomes.restarts.tolist() == [0, 1, 0, 0]
    assert outcomes.lost.tolist() == [0.0, 18.0, 0.0, 0.0]
    (finding,) = outcomes.findings
    assert finding.reason.code == "preemption.requeued"
    assert finding.rows.tolist() == [1]


@pytest.mark.parametrize("whole", [True, False])
def test_a_job_is_cancelled(whole: bool) -> None:
    """The low job ends at 10, and the last one need not wait for it."""
    jobs = [job(0, 2, 100, LOW), job(1, 2, 50, LOW), job(10, 2, 20, HIGH), job(10, 1, 5, NORMAL)]
    system = system_of(jobs, FOUR, "easy", rules(cancels={LOW}), whole)
    outcomes = system.job_outcomes()
    assert outcomes.end.tolist() == [100.0, 10.0, 30.0, 35.0]
    assert outcomes.fate[1] == FinalState.UNFINISHED
    assert [finding.reason.code for finding in outcomes.findings] == ["preemption.cancelled"]


@pytest.mark.parametrize("whole", [True, False])
def test_the_exempt_time_is_kept(whole: bool) -> None:
    """Nothing ends between 10 and 21, when the younger job has run for 20 s; the elder had so."""
    jobs = [job(0, 2, 100, HIGH), job(1, 2, 50, LOW), job(10, 1, 20, HIGH)]
    system = system_of(jobs, FOUR, "fcfs", rules(exempt={LOW: 20.0}), whole)
    assert system.job_outcomes().start.tolist() == [0.0, 41.0, 21.0]


@pytest.mark.parametrize("whole", [True, False])
def test_the_fewest_and_smallest_of_the_least_rank(whole: bool) -> None:
    """A job of one node goes, not that of two; a high one stays, though it is younger."""
    jobs = [job(0, 2, 100, LOW), job(1, 1, 100, LOW), job(2, 1, 100, HIGH), job(10, 1, 20, URGENT)]
    system = system_of(jobs, FOUR, "easy", rules(), whole)
    assert system.job_outcomes().start.tolist() == [0.0, 30.0, 2.0, 10.0]


@pytest.mark.parametrize("whole", [True, False])
def test_a_job_that_one_is_enough_for_stops_one(whole: bool) -> None:
    """The small jobs are thought gone first; three nodes need the large one, which is enough."""
    jobs = [job(0, 1, 100, LOW), job(1, 3, 100, LOW), job(10, 3, 20, HIGH)]
    system = system_of(jobs, FOUR, "easy", rules(), whole)
    outcomes = system.job_outcomes()
    assert outcomes.preempted.tolist() == [0, 1, 0]


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("wall", "loop", "start"), [(30.0, "easy", 10.0), (60.0, "easy", 60.0), (30.0, "fcfs", 60.0)]
)
def test_a_job_that_may_not_be_preempted_is_not_put_off(
    loop: str, wall: float, start: float, whole: bool
) -> None:
    """A normal job has 4 nodes from 50 on. EASY lets a high one go ahead that ends by then."""
    jobs = [job(0, 2, 50, LOW), job(0, 2, 40, LOW), job(5, 4, 10, NORMAL), job(10, 1, wall, HIGH)]
    system = system_of(jobs, FOUR, loop, rules(), whole)
    assert system.job_outcomes().start[2] == pytest.approx(50.0, abs=40.0)
    assert system.job_outcomes().start[3] == start


@pytest.mark.parametrize("whole", [True, False])
def test_a_job_does_not_wait_for_one_that_it_may_preempt(whole: bool) -> None:
    """Two nodes are idle, kept for the wide low job: the high one takes them and stops nobody."""
    jobs = [job(0, 2, 50, LOW), job(5, 4, 10, LOW), job(10, 2, 100, HIGH)]
    system = system_of(jobs, FOUR, "easy", rules(), whole)
    outcomes = system.job_outcomes()
    assert outcomes.start.tolist() == [0.0, 110.0, 10.0]
    assert not outcomes.preempted.any()


def test_a_job_takes_the_place_of_those_on_its_nodes_only() -> None:
    """On shared nodes one node has room without the job of one core there; that of two stays."""
    capacity = [(4, 1), (4, 0)]
    jobs = [job(0, 1, 100, LOW, (3, 1)), job(1, 1, 100, LOW, (4, 0)), job(10, 1, 20, HIGH, (2, 1))]
    system = system_of(jobs, capacity, "easy", rules())
    outcomes = system.job_outcomes()
    assert outcomes.start.tolist() == [30.0, 1.0, 10.0]
    # of a node's 4 cores it had 3 for 10 s
    assert outcomes.lost.tolist() == [7.5, 0.0, 0.0]


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(30.0, 60.0, [70.0, 10.0]), (80.0, 5.0, [15.0, 10.0]), (30.0, 95.0, [0.0, 110.0])],
)
def test_a_job_that_preempts_leaves_a_plan_its_node(
    low: float, high: float, expected: list[float], whole: bool
) -> None:
    """The node is planned from 100 to 110. A high job that comes at 10 takes it from a low one."""
    # That has the node again when the high one has ended, if it is done by 100 then. A high job of
    # 95 s would run into the plan: it preempts nobody and waits until 110.
    jobs = [job(0, 1, 10, NORMAL, (4,)), job(0, 1, low, LOW, (4,)), job(10, 1, high, HIGH, (4,))]
    system = system_of(jobs, [(4,)], "easy", rules(), whole, planned_at=100.0)
    assert system.job_outcomes().start.tolist() == [100.0, *expected]


@st.composite
def workloads(draw: st.DrawFn, resources: int, most: int) -> list[Job]:
    """Return some jobs of all kinds for three nodes of `most` of each resource."""
    jobs, now = [], 0.0
    for _ in range(draw(st.integers(2, 12))):
        now += draw(st.sampled_from([0.0, 0.0, 1.0, 3.0, 10.0]))
        run = float(draw(st.integers(1, 20)))
        demand = tuple(draw(st.integers(0, most)) for _ in range(resources - 1))
        jobs.append(
            Job(
                now,
                draw(st.integers(1, 3)),
                (draw(st.integers(1, most)), *demand),
                run + draw(st.sampled_from([0.0, 0.0, 5.0])),
                run,
                draw(st.sampled_from([LOW, LOW, NORMAL, HIGH, URGENT])),
            )
        )
    return jobs


@st.composite
def any_rules(draw: st.DrawFn) -> Rules:
    """Return rules that differ in what becomes of low and high jobs."""
    return rules(
        cancels=draw(st.sampled_from([set(), {LOW}, {HIGH}])),
        exempt=draw(st.sampled_from([{}, {LOW: 4.0}, {LOW: 3.0, HIGH: 7.0}])),
    )


def check(jobs: list[Job], capacity: list[tuple[int, ...]], given: Rules, runs: list[Run]) -> None:
    """Check what holds whatever the order is."""
    for time in {run.start for run in runs}:
        for node, amounts in enumerate(capacity):
            there = [run.job for run in runs if run.start <= time < run.end and node in run.nodes]
            for resource, has in enumerate(amounts):
                assert sum(jobs[job].demand[resource] for job in there) <= has
    for job, (start, end, _, how) in last_runs(runs).items():
        assert how != "requeued"
        if how == "ended":
            assert end - start == min(jobs[job].run, jobs[job].wall)
    may_go = set().union(*given.may.values())
    for run in runs:
        if run.how != "ended":
            assert jobs[run.job].kind in may_go
            exempt = given.exempt.get(jobs[run.job].kind, 0.0)
            assert run.end == run.start or run.end - run.start >= exempt
        if run.how == "cancelled":
            assert jobs[run.job].kind in given.cancels


@pytest.mark.parametrize("loop", ["easy", "fcfs"])
@settings(max_examples=150, deadline=None)
@given(jobs=workloads(resources=1, most=1), given_rules=any_rules())
def test_whole_nodes_as_the_plain_way(loop: str, jobs: list[Job], given_rules: Rules) -> None:
    """On nodes of one unit each, by both ways to keep them, and the rules of every run hold."""
    capacity = [(1,)] * 3
    runs = Plain(jobs, capacity, loop, given_rules).run()
    check(jobs, capacity, given_rules, runs)
    whole = system_of(jobs, capacity, loop, given_rules, whole=True)
    assert found(whole) == last_runs(runs)
    lost = [0.0] * len(jobs)
    times = [0] * len(jobs)
    for run in runs:
        if run.how != "ended" and run.end > run.start:
            lost[run.job] += (run.end - run.start) * len(run.nodes)
            times[run.job] += 1
    outcomes = whole.job_outcomes()
    assert outcomes.preempted.tolist() == times
    assert outcomes.lost.tolist() == lost
    assert found(system_of(jobs, capacity, loop, given_rules)) == last_runs(runs)


WOULD_PREEMPT_NOBODY = [
    Job(0.0, 1, (1, 0), 4.0, 4.0, NORMAL),
    Job(0.0, 2, (3, 3), 1.0, 1.0, NORMAL),
    Job(3.0, 1, (1, 0), 2.0, 2.0, HIGH),
]
"""At 3 the last one could have a node that the second cannot use, but it is not its first."""


@pytest.mark.parametrize("loop", ["easy", "fcfs"])
@settings(max_examples=150, deadline=None)
@given(jobs=workloads(resources=2, most=3), given_rules=any_rules())
@example(jobs=WOULD_PREEMPT_NOBODY, given_rules=rules())
def test_shared_nodes_as_the_plain_way(loop: str, jobs: list[Job], given_rules: Rules) -> None:
    """On nodes that differ in what they have; jobs that fit nowhere are left out."""
    capacity = [(3, 3), (3, 3), (3, 2)]
    jobs = [
        job
        for job in jobs
        if sum(all(a <= b for a, b in zip(job.demand, node, strict=True)) for node in capacity)
        >= job.nodes
    ]
    if not jobs:
        return
    runs = Plain(jobs, capacity, loop, given_rules).run()
    check(jobs, capacity, given_rules, runs)
    assert found(system_of(jobs, capacity, loop, given_rules)) == last_runs(runs)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("loop", ["easy", "fcfs"])
@settings(max_examples=60, deadline=None)
@given(jobs=workloads(resources=1, most=1))
def test_without_jobs_that_preempt_nothing_changes(loop: str, whole: bool, jobs: list[Job]) -> None:
    """Low and normal jobs alone run as if there were no preemption."""
    for job in jobs:
        job.kind = min(job.kind, NORMAL)
    capacity = [(1,)] * 3
    without = found(system_of(jobs, capacity, loop, None, whole))
    assert found(system_of(jobs, capacity, loop, rules(), whole)) == without


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("policy", ["mcdf", "portfolio"])
@settings(max_examples=40, deadline=None)
@given(jobs=workloads(resources=1, most=3), given_rules=any_rules(), seed=st.integers(0, 99))
def test_promised_jobs_keep_their_plan(
    policy: str, whole: bool, jobs: list[Job], given_rules: Rules, seed: int
) -> None:
    """Every promise is kept and no promised job is stopped; all others end or are cancelled."""
    n = len(jobs)
    slack = np.random.default_rng(seed).integers(0, 60, n)
    submit, wall = (np.array([getattr(job, name) for job in jobs]) for name in ("submit", "wall"))
    deadline = np.where(slack < 40, submit + wall + slack, np.inf)
    demand = {} if whole else {"demand": np.array([job.demand for job in jobs], np.int64)}
    table = Jobs.build(
        n,
        names={} if whole else {"demand": ("cpu",)},
        id=np.arange(n),
        submit=submit,
        wall_time=wall,
        size=np.array([job.nodes for job in jobs], np.int32),
        deadline=deadline,
        **demand,
    )
    nodes = Nodes.build(3, names={"capacity": ("cpu",)}, capacity=[[3]] * 3)
    kind = np.array([job.kind for job in jobs], np.int64)
    work = workload_of(
        table,
        np.array([job.run for job in jobs]),
        Cluster.uniform(3) if whole else Cluster(nodes),
        preemption=as_arrays(given_rules, kind),
    )
    run = replay(work, policy, presets()[policy])
    found = run.results
    promised = np.isfinite(found.promise)
    assert (found.end[promised] <= found.promise[promised] + 1e-6).all()
    assert not found.preempted[promised].any()
    rest = (found.fate == FinalState.UNFINISHED).nonzero()[0]
    assert {jobs[row].kind for row in rest.tolist()} <= given_rules.cancels
    assert (found.preempted[rest] > 0).all()
    offsets, rows = run.node_rows
    runs = [
        Run(
            job,
            found.start[job],
            found.end[job],
            rows[offsets[job] : offsets[job + 1]].tolist(),
            "",
        )
        for job in np.flatnonzero(np.isfinite(found.start)).tolist()
    ]
    for one in runs:
        for node in one.nodes:
            there = [
                run.job for run in runs if node in run.nodes and run.start <= one.start < run.end
            ]
            assert sum(3 if whole else jobs[job].demand[0] for job in there) <= 3
