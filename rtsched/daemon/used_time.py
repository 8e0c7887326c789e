"""Limits of what accounts, users and QOS have used: GrpTRESMins and GrpWall.

What is left of such a limit is what nobody has used, less what running jobs may yet use by their
time limits, less what jobs that wait were promised. A job is promised nothing that may need more:
Slurm would not start it, or without `safe` in AccountingStorageEnforce end it when nothing is left.
That used time decays is not counted on: nobody knows what the jobs that run then will have used.

Whatever a job counts with is the most that it may use: all nodes of a range, all tasks of an array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.daemon.qos_limits import LimitsOfJobs, billed, countable, most_nodes, run_seconds
from rtsched.model.jobs import Jobs, Kind
from rtsched.model.limits import BILLING, JOBS, NODE, USED_TIME
from rtsched.model.resources import CPU, LICENSE
from rtsched.model.snapshot import are_in
from rtsched.model.table import amounts_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from rtsched.daemon.site import Site
    from rtsched.model.cluster import Cluster


class UsedUp(NamedTuple):
    """A limit of used time that leaves less than a job may need."""

    text: str
    """What the batch system calls it, and whose it is."""
    thing: str
    needed: float
    """What the job may use, amounts times seconds."""
    left: float
    """What is left, in the same unit."""


def used_up(site: Site, job: Jobs, apart: Collection[int] = ()) -> UsedUp | None:
    """Return a limit of used time of which not enough is left for a job; None: there is none.

    Parameters
    ----------
    site : Site
        Before the job.
    job : Jobs
        One row, with its account and QOS.
    apart : collection of int
        Ids of offers that do not count, as they are its user's.
    """
    rules, used, cluster = site.limit_rules, site.used_time, site.snapshot.cluster
    if rules is None or used is None:
        return None
    limits_of_job = LimitsOfJobs.of(job, rules)
    (own,) = limits_of_job.kinds
    known = {CPU: CPU, NODE: NODE, **countable(cluster)}
    limits = [one for one in own.seconds if one.word in USED_TIME and one.thing in known]
    if not limits:
        return None
    others = _promised_or_new(site, apart)
    limits_of_others = LimitsOfJobs.of(others, rules)
    factor, factors = limits_of_job.time_factor(), limits_of_others.time_factor()
    for one in limits:
        counts = limits_of_others.members_of([one.group])
        more = _most_used(others, cluster, known[one.thing], site.leeway) * factors
        needed = float((_most_used(job, cluster, known[one.thing], site.leeway) * factor)[0])
        spent = used.seconds.get((one.group, one.thing), 0.0) + float(more[counts].sum())
        if needed > one.most - spent:
            return UsedUp(one.text, one.thing, needed, max(one.most - spent, 0.0))
    return None


def _promised_or_new(site: Site, apart: Collection[int]) -> Jobs:
    """Return the promised jobs that wait, and those that started since used time was read.

    An array counts as one that waits until all of its tasks have ended.
    """
    snapshot, used, requested = site.snapshot, site.used_time, site.requested
    assert used is not None  # noqa: S101 -- who asks has looked
    begun = are_in(requested.id, snapshot.running.id) & (requested.kind != Kind.ARRAY)
    waiting = requested.take(~begun & ~are_in(requested.id, list(apart)))
    new = used.lacks(snapshot.allocations.entries.start) & ~are_in(snapshot.running.id, waiting.id)
    return Jobs.joined([waiting, snapshot.running.take(new)])


def _most_used(jobs: Jobs, cluster: Cluster, thing: str, margin: float) -> NDArray[np.float64]:
    """Return how much of something times seconds each job uses at the most, float64[n].

    `margin`: seconds by which jobs outlive their time limits, in which Slurm counts nothing. Of
    jobs that have whole nodes as many processors count as the largest node has.
    """
    if thing == BILLING:
        return billed(jobs, cluster, lambda each: _most_used(jobs, cluster, each, margin))
    tasks, array = np.maximum(jobs.tasks, 1), jobs.kind == Kind.ARRAY
    limit = run_seconds(jobs.replace(kind=np.zeros(len(jobs), np.int8)), margin)
    if thing == JOBS:
        return np.where(array, tasks * limit, limit)
    nodes = np.ones(len(jobs)) if thing.startswith(LICENSE) else most_nodes(jobs).astype(np.float64)
    if thing == NODE:
        each = np.ones(len(jobs))
    else:
        each = amounts_of(jobs, "demand", (thing,))[:, 0].astype(np.float64)
    if thing == CPU:
        capacity = amounts_of(cluster.nodes, "capacity", (CPU,)) if cluster.shared else None
        cores = int((cluster.nodes.cores if capacity is None else capacity).max(initial=1))
        whole = ~array & (jobs.exclusive if cluster.shared else True)
        each = np.where(whole | (each == 0), cores, each)
    at_a_time = np.where(thing == NODE, 1, np.maximum(jobs.tasks_per_node, 1))
    return np.where(
        array, each / at_a_time * tasks * limit, each * nodes * run_seconds(jobs, margin)
    )
