"""Nodes, partitions and reservations of a Slurm as a `Cluster`, facts and periodic work."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.adapters.recurring import DAY_S, as_periodic, both_sides
from rtsched.adapters.slurm.access import access_of
from rtsched.adapters.slurm.facts import Partition, Sharing, default_memory, limit_of
from rtsched.adapters.slurm.rows import MEGABYTE, number
from rtsched.logs.hostlist import names_of
from rtsched.logs.node_requests import MOST_KEPT, Hardware, NodeSets
from rtsched.logs.slurm_cluster import FORCED, has_whole_nodes
from rtsched.model.blocked import Blocked
from rtsched.model.cluster import Cluster, Nodes, NodeState
from rtsched.model.resources import CPU, MEMORY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from numpy.typing import NDArray

    from rtsched.adapters.slurm.rows import NodeRow, ReservationRow
    from rtsched.adapters.slurm.settings import SlurmSettings
    from rtsched.logs.node_requests import LeftOut
    from rtsched.model.jobs import Periodic
    from rtsched.model.limits import BillingWeights

PREFIX = "rtsched_"
"""How the names of our reservations begin; what follows is a job id."""

_PERIODS = {
    "HOURLY": 3600.0,
    "DAILY": 86400.0,
    "WEEKDAY": 86400.0,
    "WEEKEND": 86400.0,
    "WEEKLY": 604800.0,
}

_FLOATS = "TIME_FLOAT"
"""Flag of a reservation that always begins so much later than now."""


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
        By name.
    default : str
        The partition of jobs that name none.
    parts : PartitionParts
        What the nodes of partitions have.
    features : frozenset of str
        What any node has, or can have after a reboot.
    """

    cluster: Cluster
    row: dict[str, int]
    partitions: dict[str, Partition]
    default: str
    parts: PartitionParts
    features: frozenset[str] = frozenset()

    def rows_of(self, nodes: str) -> NDArray[np.int32]:
        """Return the rows of a node list; names that are not known are left out."""
        found = (self.row.get(name, -1) for name in names_of(nodes))
        return np.array([row for row in found if row >= 0], np.int32)


