"""Reservations: from a plan to the table of slots, and to promised jobs that may start on theirs.

A chunk of a divisible load reads in its environment what it is to do; `rtsched chunk` prints it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.changes import idle_nodes, rounds_of, waiting
from rtsched.adapters.condor.commands import (
    UNDEFINED,
    Act,
    Edit,
    Negotiate,
    Publish,
    Rank,
    change,
    priority_edits,
)
from rtsched.adapters.condor.observation import slots_of_procs
from rtsched.adapters.condor.pool_state import DEFERRED, HELD, IDLE, UNJUDGED
from rtsched.adapters.condor.requirements import hosts, is_whole
from rtsched.adapters.condor.schedd import literal
from rtsched.adapters.condor.sharing import demand_of_procs, kept_amounts, may_start_beside
from rtsched.adapters.condor.table import SlotTable, delays_of, kept_of, lacking_of
from rtsched.adapters.live import FIRST_OWN_ID
from rtsched.adapters.recurring import occurrences
from rtsched.logs.classads import text
from rtsched.model.cluster import NodeState
from rtsched.model.jobs import Kind
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import are_in, places
from rtsched.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.adapters.condor.commands import LastApplied
    from rtsched.adapters.condor.pool_state import Array, PoolState
    from rtsched.adapters.condor.settings import CondorSettings
    from rtsched.adapters.condor.table import Steps
    from rtsched.adapters.live import Change
    from rtsched.logs.classads import Record

_NAMES = ("DEADLINE", "NODES", "NODE", "CHUNK", "FRACTION", "FROM", "TO", "ROUNDS")
_OURS = tuple(f"RTSCHED_{name}=" for name in _NAMES)
_WORD = re.compile(r"(?:[^\s']|'(?:[^']|'')*')+")
_PLAIN = re.compile(r"[^\s']+")


def variables(
    shares: Sequence[float],
    here: int,
    node: str,
    deadline: float | None,
    rounds: Sequence[float] = (),
) -> dict[str, str]:
    """Return the variables of a chunk.

    Parameters
    ----------
    shares : sequence of float
        The fractions of the load, in sending order.
    here : int
        Which of them this chunk is.
    node : str
        Its slot.
    deadline : float or None
        Seconds since the epoch.
    rounds : sequence of float
        The share of its part that it takes in each round; empty: all at once.
    """
    words = [f"{share:.9f}" for share in shares]
    start = min(sum(map(float, words[:here])), 1.0)
    end = 1.0 if here == len(words) - 1 else min(start + float(words[here]), 1.0)
    variables = {} if deadline is None else {"DEADLINE": f"{deadline:.0f}"}
    variables |= {
        "NODES": str(len(words)),
        "NODE": node,
        "CHUNK": str(here),
        "FRACTION": words[here],
    }
    variables |= {"FROM": f"{start:.12g}", "TO": f"{end:.12g}"}
    if rounds:
        variables["ROUNDS"] = ":".join(f"{share:.9f}" for share in rounds)
    return {f"RTSCHED_{name}": value for name, value in variables.items()}


def has_variables(environment: str) -> bool:
    """Return whether variables of ours are in an environment."""
    return any(map(_is_ours, _words(environment)))


def with_variables(environment: str, values: Mapping[str, str]) -> str:
    """Return an environment with these variables; those of ours that it had before are left out.

    An environment that makes no sense, such as one with an open quote, stays in front of them.
    """
    kept = [word for word in _words(environment) if not _is_ours(word)]
    return " ".join([*kept, *(_word(f"{name}={value}") for name, value in values.items())])


def _words(environment: str) -> list[str]:
    """Return the assignments as they are written; all in one if their form is unknown."""
    if _WORD.sub("", environment).strip():
        return [environment.strip()]
    return _WORD.findall(environment)


def _is_ours(word: str) -> bool:
    return word.lstrip("'").startswith(_OURS)


def _word(text: str) -> str:
    """Return an assignment, in quotes where it needs them."""
    return text if _PLAIN.fullmatch(text) else "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True)
class Binding:
    """A job that may start.

    Attributes
    ----------
    job : int
        Its id in the models.
    entry : int
        Its row in the plan.
    procs : tuple of int
        Rows of `PoolState.procs`: one per chunk of a divisible load, in sending order.
    slots : tuple of tuple of str
        By proc, the slots on which it may start.
    lengths : tuple of float
        By proc, for how many seconds its slots are planned, the margin included.
    """

    job: int
    entry: int
    procs: tuple[int, ...]
    slots: tuple[tuple[str, ...], ...]
    lengths: tuple[float, ...]


def bindings_of(
    plan: Schedule, view: PoolState, closed: NDArray[np.bool_], now: float
) -> tuple[list[Binding], list[int]]:
    """Return which jobs get which slots, and those that have fewer procs than planned.

    Parameters
    ----------
    plan : Schedule
        Planned starts of jobs that wait.
    view : PoolState
        The last poll.
    closed : bool[m] or bool[k]
        Rows on which no other job may start; where jobs share slots, for each node of the entries
        whether no other job may take there what the entry takes.
    now : float
        Seconds since the epoch.
    """
    turn = np.flatnonzero(their_turn(plan, view, closed, now))
    jobs = plan.entries.job[turn]
    idle, names = view.rows_of(jobs.tolist(), IDLE), view.slots.texts("name")
    place, _ = places(view.observation.queued.id, jobs)
    starts, found, short = plan.starts(), [], []
    for entry, job, at in zip(turn.tolist(), jobs.tolist(), place.tolist(), strict=True):
        within = slice(int(plan.indptr[entry]), int(plan.indptr[entry + 1]))
        slots = [names[row] or "" for row in plan.nodes[within].tolist()]
        lengths = (float(plan.entries.end[entry]) - starts[within]).tolist()
        divided = view.observation.queued.kind[at] == Kind.DIVISIBLE
        procs = idle[job]
        if divided and len(procs) < len(slots):
            short.append(job)
        elif divided:
            each = tuple((slot,) for slot in slots)
            found.append(Binding(job, entry, tuple(procs[: len(slots)]), each, tuple(lengths)))
        elif procs:
            wide = len(procs)
            array = job in view.arrays
            together = (tuple(slots if array else dict.fromkeys(slots)),) * wide
            found.append(Binding(job, entry, tuple(procs), together, (max(lengths),) * wide))
    return found, short


def ready(plan: Schedule, view: PoolState, now: float) -> NDArray[np.bool_]:
    """Return bool[n]: which entries could start at once, if no other job came."""
    shared = view.observation.cluster.shared
    closed = np.ones(len(plan.nodes) if shared else len(view.slots), np.bool_)
    return their_turn(plan, view, closed, now)


def their_turn(
    plan: Schedule, view: PoolState, closed: NDArray[np.bool_], now: float
) -> NDArray[np.bool_]:
    """Return bool[n]: which entries of a plan may have their node sets now; see `bindings_of`."""
    jobs, queued = plan.entries.job, view.observation.queued
    turn = jobs < FIRST_OWN_ID
    edges = view.observation.edges
    unfinished = are_in(edges.before, queued.id) | are_in(edges.before, view.observation.running.id)
    turn &= ~are_in(jobs, edges.after[unfinished])
    place, known = places(queued.id, jobs)
    turn &= known
    if known.any():
        turn[known] &= queued.begin[place[known]] <= now + view.facts.margin
    if view.observation.cluster.shared:
        return turn & may_start_beside(plan, view, closed, now)
    turn &= plan.first_everywhere()
    return turn & ~_on_busy_rows(plan, view, closed)


def _on_busy_rows(plan: Schedule, view: PoolState, closed: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return bool[n]: which entries have rows that are not free, or recurring work before them."""
    free = idle_nodes(view.observation, closed)
    before = occurrences(view.observation.periodic, len(view.slots))[plan.nodes] < plan.starts()
    entry = plan.rows()
    blocked = np.zeros(len(plan), np.bool_)
    blocked[entry[~free[plan.nodes] | before]] = True
    return blocked


