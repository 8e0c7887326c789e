"""Workloads of jobs that are made up."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rtsched.model.cluster import Cluster
from rtsched.model.jobs import Edges, Jobs
from rtsched.model.log import Outcomes, Skipped
from rtsched.model.snapshot import Accounts
from rtsched.replay.results import Workload


def workload_of(
    jobs: Jobs,
    run_time: ArrayLike,
    cluster: Cluster | int,
    *,
    outcomes: Outcomes | None = None,
    accounts: Accounts | None = None,
    edges: Edges | None = None,
    **more: Any,
) -> Workload:
    """Return jobs on a cluster, or on so many equal nodes; what is not given there is none of."""
    return Workload(
        jobs,
        np.asarray(run_time, np.float64),
        Outcomes.build(len(jobs)) if outcomes is None else outcomes,
        Cluster.uniform(cluster) if isinstance(cluster, int) else cluster,
        Accounts.build(0) if accounts is None else accounts,
        Edges.build(0) if edges is None else edges,
        (),
        Skipped(),
        **more,
    )


def jobs_of(work: Sequence[Any], **columns: Any) -> Jobs:
    """Return a table of jobs that have a submission, a wall time, and a size."""
    return Jobs.build(
        len(work),
        **{
            "id": np.arange(len(work)),
            "submit": np.array([job.submit for job in work]),
            "wall_time": np.array([job.wall for job in work]),
            "size": np.array([job.size for job in work], np.int32),
            **columns,
        },
    )


def ended(system: Any) -> Any:
    """Return a system when all has happened."""
    while not system.advance().done:
        pass
    return system
