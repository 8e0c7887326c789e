"""Jobs of the simulated system that wait for others: dependencies, and limits of job arrays."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_loops import Work, startable
from workloads import ended

from rtsched.model.actions import Cancel, Hold, Reject
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Edges, Jobs
from rtsched.simulator.exclusive import ExclusiveNodes
from rtsched.simulator.interface import NodeEvent, StaticAnswers, StopConditions
from rtsched.simulator.settings import ExclusiveSettings

LOOPS = ("fcfs", "easy", "conservative")
NODES = 4


def system(
    n: int,
    edges: list[tuple[int, int]] = (),
    *,
    loop: str = "easy",
    nodes: int = NODES,
    runs: list[float] | None = None,
    at_start: bool = False,
    whole: bool = False,
    options: dict[str, Any] | None = None,
    **columns: Any,
) -> ExclusiveNodes:
    """Return a system of jobs 1 to `n`, one per second, of 1 node and 10 s if not told else."""
    usual = {
        "id": np.arange(n) + 1,
        "submit": np.arange(n) * 1.0,
        "wall_time": np.full(n, 20.0),
        "size": np.ones(n, np.int32),
    }
    jobs = Jobs.build(n, **{**usual, **columns})
    before, after = zip(*edges, strict=True) if edges else ((), ())
    links = Edges.build(
        len(edges),
        before=np.array(before, np.int64),
        after=np.array(after, np.int64),
        at_start=at_start,
        whole_array=whole,
    )
    return ExclusiveNodes(
        jobs,
        np.array(runs or [10.0] * n),
        Cluster.uniform(nodes),
        ExclusiveSettings(loop=loop),
        edges=links,
        **(options or {}),
    )


def starts(machine: ExclusiveNodes) -> list[float]:
    """Return when jobs start, -1: never."""
    ended(machine)
    return [-1.0 if math.isnan(start) else start for start in machine.job_outcomes().start.tolist()]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_job_waits_until_those_it_depends_on_have_ended(loop: str) -> None:
    """Job 3 waits for 1 and 2, which end at 10 and 11; job 4 for nobody."""
    assert starts(system(4, [(1, 3), (2, 3)], loop=loop)) == [0, 1, 11, 3]


@pytest.mark.parametrize("loop", LOOPS)
def test_after_waits_for_the_start_only(loop: str) -> None:
    """On one node: 2 starts at 10, then 3 may; it waits for the node until 20."""
    assert starts(system(3, [(2, 3)], at_start=True, loop=loop, nodes=1)) == [0, 10, 20]
    assert starts(system(3, [(2, 3)], at_start=True, loop=loop, nodes=3)) == [0, 1, 2]


@pytest.mark.parametrize("loop", LOOPS)
def test_an_array_runs_as_many_tasks_as_it_may(loop: str) -> None:
    """Six tasks, two at a time, though all nodes are free; the job behind them starts at once."""
    machine = system(7, loop=loop, array=[5] * 6 + [-1], array_limit=[2] * 6 + [0], nodes=9)
    assert starts(machine) == [0, 1, 10, 11, 20, 21, 6]


def test_an_array_with_room_for_all_tasks_has_no_gates() -> None:
    """Nothing is laid out for it, nor for a log without dependencies."""
    machine = system(3, array=[5] * 3, array_limit=[3] * 3)
    assert not machine._state["gated"]
    assert starts(machine) == [0, 1, 2]


def test_the_negotiator_keeps_to_them() -> None:
    """Cycles at 0, 10, 20, ... (submissions ask for one after 10 s at the earliest)."""
    assert starts(system(4, [(1, 3), (2, 3)], loop="negotiator")) == [0, 10, 20, 20]
    machine = system(4, loop="negotiator", array=[5] * 4, array_limit=[1] * 4)
    assert starts(machine) == [0, 10, 20, 30]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_job_waits_for_all_tasks_of_an_array(loop: str) -> None:
    """Tasks end at 10, 11 and 12; jobs 4 and 5 wait for the array, 6 for 5."""
    machine = system(6, [(1, 4), (1, 5)], loop=loop, whole=True, array=[1, 1, 1, -1, -1, -1])
    assert starts(machine) == [0, 1, 2, 12, 12, 5]


def test_a_begin_time_and_a_dependency_both_hold() -> None:
    """Whichever is later; a task that may not begin yet leaves its place to the next."""
    begin = [-np.inf, 15.0, 5.0]
    assert starts(system(3, [(1, 2), (1, 3)], begin=begin)) == [0, 15, 10]
    begin = [-np.inf, 30.0, -np.inf, -np.inf]
    assert starts(system(4, array=[7] * 4, array_limit=[1] * 4, begin=begin)) == [0, 30, 10, 20]


def test_nobody_waits_for_a_job_that_cannot_start() -> None:
    """One that is too wide, or was rejected; who was opened so is counted."""
    machine = system(3, [(1, 2), (2, 3)], size=[9, 1, 1])
    assert starts(machine) == [-1, 1, 11]
    assert machine.job_outcomes().released == 1
    reject = StaticAnswers(np.array([True, False, False]))
    machine = system(3, [(1, 2)], options={"static": reject})
    assert starts(machine) == [-1, 1, 2]
    assert machine.job_outcomes().released == 1


def test_nobody_waits_for_a_rejected_or_cancelled_job() -> None:
    """Of jobs 1 and 2, held at first, one is rejected and one cancelled at 4 s."""
    machine = system(
        5, [(1, 4), (2, 4)], options={"stop_at": StopConditions(arrivals=True)}, nodes=9
    )
    while not (point := machine.advance()).done:
        if point.time < 2:
            ids = machine.jobs.id[point.arrivals]
            machine.apply([Hold(ids, np.full(len(ids), np.inf))])
        if point.time == 4:
            machine.apply(
                [Reject(np.array([1]), np.array([np.inf]), ()), Cancel(np.array([2]), ("",))]
            )
    assert starts(machine) == [-1, -1, 2, 4, 4]
    assert machine.job_outcomes().released == 1


def test_nobody_waits_for_ever_for_a_held_job() -> None:
    """Job 1 is held and never released: when nothing else happens, 2 goes on, and 3 after it."""
    machine = system(
        4, [(1, 2), (2, 3)], options={"stop_at": StopConditions(arrivals=True)}, nodes=9
    )
    machine.advance()
    machine.apply([Hold(np.array([1]), np.array([np.inf]))])
    assert starts(machine) == [-1, 13, 23, 3]
    assert machine.job_outcomes().released == 1


def test_nobody_waits_for_a_lost_job() -> None:
    """The node dies under job 1 at 4 s; job 2 may then start."""
    down = [NodeEvent(4.0, 0, 2, math.nan)]
    machine = ExclusiveNodes(
        Jobs.build(2, id=[1, 2], submit=[0.0, 1.0], wall_time=[20.0, 20.0]),
        np.array([10.0, 10.0]),
        Cluster.uniform(2),
        ExclusiveSettings(requeue=False),
        edges=Edges.build(1, before=[1], after=[2]),
        node_events=down,
    )
    assert starts(machine) == [0, 4]


def test_a_held_task_leaves_its_place_in_the_array() -> None:
    """Task 1 waits for the node and is held until 30; the others run one after the other."""
    machine = system(
        5,
        array=[-1, 7, 7, 7, -1],
        array_limit=[0, 1, 1, 1, 0],
        nodes=1,
        options={"stop_at": StopConditions(arrivals=True)},
    )
    while not (point := machine.advance()).done:
        if point.time == 4:
            machine.apply([Hold(np.array([2]), np.array([25.0]))])
    assert starts(machine) == [0, 30, 10, 20, 40]


def test_snapshots_show_who_waits_for_others() -> None:
    """Waiting jobs are in the queue of a snapshot, as jobs with a begin time are."""
    machine = system(3, [(1, 3)], options={"stop_at": StopConditions(arrivals=True)})
    while not (point := machine.advance()).done:
        if point.time == 2:
            break
    machine.advance(0)
    assert machine.snapshot().queued.id.tolist() == [3]
    assert len(machine.snapshot().edges) == 1


def test_a_dependency_on_a_later_or_unknown_job_is_left_out() -> None:
    """Jobs that wait for each other would wait for ever; who is not there waits for nobody."""
    assert starts(system(3, [(3, 1), (1, 2)])) == [0, 10, 2]
    assert starts(system(3, [(9, 1), (1, 9)])) == [0, 1, 2]


def test_a_job_waits_for_one_of_the_same_second_with_a_greater_number() -> None:
    """Tasks of an array get numbers when they start; of jobs in a circle the first waits not."""
    now = np.zeros(3)
    assert starts(system(3, [(3, 1)], submit=now)) == [10, 0, 0]
    array = {"whole": True, "array": [-1, 2, 2]}
    assert starts(system(3, [(2, 1)], submit=now, **array)) == [10, 0, 0]
    assert starts(system(3, [(2, 1)], submit=[0.0, 0.0, 1.0], **array)) == [0, 0, 1]
    assert starts(system(3, [(1, 2), (2, 3), (3, 1)], submit=now)) == [0, 10, 20]
    assert starts(system(3, [(2, 2), (2, 3)], submit=now, **array)) == [0, 0, 0]


def test_jobs_on_shared_nodes_wait_too() -> None:
    """One node of 4 cores: the array's tasks of 1 core run two at a time."""
    nodes = Nodes.build(
        1, cores=np.array([4], np.int32), capacity=np.array([[4]]), names={"capacity": ("cpu",)}
    )
    for loop in LOOPS:
        jobs = Jobs.build(
            5,
            id=np.arange(5) + 1,
            submit=np.zeros(5),
            wall_time=np.full(5, 20.0),
            demand=np.ones((5, 1), np.int64),
            names={"demand": ("cpu",)},
            array=[3, 3, 3, -1, -1],
            array_limit=[2, 2, 2, 0, 0],
        )
        machine = ExclusiveNodes(
            jobs,
            np.full(5, 10.0),
            Cluster(nodes),
            ExclusiveSettings(loop=loop),
            edges=Edges.build(1, before=[3], after=[5]),
        )
        assert starts(machine) == [0, 0, 10, 0, 20]


