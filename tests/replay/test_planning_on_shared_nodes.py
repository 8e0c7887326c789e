"""Promises on nodes that jobs share: planned by cores, memory and GPUs, and kept in the replay."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_reference import Job
from test_shared_nodes import as_table

from rtsched.core.chain import Chain, Member
from rtsched.core.decision import admission_actions, judge
from rtsched.core.plan_check import plan_fault
from rtsched.model.actions import Admit, Reserve
from rtsched.model.cluster import Cluster, Nodes, NodeState
from rtsched.model.jobs import Jobs, Kind
from rtsched.model.schedule import Promises, Schedule
from rtsched.model.snapshot import Snapshot
from rtsched.model.table import offsets_of
from rtsched.model.verdicts import Verdict, Verdicts
from rtsched.simulator.exclusive import ExclusiveNodes
from rtsched.simulator.interface import JobOutcomes, NodeEvent, StopConditions
from rtsched.simulator.settings import ExclusiveSettings
from rtsched.simulator.system import System
from rtsched_plugins.mcdf import Mcdf
from rtsched_plugins.portfolio import Portfolio
from rtsched_plugins.resource_planning import scarcest_share

NOW = 1_795_000_000.0
RESOURCES = ("cpu", "mem", "gres/gpu")
MATLAB = "license/matlab"
ORDERS = ("cost-derivative", "arrival", "deadline")


def cluster(*capacity: tuple[int, ...], **columns: Any) -> Cluster:
    """Return nodes with these amounts of cores, memory and GPUs."""
    table = np.array(capacity, np.int64)
    nodes = Nodes.build(len(table), names={"capacity": RESOURCES}, capacity=table, **columns)
    return Cluster(nodes)


def licensed(licenses: int, *capacity: tuple[int, ...]) -> Cluster:
    """Return such a cluster with so many licences."""
    return replace(cluster(*capacity), licenses={MATLAB: licenses})


def asking(*rows: tuple[float, int, float, tuple[int, ...]], **columns: Any) -> Jobs:
    """Return rigid jobs from (relative deadline, nodes, wall time, demand per node)."""
    deadline, size, wall, demand = zip(*rows, strict=True)
    return Jobs.build(
        len(rows),
        names={"demand": (*RESOURCES, MATLAB)[: len(demand[0])]},
        id=np.arange(len(rows)),
        submit=NOW,
        deadline=NOW + np.array(deadline),
        size=np.array(size, np.int32),
        wall_time=np.array(wall, np.float64),
        demand=np.array(demand, np.int64),
        **columns,
    )


def chain(**settings: Any) -> Chain:
    """Return a chain of the one plug-in, as planner."""
    return Chain([Member("mcdf", Mcdf(Mcdf.Config(**settings)))], "mcdf")


def several(**settings: Any) -> Chain:
    """Return a chain of the planner that tries several orders."""
    return Chain([Member("portfolio", Portfolio(Portfolio.Config(**settings)))], "portfolio")


def verdicts(jobs: Jobs, machine: Cluster, **settings: Any) -> Verdicts:
    """Return what is said of jobs that come to an empty machine."""
    return chain(**settings).admit(jobs, Snapshot(NOW, machine)).verdicts


def test_jobs_share_nodes_as_long_as_there_are_gpus() -> None:
    """Two jobs of two GPUs run side by side on one node of four, the third after them."""
    jobs = asking(*[(200.0, 1, 100.0, (1, 1, 2))] * 3)
    verdicts = judge(Snapshot(NOW, cluster((8, 8, 4))), chain(), jobs).verdicts
    admit, reserve = admission_actions(jobs, verdicts)
    assert isinstance(admit, Admit)
    assert isinstance(reserve, Reserve)
    assert admit.job.tolist() == [0, 1, 2]
    assert (reserve.plan.entries.start - NOW).tolist() == [0, 0, 100]
    assert reserve.plan.nodes.tolist() == [0, 0, 0]


@pytest.mark.parametrize("policy", [chain(), several()])
@pytest.mark.parametrize(("deadline", "admitted"), [(160.0, True), (159.0, False)])
def test_a_job_that_begins_later_is_promised_ahead(
    policy: Chain, deadline: float, admitted: bool
) -> None:
    """Its 100 s begin 60 s from now on a node that is free until then; offered is the first end."""
    job = asking((deadline, 1, 100.0, (1, 1, 2))).replace(begin=NOW + 60)
    found = policy.admit(job, Snapshot(NOW, cluster((8, 8, 4)))).verdicts
    if admitted:
        assert found.plan.entries.start.tolist() == [NOW + 60]
        return
    assert found.code.tolist() == [Verdict.REJECT]
    assert found.offer.tolist() == [NOW + 160]
    assert found.findings[0].text(0) == (
        "deadline too soon: it may have to wait for its begin time, or for other jobs, for 1 min, "
        "and it may need 1 min 40 s; 2 min 39 s are left"
    )


def test_a_job_that_begins_later_keeps_its_start_when_all_are_planned_anew() -> None:
    """Job 1 goes before it; only that keeps both promises, by deadline."""
    jobs = asking((300.0, 1, 100.0, (8, 1, 0)), (120.0, 1, 100.0, (8, 1, 0)))
    jobs = jobs.replace(begin=NOW + np.array([60.0, -np.inf]))
    found = verdicts(jobs, cluster((8, 8, 0)), order="deadline")
    pairs = zip(found.plan.entries.job.tolist(), found.plan.entries.start - NOW, strict=True)
    assert dict(pairs) == {0: 100.0, 1: 0.0}


@pytest.mark.parametrize("order", ORDERS)
def test_a_promise_gives_way_within_its_deadline(order: Any) -> None:
    """What does not fit beside the plan is admitted if all promises can be planned anew."""
    # By cost derivative and by arrival the first job comes first, and the second is late. Then MCDF
    # plans in order of deadline; the baseline by arrival does not.
    jobs = asking((300.0, 1, 200.0, (8, 1, 0)), (100.0, 1, 100.0, (8, 1, 0)))
    found = verdicts(jobs, cluster((8, 8, 0)), order=order)
    assert found.plan is not None
    if order == "arrival":
        assert found.code.tolist() == [Verdict.ADMIT, Verdict.REJECT]
        return
    assert found.code.tolist() == [Verdict.ADMIT, Verdict.ADMIT]
    assert dict(zip(found.plan.entries.job, found.plan.entries.start - NOW, strict=True)) == {
        0: 100.0,
        1: 0.0,
    }


def test_a_rejected_job_reads_a_deadline_that_is_accepted() -> None:
    """The node's memory is taken for 100 s; the job of 50 s is offered 150 s, and admitted then."""
    first = (100.0, 1, 100.0, (1, 7, 0))
    machine = cluster((8, 8, 0))
    found = verdicts(asking(first, (60.0, 1, 50.0, (1, 2, 0))), machine)
    assert found.code.tolist() == [Verdict.ADMIT, Verdict.REJECT]
    assert found.offer[1] == NOW + 150
    assert [each.text(0) for each in found.findings] == [
        "cannot meet this deadline without breaking 1 existing promise; 1 min are left, "
        "0 of 1 node are free"
    ]
    again = verdicts(asking(first, (150.0, 1, 50.0, (1, 2, 0))), machine)
    assert again.code.tolist() == [Verdict.ADMIT, Verdict.ADMIT]


