"""How long one deadline-admission test takes, and one counter-offer.

    python benchmarks/admission.py [--waiting N]... [--nodes N] [--tests N] [--json]

The state is `random_state` of `states.py`: a loaded machine and a queue of promised tasks, all of
which stay admitted. `plugin` is the test of a job when the promises and the plan are those of the
test before, as they are until a promise is made; `plugin_anew` is the first test after that.
Measured in one process on one core; what is compiled was compiled before.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from states import newcomer, random_state

from rtsched.core.chain import Chain, Member
from rtsched.model.cluster import Cluster, Nodes, NodeState
from rtsched.model.jobs import Jobs
from rtsched.model.schedule import Promises, Schedule
from rtsched.model.snapshot import Snapshot
from rtsched.model.verdicts import Verdict
from rtsched_plugins.kernels.admission import BY_COST, LEAST_NODES
from rtsched_plugins.kernels.admission_by_cost import least_later_by_cost
from rtsched_plugins.kernels.fractions import division_of
from rtsched_plugins.mcdf import Mcdf
from rtsched_plugins.planners import Rules

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rtsched_plugins.kernels.admission import Plan, Tasks
    from rtsched_plugins.kernels.admission_by_cost import PreparedByCost
    from rtsched_plugins.kernels.admission_events import Offer

NOW = 1_800_000_000.0
PLANNER = Rules(BY_COST, LEAST_NODES, 1.0)
"""That of mcdf."""


def jobs_of(tasks: Tasks, first: int) -> Jobs:
    """Return tasks as the jobs they stand for, numbered from `first`."""
    own = {name: getattr(tasks, name) for name in ("kind", "size", "size_min", "size_max")}
    load = {n: getattr(tasks, n) for n in ("sigma", "cms", "cps", "setup_link", "setup_node")}
    return Jobs.build(
        len(tasks.arrival),
        id=np.arange(first, first + len(tasks.arrival)),
        submit=NOW + tasks.arrival,
        deadline=NOW + tasks.deadline,
        wall_time=tasks.wall,
        **own,
        **load,
    )


def snapshot_of(free: NDArray[np.float64], waiting: Tasks, plan: Plan) -> Snapshot:
    """Return the state as a batch system would show it, with a plan for all that wait."""
    n, m = len(waiting.arrival), len(free)
    queued = jobs_of(waiting, 0)
    fractions = division_of(plan, waiting, most=1).fractions
    planned = Schedule.build(
        queued.id, NOW + plan.start, NOW + plan.end, plan.indptr, plan.nodes, fractions
    )
    busy = np.flatnonzero(np.isfinite(free) & (free > 0))
    cut = np.flatnonzero((np.diff(free[busy]) != 0) | (np.diff(busy) != 1)) + 1
    indptr = np.concatenate([[0], cut, [len(busy)]]).astype(np.int64)
    running = Jobs.build(len(indptr) - 1, id=n + np.arange(len(indptr) - 1), submit=NOW - 1e5)
    ends = NOW + free[busy[indptr[:-1]]]
    held = Schedule.build(running.id, NOW - 5e4, ends, indptr, busy.astype(np.int32))
    state = np.where(np.isfinite(free), NodeState.UP, NodeState.DOWN)
    promises = Promises.build(n, job=queued.id, deadline=queued.deadline, made_at=NOW - 1e4)
    return Snapshot(
        NOW,
        Cluster(Nodes.build(m, state=state)),
        queued,
        running,
        held,
        promises=promises,
        plan=planned,
    )


class Took(NamedTuple):
    """Milliseconds of one call: on the clock, and on the processor."""

    wall: float
    cpu: float


def timed(call: Callable[..., Any], *given: Any) -> tuple[Took, Any]:
    """Return what a call took, and its answer."""
    cpu, begin = time.thread_time(), time.perf_counter()
    answer = call(*given)
    return Took(1e3 * (time.perf_counter() - begin), 1e3 * (time.thread_time() - cpu)), answer


def spread(times: list[Took]) -> dict[str, float]:
    """Return median, 99th percentile and worst of times."""
    wall, cpu = np.array(times).T
    return {
        "p50_ms": float(np.percentile(wall, 50)),
        "p99_ms": float(np.percentile(wall, 99)),
        "worst_ms": float(wall.max()),
        "cpu_p50_ms": float(np.percentile(cpu, 50)),
        "cpu_p99_ms": float(np.percentile(cpu, 99)),
        "tests": len(times),
    }


def prepare_and_admit(free: NDArray[np.float64], waiting: Tasks, task: Tasks) -> Plan:
    """Return the kernel's answer from scratch."""
    return PLANNER.admit(PLANNER.prepare(free, waiting), task, 0.0)


