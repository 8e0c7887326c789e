"""Mapping: moldable parallel jobs on fast and slow nodes, with sed and without."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import mean
from typing import TYPE_CHECKING, Any

import measure
import playing
from stream import Work

if TYPE_CHECKING:
    from pathlib import Path

USERS = ("alice", "bob", "carol")
SEED = 5
SLOW = 3.0
"""How many times as long a slow node takes."""
COUNT = {False: 60, True: 20}
GAP = 9.0
"""Mean seconds between two jobs."""
SED = f"""
[[plugin]]
name = "sed"
settings = {{ migrate = false }}
[slurm]
node_weights = true
speeds = {{ fast = {SLOW}, slow = 1.0 }}
{playing.DAEMON}
"""


def works(count: int) -> list[Work]:
    """Return moldable jobs, arriving as a Poisson process; none needs a deadline."""
    chance = random.Random(SEED)  # noqa: S311
    at, found = 0.0, list[Work]()
    for number in range(count):
        at += chance.expovariate(1 / GAP)
        minutes, part = chance.choice((2, 3, 4)), chance.uniform(0.7, 0.95) / SLOW
        least = chance.choice((1, 1, 2))
        work = Work(f"b{number}", USERS[number % 3], at, least, 8, minutes, part, "moldable")
        found.append(_slowed(work))
    return found


def _slowed(work: Work) -> Work:
    fields = {name: getattr(work, name) for name in work.__dataclass_fields__}
    return Work(**fields | {"slow": SLOW, "words": "speedup=linear"})


def run(*, reduced: bool, keep: Path | None = None) -> dict[str, Any]:
    """Play the jobs to two clusters side by side; return responses and makespans."""
    with ThreadPoolExecutor(2) as pool:
        names = ("slurm", "sed")
        sides = {name: pool.submit(_side, name, COUNT[reduced], keep) for name in names}
        return {name: side.result() for name, side in sides.items()}


def _side(name: str, count: int, keep: Path | None) -> dict[str, Any]:
    steered = name == "sed"
    with playing.cluster(steered=steered, admin_level="Admin") as running:
        if steered:
            running.start_daemon(SED, timeout=300)
        book = playing.play(running, works(count), offers=False)
        limit = time.time() + 600
        while time.time() < limit and running.run(["squeue", "-h", "-o", "%i"]).stdout.split():
            time.sleep(1)
        time.sleep(3)
        rows = measure.rows_of(measure.sacct(running))
        if keep is not None:
            (keep / name).mkdir(parents=True, exist_ok=True)
            text = measure.sacct(running)
            (keep / name / "sacct.txt").write_text(text)
            log = running.path("/var/log/testbed/rtsched.log")
            (keep / name / "rtsched.log").write_text(log.read_text() if steered else "")
    done = [row for row in rows if row.state == measure.MET]
    makespan = max(row.end for row in done) - min(row.submit for row in done)
    served = sum(row.nodes * (row.end - row.start) for row in done)
    return {
        "jobs": len(book.said),
        "completed": len(done),
        "mean_response_s": mean(row.end - row.submit for row in done),
        "mean_wait_s": mean(row.start - row.submit for row in done),
        "mean_run_s": mean(row.end - row.start for row in done),
        "mean_nodes": mean(row.nodes for row in done),
        "makespan_s": makespan,
        "node_s": served,
        "utilisation": served / (measure.NODES * makespan),
    }


def problems(found: dict[str, Any]) -> list[str]:
    """Return what ought not to be so."""
    said = [f"{name}: not all jobs ended" for name, side in found.items() if _lost(side)]
    if found["sed"]["mean_response_s"] >= found["slurm"]["mean_response_s"]:
        said.append("jobs end no sooner with sed than without")
    return said


def _lost(side: dict[str, Any]) -> bool:
    return bool(side["completed"] < side["jobs"])
