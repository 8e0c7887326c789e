"""The simulated batch system with exclusive nodes: its loops, its plan, and what it is told."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exclusive_scenarios import (
    ORIGIN,
    answer,
    appended,
    assert_no_overlap,
    random_jobs,
    report,
    scenarios,
    serving,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from plain_loops import Work, conservative, head_starts, simulate
from workloads import ended, jobs_of

from rtsched.errors import AdapterError, ShapeError
from rtsched.kernels.policy import job_columns
from rtsched.model.actions import (
    Admit,
    Cancel,
    Hold,
    Notify,
    Place,
    Reject,
    Release,
    Reserve,
    SetPriority,
)
from rtsched.model.cluster import Cluster, Nodes, NodeState
from rtsched.model.jobs import Jobs, Kind
from rtsched.model.schedule import Schedule
from rtsched.model.verdicts import Placement
from rtsched.simulator.exclusive import ExclusiveNodes
from rtsched.simulator.interface import NodeEvent, Outcome, StaticAnswers, StopConditions
from rtsched.simulator.settings import ExclusiveSettings

NODES = 8


@st.composite
def workloads(draw: st.DrawFn) -> list[Work]:
    """Draw few short jobs on few nodes, with many ties."""
    small = st.integers(1, 12)
    rows = draw(
        st.lists(st.tuples(st.integers(0, 4), small, st.integers(0, 9), st.integers(1, NODES)))
    )
    submit = np.cumsum([gap for gap, *_ in rows])
    return [
        Work(float(at), float(run), float(run + slack), size)
        for at, (_, run, slack, size) in zip(submit, rows, strict=True)
    ]


def table(work: list[Work], **columns: Any) -> tuple[Jobs, NDArray[np.float64]]:
    """Return jobs on the epoch's clock and their run times."""
    submit = ORIGIN + np.array([job.submit for job in work])
    jobs = jobs_of(work, id=np.arange(len(work)) + 7, submit=submit, **columns)
    return jobs, np.array([job.run for job in work])


def run(work: list[Work], loop: str = "easy", nodes: int = NODES, **more: Any) -> ExclusiveNodes:
    """Return a system that has run to its end without asking anything."""
    system = ExclusiveNodes(
        *table(work),
        Cluster.uniform(nodes),
        ExclusiveSettings(loop=loop),
        record_nodes=True,
        **more,
    )
    assert system.advance().done
    return system


def starts(system: ExclusiveNodes) -> list[float]:
    """Return when each job started, relative to the origin."""
    return (system.job_outcomes().start - ORIGIN).tolist()


@pytest.mark.parametrize("loop", ["fcfs", "easy"])
@given(work=workloads())
def test_loops_start_jobs_as_plainly_written_ones_do(loop: str, work: list[Work]) -> None:
    """FCFS and EASY agree job by job with a second, plain implementation."""
    system = run(work, loop)
    assert starts(system) == simulate(work, NODES, loop)
    assert_no_overlap(system)


KEYS = st.sampled_from([0.0, 1.0, 2.0, 3.0, np.inf])


@given(work=workloads(), keys=st.lists(KEYS, min_size=200, max_size=200))
def test_deadline_order_is_the_plain_one(work: list[Work], keys: list[float]) -> None:
    """Jobs queue by deadline, ties by submission; those without one keep their places."""
    deadline = keys[: len(work)]
    jobs, run_time = table(work, deadline=ORIGIN + np.array(deadline))
    settings = ExclusiveSettings(order="deadline_in_place")
    system = ExclusiveNodes(jobs, run_time, Cluster.uniform(NODES), settings)
    system.advance()
    assert starts(system) == simulate(work, NODES, "easy", deadline)


