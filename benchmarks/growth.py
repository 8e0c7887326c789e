"""How the cost grows with jobs, nodes, waiting jobs and waiting promised tasks.

    python benchmarks/growth.py [--quick] [--json] [--plot FILE.svg]

Costs are seconds on the processor, the least of several runs, in one process on one core. The
exponent is the slope of cost over size, both as logarithms, over the upper half of the sizes: 1 is
linear.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from admission import PLANNER
from plotting import Line, Panel, write_svg
from states import newcomer, random_state

from rtsched.core.plugins import discover
from rtsched.replay.engine import replay
from rtsched.replay.measures import measure
from rtsched.replay.policies import choose, load_site
from rtsched.replay.settings import WorkloadOptions
from rtsched.replay.synth import Poisson
from rtsched.replay.workload import prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from rtsched.replay.policies import Policy
    from rtsched.replay.results import PolicyRun, Workload
    from rtsched_plugins.kernels.admission import Tasks

CHAIN = Path(__file__).parent / "chain.toml"
NODES = 256


@dataclass
class Curve:
    """Costs of one thing at several sizes."""

    name: str
    size: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def add(self, size: float, seconds: float) -> None:
        """Add one point."""
        self.size.append(size)
        self.seconds.append(seconds)

    @property
    def exponent(self) -> float:
        """The slope of log(seconds) over log(size), over the upper half of the points."""
        upper = len(self.size) // 2 if len(self.size) > 3 else 0
        return float(np.polyfit(np.log(self.size[upper:]), np.log(self.seconds[upper:]), 1)[0])


@dataclass
class Study:
    """One way of growing, its curves, and what was held."""

    title: str
    axis: str
    held: str
    curves: list[Curve]


def least(repeats: int, call: Callable[..., object], *given: object, calls: int = 1) -> float:
    """Return the least processor time of one call, of several trials of `calls` each, seconds."""
    times = []
    for _ in range(repeats):
        gc.collect()
        begin = time.process_time()
        for _ in range(calls):
            call(*given)
        times.append(time.process_time() - begin)
    return min(times) / calls


def admit(free: NDArray[np.float64], waiting: Tasks, task: Tasks) -> None:
    """Make one admission test from scratch."""
    PLANNER.admit(PLANNER.prepare(free, waiting), task, 0.0)


class Replays:
    """Replays of generated workloads under EASY, with and without plug-ins."""

    def __init__(self, repeats: int) -> None:
        self.repeats = repeats
        self.found = discover()
        site = load_site(CHAIN, self.found)
        self.policies: dict[str, Policy] = choose(["easy", "chain"], site)
        for name in self.policies:
            self.run(workload(200, 16, 0.5), name)  # compiles what is not compiled yet

    def run(self, work: Workload, policy: str) -> PolicyRun:
        """Return one replay."""
        return replay(work, policy, self.policies[policy], found=self.found, record_nodes=False)

    def cost(self, work: Workload, policy: str) -> float:
        """Return the seconds of a replay."""
        return least(self.repeats, self.run, work, policy)

    def curves(self) -> dict[str, Curve]:
        """Return an empty curve per policy."""
        return {"easy": Curve("EASY"), "chain": Curve("EASY, four plug-in hooks")}


def workload(jobs: int, nodes: int, load: float) -> Workload:
    """Return a generated workload of rigid jobs."""
    log = Poisson(jobs=jobs, nodes=nodes, load=load).log()
    return prepare(log, WorkloadOptions(deadline_rule="none"))


def by_jobs(replays: Replays, sizes: Sequence[int]) -> Study:
    """Grow the number of jobs."""
    curves = replays.curves()
    around = Curve("preparing and measuring")
    for n in sizes:
        log = Poisson(jobs=n, nodes=NODES, load=0.6).log()
        work = prepare(log, WorkloadOptions())
        for name, curve in curves.items():
            curve.add(n, replays.cost(work, name))
        results = replays.run(work, "easy").results
        ready = least(replays.repeats, prepare, log, WorkloadOptions())
        measured = least(replays.repeats, measure, work, results)
        around.add(n, ready + measured)
    return Study("Jobs", "jobs", f"{NODES} nodes, load 0.6", [*curves.values(), around])


def by_nodes(replays: Replays, sizes: Sequence[int], jobs: int) -> Study:
    """Grow the machine; the jobs grow with it."""
    curves = replays.curves()
    for m in sizes:
        work = workload(jobs, m, 0.6)
        for name, curve in curves.items():
            curve.add(m, replays.cost(work, name))
    held = f"{jobs:,} jobs, load 0.6, jobs grow along"
    return Study("Nodes", "nodes", held, list(curves.values()))


def by_queue(replays: Replays, loads: Sequence[float], jobs: int) -> Study:
    """Lengthen the queue by a growing load; its mean length is by Little's law."""
    curves = replays.curves()
    for load in loads:
        work = workload(jobs, NODES, load)
        start = replays.run(work, "easy").results.start
        wait = float((start - work.jobs.submit).sum())
        length = wait / float(start.max() - work.jobs.submit[0])
        for name, curve in curves.items():
            curve.add(length, replays.cost(work, name))
    held = f"{jobs:,} jobs, {NODES} nodes, load {loads[0]:g} to {loads[-1]:g}"
    return Study("Queue", "mean number of waiting jobs", held, list(curves.values()))


