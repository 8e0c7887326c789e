"""The time-shared machine, by events and against a plain simulation in time steps."""

from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import plain_sed
import pytest
import run_cases
from case_runners.sed import parallel_workload, replayed
from hypothesis import given, settings
from hypothesis import strategies as st
from workloads import ended

from rtsched.core.chain import Chain, Member
from rtsched.core.config import convert
from rtsched.core.decision import observe, steer
from rtsched.errors import ShapeError
from rtsched.kernels.delays import slowest
from rtsched.model.actions import Admit, Cancel, Hold, Move, Place, Reject, Release, Reserve
from rtsched.model.cluster import NodeState
from rtsched.model.jobs import Kind
from rtsched.model.schedule import Schedule
from rtsched.model.state import EventKind
from rtsched.model.verdicts import Placement
from rtsched.replay.engine import Replay
from rtsched.replay.policies import Policy, presets
from rtsched.simulator.interface import NodeEvent, Outcome, StaticAnswers, StopConditions
from rtsched.simulator.settings import MachineSettings
from rtsched.simulator.time_shared import TimeSharedNodes
from rtsched.testing import make_cluster, make_jobs
from rtsched_plugins.sed import Sed
from rtsched_reproductions.sed_runs import VARIANTS

UP, DOWN = int(NodeState.UP), int(NodeState.DOWN)


def ran(jobs: Any, run_time: list[float], cluster: Any, **options: Any) -> TimeSharedNodes:
    """Return a system that ran to its end without being asked anything."""
    return ended(TimeSharedNodes(jobs, np.array(run_time, np.float64), cluster, **options))


def driven(jobs: Any, run_time: list[float], cluster: Any, **options: Any) -> TimeSharedNodes:
    """Return a system that sed steered to its end, as a replay does it."""
    chain = Chain([Member("sed", Sed(Sed.Config(time_sharing=True)))])
    system = TimeSharedNodes(
        jobs,
        np.array(run_time, np.float64),
        cluster,
        stop_at=StopConditions(passes=True),
        record_events=True,
        **options,
    )
    states: Any = {}
    while not system.advance().done:
        for steered in (True, False):
            snapshot, states = observe(system.snapshot(states), chain, system.events())
            if steered:
                system.apply(steer(snapshot, chain).actions)
    assert not any(use.errors for book in chain.hook_metrics.values() for use in book.values())
    return system


def schedule(job: int, nodes: list[int]) -> Schedule:
    """Return a move of one job."""
    indptr = np.array([0, len(nodes)])
    return Schedule.build([job], [0.0], [0.0], indptr, np.array(nodes, np.int32))


def test_without_a_plugin_jobs_share_the_least_delayed_nodes() -> None:
    """The second goes to the fast node, too (2 = 2), and slows the first; the third to the slow."""
    cluster = make_cluster(2, speed=[2.0, 1.0])
    system = ran(make_jobs(3, submit=[0.0, 10.0, 20.0]), [200.0, 200.0, 200.0], cluster)
    outcomes = system.job_outcomes()
    assert outcomes.start.tolist() == [0.0, 10.0, 20.0]
    assert outcomes.end.tolist() == [10 + 180.0, 10 + 200.0, 20 + 200.0]
    assert outcomes.first_node.tolist() == [0, 0, 1]


def test_only_a_move_lowers_a_recorded_delay() -> None:
    """The third was mapped at delay 2 and keeps it when it is alone: 100 s of work take 200."""
    system = ran(make_jobs(2, submit=[0.0, 20.0]), [100.0, 100.0], make_cluster(1))
    assert system.job_outcomes().end.tolist() == [180.0, 220.0]
    assert system.upgrades.tolist() == [0, 0]


def test_static_sizes_and_node_sets_hold() -> None:
    """A moldable job gets its size, a rigid one keeps its own; both stay on their nodes."""
    jobs = make_jobs(2, kind=[Kind.MOLDABLE, Kind.RIGID], size=[4, 1], size_max=[4, 1])
    placement = Placement(
        np.array([2, 2], np.int32), np.array([0, 0], np.int32), (np.array([3, 1], np.int32),)
    )
    static = StaticAnswers(placement=placement)
    system = ran(jobs, [100.0, 30.0], make_cluster(4), static=static, record_nodes=True)
    offsets, nodes = system.node_rows()
    assert (offsets.tolist(), sorted(nodes[:2].tolist()), nodes[2]) == ([0, 2, 3], [1, 3], 3)
    assert system.job_outcomes().size.tolist() == [2, 1]


