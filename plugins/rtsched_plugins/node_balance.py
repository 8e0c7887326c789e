"""Rebalance the queues of nodes by a positional scan, when that pays.

Jobs of one node are the tasks of the scan over nodes. Wider ones are tasks of a coarser scan: jobs
of more than b/2 and at most b nodes, b a power of 2, are balanced over the line of blocks of b
neighbouring nodes, and take the first nodes of their block. Widths are done from wide to narrow;
what runs, what is pinned, what is wider and what belongs to other pools counts as work that stays.

Where jobs share nodes, each job counts by the scarcest of the resources that it asks for. There is
a scan for each of these resources, the scarcest first; the other jobs are work that stays, by what
they take of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec.structs import replace

from rtsched_plugins.kernels.scan_grid import busiest, link_costs, overhead, traffic
from rtsched_plugins.kernels.scans import placed, room
from rtsched_plugins.node_queues import (
    BYTES,
    NODE,
    POOL,
    SIZE,
    Loads,
    first_place,
    fixed_load,
    movable,
    present,
    queued_load,
    scarcest,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rtsched.api import Cluster
    from rtsched_plugins.kernels.scans import Leave, Whole
    from rtsched_plugins.node_queues import Machine, Queues

    Ints = NDArray[np.int64]


class Terms(NamedTuple):
    """On which terms a scan runs.

    Attributes
    ----------
    comm, comp : float
        Seconds of a communication and of a computing step (paper: p, q).
    bandwidth : float
        Bytes per second of a link of which the topology says nothing; 0: moving takes no time.
    imbalance : float
        Least imbalance that is worth a scan, whatever it costs.
    rule, leave
        Where a task goes whole, and which units of a sender leave.
    """

    comm: float
    comp: float
    bandwidth: float
    imbalance: float
    rule: Whole
    leave: Leave


def evened(
    queues: Queues, cluster: Cluster, views: Sequence[Machine], time: float, terms: Terms
) -> Queues:
    """Return the queues after a scan by each resource at `time`, the scarcest first.

    `views` is the machine as a scan by each resource sees it; of whole nodes there is one.
    """
    if len(views) == 1:
        return rebalanced(queues, cluster, views[0], time, terms)
    if not len(queues.waiting):
        return queues
    loads = Loads(queues, views, time)
    resource, seconds = scarcest(queues.waiting, loads)
    scarcity = np.full(len(views), -1.0)
    np.maximum.at(scarcity, resource, seconds)
    for at in np.argsort(-scarcity, kind="stable")[: np.count_nonzero(scarcity >= 0)].tolist():
        before = queues
        queues = rebalanced(queues, cluster, views[at], time, terms, resource == at, loads[at])
        if queues.moved > before.moved:
            loads = Loads(queues, views, time)
    return queues


def rebalanced(
    queues: Queues,
    cluster: Cluster,
    machine: Machine,
    time: float,
    terms: Terms,
    among: NDArray[np.bool_] | None = None,
    load: Ints | None = None,
) -> Queues:
    """Return the queues after a scan at `time`, as they were where it does not pay.

    Only jobs `among` may be moved, bool[k]; all of them if None. `load` is int64[n], the units that
    run and wait on each node, worked out if None.
    It pays if the node that would end last, of those for which a job waits that may move, ends
    sooner by more than the run and its migrations take: if the imbalance exceeds the crossover
    point. Whole jobs leave some imbalance; what the last scan left is no reason for another.
    """
    moves, at = movable(queues.waiting, machine), max(machine.resource, 0)
    if among is not None:
        moves &= among
    if not moves.any() or not machine.power.any():
        return queues
    waiting = queues.waiting if moves.all() else queues.waiting[moves]
    if load is None:
        held = fixed_load(queues, machine, time) + queued_load(queues.waiting[~moves], machine)
    else:
        held = load - queued_load(waiting, machine)
    cost = overhead(queues.shape, terms.comm, terms.comp)
    before, least = last_end(waiting, held, machine), soonest(waiting, held, machine)
    left = queues.left[at]
    if before - least - left <= max(cost, terms.imbalance * least):
        return _leaving(queues, at, min(left, before - least))
    after = waiting.copy()
    after[:, NODE] = scanned(queues, machine, waiting, held, terms)
    queues = replace(queues, scans=queues.scans + 1)
    end = last_end(after, held, machine)
    if before - end <= cost + migration_time(queues, cluster, waiting, after, terms):
        return _leaving(queues, at, before - least)
    everyone = queues.waiting.copy()
    everyone[moves] = after
    moved = queues.moved + int(np.count_nonzero(after[:, NODE] != waiting[:, NODE]))
    queues = replace(queues, waiting=everyone, runs=queues.runs + 1, moved=moved)
    return _leaving(queues, at, end - least)


def _leaving(queues: Queues, at: int, seconds: float) -> Queues:
    """Return the queues of which the last scan by one resource left so much imbalance."""
    return replace(queues, left=(*queues.left[:at], seconds, *queues.left[at + 1 :]))


def last_end(waiting: Ints, held: Ints, machine: Machine) -> float:
    """Return in how many seconds the last node ends that one of these jobs waits for.

    `held` is int64[n], the units that stay on each node.
    """
    load = queued_load(waiting, machine)
    real = (machine.power > 0) & (load > 0)
    return float(((held + load)[real] / machine.power[real]).max(initial=0.0))


def soonest(waiting: Ints, held: Ints, machine: Machine) -> float:
    """Return seconds in which no placement of these jobs can end sooner.

    That is the ideal level of their units above what is held, or the end of the longest job on
    the fastest node after the shortest delay, if that is later.
    """
    units = machine.units(waiting)
    real = machine.power > 0
    load, power = held[real].astype(np.float64), machine.power[real].astype(np.float64)
    ends = load / power
    total = float((units * waiting[:, SIZE]).sum())
    level = (total + load.sum()) / power.sum()
    while not (under := ends <= level).all():
        load, power, ends = load[under], power[under], ends[under]
        level = (total + load.sum()) / power.sum()
    return max(float(level), float(ends.min() + units.max() / machine.power.max()))


def scanned(queues: Queues, machine: Machine, waiting: Ints, held: Ints, terms: Terms) -> Ints:
    """Return int64[k]: the first node of each of these jobs after a scan of all pools and widths.

    A pool's scan sees the jobs of pools that come after it where they are, and those of pools
    before it where they have just been put.
    """
    waiting = waiting.copy()
    pools, widths = waiting[:, POOL], _width_class(waiting[:, SIZE])
    done = np.zeros(len(waiting), np.bool_)
    for pool in present(pools):
        members = machine.members_of(pool)
        mine = pools == pool
        for width in reversed(present(widths[mine])) if len(members) else ():
            rows = np.flatnonzero(mine & (widths == width))
            beside = held + queued_load(waiting[done | (pools > pool)], machine)
            waiting[rows, NODE] = _of_one_width(
                queues, machine, members, beside, waiting[rows], width, terms
            )
            done[rows] = True
    return waiting[:, NODE]


def _width_class(size: Ints) -> Ints:
    """Return the least power of 2 that is at least `size`."""
    least = np.int64(1) << np.arange(32)
    return least[np.searchsorted(least, size)]


def _of_one_width(
    queues: Queues,
    machine: Machine,
    members: Ints,
    held: Ints,
    rows: Ints,
    width: int,
    terms: Terms,
) -> Ints:
    """Return the first node of each job of one width after a scan over blocks of that width."""
    units = machine.units(rows).astype(np.int64) * rows[:, SIZE]
    first = first_place(rows, machine)
    power = machine.power[members]
    if width == 1:
        powers = np.zeros(int(np.prod(queues.shape)), np.int64)
        stays = np.zeros_like(powers)
        cells = queues.cell[members]
        powers[cells], stays[cells] = power, held[members]
        target = room(int(units.sum()), stays, powers)
        found = placed(
            queues.shape, cells[first], units, target, rule=terms.rule, leave=terms.leave
        )
        node = np.zeros(len(powers), np.int64)
        node[cells] = members
        return node[found]
    blocks = max(1, len(members) // width)
    block = np.minimum(np.arange(len(members)) // width, blocks - 1)
    powers = np.bincount(block, power).astype(np.int64)
    stays = np.bincount(block, held[members]).astype(np.int64)
    target = room(int(units.sum()), stays, powers)
    owner = np.minimum(first // width, blocks - 1)
    found = placed((blocks,), owner, units, target, rule=terms.rule, leave=terms.leave)
    return members[np.where(found == owner, first, found * width)]


def migration_time(
    queues: Queues, cluster: Cluster, before: Ints, after: Ints, terms: Terms
) -> float:
    """Return the seconds that the busiest link needs for what the moved jobs take along."""
    moves = (before[:, NODE] != after[:, NODE]) & (before[:, BYTES] > 0)
    link, bandwidth = cluster.topology.link, cluster.topology.bandwidth
    if not moves.any() or (terms.bandwidth == 0 and not len(link)):
        return 0.0
    src, dst = queues.cell[before[moves, NODE]], queues.cell[after[moves, NODE]]
    amount = (before[moves, BYTES] * before[moves, SIZE]).astype(np.float64)
    costs = link_costs(queues.shape, queues.cell, link, bandwidth, terms.bandwidth)
    return busiest(traffic(queues.shape, src, dst, amount), costs)
