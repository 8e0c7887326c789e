"""Memory from one cycle to the next: what was asked of HTCondor."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rtsched.adapters.condor.commands import Act, Negotiate, Publish, SetFactor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rtsched.adapters.condor.table import SlotTable, Steps
    from rtsched.adapters.live import Done


PATIENCE_S = 60.0
"""Seconds until a job that was told to end is told again."""

CLOSED_S = 2.0
"""Seconds after which what was being started on a slot when it was closed shows in a poll: the
library reads the table once a second."""

_ENDS = ("Remove", "Vacate", "VacateFast")


@dataclass
class LastApplied:
    """What was asked of HTCondor and cannot be read back.

    Attributes
    ----------
    table : SlotTable or None
        The table as it was written last, and `written` when, seconds since the epoch.
    kept : mapping of str to steps
        What the last plan keeps of slots, written or not.
    closed : dict of str to float
        By row of the cluster, since when no job but those of the plan may start on it, seconds
        since the epoch.
    delays : mapping of str to float
        Delay factors that a plug-in gave slots.
    negotiated : float
        When a negotiation was asked for last, seconds since the epoch.
    urged : dict of int to float
        When jobs were told to end, by cluster and proc in one, seconds since the epoch.
    no_factors : bool
        The negotiator lets this user set no priority factors.
    """

    table: SlotTable | None = None
    written: float = -math.inf
    kept: Mapping[str, Steps] = field(default_factory=dict)
    closed: dict[str, float] = field(default_factory=dict)
    delays: Mapping[str, float] = field(default_factory=dict)
    negotiated: float = -math.inf
    urged: dict[int, float] = field(default_factory=dict)
    no_factors: bool = False

    def keep_only(self, jobs: set[int]) -> None:
        """Forget all other jobs, cluster and proc in one."""
        self.urged = {job: value for job, value in self.urged.items() if job in jobs}

    def close(self, rows: Iterable[str], looked: float, now: float) -> set[str]:
        """Note which rows are closed from `now` on; return those that were when we looked.

        Both in seconds since the epoch.
        """
        self.closed = {row: self.closed.get(row, now) for row in rows}
        return {row for row, since in self.closed.items() if since + CLOSED_S <= looked}

    def urged_lately(self, job: int, now: float) -> bool:
        """Return whether a job was told to end a short while ago; cluster and proc in one."""
        return now - self.urged.get(job, -math.inf) < PATIENCE_S

    def remember(self, done: Done, now: float) -> None:
        """Keep in mind what became of a change of ours, at `now`, seconds since the epoch."""
        for step in done.change.command or ():
            if isinstance(step, SetFactor) and done.outcome == "refused":
                self.no_factors = True
            if isinstance(step, Negotiate):
                self.negotiated = now
            elif isinstance(step, Act) and step.action in _ENDS:
                self.urged |= dict.fromkeys(step.jobs, now)
            elif done.outcome != "done":
                continue
            elif isinstance(step, Publish):
                self.table, self.written = step.table, now
