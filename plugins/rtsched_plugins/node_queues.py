"""Node queues, the state of psts: each waiting job's node, and until when nodes run.

A job is *for* a node, its first; it takes that node and the next ones of its pool in the order of
the grid's cells, as many as its size. A pool is a partition's nodes, or all nodes.

Where jobs share nodes by resources, a pool is the nodes that a job may use and that hold what it
asks for. Work is then counted by one resource at a time: see `by_resource` and `scarcest`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from rtsched.api import State, amounts_of, fitting_sets
from rtsched_plugins.kernels.scan_grid import neighbours, sides, walk
from rtsched_plugins.kernels.scans import MOST, scan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rtsched.api import Cluster, Jobs

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
_NONE: Ints = np.empty(0, np.int64)

JOB, NODE, SIZE, WORK, BYTES, POOL, AMOUNT = range(7)
"""Columns of `Queues.waiting`; from the last one on the amounts of resources."""
HELD_JOB, HELD_NODE, HELD_AMOUNT = range(3)
"""Columns of `Queues.held`; from the last one on the amounts of resources."""
STAYS = -2
"""POOL of a job that must run on its node."""
SPEED_UNITS = 1000
"""Speeds are counted in thousandths."""
MOST_WORK = 1 << 31
"""Seconds that a job counts for at most."""
MOST_STEPS = 1 << 12
"""Amounts are counted in steps, a power of 2, of which the largest node has at most so many."""


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


class Machine(NamedTuple):
    """The nodes as a scan sees them now.

    Attributes
    ----------
    power : int64[n]
        Units per second times `unit`; 0 where a node takes no job.
    common : int
        What a power of 1 does in `SPEED_UNITS` seconds.
    rank : int64[n]
        Each node's place in the order of cells.
    pools : bool[p, n]
        Which usable nodes, in order of their cells, are in each pool; the last one holds all.
    members, begin : int64[k], int64[p + 1]
        Those that have any power: of pool i `members[begin[i]:begin[i + 1]]`.
    before : int64[p, n]
        How many members of each pool come before each node.
    strength : int64[p]
        The power of all members of each pool.
    resource : int
        By which resource work is counted; -1: jobs have whole nodes.
    step : int
        In steps of how much its amounts are counted.
    pace : int64[n]
        What a step of it does in `SPEED_UNITS` seconds.
    """

    power: Ints
    common: int
    rank: Ints
    pools: Mask
    members: Ints = _NONE
    begin: Ints = _NONE
    before: Ints = _NONE
    strength: Ints = _NONE
    resource: int = -1
    step: int = 1
    pace: Ints = _NONE

    @classmethod
    def of(cls, cluster: Cluster, cell: Ints, sets: Mask | None = None) -> Machine:
        """Return what a cluster's whole nodes are to a scan.

        `sets` are the pools where jobs share nodes; else each partition is one.
        """
        speed = np.where(cluster.usable, cluster.nodes.speed, 0.0)
        power = np.rint(speed * SPEED_UNITS).astype(np.int64)
        order = np.argsort(cell)
        rank = np.empty(len(cell), np.int64)
        rank[order] = np.arange(len(cell))
        masks = [cluster.partitions[name] for name in sorted(cluster.partitions)]
        if cluster.shared:
            masks = [] if sets is None else list(sets)
        pools = np.array([*masks, np.ones(len(cell), np.bool_)])[:, order] & (power[order] > 0)
        return cls(power, 1, rank, pools).with_power(power)

    def with_power(self, power: Ints) -> Machine:
        """Return the machine with these powers, and the members that its pools have then."""
        common = int(np.gcd.reduce(power)) or 1
        power = power // common
        order = np.argsort(self.rank)
        inside = self.pools & (power[order] > 0)
        pool, place = np.nonzero(inside)
        members, begin = order[place], scan(np.bincount(pool, minlength=len(self.pools)))
        return self._replace(
            power=power,
            common=common,
            members=members,
            begin=begin,
            before=(np.cumsum(inside, axis=1) - inside)[:, self.rank],
            strength=np.diff(scan(power[members])[begin]),
        )

    @property
    def unit(self) -> float:
        """Return what a power of 1 does in a second."""
        return self.common / SPEED_UNITS

    def members_of(self, pool: int) -> Ints:
        """Return the usable nodes of a pool that have any power, in order of their cells."""
        last = len(self.begin) - 2
        pool = pool if pool >= 0 else last
        return self.members[self.begin[pool] : self.begin[pool + 1]]

    def steps(self, amounts: Ints) -> Ints:
        """Return amounts of the resource in steps, rounded up."""
        return np.minimum(-(-amounts // self.step), MOST_STEPS)

    def units(self, waiting: Ints) -> Floats:
        """Return float64[k]: the units of work of each job on each of its nodes."""
        work = waiting[:, WORK]
        if self.resource >= 0:
            work = work * self.steps(waiting[:, AMOUNT + self.resource])
        return np.ceil(work / self.unit)

    def rate(self, held: Ints) -> Floats:
        """Return float64[h]: the units that each running job does in a second on a node."""
        nodes = held[:, HELD_NODE]
        if self.resource < 0:
            return self.power[nodes].astype(np.float64)
        steps = self.steps(held[:, HELD_AMOUNT + self.resource])
        return np.asarray(steps * self.pace[nodes] / self.common)


def by_resource(machine: Machine, cluster: Cluster) -> tuple[Machine, ...]:
    """Return the machine as a scan by each resource sees it, in the cluster's order of resources.

    A node's power is what it has of the resource, times its speed, and a job's work is the amount
    that it takes, times its requested time. Whole nodes are seen in one way only.
    """
    if not cluster.shared:
        return (machine,)
    pace, seen = machine.power * machine.common, []
    for resource, capacity in enumerate(cluster.nodes.capacity.T):
        step = 1 << max((int(capacity.max(initial=0)) - 1) // MOST_STEPS, 0).bit_length()
        view = machine._replace(resource=resource, step=step, pace=pace)
        seen.append(view.with_power(pace * view.steps(capacity)))
    return tuple(seen)


class Views(NamedTuple):
    """The nodes with the pools of some queues: as whole nodes, and as a scan by each resource."""

    whole: Machine
    by_resource: tuple[Machine, ...]

    @classmethod
    def of(cls, queues: Queues, cluster: Cluster) -> Views:
        """Return what a cluster's nodes are to these queues."""
        whole = Machine.of(cluster, queues.cell, queues.sets)
        return cls(whole, by_resource(whole, cluster))


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


