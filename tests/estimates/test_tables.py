"""Odds of deadlines by the ends that a job may have."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtsched.estimates.tables import earliest_with, odds_by


@pytest.mark.parametrize(
    ("deadline", "odds"),
    [(9.0, 0.0), (10.0, 0.25), (29.0, 0.5), (math.inf, 0.5)],
)
def test_odds_are_the_share_that_has_ended(deadline: float, odds: float) -> None:
    """Of one more than are known; one that never ends is late for no deadline at all too."""
    assert odds_by(np.array([10.0, 20.0, math.inf]), deadline) == odds


def test_without_an_end_nothing_is_known() -> None:
    """No odds, and no deadline with them."""
    assert math.isnan(odds_by(np.zeros(0), 1.0))
    assert earliest_with(np.zeros(0), 0.5) == math.inf


@given(
    ends=st.lists(st.floats(0.0, 1e9) | st.just(math.inf), min_size=1, max_size=50).map(sorted),
    odds=st.floats(0.0, 1.0),
)
def test_the_earliest_deadline_with_odds_has_them(ends: list[float], odds: float) -> None:
    """And the end before it has not."""
    known = np.array(ends)
    at = earliest_with(known, odds)
    if math.isfinite(at):
        assert odds_by(known, at) >= odds - 1e-12
        before = known[known < at]
        assert not len(before) or odds_by(known, float(before[-1])) < odds
    else:
        assert odds_by(known, math.inf) < odds or not np.isfinite(known).any()
