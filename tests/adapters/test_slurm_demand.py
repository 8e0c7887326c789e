"""What a job takes on each node, where jobs share nodes."""

from dataclasses import replace
from typing import Any

import pytest

from rtsched.adapters.slurm.facts import (
    Partition,
    Sharing,
    SlurmFacts,
    partitions_of,
    sharing_of,
)
from rtsched.adapters.slurm.layout import layout_of
from rtsched.adapters.slurm.per_node import Demand, demand_of, shown_demand
from rtsched.adapters.slurm.requirements import JobRequest, requirements_of
from rtsched.adapters.slurm.rows import node_rows
from rtsched.adapters.slurm.settings import SlurmSettings

GIB = 2**30
RESOURCES = ("cpu", "mem", "gres/gpu", "gres/gpu:a")
HARDWARE = (({"cpu": 16, "mem": 64 * GIB, "gres/gpu": 4, "gres/gpu:a": 4}, 4),)
PART = Partition("all", cores=16, nodes=4, core_memory=GIB, hardware=HARDWARE)


def taken(nodes: int = 1, part: Partition = PART, **asked: Any) -> Demand:
    """Return what a request takes on each of so many nodes."""
    return demand_of(JobRequest(**asked), part, Sharing(RESOURCES), nodes)


@pytest.mark.parametrize(
    ("nodes", "asked", "amounts"),
    [
        (1, {}, {"cpu": 1, "mem": GIB}),
        (1, {"tasks": 4, "per_task": 3}, {"cpu": 12, "mem": 12 * GIB}),
        (2, {"tasks": 5}, {"cpu": 3, "mem": 3 * GIB}),
        (3, {"tasks_per_node": 2}, {"cpu": 2, "mem": 2 * GIB}),
        (2, {}, {"cpu": 1, "mem": GIB}),
        (1, {"node_cpus": 6}, {"cpu": 6, "mem": 6 * GIB}),
        (1, {"memory": 5 * GIB}, {"cpu": 1, "mem": 5 * GIB}),
        (1, {"tasks": 2, "cpu_memory": 3 * GIB}, {"cpu": 2, "mem": 6 * GIB}),
        (1, {"tres_node": "gres/gpu:2"}, {"cpu": 1, "mem": GIB, "gres/gpu": 2}),
        (1, {"tres_node": "gres:gpu:a:2"}, {"cpu": 1, "mem": GIB, "gres/gpu": 2, "gres/gpu:a": 2}),
        (2, {"tasks": 4, "tres_task": "gres/gpu:1"}, {"cpu": 2, "mem": 2 * GIB, "gres/gpu": 2}),
        (2, {"tres_job": "gres/gpu:4"}, {"cpu": 1, "mem": GIB, "gres/gpu": 2}),
        (3, {"tres_job": "gres/gpu:4"}, {"cpu": 1, "mem": GIB, "gres/gpu": 2}),
        (2, {"tasks": 3, "tres_task": "gres/gpu:1"}, {"cpu": 2, "mem": 2 * GIB, "gres/gpu": 2}),
        (1, {"per_task": 2, "tres_task": "cpu=2"}, {"cpu": 2, "mem": 2 * GIB}),
        (
            1,
            {"per_task": 2, "tres_task": "cpu=2,gres/gpu:a=1"},
            {"cpu": 2, "mem": 2 * GIB, "gres/gpu": 1, "gres/gpu:a": 1},
        ),
        (
            1,
            {"tres_node": "gres/gpu:2", "gpu_cpus": 3, "gpu_memory": 4 * GIB},
            {"cpu": 6, "mem": 8 * GIB, "gres/gpu": 2},
        ),
        (
            1,
            {"tres_node": "gres/gpu:2", "tasks_per_gpu": 4},
            {"cpu": 8, "mem": 8 * GIB, "gres/gpu": 2},
        ),
        (1, {"tasks": 4, "tasks_per_gpu": 2}, {"cpu": 4, "mem": 4 * GIB, "gres/gpu": 2}),
        (1, {"tasks": 40, "overcommit": True}, {"cpu": 1, "mem": GIB}),
    ],
)
def test_amounts_per_node(nodes: int, asked: dict[str, Any], amounts: dict[str, int]) -> None:
    """One task per node if nothing is said; memory by processor; tasks as evenly as they go."""
    found = taken(nodes, **asked)
    assert (found.amounts, found.problem, found.exclusive) == (amounts, "", False)


