"""Slurm's configuration: who preempts whom, cells of a topology, states of nodes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rtsched.errors import InputError
from rtsched.logs.cluster_files import read_cluster
from rtsched.logs.machine import slurm_state
from rtsched.logs.slurm_limits import mode_of, read_limits, read_preemption
from rtsched.model.cluster import Cluster, NodeState
from rtsched.model.jobs import Jobs
from rtsched.model.limits import Qos
from rtsched.model.log import Ending, Outcomes
from rtsched.model.preemption import Preemption, SitePreemption
from rtsched.replay.machine import by_node
from rtsched.replay.preemption import as_set, preemption_of_jobs

CONF = """PreemptType=preempt/qos   # comment
PreemptMode=SUSPEND,GANG
PreemptExemptTime=00:10:00
NodeName=n[1-4] CPUs=4
PartitionName=DEFAULT PriorityTier=2 Nodes=ALL
PartitionName=slow PriorityTier=1 PreemptMode=CANCEL
PartitionName=fast
"""
SHOWN = """NodeName=n1 CPUTot=4 State=IDLE

PartitionName=slow
   AllowGroups=ALL
   PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO
   OverTimeLimit=NONE PreemptMode=REQUEUE
   State=UP TotalCPUs=4 TotalNodes=1
"""
QOS = """Name|Priority|GraceTime|Preempt|PreemptExemptTime|PreemptMode|Flags
normal|5|00:00:00|scavenger||cluster|
scavenger|0|00:02:00||00:30:00|requeue|
urgent|900|00:00:00|normal,scavenger||cancel|
"""


def written(folder: Path, text: str) -> Path:
    """Return a file with a text."""
    path = folder / "given.txt"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("REQUEUE", "requeue"),
        ("SUSPEND,GANG", "suspend"),
        ("GANG", "off"),
        ("OFF", "off"),
        ("WITHIN, CANCEL", "cancel"),
        ("REQUEUE,CANCEL", None),
        ("EAT", None),
    ],
)
def test_what_becomes_of_a_preempted_job(text: str, mode: str | None) -> None:
    """One word counts beside GANG and WITHIN."""
    assert mode_of(text) == mode


def test_a_slurm_conf(tmp_path: Path) -> None:
    """The site's own settings, and those of partitions with their defaults."""
    assert read_preemption(written(tmp_path, CONF)) == SitePreemption(
        by="qos",
        mode="suspend",
        exempt=600.0,
        tiers={"slow": 1, "fast": 2},
        partition_modes={"slow": "cancel"},
    )


def test_what_scontrol_shows(tmp_path: Path) -> None:
    """It tells of partitions, and not by what jobs preempt others."""
    assert read_preemption(written(tmp_path, SHOWN)) == SitePreemption(
        tiers={"slow": 1}, partition_modes={"slow": "requeue"}
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("PreemptType=preempt/luck", "PreemptType=preempt/luck is not known"),
        ("PreemptMode=EAT", "PreemptMode=EAT is not known (known: OFF, CANCEL, REQUEUE, SUSPEND)"),
        ("PreemptExemptTime=soon", "PreemptExemptTime=soon is not known"),
        ("PartitionName=p PriorityTier=-1", "PriorityTier=-1 is not known"),
        ("PartitionName=p PreemptMode=EAT", "PreemptMode=EAT is not known"),
    ],
)
def test_values_that_slurm_does_not_know(tmp_path: Path, line: str, words: str) -> None:
    """One sentence with file and line."""
    with pytest.raises(InputError) as caught:
        read_preemption(written(tmp_path, f"# a\n{line}\n"))
    assert words in str(caught.value)
    assert ":2:" in str(caught.value)


def test_qos(tmp_path: Path) -> None:
    """Empty cells are the site's."""
    found = read_limits(written(tmp_path, QOS), None).qos
    assert found == {
        "normal": Qos(preempts=("scavenger",), priority=5),
        "scavenger": Qos(preempt_mode="requeue", exempt=1800.0, grace=120.0),
        "urgent": Qos(preempts=("normal", "scavenger"), preempt_mode="cancel", priority=900),
    }


def test_qos_in_a_circle(tmp_path: Path) -> None:
    """Slurm refuses it, and no replay of it would end."""
    text = QOS.replace("00:02:00||", "00:02:00|urgent|")
    with pytest.raises(InputError, match=r"given.txt:2: Preempt of normal leads back to normal"):
        read_limits(written(tmp_path, text), None)


def jobs_of(*rows: tuple[str, str]) -> Jobs:
    """Return jobs of these QOS and partitions."""
    qos, partition = zip(*rows, strict=True)
    n = len(rows)
    return Jobs.build(n, id=np.arange(n), submit=np.zeros(n), qos=qos, partition=partition)


JOBS = jobs_of(("normal", "slow"), ("scavenger", "slow"), ("urgent", "fast"), ("normal", "fast"))


