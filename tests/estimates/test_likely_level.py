"""The threshold on raw odds follows what becomes of promises."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtsched.estimates.likely_level import LikelyLevel


def test_nothing_is_given_below_the_stated_odds_before_the_first_outcome():
    """It begins on the safe side."""
    assert LikelyLevel().threshold(0.95) == 0.95


def log_odds(odds: float) -> float:
    """Return them as the threshold moves."""
    return math.log(odds / (1 - odds))


def test_broken_promises_raise_it_and_kept_ones_lower_it():
    """The aim is 92 % where 90 are stated: broken ones count by it, kept ones by the rest to 1."""
    level = LikelyLevel(step=0.1).learnt([(0.9, True)])
    assert log_odds(level.threshold(0.9)) == pytest.approx(log_odds(0.9) - 0.008)
    level = level.learnt([(0.9, False)])
    assert log_odds(level.threshold(0.9)) == pytest.approx(log_odds(0.9) - 0.008 + 0.092)


def test_each_stated_odds_have_their_own():
    """Outcomes of others do not count; an order of outcomes is all that counts."""
    level = LikelyLevel().learnt([(0.8, True)])
    assert level.threshold(0.8) < 0.8
    assert level.threshold(0.95) == 0.95
    assert level.learnt([(0.8, False), (0.9, True)]) == LikelyLevel().learnt(
        [(0.8, True), (0.8, False), (0.9, True)]
    )


@pytest.mark.parametrize("stated", [0.2, 0.5, 0.8, 0.95, 0.99])
def test_it_stays_where_promises_are_still_given(stated):
    """It neither runs away nor stops all promises."""
    level = LikelyLevel(step=1.0).learnt([(stated, False)] * 500)
    assert level.threshold(stated) == pytest.approx(1 - (1 - stated) / 10)
    level = level.learnt([(stated, True)] * 2000)
    assert level.threshold(stated) == pytest.approx(min(stated, (1 - stated) / 2))


@given(st.floats(0, 1), st.floats(0.01, 0.999), st.lists(st.booleans(), max_size=60))
def test_calibrated_odds_reach_the_stated_ones_at_the_threshold(raw, stated, kept):
    """Above it they are more, below it less; and they grow with the raw ones."""
    level = LikelyLevel().learnt((stated, each) for each in kept)
    threshold = level.threshold(stated)
    assert 0 < threshold < 1
    assert level.calibrated(threshold, stated) == pytest.approx(stated, abs=1e-3)
    if abs(raw - threshold) > 1e-3:
        assert (level.calibrated(raw, stated) >= stated) == (raw >= threshold)
    assert level.calibrated(raw, stated) <= level.calibrated(min(raw + 0.1, 1.0), stated)


@pytest.mark.parametrize("odds", [-0.1, 1.1, float("nan")])
def test_odds_beyond_0_and_1_are_refused(odds):
    """They are no odds."""
    with pytest.raises(ValueError, match="within 0 and 1"):
        LikelyLevel().learnt([(odds, True)])


@pytest.mark.parametrize("stated", [0.8, 0.95])
@pytest.mark.parametrize(("power", "off"), [(0.5, 0.01), (1.0, 0.01), (3.0, 0.01)])
def test_the_stated_share_is_kept_though_raw_odds_are_wrong(stated, power, off):
    """A fifth of what may be broken is not used; none says so much that it cannot be reached."""
    rng = np.random.default_rng(1)
    level, kept = LikelyLevel(), []
    for raw in rng.random(60_000).tolist():
        if raw >= level.threshold(stated):
            kept.append(bool(rng.random() < raw**power))
            level = level.learnt([(stated, kept[-1])])
    assert len(kept) > 1000
    assert np.mean(kept[len(kept) // 3 :]) == pytest.approx(1 - 0.8 * (1 - stated), abs=off)


def test_nearly_every_block_holds_where_raw_odds_change_their_meaning():
    """They say far too much and far too little in turn: 92 % or more of each 500 are kept."""
    rng = np.random.default_rng(2)
    level, kept = LikelyLevel(), []
    for number, raw in enumerate(rng.random(200_000).tolist()):
        if raw >= level.threshold(0.95):
            power = 3.0 if number // 10_000 % 2 else 0.3
            kept.append(bool(rng.random() < raw**power))
            level = level.learnt([(0.95, kept[-1])])
    blocks = np.reshape(kept[: len(kept) // 500 * 500], (-1, 500)).mean(axis=1)
    assert len(blocks) > 30
    assert np.mean(blocks >= 0.92) > 0.95
    assert blocks.min() >= 0.9
