"""Map parallel jobs to unequal nodes that they may share: who runs where, and who moves.

One `Mapping` is made for one answer. It begins with what the snapshot shows, and each method that
decides something changes it, so that the next decision sees the one before.

Where nodes are shared by resources (`RoomMapping`), a process has its cores, memory and GPUs to
itself: only the speed of its node and foreign processes delay it. The delay classes are then the
nodes of like delay on which there is room for one more process of the job, one to a node.

References
----------
Schnor, Petri, Oleyniczak, Langendoerfer, 1996 (PDCS), sections 3 and 4; 3 without time sharing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.api import (
    Kind,
    NodeState,
    Placement,
    Ragged,
    Schedule,
    allowed_nodes,
    demand_of,
    fitting_sets,
    room_of,
)
from rtsched.kernels.delays import MigrationCost, delay, migration_pause, slowest
from rtsched_plugins.kernels.delay_classes import (
    availability,
    choose_class,
    take,
    thresholds,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rtsched.api import Cluster, Jobs, Snapshot

    Nodes = NDArray[np.int32]
    Mask = NDArray[np.bool_]
    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


class Occasion(NamedTuple):
    """What may move."""

    upgrade: bool
    """Jobs may adapt when the load of their nodes has fallen."""
    away: bool
    """Jobs may leave nodes that were shut down or that have become slower."""
    ahead: bool
    """All jobs may move to faster nodes."""
    cost: MigrationCost | None = None
    """A job moves only if that pays, with this cost; None: wherever it becomes faster."""


def moves(mapping: Mapping, snapshot: Snapshot, occasion: Occasion) -> tuple[Schedule | None, bool]:
    """Return what moves, and whether a job migrates.

    One job migrates at a time: whoever may be next must be asked when that has happened, and before
    it the upgrades. Jobs are tried in the order of their starts, then ids. A job on a node that was
    shut down goes wherever there is room for it.
    """
    gained = mapping.upgrade() if occasion.upgrade else np.empty(0, np.int64)
    adapting = [(row, mapping.nodes_of(row)) for row in gained.tolist()]
    if adapting or not (occasion.away or occasion.ahead):
        return _schedule(adapting, snapshot), False
    migrating = _first_to_migrate(mapping, snapshot, occasion)
    if migrating is None:
        return None, False
    gained = mapping.upgrade() if occasion.upgrade else gained
    others = [(row, mapping.nodes_of(row)) for row in gained.tolist() if row != migrating[0]]
    return _schedule([migrating, *others], snapshot), True


def _first_to_migrate(
    mapping: Mapping, snapshot: Snapshot, occasion: Occasion
) -> tuple[int, Nodes] | None:
    """Move the first job that may move and for which there are better nodes; return both."""
    down = np.equal(snapshot.cluster.nodes.state, NodeState.DOWN)
    present, forced = mapping.present(), np.zeros(len(mapping.delay), np.bool_)
    if down.any():
        forced = slowest(np.where(down, 2.0, 1.0), mapping.indptr, mapping.nodes) > 1.0
    below = np.where(forced, np.inf, np.maximum(mapping.delay, present))
    may = forced | occasion.ahead | (present > mapping.delay)
    if not mapping.field.shared:
        may &= snapshot.running.checkpoints
    may &= below > mapping.field.bounds[:1].min(initial=np.inf)
    if may.any():
        may &= below > mapping.factors[mapping.usable()].min(initial=np.inf)
    rows = np.flatnonzero(may)
    if not len(rows):
        return None
    job, start = snapshot.running.id, snapshot.allocations.entries.start
    requests = Requests(snapshot.running, snapshot.cluster)
    for row in rows[np.lexsort((job[rows], start[rows]))].tolist():
        nodes, slowed = mapping.better(row, requests.allowed(row))
        own = mapping.nodes_of(row)
        if len(nodes) < len(own) or slowed >= below[row] or np.isin(nodes, own).all():
            continue
        if forced[row] or _pays(snapshot, row, own, nodes, slowed / below[row], occasion.cost):
            mapping.move(row, nodes, slowed)
            return row, nodes
    return None


def _pays(
    snapshot: Snapshot, row: int, own: Nodes, nodes: Nodes, ratio: float, cost: MigrationCost | None
) -> bool:
    """Return whether a job ends sooner, by its requested time, if it pauses to move.

    `ratio` is the new delay over the old one.
    """
    if cost is None:
        return True
    rest = float(snapshot.allocations.entries.end[row]) - snapshot.now
    moved = int(np.count_nonzero(~np.isin(nodes, own)))
    pause = migration_pause(cost, moved, int(snapshot.running.process_bytes[row]))
    return rest == np.inf or rest > pause + rest * ratio


def _schedule(moved: list[tuple[int, Nodes]], snapshot: Snapshot) -> Schedule | None:
    """Return moves as a schedule whose entries take effect now."""
    if not moved:
        return None
    rows = np.array([row for row, _ in moved], np.int64)
    now = np.full(len(rows), snapshot.now)
    nodes = Ragged.of([nodes for _, nodes in moved])
    return Schedule.build(snapshot.running.id[rows], now, now, *nodes)


class Requests:
    """The wishes of `n` jobs on `m` nodes.

    Attributes
    ----------
    order : int64[n]
        Rows by (submit, id).
    min_size, max_size : int32[n]
        Fewest and most nodes; `size` for rigid jobs and where nothing else is said.
    group : int64[n]
        Jobs of one group may use the same nodes.
    nodes : tuple of bool[m]
        The nodes of each group: those which its jobs may use, or the one that they are pinned to.
        Where jobs share nodes, those that hold what they ask for.
    fits : bool[n]
        Whether the job's group has `min_size` nodes.
    """

    def __init__(self, jobs: Jobs, cluster: Cluster) -> None:
        self.order = np.lexsort((jobs.id, jobs.submit))
        bends = jobs.kind != Kind.RIGID
        self.min_size = np.where(bends & (jobs.size_min > 0), jobs.size_min, jobs.size)
        self.max_size = np.where(bends & (jobs.size_max > 0), jobs.size_max, jobs.size)
        self.max_size = np.maximum(self.max_size, self.min_size)
        self.group, self.nodes = (_by_fit if cluster.shared else _by_request)(jobs, cluster)
        counts = np.array([mask.sum() for mask in self.nodes], np.int64)
        self.fits = self.min_size <= counts[self.group]

    def allowed(self, row: int) -> Mask:
        """Return bool[m]: the nodes that a job may use."""
        return self.nodes[int(self.group[row])]


def _by_fit(jobs: Jobs, cluster: Cluster) -> tuple[NDArray[np.int64], tuple[Mask, ...]]:
    """Return each job's group, and the nodes of each on which its jobs fit."""
    group, sets = fitting_sets(jobs, cluster)
    return group.astype(np.int64), tuple(sets)


