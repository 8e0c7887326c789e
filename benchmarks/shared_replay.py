"""How fast FCFS and EASY replay a log on nodes that jobs share.

    python benchmarks/shared_replay.py LOG --cluster FILE [--jobs N] [--json]

The jobs of a log of sacct are repeated, each round after the last job of the round before has
ended, so that mean wait and bounded slowdown are those of the log itself. The replay alone is
measured, in seconds of processor time, without reading and measures; one of the log itself goes
before, so that all is compiled.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.logs.cluster_files import read_cluster
from rtsched.logs.readers import ReadOptions, read_logs
from rtsched.model.log import Outcomes
from rtsched.replay.engine import replay
from rtsched.replay.measures import measure
from rtsched.replay.policies import presets
from rtsched.replay.settings import WorkloadOptions
from rtsched.replay.workload import prepare

if TYPE_CHECKING:
    from rtsched.replay.results import Results, Workload

POLICIES = ("fcfs", "easy")


def repeated(once: Workload, results: Results, jobs: int) -> Workload:
    """Return the workload again and again, in whole rounds, until it has at least so many jobs."""
    count = len(once.jobs)
    rounds = -(-jobs // count)
    period = np.ceil(np.nanmax(results.end) - once.jobs.submit.min()) + 1.0
    rows = np.tile(np.arange(count), rounds)
    submit = once.jobs.submit[rows] + np.repeat(np.arange(rounds) * period, count)
    return replace(
        once,
        jobs=once.jobs.take(rows).replace(id=np.arange(len(rows)), submit=submit),
        run_time=once.run_time[rows],
        outcomes=Outcomes.build(len(rows)),
    )


def timed(workload: Workload, policy: str) -> tuple[float, Results]:
    """Return the processor time of a replay, and what came of it."""
    begun = time.process_time()
    results = replay(workload, policy, presets()[policy]).results
    return time.process_time() - begun, results


def measured(once: Workload, policy: str, jobs: int) -> dict[str, Any]:
    """Return the speed of one policy, and its measures."""
    _, results = timed(once, policy)
    workload = repeated(once, results, jobs)
    took, results = timed(workload, policy)
    said = measure(workload, results)
    return {
        "jobs": len(workload.jobs),
        "cpu_s": took,
        "jobs_per_cpu_s": len(workload.jobs) / took,
        "mean_wait_s": said["mean_wait_s"],
        "mean_bounded_slowdown": said["mean_bounded_slowdown"],
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("log")
    parser.add_argument("--cluster", required=True, help="what scontrol show nodes printed")
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    options = WorkloadOptions(unit="resources", deadline_rule="none")
    cluster, _ = read_cluster(given.cluster)
    once = prepare(
        read_logs([given.log], ReadOptions(timezone="UTC", resources=True)), options, cluster
    )
    found = {policy: measured(once, policy, given.jobs) for policy in POLICIES}
    if given.json:
        print(json.dumps(found, indent=2))
        return 0
    for policy, row in found.items():
        print(
            f"{policy:5} {row['jobs']:9,} jobs in {row['cpu_s']:6.2f} s of cpu: "
            f"{row['jobs_per_cpu_s']:9,.0f} jobs/s   mean wait {row['mean_wait_s']:.3f} s   "
            f"slowdown {row['mean_bounded_slowdown']:.4f}"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