def test_the_most_tasks_on_a_node() -> None:
    """Slurm would put fifteen of sixteen tasks on the first of two nodes."""
    assert taken(2, tasks=16).tasks == 8
    assert taken(2, tasks=5).tasks == 3
    assert taken(2, tasks=16, tasks_per_node=12).tasks == 12


def test_whole_nodes() -> None:
    """Without a default a job gets all memory of its nodes; nobody fits beside it."""
    bare = Partition("all", cores=16, hardware=HARDWARE)
    assert taken(part=bare).exclusive
    assert taken(all_memory=True).exclusive
    assert taken(exclusive=True).exclusive
    assert taken(
        part=Partition("all", core_memory=GIB, hardware=HARDWARE, exclusive=True)
    ).exclusive
    assert not taken(part=bare, memory=GIB).exclusive


def test_whole_cores_and_processors_for_memory() -> None:
    """Two threads per core; with MaxMemPerCPU, more processors for more memory."""
    threads = Partition("all", threads=2, core_memory=GIB, hardware=HARDWARE)
    assert taken(part=threads, tasks=3).amounts["cpu"] == 4
    part = replace(PART, most_core_memory=2 * GIB)
    found = demand_of(JobRequest(memory=7 * GIB), part, Sharing(RESOURCES), 1)
    assert found.amounts == {"cpu": 4, "mem": 7 * GIB}


@pytest.mark.parametrize(
    ("nodes", "asked", "problem"),
    [
        (1, {"tasks": 17}, "requests 17 processors per node; no node of partition all has more"),
        (1, {"memory": 65 * GIB}, "requests 66560 MiB of memory per node; no node of partition"),
        (1, {"tres_node": "gres/gpu:5"}, "requests 5 gres/gpu per node; no node of partition all"),
        (1, {"tres_node": "gres/gpu:b:1"}, "cannot plan with the type gres/gpu:b; add it to"),
        (1, {"tres_node": "gres/fpga:1"}, "cannot plan with gres/fpga; the admin may add it to"),
    ],
)
def test_what_cannot_be_had(nodes: int, asked: dict[str, Any], problem: str) -> None:
    """One sentence says what is too much, and what to give instead."""
    assert taken(nodes, **asked).problem.startswith(problem)


def test_what_squeue_shows() -> None:
    """The amounts are of all nodes together; where they are uneven, as on the fullest."""
    assert shown_demand("cpu=8,mem=4G,node=2,billing=8,gres/gpu=3,gres/gpu:a=3") == {
        "cpu": 4,
        "mem": 2 * GIB,
        "gres/gpu": 2,
        "gres/gpu:a": 2,
    }
    assert shown_demand("") == {}
    assert shown_demand("cpu=3,mem=50M") == {"cpu": 3, "mem": 50 * 2**20}


def test_how_a_site_shares_nodes() -> None:
    """By SelectType and its parameters; generic resources are those that accounting tracks."""
    config = {
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_CORE_MEMORY",
        "AccountingStorageTRES": "cpu,mem,energy,node,billing,gres/gpu,license/matlab",
        "PriorityType": "priority/multifactor",
    }
    found, problem = sharing_of(config)
    assert found == Sharing(("cpu", "mem", "gres/gpu"))
    assert not problem
    cores = sharing_of({**config, "SelectTypeParameters": "CR_CORE"})[0]
    assert cores.resources == ("cpu", "gres/gpu")
    for setting, needed in (("SelectType", "select/linear"), ("PriorityType", "priority/basic")):
        found, problem = sharing_of({**config, setting: needed})
        assert found == Sharing()
        assert problem.startswith(f"share_nodes needs {setting}=")


NODES = """\
NodeName=g1 CPUTot=16 CPUEfctv=16 ThreadsPerCore=2 RealMemory=64000 Gres=gpu:a:4(S:0) \
State=IDLE Partitions=all,top ActiveFeatures=big Weight=1
NodeName=c1 CPUTot=8 RealMemory=32000 Gres=(null) State=IDLE Partitions=all Weight=1
"""


