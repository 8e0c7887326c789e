"""The slots of a pool as rows of a `Cluster`, and recurring work on them.

A static slot is one row. A partitionable slot is as many rows as it has units of CPUs
(`[condor] unit_cpus`), named `slot1@host#0` and so on; its dynamic slots take rows of it (see
`rows`). Where jobs share slots (`[condor] share_nodes`) it is one row that has amounts of
resources, of which each job takes what it asks for. Backfill slots have CPUs that other slots have
too, and are left out.

Sources: HTCondor's manual, "Machine ClassAd Attributes", and "Policy Configuration for Execution
Points" for the states.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.condor import sharing
from rtsched.adapters.condor.facts import QUANTUM, Parts, parts_of
from rtsched.adapters.condor.matching import MachineAds, SlotSets
from rtsched.adapters.condor.pool_state import Slots
from rtsched.adapters.condor.requirements import KILOBYTE, MEGABYTE, Size
from rtsched.adapters.recurring import as_periodic, both_sides
from rtsched.logs.classads import number, text
from rtsched.model.cluster import Cluster, Nodes, NodeState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.adapters.condor.expressions import Gpu
    from rtsched.adapters.condor.settings import CondorSettings, Recurring
    from rtsched.logs.classads import Record
    from rtsched.model.jobs import Periodic

OF_SLOTS = (
    *("Name", "Machine", "SlotID", "SlotType", "PartitionableSlot", "DynamicSlot", "BackfillSlot"),
    *("State", "Activity", "Offline", "SlotBrokenReason", "RtClass", "RtSpeed"),
    *("Cpus", "Memory", "GPUs", "TotalSlotCpus", "TotalSlotMemory", "TotalSlotGPUs"),
    *("Disk", "TotalSlotDisk"),
    *("RemoteScheddName", "GlobalJobId", "MachineMaxVacateTime"),
    *("EnteredCurrentState", "DaemonStartTime", "DaemonLastReconfigTime"),
)
"""What is read of a slot."""

FORGET_S = 900.0
"""Seconds until a slot that is gone is forgotten, as long as the collector itself remembers one
that fell silent (CLASSAD_LIFETIME). Until then it is down: what was planned on it is planned
elsewhere at once, and a machine that starts anew finds its rows in place."""

RETURN_S = 60.0
"""Seconds that a startd may take to come back, as at a restart, before a promise breaks for it."""

DRAINED_S = 20.0
"""Seconds likewise that a machine is drained: one that is drained to be defragmented resumes at
once, another one stays so."""

MOST = 1 << 16
"""CPUs of a slot that are believed."""

_TAKEN = frozenset({"Claimed", "Preempting"})
_PARTS = re.compile(r"(\d{1,18})", re.ASCII)
_DYNAMIC = re.compile(r"_\d+(?=@|$)")


@dataclass(frozen=True)
class Slot:
    """A static or a partitionable slot.

    Attributes
    ----------
    name, machine, kind : str
        Name, Machine, RtClass (empty: none).
    cpus, memory : int
        Of one of its rows; bytes, -1: not said.
    speed : float
        Relative.
    state : NodeState
        Of all its rows.
    units : int
        Its rows; 0 for a static slot, which is one row of its own name, and for any slot that jobs
        share.
    gpus : int
        GPUs, where jobs share slots.
    jobs : int
        How many jobs it takes at a time, where jobs share slots; else 0.
    disk : int
        Bytes, where jobs share slots; 0: it has none, or does not say.
    kinds : tuple of Gpu
        The kinds of its GPUs, where jobs share slots; empty: it has none, or does not say.
    drains : bool
        Whether its machine is drained, or about to be.
    """

    name: str
    machine: str
    kind: str = ""
    cpus: int = 1
    memory: int = -1
    speed: float = 1.0
    state: NodeState = NodeState.UP
    units: int = 0
    gpus: int = 0
    jobs: int = 0
    disk: int = 0
    kinds: tuple[Gpu, ...] = ()
    drains: bool = False

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return max(self.units, 1)


@dataclass(frozen=True)
class Claim:
    """A part of a slot that somebody has: a dynamic slot, or all of a static one.

    `slot` is the name of the static or partitionable slot; `leaving`: whoever has it has been told
    to go.
    """

    name: str
    slot: str
    size: Size
    schedd: str
    leaving: bool = False


@dataclass(frozen=True)
class PoolLayout:
    """What of a poll changes seldom: the slots as rows, in order of machine and slot.

    Attributes
    ----------
    nodes : Nodes
        The rows.
    masks : dict of str to bool[n]
        The rows of each partition.
    slots : Slots
        The rows in HTCondor's names.
    parts : Parts
        Which partitions there are.
    by_name : dict of str to Slot
        The slots.
    first : dict of str to int
        The first row of each slot, by its name.
    sets : SlotSets
        Which rows meet what jobs ask of slots.
    """

    nodes: Nodes
    masks: dict[str, NDArray[np.bool_]]
    slots: Slots
    parts: Parts
    by_name: dict[str, Slot]
    first: dict[str, int]
    sets: SlotSets

    @property
    def shared(self) -> bool:
        """Whether jobs share slots."""
        return len(self.nodes.names("capacity")) > 0

    def cluster(
        self, others: NDArray[np.int64], version: int, foreign: NDArray[np.int64] | None = None
    ) -> Cluster:
        """Return the cluster; rows of jobs that are none of ours are drained for us.

        Where jobs share slots, what such jobs have, `foreign`, is not there: int64[n, r].
        """
        state = self.nodes.state.copy()
        state[others[state[others] == NodeState.UP]] = NodeState.DRAINED
        nodes = self.nodes.with_column("state", state)
        if foreign is not None:
            left = np.maximum(self.nodes.capacity - foreign, 0)
            nodes = nodes.with_column("capacity", left)
        return Cluster(nodes, self.masks, version=version, by_clock=True, node_sets=self.sets)

    def rows_of(self, names: Iterable[str]) -> NDArray[np.int64]:
        """Return the rows of some slots, of those that there are."""
        known = [name for name in names if name in self.first]
        rows = [self.first[name] + at for name in known for at in range(self.by_name[name].rows)]
        return np.array(sorted(rows), np.int64)


class SlotInventory:
    """The slots of the polls up to now, those that went missing included."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Slot, float]] = {}
        self._lost: dict[str, float] = {}

    def update(self, shown: Iterable[Slot], now: float, *, forgetful: bool) -> list[Slot]:
        """Return all slots, in order of machine and name.

        Parameters
        ----------
        shown : iterable of Slot
            What the collector knows.
        now : float
            Seconds since the epoch.
        forgetful : bool
            Whether the collector may not have heard of all of them yet, since it has just been
            started: slots that are missing are then as they were.
        """
        before = {name for name, (slot, _) in self._known.items() if slot.state == NodeState.UP}
        seen = {slot.name: slot for slot in shown}
        for name, (slot, last) in list(self._known.items()):
            if name in seen:
                continue
            if forgetful:
                self._known[name] = (slot, now)
            elif now - last > FORGET_S:
                del self._known[name]
            else:
                self._known[name] = (replace(slot, state=NodeState.DOWN), last)
        self._known |= {name: (slot, now) for name, slot in seen.items()}
        slots = [slot for slot, _ in self._known.values()]
        away = {slot.name for slot in slots if slot.state != NodeState.UP}
        self._lost = {name: at for name, at in self._lost.items() if name in away}
        self._lost |= dict.fromkeys(away & before, now)
        return sorted(slots, key=lambda slot: (_natural(slot.machine), _natural(slot.name)))

    def flapping(self, now: float) -> list[str]:
        """Return the slots that took jobs a moment ago and do not now, and may be back at once."""
        drained = {slot.name for slot, _ in self._known.values() if slot.drains}
        waits = {name: DRAINED_S if name in drained else RETURN_S for name in self._lost}
        return sorted(name for name, at in self._lost.items() if now - at < waits[name])


