"""Odds as users read them, and the classes in which they are counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtsched.daemon.stated import CLASSES, class_of, per_cent, state_of


@pytest.mark.parametrize(
    ("odds", "shown", "counted"),
    [
        (0.95, "95 %", "95"),
        (0.9749, "97.4 %", "95"),
        (0.975, "97.5 %", "97.5"),
        (0.9999, "99.9 %", "99"),
        (1.0, "99.9 %", "99"),
        (0.0, "0 %", "0"),
        (0.29, "29 %", "0"),
        (0.8, "80 %", "80"),
    ],
)
def test_they_are_never_rounded_up(odds: float, shown: str, counted: str) -> None:
    """Not to certainty, and not into a higher class."""
    assert (per_cent(odds), class_of(odds)) == (shown, counted)


@given(st.floats(0, 1))
def test_what_is_shown_is_no_more_than_there_is(odds: float) -> None:
    """By less than 0.1 %; and there is a class for any odds."""
    shown = float(per_cent(odds).removesuffix(" %"))
    assert 100 * odds - 0.11 <= shown <= 100 * odds + 1e-4
    assert float(class_of(odds)) in CLASSES


def test_only_likely_ones_have_odds() -> None:
    """A guaranteed promise is shown as it was."""
    assert state_of("firm", None) == "firm"
    assert state_of("firm", 0.957) == "firm, likely 95.7 %"
    assert state_of("firm", 0.957, 0.38) == "firm, likely 95.7 %, now 38 %"
    assert state_of("firm", None, 0.38) == "firm"
