"""What is allocated to one job at a time, where nobody says it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from rtsched.logs import ReadOptions, read_logs
from rtsched.logs.cluster_files import read_cluster
from rtsched.model.cluster import Cluster, Nodes
from rtsched.replay.machine import chosen_unit
from rtsched.replay.synth import Lublin
from rtsched.replay.workload import WorkloadOptions, prepare

if TYPE_CHECKING:
    from pathlib import Path

    from rtsched.model.log import Log

SMALL = "NodeName=n[1-2] CPUs=8 RealMemory=8000\n"
MIXED = SMALL + "NodeName=g1 CPUs=16 RealMemory=8000 Gres=gpu:2\n"
PARTITION = "PartitionName=a Nodes=ALL OverSubscribe={}\n"
WHOLE = ("8|8|n1", "1|8|n2", "2|16|n[1-2]")
PARTS = ("2|2|n1", "8|8|n1", "4|4|n2")


def logged(folder: Path, *jobs: str, gres: str = "") -> Log:
    """Return a log of jobs that ran one after another, each `asked|given|nodes`."""
    lines = ["JobID|Submit|Start|End|ReqCPUS|AllocCPUS|NodeList|NNodes|ReqTRES|State"]
    for at, job in enumerate(jobs):
        day = f"2026-11-{at + 1:02}T"
        times = f"{day}08:00:00|{day}08:00:00|{day}09:00:00"
        width = 2 if "[" in job else 1
        lines.append(f"{at + 1}|{times}|{job}|{width}|cpu={job.split('|')[0]}{gres}|COMPLETED")
    (folder / "log").write_text("\n".join(lines) + "\n")
    return read_logs([folder / "log"], ReadOptions(timezone="UTC", resources=True))


@pytest.mark.parametrize(
    ("conf", "jobs", "gres", "unit"),
    [
        (SMALL, WHOLE, "", "node"),
        (SMALL, PARTS, "", "resources"),
        (SMALL, (*WHOLE, *PARTS), "", "resources"),
        (MIXED, ("16|16|g1", "8|8|n1"), ",gres/gpu=1", "node"),
        (MIXED, ("8|8|g1", "8|8|n1"), ",gres/gpu=1", "resources"),
        (SMALL + PARTITION.format("EXCLUSIVE"), PARTS, "", "node"),
        (SMALL + PARTITION.format("FORCE:4"), PARTS, "", "resources"),
        ("SelectType=select/linear\n" + SMALL, PARTS, "", "node"),
        ("SelectType=select/cons_tres\n" + SMALL, WHOLE, "", "node"),
        ("NodeName=n[1-8] CPUs=1\n", PARTS, "", "core"),
    ],
)
def test_log_and_cluster_choose(
    tmp_path: Path, conf: str, jobs: tuple[str, ...], gres: str, unit: str
) -> None:
    """Whole nodes held, or given by the site: node; parts of nodes: resources. Said first."""
    (tmp_path / "slurm.conf").write_text(conf)
    cluster = read_cluster(tmp_path / "slurm.conf")[0]
    work = prepare(logged(tmp_path, *jobs, gres=gres), WorkloadOptions(), cluster)
    assert work.assumptions[0].startswith(f"Unit: {unit}, as ")
    assert work.cluster.shared == (unit == "resources")
    set_by_the_site = prepare(logged(tmp_path, *jobs), WorkloadOptions(unit="core"), cluster)
    assert not any("Unit:" in notes for notes in set_by_the_site.assumptions)


def test_policies_have_a_say(tmp_path: Path) -> None:
    """A policy that cannot share nodes is replayed by cores; one that must share them, by them."""
    (tmp_path / "slurm.conf").write_text(SMALL)
    cluster, log = read_cluster(tmp_path / "slurm.conf")[0], logged(tmp_path, *PARTS)
    assert chosen_unit(log, cluster, sharing=False)[0] == "core"
    whole = logged(tmp_path, *WHOLE)
    assert chosen_unit(whole, cluster, sharing=False)[0] == "node"
    assert chosen_unit(whole, cluster, sharing=True)[0] == "resources"


def test_without_nodes_there_are_cores(tmp_path: Path) -> None:
    """The nodes are not known, and that is said of a log that may be of whole nodes."""
    log = logged(tmp_path, *WHOLE)
    unit, notes = chosen_unit(log, None, sharing=None)
    assert (unit, "no --cluster" in notes) == ("core", True)
    assert chosen_unit(log, Cluster(Nodes.build(4)), sharing=None) == ("core", "")


@pytest.mark.parametrize("unit", ["core", "node", "resources"])
def test_a_log_that_does_not_fit_the_machine(tmp_path: Path, unit: str) -> None:
    """Both nodes' cores were held twice over: a line of its own names it."""
    (tmp_path / "slurm.conf").write_text(SMALL)
    cluster = read_cluster(tmp_path / "slurm.conf")[0]
    log = logged(tmp_path, *["16|16|n[1-2]"] * 3)
    options = WorkloadOptions(unit=unit)  # type: ignore[arg-type]
    fits = prepare(log, options, cluster)
    assert not any("do not fit" in notes for notes in fits.assumptions)
    start = np.full(3, log.outcomes.start[0])
    beside = log.outcomes.replace(start=start, end=start + 3600)
    moved = log.jobs.replace(submit=start)
    odd = prepare(type(log)(moved, beside, log.sources, log.format), options, cluster)
    (notes,) = [notes for notes in odd.assumptions if "do not fit" in notes]
    assert "300 % on average" in notes


def test_static_slots_of_one_core_are_cores() -> None:
    """Several on a host: a parallel job may take some of them, and is no job of several hosts."""
    names = {"name": [f"slot{k}@a" for k in range(4)], "host": ["a"]}
    slots = Nodes.build(4, names=names, name=np.arange(4, dtype=np.int32), host=np.zeros(4, int))
    log = Lublin(jobs=20, nodes=4, seed=1).log()
    assert chosen_unit(log, Cluster(slots), sharing=None)[0] == "core"