NEGOTIATE_S = 10.0
"""Seconds between two requests for a negotiation."""

FIRST_PRIORITY = 1 << 29
"""JobPrio of promised jobs is this, less the minutes of their deadline since the epoch; and as much
again once they may start."""

STARTED_S = 15.0
"""Seconds after its start at which a job that HTCondor shows as running does run."""

STARTING_S = 5.0
"""Seconds from the moment at which a best-effort job may start to its start."""

SURPLUS = "rtsched: the load was divided among fewer procs; this one is not needed"

_PLANNED = ("RtNode", "RtFraction", "RtLimit", "RtSlots")
"""What a job carries of its plan, besides its node set."""


def reserve_changes(
    plan: Schedule,
    view: PoolState,
    settings: CondorSettings,
    last_applied: LastApplied,
    now: float,
    secured: Schedule | None = None,
) -> list[Change]:
    """Return what a plan asks for: the table, node sets, the order of promised jobs.

    `secured`: what is kept as well, for jobs that are promised nothing yet.
    """
    plan = waiting(plan, view.observation.queued.id)
    secured = waiting(secured or Schedule.empty(), view.observation.queued.id)
    ahead = math.inf if settings.reserve_ahead_s is None else settings.reserve_ahead_s
    keep = _keep_amounts if view.observation.cluster.shared else _keep_rows
    both = Schedule.joined([plan, secured])
    last_applied.kept, closed = keep(both, view, now + ahead, now)
    settled = _settled(closed, view, last_applied, now)
    if view.observation.cluster.shared:
        settled = settled[: len(plan.nodes)]
    bindings, short = bindings_of(plan, view, settled, now)
    bound = [each for binding in bindings for each in _bound(binding, plan, view, now)]
    bound += [each for job in view.arrays for each in _goes_on(job, view, now)]
    return [
        *table_changes(view, settings, last_applied, now),
        *bound,
        *_short(short, view),
        *_taken_back(plan, bindings, view),
        *_let_go(plan, view),
        *_rest_of_loads(view),
        *_priorities(plan, bindings, view),
        *_negotiation(bool(bound), view, last_applied, now),
    ]