@dataclass(eq=False)
class PartitionParts:
    """What partitions have, and those of their nodes that jobs ask for.

    Parameters
    ----------
    cluster : Cluster
        With the partitions' nodes, and a `NodeSets`.
    equipment : Hardware
        What each node has.
    shown : mapping of str to pairs
        What Slurm says of each partition.
    sharing : Sharing
        How jobs share the nodes.
    """

    cluster: Cluster
    equipment: Hardware
    shown: Mapping[str, Mapping[str, str]]
    sharing: Sharing

    def __post_init__(self) -> None:
        self.asked = lru_cache(MOST_KEPT)(self._asked)

    def __reduce__(self) -> tuple[type[PartitionParts], tuple[Any, ...]]:
        """Return how to make it again: what was worked out does not go to other processes."""
        return PartitionParts, (self.cluster, self.equipment, self.shown, self.sharing)

    @property
    def _sets(self) -> NodeSets:
        assert isinstance(self.cluster.node_sets, NodeSets)  # noqa: S101 - as it was made
        return self.cluster.node_sets

    @property
    def nodes(self) -> int:
        """How many nodes the cluster has."""
        return len(self.cluster)

    def _asked(self, name: str, request: str) -> tuple[Partition, tuple[LeftOut, ...]]:
        """Return the part of a partition that a request means, and what of that does not count.

        Parameters
        ----------
        name : str
            A partition.
        request : str
            Its nodes, as `rtsched.logs.node_requests` reads it, with the partition.
        """
        mask, left_out = self._sets.meant(request)
        return self.part(name, mask), left_out

    def hardware(self, name: str, request: str) -> Hardware:
        """Return what a job may have of each node that a request means.

        Empty: of those of a partition.
        """
        hardware = self.equipment.of(self._mask(name, request))
        most = _most_memory(self.shown[name])
        return replace(hardware, memory=np.minimum(hardware.memory, most)) if most else hardware

    def _mask(self, name: str, request: str) -> NDArray[np.bool_]:
        return self._sets[request] if request else self.cluster.partitions[name]

    def neighbours(self, name: str, request: str, count: int, turn: int) -> list[str]:
        """Return the names of so many nodes that a request means and that follow each other.

        Of several such rows of nodes that of `turn`, so that jobs do not wait for one; none if
        there is none. As Slurm orders nodes; those that are not up are left out.
        """
        nodes = self.cluster.nodes
        mask = self._mask(name, request) & (nodes.state == NodeState.UP)
        starts, length = list[int](), 0
        for at, free in enumerate(mask.tolist()):
            length = length + 1 if free else 0
            if length == count:
                starts.append(at - count + 1)
                length = 0
        if not starts:
            return []
        first = starts[turn % len(starts)]
        return [str(each) for each in nodes.texts("name")[first : first + count]]

    def part(self, name: str, mask: NDArray[np.bool_]) -> Partition:
        """Return the facts of some nodes of a partition, bool[m]."""
        pairs, nodes, sharing = self.shown[name], self.cluster.nodes, self.sharing
        longest = limit_of(pairs.get("maxtime", ""), math.inf)
        cores, memory = nodes.cores[mask], nodes.memory[mask]
        return Partition(
            name,
            limit_of(pairs.get("defaulttime", ""), longest),
            longest,
            pairs.get("state", "UP").upper() == "UP",
            len(cores),
            _least(cores, 1),
            _least(memory, -1),
            _least(memory // cores, -1),
            number(pairs.get("minnodes", "")),
            number(pairs.get("maxnodes", "")) or math.inf,
            int(self.equipment.threads[mask].max(initial=1)),
            *default_memory(pairs),
            has_whole_nodes(pairs),
            _hardware(nodes.capacity[mask], sharing.resources),
            self._above(name, mask) if sharing.resources else "",
            access_of(pairs),
            _capped(pairs, self.equipment.of(mask)) or self._oversubscribed(name, mask),
            _most_memory(pairs),
            number(pairs.get("maxmempercpu", "")) * MEGABYTE,
            number(_of_gpus(pairs, "DefCpuPerGPU")),
            number(_of_gpus(pairs, "DefMemPerGPU")) * MEGABYTE,
            bool(sharing.resources) and pairs.get("oversubscribe", "").startswith("YES"),
        )

    def _oversubscribed(self, name: str, mask: NDArray[np.bool_]) -> str:
        """Return how cores of a partition's nodes are shared, if jobs of others may not be there.

        Slurm starts no job whose cores may be shared beside one whose cores may not.
        """
        how = {each: pairs.get("oversubscribe", "") for each, pairs in self.shown.items()}
        shared = {each for each, text in how.items() if FORCED.fullmatch(text)}
        if not self.sharing.resources or name not in shared:
            return ""
        others = (self.cluster.partitions[each] for each in how if each not in shared)
        return f"OverSubscribe={how[name]}" if any((one & mask).any() for one in others) else ""

    def _above(self, name: str, mask: NDArray[np.bool_]) -> str:
        """Return a partition whose jobs Slurm starts before on some of these nodes; or nothing."""
        tier = {each: number(pairs.get("prioritytier", "")) for each, pairs in self.shown.items()}
        partitions = self.cluster.partitions
        above = [n for n in tier if tier[n] > tier[name] and (partitions[n] & mask).any()]
        return min(above, default="")


def _most_memory(pairs: Mapping[str, str]) -> int:
    return number(pairs.get("maxmempernode", "")) * MEGABYTE


def _capped(pairs: Mapping[str, str], hardware: Hardware) -> str:
    """Return which setting keeps jobs from some processors of a node; empty: none."""
    for setting, times in (("MaxCPUsPerNode", 1), ("MaxCPUsPerSocket", hardware.socket_count)):
        most = number(pairs.get(setting.lower(), ""))
        if most and (most * times < hardware.cpus).any():
            return f"{setting}={most}"
    return ""


def _of_gpus(pairs: Mapping[str, str], setting: str) -> str:
    """Return a setting in JobDefaults."""
    words = (word.partition("=") for word in pairs.get("jobdefaults", "").split(","))
    return next((value for name, _, value in words if name == setting), "")


def layout_of(
    nodes: Sequence[NodeRow],
    shown: Mapping[str, Mapping[str, str]],
    default: str,
    reserved: AbstractSet[str],
    settings: SlurmSettings,
    version: int = 1,
    sharing: Sharing | None = None,
    billing: BillingWeights | None = None,
) -> ClusterLayout:
    """Return the machine.

    Parameters
    ----------
    nodes : sequence of NodeRow
        All nodes.
    shown : mapping of str to pairs
        What Slurm says of each partition (see `facts.partitions_of`).
    default : str
        The default partition.
    reserved : set of str
        Nodes in reservations of the site: one in maintenance is back when that ends.
    settings : SlurmSettings
        Relative speeds.
    version : int
        Of the cluster.
    sharing : Sharing, optional
        How jobs share the nodes; None: they have whole ones.
    billing : BillingWeights, optional
        What jobs are billed for; None: not known.
    """
    sharing = sharing or Sharing()
    table = Nodes.build(
        len(nodes),
        name=[node.name for node in nodes],
        features=[",".join(node.features) or None for node in nodes],
        cores=np.array([node.cores for node in nodes], np.int32),
        memory=np.array([node.memory for node in nodes], np.int64),
        state=np.array([_state(node, reserved) for node in nodes], np.int8),
        speed=np.array([_speed(node, settings.speeds) for node in nodes]),
        capacity=_capacity(nodes, sharing.resources),
        names={"capacity": sharing.resources},
    )
    masks = {
        name: np.array([name in node.partitions for node in nodes], np.bool_) for name in shown
    }
    hardware = _hardware_of(nodes)
    sets = NodeSets(table, masks, hardware)
    licenses = sharing.licenses or {}
    cluster = Cluster(
        table,
        masks,
        version=version,
        by_clock=True,
        licenses=licenses,
        billing=billing,
        node_sets=sets,
    )
    parts = PartitionParts(cluster, hardware, shown, sharing)
    partitions = {name: parts.part(name, mask) for name, mask in masks.items()}
    row = {node.name: at for at, node in enumerate(nodes)}
    features = frozenset().union(*((*node.features, *node.available) for node in nodes))
    return ClusterLayout(cluster, row, partitions, default, parts, features)


def _hardware_of(nodes: Sequence[NodeRow]) -> Hardware:
    """Return what each node has."""
    names = sorted({name for node in nodes for name, _ in node.gres})
    amounts = [dict(node.gres) for node in nodes]
    most = max((len(node.sockets) for node in nodes), default=1)
    sockets = [node.sockets + (0,) * (most - len(node.sockets)) for node in nodes]
    return Hardware(
        np.array([node.cores for node in nodes], np.int64),
        np.array([node.threads for node in nodes], np.int64),
        np.array(sockets, np.int64).reshape(len(nodes), most),
        np.array([node.memory if node.memory > 0 else 1 << 62 for node in nodes], np.int64),
        np.array([node.disk for node in nodes], np.int64),
        {name: np.array([own.get(name, 0) for own in amounts], np.int64) for name in names},
    )


def _least(values: NDArray[Any], otherwise: int) -> int:
    return int(values.min()) if len(values) else otherwise


def _hardware(
    capacity: NDArray[np.int64], resources: Sequence[str]
) -> tuple[tuple[dict[str, int], int], ...]:
    """Return the distinct rows of `capacity` by name of the resource, and how many nodes each."""
    if not resources:
        return ()
    kinds, count = np.unique(capacity, axis=0, return_counts=True)
    pairs = zip(kinds.tolist(), count.tolist(), strict=True)
    return tuple((dict(zip(resources, kind, strict=True)), many) for kind, many in pairs)


def _capacity(nodes: Sequence[NodeRow], resources: Sequence[str]) -> NDArray[np.int64]:
    """Return what each node has of each resource, int64[m, r]."""
    own = [{CPU: node.cores, MEMORY: max(node.memory, 0), **dict(node.gres)} for node in nodes]
    amounts = [[some.get(name, 0) for name in resources] for some in own]
    return np.array(amounts, np.int64).reshape(len(nodes), len(resources))


def _state(node: NodeRow, reserved: AbstractSet[str]) -> NodeState:
    """Return the state of a node; in maintenance without a known end it counts as drained."""
    if node.state == NodeState.UP and node.maintenance and node.name not in reserved:
        return NodeState.DRAINED
    return node.state


def released_late(nodes: Sequence[NodeRow], machine: ClusterLayout) -> NDArray[np.int64]:
    """Return the rows of nodes that are in maintenance, but in no reservation any more.

    Slurm shows them so for a moment after it ends: they are back at once.
    """
    drained = machine.cluster.nodes.state == NodeState.DRAINED
    late = [node.maintenance and node.state == NodeState.UP for node in nodes]
    return np.flatnonzero(np.array(late, np.bool_) & drained)


def _speed(node: NodeRow, speeds: Mapping[str, float]) -> float:
    """Return the relative speed of a node: by its name, else by its first feature that has one."""
    for word in (node.name, *node.features):
        if word in speeds:
            return speeds[word]
    return 1.0


def foreign(
    reservations: Sequence[ReservationRow], now: float
) -> tuple[list[ReservationRow], list[ReservationRow]]:
    """Return the site's own reservations of nodes that are not over: single and recurring ones."""
    single, recurring = [], []
    for row in reservations:
        if is_ours(row.name) or not row.nodes:
            continue
        if _PERIODS.keys() & set(row.flags):
            recurring.append(row)
        elif not row.end <= now:
            single.append(row)
    return single, recurring


def blocked_of(single: Sequence[ReservationRow], row: Mapping[str, int]) -> Blocked:
    """Return when nodes are set aside by reservations, all of each node.

    A reservation whose start floats, or whose times Slurm does not tell, takes its nodes for good.
    """
    node: list[int] = []
    start: list[float] = []
    end: list[float] = []
    for each in single:
        rows = [row[name] for name in each.nodes if name in row]
        certain = each.start < each.end and _FLOATS not in each.flags
        node += rows
        start += [each.start if certain else 0.0] * len(rows)
        end += [each.end if certain else math.inf] * len(rows)
    return Blocked.merged(np.array(node, np.int64), np.array(start), np.array(end))


def unreserved_licenses(
    counts: Mapping[str, int], reservations: Sequence[ReservationRow], now: float, ahead: float
) -> dict[str, int]:
    """Return how many of the licences other people's reservations leave.

    A reservation that begins within `ahead` seconds takes its licences already now, since a plan
    could reach into it; a recurring one always.
    """
    left = dict(counts)
    for row in reservations:
        recurs = not _PERIODS.keys().isdisjoint(row.flags)
        if not is_ours(row.name) and (recurs or (row.start <= now + ahead and not row.end <= now)):
            for name in left.keys() & row.licenses.keys():
                left[name] = max(left[name] - row.licenses[name], 0)
    return left


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
