"""What a refresh of start estimates takes in a large, made-up queue.

    python benchmarks/estimates.py [--waiting N] [--nodes N] [--past N] [--promises N] [--shared]
        [--share S]

An estimator as its process holds it: so many jobs wait on so many nodes, all busy, and so many
ended in the last 30 days. With `--shared` jobs share nodes by cores, memory and GPUs. So many jobs
more are promised: each is planned for an hour on 1 to 8 nodes, at some time of the next six days.
The first refresh compiles kernels and does not count.

`pickling` is how long the state takes as bytes on its way to the process, which holds the daemon's
event loop.
"""

from __future__ import annotations

import argparse
import pickle
import resource
import time
from typing import TYPE_CHECKING

import numpy as np

from rtsched.estimates.estimator import Estimator
from rtsched.estimates.settings import EstimateSettings
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Jobs
from rtsched.model.log import Log, Outcomes
from rtsched.model.resources import CPU, GPU, MEMORY
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import Snapshot
from rtsched.model.table import offsets_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

NOW = 1.7e9
DAY = 86400.0
REFRESHES = 3
PLANNED_FOR = 2 * 24 * 6
"""Half hours in which promised jobs are planned."""


def jobs_of(n: int, first: int, shared: bool, submit: NDArray[np.float64]) -> Jobs:
    """Return jobs of 200 users; where they share nodes, of some cores, memory and GPUs."""
    random = np.random.default_rng(first)
    demand, names = np.zeros((n, 0), np.int64), tuple[str, ...]()
    if shared:
        names = (CPU, MEMORY, GPU)
        columns = random.integers(1, 33, n), random.integers(1, 129, n) << 30
        demand = np.column_stack([*columns, random.choice([0, 0, 0, 1, 2, 4], n)])
    return Jobs.build(
        n,
        id=first + np.arange(n),
        submit=submit,
        wall_time=random.choice([3600.0, 14400.0, 43200.0], n),
        size=np.ones(n, np.int32) if shared else random.integers(1, 17, n).astype(np.int32),
        user=[f"u{code}" for code in random.integers(0, 200, n).tolist()],
        name=[f"job{code}" for code in random.integers(0, 2000, n).tolist()],
        names={"demand": names},
        demand=demand,
    )


def past_of(n: int, shared: bool, now: float = NOW) -> Log:
    """Return jobs that ended in the last 30 days."""
    random = np.random.default_rng(0)
    submit = now - np.sort(random.uniform(DAY, 30 * DAY, n))[::-1]
    jobs = jobs_of(n, 10**7, shared, submit)
    ran = jobs.wall_time * random.beta(0.8, 2.0, n)
    outcomes = Outcomes.build(n, start=jobs.submit, end=jobs.submit + ran, run_time=ran)
    return Log(jobs, outcomes, (), "made up")


def promised(n: int, nodes: int, shared: bool) -> tuple[Jobs, Schedule]:
    """Return promised jobs and their plan, in which no two have a node at the same time."""
    random = np.random.default_rng(2)
    free = 2 * 12 + np.zeros(nodes, np.int64)  # half hours from now on in which running jobs end
    taken = np.arange(PLANNED_FOR)[:, None] < free
    size = random.integers(1, 9, n)
    rows, begins = [], np.empty(n, np.int64)
    for job in range(n):
        while True:
            begin = int(random.integers(PLANNED_FOR - 1))
            idle = np.flatnonzero(~taken[begin : begin + 2].any(axis=0))
            if len(idle) >= size[job]:
                break
        rows.append(np.sort(random.choice(idle, size[job], replace=False)))
        taken[begin : begin + 2, rows[-1]] = True
        begins[job] = begin
    start = NOW + 1800.0 * begins
    jobs = jobs_of(n, 10**8, shared, np.full(n, NOW)).replace(
        size=size.astype(np.int32), wall_time=np.full(n, 3600.0), deadline=start + 7200.0
    )
    at = np.concatenate([*rows, np.zeros(0, np.int64)]).astype(np.int32)
    return jobs, Schedule.build(jobs.id, start, start + 3600.0, offsets_of(size), at)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=2_000)
    parser.add_argument("--past", type=int, default=50_000)
    parser.add_argument("--promises", type=int, default=0)
    parser.add_argument("--shared", action="store_true")
    parser.add_argument("--share", type=float, default=0.3, help="core_share of site.toml")
    given = parser.parse_args()
    nodes = Nodes.build(given.nodes)
    if given.shared:
        room = np.tile(np.array([[64, 256 << 30, 4]], np.int64), (given.nodes, 1))
        nodes = Nodes.build(given.nodes, names={"capacity": (CPU, MEMORY, GPU)}, capacity=room)
    n = given.nodes
    running = jobs_of(n, 10**6, given.shared, np.full(n, NOW - 3600.0)).replace(
        size=np.ones(n, np.int32)
    )
    allocations = Schedule.build(
        running.id,
        np.full(n, NOW - 1800.0),
        NOW - 1800.0 + running.wall_time,
        offsets_of(np.ones(n, np.int64)),
        np.arange(n, dtype=np.int32),
    )
    random = np.random.default_rng(1)
    submit = NOW - np.sort(random.uniform(0, 3600.0, given.waiting))[::-1]
    queued = jobs_of(given.waiting, 1, given.shared, submit)
    planned, plan = promised(given.promises, n, given.shared)
    queued = Jobs.joined([queued, planned])
    snapshot = Snapshot(NOW, Cluster(nodes), queued, running, allocations, plan=plan)
    made = [0]
    estimator = Estimator(EstimateSettings())
    estimator.learn(past_of(given.past, given.shared))
    begun = time.perf_counter()
    pickle.dumps(snapshot, protocol=5)
    pickling = time.perf_counter() - begun

    def count() -> None:
        made[0] += 1

    print("| refresh | s | CPU s | draws | s between two, at that share |")
    print("|---|---:|---:|---:|---:|")
    for number in range(1 + REFRESHES):
        made[0], begun, cpu = 0, time.perf_counter(), time.process_time()
        estimator.refresh(snapshot, between=count)
        took, cpu = time.perf_counter() - begun, time.process_time() - cpu
        if number:
            apart = max(estimator.settings.refresh, cpu / given.share)
            print(f"| {number} | {took:.2f} | {cpu:.2f} | {made[0]} | {apart:.0f} |", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\npickling {1000 * pickling:.1f} ms; peak {peak:.0f} MiB")


if __name__ == "__main__":
    main()
