"""Reservations of a plan, and jobs set to their planned size.

Whole nodes are reserved, and jobs bound to their reservations. On nodes that jobs share, a
reservation would keep no memory, and with a GPU all cores of its node. There planned jobs come
first in the queue, in the order of their planned starts and with their planned nodes, and Slurm's
backfill scheduler keeps cores, memory and GPUs for them. None starts later than planned then: each
may start earlier on its own nodes, and from the planned start of one on those before it take no
more than planned. But backfill knows the ends of running jobs no better than to half a minute, and
so may put a planned job off again and again for short jobs. A job that has no time to spare, and
is first on all its nodes, has these reserved: nothing else starts there then that would be in its
way. So has an array, whose tasks share whole nodes, a heterogeneous job, and a job that may not
start yet, as it begins later or waits for another one: backfill plans no such job, and keeps
nothing for it. It is planned with whole nodes until it may start; from then on it is a job as the
others.

Licences are reserved for planned jobs that take some. Their priority does not keep them: a job that
waits for its nodes alone, which are named, does not keep Slurm from starting others elsewhere, and
these may take its licences for longer than until its start. Such a reservation is flexible: its job
may start in it before it begins, and Slurm's backfill scheduler plans with it. But Slurm starts a
job only if what it takes, what runs and all reservations of others during its time together are no
more licences than there are, though these may follow one another. So only as many are reserved as
planned jobs take at one time (`licenses_kept`): the first ones have reservations of their own, and
one for nobody keeps the rest.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.changes import rounds_of, waiting
from rtsched.adapters.live import Change
from rtsched.adapters.slurm.advance_reservations import (
    AdvanceReservation,
    clock,
    difference,
    reservation_changes,
    reservations_of,
    written,
)
from rtsched.adapters.slurm.commands import (
    FIRST_FACTOR,
    Command,
    Rank,
    change,
    highest,
    job_update,
    only_waiting,
    priority_argument,
    promised_factor,
    promised_priority,
)
from rtsched.adapters.slurm.comments import RECORD, fitting_record, with_record
from rtsched.adapters.slurm.layout import PREFIX, is_ours
from rtsched.adapters.slurm.observation import (
    is_admitted,
    is_deferred,
    is_unpromised,
    keeps_order,
    may_not_start_yet,
)
from rtsched.adapters.slurm.requirements import node_list_in
from rtsched.adapters.slurm.rows import WAITING, names_of_job
from rtsched.adapters.slurm.submission import limit_minutes
from rtsched.logs.hostlist import fold, names_of
from rtsched.model.jobs import Kind
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import places
from rtsched.model.table import amounts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from rtsched.adapters.slurm.last_applied import LastApplied, SlurmState
    from rtsched.adapters.slurm.rows import JobRows
    from rtsched.adapters.slurm.settings import SlurmSettings

SLACK_S = 60.0
"""Seconds by which reservations are made before a job that starts now could reach into them."""

SPARE_S = 120.0
"""A job that shares nodes and could start so much later, in seconds, has time to spare."""

DUE_S = 5.0
"""Seconds before its planned start from which on a job with licences must be able to start."""

_SHAPE = re.compile(
    r"\s--(?:(nodes|time)=(\d+-\d+|\d+|UNLIMITED)|(partition)=([^\s=]+))(?!\S)", re.ASCII
)
"""Node count, time limit and partitions in an admin comment, as a job's user asked for them."""

RETURNED = (0, 0.0)
"""In place of the planned node count and time limit of a job that has its own again."""

POOL = 0
"""No job has this number: the reservation of licences for all that have none of their own yet."""

_RUNS = frozenset({"RUNNING", "CONFIGURING", "SUSPENDED"})
"""States in which a job can leave its reservation. It must: Slurm kills it when that ends."""


