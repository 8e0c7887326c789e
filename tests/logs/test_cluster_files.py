"""Machines, as Slurm and HTCondor describe them."""

import json
from pathlib import Path

import pytest

from rtsched.errors import InputError
from rtsched.logs import read_cluster
from rtsched.logs.hostlist import expand
from rtsched.logs.slurm_limits import read_limits, read_preemption
from rtsched.model.cluster import NodeState

CONF = """
# a small cluster
ClusterName=test
Include nodes.conf
NodeName=DEFAULT CPUs=4 RealMemory=1000 State=UNKNOWN
NodeName=fast[1-2] Features=fast
NodeName=slow[01-03] Sockets=1 CoresPerSocket=1 CPUs=2 \\
    RealMemory=500 State=DRAIN   # being repaired
NodeName=later[1-9] State=FUTURE
NodeSet=quick Feature=fast
PartitionName=DEFAULT MaxTime=60
PartitionName=all Nodes=ALL Default=YES
PartitionName=fast Nodes=quick
PartitionName=slow Nodes=slow[01-02],nowhere
"""


def write(path: Path, text: str) -> Path:
    """Write a file."""
    path.write_text(text)
    return path


def test_slurm_conf(tmp_path: Path) -> None:
    """Defaults, continued lines, node sets and partitions."""
    cluster, notes = read_cluster(write(tmp_path / "slurm.conf", CONF))
    nodes = cluster.nodes
    assert len(cluster) == 2 * 4 + 3 * 2
    assert list(dict.fromkeys(nodes.texts("name"))) == [
        "fast1",
        "fast2",
        "slow01",
        "slow02",
        "slow03",
    ]
    assert nodes.memory[0] == 250 << 20
    assert nodes.state.tolist() == [NodeState.UP] * 8 + [NodeState.DRAINED] * 6
    assert cluster.partitions["all"].sum() == 14
    assert cluster.partitions["fast"].tolist() == [True] * 8 + [False] * 6
    assert cluster.partitions["slow"].sum() == 4
    assert "nodes.conf" in notes[0]


def test_included_files(tmp_path: Path) -> None:
    """Included files are read from beside the first one; loops end."""
    write(tmp_path / "nodes.conf", "NodeName=more CPUs=3\ninclude nodes.conf\n")
    cluster, notes = read_cluster(write(tmp_path / "slurm.conf", CONF))
    assert cluster.partitions["all"].sum() == 17
    assert "include each other" in notes[0]
    path = write(tmp_path / "slurm.conf", "ClusterName=c\nInclude elsewhere.conf\n")
    with pytest.raises(
        InputError, match=r"no node in it; the included file elsewhere.conf is left"
    ):
        read_cluster(path)


def test_licenses_of_slurm_conf(tmp_path: Path) -> None:
    """One if no number is given; on several lines, and of a server by its name."""
    text = "Licenses=matlab:30,fluent\nNodeName=a CPUs=2\nlicenses=ansys@flex=5,,x:y\n"
    cluster, _ = read_cluster(write(tmp_path / "x", text))
    assert cluster.licenses == {
        "license/matlab": 30,
        "license/fluent": 1,
        "license/ansys@flex": 5,
    }


@pytest.mark.parametrize("separator", ["\n    ", " "])
def test_licenses_that_scontrol_shows(tmp_path: Path, separator: str) -> None:
    """Behind the nodes, on one line each or on several; without those that are reserved."""
    shown = [
        ("LicenseName=matlab", "Total=30 Used=5 Free=21 Reserved=4 Remote=no"),
        ("LicenseName=ansys@flex", "Total=2 Used=0 Free=2 Reserved=3 Remote=yes"),
    ]
    licenses = "".join(f"{name}{separator}{numbers}\n" for name, numbers in shown)
    cluster, _ = read_cluster(write(tmp_path / "x", SHOWN + licenses))
    assert cluster.licenses == {"license/matlab": 26, "license/ansys@flex": 0}
    assert len(cluster) == len(read_cluster(write(tmp_path / "y", SHOWN))[0])


def test_processors_from_sockets(tmp_path: Path) -> None:
    """Without CPUs, sockets, cores and threads count."""
    text = "NodeName=a Sockets=2 CoresPerSocket=4 ThreadsPerCore=2\n"
    assert len(read_cluster(write(tmp_path / "x", text))[0]) == 16


KEPT = "Sockets=2 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=1000 MemSpecLimit=100"


