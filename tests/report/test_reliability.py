"""Stated odds against what was kept: the counts are right, and both drawings show them."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtsched.calibrate.intervals import share
from rtsched.model.wilson import wilson
from rtsched.report.reliability import (
    EDGES,
    reliability,
    reliability_drawing,
)


def parsed(drawing):
    """Return a drawing as XML."""
    return ElementTree.fromstring(drawing)  # noqa: S314 - our own


promises = st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=60)


@given(promises)
def test_each_promise_is_counted_in_one_class(rows):
    """Promises, kept ones and the mean of the odds are those of a plain loop."""
    odds, kept = np.array([odds for odds, _ in rows]), np.array([good for _, good in rows], bool)
    found = reliability(odds, kept)
    assert found.promises.sum() == len(rows)
    assert (found.kept * found.promises).sum() == pytest.approx(kept.sum())
    assert (found.stated * found.promises).sum() == pytest.approx(odds.sum())
    assert (np.diff(found.stated) > 0).all()
    for stated, number in zip(found.stated, found.promises, strict=True):
        low = max(edge for edge in EDGES[:-1] if edge <= stated + 1e-12)
        high = EDGES[EDGES.index(low) + 1]
        inside = (odds >= low) & ((odds < high) | (high == 1.0))
        assert inside.sum() == number
    assert ((found.low <= found.kept) & (found.kept <= found.high)).all()
    parsed(reliability_drawing(found))
    parsed(reliability_drawing(found, standalone=False))


def test_the_interval_is_wilsons():
    """8 of 10: 0.4902 to 0.9433, as Newcombe (1998) and others print it; alone or in an array."""
    low, high = wilson([0.8, 0.8], [10, 10])
    np.testing.assert_allclose(low, 0.4902, atol=5e-5)
    np.testing.assert_allclose(high, 0.9433, atol=5e-5)
    one = share(0.8, 10)
    assert (one.low, one.high) == pytest.approx((low[0], high[0]))


def test_a_point_lies_where_its_promises_are():
    """20 promises of 95 %, 19 kept: on the dashed line; 10 kept: far below it."""
    good = reliability(np.full(20, 0.95), np.arange(20) > 0)
    bad = reliability(np.full(20, 0.95), np.arange(20) > 9)
    assert good.sentence() == (
        "Of 20 promises, stated with odds of 95.0 % on average, 95.0 % kept."
    )
    assert "stated 95.0 %: 95.0 % of 20 kept" in reliability_drawing(good)
    heights = []
    for found in (good, bad):
        circle = parsed(reliability_drawing(found)).find(".//{*}circle")
        heights.append(float(circle.get("cy")))
    assert heights[1] > heights[0]
    assert "No promise" in reliability([], []).sentence()


def test_odds_are_odds():
    """Per cent, and arrays of different lengths, are refused."""
    with pytest.raises(ValueError, match="within 0 and 1"):
        reliability([95.0], [True])
    with pytest.raises(ValueError, match="do not belong together"):
        reliability([0.95], [True, False])