def reserve_changes(
    plan: Schedule,
    view: SlurmState,
    settings: SlurmSettings,
    last_applied: LastApplied,
    secured: Schedule | None = None,
) -> list[Change]:
    """Return what a plan asks for: reservations, sizes, bindings, order.

    `secured`: nodes that are kept as well, for jobs that are promised nothing yet.
    """
    plan = waiting(plan, view.observation.queued.id)
    secured = waiting(secured or Schedule.empty(), view.observation.queued.id)
    kept = _kept(Schedule.joined([plan, secured]), view, settings)
    kept += _in_use(view, settings)
    single = plan.take(np.flatnonzero(~_in_parts(plan, view)))  # others have their reservations
    order: Iterable[Change] = ()
    if view.observation.cluster.shared:
        order = _in_order(single, view)
    elif settings.promised_first:
        order = _priorities(plan, view, last_applied.factors)
    own = [each for each in kept if each.job not in secured.entries.job]
    moved = difference(kept, view.reservations, view.now, settings.grace_s / 2)
    return [
        *reservation_changes(moved, view),
        *_bindings(own, view, frozenset(moved.renew)),
        *_sizes(single, view, last_applied.counts),
        *_records(plan, own, view),
        *order,
        *_out_of_order(plan, view, last_applied.sent),
        *_in_time(plan, kept, view),
    ]


def _kept(plan: Schedule, view: SlurmState, settings: SlurmSettings) -> list[AdvanceReservation]:
    """Return the reservations that a plan needs.

    On shared nodes these are of jobs without time to spare, of those that wait to be promised
    theirs, and, on all their nodes, of arrays, of
    heterogeneous jobs, and of jobs that may not start yet: jobs that are planned there before have
    none.
    """
    if not view.observation.cluster.shared:
        return _reserved(plan, view, settings)
    alone = _in_parts(plan, view) | _may_not_start_yet(plan, view)
    jobs = plan.entries.job.tolist()
    spare = {
        job: 0.0 if job in view.held else view.rows.deadline[view.place[job]] - end
        for job, end in zip(jobs, plan.entries.end.tolist(), strict=True)
        if job in view.queued
        and (job not in view.held or is_deferred(view.rows.mark[view.place[job]]))
    }
    whole = [
        _behind_others(each, plan)
        for each in _reserved(plan.take(np.flatnonzero(alone)), view, settings)
    ]
    own = {each.job for each in whole}
    hurried = [
        each
        for each in _reserved(plan, view, settings)
        if each.whole and each.job not in own and spare.get(each.job, math.inf) <= SPARE_S
    ]
    return _with_licenses(whole + hurried, plan, view, settings)


def _behind_others(reservation: AdvanceReservation, plan: Schedule) -> AdvanceReservation:
    """Return the reservation with a begin after the planned ends of others on its nodes.

    They may start as late as their margin allows, and not if they then ran into a reservation.
    """
    at = plan.entries.job.tolist().index(reservation.job)
    start, entry = plan.entries.start[at], plan.rows()
    before = np.isin(plan.nodes, plan.nodes_of(at)) & (plan.entries.start[entry] < start)
    over = plan.entries.end[entry[before]].max(initial=-np.inf)
    begin = max(reservation.start, math.floor(max(min(over, start), 0.0)))
    return replace(reservation, start=float(begin))