def slots_of(ads: Sequence[Record], settings: CondorSettings) -> tuple[list[Slot], int]:
    """Return the static and the partitionable slots, and how many were too small for one row."""
    found = [_slot(ad, settings) for ad in ads if _counts(ad) and not _is_dynamic(ad)]
    return [slot for slot in found if slot is not None], found.count(None)


def claims_of(ads: Sequence[Record]) -> list[Claim]:
    """Return which slots somebody has, static or dynamic."""
    claims = []
    for ad in ads:
        partitionable = ad.get("partitionableslot") is True
        if not _counts(ad) or partitionable or ad.get("state") not in _TAKEN:
            continue
        name = text(ad, "name") or ""
        schedd = text(ad, "remotescheddname") or (text(ad, "globaljobid") or "").partition("#")[0]
        slot = parent_of(name) if _is_dynamic(ad) else name
        claims.append(Claim(name, slot, _size(ad), schedd, ad.get("state") == "Preempting"))
    return claims


def free_of(ads: Sequence[Record], *, shared: bool) -> dict[str, tuple[float, ...]]:
    """Return what partitionable slots have left, as `PoolState.free` has it."""
    found = {}
    for ad in ads:
        if ad.get("partitionableslot") is True and _counts(ad):
            names = ("cpus", "memory", "gpus", "disk")
            amounts = [max(float(np.nan_to_num(number(ad, name))), 0.0) for name in names]
            total, memory = number(ad, "totalslotcpus"), number(ad, "totalslotmemory")
            part = amounts[1] * total / memory if total > 0 and memory > 0 else math.inf
            left = tuple(amounts) if shared else (min(amounts[0], part),)
            found[text(ad, "name") or ""] = left
    return found