def taking(amounts: tuple[int, ...], *rows: tuple[float, int, float]) -> Jobs:
    """Return rigid jobs of one core per node from (relative deadline, nodes, wall time).

    They take so many licences.
    """
    return asking(*[(*row, (1, 0, 0, n)) for row, n in zip(rows, amounts, strict=True)])


def test_licences_are_shared_by_all_nodes() -> None:
    """Of three, two jobs take two and one, whatever their nodes; the third, of two, waits for both.

    The fourth takes none. Nodes are idle all the time.
    """
    rows = [(500.0, 2, 100.0), (500.0, 1, 150.0), (500.0, 3, 100.0), (500.0, 1, 10.0)]
    jobs = taking((2, 1, 3, 0), *rows)
    machine = licensed(3, *[(8, 8, 0)] * 4)
    plan = verdicts(jobs, machine, order="arrival").plan
    assert (plan.entries.start - NOW).tolist() == [0, 0, 150, 0]
    early = plan.entries.replace(start=plan.entries.start - [0, 0, 51, 0])
    fault = plan_fault(replace(plan, entries=early), jobs, Snapshot(NOW, machine), jobs.deadline)
    assert fault == "takes more licences, or of a limit, than there are"


def test_licences_of_running_jobs_are_counted() -> None:
    """A job that runs for 70 s has two of three; the offer is made with what it leaves."""
    running = taking((2,), (np.inf, 1, 70.0)).with_column("id", np.array([90]))
    held = planned((90, 0.0, 70.0, [0]))
    before = Snapshot(NOW, licensed(3, (8, 8, 0)), running=running, allocations=held)
    found = chain().admit(taking((2,), (100.0, 1, 50.0)), before).verdicts
    assert found.code.tolist() == [Verdict.REJECT]
    assert found.offer.tolist() == [NOW + 120]
    assert chain().admit(taking((1,), (100.0, 1, 50.0)), before).verdicts.plan is not None


