"""Steering of single jobs, users and slots: from actions to changes of ads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.changes import Steering, idle_nodes, kind_of, stoppable, with_exchanged_places
from rtsched.adapters.condor.accounts import differing, wanted_factors
from rtsched.adapters.condor.commands import (
    UNDEFINED,
    Act,
    Edit,
    Rank,
    SetFactor,
    change,
    priority_edits,
)
from rtsched.adapters.condor.pool_state import (
    DEFERRED,
    HELD,
    IDLE,
    JUDGED,
    RUNNING,
    SUSPENDED,
    TRANSFERRING,
    UNJUDGED,
    work_began,
)
from rtsched.adapters.condor.requirements import hosts
from rtsched.adapters.condor.reserving import (
    FIRST_PRIORITY,
    reserve_changes,
    table_changes,
    text_of,
)
from rtsched.adapters.condor.schedd import literal
from rtsched.adapters.condor.table import delays_of
from rtsched.adapters.live import Change
from rtsched.logs.classads import number, text
from rtsched.model.actions import Move
from rtsched.model.jobs import Kind
from rtsched.model.snapshot import are_in, places

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from rtsched.adapters.condor.commands import LastApplied
    from rtsched.adapters.condor.pool_state import PoolState
    from rtsched.adapters.condor.settings import CondorSettings
    from rtsched.model.actions import (
        Admit,
        DropDeadline,
        ExchangePlaces,
        Hold,
        Place,
        Release,
        Requeue,
        Reserve,
        SetNodeWeight,
        SetPriority,
    )

LONGEST = 1000
"""Characters of a text for a user."""

PER_VALUE = 1000.0
"""JobPrio is the value of the fair-share plug-ins times this."""

HIGHEST = 1 << 20
"""JobPrio of jobs without a promise, at the most."""

_ALIVE = (IDLE, HELD, RUNNING, TRANSFERRING, SUSPENDED)


@dataclass
class CondorSteering(Steering):
    """What actions ask of a pool.

    Parameters
    ----------
    view : PoolState
        The last poll.
    settings : CondorSettings
        The `[condor]` table.
    last_applied : LastApplied
        What was asked for and cannot be read back.
    now : float
        Seconds since the epoch.
    """

    view: PoolState
    settings: CondorSettings
    last_applied: LastApplied
    now: float

    def name_of(self, job: int) -> str:
        """Return what HTCondor calls a job."""
        return self.view.name_of(job)

    def reserve(self, action: Reserve) -> Iterator[Change]:
        """Yield what a plan asks for, and which jobs end that have outlived their run time."""
        self.view.planned, self.view.unplanned = action.jobs, action.unplanned
        asked = self.view, self.settings, self.last_applied, self.now
        yield from reserve_changes(action.plan, *asked, action.secured)
        yield from overrun_changes(*asked)

    def set_priority(self, action: SetPriority) -> Iterator[Change]:
        """Yield JobPrio of jobs, and priority factors of users."""
        yield from self._priorities(action)
        yield from self._factors(action)

    def exchange_places(self, action: ExchangePlaces) -> Iterator[Change]:
        """Yield JobPrio with which idle jobs of a user exchange their places."""
        procs = self.view.procs
        if not (len(action.job) or procs.reordered.any()):
            return
        rows = np.flatnonzero((procs.status == IDLE) & (procs.priority < FIRST_PRIORITY >> 1))
        rows = rows[np.argsort(self.view.numbers[rows], kind="stable")]
        at, moves = places(action.job, procs.job[rows])
        present, own = self._own_priorities(rows)
        wanted, submitter = own.copy(), procs.column("submitter")[rows]
        wanted[moves] = with_exchanged_places(
            own[moves], submitter[moves], action.rank[at[moves]], own[~moves], submitter[~moves]
        )
        yield from self._set_priorities(rows, wanted, present, own)

    def place(self, action: Place) -> Iterator[Change]:
        """Yield host counts and preferred slots of best-effort jobs."""
        yield from self._sizes(action)
        yield from self._rank_sets(action)

    def set_node_weight(self, action: SetNodeWeight) -> Iterator[Change]:
        """Yield the table of slots with these delay factors."""
        view, applied = self.view, self.last_applied
        applied.delays = delays_of(view.slots, np.asarray(action.weight, np.float64))
        yield from table_changes(view, self.settings, applied, self.now)

    def drop_deadline(self, action: DropDeadline) -> tuple[Change, ...]:  # noqa: ARG002
        """Return what keeps HTCondor from ending jobs at their deadlines: it ends none."""
        return ()

    def _priorities(self, action: SetPriority) -> Iterator[Change]:
        """Yield JobPrio of jobs whose users have jobs of different values, the farthest off first.

        A user whose jobs all have the same value keeps the priorities that the user gave them.
        """
        view = self.view
        rows, at, _ = _waiting(view, action.job)
        if not len(rows):
            return
        value = np.round(np.nan_to_num(action.value)[at] * PER_VALUE)
        wanted = np.clip(value, -HIGHEST, HIGHEST).astype(np.int64)
        submitter = view.procs.column("submitter")[rows] + 1
        least, most = (np.full(submitter.max() + 1, end) for end in (HIGHEST + 1, -HIGHEST - 1))
        np.minimum.at(least, submitter, wanted)
        np.maximum.at(most, submitter, wanted)
        present, own = self._own_priorities(rows)
        wanted = np.where((least < most)[submitter], wanted, own)
        yield from self._set_priorities(rows, wanted, present, own)

    def _own_priorities(
        self, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return JobPrio of some procs, int64[k], and what their users gave them."""
        procs = self.view.procs
        present = procs.priority[rows].astype(np.int64)
        own = procs.own_priority[rows].astype(np.int64)
        return present, np.where(procs.reordered[rows], own, present)

    def _set_priorities(
        self,
        rows: NDArray[np.int64],
        wanted: NDArray[np.int64],
        present: NDArray[np.int64],
        own: NDArray[np.int64],
    ) -> Iterator[Change]:
        """Yield JobPrio of some procs where it is another, the farthest off first."""
        procs, reordered = self.view.procs, self.view.procs.reordered[rows]
        off = np.abs(wanted - present) + (reordered & (wanted == own))
        order = np.argsort(-off, kind="stable")[: self.settings.priorities_per_cycle]
        for i in order[off[order] > 0].tolist():
            proc = int(self.view.numbers[rows[i]])
            what = f"set the priority of job {self.name_of(proc)} to {wanted[i]}"
            kept = int(own[i]) if reordered[i] else None
            steps = priority_edits(proc, int(wanted[i]), int(present[i]), kept)
            yield change("set-priority", int(procs.job[rows[i]]), what, *steps)

    def _factors(self, action: SetPriority) -> Iterator[Change]:
        """Yield the priority factors of users that are off by a step at least."""
        view = self.view
        if not self.settings.factors or self.last_applied.no_factors or not view.negotiates:
            return
        at, known = places(view.procs.job, action.job)
        names = view.procs.take(at[known]).texts("submitter")
        charged = np.array([name is not None for name in names], np.bool_)
        value = action.value[known][charged]
        limits = (self.settings.factor_min, self.settings.factor_max)
        wanted = wanted_factors([name for name in names if name], value, limits)
        for name, factor in differing(wanted, view.factors, self.settings.factor_step).items():
            what = f"set the priority factor of {name} to {factor:.6g}"
            yield change("set-priority", -1, what, SetFactor(name, factor))

    def _sizes(self, action: Place) -> Iterator[Change]:
        """Yield host counts of best-effort parallel jobs that left them open, and their slots.

        A size is what fits now. A job that has to wait gets its own range back: when slots come
        free, HTCondor may start it before the next poll, on as many as there are.
        """
        view = self.view
        placement, idle = action.placement, self._idle_nodes()
        which, left = self._to_size(action), self.settings.sizes_per_cycle
        waits = view.rows_of(action.job[which].tolist(), IDLE)
        names, every = view.slots.texts("name"), np.arange(len(idle), dtype=np.int32)
        columns = (action.job[which], placement.size[which], placement.node_set[which])
        for job, size, code in zip(*(column.tolist() for column in columns), strict=True):
            if left == 0:
                return
            if len(waits[job]) != 1:
                continue
            row, nodes = waits[job][0], placement.node_sets[code] if code >= 0 else every
            given = text_of(view, "node_set", row).split(",")
            kept = [at for name in given for at in view.of_slot.get(name, ())]
            chosen = _first_free(nodes, size, idle, kept)
            idle[chosen] = False
            slots = ",".join(dict.fromkeys(names[at] or "" for at in chosen.tolist()))
            steps = _sized(row, slots, len(chosen), view)
            if steps:
                left -= 1
                hosts = f"{len(chosen)} hosts" if len(chosen) else "as many hosts as it asked for"
                yield change("place", job, f"have job {self.name_of(job)} start on {hosts}", *steps)

    def _to_size(self, action: Place) -> NDArray[np.int64]:
        """Return which of the jobs are moldable, are given a size, and wait for no other."""
        queued, edges = self.view.observation.queued, self.view.observation.edges
        at, known = places(queued.id, action.job)
        moldable = np.zeros(len(action.job), np.bool_)
        moldable[known] = queued.kind[at[known]] == Kind.MOLDABLE
        behind = are_in(action.job, edges.after)
        return np.flatnonzero(moldable & (action.placement.size > 0) & ~behind)

    def _idle_nodes(self) -> NDArray[np.bool_]:
        """Return bool[m]: rows that take jobs, run none, and are not kept for a promise."""
        names, kept = self.view.slots.texts("name"), self.last_applied.kept
        unkept = np.array([name not in kept for name in names], np.bool_)
        return idle_nodes(self.view.observation, unkept)

    def _rank_sets(self, action: Place) -> Iterator[Change]:
        """Yield on which slots jobs would best start, of the first jobs in the queue.

        A wish, which the negotiator's rank reads. Where all jobs have the same set it tells nothing
        of any of them: the delay factors in the table order the slots then.
        """
        view, placement = self.view, action.placement
        rows, at, procs = _waiting(view, action.job)
        codes = placement.node_set[at]
        if len(np.unique(codes[codes >= 0])) < 2:
            return
        names, sizes = view.slots.texts("name"), view.observation.queued.size
        present, left = view.procs.take(rows).texts("rank_set"), self.settings.priorities_per_cycle
        order = np.lexsort((view.procs.job[rows], view.procs.submit[rows])).tolist()
        for i in order:
            job, code = int(action.job[at[i]]), int(codes[i])
            nodes = placement.node_sets[code] if code >= 0 else np.empty(0, np.int32)
            if left == 0 or not len(nodes) or job not in view.place:
                continue
            first = nodes[: int(sizes[view.place[job]])].tolist()
            wanted = ",".join(dict.fromkeys(names[node] or "" for node in first))
            if wanted == present[i]:
                continue
            left -= 1
            step = Edit(Rank.JOB, (procs[i],), "RtRankSet", literal(wanted))
            yield change("place", job, f"prefer {wanted} for job {self.name_of(procs[i])}", step)

    def removal(self, job: int, text: str) -> Iterator[Change]:
        """Yield what removes a job, its user told before; the end comes whatever became of that."""
        rows = self.view.rows_of([job], *_ALIVE)[job]
        if rows:
            yield from self.notice(job, text)
            why, procs = " ".join(text.split())[:LONGEST], tuple(self.view.numbers[rows].tolist())
            what = f"remove job {self.name_of(job)}: {why}"
            yield change("cancel", job, what, Act("Remove", procs, why))

    def notice(self, job: int, text: str) -> Iterator[Change]:
        """Yield what tells a job's user something: RtWhy."""
        view, why = self.view, " ".join(text.split())[:LONGEST]
        rows = view.rows_of([job], *_ALIVE)[job]
        untold = [row for row in rows if view.ads.get(row, {}).get("rtwhy") != why]
        if why and untold:
            step = Edit(Rank.JOB, tuple(view.numbers[untold].tolist()), "RtWhy", literal(why))
            yield change("tell", job, f"set RtWhy of job {self.name_of(job)}: {why}", step)

    def hold(self, action: Hold) -> Iterator[Change]:
        """Yield which waiting jobs are held; one that is deferred waits without."""
        view = self.view
        for job, rows in view.rows_of(action.job.tolist(), IDLE).items():
            free = [row for row in rows if text_of(view, "admission", row) != DEFERRED]
            if free:
                procs = tuple(view.numbers[free].tolist())
                act = Act("Hold", procs, "rtsched: to be evaluated later")
                yield change("hold", job, f"hold job {self.name_of(job)}", act)

    def admit(self, action: Admit) -> Iterator[Change]:
        """Yield which deferred jobs were promised something: they start by their node sets only."""
        for job, rows in self.view.rows_of(action.job.tolist(), IDLE, HELD).items():
            yield from self._admit_deferred("admit", job, rows, JUDGED)

    def release(self, action: Release) -> Iterator[Change]:
        """Yield which jobs are let go: deferred ones by what they carry, held ones by a release.

        One that waits for others waits on: HTCondor knows no such order.
        """
        view = self.view
        for job, rows in view.rows_of(action.job.tolist(), IDLE, HELD).items():
            if job in view.behind:
                continue
            yield from self._admit_deferred("release", job, rows, UNJUDGED)
            held = [row for row in rows if view.procs.status[row] == HELD]
            if held:
                act = Act("Release", tuple(view.numbers[held].tolist()), "rtsched: evaluated")
                yield change("release", job, f"release job {self.name_of(job)}", act)

    def _admit_deferred(self, kind: str, job: int, rows: list[int], word: str) -> Iterator[Change]:
        """Yield what the procs among some of a job carry from now on that carry no admission yet.

        Only deferred ones are let go: others may start as they are.
        """
        view, before = self.view, {DEFERRED} if word == UNJUDGED else {"", DEFERRED, UNJUDGED}
        deferred = [row for row in rows if text_of(view, "admission", row) in before]
        if deferred:
            procs = tuple(view.numbers[deferred].tolist())
            steps = list(self._as_one(job, deferred)) if word == JUDGED else []
            steps.append(Edit(Rank.JOB, procs, "RtAdmission", literal(word)))
            yield change(kind, job, f"set RtAdmission of job {self.name_of(job)}: {word}", *steps)

    def _as_one(self, job: int, rows: list[int]) -> Iterator[Edit]:
        """Yield what procs carry that were found to be an array: how many run at a time, and when.

        All have the same deadline, the earliest of theirs.
        """
        view = self.view
        if job in view.arrays and job in view.place:
            procs = tuple(view.numbers[rows].tolist())
            yield Edit(Rank.MARK, procs, "RtPerSlot", str(view.arrays[job].per_slot))
            deadline = float(view.observation.queued.deadline[view.place[job]])
            late = [row for row in rows if number(view.ads[row], "rtdeadline") != deadline]
            if late:
                procs = tuple(view.numbers[late].tolist())
                yield Edit(Rank.MARK, procs, "RtDeadline", literal(deadline))

    def requeue(self, action: Requeue | Move) -> Iterator[Change]:
        """Yield which running jobs are vacated, of those that may be.

        One that is moved has its time to write a checkpoint.
        """
        view, kind, moves = self.view, kind_of(action), isinstance(action, Move)
        why = "does not checkpoint" if moves else "does not allow being vacated"
        reason = (
            "rtsched: it continues on other slots"
            if moves
            else "rtsched: it is preempted for a promised job"
        )
        rows = view.rows_of(action.job.tolist(), RUNNING)
        for job, able in stoppable(view.observation, action).items():
            procs = tuple(view.numbers[rows[job]].tolist())
            if all(self.last_applied.urged_lately(proc, self.now) for proc in procs):
                continue
            if able:
                act = Act("Vacate" if moves else "VacateFast", procs, reason)
                yield change(kind, job, f"vacate job {self.name_of(job)}", act)
            else:
                yield Change(kind, job, f"job {self.name_of(job)} {why}; it stays")

    move = requeue


