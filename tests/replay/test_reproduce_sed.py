"""The reproduction of the delay-class paper: known differences, nothing hard-coded."""

import numpy as np
import pytest
from reproduced import differences, reduced_run

from rtsched.reproduce import Findings, Reproduced
from rtsched_reproductions import sed_runs
from rtsched_reproductions.sed import TABLES, Point, Sed, Study, _claims, _falls, _rises_then_falls


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


@pytest.mark.parametrize(("rates", "shown"), [((), 0), ((2.0,), 0), ((2.0, 3.0), 1)])
def test_a_crossing_needs_two_rates(rates: tuple[float, ...], shown: int) -> None:
    """Else there is neither its table nor its claim."""
    few = Study(seeds=2, jobs=50, steady_only=True, crossing_rates=rates)
    found = Sed().findings(few, [((), ()), *[np.ones(7)] * (2 * len(few.points()))])
    assert [sum("as long as SED-NM" in sheet.title for sheet in found.sheets)] == [shown]
    assert [sum("cross at about" in claim.text for claim in found.claims)] == [shown]


RESIDENCE, WAIT, COMPUTING, UPGRADED, MIGRATED, OF_UPGRADED, OF_MIGRATED = range(7)
LIMIT = "computing under SED stays below 1066.7 s on system 1"
GROWS = "residence(SED-NU) / residence(SED) grows with the load"
ABOVE = "upgrades shorten the residence on system 1 at every load"
TENTH = "migrations shorten the residence on system 2 substantially"
FALLS = "the share of upgraded processes falls"
WAITS = "migrations make jobs wait less"
SHORTER = "migrations shorten computing at low load"
LONGER = "migrations lengthen computing at high load"
TOPS = tuple(f"the share of {what}" for what in ("upgraded jobs", "migrated jobs", "migrated proc"))
CLAIMS = (LIMIT, GROWS, ABOVE, TENTH, FALLS, WAITS, SHORTER, LONGER, *TOPS)


def as_described(point: Point, place: int) -> list[float]:
    """Return the seven measures at one point, the rates of its system counted from 0."""
    sed, high = point.variant == "SED", point.rate >= 2.6
    top = 0.5 - 0.125 * abs(place - 3)
    if point.system == 1:
        residence = 10.0 if sed else 11.0 + place
        return [residence, 1.0, 1000.0 + place, top, 0.0, 0.9 - 0.1 * place, 0.0]
    if sed:
        return [10.0, 1.0, 300.0 if high else 100.0, 0.0, top, 0.0, top]
    return [15.0, 2.0, 200.0, 0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("system", "variant", "rate", "measure", "value", "failing"),
    [
        (1, "SED", 1.8, COMPUTING, 1066.6, set()),
        (1, "SED", 1.8, COMPUTING, 1066.7, {LIMIT}),
        (1, "SED", 1.8, COMPUTING, 1000.0, {LIMIT}),
        (1, "SED-NU", 0.8, RESIDENCE, 12.0, {GROWS}),
        (1, "SED-NU", 0.1, RESIDENCE, 10.0, {ABOVE}),
        (1, "SED", 0.4, OF_UPGRADED, 0.9, {FALLS}),
        (1, "SED", 0.4, UPGRADED, 0.125, {TOPS[0]}),
        (2, "SED", 3.0, MIGRATED, 0.5, {TOPS[1]}),
        (2, "SED", 3.6, OF_MIGRATED, 0.25, {TOPS[2]}),
        (2, "SED-NM", 1.0, RESIDENCE, 11.0, {TENTH}),
        (2, "SED-NM", 2.0, RESIDENCE, 9.0, set()),
        (2, "SED", 2.6, WAIT, 2.0, set()),
        (2, "SED", 2.6, WAIT, 2.1, {WAITS}),
        (2, "SED", 1.0, COMPUTING, 200.0, {SHORTER}),
        (2, "SED", 2.0, COMPUTING, 200.0, set()),
        (2, "SED", 2.6, COMPUTING, 200.0, {LONGER}),
    ],
)
def test_one_rate_decides(
    system: int, variant: str, rate: float, measure: int, value: float, failing: set[str]
) -> None:
    """Claims of all rates, or of low or high ones, are of each; a tie is no lead."""
    study = Study(crossing_rates=())
    found = {
        point: np.array(as_described(point, study.rates(point.system).index(point.rate)))
        for point in study.points()
    }
    found[Point(system, variant, rate)][measure] = value
    claims = _claims(study, found)
    wrong = [claim.text for claim in claims if not claim.holds]
    assert {short for short in CLAIMS if any(text.startswith(short) for text in wrong)} == failing
    assert (len(claims), len(wrong)) == (len(CLAIMS), len(failing))


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