@pytest.mark.parametrize("licenses", [0, 3])
def test_more_licences_than_there_are(licenses: int) -> None:
    """That is impossible, as where there are none of that name."""
    machine = licensed(licenses, (8, 8, 0)) if licenses else cluster((8, 8, 0))
    found = verdicts(taking((4,), (100.0, 1, 50.0)), machine)
    assert found.code.tolist() == [Verdict.REJECT]
    assert "needs more nodes than are in service" in found.findings[0].text(0)


@pytest.mark.parametrize(
    ("job", "columns", "text"),
    [
        ((99.0, 1, 10.0, (1, 1, 5)), {}, "needs more nodes than are in service"),
        ((99.0, 3, 10.0, (1, 1, 0)), {}, "needs more nodes than are in service"),
        ((99.0, 1, 10.0, (1, 1, 1)), {"pinned": 1}, "needs more nodes than are in service"),
        ((5.0, 1, 10.0, (1, 1, 0)), {}, "deadline too soon"),
    ],
)
def test_impossible_requests_are_told_so(
    job: tuple[float, int, float, tuple[int, int, int]], columns: dict[str, Any], text: str
) -> None:
    """More GPUs than a node has, more nodes, a node without GPUs, more time than is left."""
    found = verdicts(asking(job, **columns), cluster((8, 8, 4), (8, 8, 0)))
    assert found.code.tolist() == [Verdict.REJECT]
    assert text in found.findings[0].text(0)


@pytest.mark.parametrize("by", ["partition", "node_request", "pinned"])
def test_jobs_keep_to_nodes_in_service_that_they_may_use(by: str) -> None:
    """One node is drained, one is not among those allowed: the third is the job's."""
    state = np.array([NodeState.DRAINED, NodeState.UP, NodeState.UP], np.int8)
    allowed = {"some": np.array([True, False, True])}
    machine = cluster(*[(8, 8, 0)] * 3, state=state)
    machine = replace(machine, partitions=allowed, node_sets=allowed)
    column: Any = {by: 2 if by == "pinned" else ["some"]}
    plan = verdicts(asking((99.0, 1, 10.0, (1, 1, 0)), **column), machine).plan
    assert plan.nodes.tolist() == [2]
    wrong = replace(plan, nodes=np.array([1], np.int32))
    job = asking((99.0, 1, 10.0, (1, 1, 0)), **column)
    fault = plan_fault(wrong, job, Snapshot(NOW, machine), np.array([np.inf]))
    assert fault == "gives job 0 nodes that it cannot use"


