"""What a run came to: figures from accounting, and from the daemon's database."""

from __future__ import annotations

import math
import shutil
import sqlite3
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from testbed import Box
    from workload_driver import Book, Reply

NODES = 30
DATABASE = "/var/lib/rtsched/rtsched.db"
MET, OWN_LIMIT, CANCELLED = "COMPLETED", "TIMEOUT", "CANCELLED"
DEFERRED, REJECTED = "held for a moment", "rtsched: rejected"
"""What the user of a job reads that is held until the next poll, and of one that is rejected."""


@dataclass(frozen=True)
class Row:
    """A run of a job, or of a part of it, as accounting has it; times since the epoch, nan: never.

    Attributes
    ----------
    job : int
        Job id.
    name, user : str
        As it was submitted.
    submit, start, end : float
        Its times.
    nodes : int
        How many it had; cores where nodes are shared.
    state : str
        `MET`, `OWN_LIMIT`, `CANCELLED`, or another.
    comment : str
        What its user was told.
    part : int
        Which of the parts that run on their own.
    runs : int
        How many runs this row stands for; its times are those of the last.
    on : tuple of str
        Where it ran.
    planned : tuple of str
        Where it was to run; empty: anywhere.
    """

    job: int
    name: str
    user: str
    submit: float
    start: float
    end: float
    nodes: int
    state: str
    comment: str
    part: int = 0
    runs: int = 1
    on: tuple[str, ...] = ()
    planned: tuple[str, ...] = ()


def by_job(rows: Iterable[Row]) -> dict[int, list[Row]]:
    """Return the last run of each part of each job."""
    last = {(row.job, row.part): row for row in rows}
    found: dict[int, list[Row]] = {}
    for row in last.values():
        found.setdefault(row.job, []).append(row)
    return found


def outcomes(book: Book, rows: Iterable[Row]) -> dict[str, float]:
    """Return what became of the jobs with deadlines: counts.

    A submission of several jobs has one promise. One that was held for a moment, and then removed
    with a rejection before it ran, was rejected.
    """
    known = by_job(rows)
    counts: Counter[str] = Counter()
    for reply in book.replies:
        deadline = book.begun + reply.work.at + reply.work.deadline
        counts["asked"] += reply.work.jobs
        admitted = bool(reply.jobs) and not _rejected_later(reply, known)
        counts["admitted" if admitted else "rejected"] += reply.work.jobs
        counts["submissions_accepted"] += admitted
        if admitted:
            counts.update(fate(known.get(job, []), deadline) for job in reply.jobs)
    names = ("asked", "admitted", "submissions_accepted", "rejected", "met", "missed", "own_limit")
    return {name: counts[name] for name in names}


def _rejected_later(reply: Reply, known: Mapping[int, Sequence[Row]]) -> bool:
    rows = [row for job in reply.jobs for row in known.get(job, [])]
    refused = (
        row.state == CANCELLED and REJECTED in row.comment and math.isnan(row.start) for row in rows
    )
    return DEFERRED in reply.text and bool(rows) and all(refused)


def fate(rows: Sequence[Row], deadline: float) -> str:
    """Return `met`, `missed`, or `own_limit`: killed at the limit that it was given."""
    if any(row.state == OWN_LIMIT and row.end < deadline for row in rows):
        return "own_limit"
    met = bool(rows) and all(row.state == MET and row.end <= deadline for row in rows)
    return "met" if met else "missed"


def best_effort(
    rows: Iterable[Row], begun: float, ended: float, unit: str = "node"
) -> dict[str, float]:
    """Return what best-effort jobs (named b...) got from `begun` to `ended`, in unit-seconds."""
    ours = [row for row in rows if row.name.startswith("b")]
    done = [row for row in ours if row.state == MET and begun <= row.end <= ended]
    served = sum(_served(row, begun, ended) for row in ours)
    useful = sum(_served(row, begun, ended) for row in ours if row.state in {MET, CANCELLED})
    return {
        "best_effort_jobs": len(done),
        f"best_effort_{unit}_s": served,
        f"best_effort_useful_{unit}_s": useful,
        "requeued": sum(row.runs for row in ours) - len({row.job for row in ours}),
    }


def utilisation(rows: Iterable[Row], begun: float, ended: float, nodes: int = NODES) -> float:
    """Return busy node-seconds over all node-seconds; of cores where nodes are shared."""
    return sum(_served(row, begun, ended) for row in rows) / (nodes * (ended - begun))


def _served(row: Row, begun: float, ended: float) -> float:
    if math.isnan(row.start):
        return 0.0
    end = ended if math.isnan(row.end) else min(row.end, ended)
    return row.nodes * max(0.0, end - max(row.start, begun))


def answers(book: Book, command: str) -> dict[str, float]:
    """Return how long a command took, milliseconds."""
    times = sorted(reply.seconds * 1000 for reply in book.replies)
    return {f"{command}_p50_ms": at_share(times, 0.5), f"{command}_p99_ms": at_share(times, 0.99)}


def strays(rows: Iterable[Row]) -> int:
    """Return how many jobs ran where they were not to."""
    known = by_job(rows).values()
    return sum(any(set(row.on) - set(row.planned) for row in job if row.planned) for job in known)


def at_share(values: Sequence[float], share: float) -> float:
    """Return the least of sorted values that so large a share of them does not exceed."""
    if not values:
        return math.nan
    return values[min(len(values) - 1, max(0, math.ceil(share * len(values)) - 1))]


def offers(book: Book) -> dict[str, float]:
    """Return how many rejections came with an offer, and how many offers were good."""
    offered = [reply for reply in book.replies if reply.taken is not None]
    return {"offered": len(offered), "offers_taken": sum(bool(reply.taken) for reply in offered)}


@dataclass(frozen=True)
class Promise:
    """A promise in the daemon's database; times since the epoch."""

    job: int
    state: str
    deadline: float
    changed: float
    why: str


def promises(running: Box) -> list[Promise]:
    """Return the promises of a daemon, which may run."""
    with tempfile.TemporaryDirectory() as directory:
        for end in ("", "-wal"):
            source = running.path(DATABASE + end)
            if source.exists():
                shutil.copy(source, Path(directory) / f"copy.db{end}")
        base = sqlite3.connect(Path(directory) / "copy.db")
        try:
            asked = "select id, standing, deadline, changed_at, why from records"
            return [Promise(*row) for row in base.execute(asked)]
        finally:
            base.close()


def states(found: Iterable[Promise]) -> Mapping[str, int]:
    """Return how many promises are in each state."""
    return dict(sorted(Counter(promise.state for promise in found).items()))
