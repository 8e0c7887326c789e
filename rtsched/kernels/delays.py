"""Delays of processes that share unequal nodes, and what moving them costs.

The fastest node has slowness 1; a job of T seconds there takes αT on a node of slowness α, and
kαT where k processes share it. Delays are products of a slowness and a number of processes, rounded
to a grain, so that delays that are equal on paper compare as equal.

References
----------
Schnor, Petri, Oleyniczak, Langendoerfer, 1996: scheduling of parallel applications on heterogeneous
workstation clusters (PDCS), sections 2 and 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

GRAIN = 1e9
"""Delays are whole multiples of 1/GRAIN."""

MigrationCost: TypeAlias = Literal["serial", "parallel", "none"]
CHECKPOINT = 10.0
"""Seconds to write and read a checkpoint."""
LINK_SETUP, PER_KILOBYTE = 0.4, 0.0012
"""Seconds to begin a transfer, and seconds per 1024 bytes."""
PROCESS = 12.7
"""Seconds to transfer a process of unknown size (10 MB)."""


def slowness(speed: Floats) -> Floats:
    """Return float64[m]: how much slower each node is than the fastest (paper: α), >= 1.

    Raises
    ------
    ValueError
        For a speed that is not above 0.
    """
    if not len(speed):
        return np.empty(0)
    if not (speed > 0).all():
        raise ValueError("the speed of a node must be above 0")
    return np.asarray(speed.max() / speed, np.float64)


def delay(alpha: Floats, processes: ArrayLike) -> Floats:
    """Return the delay that `processes` processes cause one another on nodes of slowness `alpha`.

    Both are arrays of one shape, or one of them is a scalar; foreign processes may be fractional.
    """
    return grained(alpha * np.asarray(processes, np.float64))


def grained(values: Floats) -> Floats:
    """Return values rounded to the grain."""
    return np.asarray(np.rint(values * GRAIN) / GRAIN, np.float64)


def slowest(values: Floats, indptr: NDArray[np.int64], nodes: NDArray[np.int32]) -> Floats:
    """Return float64[r]: the greatest of `values` over the nodes of each job, 1 if it has none.

    Job `i` has the nodes `nodes[indptr[i]:indptr[i + 1]]`.
    """
    found = np.ones(len(indptr) - 1)
    some = np.diff(indptr) > 0
    if some.any():
        found[some] = np.maximum.reduceat(values[nodes], indptr[:-1][some])
    return found


def migration_pause(cost: MigrationCost, moved: int, process_bytes: int = -1) -> float:
    """Return the seconds for which a job stands still while some of its processes move.

    Parameters
    ----------
    cost : str
        `serial`: the transfers follow one another; `parallel`: they go on at once; `none`: 0.
    moved : int
        Processes that change their node.
    process_bytes : int
        Size of one process; -1: unknown, `PROCESS` seconds are taken.

    References
    ----------
    Schnor et al., section 4: 0.4 s + 0.0012 s/KB per process and 10 s for the checkpoint.
    """
    if cost == "none" or moved == 0:
        return 0.0
    known = process_bytes >= 0
    transfer = LINK_SETUP + PER_KILOBYTE * process_bytes / 1024 if known else PROCESS
    return CHECKPOINT + transfer * (moved if cost == "serial" else 1)