def test_moldable_and_divisible_jobs_get_the_fewest_nodes_that_do() -> None:
    """80 s on one node are 40 s on two; a load of 100 units at 1 s each needs three for 40 s."""
    moldable = asking((50.0, 1, 80.0, (4, 1, 0)), kind=Kind.MOLDABLE, size_min=1, size_max=4)
    load = {"kind": Kind.DIVISIBLE, "sigma": 100.0, "cms": 0.0, "cps": 1.0}
    divisible = asking((40.0, 1, np.inf, (8, 1, 0)), **load)
    machine = cluster(*[(8, 8, 0)] * 4)
    for job, nodes, seconds in ((moldable, 2, 40.0), (divisible, 3, 100 / 3)):
        plan = verdicts(job, machine).plan
        assert plan.entries.size.tolist() == [nodes]
        assert plan.entries.end[0] - NOW == pytest.approx(seconds)


@pytest.mark.parametrize(("generosity", "nodes"), [(0.0, 2), (0.3, 3), (0.42, 4)])
def test_portfolio_gives_more_nodes_where_they_cost_little(generosity: float, nodes: int) -> None:
    """80 s on one node; with efficiency 1/2 four take sqrt(2) times the node-seconds of two."""
    # On three they are sqrt(3/2) = 1.22 times as many. Two fit the deadline of 60 s.
    job = asking((60.0, 1, 80.0, (4, 1, 0)), kind=Kind.MOLDABLE, size_min=1, size_max=4)
    shape = {"orders": ("deadline",), "efficiency": 0.5, "generosity": generosity}
    machine = cluster(*[(8, 8, 0)] * 4)
    plan = several(**shape).admit(job, Snapshot(NOW, machine)).verdicts.plan
    assert plan.entries.size.tolist() == [nodes]


def test_on_more_nodes_a_job_may_start_earlier() -> None:
    """On one node it takes 80 s, from 100 s on; on two 40 s, in a gap that ends at 50 s."""
    # From 100 s on the second of the two is not free.
    rows = [(100.0, 2, 50.0, (8, 1, 0)), (300.0, 1, 200.0, (8, 1, 0)), (200.0, 1, 80.0, (8, 1, 0))]
    jobs = asking(*rows, kind=[Kind.RIGID, Kind.RIGID, Kind.MOLDABLE], size_min=1, size_max=2)
    before = Snapshot(
        NOW,
        cluster(*[(8, 8, 0)] * 2),
        queued=jobs.take([0, 1]),
        plan=planned((0, 50.0, 100.0, [0, 1]), (1, 100.0, 300.0, [1])),
        promises=Promises.build(2, job=[0, 1], deadline=jobs.deadline[:2], made_at=NOW),
    )
    plan = several().admit(jobs.take([2]), before).verdicts.plan
    assert plan.entries.job.tolist() == [0, 1, 2]
    assert (plan.entries.start[2] - NOW, plan.entries.end[2] - NOW) == (0.0, 40.0)
    assert plan.nodes_of(2).tolist() == [0, 1]


def test_in_turn_nobody_starts_before_an_earlier_deadline() -> None:
    """The third job may stay beside the first, at 50 s; in turn it waits for the second."""
    rows = [(100.0, 1, 100.0, (6, 1, 0)), (200.0, 1, 50.0, (8, 1, 0)), (300.0, 1, 50.0, (2, 1, 0))]
    machine = cluster((8, 8, 0))
    for order, start in (("deadline", [0, 100, 50]), ("in-turn", [0, 100, 150])):
        policy = several(orders=(order,))
        # The first comes last: all are planned anew.
        jobs = asking(*rows).with_column("submit", NOW - np.array([0.0, 2.0, 1.0]))
        plan = policy.admit(jobs, Snapshot(NOW, machine)).verdicts.plan
        starts = dict(zip(plan.entries.job.tolist(), plan.entries.start - NOW, strict=True))
        assert [starts[k] for k in range(3)] == start