def found(site: SitePreemption, **more: Any) -> tuple[Preemption | None, list[str]]:
    """Return who of the jobs may preempt whom, and what is said."""
    notes: list[str] = []
    ending = more.pop("ending", [Ending.COMPLETED] * len(JOBS))
    outcomes = Outcomes.build(len(JOBS), ending=np.array(ending, np.int8))
    return preemption_of_jobs(JOBS, outcomes, site, more.pop("qos", None), notes), notes


def pairs(preemption: Preemption) -> set[tuple[int, int]]:
    """Return which job may preempt which."""
    kind = preemption.kind
    n = range(len(kind))
    return {(a, b) for a in n for b in n if preemption.may[kind[a], kind[b]]}


def test_by_qos(tmp_path: Path) -> None:
    """Scavengers are requeued, normal ones meet the site's mode, urgent ones are in no list."""
    qos = read_limits(written(tmp_path, QOS), None).qos
    preemption, notes = found(SitePreemption("qos", "cancel", exempt=60.0), qos=qos)
    assert preemption is not None
    assert pairs(preemption) == {(0, 1), (3, 1), (2, 0), (2, 1), (2, 3)}
    kind = preemption.kind
    assert preemption.cancels[kind].tolist() == [True, False, True, True]
    assert preemption.rank[kind].tolist() == [5.0, 0.0, 900.0, 5.0]
    assert preemption.exempt[kind].tolist() == [60.0, 1800.0, 60.0, 60.0]
    assert notes == [
        "3 jobs may preempt 3 others by QOS (then requeued, to begin again: 1; cancelled: 2): on "
        "machine 'exclusive' with loop 'fcfs' or 'easy', and no promised job is preempted.",
        "1 job with a GraceTime: preempted jobs end at once.",
    ]
    preemption, notes = found(SitePreemption("qos", "suspend"), qos=qos)
    assert preemption is not None
    assert pairs(preemption) == {(0, 1), (3, 1), (2, 1)}
    assert notes[0] == (
        "2 jobs that Slurm would suspend for others (PreemptMode=SUSPEND): no job is suspended in "
        "the replay, so they are not preempted."
    )


def test_by_partition() -> None:
    """The higher tier preempts; a partition with `OFF` is not preempted."""
    site = SitePreemption("partition_prio", "requeue", tiers={"fast": 2})
    preemption, _ = found(site)
    assert preemption is not None
    assert pairs(preemption) == {(2, 0), (2, 1), (3, 0), (3, 1)}
    preemption, notes = found(replace(site, partition_modes={"slow": "off"}))
    assert preemption is None
    assert notes == ["Preemption by PriorityTier: no job of the log may preempt another one."]


def test_where_nobody_preempts() -> None:
    """Jobs that the log shows as preempted are counted; settings come before slurm.conf."""
    ending = [Ending.PREEMPTED, Ending.COMPLETED, Ending.PREEMPTED, Ending.COMPLETED]
    preemption, notes = found(SitePreemption(), ending=ending)
    assert preemption is None
    assert notes == [
        "2 jobs preempted in the log: preemption is not replayed, and they run for as long as they "
        "ran there (`--preempt-type` replays it)."
    ]
    assert found(SitePreemption("qos", "off"), qos={}) == (None, [])
    site = SitePreemption("qos", "cancel")
    assert as_set(site, "conf", "conf") == site
    assert as_set(site, "none", "conf").by == "none"
    assert as_set(site, "conf", "requeue").mode == "requeue"
    assert as_set(SitePreemption(), "partition_prio", "conf").mode == "requeue"
    assert as_set(SitePreemption(), "qos", "off").mode == "off"


TREE = """
# two leaves below one switch
SwitchName=leaf0 Nodes=n[0-2]
switchname=leaf1 Nodes=n[3-4] LinkSpeed=100
SwitchName=top Switches=leaf[0-1]
"""


def cluster(tmp_path: Path, topology: str, nodes: str = "n[0-4] CPUs=2") -> Cluster:
    """Return what a slurm.conf with this topology.conf beside it describes."""
    (tmp_path / "slurm.conf").write_text(f"NodeName={nodes}\n", "utf-8")
    (tmp_path / "topology.conf").write_text(topology, "utf-8")
    return read_cluster(tmp_path / "slurm.conf")[0]


def test_levels_of_switches_are_axes(tmp_path: Path) -> None:
    """Two leaf switches of at most three nodes of two processors: 2 x 3 x 2 cells."""
    found = cluster(tmp_path, TREE).topology
    assert found.shape == (2, 3, 2)
    assert found.cell.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_whole_nodes_keep_their_place(tmp_path: Path) -> None:
    """Where rows are whole nodes the axis of processors goes."""
    found = by_node(cluster(tmp_path, TREE)).topology
    assert found.shape == (2, 3)
    assert found.cell.tolist() == [0, 1, 2, 3, 4]


