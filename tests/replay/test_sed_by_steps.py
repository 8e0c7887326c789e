"""Replays of sed agree with a plain time-stepped simulation, and never slow a running job."""

from __future__ import annotations

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

from rtsched.core.chain import Chain
from rtsched.kernels.delays import slowest
from rtsched.replay.engine import Replay
from rtsched.replay.policies import presets
from rtsched_reproductions.sed_states import VARIANTS

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
    assert service is not None
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
