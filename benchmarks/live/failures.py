"""Nodes die under promised jobs: who is told, and how long before the deadline."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

import measure
from promises import DEADLINE_USER, figures, play_side
from stream import Extent
from testbed import TestbedError

if TYPE_CHECKING:
    from pathlib import Path

    from testbed import Cluster

FULL = Extent(360, 10, (1, 2), (2.0, 4.5), 60, (2, 3, 4, 6), 30_000)
REDUCED = Extent(70, 7, (1,), (1.6, 3.0), 60, (2, 3, 4, 6), 12_000)


@dataclass
class Killer:
    """Kills a node under a promised job now and then; each at most once.

    Attributes
    ----------
    first, every : float
        Seconds from the stream's start to the first kill, and between kills.
    count : int
        How many nodes.
    """

    first: float
    every: float
    count: int
    killed: list[str] = field(default_factory=list)

    def __call__(self, running: Cluster, begun: float) -> None:
        """Do so."""
        for number in range(self.count):
            time.sleep(max(0.0, begun + self.first + number * self.every - time.time()))
            with contextlib.suppress(TestbedError):
                self._kill_one(running)

    def _kill_one(self, running: Cluster) -> None:
        asked = ["squeue", "-h", "-t", "R", "-u", DEADLINE_USER, "--sort=-L", "-o", "%N"]
        for nodes in running.run(asked).stdout.split():
            names = running.run(["scontrol", "show", "hostnames", nodes]).stdout.split()
            fresh = [name for name in names if name not in self.killed]
            if fresh:
                self.killed.append(fresh[0])
                running.node(fresh[0]).kill()
                return


def run(*, reduced: bool, keep: Path | None = None) -> dict[str, Any]:
    """Play a stream while nodes die; return the figures, and what was said of each miss."""
    extent = REDUCED if reduced else FULL
    killer = Killer(50, 15, 4) if reduced else Killer(90, 45, 8)
    place = keep / "failures" if keep else None
    side = play_side(extent, "mcdf", steered=True, keep=place, meanwhile=killer)
    misses = list(_misses(side))
    ahead = [miss["told_before_s"] for miss in misses if miss["told_before_s"] is not None]
    found = figures(side) | {
        "killed_nodes": len(killer.killed),
        "told_before_deadline": sum(seconds > 0 for seconds in ahead),
        "told_before_least_s": min(ahead, default=None),
        "told_before_median_s": median(ahead) if ahead else None,
        "told_before_most_s": max(ahead, default=None),
    }
    return {"rtsched": found, "misses": misses}


def _misses(side: Any) -> Any:
    """Yield what is known of each admitted job that missed its deadline."""
    last = {row.job: row for row in measure.rows_of(side.accounting)}
    promises = {promise.job: promise for promise in side.promises}
    for said in side.deadlines.said:
        deadline = side.deadlines.begun + said.work.at + said.work.deadline
        if not said.job or measure.fate(last.get(said.job), deadline) == "met":
            continue
        promise, row = promises.get(said.job), last.get(said.job)
        reported = promise is not None and promise.standing in {"broken", "missed"}
        yield {
            "job": said.job,
            "standing": promise.standing if promise else None,
            "told_before_s": deadline - promise.changed if promise and reported else None,
            "why": promise.why if promise else None,
            "comment": row.comment if row else None,
        }


def problems(found: dict[str, Any]) -> list[str]:
    """Return what ought not to be so."""
    unsaid = [miss["job"] for miss in found["misses"] if (miss["told_before_s"] or -1) <= 0]
    silent = [m["job"] for m in found["misses"] if "rtsched:" not in (m["comment"] or "")]
    return [f"job {job} missed its deadline and nobody was told before" for job in unsaid] + [
        f"the user of job {job} was not told in its comment" for job in silent
    ]
