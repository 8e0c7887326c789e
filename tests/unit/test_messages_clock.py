"""Times in what users read, where clocks are set and for who is in another zone."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from rtsched.adapters.slurm.submission import SlurmTranslator
from rtsched.daemon.stated import moment
from rtsched.model.units import slurm_moment

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
