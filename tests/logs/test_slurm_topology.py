"""topology.conf becomes the cells of a hyper-grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rtsched.errors import InputError
from rtsched.logs.cluster_files import read_cluster
from rtsched.replay.machine import by_node

if TYPE_CHECKING:
    from pathlib import Path

    from rtsched.model.cluster import Cluster

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
