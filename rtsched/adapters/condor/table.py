"""The file in which the ClassAd library looks slots up: delay factors, and what is kept of each.

HTCondor knows no advance reservations. A best-effort job may start on a slot if it leaves, of the
slot's free CPUs, so many as are kept for promised starts before its own end. Of all planned starts
on a row only the next one needs protection: what ends before it disturbs none of the later ones. On
a partitionable slot the rows' next starts follow one another, and each keeps its CPUs besides those
that start before.

A dynamic slot that is used again takes no more of its parent. A further job may start on it if it
ends before the first planned start for which the parent has not enough left beside its dynamic
slots: `slot1_@host` in the table says that of `slot1@host`.

A best-effort job may start a little after it was allowed to, and outlive its stated run time; a
planned start is published that much earlier.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rtsched.adapters.condor.pool_state import Slots
    from rtsched.model.schedule import Schedule

HEAD = "rtsched-slots 1"
"""How a table begins: its name, and the version of its form."""

WORST = 1e6
"""The delay factor of a slot that is not to be used."""

Steps = tuple[tuple[int, ...], ...]
"""From which second since the epoch on how many CPUs are kept; and then megabytes, GPUs and
kilobytes of disk, where jobs share slots. All ascend."""


@dataclass(frozen=True)
class SlotTable:
    """What HTCondor is told of the slots.

    Attributes
    ----------
    kept : mapping of str to Steps
        By slot name. Slots of which nothing is kept are left out.
    delay : mapping of str to float
        Delay factor by slot name, for every slot.
    lacking : mapping of str to float
        From when on a partitionable slot of which something is kept has not enough left for that,
        seconds since the epoch; inf: it has.
    """

    kept: Mapping[str, Steps] = field(default_factory=dict)
    delay: Mapping[str, float] = field(default_factory=dict)
    lacking: Mapping[str, float] = field(default_factory=dict)

    def text(self, written: float, valid: float) -> str:
        """Return the file's text; `written`: seconds since the epoch, `valid`: for how long."""
        lines = [f"{HEAD} {written:.0f} {math.ceil(valid)}"]
        for name, delay in self.delay.items():
            steps = ",".join(":".join(map(str, step)) for step in self.kept.get(name, ()))
            lines.append(f"{name}\t{delay:.6g}\t{steps or '-'}")
        for name, since in self.lacking.items():
            lines.append(f"{_used_again(name)}\t1\t{f'{since:.0f}:1' if since < math.inf else '-'}")
        return "\n".join([*lines, ""])


def _used_again(slot: str) -> str:
    """Return the name by which the library looks up a slot whose dynamic slots are used again."""
    return slot.replace("@", f"{_AGAIN}@", 1) if "@" in slot else slot + _AGAIN


_AGAIN = "_"


def lacking_of(
    kept: Mapping[str, Steps], free: Mapping[str, tuple[float, ...]]
) -> dict[str, float]:
    """Return from when on slots have not enough left for what is kept of them, see `SlotTable`.

    Parameters
    ----------
    kept : mapping of str to Steps
        By slot name.
    free : mapping of str to tuple of float
        What partitionable slots have left beside their dynamic slots, as in the steps.
    """
    return {
        name: next(
            (
                float(start)
                for start, *amounts in steps
                if any(most > left for most, left in zip(amounts, free[name], strict=False))
            ),
            math.inf,
        )
        for name, steps in kept.items()
        if name in free
    }


def kept_of(
    plan: Schedule,
    slots: Slots,
    bound: NDArray[np.int32],
    fixed: NDArray[np.float64],
    *,
    lead: float,
    horizon: float,
) -> dict[str, Steps]:
    """Return what has to be kept of each slot for a plan.

    Parameters
    ----------
    plan : Schedule
        Planned starts of jobs that wait.
    slots : Slots
        The rows of the cluster.
    bound : int32[k]
        Rows on which jobs are about to start: kept at once.
    fixed : float64[m]
        When each row is needed by what is no job; inf: never.
    lead : float
        Seconds by which a job may outlive its stated run time.
    horizon : float
        Seconds since the epoch; starts after it keep nothing.
    """
    start = np.minimum(plan.first_starts(len(slots)), fixed)
    start[bound] = lead
    rows = np.flatnonzero(np.isfinite(start) & (start <= horizon))
    slot, begin = slots.column("name")[rows], np.floor(start[rows] - lead).astype(np.int64)
    order = np.lexsort((begin, slot))
    slot, begin, cpus = slot[order], begin[order], slots.cpus[rows][order].astype(np.int64)
    total = np.cumsum(cpus)
    new = np.ones(len(slot), np.bool_)
    new[1:] = slot[1:] != slot[:-1]
    before = np.repeat((total - cpus)[new], np.diff([*np.flatnonzero(new), len(slot)]))
    names = slots.names("name")
    steps: dict[str, dict[int, int]] = {}
    columns = zip(slot.tolist(), begin.tolist(), (total - before).tolist(), strict=True)
    for code, moment, kept in columns:  # of equal starts the last one, which keeps the most
        steps.setdefault(names[code], {})[moment] = kept
    return {name: tuple(found.items()) for name, found in steps.items()}


def delays_of(slots: Slots, factor: NDArray[np.float64]) -> dict[str, float]:
    """Return the delay factor of each slot, that of its best row; `factor` is float64[m]."""
    best = np.full(len(slots.names("name")), np.inf)
    code = slots.column("name")
    np.minimum.at(best, code, np.where(np.isnan(factor), np.inf, factor))
    used = np.unique(code).tolist()
    return {slots.names("name")[at]: float(min(best[at], WORST)) for at in used}


def slots_in(path: str) -> set[str]:
    """Return the slots that a table names; empty if there is none."""
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    names = (line.partition("\t")[0] for line in lines[1:])
    return {name for name in names if not name.partition("@")[0].endswith(_AGAIN)}
