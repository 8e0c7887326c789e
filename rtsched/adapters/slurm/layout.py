"""Nodes, partitions and reservations of a Slurm as a `Cluster`, facts and periodic work."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.local_days import DAY_S, as_periodic, both_sides
from rtsched.adapters.slurm.facts import Partition, Sharing, default_memory, limit_of
from rtsched.adapters.slurm.rows import names_of, number
from rtsched.model.cluster import Cluster, Nodes, NodeState
from rtsched.model.resources import CPU, MEMORY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.adapters.slurm.rows import NodeRow, ReservationRow
    from rtsched.adapters.slurm.settings import SlurmSettings
    from rtsched.model.jobs import Periodic

PREFIX = "rtsched_"
"""How the names of our reservations begin; what follows is a job id."""

_PERIODS = {
    "HOURLY": 3600.0,
    "DAILY": 86400.0,
    "WEEKDAY": 86400.0,
    "WEEKEND": 86400.0,
    "WEEKLY": 604800.0,
}


def is_ours(reservation: str) -> bool:
    """Return whether a reservation of this name is ours: the prefix and a number, nothing else.

    A site may have reservations whose names begin alike; none of them is touched.
    """
    number = reservation.removeprefix(PREFIX)
    return number != reservation and number.isascii() and number.isdigit()


@dataclass(frozen=True)
class ClusterLayout:
    """What of a poll changes seldom.

    Attributes
    ----------
    cluster : Cluster
        One row per node, in Slurm's order.
    row : dict of str to int
        Row by node name.
    partitions : dict of str to Partition
        By name; with one feature `partition@feature`.
    default : str
        The partition of jobs that name none.
    """

    cluster: Cluster
    row: dict[str, int]
    partitions: dict[str, Partition]
    default: str

    def rows_of(self, nodes: str) -> NDArray[np.int32]:
        """Return the rows of a node list; names that are not known are left out."""
        found = (self.row.get(name, -1) for name in names_of(nodes))
        return np.array([row for row in found if row >= 0], np.int32)


def layout_of(
    nodes: Sequence[NodeRow],
    said: Mapping[str, Mapping[str, str]],
    default: str,
    reserved: set[str],
    settings: SlurmSettings,
    version: int = 1,
    sharing: Sharing | None = None,
) -> ClusterLayout:
    """Return the machine.

    Parameters
    ----------
    nodes : sequence of NodeRow
        All nodes.
    present : mapping of str to pairs
        What Slurm says of each partition (see `facts.partitions_of`).
    default : str
        The default partition.
    reserved : set of str
        Nodes in other people's reservations: no promise may use them.
    settings : SlurmSettings
        Relative speeds.
    version : int
        Of the cluster.
    sharing : Sharing, optional
        How jobs share the nodes; None: they have whole ones.
    """
    sharing = sharing or Sharing()
    masks: dict[str, NDArray[np.bool_]] = {}
    partitions: dict[str, Partition] = {}
    for name, pairs in said.items():
        inside = np.array([name in node.partitions for node in nodes], np.bool_)
        features = {
            word for node, used in zip(nodes, inside, strict=True) if used for word in node.features
        }
        for feature in ("", *sorted(features)):
            key = f"{name}@{feature}" if feature else name
            having = np.array([not feature or feature in node.features for node in nodes])
            masks[key] = inside & having
            partitions[key] = _partition(key, pairs, nodes, masks[key], sharing)
    if sharing.resources:
        partitions = _with_tiers(partitions, masks, said)
    table = Nodes.build(
        len(nodes),
        name=[node.name for node in nodes],
        cores=np.array([node.cores for node in nodes], np.int32),
        memory=np.array([node.memory for node in nodes], np.int64),
        state=np.array([_state(node, reserved) for node in nodes], np.int8),
        speed=np.array([_speed(node, settings.speeds) for node in nodes]),
        capacity=_capacity(nodes, sharing.resources),
        names={"capacity": sharing.resources},
    )
    row = {node.name: at for at, node in enumerate(nodes)}
    cluster = Cluster(table, masks, version=version, by_clock=True)
    return ClusterLayout(cluster, row, partitions, default)


def _partition(
    key: str,
    pairs: Mapping[str, str],
    nodes: Sequence[NodeRow],
    mask: NDArray[np.bool_],
    sharing: Sharing,
) -> Partition:
    """Return the facts of a partition."""
    inside = [nodes[at] for at in np.flatnonzero(mask).tolist()]
    longest = limit_of(pairs.get("maxtime", ""), math.inf)
    node_memory, core_memory = default_memory(pairs)
    if not (node_memory or core_memory):
        node_memory, core_memory = sharing.node_memory, sharing.core_memory
    return Partition(
        key,
        limit_of(pairs.get("defaulttime", ""), longest),
        longest,
        pairs.get("state", "UP").upper() == "UP",
        len(inside),
        min((node.cores for node in inside), default=1),
        min((node.memory for node in inside), default=-1),
        min((node.memory // node.cores for node in inside), default=-1),
        number(pairs.get("minnodes", "")),
        number(pairs.get("maxnodes", "")) or math.inf,
        max((node.threads for node in inside), default=1),
        node_memory,
        core_memory,
        pairs.get("oversubscribe", "").upper().startswith("EXCLUSIVE"),
        dict(zip(sharing.resources, _most(inside, sharing.resources), strict=True)),
    )


def _most(nodes: Sequence[NodeRow], resources: Sequence[str]) -> list[int]:
    """Return the most of each resource that a node has."""
    return np.max(_capacity(nodes, resources), axis=0, initial=0).tolist()  # type: ignore[no-any-return]


def _with_tiers(
    partitions: dict[str, Partition],
    masks: Mapping[str, NDArray[np.bool_]],
    said: Mapping[str, Mapping[str, str]],
) -> dict[str, Partition]:
    """Return the partitions, each with one whose jobs Slurm starts before on some of its nodes."""
    tier = {name: number(pairs.get("prioritytier", "")) for name, pairs in said.items()}
    found = {}
    for key, part in partitions.items():
        own = tier[key.partition("@")[0]]
        above = [n for n in said if tier[n] > own and (masks[n] & masks[key]).any()]
        found[key] = replace(part, above=min(above, default=""))
    return found


def _capacity(nodes: Sequence[NodeRow], resources: Sequence[str]) -> NDArray[np.int64]:
    """Return what each node has of each resource, int64[m, r]."""
    own = [{CPU: node.cores, MEMORY: max(node.memory, 0), **dict(node.gres)} for node in nodes]
    amounts = [[some.get(name, 0) for name in resources] for some in own]
    return np.array(amounts, np.int64).reshape(len(nodes), len(resources))


def _state(node: NodeRow, reserved: set[str]) -> NodeState:
    """Return the state of a node; one that others have reserved counts as drained."""
    if node.state == NodeState.UP and node.name in reserved:
        return NodeState.DRAINED
    return node.state


def _speed(node: NodeRow, speeds: Mapping[str, float]) -> float:
    """Return the relative speed of a node: by its name, else by its first feature that has one."""
    for word in (node.name, *node.features):
        if word in speeds:
            return speeds[word]
    return 1.0


def foreign(
    reservations: Sequence[ReservationRow], now: float, ahead: float
) -> tuple[set[str], list[ReservationRow]]:
    """Return the nodes that other people's reservations take, and the recurring reservations.

    A reservation that begins within `ahead` seconds takes its nodes already now, since a plan
    could reach into it. A recurring one takes none: it is periodic work.
    """
    taken: set[str] = set()
    recurring = []
    for row in reservations:
        if is_ours(row.name) or not row.nodes:
            continue
        if _PERIODS.keys() & set(row.flags):
            recurring.append(row)
        elif row.start <= now + ahead and not row.end <= now:
            taken |= set(row.nodes)
    return taken, recurring


def periodic_of(
    recurring: Sequence[ReservationRow], row: Mapping[str, int], now: float
) -> Periodic:
    """Return one row per node of each recurring reservation.

    Reservations on weekdays or weekends only count as daily. But for hourly ones slurmctld counts
    days of its local calendar (`_advance_time`, src/slurmctld/reservation.c).
    """
    found = []
    for each in recurring:
        period = min(_PERIODS[flag] for flag in each.flags if flag in _PERIODS)
        start, length = each.start, each.end - each.start
        if period % DAY_S == 0:
            start, length = both_sides(start, length, period)
        left = max(each.end - now, 0.0) if start <= now else 0.0
        found += [(row[name], length, period, start, left) for name in each.nodes if name in row]
    return as_periodic(found)
