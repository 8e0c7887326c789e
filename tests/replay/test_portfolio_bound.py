"""Bounds that nobody beats, an exhaustive scheduler below them, the portfolio's study."""

import itertools
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workloads import workload_of

from rtsched.model.jobs import Jobs
from rtsched.model.log import FinalState
from rtsched.replay.engine import replay
from rtsched.replay.policies import presets
from rtsched.replay.settings import WorkloadOptions
from rtsched.replay.synth import PapersMcdf
from rtsched.replay.workload import prepare
from rtsched_plugins.kernels.admission import exec_of, rows_of
from rtsched_plugins.planning import tasks_of
from rtsched_reproductions.portfolio import (
    BOUND,
    IN_ROUNDS,
    PORTFOLIO,
    REJECTED,
    RUNS,
    WORK,
    Portfolio,
    least_rejected,
    most_value,
)

seeds = st.integers(0, 2**32)


def most_in_slots(
    arrival: list[int], deadline: list[int], work: list[int], nodes: int, chosen: tuple[int, ...]
) -> bool:
    """Return whether the chosen tasks' work fits, slot by slot, earliest deadline first."""
    left = dict(zip(chosen, (work[i] for i in chosen), strict=True))
    for t in range(max(deadline, default=0)):
        room = nodes
        for i in sorted(chosen, key=lambda i: deadline[i]):
            if arrival[i] <= t < deadline[i]:
                done = min(room, left[i])
                left[i] -= done
                room -= done
    return not any(left.values())


@settings(deadline=None, max_examples=60)
@given(seeds)
def test_bound_is_no_less_than_any_set_that_fits_as_fluid(seed: int) -> None:
    """Whole tasks, interrupted at will: the largest set and the most work are below the bound."""
    rng = np.random.default_rng(seed)
    n, nodes = int(rng.integers(1, 7)), int(rng.integers(1, 4))
    arrival = rng.integers(0, 6, n)
    deadline = arrival + rng.integers(1, 6, n)
    work = rng.integers(1, 9, n)
    given = arrival.tolist(), deadline.tolist(), work.tolist(), nodes
    fitting = [
        some
        for k in range(n + 1)
        for some in itertools.combinations(range(n), k)
        if most_in_slots(*given, some)
    ]
    columns = arrival.astype(float), deadline.astype(float), work.astype(float)
    tasks = most_value(*columns, np.ones(n), nodes)
    assert tasks >= max(map(len, fitting)) - 1e-9
    assert tasks <= n + 1e-9
    whole = most_value(*columns, work.astype(float), nodes)
    assert whole >= max(sum(work[list(some)]) for some in fitting) - 1e-9


def test_bound_by_hand() -> None:
    """One node for 4 s: of 3 + 2 node-seconds the small task and two thirds of the other."""
    columns = np.array([0.0, 0.0]), np.array([4.0, 4.0]), np.array([3.0, 2.0])
    assert most_value(*columns, np.ones(2), 1) == pytest.approx(1 + 2 / 3)
    assert most_value(*columns, np.ones(2), 2) == pytest.approx(2)
    assert most_value(*columns, columns[2], 1) == pytest.approx(4)
    half = np.array([0.0]), np.array([0.5]), np.array([1.0]), np.array([1.0])
    assert most_value(*half, 1) == pytest.approx(0.5)


def test_a_task_holds_nodes_for_its_longer_step_and_both_set_ups() -> None:
    """2 units, 3 s each to compute: with 1 + 0.5 s of set-up 7.5 node-seconds, of which 6 fit."""
    jobs = SimpleNamespace(
        sigma=np.array([2.0]),
        cms=np.array([1.0]),
        cps=np.array([3.0]),
        setup_link=np.array([1.0]),
        setup_node=np.array([0.5]),
        wall_time=np.array([9.0]),
        size=np.array([1]),
        submit=np.array([10.0]),
        deadline=np.array([16.0]),
    )
    assert least_rejected(jobs, 1) == pytest.approx((0.2, 0.2))


def small(seed: int, rounds: int) -> tuple[object, np.ndarray, np.ndarray, np.ndarray]:
    """Return a workload of five loads on three nodes: it, arrivals, deadlines, E(n) by n - 1."""
    log = PapersMcdf(jobs=5, nodes=3, seed=seed, preset="equal10", load=2.0).log()
    workload = prepare(log, WorkloadOptions())
    jobs = workload.jobs
    origin = float(jobs.submit.min())
    rows = rows_of(tasks_of(jobs, origin), 3, 1.0, rounds)
    times = np.array([[exec_of(rows, i, n) for n in (1, 2, 3)] for i in range(5)])
    return workload, jobs.submit - origin, jobs.deadline - origin, times


def most_tasks(arrival: np.ndarray, deadline: np.ndarray, times: np.ndarray) -> int:
    """Return how many tasks the best of all schedules ends in time, by trying them all.

    Tasks are started in every order, each at the first instant, not before the last start, at
    which as many nodes are free as it is given. Some best schedule is of this kind.
    """
    nodes, best = times.shape[1], 0

    def extend(left: frozenset[int], free: tuple[float, ...], last: float, done: int) -> None:
        nonlocal best
        best = max(best, done)
        if done + len(left) <= best:
            return
        for i, n in itertools.product(sorted(left), range(1, nodes + 1)):
            start = max(arrival[i], free[n - 1], last)
            end = start + times[i, n - 1]
            if end <= deadline[i] + 1e-6:
                extend(left - {i}, tuple(sorted((*free[n:], *(end,) * n))), start, done + 1)

    extend(frozenset(range(len(arrival))), (0.0,) * nodes, 0.0, 0)
    return best


