"""What the psts plug-in remembers: which node each waiting job is for, and until when nodes run.

A job is *for* a node, its first; it takes that node and the next ones of its pool in the order of
the grid's cells, as many as its size. A pool is a partition's nodes, or all nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rtsched.api import State
from rtsched_plugins.kernels.scan_grid import neighbours, sides, walk

if TYPE_CHECKING:
    from rtsched.api import Cluster, Jobs

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

JOB, NODE, SIZE, WORK, BYTES, POOL = range(6)
"""Columns of `Queues.waiting`."""
STAYS = -2
"""POOL of a job that must run on its node."""
SPEED_UNITS = 1000
"""Speeds are counted in thousandths."""
MOST_WORK = 1 << 31
"""Seconds that a job counts for at most."""


class Queues(State, frozen=True):
    """Node queues, and the grid that they are balanced on; `n` nodes.

    `waiting` is int64[k, 6], one row per waiting job in the order of arrival: job id, first node,
    size, seconds of work per node, bytes to move per node, pool (a row of the sorted partition
    names, -1 for all nodes, -2 for a job that must stay).
    """

    shape: tuple[int, ...]
    cell: Ints
    holder: Ints
    busy_until: Floats
    waiting: Ints
    left: float = 0.0
    """Seconds by which the last scan's result ends later than any placement must."""
    scans: int = 0
    """Scans made."""
    runs: int = 0
    """Scans that paid, so that jobs were moved."""
    moved: int = 0
    """Jobs moved by them, each time counted."""