def test_jobs_with_a_deadline_change_places_among_themselves() -> None:
    """One node, busy until 10 s. Jobs 1 to 6 wait, jobs 2 and 5 without a deadline."""
    # Those with one have places 1, 3, 4 and 6 and start there by deadline: 6, 4, 1, 3. Job 2 has
    # one before it and job 5 four, as by submission.
    work = [Work(float(row), 10.0, 10.0, 1) for row in range(7)]
    deadline = [np.inf, 300.0, np.inf, 400.0, 200.0, np.inf, 100.0]
    jobs, run_time = table(work, deadline=ORIGIN + np.array(deadline))
    for order, expected in (
        ("deadline_in_place", [0.0, 40.0, 20.0, 60.0, 30.0, 50.0, 10.0]),
        ("deadline", [0.0, 30.0, 50.0, 40.0, 20.0, 60.0, 10.0]),
    ):
        settings = ExclusiveSettings(order=order)
        system = ExclusiveNodes(jobs, run_time, Cluster.uniform(1), settings)
        assert system.advance().done
        assert starts(system) == expected


@given(work=workloads())
def test_conservative_is_the_plain_one_and_never_puts_off(work: list[Work]) -> None:
    """Conservative starts agree with a plain implementation, none after its first reservation."""
    expected, first = conservative(work, NODES)
    begun = starts(run(work, "conservative"))
    assert begun == expected
    assert all(start <= reserved for start, reserved in zip(begun, first, strict=True))


@given(work=workloads())
def test_fcfs_starts_in_order_and_no_job_before_it_is_submitted(work: list[Work]) -> None:
    """Under FCFS no job overtakes another."""
    begun = starts(run(work, "fcfs"))
    assert begun == sorted(begun)
    assert all(start >= job.submit for start, job in zip(begun, work, strict=True))


@pytest.mark.parametrize("loop", ["fcfs", "easy"])
@given(work=workloads())
def test_choosing_nodes_one_by_one_changes_no_start(loop: str, work: list[Work]) -> None:
    """The pass over single nodes and the pass that counts start the same jobs."""
    never = [NodeEvent(ORIGIN + 1e6, 0, NodeState.UP)] if work else []
    by_node = run(work, loop, node_events=never)
    assert starts(by_node) == starts(run(work, loop))
    assert_no_overlap(by_node)
    for nodes in (np.arange(NODES), np.arange(NODES)[::-1]):
        none = np.zeros(len(work), np.int32)
        everywhere = Placement(none, none, (nodes.astype(np.int32),))
        static = StaticAnswers(placement=everywhere)
        assert starts(run(work, loop, static=static)) == starts(by_node)


@given(work=workloads(), seed=st.integers(0, 2**16))
@settings(max_examples=60)
def test_planned_jobs_start_on_time_on_their_nodes(work: list[Work], seed: int) -> None:
    """Whatever else runs, a planned job starts at its planned start on its planned nodes."""
    chosen = np.random.default_rng(seed).random(len(work)) < 0.4
    system = ExclusiveNodes(
        *table(work),
        Cluster.uniform(NODES),
        stop_at=StopConditions(arrivals=True),
        record_nodes=True,
    )
    plan: dict[int, tuple[float, list[int]]] = {}
    while not (point := system.advance()).done:
        ids = system.jobs.id[point.arrivals]
        system.apply([Admit(ids, np.full(len(ids), np.inf))])
        for row in point.arrivals[chosen[point.arrivals]].tolist():
            left = system.snapshot().plan
            entry = appended(system, left, row)
            joined = Schedule.joined([left, entry])
            assert system.apply([Reserve(joined.entries.job, joined)]) == (Outcome.DONE,)
            assert len(system.snapshot().planned) == len(joined)
            plan[row] = (float(entry.entries.start[0]), sorted(entry.nodes.tolist()))
    assert_no_overlap(system)
    outcomes = system.job_outcomes()
    offsets, nodes = system.node_rows()
    for row, (start, wanted) in plan.items():
        assert outcomes.start[row] == start
        assert sorted(nodes[offsets[row] : offsets[row + 1]].tolist()) == wanted
    assert (outcomes.fate == 0).all()


