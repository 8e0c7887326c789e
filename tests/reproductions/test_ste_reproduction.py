"""The reproduction of service-time error: what it makes of runs that are given, and its runs."""

import numpy as np
import pytest

from rtsched_reproductions.ste import (
    BUSY,
    COMPLETION,
    EXPECTED,
    FCFS,
    FINAL,
    LATE,
    LEAST,
    LEAST_ERROR,
    MAKESPAN,
    MOST_ERROR,
    RR,
    SECOND,
    STE,
    Study,
    _error_claims,
    _studies,
    _time_claims,
    serve,
    wait,
)

ERRORS = [LEAST_ERROR, MOST_ERROR]
TWO: Study = (100, 50, 2)
FIRST: Study = (100, 10, 2)
EQUAL: Study = (100, 10, 1)
WIDE: Study = (100, 10, 10)
ALL, ONE = slice(None), 0

ORDER = "errors of FCFS > RR > STE, 100/10, 1-2"
WORSE = "errors of FCFS > RR whatever the shares"
FAIRER = "errors of RR > STE whatever the shares"
HALF = "two tasks per queue: errors of STE are half a quantum either way, as printed"
QUANTUM = "the least-error rule keeps errors at about a quantum"
ZERO = "final errors of each queue add up to 0"
MAKESPANS = "the makespan is equal under all rules"
SOONER = "STE completes sooner on average than RR where shares differ"
LAST = "FCFS completes last, STE first (table 3)"
COST = "the average cost depends on the rule (table 3)"
ENOUGH = "each task gets enough to end by its deadline (abstract)"
FEWER = "with deadlines at the ideal finish fewer are late under STE than under RR"


def as_described() -> dict[Study, np.ndarray]:  # type: ignore[type-arg]
    """Return runs of which all claims hold: float64[rule, seed, measure], by study."""
    one = np.zeros((4, 3, 7))
    one[FCFS, :, ERRORS], one[RR, :, ERRORS] = [[-5.0], [5.0]], [[-2.0], [2.0]]
    one[STE, :, ERRORS], one[LEAST, :, ERRORS] = [[-0.5], [0.5]], [[-1.0], [1.0]]
    one[..., COMPLETION] = np.array([30.0, 20.0, 10.0, 10.0])[:, None]
    one[..., MAKESPAN], one[..., BUSY] = 100.0, np.arange(4.0)[:, None]
    one[..., LATE] = np.array([0.9, 0.5, 0.0, 0.0])[:, None]
    return {study: one.copy() for study in _studies()}


@pytest.mark.parametrize(
    ("study", "rule", "seed", "measure", "value", "failing"),
    [
        (FIRST, FCFS, ALL, MOST_ERROR, 5.0, set()),
        (FIRST, FCFS, ALL, ERRORS, 2.0, {ORDER}),
        (FIRST, RR, ALL, ERRORS, 0.5, {ORDER}),
        (WIDE, RR, ONE, ERRORS, 5.0, set()),
        (WIDE, RR, ONE, ERRORS, 5.1, {WORSE}),
        (EQUAL, RR, ALL, ERRORS, 0.5, {FAIRER}),
        (TWO, STE, ONE, ERRORS, 0.6, {HALF}),
        (FIRST, LEAST, ALL, ERRORS, 1.4, set()),
        (FIRST, LEAST, ALL, ERRORS, 1.5, {QUANTUM}),
        (FIRST, STE, ONE, FINAL, 1e-5, {ZERO}),
        (FIRST, STE, ONE, MAKESPAN, 100.0 + 1e-5, {MAKESPANS}),
        (FIRST, RR, ALL, COMPLETION, 10.0, {SOONER, LAST}),
        (FIRST, RR, ALL, COMPLETION, 30.0, {LAST}),
        (FIRST, RR, ALL, LATE, 0.0, {FEWER}),
        (SECOND, STE, ONE, LATE, 0.1, {ENOUGH}),
        (SECOND, STE, ALL, LATE, 0.5, {ENOUGH, FEWER}),
    ],
)
def test_one_study_decides(
    study: Study,
    rule: int,
    seed: int | slice,
    measure: int | list[int],
    value: float,
    failing: set[str],
) -> None:
    """A tie is no lead; errors of one run and of one rule count."""
    studies = as_described()
    if isinstance(measure, list):
        studies[study][rule, seed, LEAST_ERROR], measure = -value, MOST_ERROR
    studies[study][rule, seed, measure] = value
    claims = [*_error_claims(studies), *_time_claims(studies)]
    assert len(claims) == len(EXPECTED) + 11
    assert {claim.text for claim in claims if not claim.holds} == failing


def test_equal_busy_times_are_equal_costs() -> None:
    """Of all studies, in all runs."""
    studies = as_described()
    for found in studies.values():
        found[..., BUSY] = 7.0
    assert {claim.text for claim in _time_claims(studies) if not claim.holds} == {COST}


def test_errors_are_in_quanta() -> None:
    """First come first served knows no quantum: its errors are half of one twice as long."""
    one, two = (serve((8, 2, 3), 2, quantum)[FCFS] for quantum in (1.0, 2.0))
    quanta = [LEAST_ERROR, MOST_ERROR, FINAL]
    assert one[:, quanta].tolist() == (2.0 * two[:, quanta]).tolist()
    assert (one[:, MOST_ERROR] > 0).all()


def test_a_task_that_ends_at_its_ideal_finish_is_in_time() -> None:
    """One task per queue has its server to itself."""
    assert (serve((3, 3, 2), 2, 1.0)[..., LATE] == 0).all()


def test_tasks_beyond_the_last_batch_are_left_out() -> None:
    """20 batches of 50 tasks, of 1019."""
    assert wait(0.5, 1019, True).shape == (20, 2)
