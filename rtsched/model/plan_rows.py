"""A plan on rows of a workload, without tables: what planners are asked with in replays."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.model.ragged import Ragged

if TYPE_CHECKING:
    from numpy.typing import NDArray


class PlanRows(NamedTuple):
    """Entries of a plan; each has all its nodes from its start to its end."""

    row: NDArray[np.int64]
    """int64[n]: the jobs, as rows of the workload."""
    start: NDArray[np.float64]
    """float64[n], seconds since the epoch."""
    end: NDArray[np.float64]
    """float64[n], seconds since the epoch."""
    indptr: NDArray[np.int64]
    """int64[n + 1]: entry i has the nodes `nodes[indptr[i]:indptr[i + 1]]`."""
    nodes: NDArray[np.int32]
    """int32[k]: rows of `Cluster.nodes`."""

    def take(self, entries: NDArray[np.int64]) -> PlanRows:
        """Return some of the entries."""
        nodes = Ragged(self.indptr, self.nodes).take(entries)
        row, start, end = self.row[entries], self.start[entries], self.end[entries]
        return PlanRows(row, start, end, nodes.offsets, nodes.values)


NO_PLAN = PlanRows(
    np.empty(0, np.int64), np.empty(0), np.empty(0), np.zeros(1, np.int64), np.empty(0, np.int32)
)
"""The plan of nobody."""
