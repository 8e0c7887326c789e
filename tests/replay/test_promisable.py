"""Which jobs of a log have a form that a deadline can be promised to, and why others do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from rtsched.logs import read_cluster, read_logs
from rtsched.logs.readers import ReadOptions
from rtsched.model.cluster import Cluster
from rtsched.model.jobs import Jobs
from rtsched.model.log import Log, Outcomes
from rtsched.replay.results import REASONS, Obstacle, obstacles, promisable_jobs
from rtsched.replay.workload import WorkloadOptions, prepare

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "JobID|User|Partition|Submit|Start|End|ElapsedRaw|TimelimitRaw|ReqCPUS|NNodes|State|ReqTRES"
RUN = "ann|all|1700000000|1700000000|1700000100|100"
JOINED = None
JOBS = {
    f"1|{RUN}|5|4|1|COMPLETED|cpu=4,mem=4G,node=1": Obstacle.NONE,
    f"2|{RUN}|5|4|1|COMPLETED|cpu=4,gres/gpu=1,mem=4G,node=1": Obstacle.GENERIC_RESOURCE,
    f"3_1|{RUN}|5|1|1|COMPLETED|cpu=1,mem=1G,node=1": Obstacle.NONE,
    f"4+0|{RUN}|5|1|1|COMPLETED|cpu=1,mem=1G,node=1": Obstacle.NONE,
    f"4+1|{RUN}|5|1|1|COMPLETED|cpu=1,mem=1G,node=1": JOINED,
    f"11+0|{RUN}|5|1|1|COMPLETED|cpu=1,mem=1G,node=1": Obstacle.GENERIC_RESOURCE,
    f"11+1|{RUN}|5|1|1|COMPLETED|cpu=1,gres/gpu=1,mem=1G,node=1": JOINED,
    f"5|{RUN}|5|1|1|COMPLETED|cpu=1,license/matlab=2,mem=1G,node=1": Obstacle.LICENSES,
    f"6|{RUN}|5|1|1|COMPLETED|cpu=1,gres/fpga=1,mem=1G,node=1": Obstacle.GENERIC_RESOURCE,
    f"7|{RUN}|5|1|1|COMPLETED|cpu=1,gres/gpu=3,mem=1G,node=1": Obstacle.GENERIC_RESOURCE,
    f"8|{RUN}|UNLIMITED|1|1|COMPLETED|cpu=1,mem=1G,node=1": Obstacle.NO_TIME_LIMIT,
    f"9|{RUN}|5|64|4|COMPLETED|cpu=64,mem=4G,node=4": Obstacle.TOO_LARGE,
    "10|ann|all|1700000000|Unknown|1700000009|0|5|1|1|CANCELLED by 7|cpu=1,mem=1G,node=1": (
        Obstacle.NONE
    ),
}
"""Lines of sacct, and what is in the way where jobs do not share nodes; `JOINED`: the line is a
component of the job on the line before."""

SHARED = {
    "11+": Obstacle.HETEROGENEOUS,  # one of the two components asks for a GPU
    "2|": Obstacle.NONE,  # a GPU that a node has
    "6|": Obstacle.UNKNOWN_RESOURCE,
    "5|": Obstacle.NONE,  # two licences of three
    "7|": Obstacle.TOO_LARGE,  # three GPUs, and the node has two
}
"""What differs where jobs share nodes by resources."""

NODES = """\
NodeName=g1 Arch=x86_64 CoresPerSocket=8
   CPUAlloc=0 CPUEfctv=8 CPUTot=8 CPULoad=0.00
   Gres=gpu:2
   RealMemory=16384 AllocMem=0 State=IDLE

NodeName=c1 Arch=x86_64 CoresPerSocket=8
   CPUAlloc=0 CPUEfctv=8 CPUTot=8 CPULoad=0.00
   Gres=(null)
   RealMemory=8192 AllocMem=0 State=IDLE

LicenseName=matlab
    Total=3 Used=2 Free=1 Reserved=0 Remote=no
"""


@pytest.mark.parametrize("unit", ["core", "node", "resources"])
def test_each_form(tmp_path: Path, unit: str) -> None:
    """Every obstacle by its line of the log; a job that never started counts by its form too."""
    (tmp_path / "log").write_text("\n".join([HEAD, *JOBS]) + "\n")
    (tmp_path / "nodes").write_text(NODES)
    log = read_logs([tmp_path / "log"], ReadOptions(resources=True))
    cluster = read_cluster(tmp_path / "nodes")[0]
    differs = SHARED if unit == "resources" else {}
    expected = [
        next((obstacle for begin, obstacle in differs.items() if line.startswith(begin)), plain)
        for line, plain in JOBS.items()
    ]
    expected = [obstacle for obstacle in expected if obstacle is not JOINED]
    found = prepare(log, WorkloadOptions(unit=unit), cluster).promisable
    assert found.jobs == len(expected)
    assert found.promisable == expected.count(Obstacle.NONE)
    assert found.share == pytest.approx(expected.count(Obstacle.NONE) / len(expected))
    assert found.others.count == {
        REASONS[obstacle]: expected.count(obstacle) for obstacle in set(expected) - {Obstacle.NONE}
    }
    if unit == "resources":
        assert found.others.first[REASONS[Obstacle.HETEROGENEOUS]] == "job 11+0"


@pytest.mark.parametrize(
    ("limit", "share"),
    [
        ("RtRunTime = 300", 1.0),
        ("AllowedExecuteDuration = 300", 1.0),
        ("AllowedJobDuration = 5 * 60", 1.0),
        ("JobLeaseDuration = 300", 0.0),  # of the claim, not of the job
    ],
)
def test_what_limits_a_job_of_htcondor(tmp_path: Path, limit: str, share: float) -> None:
    """A pool promises by the same attributes."""
    ad = ("ClusterId = 1", "ProcId = 0", "QDate = 1700000000", "RequestCpus = 1", "JobStatus = 4")
    times = ("JobCurrentStartDate = 1700000000", "CompletionDate = 1700000100")
    (tmp_path / "history").write_text("\n".join([*ad, *times, limit, "*** ", ""]))
    log = read_logs([tmp_path / "history"], ReadOptions())
    assert prepare(log, WorkloadOptions(), Cluster.uniform(1)).promisable.share == share


def test_the_first_obstacle_counts_and_the_most_frequent_is_told_first() -> None:
    """Codes are per job; a job without a size and without a limit has no size."""
    n = 5
    log = Log(
        Jobs.build(n, id=np.arange(n), wall_time=[60.0, np.inf, 0.0, 60.0, np.inf]),
        Outcomes.build(n),
        (),
        "swf",
    )
    size = np.array([1, 1, 9, 0, -1], np.int32)
    codes = obstacles(log, size, 4, Cluster.uniform(4))
    assert [Obstacle(code) for code in codes] == [
        Obstacle.NONE,
        Obstacle.NO_TIME_LIMIT,
        Obstacle.TOO_LARGE,
        Obstacle.NO_SIZE,
        Obstacle.NO_SIZE,
    ]
    found = promisable_jobs(log, codes)
    assert next(iter(found.others.count.items())) == (REASONS[Obstacle.NO_SIZE], 2)
    assert found.others.first[REASONS[Obstacle.NO_SIZE]] == "job 3"


def test_every_obstacle_has_words() -> None:
    """And an empty log has no share."""
    assert set(REASONS) == set(Obstacle) - {Obstacle.NONE}
    log = Log(Jobs.build(0), Outcomes.build(0), (), "swf")
    none = obstacles(log, np.zeros(0, np.int32), 4, Cluster.uniform(4))
    assert promisable_jobs(log, none).share is None