def test_compiled_and_plain_source_do_the_same() -> None:
    """The uncompiled loop, in a process of its own, gives the same results to the last digit."""
    script = Path(__file__).with_name("exclusive_scenarios.py")
    done = subprocess.run(
        [sys.executable, "-W", "error", script],
        env={**os.environ, "RTSCHED_COMPILE": "0"},
        capture_output=True,
        check=True,
    )
    plain = json.loads(done.stdout)
    for name, system in scenarios():
        assert report(system) == plain[name], name
        if not system.cluster.shared:
            assert_no_overlap(system)


def test_same_run_twice_is_the_same_run() -> None:
    """A run depends on nothing but its arguments."""
    jobs, run_time = random_jobs(5, 100, 16)
    reports = []
    for _ in range(2):
        system = ExclusiveNodes(
            jobs,
            run_time,
            Cluster.uniform(16),
            ExclusiveSettings(order="priority"),
            stop_at=StopConditions(True, True, True, True),
            record_events=True,
        )
        answer(system, np.random.default_rng(6))
        reports.append(report(system))
    assert reports[0] == reports[1]


def test_a_run_asks_what_it_was_told_to_ask() -> None:
    """One stop an instant holds its arrivals in order, and whether a pass is due."""
    work = [Work(0, 5, 9, 8), Work(2, 5, 9, 8), Work(2, 5, 9, 1), Work(5, 1, 1, 1)]
    system = ExclusiveNodes(
        *table(work), Cluster.uniform(NODES), stop_at=StopConditions(arrivals=True, passes=True)
    )
    seen = []
    while not (point := system.advance()).done:
        seen.append((point.time - ORIGIN, point.arrivals.tolist(), point.passes))
    assert seen == [
        (0, [0], True),
        (2, [1, 2], False),  # no node is free
        (5, [3], True),
        (10, [], True),
    ]


def test_static_rejections_are_not_asked_about() -> None:
    """A job rejected beforehand never enters the queue nor a stop."""
    work = [Work(0, 5, 5, 1), Work(0, 5, 5, 1)]
    system = ExclusiveNodes(
        *table(work),
        Cluster.uniform(1),
        stop_at=StopConditions(arrivals=True),
        static=StaticAnswers(reject=np.array([True, False])),
        record_events=True,
    )
    assert system.advance().arrivals.tolist() == [1]
    assert system.advance().done
    assert system.job_outcomes().fate.tolist() == [1, 0]
    assert system.events().rows.kind.tolist() == [0, 1, 0, 2, 3]


def test_static_priorities_order_the_queue() -> None:
    """Higher priority starts first where the queue is ordered by priority."""
    work = [Work(0, 5, 5, 1), Work(1, 5, 5, 1), Work(2, 5, 5, 1)]
    for order, begun in (("priority", [0, 10, 5]), ("arrival", [0, 5, 10])):
        system = ExclusiveNodes(
            *table(work),
            Cluster.uniform(1),
            ExclusiveSettings(order=order),
            static=StaticAnswers(priority=np.array([0.0, 1.0, 2.0])),
        )
        system.advance()
        assert starts(system) == begun


