"""Map parallel jobs to unequal nodes that they may share: a working copy of who runs where.

One `Mapping` is made for one answer. It begins with what the snapshot shows, and each method that
decides something changes it, so that the next decision sees the one before.

References
----------
Schnor, Petri, Oleyniczak, Langendoerfer, 1996 (PDCS), sections 3 and 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.kernels.delays import delay, slowest
from rtsched_plugins.kernels.delay_classes import (
    availability,
    choose_class,
    take,
    thresholds,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Nodes = NDArray[np.int32]
    Mask = NDArray[np.bool_]


class Field(NamedTuple):
    """The nodes, `m` of them."""

    alpha: Floats
    """Slowness of each, >= 1."""
    bounds: Floats
    """The delay classes, ascending."""
    open: Mask
    """Which take new processes."""
    foreign: Floats
    """Runnable processes on each that belong to no job."""
    shared: bool = True
    """Whether a node may run processes of several jobs."""


class Mapping:
    """Who runs where, as one answer changes it.

    Parameters
    ----------
    field : Field
        The nodes.
    indptr, nodes : int64[r + 1], int32[k]
        Running job `i` has the nodes `nodes[indptr[i]:indptr[i + 1]]`.

    Attributes
    ----------
    delay : float64[r]
        Delay of each running job (paper: D): at first the one that the load of its nodes makes.
    """

    def __init__(self, field: Field, indptr: NDArray[np.int64], nodes: Nodes) -> None:
        self.field, self.indptr, self.nodes = field, indptr, nodes
        self._load = field.foreign + np.bincount(nodes, minlength=len(field.alpha))
        self._delays = delay(field.alpha, 1.0 + self._load)
        self.delay = self.present()
        self._limit: Floats | None = None

    def record(self, delays: Floats) -> None:
        """Take `delays` for the running jobs' recorded ones, float64[r]."""
        self.delay, self._limit = delays, None

    def nodes_of(self, row: int) -> Nodes:
        """Return the nodes of one running job."""
        return self.nodes[self.indptr[row] : self.indptr[row + 1]]

    def present(self) -> Floats:
        """Return float64[r]: the delay that each running job has by the load of its nodes."""
        return slowest(delay(self.field.alpha, self._load), self.indptr, self.nodes)

    @property
    def factors(self) -> Floats:
        """Return float64[m]: the delay of a new process (paper: d), inf where none may come."""
        return np.where(self._free(), self._delays, np.inf)

    def usable(self) -> Mask:
        """Return bool[m]: the nodes on which a new process would slow nobody."""
        if self._limit is None:
            self._limit = self._limits(self.delay)
        return self._free() & (self._delays <= self._limit)

    def available(self) -> NDArray[np.int64]:
        """Return int64[c]: how many usable nodes have at most the delay of each class."""
        return availability(self._delays[self.usable()], self.field.bounds)

    def upgrade(self) -> NDArray[np.int64]:
        """Let delays fall to what the load has become; return the rows of the jobs that gain."""
        present = self.present()
        rows = np.flatnonzero(present < self.delay)
        if len(rows):
            self.record(np.minimum(present, self.delay))
        return rows

    def place(self, least: int, most: int, allowed: Mask) -> Nodes | None:
        """Map a job of `least` to `most` processes; return its nodes, None if it must wait.

        What it takes is taken for later calls of this method; call the others before.
        """
        usable = self.usable() & allowed
        available = availability(self._delays[usable], self.field.bounds)
        chosen = choose_class(available, self.field.bounds, least, most)
        if chosen < 0 or self._limit is None:
            return None
        usable &= self._delays <= self.field.bounds[chosen]
        nodes = take(usable, self._delays, min(int(available[chosen]), most))
        self._limit[nodes] = np.minimum(self._limit[nodes], self._delays[nodes].max())
        self._load[nodes] += 1.0
        self._delays[nodes] = delay(self.field.alpha[nodes], 1.0 + self._load[nodes])
        return nodes

    def better(self, row: int, allowed: Mask) -> tuple[Nodes, float]:
        """Return the fastest nodes for a running job, as if it did not run, and its delay there.

        There are fewer nodes than it has processes if no more are usable.
        """
        own = self.nodes_of(row)
        delays = self._delays.copy()
        delays[own] = delay(self.field.alpha[own], self._load[own])
        others = self.delay.copy()
        others[row] = np.inf
        usable = self._free(own) & allowed & (delays <= self._limits(others))
        nodes = take(usable, delays, len(own))
        return nodes, float(delays[nodes].max(initial=0.0))

    def move(self, row: int, nodes: Nodes, slowed: float) -> None:
        """Have a running job run on `nodes` with delay `slowed`."""
        own, delays = self.nodes_of(row), self.delay.copy()
        self._load[own] -= 1.0
        self._load[nodes] += 1.0
        self._delays = delay(self.field.alpha, 1.0 + self._load)
        self.nodes = self.nodes.copy()
        self.nodes[self.indptr[row] : self.indptr[row + 1]] = nodes
        delays[row] = slowed
        self.record(delays)

    def _free(self, own: Nodes | None = None) -> Mask:
        """Return which nodes take new processes; of nodes not shared, the idle ones and `own`."""
        if self.field.shared:
            return self.field.open
        idle = self._load < self.field.foreign + 0.5
        if own is not None:
            idle[own] = True
        return np.logical_and(self.field.open, idle)

    def _limits(self, delays: Floats) -> Floats:
        """Return each node's threshold (paper: s), from the running jobs' delays."""
        highest = float(self.field.bounds[-1]) if len(self.field.bounds) else 0.0
        per_process = np.repeat(delays, np.diff(self.indptr))
        return thresholds(len(self.field.alpha), highest, self.nodes, per_process)
