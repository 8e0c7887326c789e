"""Node queues: events, arrivals, scans that pay, and the nodes that each waiting job is for.

Jobs of one node are the tasks of the scan over nodes. Wider ones are tasks of a coarser scan: jobs
of more than b/2 and at most b nodes, b a power of 2, are balanced over the line of blocks of b
neighbouring nodes, and take the first nodes of their block. Widths are done from wide to narrow;
what runs, what is pinned, what is wider and what belongs to other pools counts as work that stays.

Where jobs share nodes, each job counts by the scarcest of the resources that it asks for. There is
a scan for each of these resources, the scarcest first; the other jobs are work that stays, by what
they take of it.

What waits for each node is kept up to date, not summed up again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rtsched.api import EventKind, policy_kernels
from rtsched.kernels.compiling import compiled, no_refcount, taken_in
from rtsched_plugins.kernels.scan_grid import busiest, traffic
from rtsched_plugins.kernels.scans import MOST, placed, room

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.api import Ragged

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]
    Nodes = NDArray[np.int32]

ARRIVED, STARTED, ENDED = int(EventKind.ARRIVED), int(EventKind.STARTED), int(EventKind.ENDED)
LEAVES = (STARTED, int(EventKind.REJECTED), ENDED, int(EventKind.WITHDRAWN))
"""After these a job does not wait."""
BALANCES = (ARRIVED, ENDED, int(EventKind.NODE_CHANGED))
"""After these the queues may have become uneven."""

STAYS = -2
"""Pool of a job that must run on its node; -1 is that of all nodes, the last one."""
HELD_JOB, HELD_NODE, HELD_AMOUNT = range(3)
"""Columns of `NodeQueues.held`; from the last one on the amounts of resources."""
WAITING, HELD, SCANS, RUNS, MOVED, INEXACT = range(6)
"""Places in `NodeQueues.counts`."""
RULE, LEAVE, STRICT, MOST_SETS = range(4)
"""Places in `NodeQueues.choices`."""
COST, IMBALANCE, MOST_SECONDS, MOST_UNITS = range(4)
"""Places in `NodeQueues.terms`."""
MOST_STEPS = 1 << 12
"""Amounts are counted in steps, a power of 2, of which the largest node has at most so many."""


class ScannedNodes(NamedTuple):
    """The `m` nodes, in `p` pools, as a scan sees them now.

    Where jobs share nodes by `r` resources, a scan by each of them has its own *view*: a node's
    power is what it has of the resource, times its speed. Whole nodes are the only view, or one
    more than the `v` by resource.
    """

    power: Ints
    """int64[v or v + 1, m]: units per second, in multiples of `common`; the last row is that of
    whole nodes. 0 where a node takes no job."""
    common: Ints
    """int64[v]: what a power of 1 does in 1000 seconds."""
    pace: Ints
    """int64[m]: thousandths of each node's speed."""
    step: Ints
    """int64[r]: in steps of how much amounts are counted."""
    capacity: Ints
    """int64[m, r]: what each node has."""
    members: Ints
    begin: Ints
    """int64[k], int64[.. p + 1]: by view, the nodes of each pool that have any power, in order of
    their cells: `members[begin[i]:begin[i + 1]]`."""
    before: Ints
    """int64[.. p, m]: how many members of each pool come before each node."""
    cell: Ints
    """int64[m]: each node's cell of the grid."""
    shape: Ints
    """int64[d]: sides of the grid."""