def test_order_of_the_tree_counts(tmp_path: Path) -> None:
    """Cells follow the switches, not the order of slurm.conf."""
    found = cluster(tmp_path, "SwitchName=a Nodes=n[2-3]\nSwitchName=b Nodes=n[0-1]\n", "n[0-3]")
    assert found.topology.shape == (2, 2)
    assert found.topology.cell.tolist() == [2, 3, 0, 1]


def test_blocks_are_leaves(tmp_path: Path) -> None:
    """The block plug-in's file is read alike."""
    text = "BlockName=b1 Nodes=n[0-1]\nBlockName=b2 Nodes=n[2-3]\nBlockSizes=2\n"
    assert cluster(tmp_path, text, "n[0-3]").topology.shape == (2, 2)


def test_unknown_nodes_come_last(tmp_path: Path) -> None:
    """A node that no switch names is on a switch of its own, and that is said."""
    (tmp_path / "slurm.conf").write_text("NodeName=n[0-2]\n", "utf-8")
    (tmp_path / "topology.conf").write_text("SwitchName=a Nodes=n[1-2]\n", "utf-8")
    found, notes = read_cluster(tmp_path / "slurm.conf")
    assert found.topology.cell.tolist() == [2, 0, 1]
    assert any("leaves out" in sentence for sentence in notes)


def test_a_very_uneven_tree_is_a_line(tmp_path: Path) -> None:
    """One big switch among many of one node would leave the grid almost empty."""
    leaves = "".join(f"SwitchName=s{k} Nodes=n{k}\n" for k in range(30))
    found = cluster(tmp_path, leaves + "SwitchName=big Nodes=n[30-59]\n", "n[0-59]").topology
    assert found.shape == (60,)
    assert found.cell.tolist() == list(range(60))


def test_a_file_about_other_nodes_is_left_alone(tmp_path: Path) -> None:
    """Nothing is said of nodes that this cluster does not have."""
    assert cluster(tmp_path, "SwitchName=a Nodes=other[0-9]\n").topology.shape == ()


def test_a_switch_below_itself_is_refused(tmp_path: Path) -> None:
    """A circle of switches is one clear sentence."""
    circle = "SwitchName=r Switches=a\nSwitchName=a Switches=b\nSwitchName=b Switches=a,c\n"
    with pytest.raises(InputError, match="below itself"):
        cluster(tmp_path, circle + "SwitchName=c Nodes=n[0-4]\n")
    with pytest.raises(InputError, match="below another"):
        cluster(tmp_path, "SwitchName=a Switches=b\nSwitchName=b Switches=a\n")


def test_a_topology_alone_is_a_machine(tmp_path: Path) -> None:
    """Its nodes count as one processor each, in the order of the tree, whatever its name is."""
    (tmp_path / "tree.conf").write_text(TREE, "utf-8")
    found, notes = read_cluster(tmp_path / "tree.conf")
    assert found.nodes.names("name") == ("n0", "n1", "n2", "n3", "n4")
    assert found.topology.shape == (2, 3)
    assert found.topology.cell.tolist() == [0, 1, 2, 3, 4]
    assert any("does not tell processors" in sentence for sentence in notes)


UP = "ALLOCATED IDLE MIXED UNKNOWN IDLE+CLOUD IDLE+DYNAMIC_NORM MIXED+PLANNED IDLE+RESERVED idle-"
SAVING = (
    "IDLE+CLOUD+POWERED_DOWN MIXED+CLOUD+POWER_DOWN IDLE+CLOUD+POWERING_DOWN idle~ idle! idle% "
    "ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP alloc# mix# IDLE+CLOUD+POWER IDLE+POWER_DRAIN "
    "IDLE+NOT_RESPONDING+POWERED_DOWN IDLE#+CLOUD pow_dn pow_up"
)
BOOTING = "IDLE+REBOOT_REQUESTED MIXED+REBOOT_ISSUED+NOT_RESPONDING boot^ idle@"
DRAINED = (
    "IDLE+DRAIN MIXED+DRAIN IDLE+CLOUD+DRAIN+POWERED_DOWN drained drng draining IDLE+MAINTENANCE "
    "maint idle$ failg FAILING IDLE+INVALID_REG inval"
)
DOWN = (
    "DOWN DOWN*+DRAIN down* DOWN+CLOUD+POWERED_DOWN IDLE+NOT_RESPONDING idle* IDLE*+CLOUD FUTURE "
    "futr ERROR FAIL down~"
)


@pytest.mark.parametrize(
    ("states", "meant"),
    [
        (UP, NodeState.UP),
        (SAVING, NodeState.UP),
        (BOOTING, NodeState.UP),
        (DRAINED, NodeState.DRAINED),
        (DOWN, NodeState.DOWN),
    ],
)
def test_states(states: str, meant: NodeState) -> None:
    """A node that saves energy or boots takes jobs; one that is drained or lost does not."""
    found = {state: slurm_state(state.split("+")) for state in states.split()}
    assert found == dict.fromkeys(found, meant)
