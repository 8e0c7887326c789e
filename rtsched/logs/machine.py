"""What cluster files have in common: nodes by name, then a `Cluster` of their processors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rtsched.errors import InputError
from rtsched.model.cluster import Cluster, Nodes, NodeState

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_PROCESSORS = 50_000_000


@dataclass
class Node:
    """A computer or slot: its name, the computer it is on, processors, bytes, state."""

    name: str
    host: str = ""
    cpus: int = 1
    memory: int = -1
    state: NodeState = NodeState.UP
    partitions: set[str] = field(default_factory=set)
    features: set[str] = field(default_factory=set)


def slurm_state(words: Iterable[str]) -> NodeState:
    """Return what Slurm's node state means, `IDLE+DRAIN` cut into words (manual page sinfo)."""
    found = {word.strip("*~#!%$@^-").upper() for word in words}
    if found & {"DOWN", "FAIL", "ERROR", "NOT_RESPONDING", "FUTURE", "UNKNOWN", "POWER_DOWN"}:
        return NodeState.DOWN if "UNKNOWN" not in found else NodeState.UP
    if found & {"DRAIN", "DRAINED", "DRAINING", "MAINT", "RESERVED_DOWN"}:
        return NodeState.DRAINED
    return NodeState.UP


def cluster_of(path: str, nodes: list[Node]) -> Cluster:
    """Return a cluster with one row per processor, since the readers count processors.

    Memory is shared out evenly among a node's processors.

    Raises
    ------
    InputError
        If there is no processor, or there are impossibly many.
    """
    cpus = np.array([node.cpus for node in nodes], np.int64)
    if not 0 < cpus.sum() <= MOST_PROCESSORS:
        raise InputError(path, f"describes {cpus.sum():,} processors; check the file")
    hosts = list(dict.fromkeys(node.host or node.name for node in nodes))
    place = {host: i for i, host in enumerate(hosts)}
    row = np.repeat(np.arange(len(nodes), dtype=np.int32), cpus)
    host = np.array([place[node.host or node.name] for node in nodes], np.int32)
    memory = np.array([node.memory for node in nodes], np.int64)
    state = np.array([node.state for node in nodes], np.int8)
    share = np.where(memory > 0, memory // np.maximum(cpus, 1), -1)
    table = Nodes.build(
        len(row),
        name=row,
        host=host[row],
        cores=1,
        memory=share[row],
        state=state[row],
        names={"name": [node.name for node in nodes], "host": hosts},
    )
    names = dict.fromkeys(name for node in nodes for name in sorted(node.partitions))
    masks = {
        name: np.array([name in node.partitions for node in nodes], np.bool_)[row] for name in names
    }
    return Cluster(table, masks)
