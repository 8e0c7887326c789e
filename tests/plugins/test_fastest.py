"""Fastest: nodes by speed, per partition, those that take jobs only."""

from typing import Any

import numpy as np

from rtsched.core.chain import Chain, Member, Stage
from rtsched.model.cluster import NodeState
from rtsched.testing import make_cluster, make_jobs
from rtsched_plugins.fastest import Fastest

CLUSTER = make_cluster(
    6,
    speed=[1.0, 2.0, 0.5, 2.0, 9.0, 1.0],
    state=np.array([0, 0, 0, 0, NodeState.DOWN, 0], np.int8),
    partitions={"some": [5, 2, 3, 4]},
)


def wanted(jobs: Any, **settings: Any) -> list[list[int] | None]:
    """Return per job the nodes in the order in which it wants them."""
    placement = Fastest(Fastest.Config(**settings)).rtsched_partition(jobs, CLUSTER)
    assert placement is not None
    assert not placement.size.any()
    return [placement.node_sets[k].tolist() if k >= 0 else None for k in placement.node_set]


def test_fast_nodes_come_first() -> None:
    """By speed, equals by row; the node that is down is left out, however fast."""
    assert wanted(make_jobs(1)) == [[1, 3, 0, 5, 2]]


def test_slow_nodes_come_first_where_the_site_says_so() -> None:
    """So that fast ones stay free."""
    assert wanted(make_jobs(1), prefer="slow") == [[2, 0, 5, 1, 3]]


def test_a_partitions_nodes_only() -> None:
    """A partition that the cluster does not list has all nodes."""
    jobs = make_jobs(partition=["some", None, "other", "some"])
    everything = [1, 3, 0, 5, 2]
    assert wanted(jobs) == [[3, 5, 2], everything, everything, [3, 5, 2]]


def test_no_opinion_on_what_does_not_fit() -> None:
    """A node set that is too small would keep the job from starting for ever."""
    assert wanted(make_jobs(size=[3, 4], partition="some")) == [[3, 5, 2], None]


def test_it_is_static_and_sound() -> None:
    """It is asked once per job, and its answer passes the chain's checks."""
    chain = Chain([Member("fastest", Fastest(Fastest.Config()))])
    assert chain.asks("partition", Stage.STATIC) == ("fastest",)
