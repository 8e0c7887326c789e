"""Which nodes a waiting job may start on, and how many: asked for, known before, or placed."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from rtsched.model.jobs import Kind
from rtsched.simulator.nodesets import NodeSets

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Jobs
    from rtsched.model.verdicts import Placement

    Nodes = NDArray[np.int32]


class PlacementRequests:
    """Sizes and node sets of the jobs of a workload.

    Parameters
    ----------
    jobs, cluster
        The workload, and the nodes and partitions.
    static : Placement or None
        Answers given before the run, row by row with the jobs.
    """

    def __init__(self, jobs: Jobs, cluster: Cluster, static: Placement | None) -> None:
        sets = NodeSets(len(cluster))
        self._group = sets.of_jobs(jobs, cluster)
        self._rigid, self._jobs = jobs.kind == Kind.RIGID, jobs
        self._size = np.array(jobs.size)
        if static is not None:
            placed = sets.of_placement(static)
            self._group = np.where(placed >= 0, placed, self._group)
            given = ~self._rigid & (static.size > 0)
            self._size[given] = static.size[given]
        offsets, nodes = sets.arrays()
        self._sets = [nodes[a:b] for a, b in pairwise(offsets.tolist())]
        self._sets.append(np.arange(len(cluster), dtype=np.int32))  # code -1: all nodes
        self._placed: dict[int, tuple[int, Nodes | None]] = {}

    def can_be_met(self, chosen: bool) -> NDArray[np.bool_]:
        """Return bool[n]: who could start on idle nodes; `chosen`: sizes are chosen later."""
        min_size, jobs = self._size, self._jobs
        if chosen:
            min_size = np.where(~self._rigid & (jobs.size_min > 0), jobs.size_min, min_size)
        return np.asarray(min_size <= np.array([len(nodes) for nodes in self._sets])[self._group])

    def place(self, rows: NDArray[np.int64], placement: Placement) -> None:
        """Note an answer about waiting jobs, in place of the last one."""
        some = np.flatnonzero((placement.size > 0) | (placement.node_set >= 0))
        codes = placement.node_set
        self._placed = {
            int(rows[at]): (
                0 if self._rigid[rows[at]] else int(placement.size[at]),
                placement.node_sets[codes[at]] if codes[at] >= 0 else None,
            )
            for at in some.tolist()
        }

    def of(self, row: int) -> tuple[int, Nodes]:
        """Return the size and the node set of a waiting job."""
        size, nodes = self._placed.get(row, (0, None))
        return size or int(self._size[row]), self._sets[
            self._group[row]
        ] if nodes is None else nodes
