"""Which nodes each job may use: those of its partition, or of its own request for nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Jobs


def allowed_nodes(
    jobs: Jobs, cluster: Cluster
) -> tuple[NDArray[np.int32], list[NDArray[np.bool_]]]:
    """Return the code of the nodes that each job may use, and the nodes by their codes.

    Parameters
    ----------
    jobs : Jobs
        With `partition` and `node_request`.
    cluster : Cluster
        With `partitions` and `node_sets`.

    Returns
    -------
    int32[n], list of bool[m]
        -1: any node. A node set counts in place of the partition. `jobs.pinned` does not count.
    """
    masks: list[NDArray[np.bool_]] = []
    code = np.full(len(jobs), -1, np.int32)
    for column, sets in (("partition", cluster.partitions), ("node_request", cluster.node_sets)):
        names = jobs.names(column)
        codes = np.full(len(names) + 1, -2, np.int32)  # the last serves code -1
        few = len(jobs) < len(names)
        for at in np.unique(jobs.column(column)).tolist() if few else range(len(names)):
            mask = sets.get(names[at]) if at >= 0 else None
            if mask is not None:
                codes[at] = -1 if mask.all() else len(masks)
                masks += [] if mask.all() else [mask]
        if names:
            found = codes[jobs.column(column)]
            code = np.where(found > -2, found, code).astype(np.int32)
    return code, masks
