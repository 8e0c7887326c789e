"""Calibration: coverage by the residuals of the past."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtsched.estimates.calibration import (
    FEW_DAYS,
    LEVELS,
    MEDIAN,
    MEMORIES,
    Calibration,
    Open,
    Spread,
)
from rtsched.estimates.record import ERROR_BY_LIMITS, SCORE, WIDTH, Record, judged

NONE = np.zeros(0, np.int64), np.zeros(0)
DAY = 86400.0


def spread(n: int, median: float = 1000.0, width: float = 100.0) -> Spread:
    """Return equal spreads."""
    return Spread(np.full(n, median), np.full(n, width), np.full(n, width))


def opened(at: np.ndarray, quantiles: np.ndarray, by_limits: np.ndarray, first: int = 0) -> Open:
    """Return open estimates of jobs of one size, with equal spreads."""
    n = len(at)
    return Open(at, first + np.arange(n), np.ones(n), spread(n), quantiles, by_limits[:, None])


def settle(known: Calibration, outcome: np.ndarray, at: float = 0.0) -> np.ndarray:
    """Estimate, learn the outcomes, seconds from then on, and return the quantiles."""
    n = len(outcome)
    quantiles = known.quantiles(spread(n), np.ones(n), at)
    known.remember(opened(np.full(n, at), quantiles, outcome))
    known.settle(np.arange(n), at + outcome, NONE[0], at + outcome.max(initial=0.0))
    return quantiles


def known_of(residual: np.ndarray, days: int = FEW_DAYS + 1) -> Calibration:
    """Return what is known after estimates of so many days before now, 0, had these residuals."""
    known = Calibration()
    for day in range(-days, 0):
        settle(known, 1000.0 + 100.0 * residual, DAY * day)
    return known


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


def covered(known: Calibration, random: np.random.Generator, days: range, off: float) -> np.ndarray:
    """Return of outcomes off by so many seconds which intervals cover them, bool[n, 3]."""
    within = []
    for step in range(4 * days.start, 4 * days.stop):
        outcome = 1000.0 + off * random.standard_t(4, 50)
        found = settle(known, outcome, DAY / 4 * step)
        within.append((outcome[:, None] >= found[:, :3]) & (outcome[:, None] <= found[:, :3:-1]))
    return np.concatenate(within)


def test_coverage() -> None:
    """Of exchangeable outcomes each interval covers its share, within half of the hundredths."""
    known, random = Calibration(), np.random.default_rng(1)
    covered(known, random, range(60), 80.0)
    found = covered(known, random, range(60, 120), 80.0)
    assert found.mean(axis=0) == pytest.approx([0.95, 0.9, 0.8], abs=0.01)


def test_a_change_in_the_middle() -> None:
    """When outcomes become five times as wild, intervals follow within twenty days."""
    known, random = Calibration(), np.random.default_rng(1)
    covered(known, random, range(60), 80.0)
    covered(known, random, range(60, 80), 400.0)
    assert 0.87 <= covered(known, random, range(80, 140), 400.0)[:, 1].mean() <= 0.95


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
    known = known_of(np.zeros(50))
    before = known.quantiles(spread(1), np.ones(1), 0.0)[0, -1]
    n = 100
    known.remember(opened(np.zeros(n), np.zeros((n, 7)), np.ones(n)))
    after = known.quantiles(spread(1), np.ones(1), 5000.0)[0, -1]
    assert after > before + 1000.0


def test_recent_residuals_count_more() -> None:
    """By hand: of 50 residuals of 3 spreads on each of eight days, then as many of -1.

    Five days after, an old one counts at most e^-6/5 in the first memory, e^-6/20 in the second and
    e^-6/80 in the third: their shares are below a half, so that all medians are -1, and above 10 %,
    so that all upper bounds of 80 % are 3. With ten times as many of -1 they are below 10 %.
    """
    known = known_of(np.full(50, 3.0))
    for _ in range(FEW_DAYS + 1):
        settle(known, np.full(50, 900.0), MEMORIES[0])
    found = known.quantiles(spread(1), np.ones(1), MEMORIES[0])[0]
    assert found[[MEDIAN, 4]] == pytest.approx([900.0, 1300.0], abs=10.0)
    for _ in range(9 * (FEW_DAYS + 1)):
        settle(known, np.full(50, 900.0), MEMORIES[0])
    assert known.quantiles(spread(1), np.ones(1), MEMORIES[0])[0, 4] == pytest.approx(900.0, abs=10)


@pytest.mark.parametrize("jobs", [200, 10_000])
def test_many_residuals_of_few_days_are_little_knowledge(jobs: int) -> None:
    """By hand: of one day of seven, six parts in seven are as where nothing is known.

    There 2.5 % is 2.92 % of that, a sixth of the way from 4 spreads to 3, on the scale of bins. The
    day counts a little less, as it is one day ago: e^-1/80.
    """
    known = known_of(np.zeros(jobs), 1)
    found = known.quantiles(spread(1), np.ones(1), 0.0)[0]
    most = np.sinh(np.arcsinh(4.0) - (np.arcsinh(4.0) - np.arcsinh(3.0)) / 6)
    assert found[-1] == pytest.approx(1000.0 + 100.0 * most, abs=10.0)
    assert known_of(np.zeros(200)).quantiles(spread(1), np.ones(1), 0.0)[0, -1] < 1010.0


def test_spreads_are_no_less_than_a_quarter_of_the_mean_error() -> None:
    """By hand: off by 4 and by 8 hours, a quarter of 6; before, ten minutes."""
    known, draws = Calibration(), np.full((8, 1), 1000.0)
    assert known.spread(draws).above.tolist() == [600.0 + 200.0]
    settle(known, 1000.0 + 3600.0 * np.array([4.0, 8.0]))
    assert known.spread(draws).above.tolist() == [1.5 * 3600.0 + 200.0]
    settle(known, np.full(10_000, 1000.0), DAY)
    assert known.spread(draws).below.tolist() == [600.0 + 200.0]


def test_sizes_have_their_own_residuals() -> None:
    """Jobs of 1, 8 and 64 nodes are of three classes; of a class of few jobs all count."""
    known, n = Calibration(), 150
    size = np.repeat([1.0, 8.0, 64.0], 50)
    for day in range(-FEW_DAYS, 0):
        at = np.full(n, DAY * day)
        kept = opened(at, np.zeros((n, 7)), np.ones(n))._replace(size=size)
        known.remember(kept)
        known.settle(np.arange(n), at + 1000.0 + 100.0 * np.log2(size), NONE[0], DAY * day + 2000.0)
    found = known.quantiles(spread(3), np.array([1.0, 8.0, 64.0]), 0.0)[:, MEDIAN]
    assert found == pytest.approx([1000.0, 1300.0, 1600.0], abs=15.0)
    few = known_of(np.zeros(100))
    few.remember(opened(np.zeros(1), np.zeros((1, 7)), np.ones(1))._replace(size=np.full(1, 64.0)))
    few.settle(np.zeros(1, np.int64), np.full(1, 5000.0), NONE[0], 5000.0)
    assert few.quantiles(spread(1), np.full(1, 64.0), 0.0)[0, MEDIAN] == pytest.approx(1000, abs=10)


def test_a_clock_that_steps_back() -> None:
    """Estimates of the future are dropped."""
    known = Calibration()
    kept = opened(np.array([500.0]), np.zeros((1, 7)), np.ones(1))
    known.remember(kept)
    known.settle(*NONE, NONE[0], 100.0)
    assert len(known.remembered()) == 0


@given(jump=st.floats(-1e10, 1e10))
def test_a_clock_that_jumps_makes_no_interval_narrow(jump: float) -> None:
    """Neither by what is known already, nor by a few outcomes learnt thereafter.

    What it makes long ago is forgotten; little is known then, so that intervals are wide.
    """
    known = known_of(np.array([-2.0, -1.0, 0.0, 1.0, 2.0] * 20))
    before = known.quantiles(spread(1), np.ones(1), 0.0)[0]
    for _ in range(2):
        after = known.quantiles(spread(1), np.ones(1), jump)[0]
        assert np.isfinite(after).all()
        assert after[-1] - after[0] > 0.95 * (before[-1] - before[0])
        settle(known, np.full(5, 1000.0), jump)


def test_the_record_by_hand() -> None:
    """Two estimates: one within 80 %, one within 95 % alone."""
    quantiles = np.array([[10.0, 20.0, 30.0, 50.0, 70.0, 80.0, 90.0]] * 2)
    known = Calibration()
    kept = opened(np.zeros(2), quantiles, np.full(2, 100.0), first=1)
    known.remember(kept)
    settled = known.settle(np.array([1, 2]), np.array([60.0, 85.0]), NONE[0], 200.0)
    rows = judged(settled)
    assert rows[:, 1:4].tolist() == [[1.0, 1.0, 1.0], [0.0, 0.0, 1.0]]
    assert rows[:, WIDTH].tolist() == [60.0, 60.0]
    assert rows[:, SCORE].tolist() == [60.0, 60.0 + 20 * (85.0 - 80.0)]
    simple = settled._replace(value=np.array([60.0, 90.0]))
    assert judged(settled, [settled, simple])[:, ERROR_BY_LIMITS + 1 :].tolist() == [
        [60.0, 60.0, 60.0, 60.0],
        [60.0, 60.0, 160.0, 260.0],
    ]
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
    kept = opened(np.zeros(n), bounds, np.ones(n))._replace(job=job)
    known.remember(kept)
    known.settle(np.arange(2), np.full(2, 1000.0), NONE[0], 1e6)
    found = known.quantiles(spread(1), np.ones(1), 1e6)[0]
    assert found[0] <= 1000.0 - 350.0
    assert found[-1] >= 1000.0 + 350.0