def table_changes(
    view: PoolState, settings: CondorSettings, last_applied: LastApplied, now: float
) -> Iterator[Change]:
    """Yield the new table, where it is another one or the old one is getting stale.

    Where no plug-in says how much a slot delays, that follows from its speed.
    """
    nodes = view.observation.cluster.nodes
    fastest = nodes.speed.max(initial=1.0)
    delays = delays_of(view.slots, fastest / nodes.speed)
    delays |= {
        name: last_applied.delays[name] for name in delays.keys() & last_applied.delays.keys()
    }
    table = SlotTable(last_applied.kept, delays, lacking_of(last_applied.kept, view.free))
    if table != last_applied.table or now - last_applied.written >= settings.table_valid_s / 3:
        text = f"write {settings.table}: {len(delays)} slots, {len(last_applied.kept)} reserved"
        yield change("reserve", -1, text, Publish(table))


def _keep_rows(
    plan: Schedule, view: PoolState, horizon: float, now: float
) -> tuple[dict[str, Steps], dict[str, bool]]:
    """Return what is kept of slots, and which rows are closed to other jobs from now on."""
    lead, rows = view.facts.tail + STARTING_S, len(view.slots)
    allocations = view.observation.allocations
    theirs = allocations.nodes[allocations.per_node(_starters(view, now))]
    starting = np.union1d(theirs, plan.nodes[plan.per_node(ready(plan, view, now))])
    fixed = occurrences(view.observation.periodic, rows)
    kept = kept_of(plan, view.slots, starting, fixed, lead=lead, horizon=horizon)
    closed = plan.first_starts(rows) - lead <= now
    closed[starting] = True
    names = view.observation.cluster.nodes.texts("name")
    return kept, {name or "": one for name, one in zip(names, closed.tolist(), strict=True)}


def _keep_amounts(
    plan: Schedule, view: PoolState, horizon: float, now: float
) -> tuple[dict[str, Steps], dict[str, bool]]:
    """Return what is kept of shared slots, and what planned jobs take there: whether it is now.

    A job that runs has its dynamic slot: what is free does not contain it.
    """
    lead, starting = view.facts.tail + STARTING_S, ready(plan, view, now)
    kept = kept_amounts(plan, view, starting, _bound_jobs(view), lead=lead, horizon=horizon)
    closed = (plan.starts() - lead <= now) | plan.per_node(starting)
    names, jobs = view.slots.texts("name"), plan.per_node(plan.entries.job).tolist()
    each = zip(jobs, plan.nodes.tolist(), closed.tolist(), strict=True)
    return kept, {f"{job} {names[node]}": one for job, node, one in each}


