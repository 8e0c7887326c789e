"""Queue of the exclusive machine: gates, submitters with factors, and places by deadline.

Gates are jobs that wait for others. Submitters, and slots, are those of HTCondor's loop.

Jobs with a deadline change places among themselves only. A place is where a job stands by its
submission. A job with a deadline takes the place of the first that waits for a later one, that job
the next such place, and the last of them the newcomer's. Who starts leaves with the place that it
has then. So before a job without a deadline there are never more jobs than by submission alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rtsched.kernels import machine as kernel
from rtsched.kernels.machine_claims import CLAIM, OFFER, REQUEST, SUBMITTER
from rtsched.kernels.machine_gates import ARRAY, DEPENDENT, GATE
from rtsched.kernels.order import stable_order
from rtsched.kernels.policy import policy_kernels
from rtsched.model.table import Ragged, offsets_of
from rtsched.model.verdicts import Finding, Reason
from rtsched.simulator.system import RowsById

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster, Nodes
    from rtsched.model.jobs import Edges, Jobs
    from rtsched.model.snapshot import Accounts
    from rtsched.simulator.settings import NegotiatorSettings

    Rows = NDArray[np.int64]
    Line = NDArray[np.float64]


def with_gates(machine: kernel.MachineState, jobs: Jobs, edges: Edges) -> kernel.MachineState:
    """Return the machine with the gates of the jobs that wait for others.

    Parameters
    ----------
    machine : MachineState
        As laid out for `jobs`.
    jobs : Jobs
        `n` rows in order of (submit, id), with `array` and `array_limit`.
    edges : Edges
        Dependencies; those of or on other jobs are left out. So is one on a job that is submitted
        later, or stands behind in a circle, for no jobs to wait for each other.
    """
    before, after, at_start = _links(jobs, edges)
    tasks, arrays, array_of, place = _arrays(jobs)
    if not len(after) and not len(tasks):
        return machine
    n = len(jobs)
    rows = max(n, int(np.concatenate([before, after]).max(initial=-1)) + 1)
    gates = np.zeros(rows, GATE)
    gates["missing"] = np.bincount(after, minlength=rows)
    gates["array"] = -1
    gates["array"][tasks], gates["place"][tasks] = array_of, place
    order = np.argsort(before, kind="stable")
    dependents = np.zeros(max(len(order), 1), DEPENDENT)
    dependents["row"][: len(order)] = after[order]
    dependents["at_start"][: len(order)] = at_start[order]
    machine.state[0].gated = 1
    return machine._replace(
        gates=gates,
        dependent_of=offsets_of(np.bincount(before, minlength=rows)),
        dependents=dependents,
        arrays=arrays,
        tasks=tasks if len(tasks) else machine.tasks,
        opened=np.zeros(2 * n + 2, np.int64),
        dependent_rows=np.union1d(after[after < n], tasks),
    )


def _links(jobs: Jobs, edges: Edges) -> tuple[Rows, Rows, NDArray[np.bool_]]:
    """Return the rows of those that others wait for and of those that wait, and how.

    For an array the tasks stand before a row behind the jobs, and this stands before who waits.
    """
    if not len(edges):
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.bool_)
    place = RowsById(jobs.id)
    edges = edges.take(np.flatnonzero(np.isin(edges.after, jobs.id)))
    single = edges.take(np.flatnonzero(~edges.whole_array & np.isin(edges.before, jobs.id)))
    before, after = place.find(single.before), place.find(single.after)
    parts = [(before, after, single.at_start)]
    ends = [np.arange(len(jobs))]
    whole = edges.take(np.flatnonzero(edges.whole_array & np.isin(edges.before, jobs.array)))
    if len(whole):
        keys = np.column_stack([whole.before, whole.at_start])
        kinds, of = np.unique(keys, axis=0, return_inverse=True)
        behind = Ragged(
            offsets_of(np.bincount(of.ravel())),
            place.find(whole.after)[np.argsort(of.ravel(), kind="stable")],
        )
        order = np.argsort(jobs.array, kind="stable")
        first, last = (
            np.searchsorted(jobs.array, kinds[:, 0], side, sorter=order)
            for side in ("left", "right")
        )
        ends.append(order[last - 1])
        for at, at_start in enumerate(kinds[:, 1].tolist()):
            tasks, mine = order[first[at] : last[at]], behind.row(at)
            row = np.int64(len(jobs) + at)
            parts.append((tasks, np.full(len(tasks), row), np.full(len(tasks), at_start > 0)))
            parts.append((np.full(len(mine), row), mine, np.zeros(len(mine), np.bool_)))
    before, after, started = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    # An array stands where its last task does.
    good = _followed(before, after, jobs.submit, np.concatenate(ends))
    return before[good], after[good], started[good]


def _followed(before: Rows, after: Rows, submit: Line, place: Rows) -> NDArray[np.bool_]:
    """Return which dependencies hold: none on a later submission, and none back in a circle.

    Of jobs submitted at one instant the ids do not tell which was first: tasks of an array get
    theirs when they start.
    """
    first, second = submit[place[before]], submit[place[after]]
    good = first <= second
    back = good & (place[before] >= place[after]) & (after < len(submit))
    if not back.any():
        return good
    left = np.flatnonzero(first == second)
    while True:  # without those that wait for nobody any more
        stay = np.isin(before[left], after[left])
        if stay.all():
            break
        left = left[stay]
    good[left[back[left]]] = False
    return good


def _arrays(jobs: Jobs) -> tuple[Rows, NDArray[np.void], NDArray[np.int32], Rows]:
    """Return the tasks of arrays with a limit, the arrays, and of each task its array and place."""
    limited = np.flatnonzero((jobs.array >= 0) & (jobs.array_limit > 0))
    if not len(limited):
        return _arrays_without_limit()
    tasks = limited[np.argsort(jobs.array[limited], kind="stable")]
    _, first, array_of, count = np.unique(
        jobs.array[tasks], return_index=True, return_inverse=True, return_counts=True
    )
    if (count <= jobs.array_limit[tasks[first]]).all():
        return _arrays_without_limit()
    arrays = np.zeros(len(first), ARRAY)
    arrays["next"] = arrays["last"] = first + count
    arrays["limit"] = jobs.array_limit[tasks[first]]
    return tasks, arrays, array_of.astype(np.int32), np.arange(len(tasks))


def _arrays_without_limit() -> tuple[Rows, NDArray[np.void], NDArray[np.int32], Rows]:
    nothing = np.zeros(0, np.int64)
    return nothing, np.zeros(1, ARRAY), nothing.astype(np.int32), nothing


def open_stuck_gates(machine: kernel.MachineState) -> bool:
    """Free the jobs that wait for jobs which never start, when nothing else happens any more.

    Return whether there are any. Those that wait for other waiting jobs only stay.
    """
    state = kernel.scalars(machine)
    if not state["gated"]:
        return False
    stuck = machine.dependent_rows[
        machine.jobs["status"][machine.dependent_rows] == kernel.SLEEPING
    ]
    stuck = stuck[machine.gates["missing"][stuck] > 0]
    if not len(stuck):
        return False
    behind = _dependents(machine, stuck)
    arrays = np.unique(behind[behind >= len(machine.jobs)])
    rows = np.setdiff1d(stuck, np.concatenate([behind, _dependents(machine, arrays)]))
    machine.gates["missing"][rows] = 0
    machine.gates["released"][rows] = 1
    machine.opened[: len(rows)] = rows
    state["opened"] = len(rows)
    return True


def _dependents(machine: kernel.MachineState, rows: Rows) -> Rows:
    """Return who still waits for these."""
    places = Ragged(machine.dependent_of, machine.dependents).places(rows)
    links = machine.dependents[places.values]
    return np.asarray(links["row"][links["over"] == 0], np.int64)


def released(machine: kernel.MachineState) -> int:
    """Return how many jobs did not wait for a job that they depend on, as it did not run."""
    return int(np.count_nonzero(machine.gates["released"][: len(machine.jobs)]))


DEDICATED = "DedicatedScheduler"
"""HTCondor's name of the submitter of all parallel jobs."""
NO_SLOT = Reason(
    "negotiator.no-slot",
    "requests {cpus:CPU} with {memory} MB each; no slot has more than {fits} of these",
)
NO_SLOTS = Reason(
    "negotiator.no-slots",
    "requests {cpus:CPU} with {memory} MB each; all slots together have {fits} of these",
)