def vacating_most(ads: Sequence[Record]) -> float:
    """Return how long a job may take to leave its slot, seconds, as any slot says; 0: none does."""
    return max(
        (value for ad in ads if (value := number(ad, "machinemaxvacatetime")) >= 0), default=0.0
    )


def parent_of(name: str) -> str:
    """Return the partitionable slot of a dynamic one: `slot1@host` of `slot1_2@host`."""
    return _DYNAMIC.sub("", name, count=1)


def layout_of(slots: Sequence[Slot], ads: MachineAds | None = None) -> PoolLayout:
    """Return the machine that slots make, in their order; `ads`: what they say of themselves."""
    at = np.repeat(np.arange(len(slots)), [slot.rows for slot in slots]).tolist()
    rows = [slots[i] for i in at]
    amounts = [(slot.cpus, slot.memory, slot.gpus, slot.disk, slot.jobs) for slot in rows]
    cpus, memory, gpus, disk, jobs = np.array(amounts, np.int64).reshape(-1, 5).T
    parts, masks = parts_of([slot.kind for slot in rows], cpus, np.maximum(memory, 0), gpus, disk)
    shared = bool(jobs.any())
    nodes = Nodes.build(
        len(rows),
        name=[name for slot in slots for name in row_names(slot)],
        host=[slot.machine for slot in rows],
        cores=cpus.astype(np.int32),
        memory=memory,
        state=np.array([slot.state for slot in rows], np.int8),
        speed=np.array([slot.speed for slot in rows], np.float64),
        capacity=sharing.amounts(cpus, memory, gpus, disk, jobs) if shared else None,
        names={"capacity": sharing.RESOURCES} if shared else None,
    )
    names, kinds = [slot.name for slot in rows], [slot.kinds for slot in rows]
    table = Slots.build(
        len(rows), name=names, machine=[slot.machine for slot in rows], cpus=cpus.astype(np.int32)
    )
    ends = np.cumsum([slot.rows for slot in slots], dtype=np.int64).tolist()
    first = {slot.name: end - slot.rows for slot, end in zip(slots, ends, strict=True)}
    sets = SlotSets(ads or MachineAds.of({}), names, kinds, masks, disk)
    by_name = {slot.name: slot for slot in slots}
    return PoolLayout(nodes, masks, table, parts, by_name, first, sets)