def _by_request(jobs: Jobs, cluster: Cluster) -> tuple[NDArray[np.int64], tuple[Mask, ...]]:
    """Return each job's group, and the nodes of each, whole ones."""
    code, masks = allowed_nodes(jobs, cluster)
    keys, group = _groups(code, jobs.pinned)
    every: Mask = np.ones(len(cluster), np.bool_)
    sets = (*masks, every)  # the last serves code -1
    return group, tuple(_members(sets[at], pinned) for at, pinned in keys)


def _groups(
    code: NDArray[np.int32], pinned: NDArray[np.int32]
) -> tuple[list[tuple[int, int]], NDArray[np.int64]]:
    """Return the distinct pairs of allowed nodes and pinned node, and each job's pair."""
    if not ((code >= 0).any() or (pinned >= 0).any()):
        return [(-1, -1)], np.zeros(len(code), np.int64)
    keys, group = np.unique(np.stack([code, pinned], axis=1), axis=0, return_inverse=True)
    return [(int(at), int(node)) for at, node in keys], group.ravel()


def _members(members: Mask, pinned: int) -> Mask:
    if pinned >= 0:
        members = np.logical_and(members, np.arange(len(members)) == pinned)
    return members


class Field(NamedTuple):
    """The nodes, `m` of them."""

    alpha: Floats
    """Slowness of each, >= 1."""
    bounds: Floats
    """The delay classes, ascending."""
    open: Mask
    """Which take new processes."""
    foreign: Floats
    """Runnable processes on each that belong to no job."""
    shared: bool = True
    """Whether a node may run processes of several jobs."""


