"""Observation of a pool: a poll's models, made of a queue and the slots."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rtsched.adapters.condor.accounts import turns_of
from rtsched.adapters.condor.completions import token_of
from rtsched.adapters.condor.ids import job_id
from rtsched.adapters.condor.job_ads import GREATEST
from rtsched.adapters.condor.pool_state import (
    DEFERRAL_S,
    DEFERRED,
    HELD,
    IDLE,
    REMOVED,
    SUSPENDED,
    UNJUDGED,
    has_slot,
    slot_names,
    work_began,
)
from rtsched.adapters.condor.requirements import Size
from rtsched.adapters.condor.sharing import RESOURCES, demand_of_procs
from rtsched.adapters.condor.slots import Occupant, parent_of
from rtsched.adapters.live import Marks
from rtsched.adapters.requirements import load_time, notify_choice, plain_columns
from rtsched.adapters.users import uid_of
from rtsched.logs.classads import number, text
from rtsched.model.jobs import Edges, Jobs, last_end
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import are_in
from rtsched.model.table import offsets_of

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.adapters.condor.accounts import Submitter
    from rtsched.adapters.condor.facts import CondorFacts
    from rtsched.adapters.condor.pool_state import Procs
    from rtsched.adapters.condor.queue import Queue
    from rtsched.adapters.condor.slots import Claim
    from rtsched.adapters.condor.starting import Begun, Bound

T = TypeVar("T")


@dataclass(frozen=True)
class Groups:
    """The jobs that the procs of a queue make, in order of (submit, id).

    Attributes
    ----------
    job : int64[m]
        Ids.
    first : int64[m]
        The row of `procs` with the first proc of each.
    group : int64[n]
        Which job each proc belongs to.
    runs : bool[m]
        Whether it runs.
    """

    job: NDArray[np.int64]
    first: NDArray[np.int64]
    group: NDArray[np.int64]
    runs: NDArray[np.bool_]


def groups_of(queue: Queue, begun: Mapping[int, int]) -> Groups:
    """Return the jobs of a queue; `begun` are those that run, though not all of their procs do."""
    procs = queue.procs
    job, first, group = np.unique(procs.job, return_index=True, return_inverse=True)
    runs = are_in(job, list(begun))
    runs[group[has_slot(procs)]] = True
    order = np.lexsort((job, procs.submit[first]))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return Groups(job[order], first[order], rank[group], runs[order])


def occupants_of(
    queue: Queue, groups: Groups, claims: Sequence[Claim], known: Mapping[str, object]
) -> tuple[list[Occupant], list[int]]:
    """Return who has parts of slots, and for each which job of `groups` it is.

    Parameters
    ----------
    queue, groups
        What the schedd shows. Of a job that has begun, procs that wait have the slots that they
        are to start on.
    claims : sequence of Claim
        What the collector shows of the slots that somebody has.
    known : mapping of str
        Static and partitionable slots, by name.
    """
    procs, shown = queue.procs, {claim.name: claim for claim in claims}
    runs = has_slot(procs)
    begun = groups.runs[groups.group]
    rows = np.flatnonzero(runs | (begun & (procs.node_set >= 0) & (procs.status == IDLE)))
    rows = rows[~are_in(procs.job[rows], list(queue.arrays)) | runs[rows]]
    part = procs.take(rows)
    words = zip(
        rows.tolist(),
        part.texts("slot"),
        part.texts("node_set"),
        part.texts("admission"),
        strict=True,
    )
    occupants, of = [], []
    for row, slots, node_set, admission in words:
        names = slot_names(slots if runs[row] else node_set)
        number = job_id(int(procs.cluster[row]), int(procs.proc[row]))
        first = admission not in {None, UNJUDGED}
        for at, name in enumerate(names):
            slot = name if name in known else parent_of(name)
            claim = shown.get(name)
            size = _asked(procs, row) if claim is None else claim.size
            occupants.append(Occupant((number, str(at)), slot, size, first))
            of.append(int(groups.group[row]))
    for job, array in queue.arrays.items():
        if array.waits and begun[array.waits[0]]:
            free = _free_places(queue, job, known)
            occupants += free
            of += [int(groups.group[array.waits[0]])] * len(free)
    return occupants, of


def _free_places(queue: Queue, job: int, known: Mapping[str, object]) -> list[Occupant]:
    """Return what an array keeps for procs that wait, on slots where it has room for more."""
    array, procs = queue.arrays[job], queue.procs
    size, left, free = _asked(procs, array.waits[0]), len(array.waits), list[Occupant]()
    for slot, count in array.free_places(slots_of_procs(procs, array.runs, known)).items():
        count, left = min(count, left), left - min(count, left)
        free += [Occupant((job, f"{slot}/{at}"), slot, size, True) for at in range(count)]
    return free


def _asked(procs: Procs, row: int) -> Size:
    """Return what a proc asks for."""
    columns = (procs.cpus, procs.memory, procs.gpus, procs.disk)
    return Size(*(int(column[row]) for column in columns))


def slots_of_procs(procs: Procs, rows: Sequence[int], known: Container[str]) -> list[str]:
    """Return the static or partitionable slots on which some procs run; `known` are all of them."""
    texts = procs.take(np.array(rows, np.int64)).texts("slot")
    names = [name for words in texts for name in slot_names(words)]
    return [name if name in known else parent_of(name) for name in names]


def strangers_of(claims: Sequence[Claim], schedds: Container[str]) -> list[Occupant]:
    """Return who has parts of slots without being a job of these schedds."""
    return [
        Occupant((-1, claim.name), claim.slot, claim.size)
        for claim in claims
        if claim.schedd not in schedds
    ]


def allocations_of(
    queue: Queue,
    groups: Groups,
    rows: Sequence[tuple[int, int]],
    begun: Mapping[int, int],
    bound: Mapping[int, Bound],
    arrays: Mapping[int, Begun],
    facts: CondorFacts,
    now: float,
) -> Schedule:
    """Return where the running jobs run, and until when at the latest.

    Parameters
    ----------
    queue, groups
        What the schedd shows.
    rows : sequence of (int, int)
        Pairs of a job of `groups` and a row of the cluster that it has.
    begun : mapping of int to int
        How many procs of a divisible load have run, by its job id.
    bound : mapping of int to Bound
        Jobs that are about to start.
    arrays : mapping of int to Begun
        Arrays that have begun.
    facts : CondorFacts
        A job outlives its stated run time by the margin, one that runs by less. One that is later
        than that still counts as ending soon, and so does one that was removed and cleans up.
    now : float
        Seconds since the epoch.
    """
    running = np.flatnonzero(groups.runs)
    place = np.cumsum(groups.runs) - 1
    pairs = np.unique(np.array(rows, np.int64).reshape(-1, 2), axis=0)
    pairs = pairs[groups.runs[pairs[:, 0]]] if len(pairs) else pairs
    counts = (
        np.bincount(place[pairs[:, 0]], minlength=len(running))
        if len(pairs)
        else np.zeros(len(running), np.int64)
    )
    jobs = groups.job[running]
    late = np.array([bound[job].start if job in bound else np.nan for job in jobs.tolist()])
    first = np.array([arrays[job].start if job in arrays else np.nan for job in jobs.tolist()])
    start = np.fmin(np.fmin(_starts(queue.procs, groups)[running], late), first)
    start = np.where(start <= now + DEFERRAL_S, start, now)  # its owner can change the ad
    more = np.where(np.isnan(late), facts.tail, facts.margin)
    more += queue.procs.vacating[groups.first[running]]
    end = start + _lengths(queue, groups, running, begun, facts) + more
    gone = queue.procs.status[groups.first[running]] == REMOVED
    soon = now + facts.tail
    end = np.where(gone | (end <= now), soon, end)
    for at, job in enumerate(jobs.tolist()):
        if job in queue.arrays:
            end[at] = _end_of_array(queue, job, arrays.get(job), facts, now)
    return Schedule.build(jobs, start, end, offsets_of(counts), pairs[:, 1].astype(np.int32))


def _end_of_array(
    queue: Queue, job: int, begun: Begun | None, facts: CondorFacts, now: float
) -> float:
    """Return when the last proc of an array ends at the latest.

    As planned, while each proc starts within the time that a start may take.
    """
    array, procs = queue.arrays[job], queue.procs
    runs = np.array(array.runs, np.int64)
    began = np.nan_to_num(work_began(procs)[runs], nan=now)
    ends = np.maximum(began + procs.run_time[runs], now) + facts.tail + procs.vacating[runs]
    row = (array.waits or array.runs)[0]
    limit = float(procs.run_time[row] + procs.vacating[row]) + facts.margin
    most = max(array.at_a_time, len(runs), 1)
    end = last_end(ends, len(array.waits), most, limit, now)
    if begun is not None and end <= begun.end + facts.start_delay:
        end = min(end, max(begun.end, now + facts.tail))
    return end


def _starts(procs: Procs, groups: Groups) -> NDArray[np.float64]:
    """Return when the first proc of each job that runs began to work; nan: that is not said."""
    start, began = np.full(len(groups.job), np.inf), work_began(procs)
    runs = has_slot(procs) & ~np.isnan(procs.start)
    np.minimum.at(start, groups.group[runs], began[runs])
    return np.where(np.isinf(start), np.nan, start)


def _lengths(
    queue: Queue,
    groups: Groups,
    which: NDArray[np.int64],
    begun: Mapping[int, int],
    facts: CondorFacts,
) -> NDArray[np.float64]:
    """Return how long running jobs run as stated or planned, seconds."""
    length = queue.procs.run_time[groups.first[which]]
    for at, group in enumerate(which.tolist()):
        row = int(groups.first[group])
        planned = number(queue.ads.get(row, {}), "rtlimit")
        needs = queue.requirements.get(row)
        if needs is not None and needs.whole:
            count = begun.get(int(groups.job[group]), 1)
            margin = facts.margin + float(queue.procs.vacating[row])
            length[at] = min(length[at], load_time(needs.load, count) - margin)
        elif planned > 0:
            length[at] = min(length[at], planned)
    return length


def jobs_of(
    queue: Queue,
    groups: Groups,
    which: NDArray[np.int64],
    facts: CondorFacts,
    sizes: NDArray[np.int32] | None = None,
    slots: NDArray[np.int64] | None = None,
    demand: NDArray[np.int64] | None = None,
) -> Jobs:
    """Return jobs that wait or run.

    Parameters
    ----------
    queue, groups
        What the schedd shows.
    which : int64[k]
        Which of the groups, in order.
    facts : CondorFacts
        Margins and who is charged.
    sizes, slots : int32[k], int64[k], optional
        How many rows and how many slots running jobs have; None: they wait.
    demand : int64[k, r], optional
        Where jobs share slots, what running jobs have of each.
    """
    first = groups.first[which]
    procs = queue.procs.take(first)
    shaped = _shaped(queue, first, procs, facts, sizes)
    counts = shaped["size"] if slots is None else np.maximum(slots, 1)
    if facts.shared and slots is None:
        demand = demand_of_procs(procs, facts)
        demand *= shaped["tasks_per_node"][:, None]
    charged = [facts.associations.get(name, -1) for name in procs.names("submitter")]
    return Jobs.build(
        len(which),
        **shaped,
        names={name: procs.names(name) for name in _TEXTS}
        | ({"demand": RESOURCES} if demand is not None else {}),
        **{name: procs.column(name) for name in _TEXTS},
        id=groups.job[which],
        label=facts.names.all_of(groups.job[which]),
        submit=procs.submit,
        begin=procs.begin,
        cores=np.minimum(procs.cpus.astype(np.int64) * counts, GREATEST).astype(np.int32),
        memory=procs.memory,
        demand=demand,
        association=np.array([*charged, -1], np.int32)[procs.submitter],
        nice=0.0,
        dag=queue.dag[first],
        checkpoints=_declares(queue, first, True),
    )


_TEXTS = ("name", "user", "account")


def _shaped(
    queue: Queue,
    first: NDArray[np.int64],
    procs: Procs,
    facts: CondorFacts,
    sizes: NDArray[np.int32] | None,
) -> dict[str, Any]:
    """Return the columns that jobs' requirements determine; of one that runs, as it runs.

    One whose wishes make no sense, or cannot be had, is a job like any other.
    """
    count = len(first)
    columns = plain_columns(count) | {
        "wall_time": procs.run_time + procs.vacating + facts.margin,
        "size": np.ones(count, np.int32) if sizes is None else np.maximum(sizes, 1),
        "partition": [None] * count,
        "node_request": [None] * count,
    }
    for at, needs in _of_rows(queue.requirements, first):
        if not needs.problem:
            columns["deadline"][at] = needs.deadline
            columns["partition"][at] = needs.partition or None
            columns["node_request"][at] = needs.node_request or None
            if sizes is None:
                needs.write_to(columns, at)
            columns["tasks"][at] = needs.tasks
    return columns


def _declares(queue: Queue, first: NDArray[np.int64], value: bool) -> NDArray[np.bool_]:
    """Return which jobs say that RtCheckpoint is so."""
    found = np.zeros(len(first), np.bool_)
    found[[at for at, ad in _of_rows(queue.ads, first) if ad.get("rtcheckpoint") is value]] = True
    return found


def _of_rows(those: Mapping[int, T], rows: NDArray[np.int64]) -> list[tuple[int, T]]:
    """Return what some of these rows have, each by its place among the rows, in their order."""
    keys = np.fromiter(those, np.int64, len(those))
    place = np.full(int(max(keys.max(initial=-1), rows.max(initial=-1))) + 1, -1, np.int64)
    place[rows] = np.arange(len(rows))
    found = zip(place[keys].tolist(), those.values(), strict=True)
    return sorted((each for each in found if each[0] >= 0), key=itemgetter(0))


def marks_of(
    queue: Queue,
    groups: Groups,
    which: NDArray[np.int64],
    stuck: frozenset[int] = frozenset(),
    submitters: Mapping[str, Submitter] = MappingProxyType({}),
) -> Marks:
    """Return the marks of jobs that wait or run; START holds those that are deferred.

    A deferred job that its user holds too is judged when it has been released. `submitters`: how
    the negotiator serves them.

    HTCondor may stop and start again any job of these universes, so we may too, unless it says
    RtCheckpoint = false.
    """
    first = groups.first[which]
    procs = queue.procs.take(first)
    users = np.array([uid_of(name) for name in procs.names("user")], np.int64)
    held = np.zeros(len(groups.job), np.bool_)
    held[groups.group[(queue.procs.status == HELD) & ~queue.procs.passing]] = True
    of_arrays = are_in(queue.procs.job, list(queue.arrays))
    held[groups.group[of_arrays & (queue.procs.status != HELD)]] = False  # others go on
    held = held[which]
    suspended = np.zeros(len(groups.job), np.bool_)
    suspended[groups.group[queue.procs.status == SUSPENDED]] = True
    names = (*procs.names("admission"), None)
    deferred = np.array([name == DEFERRED for name in names], np.bool_)[procs.admission] & ~held
    unjudged = np.array([name in {None, UNJUDGED} for name in names], np.bool_)[procs.admission]
    unpromised = np.zeros(len(first), np.bool_)
    token: list[str | None] = [None] * len(first)
    problem: list[str | None] = [None] * len(first)
    notify: list[str | None] = [None] * len(first)
    otherwise: list[str | None] = [None] * len(first)
    odds = np.full(len(first), np.nan)
    for at, ad in _of_rows(queue.ads, first):
        token[at] = token_of(ad)
        notify[at] = notify_choice(text(ad, "rtnotify") or "") or None
        odds[at] = number(ad, "rtodds") / 100.0
        otherwise[at] = text(ad, "rtelse") or None
        never = text(ad, "rttoken") in {None, DEFERRED, UNJUDGED}
        unpromised[at] = unjudged[at] and never and ad.get("rtdeadline") is not None
    for at, needs in _of_rows(queue.requirements, first):
        problem[at] = needs.problem or None
    turn = np.full(len(first), np.nan)
    rows = np.flatnonzero(~groups.runs[which] & ~held)
    waiting = procs.take(rows)
    turn[rows] = turns_of(
        waiting.submitter,
        waiting.names("submitter"),
        waiting.priority.astype(np.int64),
        groups.job[which][rows],
        np.maximum(waiting.cpus, 1).astype(np.int64),
        submitters,
    )
    return Marks.build(
        len(which),
        job=groups.job[which],
        uid=np.append(users, np.int64(-1))[procs.user],
        token=token,
        deferred=deferred,
        held=(held & ~groups.runs[which]) | deferred,
        requeues=~_declares(queue, first, False),
        stuck=are_in(groups.job[which], list(stuck)),
        suspended=suspended[which],
        problem=problem,
        notify=notify,
        odds=odds,
        otherwise=otherwise,
        unpromised=unpromised & ~held & ~groups.runs[which],
        priority=turn,
    )


def edges_of(queue: Queue, groups: Groups) -> Edges:
    """Return who waits for whom, of jobs that are in the queue."""
    behind = [each for each in _of_rows(queue.requirements, groups.first) if each[1].after]
    alive = set(groups.job.tolist()) if behind else set()
    pairs = [
        (before, int(groups.job[at]), needs.message_time)
        for at, needs in behind
        if not groups.runs[at]
        for before in needs.after
        if before in alive
    ]
    return Edges.of_rows(("before", "after", "message_time"), pairs)
