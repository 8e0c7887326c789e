"""Lay out the arrays of a pool of exclusive nodes for one workload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.errors import ShapeError
from rtsched.kernels import pool as kernel
from rtsched.kernels.hooks import JobColumns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rtsched.adapters.simulated.interface import Asks, NodeEvent, Settled, SystemSettings
    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Jobs

LOOPS = {
    "fcfs": kernel.FCFS,
    "easy": kernel.EASY,
    "conservative": kernel.CONSERVATIVE,
    "serial": kernel.SERIAL,
}


def zeros(n: int, kind: np.dtype[Any]) -> NDArray[Any]:
    """Return `n` records of a kind, at least one; memory is used as rows are touched."""
    return np.zeros(max(n, 1), kind)


def lay_out(
    jobs: Jobs,
    run_time: NDArray[np.float64],
    cluster: Cluster,
    settings: SystemSettings,
    asks: Asks,
    settled: Settled,
    node_events: Sequence[NodeEvent],
    origin: float,
) -> kernel.Pool:
    """Return the pool before its first instant.

    Raises
    ------
    ShapeError
        If arrays differ in length or jobs are not in order of (submit, id).
    """
    n, m = len(jobs), len(cluster)
    if run_time.shape != (n,):
        raise ShapeError(f"{n} jobs with run times {run_time.shape}")
    late = np.diff(jobs.submit) < 0
    if late.any() or (np.diff(jobs.id)[np.diff(jobs.submit) == 0] <= 0).any():
        raise ShapeError("jobs must be in order of (submit, id)")
    words = -(-m // 32)
    pool = kernel.Pool(
        state=zeros(1, kernel.STATE),
        jobs=np.zeros(n, kernel.JOB),
        more=zeros(n if _extended(jobs, settings, settled, node_events) else 1, kernel.MORE),
        queue=zeros(n + 1, kernel.SLOT),
        blocks=zeros(n // 64 + 1, kernel.TIMED),
        nodes=zeros(m, kernel.NODE),
        words=np.zeros(words, np.int64),
        top=np.zeros(-(-words // 32), np.int64),
        ends=zeros(m + 1, kernel.TIMED),
        running=zeros(m + 1, kernel.TIMED),
        sleepers=zeros(n + 1, kernel.TIMED),
        again=np.zeros(n, np.int64),
        asked=np.zeros(n, np.int64),
        node_events=np.zeros(0, kernel.TIMED),
        events=np.zeros(0, kernel.EVENT),
        log_nodes=np.zeros(0, np.int32),
        log_at=np.zeros(0, np.int64),
        plan=np.zeros(0, kernel.PLANNED_START),
        plan_nodes=np.zeros(0, np.int32),
        span_of=np.zeros(m + 1, np.int64),
        spans=np.zeros(0, kernel.SPAN),
        group_of=np.zeros(1, np.int64),
        group_nodes=np.zeros(0, np.int32),
        profile=zeros(2 * (n + m) + 8 if settings.loop == "conservative" else 1, kernel.TIMED),
        rows=np.zeros(n, np.int64),
        values=np.zeros(n, np.float64),
        picks=np.zeros(m, np.int64),
    )
    _fill_jobs(pool, jobs, run_time, settings, settled, origin)
    _fill_nodes(pool, cluster)
    _fill_state(pool, settings, asks, settled)
    return pool


def _extended(
    jobs: Jobs, settings: SystemSettings, settled: Settled, node_events: Sequence[NodeEvent]
) -> bool:
    """Return whether a run needs the further columns of each job."""
    return bool(
        settings.order != "arrival"
        or settled.placement is not None
        or len(node_events)
        or (len(jobs) and (jobs.begin > jobs.submit).any())
    )


def _fill_jobs(
    pool: kernel.Pool,
    jobs: Jobs,
    run_time: NDArray[np.float64],
    settings: SystemSettings,
    settled: Settled,
    origin: float,
) -> None:
    table, more = pool.jobs, pool.more
    table["submit"] = jobs.submit - origin
    table["run"] = run_time
    table["wall"] = jobs.wall_time
    table["size"] = jobs.size
    table["start"] = table["end"] = np.nan
    table["first"] = -1
    if settled.reject is not None:
        table["status"][settled.reject] = kernel.REJECTED
    if len(more) == len(jobs):
        more["begin"] = jobs.begin - origin
        more["group"] = -1
        if settings.order == "deadline":
            more["key"] = jobs.deadline
        elif settings.order == "priority" and settled.priority is not None:
            more["key"] = -settled.priority


def _fill_nodes(pool: kernel.Pool, cluster: Cluster) -> None:
    nodes, m = pool.nodes, len(cluster)
    nodes["row"] = nodes["next"] = -1
    nodes["speed"][:m] = cluster.nodes.speed
    nodes["state"][:m] = cluster.nodes.state
    usable = np.flatnonzero(cluster.usable)
    np.bitwise_or.at(pool.words, usable >> 5, np.int64(1) << (usable & 31))
    filled = np.flatnonzero(pool.words)
    np.bitwise_or.at(pool.top, filled >> 5, np.int64(1) << (filled & 31))
    pool.state[0].free = len(usable)
    pool.state[0].uneven = int((cluster.nodes.speed != 1.0).any())


def _fill_state(
    pool: kernel.Pool, settings: SystemSettings, asks: Asks, settled: Settled
) -> None:
    state = pool.state[0]
    state.loop = LOOPS[settings.loop]
    state.depth = settings.depth
    state.by_key = settings.order != "arrival"
    state.extended = len(pool.more) == len(pool.jobs)
    state.requeue = settings.requeue
    state.keeps_shadow = settings.loop in {"easy", "conservative"}
    state.now = -np.inf
    state.next_reserved = np.inf
    state.pause_at = len(pool.jobs) + 1
    state.ask_arrivals, state.ask_passes = asks.arrivals, asks.passes
    state.ask_early, state.ask_nodes = asks.early_ends, asks.nodes


def columns_of(jobs: Jobs, origin: float) -> JobColumns:
    """Return what compiled hooks see of the jobs, times relative to the origin."""
    return JobColumns(
        submit=jobs.submit - origin,
        wall_time=jobs.wall_time,
        deadline=jobs.deadline - origin,
        nice=jobs.nice,
        size=jobs.size,
        association=jobs.association,
        partition=jobs.partition,
        qos=jobs.qos,
    )