@settings(deadline=None, max_examples=8)
@given(st.integers(0, 10_000), st.sampled_from([1, 8]))
def test_portfolio_best_schedule_and_bound_are_in_order(seed: int, rounds: int) -> None:
    """On five loads: what is admitted <= what the best schedule finishes <= the bound."""
    workload, arrival, deadline, times = small(seed, rounds)
    preset = presets()["portfolio"]
    table = msgspec.structs.replace(preset.plugin[0], settings={"rounds": rounds})
    run = replay(workload, "portfolio", msgspec.structs.replace(preset, plugin=[table]))
    finished = int(np.equal(run.results.fate, FinalState.FINISHED).sum())
    best = most_tasks(arrival, deadline, times)
    bound = 5 * (1.0 - least_rejected(workload.jobs, 3)[0])
    assert 1 <= finished <= best <= bound + 1e-9


@pytest.mark.parametrize(
    ("run", "measured", "value", "failing"),
    [
        (PORTFOLIO, REJECTED, 0.31, set()),
        (PORTFOLIO, REJECTED, 0.6, {"tasks than single", "tasks than in rounds"}),
        (PORTFOLIO, REJECTED, 0.4, {"tasks than in rounds"}),
        (PORTFOLIO, WORK, 0.6, {"work than single", "work than the least"}),
        (1, WORK, 0.2, {"work than the least"}),
        (IN_ROUNDS, REJECTED, 0.2, {"tasks than in rounds"}),
        (PORTFOLIO, REJECTED, 0.05, {"bound"}),
        (0, WORK, 0.05, {"bound", "work than the least", "work than single"}),
    ],
)
def test_one_row_decides(run: int | slice, measured: int, value: float, failing: set[str]) -> None:
    """A portfolio that rejects more than the best, or beats the bound, is found out."""
    study, extent = Portfolio(), Portfolio.reduced
    good = np.full((len(RUNS) + 1, 2), 0.5)
    good[0, REJECTED], good[IN_ROUNDS] = 0.49, 0.35
    good[PORTFOLIO], good[BOUND] = 0.3, 0.1
    bad = good.copy()
    bad[run, measured] = value
    claims = study.findings(extent, [good, bad, good]).claims
    names = ("tasks than single", "fewer", "work than single", "work than the least")
    names += ("tasks than in rounds", "bound")
    held = dict(zip(names, [claim.holds for claim in claims], strict=True))
    assert {name for name in names if not held[name]} == failing


@pytest.mark.parametrize(("ours", "fewer"), [(0.44, True), (0.46, False)])
def test_a_tenth_fewer_tasks_on_average(ours: float, fewer: bool) -> None:
    """Of those that the best single policy rejects, half of all."""
    study, extent = Portfolio(), Portfolio.reduced
    row = np.full((len(RUNS) + 1, 2), 0.5)
    row[PORTFOLIO] = ours
    assert study.findings(extent, [row] * extent.rows).claims[1].holds == fewer


def test_parts_depend_on_their_parameters() -> None:
    """Another seed gives other numbers; every number is a ratio."""
    small_study = msgspec.structs.replace(Portfolio.reduced, jobs=100, rows=1)
    (part,) = Portfolio().parts(small_study)
    (other,) = Portfolio().parts(msgspec.structs.replace(small_study, first_seed=1001))
    one, two = part.run(), other.run()
    assert one.shape == (len(RUNS) + 1, 2)
    assert not np.array_equal(one, two)
    assert ((one >= -1e-12) & (one <= 1)).all()
    assert len(Portfolio().parts(Portfolio.full)) == 3 * (14 + 4 + 6 * 4)  # rows, set-ups, cms:cps


sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))


@pytest.mark.parametrize(
    ("nodes", "size", "deadline", "most"),
    [
        (1, [1, 1, 1, 1], [100, 150, 1000, 115], 3),  # the second does not fit behind the first
        (1, [1, 1, 1, 1], [200, 200, 260, 270], 4),
        (1, [1, 1, 1, 1], [99, 99, 59, 29], 0),  # none could on an idle machine
        (3, [2, 2, 1, 1], [100, 150, 60, 60], 3),  # of the first two one
        (4, [2, 2, 1, 1], [100, 100, 1000, 1000], 4),
    ],
)
def test_the_most_jobs_that_can_end_in_time(
    nodes: int, size: list[int], deadline: list[float], most: int
) -> None:
    """Jobs of 100, 100, 50 and 10 s, submitted at 0, 0, 10 and 20 s."""
    from offline_optimum import optimum

    jobs = Jobs.build(
        4,
        id=[1, 2, 3, 4],
        submit=[0.0, 0.0, 10.0, 20.0],
        size=size,
        wall_time=[100.0, 100.0, 50.0, 10.0],
        deadline=np.array(deadline, np.float64),
    )
    assert optimum(workload_of(jobs, jobs.wall_time, nodes)) == most
