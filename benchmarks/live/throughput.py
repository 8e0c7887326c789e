"""What the submit filter costs: submissions without it, with an empty Lua, and with ours.

The same controller is started anew with the other plug-in for each kind of submission; the kinds
take turns, and medians of the rounds are compared.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import loading
from testbed.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from testbed import Box, Cluster

ROUNDS = {False: 5, True: 2}
JOBS = {False: 400, True: 50}
CLIENTS = (1, 4)
SBATCHES = 20
MONTH = 30 * 86_400
CONF = "/etc/slurm/slurm.conf"

SITE = """
planner = "mcdf"
[[plugin]]
name = "mcdf"
settings = { order = "deadline" }
[daemon]
metrics_port = 9100
"""

SBATCH = f"""
for i in $(seq {SBATCHES}); do
  sbatch --quiet --output=/dev/null --time=5 "$@" --wrap=true >/dev/null 2>&1
done
"""

METRICS = """
import urllib.request
print(urllib.request.urlopen("http://127.0.0.1:9100/metrics", timeout=10).read().decode())
"""


@dataclass(frozen=True)
class Way:
    """One kind of submission.

    Attributes
    ----------
    plugin : str
        JobSubmitPlugins.
    daemon : {"none", "up", "down", "hung"}
        What our daemon does; `none`: it is stopped, and nobody asks it.
    deadline : bool
        Whether the jobs want a verdict.
    """

    plugin: str
    daemon: str = "none"
    deadline: bool = False


WAYS = {
    "no plug-in": Way(""),
    "empty Lua": Way("lua"),
    "ours, no verdict needed": Way("rtsched", "up"),
    "ours, judged": Way("rtsched", "up", True),
    "ours, daemon down": Way("rtsched", "down", True),
    "ours, daemon hung": Way("rtsched", "hung", True),
}


def run(*, reduced: bool, keep: Path | None = None) -> dict[str, Any]:  # noqa: ARG001 - as all
    """Let the kinds take turns, and compare the medians."""
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in WAYS}
    with loading.cluster(0, ("rtsched", "lua")) as running:
        loading.install(running)
        running.start_daemon(SITE, timeout=300)
        for _ in range(ROUNDS[reduced]):
            for name, way in WAYS.items():
                taken[name].append(_one(running, way, JOBS[reduced]))
    sides = {name: middle(rounds) for name, rounds in taken.items()}
    for name, side in sides.items():
        _compare(side, sides["no plug-in"], judged=WAYS[name].daemon == "up")
    return {"rounds": ROUNDS[reduced], "jobs": JOBS[reduced], "load": os.getloadavg()[1], **sides}


def problems(found: dict[str, Any]) -> list[str]:
    """Return what went wrong; speed alone never fails."""
    sides = {name: found[name] for name in WAYS}
    return [f"{name}: jobs were refused" for name, side in sides.items() if side["refused"]]


def middle(rounds: list[dict[str, float]]) -> dict[str, float]:
    """Return the median of each figure over the rounds."""
    return {key: loading.at_share([each[key] for each in rounds], 0.5) for key in rounds[0]}


def _compare(side: dict[str, float], bare: Mapping[str, float], *, judged: bool) -> None:
    """Add shares of the throughput without a plug-in, and the filter's own milliseconds."""
    for clients in CLIENTS:
        key = f"jobs_per_s_{clients}"
        side[f"share_{clients}"] = side[key] / bare[key]
    side["share_sbatch"] = bare["sbatch_ms"] / side["sbatch_ms"]
    more = side["p50_ms_1"] - bare["p50_ms_1"]
    side["more_ms"] = more
    if judged and side["answer_ms"]:
        side["more_beyond_policy_ms"] = more - side["policy_ms"]
        side["more_beyond_answer_ms"] = more - side["answer_ms"]


def _one(running: Cluster, way: Way, jobs: int) -> dict[str, float]:
    """Submit in one way; return what it took."""
    _prepare(running, way)
    deadline = MONTH if way.deadline else 0
    before = daemon_s(running) if way.daemon == "up" else {}
    found: dict[str, float] = {"refused": 0}
    for clients in CLIENTS:
        took = loading.submit(running, clients, jobs // clients, begin=0, deadline=deadline)
        found[f"jobs_per_s_{clients}"] = took["jobs"] / took["seconds"]
        found[f"p50_ms_{clients}"] = took["p50_ms"]
        found["refused"] += took["refused"]
    after = daemon_s(running) if way.daemon == "up" else {}
    found |= per_answer(before, after)
    options = [f"--deadline=now+{deadline // 60}minutes"] if deadline else []
    begun = time.perf_counter()
    running.run(["sh", "-c", SBATCH, "sh", *options], user="alice", timeout=120)
    found["sbatch_ms"] = 1000 * (time.perf_counter() - begun) / SBATCHES
    _clean(running)
    return found


def _prepare(running: Cluster, way: Way) -> None:
    """Give the controller the plug-in and the daemon its part, and warm both up."""
    lines = running.path(CONF).read_text().splitlines()
    kept = [line for line in lines if not line.startswith("JobSubmitPlugins")]
    more = [f"JobSubmitPlugins={way.plugin}"] if way.plugin else []
    running.path(CONF).write_text("\n".join([*more, *kept, ""]))
    if way.daemon == "down":
        running.stop_daemon()
    elif not running.services.alive("rtsched"):
        running.start_daemon(timeout=300)
    running.restart_slurmctld()
    running.wait_nodes(running.slurm.nodes)
    if way.daemon in {"none", "hung"}:
        running.services.signal("rtsched", "STOP")
    elif way.daemon == "up":
        running.services.signal("rtsched", "CONT")
        wait_for("the daemon sees the controller", lambda: _promises_here(running), 60)
    loading.submit(running, 1, 10, begin=0, deadline=MONTH if way.deadline else 0)


def _promises_here(running: Cluster) -> bool:
    """Whether a job with a deadline is given a promise now."""
    words = ["sbatch", "--time=5", "--deadline=now+720hours", "--wrap=true"]
    done = running.run(words, user="alice", check=False)
    time.sleep(0.2)
    return "promised to end" in done.stdout + done.stderr


def _clean(running: Cluster) -> None:
    """Take all jobs away."""
    running.run(["scancel", "--quiet", "--user=alice"], timeout=120, check=False)
    wait_for("no job is left", lambda: not running.run(["squeue", "-h"]).stdout.strip(), 60)


def daemon_s(running: Box) -> dict[str, float]:
    """Return what the daemon has counted: answers, their seconds, and the plug-ins' of them."""
    text = running.run(["python3", "-c", METRICS], timeout=20).stdout
    rows = dict(line.rsplit(" ", 1) for line in text.splitlines() if line and line[0] != "#")
    keys = {
        "answers": 'rtsched_answer_seconds_count{kind="submit"}',
        "answer_s": 'rtsched_answer_seconds_sum{kind="submit"}',
        "policy_s": 'rtsched_hook_seconds_total{hook="admit",plugin="mcdf"}',
    }
    return {name: float(rows.get(key, 0)) for name, key in keys.items()}


def per_answer(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return milliseconds of the daemon per answer, and of the policy; 0 where nobody asked."""
    counted = {key: after[key] - before[key] for key in before}
    if not counted.get("answers"):
        return {"answer_ms": 0.0, "policy_ms": 0.0}
    keys = {"answer_ms": "answer_s", "policy_ms": "policy_s"}
    return {name: 1000 * counted[key] / counted["answers"] for name, key in keys.items()}
