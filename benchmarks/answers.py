"""What the answer to a submission takes on the processor, step by step, in a daemon of its own.

    python benchmarks/answers.py [--pending N] [--promises N] [--nodes N] [--tests N] [--wide]
        [--taken] [--anew] [--menu-ms MS] [--every-ms MS] [--json]

A daemon over the made-up Slurm of `made_up.py`: so many nodes, all busy for six hours, so many
pending jobs, and so many promises, which a poll has shown. Users then submit jobs of one to 32
nodes with deadlines; each answer is measured in steps: `describe`, what the filter sent made into a
job; `judge`, the verdict; `menu`, the search of alternatives to a rejected job, for at most
`--menu-ms`; and `commit`, the change written to the disk. Times are those of
the whole process on the processor, milliseconds. No socket and no poll is in them.

With `--wide` the jobs are those that are rejected on a real controller (`live/answers.py`): each of
another user (up to 180 tests), on a third of all nodes, for a deadline that is too near. So each
gets an offer, which is held beside those of all before.

With `--taken` half of the nodes were free at the poll, and every other one of these was taken
since, as the filter tells: another list of nodes with each job.

With `--anew` each job is put into a new plan (`beside_plan = false`).

With `--every-ms` there is a pause before each answer, as between users: what the last one had in
the processor's caches is partly gone. Without it they are asked back to back.

A second table says what an answer is made of: the mean time in each of `PARTS`, without that in the
others that it calls, so that they add up to the whole.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from made_up import FIRST_USER, MadeUp, Spool, admission_of, job_fields, policy_in, promise

from rtsched.adapters.slurm.submission import SlurmTranslator
from rtsched.adapters.users import user_name
from rtsched.adapters.wire import Tag
from rtsched.core import chain, checks
from rtsched.daemon import admission as admissions
from rtsched.daemon import instant as instants
from rtsched.daemon import store as stores
from rtsched.daemon.admission import AdmissionController
from rtsched.daemon.app import Daemon
from rtsched.daemon.menu import Allowance, Request, with_menu
from rtsched.daemon.metrics import Metrics
from rtsched.daemon.settings import DaemonSettings
from rtsched.daemon.site import Site
from rtsched.daemon.store import Store
from rtsched.daemon.systemd import log_events
from rtsched.daemon.worker import Worker
from rtsched.logs.hostlist import fold
from rtsched_plugins.mcdf import Mcdf
from rtsched_plugins.planners import EqualNodes
from rtsched_plugins.planning import PlanningSession, PreparedPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FIRST = 20
"""Answers that do not count."""

STEPS = ("describe", "judge", "menu", "commit", "all")

PARTS: Mapping[str, list[tuple[Any, str]]] = {
    "description of the job": [(SlurmTranslator, "describe")],
    "limits, and what the user has": [
        (admissions, "for_job"),
        *((AdmissionController, name) for name in ("_used_up", "_too_much")),
        (admissions, "redeemable"),
    ],
    "imminent starts": [(admissions, "with_imminent_started")],
    "what is idle now": [(instants, "instant_of"), (admissions, "present")],
    "chain: calls of hooks": [(chain.Chain, "admit"), (chain.Chain, "delay_class")],
    "planner: preparation": [
        (PreparedPlan, "__init__"),
        (PreparedPlan, "pool"),
        (EqualNodes, "prepare"),
    ],
    "planner: arithmetic": [(EqualNodes, "admit"), (EqualNodes, "offer"), (EqualNodes, "needed")],
    "planner: a place beside the plan": [(PlanningSession, name) for name in ("_place", "_take")],
    "planner: the plan as a schedule": [(PlanningSession, "schedule")],
    "planner: the rest": [(Mcdf, "judge")],
    "check of the answer": [(checks.CHECKS, "admit")],
    "the site with the promise": [(Site, "with_promise"), (Site, "without")],
    "record": [(admissions, "new_promise")],
    "reply": [(admissions, "reply_of")],
    "admission: the rest": [(AdmissionController, "judge")],
    "database: the plan as bytes": [(stores, "encode_schedule"), (stores, "encode_change")],
    "database: the rest": [(Store, "commit")],
    "threads, log, metrics": [(Daemon, "commit")],
}
"""What an answer is made of: functions, by what they do."""


class Stopwatch:
    """Measures functions on the processor, each without those that it calls."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self._inside = [0.0]
        for part, functions in PARTS.items():
            for owner, name in functions:
                if isinstance(owner, dict):
                    owner[name] = self._timed(part, owner[name])
                else:
                    setattr(owner, name, self._timed(part, getattr(owner, name)))

    def _timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def timed(*given: Any, **named: Any) -> Any:
            self._enter()
            begun = time.process_time()
            try:
                return function(*given, **named)
            finally:
                self._leave(part, begun)

        @wraps(function)
        async def awaited(*given: Any, **named: Any) -> Any:
            self._enter()
            begun = time.process_time()
            try:
                return await function(*given, **named)
            finally:
                self._leave(part, begun)

        return awaited if asyncio.iscoroutinefunction(function) else timed

    def _enter(self) -> None:
        self._inside.append(0.0)

    def _leave(self, part: str, begun: float) -> None:
        seconds = time.process_time() - begun
        self.seconds[part] += seconds - self._inside.pop()
        self._inside[-1] += seconds

    def taken(self) -> dict[str, float]:
        """Return the seconds in each part since the last time."""
        taken, self.seconds = self.seconds, dict.fromkeys(PARTS, 0.0)
        return taken


