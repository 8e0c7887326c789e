"""How long jobs without a deadline wait beside promises, and without any.

    python benchmarks/best_effort.py LOG [OPTION of `rtsched replay` ...]

Of the jobs of LOG some get deadlines (`--deadline-fraction 0.2` unless given); the others are
compared under EASY, which keeps no promise, and under the planner of the preset `mcdf`, which
rejects jobs that it cannot promise their deadline. The same jobs are in both rows.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

POLICIES = ("easy", "mcdf")
AT_ONCE = 60.0
"""Seconds of waiting up to which a job counts as started at once."""


def waits(results: Path, policy: str) -> np.ndarray:
    """Return how long each job without a deadline waited, float64[n], seconds."""
    log = pq.read_table(results / "log.parquet", columns=["id", "deadline_s"]).to_pydict()
    asked = {
        str(job)
        for job, deadline in zip(log["id"], log["deadline_s"], strict=True)
        if deadline is not None and np.isfinite(deadline)
    }
    jobs = pq.read_table(results / policy / "jobs.parquet", columns=["job", "wait_s"]).to_pydict()
    pairs = zip(jobs["job"], jobs["wait_s"], strict=True)
    return np.array([wait for job, wait in pairs if str(job) not in asked], np.float64)


def main() -> int:
    """Replay the log, and print one row a policy; return the exit status."""
    words = sys.argv[1:]
    if not words or words[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    if "--deadline-fraction" not in words:
        words += ["--deadline-fraction", "0.2"]
    for policy in POLICIES:
        words += ["--policy", policy]
    with tempfile.TemporaryDirectory() as results:
        command = [sys.executable, "-m", "rtsched", "replay", *words, "--out", results]
        done = subprocess.run([*command, "--no-progress"], stdout=subprocess.DEVNULL, check=False)
        if done.returncode:
            return done.returncode
        print("policy    jobs without a deadline   mean wait      median   95 % below     at once")
        for policy in POLICIES:
            wait = waits(Path(results), policy)
            median, high = np.percentile(wait, [50, 95])
            print(
                f"{policy:<10}{len(wait):>23,}{wait.mean():>11,.0f} s{median:>10,.0f} s"
                f"{high:>11,.0f} s{(wait <= AT_ONCE).mean():>11.1%}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
