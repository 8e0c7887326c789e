"""Submissions drawn from the past: blocks that keep weekday and time of day."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtsched.estimates.ahead import WEEKS, next_arrivals
from rtsched.model.units import DAY, WEEK

NOW = 1000 * DAY + 12345.0


def hourly(days: float) -> np.ndarray:
    """Return a submission an hour, the last one an instant ago."""
    return np.flip(NOW - 1.0 - np.arange(0.0, days * DAY, 3600.0))


def test_empty() -> None:
    """Nobody submits anything."""
    row, at = next_arrivals(np.zeros(0), NOW, NOW + WEEK, np.random.default_rng(0))
    assert (len(row), len(at)) == (0, 0)


def test_what_is_in_the_future_only() -> None:
    """A past whose clock went wrong is none."""
    row, _ = next_arrivals(np.array([NOW + 5.0]), NOW, NOW + WEEK, np.random.default_rng(0))
    assert len(row) == 0


@pytest.mark.parametrize("days", [0.5, 1.0, 1.5, 2.0, 3.0, 8.0, 30.0, 200.0])
def test_rates_and_order(days: float) -> None:
    """As many come as before, in order, none before now, however little is known."""
    submit = hourly(days)
    for seed in range(5):
        row, at = next_arrivals(submit, NOW, NOW + WEEK, np.random.default_rng(seed))
        assert (at >= NOW).all()
        assert (at < NOW + WEEK).all()
        assert (np.diff(at) >= 0.0).all()
        assert len(row) == pytest.approx(WEEK / 3600.0, rel=0.3)
        assert (submit[row] < NOW).all()


@pytest.mark.parametrize("days", [3.0, 8.0, 100.0])
def test_the_time_of_day_is_kept(days: float) -> None:
    """Who submitted at nine does so again."""
    submit = hourly(days)
    row, at = next_arrivals(submit, NOW, NOW + WEEK, np.random.default_rng(2))
    shift = (at - submit[row]) / DAY
    assert shift == pytest.approx(np.round(shift))
    assert (shift >= 1.0).all()
    assert (shift <= min(days + 7.0, 7.0 * (WEEKS + 1))).all()


def test_weekdays_count_double() -> None:
    """Half of the days, and a seventh of the other half, are of the same weekday."""
    submit = hourly(80.0)
    random, same, every = np.random.default_rng(3), 0, 0
    for _ in range(100):
        row, at = next_arrivals(submit, NOW, NOW + WEEK, random)
        same += int((np.round((at - submit[row]) / DAY) % 7 == 0).sum())
        every += len(at)
    assert same / every == pytest.approx(0.5 + 0.5 / 7, abs=0.06)


def test_until_now() -> None:
    """No time ahead, no arrivals."""
    row, _ = next_arrivals(hourly(30.0), NOW, NOW, np.random.default_rng(0))
    assert len(row) == 0


@given(
    back=st.lists(st.floats(-1e6, 1e8), max_size=30),
    ahead=st.floats(0.0, 30 * DAY),
    seed=st.integers(0, 9),
)
def test_any_past(back: list[float], ahead: float, seed: int) -> None:
    """In order, between now and the end, and rows that there are."""
    submit = np.sort(NOW - np.array(back))
    row, at = next_arrivals(submit, NOW, NOW + ahead, np.random.default_rng(seed))
    assert ((row >= 0) & (row < len(submit))).all()
    assert ((at >= NOW) & (at < NOW + ahead)).all()
    assert (np.diff(at) >= 0.0).all()


def test_a_single_job_a_moment_ago() -> None:
    """A history of a millisecond is no flood of arrivals."""
    row, _ = next_arrivals(np.array([NOW - 0.001]), NOW, NOW + 14 * DAY, np.random.default_rng(0))
    assert len(row) < 100_000
