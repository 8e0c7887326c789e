"""Delay classes: which delays there are, how many nodes offer each, and which nodes a job takes.

References
----------
Schnor, Petri, Oleyniczak, Langendoerfer, 1996 (PDCS), section 3: shortest expected delay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.api import ShapeError
from rtsched.kernels.delays import delay

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

MOST_CLASSES = 1_000_000
ROUNDING = 1e-12
"""Expected delays per process that differ relatively by less are equal."""


def class_bounds(alpha: Floats) -> Floats:
    """Return float64[c], ascending: all multiples of slownesses up to the greatest one (δ-set).

    Parameters
    ----------
    alpha : float64[m]
        Slowness of each node, >= 1.

    Raises
    ------
    ShapeError
        If the slowest node is so slow that there would be more than a million classes.
    """
    if not len(alpha):
        return np.empty(0)
    each, most = np.unique(alpha), alpha.max(keepdims=True)
    times = np.floor(most / each * (1 + ROUNDING)).astype(np.int64)
    if times.sum() > MOST_CLASSES:
        raise ShapeError(
            f"the slowest node is {most[0]:g} times slower than the fastest: this needs too many "
            "delay classes"
        )
    first = np.repeat(np.cumsum(times) - times, times)
    multiple = np.arange(len(first)) - first + 1
    bounds = np.unique(delay(np.repeat(each, times), multiple))
    return np.asarray(bounds[bounds <= delay(most, 1)], np.float64)


def thresholds(m: int, highest: float, nodes: NDArray[np.int32], delays: Floats) -> Floats:
    """Return float64[m]: the greatest delay that a new process may have on each node.

    It is the least recorded delay of the jobs there: a node that is slower than that is not
    usable, so that no running job is slowed.

    Parameters
    ----------
    m : int
        Number of nodes.
    highest : float
        What holds where no job runs (paper: α max).
    nodes, delays : int32[k], float64[k]
        Node of each process, and the recorded delay of its job.
    """
    found = np.full(m, highest)
    np.minimum.at(found, nodes, delays)
    return found


def availability(delays: Floats, bounds: Floats) -> Ints:
    """Return int64[c]: how many of the usable nodes have at most each class's delay.

    Parameters
    ----------
    delays : float64[u]
        Delay that a new process would have on each usable node.
    bounds : float64[c]
        The classes' delays, ascending.
    """
    place = np.searchsorted(bounds, delays, "left")
    return np.cumsum(np.bincount(place, minlength=len(bounds))[: len(bounds)])


def choose_class(available: Ints, bounds: Floats, least: int, most: int) -> int:
    """Return the class that a job of `least` to `most` processes takes, -1: it must wait.

    It minimises delay over processes; ties go to the class that leaves fewest nodes over, then to
    the fastest.
    """
    given = np.minimum(available, most)
    fits = (given >= least) & (given > 0)
    if not fits.any():
        return -1
    expected = np.where(fits, bounds / np.maximum(given, 1), np.inf)
    best = expected <= expected.min() * (1 + ROUNDING)
    over = available - given
    best &= over == over[best].min()
    return int(np.argmax(best))


def take(usable: Mask, delays: Floats, count: int) -> NDArray[np.int32]:
    """Return the `count` usable nodes of least delay, then lowest index; ascending by index.

    Returns
    -------
    int32[count]
        Fewer if fewer are usable.
    """
    rows = np.flatnonzero(usable).astype(np.int32)
    if len(rows) <= count:
        return rows
    of_rows = delays[rows]
    last = np.partition(of_rows, count - 1)[count - 1]
    chosen = of_rows < last
    ties = np.flatnonzero(of_rows == last)
    chosen[ties[: count - int(chosen.sum())]] = True
    return np.asarray(rows[chosen], np.int32)