def row_names(slot: Slot) -> list[str]:
    """Return the names of a slot's rows."""
    return [f"{slot.name}#{i}" for i in range(slot.units)] if slot.units else [slot.name]


def _counts(ad: Record) -> bool:
    """Return whether an ad is one of a slot with CPUs of its own."""
    return bool(text(ad, "name")) and ad.get("backfillslot") is not True


def _is_dynamic(ad: Record) -> bool:
    return ad.get("dynamicslot") is True or ad.get("slottype") == "Dynamic"


def _slot(ad: Record, settings: CondorSettings) -> Slot | None:
    """Return a slot; None if it has fewer CPUs than a row of it would."""
    name, machine = text(ad, "name") or "", text(ad, "machine") or ""
    kind = text(ad, "rtclass") or ""
    speed = _speed((name, machine, kind), ad, settings.speeds)
    partitionable = ad.get("partitionableslot") is True
    cpus, memory, gpus, disk = _size(ad, "totalslot" if partitionable else "")
    drains = ad.get("state") == "Drained"
    if settings.share_nodes:
        amounts = (0, gpus, cpus if partitionable else 1, disk, (), drains)
        return Slot(name, machine, kind, cpus, memory, speed, _state(ad), *amounts)
    if not partitionable:
        return Slot(name, machine, kind, cpus, memory, speed, _state(ad), drains=drains)
    units = cpus // settings.unit_cpus
    if units == 0:
        return None
    part = memory // units
    part -= part % QUANTUM if part > QUANTUM else 0
    one = settings.unit_cpus
    return Slot(name, machine, kind, one, part, speed, _state(ad), units, drains=drains)


def _size(ad: Record, total: str = "") -> Size:
    """Return what a slot has; memory is -1 where that is not said."""
    names = ("cpus", "memory", "gpus", "disk")
    cpus, megabytes, gpus, kilobytes = (number(ad, f"{total}{name}") for name in names)
    return Size(
        int(min(max(cpus, 1.0), MOST)) if cpus > 0 else 1,
        int(min(megabytes, 1 << 40)) * MEGABYTE if megabytes >= 0 else -1,
        int(min(gpus, MOST)) if gpus > 0 else 0,
        int(min(kilobytes, 1 << 40)) * KILOBYTE if kilobytes > 0 else 0,
    )


def _speed(names: Iterable[str], ad: Record, speeds: Mapping[str, float]) -> float:
    """Return the relative speed of a slot: by its name, machine or class, else by RtSpeed."""
    for name in names:
        if name in speeds:
            return speeds[name]
    value = number(ad, "rtspeed")
    return value if 0 < value < np.inf else 1.0


def _state(ad: Record) -> NodeState:
    """Return whether a slot takes jobs.

    In the state Owner its START is false, whatever the job. One that is retiring drains, or is
    about to be given to somebody else.
    """
    away = (
        ad.get("state") in {"Owner", "Drained"}
        or ad.get("activity") == "Retiring"
        or ad.get("offline") is True
        or text(ad, "slotbrokenreason") is not None
    )
    return NodeState.DRAINED if away else NodeState.UP


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """Return a key by which slot2 comes before slot10."""
    words = _PARTS.split(name)
    return tuple((int(part), "") if at % 2 else (-1, part) for at, part in enumerate(words))


Key = tuple[int, str]
"""A proc and, where it has several slots, which one; or -1 and the slot of somebody else."""

_ALMOST = 1e-6


