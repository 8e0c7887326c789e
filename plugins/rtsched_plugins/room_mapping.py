"""Map parallel jobs to nodes that they share by resources: what has room for their processes now.

A process has its cores, memory and GPUs to itself there, so only the speed of its node and foreign
processes delay it. The delay classes are therefore the nodes of like delay on which there is room
for one more process of the job; a job runs one process on a node.

References
----------
Schnor, Petri, Oleyniczak, Langendoerfer, 1996 (PDCS), section 3, without time sharing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.api import demand_of, room_of
from rtsched.kernels.delays import delay, slowest
from rtsched_plugins.kernels.delay_classes import availability, choose_class, take

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.api import Snapshot
    from rtsched_plugins.mapping import Field

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Nodes = NDArray[np.int32]
    Mask = NDArray[np.bool_]


class RoomMapping:
    """What nodes have left, as one answer gives it away.

    Parameters
    ----------
    field : Field
        The `m` nodes.
    snapshot : Snapshot
        Who runs where.

    Attributes
    ----------
    delays : float64[m]
        Delay of a process on each node (paper: d), whoever else runs there.
    delay : float64[r]
        Delay of each running job (paper: D).
    """

    def __init__(self, field: Field, snapshot: Snapshot) -> None:
        held = snapshot.allocations
        self.field = field
        self.delays = delay(field.alpha, 1.0 + field.foreign)
        self.delay = slowest(self.delays, held.indptr, held.nodes)
        self._room = room_of(snapshot.cluster)
        taken = demand_of(snapshot.running, snapshot.cluster)
        self._take(held.nodes, taken[held.ragged.rows()], taken.sum(axis=0))

    @property
    def factors(self) -> Floats:
        """Return float64[m]: the delay of a new process, inf where none may come."""
        return np.where(self.field.open, self.delays, np.inf)

    def holds(self, demand: Ints) -> Mask:
        """Return bool[m]: the nodes that take new processes and have room for one of this demand.

        None has if there are too few licences.
        """
        m, fits = len(self.delays), np.all(self._room >= demand, axis=1)
        return np.asarray(fits[:m] & self.field.open & fits[m:].all(), np.bool_)

    def place(self, least: int, most: int, allowed: Mask, demand: Ints) -> Nodes | None:
        """Map a job of `least` to `most` processes; return its nodes, None if it must wait.

        What it takes is taken for later calls.

        Parameters
        ----------
        least, most : int
            Processes, one on a node.
        allowed : bool[m]
            The nodes that it may use.
        demand : int64[r]
            What each process takes, as in `demand_of`.
        """
        usable, bounds = allowed & self.holds(demand), self.field.bounds
        available = availability(self.delays[usable], bounds)
        chosen = choose_class(available, bounds, least, most)
        if chosen < 0:
            return None
        usable &= self.delays <= bounds[chosen]
        nodes = take(usable, self.delays, min(int(available[chosen]), most))
        self._take(nodes, demand, demand)
        return nodes

    def _take(self, nodes: Nodes, demand: Ints, licenses: Ints) -> None:
        """Take amounts from nodes, and licences from what there is of them."""
        m = len(self.delays)
        np.subtract.at(self._room[:m], nodes, demand)
        self._room[m:] -= licenses
