"""Limits of accounts and QOS as resources that the planner knows.

What the jobs of a user, an account or a QOS may hold together is planned with as licences are: the
cluster has so much of it, and each job that counts there takes what it has from its start to its
end, wherever it runs. Only limits matter that running and promised jobs are beyond together. Of the
others only jobs that run count: those that wait come after the promised ones.

So are limits of what running jobs may yet use (GrpTRESRunMins, MaxTRESRunMins): a job takes what it
has times its time limit as long as it runs, and one that runs already what is left of that. That is
never less than Slurm counts, which takes off what a job has used.

Where jobs have whole nodes, planners know nothing of this. There a job is promised nothing as long
as it would be planned to run beyond a limit (`full_limit`).

A job with a range of nodes, or an array, counts with the most that it may have at a time.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rtsched.daemon.site import in_order
from rtsched.kernels.machine_limits import HELD, REMAINING
from rtsched.kernels.overlaps import ROUNDING
from rtsched.model.jobs import Jobs, Kind
from rtsched.model.limits import BILLING, JOBS, NODE, USED_TIME, kinds_of, minute_of, whole_units
from rtsched.model.resources import CPU, LICENSE
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import are_in, places
from rtsched.model.table import amounts_of
from rtsched.model.units import MINUTE
from rtsched.replay.limits import limits_of_kinds
from rtsched.text import span

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from numpy.typing import NDArray

    from rtsched.adapters.live import Observation, Submission
    from rtsched.daemon.admission import AdmissionResult
    from rtsched.daemon.site import Site
    from rtsched.model.cluster import Cluster
    from rtsched.model.limits import JobLimits, LimitRules, Limits, UsedTime
    from rtsched.model.snapshot import Snapshot

LIMIT = "limit/"
"""How names of limits begin, among those of resources; then follow the group and what it holds."""

RUN = "run/"
"""How names of things begin, in those of limits, that count times the minutes that running jobs may
have yet; memory in MiB."""

_FOREVER = 2.0**33
"""Seconds for which a job without a time limit counts."""

_LARGEST = 2**50
"""No job counts for more minutes of anything, and no limit of them is larger."""

Held = dict[str, int]
"""What is counted to limits, by their names."""


def limits_in(jobs: Jobs) -> tuple[str, ...]:
    """Return the names of limits that jobs count to."""
    return tuple(name for name in jobs.names("demand") if name.startswith(LIMIT))


def with_limits(observation: Observation, requested: Jobs) -> tuple[Cluster, Jobs, Jobs, Held]:
    """Return cluster, running and promised jobs with the limits that matter, and what is held.

    A limit matters if what runs and what is promised is more than it together. That a job counts
    to a limit is a part of its `demand`; of a promised job never more than the limit, so that it
    has a place in the plan if the limit is lowered below what it takes.
    """
    cluster, running, rules = observation.cluster, observation.running, observation.limits
    margin = observation.leeway
    left = _seconds_left(running, observation.allocations, observation.time, rules, margin)
    held, _ = _sums(running, rules, cluster, left)
    promised, most = _sums(requested, rules, cluster, run_seconds(requested, margin))
    limits = {name: n for name, n in most.items() if held.get(name, 0) + promised[name] > n}
    others = {name: n for name, n in cluster.licenses.items() if not name.startswith(LIMIT)}
    wanted = {**others, **limits}
    if wanted != cluster.licenses:
        cluster = replace(cluster, licenses=wanted)
    if limits or limits_in(running):
        counts = _counts(running, rules, cluster, limits, left, running=True)
        running = _with_counts(running, tuple(limits), counts)
    return cluster, running, counted_to_limits(requested, rules, cluster, margin), held


def counted_to_limits(
    jobs: Jobs, rules: LimitRules | None, cluster: Cluster, margin: float
) -> Jobs:
    """Return promised jobs with what they count to the limits that the cluster has.

    `margin`: seconds by which they outlive their time limits.
    """
    limits = {name: n for name, n in cluster.licenses.items() if name.startswith(LIMIT)}
    if not limits and not limits_in(jobs):
        return jobs
    most = np.array(list(limits.values()), np.int64)
    counts = _counts(jobs, rules, cluster, limits, run_seconds(jobs, margin))
    return _with_counts(jobs, tuple(limits), np.minimum(counts, most))


def for_job(site: Site, job: Jobs) -> tuple[Site, Jobs]:
    """Return the site with the limits that matter with one more job, and that job with these."""
    snapshot, rules, margin = site.snapshot, site.limit_rules, site.leeway
    own, most = _sums(job, rules, snapshot.cluster, run_seconds(job, margin))
    names = [name for name in most if name not in snapshot.cluster.licenses]
    new: dict[str, int] = {}
    if names:
        seconds = run_seconds(site.requested, margin)
        counts = _counts(site.requested, rules, snapshot.cluster, names, seconds)
        new = {
            name: most[name]
            for name, taken in zip(names, counts.sum(axis=0).tolist(), strict=True)
            if site.held.get(name, 0) + taken + own[name] > most[name]
        }
    if new:
        cluster = replace(snapshot.cluster, licenses={**snapshot.cluster.licenses, **new})
        limits = [name for name in cluster.licenses if name.startswith(LIMIT)]
        left = _seconds_left(snapshot.running, snapshot.allocations, site.seen, rules, margin)
        counts = _counts(snapshot.running, rules, cluster, limits, left, running=True)
        running = _with_counts(snapshot.running, tuple(limits), counts)
        requested = counted_to_limits(site.requested, rules, cluster, margin)
        waits = are_in(snapshot.queued.id, requested.id)
        rows = requested.take(are_in(requested.id, snapshot.queued.id))
        queued = in_order(Jobs.joined([snapshot.queued.take(~waits), rows]))
        snapshot = replace(snapshot, cluster=cluster, running=running, queued=queued)
        site = replace(site, snapshot=snapshot, requested=requested)
    return site, counted_to_limits(job, rules, snapshot.cluster, margin)


def run_seconds(jobs: Jobs, margin: float) -> NDArray[np.float64]:
    """Return how long jobs may run on the most nodes that they may have, seconds, float64[n].

    By their time limits, without the `margin` by which they outlive them. A moldable job runs the
    shorter the more nodes it has, but its limit is a whole minute: it keeps the margin. Of an
    array, each task.
    """
    moldable = jobs.kind == Kind.MOLDABLE
    shorter = jobs.size / np.maximum(np.maximum(jobs.size, jobs.size_max), 1)
    seconds = np.where(moldable, jobs.wall_time * shorter, jobs.wall_time - margin)
    return np.clip(seconds, 0.0, _FOREVER)


def _seconds_left(
    running: Jobs, runs: Schedule, now: float, rules: LimitRules | None, margin: float
) -> NDArray[np.float64]:
    """Return how long running jobs may yet run in Slurm's books, seconds, float64[n].

    What they used is taken off there now and then (PriorityCalcPeriod).
    """
    period = 0.0 if rules is None else rules.calc_period
    left = np.maximum(runs.entries.end - now, 0.0) + period
    return np.minimum(left, run_seconds(running, margin))


class LimitsOfJobs(NamedTuple):
    """The limits of jobs: those of each kind, and of which kind each job is."""

    kinds: list[JobLimits]
    kind: NDArray[np.int64]

    @classmethod
    def of(cls, jobs: Jobs, rules: LimitRules) -> LimitsOfJobs:
        """Return the limits of jobs with their accounts and QOS."""
        names, kind = kinds_of(jobs)
        return cls([rules.applied_to(each) for each in names], kind)

    def members_of(self, groups: Collection[str]) -> NDArray[np.bool_]:
        """Return which jobs count to one of some groups, bool[n]."""
        members = [not set(groups).isdisjoint(each.member_of) for each in self.kinds]
        return np.array(members, np.bool_)[self.kind]

    def time_factor(self) -> NDArray[np.float64]:
        """Return by what the time of each job counts at the most, float64[n].

        Slurm asks that the whole time limit is left, and uses up as much as UsageFactor says; of
        one with UsageFactor=0 nothing.
        """
        factor = np.array([each.usage_factor for each in self.kinds], np.float64)[self.kind]
        return np.where(factor == 0.0, 0.0, np.maximum(factor, 1.0))


class _Counted(NamedTuple):
    """What jobs count for: their limits, and how much of each thing."""

    limits: LimitsOfJobs
    amounts: dict[str, NDArray[np.int64]]


def _counted(
    jobs: Jobs, rules: LimitRules, cluster: Cluster, seconds: NDArray[np.float64]
) -> _Counted:
    """Return what jobs count for that run for so many seconds."""
    limits = LimitsOfJobs.of(jobs, rules)
    amounts = {thing: most_taken(jobs, cluster, name) for thing, name in countable(cluster).items()}
    if not rules.words <= set(USED_TIME):
        counted = seconds * limits.time_factor()
        held = {**amounts, NODE: most_nodes(jobs)}
        amounts |= {RUN + thing: _minutes(thing, held[thing], counted) for thing in held}
    return _Counted(limits, amounts)


def _minutes(
    thing: str, amounts: NDArray[np.int64], seconds: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return amounts times minutes, of memory in MiB, rounded up."""
    unit = float(minute_of(thing))
    return np.ceil(np.minimum(amounts / unit * seconds, _LARGEST) - ROUNDING).astype(np.int64)