@pytest.mark.parametrize(
    ("line", "cpus"),
    [
        (f"NodeName=a CoreSpecCount=3 {KEPT}", 10),
        (f'NodeName=a CpuSpecList="0-1,8,15" {KEPT}', 12),
        (f"NodeName=a CPUAlloc=0 CPUTot=16 CoreSpecCount=3 CPUSpecList=1-3,9-11 {KEPT}", 10),
        (f"NodeName=a CPUAlloc=0 CPUEfctv=10 CPUTot=16 CoreSpecCount=3 {KEPT} Reason=CPUTot=1", 10),
    ],
)
def test_what_nodes_keep_for_the_system(tmp_path: Path, line: str, cpus: int) -> None:
    """No job gets it, by slurm.conf or by scontrol of old and new releases."""
    cluster, _ = read_cluster(write(tmp_path / "x", line + "\n"))
    assert len(cluster) == cpus
    assert int(cluster.nodes.memory.sum()) >> 20 in range(890, 901)


SHOWN = """NodeName=fast1 Arch=x86_64 CoresPerSocket=1
   CPUAlloc=0 CPUEfctv=4 CPUTot=4 CPULoad=0.31
   RealMemory=1000 AllocMem=0 FreeMem=2 Sockets=4 Boards=1
   State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=1
   AvailableFeatures=big,ssd ActiveFeatures=ssd,big
   Partitions=all,fast

NodeName=slow1 Arch=x86_64 CoresPerSocket=1
   CPUAlloc=0 CPUTot=2 CPULoad=0.31
   RealMemory=500 State=DOWN*+DRAIN Partitions=all ActiveFeatures=(null)
"""


@pytest.mark.parametrize(
    ("shown", "forced"),
    [
        ("OverSubscribe=FORCE:2", True),
        ("Shared=FORCE", True),
        ("OverSubscribe=FORCE:1", False),
        ("OverSubscribe=NO", False),
    ],
)
def test_partitions_whose_jobs_share_cores(tmp_path: Path, shown: str, forced: bool) -> None:
    """A replay gives each core to one job, whatever the machine does."""
    text = f"{SHOWN}\nPartitionName=all Nodes=fast1,slow1 {shown}\n"
    _, notes = read_cluster(write(tmp_path / "nodes", text))
    sentence = "jobs of all may share cores (OverSubscribe=FORCE): not replayed"
    assert (sentence in notes) is forced


def test_scontrol_text_of_which_some_fields_are_left(tmp_path: Path) -> None:
    """Processors are CPUTot, not those of a slurm.conf, where nothing else would be known."""
    text = "NodeName=a CPUTot=4 RealMemory=1000 State=IDLE Partitions=all\n"
    cluster, _ = read_cluster(write(tmp_path / "nodes", text))
    assert len(cluster) == 4
    assert list(cluster.partitions) == ["all"]


@pytest.mark.parametrize("oneline", [False, True])
def test_scontrol_text(tmp_path: Path, oneline: bool) -> None:
    """`scontrol show nodes`, with and without `-o`."""
    text = SHOWN.replace("\n   ", " ").replace("\n\n", "\n") if oneline else SHOWN
    cluster, _ = read_cluster(write(tmp_path / "nodes", text))
    assert cluster.nodes.texts("name") == ["fast1"] * 4 + ["slow1"] * 2
    assert cluster.nodes.state.tolist() == [NodeState.UP] * 4 + [NodeState.DOWN] * 2
    assert cluster.partitions["fast"].tolist() == [True] * 4 + [False] * 2
    assert cluster.nodes.texts("features") == ["big,ssd"] * 4 + [None] * 2
    assert cluster.usable.sum() == 4


@pytest.mark.parametrize("wrapped", [False, True])
def test_scontrol_json(tmp_path: Path, wrapped: bool) -> None:
    """`scontrol show nodes --json` of old and new releases."""

    def number(value: int) -> object:
        return {"set": True, "infinite": False, "number": value} if wrapped else value

    node = {
        "name": "n1",
        "cpus": number(4),
        "real_memory": number(1000),
        "specialized_memory": number(200),
        "state": ["MIXED", "DRAIN"] if wrapped else "mixed+drain",
        "partitions": ["all"],
        "active_features": ["ssd", "big"] if wrapped else "ssd,big",
    }
    cluster, _ = read_cluster(write(tmp_path / "nodes", json.dumps({"nodes": [node], "meta": {}})))
    assert len(cluster) == 4
    assert cluster.nodes.texts("features") == ["big,ssd"] * 4
    assert cluster.nodes.state[0] == NodeState.DRAINED
    assert cluster.nodes.memory.sum() == 800 << 20
    assert cluster.partitions["all"].all()


