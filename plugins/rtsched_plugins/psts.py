"""Queues of nodes, balanced by positional scans: PSTS.

Each waiting job is *for* a node, its first; it takes that node and the next ones of its pool in the
order of the grid's cells, as many as its size. A pool is a partition's nodes, or all nodes. A job
that arrives goes where it would end first; when a job comes or goes and the queues have become
uneven enough to pay for it, a positional scan over the grid of nodes moves waiting jobs. Running
and pinned jobs stay; they lessen what their nodes get.

Which node a job is for is a wish: it is taken first, then the next ones. With `strict` it is a bond
for jobs of one node, which holds as long as no node is idle that nobody waits for. Wide jobs are
never bound: all their nodes would have to come free together.

Where jobs share nodes by resources, a pool is the nodes that a job may use and that hold what it
asks for. Work is then counted by the scarcest resource: see `kernels.node_queues`.

References
----------
Savvas and Kechadi: Dynamic Task Scheduling in Computing Cluster Environments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import msgspec
import numpy as np
from msgspec import Meta
from msgspec.structs import replace
from numpy.typing import NDArray

from rtsched.api import (
    Capabilities,
    EventKind,
    Placement,
    PreparedState,
    Ragged,
    ShapeError,
    State,
    allowed_nodes,
    amounts_of,
    are_in,
    fitting_sets,
    hookimpl,
)
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
    NodeQueues,
    ScannedNodes,
    count_all,
    enter_queue,
    members_in,
    node_set_keys,
    observe_queues,
    steps_of,
)
from rtsched_plugins.kernels.scan_grid import link_costs, neighbours, overhead, sides, walk
from rtsched_plugins.kernels.scans import FIRST, INDEX, MAJORITY, MOST, PROPORTIONAL, scan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rtsched.api import Accounts, Cluster, Events, Jobs, Snapshot

_Ints = NDArray[np.int64]
_Floats = NDArray[np.float64]
_Mask = NDArray[np.bool_]

JOB, NODE, SIZE, WORK, BYTES, POOL, AMOUNT = range(7)
"""Columns of `Queues.waiting`; from the last one on the amounts of resources."""
_SPEED_UNITS = 1000
"""Speeds are counted in thousandths."""
_MOST_WORK = 1 << 31
"""Seconds that a job counts for at most."""


class Queues(State, frozen=True):
    """Node queues, and the grid that they are balanced on; `n` nodes, `r` resources.

    `waiting` is int64[k, 6 + r], one row per waiting job in the order of arrival: job id, first
    node, size, seconds of work per node, bytes to move per node, pool, and what it takes of each
    resource on each node. The pool is a row of `sets`, -1 for all nodes, -2 for a job that must
    stay.
    """

    version: ClassVar[int] = 3

    shape: tuple[int, ...]
    cell: _Ints
    resources: tuple[str, ...]
    """Names of resources, where jobs share nodes."""
    sets: _Mask
    """bool[p, n], the nodes of each pool; those of fewest nodes first."""
    held: _Ints
    """int64[h, 2 + r]: job, node and amounts, one row per node of each job that runs."""
    held_until: _Floats
    """float64[h]: the requested ends of these."""
    waiting: _Ints
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


def rows_of(jobs: Jobs, cluster: Cluster, no_limit: float, usual_bytes: int) -> tuple[_Ints, _Mask]:
    """Return the rows of `Queues.waiting` for jobs that are for no node yet, NODE -1.

    Parameters
    ----------
    jobs : Jobs
        In any order.
    cluster : Cluster
        For the partitions and node sets.
    no_limit : float
        Run time assumed for jobs that request none, seconds.
    usual_bytes : int
        Bytes of a process that does not say its size.

    Returns
    -------
    int64[k, 6 + r], bool[p, n]
        The rows, and the sets of nodes that their pools are rows of.
    """
    pools, masks = (fitting_sets if cluster.shared else allowed_nodes)(jobs, cluster)
    sets = np.array(masks, np.bool_).reshape(-1, len(cluster))
    amounts = np.empty((len(jobs), 0), np.int64)
    if cluster.shared:
        amounts = _amounts(jobs, cluster, pools, sets)
    rows = np.empty((len(jobs), AMOUNT + amounts.shape[1]), np.int64)
    rows[:, JOB], rows[:, SIZE] = jobs.id, np.maximum(jobs.size, 1)
    work = np.where(np.isfinite(jobs.wall_time), jobs.wall_time, no_limit)
    rows[:, WORK] = np.clip(np.ceil(work), 1, _MOST_WORK)
    rows[:, BYTES] = np.where(jobs.process_bytes >= 0, jobs.process_bytes, usual_bytes)
    rows[:, POOL], rows[:, AMOUNT:] = pools, amounts
    pinned = jobs.pinned >= 0
    rows[:, NODE] = jobs.pinned
    rows[pinned, POOL] = STAYS
    return rows, sets


def _amounts(jobs: Jobs, cluster: Cluster, pools: NDArray[np.int32], sets: _Mask) -> _Ints:
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


def gathered(queues: Queues, rows: _Ints, sets: _Mask) -> tuple[Queues, _Ints]:
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


def _without_unused(queues: Queues) -> Queues:
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


def _moved_to(rows: _Ints, place: _Ints) -> _Ints:
    """Return rows whose pools are at other places now."""
    rows, pools = rows.copy(), rows[:, POOL]
    rows[:, POOL] = np.where(pools >= 0, np.append(place, 0)[np.maximum(pools, -1)], pools)
    return rows


def machine_of(cluster: Cluster, shape: tuple[int, ...], cell: _Ints, sets: _Mask) -> ScannedNodes:
    """Return what a cluster's nodes, with these pools, are to a scan on this grid."""
    pace = np.rint(np.where(cluster.usable, cluster.nodes.speed, 0.0) * _SPEED_UNITS)
    pace, order = pace.astype(np.int64), np.argsort(cell)
    capacity = np.zeros((len(cell), 0), np.int64)
    if cluster.shared:
        capacity = np.array(cluster.nodes.capacity, np.int64)
    most = capacity.max(axis=0, initial=0).tolist()
    step = np.array([1 << max((m - 1) // MOST_STEPS, 0).bit_length() for m in most], np.int64)
    powers = np.concatenate([pace * steps_of(capacity, step).T, pace[None]])
    common = np.maximum(np.gcd.reduce(powers, axis=1), 1)
    powers = np.ascontiguousarray(powers // common[:, None])
    pools = np.array([*sets, np.ones(len(cell), np.bool_)])[:, order]
    inside = (pools & (powers[:, None, order] > 0)).reshape(-1, len(cell))
    pool, place = np.nonzero(inside)
    before = np.empty(inside.shape, np.int64)
    before[:, order] = np.cumsum(inside, axis=1) - inside
    begin = scan(np.bincount(pool, minlength=len(inside)))
    views = max(len(step), 1)
    grid = cell.astype(np.int64), np.array(shape, np.int64)
    return ScannedNodes(
        powers, common[:views], pace, step, capacity, order[place], begin, before, *grid
    )


def opened(
    queues: Queues,
    rows: _Ints,
    jobs: Jobs,
    machine: ScannedNodes,
    link_cost: _Floats,
    terms: Sequence[float],
    choices: Sequence[int],
    most_held: int,
) -> tuple[NodeQueues, _Ints]:
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
    most_seconds = float(_MOST_WORK * _SPEED_UNITS)
    by_view = (len(machine.common), m)
    q = NodeQueues(
        machine=machine,
        job=table[:, JOB].copy(),
        size=table[:, SIZE].copy(),
        pool=table[:, POOL].copy(),
        units=np.ceil(work / (machine.common[:, None] / _SPEED_UNITS)).astype(np.int64),
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


def closed(queues: Queues, q: NodeQueues, table: _Ints) -> Queues:
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
    return _without_unused(
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


ASKS = (EventKind.ARRIVED, EventKind.STARTED)
"""What a job asks for matters to these."""
RULES = {"majority": MAJORITY, "first": FIRST}
LEAVES = {"index": INDEX, "proportional": PROPORTIONAL}
MOST_LISTED = 1 << 24
"""Nodes in all node sets of a replay together, at most."""
NOT_KNOWN = np.empty(0, np.int32)
MOST_SETS = 512
"""Node sets of all nodes in different orders, at most; more nodes share a first one."""


class Psts:
    """Give every waiting job a node, and even out the nodes' queues by positional scans."""

    class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Settings."""

        binding: Literal["soft", "strict"] = "soft"
        """`soft`: a job prefers its own nodes, then the nearest ones. `strict`: a single-node job
        waits for its own node, unless a node is idle for which no job waits."""
        dimension: Annotated[int, Meta(ge=0)] = 2
        """Dimensions of the grid of nodes where the cluster defines none; 0: log2 of the number of
        nodes, the best."""
        tasks: Literal["majority", "first"] = "majority"
        """A job whose work a scan splits goes to the node with most of it, or with its first
        unit."""
        leave: Literal["index", "proportional"] = "index"
        """Which work leaves an overloaded row: that at its ends, or the same fraction from every
        node, which whole jobs cannot follow well."""
        comm_step: Annotated[float, Meta(ge=0)] = 1.0
        """Seconds of one communication step of a scan."""
        comp_step: Annotated[float, Meta(ge=0)] = 1.0
        """Seconds of one computing step of a scan."""
        least_imbalance: Annotated[float, Meta(ge=0)] = 0.05
        """No scan is made where the makespan exceeds the ideal by less than this fraction."""
        bandwidth: Annotated[float, Meta(ge=0)] = 0.0
        """Bandwidth of links that the topology does not give, bytes per second; 0: moving a waiting
        job takes no time."""
        job_bytes: Annotated[int, Meta(ge=0)] = 0
        """Bytes to move per node for jobs that do not state them."""
        no_limit: Annotated[float, Meta(gt=0)] = 86400.0
        """Run time assumed for jobs that request none, seconds."""

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or self.Config()
        self.capabilities = Capabilities(
            places_resources=True, compiled_policy=self.compiled_policy
        )

    def compiled_policy(
        self,
        jobs: Jobs,
        accounts: Accounts,  # noqa: ARG002 - the order is others' matter
        cluster: Cluster,
        origin: float,
    ) -> NodeQueues | None:
        """Return the queues of these jobs before the first arrives, for a replay's loop.

        None where jobs share nodes, no node takes jobs, numbers would not be exact, or the node
        sets would be too large.
        """
        if cluster.shared:
            return None
        queues = empty(cluster, self.config.dimension)
        queues, rows = gathered(queues, *self._rows(jobs, cluster))
        q, _ = self._opened(queues, rows, jobs, cluster, PreparedState(), len(cluster))
        work = float((q.units * q.size.astype(np.float64)).sum())
        if not q.machine.power.any() or work > MOST // 2:
            return None
        keys, listed, m = list[int](), 0, len(cluster)
        for pool in range(len(q.machine.before)):
            count, begin = len(members_in(q.machine, 0, pool)), pool * 2 * m
            step = max(-(-count // MOST_SETS), 1)
            keys += range(begin + m, begin + m + count, step)
            listed += len(range(0, count, step)) * count
            if self.config.binding == "strict":
                keys += range(begin, begin + count)
        if listed > MOST_LISTED:
            return None
        set_of = np.full(len(q.machine.before) * 2 * m, -1, np.int64)
        set_of[keys] = np.arange(len(keys))
        sets = Ragged.of(_node_sets(q.machine, keys))
        return q._replace(origin=float(origin), set_of=set_of, node_sets=sets)

    @hookimpl
    def rtsched_observe(
        self, events: Events, snapshot: Snapshot, state: Queues | None, prepared: PreparedState
    ) -> Queues | None:
        """Keep the queues; balance them when a job came or went, if that pays then.

        Started jobs run on the nodes that the snapshot gives; where it does not know a job any
        more, on those that the job was for. Promised jobs start as their plan says.
        """
        if not len(events):
            return None
        cluster, running = snapshot.cluster, snapshot.running.id
        queues = self._queues(state, cluster)
        planned = are_in(queues.waiting[:, JOB], snapshot.plan.entries.job)
        if planned.any():
            queues = replace(queues, waiting=queues.waiting[~planned])
        asks = np.flatnonzero(np.isin(events.rows.kind, ASKS))
        rows = np.zeros((len(events), queues.waiting.shape[1]), np.int64)
        rows[:, JOB] = events.jobs.id
        if len(asks):
            found = self._rows(events.jobs.take(asks), cluster)
            queues, rows[asks] = gathered(queues, *found)
        kinds, nodes = events.rows.kind.tolist(), [NOT_KNOWN] * len(events)
        for at in np.flatnonzero(events.rows.kind == EventKind.STARTED).tolist():
            runs = np.flatnonzero(running == events.jobs.id[at])
            if len(runs):
                nodes[at] = np.array(snapshot.allocations.nodes_of(int(runs[0])), np.int32)
        known = queues.waiting[are_in(queues.waiting[:, JOB], events.jobs.id)]
        most = sum(map(len, nodes)) + int(rows[:, SIZE].sum() + known[:, SIZE].sum())
        q, table = self._opened(queues, rows, events.jobs, cluster, prepared, most)
        happened = zip(events.rows.time.tolist(), kinds, nodes, strict=True)
        for row, (time, kind, on) in enumerate(happened, len(queues.waiting)):
            observe_queues(q, time, kind, row, 0, on)
        return closed(queues, q, table)

    @hookimpl
    def rtsched_partition(
        self,
        jobs: Jobs,
        cluster: Cluster,
        snapshot: Snapshot,
        state: Queues | None,
        prepared: PreparedState,
    ) -> Placement | None:
        """Give each job the nodes that it is for; no opinion on pinned and on too wide ones."""
        if not len(jobs):
            return None
        queues = self._queues(state, cluster)
        new = np.flatnonzero(~are_in(jobs.id, queues.waiting[:, JOB]))
        new = new[np.lexsort((jobs.id[new], jobs.submit[new]))]
        came = jobs.take(new)  # not told of them yet, or they wait again
        queues, rows = gathered(queues, *self._rows(came, cluster))
        q, table = self._opened(queues, rows, came, cluster, prepared, 0)
        for row in range(len(queues.waiting), len(table)):
            enter_queue(q, row, snapshot.now)
        order = np.argsort(q.job)
        mine = order[np.searchsorted(q.job[order], jobs.id)]
        keys, code = np.unique(node_set_keys(q, snapshot.now, mine), return_inverse=True)
        sets = _node_sets(q.machine, [key for key in keys.tolist() if key >= 0])
        node_set = (code + len(sets) - len(keys)).astype(np.int32)  # no opinion is the first key
        return Placement(np.zeros(len(jobs), np.int32), node_set, sets)

    def _queues(self, state: Queues | None, cluster: Cluster) -> Queues:
        """Return what is remembered, or empty queues, also where the machine has other nodes."""
        resources = tuple(cluster.nodes.names("capacity"))
        if state is None or len(state.cell) != len(cluster) or state.resources != resources:
            return empty(cluster, self.config.dimension)
        return state

    def _rows(self, jobs: Jobs, cluster: Cluster) -> tuple[_Ints, NDArray[np.bool_]]:
        return rows_of(jobs, cluster, self.config.no_limit, self.config.job_bytes)

    def _opened(
        self,
        queues: Queues,
        rows: _Ints,
        jobs: Jobs,
        cluster: Cluster,
        prepared: PreparedState,
        most_held: int,
    ) -> tuple[NodeQueues, _Ints]:
        """Return the queues as `opened` does, on the terms of these settings."""
        own, shape, cell = self.config, queues.shape, queues.cell
        nodes = cluster, shape, cell, queues.sets
        machine = prepared.get(machine_of, *nodes, reads=(cell, queues.sets, cluster))
        link, bandwidth = cluster.topology.link, cluster.topology.bandwidth
        link_cost, take_along = np.empty((0, 0)), (queues.waiting, rows)
        if (own.bandwidth > 0 or len(link)) and any((t[:, BYTES] > 0).any() for t in take_along):
            links = shape, cell, link, bandwidth, own.bandwidth
            link_cost = prepared.get(link_costs, *links, reads=(cell, cluster))
        terms = overhead(shape, own.comm_step, own.comp_step), own.least_imbalance
        choices = RULES[own.tasks], LEAVES[own.leave], own.binding == "strict", MOST_SETS
        return opened(queues, rows, jobs, machine, link_cost, terms, choices, most_held)


def _node_sets(machine: ScannedNodes, keys: Sequence[int]) -> tuple[NDArray[np.int32], ...]:
    """Return the nodes of each key of `node_set_keys`."""
    whole, m = len(machine.power) - 1, len(machine.pace)
    twice: dict[int, NDArray[np.int32]] = {}
    sets = []
    for key in keys:
        pool, place = divmod(key, 2 * m)
        if pool not in twice:
            twice[pool] = np.tile(members_in(machine, whole, pool).astype(np.int32), 2)
        nodes = twice[pool]
        sets.append(
            nodes[place : place + 1] if place < m else nodes[place - m :][: len(nodes) // 2]
        )
    return tuple(sets)
