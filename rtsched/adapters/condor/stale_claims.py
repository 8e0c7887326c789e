"""Jobs that the schedd believes to run on slots that have long been given back.

When a machine is started anew, or cannot be told that a job has to end, the job's shadow looks for
it as long as the job's lease lasts (`job_lease_duration`, 40 minutes by default), and the job
counts as running. Its slot has been free, or another job's, since then.

Source: HTCondor's manual, "Machine ClassAd Attributes" (EnteredCurrentState, DaemonStartTime).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.condor.pool_state import has_slot, slot_names
from rtsched.adapters.condor.slots import parent_of
from rtsched.logs.classads import number, text

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from rtsched.adapters.condor.pool_state import Procs
    from rtsched.logs.classads import Record

SKEW_S = 30.0
"""Seconds by which the clocks of two machines may differ, and the collector's news be old."""


def emptied_of(ads: Sequence[Record]) -> dict[str, float]:
    """Return since when nobody has had a slot, seconds since the epoch, by its name.

    Of a partitionable slot: since when none of the dynamic slots can be that are not shown.
    """
    found = {}
    for ad in ads:
        if ad.get("partitionableslot") is True:
            since = number(ad, "daemonstarttime")
        else:
            since = (
                number(ad, "enteredcurrentstate") if ad.get("state") == "Unclaimed" else math.nan
            )
        if math.isfinite(since):
            found[text(ad, "name") or ""] = since
    return found


def without_stale_claims(
    procs: Procs, emptied: Mapping[str, float], held: Collection[str]
) -> Procs:
    """Return procs, in which those have no slot that cannot be where they were.

    Parameters
    ----------
    procs : Procs
        As the schedd shows them.
    emptied : mapping of str to float
        As `emptied_of` returns it.
    held : collection of str
        Slots that somebody has, dynamic ones too.
    """
    slot = procs.column("slot")
    rows = np.flatnonzero(has_slot(procs) & (slot >= 0)).tolist()
    begun, names = procs.start.tolist(), procs.names("slot")
    gone = [
        row
        for row in rows
        if all(
            name not in held
            and emptied.get(name, emptied.get(parent_of(name), -math.inf)) > begun[row] + SKEW_S
            for name in slot_names(names[slot[row]])
        )
    ]
    if not gone:
        return procs
    codes = slot.copy()
    codes[gone] = -1
    return procs.with_column("slot", codes)
