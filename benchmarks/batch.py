"""How fast each policy replays a busy trace in the batch setting, and how long its queue is.

    python benchmarks/batch.py [--trace FILE.swf[.gz]] [--policy NAME]... [--quick] [--json]

Each policy replays its part of one trace in a process of its own, bound to one core. The speed is
that of the replay alone, the median of several, without reading and measuring; a short replay goes
before, so that all is compiled and loaded.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from measuring import run_alone, script
from traces import head, repeat

from rtsched.core.plugins import discover
from rtsched.logs.readers import ReadOptions, read_logs
from rtsched.replay.engine import replay
from rtsched.replay.policies import choose, presets
from rtsched.replay.settings import WorkloadOptions
from rtsched.replay.workload import prepare

if TYPE_CHECKING:
    from rtsched.replay.results import PolicyRun, Workload


class Wanted(NamedTuple):
    """The speed that a policy is to reach, and on how much of the trace it is measured."""

    jobs_per_s: int
    jobs: int
    runs: int


WANTED = {
    "ste": Wanted(150_000, 100_000, 3),
    "sed-batch": Wanted(100_000, 100_000, 3),
    "mcdf": Wanted(20_000, 20_000, 3),
    "edf-mn": Wanted(20_000, 20_000, 3),
    "portfolio": Wanted(5_000, 20_000, 3),
    "spare-rf": Wanted(5_000, 10_000, 1),
    "psts": Wanted(5_000, 10_000, 1),
}
GENERATED = ("lublin", "--nodes", "338", "--load", "0.85", "--users", "679", "--accounts", "20")
"""`rtsched synth`: nodes, load and users of the log CTC-SP2-1996-3.1-cln."""

DEADLINES = "slowdown:4"
"""Every job is to end within four times its requested time."""

QUICK_JOBS, WARM_JOBS = 200, 300


def generate(directory: Path, jobs: int) -> Path:
    """Write the default trace."""
    path = directory / "ctc-like.swf"
    words = ("-m", "rtsched", "synth", *GENERATED, "--jobs", str(jobs), "-o", str(path))
    run_alone([sys.executable, *words])
    return path


def workload(path: Path) -> Workload:
    """Return a log made ready."""
    return prepare(read_logs([path], ReadOptions()), WorkloadOptions(deadline_rule=DEADLINES))


def measure(policy: str, path: Path, warm: Path, runs: int) -> dict[str, Any]:
    """Return how fast a policy replays a log in this process, and what came of it."""
    found, chosen = discover(), choose([policy], None)[policy]
    replay(workload(warm), policy, chosen, found=found, record_nodes=False)
    work = workload(path)
    jobs, wall, cpu = len(work.jobs), [], []
    for _ in range(runs):
        begun, used = time.perf_counter(), time.process_time()
        run = replay(work, policy, chosen, found=found, record_nodes=False)
        wall.append(time.perf_counter() - begun)
        cpu.append(time.process_time() - used)
    speeds = {"jobs_per_s": jobs / median(wall), "jobs_per_cpu_s": jobs / median(cpu)}
    return {"jobs": jobs, "runs": runs, **speeds, **outcome(work, run)}


def outcome(work: Workload, run: PolicyRun) -> dict[str, Any]:
    """Return the mean queue by Little's law, and what the plug-ins said."""
    submit, start, end = work.jobs.submit, run.results.start, run.results.end
    ran = np.isfinite(end)
    span = max(float(end[ran].max(initial=0.0)), float(submit[-1])) - float(submit[0])
    books = [book for hook in run.hooks.values() for book in hook.values()]
    return {
        "mean_queue": float((start - submit)[ran].sum()) / span,
        "ran": int(ran.sum()),
        "rows_judged": sum(book.judged for book in books),
        "rows_changed": sum(book.changed for book in books),
        "errors": sum(book.errors for book in books),
    }


def compare(
    source: Path | None, directory: Path, policies: list[str], *, quick: bool
) -> dict[str, Any]:
    """Return what each policy made of its part of a trace; None where it is not installed."""
    jobs = QUICK_JOBS if quick else 100_000
    trace = repeat(source or generate(directory, jobs), directory, jobs)
    warm = head(trace, directory, min(WARM_JOBS, jobs // 4))[0].rename(directory / "warm.swf")
    plugins, known = discover(), presets()
    rows: dict[str, Any] = {}
    for policy in policies:
        rows[policy] = None
        if {table.name for table in known[policy].plugin} <= set(plugins):
            part, _ = head(trace, directory, min(WANTED[policy].jobs, jobs))
            words = ["--measure", policy, "--runs", str(1 if quick else WANTED[policy].runs)]
            used = run_alone(script("batch.py", *words, "--trace", part, "--warm", warm))
            rows[policy] = {
                **json.loads(used.output),
                "peak_mb": used.peak_mb,
                "wanted_jobs_per_s": WANTED[policy].jobs_per_s,
            }
    trace.path.unlink()
    return rows


def main() -> int:
    """Measure and print; 1 if a plug-in failed."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--trace", type=Path, help="an SWF log. Default: a generated one")
    parser.add_argument("--policy", choices=list(WANTED), action="append", help="repeatable")
    parser.add_argument("--quick", action="store_true", help="200 jobs each")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--measure", choices=list(WANTED), help=argparse.SUPPRESS)
    parser.add_argument("--warm", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--runs", type=int, default=1, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(given.measure, given.trace, given.warm, given.runs)))
        return 0
    with tempfile.TemporaryDirectory(prefix="rtsched-benchmark-") as directory:
        policies = given.policy or list(WANTED)
        rows = compare(given.trace, Path(directory), policies, quick=given.quick)
    if given.json:
        print(json.dumps(rows))
    else:
        for policy, row in rows.items():
            print(policy, "not installed" if row is None else json.dumps(row))
    return 1 if any(row and row["errors"] for row in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
