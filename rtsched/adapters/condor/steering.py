"""From actions on single jobs, users and slots to what HTCondor is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.condor.commands import (
    UNDEFINED,
    Act,
    Edit,
    Rank,
    SetFactor,
    change,
    priority_edits,
)
from rtsched.adapters.condor.factors import differing, factors_of
from rtsched.adapters.condor.ids import name_of
from rtsched.adapters.condor.pool import literal
from rtsched.adapters.condor.pool_state import (
    DEFERRED,
    HELD,
    IDLE,
    JUDGED,
    RUNNING,
    SUSPENDED,
    TRANSFERRING,
    UNJUDGED,
)
from rtsched.adapters.condor.requirements import hosts
from rtsched.adapters.condor.reserving import table_changes, text_of
from rtsched.adapters.condor.table import delays_of
from rtsched.adapters.live import Change
from rtsched.logs.classads import number, text
from rtsched.model.actions import (
    Action,
    Admit,
    Cancel,
    Hold,
    Move,
    Place,
    Reject,
    Release,
    Requeue,
    Reserve,
    SetNodeWeight,
    SetPriority,
    Tell,
)
from rtsched.model.cluster import NodeState
from rtsched.model.jobs import Kind
from rtsched.model.snapshot import places

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from rtsched.adapters.condor.last_applied import LastApplied
    from rtsched.adapters.condor.pool_state import PoolState
    from rtsched.adapters.condor.settings import CondorSettings

LONGEST = 1000
"""Characters of a text for a user."""

PER_VALUE = 1000.0
"""JobPrio is the value of the fair-share plug-ins times this."""

HIGHEST = 1 << 20
"""JobPrio of jobs without a promise, at the most."""

_ALIVE = (IDLE, HELD, RUNNING, TRANSFERRING, SUSPENDED)


def steer_changes(
    action: Action, view: PoolState, settings: CondorSettings, last_applied: LastApplied, now: float
) -> Iterator[Change]:
    """Yield what one action other than `Reserve` asks for and is not so yet."""
    if isinstance(action, SetPriority):
        yield from _priorities(action, view, settings)
        yield from _factors(action, view, settings, last_applied)
    elif isinstance(action, Place):
        yield from _sizes(action, view, settings, last_applied)
        yield from _rank_sets(action, view, settings)
    elif isinstance(action, SetNodeWeight):
        last_applied.delays = delays_of(view.slots, np.asarray(action.weight, np.float64))
        yield from table_changes(view, settings, last_applied, now)
    elif isinstance(action, Cancel | Reject):
        for job, why in zip(action.job.tolist(), action.text, strict=True):
            yield from _cancel(job, why, view)
    elif isinstance(action, Tell):
        for job, why in zip(action.job.tolist(), action.text, strict=True):
            yield from _notify(job, why, view)
    elif isinstance(action, Hold):
        yield from _holds(action, view)
    elif isinstance(action, Release):
        yield from _releases(action, view)
    elif isinstance(action, Admit):
        yield from _admits(action, view)
    elif isinstance(action, Requeue | Move):
        yield from _requeues(action, view, last_applied, now)
    elif not isinstance(action, Reserve):
        for job in action.job.tolist():
            yield Change(_kind(action), job, f"{_kind(action)} job {name_of(job)}")


def _kind(action: Action) -> str:
    """Return the name of an action, such as `set-priority`."""
    name = type(action).__name__
    return "".join(f"-{c.lower()}" if c.isupper() else c for c in name).lstrip("-")


def _rows(view: PoolState, jobs: Sequence[int], *states: int) -> dict[int, list[int]]:
    """Return the procs of some jobs that are in one of these states, rows of `PoolState.procs`."""
    found: dict[int, list[int]] = {job: [] for job in jobs}
    wanted = np.isin(view.procs.job, jobs) & np.isin(view.procs.status, states)
    rows = np.flatnonzero(wanted)
    for row, job in zip(rows.tolist(), view.procs.job[rows].tolist(), strict=True):
        found[job].append(row)
    return found


def _waiting(
    view: PoolState, jobs: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[int]]:
    """Return the idle procs of some jobs: their rows, where their jobs stand, and their numbers."""
    at, known = places(jobs, view.procs.job)
    rows = np.flatnonzero(known & (view.procs.status == IDLE))
    return rows, at[rows], view.numbers[rows].tolist()


def _priorities(action: SetPriority, view: PoolState, settings: CondorSettings) -> Iterator[Change]:
    """Yield JobPrio of jobs whose users have jobs of different values, the farthest off first.

    A user whose jobs all have the same value keeps the priorities that the user gave them.
    """
    rows, at, procs = _waiting(view, action.job)
    if not len(rows):
        return
    value = np.round(np.nan_to_num(action.value)[at] * PER_VALUE)
    wanted = np.clip(value, -HIGHEST, HIGHEST).astype(np.int64)
    submitter = view.procs.column("submitter")[rows] + 1
    least, most = (np.full(submitter.max() + 1, end) for end in (HIGHEST + 1, -HIGHEST - 1))
    np.minimum.at(least, submitter, wanted)
    np.maximum.at(most, submitter, wanted)
    present = view.procs.priority[rows].astype(np.int64)
    reordered = view.procs.reordered[rows]
    own = np.where(reordered, view.procs.own_priority[rows].astype(np.int64), present)
    wanted = np.where((least < most)[submitter], wanted, own)
    off = np.abs(wanted - present) + (reordered & (wanted == own))
    order = np.argsort(-off, kind="stable")[: settings.priorities_per_cycle]
    for i in order[off[order] > 0].tolist():
        says = f"set the priority of job {name_of(procs[i])} to {wanted[i]}"
        kept = int(own[i]) if reordered[i] else None
        steps = priority_edits(procs[i], int(wanted[i]), int(present[i]), kept)
        yield change("set-priority", int(view.procs.job[rows[i]]), says, *steps)


def _factors(
    action: SetPriority, view: PoolState, settings: CondorSettings, last_applied: LastApplied
) -> Iterator[Change]:
    """Yield the priority factors of users that are off by a step at least."""
    if not settings.factors or last_applied.no_factors or not view.negotiates:
        return
    at, known = places(view.procs.job, action.job)
    names = view.procs.take(at[known]).texts("submitter")
    charged = np.array([name is not None for name in names], np.bool_)
    value = action.value[known][charged]
    wanted = factors_of(
        [name for name in names if name], value, (settings.factor_min, settings.factor_max)
    )
    for name, factor in differing(wanted, view.factors, settings.factor_step).items():
        says = f"set the priority factor of {name} to {factor:.6g}"
        yield change("set-priority", -1, says, SetFactor(name, factor))


def _sizes(
    action: Place, view: PoolState, settings: CondorSettings, last_applied: LastApplied
) -> Iterator[Change]:
    """Yield host counts of best-effort parallel jobs that left them open, and the slots for them.

    A size is what fits now. A job that has to wait gets its own range back: when slots come free,
    HTCondor may start it before the next poll, on as many as there are.
    """
    placement, idle = action.placement, _idle_nodes(view, last_applied)
    which, left = _to_size(action, view), settings.sizes_per_cycle
    waits = _rows(view, action.job[which].tolist(), IDLE)
    slots, every = _Codes.of(view), np.arange(len(idle), dtype=np.int32)
    columns = (action.job[which], placement.size[which], placement.node_set[which])
    for job, size, code in zip(*(column.tolist() for column in columns), strict=True):
        if left == 0:
            return
        if len(waits[job]) != 1:
            continue
        row, nodes = waits[job][0], placement.node_sets[code] if code >= 0 else every
        chosen = _first_free(nodes, size, idle, slots.rows(text_of(view, "node_set", row)))
        idle[chosen] = False
        steps = _sized(row, slots.text(chosen), len(chosen), view)
        if steps:
            left -= 1
            says = f"on {len(chosen)} hosts" if len(chosen) else "on as many hosts as it asked for"
            yield change("place", job, f"have job {name_of(job)} start {says}", *steps)


def _to_size(action: Place, view: PoolState) -> NDArray[np.int64]:
    """Return which of the jobs are moldable, are given a size, and wait for no other."""
    queued = view.observation.queued
    at, known = places(queued.id, action.job)
    moldable = np.zeros(len(action.job), np.bool_)
    moldable[known] = queued.kind[at[known]] == Kind.MOLDABLE
    behind = np.isin(action.job, view.observation.edges.after)
    return np.flatnonzero(moldable & (action.placement.size > 0) & ~behind)


@dataclass(frozen=True)
class _Codes:
    """The names of slots, and which row of the cluster has which one."""

    names: tuple[str, ...]
    code: NDArray[np.int32]
    of_name: dict[str, int]

    @classmethod
    def of(cls, view: PoolState) -> _Codes:
        names = view.slots.names("name")
        return cls(names, view.slots.column("name"), {name: i for i, name in enumerate(names)})

    def rows(self, slots: str) -> NDArray[np.bool_] | None:
        """Return bool[rows]: those of some slots, by a list of names; None: it names none."""
        codes = [self.of_name[name] for name in slots.split(",") if name in self.of_name]
        return np.isin(self.code, codes) if codes else None

    def text(self, rows: NDArray[np.int32]) -> str:
        """Return the names of the slots of some rows, in order."""
        return ",".join(self.names[code] for code in dict.fromkeys(self.code[rows].tolist()))


def _first_free(
    nodes: NDArray[np.int32],
    size: int,
    idle: NDArray[np.bool_],
    given: NDArray[np.bool_] | None,
) -> NDArray[np.int32]:
    """Return the first `size` of some rows that are idle, or none if there are fewer.

    Where those that a job was given before are so many and still idle, it keeps them.
    """
    free = nodes[idle[nodes]]
    if given is not None:
        kept = free[given[free]]
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


def _idle_nodes(view: PoolState, last_applied: LastApplied) -> NDArray[np.bool_]:
    """Return bool[m]: rows that take jobs, run none, and are not kept for a promise."""
    idle = np.equal(view.observation.cluster.nodes.state, NodeState.UP)
    idle[view.observation.allocations.nodes] = False
    free = np.array([name not in last_applied.kept for name in view.slots.texts("name")], np.bool_)
    return idle & free


def _rank_sets(action: Place, view: PoolState, settings: CondorSettings) -> Iterator[Change]:
    """Yield on which slots jobs would best start, of the first jobs in the queue.

    A wish, which the negotiator's rank reads. Where all jobs have the same set it tells nothing of
    any of them: the delay factors in the table order the slots then.
    """
    placement = action.placement
    rows, at, procs = _waiting(view, action.job)
    codes = placement.node_set[at]
    if len(np.unique(codes[codes >= 0])) < 2:
        return
    names, sizes = view.slots.texts("name"), view.observation.queued.size
    present, left = view.procs.take(rows).texts("rank_set"), settings.priorities_per_cycle
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
        yield change("place", job, f"prefer {wanted} for job {name_of(procs[i])}", step)


def _cancel(job: int, why: str, view: PoolState) -> Iterator[Change]:
    """Yield what removes a job, its user told before; the end comes whatever became of that."""
    rows = _rows(view, [job], *_ALIVE)[job]
    if rows:
        yield from _notify(job, why, view)
        said, procs = " ".join(why.split())[:LONGEST], tuple(view.numbers[rows].tolist())
        text = f"remove job {name_of(job)}: {said}"
        yield change("cancel", job, text, Act("Remove", procs, said))


def _notify(job: int, why: str, view: PoolState) -> Iterator[Change]:
    """Yield what tells a job's user something: RtWhy."""
    said = " ".join(why.split())[:LONGEST]
    rows = _rows(view, [job], *_ALIVE)[job]
    untold = [row for row in rows if view.ads.get(row, {}).get("rtwhy") != said]
    if said and untold:
        step = Edit(Rank.JOB, tuple(view.numbers[untold].tolist()), "RtWhy", literal(said))
        yield change("tell", job, f"set RtWhy of job {name_of(job)}: {said}", step)