SLOTS = """MyType = "Machine"
Name = "slot1@a"
Machine = "a"
PartitionableSlot = true
Cpus = 1
TotalSlotCpus = 8
TotalSlotMemory = 4096
State = "Unclaimed"

Name = "slot1_1@a"
Machine = "a"
DynamicSlot = true
Cpus = 7

Name = "slot1@b"
Machine = "b"
Cpus = 2
Memory = 512
State = "Drained"
"""


def test_condor_status(tmp_path: Path) -> None:
    """Partitionable slots count whole, their dynamic ones not at all."""
    cluster, notes = read_cluster(write(tmp_path / "status", SLOTS))
    assert cluster.nodes.texts("name") == ["slot1@a"] * 8 + ["slot1@b"] * 2
    assert cluster.nodes.texts("host")[-1] == "b"
    assert cluster.nodes.memory.tolist() == [512 << 20] * 8 + [256 << 20] * 2
    assert cluster.nodes.state[-1] == NodeState.DRAINED
    assert "dynamic" in notes[0]
    slots = [{"Name": "s", "Machine": "m", "Cpus": 3, "SlotType": "Static"}]
    assert len(read_cluster(write(tmp_path / "json", json.dumps(slots)))[0]) == 3


@pytest.mark.parametrize("noise", ["[ann@login ~]$ show nodes\n", "Loading slurm/24\n\n"])
def test_messages_before_a_machine(tmp_path: Path, noise: str) -> None:
    """A prompt with a bracket begins no JSON, and what a shell says before JSON hides none."""
    nodes = json.dumps({"nodes": [{"name": "n1", "cpus": 6, "state": ["IDLE"]}]})
    for text, size in ((SHOWN, 6), (SLOTS, 10), (nodes, 6)):
        assert len(read_cluster(write(tmp_path / "x", noise + text))[0]) == size


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("", "no node in it"),
        ("hello\n", "no node in it"),
        ("NodeName=a[1-", "no node list"),
        ("NodeName=a[1-99999999] CPUs=1", "more than 1,000,000 nodes"),
        ("NodeName=a CPUs=999999999", "describes 999,999,999 processors"),
        ("NodeName=a CPUs=0", "describes 0 processors"),
        ('{"nodes": 3}', "no `scontrol show nodes --json`"),
        ('{"nodes": [', "no `scontrol show nodes --json`"),
        ('{"nodes": []}', "no node in it"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, notes: str) -> None:
    """What is no machine is refused in one sentence."""
    with pytest.raises(InputError, match=notes):
        read_cluster(write(tmp_path / "x", text))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ["a"]),
        ("a,b2", ["a", "b2"]),
        ("fast[1-3,7]", ["fast1", "fast2", "fast3", "fast7"]),
        ("n[08-10]", ["n08", "n09", "n10"]),
        ("r[1-2]n[1-2]x,z", ["r1n1x", "r1n2x", "r2n1x", "r2n2x", "z"]),
        ("", []),
    ],
)
def test_node_lists(text: str, names: list[str]) -> None:
    """Brackets stand for their numbers."""
    assert expand(text) == names


@pytest.mark.parametrize("text", ["a[", "a]", "a[x]", "a[1-]", "a[[1]]", "a b"])
def test_wrong_node_lists(text: str) -> None:
    """What is no node list is refused."""
    with pytest.raises(ValueError, match=r"node|range"):
        expand(text)


NODES_TEXT = """NodeName=n1 Arch=x86_64 CoresPerSocket=4
   CPUAlloc=0 CPUEfctv=8 CPUTot=8 CPULoad=0.00
   RealMemory=8000 State=IDLE Partitions=big,small
"""
NODES_JSON = json.dumps(
    {"nodes": [{"name": "n1", "cpus": 8, "real_memory": 8000, "state": ["IDLE"]}]}, indent=1
)


def partition(name: str, jobs: int, **more: object) -> dict[str, object]:
    """Return a partition as Slurm 24.11 shows it, with less beside."""
    return {
        "name": name,
        "nodes": {"configured": "n1", "total": 1},
        "qos": {"allowed": "", "deny": "", "assigned": f"part_{name}"},
        "maximums": {
            "oversubscribe": {"jobs": jobs, "flags": []},
            "time": {"set": False, "infinite": True, "number": 0},
        },
        "priority": {"job_factor": 1, "tier": 3 * jobs},
        "tres": {"billing_weights": "CPU=1.0,Mem=0.25G", "configured": "cpu=8,mem=8000M,node=1"},
        **more,
    }


