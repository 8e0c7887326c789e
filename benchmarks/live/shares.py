"""Fair shares: users with shares 1, 2 and 3 on a saturated machine, with ste and without."""

from __future__ import annotations

import math
import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import measure
import numpy as np
import workload_driver
from stream import Work
from workload_driver import USERS, Setup

from rtsched.model.cluster import Cluster as Machine
from rtsched.model.jobs import Edges, Jobs
from rtsched.model.log import FinalState, Outcomes, Skipped
from rtsched.model.snapshot import Accounts
from rtsched.replay.measures import errors, fairness
from rtsched.replay.results import Results, Workload

if TYPE_CHECKING:
    from pathlib import Path

    from workload_driver import Live

SHARES = {"alice": 1.0, "bob": 2.0, "carol": 3.0}
SEED = 11
SECONDS = {"slurm": {False: 900, True: 150}, "condor": {False: 600, True: 150}}
POINTS = 6
STE = f"""
[[plugin]]
name = "ste"
settings = {{ scale = 60.0 }}
{workload_driver.DAEMON}
"""
"""Jobs last half a minute, so an error of one node's minute counts as one of a day's does else."""


def setups(system: type[Live]) -> dict[str, Setup]:
    """Return what is compared."""
    if system.name == "slurm":
        alone = {"PriorityWeightFairshare": "10000", "PriorityWeightAge": "0"}
        ours = {**alone, "PriorityWeightFairshare": "0"}
        site = f"{STE}[slurm]\nsite_factor_step = 1\n"
        return {"slurm": Setup(False, settings=alone), "ste": Setup(True, site, ours)}
    # As long for jobs of half a minute as its default, a day, is for jobs of two hours.
    brief = {"PRIORITY_HALFLIFE": "360"}
    by_hand = {user: 1000 * max(SHARES.values()) / share for user, share in SHARES.items()}
    shares = ", ".join(f"{user} = {share}" for user, share in SHARES.items())
    return {
        "condor": Setup(False, settings=brief),
        "condor by hand": Setup(False, settings=brief, factors=by_hand),
        "ste": Setup(True, f"{STE}[condor]\nshares = {{ {shares} }}\n", brief),
    }


def works(seconds: float, slow: float = 1.0, *, wide: bool = True) -> list[Work]:
    """Return what the users submit: alike, in turn, more than can be done.

    Some jobs are `wide`, on two nodes; else all are small, and many are submitted at a time.
    """
    chance = random.Random(SEED)  # noqa: S311
    at_once = 1 if wide else 10
    count = math.ceil(measure.NODES * seconds / 40 * 1.2 / at_once)
    found: list[Work] = []
    for _ in range(count):
        size, part = chance.choice((1, 1, 2)), chance.uniform(0.2, 0.8) / slow
        nodes = size if wide else 1
        for user in SHARES:
            work = Work(f"b{len(found)}", user, 0.0, nodes, nodes, 1, part, slow=slow)
            found.append(work if wide else replace(work, kind="several", jobs=at_once * size))
    return found


def run(system: type[Live], *, reduced: bool, keep: Path | None = None) -> dict[str, Any]:
    """Saturate machines side by side; return the errors of each."""
    seconds = SECONDS[system.name][reduced]
    compared = setups(system)
    with ThreadPoolExecutor(len(compared)) as pool:
        sides = {
            name: pool.submit(_side, system, setup, seconds, keep / name if keep else None)
            for name, setup in compared.items()
        }
        return {"seconds": seconds} | {name: side.result() for name, side in sides.items()}


def _side(system: type[Live], setup: Setup, seconds: float, keep: Path | None) -> dict[str, Any]:
    with system.up(setup) as live:
        begun = time.time()
        workload_driver.submit_all(live, works(seconds, live.slow, wide=live.wide), begun)
        time.sleep(max(0.0, begun + seconds - time.time()))
        ended = time.time()
        waiting = live.waiting()
        live.empty(USERS)
        time.sleep(4)
        text = live.accounting()
        if keep is not None:
            live.save(keep)
            (keep / "accounting.txt").write_text(text)
    found = service(live.rows(text), begun, ended)
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
    fate = np.where(np.isnan(start), FinalState.UNFINISHED, FinalState.FINISHED).astype(np.int8)
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


def problems(system: type[Live], found: dict[str, Any]) -> list[str]:
    """Return what ought not to be so."""
    sides = {name: found[name] for name in setups(system)}
    idle = [name for name, side in sides.items() if not all(side["still_waiting"].values())]
    problems = [f"{name}: the machine was not saturated to the end" for name in idle]
    error = {name: side["user_error_rms_node_s"] for name, side in sides.items()}
    if error["ste"] > error[system.name]:
        problems.append("the users' service-time errors are larger with ste than without")
    return problems
