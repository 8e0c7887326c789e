"""How long one admission test of the portfolio policy takes, through chain and plug-in.

    python benchmarks/portfolio.py [--waiting N]... [--nodes N] [--tests N] [--json]

The state is `random_state` of `states.py`, planned by the policy itself; 250 recent arrivals tell
the load. As in `admission.py`, `plugin` is the test of a job when promises and plan are those of
the test before, `plugin_anew` the first test after they changed; `rejected` are those tests of
`plugin` that tried every order in vain; `offer` is a test with its counter-offer. One process on
one core; what is compiled was compiled before.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import resource
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from admission import NOW, Took, jobs_of, snapshot_of, spread, timed
from states import newcomer, random_state

from rtsched.core.chain import Chain, Member
from rtsched.core.decision import observe
from rtsched.model.state import EventKind, EventRows, Events
from rtsched.model.verdicts import Verdict
from rtsched_plugins.portfolio import Portfolio

if TYPE_CHECKING:
    from rtsched.model.snapshot import Snapshot


def chain_of(**settings: Any) -> Chain:
    """Return a chain of the one plug-in."""
    return Chain([Member("portfolio", Portfolio(Portfolio.Config(**settings)))], "portfolio")


def loaded(n_waiting: int, n_nodes: int) -> tuple[Snapshot, Any]:
    """Return a state with a plan for all that wait, after 250 arrivals, and the waiting tasks."""
    free, waiting = random_state(n_waiting, n_nodes, 1)
    plugin = Portfolio()
    prepared = plugin.planner.prepare(free, waiting)
    plan = plugin.planner.admit(prepared, None, 0.0)
    if not plan.accepted:
        raise AssertionError("the state does not stay admitted")
    snapshot = snapshot_of(free, waiting, plan)
    before = jobs_of(newcomer_tasks(250, n_nodes), 10**7)
    time = NOW - np.arange(250, 0, -1) * 60.0
    rows = EventRows.build(250, time=time, kind=np.full(250, EventKind.ARRIVED, np.int8))
    return observe(snapshot, chain_of(), Events(rows, before))[0], waiting


def newcomer_tasks(n: int, n_nodes: int) -> Any:
    """Return `n` tasks as they arrive at such a cluster."""
    tasks = [newcomer(10**6 + k, deadline=86400.0, n_nodes=n_nodes) for k in range(n)]
    return type(tasks[0])(*(np.concatenate(column) for column in zip(*tasks, strict=True)))


def measure(n_waiting: int, n_nodes: int, tests: int, offers: int) -> dict[str, Any]:
    """Return times of tests against `n_waiting` tasks; deadlines from a minute to four days."""
    base, waiting = loaded(n_waiting, n_nodes)
    plain, offering = chain_of(offer_tests=0), chain_of()
    rng = np.random.default_rng(2)
    deadlines = np.round(np.exp(rng.uniform(math.log(60.0), math.log(4 * 86400.0), tests)))
    found: dict[str, list[Took]] = {
        name: [] for name in ("plugin", "plugin_anew", "rejected", "offer")
    }
    counts = {"admitted": 0, "declined": 0, "offered": 0}
    kept = True
    gc.collect()
    gc.disable()
    for k in range(-3, tests):  # the first ones load what was compiled
        deadline = float(deadlines[k]) if k >= 0 else 60.0 + 43200.0 * (k + 3)
        job = jobs_of(newcomer(k + 3, deadline=deadline, n_nodes=n_nodes), 10**6)
        changed = replace(base, queued=base.queued.take(np.arange(n_waiting)))
        anew, _ = timed(plain.admit, job, changed)
        again, judgement = timed(plain.admit, job, replace(changed))
        verdicts = judgement.verdicts
        admitted = bool(verdicts.code[0] == Verdict.ADMIT)
        reasons = [finding.reason.code for finding in verdicts.findings]
        if admitted:
            promised = dict(zip(base.queued.id, waiting.deadline, strict=True))
            plan = verdicts.plan.entries
            late = [
                end - NOW > promised.get(row, deadline) + 1e-5
                for row, end in zip(plan.job.tolist(), plan.end.tolist(), strict=True)
            ]
            kept = kept and len(late) == n_waiting + 1 and not any(late)
        if k < 0:
            timed(offering.admit, job, replace(base))
            continue
        counts["admitted"] += admitted
        counts["declined"] += reasons == ["portfolio.overloaded"]
        found["plugin"].append(again)
        found["plugin_anew"].append(anew)
        if not admitted and reasons != ["portfolio.overloaded"]:
            found["rejected"].append(again)
            if len(found["offer"]) < offers:
                took, judgement = timed(offering.admit, job, replace(base))
                found["offer"].append(took)
                counts["offered"] += bool(np.isfinite(judgement.verdicts.offer[0]))
    gc.enable()
    return {
        "waiting": n_waiting,
        "nodes": n_nodes,
        "promises_kept": kept,
        "tests": tests,
        **counts,
        "peak_MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
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
    counts = given.waiting or (100, 1_000, 10_000)
    rows = [measure(n, given.nodes, given.tests, given.offers) for n in counts]
    print(json.dumps(rows, indent=None if given.json else 2))
    return 0 if all(row["promises_kept"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