class Mapping:
    """Who runs where, as one answer changes it.

    Parameters
    ----------
    field : Field
        The nodes.
    indptr, nodes : int64[r + 1], int32[k]
        Running job `i` has the nodes `nodes[indptr[i]:indptr[i + 1]]`.

    Attributes
    ----------
    delay : float64[r]
        Delay of each running job (paper: D): at first the one that the load of its nodes makes.
    """

    def __init__(self, field: Field, indptr: NDArray[np.int64], nodes: Nodes) -> None:
        self.field, self.indptr, self.nodes = field, indptr, nodes
        self._load = field.foreign + np.bincount(nodes, minlength=len(field.alpha))
        self._delays = delay(field.alpha, 1.0 + self._load)
        self.delay = self.present()
        self._limit: Floats | None = None

    def record(self, delays: Floats) -> None:
        """Take `delays` for the running jobs' recorded ones, float64[r]."""
        self.delay, self._limit = delays, None

    def nodes_of(self, row: int) -> Nodes:
        """Return the nodes of one running job."""
        return self.nodes[self.indptr[row] : self.indptr[row + 1]]

    def present(self) -> Floats:
        """Return float64[r]: the delay that each running job has by the load of its nodes."""
        return slowest(delay(self.field.alpha, self._load), self.indptr, self.nodes)

    @property
    def factors(self) -> Floats:
        """Return float64[m]: the delay of a new process (paper: d), inf where none may come."""
        return np.where(self._free(), self._delays, np.inf)

    def usable(self) -> Mask:
        """Return bool[m]: the nodes on which a new process would slow nobody."""
        if self._limit is None:
            self._limit = self._limits(self.delay)
        return self._free() & (self._delays <= self._limit)

    def available(self) -> NDArray[np.int64]:
        """Return int64[c]: how many usable nodes have at most the delay of each class."""
        return availability(self._delays[self.usable()], self.field.bounds)

    def upgrade(self) -> NDArray[np.int64]:
        """Let delays fall to what the load has become; return the rows of the jobs that gain."""
        present = self.present()
        rows = np.flatnonzero(present < self.delay)
        if len(rows):
            self.record(np.minimum(present, self.delay))
        return rows

    def place(self, least: int, most: int, allowed: Mask) -> Nodes | None:
        """Map a job of `least` to `most` processes; return its nodes, None if it must wait.

        What it takes is taken for later calls of this method; call the others before.
        """
        nodes = mapped(self.usable() & allowed, self._delays, self.field.bounds, least, most)
        if nodes is None or self._limit is None:
            return None
        self._limit[nodes] = np.minimum(self._limit[nodes], self._delays[nodes].max())
        self._load[nodes] += 1.0
        self._delays[nodes] = delay(self.field.alpha[nodes], 1.0 + self._load[nodes])
        return nodes

    def better(self, row: int, allowed: Mask) -> tuple[Nodes, float]:
        """Return the fastest nodes for a running job, as if it did not run, and its delay there.

        There are fewer nodes than it has processes if no more are usable.
        """
        own = self.nodes_of(row)
        delays = self._delays.copy()
        delays[own] = delay(self.field.alpha[own], self._load[own])
        others = self.delay.copy()
        others[row] = np.inf
        usable = self._free(own) & allowed & (delays <= self._limits(others))
        nodes = take(usable, delays, len(own))
        return nodes, float(delays[nodes].max(initial=0.0))

    def move(self, row: int, nodes: Nodes, slowed: float) -> None:
        """Have a running job run on `nodes` with delay `slowed`."""
        own, delays = self.nodes_of(row), self.delay.copy()
        self._load[own] -= 1.0
        self._load[nodes] += 1.0
        self._delays = delay(self.field.alpha, 1.0 + self._load)
        self.nodes = self.nodes.copy()
        self.nodes[self.indptr[row] : self.indptr[row + 1]] = nodes
        delays[row] = slowed
        self.record(delays)

    def _free(self, own: Nodes | None = None) -> Mask:
        """Return which nodes take new processes; of nodes not shared, the idle ones and `own`."""
        if self.field.shared:
            return self.field.open
        idle = self._load < self.field.foreign + 0.5
        if own is not None:
            idle[own] = True
        return np.logical_and(self.field.open, idle)

    def _limits(self, delays: Floats) -> Floats:
        """Return each node's threshold (paper: s), from the running jobs' delays."""
        highest = float(self.field.bounds[-1]) if len(self.field.bounds) else 0.0
        per_process = np.repeat(delays, np.diff(self.indptr))
        return thresholds(len(self.field.alpha), highest, self.nodes, per_process)


