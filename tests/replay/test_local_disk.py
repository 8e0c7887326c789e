"""Disk of slots, from a history of HTCondor and its machine ads to starts and promises."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rtsched.logs import ReadOptions, read_cluster, read_logs
from rtsched.replay.engine import replay
from rtsched.replay.policies import presets
from rtsched.replay.resource_use import resource_use
from rtsched.replay.workload import WorkloadOptions, prepare

if TYPE_CHECKING:
    from pathlib import Path

    from rtsched.replay.results import Workload

KIB, MIB = 2**10, 2**20

SLOT = """\
Name = "slot1@{name}"
Machine = "{name}"
PartitionableSlot = true
TotalSlotCpus = 8
TotalSlotMemory = 4096
{disk}

"""
DISK = "Disk = 1024.0\nTotalSlotDisk = 103000.0"
"""100 MiB, and a part of another."""

JOB = """\
ClusterId = {number}
ProcId = 0
Owner = "ann"
JobStatus = 4
JobUniverse = 5
QDate = {submit}
JobStartDate = {submit}
CompletionDate = {end}
RtRunTime = 100
RequestCpus = 1
RequestMemory = 128
RequestDisk = {disk}
{more}

"""


def workload(folder: Path, *asked: tuple[str, str], slots: tuple[str, ...] = (DISK,)) -> Workload:
    """Return jobs of 100 s, submitted 1 s after one another, on machines of so much disk.

    Parameters
    ----------
    asked : (str, str)
        RequestDisk of each job, and further lines of its ad.
    slots : str
        A line of the ad of each slot.
    """
    jobs = [
        JOB.format(number=at, submit=1000 + at, end=1100 + at, disk=disk, more=more)
        for at, (disk, more) in enumerate(asked)
    ]
    (folder / "history").write_text("".join(jobs))
    ads = [SLOT.format(name=f"m{at}", disk=line) for at, line in enumerate(slots)]
    (folder / "status").write_text("".join(ads))
    log = read_logs([folder / "history"], ReadOptions(resources=True))
    return prepare(log, WorkloadOptions(unit="resources"), read_cluster(folder / "status")[0])


def test_what_jobs_ask_for(tmp_path: Path) -> None:
    """Whole MiB, as a startd gives them; what a job was given where its request is not known."""
    given = "DiskProvisioned = 4096"
    asked = [
        ("1", given),
        ("2048", ""),
        ("2049.5", ""),
        ("DiskUsage", "DiskUsage = 5000\n" + given),
        ("MAX({ 1024,(TransferInputSizeMB + 1) * 1.25 }) * 1024", given),
        ("MAX({ 1024,(TransferInputSizeMB + 1) * 1.25 }) * 1024", ""),
        ("undefined", ""),
        ("-5", ""),
        ("0", given),
    ]
    made = workload(tmp_path, *asked)
    column = made.jobs.names("demand").index("fs/disk")
    assert (made.jobs.demand[:, column] // MIB).tolist() == [1, 2, 3, 5, 4, 0, 0, 0, 0]
    assert (made.jobs.demand[:, column] % MIB == 0).all()
    at = made.cluster.nodes.names("capacity").index("fs/disk")
    assert made.cluster.nodes.capacity[:, at].tolist() == [103000 * KIB]


def test_jobs_wait_for_disk(tmp_path: Path) -> None:
    """Two of 60 MiB do not fit on 100 MiB, one of 40 beside the first does; 101 are not there.

    The default of a job that states nothing is small, and keeps nobody waiting.
    """
    tiny = ("DiskUsage", "DiskUsage = 20")
    asked = [("61440", ""), ("61000", ""), ("40000", ""), ("102401", "")]
    made = workload(tmp_path, *asked)
    assert made.skipped.count == {"too few nodes have what it asks for": 1}
    results = replay(made, "easy", presets()["easy"]).results
    assert results.start.tolist() == [1000.0, 1100.0, 1002.0]
    made = workload(tmp_path, tiny, ("101376", ""), tiny)
    results = replay(made, "easy", presets()["easy"]).results
    assert results.start.tolist() == [1000.0, 1001.0, 1100.0]
    use = resource_use(made, results)
    assert use is not None
    assert use.resources["fs/disk"].used_h == pytest.approx((1 + 99 + 1) / 1024 * 100 / 3600)


def test_promises_count_disk(tmp_path: Path) -> None:
    """Two of three jobs of 60 MiB end in time on one machine; another one takes the third."""
    asked = [("61440", f"RtDeadline = {1220 + at}") for at in range(3)]
    made = workload(tmp_path, *asked)
    results = replay(made, "mcdf", presets()["mcdf"]).results
    assert results.start[:2].tolist() == [1000.0, 1100.0]
    assert results.promise.tolist()[:2] == [1220.0, 1221.0]
    assert not results.promise[2] < float("inf")
    made = workload(tmp_path, *asked, slots=(DISK, DISK))
    assert replay(made, "mcdf", presets()["mcdf"]).results.promise.max() == 1222.0


def test_disk_that_is_not_known_does_not_count(tmp_path: Path) -> None:
    """Where one machine does not tell what it has, that is said with the number of jobs."""
    made = workload(tmp_path, ("61440", ""), ("61440", ""), ("0", ""), slots=(DISK, ""))
    assert "fs/disk" not in made.cluster.nodes.names("capacity")
    assert "fs/disk is not modelled (2 jobs): every node's is not known." in made.assumptions
