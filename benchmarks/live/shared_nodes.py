"""The promises that hold on nodes that jobs share: cores, memory, GPUs, beside floods of each."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import measure
import numpy as np
import promises
import workload_driver
from on_slurm import FILTER, SETTINGS, Slurm
from stream import Extent, shared_flood, shared_stream
from testbed import Cluster, SlurmOptions
from workload_driver import FAVOURED, USERS, Setup

from rtsched.model.accounts import Accounts
from rtsched.model.cluster import Cluster as Machine
from rtsched.model.cluster import Nodes
from rtsched.model.final_state import FinalState
from rtsched.model.jobs import Edges, Jobs
from rtsched.model.log import Outcomes, Skipped
from rtsched.replay.engine import replay
from rtsched.replay.measures import measure as measured
from rtsched.replay.policies import presets
from rtsched.replay.results import Workload

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from measure import Row
    from workload_driver import Said

CORES, GPUS = 16, 4
PLAIN, WITH_GPUS, LARGE = 12, 4, 4
KINDS = {"slow": (PLAIN, 64, 0), "fast": (WITH_GPUS, 64, GPUS), "large": (LARGE, 256, 0)}
"""Nodes, GB and GPUs of each kind, all of 16 cores."""
RESOURCES = ("cpu", "mem", "gres/gpu")
GIB = 2**30
SEED = 11
SITE = "\n[slurm]\nshare_nodes = true\n"
MIXED = {
    "GresTypes": "gpu",
    "AccountingStorageTRES": "gres/gpu",
    "DefMemPerCPU": "1000",
    "SelectTypeParameters": "CR_Core_Memory",
}


class SharedSlurm(Slurm):
    """A cluster of 20 nodes of 16 cores, 4 with GPUs and 4 with large memory."""

    full: ClassVar[Extent] = Extent(480, 9, (2, 3, 4), (1.3, 2.5), 90, (), 240_000)
    reduced: ClassVar[Extent] = Extent(90, 5, (1,), (1.3, 2.4), 45, (), 60_000)

    @classmethod
    @contextmanager
    def up(cls, setup: Setup) -> Iterator[Self]:
        """Bring a cluster up."""
        hardware = {
            "fast": f"CPUs={CORES} RealMemory=64000 Gres=gpu:{GPUS}",
            "slow": f"CPUs={CORES} RealMemory=64000",
            "large": f"CPUs={CORES} RealMemory=256000",
        }
        options = SlurmOptions(
            fast=WITH_GPUS,
            slow=PLAIN,
            large=LARGE,
            hardware=hardware,
            settings=SETTINGS | MIXED,
            job_submit=("rtsched",) if setup.steered else (),
        )
        devices = f"Name=gpu File=/srv/gpu[0-{GPUS - 1}]"
        gres = f"AutoDetect=off\nNodeName=fast[1-{WITH_GPUS}] {devices}\n"
        files = {"/etc/rtsched/submit.conf": FILTER, "/etc/slurm/gres.conf": gres}
        files |= {f"/srv/gpu{number}": "" for number in range(GPUS)}
        with Cluster("forky", options, software=setup.steered, files=files) as running:
            if setup.steered:
                running.start_daemon(setup.site, timeout=300)
            yield cls(running, setup)

    @staticmethod
    def rows(accounting: str) -> list[Row]:
        """Return the rows of what sacct printed, with cores in place of nodes."""
        lines = accounting.splitlines()
        at = lines[0].split("\t").index("NCPUS")
        cores = [int(line.split("\t")[at] or 0) for line in lines[1:]]
        pairs = zip(Slurm.rows(accounting), cores, strict=True)
        return [replace(row, nodes=count) for row, count in pairs]


@dataclass
class Side:
    """What one cluster made of the stream."""

    deadlines: workload_driver.Book
    best_effort: workload_driver.Book
    accounting: str
    ended: float
    promises: list[measure.Promise]


def run(*, reduced: bool, keep: Path | None = None) -> dict[str, Any]:
    """Play the stream to two clusters side by side, and replay it; return all figures."""
    extent = SharedSlurm.reduced if reduced else SharedSlurm.full
    setups = {"slurm": Setup(False), "rtsched": Setup(True, promises.site("edf") + SITE)}
    with ThreadPoolExecutor(2) as pool:
        going = {
            name: pool.submit(_side, extent, setup, keep / name if keep else None)
            for name, setup in setups.items()
        }
        sides = {name: side.result() for name, side in going.items()}
    found: dict[str, Any] = {name: _figures(side) for name, side in sides.items()}
    ours = sides["rtsched"]
    said = [*ours.best_effort.said, *ours.deadlines.said]
    for name, margin in (("replay", SharedSlurm.margins[0]), ("replay without margins", 0.0)):
        found[name] = _replayed(said, ours.deadlines.begun, margin)
    return found


def _side(extent: Extent, setup: Setup, keep: Path | None) -> Side:
    """Bring a cluster up, play the stream to it, and return what it made of it."""
    with SharedSlurm.up(setup) as live:
        live.favour()
        try:
            works = shared_stream(SEED, extent, FAVOURED)
            flooding = workload_driver.submit_all(
                live, shared_flood(SEED + 1, extent, USERS), time.time()
            )
            time.sleep(3)
            book = workload_driver.play(live, works, offers=setup.steered)
            ended = book.begun + max(work.at + work.deadline for work in works)
            time.sleep(max(0.0, ended + promises.AFTER - time.time()))
            known = measure.promises(live.box) if setup.steered else []
            live.empty(USERS)
            time.sleep(4)
            return Side(book, flooding, live.accounting(), ended, known)
        finally:
            if keep is not None:
                live.save(keep)


def _figures(side: Side) -> dict[str, Any]:
    """Return the figures of one side."""
    rows = SharedSlurm.rows(side.accounting)
    begun, ended = side.deadlines.begun, side.ended
    cores = CORES * sum(count for count, *_ in KINDS.values())
    found: dict[str, Any] = measure.outcomes(side.deadlines, rows)
    found |= measure.answers(side.deadlines, SharedSlurm.command)
    found |= measure.best_effort(rows, begun, ended, "core")
    found["utilisation"] = measure.utilisation(rows, begun, ended, cores)
    found |= measure.offers(side.deadlines)
    found["unpromised"] = sum("without a promise" in said.text for said in side.deadlines.said)
    found["promises"] = measure.standings(side.promises)
    return found


def _replayed(said: Sequence[Said], begun: float, margin: float) -> dict[str, float]:
    """Return what a replay of the same submissions at the same times admits."""
    ordered = [one for one in sorted(said, key=lambda one: one.at) for _ in range(one.work.jobs)]
    works = [one.work for one in ordered]
    demand = [(w.demand.cores, w.demand.gigabytes * GIB, w.demand.gpus) for w in works if w.demand]
    wall = np.array([work.minutes * 60.0 for work in works])
    jobs = Jobs.build(
        len(works),
        names={"demand": RESOURCES},
        id=np.arange(len(works)) + 1,
        submit=np.array([one.at for one in ordered]),
        deadline=np.array([begun + work.at + work.deadline for work in works]),
        size=np.array([work.least for work in works], np.int32),
        wall_time=wall + margin,
        demand=np.array(demand, np.int64),
    )
    capacity = [
        (CORES, gigabytes * 1000 * 2**20, gpus)
        for count, gigabytes, gpus in KINDS.values()
        for _ in range(count)
    ]
    table = np.array(capacity, np.int64)
    nodes = Nodes.build(len(table), names={"capacity": RESOURCES}, capacity=table)
    workload = Workload(
        jobs,
        wall * np.array([work.part for work in works]),
        Outcomes.build(len(works)),
        Machine(nodes),
        Accounts.build(0),
        Edges.build(0),
        (),
        Skipped(),
    )
    policy = promises.PRESETS["edf"]
    results = replay(workload, policy, presets()[policy]).results
    asked = np.isfinite(jobs.deadline)
    rejected = np.equal(results.fate, FinalState.REJECTED)
    return {
        "admitted": int((asked & ~rejected).sum()),
        "rejected": int((asked & rejected).sum()),
        "missed": int(measured(workload, results)["missed"] or 0),
    }


def problems(found: dict[str, Any]) -> list[str]:
    """Return what ought not to be so."""
    ours, alone = found["rtsched"], found["slurm"]
    served = ours["best_effort_useful_core_s"]
    before = alone["best_effort_useful_core_s"]
    claims = promises.claims_of(ours, 0.85 * found["replay"]["admitted"]) | {
        f"best effort got {served:.0f} core-seconds of {before:.0f}": served >= 0.9 * before,
    }
    return [text for text, good in claims.items() if not good]
