"""How long one deadline-admission test takes where jobs share nodes by cores, memory and GPUs.

    python benchmarks/shared_planning.py [--nodes N] [--running N] [--promises N] [--tests N]
        [--spans N] [--json]

A machine of 64-core nodes, a quarter of them with GPUs, is filled with running jobs of all sizes;
then jobs with deadlines are promised. `beside` are tests of jobs that fit beside the plan, `anew`
those for which all promises were planned anew, admitted or not, and `offer` the rejected ones
together with their counter-offer, and `array` those of job arrays of 10,000 tasks. `first` is the
first test after the state has changed.

`spans` is how long it takes to take so many spans of reserved resources off the same nodes, which
happens when they or the running jobs have changed; `search` to find the earliest starts of 1,024
such jobs beside them, each by itself. Measured in one process on one core; what is compiled was
compiled before.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
from admission import NOW, Took, spread, timed

from rtsched.core.chain import Chain, Member
from rtsched.kernels.compiling import compiled
from rtsched.kernels.machine import TIMED
from rtsched.kernels.room import LAST, empty_profile, fill_room, search_start
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Jobs, Kind
from rtsched.model.schedule import Promises, Schedule
from rtsched.model.snapshot import Snapshot
from rtsched.model.table import offsets_of
from rtsched.model.verdicts import Verdict
from rtsched_plugins.kernels.resource_plan import in_node_order
from rtsched_plugins.mcdf import Mcdf

RESOURCES = ("cpu", "mem", "gres/gpu")
CORES, GIGABYTES, GPUS = 64, 256, 4
GIGABYTE = 2**30
KINDS = ("first", "beside", "anew", "offer", "array")
ARRAY = 10_000
"""Tasks of an array."""
SEARCHES, PARTS = 1_024, 8


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


def arrays(rng: np.random.Generator, n: int, first: int) -> Jobs:
    """Return arrays of 10,000 tasks of a core and ten minutes, 64 on a node, due within days."""
    return Jobs.build(
        n,
        names={"demand": RESOURCES},
        id=np.arange(first, first + n),
        submit=NOW,
        kind=Kind.ARRAY,
        size_min=1,
        size_max=ARRAY // CORES + 1,
        wall_time=600.0,
        deadline=NOW + np.round(rng.uniform(3 * 3600.0, 3 * 86400.0, n)),
        tasks=ARRAY,
        tasks_per_node=CORES,
        demand=np.tile(np.array([CORES, CORES * GIGABYTE, 0], np.int64), (n, 1)),
        exclusive=True,
    )


@compiled
def searched(profile, room, size, wall, demand):  # type: ignore[no-untyped-def]
    """Return the earliest start of each job, seconds, if it were the only one."""
    nodes, found = len(room), np.empty(len(size))
    bound, heap, picks = np.empty(nodes), np.zeros(nodes + 1, TIMED), np.empty(nodes, np.int64)
    for row in range(len(size)):
        for node in range(nodes):
            fits = (room[node] >= demand[row]).all()
            bound[node] = 0.0 if fits else np.inf
        found[row] = search_start(
            profile, bound, size[row], 0.0, wall[row], demand, row, LAST, heap, picks
        )
    return found


def search(nodes: int, spans: int) -> dict[str, Any]:
    """Return the processor time of taking so many spans off, and of 1,024 searches beside them.

    Each node is cut into eight parts, each of which has one span after the other.
    """
    rng = np.random.default_rng(2)
    room = machine(nodes).nodes.capacity
    parts = nodes * PARTS
    each = -(-spans // parts)
    busy, idle = rng.exponential(3600.0, (2, parts, each))
    end = np.cumsum(busy + idle, axis=1)
    start = (end - busy).ravel()
    node = np.repeat(np.arange(nodes, dtype=np.int32), PARTS * each)
    demand = np.minimum(room // PARTS, room // PARTS * rng.integers(1, 3, room.shape) // 2)[node]
    profile = empty_profile(nodes, nodes + 2 * len(node), room.shape[1])
    ordered = empty_profile(nodes, nodes + 2 * len(node), room.shape[1])
    offsets = np.arange(len(node) + 1)
    for _ in range(2):  # what is compiled is loaded at the first
        begun = time.process_time()
        fill_room(profile, room, start, end.ravel(), offsets, node, demand, 0.0)
        in_node_order(profile, ordered)
        taken_off = time.process_time() - begun
    jobs = drawn(rng, SEARCHES, 0)
    asked = jobs.size.astype(np.int64), jobs.wall_time.copy(), jobs.demand.copy()
    searched(ordered, room, *(values[:1] for values in asked))
    begun = time.process_time()
    found = searched(ordered, room, *asked)
    took = time.process_time() - begun
    never = int(np.isinf(found).sum())
    return {
        "spans": len(node),
        "taken_off_cpu_s": taken_off,
        "searches": SEARCHES,
        "cpu_s": took,
        "never": never,
    }


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
    found: dict[str, list[Took]] = {name: [] for name in KINDS}
    new = drawn(rng, tests, 10**7)
    slack = np.round(np.exp(rng.uniform(np.log(1.0), np.log(2 * 86400.0), tests)))
    new = new.with_column("deadline", NOW + new.wall_time + slack)
    starts = base.plan.entries.start
    large = arrays(rng, max(tests // 5, 1), 10**8)
    plain.admit(large.take([0]), base)
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
    for job in (large.take([k]) for k in range(len(large))):
        took, _ = timed(plain.admit, job, replace(base))
        found["array"].append(took)
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
    parser.add_argument("--spans", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    found = measure(given.nodes, given.running, given.promises, given.tests)
    found["search"] = search(given.nodes, given.spans)
    if given.json:
        json.dump(found, sys.stdout, indent=2)
        return 0
    print(f"{found['nodes']} nodes, {found['running']} running jobs, {found['promises']} promises")
    for name in KINDS:
        if name in found:
            row = found[name]
            print(
                f"{name:8} p50 {row['p50_ms']:8.2f} ms   p99 {row['p99_ms']:8.2f} ms   "
                f"cpu p99 {row['cpu_p99_ms']:8.2f} ms   {row['tests']} tests"
            )
    row = found["search"]
    print(f"spans    {row['taken_off_cpu_s']:.3f} s of cpu to take {row['spans']} off")
    many = f"{row['searches']} starts beside {row['spans']} spans"
    print(f"search   {row['cpu_s']:.3f} s of cpu for {many}, {row['never']} found none")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