def offer_alone(prepared: PreparedByCost, task: Tasks) -> Offer:
    """Return the kernel's counter-offer within the plug-in's default budget of tests."""
    test = PLANNER.with_new(prepared, task)
    return least_later_by_cost(test, 0.0, Mcdf.Config().offer_tests)


def measure(n_waiting: int, n_nodes: int, tests: int, offers: int) -> dict[str, Any]:
    """Return times of tests and counter-offers against `n_waiting` tasks, and what was found.

    Deadlines of newcomers lie between a minute and four days, so some are turned away.
    """
    free, waiting = random_state(n_waiting, n_nodes, 1)
    prepared = PLANNER.prepare(free, waiting)
    kept = PLANNER.admit(prepared, None, 0.0)
    all_kept = kept.accepted
    base = snapshot_of(free, waiting, kept)
    plain = Chain([Member("mcdf", Mcdf(Mcdf.Config(offer_tests=0)))], "mcdf")
    offering = Chain([Member("mcdf", Mcdf())], "mcdf")
    rng = np.random.default_rng(2)
    deadlines = np.round(np.exp(rng.uniform(math.log(60.0), math.log(4 * 86400.0), tests)))
    found: dict[str, list[Took]] = {
        name: []
        for name in ("plugin", "plugin_anew", "kernel", "kernel_prepared", "offer", "offer_kernel")
    }
    admitted = exact = 0
    gc.collect()
    gc.disable()
    for k in range(-3, tests):  # the first ones load what was compiled
        deadline = float(deadlines[k]) if k >= 0 else 4 * 86400.0
        task = newcomer(k + 3, deadline=deadline, n_nodes=n_nodes)
        job = jobs_of(task, 10**6)
        changed = replace(base, queued=base.queued.take(np.arange(n_waiting)))
        anew, first = timed(plain.admit, job, changed)
        via_plugin, judgement = timed(plain.admit, job, replace(changed))
        whole, plan = timed(prepare_and_admit, free, waiting, task)
        test, again = timed(PLANNER.admit, prepared, task, 0.0)
        verdict = bool(judgement.verdicts.code[0] == Verdict.ADMIT)
        before = bool(first.verdicts.code[0] == Verdict.ADMIT)
        if not before == verdict == plan.accepted == again.accepted:
            raise AssertionError(f"newcomer {k}: plug-in and kernel disagree")
        if plan.accepted:
            late = plan.end[:n_waiting] > waiting.deadline + 1e-6
            all_kept = all_kept and not late.any()
        if k < 0:
            continue
        admitted += verdict
        found["plugin"].append(via_plugin)
        found["plugin_anew"].append(anew)
        found["kernel"].append(whole)
        found["kernel_prepared"].append(test)
        if not verdict and len(found["offer"]) < offers:
            snapshot = replace(base)
            via_plugin, judgement = timed(offering.admit, job, snapshot)
            alone, offer = timed(offer_alone, prepared, task)
            found["offer"].append(via_plugin)
            found["offer_kernel"].append(alone)
            exact += offer.exact
    gc.enable()
    return {
        "waiting": n_waiting,
        "nodes": n_nodes,
        "promises_kept": bool(all_kept),
        "admitted": admitted,
        "tests": tests,
        "offers_exact": exact,
        **{name: spread(times) for name, times in found.items() if times},
    }


def main() -> int:
    """Measure and print; 1 if a promise would be broken."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--waiting", type=int, action="append")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--tests", type=int, default=300)
    parser.add_argument("--offers", type=int, default=30)
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    given = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    rows = [
        measure(n, given.nodes, given.tests, given.offers) for n in given.waiting or (1_000, 10_000)
    ]
    if given.json:
        print(json.dumps(rows))
    else:
        for row in rows:
            print(json.dumps(row, indent=2))
    return 0 if all(row["promises_kept"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
