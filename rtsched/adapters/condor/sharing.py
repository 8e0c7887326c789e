"""Slots that jobs share (`share_nodes`): what jobs take of them, and what a plan keeps.

A partitionable slot is one node with amounts of CPUs, memory, GPUs and disk. Each job also takes
one `gres/slot`: a static slot has one of these, since whoever has a part of it has all of it.

A best-effort job may start if it leaves, of what is free then, so much as the planned starts before
its own end take together, at any instant up to that end: the table's steps are the most that the
plan takes up to each of them. What runs now and ends earlier is not counted on: what it gives back
early could be taken by others before the next poll.
"""

from __future__ import annotations

from itertools import chain, pairwise
from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.condor.requirements import KILOBYTE, MEGABYTE
from rtsched.adapters.recurring import occurrences
from rtsched.model.jobs import Jobs
from rtsched.model.resources import CPU, DISK, GPU, MEMORY
from rtsched.model.snapshot import are_in, places
from rtsched.model.table import amounts_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from rtsched.adapters.condor.facts import CondorFacts, Parts
    from rtsched.adapters.condor.pool_state import PoolState, Procs
    from rtsched.adapters.condor.slots import Occupant
    from rtsched.adapters.condor.table import Steps
    from rtsched.model.schedule import Schedule

    Amounts = NDArray[np.int64]

RESOURCES = (CPU, MEMORY, GPU, DISK, "gres/slot")
"""Names of the amounts, in their order: CPUs, bytes, GPUs, bytes, and how many jobs."""


def amounts(
    cpus: Amounts, memory: Amounts, gpus: Amounts, disk: Amounts, jobs: Amounts | int = 1
) -> Amounts:
    """Return amounts of all `RESOURCES`, int64[n, 5]; memory that is not known (-1) counts as 0."""
    columns = np.broadcast_arrays(cpus, np.maximum(memory, 0), gpus, disk, np.int64(jobs))
    return np.column_stack(columns).astype(np.int64)


def demand_of_requests(
    cpus: ArrayLike, memory: ArrayLike, gpus: ArrayLike, disk: ArrayLike, facts: CondorFacts
) -> Amounts:
    """Return what jobs that ask for so much take of a slot, int64[n, 5]; memory, disk in bytes.

    Each takes a CPU at least.
    """
    cpus, memory, gpus, disk = (
        np.atleast_1d(np.asarray(each, np.int64)) for each in (cpus, memory, gpus, disk)
    )
    memory, disk = facts.parts.rounded(memory), facts.parts.rounded_disk(disk)
    return amounts(np.maximum(cpus, 1), memory, np.maximum(gpus, 0), disk)


def demand_of_procs(procs: Procs, facts: CondorFacts) -> Amounts:
    """Return what procs take of a slot as they request it, int64[n, 5]."""
    return demand_of_requests(procs.cpus, procs.memory, procs.gpus, procs.disk, facts)


def demand_of_groups(
    occupants: list[Occupant], rows: list[list[int]], groups: list[int], count: int, parts: Parts
) -> Amounts:
    """Return what each running job takes of each of its slots, int64[count, 5].

    One that has several parts of a slot takes their sum, and the most that it takes of any.

    Parameters
    ----------
    occupants : list of Occupant
        Who has parts of slots.
    rows : list of list of int
        The rows of the cluster that each has.
    groups : list of int
        The job of each, 0 to `count` - 1.
    count : int
        How many jobs there are.
    parts : Parts
        How memory is rounded up, of jobs that have been given no slot yet.
    """
    length = [len(each) for each in rows]
    pairs = np.column_stack([np.repeat(np.array(groups, np.int64), length), _joined(rows)])
    pairs, place = np.unique(pairs, axis=0, return_inverse=True)
    sums = np.zeros((len(pairs), len(RESOURCES)), np.int64)
    np.add.at(sums, place.ravel(), np.repeat(_held(occupants, parts), length, axis=0))
    most = np.zeros((count, len(RESOURCES)), np.int64)
    np.maximum.at(most, pairs[:, 0], sums)
    return most


