"""Numbers as people read them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtsched.daemon.reports import StartEstimate
from rtsched.report.start_wording import starts
from rtsched.report.wording import (
    compact,
    decimal,
    duration,
    instant,
    percent,
    quantity,
    shortened,
    visible,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.25, "0.25s"),
        (9.5, "9.5s"),
        (59.6, "1m 00s"),
        (61, "1m 01s"),
        (3599.7, "1h 00m"),
        (12_000, "3h 20m"),
        (86_399, "1d 00h"),
        (86_400 * 2.3, "2d 07h"),
        (86_400 * 340, "340d"),
        (-90, "−1m 30s"),
        (math.nan, "–"),
        (math.inf, "–"),
        (None, "–"),
    ],
)
def test_durations_have_their_two_greatest_units(seconds, text):
    """A wait is read at a glance, and never as `60s` or `24h`."""
    assert duration(seconds) == text


@given(st.floats(0, 1e9))
def test_durations_never_show_a_full_unit(seconds):
    """Rounding carries over."""
    text = duration(seconds)
    assert not any(part in text.split() for part in ("60s", "60m", "24h"))


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (0, "0 %"),
        (1, "100 %"),
        (0.1234, "12.3 %"),
        (0.0004, "0.04 %"),
        (0.9996, "99.96 %"),
        (-40.04, "−4,004.00 %"),
    ],
)
def test_ratios_are_per_cent(ratio, text):
    """Nearly all is not all, nearly none is not none."""
    assert percent(ratio) == text


def test_numbers_keep_three_digits():
    """Larger ones keep all before the point."""
    shown = [decimal(number) for number in (0, 0.5, 1.234, 12.34, 123.4, 12345.6)]
    assert shown == ["0", "0.500", "1.23", "12.3", "123", "12,346"]
    assert [compact(n) for n in (0, 99_999, 123_456, 1_234_567)] == ["0", "99,999", "123k", "1.23M"]


def test_quantities_go_by_name_and_unit():
    """A measure's unit decides how it is written."""
    assert quantity(7200, "mean_wait_s", "s") == "2h 00m"
    assert quantity(0.5, "miss_ratio", "1") == "50.0 %"
    assert quantity(7200.0, "user_error_max_node_s", "node s") == "2.00 node-h"
    assert quantity(3, "jobs", "jobs") == "3"
    assert quantity(None, "mean_wait_s", "s") == "–"


def test_instants_without_dates_are_spans():
    """A log that counts from its own start has no year 1970."""
    assert instant(1_700_000_000) == "2023-11-14 22:13 UTC"
    assert instant(7200) == "2h 00m after the start"


@given(st.text())
def test_visible_text_has_nothing_to_obey(text):
    """Whatever is no printable character is written out; the rest stays."""
    shown = visible(text)
    assert shown.isprintable()
    assert "\n" not in shown
    if text.isprintable():
        assert shown == text
    assert len(shortened(text, 10)) <= 10


@pytest.mark.parametrize(
    ("high_95", "says"),
    [
        (7200.0, "between 00:10 and 02:00 (80 %), too little history for a wider interval"),
        (7260.0, "between 00:10 and 02:00 (80 %), by 02:01 (95 %)"),
        (None, "between 00:10 and 02:00 (80 %)"),
    ],
)
def test_two_equal_intervals_rest_on_too_little_history(high_95: float | None, says: str) -> None:
    """A wider interval that is the same as the first one is not shown as one."""
    estimate = StartEstimate(
        "7",
        "sim",
        "ann",
        "waiting",
        "estimate",
        3600.0,
        start_low_80=600.0,
        start_high_80=7200.0,
        start_low_95=600.0,
        start_high_95=high_95,
    )
    assert starts(estimate, 0.0) == f"about 01:00, {says}"
