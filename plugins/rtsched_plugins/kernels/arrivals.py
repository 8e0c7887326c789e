"""What recent arrivals say about the load: which of the next ones to decline."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from rtsched.kernels.compiling import compiled
from rtsched_plugins.kernels.admission import LOW, Rows, exec_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]


@compiled
def least_work(rows: Rows) -> Floats:
    """Return float64[n]: the node-seconds of each task on the fewest nodes that it may use."""
    work = np.empty(len(rows.real))
    for i in range(len(work)):
        work[i] = rows.whole[i, LOW] * exec_of(rows, i, rows.whole[i, LOW])
    return work


class Reading(NamedTuple):
    """How arrivals are read; see the settings of the portfolio plug-in."""

    nodes: float
    """Nodes of the machine."""
    arrivals: int
    """How many arrivals before a job are looked at."""
    least: int
    """With fewer before it a job is never declined."""
    overbooking: float
    """Recent work may fill this many times what the machine can do until it is due."""
    spared: float
    """No job is declined that is smaller than this fraction of recent ones."""
    heard: float
    """Fraction of the jobs above the threshold that is judged all the same."""


class Arrivals(NamedTuple):
    """Arrivals in order, and what was decided of each; all arrays of length n."""

    time: Floats
    """Seconds."""
    work: Floats
    """Least node-seconds."""
    patience: Floats
    """Seconds from the arrival to the deadline."""
    threshold: Floats
    """Work in node-seconds above which it would be declined; inf: none."""
    load: Floats
    """Work of the arrivals before it over what the machine could do meanwhile; 0: unknown."""
    declined: NDArray[np.bool_]


@compiled
def read_arrivals(arrivals: Arrivals, first: int, above: int, reading: Reading) -> int:
    """Decide on the arrivals from row `first` on, each by those before it; write it down.

    What the machine can do with recent arrivals is nodes x (the time since the first of them + the
    mean time that they have until their deadlines). The threshold is the work of the first job,
    smallest first, with which they come to more than `overbooking` times that. Of the jobs above
    their threshold the k-th is heard if k `heard` passes a whole number.

    Parameters
    ----------
    arrivals : Arrivals
        Ascending in time; the last three columns are written from row `first` on.
    first : int
        First row to decide on.
    above : int
        Jobs above their threshold so far.
    reading : Reading
        How to read.

    Returns
    -------
    int
        Jobs above their threshold, these included.
    """
    for row in range(first, len(arrivals.time)):
        begin = max(0, row - reading.arrivals)
        span = arrivals.time[row] - arrivals.time[begin]
        arrivals.threshold[row], arrivals.load[row] = math.inf, 0.0
        arrivals.declined[row] = False
        if row - begin < reading.least or span <= 0.0:
            continue
        sizes = np.sort(arrivals.work[begin:row])
        patience = arrivals.patience[begin:row].mean()
        room = reading.overbooking * reading.nodes * (span + patience)
        filled, place = 0.0, len(sizes)
        for k in range(len(sizes)):
            filled += sizes[k]
            if filled > room and place == len(sizes):
                place = k
        arrivals.load[row] = filled / (reading.nodes * span)
        place = max(place, int(reading.spared * len(sizes)))
        if place == len(sizes):
            continue
        arrivals.threshold[row] = sizes[place]
        if arrivals.work[row] > sizes[place]:
            above += 1
            heard = math.floor(above * reading.heard + 1e-9)
            before = math.floor((above - 1) * reading.heard + 1e-9)
            arrivals.declined[row] = heard == before
    return above
