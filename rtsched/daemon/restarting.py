"""Promised jobs that fail by themselves in time, and begin again within their promise.

The site names the exit codes with which it is worth while. Such a job is judged anew, as it was
when it was submitted: for all of its run, from when the batch system would start it at the
earliest, beside all other promises. If there is room it is planned, and the batch system queues it
again; else its promise is closed as that of any job that fails.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from rtsched.daemon.replanning import lost_starts, planned_from, with_plan
from rtsched.daemon.site import Step, in_order
from rtsched.errors import PlannerError
from rtsched.model.actions import Restart
from rtsched.model.jobs import Jobs
from rtsched.model.snapshot import are_in

if TYPE_CHECKING:
    from rtsched.adapters.live import Completions
    from rtsched.core.chain import Chain
    from rtsched.daemon.promises import Promise
    from rtsched.daemon.site import Site

NO_ROOM = "no plan ends it in time if it restarts"
NOT_QUEUED = "the batch system did not requeue it"

POLLS = 3
"""Looks after which a job that is not in the queue again is given up."""


@dataclass(frozen=True)
class RestartPolicy:
    """Which promised jobs may begin again.

    Attributes
    ----------
    exit_codes : frozenset of int
        With which they failed.
    max_restarts : int
        How often the batch system may have started one again.
    """

    exit_codes: frozenset[int] = frozenset()
    max_restarts: int = 1

    def may_begin(self, completions: Completions, row: int, deadline: float) -> bool:
        """Return whether a row of `completions` may; `deadline` in seconds since the epoch."""
        return bool(
            int(completions.exit_code[row]) in self.exit_codes
            and completions.requeues[row]
            and completions.restarts[row] < self.max_restarts
            and completions.end[row] <= deadline
        )


NEVER = RestartPolicy()


def restarted(
    site: Site, planner: Chain | None, failed: Completions, delay: float, now: float
) -> Step:
    """Return the site in which failed jobs begin again, as far as no promise breaks for that.

    Parameters
    ----------
    site : Site
        After the plan was mended. The promises to the jobs stand.
    planner : Chain or None
        The planner alone. If it raises or answers wrongly, the next cycle tries again.
    failed : Completions
        Promised jobs that may begin again.
    delay : float
        Seconds for which the batch system puts off a job that it queues again.
    now : float
        Seconds since the epoch.
    """
    codes = dict(zip(failed.job.tolist(), failed.exit_code.tolist(), strict=True))
    wanted = sorted((site.promises[job].deadline, job) for job in codes if job in site.promises)
    again: dict[int, int] = {}
    closed: dict[int, str] = {}
    problems: tuple[str, ...] = ()
    for _, job in wanted:
        polls = site.waiting_job(job).restarting
        if polls == POLLS:
            closed[job] = NOT_QUEUED
        elif polls:
            again[job] = polls + 1
        elif planner is None:
            closed[job] = NO_ROOM
        else:
            try:
                found = _with_start(site, planner, job, now + delay, now)
            except PlannerError as error:
                problems = (f"{error}; a promised job that failed waits for its new plan",)
                continue
            if found is None:
                closed[job] = NO_ROOM
            else:
                site, again[job] = found, 1
    changed = tuple(
        _closed(site.promises[job], codes[job], why, now) for job, why in closed.items()
    )
    site = site.without(closed)
    known = site.waiting_job
    site = site.with_waiting(
        {job: known(job)._replace(restarting=again.get(job, 0)) for job in codes}
    )
    actions = (Restart(np.array(list(again), np.int64)),) if again else ()
    return Step(site, changed, actions, problems=problems)


def _with_start(site: Site, planner: Chain, job: int, begin: float, now: float) -> Site | None:
    """Return the site with a new start for a job, and the job in the queue; None: there is none.

    Raises
    ------
    PlannerError
        If the planner raised or answered wrongly.
    """
    snapshot = replace(site.snapshot, now=now)
    plan = planned_from(site, snapshot, planner, job, begin)
    if plan is None:
        return None
    queued = in_order(Jobs.joined([snapshot.queued, site.row(job)]))
    found = with_plan(replace(site, snapshot=replace(site.snapshot, queued=queued)), plan)
    lost = lost_starts(found, replace(found.snapshot, now=now))
    return found if are_in(lost, lost_starts(site, snapshot)).all() else None


def _closed(promise: Promise, code: int, why: str, now: float) -> Promise:
    """Return the promise of a job that failed and does not begin again."""
    text = f"the job failed with exit code {code} before its deadline, and {why}"
    return msgspec.structs.replace(
        promise, state="withdrawn", why=text, changed_at=now, expires=np.inf
    )