def with_claims(
    machine: kernel.MachineState,
    jobs: Jobs,
    cluster: Cluster,
    accounts: Accounts,
    settings: NegotiatorSettings,
) -> kernel.MachineState:
    """Return a machine that is laid out, with what loop `negotiator` needs.

    Parameters
    ----------
    machine : MachineState
        Before its first instant; its scalars are changed.
    jobs : Jobs
        Their `association` is the submitter; nobody's jobs have one together.
    cluster : Cluster
        Rows of one name that follow one another are the CPUs of one slot.
    accounts : Accounts
        The names of submitters, for their factors.
    settings : NegotiatorSettings
        The loop's own settings.
    """
    offers, slot_of = _slots(cluster.nodes, len(machine.nodes))
    users = max(len(accounts), int(jobs.association.max(initial=-1)) + 1)
    state = kernel.scalars(machine)
    state["interval"] = max(settings.interval, settings.cycle_delay)
    state["cycle_delay"], state["half_life"] = settings.cycle_delay, settings.half_life
    state["least_priority"], state["worklife"] = settings.least_priority, settings.claim_worklife
    state["last_cycle"], state["next_cycle"] = -state["interval"], np.inf
    state["dedicated"], state["widest"] = users + 1, offers["count"].max(initial=1)
    claims = np.zeros(len(machine.nodes), CLAIM)
    claims["owner"], claims["slot"] = -1, slot_of
    return machine._replace(
        requests=_requests(jobs, users),
        claims=claims,
        offers=offers,
        submitters=_submitters(users + 2, accounts, settings),
    )