def test_who_cannot_start_and_who_is_turned_away() -> None:
    """A job wider than the machine never starts and holds up nobody."""
    jobs = make_jobs(3, size=[3, 1, 1])
    static = StaticAnswers(reject=np.array([False, True, False]))
    outcomes = ran(jobs, [10.0] * 3, make_cluster(2), static=static).job_outcomes()
    assert outcomes.fate.tolist() == [2, 1, 0]


def test_begin_times_are_kept() -> None:
    """A job waits until it may begin; others pass it."""
    jobs = make_jobs(2, begin=[500.0, -np.inf])
    assert ran(jobs, [10.0, 10.0], make_cluster(2)).job_outcomes().start.tolist() == [500.0, 60.0]


def test_arrivals_are_judged() -> None:
    """Admitted, rejected, put off and asked again, cancelled, and never released."""
    jobs = make_jobs(5, submit=0.0)
    system = TimeSharedNodes(
        jobs,
        np.full(5, 10.0),
        make_cluster(9),
        stop_at=StopConditions(arrivals=True),
        record_events=True,
    )
    point = system.advance()
    assert point.arrivals.tolist() == [0, 1, 2, 3, 4]
    one = [np.array([job]) for job in range(5)]
    done = system.apply(
        [
            Admit(one[0], np.array([99.0])),
            Reject(one[1], np.array([np.inf]), ("no",)),
            Hold(one[2], np.array([50.0])),
            Hold(one[3], np.array([np.inf])),
            Cancel(one[4], ("gone",)),
            Reserve(np.zeros(0, np.int64), Schedule.empty()),
        ]
    )
    assert done == (Outcome.DONE,) * 5 + (Outcome.UNSUPPORTED,)
    assert system.snapshot().promises.deadline.tolist() == [99.0]
    again = system.advance()
    assert (again.time, again.arrivals.tolist()) == (50.0, [2])
    assert system.apply([Release(one[3]), Admit(one[0], np.array([np.inf]))]) == (
        Outcome.DONE,
        Outcome.PARTLY,
    )
    assert system.advance().done
    outcomes = system.job_outcomes()
    assert outcomes.fate.tolist() == [0, 1, 0, 0, 2]
    assert outcomes.start[[0, 2, 3]].tolist() == [0.0, 50.0, 50.0]
    kinds = system.events().rows.kind.tolist()
    assert kinds.count(EventKind.REJECTED) == 1
    assert kinds.count(EventKind.STARTED) == 3


def test_each_end_is_asked_about_before_arrivals_at_the_same_instant() -> None:
    """Ends by id first, then the arrival; an answer that starts jobs is followed by a question."""
    jobs = make_jobs(3, id=[5, 3, 9], submit=[0.0, 1.0, 101.0])
    system = TimeSharedNodes(
        jobs, np.array([101.0, 100.0, 1.0]), make_cluster(3), stop_at=StopConditions(passes=True)
    )
    seen = []
    while not (point := system.advance()).done:
        look = system.snapshot()
        seen.append((point.time, look.queued.id.tolist(), look.running.id.tolist()))
        system.apply([Place(look.queued.id, Placement.abstain(len(look.queued)))])
    assert seen == [
        (0.0, [5], []),
        (0.0, [], [5]),
        (1.0, [3], [5]),
        (1.0, [], [5, 3]),
        (101.0, [], [5]),
        (101.0, [9], []),
        (101.0, [], [9]),
    ]


def test_moves_that_cannot_be_done() -> None:
    """Another number of processes, a node that takes none, a job that does not run."""
    cluster = make_cluster(3, state=np.array([UP, UP, DOWN], np.int8))
    system = TimeSharedNodes(make_jobs(2), np.array([500.0, 500.0]), cluster)
    system.advance(1)
    for job, nodes in ((0, [0, 1]), (0, [2]), (1, [1])):
        moves = schedule(job, nodes)
        assert system.apply([Move(moves.entries.job, moves)]) == (Outcome.PARTLY,)
    moves = schedule(0, [1])
    assert system.apply([Move(moves.entries.job, moves)]) == (Outcome.DONE,)
    ended(system)
    assert system.job_outcomes().end[0] == pytest.approx(500.0 + 22.7)
    assert system.migrations.tolist() == [1, 0]


def test_latest_ends_are_shown() -> None:
    """A job may run for 3600 s at delay 1: at delay 2 for twice as long."""
    system = TimeSharedNodes(make_jobs(1), np.array([500.0]), make_cluster(1, speed=[1.0]))
    system.advance(1)
    assert system.snapshot().allocations.entries.end.tolist() == [3600.0]
    slow = make_cluster(1, foreign_load=[1.0])
    system = TimeSharedNodes(make_jobs(1), np.array([500.0]), slow)
    system.advance(1)
    assert system.snapshot().allocations.entries.end.tolist() == [7200.0]