def _holds(action: Hold, view: PoolState) -> Iterator[Change]:
    """Yield which waiting jobs are held; one that is deferred waits without."""
    for job, rows in _rows(view, action.job.tolist(), IDLE).items():
        free = [row for row in rows if text_of(view, "admission", row) != DEFERRED]
        if free:
            act = Act("Hold", tuple(view.numbers[free].tolist()), "rtsched: to be evaluated later")
            yield change("hold", job, f"hold job {name_of(job)}", act)


def _admits(action: Admit, view: PoolState) -> Iterator[Change]:
    """Yield which deferred jobs were promised something: they start by their node sets only."""
    for job, rows in _rows(view, action.job.tolist(), IDLE, HELD).items():
        yield from _admit_deferred("admit", job, rows, JUDGED, view)


def _releases(action: Release, view: PoolState) -> Iterator[Change]:
    """Yield which jobs are let go: deferred ones by what they carry, held ones by a release.

    One that waits for others waits on: HTCondor knows no such order.
    """
    for job, rows in _rows(view, action.job.tolist(), IDLE, HELD).items():
        if job in view.behind:
            continue
        yield from _admit_deferred("release", job, rows, UNJUDGED, view)
        held = [row for row in rows if view.procs.status[row] == HELD]
        if held:
            act = Act("Release", tuple(view.numbers[held].tolist()), "rtsched: evaluated")
            yield change("release", job, f"release job {name_of(job)}", act)


