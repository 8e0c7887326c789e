"""Which rows of a partitionable slot its dynamic slots have.

HTCondor gives a dynamic slot some CPUs and memory of its parent, and no place in it. In the models
it has rows of the parent, the same ones as long as it lives: as many as its share of CPUs or of
memory needs, whichever is more. Small ones share a row, which is free when all of them are gone.
Jobs without a promise sit from the last row on, others from the first on, where planners look for
rows first.
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
class Sitter:
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
        Whether it sits from the first row on.
    """

    key: Key
    slot: str
    cpus: int
    memory: int
    first: bool = False


class Seats:
    """Who sits where, from look to look."""

    def __init__(self) -> None:
        self._held: dict[Key, tuple[str, tuple[int, ...]]] = {}

    def taken(
        self, sitters: Sequence[Sitter], slots: Mapping[str, Slot]
    ) -> dict[Key, tuple[str, tuple[int, ...]]]:
        """Return the slot of each sitter, and which of its rows, counted from 0.

        Those on slots that are not known are left out; whoever is not named any more is forgotten.
        """
        load: dict[str, list[float]] = {}
        held: dict[Key, tuple[str, tuple[int, ...]]] = {}
        fresh = []
        for sitter in sitters:
            slot = slots.get(sitter.slot)
            if slot is None:
                continue
            name, seats = self._held.get(sitter.key, ("", ()))
            if name == sitter.slot and max(seats, default=0) < slot.rows:
                _sit(load.setdefault(name, [0.0] * slot.rows), seats, _share(sitter, slot))
                held[sitter.key] = name, seats
            else:
                fresh.append((sitter, slot))
        for sitter, slot in fresh:
            rows, share = load.setdefault(slot.name, [0.0] * slot.rows), _share(sitter, slot)
            seats = _seats(rows, share, first=sitter.first)
            _sit(rows, seats, share)
            held[sitter.key] = slot.name, seats
        self._held = held
        return held


def _share(sitter: Sitter, slot: Slot) -> float:
    """Return how many rows a sitter needs, as a fraction."""
    if not slot.units:
        return 1.0
    memory = sitter.memory / slot.memory if sitter.memory > 0 and slot.memory > 0 else 0.0
    return max(sitter.cpus / slot.cpus, memory)


def _seats(load: Sequence[float], share: float, *, first: bool) -> tuple[int, ...]:
    """Return the rows for one who comes: the fullest that has room, or else the emptiest ones."""
    order = range(len(load)) if first else range(len(load) - 1, -1, -1)
    if share < 1.0:
        room = [row for row in order if 0.0 < load[row] <= 1.0 - share + _ALMOST]
        if room:
            return (max(room, key=lambda row: load[row]),)
    count = min(max(math.ceil(share - _ALMOST), 1), len(load))
    return tuple(sorted(sorted(order, key=lambda row: load[row])[:count]))


def _sit(load: list[float], seats: Sequence[int], share: float) -> None:
    """Add a sitter's share to its rows."""
    for row in seats:
        load[row] += share / len(seats)
