"""Queues of nodes, balanced by positional scans: PSTS.

Each waiting job is for a node (a wide one for neighbouring nodes). A job that arrives goes where it
would end first; when a job comes or goes and the queues have become uneven enough to pay for
it, a positional scan over the grid of nodes moves waiting jobs. Running and pinned jobs stay; they
lessen what their nodes get.

Which node a job is for is a wish: it is taken first, then the next ones. With `strict` it is a bond
for jobs of one node, which holds as long as no node is idle that nobody waits for. Wide jobs are
never bound: all their nodes would have to come free together.

Where jobs share nodes by resources, work is counted by the scarcest one, and a job goes only to
nodes that hold what it asks for.

References
----------
Savvas and Kechadi: Dynamic Task Scheduling in Computing Cluster Environments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta
from msgspec.structs import replace

from rtsched.api import Capabilities, Placement, RowPlacer, hookimpl
from rtsched_plugins.kernels.queue_rows import QueueRows
from rtsched_plugins.kernels.scan_grid import overhead
from rtsched_plugins.kernels.scan_rows import FIRST, INDEX, MAJORITY, PROPORTIONAL
from rtsched_plugins.kernels.scans import MOST
from rtsched_plugins.node_balance import Terms
from rtsched_plugins.node_events import ASKS, told
from rtsched_plugins.node_queues import (
    BYTES,
    JOB,
    MOST_WORK,
    NODE,
    POOL,
    SIZE,
    SPEED_UNITS,
    STAYS,
    Loads,
    Machine,
    Queues,
    Views,
    empty,
    first_place,
    gathered,
    present,
    queued,
    rows_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rtsched.api import Cluster, Events, Jobs, PreparedState, Snapshot

    Ints = NDArray[np.int64]


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
        self.config = own = config or self.Config()
        cost = (own.comm_step, own.comp_step, own.bandwidth)
        self.terms = Terms(*cost, own.least_imbalance, own.tasks, own.leave)
        self.capabilities = Capabilities(places_resources=True, replay_placer=self.replay_placer)

    def replay_placer(self, jobs: Jobs, cluster: Cluster) -> RowPlacer | None:
        """Return the queues in the form in which a replay's loop asks them; None: there is none."""
        if cluster.shared:
            return None
        own = self.config
        given = (own.dimension, own.no_limit, own.job_bytes, MOST_SETS)
        return queue_placer(jobs, cluster, self.terms, *given, strict=own.binding == "strict")

    @hookimpl
    def rtsched_observe(
        self, events: Events, snapshot: Snapshot, state: Queues | None, prepared: PreparedState
    ) -> Queues | None:
        """Keep the queues; balance them when a job came or went, if that pays then."""
        if not len(events):
            return None
        queues = self._queues(state, snapshot.cluster)
        asks = np.flatnonzero(np.isin(events.rows.kind, ASKS))
        rows = np.zeros((len(events), queues.waiting.shape[1]), np.int64)
        rows[:, JOB] = events.jobs.id
        if len(asks):
            found = self._rows(events.jobs.take(asks), snapshot.cluster)
            queues, rows[asks] = gathered(queues, *found)
        views = _views(queues, snapshot.cluster, prepared)
        return told(queues, events, rows, snapshot, views, self.terms)

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
        new = np.flatnonzero(~np.isin(jobs.id, queues.waiting[:, JOB]))
        if len(new):  # not told of them yet, or they wait again
            new = new[np.lexsort((jobs.id[new], jobs.submit[new]))]
            queues, rows = gathered(queues, *self._rows(jobs.take(new), cluster))
        machine, views = _views(queues, cluster, prepared)
        if len(new):
            queues = replace(queues, waiting=queued(queues, rows, views, snapshot.now))
        waiting = queues.waiting
        order = np.argsort(waiting[:, JOB])
        mine = waiting[order[np.searchsorted(waiting[order, JOB], jobs.id)]]
        idle = None
        if self.config.binding == "strict":
            idle, loads = machine.power > 0, Loads(queues, views, snapshot.now)
            for at in range(len(views)):
                idle &= loads[at] == 0
        keys, code = np.unique(self._wanted(mine, idle, machine), return_inverse=True)
        pools = [machine.members_of(pool) for pool in range(len(machine.pools))]
        twice = [np.concatenate((pool, pool)).astype(np.int32) for pool in pools]
        sets = tuple(_node_set(twice, len(cluster), key) for key in keys.tolist() if key >= 0)
        node_set = (code + len(sets) - len(keys)).astype(np.int32)  # no opinion is the first key
        return Placement(np.zeros(len(jobs), np.int32), node_set, sets)

    def _wanted(self, rows: Ints, idle: NDArray[np.bool_] | None, machine: Machine) -> Ints:
        """Return the key of each job's node set, see `_node_set`; -1 for no opinion.

        `idle` says for which nodes nobody runs or waits; None: no job is bound.
        """
        wanted, n = np.full(len(rows), -1, np.int64), len(machine.power)
        for pool in present(rows[rows[:, POOL] != STAYS, POOL]):
            members = machine.members_of(pool)
            mine = np.flatnonzero((rows[:, POOL] == pool) & (rows[:, SIZE] <= len(members)))
            first, size = first_place(rows[mine], machine), rows[mine, SIZE]
            strict = idle is not None and not idle[members].any()
            step = -(-len(members) // MOST_SETS)
            place = np.where(strict & (size == 1), first, n + first // step * step)
            wanted[mine] = pool % len(machine.pools) * 2 * n + place
        return wanted

    def _queues(self, state: Queues | None, cluster: Cluster) -> Queues:
        """Return what is remembered, or empty queues, also where the machine has other nodes."""
        resources = tuple(cluster.nodes.names("capacity"))
        if state is None or len(state.cell) != len(cluster) or state.resources != resources:
            return empty(cluster, self.config.dimension)
        return state

    def _rows(self, jobs: Jobs, cluster: Cluster) -> tuple[Ints, NDArray[np.bool_]]:
        return rows_of(jobs, cluster, self.config.no_limit, self.config.job_bytes)


def _views(queues: Queues, cluster: Cluster, prepared: PreparedState) -> Views:
    """Return the nodes as these queues see them."""
    return prepared.get(Views.of, queues, cluster, reads=(queues.cell, queues.sets, cluster))


def _node_set(pools: Sequence[NDArray[np.int32]], n: int, key: int) -> NDArray[np.int32]:
    """Return a pool's node at a place, or all its nodes from there on, going on at its start.

    Each pool's nodes are given twice, one time after the other. The key is
    place + (n if all nodes) + 2 n pool, n being the number of nodes.
    """
    pool, place = divmod(key, 2 * n)
    nodes = pools[pool]
    return nodes[place : place + 1] if place < n else nodes[place - n :][: len(nodes) // 2]


MOST_LISTED = 1 << 24
"""Nodes in all node sets together, at most."""
RULES = {"majority": MAJORITY, "first": FIRST}
LEAVES = {"index": INDEX, "proportional": PROPORTIONAL}


def queue_placer(
    jobs: Jobs,
    cluster: Cluster,
    terms: Terms,
    dimension: int,
    no_limit: float,
    usual_bytes: int,
    most_sets: int,
    *,
    strict: bool,
) -> RowPlacer | None:
    """Return the node queues of these jobs before the first arrives.

    Parameters
    ----------
    jobs, cluster : Jobs, Cluster
        The workload and its nodes, which have one job at a time.
    terms : Terms
        On which a scan runs.
    dimension, no_limit, usual_bytes
        As `node_queues.empty` and `rows_of` take them.
    most_sets : int
        Node sets of all nodes of a pool in different orders, at most.
    strict : bool
        Whether jobs of one node are bound to theirs.

    Returns
    -------
    RowPlacer or None
        None where moving jobs takes time, no node takes jobs, numbers would not be exact, or the
        node sets would be too large.
    """
    queues = empty(cluster, dimension)
    machine = Machine.of(cluster, queues.cell)
    rows, _ = rows_of(jobs, cluster, no_limit, usual_bytes)
    link = cluster.topology.link
    moves_cost = (terms.bandwidth > 0 or len(link) > 0) and bool((rows[:, BYTES] > 0).any())
    units = machine.units(rows).astype(np.int64)
    work = float((units * rows[:, SIZE].astype(np.float64)).sum())
    if moves_cost or not machine.power.any() or work > MOST // 2:
        return None
    sets = _node_sets(machine, most_sets, strict=strict)
    if sets is None:
        return None
    every, single, node_sets = sets
    n, m = len(jobs), len(cluster)
    most_units = min(MOST_WORK * SPEED_UNITS, MOST // 2 // m)
    limits = (float(MOST_WORK * SPEED_UNITS), float(most_units))
    cost = overhead(queues.shape, terms.comm, terms.comp)
    prepared = QueueRows(
        power=machine.power,
        cell=queues.cell.astype(np.int64),
        shape=np.array(queues.shape, np.int64),
        members=machine.members,
        begin=machine.begin,
        before=np.ascontiguousarray(machine.before),
        every=every,
        single=single,
        size=rows[:, SIZE].copy(),
        pool=rows[:, POOL].copy(),
        units=units,
        pinned=rows[:, NODE].copy(),
        wall=np.array(jobs.wall_time, np.float64),
        terms=np.array([cost, terms.imbalance, *limits]),
        choices=np.array([RULES[terms.rule], LEAVES[terms.leave], strict], np.int64),
        counts=np.zeros(4, np.int64),
        left=np.zeros(1),
        waiting=np.zeros(n, np.int64),
        node=np.full(n, -1, np.int64),
        held_by=np.full(m, -1, np.int64),
        held_until=np.zeros(m),
        queued=np.zeros(m, np.int64),
        pinned_units=np.zeros(m, np.int64),
        fixed=np.zeros(m, np.int64),
        ends=np.zeros(m),
        ahead=np.zeros(m, np.int64),
    )
    return RowPlacer(prepared, node_sets)


def _node_sets(
    machine: Machine, most_sets: int, *, strict: bool
) -> tuple[Ints, Ints, tuple[NDArray[np.int32], ...]] | None:
    """Return `QueueRows.every` and `single`, and the sets; None where they would be too large.

    A set has all nodes of a pool from one on, going on at its start; or one node.
    """
    pools, m = machine.pools.shape
    every, single = np.full((pools, m), -1, np.int64), np.full((pools, m), -1, np.int64)
    sets: list[NDArray[np.int32]] = []
    listed = 0
    for pool in range(pools):
        members = machine.members_of(pool).astype(np.int32)
        step = max(-(-len(members) // most_sets), 1)
        begins = range(0, len(members), step)
        listed += len(begins) * len(members)
        if listed > MOST_LISTED:
            return None
        every[pool, : len(members)] = len(sets) + np.arange(len(members)) // step
        sets += [np.roll(members, -first) for first in begins]
        if strict:
            single[pool, : len(members)] = len(sets) + np.arange(len(members))
            sets += list(members[:, None])
    return every, single, tuple(sets)
