"""What jobs ask for: nodes, disk, units; and which of them can be promised a deadline."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from workloads import ended

from rtsched.core.config import PluginTable
from rtsched.logs import ReadOptions, read_cluster, read_logs
from rtsched.logs.node_requests import nodes_with
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Jobs
from rtsched.model.log import Log, Outcomes
from rtsched.model.resources import allowed_nodes
from rtsched.replay.engine import replay
from rtsched.replay.machine import chosen_unit
from rtsched.replay.policies import Policy, presets
from rtsched.replay.resource_use import resource_use
from rtsched.replay.results import REASONS, Obstacle, Workload, obstacles, promisable_jobs
from rtsched.replay.settings import WorkloadOptions
from rtsched.replay.synth import Lublin
from rtsched.replay.workload import prepare
from rtsched.simulator.exclusive import ExclusiveNodes
from rtsched.simulator.settings import ExclusiveSettings

FEATURES = ("fast,gpu", "fast", "slow", None)
PLAIN = WorkloadOptions(deadline_rule="none")


def machine(features: tuple[str | None, ...] = FEATURES) -> Cluster:
    """Return nodes n1 to n4; partition `left` has n1 and n2, `right` n3 and n4."""
    left = np.array([True, True, False, False])
    nodes = Nodes.build(4, name=["n1", "n2", "n3", "n4"], features=list(features))
    return Cluster(nodes, {"left": left, "right": ~left})


def nested() -> Cluster:
    """Return the same, but `left` has all nodes."""
    some = machine()
    return replace(some, partitions={**some.partitions, "left": np.ones(4, np.bool_)})


def log(*requests: str | None, **columns: object) -> Log:
    """Return jobs of 5 s, all submitted at 0, with these requests for nodes."""
    n = len(requests)
    usual = {"id": np.arange(n) + 1, "submit": np.zeros(n), "wall_time": np.full(n, 5.0)}
    jobs = Jobs.build(n, node_request=list(requests), **{**usual, **columns})
    return Log(jobs, Outcomes.build(n, run_time=np.full(n, 5.0)), ("a.log",), "sacct")


def nodes_of(asked: Log, cluster: Cluster | None = None) -> list[str]:
    """Return the nodes that each job may use, as digits; `-`: all."""
    work = prepare(asked, PLAIN, machine() if cluster is None else cluster)
    code, masks = allowed_nodes(work.jobs, work.cluster)
    digits = ["".join(str(at + 1) for at in np.flatnonzero(mask)) for mask in masks]
    return [digits[at] if at >= 0 else "-" for at in code.tolist()]


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("fast", [1, 1, 0, 0]),
        ("fast&gpu", [1, 0, 0, 0]),
        ("gpu|slow", [1, 0, 1, 0]),
        ("gpu|slow&fast", [1, 0, 0, 0]),
        ("gpu|(slow&fast)", [1, 0, 0, 0]),
        ("(gpu|slow)&(fast|slow)", [1, 0, 1, 0]),
        ("fast & gpu", [1, 0, 0, 0]),
        ("none", [0, 0, 0, 0]),
        *((text, None) for text in ("fast*2", "[fast|slow]", "(fast", "fast&", "|fast", "", "a b")),
        *((text, None) for text in ("fast)", "()", "[a*2&b*3]")),
    ],
)
def test_constraints(text: str, nodes: list[int] | None) -> None:
    """Operators apply from left to right; what cannot be said by a set of nodes is None."""
    words = [(some or "").split(",") for some in FEATURES]
    found = nodes_with(text, lambda name: np.array([name in some for some in words]))
    assert (None if found is None else found.astype(int).tolist()) == nodes


def test_features_lists_and_partitions_choose_nodes() -> None:
    """A partition that the log ends with holds as well, unless several were asked for."""
    asked = log(
        "--constraint=fast",
        "--constraint=fast --exclude=n1",
        "--nodelist=n[2-3]",
        "--constraint=slow|fast",
        "--partition=left,right",
        "--constraint=fast --partition=left,right",
        None,
        partition=[None, None, None, "right", "left", "right", "left"],
    )
    assert nodes_of(asked) == ["12", "2", "23", "3", "-", "12", "12"]
    (notes,) = [
        text for text in prepare(asked, PLAIN, machine()).assumptions if "--nodelist" in text
    ]
    assert notes.startswith(
        "6 jobs with a --constraint, --nodelist, --exclude or several partitions"
    )


@pytest.mark.parametrize(
    ("asked", "notes"),
    [
        ("--constraint=[fast|slow]", "1 job with a --constraint that counts nodes or has brackets"),
        ("--constraint=gone", "1 job with a request for nodes that too few of the machine meet"),
        ("--nodelist=x9", "1 job with a --nodelist or --exclude that is no list of the machine's"),
        ("--nodelist=./hosts", "1 job with a --nodelist or --exclude that is no list"),
    ],
)  # fmt: skip
def test_what_cannot_be_replayed_is_told(asked: str, notes: str) -> None:
    """The job then runs on any node of its partition."""
    work = prepare(log(asked, partition=["left"]), PLAIN, machine())
    assert [text.startswith(notes) for text in work.assumptions].count(True) == 1
    assert nodes_of(log(asked, partition=["left"])) == ["12"]


def test_wide_jobs_keep_their_partition_and_unknown_features_are_told() -> None:
    """A job of two nodes must not be spread over two partitions."""
    wide = log("--partition=left,right", partition=["right"], size=[2])
    assert nodes_of(wide) == ["34"]
    notes = prepare(wide, PLAIN, machine()).assumptions
    assert any(text.startswith("1 job of more than one node or processor") for text in notes)
    assert nodes_of(log("--partition=left,right", partition=["right"], size=[2]), nested()) == ["-"]
    bare = machine((None,) * 4)
    assert nodes_of(log("--constraint=fast"), bare) == ["-"]
    notes = prepare(log("--constraint=fast"), PLAIN, bare).assumptions
    assert any("of a machine whose features are not known" in text for text in notes)


@pytest.mark.parametrize("unit", ["node", "resources"])
@pytest.mark.parametrize("loop", ["fcfs", "easy", "conservative"])
def test_jobs_run_on_the_nodes_that_they_ask_for(unit: str, loop: str) -> None:
    """Two jobs want the only GPU node; a third takes the other fast node, in FCFS behind them."""
    asked = log("--constraint=gpu", "--constraint=gpu", "--constraint=fast")
    work = prepare(asked, WorkloadOptions(deadline_rule="none", unit=unit), machine())
    system = ended(
        ExclusiveNodes(
            work.jobs, work.run_time, work.cluster, ExclusiveSettings(loop=loop), record_nodes=True
        )
    )
    assert system.job_outcomes().start.tolist() == [0, 5, 5 if loop == "fcfs" else 0]
    assert system.node_rows()[1].tolist() == [0, 0, 1]


def test_no_later_job_has_the_node_that_another_waits_for() -> None:
    """Only n1 is of use to them, and the last asks for less time; n2 would be free all along."""
    asked = log(*["--nodelist=n1"] * 3, wall_time=[5.0, 8.0, 6.0], submit=[0.0, 3.0, 3.0])
    two = Cluster(Nodes.build(2, name=["n1", "n2"]))
    work = prepare(asked, PLAIN, two)
    for settings in (ExclusiveSettings(loop=loop) for loop in ("easy", "conservative")):
        run = replay(work, "x", Policy(system=settings))
        assert run.results.start.tolist() == [0, 5, 10]
        assert run.results.first_node.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("plugin", "unit"),
    [
        ("psts", "node"),
        ("psts", "resources"),
        ("sed", "node"),
        ("sed", "resources"),
        ("fastest", "node"),
    ],
)
def test_who_chooses_nodes_keeps_to_what_jobs_ask_for(plugin: str, unit: str) -> None:
    """One job wants the slow node, three the two fast ones: the last waits. n4 is faster still."""
    asked = log("--constraint=slow", *["--constraint=fast"] * 3)
    options = WorkloadOptions(deadline_rule="none", unit=unit, speeds={"n4": 2.0})
    work = prepare(asked, options, machine())
    done = replay(work, plugin, Policy(plugin=[PluginTable(name=plugin)]))
    assert done.results.start.tolist() == [0, 0, 0, 5]
    assert done.results.first_node.tolist()[:3] in ([2, 0, 1], [2, 1, 0])
    assert done.results.first_node[3] in {0, 1}


def test_features_of_processors_are_those_of_their_node() -> None:
    """With a row per core, a node's rows have its features."""
    nodes = Nodes.build(2, name=["a", "b"], cores=np.array([2, 1], np.int32), features=["x", "y"])
    assert nodes_of(log("--constraint=x"), Cluster(nodes)) == ["12"]
    assert nodes_of(log("--nodelist=b"), Cluster(nodes)) == ["3"]


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
    """Two of 60 MiB do not fit on 100 MiB, one of 40 beside the first does; 101 are not there."""
    # The default of a job that states nothing is small, and keeps nobody waiting.
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
    options = WorkloadOptions(unit=unit)
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
