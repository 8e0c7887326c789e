"""Facts of a pool for the translator: margins, who is charged, and slots.

The pool's partitions in the models are which slots a job may have, by class, CPUs and memory.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.condor.ids import JobNames
from rtsched.adapters.live import PART

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.adapters.condor.matching import SlotSets

STEPS = 12
"""Maximum number of distinct CPU counts, of sizes of memory and disk, and of GPU counts."""

QUANTUM = 128 << 20
"""A dynamic slot's memory is rounded up to a multiple of this, bytes
(MODIFY_REQUEST_EXPR_REQUESTMEMORY)."""

DISK_QUANTUM = 1 << 20
"""Likewise its disk (MODIFY_REQUEST_EXPR_REQUESTDISK)."""

ALL = ""
"""The class of jobs that name none."""


@dataclass(frozen=True)
class Parts:
    """What sizes of slots there are.

    A job's part is named by its class and by the least sizes that hold it, such as
    `fast/4/8589934592`: all slots of the class that have as much of each, and more. GPUs, where it
    asks for some, follow. Disk, of which hardly two slots have the same, makes no parts.

    Attributes
    ----------
    cores, memory, gpus, disk : tuple of int
        Distinct sizes, CPUs, bytes, GPUs and bytes, ascending.
    nodes : mapping of str to int
        How many rows each part has; a part without any is left out.
    nodes_by_disk : mapping of str to tuple of int
        How many of them have as much disk as each of `disk`.
    """

    cores: tuple[int, ...] = (1,)
    memory: tuple[int, ...] = (0,)
    nodes: Mapping[str, int] = field(default_factory=dict)
    gpus: tuple[int, ...] = (0,)
    disk: tuple[int, ...] = (0,)
    nodes_by_disk: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def of(self, wanted: str, cpus: int, memory: int, gpus: int = 0, disk: int = 0) -> str:
        """Return the part of a job of a class, empty: any; empty if no slot fits it."""
        asked = zip((self.cores, self.memory, self.gpus), (cpus, memory, gpus), strict=True)
        sizes = [steps[at:] for steps, least in asked for at in [bisect_left(steps, least)]]
        if not all(sizes):
            return ""
        name = _name(wanted, *(steps[0] for steps in sizes))
        return name if self.count(name, disk) else ""

    def count(self, part: str, disk: int = 0, otherwise: int = 0) -> int:
        """Return how many rows of a part have so much disk; `otherwise`: there is no such part."""
        if part not in self.nodes or disk <= self.disk[0]:
            return self.nodes.get(part, otherwise)
        having, at = self.nodes_by_disk.get(part, ()), bisect_left(self.disk, disk)
        return having[at] if at < len(having) else 0

    def rounded(self, memory: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return memory that is asked for, bytes, as HTCondor rounds it up.

        It does not where no slot would have so much.
        """
        return _rounded(memory, QUANTUM, self.memory[-1])

    def rounded_disk(self, disk: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return disk that is asked for, bytes, likewise; some at least, where slots have any."""
        return _rounded(np.maximum(disk, min(self.disk[-1], 1)), DISK_QUANTUM, self.disk[-1])


def _rounded(amount: NDArray[np.int64], quantum: int, most: int) -> NDArray[np.int64]:
    up = -(-amount // quantum) * quantum
    return np.where((up > most) & (amount <= most), amount, up)


def parts_of(
    classes: Sequence[str],
    cores: NDArray[np.int64],
    memory: NDArray[np.int64],
    gpus: NDArray[np.int64] | None = None,
    disk: NDArray[np.int64] | None = None,
) -> tuple[Parts, dict[str, NDArray[np.bool_]]]:
    """Return the parts of a pool and the rows of each.

    Parameters
    ----------
    classes : sequence of str
        RtClass of each row, empty where it has none.
    cores, memory, gpus, disk : int64[n]
        CPUs, bytes, GPUs and bytes of each row; no GPUs, or no disk: None.
    """
    gpus, disk = (np.zeros(len(cores), np.int64) if one is None else one for one in (gpus, disk))
    kinds = np.array(classes, object)
    all_classes = (ALL, *sorted(set(classes) - {ALL}))
    steps, sizes, counts = _steps(cores), _steps(memory), _steps(np.append(gpus, 0))
    masks = {}
    for wanted, least, size, count in product(all_classes, steps, sizes, counts):
        mask = (cores >= least) & (memory >= size) & (gpus >= count)
        if wanted != ALL:
            mask &= kinds == wanted
        if mask.any():
            masks[_name(wanted, least, size, count)] = mask
    nodes = {name: int(mask.sum()) for name, mask in masks.items()}
    disks = _steps(disk)
    step = np.searchsorted(disks, disk, "right")
    by_disk = {name: _at_least(step[mask], len(disks)) for name, mask in masks.items()}
    return Parts(steps, sizes, nodes, counts, disks, by_disk), masks


def _at_least(step: NDArray[np.int64], steps: int) -> tuple[int, ...]:
    """Return how many rows have at least each of so many steps; `step`: how many each row has."""
    having = np.bincount(step, minlength=steps + 1)[:0:-1]
    return tuple(having.cumsum()[::-1].tolist())


def _steps(values: NDArray[np.int64]) -> tuple[int, ...]:
    """Return the distinct sizes, at most `STEPS`: the least, the greatest and some between."""
    found = np.unique(values)
    if len(found) > STEPS:
        found = found[np.unique(np.linspace(0, len(found) - 1, STEPS).round().astype(int))]
    return tuple(found.tolist())


def _name(wanted: str, cores: int, memory: int, gpus: int) -> str:
    name = f"{wanted}{PART}{cores}{PART}{memory}"
    return f"{name}{PART}{gpus}" if gpus else name


@dataclass(frozen=True)
class CondorFacts:
    """What a poll found out about the configuration; times in seconds, memory in bytes.

    Attributes
    ----------
    version : str
        HTCondor's version, such as `25.14.1`.
    margin : float
        By how much a job outlives its stated run time at the latest, counted from its planned
        start: negotiation, overrun, the slot's way back.
    start_delay : float
        Of it, from the planned start to the job's start at the latest.
    parts : Parts
        The partitions of the models: which slots a job of some class and size may have
        (`parts_of` makes them, and the masks of `Cluster.partitions`).
    run_time : float
        Of a job that states none; inf: no end.
    associations : dict of str to int
        Row of `Accounts` by submitter, such as `alice@example.org` or `group.alice@example.org`.
    domain : str
        UID_DOMAIN: what stands behind a user's name in a submitter's.
    shared : bool
        Whether jobs share slots (`share_nodes`).
    arrays : bool
        Whether a cluster of several procs gets one promise (`arrays`).
    sets : SlotSets or None
        Which rows meet a job's Requirements, and what it requires of its GPUs.
    names : JobNames
        What jobs are called.
    vacating, vacating_most : float
        Seconds that a job has to leave its slot, as the margin contains them, and those of the
        machines, which a job has that asks rtsched for nothing. None has more.
    """

    version: str = ""
    margin: float = 0.0
    start_delay: float = 0.0
    parts: Parts = field(default_factory=Parts)
    run_time: float = math.inf
    associations: dict[str, int] = field(default_factory=dict)
    domain: str = ""
    shared: bool = False
    arrays: bool = True
    sets: SlotSets | None = None
    names: JobNames = field(default_factory=JobNames)
    vacating: float = 0.0
    vacating_most: float = 0.0

    def beyond(self, vacate_time: NDArray[np.float64] | float) -> NDArray[np.float64]:
        """Return by how much vacate times go beyond what the margin contains; nan: machine's."""
        own = np.fmin(vacate_time, self.vacating_most)
        return np.maximum(own - self.vacating, 0.0)

    @property
    def tail(self) -> float:
        """By how much a job that runs outlives its stated run time at the latest."""
        return self.margin - self.start_delay