@pytest.mark.parametrize(
    "alone", [{"oversubscribe": "EXCLUSIVE"}, {"exclusive": "NODE", "oversubscribe": "NO"}]
)
def test_capacities_and_partitions(alone: dict[str, str]) -> None:
    """Nodes have what they have; a partition knows which other one comes before it there."""
    said = {
        "all": {"prioritytier": "1", "defmempercpu": "100", "exclusive": "USER"},
        "top": {"prioritytier": "10", "defmempercpu": "1024", **alone},
    }
    sharing = Sharing(RESOURCES)
    layout = layout_of(node_rows(NODES), said, "all", set(), SlurmSettings(), 1, sharing)
    assert layout.cluster.shared
    assert layout.cluster.nodes.names("capacity") == RESOURCES
    mib = 2**20
    expected = [[16, 64000 * mib, 4, 4], [8, 32000 * mib, 0, 0]]
    assert layout.cluster.nodes.capacity.tolist() == expected
    every, top = layout.partitions["all"], layout.partitions["top"]
    assert (every.threads, every.core_memory, every.above) == (2, 100 * mib, "top")
    assert (top.exclusive, top.core_memory, top.above) == (True, GIB, "")
    assert not every.exclusive
    assert [every.most(name) for name in RESOURCES] == [16, 64000 * mib, 4, 4]
    small, large = (dict(zip(RESOURCES, row, strict=True)) for row in reversed(expected))
    assert every.hardware == ((small, 1), (large, 1))
    assert layout.parts.asked("all", "--constraint=big --partition=all")[0].above == "top"


def test_no_promise_behind_another_partition() -> None:
    """Slurm starts jobs of a higher PriorityTier first, and keeps nothing for jobs to come."""
    facts = SlurmFacts(
        partitions={
            "low": Partition("low", nodes=2, core_memory=GIB, hardware=HARDWARE, above="top")
        },
        default="low",
        sharing=Sharing(RESOURCES),
    )
    asked = JobRequest(limit=60.0, deadline=1e9)
    assert "which has a higher PriorityTier" in requirements_of(asked, facts).problem
    assert not requirements_of(asked, facts, fresh=False).problem
    late = JobRequest(limit=60.0, deadline=1e9, begin=5e8)
    assert requirements_of(late, facts).problem


CLUSTER = {"MaxMemPerNode": "40000", "DefMemPerCPU": "1024"}
"""What counts where a partition says nothing."""


def limited(settings: str, resources: tuple[str, ...], **asked: Any) -> Any:
    """Return the requirements of a job in a partition with these settings, of the nodes above."""
    said, default = partitions_of(f"PartitionName=all MaxTime=60 {settings}", CLUSTER)
    sharing = Sharing(resources)
    machine = layout_of(node_rows(NODES), said, default, set(), SlurmSettings(), 1, sharing)
    facts = SlurmFacts(
        partitions=machine.partitions, default="all", sharing=sharing, parts=machine.parts
    )
    return requirements_of(JobRequest(deadline=1e9, partition="all", **asked), facts)


@pytest.mark.parametrize(
    ("how", "resources", "refused"),
    [("YES:4", RESOURCES, True), ("NO", RESOURCES, False), ("YES:4", (), False)],
)
def test_a_job_that_would_share_its_cores(
    how: str, resources: tuple[str, ...], refused: bool
) -> None:
    """Only where its partition lets it, Slurm starts it beside no job that would not."""
    problem = limited(f"OverSubscribe={how}", resources, oversubscribe=True).problem
    assert ("(--oversubscribe); leave it out" in problem) == refused
    assert not limited(f"OverSubscribe={how}", resources).problem


@pytest.mark.parametrize("resources", [RESOURCES, ()])
@pytest.mark.parametrize(
    ("settings", "asked", "says"),
    [
        ("MaxCPUsPerNode=15", {}, "on a node by MaxCPUsPerNode=15 is not planned; use another"),
        ("MaxCPUsPerSocket=8", {}, "on a node by MaxCPUsPerSocket=8 is not planned; use another"),
        ("MaxCPUsPerNode=16 MaxCPUsPerSocket=UNLIMITED", {}, ""),
        ("MaxMemPerNode=3000", {"memory": 4 * GIB}, "has more than 3000"),
        ("MaxMemPerNode=3000", {"memory": 2 * GIB}, ""),
        ("MaxMemPerNode=3000", {"all_memory": True}, "(--mem=0); ask for at most 3000 MiB"),
        ("MaxMemPerNode=UNLIMITED", {"memory": 45 * GIB}, "has more than 40000"),
        ("MaxMemPerCPU=4000", {"memory": 45 * GIB}, ""),
        ("MaxMemPerNode=UNLIMITED MaxMemPerCPU=UNLIMITED", {"memory": 45 * GIB}, "than 40000"),
    ],
)
def test_what_a_partition_gives_no_job(
    resources: tuple[str, ...], settings: str, asked: dict[str, Any], says: str
) -> None:
    """Slurm never starts such a job: limits of a partition come before those of all."""
    problem = limited(settings, resources, **asked).problem
    assert says in problem
    assert bool(says) == bool(problem)


