"""What the ClassAd library costs: condor_submit of many procs without it and with it.

The schedd waits for verdicts on the procs of one cluster for a second in all; the others are judged
in the queue (`later`). The kinds of submissions take turns, and medians of the rounds are compared.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import condor_loading
import throughput
from testbed.waiting import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from testbed import Pool

ROUNDS = {False: 5, True: 2}
PROCS = {False: 1000, True: 100}
SINGLE = 20
MONTH = 30 * 86_400
SITE = """
planner = "mcdf"
[[plugin]]
name = "mcdf"
settings = { order = "deadline" }
[condor]
start_delay_s = 60.0
[daemon]
system = "condor"
metrics_port = 9100
unused_promises_per_hour = 0
"""
SAID = {
    "promised": 'RtToken =!= undefined && RtToken != "parked" && RtToken != "unjudged"',
    "later": 'RtToken == "parked"',
}
"""What the library said of a job."""
SUBMITS = f"""
for i in $(seq {SINGLE}); do
  printf '%s\\n' 'executable = /bin/sleep' 'arguments = 3600' "$@" queue | condor_submit >/dev/null
done
"""


@dataclass(frozen=True)
class Way:
    """One kind of submission.

    Attributes
    ----------
    daemon : {"none", "up", "down", "hung"}
        What our daemon does; `none`: neither it nor the library is there.
    deadline : bool
        Whether the jobs want a verdict.
    """

    daemon: str
    deadline: bool = False


WAYS = {
    "no library": Way("none"),
    "library, no verdict needed": Way("up"),
    "judged": Way("up", True),
    "daemon down": Way("down", True),
    "daemon hung": Way("hung", True),
}


def run(*, reduced: bool, keep: Path | None = None) -> dict[str, Any]:  # noqa: ARG001 - as all
    """Let the kinds take turns, and compare the medians."""
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in WAYS}
    sleeping = condor_loading.SLEEPING
    with ExitStack() as stack:
        bare = stack.enter_context(condor_loading.pool(ours=False, settings=sleeping))
        ours = stack.enter_context(condor_loading.pool(ours=True, settings=sleeping))
        ours.start_daemon(SITE, timeout=300)
        for _ in range(ROUNDS[reduced]):
            for name, way in WAYS.items():
                running = bare if way.daemon == "none" else ours
                taken[name].append(_one(running, way, PROCS[reduced]))
    sides = {name: throughput.middle(rounds) for name, rounds in taken.items()}
    judged = sides["judged"]
    more = judged["seconds"] - sides["daemon down"]["seconds"]  # which has all marks, and no answer
    judged["beyond_daemon_ms"] = 1000 * more / judged["asked"] - judged["answer_ms"]
    about = {"rounds": ROUNDS[reduced], "procs": PROCS[reduced], "load": os.getloadavg()[1]}
    return {**about, **sides}


def problems(found: dict[str, Any]) -> list[str]:
    """Return what went wrong; speed alone never fails."""
    judged = found["judged"]
    wrong = [
        f"{name}: {found[name]['promised']:.0f} jobs were promised something"
        for name, way in WAYS.items()
        if bool(found[name]["promised"]) != (way == Way("up", True))
    ]
    if judged["promised"] + judged["later"] < found["procs"]:
        wrong.append("judged: jobs are neither promised anything nor judged later")
    return wrong


def _one(running: Pool, way: Way, procs: int) -> dict[str, float]:
    """Submit many procs at once, and then some jobs one by one."""
    _prepare(running, way)
    wish = [f"+RtDeadline = {int(time.time()) + MONTH}"] if way.deadline else []
    lines = [*wish, "+RtRunTime = 60"] if way.daemon != "none" else []
    before = throughput.daemon_s(running) if way.daemon == "up" else {}
    seconds = condor_loading.submit(running, lines, procs)
    after = throughput.daemon_s(running) if way.daemon == "up" else {}
    found = {"seconds": seconds, "ms_per_proc": 1000 * seconds / procs}
    found |= throughput.per_answer(before, after)
    found["asked"] = after["answers"] - before["answers"] if after else 0.0
    found |= {name: _counted(running, reply) for name, reply in SAID.items()}
    begun = time.perf_counter()
    running.run(["sh", "-c", SUBMITS, "sh", *lines], user="alice", timeout=120)
    found["single_ms"] = 1000 * (time.perf_counter() - begun) / SINGLE
    _signal(running, "CONT")
    condor_loading.remove_all(running)
    return found


def _counted(running: Pool, constraint: str) -> int:
    """Return how many jobs in the queue meet a constraint."""
    words = ["condor_q", "-allusers", "-constraint", constraint]
    return len(running.run([*words, "-af", "ClusterId"], timeout=60).stdout.split())


def _prepare(running: Pool, way: Way) -> None:
    """Give the daemon its part."""
    if way.daemon == "none":
        return
    if way.daemon == "down":
        running.stop_daemon()
        return
    if not running.services.alive("rtsched"):
        running.start_daemon(timeout=300)
    wait_for("the daemon sees the pool", lambda: _promises_here(running), 60)
    condor_loading.remove_all(running)
    if way.daemon == "hung":
        _signal(running, "STOP")


def _signal(running: Pool, signal: str) -> None:
    if running.services.alive("rtsched"):
        running.services.signal("rtsched", signal)


def _promises_here(running: Pool) -> bool:
    """Whether a job with a deadline is given a promise now."""
    lines = ["executable = /bin/sleep", f"+RtDeadline = {int(time.time()) + MONTH}"]
    text = "\n".join([*lines, "+RtRunTime = 60", "queue", ""])
    done = running.run(["condor_submit"], user="alice", input=text, check=False)
    time.sleep(0.2)
    return "promised to end" in done.stdout + done.stderr