def test_actions_do_what_they_say() -> None:
    """Reject, hold, release, cancel and priorities act on waiting jobs; the rest is reported."""
    work = [Work(0, 10, 10, 1)] * 6
    system = ExclusiveNodes(
        *table(work),
        Cluster.uniform(1),
        ExclusiveSettings(order="priority"),
        stop_at=StopConditions(arrivals=True),
    )
    ids = system.jobs.id[system.advance().arrivals]
    one = [ids[k : k + 1] for k in range(6)]
    assert system.apply(
        [
            Reject(one[0], np.array([ORIGIN + 99.0]), ("no",)),
            Hold(one[1], np.array([ORIGIN + 25.0])),
            Hold(one[2], np.array([np.inf])),
            Admit(ids[3:], np.array([ORIGIN + 50.0, np.inf, np.inf])),
            Cancel(one[4], ("gone",)),
            SetPriority(ids[3:], np.array([1.0, 2.0, 3.0])),
            Notify(one[5], ("hello",)),
            Cancel(ids[[0, 0]], ("", "")),
        ]
    ) == (*[Outcome.DONE] * 6, Outcome.UNSUPPORTED, Outcome.PARTLY)
    assert system.snapshot().promises.job.tolist() == [one[3][0]]
    point = system.advance()
    assert (point.time - ORIGIN, point.arrivals.tolist()) == (25, [1])
    assert system.apply([Release(ids[1:3])]) == (Outcome.DONE,)
    assert system.advance().done
    outcomes = system.job_outcomes()
    assert outcomes.fate.tolist() == [1, 0, 0, 0, 2, 0]
    assert starts(system)[5] == 0
    assert starts(system)[3] == 10
    assert starts(system)[1:3] == [25, 35]
    assert outcomes.offer[0] == ORIGIN + 99.0
    assert outcomes.promise[3] == ORIGIN + 50.0


def test_a_planned_job_that_is_held_leaves_the_plan() -> None:
    """Its nodes are no longer kept, and the rest of the plan stands."""
    system = ExclusiveNodes(
        *table([Work(0, 5, 5, 1)] * 3), Cluster.uniform(2), stop_at=StopConditions(arrivals=True)
    )
    now = system.advance().time
    plan = Schedule.build(
        [7, 8],
        [now + 2.0, now + 2.0],
        [now + 7.0, now + 7.0],
        np.array([0, 1, 2]),
        np.array([0, 1], np.int32),
    )
    system.apply([Reserve(plan.entries.job, plan), Hold(np.array([7]), np.array([np.inf]))])
    assert system.snapshot().planned.id.tolist() == [8]
    assert system.advance().done
    assert starts(system)[1:] == [2, 0]
    assert system.job_outcomes().fate.tolist() == [2, 0, 0]


def test_an_unknown_job_is_an_error() -> None:
    """An action that names a job of another workload is refused by its id."""
    system = run([Work(0, 1, 1, 1)])
    with pytest.raises(AdapterError, match="no job 99"):
        system.apply([Release(np.array([99]))])


def test_priorities_without_effect_are_reported() -> None:
    """A system that queues by arrival says that it does not take priorities."""
    system = ExclusiveNodes(
        *table([Work(0, 1, 1, 1)]), Cluster.uniform(1), stop_at=StopConditions(passes=True)
    )
    system.advance()
    assert system.apply([SetPriority(np.array([7]), np.ones(1))]) == (Outcome.UNSUPPORTED,)


def test_jobs_start_at_their_begin_time() -> None:
    """A job is not eligible before its begin time, and then stands at its old place."""
    jobs, run_time = table([Work(0, 5, 5, 1), Work(0, 5, 5, 1), Work(1, 5, 5, 1)])
    jobs = jobs.replace(begin=ORIGIN + np.array([2.0, -1.0, -1.0]))
    system = ExclusiveNodes(jobs, run_time, Cluster.uniform(1))
    system.advance()
    assert starts(system) == [5, 0, 10]


@pytest.mark.parametrize(("requeue", "fate"), [(True, 0), (False, 2)])
def test_a_dead_node_kills_its_job(requeue: bool, fate: int) -> None:
    """The job is queued again at its old place, or lost; the node comes back when it is up."""
    work = [Work(0, 10, 10, 2), Work(1, 10, 10, 2), Work(2, 1, 1, 1)]
    system = run_with_events(work, requeue, [(4, 0, NodeState.DOWN), (20, 0, NodeState.UP)])
    outcomes = system.job_outcomes()
    assert outcomes.fate.tolist() == [fate, 0, 0]
    assert outcomes.restarts[0] == requeue
    assert starts(system) == ([20, 30, 4] if requeue else [0, 20, 4])
    assert np.isnan(outcomes.end[0]) or outcomes.end[0] - ORIGIN == (30 if requeue else 4)