def _admit_deferred(
    kind: str, job: int, rows: list[int], word: str, view: PoolState
) -> Iterator[Change]:
    """Yield what the deferred procs among some of a job carry from now on."""
    deferred = [row for row in rows if text_of(view, "admission", row) == DEFERRED]
    if deferred:
        step = Edit(Rank.JOB, tuple(view.numbers[deferred].tolist()), "RtAdmission", literal(word))
        yield change(kind, job, f"set RtAdmission of job {name_of(job)}: {word}", step)


def _requeues(
    action: Requeue | Move, view: PoolState, last_applied: LastApplied, now: float
) -> Iterator[Change]:
    """Yield which running jobs are vacated, of those that may be.

    A job is moved only if it says that it keeps checkpoints, and has its time to write one; what
    it did so far would be lost else.
    """
    moves = isinstance(action, Move)
    why = "does not checkpoint" if moves else "does not allow being vacated"
    marks, first = view.observation.marks, len(view.observation.queued)
    running = {job: at for at, job in enumerate(view.observation.running.id.tolist())}
    for job, rows in _rows(view, action.job.tolist(), RUNNING).items():
        at = running.get(job, -1)
        procs = tuple(view.numbers[rows].tolist())
        if at < 0 or not procs or all(last_applied.urged_lately(proc, now) for proc in procs):
            continue
        able = bool(marks.requeues[first + at])
        if moves:
            able = able and bool(view.observation.running.checkpoints[at])
        if not able:
            yield Change(_kind(action), job, f"job {name_of(job)} {why}; it stays")
            continue
        said = (
            "rtsched: it continues on other slots"
            if moves
            else "rtsched: it is preempted for a promised job"
        )
        act = Act("Vacate" if moves else "VacateFast", procs, said)
        yield change(_kind(action), job, f"vacate job {name_of(job)}", act)
