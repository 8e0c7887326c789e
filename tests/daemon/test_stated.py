"""Odds and times as users read them, also where clocks are set."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtsched.adapters.slurm.submission import SlurmTranslator
from rtsched.model.units import slurm_moment
from rtsched.text import CLASSES, class_of, moment, per_cent, state_of


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


TWICE = datetime(2026, 10, 25, 0, 30, tzinfo=UTC).timestamp()
"""02:30 in Berlin, an hour before the second 02:30 of that night."""


def test_two_equal_local_times_are_told_apart(berlin: None) -> None:
    """Each time says how far the local clock is ahead of UTC."""
    assert moment(TWICE, TWICE) == "02:30:00 +0200"
    assert moment(TWICE + 3600, TWICE) == "02:30:00 +0100"
    assert moment(TWICE + 86400, TWICE) == "2026-10-26 01:30:00 +0100"


def test_the_deadline_that_is_offered_is_the_same_everywhere(berlin: None) -> None:
    """Also in the hour that comes twice, and for sbatch in a zone of its user's own."""
    for offer in (TWICE, TWICE + 3600, TWICE + 0.5):
        option, text = SlurmTranslator().asking(offer).split("=")
        assert option == "--deadline"
        for zone in ("Europe/Berlin", "America/New_York", "UTC"):
            assert slurm_moment(text, TWICE - 7200, ZoneInfo(zone)) - offer in {0.0, 0.5}
