"""The reproduction of the service-time error paper: nothing unexplained, and nothing hard-coded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from msgspec.structs import replace
from reproduced import reduced_run

from rtsched.reproduce import reproduce
from rtsched_reproductions.ste import EXPECTED, Ste

if TYPE_CHECKING:
    from rtsched.reproduce import Findings


@pytest.fixture(scope="module")
def reduced() -> Findings:
    """Run it once with few drawings."""
    return reduced_run("ste").findings


def test_no_difference_is_unexplained(reduced: Findings) -> None:
    """Every expected value is met within its tolerance, or the reason is known."""
    for sheet in reduced.sheets:
        assert not sheet.unexplained().any(), sheet.title
        assert np.isfinite(sheet.ours).all(), sheet.title


def test_claims_hold_or_are_known_errata(reduced: Findings) -> None:
    """The order of errors, equal makespans and the errata come out."""
    for claim in reduced.claims:
        assert claim.holds == claim.expected, f"{claim.text}: {claim.evidence}"
        assert claim.expected or claim.why
    assert sum(not claim.expected for claim in reduced.claims) == 5


def test_it_shows_every_row_and_two_plots(reduced: Findings) -> None:
    """All rows and columns of the expected table, and curves of equal length."""
    errors = reduced.sheets[1]
    assert errors.ours.shape == (len(EXPECTED), 8)
    assert np.isfinite(errors.expected).all()
    assert [plot.name for plot in reduced.plots] == ["errors", "hand"]
    for plot in reduced.plots:
        assert all(len(curve.x) == len(curve.y) for curve in plot.curves)


def test_ours_is_computed() -> None:
    """Another quantum or number of drawings gives other values."""
    few = replace(Ste.reduced, seeds=2, arrivals=1000)
    one, two = (reproduce(Ste(), chosen).findings for chosen in (few, replace(few, quantum=3.0)))
    assert (one.sheets[1].ours != two.sheets[1].ours).mean() > 0.5
    more = reproduce(Ste(), replace(few, seeds=3)).findings
    assert (one.sheets[3].ours != more.sheets[3].ours).all()
