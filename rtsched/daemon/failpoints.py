"""Points at which a test has the daemon die, to show that nothing is lost there.

The environment variable `RTSCHED_FAILPOINT` names one; without it nothing here does anything. No
site sets it.
"""

from __future__ import annotations

import os
import signal
from typing import Literal

Point = Literal["begun", "written", "committed", "answered"]
"""`begun`: a transaction of the database has begun. `written`: it is written, but not committed.
`committed`: a promise is on the disk, nobody has been told. `answered`: the filter has been told,
but no job has been seen yet."""

_chosen = os.environ.get("RTSCHED_FAILPOINT", "")


def choose(point: Point | Literal[""]) -> None:
    """Choose the point at which this process dies; empty: at none."""
    global _chosen
    _chosen = point


def passing(point: Point) -> None:
    """Die, as by kill -9, if this is the chosen point."""
    if point == _chosen:
        os.kill(os.getpid(), signal.SIGKILL)
