"""Node queues, by hand: where jobs go, when a scan pays, who is bound."""

from typing import Any

import numpy as np

from rtsched.kernels.policy import observe, place
from rtsched.model.cluster import Cluster
from rtsched.model.jobs import Jobs
from rtsched.model.snapshot import Accounts
from rtsched.model.state import EventKind
from rtsched_plugins.kernels.node_queues import (
    HELD,
    MOVED,
    RUNS,
    SCANS,
    WAITING,
    NodeQueues,
    least_window,
    soonest,
)
from rtsched_plugins.psts import Psts

NOBODY = np.empty(0, np.int32)


def queues(nodes: int, **columns: Any) -> NodeQueues:
    """Return the queues of jobs that have not arrived, on equal nodes; scans take no time."""
    n = len(columns["size"])
    jobs = Jobs.build(n, id=np.arange(n), submit=np.zeros(n), **columns)
    config = Psts.Config(comm_step=0.0, comp_step=0.0, least_imbalance=0.0, dimension=1)
    q = Psts(config).compiled_policy(jobs, Accounts.build(0), Cluster.uniform(nodes), 0.0)
    assert q is not None
    assert q.node_sets.values[: 2 * nodes].tolist() == [*range(nodes), *range(1, nodes), 0]
    return q


def tell(q: NodeQueues, kind: EventKind, row: int, nodes: Any = NOBODY, time: float = 0.0) -> None:
    """Tell the queues of one event."""
    observe(q, time, int(kind), row, 0, np.array(nodes, np.int32))


def holders(q: NodeQueues) -> dict[int, int]:
    """Return the job on each node that runs one."""
    return {int(node): int(job) for job, node in q.held[: q.counts[HELD], :2]}


def test_least_window() -> None:
    """The least of the largest of each two neighbours is 3, first seen at place 1."""
    values, scratch = np.array([5.0, 2.0, 3.0, 1.0, 3.0]), np.zeros(5, np.int64)
    assert least_window(values, 1, scratch) == 3
    assert least_window(values, 2, scratch) == 1
    assert least_window(values, 5, scratch) == 0


def test_jobs_go_where_they_end_first() -> None:
    """On three idle nodes: 10 s on node 0, then two nodes for 5 s, then 1 s on node 1 at 6 s."""
    q = queues(3, size=[1, 2, 1], wall_time=[10.0, 5.0, 1.0])
    for row in range(3):
        tell(q, EventKind.ARRIVED, row)
    assert q.node.tolist() == [0, 1, 1]
    assert q.queued[0].tolist() == [10, 6, 5]
    assert q.counts[WAITING] == 3
    out = np.zeros(3, np.int64)
    place(q, 0.0, np.arange(3), out)
    assert out.tolist() == [0, 1, 1]


def test_what_runs_counts_until_its_requested_end() -> None:
    """A job that started at 0 for 10 s has 4 s left at 6 s: the next one goes to the other node."""
    q = queues(2, size=[1, 1, 1], wall_time=[10.0, 3.0, 3.0])
    tell(q, EventKind.ARRIVED, 0)
    tell(q, EventKind.STARTED, 0, [0])
    assert q.counts[WAITING] == 0
    tell(q, EventKind.ARRIVED, 1, time=6.0)
    tell(q, EventKind.ARRIVED, 2, time=6.0)
    assert q.fixed[0].tolist() == [4, 0]
    assert q.node[1:].tolist() == [1, 1]  # 7 s on node 0, 6 s behind the first on node 1
    tell(q, EventKind.ENDED, 0, time=7.0)
    assert holders(q) == {}


def test_a_job_that_has_ended_ran_where_it_was_to() -> None:
    """Its start is told too late to know its nodes."""
    q = queues(3, size=[2], wall_time=[10.0])
    tell(q, EventKind.ARRIVED, 0)
    tell(q, EventKind.STARTED, 0)
    assert holders(q) == {0: 0, 1: 0}


def test_a_scan_that_pays_moves_jobs() -> None:
    """Four jobs of 10 s wait for node 0 while node 1 has become idle: two of them go there."""
    q = queues(2, size=[1, 1, 1, 1, 1], wall_time=[100.0, 10.0, 10.0, 10.0, 10.0])
    tell(q, EventKind.ARRIVED, 0)
    tell(q, EventKind.STARTED, 0, [1])
    for row in range(1, 5):
        tell(q, EventKind.ARRIVED, row)
    assert q.queued[0].tolist() == [40, 0]
    scans = int(q.counts[SCANS])
    tell(q, EventKind.ENDED, 0)
    assert q.node[1:].tolist() == [0, 0, 1, 1]
    assert q.queued[0].tolist() == [20, 20]
    assert (q.counts[SCANS] - scans, q.counts[RUNS], q.counts[MOVED]) == (1, 1, 2)
    assert q.left[0] == 0.0


def test_soonest() -> None:
    """12 units above 0, 4 and 100: two nodes end at 8; a job of 20 on the idle one ends later."""
    power, stays = np.ones(3, np.int64), np.array([0, 4, 100])
    assert soonest(power, stays, 12, 5) == 8.0
    assert soonest(power, stays, 12, 20) == 20.0


def test_a_job_wider_than_its_pool_is_no_work() -> None:
    """It waits and has no node set."""
    q = queues(2, size=[3, 1], wall_time=[10.0, 10.0])
    tell(q, EventKind.ARRIVED, 0)
    tell(q, EventKind.ARRIVED, 1)
    assert q.queued[0].tolist() == [10, 0]
    out = np.zeros(2, np.int64)
    place(q, 0.0, np.arange(2), out)
    assert out.tolist() == [-1, 0]
