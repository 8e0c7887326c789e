"""The queue simulated ahead: the state now, as a workload that begins now, and who comes next.

Arrivals are those of weeks of the past once more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from rtsched.kernels.machine_limits import HELD, USED
from rtsched.model.actions import Reserve
from rtsched.model.blocked import NOTHING_BLOCKED, Blocked
from rtsched.model.cluster import NodeState
from rtsched.model.jobs import Edges, Jobs
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import places
from rtsched.model.table import Amounts, Text
from rtsched.model.units import DAY, HOUR, WEEK
from rtsched.simulator.interface import NodeEvent
from rtsched.simulator.machines import simulate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster
    from rtsched.model.limits import Limits
    from rtsched.model.snapshot import Snapshot
    from rtsched.simulator.settings import ExclusiveSettings

CHUNK = 256
"""Arrivals that are simulated at a time, at least: a simulation ends when all that waited have
started."""

LOOKS = 64
"""Where very many wait, arrivals are simulated at a time that are one in so many of these."""

NEEDED = (
    "begin",
    "wall_time",
    "size",
    "demand",
    "exclusive",
    "partition",
    "node_request",
    "pinned",
)
"""Columns of jobs on which it depends when they start."""


LIMITED = (
    "id",
    "user",
    "account",
    "qos",
    "cores",
    "kind",
    "tasks",
    "tasks_per_node",
)
"""Further columns of jobs on which it depends what they count for to limits."""


class LimitSource(Protocol):
    """The limits of accounts, users and QOS."""

    def of(self, jobs: Jobs, snapshot: Snapshot) -> Limits | None:
        """Return the limits that hold for jobs, and what was used; None: there are none.

        Parameters
        ----------
        jobs : Jobs
            First the running ones of the snapshot in their order, then any.
        snapshot : Snapshot
            The state now.
        """


@dataclass(frozen=True)
class Ahead:
    """Who runs and waits now, and who may be submitted, as jobs of one workload.

    Attributes
    ----------
    now : float
        Seconds since the epoch.
    cluster : Cluster
        The machine.
    jobs : Jobs
        First those that run, then those that wait in their order, then those of the past that may
        be submitted once more.
    running, waiting : int
        How many run, and wait.
    elapsed : float64[running]
        Seconds for which they have run.
    plan : Schedule
        Where jobs run, and where promised jobs will; ids are rows of `jobs`.
    edges : Edges
        Who waits for whom, by such ids.
    node_events : tuple of NodeEvent
        Nodes that take no further job.
    blocked : Blocked
        Times at which nodes are set aside.
    limits : Limits or None
        What groups of jobs may hold and use, row by row with `jobs`.
    """

    now: float
    cluster: Cluster
    jobs: Jobs
    running: int
    waiting: int
    elapsed: NDArray[np.float64]
    plan: Schedule
    edges: Edges
    node_events: tuple[NodeEvent, ...] = ()
    blocked: Blocked = NOTHING_BLOCKED
    limits: Limits | None = None

    def simulate(
        self,
        run_time: NDArray[np.float64],
        arrivals: NDArray[np.int64],
        submit: NDArray[np.float64],
        arrivals_run: NDArray[np.float64],
        system: ExclusiveSettings,
        until: float,
        wanted: int | None = None,
    ) -> NDArray[np.float64]:
        """Return when each waiting job starts, float64[waiting] epoch seconds; inf: later.

        Parameters
        ----------
        run_time : float64[running + waiting]
            Seconds in all, those that have passed included.
        arrivals : int64[k]
            Who is submitted from now on, rows of `jobs`, in order of their submissions.
        submit, arrivals_run : float64[k]
            When, seconds since the epoch, and how long they run, seconds.
        system : ExclusiveSettings
            The scheduler.
        until : float
            Seconds since the epoch at which the simulation stops.
        wanted : int, optional
            How many of the last waiting jobs are wanted, where not all are: it stops when they
            have started.
        """
        n, first = self.running + self.waiting, self.running
        present = np.arange(n)
        runs = run_time.copy()
        runs[:first] += 1.0 - self.elapsed
        at = np.full(n, self.now)
        at[:first] -= 1.0
        many = max(CHUNK, self.waiting // LOOKS)
        limits, chunk = self.limits, many
        rows = np.concatenate([present, arrivals])
        if limits is not None:
            limits = limits.take(rows)
            if n and np.isfinite(until) and (limits.basis != HELD).any():
                # the system looks again and again whether it has room: a last arrival stops it
                limits, chunk = limits.with_rows(1), 1
                rows, submit = np.append(rows, 0), np.append(submit, until + 1.0)
                arrivals_run = np.append(arrivals_run, 1.0)
        jobs = self.jobs.take(rows).replace(
            id=np.arange(len(rows)), submit=np.concatenate([at, submit])
        )
        machine = simulate(
            jobs,
            np.concatenate([runs, arrivals_run]),
            self.cluster,
            system,
            edges=self.edges,
            blocked=self.blocked,
            node_events=self.node_events,
            limits=limits,
        )
        if len(self.plan):
            machine.apply([Reserve(self.plan.entries.job, self.plan)])
        arrived = 0
        while True:
            point = machine.advance(max(min(many, len(jobs) - 1 - arrived), chunk))
            arrived = point.arrived
            start = machine.starts()[first:n]
            waits = np.isnan(start)
            left = waits if wanted is None else waits[-wanted:]
            if point.done or point.time > until or not left.any():
                return np.where(waits, np.inf, start)


def ahead(
    snapshot: Snapshot,
    past: Jobs,
    order: NDArray[np.float64] | None = None,
    source: LimitSource | None = None,
) -> tuple[Ahead, NDArray[np.int64]]:
    """Return the state as a workload, and which row of `queued` each waiting job is.

    Parameters
    ----------
    snapshot : Snapshot
        The state now.
    past : Jobs
        Those that may be submitted once more.
    order : float64[n], optional
        Priorities of the queued jobs; the highest is first. Missing: in order of submission.
    source : LimitSource, optional
        Limits of accounts, users and QOS.
    """
    now, runs, waits = snapshot.now, snapshot.running, snapshot.queued
    rows = np.arange(len(waits)) if order is None else np.argsort(-order, kind="stable")
    begun, latest = snapshot.allocations.entries.start, snapshot.allocations.entries.end
    jobs = Jobs.joined([lean(runs), lean(waits.take(rows)), lean(past)])
    wall = jobs.wall_time.copy()
    wall[: len(runs)] = np.maximum(latest - now, 1.0) + 1.0
    begin = jobs.begin.copy()
    begin[: len(runs)] = begin[len(runs) + len(waits) :] = -np.inf
    limits = None
    if source is not None:
        parts = [lean(part, *LIMITED) for part in (runs, waits.take(rows), past)]
        limits = source.of(Jobs.joined(parts), snapshot)
    if limits is not None:
        never = _beyond(limits, wall)
        never[: len(runs)] = never[len(runs) + len(waits) :] = False
        begin[never] = np.inf
    jobs = jobs.replace(wall_time=wall, begin=begin)
    cluster, plan = snapshot.cluster, Schedule.empty()
    events: tuple[NodeEvent, ...] = ()
    if limits is not None or _places_matter(snapshot):
        plan = _plan(snapshot, rows, wall[: len(runs)])
        cluster, events = _in_service(snapshot)
    return (
        Ahead(
            now,
            cluster,
            jobs,
            len(runs),
            len(waits),
            np.maximum(now - begun, 0.0),
            plan,
            _edges(snapshot, rows),
            events,
            snapshot.blocked,
            limits,
        ),
        rows,
    )


def on_known_nodes(snapshot: Snapshot) -> Snapshot:
    """Return a state without running jobs whose nodes are gone: they take no room."""
    held = snapshot.allocations
    rows = np.flatnonzero(np.diff(held.indptr))
    if len(rows) == len(held):
        return snapshot
    return replace(snapshot, running=snapshot.running.take(rows), allocations=held.take(rows))


def _beyond(limits: Limits, wall: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which jobs are beyond a limit by themselves, so that they never start, bool[n].

    The simulated system does not hold them up. `wall` are their requested seconds.
    """
    most = np.full((len(limits.groups.lengths), len(limits.things)), np.inf)
    np.minimum.at(most, limits.groups.rows(), limits.most)
    asked = limits.asked.astype(np.float64)
    seconds = (limits.basis != HELD) & (limits.basis != USED)
    finite = np.where(np.isfinite(wall), wall, 0.0)
    asked[:, seconds] *= finite[:, None]
    asked[:, limits.basis == USED] = np.minimum(asked[:, limits.basis == USED], 1.0)
    return np.asarray((asked > most[limits.kind]).any(axis=1))