def held_by(occupants: list[Occupant], rows: list[list[int]], count: int, parts: Parts) -> Amounts:
    """Return what some have of each of so many rows together, int64[count, 5]."""
    length = [len(each) for each in rows]
    total = np.zeros((count, len(RESOURCES)), np.int64)
    held = np.repeat(_held(occupants, parts), length, axis=0)
    np.add.at(total, _joined(rows), held)
    return total


def _joined(rows: list[list[int]]) -> NDArray[np.int64]:
    return np.fromiter(chain.from_iterable(rows), np.int64)


def _held(occupants: list[Occupant], parts: Parts) -> Amounts:
    """Return what each occupant has, int64[n, 5]."""
    each = np.array([one.size for one in occupants], np.int64)
    cpus, memory, gpus, disk = each.reshape(-1, 4).T
    return amounts(cpus, parts.rounded(memory), gpus, disk)


def may_start_beside(
    plan: Schedule, view: PoolState, closed: NDArray[np.bool_], now: float
) -> NDArray[np.bool_]:
    """Return bool[n]: which entries fit on all their nodes now, without harm to others.

    One whose time has come fits beside all that runs or is about to start; one that would start
    earlier than planned, beside the entries before it too, whether or not these have ended by then.

    Parameters
    ----------
    plan : Schedule
        Planned starts of jobs that wait.
    view : PoolState
        The last poll.
    closed : bool[k]
        For each node of the entries, whether no other job may take there what the entry takes.
    now : float
        Seconds since the epoch.
    """
    cluster, entry, nodes = view.observation.cluster, plan.rows(), plan.nodes
    free = cluster.nodes.capacity - _running(view)
    demand, known = _demand(plan, view)
    early = (plan.entries.start > now)[entry]
    whole = np.where(known[entry, None], demand[entry], cluster.nodes.capacity[nodes])
    order = np.lexsort((plan.entries.job[entry], plan.starts(), nodes))
    fits = np.empty(len(nodes), np.bool_)
    before = _total_before(nodes[order], whole[order])
    due_before = _total_before(nodes[order], demand[entry[order]])
    room = free[nodes[order]] - demand[entry[order]]
    ahead = np.where(early[order, None], before, due_before)
    fits[order] = (room >= ahead).all(axis=1)
    recurs = occurrences(view.observation.periodic, len(cluster))[nodes] < plan.starts()
    may = known.copy()
    may[entry[~fits | ~closed | recurs | ~cluster.usable[nodes]]] = False
    return may


