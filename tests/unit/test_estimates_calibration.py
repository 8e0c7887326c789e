"""Calibration: coverage by the residuals of the past."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtsched.estimates.calibration import (
    FORGOTTEN,
    LEVELS,
    MEDIAN,
    STEP,
    Calibration,
    Open,
    Spread,
)
from rtsched.estimates.record import SCORE, WIDTH, Record, judged

NONE = np.zeros(0, np.int64), np.zeros(0)


def spread(n: int, median: float = 1000.0, width: float = 100.0) -> Spread:
    """Return equal spreads."""
    return Spread(np.full(n, median), np.full(n, width), np.full(n, width))


def opened(
    at: np.ndarray, quantiles: np.ndarray, by_limits: np.ndarray, weight: np.ndarray, first: int = 0
) -> Open:
    """Return open estimates of jobs of one size, with equal spreads."""
    n = len(at)
    passed = np.zeros((n, len(LEVELS)), np.bool_)
    job = first + np.arange(n)
    return Open(at, job, np.ones(n), spread(n), quantiles, by_limits[:, None], passed, weight)


def settle(known: Calibration, outcome: np.ndarray, at: float = 0.0) -> np.ndarray:
    """Estimate, learn the outcomes, seconds from then on, and return the quantiles."""
    n = len(outcome)
    size = np.ones(n)
    quantiles = known.quantiles(spread(n), size, at)
    weight = np.full(n, 3.0 / max(n, 1))
    known.remember(opened(np.full(n, at), quantiles, outcome, weight))
    known.settle(np.arange(n), at + outcome, NONE[0], at + 1e6)
    return quantiles


def test_residuals_and_values_are_inverse() -> None:
    """On both sides of the median."""
    skew = Spread(np.full(3, 50.0), np.full(3, 10.0), np.full(3, 20.0))
    residual = np.array([-2.0, 0.0, 3.0])
    assert skew.value(residual).tolist() == [30.0, 50.0, 110.0]
    assert skew.residual(skew.value(residual)).tolist() == residual.tolist()


def test_nothing_known_is_wide() -> None:
    """A 95 % interval of four spreads to either side."""
    found = Calibration().quantiles(spread(1), np.ones(1), 0.0)[0]
    assert found[0] <= 1000.0 - 350.0
    assert found[-1] >= 1000.0 + 350.0


def test_coverage() -> None:
    """Of exchangeable outcomes each interval covers its share, within four standard errors."""
    known, random = Calibration(), np.random.default_rng(1)
    within = []
    for step in range(500):
        outcome = 1000.0 + 80.0 * random.standard_t(4, 50)
        found = settle(known, outcome, 1e7 * step)
        if step >= 250:
            within.append(
                (outcome[:, None] >= found[:, :3]) & (outcome[:, None] <= found[:, :3:-1])
            )
    covered = np.concatenate(within)
    assert covered.shape == (12_500, 3)
    for place, share in enumerate((0.95, 0.9, 0.8)):
        bound = 4 * np.sqrt(share * (1 - share) / len(covered))
        assert covered[:, place].mean() == pytest.approx(share, abs=bound)


@given(
    outcome=st.lists(st.floats(0.0, 1e7), max_size=80),
    median=st.floats(0.0, 1e6),
    width=st.floats(1.0, 1e5),
)
def test_quantiles_ascend(outcome: list[float], median: float, width: float) -> None:
    """Whatever was learnt."""
    known = Calibration()
    settle(known, np.array(outcome))
    found = known.quantiles(spread(1, median, width), np.ones(1), 1e7)[0]
    assert len(found) == len(LEVELS)
    assert (np.diff(found) >= 0.0).all()
    assert (found >= 0.0).all()


def test_late_jobs_count_at_once() -> None:
    """Open estimates whose time is over widen the intervals before their outcome is known."""
    known = Calibration()
    for step in range(4):
        settle(known, np.full(50, 1000.0), 1e7 * step)
    before = known.quantiles(spread(1), np.ones(1), 1e8)[0, -1]
    n = 100
    kept = opened(np.full(n, 1e8), np.zeros((n, 7)), np.ones(n), np.full(n, 3.0 / n))
    known.remember(kept)
    after = known.quantiles(spread(1), np.ones(1), 1e8 + 5000.0)[0, -1]
    assert after > before + 1000.0


def test_quantiles_that_have_passed_count_before_the_outcome() -> None:
    """The levels follow an open estimate that is late; its outcome then counts no second time."""
    bounds = np.array([[100.0, 200.0, 300.0, 500.0, 700.0, 800.0, 900.0]])

    def levels(*times: float, outcome: float = 850.0) -> np.ndarray:
        known = Calibration()
        known.remember(opened(np.zeros(1), bounds, np.ones(1), np.ones(1)))
        for at in times:
            known.settle(*NONE, NONE[0], at)
        known.settle(np.zeros(1, np.int64), np.full(1, outcome), NONE[0], outcome)
        return known._shift[0]

    assert levels(750.0, 820.0) == pytest.approx(levels(), rel=1e-3)  # a little is forgotten
    known = Calibration()
    known.remember(opened(np.zeros(1), bounds, np.ones(1), np.ones(1)))
    known.settle(*NONE, NONE[0], 750.0)  # later than the first five quantiles
    moved = known._shift[0]
    assert moved[:5] == pytest.approx(STEP * LEVELS[:5] * (np.arange(5) != MEDIAN))
    assert moved[5:].tolist() == [0.0, 0.0]


def test_levels_allow_for_few_days() -> None:
    """By hand: of four days, a quarter of each tail's level more; of one hundred, a hundredth."""
    known = Calibration()
    for day in range(100):
        settle(known, np.full(3, 1000.0), 86400.0 * day)
        known._shift[:] = 0.0
        if day == 3:
            few = known.levels(0)
    assert few == pytest.approx([-0.2, -0.1875, -0.125, 0.5, 1.125, 1.1875, 1.2])  # 1.21875
    found = known.levels(0)
    assert found == pytest.approx([0.01525, 0.0405, 0.091, 0.5, 0.909, 0.9595, 0.98475])