@pytest.mark.parametrize(
    ("deadline", "nodes", "end"), [(400.0, 1, 300.0), (299.0, 2, 200.0), (150.0, 3, 100.0)]
)
def test_an_array_has_whole_nodes(deadline: float, nodes: int, end: float) -> None:
    """Of 11 tasks, four on a node; on fewer nodes in more rounds, and on none where a job runs."""
    tasks = {"kind": Kind.ARRAY, "tasks": 11, "tasks_per_node": 4, "size_min": 1, "size_max": 9}
    array = asking((deadline, 1, 100.0, (8, 4, 0)), exclusive=True, **tasks)
    machine = cluster((4, 8, 0), *[(8, 8, 0)] * 4)
    running = asking((np.inf, 1, 500.0, (1, 1, 0))).with_column("id", np.array([90]))
    held = planned((90, 0.0, 500.0, [1]))
    policy, before = chain(), Snapshot(NOW, machine, running=running, allocations=held)
    plan = policy.admit(array, before).verdicts.plan
    assert plan.nodes.tolist() == [2, 3, 4][:nodes]
    assert (plan.entries.end - NOW).tolist() == [end]
    promises = Promises.build(1, job=[0], deadline=array.deadline, made_at=NOW)
    after = replace(before, queued=array, plan=plan, promises=promises)
    other = asking((900.0, 1, 80.0, (1, 1, 0)), pinned=2).with_column("id", np.array([1]))
    plan = policy.admit(other, after).verdicts.plan
    assert (plan.entries.start - NOW).tolist() == [0.0, end]


def test_an_array_that_is_rejected_could_have_fewer_tasks() -> None:
    """In 199 s one round runs on each of two nodes: eight tasks."""
    tasks = {"kind": Kind.ARRAY, "tasks": 11, "tasks_per_node": 4, "size_min": 1, "size_max": 9}
    array = asking((199.0, 1, 100.0, (8, 4, 0)), exclusive=True, **tasks)
    found = verdicts(array, cluster((8, 8, 0), (8, 8, 0)))
    assert found.code.tolist() == [Verdict.REJECT]
    assert found.offer.tolist() == [NOW + 200]
    texts = [each.text(0) for each in found.findings]
    assert any("8 of its 11 tasks would be accepted" in text for text in texts)


amount = st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 2))
node = st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(0, 2))


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[Job], list[float]]:
    """Draw jobs that come close together, and the deadlines of some of them (inf: none)."""
    jobs, deadlines, time = [], [], 0.0
    for _ in range(draw(st.integers(1, 12))):
        time += draw(st.integers(0, 3))
        wall = draw(st.integers(1, 12))
        alone = draw(st.sampled_from([False, False, False, True]))
        run = float(draw(st.integers(1, 14)))
        taken = draw(st.sampled_from([0, 0, 1, 2, 3]))
        jobs.append(
            Job(time, draw(st.integers(1, 3)), draw(amount), float(wall), run, alone, taken)
        )
        slack = draw(st.sampled_from([0, 2, 5, 20, None]))
        deadlines.append(np.inf if slack is None else time + wall + slack)
    return jobs, deadlines


def asked_in_turn(jobs: list[Job], deadlines: list[float]) -> Jobs:
    """Return a stream of jobs as a table; times are relative to `NOW`."""
    table = as_table(jobs)
    return table.replace(submit=NOW + table.submit, deadline=NOW + np.array(deadlines))


def judged_in_turn(system: System, table: Jobs, policy: Chain) -> JobOutcomes:
    """Run a system to its end, its jobs judged as they come; every promise is kept."""
    while not (point := system.advance()).done:
        arrived = table.take(point.arrivals)
        judgement = judge(system.snapshot(), policy, arrived)
        assert not judgement.planner_error
        system.apply(admission_actions(arrived, judgement.verdicts))
    outcomes = system.job_outcomes()
    promised = np.isfinite(outcomes.promise)
    assert (outcomes.end[promised] <= outcomes.promise[promised] + 1e-5).all()
    return outcomes


