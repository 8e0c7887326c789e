"""A plan laid out for the event loop: what starts when, and what each node is reserved for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.errors import ShapeError
from rtsched.kernels import pool as kernel
from rtsched.model.jobs import Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.jobs import Jobs
    from rtsched.model.schedule import Schedule


def planned_times(
    jobs: Jobs, run_time: NDArray[np.float64], plan: Schedule
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how long each planned job runs, and for how long it holds its nodes at most.

    Parameters
    ----------
    jobs : Jobs
        The planned jobs, row by row with the plan.
    run_time : float64[k]
        Their run times at `jobs.size`.
    plan : Schedule
        Start, end and nodes. A divisible job runs as long as its plan says; a rigid one as long as
        it does, a moldable one by that and its size, both at most until its planned end.
    """
    entries = plan.entries
    span = entries.end - entries.start
    factor = jobs.size / np.maximum(entries.size, 1)
    own = jobs.wall_time * factor
    # A planned end is rounded to the clock's resolution: a job's own limit stands where it can.
    wall = np.where(np.isclose(own, span, rtol=1e-9, atol=1e-5), own, span)
    divisible = jobs.kind == Kind.DIVISIBLE
    wall = np.where(divisible, span, wall)
    return np.where(divisible, span, run_time * factor), wall


def lay_out_plan(
    pool: kernel.Pool,
    rows: NDArray[np.int64],
    plan: Schedule,
    jobs: Jobs,
    run_time: NDArray[np.float64],
    origin: float,
) -> tuple[kernel.Pool, NDArray[np.int64]]:
    """Return the pool with a new plan, and the order in which the plan's entries stand in it.

    Parameters
    ----------
    pool : Pool
        Its nodes' next reservations are set anew.
    rows : int64[k]
        Rows of the planned jobs, row by row with `plan`.
    jobs : Jobs
        The planned jobs.
    run_time : float64[k]
        Their run times at `jobs.size`, seconds.
    origin : float
        The pool's time 0, seconds since the epoch.

    Raises
    ------
    ShapeError
        If an entry has no node, or one that does not exist.
    """
    sizes = np.diff(plan.indptr)
    m = len(pool.picks)
    if (sizes < 1).any() or (len(plan.nodes) and not 0 <= plan.nodes.min() <= plan.nodes.max() < m):
        raise ShapeError("the plan has an entry without nodes, or a node that does not exist")
    run, wall = planned_times(jobs, run_time, plan)
    start = plan.entries.start - origin
    order = np.lexsort((rows, start))
    table = np.zeros(len(rows), kernel.PLANNED_START)
    table["start"], table["run"], table["wall"] = start[order], run[order], wall[order]
    table["at"], table["width"], table["row"] = plan.indptr[:-1][order], sizes[order], rows[order]

    entry = np.repeat(np.arange(len(rows)), sizes)
    place = np.lexsort((rows[entry], start[entry], plan.nodes))
    spans = np.zeros(len(entry), kernel.SPAN)
    spans["start"] = start[entry[place]]
    spans["end"] = (start + wall)[entry[place]]
    span_of = np.zeros(m + 1, np.int64)
    np.cumsum(np.bincount(plan.nodes, minlength=m), out=span_of[1:])
    nodes = pool.nodes[:m]
    nodes["span"] = span_of[:-1]
    nodes["window"] = np.inf
    reserved = span_of[:-1] < span_of[1:]
    nodes["window"][reserved] = spans["start"][span_of[:-1][reserved]]

    state = kernel.scalars(pool)
    state["planned"], state["plan_left"] = 0, len(rows)
    state["settled"], state["rebuild"] = 0, 1
    pool = pool._replace(
        plan=table, plan_nodes=np.array(plan.nodes, np.int32), span_of=span_of, spans=spans
    )
    steps = 2 * (len(pool.jobs) + m + len(rows)) + 8
    if len(pool.sweep) < 2 * (m + len(spans)):
        pool = pool._replace(sweep=np.zeros(4 * (m + len(spans)), kernel.TIMED))
    if state["loop"] == kernel.CONSERVATIVE and len(pool.profile) < steps:
        profile = np.zeros(2 * steps, kernel.TIMED)
        pool = pool._replace(profile=profile)
    return pool, order
