"""Fair shares: users with shares 1, 2 and 3 on a saturated cluster, by Slurm and by ste."""

from __future__ import annotations

import math
import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import measure
import numpy as np
import playing
from stream import Work

from rtsched.model.accounts import Accounts
from rtsched.model.cluster import Cluster as Machine
from rtsched.model.jobs import Edges, Jobs
from rtsched.model.log import Outcomes, Skipped
from rtsched.replay.fairness import errors, fairness
from rtsched.replay.results import Fate, Results, Workload

if TYPE_CHECKING:
    from pathlib import Path

SHARES = {"alice": 1.0, "bob": 2.0, "carol": 3.0}
SEED = 11
SECONDS = {False: 900, True: 150}
POINTS = 6
STE = f"""
[[plugin]]
name = "ste"
settings = {{ scale = 60.0 }}
[slurm]
site_factor_step = 1
{playing.DAEMON}
"""
"""Jobs last half a minute, so an error of one node's minute counts as one of a day's does else."""

SETTINGS = {
    "slurm": {"PriorityWeightFairshare": "10000", "PriorityWeightAge": "0"},
    "ste": {"PriorityWeightFairshare": "0", "PriorityWeightAge": "0"},
}


def works(seconds: float) -> list[Work]:
    """Return what the users submit: alike, in turn, more than can be done."""
    chance = random.Random(SEED)  # noqa: S311
    count = math.ceil(measure.NODES * seconds / 40 * 1.2)
    found: list[Work] = []
    for _ in range(count):
        size, part = chance.choice((1, 1, 2)), chance.uniform(0.2, 0.8)
        for user in SHARES:
            name = f"b{len(found)}"
            found.append(Work(name, user, 0.0, size, size, 1, part))
    return found


def run(*, reduced: bool, keep: Path | None = None) -> dict[str, Any]:
    """Saturate two clusters side by side; return the errors of both."""
    seconds = SECONDS[reduced]
    with ThreadPoolExecutor(2) as pool:
        sides = {name: pool.submit(_side, name, seconds, keep) for name in SETTINGS}
        return {"seconds": seconds} | {name: side.result() for name, side in sides.items()}


def _side(name: str, seconds: float, keep: Path | None) -> dict[str, Any]:
    steered = name == "ste"
    with playing.cluster(steered=steered, settings=SETTINGS[name]) as running:
        if steered:
            running.start_daemon(STE, timeout=300)
        begun = time.time()
        playing.submit_all(running, works(seconds), begun)
        time.sleep(max(0.0, begun + seconds - time.time()))
        ended = time.time()
        waiting = running.run(["squeue", "-h", "-t", "PD", "-o", "%u"]).stdout.split()
        rows = measure.rows_of(measure.sacct(running))
        if keep is not None:
            (keep / name).mkdir(parents=True, exist_ok=True)
            log = running.path("/var/log/testbed/rtsched.log")
            (keep / name / "rtsched.log").write_text(log.read_text() if steered else "")
    found = service(rows, begun, ended)
    return found | {"still_waiting": {user: waiting.count(user) for user in SHARES}}


def service(rows: list[measure.Row], begun: float, ended: float) -> dict[str, Any]:
    """Return the users' service and service-time errors until `ended`, node-seconds."""
    ours = [row for row in rows if row.user in SHARES]
    work, results = _as_replayed(ours, ended)
    users = list(SHARES)
    grid = np.linspace(begun, ended, POINTS + 1)[1:]
    found = errors(work, results, "user", None, grid, np.arange(len(users)))
    assert found is not None
    of_user, given = work.jobs.association, np.nan_to_num(results.served())
    served = {user: float(given[of_user == at].sum()) for at, user in enumerate(users)}
    whole = sum(served.values())
    course = {
        f"{moment - begun:.0f}": dict(zip(found.names, map(float, errors_then), strict=True))
        for moment, errors_then in zip(grid.tolist(), found.error.course, strict=True)
    }
    return {
        "served_node_s": served,
        "served_share": {user: value / whole for user, value in served.items()},
        "utilisation": whole / (measure.NODES * (ended - begun)),
        "error_node_s": course,
        **{k: v for k, v in fairness(work, results).items() if k.startswith("user")},
    }


def _as_replayed(ours: list[measure.Row], ended: float) -> tuple[Workload, Results]:
    """Return what accounting says as a replay's workload and results; running jobs end now."""
    users = list(SHARES)
    start = np.array([row.start if row.start < ended else math.nan for row in ours])
    end = np.array([ended if math.isnan(row.end) else min(row.end, ended) for row in ours])
    end[np.isnan(start)] = np.nan
    size = np.array([row.nodes for row in ours], np.int32)
    jobs = Jobs.build(
        len(ours),
        id=np.arange(len(ours)),
        submit=np.array([row.submit for row in ours]),
        size=size,
        association=np.array([users.index(row.user) for row in ours], np.int32),
    )
    fate = np.where(np.isnan(start), Fate.UNFINISHED, Fate.FINISHED).astype(np.int8)
    results = Results.build(len(ours), start=start, end=end, size=size, fate=fate)
    shares = np.array(list(SHARES.values()))
    accounts = Accounts.build(len(users), name=users, shares=shares, is_user=True)
    work = Workload(
        jobs,
        np.ones(len(ours)),
        Outcomes.build(len(ours)),
        Machine.uniform(measure.NODES),
        accounts,
        Edges.build(0),
        (),
        Skipped(),
    )
    return work, results


def problems(found: dict[str, Any]) -> list[str]:
    """Return what ought not to be so."""
    idle = [name for name in SETTINGS if not all(found[name]["still_waiting"].values())]
    said = [f"{name}: the cluster was not saturated to the end" for name in idle]
    if found["ste"]["user_error_rms_node_s"] > found["slurm"]["user_error_rms_node_s"]:
        said.append("the users' service-time errors are larger with ste than without")
    return said