class RoomMapping:
    """What nodes have left, as one answer gives it away.

    Parameters
    ----------
    field : Field
        The `m` nodes.
    snapshot : Snapshot
        Who runs where.

    Attributes
    ----------
    delays : float64[m]
        Delay of a process on each node (paper: d), whoever else runs there.
    delay : float64[r]
        Delay of each running job (paper: D).
    """

    def __init__(self, field: Field, snapshot: Snapshot) -> None:
        held = snapshot.allocations
        self.field = field
        self.delays = delay(field.alpha, 1.0 + field.foreign)
        self.delay = slowest(self.delays, held.indptr, held.nodes)
        self._room = room_of(snapshot.cluster)
        taken = demand_of(snapshot.running, snapshot.cluster)
        self._take(held.nodes, taken[held.ragged.rows()], taken.sum(axis=0))

    @property
    def factors(self) -> Floats:
        """Return float64[m]: the delay of a new process, inf where none may come."""
        return np.where(self.field.open, self.delays, np.inf)

    def holds(self, demand: Ints) -> Mask:
        """Return bool[m]: the nodes that take new processes and have room for one of this demand.

        None has if there are too few licences.
        """
        m, fits = len(self.delays), np.all(self._room >= demand, axis=1)
        return np.asarray(fits[:m] & self.field.open & fits[m:].all(), np.bool_)

    def place(self, least: int, most: int, allowed: Mask, demand: Ints) -> Nodes | None:
        """Map a job of `least` to `most` processes; return its nodes, None if it must wait.

        What it takes is taken for later calls.

        Parameters
        ----------
        least, most : int
            Processes, one on a node.
        allowed : bool[m]
            The nodes that it may use.
        demand : int64[r]
            What each process takes, as in `demand_of`.
        """
        usable = allowed & self.holds(demand)
        nodes = mapped(usable, self.delays, self.field.bounds, least, most)
        if nodes is not None:
            self._take(nodes, demand, demand)
        return nodes

    def _take(self, nodes: Nodes, demand: Ints, licenses: Ints) -> None:
        """Take amounts from nodes, and licences from what there is of them."""
        m = len(self.delays)
        np.subtract.at(self._room[:m], nodes, demand)
        self._room[m:] -= licenses


def mapped(usable: Mask, delays: Floats, bounds: Floats, least: int, most: int) -> Nodes | None:
    """Return the nodes of a job of `least` to `most` processes, None if it must wait.

    Parameters
    ----------
    usable : bool[m]
        The nodes that it may have.
    delays : float64[m]
        Delay of a new process on each.
    bounds : float64[c]
        The delay classes, ascending.
    least, most : int
    """
    available = availability(delays[usable], bounds)
    chosen = choose_class(available, bounds, least, most)
    if chosen < 0:
        return None
    return take(usable & (delays <= bounds[chosen]), delays, min(int(available[chosen]), most))