@dataclass(frozen=True)
class Occupant:
    """Who has a part of a slot.

    Attributes
    ----------
    key : Key
        Who it is.
    slot : str
        Name of a static or a partitionable slot.
    size : Size
        What it has; memory is -1 where that is not said.
    first : bool
        Whether it gets rows from the first one on.
    """

    key: Key
    slot: str
    size: Size
    first: bool = False


class SlotAssignment:
    """Which rows each occupant has, from poll to poll."""

    def __init__(self) -> None:
        self._held: dict[Key, tuple[str, tuple[int, ...]]] = {}

    def taken(
        self, occupants: Sequence[Occupant], slots: Mapping[str, Slot]
    ) -> dict[Key, tuple[str, tuple[int, ...]]]:
        """Return the slot of each occupant, and which of its rows, counted from 0.

        Those on slots that are not known are left out; whoever is not named any more is forgotten.
        """
        load: dict[str, list[float]] = {}
        held: dict[Key, tuple[str, tuple[int, ...]]] = {}
        fresh = []
        for occupant in occupants:
            slot = slots.get(occupant.slot)
            if slot is None:
                continue
            name, rows = self._held.get(occupant.key, ("", ()))
            if name == occupant.slot and max(rows, default=0) < slot.rows:
                _assign(load.setdefault(name, [0.0] * slot.rows), rows, _share(occupant, slot))
                held[occupant.key] = name, rows
            else:
                fresh.append((occupant, slot))
        for occupant, slot in fresh:
            loads, share = load.setdefault(slot.name, [0.0] * slot.rows), _share(occupant, slot)
            rows = _rows_for(loads, share, first=occupant.first)
            _assign(loads, rows, share)
            held[occupant.key] = slot.name, rows
        self._held = held
        return held


def _share(occupant: Occupant, slot: Slot) -> float:
    """Return how many rows an occupant needs, as a fraction."""
    if not slot.units:
        return 1.0
    cpus, memory = occupant.size[:2]
    return max(cpus / slot.cpus, memory / slot.memory if memory > 0 and slot.memory > 0 else 0.0)


def _rows_for(load: Sequence[float], share: float, *, first: bool) -> tuple[int, ...]:
    """Return the rows for one who comes: the fullest that has room, or else the emptiest ones."""
    order = range(len(load)) if first else range(len(load) - 1, -1, -1)
    if share < 1.0:
        room = [row for row in order if 0.0 < load[row] <= 1.0 - share + _ALMOST]
        if room:
            return (max(room, key=lambda row: load[row]),)
    count = min(max(math.ceil(share - _ALMOST), 1), len(load))
    return tuple(sorted(sorted(order, key=lambda row: load[row])[:count]))


def _assign(load: list[float], rows: Sequence[int], share: float) -> None:
    """Add an occupant's share to its rows."""
    for row in rows:
        load[row] += share / len(rows)


def periodic_of(recurring: Sequence[Recurring], slots: Slots, now: float) -> Periodic:
    """Return one row per row of the cluster and recurring work on it.

    Each begins with the occurrence that goes on at `now`, seconds since the epoch, or with the next
    one. Where the period is a number of days, occurrences follow the local clock.
    """
    found = []
    names, machines = slots.texts("name"), slots.texts("machine")
    for each in recurring:
        past = max(0, math.floor((now - each.begins(0)) / each.every_s) - 1)
        while each.begins(past) + each.length_s <= now:
            past += 1
        end = each.begins(past) + each.length_s
        start, length = each.begins(past), each.length_s
        if each.by_local_clock:
            start, length = both_sides(start, length, each.every_s)
        left = end - now if start <= now else 0.0
        wanted = set(each.slots)
        rows = [at for at, both in enumerate(zip(names, machines, strict=True)) if wanted & {*both}]
        found += [(row, length, each.every_s, start, left) for row in rows]
    return as_periodic(found)
