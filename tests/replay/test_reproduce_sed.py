"""The reproduction of the delay-class paper: nothing unexplained, and nothing hard-coded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from reproduced import reduced_run

from rtsched.reproduce.pages import markdown
from rtsched_reproductions import sed_runs
from rtsched_reproductions.sed import TABLES, Sed, Study

if TYPE_CHECKING:
    from rtsched.reproduce import Findings, Reproduced


@pytest.fixture(scope="module")
def done() -> Reproduced:
    """Run it once with few jobs."""
    return reduced_run("sed")


@pytest.fixture
def reduced(done: Reproduced) -> Findings:
    """Return what that run found."""
    return done.findings


def test_no_difference_is_unexplained(done: Reproduced, reduced: Findings) -> None:
    """Every expected value is met within its tolerance, or the reason is known."""
    assert reduced.sheets or reduced.claims
    assert done.unexplained == 0, markdown(done)
    for sheet in reduced.sheets:
        assert not sheet.unexplained().any(), sheet.title
        assert np.isfinite(sheet.ours).all(), sheet.title


def test_claims_hold_or_are_known_errata(reduced: Findings) -> None:
    """States, order of the variants, and the contradiction between two sections."""
    for claim in reduced.claims:
        assert claim.holds == claim.expected, f"{claim.text}: {claim.evidence}"
        assert claim.expected or claim.why
    assert sum(not claim.expected for claim in reduced.claims) == 1


def test_it_shows_both_tables_and_plots(reduced: Findings) -> None:
    """All rates of the reduced study; the full one has all of the source's."""
    rows = [len(sheet.rows) for sheet in reduced.sheets]
    assert rows == [6, 5, 4, 4, 4, 5]
    assert [len(Sed.full.rates(system)) for system in TABLES] == [6, 7]
    assert [plot.name for plot in reduced.plots] == ["system1", "system2"]


def test_crossings_are_looked_for_between_the_rates() -> None:
    """A dearer migration crosses sooner; the source's printed crossing is not ours."""
    few = Study(seeds=1, jobs=40, steady_only=True, crossing_rates=(1.0, 2.0, 3.0))
    points = few.points()
    assert len(points) == len(set(points))
    computing = {"serial": 20.0, "parallel": 10.0, "none": 5.0}
    results = [
        np.array([1.0, 1.0, 80.0 + computing[p.cost] * p.rate, 0.1, 0.1])
        if p.variant == "SED"
        else np.array([1.0, 1.0, 100.0, 0.0, 0.0])
        for p in points
    ]
    found = Sed().findings(few, [((), ()), *results])
    crossing = next(sheet for sheet in found.sheets if "as long as SED-NM" in sheet.title)
    assert crossing.ours.ravel().tolist() == pytest.approx([np.nan, 2.0, np.nan], nan_ok=True)
    claim = next(claim for claim in found.claims if "cross at about" in claim.text)
    assert not claim.holds


def test_ours_is_computed() -> None:
    """Another rate, seed, variant or cost gives other means."""
    first = sed_runs.means(2, "SED", 2.0, 60, 0)
    others = [
        sed_runs.means(2, "SED", 1.0, 60, 0),
        sed_runs.means(2, "SED", 2.0, 60, 1),
        sed_runs.means(2, "SED-NM", 2.0, 60, 0),
        sed_runs.means(2, "SED", 2.0, 60, 0, "none"),
    ]
    assert all((first[:3] != other[:3]).all() for other in others)


def test_a_failed_plugin_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its replay would be one without it."""
    monkeypatch.setattr("rtsched_plugins.sed.placed", lambda *_: 1 / 0)
    with pytest.raises(RuntimeError, match="division by zero"):
        sed_runs.courses(1, [0.0], "SED")