class Machine(NamedTuple):
    """The nodes as a scan sees them now.

    Attributes
    ----------
    power : int64[n]
        Units per second times `unit`; 0 where a node takes no job.
    unit : float
        What a power of 1 does in a second.
    rank : int64[n]
        Each node's place in the order of cells.
    pools : tuple of int64 arrays
        The usable nodes of each partition in order of their cells; the last one holds all.
    """

    power: Ints
    unit: float
    rank: Ints
    pools: tuple[Ints, ...]

    @classmethod
    def of(cls, cluster: Cluster, cell: Ints) -> Machine:
        """Return what a cluster's nodes are to a scan."""
        speed = np.where(cluster.usable, cluster.nodes.speed, 0.0)
        power = np.rint(speed * SPEED_UNITS).astype(np.int64)
        common = int(np.gcd.reduce(power)) or 1
        order = np.argsort(cell)
        rank = np.empty(len(cell), np.int64)
        rank[order] = np.arange(len(cell))
        masks = [cluster.partitions[name] for name in sorted(cluster.partitions)]
        usable = [order[(power[order] > 0) & mask[order]] for mask in masks]
        pools = (*usable, order[power[order] > 0])
        return cls(power // common, common / SPEED_UNITS, rank, pools)

    def members(self, pool: int) -> Ints:
        """Return the usable nodes of a pool in order of their cells."""
        return self.pools[pool if pool >= 0 else -1]


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
    nobody, idle = np.full(n, -1, np.int64), np.full(n, -np.inf)
    return Queues(shape, cell.astype(np.int64), nobody, idle, np.empty((0, 6), np.int64))


def rows_of(jobs: Jobs, cluster: Cluster, no_limit: float, usual_bytes: int) -> Ints:
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
    """
    names = sorted(cluster.partitions)
    codes = [names.index(name) if name in names else -1 for name in jobs.names("partition")]
    rows = np.empty((len(jobs), 6), np.int64)
    rows[:, JOB], rows[:, SIZE] = jobs.id, np.maximum(jobs.size, 1)
    work = np.where(np.isfinite(jobs.wall_time), jobs.wall_time, no_limit)
    rows[:, WORK] = np.clip(np.ceil(work), 1, MOST_WORK)
    rows[:, BYTES] = np.where(jobs.process_bytes >= 0, jobs.process_bytes, usual_bytes)
    rows[:, POOL] = np.array([*codes, -1])[jobs.partition]
    pinned = jobs.pinned >= 0
    rows[:, NODE] = jobs.pinned
    rows[pinned, POOL] = STAYS
    return rows


def fixed_load(queues: Queues, machine: Machine, time: float) -> Ints:
    """Return int64[n]: units left of what runs on each node, by requested ends."""
    left = np.maximum(queues.busy_until - time, 0.0) * machine.power
    return np.minimum(np.ceil(left), MOST_WORK * SPEED_UNITS).astype(np.int64)


def queued_load(waiting: Ints, machine: Machine) -> Ints:
    """Return int64[n]: units that wait for each node.

    A job's first node counts even where it takes no jobs now. A job wider than its pool waits for
    nodes that are not there, so it is work of none.
    """
    load = np.zeros(len(machine.power), np.int64)
    pools = present(waiting[:, POOL])
    for pool in pools:
        rows = waiting if len(pools) == 1 else waiting[waiting[:, POOL] == pool]
        units = np.ceil(rows[:, WORK] / machine.unit)
        if pool == STAYS:
            load += _summed(rows[:, NODE], units, len(load))
            continue
        members = machine.members(pool)
        if (rows[:, SIZE] > len(members)).any():
            fits = rows[:, SIZE] <= len(members)
            rows, units = rows[fits], units[fits]
        first = first_place(rows, members, machine)
        behind = first + rows[:, SIZE]
        change = _summed(first, units, len(members) + 1) - _summed(behind, units, len(members) + 1)
        load[members] += np.cumsum(change)[:-1]
    return load


def movable(waiting: Ints, machine: Machine) -> NDArray[np.bool_]:
    """Return which jobs a scan may move: those that need not stay and fit into their pool."""
    room = np.array([len(pool) for pool in machine.pools])
    pool = waiting[:, POOL]
    stays = pool == STAYS
    return np.asarray(~stays & (waiting[:, SIZE] <= room[np.where(stays, -1, pool)]), np.bool_)


def present(values: Ints) -> list[int]:
    """Return which values there are, ascending; quick where they lie close together."""
    low = int(values.min(initial=0))
    return [low + at for at in np.flatnonzero(np.bincount(values - low)).tolist()]


def _summed(at: Ints, units: Floats, n: int) -> Ints:
    """Return int64[n]: the units at each place; exact up to 2^53."""
    return np.bincount(at, units, minlength=n).astype(np.int64)


def first_place(rows: Ints, members: Ints, machine: Machine) -> Ints:
    """Return where in a pool's nodes each job's first node stands, so that its size fits behind.

    A node that is no member stands for the next member; so jobs leave a node that went down.
    """
    before = np.zeros(len(machine.rank) + 1, np.int64)
    before[machine.rank[members] + 1] = 1
    at = np.cumsum(before)[machine.rank][rows[:, NODE]]
    return np.minimum(at, np.maximum(len(members) - rows[:, SIZE], 0))


def arrived(waiting: Ints, rows: Ints, fixed: Ints, machine: Machine) -> Ints:
    """Return `waiting` with jobs appended one by one, each for the nodes where it ends first."""
    load = fixed + queued_load(waiting, machine)
    rows = rows.copy()
    for row in rows:
        units = int(np.ceil(row[WORK] / machine.unit))
        if row[POOL] == STAYS:
            load[row[NODE]] += units
            continue
        members = machine.members(int(row[POOL]))
        size = int(row[SIZE])
        if size > len(members):
            row[NODE] = members[0] if len(members) else 0
            continue
        ends = (load[members] + units) / machine.power[members]
        first = int(np.argmin(latest(ends, size)))
        row[NODE] = members[first]
        load[members[first : first + size]] += units
    return np.concatenate([waiting, rows])


def latest(values: Floats, size: int) -> Floats:
    """Return the largest of each `size` neighbours: float64[m - size + 1].

    Largest values from the left and from the right within blocks of `size` (van Herk, 1992).
    """
    if size == 1:
        return values
    blocks = np.full((-(-len(values) // size), size), -np.inf)
    blocks.reshape(-1)[: len(values)] = values
    ahead = np.maximum.accumulate(blocks, axis=1).ravel()
    back = np.maximum.accumulate(blocks[:, ::-1], axis=1)[:, ::-1].ravel()
    count = len(values) - size + 1
    return np.maximum(back[:count], ahead[size - 1 : size - 1 + count])
