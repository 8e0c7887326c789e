"""Planners on nodes that jobs share admit nearly all that exact admission does."""

import sys
from itertools import combinations, product
from pathlib import Path
from types import ModuleType

import pytest
from exact_admission import Entry, Job, Search, admissions
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))


@pytest.fixture(scope="module")
def acceptance() -> ModuleType:
    """Return the benchmark."""
    import acceptance

    return acceptance


def rigid(deadline: int, seconds: int, cores: int, nodes: int = 1) -> Job:
    """Return a job that comes at 0."""
    return Job(0, deadline, (cores,), ((nodes, seconds),))


def test_the_search_starts_jobs_at_ends_of_others() -> None:
    """One job runs on two of four cores until 2 s; then job 0 needs all four until 5 s."""
    # Only then may the others come, side by side until 9 s.
    jobs = [rigid(5, 3, 4), rigid(9, 4, 2), rigid(9, 4, 2), rigid(99, 2, 2)]
    held = [Entry(3, 0, 2, (0,))]
    found = Search(jobs, [(4,)]).schedule(0, held, [0, 1, 2])
    assert found is not None
    assert {entry.job: entry.start for entry in found} == {0: 2, 1: 5, 2: 5}
    assert Search([*jobs[:2], rigid(8, 4, 2), jobs[3]], [(4,)]).schedule(0, held, [0, 1, 2]) is None


def test_exact_admission_plans_those_that_wait_anew() -> None:
    """Job 2, due at 4 s, comes before job 1; both wait for job 0, which runs until 2 s."""
    # There is no room for job 3 until 9 s; job 4 runs beside job 0.
    jobs = [
        rigid(2, 2, 3),
        Job(1, 9, (4,), ((1, 5),)),
        Job(1, 4, (4,), ((1, 2),)),
        Job(1, 9, (4,), ((1, 1),)),
        Job(1, 2, (1,), ((1, 1),)),
    ]
    assert admissions(jobs, [(4,)]) == [True, True, True, False, True]


def test_a_moldable_job_runs_in_one_of_its_shapes() -> None:
    """On two nodes, 3 s each, it is in time; on one it is not, nor if one of them is in use."""
    job = Job(0, 4, (2,), ((1, 6), (2, 3)))
    found = Search([job], [(2,), (2,)]).schedule(0, [], [0])
    assert found == [Entry(0, 0, 3, (0, 1))]
    held = [Entry(1, 0, 2, (1,))]
    assert Search([job, rigid(9, 2, 1)], [(2,), (2,)]).schedule(0, held, [0]) is None


AMOUNTS = st.tuples(st.integers(1, 3), st.integers(1, 2))
DEMANDS = st.tuples(st.integers(1, 2), st.integers(0, 1))
SHAPES = (((1, 1),), ((1, 2),), ((1, 3),), ((2, 2),), ((1, 2), (2, 1)))


def possible(jobs: list[Job], capacity: list[tuple[int, ...]], held: list[Entry]) -> bool:
    """Return whether there is a schedule from 1 s on, by all starts, shapes and nodes.

    The first jobs of the list run.
    """
    ways = [
        [
            Entry(k, start, start + seconds, nodes)
            for count, seconds in job.shapes
            for start in range(1, job.deadline - seconds + 1)
            for nodes in combinations(range(len(capacity)), count)
        ]
        for k, job in enumerate(jobs)
        if k >= len(held)
    ]

    def fits(entries: list[Entry]) -> bool:
        return all(
            sum(jobs[e.job].demand[k] for e in entries if node in e.nodes and e.start <= t < e.end)
            <= amount
            for t in range(1, max((e.end for e in entries), default=0))
            for node, amounts in enumerate(capacity)
            for k, amount in enumerate(amounts)
        )

    return any(fits([*held, *chosen]) for chosen in product(*ways))


@st.composite
def states(draw: st.DrawFn) -> tuple[list[Job], list[tuple[int, ...]], list[Entry]]:
    """Draw nodes, at most one job that runs, and three that wait."""
    capacity = draw(st.lists(AMOUNTS, min_size=1, max_size=2))
    held, jobs = [], []
    if draw(st.booleans()):
        node, end = draw(st.integers(0, len(capacity) - 1)), draw(st.integers(2, 4))
        taken = tuple(map(min, draw(DEMANDS), capacity[node]))
        held.append(Entry(0, 0, end, (node,)))
        jobs.append(Job(0, end, taken, ((1, end),)))
    for _ in range(3):
        shapes, due = draw(st.sampled_from(SHAPES)), draw(st.integers(2, 6))
        jobs.append(Job(0, due, draw(DEMANDS), shapes))
    return jobs, capacity, held


@given(state=states())
@settings(max_examples=200)
def test_the_search_finds_a_schedule_if_there_is_one(
    state: tuple[list[Job], list[tuple[int, ...]], list[Entry]],
) -> None:
    """As all starts to the second, all shapes and nodes; what it finds is a schedule."""
    jobs, capacity, held = state
    waiting = range(len(held), len(jobs))
    found = Search(jobs, capacity).schedule(1, held, waiting)
    assert (found is not None) == possible(jobs, capacity, held)
    if found is not None:
        assert sorted(entry.job for entry in found) == list(waiting)
        for job, start, end, nodes in found:
            assert 1 <= start < end <= jobs[job].deadline
            assert (len(nodes), end - start) in jobs[job].shapes
        assert possible(jobs, capacity, sorted([*held, *found]))


@pytest.mark.parametrize("load", ["light", "tight", "overloaded", "burst"])
def test_planners_lose_little_against_exact_admission(acceptance: ModuleType, load: str) -> None:
    """They admit at least 95 % of what the search does by its own decisions."""
    # And at least 95 % of the jobs that can be kept beside what they promised themselves.
    for kind in acceptance.KINDS:
        for policy, tally in acceptance.compared(load, kind, acceptance.POLICIES, 20).items():
            assert tally.questions == 140
            assert tally.exact < 140, "instances without a refusal say nothing"
            assert tally.wrong == 0, policy
            assert tally.admitted >= 0.95 * tally.exact, policy
            assert tally.admitted >= 0.95 * (tally.admitted + tally.feasible), policy
