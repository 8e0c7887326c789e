"""Replays of parallel job streams on the machines of the delay-class paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from rtsched.core.chain import Chain
from rtsched.model.jobs import Edges, Jobs, Kind
from rtsched.model.log import Outcomes, Skipped
from rtsched.model.snapshot import Accounts
from rtsched.replay.engine import Replay
from rtsched.replay.policies import presets
from rtsched.replay.results import Workload
from rtsched_reproductions.sed_states import machines

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from rtsched.kernels.delays import MigrationCost

SYSTEMS: dict[int, list[float]] = {
    1: [1.0] * 5 + [4.0] * 25,
    2: [1.0] * 20 + [4.0] * 10,
}
"""Slowness of the machines of each system."""
DEMAND, LEAST, MOST = 6000.0, 3, 30
"""Seconds of work of each job, fewest and most processes."""


class Courses(NamedTuple):
    """What became of `n` jobs, row by row."""

    arrival: NDArray[np.float64]
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    size: NDArray[np.int32]
    """Processes."""
    upgraded: NDArray[np.bool_]
    migrated: NDArray[np.bool_]


def stream(
    speed_factors: list[float],
    arrival: ArrayLike,
    demand: ArrayLike = DEMAND,
    least: ArrayLike = LEAST,
    most: ArrayLike = MOST,
    job_id: ArrayLike | None = None,
) -> Workload:
    """Return a stream of moldable jobs as a workload.

    Parameters
    ----------
    speed_factors : list of float
        Slowness of each machine.
    arrival, demand : float64[n]
        Seconds; the demand is that of one process on a machine of slowness 1.
    least, most : int[n]
        Processes.
    job_id : int[n], optional
        0, 1, 2, ... if left out.
    """
    submit = np.asarray(arrival, np.float64)
    n = len(submit)
    widest = np.broadcast_to(np.asarray(most, np.int32), n)
    wall = np.broadcast_to(np.asarray(demand, np.float64), n) / widest
    jobs = Jobs.build(
        n,
        id=np.arange(n) if job_id is None else job_id,
        submit=submit,
        kind=Kind.MOLDABLE,
        size=widest,
        size_min=np.asarray(least, np.int32),
        size_max=widest,
        wall_time=wall,
    )
    order = np.lexsort((jobs.id, jobs.submit))
    nobody, nothing = Accounts.build(0), Edges.build(0)
    cluster, outcomes = machines(speed_factors), Outcomes.build(n)
    table, took = jobs.take(order), wall[order]
    return Workload(table, took, outcomes, cluster, nobody, nothing, (), Skipped())


def run(workload: Workload, variant: str, cost: MigrationCost = "serial") -> Any:
    """Replay a workload under a variant (`SED`, `SED-NU`, `SED-NM`); return the machine after it.

    Raises
    ------
    RuntimeError
        If the plug-in failed.
    """
    policy = presets()[variant.lower()]
    system = msgspec.structs.replace(policy.system, migration_cost=cost)
    policy = msgspec.structs.replace(policy, system=system)
    chain = Chain.load(policy.plugin)
    replayed = Replay(variant, workload, chain, policy, record_nodes=False)
    replayed.run()
    failed = [use.first_error for hook in chain.hook_metrics.values() for use in hook.values()]
    if any(failed):
        raise RuntimeError("; ".join(filter(None, failed)))
    return replayed.system


def courses(
    system: int, arrival: ArrayLike, variant: str, cost: MigrationCost = "serial"
) -> Courses:
    """Return what becomes of jobs of the paper's kind that arrive at these instants."""
    workload = stream(SYSTEMS[system], arrival)
    machine = run(workload, variant, cost)
    course = machine.job_outcomes()
    upgraded, migrated = machine.upgrades > 0, machine.migrations > 0
    return Courses(workload.jobs.submit, course.start, course.end, course.size, upgraded, migrated)


def means(
    system: int, variant: str, rate: float, jobs: int, seed: int, cost: MigrationCost = "serial"
) -> NDArray[np.float64]:
    """Return what jobs of a Poisson stream of `rate` jobs per 1000 s get on average.

    Equal seeds give every variant and rate the same gaps, in proportion.

    Returns
    -------
    float64[7]
        Residence, wait and computing, seconds; shares of jobs that were upgraded and migrated, and
        of the processes of all jobs those of these jobs.
    """
    gaps = np.random.default_rng(seed).exponential(size=jobs)
    found = courses(system, np.cumsum(gaps) * 1000.0 / rate, variant, cost)
    return np.array(
        [
            np.mean(found.end - found.arrival),
            np.mean(found.start - found.arrival),
            np.mean(found.end - found.start),
            np.mean(found.upgraded),
            np.mean(found.migrated),
            np.average(found.upgraded, weights=found.size),
            np.average(found.migrated, weights=found.size),
        ]
    )


def saturated(system: int, variant: str, jobs: int, idle_first: bool) -> NDArray[np.float64]:
    """Return mean computing time and throughput (jobs per 1000 s) while jobs always wait.

    `idle_first`: two jobs come to the idle machines, and the others after 400 s, when one of the
    two has ended; else all come at once. The first and the last fifth of the ends are left out.
    """
    arrival = np.zeros(jobs)
    if idle_first:
        arrival[2:] = 400.0
    found = courses(system, arrival, variant)
    order = np.argsort(found.end, kind="stable")[jobs // 5 : -jobs // 5]
    ends = found.end[order]
    throughput = 1000.0 * (len(ends) - 1) / (ends[-1] - ends[0])
    return np.array([np.mean((found.end - found.start)[order]), throughput])


def ends_of_two(system: int, variant: str) -> NDArray[np.float64]:
    """Return when two jobs end that arrive together at idle machines, and when one alone does."""
    both = courses(system, [0.0, 0.0], variant).end
    return np.array([*both, *courses(system, [0.0], variant).end])
