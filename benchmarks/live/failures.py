"""Nodes die under promised jobs: who is told, and how long before the deadline."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Any

import measure
from playing import FAVOURED, Setup
from promises import figures, play_side, site
from stream import Extent
from testbed import TestbedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playing import Live
    from promises import Side

PLANNER = "mcdf"
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

    def __call__(self, live: Live, begun: float) -> None:
        """Do so."""
        for number in range(self.count):
            time.sleep(max(0.0, begun + self.first + number * self.every - time.time()))
            with contextlib.suppress(TestbedError):
                killed = live.kill_under(FAVOURED, self.killed)
                self.killed += [killed] if killed else []


def run(system: type[Live], *, reduced: bool, keep: Path | None = None) -> dict[str, Any]:
    """Play a stream while nodes die; return the figures, and what was said of each miss."""
    extent = replace(REDUCED if reduced else FULL, part=system.full.part)
    killer = Killer(50, 15, 4) if reduced else Killer(90, 45, 8)
    setup = Setup(True, site(PLANNER), single=True)
    place = keep / "failures" if keep else None
    side = play_side(system, extent, PLANNER, setup, place, killer)
    misses = list(_misses(system, side))
    ahead = [miss["told_before_s"] for miss in misses if miss["told_before_s"] is not None]
    found = figures(system, side) | {
        "killed_nodes": len(killer.killed),
        "told_before_deadline": sum(seconds > 0 for seconds in ahead),
        "told_before_least_s": min(ahead, default=None),
        "told_before_median_s": median(ahead) if ahead else None,
        "told_before_most_s": max(ahead, default=None),
    }
    return {"rtsched": found, "misses": misses}


def _misses(system: type[Live], side: Side) -> Iterator[dict[str, Any]]:
    """Yield what is known of each admitted job that missed its deadline."""
    known = measure.by_job(system.rows(side.accounting))
    promises = {promise.job: promise for promise in side.promises}
    asked = ((job, said.work) for said in side.deadlines.said for job in said.jobs)
    for job, work in asked:
        deadline = side.deadlines.begun + work.at + work.deadline
        rows, promise = known.get(job, []), promises.get(job)
        if measure.fate(rows, deadline) == "met":
            continue
        reported = promise is not None and promise.standing in {"broken", "missed"}
        yield {
            "job": system.named(job),
            "standing": promise.standing if promise else None,
            "told_before_s": deadline - promise.changed if promise and reported else None,
            "why": promise.why if promise else None,
            "comment": rows[0].comment if rows else None,
        }


def problems(system: type[Live], found: dict[str, Any]) -> list[str]:
    """Return what ought not to be so."""
    del system
    unsaid = [miss["job"] for miss in found["misses"] if (miss["told_before_s"] or -1) <= 0]
    silent = [m["job"] for m in found["misses"] if "rtsched:" not in (m["comment"] or "")]
    return [f"job {job} missed its deadline and nobody was told before" for job in unsaid] + [
        f"the user of job {job} was not told in its record" for job in silent
    ]
