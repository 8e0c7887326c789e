"""Measure the simulated system's own loops, without reading and plug-ins, beside a bare loop.

    python benchmarks/loops.py [FILE.swf[.gz]]... [--jobs N]

Each trace is run through the event loop of exclusive nodes in one call, under each scheduling loop,
and through the bare EASY loop of `bare.py`; seconds are of processor time. The exit status is 1 if
EASY's waits differ from the bare loop's. Without files, two generated traces are used: one with
short queues, one with long.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from bare import Job, easy, read

from rtsched.kernels.policy import JobColumns, job_columns, policy_kernels
from rtsched.model.cluster import Cluster
from rtsched.model.jobs import Jobs
from rtsched.simulator.exclusive import ExclusiveNodes
from rtsched.simulator.interface import NodeEvent
from rtsched.simulator.settings import ExclusiveSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

ROUNDS = 3
NEVER = NodeEvent(1e15, 0, 0)
"""A node event after the last job: the system then looks at single nodes."""


class BySize(NamedTuple):
    """A policy that ranks by size and counts events by kind."""

    columns: JobColumns
    sign: float
    events: NDArray[np.float64]


def by_size(policy, _now, rows, out):  # type: ignore[no-untyped-def]
    """Rank by size."""
    for i in range(len(rows)):
        out[i] = policy.sign * policy.columns.size[rows[i]]
    return 0


def count(policy, _time, kind, _row, _size, _nodes):  # type: ignore[no-untyped-def]
    """Count events by kind."""
    policy.events[kind] += 1.0


policy_kernels(BySize, rank=by_size, observe=count)


def generated(load: float, jobs: int, seed: int) -> tuple[list[Job], int]:
    """Return jobs at an offered load on 128 processors."""
    rng = np.random.default_rng(seed)
    processors = 128
    size = np.minimum(2 ** rng.integers(0, 6, jobs), processors)
    run = np.ceil(rng.lognormal(6.0, 2.0, jobs).clip(1, 86_400))
    gap = (size * run).mean() / processors / load
    submit = np.floor(np.cumsum(rng.exponential(gap, jobs)))
    wall = run * rng.integers(1, 6, jobs)
    rows = zip(submit, range(jobs), size, run, wall, strict=True)
    return [(float(t), k, int(s), float(r), float(w)) for t, k, s, r, w in rows], processors


def traces(files: list[Path], jobs: int) -> Iterator[tuple[str, list[Job], int]]:
    """Return names, jobs and processors of the traces, each cut or repeated to `jobs` jobs."""
    if not files:
        for name, load in (("short-queues", 0.5), ("long-queues", 0.95)):
            yield name, *generated(load, jobs, 1)
    for path in files:
        rows, processors = read(str(path))
        period = rows[-1][0] - rows[0][0] + 86_400.0
        rounds = range(-(-jobs // len(rows)))
        repeated = [
            (submit + turn * period, turn * len(rows) + k, size, run, wall)
            for turn in rounds
            for k, (submit, _, size, run, wall) in enumerate(rows)
        ]
        yield path.name.partition(".")[0], repeated[:jobs], processors


def best(system_of: Any) -> tuple[float, ExclusiveNodes]:
    """Return the least seconds of some runs, and the last system."""
    seconds = []
    for _ in range(ROUNDS):
        system = system_of()
        begun = process_time()
        system.advance()
        seconds.append(process_time() - begun)
    return min(seconds), system


def measure(name: str, rows: list[Job], processors: int) -> bool:
    """Print one trace's table; return whether EASY's starts are the bare loop's."""
    n = len(rows)
    submit, number, size, run, wall = (np.array(column) for column in zip(*rows, strict=True))
    jobs = Jobs.build(n, id=number, submit=submit, wall_time=wall, size=size.astype(np.int32))
    cluster = Cluster.uniform(processors)
    policy = BySize(job_columns(jobs), 0.0, np.zeros(8))
    ranked = ExclusiveSettings(loop="easy", order="priority")
    kinds: dict[str, tuple[ExclusiveSettings, dict[str, Any]]] = {
        "easy": (ExclusiveSettings(loop="easy"), {}),
        "easy, nodes recorded": (ExclusiveSettings(loop="easy"), {"record_nodes": True}),
        "easy, node by node": (ExclusiveSettings(loop="easy"), {"node_events": [NEVER]}),
        "easy, compiled policy": (ranked, {"compiled": policy}),
        "fcfs": (ExclusiveSettings(loop="fcfs"), {}),
        "conservative": (ExclusiveSettings(loop="conservative"), {}),
        "serial": (ExclusiveSettings(loop="serial"), {}),
        "negotiator": (ExclusiveSettings(loop="negotiator"), {}),
    }
    begun = process_time()
    expected = np.array(easy(rows, processors))
    bare = process_time() - begun
    print(
        f"{name}: {n} jobs, {processors} processors, mean wait {np.mean(expected - submit):.3f} s"
    )
    print(f"  {'bare EASY, plain Python':26}{bare:9.3f} s {n / bare:12,.0f} jobs/s")
    same = True
    for title, (settings, more) in kinds.items():
        seconds, system = best(
            lambda settings=settings, more=more: ExclusiveNodes(
                jobs, run, cluster, settings, **more
            )
        )
        note = ""
        if settings == ExclusiveSettings(loop="easy") and not np.array_equal(
            system.job_outcomes().start, expected
        ):
            same, note = False, "  WAITS DIFFER"
        print(f"  {title:26}{seconds:9.3f} s {n / seconds:12,.0f} jobs/s{note}")
    return same


def main() -> int:
    """Measure and print; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", nargs="*", type=Path, help="SWF files, .gz or not")
    parser.add_argument("--jobs", type=int, default=100_000, help="jobs per trace")
    given = parser.parse_args()
    same = [measure(*trace) for trace in traces(given.traces, given.jobs)]
    return 0 if all(same) else 1


if __name__ == "__main__":
    sys.exit(main())
