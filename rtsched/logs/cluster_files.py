"""Descriptions of a machine: slurm.conf, topology.conf, `scontrol show nodes`, `condor_status`."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rtsched.errors import InputError
from rtsched.logs.ad_files import is_xml, read_ads
from rtsched.logs.classads import Record, number, text
from rtsched.logs.machine import Node, cluster_of
from rtsched.logs.slurm_cluster import (
    Described,
    as_shown,
    billing_of,
    from_conf,
    from_json,
    gives_whole_nodes,
    nodes_json,
    shares_cores,
    topology_of,
    topology_places,
    with_partitions_as_text,
)
from rtsched.logs.source import Source, is_json, readable
from rtsched.model.cluster import Cluster, NodeState
from rtsched.model.resources import DISK, GPU

if TYPE_CHECKING:
    from rtsched.logs.slurm_cluster import Place

LARGEST = 256 << 20
"""Bytes of the largest file that is read."""

_WANTED = (
    "name machine cpus totalslotcpus totalcpus memory totalslotmemory gpus totalslotgpus totalgpus "
    "disk totalslotdisk state activity offline partitionableslot dynamicslot slottype"
)
_SLOT = frozenset(_WANTED.split())
_SLOT_HEAD = re.compile(rb"^(?:Machine|SlotID|SlotType|TotalSlotCpus)[ \t]*=", re.M | re.I)
_SLOT_XML = re.compile(rb'<a n="(?:Machine|SlotID|SlotType|TotalSlotCpus)">', re.I)
_SLOT_JSON = re.compile(rb'"(?:Machine|SlotID|SlotType|TotalSlotCpus)"\s*:', re.I)


def read_cluster(path: str | Path) -> tuple[Cluster, tuple[str, ...]]:
    """Return the machine that a file describes, and what had to be assumed.

    The rows of the cluster are processors, as sizes of jobs count processors; a node's or
    slot's name is on all of its rows.

    Parameters
    ----------
    path : path
        A slurm.conf, the output of `scontrol show nodes` (text or --json) or of `condor_status
        -long` (or -json, -xml); its content tells which. The output of `scontrol show licenses`,
        and of `scontrol show partition` (text or --json), may follow in the same file. A
        topology.conf in the same directory as a slurm.conf or output of scontrol says how the nodes
        are linked. A topology.conf alone names nodes of one processor each.

    Raises
    ------
    InputError
        If the file cannot be read, or describes no machine.
    """
    notes: list[str] = []
    with Source(path) as source:
        tree = Path(source.path).parent / "topology.conf"
        nodes, licenses, billing, whole_nodes = _described(source, notes)
        if not nodes:
            tree = Path(source.path)
            nodes = _leaves(tree, notes)
        if not nodes:
            found = "; ".join(("no node in it", *notes))
            raise InputError(
                source.path,
                f"{found}; give a slurm.conf, the output of `scontrol show nodes` or of "
                "`condor_status -long`, or a topology.conf",
            )
        empty = sum(node.cpus <= 0 for node in nodes)
        if empty:
            notes.append(f"nodes without processors are left out ({empty:,})")
        nodes = [node for node in nodes if node.cpus > 0]
        cluster = replace(
            cluster_of(source.path, nodes),
            licenses=licenses,
            billing=billing,
            gives_whole_nodes=whole_nodes,
        )
        places = _places(tree, nodes, notes)
        if places:
            cluster = replace(cluster, topology=topology_of(places, nodes, notes))
        return cluster, tuple(notes)


def _leaves(path: Path, notes: list[str]) -> list[Node]:
    """Return the nodes that a topology.conf names, one processor each; none if it is another file.

    Such a file says nothing of processors. That is right where the log counts whole nodes.
    """
    try:
        places = topology_places(str(path), readable(path.read_bytes()), [])
    except (OSError, ValueError):
        return []
    if places:
        notes.append("topology.conf does not tell processors: each of its nodes counts as one")
    return [Node(name) for name in sorted(places, key=places.__getitem__)]


def _places(path: Path, nodes: list[Node], notes: list[str]) -> dict[str, Place]:
    """Return the places in the tree of switches, if the file is there and names these nodes."""
    if not path.is_file():
        return {}
    try:
        text = readable(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(path, f"cannot be read ({error}); check it or move it away") from error
    places = topology_places(str(path), text, notes)
    return places if any(node.name in places for node in nodes) else {}


def _described(source: Source, notes: list[str]) -> Described:
    """Return the nodes, licences and billing of a file."""
    head = source.head.lstrip()
    slots = _SLOT_JSON if is_json(head) else _SLOT_XML if is_xml(head) else _SLOT_HEAD
    if slots.search(head):
        return Described(_slots(source, notes), {})
    data = b""
    for block in source.blocks():
        data += block
        if len(data) > LARGEST:
            raise InputError(source.path, f"is larger than {LARGEST >> 20} MB; check the file")
    given = readable(data)
    text = with_partitions_as_text(source.path, given)
    whole = head[:1] == b"{" and text == given  # else there may be more than the JSON of nodes
    nodes = text if whole else nodes_json(source.path, text)
    if nodes:
        found = from_json(source.path, nodes)
    elif re.search(r"^NodeName=\S+ .*\n?.*\bCPU(?:Alloc|Tot)=", text, re.M):
        found = as_shown(text)
    else:
        found = from_conf(source.path, text, notes)
    if several := shares_cores(source.path, text):
        notes.append(
            f"jobs of {', '.join(several)} may share cores (OverSubscribe=FORCE): not replayed"
        )
    return found._replace(
        billing=billing_of(source.path, text), whole_nodes=gives_whole_nodes(source.path, text)
    )


def _slots(source: Source, notes: list[str]) -> list[Node]:
    """Return the slots of `condor_status`; a partitionable slot counts whole."""
    nodes: list[Node] = []
    bad: list[int] = []
    dynamic = 0
    for _, ad in read_ads(source, _SLOT, lambda _, line: bad.append(line)):
        if ad.get("dynamicslot") is True or text(ad, "slottype") == "Dynamic":
            dynamic += 1
            continue
        name = text(ad, "name", "machine")
        if name is not None:
            nodes.append(_slot(name, ad))
    if dynamic:
        notes.append(f"dynamic slots are parts of their partitionable slots ({dynamic:,})")
    if bad:
        notes.append(f"records that cannot be read are left out ({len(bad):,})")
    return nodes


def _slot(name: str, ad: Record) -> Node:
    cpus = number(ad, "totalslotcpus", "cpus", "totalcpus")
    memory = number(ad, "totalslotmemory", "memory")
    gpus = number(ad, "totalslotgpus", "gpus", "totalgpus")
    disk = number(ad, "totalslotdisk", "disk")
    tres = {GPU: int(gpus)} if 0 < gpus < 2**31 else {}
    state = NodeState.UP
    if ad.get("offline") is True:
        state = NodeState.DOWN
    elif text(ad, "state") == "Drained" or text(ad, "activity") == "Retiring":
        state = NodeState.DRAINED
    return Node(
        name,
        host=text(ad, "machine") or "",
        cpus=int(cpus) if 0 < cpus < 2**31 else 0,
        memory=int(memory) * 2**20 if 0 < memory < 2**40 else -1,
        state=state,
        tres=tres | ({DISK: int(min(disk, 2.0**40)) * 2**10} if disk > 0 else {}),
    )