def _waiting(
    view: PoolState, jobs: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[int]]:
    """Return the idle procs of some jobs: their rows, where their jobs stand, and their numbers."""
    at, known = places(jobs, view.procs.job)
    rows = np.flatnonzero(known & (view.procs.status == IDLE))
    return rows, at[rows], view.numbers[rows].tolist()


def _first_free(
    nodes: NDArray[np.int32], size: int, idle: NDArray[np.bool_], given: Sequence[int]
) -> NDArray[np.int32]:
    """Return the first `size` of some rows that are idle, or none if there are fewer.

    Where those that a job was `given` before are so many and still idle, it keeps them.
    """
    free = nodes[idle[nodes]]
    kept = free[np.isin(free, given)]
    if len(kept) == size:
        return kept
    return free[:size] if len(free) >= size else free[:0]


def _sized(row: int, slots: str, count: int, view: PoolState) -> list[Edit]:
    """Return what gives a parallel job its slots and as many hosts, or its own range back.

    Its own requirements keep it to them: the rank would give it others that are better by then. The
    slots come first: a job of the new size never starts on the old ones.
    """
    ad, proc = view.ads.get(row, {}), (int(view.numbers[row]),)
    own = hosts(ad)
    least, most = (count, count) if count else own
    steps = []
    if slots != text_of(view, "node_set", row):
        value = literal(slots) if slots else UNDEFINED
        steps.append(Edit(Rank.JOB, proc, "RtNodeSet", value))
    if (number(ad, "minhosts"), number(ad, "maxhosts")) != (least, most):
        if not text(ad, "rthosts"):
            steps.append(Edit(Rank.JOB, proc, "RtHosts", literal(f"{own[0]}-{own[1]}")))
        steps.append(Edit(Rank.JOB, proc, "MinHosts", str(least)))
        steps.append(Edit(Rank.JOB, proc, "MaxHosts", str(most)))
    return steps


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
    over = work_began(procs) + limit + settings.overrun_s + settings.completing_s + procs.vacating
    ours = (procs.status == RUNNING) & ~procs.limited
    for row in np.flatnonzero(ours & (over < now)).tolist():
        proc, slots = int(view.numbers[row]), text_of(view, "slot", row).split(",")
        if last_applied.urged_lately(proc, now) or not view.leaving.isdisjoint(
            map(str.strip, slots)
        ):
            continue
        why = f"rtsched: run time of {limit[row]:.0f} s is over"
        removes = settings.overruns == "remove"
        what = f"{'remove' if removes else 'vacate'} job {view.name_of(proc)}: {why}"
        act = Act("Remove" if removes else "VacateFast", (proc,), why)
        yield change("cancel" if removes else "requeue", int(procs.job[row]), what, act)