def _starters(view: PoolState, now: float) -> NDArray[np.bool_]:
    """Return bool[n]: which running jobs are judged, and about to start or have just started.

    HTCondor may show a job as running and then find that it cannot run.
    """
    allocations = view.observation.allocations
    jobs, young = allocations.entries.job, allocations.entries.start > now - STARTED_S
    young &= are_in(jobs, view.procs.job[judged(view)])
    return young | _bound_jobs(view)


def _bound_jobs(view: PoolState) -> NDArray[np.bool_]:
    """Return bool[n]: which jobs that count as running are about to start."""
    jobs = view.observation.allocations.entries.job
    return are_in(jobs, list(view.bound))


def _settled(
    closed: Mapping[str, bool], view: PoolState, last_applied: LastApplied, now: float
) -> NDArray[np.bool_]:
    """Return bool[n]: what was closed to other jobs, and none was being started, when we looked."""
    names = [name for name, one in closed.items() if one]
    settled = last_applied.close(names, view.observation.time, now)
    return np.array([name in settled for name in closed], np.bool_)


def _bound(binding: Binding, plan: Schedule, view: PoolState, now: float) -> Iterator[Change]:
    """Yield what gives a job its node set, with all that it must carry before it may start."""
    if binding.job in view.arrays:
        promise = _deadline(binding.job, view)
        yield from _array_bound(binding.job, binding.slots[0], view, now, promise)
        return
    steps: list[Edit] = []
    for at, (row, slots) in enumerate(zip(binding.procs, binding.slots, strict=True)):
        job, ad = (int(view.numbers[row]),), view.ads.get(row, {})
        marks = _differing(_carried(binding, at, plan, view), ad)
        wanted, present = ",".join(slots), text_of(view, "node_set", row)
        if present and (marks or present != wanted):
            steps.append(Edit(Rank.TAKE, job, "RtNodeSet", UNDEFINED))
        steps += [Edit(Rank.MARK, job, name, value) for name, value in marks.items()]
        if marks or present != wanted:
            steps.append(Edit(Rank.BIND, job, "RtNodeSet", literal(wanted)))
        attributes = _differing(_promise_attributes(binding, plan, view, now), ad)
        steps += [Edit(Rank.JOB, job, name, value) for name, value in attributes.items()]
    if steps:
        first, more = binding.slots[0][0], len({s for each in binding.slots for s in each}) - 1
        on = f"{first} and {more} more" if more else first
        yield change(
            "reserve", binding.job, f"bind job {view.name_of(binding.job)} to {on}", *steps
        )


def _goes_on(job: int, view: PoolState, now: float) -> Iterator[Change]:
    """Yield what gives further procs of an array that runs the slots on which there is room."""
    array = view.arrays[job]
    slots = array.slots or slots_of_procs(view.procs, array.runs, view.of_slot)
    if array.waits and slots and job not in view.place:
        yield from _array_bound(job, slots, view, now)


