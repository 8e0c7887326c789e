"""Jobs that are held: by somebody, or for a moment.

Source: HTCondor's manual, "Job ClassAd Attributes", HoldReasonCode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rtsched.adapters.condor.pool_state import HELD
from rtsched.logs.classads import number, text

if TYPE_CHECKING:
    from rtsched.logs.classads import Record

OVER_TIME = "rtsched: run time"
"""How the reason begins of a removal, or of a hold, that ends a job at its own run time."""

AT_ONCE_S = 5.0
"""Seconds from a submission to its hold, where it is held from the start."""

SPOOLING = 16
"""HoldReasonCode of a job whose files are on their way to the schedd."""


def is_held(ad: Record) -> bool:
    """Return whether a job is held by somebody, and waits for a release."""
    return number(ad, "jobstatus") == HELD and not is_passing(ad)


def is_passing(ad: Record) -> bool:
    """Return whether a job is held by nobody, and goes on by itself."""
    return is_overrun(ad) or is_spooling(ad)


def is_spooling(ad: Record) -> bool:
    """Return whether a job is held since its submission, for its files are on their way.

    One that was held later is not: its owner may write HoldReasonCode.
    """
    coded = number(ad, "jobstatus") == HELD and number(ad, "holdreasoncode") == SPOOLING
    return coded and not number(ad, "enteredcurrentstatus") > number(ad, "qdate") + AT_ONCE_S


def is_overrun(ad: Record) -> bool:
    """Return whether a job is held for a moment since it outlived its run time."""
    held = number(ad, "jobstatus") == HELD
    return held and (text(ad, "holdreason") or "").startswith(OVER_TIME)
