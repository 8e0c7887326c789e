"""Orders in compiled code: a stable sort, and list schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels.compiling import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

    Integers = NDArray[np.int64]


@compiled
def stable_order(keys: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the places of keys in ascending order, equal ones in theirs."""
    return np.argsort(keys, kind="mergesort")


@compiled
def list_schedule(
    run_time: Floats, free: Floats, order: Integers, start: Floats, slot: Integers
) -> None:
    """Write when each task starts and on which slot; of slots that are free at once the first.

    Parameters
    ----------
    run_time : float64[n]
        Seconds of each task.
    free : float64[k]
        When each slot is free, ascending; changed.
    order : int64[k]
        0, 1, 2, ...; changed.
    start, slot : float64[n], int64[n]
        Are given the results.

    References
    ----------
    Graham, 1969: Bounds on multiprocessing timing anomalies.
    """
    count = len(free)
    for task in range(len(run_time)):
        start[task], slot[task] = free[0], order[0]
        time, which, at = free[0] + run_time[task], order[0], 0
        while True:
            child = 2 * at + 1
            if child >= count:
                break
            if child + 1 < count and (
                free[child + 1] < free[child]
                or (free[child + 1] == free[child] and order[child + 1] < order[child])
            ):
                child += 1
            if time < free[child] or (time == free[child] and which < order[child]):
                break
            free[at], order[at] = free[child], order[child]
            at = child
        free[at], order[at] = time, which
