"""Which rows of a partitionable slot its dynamic slots have.

HTCondor gives a dynamic slot some CPUs and memory of its parent, and no place in it. In the models
it has rows of the parent, the same ones as long as it lives: as many as its share of CPUs or of
memory needs, whichever is more. Small ones share a row, which is free when all of them are gone.
Jobs without a promise get rows from the last one on, others from the first on, where planners look
for rows first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rtsched.adapters.condor.slots import Slot

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
    cpus, memory : int
        Bytes, -1: not said.
    first : bool
        Whether it gets rows from the first one on.
    gpus : int
        How many GPUs it has.
    disk : int
        Bytes.
    """

    key: Key
    slot: str
    cpus: int
    memory: int
    first: bool = False
    gpus: int = 0
    disk: int = 0


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
    memory = occupant.memory / slot.memory if occupant.memory > 0 and slot.memory > 0 else 0.0
    return max(occupant.cpus / slot.cpus, memory)


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
