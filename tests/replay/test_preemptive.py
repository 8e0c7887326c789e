"""The pre-emptive machine and the recurring work of exclusive nodes, driven and replayed."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workloads import workload_of

from rtsched.core.chain import Chain
from rtsched.core.config import convert
from rtsched.errors import ConfigError, ShapeError
from rtsched.model.actions import Admit, Cancel, Hold, Release, Reserve, SetPriority
from rtsched.model.cluster import NodeState
from rtsched.model.jobs import Edges, Jobs, Periodic, occurrences
from rtsched.model.schedule import Schedule
from rtsched.model.state import EventKind
from rtsched.replay.engine import Replay, replay
from rtsched.replay.policies import load_site, presets
from rtsched.replay.reservations import periodic_work
from rtsched.replay.results import Workload
from rtsched.replay.settings import WorkloadOptions
from rtsched.simulator.interface import DecisionPoint, NodeEvent, StopConditions
from rtsched.simulator.machines import simulate
from rtsched.simulator.preemptive import PreemptiveNodes
from rtsched.simulator.recurring import RecurringNodes, called, check_apart, without_gap
from rtsched.simulator.settings import ExclusiveSettings, PreemptiveSettings, SlicedSettings
from rtsched.testing import make_cluster, make_jobs

PAIR = Periodic.build(
    2, node=[0, 0], exec_time=[2.0, 3.0], period=[5.0, 10.0], relative_deadline=[5.0, 10.0]
)


def workload(jobs: Jobs, periodic: Periodic, nodes: int, **columns: Any) -> Workload:
    """Return jobs that run as long as they ask for, on equal nodes unless columns say else."""
    run_time = columns.pop("run_time", jobs.wall_time)
    edges = columns.pop("edges", Edges.build(0))
    return workload_of(
        jobs, run_time, make_cluster(nodes, **columns), edges=edges, periodic=periodic
    )


def run_to_end(system: Any) -> DecisionPoint:
    """Let the system run without answering anything."""
    while not (point := system.advance()).done:
        pass
    return point


def test_background_jobs_take_what_is_left() -> None:
    """Beside (2, 5) and (3, 10) slots 7-9, 17-19, ... are free; jobs take them in turn."""
    jobs = make_jobs(3, submit=[0.0, 0.0, 5.0], wall_time=[4.0, 3.0, 2.0])
    system = PreemptiveNodes(
        jobs, jobs.wall_time, make_cluster(1), periodic=PAIR, record_events=True
    )
    run_to_end(system)
    outcomes = system.job_outcomes()
    assert outcomes.start.tolist() == [7.0, 18.0, 28.0]
    assert outcomes.end.tolist() == [18.0, 28.0, 30.0]
    told = system.events()
    steps = zip(
        told.rows.time.tolist(), told.rows.kind.tolist(), told.jobs.id.tolist(), strict=True
    )
    assert [(t, EventKind(k).name) for t, k, job in steps if job == 0] == [
        (0.0, "ARRIVED"),
        (7.0, "STARTED"),
        (10.0, "SUSPENDED"),
        (17.0, "RESUMED"),
        (18.0, "ENDED"),
    ]
    assert system.missed == 0


def test_a_planned_task_ends_at_its_planned_end() -> None:
    """4 slots reserved at 0 with the worked deadline 11 end at 11; a background job until 18."""
    jobs = make_jobs(2, submit=0.0, wall_time=[4.0, 1.0])
    system = PreemptiveNodes(
        jobs, jobs.wall_time, make_cluster(1), periodic=PAIR, stop_at=StopConditions(arrivals=True)
    )
    point = system.advance()
    assert point.arrivals.tolist() == [0, 1]
    plan = Schedule.build([0], [0.0], [11.0], np.array([0, 1]), np.zeros(1, np.int32))
    system.apply([Admit(np.array([0]), np.array([20.0])), Reserve(np.array([0]), plan)])
    seen = system.snapshot()
    assert seen.plan.entries.job.tolist() == [0]
    assert seen.promises.deadline.tolist() == [20.0]
    run_to_end(system)
    assert system.job_outcomes().end.tolist() == [11.0, 19.0]


def test_snapshot_says_what_periodic_work_still_needs() -> None:
    """At 3 the first instance of (2, 5) is done and 2 slots of (3, 10) are left."""
    jobs = make_jobs(2, submit=[0.0, 3.0], wall_time=1.0)
    system = PreemptiveNodes(
        jobs, jobs.wall_time, make_cluster(1), periodic=PAIR, stop_at=StopConditions(arrivals=True)
    )
    system.advance()
    system.advance()
    assert system.snapshot().periodic.left.tolist() == [0.0, 2.0]


def test_actions_that_it_takes() -> None:
    """Jobs can be held, released and cancelled; priorities are not for this machine."""
    jobs = make_jobs(3, submit=0.0, wall_time=2.0)
    system = PreemptiveNodes(
        jobs, jobs.wall_time, make_cluster(1), stop_at=StopConditions(arrivals=True)
    )
    system.advance()
    outcomes = system.apply(
        [
            Hold(np.array([0]), np.array([5.0])),
            Hold(np.array([1]), np.array([np.inf])),
            Release(np.array([1])),
            Cancel(np.array([2]), ("",)),
            SetPriority(np.array([0]), np.zeros(1)),
        ]
    )
    assert [outcome.value for outcome in outcomes] == ["done"] * 4 + ["unsupported"]
    assert system.advance().arrivals.tolist() == [0]
    run_to_end(system)
    assert system.job_outcomes().end.tolist()[:2] == [7.0, 2.0]
    assert system.job_outcomes().fate.tolist() == [0, 0, 2]


@pytest.mark.parametrize("policy", ["spare-rf-edf", "spare-uf-edf"])
@given(st.integers(0, 10_000))
@settings(max_examples=12, deadline=None)
def test_nothing_is_late_under_edf(policy: str, seed: int) -> None:
    """Admitted graphs end at their reserved finish, by their deadline; no instance is late."""
    rng = np.random.default_rng(seed)
    n = 24
    submit = np.sort(rng.integers(0, 80, n)).astype(np.float64)
    graph = np.arange(n) // 3
    submit = submit[graph * 3]
    edges = [(3 * g, 3 * g + k) for g in range(n // 3) for k in (1, 2) if rng.random() < 0.7]
    wall = rng.integers(1, 6, n).astype(np.float64)
    due = submit + rng.integers(8, 50, n // 3)[graph]
    due[rng.random(n) < 0.1] = np.inf
    jobs = make_jobs(n, submit=submit, wall_time=wall, deadline=due, dag=graph)
    periodic = Periodic.build(
        3,
        node=[0, 0, 1],
        exec_time=[1.0, 2.0, 2.0],
        period=[3.0, 8.0, 4.0],
        relative_deadline=[3.0, 8.0, 4.0],
    )
    table = Edges.build(
        len(edges),
        before=[a for a, _ in edges],
        after=[b for _, b in edges],
        message_time=rng.integers(0, 3, len(edges)).astype(np.float64),
    )
    work = workload(jobs, periodic, 3, speed=[1.0, 1.0, 0.5], edges=table)
    chosen = presets()[policy]
    run = Replay("spare", work, Chain.load(chosen.plugin, chosen.planner), chosen)
    ends: dict[int, float] = {}
    apply = run.system.apply

    def note(actions: Any) -> Any:
        for action in actions:
            if isinstance(action, Reserve):
                entries = action.plan.entries
                ends.update(zip(entries.job.tolist(), entries.end.tolist(), strict=True))
        return apply(actions)

    run.system.apply = note
    run.run()
    results = run.outcome(0.0).results
    promised = np.isfinite(results.promise)
    assert isinstance(run.system, PreemptiveNodes)
    assert run.system.missed == 0
    assert (results.end[promised] <= results.promise[promised]).all()
    assert ends == dict(
        zip(jobs.id[promised].tolist(), results.end[promised].tolist(), strict=True)
    )
    assert not run.chain.hook_metrics["admit"]["spare"].errors


def test_work_that_cannot_be_done_in_time_is_refused() -> None:
    """More than a whole node, or a deadline that EDF misses: one sentence before the run."""
    jobs = make_jobs(1)
    for cost, due in (([3.0, 3.0], [5.0, 5.0]), ([2.0, 2.0], [2.0, 3.0])):
        much = Periodic.build(
            2, node=[0, 0], exec_time=cost, period=[5.0, 5.0], relative_deadline=due
        )
        with pytest.raises(ConfigError, match="node 0 cannot do its periodic work in time"):
            PreemptiveNodes(jobs, jobs.wall_time, make_cluster(1), periodic=much)


def test_occurrences_that_overlap_at_any_time_are_refused() -> None:
    """Periods 4 and 6 meet in every even phase: 1 s each fits if the phases are odd."""

    def pair(cost: float, phase: float) -> Periodic:
        return Periodic.build(
            2, node=[0, 0], exec_time=[cost, cost], period=[4.0, 6.0], phase=[0.0, phase]
        )

    nodes = make_cluster(1)
    check_apart(pair(1.0, 3.0), nodes)
    for cost, phase in ((1.0, 2.0), (1.5, 3.0)):
        with pytest.raises(ConfigError, match="on node 0 occurrences"):
            check_apart(pair(cost, phase), nodes)


@given(st.floats(-50.0, 50.0), st.floats(0.0, 60.0))
def test_occurrences_are_those_that_touch_the_interval(begin: float, length: float) -> None:
    """Listed one by one: release at 3 + 7 k for k >= 0, 2 s each."""
    one = Periodic.build(1, node=[0], exec_time=[2.0], period=[7.0], phase=[3.0])
    _, start, end = occurrences(one, begin, begin + length)
    every = [3.0 + 7.0 * k for k in range(20)]
    expected = [s for s in every if s < begin + length and s + 2.0 > begin]
    assert start.tolist() == expected
    assert (end - start == 2.0).all()


def never_overlap(system: RecurringNodes, periodic: Periodic, jobs: Jobs) -> None:
    """Check that no job of a finished run stood in the way of an occurrence."""
    outcomes = system.job_outcomes()
    offsets, nodes = system.node_rows()
    for row in range(len(jobs)):
        if np.isnan(outcomes.start[row]):
            continue
        began, ended = float(outcomes.start[row]), float(outcomes.end[row])
        at, start, end = occurrences(periodic, began, ended)
        mine = np.isin(periodic.node[at], nodes[offsets[row] : offsets[row + 1]])
        assert not (mine & (start < outcomes.end[row]) & (end > outcomes.start[row])).any()


@given(st.integers(0, 10_000), st.sampled_from(["fcfs", "easy", "conservative"]))
@settings(max_examples=30, deadline=None)
def test_occurrences_keep_their_time_on_exclusive_nodes(seed: int, loop: str) -> None:
    """Whatever is queued, no job runs on a node while its periodic work does."""
    rng = np.random.default_rng(seed)
    n = 30
    jobs = make_jobs(
        n,
        submit=np.sort(rng.integers(0, 300, n)).astype(np.float64),
        wall_time=rng.integers(1, 12, n).astype(np.float64),
        size=rng.integers(1, 5, n),
    )
    periodic = Periodic.build(
        3,
        node=[0, 1, 1],
        exec_time=[5.0, 3.0, 3.0],
        period=[30.0, 20.0, 40.0],
        phase=[0.0, 2.0, 7.0],
    )
    run_time = np.ceil(jobs.wall_time * rng.random(n))
    system = simulate(
        jobs,
        run_time,
        make_cluster(4),
        settings=ExclusiveSettings(loop=loop),
        periodic=periodic,
        record_nodes=True,
    )
    assert isinstance(system, RecurringNodes)
    run_to_end(system)
    assert (system.job_outcomes().fate == 0).all()
    never_overlap(system, periodic, jobs)


@pytest.mark.parametrize("policy", ["spare-rf", "spare-uf", "mcdf", "edf-mn", "portfolio"])
@given(st.integers(0, 10_000))
@settings(max_examples=12, deadline=None)
def test_promises_are_kept_between_occurrences(policy: str, seed: int) -> None:
    """Replayed with early ends, every promised job ends in time beside the periodic work."""
    rng = np.random.default_rng(seed)
    n = 30
    submit = np.sort(rng.integers(0, 200, n)).astype(np.float64)
    wall = rng.integers(1, 20, n).astype(np.float64)
    due = np.where(rng.random(n) < 0.8, submit + wall * rng.integers(1, 6, n), np.inf)
    jobs = make_jobs(n, submit=submit, wall_time=wall, size=rng.integers(1, 4, n), deadline=due)
    periodic = Periodic.build(
        2, node=[0, 2], exec_time=[5.0, 3.0], period=[30.0, 20.0], phase=[0.0, 2.0]
    )
    work = workload(jobs, periodic, 4, run_time=np.ceil(wall * rng.random(n)))
    chosen = presets()[policy]
    run = Replay(policy, work, Chain.load(chosen.plugin, chosen.planner), chosen)
    run.run()
    results = run.outcome(0.0).results
    promised = np.isfinite(results.promise)
    assert (results.end[promised] <= results.promise[promised]).all()
    assert promised.any()
    assert not run.chain.hook_metrics["admit"][str(chosen.planner)].errors
    assert isinstance(run.system, RecurringNodes)
    never_overlap(run.system, periodic, jobs)


@pytest.mark.parametrize("loop", ["fcfs", "easy", "conservative"])
def test_a_job_that_no_gap_holds_is_turned_away(loop: str) -> None:
    """A node is free for 8 s at most: a job of 9 s does not wait for it, nor hold up others."""
    jobs = make_jobs(3, submit=0.0, wall_time=[9.0, 8.0, 9.0], size=[2, 1, 1], deadline=np.inf)
    periodic = Periodic.build(1, node=[0], exec_time=[2.0], period=[10.0])
    chosen = msgspec.structs.replace(presets()["easy"], system=ExclusiveSettings(loop=loop))
    run = replay(workload(jobs, periodic, 2), "easy", chosen)
    assert run.results.fate.tolist() == [1, 0, 0]
    assert run.results.names("reason")[run.results.reason[0]] == "periodic.no-gap"
    assert run.results.reason.tolist()[1:] == [-1, -1]
    (notes,) = run.decisions
    assert notes["numbers"] == {"nodes": 2.0, "seconds": 9.0, "fits": 1.0}
    assert notes["verdict"] == "reject"


def test_gaps_before_the_first_occurrence_and_on_fast_nodes_count() -> None:
    """A job is turned away only if it would fit nowhere ever."""
    jobs = make_jobs(1, submit=0.0, wall_time=12.0)
    late = Periodic.build(1, node=[0], exec_time=[2.0], period=[10.0], phase=[12.0])
    early = Periodic.build(1, node=[0], exec_time=[2.0], period=[10.0])
    assert not without_gap(jobs, late, make_cluster(1))
    assert not without_gap(jobs, early, make_cluster(1, speed=1.5))
    assert without_gap(jobs, early, make_cluster(1, speed=1.4))


@pytest.mark.parametrize(
    "policy", ["easy", "conservative", "negotiator", "ste", "psts", "spare-uf"]
)
@given(st.integers(0, 10_000))
@settings(max_examples=5, deadline=None)
def test_no_job_is_lost_silently(policy: str, seed: int) -> None:
    """Best-effort jobs beside periodic work end without overlap, or the results say why not."""
    rng = np.random.default_rng(seed)
    n = 40
    wall = rng.integers(1, 26, n).astype(np.float64)
    submit = np.sort(rng.integers(0, 300, n)).astype(np.float64)
    jobs = make_jobs(n, submit=submit, wall_time=wall, size=rng.integers(1, 5, n))
    periodic = Periodic.build(
        3,
        node=[0, 1, 1],
        exec_time=[5.0, 3.0, 3.0],
        period=[30.0, 20.0, 40.0],
        phase=[300.0, 2.0, 7.0],
    )
    work = workload(
        jobs, periodic, 4, run_time=np.ceil(wall * rng.random(n)), speed=[1.0, 1.0, 0.5, 2.0]
    )
    chosen = presets()[policy]
    run = Replay(policy, work, Chain.load(chosen.plugin, chosen.planner), chosen)
    run.run()
    results = run.outcome(0.0).results
    assert isinstance(run.system, RecurringNodes)
    never_overlap(run.system, periodic, jobs)
    assert (np.isfinite(results.end) == (results.fate == 0)).all()
    assert ((results.reason >= 0) == (results.fate != 0)).all()


def test_a_job_whose_nodes_are_never_free_together_is_given_up() -> None:
    """Each node is free for 6 of 10 s, both for 2 s at most: the run ends, and says of whom."""
    jobs = make_jobs(2, submit=0.0, wall_time=[6.0, 5.0], size=[2, 1])
    periodic = Periodic.build(
        2, node=[0, 1], exec_time=[4.0, 4.0], period=[10.0, 10.0], phase=[0.0, 5.0]
    )
    run = replay(workload(jobs, periodic, 2), "easy", presets()["easy"])
    assert run.results.fate.tolist() == [2, 0]
    assert run.results.names("reason")[run.results.reason[0]] == "periodic.starved"
    (notes,) = run.decisions
    assert (notes["job"], notes["verdict"]) == (0, "defer")


def test_refusals_name_the_node() -> None:
    """An admin finds the computer; of several processors on it also the row."""
    nodes = make_cluster(3, name=[0, 1, 1], names={"name": ["node01", "node02"]})
    assert [called(nodes, row) for row in range(3)] == [
        "node01",
        "node02 (row 1)",
        "node02 (row 2)",
    ]
    assert called(make_cluster(1), 0) == "0"


def test_jobs_that_a_preemptive_node_cannot_run_are_named() -> None:
    """A job of two nodes never starts there, and the results say why."""
    jobs = make_jobs(2, submit=0.0, wall_time=4.0, size=[2, 1])
    alone = msgspec.structs.replace(presets()["easy"], system=PreemptiveSettings())
    run = replay(workload(jobs, PAIR, 2), "edf", alone)
    assert run.results.fate.tolist() == [2, 0]
    assert run.results.names("reason")[run.results.reason[0]] == "preemptive.no-node"


def test_other_machines_have_no_place_for_periodic_work() -> None:
    """They say so instead of leaving it out."""
    jobs = make_jobs(1)
    with pytest.raises(ConfigError, match="machine 'sliced' does not support periodic work"):
        simulate(
            jobs, jobs.wall_time, make_cluster(1), settings=SlicedSettings("fcfs"), periodic=PAIR
        )
    down = [NodeEvent(0.0, 0, NodeState.DOWN)]
    with pytest.raises(ShapeError, match="cannot change their state"):
        PreemptiveNodes(jobs, jobs.wall_time, make_cluster(1), node_events=down)


SITE = """
[[workload.periodic]]
name = "nightly backup"
nodes = ["0", "2"]
first = 2026-01-01T02:00:00Z
period = 86400
duration = 3600
[[workload.periodic]]
name = "checks"
nodes = 2
period = 600
duration = 60
deadline = 300
"""


def test_periodic_work_stands_in_a_site_toml(tmp_path: Path) -> None:
    """Names give these nodes, counts the least busy ones; times may be written as times."""
    path = tmp_path / "site.toml"
    path.write_text(SITE)
    tables = load_site(path).workload.periodic
    work, notes = periodic_work(tables, make_cluster(4))
    assert work.node.tolist() == [0, 2, 1, 3]
    assert work.phase.tolist() == [1767232800.0, 1767232800.0, 0.0, 0.0]
    assert work.relative_deadline.tolist() == [86400.0, 86400.0, 300.0, 300.0]
    assert notes[1] == "checks takes 60 s of every 600 s on 2 nodes."


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"duration": 20.0}, "20 s of work do not fit into a period of 10 s"),
        ({"deadline": 1.0}, "1 s are less than the 2 s of work"),
        ({"deadline": 11.0}, "11 s are more than the period"),
        ({"nodes": 0}, "0 is not above 0"),
        ({"nodes": []}, "lists no node"),
        ({"first": float("nan")}, "must be finite"),
        ({"nodes": 3}, "3 asked for, 2 take jobs"),
        ({"nodes": ["gpu*"]}, "the machine has no node 'gpu*'"),
    ],
)
def test_bad_periodic_work_is_refused(table: dict[str, Any], problem: str) -> None:
    """Each mistake is one sentence with its path, before the run."""
    raw = {"periodic": [{"name": "x", "period": 10.0, "duration": 2.0, **table}]}
    problems: list[str] = []
    options = convert(raw, WorkloadOptions, "workload", problems)
    assert options is not None

    def read() -> None:
        options.rules()
        periodic_work(options.periodic, make_cluster(2))

    with pytest.raises(ConfigError, match=r"workload\.periodic") as caught:
        read()
    assert problem in str(caught.value)


def test_without_periodic_work_the_exclusive_machine_is_as_it_was() -> None:
    """The same class runs, so nothing can differ."""
    jobs = make_jobs(1)
    system = simulate(
        jobs,
        jobs.wall_time,
        make_cluster(1),
        settings=ExclusiveSettings(),
        periodic=Periodic.build(0),
    )
    assert not isinstance(system, RecurringNodes)
    assert replay(workload(jobs, Periodic.build(0), 1), "easy", presets()["easy"]).results.end[0]
