"""Limits: width, run time and fit, per partition; each with its reason and numbers."""

from typing import Any

import numpy as np

from rtsched.core.chain import Chain, Member, Stage
from rtsched.core.config import convert
from rtsched.model.cluster import NodeState
from rtsched.model.jobs import Kind
from rtsched.model.verdicts import Verdicts
from rtsched.testing import make_cluster, make_jobs
from rtsched_plugins.limits import Limit, Limits

CLUSTER = make_cluster(
    8,
    state=np.array([NodeState.UP] * 6 + [NodeState.DRAINED, NodeState.DOWN], np.int8),
    partitions={"short": [0, 1, 6], "empty": []},
)


def judge(jobs: Any, **settings: Any) -> Verdicts:
    """Return the plug-in's verdicts."""
    verdicts = Limits(Limits.Config(**settings)).rtsched_admit(jobs, CLUSTER)
    assert verdicts is not None
    return verdicts


def said(verdicts: Verdicts) -> dict[str, list[tuple[int, str]]]:
    """Return per reason the rows and sentences."""
    return {
        finding.reason.code: [(int(row), finding.text(k)) for k, row in enumerate(finding.rows)]
        for finding in verdicts.findings
    }


def test_wide_and_long_jobs_are_turned_away() -> None:
    """A job at the limit passes, one over it does not; both limits may be broken at once."""
    jobs = make_jobs(size=[4, 5, 4, 5], wall_time=[100.0, 100.0, 101.0, 101.0])
    verdicts = judge(jobs, size=4, wall_time=100.0)
    assert verdicts.code.tolist() == [0, 3, 3, 3]
    assert said(verdicts) == {
        "limits.too-wide": [(row, "requests 5 nodes, the limit is 4") for row in (1, 3)],
        "limits.too-long": [
            (row, "requests 1 min 41 s of run time, the limit is 1 min 40 s") for row in (2, 3)
        ],
    }


def test_jobs_without_a_time_limit_have_their_own_reason() -> None:
    """Endless is over every limit, and a sentence about infinity helps nobody."""
    verdicts = judge(make_jobs(wall_time=np.inf), wall_time=60.0)
    assert said(verdicts) == {
        "limits.no-time-limit": [(0, "states no run time, the limit is 1 min")]
    }
    assert judge(make_jobs(wall_time=np.inf)).code.tolist() == [0]


def test_jobs_that_never_fit_are_turned_away() -> None:
    """Counted are the nodes of the partition that take jobs; an unknown partition is all."""
    jobs = make_jobs(
        size=[6, 7, 2, 3, 1, 6], partition=[None, None, "short", "short", "empty", "x"]
    )
    verdicts = judge(jobs)
    assert verdicts.code.tolist() == [0, 3, 0, 3, 3, 0]
    assert said(verdicts)["limits.never-fits"][1] == (
        3,
        "needs 3 nodes, its partition has 2 available",
    )
    assert judge(jobs, fit=False).code.tolist() == [0] * 6


def test_a_job_that_can_shrink_is_judged_by_its_least_size() -> None:
    """Moldable and divisible jobs pass if their fewest nodes do."""
    jobs = make_jobs(
        kind=np.array([Kind.MOLDABLE, Kind.DIVISIBLE, Kind.MOLDABLE, Kind.RIGID], np.int8),
        size=8,
        size_min=[2, 5, -1, 2],
    )
    assert judge(jobs, size=4, fit=False).code.tolist() == [0, 3, 3, 3]


def test_partitions_have_limits_of_their_own() -> None:
    """What a partition sets replaces the site's limit; what it leaves open is the site's."""
    jobs = make_jobs(
        size=[3, 2, 3, 2], wall_time=[50.0, 150.0, 150.0, 50.0], partition=["a", "a", "b", "b"]
    )
    verdicts = judge(jobs, size=2, wall_time=100.0, partition={"a": Limit(size=3)})
    assert verdicts.code.tolist() == [0, 3, 3, 0]


def test_settings_are_checked() -> None:
    """Limits of nothing are mistakes."""
    problems: list[str] = []
    raw = {"size": 0, "partition": {"a": {"wall_time": -1.0, "sise": 3}}}
    assert convert(raw, Limits.Config, "settings", problems) is None
    assert [problem.partition(":")[0] for problem in problems] == [
        "settings.size",
        "settings.partition.a.sise",
        "settings.partition.a.wall_time",
    ]


def test_it_is_static() -> None:
    """It is asked once per job, not at every decision."""
    chain = Chain([Member("limits", Limits(Limits.Config()))])
    assert chain.asks("admit", Stage.STATIC) == ("limits",)
