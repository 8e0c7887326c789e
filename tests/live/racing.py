"""Races: jobs with deadlines are submitted while best-effort jobs take the nodes.

Each deadline leaves no time to wait. A promise that breaks was given on a node that another job had
already (the state was stale), or one took the node after the answer: told apart by the start of the
best-effort jobs.
"""

import math
import random
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from promising import Kept, Live, Reply
from testbed.waiting import eventually

DEADLINE = "--deadline=now+110seconds"
"""A job of one minute, with margins of some 20 s, has little left of that."""

LOST = {"broken", "missed"}


@dataclass
class Races:
    """What came of races.

    Attributes
    ----------
    outcomes : Counter of str
        How many submissions were `promised`, `rejected`, `deferred` and `unjudged`; and how many of
        those that were deferred were `promised by a poll`.
    stale : list of str
        Promises that broke though no best-effort job started after them.
    overtaken : list of str
        Promises that broke since one did.
    requeued : int
        Best-effort jobs that were stopped.
    seconds : list of float
        How long each submission took.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    stale: list[str] = field(default_factory=list)
    overtaken: list[str] = field(default_factory=list)
    requeued: int = 0
    seconds: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """Return what to print."""
        seconds = sorted(self.seconds)
        return {
            "races": len(seconds),
            **self.outcomes,
            "broken by stale state": len(self.stale),
            "broken by jobs that started after the answer": len(self.overtaken),
            "best-effort jobs requeued": self.requeued,
            "sbatch, median ms": round(1000 * seconds[len(seconds) // 2]),
        }


def race(live: Live, races: Races, rng: random.Random, nodes: int, submissions: int) -> None:
    """Have bob take nodes while alice asks for promises; note what comes of it.

    Parameters
    ----------
    live : Live
        A cluster of `nodes` nodes without jobs.
    races : Races
        Where it is noted.
    rng : Random
        Decides how many jobs bob submits, for how long, and when alice does.
    nodes, submissions : int
        Nodes of the cluster, and jobs of alice's.
    """
    before = {each.token for each in live.kept()}
    many = rng.randint(nodes // 2, nodes)
    flood = live.cluster.popen(["sh", "-c", _flood(rng, many)], user="bob")
    replies = []
    for _ in range(submissions):
        time.sleep(rng.uniform(0.0, 1.5 / submissions))
        size = rng.randint(1, 3)
        script = f"#SBATCH {DEADLINE}\nsleep 2"  # the filter in Lua sees no other deadline
        replies.append(live.submit(f"-N{size}", "--time=1", script=script))
    flood.communicate()
    live.polled()
    races.seconds += [each.seconds for each in replies]
    races.outcomes.update(map(_outcome, replies))
    promised = {each.job for each in replies if each.promised}
    held = {each.job for each in replies if _outcome(each) == "deferred"}

    def over() -> bool:
        new = {kept.id: kept.state for kept in live.kept() if kept.token not in before}
        if not promised <= new.keys() or not _waiting(live).isdisjoint(held - new.keys()):
            return False
        return all(new.get(job, "kept") in LOST | {"kept", "void"} for job in promised | held)

    eventually(over, 200, "all promises of a race have come to their ends")
    races.outcomes["promised by a poll"] += sum(
        kept.id in held for kept in live.kept() if kept.token not in before
    )
    starts = _starts(live)
    for kept in live.kept():
        if kept.token not in before and kept.state in LOST:
            _note(races, kept, _made_at(live, kept), starts)
    races.requeued += sum(restarts > 0 for _, restarts in starts)
    live.cancel_all()


def _flood(rng: random.Random, many: int) -> str:
    """Return what submits so many jobs, one after the other."""
    lines = []
    for _ in range(many):
        minutes, requeue = rng.choice((2, 5, 10)), rng.choice(("", "--no-requeue"))
        options = f"--output=/dev/null --chdir=/tmp -N1 --exclusive --time={minutes} {requeue}"
        lines.append(f"sbatch {options} --wrap 'sleep 590' >/dev/null")
    return "\n".join(lines)


def _outcome(reply: Reply) -> str:
    if reply.promised:
        return "promised"
    if not reply.job:
        return "rejected"
    return "deferred" if "held" in reply.text else "unjudged"


def _waiting(live: Live) -> set[int]:
    """Return alice's jobs that wait."""
    words = ["squeue", "-h", "-t", "PD", "-u", "alice", "-o", "%A"]
    return {int(job) for job in live.cluster.run(words).stdout.split()}


def _starts(live: Live) -> list[tuple[float, int]]:
    """Return when each of bob's jobs started, seconds since the epoch, and how often again."""
    shown = live.cluster.run(
        ["scontrol", "-o", "show", "jobs"], env={"SLURM_TIME_FORMAT": "%s"}
    ).stdout
    rows = [dict(re.findall(r"(\w+)=(\S*)", line)) for line in shown.splitlines()]
    bobs = [row for row in rows if row.get("UserId", "").startswith("bob(")]
    return [
        (float(row["StartTime"]) if row["StartTime"].isdigit() else math.inf, int(row["Restarts"]))
        for row in bobs
        if row["JobState"] != "PENDING"
    ]


def _made_at(live: Live, kept: Kept) -> float:
    found = live.box.database("SELECT token, made_at FROM records")
    return float(next(at for token, at in found if token == kept.token))


def _note(races: Races, kept: Kept, made_at: float, starts: list[tuple[float, int]]) -> None:
    """Note a promise that broke: Slurm tells starts in whole seconds."""
    later = [start for start, _ in starts if start >= math.floor(made_at)]
    text = f"job {kept.id}: {kept.state}, {kept.why}; made at {made_at:.2f}, {len(later)} later"
    (races.overtaken if later else races.stale).append(text)
