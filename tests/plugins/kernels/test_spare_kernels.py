"""Spare capability: the kernels against hand-worked values, plain EDF and exhaustive search."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtsched.kernels import edf
from rtsched.model.table import Ragged
from rtsched_plugins.kernels import spare
from rtsched_plugins.kernels.gaps import Rigid, find, nodes_at
from rtsched_plugins.kernels.resource_plan import left_beside
from rtsched_plugins.kernels.spare import PeriodicNodes, choose_node
from rtsched_reproductions import spare as paper
from rtsched_reproductions.spare import SILENT, Task, admit_jobs, machines_of
from rtsched_reproductions.spare import Job as GraphJob

Job = tuple[int, int, int, int]


def periodic_set(jobs: list[Job]) -> paper.PeriodicSet:
    """Return periodic jobs (C, T, d, phase) for the off-line functions."""
    return paper.PeriodicSet(*np.array(jobs, np.int64).reshape(-1, 4).T)


def node_of(jobs: list[Job], tasks: int = 8) -> edf.Work:
    """Return the work of one node with periodic jobs."""
    return machines_of([periodic_set(jobs)], tasks)


def finish(work: edf.Work, now: int, ready: int, cost: int, latest: int = edf.NEVER) -> int:
    """Return the earliest finish of a task on node 0."""
    hyper, used = edf.hyperperiods(work)
    return int(spare.earliest_finish(work, 0, now, ready, cost, latest, hyper[0], used[0]))


def plain_edf(jobs: list[Job], tasks: list[tuple[int, int, int]], until: int) -> list[int] | None:
    """Run slot by slot, earliest deadline first; return the tasks' ends, None if one is missed.

    `tasks` are (release, deadline, cost).
    """
    work = [[p + j * t, p + j * t + d, c] for c, t, d, p in jobs for j in range(until // t + 1)]
    ends = [-1] * len(tasks)
    work += [list(task) for task in tasks]
    for slot in range(until):
        open_now = [k for k, (release, _, left) in enumerate(work) if release <= slot and left > 0]
        if not open_now:
            continue
        chosen = min(open_now, key=lambda k: (work[k][1], k))
        work[chosen][2] -= 1
        if work[chosen][2] == 0:
            if slot + 1 > work[chosen][1]:
                return None
            if chosen >= len(work) - len(tasks):
                ends[chosen - len(work) + len(tasks)] = slot + 1
    late = any(left > 0 and due <= until for _, due, left in work)
    return None if late else ends


@st.composite
def feasible_sets(draw: Any, phases: bool = True) -> list[Job]:
    """Return up to three periodic jobs of one node that plain EDF can do."""
    jobs = []
    for _ in range(draw(st.integers(0, 3))):
        period = draw(st.sampled_from([2, 3, 4, 6, 8, 12]))
        cost = draw(st.integers(1, max(1, period // 2)))
        due = draw(st.integers(cost, period))
        phase = draw(st.integers(0, 5)) if phases else 0
        jobs.append((cost, period, due, phase))
    while jobs and plain_edf(jobs, [], 60) is None:
        jobs.pop()
    return jobs


def test_worked_values() -> None:
    """Jobs (2, 5) and (3, 10): P, S at and behind a deadline, and two finish times."""
    jobs = periodic_set([(2, 5, 5, 0), (3, 10, 10, 0)])
    assert paper.demand(jobs, np.array([5, 10])).tolist() == [2, 7]
    assert paper.spare(jobs, np.array([1, 10, 11, 20])).tolist() == [3, 3, 6, 6]
    work = node_of([(2, 5, 5, 0), (3, 10, 10, 0)])
    assert [finish(work, 0, 0, 4), finish(work, 0, 0, 3)] == [11, 3]


def test_pieces_of_a_task_are_logged() -> None:
    """Beside a job (1, 2), task 3 of two slots runs in slots 1 and 3."""
    work, log = node_of([(1, 2, 2, 0)]), np.full((4, 3), -1)
    edf.reserve(work, 0, 3, 0, 8, 2)
    assert edf.run(work, 0, 0, 10, True, log) == (4, 3, 2)
    assert log.tolist() == [[3, 1, 2], [3, 3, 4], [-1, -1, -1], [-1, -1, -1]]


def test_printed_form_is_too_large() -> None:
    """The smallest example: at t = 4 a later deadline leaves 1 slot where the next ones leave 2."""
    jobs = [(2, 3, 3, 0), (2, 8, 8, 0)]
    at = np.array([4])
    assert paper.spare_literal(periodic_set(jobs), at).tolist() == [2]
    assert paper.spare(periodic_set(jobs), at).tolist() == [1]
    assert finish(node_of(jobs), 0, 0, 2) == 10
    assert plain_edf(jobs, [(0, 4, 2)], 48) is None


@given(feasible_sets(phases=False), st.integers(1, 40))
def test_exact_form_never_exceeds_the_printed_one_and_never_falls(jobs: list[Job], at: int) -> None:
    """S(t) is a suffix minimum: at most the printed form, and it does not fall in t."""
    if not jobs:
        return
    times = np.arange(at, at + 30)
    exact = paper.spare(periodic_set(jobs), times)
    assert (exact <= paper.spare_literal(periodic_set(jobs), times)).all()
    assert (np.diff(exact) >= 0).all()


@given(feasible_sets(), st.lists(st.tuples(st.integers(0, 6), st.integers(1, 4)), max_size=3))
@settings(max_examples=60, deadline=None)
def test_finish_is_that_of_an_exhaustive_search(
    jobs: list[Job], tasks: list[tuple[int, int]]
) -> None:
    """Each task gets the least deadline that slot-by-slot EDF keeps, and ends exactly there."""
    work, now, kept = node_of(jobs), 0, []
    for row, (gap, cost) in enumerate(tasks):
        edf.run(work, 0, now, now + gap, False, SILENT)
        now += gap
        found = finish(work, now, now, cost)
        tried = range(now + cost, now + cost + 40)
        least = next((f for f in tried if plain_edf(jobs, [*kept, (now, f, cost)], 140)), None)
        if least is None:
            assert found > tried[-1]
            return
        assert found == least
        free = paper.spare_from(work, 0, now, np.arange(now, now + 60))
        assert (np.diff(free) >= 0).all()
        assert free.min() >= 0
        assert np.flatnonzero(free >= cost)[0] + now == least
        edf.reserve(work, 0, row, now, found, cost)
        kept.append((now, found, cost))
    assert plain_edf(jobs, kept, 140) == [end for _, end, _ in kept]
    edf.run(work, 0, now, 200, False, SILENT)
    assert work.missed.tolist() == [0]


@given(
    feasible_sets(),
    st.lists(st.tuples(st.integers(0, 12), st.integers(1, 4)), min_size=1, max_size=4),
)
@settings(max_examples=60, deadline=None)
def test_reservations_in_the_future_are_found_by_the_same_search(
    jobs: list[Job], tasks: list[tuple[int, int]]
) -> None:
    """Tasks that are ready later, in any order, end as early as any feasible deadline allows."""
    work, kept = node_of(jobs), []
    before = [column.copy() for column in work]
    for row, (ready, cost) in enumerate(tasks):
        found = finish(work, 0, ready, cost)
        tried = range(ready + cost, ready + cost + 40)
        least = next((f for f in tried if plain_edf(jobs, [*kept, (ready, f, cost)], 140)), None)
        if least is None:
            assert found > tried[-1]
            return
        assert found == least
        edf.reserve(work, 0, row, ready, found, cost)
        kept.append((ready, found, cost))
    for row in range(len(kept)):
        edf.withdraw(work, 0, row)
    for name, was, column in zip(work._fields, before, work, strict=True):
        if name not in {"release", "deadline", "left", "after"}:
            assert column.tolist() == was.tolist(), name


def test_a_full_node_takes_no_task() -> None:
    """Where periodic work takes every slot there is no finish, however late."""
    assert finish(node_of([(1, 2, 2, 0), (1, 2, 2, 0)]), 0, 0, 1) == edf.NEVER
    assert edf.hyperperiods(node_of([(1, 3, 3, 0), (2, 3, 3, 0)]))[1].tolist() == [1.0]


def test_a_limit_only_cuts_off() -> None:
    """With a latest finish the answer is the same or none."""
    work = node_of([(2, 5, 5, 0), (3, 10, 10, 0)])
    assert [finish(work, 0, 0, 4, latest) for latest in (10, 11, 12)] == [edf.NEVER, 11, 11]


def two_nodes() -> PeriodicNodes:
    """Return a node with (1, 2) and an empty one."""
    work = machines_of([periodic_set([(1, 2, 2, 0)]), periodic_set([])], 4)
    return PeriodicNodes(0, work, *edf.hyperperiods(work))


@pytest.mark.parametrize(
    ("last", "deadline", "expected"),
    [(False, 10, (0, 3)), (True, 10, (1, 4)), (True, 3, (0, 3)), (False, 2, (-1, 3))],
)
def test_selection(last: bool, deadline: int, expected: tuple[int, int]) -> None:
    """Response-first ends at 3 on node 0, utilisation-first at 4 on node 1 if that is in time."""
    ready, costs = np.zeros(2, np.int64), np.array([2, 4])
    node, end, late = choose_node(two_nodes(), ready, costs, deadline, last, True)
    assert (node, end if node >= 0 else late) == expected


@given(st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=25, deadline=None)
def test_no_deadline_is_missed_and_rejections_leave_no_trace(random: Any, last: bool) -> None:
    """Graphs come while the nodes run: nothing is late, tasks end when reserved or before."""
    sets = [periodic_set(jobs) for jobs in ([(1, 3, 3, 0), (2, 8, 7, 1)], [(3, 6, 6, 0)], [])]
    jobs = [_random_graph(random, key) for key in range(8)]
    course = admit_jobs(sets, jobs, 200, last)
    assert course.missed == 0
    accepted = [said for said in course.outcomes if said.places]
    again = admit_jobs(sets, [said.job for said in accepted], 200, last)
    assert list(again.outcomes) == accepted


def _random_graph(random: Any, key: int) -> GraphJob:
    tasks = []
    for task in range(random.randint(1, 4)):
        before = random.sample(range(task), min(task, random.randint(0, 2)))
        pairs = tuple((other, random.randint(0, 3)) for other in before)
        tasks.append(Task(task, tuple(random.randint(1, 4) for _ in range(3)), pairs))
    arrival = 5 * key + random.randint(0, 4)
    return GraphJob(key, arrival, arrival + random.randint(4, 25), tuple(tasks))


def brute_start(busy: list[list[tuple[int, int]]], wall: int, count: int) -> int:
    """Return the earliest whole start at which `count` nodes are free for `wall`."""
    for start in range(200):
        free = [all(e <= start or s >= start + wall for s, e in node) for node in busy]
        if sum(free) >= count:
            return start
    raise AssertionError("every node is free in the end")


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 20), st.integers(1, 6)), max_size=4),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 7),
    st.integers(1, 4),
)
@settings(max_examples=60, deadline=None)
def test_gaps_are_those_of_a_search(
    lists: list[list[tuple[int, int]]], wall: int, count: int
) -> None:
    """The first common gap of equal nodes is found, and the nodes given are free in it."""
    busy = []
    for intervals in lists:
        node: list[tuple[int, int]] = []
        for start, length in sorted(intervals):
            begin = max(start, node[-1][1] if node else 0)
            node.append((begin, begin + length))
        busy.append(node)
    if count > len(busy):
        return
    flat = [interval for node in busy for interval in node]
    starts = np.array([s for s, _ in flat], np.float64)
    ends = np.array([e for _, e in flat], np.float64)
    m, one = len(busy), np.ones((len(flat), 1), np.int64)
    where = Ragged.of([[k] for k, node in enumerate(busy) for _ in node])
    table = left_beside(np.ones((m, 1), np.int64), starts, ends, where, one, 0.0, 0)
    job = Rigid(np.ones((1, 1), np.int64), np.zeros(m), np.ones(m), float(wall), count, np.inf)
    first = brute_start(busy, wall, count)
    for last in (False, True):
        found = find(table, job, last)
        nodes = nodes_at(table, job, found)
        for node in nodes.tolist():
            begin, end = found.start, found.end
            assert all(e <= begin or s >= end for s, e in busy[node])
        assert len(set(nodes.tolist())) == count
        assert found.start == first if not last else found.start >= first
