"""Mapping: moldable parallel jobs on fast and slow nodes, with sed and without."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import mean
from typing import TYPE_CHECKING, Any

import measure
import workload_driver
from stream import Work
from workload_driver import USERS, Setup

if TYPE_CHECKING:
    from pathlib import Path

    from workload_driver import Live

SEED = 5
COUNT = {"slurm": {False: 60, True: 20}, "condor": {False: 40, True: 20}}
GAP = {"slurm": 9.0, "condor": 20.0}
"""Mean seconds between two jobs."""
SED = f"""
[[plugin]]
name = "sed"
settings = {{ migrate = false }}
{workload_driver.DAEMON}
"""
SLOW = {"slurm": 3.0, "condor": 2.0}
"""How many times as long a slow node takes."""


def site(system: type[Live]) -> str:
    """Return the site.toml; what slots of HTCondor can do stands in their ads."""
    if system.name != "slurm":
        return SED
    speeds = f"{{ fast = {SLOW[system.name]}, slow = 1.0 }}"
    return f"{SED}[slurm]\nnode_weights = true\nspeeds = {speeds}\n"


def works(count: int, slow: float, gap: float) -> list[Work]:
    """Return moldable jobs, arriving as a Poisson process; none needs a deadline."""
    chance = random.Random(SEED)  # noqa: S311
    at, found = 0.0, list[Work]()
    for number in range(count):
        at += chance.expovariate(1 / gap)
        minutes, part = chance.choice((2, 3, 4)), chance.uniform(0.7, 0.95) / slow
        least = chance.choice((1, 1, 2))
        found.append(
            Work(
                f"b{number}",
                USERS[number % 3],
                at,
                least,
                8,
                minutes,
                part,
                "moldable",
                slow=slow,
                linear=True,
            )
        )
    return found


def run(system: type[Live], *, reduced: bool, keep: Path | None = None) -> dict[str, Any]:
    """Play the jobs to two machines side by side; return responses and makespans."""
    setups = {system.name: Setup(False, weights=True)}
    setups["sed"] = Setup(True, site(system), weights=True)
    with ThreadPoolExecutor(2) as pool:
        sides = {
            name: pool.submit(
                _side, system, setup, COUNT[system.name][reduced], keep / name if keep else None
            )
            for name, setup in setups.items()
        }
        return {name: side.result() for name, side in sides.items()}


def _side(system: type[Live], setup: Setup, count: int, keep: Path | None) -> dict[str, Any]:
    with system.up(setup) as live:
        book = workload_driver.play(
            live, works(count, SLOW[system.name], GAP[system.name]), offers=False
        )
        limit = time.time() + 600
        while time.time() < limit and live.busy():
            time.sleep(1)
        time.sleep(3)
        text = live.accounting()
        if keep is not None:
            live.save(keep)
            (keep / "accounting.txt").write_text(text)
    rows = live.rows(text)
    done = [row for row in rows if row.state == measure.MET]
    makespan = max(row.end for row in done) - min(row.submit for row in done)
    served = sum(row.nodes * (row.end - row.start) for row in done)
    return {
        "jobs": len(book.replies),
        "completed": len(done),
        "mean_response_s": mean(row.end - row.submit for row in done),
        "mean_wait_s": mean(row.start - row.submit for row in done),
        "mean_run_s": mean(row.end - row.start for row in done),
        "mean_nodes": mean(row.nodes for row in done),
        "makespan_s": makespan,
        "node_s": served,
        "utilisation": served / (measure.NODES * makespan),
        "strays": measure.strays(rows),
    }


def problems(system: type[Live], found: dict[str, Any]) -> list[str]:
    """Return what ought not to be so."""
    problems = [f"{name}: not all jobs ended" for name, side in found.items() if _lost(side)]
    if found["sed"]["strays"]:
        problems.append(f"{found['sed']['strays']} jobs ran where they were not to")
    if found["sed"]["mean_response_s"] >= found[system.name]["mean_response_s"]:
        problems.append("jobs end no sooner with sed than without")
    return problems


def _lost(side: dict[str, Any]) -> bool:
    return bool(side["completed"] < side["jobs"])