def _sums(
    jobs: Jobs, rules: LimitRules | None, cluster: Cluster, seconds: NDArray[np.float64]
) -> tuple[Held, dict[str, int]]:
    """Return what jobs count together to each limit, and the most that there is of it."""
    held, found = dict[str, int](), dict[str, int]()
    if rules is None or not cluster.shared or not len(jobs):
        return held, found
    counted = _counted(jobs, rules, cluster, seconds)
    sums = {
        thing: np.bincount(counted.limits.kind, weights=amounts).astype(np.int64).tolist()
        for thing, amounts in counted.amounts.items()
    }
    for at, own in enumerate(counted.limits.kinds):
        for name, thing, amount in _limits(own, counted.amounts):
            held[name] = held.get(name, 0) + sums[thing][at]
            if amount is not None:
                found[name] = min(amount, found.get(name, amount))
    return held, found


def _limits(own: JobLimits, known: Collection[str]) -> Iterator[tuple[str, str, int | None]]:
    """Yield the limits that jobs of one kind count to: name, what is counted, and the most.

    None: it holds for others only, as that of an account whose jobs have another one of their QOS.
    """
    groups = own.groups(known.__contains__)
    for one in own.seconds:
        if one.word not in USED_TIME and RUN + one.thing in known:
            most = min(one.most // minute_of(one.thing), _LARGEST)
            held = groups[one.group]
            held[RUN + one.thing] = min(most, held.get(RUN + one.thing, most))
    for group, held in groups.items():
        for thing in known:
            yield f"{LIMIT}{group}/{thing}", thing, held.get(thing)


def without_limits(job: Jobs) -> Jobs:
    """Return jobs as if they counted to no limit."""
    return _with_counts(job, (), np.zeros((len(job), 0), np.int64))


def without_planned_limits(snapshot: Snapshot) -> Snapshot:
    """Return a state in which neither the cluster has limits nor jobs count to them."""
    cluster = snapshot.cluster
    licenses = {name: n for name, n in cluster.licenses.items() if not name.startswith(LIMIT)}
    if licenses != cluster.licenses:
        cluster = replace(cluster, licenses=licenses)
    queued, running = map(without_limits, (snapshot.queued, snapshot.running))
    return replace(snapshot, cluster=cluster, queued=queued, running=running)


def texts_of(site: Site, job: Jobs) -> list[str]:
    """Return the limits that one job counts to in the plan, as the batch system calls them."""
    rules = site.limit_rules
    if rules is None:
        return []
    (own,), known = LimitsOfJobs.of(job, rules).kinds, limits_in(job)
    limits = [(f"{LIMIT}{one.group}/{one.thing}", one) for one in own.limits]
    limits += [(f"{LIMIT}{one.group}/{RUN}{one.thing}", one) for one in own.seconds]
    return [one.text for name, one in limits if name in known and one.word not in USED_TIME]


def countable(cluster: Cluster) -> dict[str, str]:
    """Return what of jobs can be counted, by its name in limits, which is in lower case.

    A node that they share counts once in Slurm, but for limits that count time. Of jobs that have
    whole nodes nobody knows what else of these they are billed for than processors and nodes.
    """
    names = {name.lower(): name for name in (JOBS, *cluster.nodes.names("capacity"))}
    billing = cluster.billing
    if billing is not None and (cluster.shared or billing.weighted() <= {CPU, NODE}):
        names[BILLING] = BILLING
    return names


def billed(
    jobs: Jobs, cluster: Cluster, amounts: Callable[[str], NDArray[Any]]
) -> NDArray[np.float64]:
    """Return the billing units of jobs by what `amounts` returns of each resource, float64[n]."""
    assert cluster.billing is not None  # noqa: S101 -- `countable` has looked
    names = {CPU: CPU, NODE: NODE, **countable(cluster)}
    names |= {name: name for name in jobs.names("demand") if name.startswith(LICENSE)}
    return cluster.billing.units(
        jobs, lambda thing: amounts(names[thing]) if thing in names else None
    )


def _counts(
    jobs: Jobs,
    rules: LimitRules | None,
    cluster: Cluster,
    limits: Collection[str],
    seconds: NDArray[np.float64],
    *,
    running: bool = False,
) -> NDArray[np.int64]:
    """Return what each job counts to each limit, int64[n, l], where it runs for so many seconds.

    Those that run count to limits that hold for others only, too; those that wait need not wait
    for these.
    """
    column = {name: at for at, name in enumerate(limits)}
    counts = np.zeros((len(jobs), len(column)), np.int64)
    if rules is None or not column:
        return counts
    counted = _counted(jobs, rules, cluster, seconds)
    for at, own in enumerate(counted.limits.kinds):
        mine = [
            (name, thing)
            for name, thing, most in _limits(own, counted.amounts)
            if name in column and (running or most is not None)
        ]
        rows = np.flatnonzero(counted.limits.kind == at) if mine else counted.limits.kind[:0]
        for name, thing in mine:
            counts[rows, column[name]] = counted.amounts[thing][rows]
    return counts


def most_nodes(jobs: Jobs) -> NDArray[np.int64]:
    """Return the most nodes that each job may have, int64[n]."""
    return np.maximum(jobs.size, jobs.size_max).astype(np.int64)


def most_taken(jobs: Jobs, cluster: Cluster, thing: str) -> NDArray[np.int64]:
    """Return how much of something each job has at most at a time, int64[n]."""
    if thing == BILLING:
        return whole_units(billed(jobs, cluster, lambda each: most_taken(jobs, cluster, each)))
    arrays = jobs.kind == Kind.ARRAY
    nodes = most_nodes(jobs)
    if thing == NODE:
        return nodes
    if thing == JOBS:
        at_a_time = np.minimum(nodes * np.maximum(jobs.tasks_per_node, 1), jobs.tasks)
        return np.where(arrays, np.maximum(at_a_time, 1), 1)
    each = amounts_of(jobs, "demand", (thing,))[:, 0]
    if thing == CPU:
        all_cores = int(amounts_of(cluster.nodes, "capacity", (CPU,)).max(initial=0))
        each = np.where(jobs.exclusive & ~arrays, np.maximum(each, all_cores), each)
    return np.asarray(each if thing.startswith(LICENSE) else each * nodes)


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
    limits_of_job = LimitsOfJobs.of(job, rules)
    (own,) = limits_of_job.kinds
    known = (*own.limits, *(one for one in own.seconds if one.word not in USED_TIME))
    things = {JOBS, CPU, NODE, *countable(snapshot.cluster)}
    limits = [one for one in known if one.group and one.thing in things]
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
    limits_of_others = LimitsOfJobs.of(jobs, rules)
    end = np.where(np.isfinite(held.entries.end), held.entries.end, snapshot.now)
    left = np.minimum(end - held.entries.start, end - snapshot.now + rules.calc_period)
    left = np.maximum(left - site.leeway, 0.0) * limits_of_others.time_factor()
    seconds = float(plan.entries.end[mine] - plan.entries.start[mine])
    start = max(float(plan.entries.start[mine]), snapshot.now)
    found: FullLimit | None = None
    for one in limits:
        counts = limits_of_others.members_of([one.group])
        each, own_share = amounts[one.thing], float(asked[one.thing][0])
        if one.per_second:
            each = np.ceil(each * left).astype(np.int64)
            own_share *= (seconds - site.leeway) * float(limits_of_job.time_factor()[0])
        room = int(one.most - own_share)
        until = _first_room(np.where(counts, each, 0), held, start, seconds, room)
        if until > max(start, -np.inf if found is None else found.until):
            found = FullLimit(one.text, until)
    return found


def room_from(site: Site, job: Jobs) -> float:
    """Return when all jobs have ended that run and count to a limit of a job; inf: there are none.

    By their time limits, seconds since the epoch. Where jobs have whole nodes, and the plan of one
    shows when a limit that is full has room, it is then.
    """
    snapshot, rules = site.snapshot, site.limit_rules
    if rules is None:
        return np.inf
    if job.id[0] in snapshot.plan.entries.job:
        full = full_limit(site, job, snapshot.plan)
        if full is not None:
            return full.until
    (own,) = LimitsOfJobs.of(job, rules).kinds
    groups = {one.group for one in (*own.limits, *own.seconds) if one.group}
    counts = LimitsOfJobs.of(snapshot.running, rules).members_of(groups)
    ends = snapshot.allocations.entries.end[counts]
    late = site.leeway if snapshot.cluster.shared else 0.0  # there, jobs count until their limits
    return float(ends.max()) + late if len(ends) else np.inf


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
    amounts = {JOBS: np.where(jobs.kind == Kind.ARRAY, at_a_time, 1), CPU: cores, NODE: nodes}
    if BILLING in countable(cluster):
        amounts[BILLING] = whole_units(billed(jobs, cluster, amounts.__getitem__))
    return amounts


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


class LimitsNow(NamedTuple):
    """The limits of a site, and what is used of them; a `LimitSource`."""

    rules: LimitRules
    used: UsedTime | None
    """What was used of limits that count it; None: not known, or there are none."""

    def of(self, jobs: Jobs, snapshot: Snapshot) -> Limits | None:
        """Return the limits of jobs, first the running ones of the snapshot, then the waiting."""
        names, kind = kinds_of(jobs)
        found = [self.rules.applied_to(each) for each in names]
        running = len(snapshot.running)
        waits = np.zeros(len(jobs), np.bool_)
        waits[running : running + len(snapshot.queued)] = True
        amounts = _Amounts(jobs, waits, snapshot.cluster)
        limits = limits_of_kinds(amounts, found, kind, self.rules.safe, self.rules.half_life)
        return limits if limits is None else limits._replace(used=self._used(limits, snapshot))

    def _used(self, limits: Limits, snapshot: Snapshot) -> NDArray[np.float64]:
        """Return what groups have used, float64[g, r]: what running jobs may yet use is apart."""
        found = np.zeros((len(limits.names), len(limits.things)))
        if self.used is None:
            return found
        entries = snapshot.allocations.entries
        left = np.maximum(entries.end - snapshot.now, 0.0)
        left[self.used.lacks(entries.start) | ~np.isfinite(left)] = 0.0
        yet = limits.asked[: len(left)] * left[:, None]
        for row, kind in enumerate(limits.kind[: len(left)].tolist()):
            found[limits.groups.row(kind)] -= yet[row]
        for group, name in enumerate(limits.names):
            for at, thing in enumerate(limits.things):
                found[group, at] += self.used.seconds.get((name, thing), 0.0)
        found[:, (limits.basis == HELD) | (limits.basis == REMAINING)] = 0.0
        return np.maximum(found, 0.0)


class _Amounts:
    """How much jobs count for, of what limits name.

    Parameters
    ----------
    jobs : Jobs
        `n` jobs.
    waits : bool[n]
        Which of them wait: where jobs have whole nodes they say how many cores they ask for, and
        the others how many they have.
    cluster : Cluster
        Where they run.
    """

    def __init__(self, jobs: Jobs, waits: NDArray[np.bool_], cluster: Cluster) -> None:
        self._jobs, self._waits, self._cluster = jobs, waits, cluster
        self._names = {CPU: CPU, NODE: NODE, **countable(cluster)}

    @property
    def shares_nodes(self) -> bool:
        """Whether some jobs share nodes with others."""
        return self._cluster.shared

    def __contains__(self, thing: str) -> bool:
        """Return whether it is known how much of something jobs count for."""
        return thing in self._names

    def of(self, thing: str) -> NDArray[np.int64]:
        """Return how much of something each job counts for, int64[n]."""
        jobs, cluster, name = self._jobs, self._cluster, self._names[thing]
        if cluster.shared:
            return most_taken(jobs, cluster, name)
        if thing == BILLING:
            return whole_units(billed(jobs, cluster, self.of))
        if thing == CPU:
            cores = int(cluster.nodes.cores.max(initial=1))
            whole = np.maximum(jobs.size, 1).astype(np.int64) * cores
            return np.where(self._waits | (jobs.cores <= 0), whole, jobs.cores).astype(np.int64)
        return most_taken(jobs, cluster, name)


TRIALS = 5
"""After the longest and the shortest limit, so many between them are tried."""


def judged_by_limits(
    judge: Callable[[Site, Submission, float], AdmissionResult],
    site: Site,
    submission: Submission,
    now: float,
) -> AdmissionResult:
    """Return what becomes of a submission with the longest limit that it can be promised.

    Parameters
    ----------
    judge : callable
        Judges a submission.
    site : Site
        As it is.
    submission : Submission
        With the shortest and the longest time limit that its user allows.
    now : float
        Seconds since the epoch.
    """
    jobs, (shortest, limit) = submission.jobs, submission.limits
    longest, deadline = float(jobs.wall_time[0]), float(jobs.deadline[0])
    if not shortest < limit or not math.isfinite(deadline) or submission.problem:
        return judge(site, submission, now)
    most = math.floor((limit - shortest) / MINUTE + 1e-6)
    room = deadline - max(now, float(jobs.begin[0]))
    least = min(max(math.ceil((longest - room) / MINUTE - 1e-6), 0), most)

    def tried(minutes: int) -> AdmissionResult:
        wall = jobs.replace(wall_time=np.array([longest - MINUTE * minutes]))
        result = judge(site, replace(submission, jobs=wall), now)
        return _with_limit(result, limit - MINUTE * minutes, shorter=minutes > 0)

    result = tried(least)
    if result.verdict != "reject" or least == most:
        return result
    found, low, high = tried(most), least, most
    if found.verdict == "reject":
        return found
    for _ in range(TRIALS):
        middle = (low + high) // 2
        if middle in {low, high}:
            break
        if (result := tried(middle)).verdict == "reject":
            low = middle
        else:
            found, high = result, middle
    return found


def _with_limit(result: AdmissionResult, limit: float, *, shorter: bool) -> AdmissionResult:
    """Return a result with the time limit that the job gets, seconds; a promise says a shorter one.

    So does one that is held until the next poll, which judges it with that limit.
    """
    reply = result.reply
    if not (reply.token or reply.deferred):
        return result
    text = f"{reply.text}; time limit set to {span(limit)} (--time-min)" if shorter else reply.text
    return replace(result, reply=replace(reply, text=text, limit=limit))