async def measure(
    directory: Path,
    pending: int,
    promises: int,
    nodes: int,
    tests: int,
    wide: bool = False,
    menu_ms: float = DaemonSettings().menu_ms,
    taken: bool = False,
    anew: bool = False,
    every_ms: float = 0.0,
) -> dict[str, dict[str, list[float]]]:
    """Return the seconds of each step and in each of `PARTS`, by verdict."""
    watch = Stopwatch()
    policy, translator = policy_in(directory, beside_plan=not anew), SlurmTranslator()
    busy = nodes // 2 if taken else nodes
    worker = Worker(partial(MadeUp, directory, pending, nodes, busy), 300.0)
    took: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with Store(directory / "rtsched.db", policy.live.daemon.durable) as store:
        daemon = Daemon(policy, store, worker, translator, Metrics(), reread=lambda: policy)
        spool = Spool(directory)
        await daemon.cycle()
        await promise(daemon, promises)
        spool.put(daemon.site, list(daemon.site.promises.values()))
        spool.write()
        await daemon.cycle()
        admission, random = admission_of(daemon), np.random.default_rng(3)
        lists = instants.NodeLists()
        for k in range(FIRST + tests):
            now, size = time.time(), int(random.integers(1, 33))
            user = FIRST_USER + int(random.integers(200))
            deadline = now + float(random.uniform(2.0, 72.0)) * 3600.0
            if wide:
                user, size, deadline = FIRST_USER + k, nodes // 3, now + 600.0
            fields = job_fields(user, size, deadline)
            if taken:
                fields |= _idle(daemon, busy, k)
            await asyncio.to_thread(user_name, user)  # a look-up is no part of an answer
            if every_ms:
                await asyncio.sleep(every_ms / 1000.0)
            watch.taken()
            at = [time.process_time()]
            job = translator.describe(fields, daemon.site.facts, now)
            instant = instants.instant_of(fields, daemon.site, lists)
            admission = replace(admission, instant=instant)
            at.append(time.process_time())
            judged = admission.judge(daemon.site, job, now)
            at.append(time.process_time())
            request, allowance = Request(translator, fields, job), Allowance(menu_ms / 1000.0)
            judged = with_menu(admission, daemon.site, judged, request, now, allowance)
            at.append(time.process_time())
            if judged.changed:
                await daemon.commit(judged.site, judged.changed)
            at.append(time.process_time())
            if k >= FIRST:
                steps = dict(zip(STEPS, [*np.diff(at).tolist(), at[-1] - at[0]], strict=True))
                bare = judged.verdict == "reject" and not math.isfinite(judged.offer)
                verdict = judged.verdict + ", no offer" * bare
                for step, seconds in (steps | watch.taken()).items():
                    took[verdict][step].append(seconds)
        await worker.close()
    return took


def _idle(daemon: Daemon, busy: int, number: int) -> dict[int, int | str]:
    """Return what the filter sends where every other free node was taken; each list is another."""
    names = [name or "" for name in daemon.site.snapshot.cluster.nodes.texts("name")]
    free = names[busy:][::2]
    free.pop(number % len(free))
    now = int(time.time())
    return {
        Tag.IDLE_NODES: fold(free),
        Tag.AVAIL_NODES: fold(names),
        Tag.PASSED: f"{now}:10",
        Tag.LAST_NODE_UPDATE: now,
    }


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--pending", type=int, default=10_000)
    parser.add_argument("--promises", type=int, default=1_000)
    parser.add_argument("--nodes", type=int, default=2_000)
    parser.add_argument("--tests", type=int, default=300)
    parser.add_argument("--wide", action="store_true", help="ask for a third of all nodes")
    parser.add_argument("--taken", action="store_true", help="nodes were taken since the poll")
    parser.add_argument("--anew", action="store_true", help="plan all anew for each job")
    parser.add_argument(
        "--menu-ms", type=float, default=DaemonSettings().menu_ms, help="as in site.toml"
    )
    parser.add_argument("--every-ms", type=float, default=0.0, help="pause before each answer")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args()
    log_events("warning")
    with tempfile.TemporaryDirectory(prefix="rtsched-answers-") as name:
        extent = given.pending, given.promises, given.nodes, given.tests
        how = given.wide, given.menu_ms, given.taken, given.anew, given.every_ms
        took = asyncio.run(measure(Path(name), *extent, *how))
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
    print("\n| mean ms in | " + " | ".join(sorted(took)) + " |")
    print("|---|" + "---:|" * len(took))
    for part in PARTS:
        means = (np.mean(steps[part]) * 1000.0 for _, steps in sorted(took.items()))
        print(f"| {part} | " + " | ".join(f"{mean:.2f}" for mean in means) + " |")


if __name__ == "__main__":
    main()