def keeps_promises(
    policy: Chain, loop: Any, stream: tuple[list[Job], list[float]], capacity: list[tuple[int, ...]]
) -> None:
    """Have jobs come one after the other, and check that each promise is kept."""
    jobs, deadlines = stream
    table = asked_in_turn(jobs, deadlines)
    system = ExclusiveNodes(
        table,
        np.array([job.run for job in jobs]),
        licensed(2, *capacity),
        ExclusiveSettings(loop=loop),
        stop_at=StopConditions(arrivals=True, early_ends=True),
        record_nodes=True,
    )
    outcomes = judged_in_turn(system, table, policy)
    assert (np.isfinite(outcomes.promise) <= np.isfinite(table.deadline)).all()


@pytest.mark.parametrize("policy", [*(chain(order=each) for each in ORDERS), several()])
@pytest.mark.parametrize("loop", ["fcfs", "easy", "conservative"])
@given(stream=streams(), capacity=st.lists(node, min_size=1, max_size=3))
@settings(max_examples=60)
def test_every_promise_is_kept_beside_best_effort_jobs(
    policy: Chain, loop: Any, stream: tuple[list[Job], list[float]], capacity: list[tuple[int, ...]]
) -> None:
    """Jobs come one after the other; each plan passes the checker and is carried out."""
    keeps_promises(policy, loop, stream, capacity)


@pytest.mark.parametrize(("deadline", "end"), [(30.0, 30.0), (16.0, 35.0)])
def test_a_lost_node_has_its_promises_planned_elsewhere(deadline: float, end: float) -> None:
    """Node 1 dies at 3 s; the job planned there from 5 s on gets node 0 at 20 s, if in time."""
    # Else it is best effort, behind the job that ran there.
    rows = [(20.0, 20.0), (np.inf, 5.0), (deadline, 10.0)]
    jobs = asking(*[(due, 1, wall, (8, 1, 0)) for due, wall in rows])
    jobs = jobs.with_column("submit", NOW + np.array([0.0, 0.0, 1.0]))
    policy = chain(order="arrival")
    system = ExclusiveNodes(
        jobs,
        np.array([20.0, 5.0, 10.0]),
        cluster((8, 8, 0), (8, 8, 0)),
        ExclusiveSettings(loop="easy"),
        stop_at=StopConditions(arrivals=True, nodes=True),
        node_events=(NodeEvent(NOW + 3.0, 1, NodeState.DOWN),),
    )
    while not (point := system.advance()).done:
        arrived = jobs.take(point.arrivals)
        verdicts = judge(system.snapshot(), policy, arrived).verdicts
        system.apply(admission_actions(arrived, verdicts))
    assert system.job_outcomes().end[2] == NOW + end


WAITS = asking((100.0, 1, 50.0, (4, 4, 0)), (100.0, 1, 50.0, (5, 1, 0)))
MACHINE = cluster((8, 8, 0), (8, 8, 0))


def planned(*rows: tuple[int, float, float, list[int]]) -> Schedule:
    """Return a plan from (job, start, end, nodes), relative times."""
    job, start, end, nodes = zip(*rows, strict=True)
    return Schedule.build(
        np.array(job),
        NOW + np.array(start),
        NOW + np.array(end),
        offsets_of([len(each) for each in nodes]),
        np.array([k for each in nodes for k in each], np.int32),
    )