def _array_bound(
    job: int, slots: Sequence[str], view: PoolState, now: float, promise: float = math.inf
) -> Iterator[Change]:
    """Yield what gives procs of an array their node sets; `slots` as in `Array`.

    On slots that it has for itself any of its procs may start at any time: nobody else has a part
    of them. Of another slot only so many procs get it as there is room for: with more of them the
    array would take what others need.
    """
    array = replace(view.arrays[job], slots=tuple(slots))
    own = [slot for slot in dict.fromkeys(slots) if _has_all(array, slot, view)]
    free = array.free_places(slots_of_procs(view.procs, array.runs, view.of_slot))
    free = Counter({slot: count for slot, count in free.items() if slot not in own})
    wanted: dict[int, str] = {}
    idle = [row for row in _alike(array, view) if view.procs.status[row] == IDLE]
    present = dict(
        zip(idle, view.procs.take(np.array(idle, np.int64)).texts("node_set"), strict=True)
    )
    for row in sorted(idle, key=lambda row: present[row] is None):  # those that have one keep it
        slot = present[row] if free[present[row] or ""] > 0 else next(iter(+free), "")
        free[slot or ""] -= 1
        wanted[row] = slot or ",".join(own)
    held = [row for row in array.waits if row not in present and text_of(view, "node_set", row)]
    moved = [row for row in idle if wanted[row] != (present[row] or "")]
    steps = list(
        _together(Rank.TAKE, "RtNodeSet", [*held, *(r for r in moved if present[r])], view)
    )
    words = ",".join(slots)
    lacks = [row for row in idle if view.ads[row].get("rtslots") != words]
    steps += _together(Rank.MARK, "RtSlots", lacks, view, literal(words))
    new = [row for row in moved if wanted[row]]
    for words in dict.fromkeys(wanted[row] for row in new):
        rows = [row for row in new if wanted[row] == words]
        steps += _together(Rank.BIND, "RtNodeSet", rows, view, literal(words))
    if math.isfinite(promise):
        by = math.floor(promise)
        stale = [row for row in idle if view.ads[row].get("rtpromise") != by]
        steps += _together(Rank.JOB, "RtPromise", stale, view, str(by))
    steps += _together(Rank.JOB, "RtPlannedStart", new, view, str(math.floor(now)))
    if steps:
        what = f"bind {counted(len(new), 'proc')} of job {view.name_of(job)} to {slots[0]}"
        more = len(set(slots)) - 1
        yield change("reserve", job, f"{what} and {more} more" if more else what, *steps)


def _alike(array: Array, view: PoolState) -> list[int]:
    """Return the procs of an array that wait, but those that were changed and ask for more now."""
    every, waits = list(array.waits + array.runs), list(array.waits)
    columns = (view.procs.cpus, view.procs.memory, view.procs.gpus)
    grown = [column[waits] > column[every].min() for column in columns]
    alike: list[int] = np.array(waits, np.int64)[~np.logical_or.reduce(grown)].tolist()
    return alike


def _together(
    rank: Rank, name: str, rows: Sequence[int], view: PoolState, value: str = UNDEFINED
) -> Iterator[Edit]:
    """Yield the edit that gives some procs the same value."""
    if rows:
        yield Edit(rank, tuple(view.numbers[list(rows)].tolist()), name, value)


def _has_all(array: Array, slot: str, view: PoolState) -> bool:
    """Return whether an array has all of a slot, so that no further proc fits there."""
    rows = view.of_slot.get(slot, [])
    given = array.slots.count(slot)
    if not view.observation.cluster.shared:
        return given == len(rows)
    first = view.procs.take(np.array((array.waits or array.runs)[:1], np.int64))
    more = demand_of_procs(first, view.facts)[0] * (given * array.per_slot + 1)
    return bool(rows) and bool((view.observation.cluster.nodes.capacity[rows[0]] < more).any())


def _carried(binding: Binding, at: int, plan: Schedule, view: PoolState) -> dict[str, str | float]:
    """Return what a proc must carry when it starts: its share of a load, its hosts, its limit."""
    row, size = binding.procs[at], int(plan.entries.size[binding.entry])
    kind = Kind(int(view.observation.queued.kind[view.place[binding.job]]))
    if kind == Kind.RIGID:
        return {}
    ad, marks = view.ads.get(row, {}), dict[str, str | float]()
    margin = view.facts.margin + float(view.procs.vacating[row])
    marks["RtLimit"] = max(1, math.ceil(binding.lengths[at] - margin))
    if kind == Kind.MOLDABLE:
        least, most = hosts(ad)
        return {"RtHosts": f"{least}-{most}", **marks, "MinHosts": size, "MaxHosts": size}
    shares = plan.shares()[plan.indptr[binding.entry] : plan.indptr[binding.entry + 1]].tolist()
    deadline, node = _deadline(binding.job, view), binding.slots[at][0]
    rounds = rounds_of(plan, binding.entry, view.observation.queued, view.place[binding.job])
    values = variables(shares, at, node, deadline if math.isfinite(deadline) else None, rounds)
    marks["RtFraction"], marks["RtNode"] = float(values["RTSCHED_FRACTION"]), node
    marks["Environment"] = with_variables(text(ad, "environment") or "", values)
    return marks


