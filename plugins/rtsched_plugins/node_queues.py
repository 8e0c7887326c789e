"""The state of psts: each waiting job's node, and until when nodes run; its form for kernels.

A job is *for* a node, its first; it takes that node and the next ones of its pool in the order of
the grid's cells, as many as its size. A pool is a partition's nodes, or all nodes.

Where jobs share nodes by resources, a pool is the nodes that a job may use and that hold what it
asks for. Work is then counted by one resource at a time: see `kernels.node_queues`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from rtsched.api import Ragged, ShapeError, State, amounts_of, fitting_sets
from rtsched_plugins.kernels.node_queues import (
    HELD,
    HELD_AMOUNT,
    INEXACT,
    MOST_STEPS,
    MOVED,
    RUNS,
    SCANS,
    STAYS,
    WAITING,
    Machine,
    NodeQueues,
    count_all,
    steps_of,
)
from rtsched_plugins.kernels.scan_grid import neighbours, sides, walk
from rtsched_plugins.kernels.scans import MOST, scan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rtsched.api import Cluster, Jobs

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

JOB, NODE, SIZE, WORK, BYTES, POOL, AMOUNT = range(7)
"""Columns of `Queues.waiting`; from the last one on the amounts of resources."""
SPEED_UNITS = 1000
"""Speeds are counted in thousandths."""
MOST_WORK = 1 << 31
"""Seconds that a job counts for at most."""


class Queues(State, frozen=True):
    """Node queues, and the grid that they are balanced on; `n` nodes, `r` resources.

    `waiting` is int64[k, 6 + r], one row per waiting job in the order of arrival: job id, first
    node, size, seconds of work per node, bytes to move per node, pool, and what it takes of each
    resource on each node. The pool is a row of the sorted partition names, -1 for all nodes, -2 for
    a job that must stay; where jobs share nodes it is a row of `sets`.
    """

    version: ClassVar[int] = 2

    shape: tuple[int, ...]
    cell: Ints
    resources: tuple[str, ...]
    """Names of resources, where jobs share nodes."""
    sets: Mask
    """bool[p, n], the nodes of each pool where jobs share nodes; those of fewest nodes first."""
    held: Ints
    """int64[h, 2 + r]: job, node and amounts, one row per node of each job that runs."""
    held_until: Floats
    """float64[h]: the requested ends of these."""
    waiting: Ints
    left: tuple[float, ...]
    """Seconds by which the last scan's result ends later than any placement must; by resource."""
    scans: int = 0
    """Scans made."""
    runs: int = 0
    """Scans that paid, so that jobs were moved."""
    moved: int = 0
    """Jobs moved by them, each time counted."""


def empty(cluster: Cluster, dimension: int) -> Queues:
    """Return node queues in which nobody waits, on the cluster's own grid or on the best one.

    Nodes that links join without a grid are put into neighbouring cells as they are walked.
    """
    n, topology = len(cluster), cluster.topology
    cell = np.arange(n)
    if topology.shape:
        shape = topology.shape
        cell = topology.cell if len(topology.cell) else cell
    else:
        shape = sides(max(n, 1), dimension)
        if len(topology.link):
            cell = np.argsort(walk(neighbours(n, topology.link, topology.bandwidth)))
    resources = tuple(cluster.nodes.names("capacity"))
    r = len(resources)
    return Queues(
        shape,
        cell.astype(np.int64),
        resources,
        np.zeros((0, n), np.bool_),
        np.empty((0, HELD_AMOUNT + r), np.int64),
        np.empty(0),
        np.empty((0, AMOUNT + r), np.int64),
        (0.0,) * max(r, 1),
    )


