"""The mcdf reproduction: what it makes of ratios that are given."""

from collections.abc import Callable

import numpy as np
import pytest

from rtsched.reproduce import Findings
from rtsched_reproductions.mcdf import (
    ADMITTING,
    LOADS,
    PRINTED,
    SERIAL,
    SETUPS,
    Mcdf,
    Setting,
    Study,
    _claims,
    _points,
)

SMALL = Study(seeds=2, rows=1)


def as_printed(setting: Setting, policy: str) -> float:
    """Return a ratio as the source describes them: MCDF least and unmoved, all others worse."""
    if setting.ratio is not None:
        return 0.3 + setting.load * max(0.2 - 0.01 * setting.ratio, 0.0)
    if policy == "mcdf":
        return 0.36 * setting.load
    return 0.4 * setting.load + 0.001 * setting.setup


def findings(ratio: Callable[[Setting, str], float]) -> Findings:
    """Return what comes of these ratios in all runs."""
    results = [
        np.array([[ratio(setting, policy)] * 2 for policy in policies])
        for setting, policies, seeds in _points(SMALL)
        for _ in range(seeds)
    ]
    return Mcdf().findings(SMALL, results)


def held(found: Findings) -> dict[str, bool]:
    """Return which claims on set-up costs and cms:cps hold, by their first words."""
    return {claim.text.rpartition(" (")[0] or claim.text: claim.holds for claim in found.claims[3:]}


FEWEST = "with set-up costs MCDF rejects fewest at every load"
GROW = "the rejects of the four others grow with set-up costs"
UNMOVED = "the rejects of MCDF change less with set-up costs than those of the four others"
LEADS = "the lead of MCDF over each of the four others grows with set-up costs"
LEAD = "the lead of MCDF over FIFO-AN grows with set-up costs at load 1"
LESS = "the larger cms:cps, the less MCDF's rejects depend on the load"
NOT = "beyond cms:cps = 20 MCDF's rejects do not depend on the load"


def test_ratios_as_the_source_describes_them_agree() -> None:
    """All claims hold, and MCDF avoids a tenth of the others' rejects."""
    found = findings(as_printed)
    assert held(found) == dict.fromkeys((FEWEST, GROW, UNMOVED, LEADS, LEAD, LESS, NOT), True)
    margin = found.sheets[1]
    assert margin.ours == pytest.approx(np.full((1, 2), 0.1))
    assert margin.tally() == (2, 0, 0)


@pytest.mark.parametrize(
    ("policy", "load", "setup", "change", "wrong"),
    [
        ("edf-mn", 0.5, 10.0, -0.2, {FEWEST}),
        ("mcdf", 0.3, 20.0, 0.04, {FEWEST, UNMOVED, LEADS}),
        ("edf-mn", 0.7, 20.0, -0.025, {GROW, LEADS}),
        ("fifo-an", 1.0, 20.0, -0.0205, {GROW, LEADS, LEAD}),
    ],
)
def test_one_other_ratio_is_noticed(
    policy: str, load: float, setup: float, change: float, wrong: set[str]
) -> None:
    """One policy at one point, of a hundred."""
    assert load in LOADS
    assert setup in SETUPS
    assert policy in ADMITTING

    def ratio(setting: Setting, name: str) -> float:
        there = (name, setting.load, setting.setup) == (policy, load, setup)
        return as_printed(setting, name) + change * there

    assert {text for text, holds in held(findings(ratio)).items() if not holds} == wrong


@pytest.mark.parametrize(
    ("of", "load", "change", "wrong"),
    [
        (100.0, 1.0, 0.03, {LESS, NOT}),
        (100.0, 0.1, -0.0199, set()),
        (20.0, 0.1, -0.12, {LESS}),
        (0.01, 0.1, 0.2, {LESS}),
    ],
)
def test_another_sensitivity_is_noticed(
    of: float, load: float, change: float, wrong: set[str]
) -> None:
    """Steps up of more than a figure shows, or none down at all."""

    def ratio(setting: Setting, name: str) -> float:
        there = (setting.ratio, setting.load) == (of, load)
        return as_printed(setting, name) + change * there

    assert {text for text, holds in held(findings(ratio)).items() if not holds} == wrong


@pytest.mark.parametrize(
    ("row", "policy", "ratio", "wrong"),
    [
        (0, SERIAL[0], 0.5, set()),
        (1, SERIAL[0], 0.99, {"more than 99 % are late without an admission test"}),
        (1, SERIAL[1], 0.99, {"more than 99 % are late without an admission test"}),
        (5, SERIAL[1], 0.5, set()),
        (4, ADMITTING[1], 0.3, set()),
        (4, ADMITTING[4], 0.29, {"MCDF rejects fewest at every load"}),
        (6, ADMITTING[0], 0.41, {"MCDF rejects fewest at every load"}),
    ],
)
def test_one_row_decides(row: int, policy: str, ratio: float, wrong: set[str]) -> None:
    """Row 0 is not full, row 5 has normalised gaps: nothing is claimed of who is late there."""
    others = dict.fromkeys(ADMITTING[1:], 0.4) | dict.fromkeys(SERIAL, 1.0)
    means = {each: {"mcdf": 0.3, **others} for each in PRINTED}
    means[list(PRINTED)[row]][policy] = ratio
    claims = _claims(Study(), means)
    assert {claim.text.partition(",")[0] for claim in claims if not claim.holds} == wrong
