"""The threshold on raw odds follows what becomes of promises."""

import numpy as np
import pytest

from rtsched.estimates.likely_level import LikelyLevel


def test_nothing_is_given_below_the_stated_odds_before_the_first_outcome():
    """It begins on the safe side."""
    assert LikelyLevel().threshold(0.95) == 0.95


def test_broken_promises_raise_it_and_kept_ones_lower_it():
    """A broken one counts by the stated odds, a kept one by what is missing to 1."""
    level = LikelyLevel(step=0.04)
    level.learn(0.9, kept=True)
    assert level.threshold(0.9) == pytest.approx(0.9 - 0.004)
    level.learn(0.9, kept=False)
    assert level.threshold(0.9) == pytest.approx(0.9 - 0.004 + 0.036)


def test_each_stated_odds_have_their_own():
    """Outcomes of others do not count."""
    level = LikelyLevel()
    level.learn(0.8, kept=True)
    assert level.threshold(0.8) < 0.8
    assert level.threshold(0.95) == 0.95


def test_it_stays_where_promises_are_still_given():
    """It neither runs away nor stops all promises."""
    level = LikelyLevel(step=0.5)
    for _ in range(100):
        level.learn(0.5, kept=False)
    assert level.threshold(0.5) == 0.75
    for _ in range(100):
        level.learn(0.5, kept=True)
    assert level.threshold(0.5) == 0.0


@pytest.mark.parametrize("odds", [-0.1, 1.1, float("nan")])
def test_odds_beyond_0_and_1_are_refused(odds):
    """They are no odds."""
    with pytest.raises(ValueError, match="within 0 and 1"):
        LikelyLevel().learn(odds, kept=True)


@pytest.mark.parametrize("stated", [0.8, 0.95])
@pytest.mark.parametrize(("power", "off"), [(0.5, 0.01), (1.0, 0.01), (3.0, 0.03)])
def test_the_stated_share_is_kept_though_raw_odds_are_wrong(stated, power, off):
    """Where raw odds say far too much, the highest threshold leaves some more broken."""
    rng = np.random.default_rng(1)
    level, kept = LikelyLevel(), []
    for raw in rng.random(40_000).tolist():
        if raw >= level.threshold(stated):
            kept.append(bool(rng.random() < raw**power))
            level.learn(stated, kept[-1])
    assert len(kept) > 1000
    assert np.mean(kept[len(kept) // 3 :]) == pytest.approx(stated, abs=off)