def lean(jobs: Jobs, *more: str) -> Jobs:
    """Return jobs with the columns alone on which it depends when they start, and some more."""
    wanted = (*NEEDED, *more)
    kinds = Jobs.columns()
    names = {name: jobs.names(name) for name in wanted if isinstance(kinds[name], Text | Amounts)}
    return Jobs.build(len(jobs), names=names, **{name: jobs.column(name) for name in wanted})


def _places_matter(snapshot: Snapshot) -> bool:
    """Return whether it matters which nodes jobs run on."""
    cluster = snapshot.cluster
    return bool(
        cluster.shared
        or cluster.partitions
        or len(snapshot.plan)
        or len(snapshot.blocked.node)
        or not cluster.usable.all()
        or (snapshot.queued.pinned >= 0).any()
        or (snapshot.queued.node_request >= 0).any()
    )


def _plan(snapshot: Snapshot, rows: NDArray[np.int64], limit: NDArray[np.float64]) -> Schedule:
    """Return where jobs run and promised ones will, by rows: running ones first, then waiting."""
    now, held = snapshot.now, snapshot.allocations
    count = len(held)
    running = replace(
        held,
        entries=held.entries.replace(
            job=np.arange(count), start=np.full(count, now - 1.0), end=now - 1.0 + limit
        ),
    )
    place, known = places(snapshot.queued.id, snapshot.plan.entries.job)
    plan = snapshot.plan.take(np.flatnonzero(known))
    at = np.empty(len(rows), np.int64)
    at[rows] = np.arange(len(rows))
    start = np.maximum(plan.entries.start, now)
    length = plan.entries.end - plan.entries.start
    ahead = replace(
        plan,
        entries=plan.entries.replace(job=count + at[place[known]], start=start, end=start + length),
    )
    return Schedule.joined([running, ahead])