def test_foreign_load_comes_and_goes() -> None:
    """100 s of work: 20 alone, 60 s beside one stranger (30 done), the rest alone."""
    events = [NodeEvent(20.0, 0, UP, 1.0), NodeEvent(80.0, 0, UP, 0.0)]
    system = ran(make_jobs(1), [100.0], make_cluster(1), node_events=events, record_events=True)
    assert system.job_outcomes().end.tolist() == [130.0]
    assert system.cluster.version == 2
    kinds = system.events().rows.kind.tolist()
    assert kinds.count(EventKind.NODE_CHANGED) == 2


def test_a_job_leaves_a_node_that_strangers_use() -> None:
    """With sed it moves to the idle node: 20 s, 22.7 s of pause, 80 s."""
    events = [NodeEvent(20.0, 0, UP, 1.0)]
    cluster = make_cluster(3, speed=[1.0, 1.0, 0.5])
    system = driven(make_jobs(1), [100.0], cluster, node_events=events)
    assert system.job_outcomes().end[0] == pytest.approx(122.7)
    assert system.job_outcomes().first_node.tolist() == [1]


def test_a_job_stands_still_while_a_node_of_it_is_down() -> None:
    """Without room elsewhere it waits for the node: 20 s, 60 s of standstill, 80 s."""
    events = [NodeEvent(20.0, 1, DOWN), NodeEvent(80.0, 1, UP)]
    for run in (ran, driven):
        system = run(make_jobs(1, size=2), [100.0], make_cluster(2), node_events=events)
        assert system.job_outcomes().end.tolist() == [160.0]
    system = ran(
        make_jobs(1, size=2), [100.0], make_cluster(2), node_events=events, record_events=True
    )
    kinds = system.events().rows.kind.tolist()
    assert kinds.count(EventKind.SUSPENDED) == kinds.count(EventKind.RESUMED) == 1


def test_a_job_leaves_a_node_that_is_shut_down() -> None:
    """It goes to the slow node, though it is slower there: 20 s, 22.7 s, 80 s at delay 2."""
    events = [NodeEvent(20.0, 0, DOWN)]
    system = driven(make_jobs(1), [100.0], make_cluster(2, speed=[1.0, 0.5]), node_events=events)
    assert system.job_outcomes().end[0] == pytest.approx(20 + 22.7 + 160)
    assert system.migrations.tolist() == [1]


def test_a_job_on_a_lost_node_is_unfinished() -> None:
    """Nothing moves it, and the node never comes back."""
    system = ran(make_jobs(1), [100.0], make_cluster(1), node_events=[NodeEvent(20.0, 0, DOWN)])
    assert system.job_outcomes().fate.tolist() == [2]


def test_wrong_input_is_refused() -> None:
    """Lengths, order and node events."""
    jobs, cluster = make_jobs(2), make_cluster(1)
    with pytest.raises(ShapeError, match="run times"):
        TimeSharedNodes(jobs, np.ones(3), cluster)
    with pytest.raises(ShapeError, match="in order of"):
        TimeSharedNodes(jobs.take([1, 0]), np.ones(2), cluster)
    with pytest.raises(ShapeError, match="does not exist"):
        TimeSharedNodes(jobs, np.ones(2), cluster, node_events=[NodeEvent(0.0, 1, UP)])


def test_settings_of_other_machines_are_refused() -> None:
    """The cost of migration is this machine's setting, backfilling the other's."""
    for table, sentence in (
        ({"migration_cost": "none"}, "migration_cost: is a setting of machine 'time-shared'"),
        ({"machine": "time-shared", "loop": "easy"}, "invalid value 'easy' on machine"),
        ({"machine": "time-shared", "order": "deadline"}, "order: is a setting of machine"),
    ):
        problems: list[str] = []
        convert({"system": table}, Policy, "", problems)
        assert len(problems) == 1
        assert sentence in problems[0]
    right = msgspec.convert(
        {"machine": "time-shared", "loop": "fcfs", "migration_cost": "none"}, MachineSettings
    )
    assert right.migration_cost == "none"


