"""Converters between a batch system's units and ours."""

import math
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtsched.errors import ConfigError
from rtsched.model.units import (
    epoch_seconds,
    known_zone,
    size_bytes,
    slurm_duration,
    slurm_moment,
    zone_offset,
)

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()
HOUR, DAY = 3600, 86400


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5", 300),
        ("5:30", 330),
        ("1:02:03", 3723),
        ("2-03", 2 * DAY + 3 * HOUR),
        ("2-03:00:00", 2 * DAY + 3 * HOUR),
        ("00:15.057", 15.057),
        ("UNLIMITED", math.inf),
        ("Partition_Limit", math.nan),
        ("", math.nan),
        ("9" * 5000, math.nan),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    """Slurm's forms of a duration."""
    np.testing.assert_array_equal(slurm_duration(text), seconds)


@pytest.mark.parametrize(
    ("text", "unit", "size"),
    [
        ("4G", "", 4 << 30),
        ("50M", "", 50 << 20),
        ("1000Mn", "", 1000 << 20),
        ("2Gc", "", 2 << 30),
        ("2048", "M", 2048 << 20),
        ("1.5K", "", 1536),
        ("many", "", math.nan),
    ],
)
def test_sizes(text: str, unit: str, size: float) -> None:
    """Sizes with their units, in powers of 1024."""
    np.testing.assert_array_equal(size_bytes(text, unit), size)


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("now", 0),
        ("now+1hour", HOUR),
        ("now + 10 minutes", 600),
        ("now+90", 90),
        ("now+2weeks", 14 * DAY),
        ("13:30", 1.5 * HOUR),
        ("1:30PM", 1.5 * HOUR),
        ("12:00AM", 12 * HOUR),
        ("11:00", 23 * HOUR),
        ("12:00:01", 1),
        ("noon", DAY),
        ("midnight", 12 * HOUR),
        ("teatime", 4 * HOUR),
        ("fika", 3 * HOUR),
        ("today", -12 * HOUR),
        ("tomorrow", 12 * HOUR),
        ("1122", 12 * HOUR),
        ("11/22", 12 * HOUR),
        ("22.11", math.nan),
        ("11.22", 12 * HOUR),
        ("112226", 12 * HOUR),
        ("11/22-06:00", 18 * HOUR),
        ("11/22/26-6:00:30", 18 * HOUR + 30),
        ("1120", 364 * DAY - 12 * HOUR),
        ("2026-11-22", 12 * HOUR),
        ("2026-11-22T00:00:05", 12 * HOUR + 5),
        ("1795266000", 1795266000 - NOON),
        ("hard", math.nan),
        ("", math.nan),
        ("25:00", math.nan),
        ("13:00PM", math.nan),
        ("now+1fortnight", math.nan),
        ("2026-13-01", math.nan),
        ("now+99999999999", math.nan),
    ],
)
def test_moments(text: str, after: float) -> None:
    """The forms of time that sbatch takes, said at noon."""
    np.testing.assert_array_equal(slurm_moment(text, NOON, ZoneInfo("UTC")) - NOON, after)


def test_moments_are_local() -> None:
    """A clock time means the clock of the zone."""
    assert slurm_moment("18:00", NOON, ZoneInfo("Europe/Berlin")) == NOON + 5 * HOUR


@pytest.mark.parametrize(
    "name", ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]
)
@given(st.lists(st.datetimes(datetime(1975, 1, 1), datetime(2060, 1, 1)), max_size=6))
def test_local_times_are_those_of_zoneinfo(name: str, moments: list[datetime]) -> None:
    """Many times at once give what `datetime` gives one by one."""
    zone = ZoneInfo(name)
    moments = [moment.replace(microsecond=0, fold=0) for moment in moments]
    local = [(moment - datetime(1970, 1, 1)).total_seconds() for moment in moments]
    expected = [moment.replace(tzinfo=zone).timestamp() for moment in moments]
    np.testing.assert_array_equal(epoch_seconds(np.array(local, np.int64), zone), expected)


@pytest.mark.parametrize("name", ["Europe/Berlin", "Australia/Lord_Howe"])
def test_repeated_times_follow_what_was_before(name: str) -> None:
    """Where the clock is set back, a time that is not before another one is found."""
    zone = ZoneInfo(name)
    for day in (*range(60, 120), *range(270, 320)):
        for quarter in range(96):
            clock = day * DAY + 1767225600 + quarter * 900
            first, second = zone_offset(clock, zone), zone_offset(clock, zone, 1)
            if first > second:
                one = epoch_seconds(np.array([clock]), zone)[0]
                two = epoch_seconds(np.array([clock]), zone, np.array([one + 1]))[0]
                assert two - one == first - second


def test_the_machines_own_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a zone the machine's own counts."""
    here = datetime(2026, 7, 1, 12).astimezone()
    local = round((datetime(2026, 7, 1, 12) - datetime(1970, 1, 1)).total_seconds())
    assert known_zone(None) is None
    assert epoch_seconds(np.array([local]), None)[0] == here.timestamp()


@pytest.mark.parametrize("name", ["Mars/Base", "../etc/passwd", "", "a\0b"])
def test_unknown_zones(name: str) -> None:
    """What is no zone is refused."""
    with pytest.raises(ConfigError, match="unknown time zone"):
        known_zone(name)