def _in_service(snapshot: Snapshot) -> tuple[Cluster, tuple[NodeEvent, ...]]:
    """Return the machine with the nodes of running jobs in service, and what takes them out."""
    cluster, state = snapshot.cluster, snapshot.cluster.nodes.state
    busy = np.zeros(len(cluster), np.bool_)
    busy[snapshot.allocations.nodes] = True
    leaving = np.flatnonzero(busy & (state != NodeState.UP))
    if not len(leaving):
        return cluster, ()
    states = state.copy()
    states[leaving] = NodeState.UP
    nodes = cluster.nodes.replace(state=states)
    events = (NodeEvent(snapshot.now, node, NodeState.DRAINED) for node in leaving.tolist())
    return replace(cluster, nodes=nodes), tuple(events)


def _edges(snapshot: Snapshot, rows: NDArray[np.int64]) -> Edges:
    """Return the dependencies by rows: running jobs first, then the waiting ones in their order."""
    edges = snapshot.edges
    if not len(edges):
        return Edges.build(0)
    ids = np.concatenate([snapshot.running.id, snapshot.queued.id[rows]])
    before, known = places(ids, edges.before)
    after, there = places(ids, edges.after)
    kept = known & there & ~edges.whole_array
    return edges.replace(before=before, after=after).take(np.flatnonzero(kept))


LEAST = HOUR
"""Seconds of the past below which nothing is known of a rhythm."""

WEEKS = 8
"""So many weeks of the past are drawn from, the latest ones."""


def next_arrivals(
    submit: NDArray[np.float64], now: float, until: float, random: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return who is submitted from now on: rows of the past, and when, seconds since the epoch.

    Each day ahead is a day of the last weeks, as likely one of the same weekday as any. Where less
    than two days are known, a stretch of them is taken at random; where less than an hour is,
    nobody is submitted.

    Parameters
    ----------
    submit : float64[n]
        Submissions of the past, seconds since the epoch, ascending, none after now.
    now, until : float
        Seconds since the epoch.
    random : numpy Generator
        Source of chance.
    """
    known = now - submit[0] if len(submit) else 0.0
    if known < LEAST or until <= now:
        return np.zeros(0, np.int64), np.zeros(0)
    stretches = []
    begin = now
    while begin < until:
        if known < 2 * DAY:
            end = begin + min(known, DAY)
            back = end - now + (known - min(known, DAY)) * float(random.random())
        else:  # days begin at the same time at each refresh
            end = begin + DAY - begin % DAY
            back = _back(math.ceil((end - now) / DAY), int((known + begin - now) // DAY), random)
        stretches.append((begin, end, back))
        begin = end
    begins, ends, shifted = np.array(stretches).T
    first, last = np.searchsorted(submit, [begins - shifted, ends - shifted])
    count = np.maximum(last - first, 0)
    offset = np.cumsum(count) - count
    row = np.arange(count.sum()) + np.repeat(first - offset, count)
    at = np.maximum(submit[row] + np.repeat(shifted, count), now)
    kept = at < until
    return row[kept], at[kept]


def _back(least: int, most: int, random: np.random.Generator) -> float:
    """Return by how many seconds the past is shifted: whole days, or as likely whole weeks."""
    most = max(min(most, least + 7 * WEEKS), least)
    first, end = -(-least // 7), most // 7 + 1
    if first < end and random.random() < 0.5:
        return WEEK * float(random.integers(first, end))
    return DAY * float(random.integers(least, most + 1))