def fixed_load(queues: Queues, machine: Machine, time: float) -> Ints:
    """Return int64[n]: units left of what runs on each node, by requested ends.

    Without a requested end it is as much as a scan can count on all nodes.
    """
    n = len(machine.power)
    left = np.clip(queues.held_until - time, 0.0, MOST_WORK * SPEED_UNITS)
    units = np.ceil(left * machine.rate(queues.held))
    load = np.bincount(queues.held[:, HELD_NODE], units, minlength=n)
    return np.minimum(load, min(MOST_WORK * SPEED_UNITS, MOST // 2 // max(n, 1))).astype(np.int64)


def queued_load(waiting: Ints, machine: Machine) -> Ints:
    """Return int64[n]: units that wait for each node.

    A job's first node counts even where it takes no jobs now. A job wider than its pool waits for
    nodes that are not there, so it is work of none.
    """
    load = np.zeros(len(machine.power), np.int64)
    stays = waiting[:, POOL] == STAYS
    if stays.any():
        rows, waiting = waiting[stays], waiting[~stays]
        load += _summed(rows[:, NODE], machine.units(rows), len(load))
    pool, size = waiting[:, POOL], waiting[:, SIZE]
    fits = size <= np.diff(machine.begin)[pool]
    if not fits.all():
        waiting, pool, size = waiting[fits], pool[fits], size[fits]
    units, places = machine.units(waiting), len(machine.members)
    first = machine.begin[:-1][pool] + first_place(waiting, machine)
    change = _summed(first, units, places + 1) - _summed(first + size, units, places + 1)
    np.add.at(load, machine.members, np.cumsum(change)[:-1])
    return load


def movable(waiting: Ints, machine: Machine) -> NDArray[np.bool_]:
    """Return which jobs a scan may move: those that need not stay and fit into their pool."""
    room = np.count_nonzero(machine.pools, axis=1)
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


def first_place(rows: Ints, machine: Machine) -> Ints:
    """Return where in its pool each job's first node stands, so that its size fits behind.

    A node that is no member stands for the next member; so jobs leave a node that went down.
    """
    pool = rows[:, POOL]
    last = np.diff(machine.begin)[pool] - rows[:, SIZE]
    return np.minimum(machine.before[pool, rows[:, NODE]], np.maximum(last, 0))


def arrived(waiting: Ints, rows: Ints, load: Ints, machine: Machine) -> Ints:
    """Return `waiting` with jobs appended one by one, each for the nodes where it ends first.

    `load` is int64[n], the units that run and wait on each node before.
    """
    load = load.copy()
    rows = rows.copy()
    for row, units in zip(rows, machine.units(rows).astype(np.int64).tolist(), strict=True):
        if row[POOL] == STAYS:
            load[row[NODE]] += units
            continue
        members = machine.members_of(int(row[POOL]))
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


class Loads:
    """The units that run and wait on each node by each resource at one time, worked out when used.

    A view is the machine as a scan by one resource sees it.
    """

    def __init__(self, queues: Queues, views: Sequence[Machine], time: float) -> None:
        self.queues, self.views, self.time = queues, views, time
        self._known: dict[int, Ints] = {}

    def __getitem__(self, at: int) -> Ints:
        """Return int64[n] by one resource."""
        if at not in self._known:
            fixed = fixed_load(self.queues, self.views[at], self.time)
            self._known[at] = fixed + queued_load(self.queues.waiting, self.views[at])
        return self._known[at]

    def add(self, rows: Ints) -> None:
        """Let more jobs wait."""
        waiting = np.concatenate([self.queues.waiting, rows])
        self.queues = replace(self.queues, waiting=waiting)
        for at, load in self._known.items():
            self._known[at] = load + queued_load(rows, self.views[at])


def queued(queues: Queues, rows: Ints, views: Sequence[Machine], time: float) -> Ints:
    """Return the waiting jobs with these appended, each by the resource that is scarcest then."""
    loads = Loads(queues, views, time)
    if len(views) == 1:
        return arrived(queues.waiting, rows, loads[0], views[0])
    for at in range(len(rows)):
        row = rows[at : at + 1]
        by = int(scarcest(row, loads)[0][0])
        loads.add(arrived(row[:0], row, loads[by], views[by]))
    return loads.queues.waiting


def scarcest(rows: Ints, loads: Loads) -> tuple[Ints, Floats]:
    """Return by which resource each job's work counts, and how scarce it is.

    Of the resources that it asks for, that is the one by which the nodes of its pool need longest,
    at full power, for the work of all jobs that run or wait there; of equal ones the first in the
    cluster's order.

    Returns
    -------
    int64[k], float64[k]
        The resource, and the seconds that the nodes need.
    """
    asked, pool = rows[:, AMOUNT:] > 0, np.maximum(rows[:, POOL], -1)
    seconds = np.full(asked.shape, -1.0)
    for at in np.flatnonzero(asked.any(axis=0)).tolist():
        view = loads.views[at]
        total = np.diff(scan(loads[at][view.members])[view.begin])
        seconds[:, at] = (total / np.maximum(view.strength, 1))[pool]
    seconds[~asked] = -1.0
    resource = np.argmax(seconds, axis=1)
    return resource, seconds[np.arange(len(rows)), resource]
