"""What the answer to a submission takes on the processor, step by step, in a daemon of its own.

    python benchmarks/answers.py [--pending N] [--promises N] [--nodes N] [--tests N] [--json]

A daemon over the made-up Slurm of `made_up.py`: so many nodes, all busy for six hours, so many
pending jobs, and so many promises, which a poll has shown. Users then submit jobs of one to 32
nodes with deadlines; each answer is measured in three steps: `describe`, what the filter sent made
into a job; `judge`, the verdict; and `commit`, the change written to the disk. Times are those of
the whole process on the processor, milliseconds. No socket and no poll is in them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from functools import partial
from pathlib import Path

import numpy as np
from made_up import FIRST_USER, MadeUp, Spool, admission_of, job_fields, policy_in, promise

from rtsched.adapters.slurm import SlurmTranslator
from rtsched.daemon.app import Daemon
from rtsched.daemon.logs import log_events
from rtsched.daemon.metrics import Metrics
from rtsched.daemon.store import Store
from rtsched.daemon.worker import Worker

FIRST = 20
"""Answers that do not count."""

STEPS = ("describe", "judge", "commit", "all")


async def measure(
    directory: Path, pending: int, promises: int, nodes: int, tests: int
) -> dict[str, dict[str, list[float]]]:
    """Return the seconds of each step, by verdict."""
    policy, translator = policy_in(directory), SlurmTranslator()
    worker = Worker(partial(MadeUp, directory, pending, nodes, nodes), 300.0)
    took: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with Store(directory / "rtsched.db", policy.live.daemon.durable) as store:
        daemon = Daemon(policy, store, worker, translator, Metrics(), reread=lambda: policy)
        spool = Spool(directory)
        await daemon.cycle()
        await promise(daemon, promises)
        spool.put(daemon.site, list(daemon.site.records.values()))
        spool.write()
        await daemon.cycle()
        admission, random = admission_of(daemon), np.random.default_rng(3)
        for k in range(FIRST + tests):
            now, size = time.time(), int(random.integers(1, 33))
            user = FIRST_USER + int(random.integers(200))
            fields = job_fields(user, size, now + float(random.uniform(2.0, 72.0)) * 3600.0)
            at = [time.process_time()]
            job = translator.describe(fields, daemon.site.facts, now)
            at.append(time.process_time())
            judged = admission.judge(daemon.site, job, now)
            at.append(time.process_time())
            if judged.changed:
                await daemon.admit(judged.site, judged.changed)
            at.append(time.process_time())
            if k >= FIRST:
                for step, seconds in zip(STEPS, [*np.diff(at), at[-1] - at[0]], strict=True):
                    took[judged.verdict][step].append(float(seconds))
        await worker.close()
    return took


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--pending", type=int, default=10_000)
    parser.add_argument("--promises", type=int, default=1_000)
    parser.add_argument("--nodes", type=int, default=2_000)
    parser.add_argument("--tests", type=int, default=300)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args()
    log_events("warning")
    with tempfile.TemporaryDirectory(prefix="rtsched-answers-") as name:
        extent = given.pending, given.promises, given.nodes, given.tests
        took = asyncio.run(measure(Path(name), *extent))
    if given.json:
        json.dump(took, sys.stdout)
        return
    print(
        f"{given.pending:,} pending jobs, {given.promises:,} promises, {given.nodes:,} nodes; "
        f"load average {os.getloadavg()[0]:.1f}\n"
    )
    print("| verdict | n | " + " | ".join(f"{step}, p50, p99" for step in STEPS) + " |")
    print("|---|---:|" + "---:|" * len(STEPS))
    for verdict, steps in sorted(took.items()):
        pairs = (np.percentile(steps[step], [50, 99]) * 1000.0 for step in STEPS)
        cells = (f"{half:.2f}, {most:.2f}" for half, most in pairs)
        print(f"| {verdict} | {len(steps['all'])} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