def test_levels_forget_what_they_followed() -> None:
    """A miss of long ago counts no more, however few outcomes came since."""
    known = Calibration()
    known.remember(opened(np.zeros(1), np.full((1, 7), 100.0), np.ones(1), np.ones(1)))
    known.settle(np.zeros(1, np.int64), np.full(1, 900.0), NONE[0], 900.0)
    moved = known._shift[0, -1]
    assert moved == pytest.approx(STEP * LEVELS[-1], rel=1e-2)
    known.settle(*NONE, NONE[0], 900.0 + FORGOTTEN)
    assert known._shift[0, -1] == pytest.approx(moved / np.e)
    known.settle(*NONE, NONE[0], 900.0)  # the clock has stepped back
    assert known._shift[0, -1] == pytest.approx(moved / np.e)


def test_a_clock_that_steps_back() -> None:
    """Estimates of the future are dropped."""
    known = Calibration()
    kept = opened(np.array([500.0]), np.zeros((1, 7)), np.ones(1), np.ones(1))
    known.remember(kept)
    known.settle(*NONE, NONE[0], 100.0)
    assert len(known.remembered()) == 0


def test_the_record_by_hand() -> None:
    """Two estimates: one within 80 %, one within 95 % alone."""
    quantiles = np.array([[10.0, 20.0, 30.0, 50.0, 70.0, 80.0, 90.0]] * 2)
    known = Calibration()
    kept = opened(np.zeros(2), quantiles, np.full(2, 100.0), np.ones(2), first=1)
    known.remember(kept)
    settled = known.settle(np.array([1, 2]), np.array([60.0, 85.0]), NONE[0], 200.0)
    rows = judged(settled)
    assert rows[:, 1:4].tolist() == [[1.0, 1.0, 1.0], [0.0, 0.0, 1.0]]
    assert rows[:, WIDTH].tolist() == [60.0, 60.0]
    assert rows[:, SCORE].tolist() == [60.0, 60.0 + 20 * (85.0 - 80.0)]
    record = Record()
    record.add(settled, 200.0)
    found = record.accuracy(200.0)
    assert found.jobs.tolist() == [2, 2, 2]
    assert found.covered_80[0] == 0.5
    assert found.covered_95[0] == 1.0
    assert found.error[0] == (10.0 + 35.0) / 2
    assert found.error_by_limits[0] == (40.0 + 15.0) / 2
    later = record.accuracy(200.0 + 2 * 86400.0)
    assert later.jobs.tolist() == [0, 2, 2]
    assert np.isnan(later.error[0])
    assert quantiles[0, MEDIAN] == 50.0


def test_many_residuals_of_few_jobs_are_little_knowledge() -> None:
    """Two jobs that were estimated a hundred times leave the interval nearly as wide as none."""
    known, n = Calibration(), 200
    bounds = known.quantiles(spread(n), np.ones(n), 0.0)
    job = np.arange(n) % 2
    kept = opened(np.zeros(n), bounds, np.ones(n), np.zeros(n))._replace(job=job)
    known.remember(kept)
    known.settle(np.arange(2), np.full(2, 1000.0), NONE[0], 1e6)
    found = known.quantiles(spread(1), np.ones(1), 1e6)[0]
    assert found[0] <= 1000.0 - 350.0
    assert found[-1] >= 1000.0 + 350.0