def _promise_attributes(
    binding: Binding, plan: Schedule, view: PoolState, now: float
) -> dict[str, str | float]:
    """Return what a proc's user can read of its promise, seconds since the epoch."""
    start = min(float(plan.entries.start[binding.entry]), now)
    attributes: dict[str, str | float] = {"RtPlannedStart": math.floor(start)}
    deadline = _deadline(binding.job, view)
    return attributes | ({"RtPromise": math.floor(deadline)} if math.isfinite(deadline) else {})


def _differing(wanted: Mapping[str, str | float], ad: Record) -> dict[str, str]:
    """Return the attributes that are not so yet, as ClassAd literals."""
    return {name: literal(value) for name, value in wanted.items() if ad.get(name.lower()) != value}


def _short(jobs: list[int], view: PoolState) -> Iterator[Change]:
    """Yield which loads cannot start as planned, since procs of theirs are gone."""
    for job in jobs:
        text = f"job {view.name_of(job)} has fewer idle procs than its load has parts"
        yield change("reserve", job, text)


def _taken_back(plan: Schedule, bindings: list[Binding], view: PoolState) -> Iterator[Change]:
    """Yield which planned jobs must not start any more: others are before them now."""
    bound = {row for binding in bindings for row in binding.procs}
    waits = np.isin(view.procs.status, (IDLE, HELD)) & are_in(view.procs.job, plan.entries.job)
    for row in np.flatnonzero(waits).tolist():
        steps = _undone(view, row) if row not in bound else []
        if steps:
            job = int(view.procs.job[row])
            name = view.name_of(int(view.numbers[row]))
            yield change("reserve", job, f"make job {name} wait for its planned start", *steps)


def _undone(view: PoolState, row: int) -> list[Edit]:
    """Return what takes from a proc all that it carries of a plan."""
    job, ad = (int(view.numbers[row]),), view.ads.get(row, {})
    steps = []
    if text_of(view, "node_set", row):
        steps.append(Edit(Rank.TAKE, job, "RtNodeSet", UNDEFINED))
    steps += [Edit(Rank.MARK, job, n, UNDEFINED) for n in _PLANNED if ad.get(n.lower()) is not None]
    environment = text(ad, "environment") or ""
    if has_variables(environment):
        clean = literal(with_variables(environment, {}))
        steps.append(Edit(Rank.MARK, job, "Environment", clean))
    if text(ad, "rthosts"):
        least, most = hosts(ad)
        own = {"MinHosts": str(least), "MaxHosts": str(most), "RtHosts": UNDEFINED}
        steps += [Edit(Rank.MARK, job, name, value) for name, value in own.items()]
    return steps


def _let_go(plan: Schedule, view: PoolState) -> Iterator[Change]:
    """Yield which jobs start as any other from now on: nothing is promised to them any more.

    One that waits for others, or that is promised a start for which there is no place now, starts
    nowhere until then. An array that was let go would be no array any more.
    """
    jobs = view.procs.job
    rows = np.isin(view.procs.status, (IDLE, HELD)) & are_in(jobs, view.observation.queued.id)
    rows &= ~are_in(jobs, plan.entries.job) & judged(view)
    for row in np.flatnonzero(rows).tolist():
        job = int(jobs[row])
        if job not in view.behind and job not in view.unplanned:
            yield _freed(view, row)
        elif steps := _undone(view, row):
            others = "the jobs it depends on" if job in view.behind else "its next planned start"
            what = f"make job {view.name_of(int(view.numbers[row]))} wait for {others}"
            yield change("reserve", job, what, *steps)


def _freed(view: PoolState, row: int) -> Change:
    """Return the change by which a proc becomes a best-effort one."""
    proc = int(view.numbers[row])
    admission = Edit(Rank.JOB, (proc,), "RtAdmission", literal(UNJUDGED))
    text = f"let job {view.name_of(proc)} start as best effort: it has no promise"
    return change("release", int(view.procs.job[row]), text, *_undone(view, row), admission)


