"""Hook metrics: how often each plug-in was asked, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rtsched.model.verdicts import Verdict


@dataclass
class HookMetrics:
    """How often one plug-in was asked one hook, and what it said.

    Attributes
    ----------
    calls : int
        Times the hook was asked.
    judged, changed, abstained : int
        Rows handed over; rows on which its answer asks for another course than without it (a
        rejection, a deferral or a promise; to pass a job that stands ahead of it in the queue; a
        size or node set); rows on which it had no opinion.
    seconds : float
        Time spent in it (left out of compared files).
    errors : int
        Calls that raised or answered wrongly.
    first_error : str
        What the first of them said.
    """

    calls: int = 0
    judged: int = 0
    changed: int = 0
    abstained: int = 0
    seconds: float = 0.0
    errors: int = 0
    first_error: str = ""

    def enter(self, hook: str, value: Any, n: int, seconds: float, error: str) -> None:
        """Count one call about `n` rows: its answer, how long it took, and its error if any."""
        changed, abstained = _course(hook, value, n)
        self.calls += 1
        self.judged += n
        self.changed += changed
        self.abstained += abstained
        self.seconds += seconds
        self.errors += bool(error)
        self.first_error = self.first_error or error


def _course(hook: str, value: Any, n: int) -> tuple[int, int]:
    """Return on how many of `n` rows an answer changes the course, and on how many it abstains."""
    if value is None:
        return 0, n
    if hook == "admit":
        steers = (value.code >= Verdict.DEFER) | np.isfinite(value.promise)
        return int(np.count_nonzero(steers)), int(np.count_nonzero(value.code == Verdict.ABSTAIN))
    if hook == "fair_share":
        if value.per_account or n < 2:
            return 0, 0
        total = value.total()
        min_ahead = np.minimum.accumulate(total[:-1])
        return int(np.count_nonzero(total[1:] > min_ahead)), 0
    if hook == "partition":
        steers = (value.size > 0) | (value.node_set >= 0)
        changed = int(np.count_nonzero(steers))
        return changed, n - changed
    if hook == "delay_class":
        return (n if bool((value.factor != 1.0).any()) else 0), 0
    return n, 0