@pytest.mark.parametrize(
    ("other", "resources", "refused"),
    [("NO", RESOURCES, True), ("FORCE:2", RESOURCES, False), ("NO", (), False)],
)
def test_cores_that_jobs_share(other: str, resources: tuple[str, ...], refused: bool) -> None:
    """Slurm starts no such job beside one of a partition where they do not."""
    settings = f"OverSubscribe=FORCE:4\nPartitionName=top MaxTime=60 OverSubscribe={other}"
    problem = limited(settings, resources).problem
    assert ("a node by OverSubscribe=FORCE:4 is not planned; use another" in problem) == refused


@pytest.mark.parametrize("resources", [RESOURCES, ()])
@pytest.mark.parametrize(
    ("settings", "asked", "nodes", "says"),
    [
        ("MaxMemPerCPU=1000", {"tasks": 3, "cpus": 3, "cpu_memory": 1500 << 20}, 1, ""),
        ("MaxMemPerCPU=1000", {"tasks": 5, "cpus": 5, "cpu_memory": 1500 << 20}, 2, ""),
        ("MaxMemPerCPU=1000", {"per_task": 9, "cpu_memory": 1500 << 20}, 0, "18 processors"),
        ("MaxMemPerCPU=1000", {"memory": 20000 << 20}, 0, "20 processors"),
        ("MaxMemPerCPU=1000", {"all_memory": True}, 0, "processors"),
        ("MaxMemPerCPU=4000", {"all_memory": True}, 1, ""),
    ],
)
def test_processors_for_memory(
    resources: tuple[str, ...], settings: str, asked: dict[str, Any], nodes: int, says: str
) -> None:
    """Slurm gives each task, or node, as many as its memory needs, and refuses what no node has."""
    found = limited(settings, resources, **asked)
    assert says in found.problem
    assert bool(says) == bool(found.problem)
    assert not nodes or found.size == nodes


@pytest.mark.parametrize(("tasks", "more", "each"), [(8, True, 4), (7, True, 0), (7, False, 4)])
def test_uneven_tasks_with_more_processors(tasks: int, more: bool, each: int) -> None:
    """Slurm would never start so many on each of several nodes, if it gave them processors."""
    memory = 1500 if more else 1000
    asked = {"tasks": tasks, "cpus": tasks, "cpu_memory": memory << 20, "min_nodes": 2}
    found = limited("MaxMemPerCPU=1000", RESOURCES, max_nodes=2, **asked)
    assert (found.size, found.tasks_per_node) == (2, each)


def test_what_a_partition_gives_for_memory_and_gpus() -> None:
    """Processors for memory, and for GPUs processors and memory, of a job that names neither."""
    for_memory = limited("MaxMemPerCPU=1024", RESOURCES, memory=3 * GIB)
    assert for_memory.demand["cpu"] == 4
    said, _ = partitions_of(
        "PartitionName=a MaxMemPerNode=9\nPartitionName=b", {"MaxMemPerCPU": "5"}
    )
    assert [said[name].get("maxmempercpu", "") for name in "ab"] == ["", "5"]
    settings = "JobDefaults=DefCpuPerGPU=3,DefMemPerGPU=2048"
    of_gpus = limited(settings, RESOURCES, tres_node="gres/gpu:2").demand
    assert (of_gpus["cpu"], of_gpus["mem"]) == (6, 4 * GIB)
    named = limited(settings, RESOURCES, tres_node="gres/gpu:2", per_task=4, memory=GIB).demand
    assert (named["cpu"], named["mem"]) == (4, GIB)
