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

from rtsched.api import Capabilities, EventKind, Placement, PreparedState, Ragged, are_in, hookimpl
from rtsched_plugins.kernels.node_queues import (
    Machine,
    NodeQueues,
    enter_queue,
    members_in,
    node_set_keys,
    observe_queues,
)
from rtsched_plugins.kernels.scan_grid import link_costs, overhead
from rtsched_plugins.kernels.scans import FIRST, INDEX, MAJORITY, MOST, PROPORTIONAL
from rtsched_plugins.node_queues import (
    BYTES,
    JOB,
    SIZE,
    Queues,
    closed,
    empty,
    gathered,
    machine_of,
    opened,
    rows_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rtsched.api import Accounts, Cluster, Events, Jobs, Snapshot

    Ints = NDArray[np.int64]

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
        rows, _ = self._rows(jobs, cluster)
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

    def _rows(self, jobs: Jobs, cluster: Cluster) -> tuple[Ints, NDArray[np.bool_]]:
        return rows_of(jobs, cluster, self.config.no_limit, self.config.job_bytes)

    def _opened(
        self,
        queues: Queues,
        rows: Ints,
        jobs: Jobs,
        cluster: Cluster,
        prepared: PreparedState,
        most_held: int,
    ) -> tuple[NodeQueues, Ints]:
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


def _node_sets(machine: Machine, keys: Sequence[int]) -> tuple[NDArray[np.int32], ...]:
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