def run_with_events(
    work: list[Work], requeue: bool, events: list[tuple[float, int, NodeState]]
) -> ExclusiveNodes:
    """Return a run on two nodes whose states change."""
    system = ExclusiveNodes(
        *table(work),
        Cluster.uniform(2),
        ExclusiveSettings(requeue=requeue),
        stop_at=StopConditions(nodes=True),
        node_events=[NodeEvent(ORIGIN + time, node, state) for time, node, state in events],
    )
    while not (point := system.advance()).done:
        assert point.nodes_changed
        states = system.snapshot().cluster.nodes.state
        time = point.time - ORIGIN
        assert states.tolist() == [next(s for t, _, s in reversed(events) if t <= time), 0]
    return system


def test_a_drained_node_ends_its_job_and_takes_no_other() -> None:
    """Draining lets the job run out."""
    work = [Work(0, 10, 10, 2), Work(1, 10, 10, 1), Work(1, 10, 10, 1)]
    system = run_with_events(work, True, [(4, 0, NodeState.DRAINED)])
    assert starts(system) == [0, 10, 20]


def test_a_job_wider_than_the_nodes_in_service_holds_up_nobody() -> None:
    """It waits for the nodes; jobs behind it go on."""
    work = [Work(0, 10, 10, 2), Work(1, 10, 10, 1)]
    events = [(0, 0, NodeState.DOWN), (30, 0, NodeState.UP)]
    assert starts(run_with_events(work, True, events)) == [30, 1]


def test_a_planned_job_whose_node_died_waits_in_the_queue() -> None:
    """It loses its place in the plan, not its place in the queue."""
    system = ExclusiveNodes(
        *table([Work(0, 5, 5, 1)]),
        Cluster.uniform(2),
        stop_at=StopConditions(arrivals=True),
        node_events=[NodeEvent(ORIGIN + 1.0, 0, NodeState.DOWN)],
    )
    point = system.advance()
    plan = Schedule.build(
        [7], [point.time + 3.0], [point.time + 8.0], np.array([0, 1]), np.array([0], np.int32)
    )
    system.apply([Reserve(plan.entries.job, plan)])
    assert system.advance().done
    assert starts(system) == [3]
    assert system.job_outcomes().first_node.tolist() == [1]


def test_the_slowest_node_sets_the_pace_within_the_wall_time() -> None:
    """Run time is divided by the least speed; the job is killed at its wall time."""
    jobs, run_time = table([Work(0, 10, 30, 2), Work(0, 10, 15, 2)])
    cluster = Cluster(Nodes.build(4, speed=np.array([1.0, 0.5, 0.5, 1.0])))
    system = ExclusiveNodes(jobs, run_time, cluster)
    system.advance()
    assert (system.job_outcomes().end - ORIGIN).tolist() == [20, 15]


def test_moldable_and_divisible_jobs_run_by_their_size() -> None:
    """A placement's size scales a moldable job; a planned divisible one runs as its plan says."""
    jobs, run_time = table([Work(0, 8, 10, 2), Work(0, 8, 10, 2), Work(0, 8, 10, 2)])
    kinds = np.array([Kind.MOLDABLE, Kind.RIGID, Kind.DIVISIBLE], np.int8)
    jobs = jobs.replace(kind=kinds)
    sizes = Placement(np.array([4, 4, 0], np.int32), np.full(3, -1, np.int32))
    system = ExclusiveNodes(
        jobs,
        run_time,
        Cluster.uniform(NODES),
        stop_at=StopConditions(arrivals=True),
        static=StaticAnswers(placement=sizes),
    )
    system.advance()
    plan = Schedule.build(
        [9], [ORIGIN], [ORIGIN + 3.5], np.array([0, 3]), np.array([7, 5, 6], np.int32)
    )
    system.apply([Reserve(plan.entries.job, plan)])
    assert system.advance().done
    outcomes = system.job_outcomes()
    assert (outcomes.end - outcomes.start).tolist() == [4, 8, 3.5]
    assert outcomes.size.tolist() == [4, 2, 3]


