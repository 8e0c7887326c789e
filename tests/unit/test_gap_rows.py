"""Gaps by rows, by hand: what is left, where a job goes, what is said to one that does not fit."""

from __future__ import annotations

from typing import Any

import numpy as np

from rtsched.kernels.hooks import planned_rows
from rtsched.model.cluster import Cluster
from rtsched.model.jobs import Jobs
from rtsched.model.schedule import NO_PLAN, PlanRows
from rtsched_plugins.spare import Spare
from rtsched_plugins.spare_gaps import RowsInGaps

NOW = 1000.0


def form(select: str = "response-first", **columns: Any) -> RowsInGaps:
    """Return the short form for jobs on two equal nodes."""
    n = len(columns["size"])
    jobs = Jobs.build(n, id=10 + np.arange(n), submit=np.full(n, NOW), **columns)
    short = Spare(Spare.Config(select=select)).replay_planner(jobs, Cluster.uniform(2))
    assert isinstance(short, RowsInGaps)
    return short


def test_a_job_goes_into_the_first_gap() -> None:
    """Node 0 runs until 1050; 30 s fit on node 1 at once, two nodes together only at 1050."""
    short = form(size=[1, 2], wall_time=[30.0, 10.0], deadline=[1030.0, 1060.0])
    test, held = short.row_test(), np.array([1050.0, -np.inf])
    assert test is not None
    none = np.empty(0, np.int64)
    first = planned_rows(test.prepared, none, np.empty(0), 0, NOW, held)
    assert first.accepted
    assert (first.start.tolist(), first.end.tolist()) == ([1000.0], [1030.0])
    assert first.nodes.tolist() == [1]
    both = planned_rows(test.prepared, np.array([0]), first.start, 1, NOW, held)
    assert both.accepted
    assert both.start.tolist() == [1000.0, 1050.0]
    assert both.indptr.tolist() == [0, 1, 3]
    assert both.nodes.tolist() == [1, 0, 1]
    without = planned_rows(test.prepared, np.array([0, 1]), both.start, -1, NOW, held)
    assert not without.accepted  # what is planned stays where it is
    other = planned_rows(test.prepared, np.array([0]), first.start + 1.0, 1, NOW, held)
    assert not other.accepted  # it was planned by somebody else


def test_utilisation_first_ends_last() -> None:
    """By 1100, 30 s end last on the node that is busy until 1050."""
    short = form("utilisation-first", size=[1], wall_time=[30.0], deadline=[1100.0])
    held = np.array([1050.0, -np.inf])
    verdicts, plan = short.judge(np.array([0]), NOW, held, NO_PLAN, lambda: 0)
    assert verdicts is None
    assert plan is not None
    assert (plan.start.tolist(), plan.nodes.tolist()) == ([1050.0], [0])


def test_what_is_said_to_a_job_that_does_not_fit() -> None:
    """Two nodes are together from 1050 on: 20 s end at 1070, not by 1060; one is free in time."""
    short = form(size=[2], wall_time=[20.0], deadline=[1060.0])
    held = np.array([1050.0, -np.inf])
    verdicts, plan = short.judge(np.array([0]), NOW, held, NO_PLAN, lambda: 3)
    assert plan is None
    assert verdicts is not None
    assert verdicts.offer.tolist() == [1070.0]
    (finding,) = verdicts.findings
    assert finding.text(0) == (
        "task 10 cannot meet its deadline in 1 min beside 3 promises and 0 periodic jobs; 1 of 2 "
        "nodes would be free together in time"
    )


def test_plans_of_others_are_kept() -> None:
    """Job 0 was planned on node 1 until 1040 by the hook: job 1 goes behind it."""
    short = form(size=[1, 1], wall_time=[40.0, 30.0], deadline=[1040.0, 1100.0])
    plan = PlanRows(
        np.array([0]),
        np.array([1000.0]),
        np.array([1040.0]),
        np.array([0, 1]),
        np.array([1], np.int32),
    )
    held = np.array([1060.0, -np.inf])
    _, anew = short.judge(np.array([1]), NOW, held, plan, lambda: 1)
    assert anew is not None
    assert anew.row.tolist() == [0, 1]
    assert anew.start.tolist() == [1000.0, 1040.0]
    assert anew.nodes.tolist() == [1, 1]