NOWHERE = np.empty(0, np.int32)


def placed(mapping: Mapping, requests: Requests, moves: Schedule | None) -> Placement:
    """Map jobs head first until one must wait; its node set is empty, and it holds up the rest.

    There is no opinion on the jobs behind it, and on those that no idle machine has room for.
    """
    n = len(requests.order)
    size, node_set = np.zeros(n, np.int32), np.full(n, -1, np.int32)
    sets: list[Nodes] = []
    for row in requests.order[requests.fits[requests.order]].tolist():
        nodes = mapping.place(
            int(requests.min_size[row]), int(requests.max_size[row]), requests.allowed(row)
        )
        node_set[row] = len(sets)
        sets.append(NOWHERE if nodes is None else nodes)
        if nodes is None:
            break
        size[row] = len(nodes)
    return Placement(size, node_set, tuple(sets), moves=moves)


def waiting(requests: Requests, moves: Schedule | None) -> Placement:
    """Have the head of the queue wait, and with it the rest."""
    n = len(requests.order)
    node_set = np.full(n, -1, np.int32)
    node_set[requests.order[requests.fits[requests.order]][:1]] = 0
    return Placement(np.zeros(n, np.int32), node_set, (NOWHERE,), moves=moves)


def preferred(
    mapping: Mapping, requests: Requests, jobs: Jobs, moves: Schedule | None
) -> Placement:
    """Have all jobs prefer the fastest nodes, and give moldable ones a size.

    The sizes are those with which they would be mapped now, one after the other in order of
    (submit, id); a job that would have to wait gets its least size.
    """
    left = int(mapping.usable().sum())

    def place(row: int, least: int, most: int) -> Nodes | None:
        nonlocal left
        if left < least:
            return None
        nodes = mapping.place(least, most, requests.allowed(row))
        left -= 0 if nodes is None else len(nodes)
        return nodes

    return _with_sizes(mapping.field, requests, jobs, place, moves)


def preferred_with_room(
    mapping: RoomMapping, requests: Requests, jobs: Jobs, cluster: Cluster
) -> Placement:
    """Answer as `preferred` does where jobs share nodes by resources."""
    demand = demand_of(jobs, cluster)

    def place(row: int, least: int, most: int) -> Nodes | None:
        return mapping.place(least, most, requests.allowed(row), demand[row])

    return _with_sizes(mapping.field, requests, jobs, place, None)


def _with_sizes(
    field: Field,
    requests: Requests,
    jobs: Jobs,
    place: Callable[[int, int, int], Nodes | None],
    moves: Schedule | None,
) -> Placement:
    """Return the fastest nodes for all jobs, and sizes for moldable ones.

    `place(row, least, most)` maps a job now; it returns None if the job must wait.
    """
    n = len(jobs)
    size = np.zeros(n, np.int32)
    sets = tuple(_ranked(field, allowed) for allowed in requests.nodes)
    widest = np.array([len(nodes) for nodes in sets], np.int64)[requests.group]
    fits = requests.min_size <= widest
    bends = fits & (jobs.kind != Kind.RIGID)
    size[bends] = requests.min_size[bends]
    for row in requests.order[bends[requests.order]].tolist():
        most = min(int(requests.max_size[row]), int(widest[row]))
        nodes = place(row, int(requests.min_size[row]), most)
        if nodes is not None:
            size[row] = len(nodes)
    return Placement(size, np.where(fits, requests.group, -1).astype(np.int32), sets, moves=moves)


def _ranked(field: Field, allowed: NDArray[np.bool_]) -> Nodes:
    """Return the allowed nodes that take jobs, the least delayed first, then by index."""
    idle = delay(field.alpha, 1.0 + field.foreign)
    usable = field.open & allowed & (idle <= field.bounds[-1:].max(initial=0.0))
    nodes = np.flatnonzero(usable).astype(np.int32)
    return nodes[np.argsort(idle[nodes], kind="stable")]