class NodeQueues(NamedTuple):
    """Node queues of a machine; `n` jobs, each of which is a row."""

    machine: ScannedNodes
    job: Ints
    """int64[n]: job ids; of rows of one job one waits at most."""
    size: Ints
    pool: Ints
    """int64[n]: of each job its nodes and its pool."""
    units: Ints
    """int64[v, n]: its work on each node, by view."""
    data: Floats
    """float64[n]: bytes that it takes along when it moves."""
    amount: Ints
    """int64[n, r]: what it takes of each resource on each node."""
    exclusive: Mask
    """bool[n]: whether it takes all that its nodes have."""
    wall: Floats
    """float64[n]: requested run time, seconds."""
    link_cost: Floats
    """float64[d, cells]: seconds per byte of each link of the grid; of no row: moving is free."""
    terms: Floats
    """float64[4]: seconds that a scan takes, the least imbalance that is worth one, and how many
    seconds and units what runs on a node counts for at most."""
    choices: Ints
    """int64[4]: `scans`' rule and leave; whether jobs of one node are bound to theirs; node sets of
    a pool in different orders, at most."""
    origin: float
    """What times of events are relative to, seconds since the epoch."""
    set_of: Ints
    """int64[2 m p]: the node set of each key, in a replay."""
    node_sets: Ragged
    """The node sets, in a replay."""
    counts: Ints
    """int64[6], changed: jobs that wait, rows of `held`, scans made, scans that paid, jobs moved by
    these, scans not made since their numbers would not have been exact."""
    left: Floats
    """float64[v], changed: by how much the last scan's result ends later than any must."""
    waiting: Ints
    """int64[n], changed: rows of the jobs that wait, in order of arrival."""
    node: Ints
    """int64[n], changed: the first node that each job is for, also where it is pinned."""
    held: Ints
    held_until: Floats
    """int64[h, 2 + r], float64[h], changed: job, node and amounts of each node of what runs, and
    its requested end, seconds since the epoch."""
    queued: Ints
    pinned: Ints
    """int64[v, m], changed: units of jobs that wait for each node, of those that a scan may move
    and of those that must stay."""
    fixed: Ints
    """int64[v, m], scratch: units left of what runs on each node."""
    ends: Floats
    """float64[m], scratch: of nodes."""
    ahead: Ints
    """int64[m], scratch: places of nodes."""


