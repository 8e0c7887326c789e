"""Stated run times: jobs that outlive theirs are ended where HTCondor's own policy did not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.condor.commands import Act, change
from rtsched.adapters.condor.ids import name_of
from rtsched.adapters.condor.pool_state import RUNNING, work_began
from rtsched.adapters.condor.reserving import text_of
from rtsched.logs.classads import number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rtsched.adapters.condor.last_applied import LastApplied
    from rtsched.adapters.condor.pool_state import PoolState
    from rtsched.adapters.condor.settings import CondorSettings
    from rtsched.adapters.live import Change


def overrun_changes(
    view: PoolState, settings: CondorSettings, last_applied: LastApplied, now: float
) -> Iterator[Change]:
    """Yield which jobs end since they have run for longer than stated or planned.

    HTCondor's own policy ends a job within the overrun, and the job may take until the slot's
    completing to go. A second order must not come in between: told so while its slot is in the
    state Preempting, a shadow believes that it cannot reach the machine, and keeps the job for the
    rest of its lease (25.14). A limit of HTCondor's own is left to 50-rtsched.conf: the shadow
    knows when the job began to run.

    `now` is in seconds since the epoch.
    """
    if settings.overruns == "leave":
        return
    procs = view.procs
    limit = procs.run_time.copy()
    for row, ad in view.ads.items():
        planned = number(ad, "rtlimit")
        if planned > 0:
            limit[row] = min(limit[row], planned)
    over = work_began(procs) + limit + settings.overrun_s + settings.completing_s
    ours = (procs.status == RUNNING) & ~procs.limited
    for row in np.flatnonzero(ours & (over < now)).tolist():
        proc, slots = int(view.numbers[row]), text_of(view, "slot", row).split(",")
        if last_applied.urged_lately(proc, now) or not view.leaving.isdisjoint(
            map(str.strip, slots)
        ):
            continue
        why = f"rtsched: run time of {limit[row]:.0f} s is over"
        removes = settings.overruns == "remove"
        says = f"{'remove' if removes else 'vacate'} job {name_of(proc)}: {why}"
        act = Act("Remove" if removes else "VacateFast", (proc,), why)
        yield change("cancel" if removes else "requeue", int(procs.job[row]), says, act)