def rows_of(jobs: Jobs, cluster: Cluster, no_limit: float, usual_bytes: int) -> tuple[Ints, Mask]:
    """Return the rows of `Queues.waiting` for jobs that are for no node yet, NODE -1.

    Parameters
    ----------
    jobs : Jobs
        In any order.
    cluster : Cluster
        For the partitions.
    no_limit : float
        Run time assumed for jobs that request none, seconds.
    usual_bytes : int
        Bytes of a process that does not say its size.

    Returns
    -------
    int64[k, 6 + r], bool[p, n]
        The rows; and where jobs share nodes the sets of nodes that their pools are rows of.
    """
    amounts, sets = np.empty((len(jobs), 0), np.int64), np.zeros((0, len(cluster)), np.bool_)
    if cluster.shared:
        pools, masks = fitting_sets(jobs, cluster)
        sets = np.array(masks, np.bool_).reshape(-1, len(cluster))
        amounts = _amounts(jobs, cluster, pools, sets)
    else:
        names = sorted(cluster.partitions)
        codes = [names.index(name) if name in names else -1 for name in jobs.names("partition")]
        pools = np.array([*codes, -1])[jobs.partition]
    rows = np.empty((len(jobs), AMOUNT + amounts.shape[1]), np.int64)
    rows[:, JOB], rows[:, SIZE] = jobs.id, np.maximum(jobs.size, 1)
    work = np.where(np.isfinite(jobs.wall_time), jobs.wall_time, no_limit)
    rows[:, WORK] = np.clip(np.ceil(work), 1, MOST_WORK)
    rows[:, BYTES] = np.where(jobs.process_bytes >= 0, jobs.process_bytes, usual_bytes)
    rows[:, POOL], rows[:, AMOUNT:] = pools, amounts
    pinned = jobs.pinned >= 0
    rows[:, NODE] = jobs.pinned
    rows[pinned, POOL] = STAYS
    return rows, sets