@taken_in
def steps_of(amount: Any, step: Any) -> Any:
    """Return an amount in steps, rounded up."""
    return np.minimum(-(-amount // step), MOST_STEPS)


@no_refcount
def place_of(machine: ScannedNodes, view: int, pool: int) -> int:
    """Return the place of a pool among those of all views."""
    pools = (len(machine.begin) - 1) // len(machine.power)
    return view * pools + (pool if pool >= 0 else pools - 1)


@compiled
def members_in(machine: ScannedNodes, view: int, pool: int) -> Ints:
    """Return a pool's nodes."""
    at = place_of(machine, view, pool)
    return machine.members[machine.begin[at] : machine.begin[at + 1]]


@no_refcount
def is_movable(q: NodeQueues, view: int, row: int) -> bool:
    """Return whether a scan may move a job: it need not stay and fits into its pool."""
    at = place_of(q.machine, view, q.pool[row])
    count = q.machine.begin[at + 1] - q.machine.begin[at]
    return bool(q.pool[row] != STAYS and q.size[row] <= count)


@no_refcount
def place_in_pool(q: NodeQueues, view: int, row: int, node: int) -> int:
    """Return the place in its pool at which a job's nodes begin that is for a node.

    That is the node's own place, the next member's if it is none (it went down, say), and an
    earlier one where fewer members follow than the job needs.
    """
    at = place_of(q.machine, view, q.pool[row])
    last = q.machine.begin[at + 1] - q.machine.begin[at] - q.size[row]
    return int(min(q.machine.before[at, node], max(last, 0)))


@no_refcount
def add_units(q: NodeQueues, view: int, load: Ints, row: int, node: int, sign: int) -> None:
    """Add a movable job's units (sign 1) to all nodes that it is for, or take them off (-1)."""
    first = q.machine.begin[place_of(q.machine, view, q.pool[row])]
    first += place_in_pool(q, view, row, node)
    for at in range(first, first + q.size[row]):
        load[q.machine.members[at]] += sign * q.units[view, row]


@no_refcount
def count_waiting(q: NodeQueues, row: int, sign: int) -> None:
    """Let a waiting job's units count (sign 1), or not any more (-1).

    A job's first node counts even where it takes no jobs now. One wider than its pool waits for
    nodes that are not there, so it is work of none.
    """
    for view in range(len(q.units)):
        if q.pool[row] == STAYS:
            q.pinned[view, q.node[row]] += sign * q.units[view, row]
        elif is_movable(q, view, row):
            add_units(q, view, q.queued[view], row, q.node[row], sign)


@no_refcount
def count_all(q: NodeQueues) -> None:
    """Let the units of all waiting jobs count."""
    for at in range(q.counts[WAITING]):
        count_waiting(q, q.waiting[at], 1)


@no_refcount
def place_in_queue(q: NodeQueues, row: int) -> int:
    """Return the place of a job among those that wait; -1 if it does not."""
    for at in range(q.counts[WAITING]):
        if q.job[q.waiting[at]] == q.job[row]:
            return at
    return -1


@no_refcount
def leave_queue(q: NodeQueues, row: int) -> None:
    """Let a job wait no more."""
    at = place_in_queue(q, row)
    if at >= 0:
        count_waiting(q, q.waiting[at], -1)
        q.counts[WAITING] -= 1
        for later in range(at, q.counts[WAITING]):
            q.waiting[later] = q.waiting[later + 1]


@no_refcount
def set_fixed(q: NodeQueues, time: float) -> None:
    """Write down in `fixed` the units left of what runs on each node, by requested ends.

    Without a requested end it is as much as a scan can count on all nodes.
    """
    machine, shared = q.machine, len(q.machine.step) > 0
    for view in range(len(q.fixed)):
        q.ends[:] = 0.0
        for at in range(q.counts[HELD]):
            node, steps = q.held[at, HELD_NODE], 1
            if shared:
                steps = steps_of(q.held[at, HELD_AMOUNT + view], machine.step[view])
            seconds = min(max(q.held_until[at] - time, 0.0), q.terms[MOST_SECONDS])
            q.ends[node] += np.ceil(seconds * (steps * machine.pace[node] / machine.common[view]))
        for node in range(len(q.ends)):
            q.fixed[view, node] = int(min(q.ends[node], q.terms[MOST_UNITS]))


@compiled
def loads(q: NodeQueues, view: int) -> Ints:
    """Return int64[m]: the units that run and wait on each node, `fixed` being set."""
    load: Ints = q.fixed[view] + q.queued[view] + q.pinned[view]
    return load


@compiled
def seconds_of_pools(q: NodeQueues) -> Floats:
    """Return float64[v, p]: how long the nodes of each pool need for all that runs and waits there.

    That is by each resource, at full power; `fixed` is set.
    """
    machine, pools = q.machine, (len(q.machine.begin) - 1) // len(q.machine.power)
    seconds = np.zeros((len(q.units), pools))
    for view in range(len(q.units)):
        load = loads(q, view)
        for pool in range(pools):
            members = members_in(machine, view, pool)
            strength = machine.power[view][members].sum()
            seconds[view, pool] = load[members].sum() / max(strength, 1)
    return seconds


@no_refcount
def scarcest(q: NodeQueues, row: int, seconds: Floats) -> tuple[int, float]:
    """Return by which resource a job's work counts, and the seconds that its pool's nodes need.

    Of the resources that it asks for, that is the one by which these need longest (see
    `seconds_of_pools`); of equal ones the first in the cluster's order.
    """
    best, most = 0, -1.0
    for view in range(len(seconds)):
        need = seconds[view, max(q.pool[row], -1)]
        if q.amount[row, view] > 0 and need > most:
            best, most = view, need
    return best, most


@compiled
def enter_queue(q: NodeQueues, row: int, time: float) -> None:
    """Let a job wait last, for the nodes where it ends first; of equal ones the first in order.

    Its work counts by the resource that is scarcest then.
    """
    if q.pool[row] != STAYS:
        set_fixed(q, time)
        view = scarcest(q, row, seconds_of_pools(q))[0] if len(q.units) > 1 else 0
        members, size = members_in(q.machine, view, q.pool[row]), q.size[row]
        place = 0
        if size <= len(members):
            load, power = loads(q, view), q.machine.power[view]
            for at in range(len(members)):
                node = members[at]
                q.ends[at] = (load[node] + q.units[view, row]) / power[node]
            place = least_window(q.ends[: len(members)], size, q.ahead)
        q.node[row] = members[place] if len(members) > 0 else 0
    q.waiting[q.counts[WAITING]] = row
    q.counts[WAITING] += 1
    count_waiting(q, row, 1)


@no_refcount
def least_window(values: Floats, size: int, ahead: Ints) -> int:
    """Return where those `size` neighbours begin whose largest value is least, the first of equal.

    `ahead` is scratch: places of values that no later one of the window reaches, in order.
    """
    best, least, head, tail = 0, np.inf, 0, 0
    for at in range(len(values)):
        while tail > head and values[ahead[tail - 1]] <= values[at]:
            tail -= 1
        ahead[tail] = at
        tail += 1
        if ahead[head] <= at - size:
            head += 1
        if at >= size - 1 and values[ahead[head]] < least:
            best, least = at - size + 1, values[ahead[head]]
    return best


@compiled
def start_on(q: NodeQueues, row: int, nodes: Nodes, until: float) -> None:
    """Let a job have these nodes, and no others; whole ones it takes over from who had them."""
    taken = np.zeros(len(q.ends), np.bool_)
    if q.amount.shape[1] == 0:
        for node in nodes:
            taken[node] = True
    give_back(q, row, taken)
    for node in nodes:
        at = q.counts[HELD]
        q.held[at, HELD_JOB], q.held[at, HELD_NODE] = q.job[row], node
        for resource in range(q.amount.shape[1]):
            has, takes = q.machine.capacity[node, resource], q.amount[row, resource]
            q.held[at, HELD_AMOUNT + resource] = has if q.exclusive[row] else takes
        q.held_until[at] = until
        q.counts[HELD] += 1


@compiled
def give_back(q: NodeQueues, row: int, taken: Mask) -> None:
    """Let a job have no nodes any more, and nobody have those of bool[m] `taken`."""
    kept = 0
    for at in range(q.counts[HELD]):
        if q.held[at, HELD_JOB] != q.job[row] and not taken[q.held[at, HELD_NODE]]:
            q.held[kept], q.held_until[kept] = q.held[at], q.held_until[at]
            kept += 1
    q.counts[HELD] = kept


@compiled
def nodes_for(q: NodeQueues, row: int) -> Nodes:
    """Return int32[k]: the nodes that a waiting job is for; none if it does not wait."""
    at = place_in_queue(q, row)
    if at < 0:
        return np.empty(0, np.int32)
    waits, whole = q.waiting[at], len(q.machine.power) - 1
    if q.pool[waits] == STAYS:
        return np.full(1, q.node[waits], np.int32)
    first = place_in_pool(q, whole, waits, q.node[waits])
    members = members_in(q.machine, whole, q.pool[waits])
    return members[first : first + q.size[waits]].astype(np.int32)


@no_refcount
def last_end(power: Ints, stays: Ints, queued: Ints) -> float:
    """Return in how many seconds the last node ends that a movable job waits for.

    All are int64[m]: units per second, units that stay, and those of the movable jobs.
    """
    end = 0.0
    for node in range(len(power)):
        if power[node] > 0 and queued[node] > 0:
            end = max(end, (stays[node] + queued[node]) / power[node])
    return end


@compiled
def soonest(power: Ints, stays: Ints, total: int, longest: int) -> float:
    """Return seconds in which no placement of some jobs can end sooner.

    That is the ideal level of their units above what stays, or the end of the longest job on the
    fastest node after the shortest delay, if that is later.

    Parameters
    ----------
    power, stays : int64[m]
        Units per second, and units that stay.
    total, longest : int
        The work of all these jobs, and the units of the longest on each node.
    """
    load, power = stays[power > 0], power[power > 0]
    ends, most_power = load / power, power.max()
    level = (total + load.sum()) / power.sum()
    while ends.max() > level:
        under = ends <= level
        load, power, ends = load[under], power[under], ends[under]
        level = (total + load.sum()) / power.sum()
    return float(max(level, ends.min() + longest / most_power))


@compiled
def balance(q: NodeQueues, time: float) -> None:
    """Make a scan, by each resource where jobs share nodes, the scarcest first."""
    waiting, views = q.waiting[: q.counts[WAITING]], len(q.units)
    resource, scarcity = np.zeros(len(waiting), np.int64), np.full(views, -1.0)
    set_fixed(q, time)
    if views > 1:
        seconds = seconds_of_pools(q)
        for at in range(len(waiting)):
            resource[at], need = scarcest(q, waiting[at], seconds)
            scarcity[resource[at]] = max(scarcity[resource[at]], need)
    for view in np.argsort(-scarcity, kind="mergesort"):
        balance_by(q, view, resource == view)


@compiled
def balance_by(q: NodeQueues, view: int, among: Mask) -> None:
    """Move jobs `among` those that wait by a scan, if that pays.

    It pays if the node that would end last, of those for which a job waits that may move, ends
    sooner by more than the run and its migrations take: if the imbalance exceeds the crossover
    point. Whole jobs leave some imbalance; what the last scan left is no reason for another.
    """
    power, waiting = q.machine.power[view], q.waiting[: q.counts[WAITING]]
    stays, queued = loads(q, view), np.zeros(len(q.ends), np.int64)
    moves, total, longest = np.zeros(len(waiting), np.bool_), 0, 0
    for at in range(len(waiting)):
        row = waiting[at]
        moves[at] = among[at] and is_movable(q, view, row)
        if moves[at]:
            total += q.units[view, row] * q.size[row]
            longest = max(longest, q.units[view, row])
            if len(q.units) > 1:
                add_units(q, view, queued, row, q.node[row], 1)
    if longest == 0:
        return
    if len(q.units) == 1:
        queued[:] = q.queued[view]
    stays -= queued
    before, least = last_end(power, stays, queued), soonest(power, stays, total, longest)
    cost, left = q.terms[COST], q.left[view]
    if before - least - left <= max(cost, q.terms[IMBALANCE] * least):
        q.left[view] = min(left, before - least)
        return
    if total + stays.sum() > MOST:
        q.counts[INEXACT] += 1
        return
    node, load = scanned(q, view, moves, stays + queued)
    q.counts[SCANS] += 1
    end = last_end(power, stays, load - stays)
    if before - end <= cost + migration_time(q, waiting, node):
        q.left[view] = before - least
        return
    for at in range(len(waiting)):
        row = waiting[at]
        if node[at] != q.node[row]:
            count_waiting(q, row, -1)
            q.node[row] = node[at]
            count_waiting(q, row, 1)
            q.counts[MOVED] += 1
    q.counts[RUNS] += 1
    q.left[view] = end - least


@compiled
def migration_time(q: NodeQueues, rows: Ints, node: Ints) -> float:
    """Return the seconds that the busiest link needs for what jobs take along to other nodes."""
    if len(q.link_cost) == 0:
        return 0.0
    cell = q.machine.cell
    passing = traffic(q.machine.shape, cell[q.node[rows]], cell[node], q.data[rows])
    return busiest(passing, q.link_cost)


@compiled
def scanned(q: NodeQueues, view: int, moves: Mask, load: Ints) -> tuple[Ints, Ints]:
    """Return the first node of each waiting job after a scan of all pools and widths, and the load.

    A pool's scan sees the jobs of pools that come after it where they are, and those of pools
    before it where they have just been put.

    Parameters
    ----------
    moves : bool[k]
        Which waiting jobs may be moved; the others keep their node.
    load : int64[m]
        Units that run and wait on each node.
    """
    waiting, load = q.waiting[: q.counts[WAITING]], load.copy()
    node, size, pools = q.node[waiting], q.size[waiting], q.pool[waiting]
    for pool in range(-1, (len(q.machine.begin) - 1) // len(q.machine.power) - 1):
        mine = np.flatnonzero(moves & (pools == pool))
        if len(mine) == 0:
            continue
        for at in mine:
            add_units(q, view, load, waiting[at], node[at], -1)
        width = 1
        while width < size[mine].max():
            width *= 2
        while width >= 1:
            some = mine[(size[mine] > width // 2) & (size[mine] <= width)]
            if len(some) > 0:
                node[some] = _of_one_width(q, view, pool, width, load, waiting[some], node[some])
            for at in some:
                add_units(q, view, load, waiting[at], node[at], 1)
            width //= 2
    return node, load


@compiled
def _of_one_width(
    q: NodeQueues, view: int, pool: int, width: int, held: Ints, rows: Ints, node: Ints
) -> Ints:
    """Return the first node of each job of one width after a scan over blocks of that width.

    `held` is int64[m], the units that stay on each node; `node` is int64[k], the nodes that the
    jobs are for so far.
    """
    machine, members = q.machine, members_in(q.machine, view, pool)
    first, units = np.empty(len(rows), np.int64), q.units[view][rows] * q.size[rows]
    for task in range(len(rows)):
        first[task] = place_in_pool(q, view, rows[task], node[task])
    blocks, cells = max(1, len(members) // width), 1
    for side in machine.shape:
        cells *= side
    place = np.minimum(np.arange(len(members)) // width, blocks - 1)
    if width == 1:
        place = machine.cell[members]
    n = cells if width == 1 else blocks
    power, stays, node_of = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    for at in range(len(members)):
        power[place[at]] += machine.power[view, members[at]]
        stays[place[at]] += held[members[at]]
        node_of[place[at]] = members[at]
    target = room(units.sum(), stays, power)
    shape = machine.shape if width == 1 else np.full(1, blocks)
    owner = place[first]
    found = placed(shape, owner, units, target, q.choices[RULE], q.choices[LEAVE])
    if width == 1:
        return node_of[found]
    return members[np.where(found == owner, first, found * width)]


def observe_queues(
    q: NodeQueues, time: float, kind: int, row: int, _size: int, nodes: Nodes
) -> None:
    """Change the queues by one event, and balance them if they may have become uneven."""
    time += q.origin
    if kind == ARRIVED:
        leave_queue(q, row)
        enter_queue(q, row, time)
    elif kind == STARTED:
        on = nodes if len(nodes) > 0 else nodes_for(q, row)
        start_on(q, row, on, time + q.wall[row])
    if kind in LEAVES:
        leave_queue(q, row)
    if kind == ENDED:
        give_back(q, row, np.zeros(len(q.ends), np.bool_))
    if kind in BALANCES:
        balance(q, time)


@compiled
def node_set_keys(q: NodeQueues, now: float, rows: Ints) -> Ints:
    """Return the key of each waiting job's node set; -1 for pinned and too wide ones.

    It is place + (m if all nodes) + 2 m pool: the pool's node at a place, for a job that is bound
    to it, or all its nodes from there on, going on at its start.
    """
    whole, m = len(q.machine.power) - 1, len(q.ends)
    keys, busy = np.full(len(rows), -1), np.zeros(m, np.bool_)
    if q.choices[STRICT]:
        set_fixed(q, now)
        for view in range(len(q.units)):
            busy = busy | (loads(q, view) > 0)
    for i in range(len(rows)):
        row = rows[i]
        if is_movable(q, whole, row):
            members = members_in(q.machine, whole, q.pool[row])
            place = place_in_pool(q, whole, row, q.node[row])
            if q.size[row] > 1 or not q.choices[STRICT] or not busy[members].all():
                step = -(-len(members) // q.choices[MOST_SETS])
                place = m + place // step * step
            keys[i] = place_of(q.machine, 0, q.pool[row]) * 2 * m + place
    return keys


def place_queues(q: NodeQueues, now: float, rows: Ints, out: Ints) -> None:
    """Write down each waiting job's node set."""
    keys = node_set_keys(q, now + q.origin, rows)
    for i in range(len(rows)):
        out[i] = q.set_of[keys[i]] if keys[i] >= 0 else -1


policy_kernels(NodeQueues, observe=observe_queues, place=place_queues)
