"""Points at which a test has the daemon die, to show that nothing is lost there.

The environment variable `RTSCHED_FAILPOINT` names one; without it nothing here does anything. No
site sets it.
"""

from __future__ import annotations

import os
import signal
from typing import Literal

Point = Literal["committed", "answered"]
"""`committed`: a promise is on the disk, nobody has been told. `answered`: the filter has been
told, but no job has been seen yet."""

_CHOSEN = os.environ.get("RTSCHED_FAILPOINT", "")


def passing(point: Point) -> None:
    """Die, as by kill -9, if this is the chosen point."""
    if point == _CHOSEN:
        os.kill(os.getpid(), signal.SIGKILL)
