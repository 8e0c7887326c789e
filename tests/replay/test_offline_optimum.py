"""The benchmark that compares policies with an optimum that knows all jobs beforehand."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from rtsched.model.cluster import Cluster
from rtsched.model.jobs import Edges, Jobs
from rtsched.model.log import Outcomes, Skipped
from rtsched.model.snapshot import Accounts
from rtsched.replay.results import Workload

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))


@pytest.mark.parametrize(
    ("nodes", "size", "deadline", "most"),
    [
        (1, [1, 1, 1, 1], [100, 150, 1000, 115], 3),  # the second does not fit behind the first
        (1, [1, 1, 1, 1], [200, 200, 260, 270], 4),
        (1, [1, 1, 1, 1], [99, 99, 59, 29], 0),  # none could on an idle machine
        (3, [2, 2, 1, 1], [100, 150, 60, 60], 3),  # of the first two one
        (4, [2, 2, 1, 1], [100, 100, 1000, 1000], 4),
    ],
)
def test_the_most_jobs_that_can_end_in_time(
    nodes: int, size: list[int], deadline: list[float], most: int
) -> None:
    """Jobs of 100, 100, 50 and 10 s, submitted at 0, 0, 10 and 20 s."""
    pytest.importorskip("ortools")
    from offline_optimum import optimum

    jobs = Jobs.build(
        4,
        id=[1, 2, 3, 4],
        submit=[0.0, 0.0, 10.0, 20.0],
        size=size,
        wall_time=[100.0, 100.0, 50.0, 10.0],
        deadline=np.array(deadline, np.float64),
    )
    nobody, cluster = Accounts.build(0), Cluster.uniform(nodes)
    given = (cluster, nobody, Edges.build(0), (), Skipped())
    work = Workload(jobs, jobs.wall_time, Outcomes.build(4), *given)
    assert optimum(work) == most
