"""The node sets that jobs are bound to: by a placement, their partition or request, or one node."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.errors import ShapeError
from rtsched.model.resources import allowed_nodes
from rtsched.model.table import offsets_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Jobs
    from rtsched.model.verdicts import Placement


class NodeSets:
    """Distinct node sets and their codes. Equal sets share a code; the order of nodes counts."""

    def __init__(self, nodes: int) -> None:
        self._most = nodes
        self._codes: dict[bytes, int] = {}
        self._sets: list[NDArray[np.int32]] = []
        self._laid_out: tuple[NDArray[np.int64], NDArray[np.int32]] | None = None

    def __len__(self) -> int:
        return len(self._sets)

    def code(self, nodes: NDArray[np.int32]) -> int:
        """Return the code of a node set.

        Raises
        ------
        ShapeError
            If it names a node that the cluster does not have, or one twice.
        """
        nodes = np.ascontiguousarray(nodes, np.int32)
        key = nodes.tobytes()
        if key not in self._codes:
            inside = (nodes >= 0) & (nodes < self._most)
            if not inside.all() or len(np.unique(nodes)) != len(nodes):
                raise ShapeError("a node set names a node twice, or one that does not exist")
            self._laid_out = None
            self._codes[key] = len(self._sets)
            self._sets.append(nodes)
        return self._codes[key]

    def arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return offsets and nodes of all sets, one after the other; not to be written to."""
        if self._laid_out is not None:
            return self._laid_out
        offsets = offsets_of([len(nodes) for nodes in self._sets])
        nodes = np.concatenate(self._sets) if self._sets else np.zeros(0, np.int32)
        self._laid_out = offsets, nodes
        return offsets, nodes

    def of_jobs(self, jobs: Jobs, cluster: Cluster) -> NDArray[np.int32]:
        """Return each job's node set by request, partition or pinned node, -1 where it has none."""
        code, masks = allowed_nodes(jobs, cluster)
        codes = [self.code(np.flatnonzero(mask).astype(np.int32)) for mask in masks]
        group = np.array([*codes, -1], np.int32)[code]
        pinned = jobs.pinned
        for node in np.unique(pinned[pinned >= 0]):
            group[pinned == node] = self.code(np.array([node], np.int32))
        return group

    def of_placement(self, placement: Placement) -> NDArray[np.int32]:
        """Return the code of each row's node set, -1 where it has none or an empty one."""
        codes = [self.code(nodes) if len(nodes) else -1 for nodes in placement.node_sets]
        return np.array([*codes, -1], np.int32)[placement.node_set]
