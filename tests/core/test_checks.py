"""Checks of answers: each kind of mistake is named; what is right passes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rtsched.core.checks import CHECKS
from rtsched.errors import ShapeError
from rtsched.model.schedule import Schedule
from rtsched.model.state import State
from rtsched.model.verdicts import DelayClasses, Finding, Placement, Reason, Terms, Verdicts
from rtsched.testing import make_cluster, make_jobs, make_snapshot

SYSTEM = make_snapshot(cluster=make_cluster(4))
JOBS = make_jobs(2)
RIGHT: dict[str, Any] = {
    "admit": Verdicts.build([1, 3], promise=[5.0, np.inf]),
    "fair_share": Terms({"x": np.array([0.0, 1.0])}, offset=np.array([-3.0, 7.0])),
    "partition": Placement(
        np.array([0, 2], np.int32), np.array([-1, 0], np.int32), (np.array([3, 1], np.int32),)
    ),
    "delay_class": DelayClasses(np.array([1.0, 2.0, np.inf, 1.0]), np.array([1.0, 2.0])),
    "observe": State(),
}


def ints(*values: int) -> np.ndarray[Any, Any]:
    """Return an int32 array."""
    return np.array(values, np.int32)


def plan(nodes: list[int], start: float = 0.0, end: float = 1.0) -> Schedule:
    """Return a plan of one job."""
    return Schedule.build([7], [start], [end], np.array([0, len(nodes)]), ints(*nodes))


OUTSIDE = Finding(Reason("a.b", "c"), np.array([2]), {})
WRONG = [
    ("admit", "sure", "returned str"),
    ("admit", Verdicts.abstain(3), r"code has shape \(3,\)"),
    ("admit", Verdicts.build([0, 4]), "not a Verdict"),
    ("admit", Verdicts.build([0, -1]), "not a Verdict"),
    ("admit", Verdicts.build([2, 2], retry_at=np.nan), "retry_at contains nan"),
    ("admit", Verdicts.build([3, 1], promise=5.0), "not admitted"),
    ("admit", replace(Verdicts.abstain(2), findings=(OUTSIDE,)), "names a row"),
    ("admit", replace(Verdicts.abstain(2), plan=plan([4])), "does not have"),
    ("admit", replace(Verdicts.abstain(2), plan=plan([0], 2.0)), "ends before it starts"),
    ("fair_share", Terms({"x": np.array([0.5])}), "term 'x' has shape"),
    ("fair_share", Terms({"x": np.array([0.5, 1.5])}), "leaves"),
    ("fair_share", Terms({"x": np.array([0.5, np.nan])}), "leaves"),
    ("fair_share", Terms({"x": np.array([1, 0])}), "term 'x' is int64"),
    ("fair_share", Terms({"x": [0.5, 0.5]}), "term 'x' is list"),  # type: ignore[dict-item]
    ("fair_share", Terms({"x": np.zeros(2)}, per_account=True), "expected \\(0,\\)"),
    ("fair_share", Terms({}, offset=np.array([0.0, np.inf])), "not a number"),
    ("fair_share", Terms({}), "no terms"),
    ("partition", Placement.abstain(1), "size has shape"),
    ("partition", Placement(ints(-1, 0), ints(-1, -1)), "out of range"),
    ("partition", Placement(ints(0, 0), ints(-1, 0)), "out of range"),
    ("partition", Placement(ints(0, 0), ints(0, 0), (ints(1, 1),)), "twice"),
    ("partition", Placement(ints(0, 0), ints(0, 0), (ints(9),)), "does not have"),
    ("partition", Placement(ints(0, 3), ints(-1, 0), (ints(0, 1),)), "larger than the node set"),
    ("delay_class", DelayClasses(np.ones(3), np.ones(1)), "factor has shape"),
    ("delay_class", DelayClasses(np.zeros(4), np.ones(1)), "not above zero"),
    ("delay_class", DelayClasses(np.ones(4), np.array([2.0, 1.0])), "do not ascend"),
    ("delay_class", DelayClasses(np.ones(4), np.ones(1), np.ones((2, 3))), "per_job has shape"),
    ("observe", {"count": 1}, "returned dict"),
]


@pytest.mark.parametrize(("hook", "answer", "complaint"), WRONG)
def test_a_wrong_answer_is_named(hook: str, answer: Any, complaint: str) -> None:
    """Length, type, range, references: the sentence says which."""
    with pytest.raises(ShapeError, match=complaint):
        CHECKS[hook](answer, JOBS, SYSTEM)


@pytest.mark.parametrize("hook", RIGHT)
def test_a_right_answer_passes(hook: str) -> None:
    """What keeps the contract is not complained of."""
    CHECKS[hook](RIGHT[hook], JOBS, SYSTEM)


def test_every_hook_has_a_check() -> None:
    """No answer goes unchecked."""
    assert set(CHECKS) == set(RIGHT)


BUSY = make_snapshot(
    make_jobs(3, id=[10, 11, 12]), make_cluster(4), 50.0, running=make_jobs(id=[9]), nodes=[[3]]
)


def entries(*rows: tuple[int, float, float, list[int]]) -> Verdicts:
    """Return no opinion, with a plan of (job, start, end, nodes)."""
    job, start, end, nodes = zip(*rows, strict=True)
    indptr = np.cumsum([0, *map(len, nodes)])
    return replace(
        Verdicts.abstain(2),
        plan=Schedule.build(job, start, end, indptr, ints(*np.concatenate(nodes))),
    )


PLANS = [
    ([(7, 60.0, 70.0, [0])], "job 7, which does not wait"),
    ([(9, 60.0, 70.0, [0])], "job 9, which does not wait"),
    ([(10, 60.0, 70.0, [0, 1]), (0, 69.0, 80.0, [1])], "job 0 a node that is not free"),
    ([(1, 60.0, 90.0, [2]), (10, 65.0, 70.0, [2]), (11, 75.0, 80.0, [2])], "job 10 a node"),
    ([(10, 3599.0, 3700.0, [3])], "job 10 a node that is not free"),
    ([(10, 60.0, 70.0, [0, 0])], "job 10 a node that is not free"),
]


@pytest.mark.parametrize(("rows", "complaint"), PLANS)
def test_a_plan_that_cannot_be_carried_out_is_refused(rows: Any, complaint: str) -> None:
    """Jobs that do not wait, nodes given twice at one time, nodes of running jobs."""
    with pytest.raises(ShapeError, match=complaint):
        CHECKS["admit"](entries(*rows), JOBS, BUSY)


def test_a_plan_may_use_nodes_one_after_the_other() -> None:
    """One job starts when another ends, a running one or a planned one; rounding is forgiven."""
    after = [(10, 60.0, 70.0, [0, 1]), (0, 70.0 - 1e-7, 80.0, [1]), (11, 3600.0, 3700.0, [3, 0])]
    CHECKS["admit"](entries(*after), JOBS, BUSY)


def test_what_stood_in_the_plan_need_not_fit_around_jobs_that_stay_too_long() -> None:
    """An entry that was there before is not held against whoever plans another."""
    old = entries((10, 100.0, 110.0, [3])).plan
    both = entries((10, 100.0, 110.0, [3]), (0, 60.0, 70.0, [0]))
    CHECKS["admit"](both, JOBS, replace(BUSY, plan=old))
    with pytest.raises(ShapeError, match="job 10 a node"):
        CHECKS["admit"](entries((10, 101.0, 111.0, [3])), JOBS, replace(BUSY, plan=old))


def test_a_node_set_must_hold_a_job_that_is_given_no_size() -> None:
    """Else the job would wait for ever, and nobody would know why."""
    answer = Placement(ints(0, 0), ints(-1, 0), (ints(1, 2),))
    with pytest.raises(ShapeError, match=r"job 1 .* never start: it asks for 3 nodes, .* has 2"):
        CHECKS["partition"](answer, make_jobs(size=[9, 3]), SYSTEM)
    CHECKS["partition"](answer, make_jobs(size=[9, 2]), SYSTEM)