def _amounts(jobs: Jobs, cluster: Cluster, pools: NDArray[np.int32], sets: Mask) -> Ints:
    """Return int64[k, r]: what each job takes of each resource on each node.

    An exclusive job takes what a node of its pool has on average of the resources that all of them
    have; one that asks for nothing takes 1 of the first resource.
    """
    amounts = amounts_of(jobs, "demand", tuple(cluster.nodes.names("capacity"))).copy()
    alone = jobs.exclusive
    if alone.any():
        members, capacity = sets.astype(np.int64), cluster.nodes.capacity
        count = np.maximum(members.sum(axis=1), 1)[:, None]
        mean = np.where(members @ (capacity > 0) == count, -(-(members @ capacity) // count), 0)
        amounts[alone] = np.maximum(amounts, mean[pools])[alone]
    amounts[~amounts.any(axis=1), 0] = 1
    return amounts


def gathered(queues: Queues, rows: Ints, sets: Mask) -> tuple[Queues, Ints]:
    """Return the queues with these sets among theirs, and the rows with their pools' new places."""
    if not len(sets):
        return queues, rows
    known = [row.tobytes() for row in queues.sets]
    new = [row.tobytes() for row in sets]
    if set(new) <= set(known):
        return queues, _moved_to(rows, np.array([known.index(row) for row in new]))
    every = {row.tobytes(): row for row in (*queues.sets, *sets)}
    order = sorted(every, key=lambda row: (row.count(1), row))
    place = {row: at for at, row in enumerate(order)}
    queues = replace(
        queues,
        sets=np.array([every[row] for row in order]),
        waiting=_moved_to(queues.waiting, np.array([place[row] for row in known], np.int64)),
    )
    return queues, _moved_to(rows, np.array([place[row] for row in new]))


def without_unused(queues: Queues) -> Queues:
    """Return the queues without the sets that no waiting job has as its pool."""
    used = np.zeros(len(queues.sets), np.bool_)
    if not len(used):
        return queues
    pools = queues.waiting[:, POOL]
    used[pools[pools >= 0]] = True
    if used.all():
        return queues
    waiting = _moved_to(queues.waiting, np.cumsum(used) - 1)
    return replace(queues, sets=queues.sets[used], waiting=waiting)


def _moved_to(rows: Ints, place: Ints) -> Ints:
    """Return rows whose pools are at other places now."""
    rows, pools = rows.copy(), rows[:, POOL]
    rows[:, POOL] = np.where(pools >= 0, np.append(place, 0)[np.maximum(pools, -1)], pools)
    return rows


def machine_of(cluster: Cluster, shape: tuple[int, ...], cell: Ints, sets: Mask) -> Machine:
    """Return what a cluster's nodes are to a scan on this grid.

    `sets` are the pools where jobs share nodes; else each partition is one.
    """
    pace = np.rint(np.where(cluster.usable, cluster.nodes.speed, 0.0) * SPEED_UNITS)
    pace, order = pace.astype(np.int64), np.argsort(cell)
    masks, capacity = list(sets), np.zeros((len(cell), 0), np.int64)
    if cluster.shared:
        capacity = np.array(cluster.nodes.capacity, np.int64)
    else:
        masks = [cluster.partitions[name] for name in sorted(cluster.partitions)]
    most = capacity.max(axis=0, initial=0).tolist()
    step = np.array([1 << max((m - 1) // MOST_STEPS, 0).bit_length() for m in most], np.int64)
    powers = np.concatenate([pace * steps_of(capacity, step).T, pace[None]])
    common = np.maximum(np.gcd.reduce(powers, axis=1), 1)
    powers = np.ascontiguousarray(powers // common[:, None])
    pools = np.array([*masks, np.ones(len(cell), np.bool_)])[:, order]
    inside = (pools & (powers[:, None, order] > 0)).reshape(-1, len(cell))
    pool, place = np.nonzero(inside)
    before = np.empty(inside.shape, np.int64)
    before[:, order] = np.cumsum(inside, axis=1) - inside
    begin = scan(np.bincount(pool, minlength=len(inside)))
    views = max(len(step), 1)
    grid = cell.astype(np.int64), np.array(shape, np.int64)
    return Machine(powers, common[:views], pace, step, capacity, order[place], begin, before, *grid)


def opened(
    queues: Queues,
    rows: Ints,
    jobs: Jobs,
    machine: Machine,
    link_cost: Floats,
    terms: Sequence[float],
    choices: Sequence[int],
    most_held: int,
) -> tuple[NodeQueues, Ints]:
    """Return queues for kernels, with more jobs that do not wait yet, and the table of all jobs.

    Parameters
    ----------
    queues : Queues
        As they are.
    rows : int64[k, 6 + r]
        The jobs that come or go as `rows_of` returns them, their pools being some of the queues'.
    jobs : Jobs
        The same jobs.
    machine, link_cost, choices
        See `NodeQueues`.
    terms : sequence of float
        Seconds that a scan takes, and the least imbalance that is worth one.
    most_held : int
        Nodes that jobs which start get in all, at most.
    """
    table = np.concatenate([queues.waiting, rows])
    n, m, k, h = len(table), len(queues.cell), len(queues.waiting), len(queues.held)
    work, before = table[:, WORK] * np.ones((len(machine.common), 1), np.int64), np.zeros(k)
    amount = table[:, AMOUNT:].copy()
    if len(machine.step):
        work *= steps_of(amount, machine.step).T
    held, held_until = (
        np.zeros((h + most_held, queues.held.shape[1]), np.int64),
        np.zeros(h + most_held),
    )
    held[:h], held_until[:h] = queues.held, queues.held_until
    most_seconds = float(MOST_WORK * SPEED_UNITS)
    by_view = (len(machine.common), m)
    q = NodeQueues(
        machine=machine,
        job=table[:, JOB].copy(),
        size=table[:, SIZE].copy(),
        pool=table[:, POOL].copy(),
        units=np.ceil(work / (machine.common[:, None] / SPEED_UNITS)).astype(np.int64),
        data=(table[:, BYTES] * table[:, SIZE]).astype(np.float64),
        amount=amount,
        exclusive=np.append(before > 0, jobs.exclusive),
        wall=np.append(before, jobs.wall_time),
        link_cost=link_cost,
        terms=np.array([*terms, most_seconds, min(most_seconds, MOST // 2 // max(m, 1))]),
        choices=np.array(choices, np.int64),
        origin=0.0,
        set_of=np.zeros(0, np.int64),
        node_sets=Ragged.of([]),
        counts=np.array([k, h, queues.scans, queues.runs, queues.moved, 0], np.int64),
        left=np.array(queues.left, np.float64),
        waiting=np.arange(n),
        node=table[:, NODE].copy(),
        held=held,
        held_until=held_until,
        queued=np.zeros(by_view, np.int64),
        pinned=np.zeros(by_view, np.int64),
        fixed=np.zeros(by_view, np.int64),
        ends=np.zeros(m),
        ahead=np.zeros(m, np.int64),
    )
    count_all(q)
    return q, table


def closed(queues: Queues, q: NodeQueues, table: Ints) -> Queues:
    """Return the queues as kernels left them, without the sets that no waiting job has as its pool.

    Raises
    ------
    ShapeError
        If a scan was wanted of more work than can be counted exactly.
    """
    if q.counts[INEXACT]:
        raise ShapeError("work adds up to more than 2^51 units")
    rows, held = q.waiting[: q.counts[WAITING]], q.counts[HELD]
    waiting = table[rows]
    waiting[:, NODE] = q.node[rows]
    return without_unused(
        replace(
            queues,
            waiting=waiting,
            held=q.held[:held].copy(),
            held_until=q.held_until[:held].copy(),
            left=tuple(q.left.tolist()),
            scans=int(q.counts[SCANS]),
            runs=int(q.counts[RUNS]),
            moved=int(q.counts[MOVED]),
        )
    )