def never_matched(machine: kernel.MachineState, jobs: Jobs) -> tuple[Finding, ...]:
    """Return why jobs would wait for ever: no slot is large enough, or has enough memory.

    Parameters
    ----------
    machine : MachineState
        Laid out, before its first instant; such jobs are marked in it.
    jobs : Jobs
        `n` rows, at most as wide as the machine.
    """
    memory, code = np.unique(machine.requests["memory"][: len(jobs)], return_inverse=True)
    kinds, times = np.unique(machine.offers[["count", "memory"]], return_counts=True)
    one, all_ = np.zeros(len(memory)), np.zeros(len(memory))
    for kind, number in zip(kinds, times, strict=True):
        room = np.full(len(memory), float(kind["count"]))
        some = memory > 0
        room[some] = np.minimum(room[some], np.floor(kind["memory"] / memory[some]))
        one, all_ = np.maximum(one, room), all_ + number * room
    wide = jobs.size > kernel.scalars(machine)["widest"]
    fits = np.where(wide, all_[code], one[code])
    hopeless = jobs.size > fits
    machine.requests["hopeless"][: len(jobs)] = hopeless
    return tuple(
        Finding.where(mask, reason, cpus=jobs.size, memory=memory[code] / 2**20, fits=fits)
        for mask, reason in ((hopeless & ~wide, NO_SLOT), (hopeless & wide, NO_SLOTS))
        if mask.any()
    )


