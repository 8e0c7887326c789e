"""The promises that hold on nodes that jobs share: cores, memory, GPUs, beside floods of each."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import promises
from stream import licensed, shared_flood, shared_stream
from workload_driver import FAVOURED, USERS, Setup

from rtsched.model.cluster import Cluster as Machine
from rtsched.model.cluster import Nodes
from rtsched.model.jobs import Edges, Jobs, Kind
from rtsched.model.log import FinalState, Outcomes, Skipped
from rtsched.model.snapshot import Accounts
from rtsched.replay.engine import replay
from rtsched.replay.measures import measure
from rtsched.replay.policies import presets
from rtsched.replay.results import Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from promises import Side
    from stream import Extent
    from workload_driver import Live, Reply


class Hardware(NamedTuple):
    """Nodes of one kind: how many, and what each has; a GB is 1000 MiB here."""

    nodes: int
    gigabytes: int
    gpus: int = 0

    @property
    def megabytes(self) -> int:
        """Memory of a node, MiB."""
        return 1000 * self.gigabytes


CORES = 16
KINDS = {"slow": Hardware(12, 64), "fast": Hardware(4, 64, 4), "large": Hardware(4, 256)}
"""The nodes, all of 16 cores. No kind is faster than the others."""
LICENSE = "license/tool"
RESOURCES = ("cpu", "mem", "gres/gpu")
MIB, GIB = 2**20, 2**30
SEED = 11


def run(system: type[Live], *, reduced: bool, keep: Path | None = None) -> dict[str, Any]:
    """Play the stream to two clusters side by side, and replay it; return all figures."""
    extent = system.reduced if reduced else system.full
    setups = {system.name: Setup(False), "rtsched": Setup(True, site(system))}
    sides = promises.side_by_side(
        setups,
        lambda setup, place: play_side(system, extent, setup, place),
        {name: keep / name for name in setups} if keep else {},
    )
    found: dict[str, Any] = {name: figures(system, side) for name, side in sides.items()}
    ours = sides["rtsched"]
    replies = [*ours.best_effort.replies, *ours.deadlines.replies]
    for name, margins in (("replay", system.margins), ("replay without margins", (0.0, 0.0))):
        found[name] = _replayed(replies, ours.deadlines.begun, margins, system.licenses)
    return found


def site(system: type[Live]) -> str:
    """Return the site.toml of a daemon that plans what jobs take of nodes that they share."""
    return f"{promises.site('edf')}\n[{system.name}]\nshare_nodes = true\n"


def play_side(
    system: type[Live],
    extent: Extent,
    setup: Setup,
    keep: Path | None = None,
    meanwhile: Callable[[Live, float], None] | None = None,
) -> Side:
    """Bring a cluster up, play the stream to it, and return what it made of it."""
    with system.up(setup) as live:
        live.favour()
        try:
            kinds = system.planners["edf"]
            works = shared_stream(SEED, extent, FAVOURED, wide=system.wide, kinds=kinds)
            flooding = shared_flood(SEED + 1, extent, USERS)
            if system.licenses:
                works, flooding = licensed(SEED + 2, works), licensed(SEED + 3, flooding)
            return promises.played(live, works, flooding, time.time(), meanwhile)
        finally:
            if keep is not None:
                live.save(keep)


def figures(system: type[Live], side: Side) -> dict[str, Any]:
    """Return the figures of one side, with cores in place of nodes."""
    cores = CORES * sum(kind.nodes for kind in KINDS.values())
    return promises.figures(system, side, "core", cores)


def _replayed(
    replies: Sequence[Reply], begun: float, margins: tuple[float, float], licenses: int
) -> dict[str, float]:
    """Return what a replay of the same submissions at the same times admits.

    An array is a moldable job on whole nodes, which runs half as long on twice as many.
    """
    ordered = [one for one in sorted(replies, key=lambda one: one.at) for _ in range(one.work.jobs)]
    works = [one.work for one in ordered]
    together = [CORES if work.kind == "array" else 1 for work in works]
    rounds = np.array(
        [-(-work.tasks // at_once) for work, at_once in zip(works, together, strict=True)]
    )
    margin = np.where([work.kind == "moldable" for work in works], margins[1], margins[0])
    demand = [
        (
            at_once * w.demand.cores,
            at_once * w.demand.gigabytes * GIB,
            w.demand.gpus,
            w.demand.licenses,
        )
        for w, at_once in zip(works, together, strict=True)
        if w.demand
    ]
    wall = np.array([work.minutes * 60.0 for work in works])
    most = np.where(rounds > 1, rounds, [work.most for work in works])
    least = np.array([work.least for work in works])
    jobs = Jobs.build(
        len(works),
        names={"demand": (*RESOURCES, LICENSE)},
        id=np.arange(len(works)) + 1,
        submit=np.array([one.at for one in ordered]),
        deadline=np.array([begun + work.at + work.deadline for work in works]),
        kind=np.where(most > least, Kind.MOLDABLE, Kind.RIGID).astype(np.int8),
        size=least.astype(np.int32),
        size_min=least.astype(np.int32),
        size_max=most.astype(np.int32),
        wall_time=(wall + margin) * rounds,
        demand=np.array(demand, np.int64),
        exclusive=np.array([work.kind == "array" for work in works]),
    )
    capacity = [
        (CORES, kind.megabytes * MIB, kind.gpus)
        for kind in KINDS.values()
        for _ in range(kind.nodes)
    ]
    table = np.array(capacity, np.int64)
    nodes = Nodes.build(len(table), names={"capacity": RESOURCES}, capacity=table)
    workload = Workload(
        jobs,
        wall * rounds * np.array([work.part for work in works]),
        Outcomes.build(len(works)),
        Machine(nodes, licenses={LICENSE: licenses} if licenses else {}),
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
        "missed": int(measure(workload, results)["missed"] or 0),
    }


def problems(system: type[Live], found: dict[str, Any]) -> list[str]:
    """Return what ought not to be so."""
    ours, alone = found["rtsched"], found[system.name]
    served = ours["best_effort_useful_core_s"]
    before = alone["best_effort_useful_core_s"]
    claims = promises.claims_of(ours, 0.85 * found["replay"]["admitted"]) | {
        f"best effort got {served:.0f} core-seconds of {before:.0f}": served >= 0.9 * before,
        f"{ours['strays']} jobs ran where they were not to": ours["strays"] == 0,
    }
    return [text for text, good in claims.items() if not good]
