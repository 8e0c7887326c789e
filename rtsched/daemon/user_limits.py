"""Limits of a user's promises that the site sets: open ones, unused ones, and budgets.

A budget is the share of the machine for a user or an account. Work is what a promised job may use
at most, in node-seconds, or in processor-seconds where jobs share nodes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.daemon import messages
from rtsched.model.jobs import Kind
from rtsched.model.resources import CPU
from rtsched.model.snapshot import are_in
from rtsched.model.table import amounts_of
from rtsched.model.units import HOUR, WEEK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from rtsched.daemon.promises import Promise, PromiseState
    from rtsched.daemon.settings import DaemonSettings
    from rtsched.daemon.site import Site
    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Jobs

WHOLE = 5
"""A promise of the whole machine for an hour or more that its user cancels before the job starts
counts as so many unused promises, one of less in proportion."""

NEGLIGIBLE = 0.25
"""Less than this much of an unused promise counts as none."""


def _work_of(jobs: Jobs, cluster: Cluster) -> NDArray[np.float64]:
    """Return float64[n]: what jobs may use at most; of a divisible load what it needs at least."""
    work = jobs.size * jobs.wall_time
    array, load = jobs.kind == Kind.ARRAY, jobs.kind == Kind.DIVISIBLE
    if array.any():
        rounds = np.ceil(jobs.tasks / np.maximum(jobs.tasks_per_node, 1))
        work = np.where(array, rounds * jobs.wall_time, work)
    if load.any():
        work = np.where(load, jobs.sigma * (jobs.cms + jobs.cps), work)
    if cluster.shared:
        work = work * np.maximum(amounts_of(jobs, "demand", (CPU,))[:, 0], 1)
    return np.where(np.isfinite(work), work, 0.0)


def machine_size(cluster: Cluster) -> float:
    """Return how many nodes are in service, or processors where jobs share nodes."""
    if not cluster.shared:
        return float(cluster.usable.sum())
    return float(amounts_of(cluster.nodes, "capacity", (CPU,))[cluster.usable].sum())


UNUSED: tuple[PromiseState, ...] = ("provisional", "firm")
"""States, as they were, of promises that came to nothing: no job took them, or it never started
on what was kept for it."""


class ReachedLimit(NamedTuple):
    """Why a user is promised no more for now: a reason code, and a sentence.

    `until` is when the limit allows one more at the latest, seconds since the epoch; inf: not
    before some of the user's jobs have ended.
    """

    code: str
    text: str
    until: float = math.inf


def refusal(
    site: Site, job: Jobs, uid: int, settings: DaemonSettings, now: float, *, likely: bool = False
) -> ReachedLimit | None:
    """Return why a user is not promised a job's deadline at `now`; None: no limit is reached.

    `job` is one row. A `likely` promise takes no budget, and what a user cancelled, for which nodes
    were kept in vain, does not count against it.
    """
    most = settings.promises_per_user
    if most and len(site.open_promises(uid)) >= most:
        return ReachedLimit("submit.too-many", messages.too_many(most))
    if not likely and (what := _over_budget(site, job, uid, settings)):
        return ReachedLimit("submit.budget", messages.over_budget(what))
    unused = site.unused_by(uid, now, *(("provisional",) if likely else UNUSED))
    most = settings.unused_promises_per_hour
    if not most or len(unused) < most:
        return None
    until = unused[-most] + HOUR
    return ReachedLimit("submit.unused", messages.too_many_unused(until - now), until)


def _over_budget(site: Site, job: Jobs, uid: int, settings: DaemonSettings) -> str:
    """Return whose promises would take more of the machine than they may with one more; or none.

    A sentence part, empty: nobody's. `job` is one row.
    """
    cluster = site.snapshot.cluster
    room, own = WEEK * machine_size(cluster), float(_work_of(job, cluster)[0])
    requested, account = site.requested, job.texts("account")[0]
    found = []
    if share := settings.promised_share_per_user:
        of_user = [promise.id for promise in site.open_promises(uid)]
        found.append(("your promises", are_in(requested.id, of_user), share))
    if (share := settings.promised_share_per_account) and account is not None:
        of_account = requested.where("account", lambda name: name == account)
        found.append((f"promises to account {account}", of_account, share))
    promised, work = ~are_in(requested.id, site.promises.offers), _work_of(requested, cluster)
    for what, mine, share in found:
        if own + float(work[mine & promised].sum()) > share * room:
            return f"{what} would take more than {100 * share:g} % of a week of the machine"
    return ""


def kept_for_nothing(site: Site, promises: Iterable[Promise]) -> dict[int, int]:
    """Return by user as how many unused promises these count: they kept others from the machine.

    In proportion to what was planned for them; what is cancelled at once was of use to nobody else
    for the same time, and so counts as the whole machine for an hour at most.
    """
    by_user: dict[int, list[int]] = {}
    for promise in promises:
        by_user.setdefault(promise.uid, []).append(promise.id)
    cluster, counts = site.snapshot.cluster, dict[int, int]()
    whole = max(machine_size(cluster), 1.0) * HOUR
    for uid, jobs in by_user.items():
        rows = site.requested.take(are_in(site.requested.id, np.array(jobs, np.int64)))
        share = min(float(_work_of(rows, cluster).sum()) / whole, 1.0)
        counts[uid] = max(math.ceil(WHOLE * share - NEGLIGIBLE), 0)
    return counts