@pytest.mark.parametrize(
    ("plan", "fault"),
    [
        (planned((0, 0.0, 50.0, [0]), (1, 0.0, 50.0, [1])), None),
        (planned((0, 0.0, 50.0, [0]), (1, 50.0, 100.0, [0])), None),
        (planned((0, 0.0, 50.0, [0]), (1, 49.0, 99.0, [0])), "takes more of node 0 than it has"),
        (planned((0, 60.0, 110.0, [0])), "ends job 0 10 s after the deadline it is promised"),
        (planned((0, -1.0, 50.0, [0])), "starts job 0 in the past"),
        (planned((0, 0.0, 49.0, [0])), "gives job 0 less time than it asks for"),
        (planned((0, 0.0, 50.0, [0, 1])), "gives job 0 a number of nodes that it does not ask for"),
    ],
)
def test_the_checker_names_what_is_wrong(plan: Schedule, fault: str | None) -> None:
    """One sentence per kind of fault; a plan that is right has none."""
    promises = Promises.build(1, job=[0], deadline=[NOW + 100.0], made_at=NOW)
    snapshot = Snapshot(NOW, MACHINE, WAITS.take([0]), promises=promises)
    assert plan_fault(plan, WAITS.take([1]), snapshot, np.array([NOW + 100.0])) == fault


def test_the_checker_knows_begin_times() -> None:
    """A job that begins in 20 s does not start before."""
    job = WAITS.take([0]).replace(begin=NOW + 20)
    none, nobody = WAITS.take([]), np.zeros(0)
    snapshot = Snapshot(NOW, MACHINE, job)
    assert plan_fault(planned((0, 20.0, 70.0, [0])), none, snapshot, nobody) is None
    early = planned((0, 19.0, 69.0, [0]))
    assert plan_fault(early, none, snapshot, nobody) == "starts job 0 before it may begin"


def test_the_checker_looks_at_running_jobs_and_at_what_is_new() -> None:
    """A job that runs longer than it asked for is not held against entries that stand."""
    running = asking((np.inf, 1, 50.0, (6, 1, 0))).with_column("id", np.array([9]))
    held = planned((9, -10.0, 40.0, [0]))
    stands = planned((0, 30.0, 80.0, [0]))
    snapshot = Snapshot(NOW, MACHINE, WAITS, running, held, plan=stands)
    none, nobody = WAITS.take([]), np.zeros(0)
    assert plan_fault(stands, none, snapshot, nobody) is None
    moved = planned((0, 31.0, 81.0, [0]))
    assert plan_fault(moved, none, snapshot, nobody) == "takes more of node 0 than it has"
    beside = planned((0, 30.0, 80.0, [0]), (1, 40.0, 90.0, [1]))
    assert plan_fault(beside, none, snapshot, nobody) is None


def test_the_checker_knows_drained_nodes_and_exclusive_jobs() -> None:
    """Nobody starts on a node out of service; nobody joins an exclusive job."""
    drained = replace(MACHINE, nodes=MACHINE.nodes.with_column("state", np.array([1, 0], np.int8)))
    alone = WAITS.with_column("exclusive", np.array([True, False]))
    plan = planned((0, 0.0, 50.0, [0]))
    both = planned((0, 0.0, 50.0, [1]), (1, 0.0, 50.0, [1]))
    light = alone.with_column("demand", np.array([[1, 1, 0], [1, 1, 0]]))
    none, nobody = WAITS.take([]), np.zeros(0)
    assert plan_fault(plan, none, Snapshot(NOW, drained, WAITS), nobody) == (
        "gives job 0 nodes that it cannot use"
    )
    assert plan_fault(both, none, Snapshot(NOW, MACHINE, light), nobody) == (
        "takes more of node 1 than it has"
    )


def test_what_is_large_follows_from_the_scarcest_resource() -> None:
    """Of 16 cores and 4 GPUs, two nodes of (1, 1, 1) take half the GPUs; two of three licences."""
    jobs = taking((0, 2), (99.0, 2, 10.0), (99.0, 1, 10.0))
    jobs = jobs.with_column("demand", np.array([[1, 1, 1, 0], [4, 1, 0, 2]]))
    machine = licensed(3, (8, 8, 4), (8, 8, 0))
    share = scarcest_share(jobs, machine, np.array([2, 1]))
    assert share.tolist() == pytest.approx([1 / 2, 2 / 3])
    alone = jobs.with_column("exclusive", np.array([True, True]))
    assert scarcest_share(alone, machine, np.array([2, 1])).tolist() == pytest.approx([1, 2 / 3])