def test_serial_runs_one_job_at_a_time_at_its_fastest_size() -> None:
    """A divisible job takes the whole machine where no set-up time speaks against it."""
    jobs, run_time = table([Work(0, 8, 10, 2), Work(0, 8, 10, 2)])
    jobs = jobs.replace(
        kind=np.array([Kind.RIGID, Kind.DIVISIBLE], np.int8), sigma=100.0, cms=1.0, cps=1.0
    )
    system = ExclusiveNodes(
        jobs, run_time, Cluster.uniform(NODES), ExclusiveSettings(loop="serial")
    )
    system.advance()
    outcomes = system.job_outcomes()
    assert outcomes.size.tolist() == [2, NODES]
    assert starts(system) == [0, 8]
    beta = 0.5
    assert outcomes.end[1] - outcomes.start[1] == pytest.approx(
        200 * (1 - beta) / (1 - beta**NODES)
    )


def test_placements_bind_waiting_jobs_to_nodes() -> None:
    """A job starts on the first free nodes of its set only."""
    jobs, run_time = table([Work(0, 5, 5, 1), Work(0, 5, 5, 1)])
    system = ExclusiveNodes(jobs, run_time, Cluster.uniform(4), stop_at=StopConditions(passes=True))
    point = system.advance()
    assert point.passes
    on_three = Placement(np.zeros(2, np.int32), np.zeros(2, np.int32), (np.array([3], np.int32),))
    assert system.apply([Place(jobs.id, on_three)]) == (Outcome.DONE,)
    ended(system)
    assert system.job_outcomes().first_node.tolist() == [3, 3]
    assert starts(system) == [0, 5]


@given(
    work=workloads(),
    exact=st.booleans(),
    depth=st.sampled_from([0, 2]),
    sets=st.lists(
        st.lists(st.integers(0, NODES - 1), min_size=1, unique=True), min_size=1, max_size=4
    ),
)
def test_easy_on_node_sets_never_puts_off_the_head(
    work: list[Work], exact: bool, depth: int, sets: list[list[int]]
) -> None:
    """What is backfilled leaves the head the nodes of its set that it needs, when it needs them."""
    code = np.arange(len(work), dtype=np.int32) % (len(sets) + 1) - 1
    own = [sets[k] if k >= 0 else list(range(NODES)) for k in code.tolist()]
    work = [
        job._replace(size=min(job.size, len(nodes)), run=job.wall if exact else job.run)
        for job, nodes in zip(work, own, strict=True)
    ]
    arrays = tuple(np.array(nodes, np.int32) for nodes in sets)
    placement = Placement(np.zeros(len(work), np.int32), code, arrays)
    system = ExclusiveNodes(
        *table(work),
        Cluster.uniform(NODES),
        ExclusiveSettings(loop="easy", depth=depth),
        static=StaticAnswers(placement=placement),
        record_nodes=True,
    )
    assert system.advance().done
    assert_no_overlap(system)
    offsets, nodes = system.node_rows()
    took = [part.tolist() for part in np.split(nodes, offsets[1:-1])] if work else []
    assert all(set(part) <= set(mine) for part, mine in zip(took, own, strict=True))
    start = starts(system)
    for head, times in head_starts(work, own, start, took).items():
        assert start[head] <= times[-1]
        assert times == sorted(times, reverse=True)


def test_partitions_and_pins_bind_jobs() -> None:
    """A partition's nodes and a pinned node are the only ones a job uses."""
    jobs, run_time = table(
        [Work(0, 5, 5, 1)] * 3,
        partition=["low", None, None],
        pinned=np.array([-1, 1, -1], np.int32),
    )
    cluster = Cluster(Nodes.build(3), {"low": np.array([False, False, True])})
    system = ExclusiveNodes(jobs, run_time, cluster)
    system.advance()
    assert system.job_outcomes().first_node.tolist() == [2, 1, 0]


