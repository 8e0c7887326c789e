"""Jobs that start on slots of their own, from poll to poll.

Those that are about to, those that cannot, and the procs of divisible loads that have run. A load
has begun as soon as one of its chunks has: from then on its plan is fixed. A chunk may run and be
over between two polls; that it was there shows when its cluster has fewer procs than were
submitted, and the history tells whether a proc that is gone ever ran. An array has begun as long as
its procs run, or are about to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.condor.completions import started_of
from rtsched.adapters.condor.ids import cluster_of, job_id, own_cluster, proc_of, schedd_of
from rtsched.adapters.condor.pool_state import DEFERRED, IDLE, UNJUDGED, has_slot, slot_names
from rtsched.adapters.condor.queue import OF_ENDS
from rtsched.errors import AdapterError
from rtsched.logs.classads import number
from rtsched.model.snapshot import are_in

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from rtsched.adapters.condor.facts import CondorFacts
    from rtsched.adapters.condor.pool import Pool
    from rtsched.adapters.condor.pool_state import Array, Procs
    from rtsched.adapters.condor.queue import Queue

MISSED = 2
"""Planned starts in a row after which a job counts as one that cannot start."""

SHUNNED_S = 300.0
"""Seconds for which nothing is planned on slots on which a job did not start: their machine may be
dead, which the collector learns late (CLASSAD_LIFETIME)."""


@dataclass(frozen=True)
class Bound:
    """A job that may start on slots of its own, and does so with the next negotiation.

    `start` is when, as planned, seconds since the epoch; `procs` how many it has.
    """

    start: float
    procs: int


def bound_of(
    queue: Queue, facts: CondorFacts, now: float, away: Container[str] = ()
) -> dict[int, Bound]:
    """Return the jobs that were given slots and are about to start on them.

    They count as running, so that no plan moves them any more. One that has not started within the
    time that a start may take, that has started and waits again, or whose slots somebody else has
    or take no jobs (`away`), only waits.
    """
    procs, found, wait = queue.procs, dict[int, Bound](), set[int]()
    taken = _slots_taken(procs)
    rows = np.flatnonzero((procs.status == IDLE) & (procs.node_set >= 0))
    rows = rows[~are_in(procs.job[rows], list(queue.arrays))]
    sets, admissions = (procs.take(rows).texts(name) for name in ("node_set", "admission"))
    for row, words, admission in zip(rows.tolist(), sets, admissions, strict=True):
        job, start = int(procs.job[row]), number(queue.ads.get(row, {}), "rtplannedstart")
        judged, names = admission not in {None, DEFERRED, UNJUDGED}, slot_names(words)
        due = start + facts.start_delay >= now and not _has_started(procs, row, start)
        free = taken.isdisjoint(names) and not all(name in away for name in names)
        if judged and due and free:
            before = found.get(job, Bound(start, 0))
            found[job] = Bound(min(start, before.start), before.procs + 1)
        else:
            wait.add(job)
    return {job: bound for job, bound in found.items() if job not in wait}


class StartFailureTracker:
    """How often jobs did not start on free slots that were theirs, from poll to poll."""

    def __init__(self) -> None:
        self._missed: dict[int, set[float]] = {}
        self._late: dict[int, tuple[int, list[str]]] = {}
        self._unfit: set[int] = set()
        self._shunned: dict[str, tuple[int, float]] = {}
        self._began = -math.inf

    @property
    def shunned(self) -> frozenset[str]:
        """The slots on which jobs did not start a short while ago, though they may be to blame."""
        return frozenset(self._shunned)

    def update(
        self,
        queue: Queue,
        facts: CondorFacts,
        now: float,
        *,
        negotiated: bool = True,
        slots: float = math.inf,
        fits: Callable[[int, Sequence[str]], bool] = lambda _job, _slots: False,
        started: Mapping[str, float] | None = None,
        begun: Container[int] = (),
        schedd_started: Callable[[int], float] = lambda _job: -math.inf,
    ) -> frozenset[int]:
        """Return the jobs whose own requirements forbid the slots on which they were to start.

        They are asked for their requirements when they missed so many planned starts one after the
        other as are too many. Where those hold it is for others (the schedd starts nothing, or the
        site's START forbids it), and the job begins anew. After the first missed start nothing is
        known yet, and the next one is planned on other slots.

        Parameters
        ----------
        queue, facts
            What the schedd shows.
        now : float
            Seconds since the epoch.
        negotiated : bool
            While nobody negotiates no start is missed.
        slots : float
            How many slots there are.
        fits : callable
            Whether the requirements of a proc, cluster and proc in one, hold on one of some slots.
        started : mapping of str to float, optional
            When the startds of slots were started, by the slots' names, seconds since the epoch:
            one that is back since is no longer shunned.
        begun : container of int, optional
            Arrays that have begun: their procs wait for one another.
        schedd_started : callable
            When the schedd of a job was started, seconds since the epoch. Planned starts before
            are put off until then: no slot is to blame that nothing starts without it.
        """
        procs, late = queue.procs, dict[int, set[float]]()
        waits = np.flatnonzero((procs.status == IDLE) & (procs.node_set >= 0)).tolist()
        rows = [row for row in waits if int(procs.job[row]) not in begun]
        planned = {row: number(queue.ads.get(row, {}), "rtplannedstart") for row in rows}
        rows = [row for row in rows if not _has_started(procs, row, planned[row])]
        taken = _slots_taken(procs)
        sets = procs.take(rows).texts("node_set")
        starts = [planned[row] for row in rows]
        over_before = now - facts.start_delay if negotiated else -math.inf
        suspect = {
            schedd_of(int(procs.job[row])): int(procs.job[row])
            for row, start in zip(rows, starts, strict=True)
            if start < over_before
        }
        away = {at for at, job in suspect.items() if schedd_started(job) >= over_before}
        for row, words, start in zip(rows, sets, starts, strict=True):
            if schedd_of(int(procs.job[row])) in away:
                continue
            if start < over_before and taken.isdisjoint(slot_names(words)):
                late.setdefault(int(procs.job[row]), set()).add(start)
                number_of = job_id(int(procs.cluster[row]), int(procs.proc[row]))
                self._late[int(procs.job[row])] = (number_of, slot_names(words))
                since = start + facts.start_delay
                self._shunned |= dict.fromkeys(slot_names(words), (int(procs.job[row]), since))
        idle = set(procs.job[procs.status == IDLE].tolist())
        known = {job: starts for job, starts in self._missed.items() if job in idle}
        self._missed = {
            job: known.get(job, set()) | late.get(job, set()) for job in {*known, *late}
        }
        many = {job for job, starts in self._missed.items() if len(starts) >= MISSED}
        self._late = {job: self._late[job] for job in self._missed if job in self._late}
        asked = many - self._unfit
        self._unfit &= many
        self._unfit |= {job for job in asked if not fits(*self._late[job])}
        stuck = frozenset(self._unfit)
        self._missed |= {job: late.get(job, set()) for job in many - stuck}
        began = started or {}
        self._shunned = {
            name: (job, since)
            for name, (job, since) in self._shunned.items()
            if job not in stuck and name not in taken and now < since + SHUNNED_S
            if not began.get(name, -math.inf) > since
        }
        self._began = max(self._began, float(np.fmax.reduce(procs.start, initial=-np.inf)))
        if self._nothing_starts(facts, slots):
            self._shunned = {}
        return stuck

    def _nothing_starts(self, facts: CondorFacts, slots: float) -> bool:
        """Return whether no job starts anywhere, so that it is not for the slots' machines.

        The schedd may be busy, or have as many jobs as it may (MAX_JOBS_RUNNING).
        """
        blamed = self._shunned.values()
        planned = min((since for _, since in blamed), default=-math.inf)
        machines = {name.rpartition("@")[2] for name in self._shunned}
        apart = len(machines) > 1 and len({job for job, _ in blamed}) > 1
        many = apart or 2 * len(self._shunned) > slots
        return many and self._began < planned - facts.start_delay


def _has_started(procs: Procs, row: int, planned: float) -> bool:
    """Return whether a proc that waits has begun since its planned start: it was stopped later."""
    return bool(procs.start[row] >= planned)


def _slots_taken(procs: Procs) -> set[str]:
    """Return the slots on which procs run."""
    return {
        name for slots in procs.take(has_slot(procs)).texts("slot") for name in slot_names(slots)
    }


class StartedLoads:
    """Which procs of divisible loads have run, from poll to poll.

    Parameters
    ----------
    pool : Pool
        Whose history is asked.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._ran: dict[int, set[int]] = {}
        self._left: dict[int, int] = {}

    def update(self, queue: Queue) -> dict[int, int]:
        """Return how many procs of a load ran up to now, of those loads that have begun.

        One of which all procs wait again, and none is over, has not begun.
        """
        procs, runs = queue.procs, has_slot(queue.procs).tolist()
        present: dict[int, set[int]] = {}
        running: dict[int, set[int]] = {}
        left: dict[int, int] = {}
        for row, needs in queue.requirements.items():
            if needs.whole:
                job, proc = int(procs.job[row]), int(procs.proc[row])
                present.setdefault(job, set()).add(proc)
                submitted = number(queue.ads[row], "totalsubmitprocs")
                left[job] = int(submitted) if math.isfinite(submitted) else 0
                if runs[row]:
                    running.setdefault(job, set()).add(proc)
        left = {job: count - len(present[job]) for job, count in left.items()}
        over = self._over(queue, left)
        self._ran = {
            job: self._ran.get(job, set()) | running.get(job, set()) | over.get(job, set())
            for job in present
        }
        return {
            job: len(ran) for job, ran in self._ran.items() if job in running or ran - present[job]
        }

    def _over(self, queue: Queue, left: dict[int, int]) -> dict[int, set[int]]:
        """Return the procs that ran and are over, of loads that have lost procs since last time."""
        new = [job for job, count in left.items() if count > max(self._left.get(job, 0), 0)]
        self._left = left
        over: dict[int, set[int]] = {}
        for one in started_of(queue.over):
            over.setdefault(job_id(cluster_of(one), 0), set()).add(proc_of(one))
        for job in new:
            over.setdefault(job, set()).update(self._gone(job, left[job]))
        return over

    def _gone(self, job: int, count: int) -> set[int]:
        """Return which procs of a load ran, of so many that are gone; none without a history."""
        try:
            schedd, cluster = self._pool.schedds[schedd_of(job)], own_cluster(cluster_of(job))
            found = schedd.history(f"ClusterId == {cluster}", OF_ENDS, count)
        except (AdapterError, KeyError):
            return set()
        return {proc_of(one) for one in started_of(found)}


@dataclass
class Begun:
    """An array that has begun: when, and by when it ends as it was planned; s since the epoch.

    `last`: when its procs ran, or were about to, last.
    """

    start: float
    end: float
    last: float


class StartedArrays:
    """Which arrays have begun, from poll to poll.

    One has as long as its procs run, or are about to start on its slots. If none starts within the
    time that a start may take, it waits, and is planned anew.
    """

    def __init__(self) -> None:
        self._seen: dict[int, Begun] = {}
        self._first = True

    def update(self, queue: Queue, facts: CondorFacts, now: float) -> dict[int, Begun]:
        """Return those that have begun; `now` in seconds since the epoch."""
        seen: dict[int, Begun] = {}
        for job, array in queue.arrays.items():
            before = self._seen.get(job)
            last = max(before.last if before else -math.inf, array.bound)
            if array.runs or (self._first and array.slots):
                last = now
            if not array.runs and not (
                array.slots and array.waits and last + facts.start_delay >= now
            ):
                continue
            seen[job] = before or self._began(queue, array, facts, min(array.bound, now), now)
            seen[job].last = last
        self._seen, self._first = seen, False
        return seen

    def _began(
        self, queue: Queue, array: Array, facts: CondorFacts, start: float, now: float
    ) -> Begun:
        """Return an array that begins."""
        start = start if math.isfinite(start) else now
        row = (array.waits or array.runs)[0]
        limit = float(queue.procs.run_time[row] + queue.procs.vacating[row]) + facts.margin
        rounds = -(-(len(array.waits) + len(array.runs)) // max(array.at_a_time, 1))
        return Begun(start, start + rounds * limit, now)