def judged(view: PoolState) -> NDArray[np.bool_]:
    """Return bool[n]: which procs carry an admission, and so start by their node sets only."""
    return view.procs.where("admission", lambda name: name not in {None, "", DEFERRED, UNJUDGED})


def _rest_of_loads(view: PoolState) -> Iterator[Change]:
    """Yield what becomes of the waiting procs of divisible loads of which a part runs.

    The plan knows them no longer. Chunks keep their slots, and start elsewhere only if those are
    lost, or while somebody holds the chunk. Procs that got no share are not needed.
    """
    runs = np.setdiff1d(view.observation.running.id, np.array(list(view.bound), np.int64))
    parts = are_in(view.procs.job, runs) & judged(view)
    waits = np.isin(view.procs.status, (IDLE, HELD))
    rows = [r for r in np.flatnonzero(parts & waits).tolist() if is_whole(view.ads.get(r, {}))]
    up = np.equal(view.observation.cluster.nodes.state, NodeState.UP)
    usable = {name for name, one in zip(view.slots.texts("name"), up.tolist(), strict=True) if one}
    for row in rows:
        node, proc = text(view.ads.get(row, {}), "rtnode"), int(view.numbers[row])
        if node is None:
            what = f"remove job {view.name_of(proc)}: its load needs fewer procs"
            yield change("reserve", int(view.procs.job[row]), what, Act("Remove", (proc,), SURPLUS))
        elif node not in usable or view.procs.status[row] == HELD:
            yield _freed(view, row)
        elif text_of(view, "node_set", row) != node:
            step = Edit(Rank.BIND, (proc,), "RtNodeSet", literal(node))
            what = f"bind job {view.name_of(proc)} to {node}"
            yield change("reserve", int(view.procs.job[row]), what, step)


def _priorities(plan: Schedule, bindings: list[Binding], view: PoolState) -> Iterator[Change]:
    """Yield which jobs come before all others of their users, the earliest deadline first.

    Those that may start come before those that only wait: the schedd offers the negotiator some
    kinds of jobs at a time. Those that left the plan get their own priority back.
    """
    entries, half = plan.entries, FIRST_PRIORITY >> 1
    procs = view.procs
    some = are_in(procs.job, entries.job) | (procs.priority >= half)
    some &= are_in(procs.job, view.observation.queued.id)
    rows = np.flatnonzero(some & np.isin(procs.status, (IDLE, HELD)))
    wanted, first = {}, {binding.job for binding in bindings}
    for job, end in zip(entries.job.tolist(), entries.end.tolist(), strict=True):
        if job in view.place:
            deadline = _deadline(job, view)
            minutes = (deadline if math.isfinite(deadline) else end) // 60.0
            wanted[job] = FIRST_PRIORITY * (1 + (job in first)) - int(minutes)
    for row in rows.tolist():
        job, proc, present = int(procs.job[row]), int(view.numbers[row]), int(procs.priority[row])
        own = int(procs.own_priority[row]) if procs.reordered[row] else None
        priority = wanted.get(job, own or 0)
        if priority != present:
            what = f"set the priority of job {view.name_of(proc)} to {priority}"
            yield change("set-priority", job, what, *priority_edits(proc, priority, present, own))


def _negotiation(
    bound: bool, view: PoolState, last_applied: LastApplied, now: float
) -> Iterator[Change]:
    """Yield a request for a negotiation, where jobs were `bound` just now or before."""
    if (bound or view.bound) and now - last_applied.negotiated >= NEGOTIATE_S:
        text = "request a negotiation cycle: promised jobs may start"
        yield change("negotiate", -1, text, Negotiate())


def _deadline(job: int, view: PoolState) -> float:
    """Return a waiting job's deadline, seconds since the epoch; inf: none."""
    return float(view.observation.queued.deadline[view.place[job]])


def text_of(view: PoolState, column: str, row: int) -> str:
    """Return a text of a proc; empty if it has none."""
    code = int(view.procs.column(column)[row])
    return view.procs.names(column)[code] if code >= 0 else ""
