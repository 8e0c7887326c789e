"""The reproduction of the delay-class paper: known differences, nothing hard-coded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from reproduced import differences, reduced_run

from rtsched_reproductions import sed_runs
from rtsched_reproductions.sed import TABLES, Sed, Study, _falls, _rises_then_falls

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


def test_it_differs_where_it_is_known_to(done: Reproduced, reduced: Findings) -> None:
    """In the contradiction between two sections, and in what follows from it; no state differs."""
    assert differences(done) == [
        "upgrades happen only when nobody waits (section 4 of the source)",
        "the share of upgraded processes falls as the load grows on system 1 (figure 3)",
    ]
    for sheet in reduced.sheets:
        assert np.isfinite(sheet.ours).all(), sheet.title
    assert all(claim.holds or claim.why for claim in reduced.claims)


def test_it_shows_both_tables_and_plots(reduced: Findings) -> None:
    """All rates of the reduced study; the full one has all of the source's."""
    rows = [len(sheet.rows) for sheet in reduced.sheets]
    assert rows == [6, 5, 4, 4, 4, 5]
    assert [len(Sed.full.rates(system)) for system in TABLES] == [6, 7]
    assert [plot.name for plot in reduced.plots] == ["system1", "system2", "speed-up"]


def test_crossings_are_looked_for_between_the_rates() -> None:
    """A dearer migration crosses sooner; the source's printed crossing is not ours."""
    few = Study(seeds=2, jobs=40, steady_only=True, crossing_rates=(1.0, 2.0, 3.0))
    points = few.points()
    assert len(points) == len(set(points))
    computing = {"serial": 20.0, "parallel": 10.0, "none": 5.0}
    results = [
        np.array([1.0, 1.0, 80.0 + computing[p.cost] * p.rate, *[0.1] * 4])
        if p.variant == "SED"
        else np.array([1.0, 1.0, 100.0, *[0.0] * 4])
        for p in points
        for _ in range(few.seeds)
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


@pytest.mark.parametrize(
    ("shares", "rises_then_falls", "falls"),
    [
        ([0.1, 0.3, 0.2], True, False),
        ([0.1, 0.2, 0.3], False, False),
        ([0.3, 0.2, 0.1], False, True),
        ([0.1, 0.3, 0.2, 0.25], False, False),
        ([0.2, 0.1, 0.3, 0.2], False, False),
        ([0.1, 0.3, 0.3, 0.2], False, False),
        ([0.3, 0.3, 0.1], False, False),
    ],
)
def test_shares_by_load(shares: list[float], rises_then_falls: bool, falls: bool) -> None:
    """Each step counts, and an end is no top."""
    values = {float(rate): share for rate, share in enumerate(shares, 1)}
    assert _rises_then_falls("a share", values).holds == rises_then_falls
    assert _falls("a share falls", values).holds == falls