# --- against the plain way ---


@dataclass
class Case:
    """Work with dependencies (rows before and after) and arrays of limited tasks."""

    work: list[Work]
    edges: list[tuple[int, int]]
    at_start: bool
    array: list[int]
    limit: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw few short jobs on few nodes, some of which wait for others."""
    small = st.integers(1, 9)
    rows = draw(
        st.lists(st.tuples(st.integers(0, 4), small, st.integers(0, 9), st.integers(1, NODES)),
                 min_size=2, max_size=14)
    )  # fmt: skip
    time, work = 0.0, []
    for gap, run, more, size in rows:
        time += gap
        work.append(Work(time, float(run), float(run + more), size))
    n = len(work)
    array = [draw(st.sampled_from([-1, -1, 50, 60])) for _ in range(n)]
    free = [row for row in range(n) if array[row] < 0]
    # Of jobs submitted at one instant any may be the first.
    tie = draw(st.permutations(range(n)))
    pairs = [
        (a, b)
        for a in range(n)
        for b in free
        if (work[a].submit, tie[a]) < (work[b].submit, tie[b])
    ]
    edges = draw(st.lists(st.sampled_from(pairs), max_size=8, unique=True)) if pairs else []
    return Case(work, edges, draw(st.booleans()), array, draw(st.integers(1, 3)))


def plain(case: Case, loop: str) -> list[float]:
    """Return when each job starts, worked out one event after the other."""
    work, n = case.work, len(case.work)
    start, queue = [math.nan] * n, list[int]()

    def end(row: int) -> float:
        return start[row] + min(work[row].run, work[row].wall)

    def may_come(row: int, now: float) -> bool:
        waits = [before for before, after in case.edges if after == row]
        if any(not (start[b] if case.at_start else end(b)) <= now for b in waits):
            return False
        active = [
            other
            for other in range(n)
            if case.array[row] >= 0 and case.array[other] == case.array[row]
            and (other in queue or end(other) > now)
        ]  # fmt: skip
        return len(active) < case.limit

    now = -1.0
    while any(math.isnan(value) for value in start):
        times = [job.submit for job in work] + [end(row) for row in range(n)]
        now = min(time for time in times if time > now)
        while True:
            for row in range(n):
                arrived = work[row].submit <= now and math.isnan(start[row])
                if arrived and row not in queue and may_come(row, now):
                    queue.append(row)
            queue.sort()
            running = [row for row in range(n) if start[row] <= now < end(row)]
            chosen = startable(work, NODES, loop, start, running, queue, now)
            for row in chosen:
                start[row] = now
                queue.remove(row)
            if not chosen:
                break
    return start


def built(case: Case, loop: str) -> ExclusiveNodes:
    """Return the system of a case."""
    n = len(case.work)
    return system(
        n,
        [(before + 1, after + 1) for before, after in case.edges],
        loop=loop,
        at_start=case.at_start,
        runs=[job.run for job in case.work],
        submit=[job.submit for job in case.work],
        wall_time=[job.wall for job in case.work],
        size=[job.size for job in case.work],
        array=case.array,
        array_limit=[case.limit * (array >= 0) for array in case.array],
    )


@pytest.mark.parametrize("loop", ["fcfs", "easy"])
@given(case=cases())
@settings(deadline=None)
def test_jobs_start_as_in_a_plain_simulation(loop: str, case: Case) -> None:
    """FCFS and EASY with gates, to the second."""
    origin = case.work[0].submit
    assert [start - origin for start in starts(built(case, loop))] == [
        start - origin for start in plain(case, loop)
    ]


@pytest.mark.parametrize("loop", ["conservative", "negotiator"])
@given(case=cases())
@settings(deadline=None)
def test_no_dependency_and_no_limit_is_broken(loop: str, case: Case) -> None:
    """Whatever the loop, all jobs run, in the order and number that was asked for."""
    start = starts(built(case, loop))
    end = [begun + min(job.run, job.wall) for begun, job in zip(start, case.work, strict=True)]
    assert min(start) >= 0
    for before, after in case.edges:
        assert start[after] >= (start if case.at_start else end)[before]
    for key in {50, 60}:
        tasks = [row for row, array in enumerate(case.array) if array == key]
        for row in tasks:
            assert sum(start[t] <= start[row] < end[t] for t in tasks) <= case.limit
