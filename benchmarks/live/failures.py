"""Nodes die under promised jobs: who is told, and how long before the deadline.

On the first machine they stay dead, and no promise is insured. On the second one promises survive
the loss of a node (`spare_nodes = 1`), and one node is dead at a time: no promise breaks.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Any

import measure
from promises import figures, play_side, site
from stream import Extent
from testbed import TestbedError
from workload_driver import FAVOURED, Setup

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from promises import Side
    from workload_driver import Live

PLANNER = "mcdf"
INSURED = "settings = {{ spare_nodes = 1, recovery = {recovery:g} }}"

FULL = Extent(360, 10, (1, 2), (2.0, 4.5), 60, (2, 3, 4, 6), 30_000)
REDUCED = Extent(70, 7, (1,), (1.6, 3.0), 60, (2, 3, 4, 6), 12_000)
REDUCED_INSURED = Extent(100, 7, (1,), (1.6, 2.2), 60, (2, 3, 4, 6), 12_000)
"""Deadlines of insured promises are later by a second run of the longest job, and the recovery."""

TOLD = {"broken", "missed", "void"}
"""States of a promise that its user is told of when they begin."""


@dataclass
class Killer:
    """Kills a node under a promised job now and then, none of them twice.

    Attributes
    ----------
    first, every : float
        Seconds from the stream's start to the first kill, and between kills.
    count : int
        How many nodes.
    one : bool
        Whether a node comes back before the next one is killed.
    """

    first: float
    every: float
    count: int
    one: bool = False
    killed: list[str] = field(default_factory=list)

    def __call__(self, live: Live, begun: float) -> None:
        """Do so."""
        for number in range(self.count):
            time.sleep(max(0.0, begun + self.first + number * self.every - time.time()))
            if self.one and self.killed:
                live.revive(self.killed[-1])
            with contextlib.suppress(TestbedError):
                killed = live.kill_under(FAVOURED, self.killed)
                self.killed += [killed] if killed else []


def run(system: type[Live], *, reduced: bool, keep: Path | None = None) -> dict[str, Any]:
    """Play a stream while nodes die; return the figures, and what was said of each miss."""
    killer = Killer(50, 15, 4) if reduced else Killer(90, 45, 8)
    place = keep / "failures" if keep else None
    found = _side(system, "", REDUCED if reduced else FULL, killer, place)
    insured = insured_side(system, reduced=reduced, keep=keep)
    return found | {"insured": insured["rtsched"], "insured_misses": insured["misses"]}


def insured_side(system: type[Live], *, reduced: bool, keep: Path | None = None) -> dict[str, Any]:
    """Play the stream to a machine whose promises survive the loss of a node; the same of it."""
    killer = Killer(40, 60, 2, one=True) if reduced else Killer(90, 90, 4, one=True)
    extent = REDUCED_INSURED if reduced else FULL
    again = 60 * max(extent.minutes) + max(system.margins) + system.recovery
    extent = replace(extent, lead=extent.lead + again)
    settings = INSURED.format(recovery=system.recovery)
    return _side(system, settings, extent, killer, keep / "failures-insured" if keep else None)


def _side(
    system: type[Live], settings: str, extent: Extent, killer: Killer, place: Path | None
) -> dict[str, Any]:
    extent = replace(extent, part=system.full.part)
    setup = Setup(True, site(PLANNER, settings), single=True)
    side = play_side(system, extent, PLANNER, setup, place, killer)
    return told(system, side, figures(system, side), killer)


def told(system: type[Live], side: Side, found: dict[str, Any], killer: Killer) -> dict[str, Any]:
    """Return a side's figures and when users were told of misses, and what is known of each."""
    misses = list(_misses(system, side))
    ahead = [miss["told_before_s"] for miss in misses if miss["told_before_s"] is not None]
    found |= {
        "killed_nodes": len(killer.killed),
        "told_before_deadline": sum(seconds > 0 for seconds in ahead),
        "told_before_least_s": min(ahead, default=None),
        "told_before_median_s": median(ahead) if ahead else None,
        "told_before_most_s": max(ahead, default=None),
    }
    return {"rtsched": found, "misses": misses}


def _misses(system: type[Live], side: Side) -> Iterator[dict[str, Any]]:
    """Yield what is known of each admitted job that missed its deadline.

    Procs of an HTCondor cluster may have one promise, that of the first.
    """
    known = measure.by_job(system.rows(side.accounting))
    promises = {promise.job: promise for promise in side.promises}
    asked = ((job, reply) for reply in side.deadlines.replies for job in reply.jobs)
    for job, reply in asked:
        deadline = side.deadlines.begun + reply.work.at + reply.work.deadline
        rows, promise = known.get(job, []), promises.get(job, promises.get(reply.jobs[0]))
        if measure.fate(rows, deadline) == "met":
            continue
        reported = promise is not None and promise.state in TOLD
        yield {
            "job": system.named(job),
            "standing": promise.state if promise else None,
            "told_before_s": deadline - promise.changed if promise and reported else None,
            "why": promise.why if promise else None,
            "comment": next((row.comment for row in rows if row.comment), None),
            "state": rows[-1].state if rows else None,
        }


def problems(system: type[Live], found: dict[str, Any]) -> list[str]:
    """Return what ought not to be so."""
    del system
    insured, lost = found["insured"], [miss["job"] for miss in found["insured_misses"]]
    broken = insured["promises"].get("broken", 0)
    return [
        *untold(found["misses"]),
        *(f"job {job} missed its deadline, though it was insured" for job in lost),
        *([f"{broken} insured promises are broken"] if broken else []),
        *([] if insured["killed_nodes"] > 1 else ["fewer than two nodes were killed"]),
    ]


def untold(misses: list[dict[str, Any]]) -> list[str]:
    """Return which misses nobody was told of before, or not in the job's record.

    That a job may end late is told before its deadline only. The record of a job that the batch
    system cancels at its deadline is its state.
    """
    warned = [miss["job"] for miss in misses if "may run until" in (miss["comment"] or "")]
    late = [miss["job"] for miss in misses if (miss["told_before_s"] or -1) <= 0]
    unsaid = [job for job in late if job not in warned]
    silent = [
        miss["job"]
        for miss in misses
        if "rtsched:" not in (miss["comment"] or "") and miss["state"] != "DEADLINE"
    ]
    return [
        *(f"job {job} missed its deadline and nobody was told before" for job in unsaid),
        *(f"the user of job {job} was not told in its record" for job in silent),
    ]
