"""Node queues in the form in which a replay's own loop asks them: see `kernels.queue_rows`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.api import RowPlacer
from rtsched_plugins.kernels.queue_rows import QueueRows
from rtsched_plugins.kernels.scan_grid import overhead
from rtsched_plugins.kernels.scan_rows import FIRST, INDEX, MAJORITY, PROPORTIONAL
from rtsched_plugins.kernels.scans import MOST
from rtsched_plugins.node_queues import (
    BYTES,
    MOST_WORK,
    NODE,
    POOL,
    SIZE,
    SPEED_UNITS,
    Machine,
    empty,
    rows_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.api import Cluster, Jobs
    from rtsched_plugins.node_balance import Terms

    Ints = NDArray[np.int64]

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
