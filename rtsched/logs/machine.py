"""Machines of cluster files: nodes by name, then a `Cluster` of their processors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rtsched.errors import InputError
from rtsched.model.cluster import Cluster, Nodes, NodeState
from rtsched.model.resources import CPU, DISK, MEMORY
from rtsched.model.table import encode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

MOST_PROCESSORS = 50_000_000


@dataclass
class Node:
    """A computer or slot: its name, the computer it is on, processors, bytes, state.

    `tres` are its resources beside processors and memory, such as `gres/gpu`.
    """

    name: str
    host: str = ""
    cpus: int = 1
    memory: int = -1
    state: NodeState = NodeState.UP
    tres: dict[str, int] = field(default_factory=dict)
    partitions: set[str] = field(default_factory=set)
    features: set[str] = field(default_factory=set)


_MARKS = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINT",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}
"""What a mark behind a state means (manual page sinfo, NODE STATE CODES)."""
_DEAD = frozenset(("DOWN", "FAIL", "ERROR", "FUTURE", "FUTR"))
_DRAINED = frozenset(
    ("DRAIN", "DRAINED", "DRAINING", "DRNG", "FAILING", "FAILG", "INVAL", "INVALID_REG")
)
_BOOTS = ("POWER", "POW_", "REBOOT", "BOOT")


def slurm_state(words: Iterable[str]) -> NodeState:
    """Return what Slurm's node state means, `IDLE+DRAIN` cut into words (manual page sinfo).

    A node that saves energy, boots or reboots is up: it takes jobs, and need not respond.
    """
    given = [word.strip() for word in words]
    found = {word.rstrip("".join(_MARKS)).upper() for word in given}
    found |= {meaning for mark, meaning in _MARKS.items() for word in given if word.endswith(mark)}
    if "UNKNOWN" in found or "UNK" in found:
        return NodeState.UP
    boots = any(word.startswith(_BOOTS) for word in found)
    if found & _DEAD or (found & {"NOT_RESPONDING", "NO_RESPOND"} and not boots):
        return NodeState.DOWN
    if found & _DRAINED or any(word.startswith("MAINT") for word in found):
        return NodeState.DRAINED
    return NodeState.UP


def cluster_of(path: str, nodes: list[Node]) -> Cluster:
    """Return a cluster with one row per processor, since the readers count processors.

    Memory is shared out evenly among a node's processors; the node's resources as a whole
    (`Nodes.capacity`) stand on the first of them.

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
    resources, amounts = _resources(nodes)
    features, texts = encode(",".join(sorted(node.features)) or None for node in nodes)
    capacity = np.zeros((len(row), len(resources)), np.int64)
    capacity[np.cumsum(cpus) - cpus] = amounts
    table = Nodes.build(
        len(row),
        name=row,
        host=host[row],
        cores=1,
        memory=share[row],
        state=state[row],
        capacity=capacity,
        features=features[row] if texts else None,
        names={
            "features": texts,
            "name": [node.name for node in nodes],
            "host": hosts,
            "capacity": resources,
        },
    )
    names = dict.fromkeys(name for node in nodes for name in sorted(node.partitions))
    masks = {
        name: np.array([name in node.partitions for node in nodes], np.bool_)[row] for name in names
    }
    return Cluster(table, masks)


def _resources(nodes: list[Node]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return the names of the resources that nodes have, and how much of them: int64[n, r].

    Memory is not counted unless that of all nodes is known; disk neither.
    """
    others = sorted({name for node in nodes for name in node.tres})
    if not all(DISK in node.tres for node in nodes):
        others = [name for name in others if name != DISK]
    known = all(node.memory > 0 for node in nodes)
    resources = (CPU, *((MEMORY,) if known else ()), *others)
    own = [{CPU: node.cpus, MEMORY: node.memory, **node.tres} for node in nodes]
    return resources, np.array([[some.get(name, 0) for name in resources] for some in own])
