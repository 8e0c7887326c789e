"""Node choice by speed: the fastest (or the slowest) nodes first.

Each job's node set is all nodes that it may use and that take jobs, by speed, then by row. The job
starts on the first free ones among them; how many is left open. Set `slow` where fast
nodes should stay free for those who ask for them.

References
----------
Slurm orders nodes the same way by `Weight` (slurm.conf), HTCondor by a job's `Rank`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from rtsched.api import Placement, allowed_nodes, hookimpl

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.api import Cluster, Jobs


class Fastest:
    """Place jobs on the fastest nodes that are free."""

    class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Settings."""

        prefer: Literal["fast", "slow"] = "fast"
        """Which nodes are allocated first."""

    def __init__(self, config: Config) -> None:
        self.config = config

    @hookimpl
    def rtsched_partition(self, jobs: Jobs, cluster: Cluster) -> Placement | None:
        """Order the nodes that each job may use; no opinion on a job wider than all of them."""
        if not len(jobs):
            return None
        code, masks = allowed_nodes(jobs, cluster)
        codes, used = np.unique(code, return_inverse=True)
        allowed = (*masks, cluster.usable)  # the last serves code -1
        sets = tuple(self._ordered(cluster, allowed[at]) for at in codes.tolist())
        fits = jobs.size <= np.array([len(nodes) for nodes in sets])[used]
        node_set = np.where(fits, used, -1).astype(np.int32)
        return Placement(np.zeros(len(jobs), np.int32), node_set, sets)

    def _ordered(self, cluster: Cluster, members: NDArray[np.bool_]) -> NDArray[np.int32]:
        """Return those of some nodes that take jobs, most wanted first."""
        nodes = np.flatnonzero(cluster.usable & members).astype(np.int32)
        speed = cluster.nodes.speed[nodes]
        return nodes[np.argsort(-speed if self.config.prefer == "fast" else speed, kind="stable")]