def kept_amounts(
    plan: Schedule,
    view: PoolState,
    starting: NDArray[np.bool_],
    bound: NDArray[np.bool_],
    *,
    lead: float,
    horizon: float,
) -> dict[str, Steps]:
    """Return what has to be kept of each slot for a plan: steps of CPUs, MB, GPUs and KB.

    Parameters
    ----------
    plan : Schedule
        Planned starts of jobs that wait. Of one of which it is not known what it takes, all of its
        nodes are kept.
    view : PoolState
        The last poll.
    starting : bool[n]
        Entries that may start at once: what they take is kept at once.
    bound : bool[r]
        Those that count as running and are about to start: likewise.
    lead : float
        Seconds by which a job may outlive its stated run time.
    horizon : float
        Seconds since the epoch; starts after it keep nothing.
    """
    observation = view.observation
    capacity = observation.cluster.nodes.capacity
    entry, (demand, known) = plan.rows(), _demand(plan, view)
    taken = np.where(known[entry, None], demand[entry], capacity[plan.nodes])
    soon = starting[entry]
    planned = soon | (plan.starts() <= horizon)
    runs = observation.allocations.take(np.flatnonzero(bound))
    own = _demand_of_running(view)[bound][runs.rows()]
    fixed = occurrences(observation.periodic, len(capacity))
    recurs = np.flatnonzero(np.isfinite(fixed) & (fixed <= horizon))
    fixed = fixed[recurs]
    row = np.concatenate([plan.nodes[planned], runs.nodes, recurs])
    begin = [np.where(soon, lead, plan.starts())[planned], np.full(len(runs.nodes), lead), fixed]
    ends = [plan.per_node(plan.entries.end)[planned], runs.per_node(runs.entries.end)]
    end = np.concatenate([*ends, np.full(len(recurs), np.inf)])
    amount = np.concatenate([taken[planned], own, capacity[recurs]])[:, :4]
    amount[:, [1, 3]] = -(-amount[:, [1, 3]] // (MEGABYTE, KILOBYTE))
    names = view.slots.texts("name")
    found = most_before(row, np.concatenate(begin) - lead, end - lead, amount)
    return {names[at] or "": steps for at, steps in found.items()}


def most_before(
    row: NDArray[np.int64], begin: NDArray[np.float64], end: NDArray[np.float64], amount: Amounts
) -> dict[int, Steps]:
    """Return by row the most that is taken at any instant up to each, as ascending steps.

    Parameters
    ----------
    row : int64[k]
        On which row each of `k` amounts is taken ...
    begin, end : float64[k]
        ... from when to when, seconds since the epoch.
    amount : int64[k, r]
        The amounts. A step is a whole second, then `r` amounts.
    """
    count = len(row)
    time, where = np.concatenate([begin, end]), np.concatenate([row, row])
    begins = np.repeat([True, False], count)
    order = np.lexsort((begins, time, where))  # what ends at an instant is free for what begins
    total = np.cumsum(np.concatenate([amount, -amount])[order], axis=0)  # 0 after each row's last
    where, second = where[order], np.floor(np.where(begins, time, 0.0)[order])
    found: dict[int, Steps] = {}
    bounds = np.flatnonzero(np.diff(where, prepend=-1, append=-1))
    for start, stop in pairwise(bounds.tolist()):
        most = np.maximum.accumulate(total[start:stop], axis=0)
        risen = (np.diff(most, axis=0, prepend=0) > 0).any(axis=1)
        moments = second[start:stop][risen].astype(np.int64).tolist()
        steps = dict(zip(moments, most[risen].tolist(), strict=True))  # the last of a second
        found[int(where[start])] = tuple((at, *kept) for at, kept in steps.items())
    return {at: steps for at, steps in found.items() if steps}


def _total_before(node: NDArray[np.int32], amount: Amounts) -> Amounts:
    """Return for each row, in order of nodes, the sum of the amounts before it on its node."""
    total = np.cumsum(amount, axis=0) - amount
    first = np.diff(node, prepend=-1) != 0
    before: Amounts = total - total[first][np.cumsum(first) - 1]
    return before


def _demand(plan: Schedule, view: PoolState) -> tuple[Amounts, NDArray[np.bool_]]:
    """Return what each entry takes of each of its nodes, int64[n, r]; and whether that is known."""
    queued, names = view.observation.queued, view.observation.cluster.nodes.names("capacity")
    if view.planned is not None:
        new = ~are_in(view.planned.id, queued.id)
        queued = Jobs.joined([queued, view.planned.take(new)])
    place, known = places(queued.id, plan.entries.job)
    demand = np.zeros((len(plan), len(names)), np.int64)
    demand[known] = amounts_of(queued, "demand", names)[place[known]]
    return demand, known


def _demand_of_running(view: PoolState) -> Amounts:
    """Return what each running job takes of each of its nodes, int64[n, r]."""
    names = view.observation.cluster.nodes.names("capacity")
    return amounts_of(view.observation.running, "demand", names)


def _running(view: PoolState) -> Amounts:
    """Return what is taken of each node by what runs or is about to start, int64[m, r]."""
    held = view.observation.allocations
    total = np.zeros_like(view.observation.cluster.nodes.capacity)
    np.add.at(total, held.nodes, _demand_of_running(view)[held.rows()])
    return total
