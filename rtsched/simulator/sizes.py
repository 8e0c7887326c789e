"""Run times of jobs on other numbers of nodes than they asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels.dlt import exec_time, fastest_count
from rtsched.model.jobs import Kind, array_time

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.jobs import Jobs

    Floats = NDArray[np.float64]


def scaled(
    jobs: Jobs, run_time: Floats, size: NDArray[np.int32]
) -> tuple[NDArray[np.int32], Floats, Floats]:
    """Return size, run time and wall time of jobs that are given `size` nodes each.

    A rigid job or an array keeps its own size; a moldable one runs `run_time * jobs.size / size`; a
    divisible one E(n) by the divisible-load formula, where it is given another size than its own.
    """
    array = jobs.kind == Kind.ARRAY
    bends = (size > 0) & (jobs.kind != Kind.RIGID) & ~array
    given = np.where(bends, size, jobs.size).astype(np.int32)
    factor = jobs.size / np.maximum(given, 1)
    run, wall = run_time * factor, jobs.wall_time * factor
    if array.any():
        wall = np.where(array, array_time(jobs, given), wall)
    divided = (jobs.kind == Kind.DIVISIBLE) & np.isfinite(jobs.sigma) & (given != jobs.size)
    for row in np.flatnonzero(divided).tolist():
        run[row] = wall[row] = exec_time(int(given[row]), jobs.load(row))
    return given, run, wall


def fastest(jobs: Jobs, nodes: int) -> NDArray[np.int32]:
    """Return the size at which each divisible job ends soonest on a cluster, 0 for other jobs."""
    size = np.zeros(len(jobs), np.int32)
    for row in np.flatnonzero((jobs.kind == Kind.DIVISIBLE) & np.isfinite(jobs.sigma)).tolist():
        size[row] = fastest_count(nodes, jobs.load(row))
    return size
