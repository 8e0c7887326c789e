"""What promises that survive the loss of nodes cost, and what they are worth.

    python benchmarks/insurance.py [--jobs N] [--nodes N] [--every HOURS]... [--json]

A simulated machine of equal nodes gets a stream of rigid jobs with deadlines, and loses a node now
and then: one at a time, any of them, back after an hour. What ran there begins again. `mcdf`
promises with 0, 1 and 2 spare nodes. No promise stands for longer than eight hours, so with a loss
every eight hours one spare node is enough for all of them; with one every hour it is not.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from rtsched.model.cluster import Cluster, NodeState
from rtsched.model.jobs import Edges, Jobs
from rtsched.model.log import FinalState, Outcomes, Skipped
from rtsched.model.snapshot import Accounts
from rtsched.replay.engine import Replay
from rtsched.replay.planners import load_chain
from rtsched.replay.policies import presets
from rtsched.replay.results import Workload
from rtsched.simulator.interface import NodeEvent

HOUR = 3600.0
LONGEST = 8 * HOUR
"""Seconds from a submission to its deadline at most."""


def stream(n: int, nodes: int, load: float = 0.7, seed: int = 11) -> Workload:
    """Return `n` jobs of 1 to 8 nodes and 10 to 60 minutes that ask for `load` of the machine."""
    rng = np.random.default_rng(seed)
    size = rng.integers(1, 9, n).astype(np.int32)
    wall = rng.integers(10, 61, n) * 60.0
    used = rng.uniform(0.4, 1.0, n) * wall
    gap = float((size * used).mean()) / (load * nodes)
    submit = np.cumsum(np.round(rng.exponential(gap, n)))
    deadline = submit + np.minimum(rng.uniform(1.2, 6.0, n) * wall, LONGEST)
    jobs = Jobs.build(
        n, id=np.arange(n), submit=submit, size=size, wall_time=wall, deadline=deadline
    )
    cluster, accounts = Cluster.uniform(nodes), Accounts.build(0)
    outcomes, links = Outcomes.build(n), Edges.build(0)
    return Workload(jobs, used, outcomes, cluster, accounts, links, (), Skipped())


def losses(work: Workload, every: float, seed: int = 12) -> tuple[NodeEvent, ...]:
    """Return the losses of one node at a time, back after an hour at most."""
    rng = np.random.default_rng(seed)
    first, last = float(work.jobs.submit[0]), float(work.jobs.submit[-1])
    times = np.arange(first + every, last, every)
    nodes = rng.integers(0, len(work.cluster), len(times)).tolist()
    away = min(HOUR, 0.9 * every)
    events = []
    for at, node in zip(times.tolist(), nodes, strict=True):
        events.append(NodeEvent(at, node, int(NodeState.DOWN)))
        events.append(NodeEvent(at + away, node, int(NodeState.UP)))
    return tuple(events)


def measure(work: Workload, spare: int, events: tuple[NodeEvent, ...]) -> dict[str, Any]:
    """Return what one setting made of the stream."""
    policy = presets()["mcdf"]
    table = policy.plugin[0]
    insured = msgspec.structs.replace(table, settings={**table.settings, "spare_nodes": spare})
    policy = msgspec.structs.replace(policy, plugin=[insured])
    chain, _ = load_chain(policy, periodic=False)
    begun = time.perf_counter()
    run = Replay("mcdf", replace(work, node_events=events), chain, policy, record_nodes=False)
    run.run()
    results = run.outcome(time.perf_counter() - begun).results
    promised = np.isfinite(results.promise)
    kept = promised & (results.fate == FinalState.FINISHED) & (results.end <= results.promise + 1.0)
    return {
        "spare_nodes": spare,
        "lost_nodes": len(events) // 2,
        "promised": int(promised.sum()),
        "broken": int((promised & ~kept).sum()),
        "node_hours": float((work.jobs.size * work.run_time)[kept].sum() / HOUR),
        "ms_per_job": 1000.0 * (time.perf_counter() - begun) / len(work.jobs),
    }


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1500)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--every", type=float, action="append", help="hours between two losses")
    parser.add_argument("--json", action="store_true")
    words = parser.parse_args()
    work = stream(words.jobs, words.nodes)
    rows = []
    for every in (np.inf, *(words.every or (8.0, 1.0))):
        events = losses(work, every * HOUR) if np.isfinite(every) else ()
        rows += [{"every_h": every} | measure(work, spare, events) for spare in (0, 1, 2)]
    if words.json:
        print(json.dumps(rows))
        return
    print("| a loss every | nodes lost | spare_nodes | promised | broken | node-hours in time |")
    print("|---|---:|---:|---:|---:|---:|")
    for row in rows:
        said = "never" if not np.isfinite(row["every_h"]) else f"{row['every_h']:g} h"
        print(
            f"| {said} | {row['lost_nodes']} | {row['spare_nodes']} | {row['promised']:,} | "
            f"{row['broken']:,} | {row['node_hours']:,.0f} |"
        )
    print(f"{max(r['ms_per_job'] for r in rows):.2f} ms per job at most, all told")


if __name__ == "__main__":
    main()