def partitions_json(*jobs: int, **more: object) -> str:
    """Return the JSON of partitions with so many jobs a node."""
    named = zip(("big", "small"), jobs, strict=False)
    return json.dumps({"partitions": [partition(*each, **more) for each in named]}, indent=1)


@pytest.mark.parametrize(("exclusive", "whole"), [("NODE", True), ("NO", False), ("USER", False)])
def test_whole_nodes_as_slurm_26_shows_them(tmp_path: Path, exclusive: str, whole: bool) -> None:
    """`Exclusive=NODE` in place of `OverSubscribe=EXCLUSIVE`, and 0 jobs a node of all others."""
    path = tmp_path / "cluster"
    state = {"exclusive": exclusive, "oversubscribe": "NO", "state": ["UP"]}
    body = partitions_json(0, 0, partition=state, preempt_mode=["CLUSTER_GLOBAL"])
    assert read_cluster(write(path, NODES_JSON + "\n" + body))[0].gives_whole_nodes == whole
    assert read_preemption(path).partition_modes == {}
    told = (
        f"PartitionName=big\n   Exclusive={exclusive} GraceTime=0\n   OverSubscribe=NO State=UP\n"
    )
    assert read_cluster(write(path, NODES_TEXT + told))[0].gives_whole_nodes == whole


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("nodes", [NODES_TEXT, NODES_JSON])
@pytest.mark.parametrize("jobs", [(0, 0), (0, 1), (1, 4)])
def test_partitions_as_json(tmp_path: Path, order: int, nodes: str, jobs: tuple[int, int]) -> None:
    """Behind the nodes or before them, whichever form these have: all that the text tells."""
    both = [nodes, partitions_json(*jobs)]
    path = write(tmp_path / "cluster", "\n".join(both[::order]) + "\n")
    cluster, _ = read_cluster(path)
    assert len(cluster) == 8
    assert cluster.gives_whole_nodes == (jobs == (0, 0))
    assert cluster.billing is not None
    assert cluster.billing.partitions["big"] == {"cpu": 1.0, "mem": 0.25 / 2**30}
    assert read_preemption(path).tiers == {"big": 3 * jobs[0], "small": 3 * jobs[1]}
    assert read_limits(None, None, path).partition_qos == {"big": "part_big", "small": "part_small"}


def test_partitions_of_another_shape(tmp_path: Path) -> None:
    """Cut short, without names, and alone."""
    path = tmp_path / "cluster"
    with pytest.raises(InputError, match="show partition --json"):
        read_cluster(write(path, NODES_TEXT + partitions_json(0, 1)[:-9]))
    nameless = partitions_json(0, 1).replace('"name"', '"id"')
    with pytest.raises(InputError, match="a partition without a name"):
        read_cluster(write(path, NODES_TEXT + nameless))
    with pytest.raises(InputError, match="no node in it"):
        read_cluster(write(path, partitions_json(0, 1)))
    cluster, _ = read_cluster(write(path, NODES_TEXT + '{"partitions": []}\n'))
    assert cluster.billing is None
    old = partitions_json(0, 1, maximums={"shares": 0}, priority={}, tres={}, qos={})
    assert read_cluster(write(path, NODES_TEXT + old))[0].gives_whole_nodes


def test_slots_as_xml(tmp_path: Path) -> None:
    """As `condor_status -xml` prints them."""
    slot = (
        '<c><a n="Name"><s>slot1@m</s></a><a n="Machine"><s>m</s></a><a n="SlotID"><i>1</i></a>'
        '<a n="TotalSlotCpus"><i>8</i></a><a n="TotalSlotMemory"><i>4096</i></a>'
        '<a n="PartitionableSlot"><b v="t"/></a></c>'
    )
    text = (
        f'<?xml version="1.0"?>\n<!DOCTYPE classads SYSTEM "x">\n<classads>\n{slot}\n</classads>\n'
    )
    cluster, _ = read_cluster(write(tmp_path / "slots", text))
    assert (len(cluster), cluster.nodes.texts("name")[0]) == (8, "slot1@m")
    assert cluster.nodes.memory[0] == 512 << 20