def test_questions_to_a_policy_are_counted() -> None:
    """Calls, and rows in them, that it was asked from within the loop."""
    jobs, run_time = table([Work(0, 5, 5, 1), Work(0, 5, 5, 1)])
    jobs = jobs.replace(association=np.array([0, -1], np.int32))
    system = ExclusiveNodes(
        jobs,
        run_time,
        Cluster.uniform(1),
        ExclusiveSettings(order="priority"),
        compiled=serving(jobs),
    )
    system.advance()
    calls = system.hook_calls()
    assert calls == {"fair_share": [2, 3, 0, 2], "observe": [6, 6, 6, 0]}


@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize("given", [{}, {"deadline": 1e9, "nice": 1.0}])
def test_policies_take_columns_of_any_layout(n: int, given: dict[str, float]) -> None:
    """Columns that are not there, or have a value or none for each job, suit the same loop."""
    columns = {name: np.full(n, value) for name, value in given.items()}
    jobs, run_time = table([Work(float(k), 5, 5, 1) for k in range(n)], **columns)
    system = ExclusiveNodes(
        jobs,
        run_time,
        Cluster.uniform(1),
        ExclusiveSettings(order="priority"),
        compiled=serving(jobs),
    )
    system.advance()
    assert system.hook_calls().get("observe", [0, 0])[1] == 3 * n


def test_columns_for_policies_are_those_of_the_jobs_but_for_the_origin() -> None:
    """Only times, and columns that have one value for all, are copied."""
    jobs, _ = table(
        [Work(float(k), 5 + k, 5 + k, 1 + k) for k in range(3)], deadline=np.arange(3.0)
    )
    for name, values in job_columns(jobs, 7.0)._asdict().items():
        shift = 7.0 if name in {"submit", "deadline"} else 0.0
        np.testing.assert_array_equal(values, jobs.column(name) - shift)
        assert values.flags.c_contiguous
        assert not values.flags.writeable
    assert np.shares_memory(job_columns(jobs).size, jobs.size)


def test_events_tell_every_start_and_end_once() -> None:
    """Arrivals, starts and ends come in order of time, however often they are asked for."""
    jobs, run_time = random_jobs(8, 60, 8)
    system = ExclusiveNodes(jobs, run_time, Cluster.uniform(8), record_events=True)
    told = []
    done = False
    while not done:
        done = system.advance(10).done
        events = system.events()
        told += list(
            zip(
                events.rows.time.tolist(),
                events.rows.kind.tolist(),
                events.jobs.id.tolist(),
                strict=True,
            )
        )
    assert [time for time, _, _ in told] == sorted(time for time, _, _ in told)
    for kind, column in (
        (0, jobs.submit),
        (2, system.job_outcomes().start),
        (3, system.job_outcomes().end),
    ):
        assert sorted((job, time) for time, k, job in told if k == kind) == sorted(
            zip(jobs.id.tolist(), column.tolist(), strict=True)
        )


@pytest.mark.parametrize("loop", ["fcfs", "easy", "conservative", "serial", "negotiator"])
def test_nothing_to_do_is_done_at_once(loop: str) -> None:
    """An empty workload, and jobs that no machine holds, come to an end."""
    assert run([], loop).job_outcomes().start.tolist() == []
    assert run([Work(0, 1, 1, NODES + 1)], loop).job_outcomes().fate.tolist() == [2]
    assert run([Work(0, 1, 1, 1)], loop, nodes=0).job_outcomes().fate.tolist() == [2]


def test_jobs_out_of_order_are_refused() -> None:
    """Rows must be in order of (submit, id), for ties are broken by row."""
    jobs, run_time = table([Work(1, 1, 1, 1), Work(0, 1, 1, 1)])
    with pytest.raises(ShapeError, match="in order of"):
        ExclusiveNodes(jobs, run_time, Cluster.uniform(1))
    with pytest.raises(ShapeError, match="run times"):
        ExclusiveNodes(jobs, run_time[:1], Cluster.uniform(1))