def by_promises(sizes: Sequence[int], nodes: int, repeats: int) -> Study:
    """Lengthen the queue of promised tasks that one admission test must keep."""
    test, ready = Curve("one test"), Curve("one test, state prepared before")
    for n in sizes:
        free, waiting = random_state(n, nodes, 1)
        task = newcomer(1, deadline=4 * 86400.0, n_nodes=nodes)
        state = PLANNER.prepare(free, waiting)
        if not PLANNER.admit(state, task, 0.0).accepted:
            raise AssertionError(f"the newcomer is not admitted beside {n} tasks")
        calls = max(1, 2000 // n)
        test.add(n, least(repeats, admit, free, waiting, task, calls=calls))
        ready.add(n, least(repeats, PLANNER.admit, state, task, 0.0, calls=calls))
    return Study("Promises", "waiting promised tasks", f"{nodes:,} nodes", [test, ready])


def by_nodes_promised(sizes: Sequence[int], waiting_tasks: int, repeats: int) -> Study:
    """Grow the machine under one admission test."""
    test = Curve("one test")
    for m in sizes:
        free, waiting = random_state(waiting_tasks, m, 1)
        task = newcomer(1, deadline=30 * 86400.0, n_nodes=m)
        test.add(m, least(repeats, admit, free, waiting, task))
    held = f"{waiting_tasks:,} waiting promised tasks"
    return Study("Nodes of an admission test", "nodes", held, [test])


def studies(*, quick: bool) -> list[Study]:
    """Return all studies."""
    replays = Replays(1 if quick else 3)
    if quick:
        return [
            by_jobs(replays, [1000, 3000, 10_000]),
            by_nodes(replays, [100, 1000, 10_000], 2000),
            by_queue(replays, [0.8, 1.5, 4.0], 2000),
            by_promises([10, 100, 1000], 1000, 3),
            by_nodes_promised([100, 1000, 10_000], 100, 3),
        ]
    return [
        by_jobs(replays, [10_000, 30_000, 100_000, 300_000, 1_000_000]),
        by_nodes(replays, [100, 300, 1000, 3000, 10_000, 30_000, 100_000], 20_000),
        by_queue(replays, [0.5, 0.7, 0.85, 0.95, 1.05, 1.2, 1.6, 3.0, 20.0], 50_000),
        by_promises([10, 30, 100, 300, 1000, 3000, 10_000], 10_000, 7),
        by_nodes_promised([100, 300, 1000, 3000, 10_000, 30_000, 100_000], 1000, 7),
    ]


def plot(found: list[Study], path: Path) -> None:
    """Write one panel per study."""
    panels = [
        Panel(
            study.title,
            study.axis,
            study.held,
            [
                Line(f"{curve.name} ({curve.exponent:.2f})", curve.size, curve.seconds)
                for curve in study.curves
            ],
        )
        for study in found
    ]
    write_svg(path, panels, "seconds on the processor")


def main() -> int:
    """Measure, plot and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, one run each")
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    parser.add_argument("--plot", type=Path, help="where to write the plot (SVG)")
    given = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    found = studies(quick=given.quick)
    if given.plot:
        plot(found, given.plot)
    rows = [
        {**asdict(study), "exponents": [curve.exponent for curve in study.curves]}
        for study in found
    ]
    if given.json:
        print(json.dumps(rows))
        return 0
    for study in found:
        print(f"{study.title} ({study.held})")
        for curve in study.curves:
            points = zip(curve.size, curve.seconds, strict=True)
            cells = "  ".join(f"{size:,.0f}: {seconds:.4g} s" for size, seconds in points)
            print(f"  {curve.name}: exponent {curve.exponent:.2f}  {cells}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
