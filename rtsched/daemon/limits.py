"""Limits of accounts and QOS as resources that the planner knows.

What the jobs of a user, an account or a QOS may hold together is planned with as licences are: the
cluster has so much of it, and each job that counts there takes what it has from its start to its
end, wherever it runs. Only limits matter that running and promised jobs are beyond together. Of the
others only jobs that run count: those that wait come after the promised ones.

Where jobs have whole nodes, planners know nothing of this. There a job is promised nothing as long
as it would be planned to run beyond a limit (`full_limit`).

A job with a range of nodes, or an array, counts with the most that it may have at a time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.daemon.site import in_order
from rtsched.kernels.overlaps import ROUNDING
from rtsched.model.jobs import Jobs, Kind
from rtsched.model.limit_rules import NODE, kinds_of
from rtsched.model.limits import JOBS
from rtsched.model.resources import CPU
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import places
from rtsched.model.table import amounts_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from numpy.typing import NDArray

    from rtsched.daemon.site import Site
    from rtsched.model.cluster import Cluster
    from rtsched.model.limit_rules import JobNames, LimitRules

LIMIT = "limit/"
"""How names of limits begin, among those of resources; then follow the group and what it holds."""

Held = dict[str, int]
"""What is counted to limits, by their names."""


def limits_in(jobs: Jobs) -> tuple[str, ...]:
    """Return the names of limits that jobs count to."""
    return tuple(name for name in jobs.names("demand") if name.startswith(LIMIT))


def with_limits(
    cluster: Cluster, running: Jobs, requested: Jobs, rules: LimitRules | None
) -> tuple[Cluster, Jobs, Jobs, Held]:
    """Return cluster, running and promised jobs with the limits that matter, and what is held.

    A limit matters if what runs and what is promised is more than it together. That a job counts
    to a limit is a part of its `demand`; of a promised job never more than the limit, so that it
    has a place in the plan if the limit is lowered below what it takes.
    """
    held, _ = _sums(running, rules, cluster)
    promised, most = _sums(requested, rules, cluster)
    limits = {name: n for name, n in most.items() if held.get(name, 0) + promised[name] > n}
    others = {name: n for name, n in cluster.licenses.items() if not name.startswith(LIMIT)}
    wanted = {**others, **limits}
    if wanted != cluster.licenses:
        cluster = replace(cluster, licenses=wanted)
    if limits or limits_in(running):
        counts = _counts(running, rules, cluster, limits, running=True)
        running = _with_counts(running, tuple(limits), counts)
    return cluster, running, counted_to_limits(requested, rules, cluster), held


def counted_to_limits(jobs: Jobs, rules: LimitRules | None, cluster: Cluster) -> Jobs:
    """Return promised jobs with what they count to the limits that the cluster has."""
    limits = {name: n for name, n in cluster.licenses.items() if name.startswith(LIMIT)}
    if not limits and not limits_in(jobs):
        return jobs
    most = np.array(list(limits.values()), np.int64)
    counts = np.minimum(_counts(jobs, rules, cluster, limits), most)
    return _with_counts(jobs, tuple(limits), counts)


def for_job(site: Site, job: Jobs) -> tuple[Site, Jobs]:
    """Return the site with the limits that matter with one more job, and that job with these."""
    snapshot, rules = site.snapshot, site.limit_rules
    own, most = _sums(job, rules, snapshot.cluster)
    names = [name for name in most if name not in snapshot.cluster.licenses]
    promised = _counts(site.requested, rules, snapshot.cluster, names).sum(axis=0).tolist()
    new = {
        name: most[name]
        for name, taken in zip(names, promised, strict=True)
        if site.held.get(name, 0) + taken + own[name] > most[name]
    }
    if new:
        cluster = replace(snapshot.cluster, licenses={**snapshot.cluster.licenses, **new})
        limits = [name for name in cluster.licenses if name.startswith(LIMIT)]
        counts = _counts(snapshot.running, rules, cluster, limits, running=True)
        running = _with_counts(snapshot.running, tuple(limits), counts)
        requested = counted_to_limits(site.requested, rules, cluster)
        waits = np.isin(snapshot.queued.id, requested.id)
        rows = requested.take(np.isin(requested.id, snapshot.queued.id))
        queued = in_order(Jobs.joined([snapshot.queued.take(~waits), rows]))
        snapshot = replace(snapshot, cluster=cluster, running=running, queued=queued)
        site = replace(site, snapshot=snapshot, requested=requested)
    return site, counted_to_limits(job, rules, snapshot.cluster)


def _sums(jobs: Jobs, rules: LimitRules | None, cluster: Cluster) -> tuple[Held, dict[str, int]]:
    """Return what jobs count together to each limit, and the most that there is of it."""
    held, found = dict[str, int](), dict[str, int]()
    if rules is None or not cluster.shared or not len(jobs):
        return held, found
    known = _countable(cluster)
    kinds, kind = kinds_of(jobs)
    sums = {
        thing: np.bincount(kind, weights=_taken(jobs, cluster, name)).astype(np.int64).tolist()
        for thing, name in known.items()
    }
    for at, names in enumerate(kinds):
        for name, thing, amount in _limits(rules, names, known):
            held[name] = held.get(name, 0) + sums[thing][at]
            if amount is not None:
                found[name] = min(amount, found.get(name, amount))
    return held, found


def _limits(
    rules: LimitRules, names: JobNames, known: Collection[str]
) -> Iterator[tuple[str, str, int | None]]:
    """Yield the limits that jobs of some names count to: name, what is counted, and the most.

    None: it holds for others only, as that of an account whose jobs have another one of their QOS.
    """
    groups = rules.of(rules.with_default_qos(names)).groups(known.__contains__)
    for group, most in groups.items():
        for thing in known:
            yield f"{LIMIT}{group}/{thing}", thing, most.get(thing)


def without_limits(job: Jobs) -> Jobs:
    """Return a job as if it counted to no limit."""
    return _with_counts(job, (), np.zeros((len(job), 0), np.int64))


def texts_of(site: Site, job: Jobs) -> list[str]:
    """Return the limits that one job counts to in the plan, as the batch system calls them."""
    rules = site.limit_rules
    if rules is None:
        return []
    own, known = rules.of(rules.with_default_qos(kinds_of(job)[0][0])), limits_in(job)
    return [one.text for one in own.limits if f"{LIMIT}{one.group}/{one.thing}" in known]


def _countable(cluster: Cluster) -> dict[str, str]:
    """Return what of jobs can be counted, by its name in limits, which is in lower case.

    A node that they share counts once in Slurm.
    """
    return {name.lower(): name for name in (JOBS, *cluster.nodes.names("capacity"))}


def _counts(
    jobs: Jobs,
    rules: LimitRules | None,
    cluster: Cluster,
    limits: Collection[str],
    *,
    running: bool = False,
) -> NDArray[np.int64]:
    """Return what each job counts to each limit, int64[n, l].

    Those that run count to limits that hold for others only, too; those that wait need not wait
    for these.
    """
    column = {name: at for at, name in enumerate(limits)}
    counts = np.zeros((len(jobs), len(column)), np.int64)
    if rules is None or not column:
        return counts
    known = _countable(cluster)
    taken = {thing: _taken(jobs, cluster, name) for thing, name in known.items()}
    kinds, kind = kinds_of(jobs)
    for at, names in enumerate(kinds):
        mine = [
            (name, thing)
            for name, thing, most in _limits(rules, names, known)
            if name in column and (running or most is not None)
        ]
        rows = np.flatnonzero(kind == at) if mine else kind[:0]
        for name, thing in mine:
            counts[rows, column[name]] = taken[thing][rows]
    return counts


def _taken(jobs: Jobs, cluster: Cluster, thing: str) -> NDArray[np.int64]:
    """Return how much of something each job has at most at a time, int64[n]."""
    arrays = jobs.kind == Kind.ARRAY
    nodes = np.maximum(jobs.size, jobs.size_max).astype(np.int64)
    if thing == JOBS:
        at_a_time = np.minimum(nodes * np.maximum(jobs.tasks_per_node, 1), jobs.tasks)
        return np.where(arrays, np.maximum(at_a_time, 1), 1)
    each = amounts_of(jobs, "demand", (thing,))[:, 0]
    if thing == CPU:
        all_cores = int(amounts_of(cluster.nodes, "capacity", (CPU,)).max(initial=0))
        each = np.where(jobs.exclusive & ~arrays, np.maximum(each, all_cores), each)
    return np.asarray(each * nodes)


def _with_counts(jobs: Jobs, names: tuple[str, ...], counts: NDArray[np.int64]) -> Jobs:
    """Return jobs whose demand has these counts, and no other ones of limits."""
    others = tuple(name for name in jobs.names("demand") if not name.startswith(LIMIT))
    if (*others, *names) == jobs.names("demand") and np.array_equal(
        counts, amounts_of(jobs, "demand", names)
    ):
        return jobs
    demand = np.concatenate([amounts_of(jobs, "demand", others), counts], axis=1)
    return jobs.replace_text("demand", demand, (*others, *names))


class FullLimit(NamedTuple):
    """A limit that leaves no room for a job as it is planned."""

    text: str
    """What the batch system calls it, and whose it is."""
    until: float
    """When it has room, seconds since the epoch, as things are; inf: never."""


def full_limit(site: Site, job: Jobs, plan: Schedule) -> FullLimit | None:
    """Return the limit that a job would be beyond where it is planned; None: there is none.

    Of whole nodes. Running and planned jobs hold what they have until they end by their limits.

    Parameters
    ----------
    site : Site
        Before the job.
    job : Jobs
        One row, with its account and QOS.
    plan : Schedule
        In which it has an entry.
    """
    snapshot, rules = site.snapshot, site.limit_rules
    if rules is None or snapshot.cluster.shared:
        return None
    own = rules.of(rules.with_default_qos(kinds_of(job)[0][0]))
    limits = [one for one in own.limits if one.group and one.thing in (JOBS, CPU, NODE)]
    if not limits:
        return None
    place, _ = places(snapshot.queued.id, plan.entries.job)
    mine = int(np.flatnonzero(plan.entries.job == job.id[0])[0])
    others = np.flatnonzero(np.arange(len(plan)) != mine)
    waiting = snapshot.queued.take(place[others])
    jobs = Jobs.joined([snapshot.running, waiting])
    held = Schedule.joined([snapshot.allocations, plan.take(others)])
    amounts = _whole_amounts(snapshot.cluster, jobs, held, len(snapshot.running))
    asked = _whole_amounts(snapshot.cluster, job, plan.take(np.array([mine])))
    kinds, kind = kinds_of(jobs)
    groups = [rules.of(rules.with_default_qos(names)).member_of for names in kinds]
    seconds = float(plan.entries.end[mine] - plan.entries.start[mine])
    start = max(float(plan.entries.start[mine]), snapshot.now)
    found: FullLimit | None = None
    for one in limits:
        counts = np.array([one.group in each for each in groups], np.bool_)[kind]
        room = one.most - int(asked[one.thing][0])
        until = _first_room(np.where(counts, amounts[one.thing], 0), held, start, seconds, room)
        if until > max(start, -np.inf if found is None else found.until):
            found = FullLimit(one.text, until)
    return found


def _whole_amounts(
    cluster: Cluster, jobs: Jobs, held: Schedule, running: int = 0
) -> dict[str, NDArray[np.int64]]:
    """Return what jobs have that run or are planned, row by row with `held`, int64[n] each.

    The first of them run, perhaps on fewer cores than their nodes have, and tell how many.
    """
    nodes = held.entries.size.astype(np.int64)
    cores = np.zeros(len(held), np.int64)
    np.add.at(cores, held.rows(), cluster.nodes.cores[held.nodes])
    known = (np.arange(len(held)) < running) & (jobs.cores > 0)
    cores = np.where(known, jobs.cores, cores)
    at_a_time = np.minimum(nodes * np.maximum(jobs.tasks_per_node, 1), np.maximum(jobs.tasks, 1))
    return {JOBS: np.where(jobs.kind == Kind.ARRAY, at_a_time, 1), CPU: cores, NODE: nodes}


def _first_room(
    amounts: NDArray[np.int64], held: Schedule, start: float, seconds: float, room: int
) -> float:
    """Return when no more than `room` is held for so many seconds, from `start` on; inf: never."""
    if room < 0:
        return np.inf
    rows = np.flatnonzero(amounts)
    times = np.concatenate([held.entries.start[rows], held.entries.end[rows]])
    change = np.concatenate([amounts[rows], -amounts[rows]])
    order = np.lexsort((change, times))
    times, total = times[order], np.cumsum(change[order])
    for k in np.flatnonzero(total > room).tolist():
        if times[k] < start + seconds - ROUNDING and times[k + 1] > start + ROUNDING:
            start = float(times[k + 1])
    return start
