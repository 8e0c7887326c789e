"""How long one deadline-admission test takes where jobs share nodes by cores, memory and GPUs.

    python benchmarks/shared_planning.py [--nodes N] [--running N] [--promises N] [--tests N]
        [--json]

A machine of 64-core nodes, a quarter of them with GPUs, is filled with running jobs of all sizes;
then jobs with deadlines are promised. `beside` are tests of jobs that fit beside the plan, `anew`
those for which all promises were planned anew, admitted or not, and `offer` the rejected ones
together with their counter-offer. `first` is the first test after the state has changed. Measured
in one process on one core; what is compiled was compiled before.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from dataclasses import replace
from typing import Any

import numpy as np
from admission import NOW, Took, spread, timed

from rtsched.core.chain import Chain, Member
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Jobs
from rtsched.model.ragged import offsets_of
from rtsched.model.schedule import Promises, Schedule
from rtsched.model.snapshot import Snapshot
from rtsched.model.verdicts import Verdict
from rtsched_plugins.mcdf import Mcdf

RESOURCES = ("cpu", "mem", "gres/gpu")
CORES, GIGABYTES, GPUS = 64, 256, 4
GIGABYTE = 2**30


def machine(nodes: int) -> Cluster:
    """Return nodes, every fourth with GPUs."""
    capacity = np.tile(np.array([CORES, GIGABYTES * GIGABYTE, 0], np.int64), (nodes, 1))
    capacity[::4, 2] = GPUS
    return Cluster(Nodes.build(nodes, names={"capacity": RESOURCES}, capacity=capacity))


def drawn(rng: np.random.Generator, n: int, first: int) -> Jobs:
    """Return jobs of one to four nodes, each asking for a part of a node, one in ten for GPUs."""
    cores = rng.choice([1, 2, 4, 8, 16, 32], n)
    gpus = np.where(rng.random(n) < 0.1, rng.integers(1, GPUS + 1, n), 0)
    demand = np.column_stack([cores, cores * 3 * GIGABYTE, gpus]).astype(np.int64)
    wall = np.round(np.exp(rng.uniform(np.log(600.0), np.log(86400.0), n)))
    return Jobs.build(
        n,
        names={"demand": RESOURCES},
        id=np.arange(first, first + n),
        submit=NOW,
        size=rng.choice([1, 1, 1, 2, 4], n).astype(np.int32),
        wall_time=wall,
        demand=demand,
    )


def fill(cluster: Cluster, jobs: Jobs, rng: np.random.Generator) -> tuple[Jobs, Schedule]:
    """Return the jobs that find room now, and where they run."""
    room = cluster.nodes.capacity.copy()
    rows, nodes = [], []
    for row in range(len(jobs)):
        fits = np.flatnonzero((room >= jobs.demand[row]).all(axis=1))
        if len(fits) < jobs.size[row]:
            continue
        chosen = rng.choice(fits, jobs.size[row], replace=False)
        room[chosen] -= jobs.demand[row]
        rows.append(row)
        nodes.append(chosen)
    running = jobs.take(np.array(rows))
    begun = NOW - rng.random(len(running)) * running.wall_time
    held = Schedule.build(
        running.id,
        begun,
        begun + running.wall_time,
        offsets_of(running.size),
        np.concatenate(nodes).astype(np.int32),
    )
    return running, held


def promised(snapshot: Snapshot, chain: Chain, jobs: Jobs, most: int) -> Snapshot:
    """Return the state when jobs have been admitted, and no more than so many."""
    for at in range(0, len(jobs), 50):
        if len(snapshot.plan) >= most:
            break
        batch = jobs.take(np.arange(at, min(at + 50, len(jobs))))
        verdicts = chain.admit(batch, snapshot).verdicts
        rows = np.flatnonzero(verdicts.code == Verdict.ADMIT)
        if verdicts.plan is None:
            continue
        new = batch.take(rows)
        promises = Promises.build(len(new), job=new.id, deadline=new.deadline, made_at=NOW)
        snapshot = replace(
            snapshot,
            queued=Jobs.joined([snapshot.queued, new]),
            promises=Promises.joined([snapshot.promises, promises]),
            plan=verdicts.plan,
        )
    return snapshot


def measure(nodes: int, running: int, promises: int, tests: int) -> dict[str, Any]:
    """Return times of tests and counter-offers, and how many jobs there were."""
    rng = np.random.default_rng(1)
    cluster = machine(nodes)
    jobs, held = fill(cluster, drawn(rng, running, 10**6), rng)
    plain = Chain([Member("mcdf", Mcdf(Mcdf.Config(order="deadline", offer_tests=0)))], "mcdf")
    offering = Chain([Member("mcdf", Mcdf(Mcdf.Config(order="deadline")))], "mcdf")
    asking = drawn(rng, 3 * promises, 0)
    slack = np.exp(rng.uniform(np.log(3600.0), np.log(5 * 86400.0), len(asking)))
    asking = asking.with_column("deadline", np.round(NOW + asking.wall_time + slack))
    empty = Snapshot(NOW, cluster, running=jobs, allocations=held)
    base = promised(empty, plain, asking, promises)
    found: dict[str, list[Took]] = {name: [] for name in ("first", "beside", "anew", "offer")}
    new = drawn(rng, tests, 10**7)
    slack = np.round(np.exp(rng.uniform(np.log(1.0), np.log(2 * 86400.0), tests)))
    new = new.with_column("deadline", NOW + new.wall_time + slack)
    starts = base.plan.entries.start
    gc.collect()
    gc.disable()
    for k in range(tests):
        job = new.take([k])
        changed = replace(base, queued=base.queued.take(np.arange(len(base.queued))))
        first, _ = timed(plain.admit, job, changed)
        took, judgement = timed(plain.admit, job, replace(changed))
        found["first"].append(first)
        plan = judgement.verdicts.plan
        same = plan is not None and np.array_equal(plan.entries.start[: len(starts)], starts)
        found["beside" if same else "anew"].append(took)
        if plan is None:
            took, judgement = timed(offering.admit, job, changed)
            took, judgement = timed(offering.admit, job, replace(changed))
            found["offer"].append(took)
    gc.enable()
    return {
        "nodes": nodes,
        "running": len(jobs),
        "promises": len(base.plan),
        **{name: spread(times) for name, times in found.items() if times},
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--nodes", type=int, default=2_000)
    parser.add_argument("--running", type=int, default=20_000)
    parser.add_argument("--promises", type=int, default=1_000)
    parser.add_argument("--tests", type=int, default=200)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    found = measure(given.nodes, given.running, given.promises, given.tests)
    if given.json:
        json.dump(found, sys.stdout, indent=2)
        return 0
    print(f"{found['nodes']} nodes, {found['running']} running jobs, {found['promises']} promises")
    for name in ("first", "beside", "anew", "offer"):
        if name in found:
            row = found[name]
            print(
                f"{name:8} p50 {row['p50_ms']:8.2f} ms   p99 {row['p99_ms']:8.2f} ms   "
                f"cpu p99 {row['cpu_p99_ms']:8.2f} ms   {row['tests']} tests"
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