def _slots(nodes: Nodes, m: int) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """Return the slots, best first, and the slot of each of `m` nodes.

    The fastest is the best, among equals the first. A slot has the memory of all its rows, any
    amount where one of them does not say.
    """
    name = nodes.name
    fresh = np.ones(len(nodes), np.bool_)
    fresh[1:] = (name[1:] != name[:-1]) | (name[1:] < 0)
    first = np.flatnonzero(fresh)
    slots = np.zeros(len(first), OFFER)
    if len(first):
        memory = np.where(nodes.memory >= 0, nodes.memory, np.inf)
        slots["first"], slots["count"] = first, np.diff(np.append(first, len(nodes)))
        slots["speed"] = np.minimum.reduceat(nodes.speed, first)
        slots["memory"] = np.add.reduceat(memory, first)
        slots["free"] = slots["count"]
    order = np.argsort(-slots["speed"], kind="stable")
    place = np.empty(len(first), np.int32)
    place[order] = np.arange(len(first))
    slot_of = np.zeros(m, np.int32)
    slot_of[: len(nodes)] = place[np.cumsum(fresh) - 1]
    return slots[order], slot_of


def _requests(jobs: Jobs, users: int) -> NDArray[Any]:
    """Return what jobs ask for, and whose they are."""
    requests = np.zeros(max(len(jobs), 1), REQUEST)
    requests["before"] = requests["after"] = -1
    requests["memory"][: len(jobs)] = np.maximum(jobs.memory, 0)
    requests["user"][: len(jobs)] = np.where(jobs.association >= 0, jobs.association, users)
    requests["owner"] = requests["user"]
    return requests


def _submitters(count: int, accounts: Accounts, settings: NegotiatorSettings) -> NDArray[Any]:
    """Return the submitters with their factors, all with the best priority."""
    table = np.zeros(count, SUBMITTER)
    table["priority"] = settings.least_priority
    table["first"] = table["last"] = -1
    table["factor"] = settings.default_factor
    factors = settings.factors
    names, parent = accounts.texts("name"), accounts.parent.tolist()
    for row, name in enumerate(names):
        group = names[parent[row]] if parent[row] >= 0 else name
        for entry in (f"{group}.{name}", name, group):
            if entry in factors:
                table["factor"][row] = factors[entry]
                break
    table["factor"][-1] = factors.get(DEDICATED, settings.default_factor)
    return table


class _DeadlinePlaces(NamedTuple):
    """The places of all jobs: a compiled policy."""

    place: Line
    """float64[n]: the place that each has; changed."""
    due: Line
    """float64[n]: the deadline by which it changes places; nan: it does not."""


def deadline_places(jobs: Jobs) -> _DeadlinePlaces | None:
    """Return the policy that orders a queue of these jobs so.

    None where all have a deadline, or none has: places never change then, or deadlines alone tell.
    """
    due = np.isfinite(jobs.deadline)
    if due.all() or not due.any():
        return None
    return _DeadlinePlaces(np.arange(float(len(jobs))), np.where(due, jobs.deadline, np.nan))


def priorities(places: _DeadlinePlaces, _now: float, rows: NDArray[np.int64], out: Line) -> int:
    """Fill `out` with the priorities of the jobs that wait: less their places; change these."""
    some, count = np.empty(len(rows), np.int64), 0
    for at in range(len(rows)):
        row = rows[at]
        out[at] = -places.place[row]
        if not np.isnan(places.due[row]):
            some[count] = at
            count += 1
    place, due, row_of = np.empty(count), np.empty(count), np.empty(count)
    for k in range(count):
        row = rows[some[k]]
        place[k], due[k], row_of[k] = places.place[row], places.due[row], row
    place = np.sort(place)
    first = stable_order(row_of)
    first = first[stable_order(due[first])]
    for k in range(count):
        at = some[first[k]]
        places.place[rows[at]] = place[k]
        out[at] = -place[k]
    return 0


policy_kernels(_DeadlinePlaces, rank=priorities)