FACTORS = st.lists(st.sampled_from([1.0, 1.5, 2.0, 3.0, 4.0]), min_size=2, max_size=7).map(
    lambda some: sorted([1.0, *some])
)


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[float], list[dict[str, Any]]]:
    """Return machines, and jobs in order of arrival; many ends and arrivals coincide."""
    factors = draw(FACTORS)
    jobs, time = [], 0
    for job in range(draw(st.integers(1, 6))):
        time += draw(st.sampled_from([0, 0, 5, 12, 30, 77]))
        least = draw(st.integers(1, len(factors)))
        most = draw(st.integers(least, len(factors)))
        demand = float(draw(st.sampled_from([6, 12, 60, 61, 240])))
        jobs.append(
            {
                "id": job,
                "arrival_time_s": float(time),
                "demand_s": demand,
                "minsize": least,
                "maxsize": most,
            }
        )
    return factors, jobs


def plainly(factors: list[float], jobs: list[dict[str, Any]], variant: str) -> Any:
    """Return what the plain simulation makes of a stream."""
    flags = VARIANTS[variant]
    alpha = [Fraction(value).limit_denominator(100) for value in factors]
    places = plain_sed.Workstations(alpha, flags["upgrade"], flags["migrate"], cost=True)
    table = [
        plain_sed.Job(
            job["id"],
            Fraction(job["arrival_time_s"]),
            Fraction(job["demand_s"]),
            job["minsize"],
            job["maxsize"],
        )
        for job in jobs
    ]
    return plain_sed.outcome(plain_sed.simulate(places, table))


@pytest.mark.parametrize("variant", VARIANTS)
@given(stream=streams())
@settings(max_examples=40, deadline=None)
def test_replay_agrees_with_small_steps(
    stream: tuple[list[float], list[dict[str, Any]]], variant: str
) -> None:
    """Starts, ends, sizes, upgrades and migrations are the same."""
    factors, jobs = stream
    ours = replayed(parallel_workload(factors, jobs), variant)
    assert list(run_cases.differences(plainly(factors, jobs, variant), ours, 1e-9)) == []


@pytest.mark.parametrize("variant", VARIANTS)
@given(stream=streams())
@settings(max_examples=20, deadline=None)
def test_no_running_job_is_ever_slowed(
    stream: tuple[list[float], list[dict[str, Any]]], variant: str
) -> None:
    """The load of each node stays below the delay of all jobs on it; delays only ever fall."""
    factors, jobs = stream
    policy = presets()[variant.lower()]
    run = Replay("x", parallel_workload(factors, jobs), Chain.load(policy.plugin), policy)
    system: Any = run.system
    sharing, advance, last = system._sharing, system.advance, {}

    def watched(most: int | None = None) -> Any:
        instant = advance(most)
        rows, indptr, nodes = sharing.held
        load = np.array(factors) * np.bincount(nodes, minlength=len(factors))
        assert (slowest(load, indptr, nodes) <= sharing.delay[rows]).all()
        assert (load <= max(factors)).all()
        for row in rows.tolist():
            assert sharing.delay[row] <= last.get(row, np.inf)
            last[row] = sharing.delay[row]
        return instant

    system.advance = watched
    run.run()
    assert (system.job_outcomes().fate == 0).all()
    assert not any(book["sed"].errors for book in run.chain.hook_metrics.values() if "sed" in book)


def test_time_served_is_what_the_nodes_gave() -> None:
    """5 fast nodes at delay 2 are half busy with a job: 5 x 800 s / 2, then 5 x 800 s."""
    jobs = [
        {"id": job, "arrival_time_s": 0.0, "demand_s": 6000.0, "minsize": 3, "maxsize": 30}
        for job in range(2)
    ]
    workload = parallel_workload([1.0] * 5 + [4.0] * 25, jobs)
    policy = presets()["sed"]
    run = Replay("x", workload, Chain.load(policy.plugin), policy)
    run.run()
    service = run.system.job_outcomes().service
    assert service.tolist() == pytest.approx([800 * (25 + 5 / 4), 800 * 5 / 2 + 800 * 5])


def test_cost_of_a_migration_is_a_setting_of_the_machine() -> None:
    """Two jobs on 20 fast and 10 slow machines: the second moves at 300 s, and pauses or not."""
    jobs = [
        {"id": job, "arrival_time_s": 0.0, "demand_s": 6000.0, "minsize": 3, "maxsize": 30}
        for job in range(2)
    ]
    workload = parallel_workload([1.0] * 20 + [4.0] * 10, jobs)
    ends = {}
    for cost in ("serial", "parallel", "none"):
        policy = presets()["sed"]
        system = msgspec.structs.replace(policy.system, migration_cost=cost)
        policy = msgspec.structs.replace(policy, system=system)
        run = Replay("x", workload, Chain.load(policy.plugin), policy)
        run.run()
        ends[cost] = float(run.system.job_outcomes().end[1])
    assert ends == pytest.approx({"serial": 962.0, "parallel": 847.7, "none": 825.0})
