"""The reproduction of the service-time error paper: known differences, nothing hard-coded."""

import numpy as np
import pytest
from msgspec.structs import replace
from reproduced import differences, reduced_run

from rtsched.reproduce import Findings, reproduce
from rtsched_reproductions.ste import EXPECTED, Ste


@pytest.fixture(scope="module")
def reduced() -> Findings:
    """Run it once with few drawings."""
    return reduced_run("ste").findings


KNOWN = [
    *(
        f"Errors beside the printed ones: {study}, {rule} {extreme}"
        for study, rules in (
            ("100/50, 1-2", ("FCFS", "RR")),
            ("1000/50, 1-3", ("FCFS", "RR", "STE")),
        )
        for rule in rules
        for extreme in ("min", "max")
    ),
    *(f"Mean wait, s, service of 1000-5000 MI: load {load}, mean wait" for load in (0.3, 0.5, 0.7)),
    "errors of FCFS > RR whatever the shares",
    "errors of RR > STE whatever the shares",
    "FCFS completes last, STE first (table 3)",
    "the average cost depends on the rule (table 3)",
    "each task gets enough to end by its deadline (abstract)",
]
"""Printed errors, whose unit is unknown; equation 4 off constant service; errata."""


def test_it_differs_where_it_is_known_to(reduced: Findings) -> None:
    """No difference more, none less; the order of errors and equal makespans come out."""
    assert differences(reduced_run("ste")) == KNOWN
    for sheet in reduced.sheets:
        assert np.isfinite(sheet.ours).all(), sheet.title
    assert all(claim.holds or claim.why for claim in reduced.claims)


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