def _with_licenses(
    kept: list[AdvanceReservation], plan: Schedule, view: SlurmState, settings: SlurmSettings
) -> list[AdvanceReservation]:
    """Return the reservations with licences, and those of jobs that need nothing else kept.

    They begin and end the margin before the planned times, so that those of two jobs that take the
    same licences one after the other do not overlap: Slurm would refuse the second.
    """
    names, queued = tuple(view.observation.cluster.licenses), view.observation.queued
    lead, horizon = view.facts.margin, view.now + _ahead(view, settings)
    place, there = places(queued.id, plan.entries.job)
    free = np.array([job not in view.held for job in plan.entries.job.tolist()], np.bool_)
    soon = np.flatnonzero(there & free & (plan.entries.start - lead <= horizon))
    amounts = amounts_of(queued, "demand", names)[place[soon]]
    soon, amounts = soon[amounts.any(axis=1)], amounts[amounts.any(axis=1)]
    entries = plan.entries.take(soon)
    running = amounts_of(view.observation.running, "demand", names).sum(axis=0)
    room = np.array(list(view.observation.cluster.licenses.values()), np.int64) - running
    own_reservation, rest = licenses_kept(
        entries.start, entries.end, amounts, room, entries.start <= view.now + DUE_S
    )
    found = {each.job: each for each in kept}
    first = np.flatnonzero(own_reservation)
    for at, taken in zip(soon[first].tolist(), amounts[first].tolist(), strict=True):
        job = int(plan.entries.job[at])
        own = found.get(job)
        found[job] = AdvanceReservation(
            f"{PREFIX}{job}",
            job,
            view.rows.user[view.place[job]],
            float(math.floor(plan.entries.start[at] - lead)),
            float(math.floor(plan.entries.end[at] - lead)),
            own.nodes if own is not None else (),
            whole=True,
            licenses={name: n for name, n in zip(names, taken, strict=True) if n > 0},
        )
    if not rest.any():
        return list(found.values())
    later = entries.take(np.flatnonzero(~own_reservation))
    pool = AdvanceReservation(
        f"{PREFIX}{POOL}",
        POOL,
        settings.user,
        float(math.floor(later.start.min() - lead)),
        float(math.floor(later.end.max() - lead)),
        (),
        whole=False,
        licenses={name: n for name, n in zip(names, rest.tolist(), strict=True) if n > 0},
    )
    return [*found.values(), pool]


