"""Instants as users read them; apart, so that commands need not load what the daemon works with."""

from __future__ import annotations

import time

_LAST = 2.0**33
"""What is later is no time that anybody reads: the year 2242."""


def moment(at: float, now: float) -> str:
    """Return an instant in local time with its offset from UTC, with the date if it is not today.

    The site's clock may show one hour twice, and who reads it may be in another zone.
    """
    there, here = time.localtime(min(at, _LAST)), time.localtime(now)
    same_day = there[:3] == here[:3]
    return time.strftime("%H:%M:%S %z" if same_day else "%Y-%m-%d %H:%M:%S %z", there)
