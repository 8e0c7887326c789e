"""Instants as users read them; apart, so that commands need not load what the daemon works with."""

from __future__ import annotations

import time

_LAST = 2.0**33
"""What is later is no time that anybody reads: the year 2242."""


def moment(at: float, now: float | None) -> str:
    """Return an instant in local time with its offset from UTC, with the date if it is not today.

    Without `now` it has a date always, for what is read at some other time.

    The site's clock may show one hour twice, and who reads it may be in another zone.
    """
    there = time.localtime(min(at, _LAST))
    same_day = now is not None and there[:3] == time.localtime(now)[:3]
    return time.strftime("%H:%M:%S %z" if same_day else "%Y-%m-%d %H:%M:%S %z", there)
