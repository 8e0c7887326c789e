"""What a run came to: figures from Slurm's accounting, and from the daemon's database."""

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

    from playing import Book
    from testbed import Cluster

NODES = 30
MARK = "\x1f"
COLUMNS = (
    "JobID,JobIDRaw,JobName,User,Account,Partition,QOS,Submit,Eligible,Start,End,ElapsedRaw,"
    "TimelimitRaw,ReqCPUS,NCPUS,NNodes,State,NodeList,SubmitLine,Extra,Comment"
)
DATABASE = "/var/lib/rtsched/rtsched.db"
MET = "COMPLETED"


@dataclass(frozen=True)
class Row:
    """A run of a job, as accounting has it; times since the epoch, nan: never."""

    job: int
    name: str
    user: str
    submit: float
    start: float
    end: float
    nodes: int
    state: str
    comment: str


def sacct(running: Cluster) -> str:
    """Return the accounting of all jobs as text, each requeued run on its own."""
    words = ["sacct", "-a", "-X", "-D", "-P", f"--delimiter={MARK}", "-S", "now-2hours"]
    return running.run([*words, "-o", COLUMNS], env={"SLURM_TIME_FORMAT": "%s"}).stdout


def rows_of(text: str) -> list[Row]:
    """Return the rows of what `sacct` printed."""
    lines = text.splitlines()
    names = lines[0].split(MARK)
    found = []
    for line in lines[1:]:
        cells = dict(zip(names, line.split(MARK), strict=True))
        nodes = int(cells["NNodes"] or 0)
        start, end = _seconds(cells["Start"]), _seconds(cells["End"])
        state = cells["State"].split()[0]
        row = (cells["JobName"], cells["User"], _seconds(cells["Submit"]), start, end, nodes)
        found.append(Row(int(cells["JobIDRaw"]), *row, state, cells["Comment"]))
    return found


def _seconds(text: str) -> float:
    return float(text) if text.isdigit() else math.nan


def outcomes(book: Book, rows: Iterable[Row]) -> dict[str, float]:
    """Return what became of the jobs with deadlines: counts."""
    last = {row.job: row for row in rows}
    counts: Counter[str] = Counter()
    for said in book.said:
        counts["asked"] += 1
        if not said.job:
            counts["rejected"] += 1
            continue
        counts["admitted"] += 1
        counts[fate(last.get(said.job), book.begun + said.work.at + said.work.deadline)] += 1
    names = ("asked", "admitted", "rejected", "met", "missed", "own_limit")
    return {name: counts[name] for name in names}


def fate(row: Row | None, deadline: float) -> str:
    """Return `met`, `missed`, or `own_limit`: killed at the limit that it was given."""
    if row is not None and row.state == "TIMEOUT" and row.end < deadline:
        return "own_limit"
    met = row is not None and row.state == MET and row.end <= deadline
    return "met" if met else "missed"


def best_effort(rows: Iterable[Row], begun: float, ended: float) -> dict[str, float]:
    """Return what best-effort jobs (named b...) got from `begun` to `ended`."""
    ours = [row for row in rows if row.name.startswith("b")]
    done = [row for row in ours if row.state == MET and begun <= row.end <= ended]
    served = sum(_served(row, begun, ended) for row in ours)
    useful = sum(_served(row, begun, ended) for row in ours if row.state in {MET, "CANCELLED"})
    ids = Counter(row.job for row in ours)
    return {
        "best_effort_jobs": len(done),
        "best_effort_node_s": served,
        "best_effort_useful_node_s": useful,
        "requeued": sum(count - 1 for count in ids.values()),
    }


def utilisation(rows: Iterable[Row], begun: float, ended: float) -> float:
    """Return busy node-seconds over all node-seconds."""
    return sum(_served(row, begun, ended) for row in rows) / (NODES * (ended - begun))


def _served(row: Row, begun: float, ended: float) -> float:
    if math.isnan(row.start):
        return 0.0
    end = ended if math.isnan(row.end) else min(row.end, ended)
    return row.nodes * max(0.0, end - max(row.start, begun))


def answers(book: Book) -> dict[str, float]:
    """Return how long sbatch took, milliseconds."""
    times = sorted(said.seconds * 1000 for said in book.said)
    return {"sbatch_p50_ms": at_share(times, 0.5), "sbatch_p99_ms": at_share(times, 0.99)}


def at_share(values: Sequence[float], share: float) -> float:
    """Return the least of sorted values that so large a share of them does not exceed."""
    if not values:
        return math.nan
    return values[min(len(values) - 1, max(0, math.ceil(share * len(values)) - 1))]


def offers(book: Book) -> dict[str, float]:
    """Return how many rejections came with an offer, and how many offers were good."""
    offered = [said for said in book.said if said.taken is not None]
    return {"offered": len(offered), "offers_taken": sum(bool(said.taken) for said in offered)}


@dataclass(frozen=True)
class Promise:
    """A promise in the daemon's database; times since the epoch."""

    job: int
    standing: str
    deadline: float
    changed: float
    why: str


def promises(running: Cluster) -> list[Promise]:
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


def standings(found: Iterable[Promise]) -> Mapping[str, int]:
    """Return how many promises stand how."""
    return dict(sorted(Counter(promise.standing for promise in found).items()))