def licenses_kept(
    start: NDArray[np.float64],
    end: NDArray[np.float64],
    amounts: NDArray[np.int64],
    room: NDArray[np.int64],
    due: NDArray[np.bool_],
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return which planned jobs have licences reserved for themselves, and how many more are kept.

    In all as many as the jobs take at one time, at the most. Where some are due to start, no more
    than are free beside what runs, for Slurm would start none of them; but what they take.

    Parameters
    ----------
    start, end : float64[n]
        Planned times.
    amounts : int64[n, k]
        What each takes of each kind of licence.
    room : int64[k]
        How many of each are free now.
    due : bool[n]
        Which are to start now.

    Returns
    -------
    bool[n], int64[k]
        In order of their starts, the due ones first.
    """
    own = np.zeros(len(start), np.bool_)
    if not len(start):
        return own, np.zeros(amounts.shape[1], np.int64)
    at_once = (start[None] <= start[:, None]) & (end[None] > start[:, None])
    total = (at_once.astype(np.int64) @ amounts).max(axis=0)
    if due.any():
        total = np.minimum(total, np.maximum(room, amounts[due].sum(axis=0)))
    left = total.copy()
    for row in np.lexsort((start, ~due)).tolist():
        if (amounts[row] > left).any():
            break
        own[row] = True
        left -= amounts[row]
    return own, left


def _in_parts(plan: Schedule, view: SlurmState) -> NDArray[np.bool_]:
    """Return which entries are of jobs that Slurm shows in parts, bool[k].

    These are arrays, and heterogeneous jobs. What a single job is given, such as a node list or a
    node count, would be given to each part.
    """
    place, waits = places(view.observation.queued.id, plan.entries.job)
    rows = [view.place[job] for job in plan.entries.job[waits].tolist()]
    joined = np.array([int(view.rows.id[row]) in view.rows.components for row in rows], np.bool_)
    waits[waits] = joined | (view.observation.queued.kind[place[waits]] == Kind.ARRAY)
    return waits


def _may_not_start_yet(plan: Schedule, view: SlurmState) -> NDArray[np.bool_]:
    """Return which entries are of jobs that Slurm's scheduler keeps nothing for yet, bool[k]."""
    now, jobs = view.observation.time, plan.entries.job.tolist()
    return np.array(
        [job in view.queued and may_not_start_yet(view.rows, view.place[job], now) for job in jobs],
        np.bool_,
    )


def _reserved(
    plan: Schedule, view: SlurmState, settings: SlurmSettings
) -> list[AdvanceReservation]:
    """Return the reservations that keep the starts of a plan's entries free."""
    jobs = plan.entries.job.tolist()
    return reservations_of(
        plan,
        view.names,
        {job: view.rows.user[view.place[job]] for job in jobs if job in view.place},
        own_user=settings.user,
        horizon=view.now + _ahead(view, settings),
        grace=settings.grace_s,
        lead=view.facts.margin,
    )


def _ahead(view: SlurmState, settings: SlurmSettings) -> float:
    """Return how long before it begins a reservation is made, seconds."""
    if settings.horizon_s is not None:
        return settings.horizon_s
    return view.facts.longest + settings.grace_s + SLACK_S


def _in_use(view: SlurmState, settings: SlurmSettings) -> list[AdvanceReservation]:
    """Return the reservations of arrays that run: their next tasks start in them.

    Each keeps the nodes on which its array still runs, until its last task has ended.
    """
    present = {row.name: row for row in view.reservations}
    entries, found = view.observation.allocations, []
    for at, job in enumerate(entries.entries.job.tolist()):
        row = view.place.get(job, -1)
        kept = present.get(f"{PREFIX}{job}")
        if row < 0 or view.rows.array[row] != job or kept is None:
            continue
        nodes = [view.names[node] for node in sorted(entries.nodes_of(at).tolist())]
        found.append(
            AdvanceReservation(
                kept.name,
                job,
                view.rows.user[row],
                kept.start,
                float(math.ceil(entries.entries.end[at] + settings.grace_s)),
                tuple(name for name in nodes if name in kept.nodes) or kept.nodes,
                whole=True,
            )
        )
    return found


def _queued(plan: Schedule, view: SlurmState) -> Iterator[tuple[int, int, int]]:
    """Yield which entries are of jobs in the queue, with the job and its row."""
    for at, job in enumerate(plan.entries.job.tolist()):
        if job in view.queued:
            yield at, job, view.place[job]


def _in_order(plan: Schedule, view: SlurmState) -> Iterator[Change]:
    """Yield which jobs get the nodes planned for them, and their places in the queue.

    The earlier a job is planned to start, the higher its priority.
    """
    for at, job, row in _queued(plan, view):
        if job in view.held:
            continue
        nodes = [view.names[node] for node in sorted(plan.nodes_of(at).tolist())]
        if set(names_of(view.rows.required[row])) != set(nodes):
            binding = [f"ReqNodeList={fold(nodes)}", *_kept_limit(view, job)]
            binding.append(only_waiting(view.rows, row, Rank.BIND))
            text = f"have job {job} start on {fold(nodes)}"
            yield job_update("reserve", job, text, Rank.BIND, *binding)
        priority = promised_priority(float(plan.entries.start[at]))
        if priority != view.rows.priority[row]:
            text = f"set the priority of job {job} to {priority}, by its planned start"
            yield job_update("set-priority", job, text, Rank.JOB, f"Priority={priority}")


def _out_of_order(
    plan: Schedule, view: SlurmState, sent: Mapping[int, tuple[str, float]]
) -> Iterator[Change]:
    """Yield which jobs lose the nodes and the priority of a planned job that shares nodes."""
    planned = set(plan.entries.job.tolist()) if view.observation.cluster.shared else set()
    for job in view.queued:
        row = view.place[job]
        if job in planned:
            continue
        if keeps_order(view.rows, row, basic=view.facts.basic):
            yield from out_of_order(view.rows, row, "set-priority")
        elif keeps_nodes(view.rows, row, sent):
            yield from own_nodes(view.rows, row, "set-priority")


def keeps_nodes(rows: JobRows, at: int, sent: Mapping[int, tuple[str, float]]) -> bool:
    """Return whether a waiting job has planned nodes and no longer the priority, as if held."""
    nodes, _ = sent.get(int(rows.id[at]), ("", 0.0))
    same = nodes != "" and set(names_of(rows.required[at])) == set(names_of(nodes))
    return same and is_admitted(rows.mark[at])


def out_of_order(rows: JobRows, at: int, kind: str) -> Iterator[Change]:
    """Yield what takes nodes and priority of a planned job from one that waits.

    It gets the node list back that its user gave it.
    """
    job = int(rows.id[at])
    yield from own_nodes(rows, at, kind)
    text = f"have Slurm work out the priority of job {job} again"
    yield change(kind, job, text, Rank.JOB, "scontrol", "release", str(job))


def own_nodes(rows: JobRows, at: int, kind: str) -> Iterator[Change]:
    """Yield what gives a waiting job the node list back that its user gave it."""
    job, own = int(rows.id[at]), node_list_in(rows.mark[at])
    if set(names_of(rows.required[at])) != set(names_of(own)):
        text = f"let job {job} start on {own or 'any node'} again"
        words = f"ReqNodeList={own}", only_waiting(rows, at, Rank.BIND)
        yield job_update(kind, job, text, Rank.BIND, *words)


def has_shape(mark: str) -> bool:
    """Return whether an admin comment keeps node count, time limit or partitions of a job."""
    return _SHAPE.search(mark) is not None


def in_one_partition(rows: JobRows, at: int) -> Iterator[Change]:
    """Yield what has a waiting job run in the partition that it is planned in, the first it names.

    Where its admin comment keeps the list, so that it can have that again.
    """
    first, several, _ = rows.partition[at].partition(",")
    if several and "partition" in _asked(rows.mark[at]):
        job, words = int(rows.id[at]), (f"Partition={first}", only_waiting(rows, at))
        text = f"have job {job} run in partition {first}"
        yield job_update("reserve", job, text, Rank.SIZE, *words)


def _asked(mark: str) -> dict[str, str]:
    """Return what an admin comment keeps of what a job's user asked for, as `_SHAPE`."""
    return {one[0] or one[2]: one[1] or one[3] for one in _SHAPE.findall(mark)}


def own_shape(
    rows: JobRows, at: int, shapes: Mapping[int, tuple[int, float]], kind: str
) -> Iterator[Change]:
    """Yield what gives a waiting job back what its user asked for: nodes, time limit, partitions.

    `shapes` as in `AppliedFile`: what somebody has changed since the job was planned stays.
    """
    job, asked = int(rows.id[at]), _asked(rows.mark[at])
    present = int(rows.min_nodes[at]), float(rows.limit[at])
    unplanned = is_deferred(rows.mark[at]) or is_unpromised(rows.mark[at])
    planned = shapes.get(job, RETURNED if unplanned else present)
    if not asked or planned != present:
        return
    words = []
    least, _, most = asked.get("nodes", "").partition("-")
    if least and (int(least), int(most)) != (rows.min_nodes[at], rows.max_nodes[at]):
        words.append(f"NumNodes={least}-{most}")
    limit = asked.get("time")
    if limit and (math.inf if limit == "UNLIMITED" else float(limit) * 60.0) != present[1]:
        words.append(f"TimeLimit={limit}")
    named, here = asked.get("partition", ""), rows.partition[at]
    if named != here and set(here.split(",")) <= set(named.split(",")):
        words.append(f"Partition={named}")
    if words:
        text = f"set {' '.join(words)} of job {job}, as asked for"
        command = ("scontrol", "update", f"JobId={job}", *words, only_waiting(rows, at))
        yield Change(kind, job, text, Command(Rank.SIZE, command, returns=True))


def _priorities(plan: Schedule, view: SlurmState, factors: Mapping[int, int]) -> Iterator[Change]:
    """Yield which jobs are to be put before all others, the earliest deadline first.

    Those that left the plan go back among the others.
    """
    basic = view.facts.basic
    for _, job, row in _queued(plan, view):
        if not math.isfinite(view.rows.deadline[row]):
            continue
        factor = promised_factor(float(view.rows.deadline[row]), basic)
        if factors.get(job) != factor:
            text = f"move job {job} ahead of jobs without a promise: site factor {factor}"
            words = priority_argument(factor, basic)
            yield job_update("set-priority", job, text, Rank.JOB, words)
    planned = set(plan.entries.job.tolist())
    for job in view.queued:
        first = is_first(view.rows, view.place[job], basic=basic)
        if job not in planned and (factors[job] >= _top(basic) if job in factors else first):
            text = f"move job {job} back among jobs without a promise: site factor 0"
            words = priority_argument(0, basic)
            yield job_update("set-priority", job, text, Rank.JOB, words)


def is_first(rows: JobRows, at: int, *, basic: bool) -> bool:
    """Return whether a waiting job was put before all others, by us or a process before this one.

    The priority that Slurm shows is the site factor and what else Slurm adds, which is far less.
    """
    return int(-rows.nice[at] if basic else rows.priority[at]) >= _top(basic)


def _top(basic: bool) -> int:
    """Return the least factor that puts a job before all others."""
    return highest(basic) if basic else FIRST_FACTOR * 3 // 4


def _bindings(
    reservations: list[AdvanceReservation], view: SlurmState, renewed: frozenset[str]
) -> Iterator[Change]:
    """Yield which jobs enter and leave reservations of ours.

    A job that runs needs its reservation no longer. A job in a reservation that is not its own has
    no business there. One whose reservation is made anew has to leave it, and enters it again.
    """
    wanted = {
        reservation.job: reservation.name for reservation in reservations if reservation.whole
    }
    for at, name in enumerate(view.rows.reservation):
        job = int(view.rows.id[at])
        waits = view.rows.state[at] in WAITING
        array = view.rows.array[at] in wanted and view.rows.array[at] == job
        stays = (waits or array) and job in wanted and name not in renewed
        if not is_ours(name) or stays:
            continue
        if waits or view.rows.state[at] in _RUNS:
            text = f"take job {job} out of reservation {name}"
            yield job_update("reserve", job, text, Rank.LEAVE, "ReservationName=")
    for job, name in wanted.items():
        row = view.place[job]
        waits = view.rows.state[row] in WAITING
        if waits and (view.rows.reservation[row] != name or name in renewed):
            text = f"bind job {job} to reservation {name}"
            words = [f"ReservationName={name}", *_kept_limit(view, job)]
            words.append(only_waiting(view.rows, row, Rank.BIND))
            yield job_update("reserve", job, text, Rank.BIND, *words)


def _is_rigid(view: SlurmState, job: int) -> bool:
    return bool(view.observation.queued.kind[view.queued[job]] == Kind.RIGID)


def _kept_limit(view: SlurmState, job: int) -> list[str]:
    """Return what keeps the limit of a rigid job with licences as it is; of another, nothing."""
    if job not in view.licensed or not _is_rigid(view, job):
        return []
    return [_least_limit(int(view.rows.limit[view.place[job]] // 60))]


def _least_limit(minutes: int) -> str:
    """Return the setting with which Slurm does not shorten the time limit of a job that it starts.

    Backfill shortens the limit of each job with a deadline at its start so that it ends before what
    it has planned on the same nodes, and where it plans with licences it may do so wrongly, down to
    0 minutes (`_reset_job_time_limit` in sched/backfill; seen on 26.05).
    """
    return f"TimeMin={minutes}"


def _sizes(plan: Schedule, view: SlurmState, counts: Mapping[int, int]) -> Iterator[Change]:
    """Yield which jobs get another node count or time limit, to be as planned.

    A controller that was started anew shows no highest node count of jobs that waited before (0;
    Slurm 26.05), whatever they are given. A rigid job has its own; others are given theirs once.
    """
    for at, job, row in _queued(plan, view):
        rigid = _is_rigid(view, job)
        size = int(plan.entries.size[at])
        most = int(view.rows.max_nodes[row]) or (size if rigid else counts.get(job, 0))
        same = view.rows.min_nodes[row] == most == size
        words = [] if same else [f"NumNodes={size}-{size}"]
        if not rigid or not same:
            duration = float(plan.entries.end[at] - plan.entries.start[at])
            minutes = limit_minutes(duration, names_of_job(view.rows, row), view.facts)
            if minutes * 60.0 != view.rows.limit[row]:
                words.append(f"TimeLimit={minutes}")
                words += [_least_limit(minutes)] if job in view.licensed else []
        if words:
            text = f"set {' '.join(words)} of job {job}, as planned"
            words.append(only_waiting(view.rows, row))
            yield job_update("reserve", job, text, Rank.SIZE, *words)


def _in_time(
    plan: Schedule, reservations: list[AdvanceReservation], view: SlurmState
) -> Iterator[Change]:
    """Yield what lets jobs that Slurm queued again start as planned.

    Slurm puts such a job off until the credentials of its last run have expired, two minutes, or as
    `requeue_delay` says. It need not: slurmd takes a newer credential for the same job at once
    (seen on 26.05). An array that runs is planned to go on in its reservation.
    """
    if not view.requeued:
        return
    starts = {each.job: view.now for each in reservations if each.whole}
    starts |= dict(zip(plan.entries.job.tolist(), plan.entries.start.tolist(), strict=True))
    for job, parts in view.requeued.items():
        start = max(starts.get(job, math.inf), view.now)
        for name, until in parts.items():
            if until > start:
                when = written(start, view.now)
                text = f"let job {name}, which Slurm queued again, start from {clock(start)} on"
                yield change(
                    *("reserve", job, text, Rank.JOB),
                    *("scontrol", "update", f"JobId={name}", f"StartTime={when}"),
                )


def _records(
    plan: Schedule, reservations: list[AdvanceReservation], view: SlurmState
) -> Iterator[Change]:
    """Yield the comments that tell divisible jobs which fraction goes to which node.

    Jobs that left the plan are told nothing any more.
    """
    planned = set(plan.entries.job.tolist())
    records = {
        job: ""
        for job, comment in zip(view.rows.id.tolist(), view.rows.comment, strict=True)
        if comment.startswith(RECORD) and job not in planned and job in view.queued
    }
    bound = {reservation.job for reservation in reservations if reservation.whole}
    if view.observation.cluster.shared:
        bound = planned & view.queued.keys()
    for at, job, row in _queued(plan, view):
        if job not in bound or view.observation.queued.kind[view.queued[job]] != Kind.DIVISIBLE:
            continue
        nodes = [view.names[node] for node in plan.nodes_of(at).tolist()]
        shares = plan.shares()[plan.indptr[at] : plan.indptr[at + 1]].tolist()
        rounds = rounds_of(plan, at, view.observation.queued, view.queued[job])
        deadline = float(view.rows.deadline[row])
        records[job] = fitting_record(view.comment(job), deadline, nodes, shares, rounds)
    for job, record in records.items():
        yield from comment_changes(job, with_record(view.comment(job), record), Rank.SIZE, view)


def comment_changes(job: int, comment: str, rank: Rank, view: SlurmState) -> Iterator[Change]:
    """Yield what gives a job this comment, if it is another one."""
    if comment != view.comment(job):
        view.comments[job] = comment
        text = f"set the comment of job {job}: {comment}"
        yield job_update("tell", job, text, rank, f"Comment={comment}")
