"""How long one rebalance of node queues by a positional scan takes.

    python benchmarks/scans.py [--nodes N] [--jobs N] [--runs N] [--json]

The machine has nodes of speeds 1 to 4, half of them busy. Jobs of one node wait, each for a random
node, so the scan pays. `scan` is the kernel alone, `rebalance` all that the plug-in does: loads,
room beside what runs, the test whether it pays, the scan, and the new queues. Measured in one
process on one core.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING

import numpy as np

from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Jobs
from rtsched_plugins.kernels.node_queues import balance
from rtsched_plugins.kernels.scan_grid import overhead
from rtsched_plugins.kernels.scans import INDEX, MAJORITY, placed
from rtsched_plugins.psts import (
    BYTES,
    JOB,
    NODE,
    POOL,
    SIZE,
    WORK,
    Queues,
    closed,
    empty,
    machine_of,
    opened,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rtsched_plugins.kernels.node_queues import ScannedNodes


def queues_of(nodes: int, jobs: int, dimension: int) -> tuple[Cluster, Queues]:
    """Return a machine, and queues in which every job waits for a random node."""
    from msgspec.structs import replace

    random = np.random.default_rng(1)
    cluster = Cluster(Nodes.build(nodes, speed=random.integers(1, 5, nodes).astype(float)))
    waiting = np.zeros((jobs, 6), np.int64)
    waiting[:, JOB], waiting[:, NODE] = np.arange(jobs), random.integers(0, nodes, jobs)
    waiting[:, SIZE], waiting[:, WORK] = 1, random.integers(60, 86_400, jobs)
    waiting[:, BYTES], waiting[:, POOL] = 0, -1
    busy = np.flatnonzero(random.random(nodes) < 0.5)
    until = random.integers(0, 86_400, nodes)[busy].astype(np.float64)
    held = np.stack([np.full(len(busy), -1), busy], axis=1)
    queues = empty(cluster, dimension)
    return cluster, replace(queues, waiting=waiting, held=held, held_until=until)


def rebalanced(queues: Queues, machine: ScannedNodes) -> Queues:
    """Return the queues after a scan; a step of it takes 1 s, moving jobs takes no time."""
    terms, choices = (overhead(queues.shape, 1.0, 1.0), 0.0), (MAJORITY, INDEX, False, 512)
    none = queues.waiting[:0], Jobs.build(0)
    q, table = opened(queues, *none, machine, np.empty((0, 0)), terms, choices, 0)
    balance(q, 0.0)
    return closed(queues, q, table)


def measured(work: Callable[[], object], runs: int) -> dict[str, float]:
    """Return median and 99th percentile of the work's time, milliseconds."""
    work()
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        work()
        times.append(1e3 * (time.perf_counter() - begin))
    return {"p50_ms": float(np.median(times)), "p99_ms": float(np.percentile(times, 99))}


def main(arguments: list[str]) -> None:
    """Measure and print one line per dimension."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    rows = []
    for dimension in (1, 2, 3, 0):
        cluster, queues = queues_of(given.nodes, given.jobs, dimension)
        machine = machine_of(cluster, queues.shape, queues.cell, queues.sets)
        after = rebalanced(queues, machine)
        if not after.moved:
            raise SystemExit("no job was moved; nothing was measured")
        shape, units = queues.shape, queues.waiting[:, WORK]
        power = np.zeros(int(np.prod(shape)), np.int64)
        power[queues.cell] = machine.power[0]
        owner = queues.cell[queues.waiting[:, NODE]]
        task = machine.shape, owner, units.copy(), power, MAJORITY, INDEX
        scan = measured(lambda: placed(*task), given.runs)  # noqa: B023
        whole = measured(
            lambda: rebalanced(queues, machine),  # noqa: B023
            given.runs,
        )
        rows.append({"axes": len(shape), "moved": after.moved, "scan": scan, "rebalance": whole})
    if given.json:
        print(json.dumps({"nodes": given.nodes, "jobs": given.jobs, "rows": rows}))
        return
    print(f"{given.nodes:,} nodes, {given.jobs:,} waiting jobs of one node, {given.runs} runs")
    for row in rows:
        print(
            f"{row['axes']:2} axes, {row['moved']:,} moved: "
            + ", ".join(
                f"{name} {row[name]['p50_ms']:.0f} ms (p99 {row[name]['p99_ms']:.0f})"
                for name in ("scan", "rebalance")
            )
        )


if __name__ == "__main__":
    main(sys.argv[1:])
