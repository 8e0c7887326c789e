"""Node queues of the jobs of one workload, each of which is a row, for a replay's own loop.

The same as `node_queues`, `node_balance` and `node_events` do with tables of jobs, for whole nodes
that keep their state. What waits for each node is kept up to date, not summed up again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.api import EventKind, places_rows
from rtsched.kernels.compiling import compiled
from rtsched_plugins.kernels.scan_rows import room_beside, tasks_placed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Nodes = NDArray[np.int32]

ARRIVED, STARTED = int(EventKind.ARRIVED), int(EventKind.STARTED)
REJECTED, ENDED = int(EventKind.REJECTED), int(EventKind.ENDED)

STAYS = -2
"""Pool of a job that must run on its node; -1 is that of all nodes, the last one."""
WAITING, SCANS, RUNS, MOVED = 0, 1, 2, 3
"""Places in `QueueRows.counts`."""
RULE, LEAVE, STRICT = 0, 1, 2
"""Places in `QueueRows.choices`."""
COST, IMBALANCE, MOST_SECONDS, MOST_UNITS = 0, 1, 2, 3
"""Places in `QueueRows.terms`."""


class QueueRows(NamedTuple):
    """Node queues: `n` jobs, `m` nodes, `p` pools; see `node_queues.Machine` for the nodes."""

    power: Ints
    """int64[m]: units per second times the machine's unit; 0 where a node takes no job."""
    cell: Ints
    """int64[m]: each node's cell of the grid."""
    shape: Ints
    """int64[d]: sides of the grid."""
    members: Ints
    begin: Ints
    """int64[k], int64[p + 1]: pool i has the nodes `members[begin[i]:begin[i + 1]]`."""
    before: Ints
    """int64[p, m]: how many members of each pool come before each node."""
    every: Ints
    single: Ints
    """int64[p, m]: the node set that begins with the pool's member at a place, and that of this
    node alone; -1: there is none."""
    size: Ints
    pool: Ints
    units: Ints
    """int64[n]: of each job its nodes, its pool and its units of work on each node."""
    pinned: Ints
    """int64[n]: the node that it must run on; -1: none."""
    wall: Floats
    """float64[n]: requested run time, seconds."""
    terms: Floats
    """float64[4]: seconds that a scan takes, the least imbalance that is worth one, and how many
    seconds and units what runs on a node counts for at most."""
    choices: Ints
    """int64[3]: `scan_rows`' rule and leave; whether jobs of one node are bound to theirs."""
    counts: Ints
    """int64[4], changed: jobs that wait, scans made, scans that paid, jobs moved by these."""
    left: Floats
    """float64[1], changed: by how much the last scan's result ends later than any must."""
    waiting: Ints
    """int64[n], changed: rows of the jobs that wait, in order of arrival."""
    node: Ints
    """int64[n], changed: the first node that each waiting job is for."""
    held_by: Ints
    held_until: Floats
    """int64[m], float64[m], changed: the row of the job that runs on each node, -1: none, and its
    requested end, seconds since the epoch."""
    queued: Ints
    pinned_units: Ints
    """int64[m], changed: units of jobs that wait for each node, of those that a scan may move and
    of those that must stay."""
    fixed: Ints
    """int64[m], scratch: units that a scan leaves where they are."""
    ends: Floats
    """float64[m], scratch: when nodes end, in seconds."""
    ahead: Ints
    """int64[m], scratch: places of nodes."""


@compiled
def members_in(q: QueueRows, pool: int) -> tuple[int, int]:
    """Return where a pool's nodes begin in `members`, and how many they are."""
    at = pool if pool >= 0 else len(q.begin) - 2
    return int(q.begin[at]), int(q.begin[at + 1] - q.begin[at])


@compiled
def is_movable(q: QueueRows, row: int) -> bool:
    """Return whether a scan may move a job: it need not stay and fits into its pool."""
    return bool(q.pool[row] != STAYS and q.size[row] <= members_in(q, q.pool[row])[1])


@compiled
def place_in_pool(q: QueueRows, row: int, node: int) -> int:
    """Return where in its pool a job that is for a node has its first one: see `first_place`."""
    pool = q.pool[row] if q.pool[row] >= 0 else len(q.begin) - 2
    last = q.begin[pool + 1] - q.begin[pool] - q.size[row]
    return int(min(q.before[pool, node], max(last, 0)))


@compiled
def add_units(q: QueueRows, load: Ints, row: int, node: int, sign: int) -> None:
    """Add a movable job's units (sign 1) to all nodes that it is for, or take them off (-1)."""
    begin = members_in(q, q.pool[row])[0] + place_in_pool(q, row, node)
    for at in range(begin, begin + q.size[row]):
        load[q.members[at]] += sign * q.units[row]


@compiled
def count_waiting(q: QueueRows, row: int, sign: int) -> None:
    """Let a waiting job's units count (sign 1), or not any more (-1).

    One wider than its pool waits for nodes that are not there.
    """
    if q.pool[row] == STAYS:
        q.pinned_units[q.node[row]] += sign * q.units[row]
    elif is_movable(q, row):
        add_units(q, q.queued, row, q.node[row], sign)


@compiled
def leave_queue(q: QueueRows, row: int) -> bool:
    """Let a job wait no more; return whether it did."""
    count = q.counts[WAITING]
    for at in range(count):
        if q.waiting[at] == row:
            count_waiting(q, row, -1)
            for later in range(at, count - 1):
                q.waiting[later] = q.waiting[later + 1]
            q.counts[WAITING] -= 1
            return True
    return False


@compiled
def set_fixed(q: QueueRows, time: float) -> None:
    """Write down in `fixed` the units left of what runs on each node, by requested ends."""
    most_seconds, most_units = q.terms[MOST_SECONDS], q.terms[MOST_UNITS]
    for node in range(len(q.power)):
        q.fixed[node] = 0
        if q.held_by[node] >= 0:
            seconds = min(max(q.held_until[node] - time, 0.0), most_seconds)
            q.fixed[node] = int(min(np.ceil(seconds * q.power[node]), most_units))


@compiled
def enter_queue(q: QueueRows, row: int, time: float) -> None:
    """Let a job wait last, for the nodes where it ends first; of equal ones the first in order."""
    size, units = q.size[row], q.units[row]
    begin, count = members_in(q, q.pool[row])
    if q.pool[row] == STAYS:
        q.node[row] = q.pinned[row]
    elif size > count:
        q.node[row] = q.members[begin] if count > 0 else 0
    else:
        set_fixed(q, time)
        for at in range(count):
            node = q.members[begin + at]
            load = q.fixed[node] + q.queued[node] + q.pinned_units[node]
            q.ends[at] = (load + units) / q.power[node]
        q.node[row] = q.members[begin + least_window(q.ends[:count], size, q.ahead)]
    q.waiting[q.counts[WAITING]] = row
    q.counts[WAITING] += 1
    count_waiting(q, row, 1)


@compiled
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
def start_on(q: QueueRows, row: int, nodes: Nodes, until: float) -> None:
    """Let a job have these nodes, and no others; it takes them over from who had them."""
    stop_on(q, row)
    for node in nodes:
        q.held_by[node], q.held_until[node] = row, until


@compiled
def stop_on(q: QueueRows, row: int) -> None:
    """Let a job have no nodes any more."""
    for node in range(len(q.held_by)):
        if q.held_by[node] == row:
            q.held_by[node] = -1


@compiled
def nodes_for(q: QueueRows, row: int) -> Nodes:
    """Return int32[k]: the nodes that a waiting job is for; none if it does not wait."""
    waits = False
    for at in range(q.counts[WAITING]):
        waits = waits or q.waiting[at] == row
    if not waits:
        return np.empty(0, np.int32)
    if q.pool[row] == STAYS:
        return np.full(1, q.node[row], np.int32)
    begin, count = members_in(q, q.pool[row])
    first = place_in_pool(q, row, q.node[row])
    return q.members[begin + first : begin + min(first + q.size[row], count)].astype(np.int32)


@compiled
def last_end(q: QueueRows, queued: Ints) -> float:
    """Return in how many seconds the last node ends that a movable job waits for.

    `queued` is int64[m], the units of these; `fixed` is what stays.
    """
    end = 0.0
    for node in range(len(q.power)):
        if q.power[node] > 0 and queued[node] > 0:
            end = max(end, (q.fixed[node] + queued[node]) / q.power[node])
    return end


@compiled
def soonest(q: QueueRows, total: int, longest: int) -> float:
    """Return seconds in which no placement can end sooner: see `node_balance.soonest`.

    `total` is the work of all movable jobs, `longest` the units of the longest; `fixed` stays.
    """
    least, most_power, load, power = np.inf, 0, 0, 0
    for node in range(len(q.power)):
        if q.power[node] > 0:
            q.ends[node] = q.fixed[node] / q.power[node]
            least, most_power = min(least, q.ends[node]), max(most_power, q.power[node])
            load += q.fixed[node]
            power += q.power[node]
    level = (total + load) / power
    while True:
        load, strength = 0, 0
        for node in range(len(q.power)):
            if q.power[node] > 0 and q.ends[node] <= level:
                load += q.fixed[node]
                strength += q.power[node]
        if strength == power:
            break
        power, level = strength, (total + load) / strength
    return max(level, least + longest / most_power)


@compiled
def balance(q: QueueRows, time: float) -> None:
    """Make a scan, and move jobs by it, if that pays: see `node_balance.rebalanced`."""
    total, longest = 0, 0
    for at in range(q.counts[WAITING]):
        row = q.waiting[at]
        if is_movable(q, row):
            total += q.units[row] * q.size[row]
            longest = max(longest, q.units[row])
    if longest == 0:
        return
    set_fixed(q, time)
    for node in range(len(q.power)):
        q.fixed[node] += q.pinned_units[node]
    before, least = last_end(q, q.queued), soonest(q, total, longest)
    cost, left = q.terms[COST], q.left[0]
    if before - least - left <= max(cost, q.terms[IMBALANCE] * least):
        q.left[0] = min(left, before - least)
        return
    new, queued = scanned(q)
    q.counts[SCANS] += 1
    end = last_end(q, queued)
    if before - end <= cost:
        q.left[0] = before - least
        return
    for at in range(q.counts[WAITING]):
        row = q.waiting[at]
        q.counts[MOVED] += new[at] != q.node[row]
        q.node[row] = new[at]
    q.queued[:] = queued
    q.counts[RUNS] += 1
    q.left[0] = end - least


@compiled
def scanned(q: QueueRows) -> tuple[Ints, Ints]:
    """Return the first node of each waiting job after a scan, and the units queued at each node.

    See `node_balance.scanned`; jobs that may not be moved keep their node.
    """
    waiting = q.waiting[: q.counts[WAITING]]
    node, moves = q.node[waiting], np.zeros(len(waiting), np.bool_)
    beside = q.fixed + q.queued
    for at in range(len(waiting)):
        moves[at] = is_movable(q, waiting[at])
    for pool in range(-1, len(q.begin) - 2):
        widest = 0
        for at in range(len(waiting)):
            if moves[at] and q.pool[waiting[at]] == pool:
                widest = max(widest, q.size[waiting[at]])
                add_units(q, beside, waiting[at], node[at], -1)
        width = 1
        while width < widest:
            width *= 2
        while width >= 1 and widest > 0:
            mine = np.zeros(len(waiting), np.bool_)
            for at in range(len(waiting)):
                size = q.size[waiting[at]]
                mine[at] = moves[at] and q.pool[waiting[at]] == pool
                mine[at] = mine[at] and width // 2 < size <= width
            some = np.flatnonzero(mine)
            if len(some) > 0:
                node[some] = _of_one_width(q, pool, width, beside, waiting[some], node[some])
            for which in some:
                add_units(q, beside, waiting[which], node[which], 1)
            width //= 2
    return node, beside - q.fixed


@compiled
def _of_one_width(q: QueueRows, pool: int, width: int, held: Ints, rows: Ints, node: Ints) -> Ints:
    """Return the first node of each job of one width after a scan over blocks of that width.

    `held` is int64[m], the units that stay on each node; `node` is int64[k], the nodes that the
    jobs are for so far.
    """
    begin, count = members_in(q, pool)
    members = q.members[begin : begin + count]
    units, total = np.empty(len(rows), np.int64), 0
    first, owner = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    blocks = max(1, count // width)
    for task in range(len(rows)):
        units[task] = q.units[rows[task]] * q.size[rows[task]]
        total += units[task]
        first[task] = place_in_pool(q, rows[task], node[task])
        owner[task] = min(first[task] // width, blocks - 1)
    cells = 1
    for side in q.shape:
        cells *= side
    n = cells if width == 1 else blocks
    power, stays, node_of = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    for at in range(count):
        member = members[at]
        cell = q.cell[member] if width == 1 else min(at // width, blocks - 1)
        power[cell] += q.power[member]
        stays[cell] += held[member]
        node_of[cell] = member
    target = room_beside(total, stays, power)
    shape = q.shape if width == 1 else np.full(1, blocks)
    if width == 1:
        owner = q.cell[members[first]]
    found = tasks_placed(shape, owner, units, target, q.choices[RULE], q.choices[LEAVE])
    if width == 1:
        return node_of[found]
    for task in range(len(rows)):
        place = first[task] if found[task] == owner[task] else found[task] * width
        found[task] = members[place]
    return found


def observe_queue_rows(q: QueueRows, time: float, kind: int, row: int, nodes: Nodes) -> None:
    """Change the queues by one event, and balance them if they may have become uneven."""
    if kind == ARRIVED:
        leave_queue(q, row)
        enter_queue(q, row, time)
    elif kind == STARTED:
        on = nodes if len(nodes) > 0 else nodes_for(q, row)
        start_on(q, row, on, time + q.wall[row])
    if kind in (STARTED, REJECTED, ENDED):
        leave_queue(q, row)
    if kind == ENDED:
        stop_on(q, row)
    if kind in (ARRIVED, ENDED):
        balance(q, time)


def place_queue_rows(q: QueueRows, now: float, rows: Ints, out: Ints) -> None:
    """Say for each waiting job the node set that it is for; -1 for pinned and too wide ones."""
    bound = np.zeros(len(q.begin) - 1, np.bool_)
    if q.choices[STRICT]:
        set_fixed(q, now)
        for pool in range(len(bound)):
            idle = 0
            for at in range(q.begin[pool], q.begin[pool + 1]):
                node = q.members[at]
                idle += q.fixed[node] + q.queued[node] + q.pinned_units[node] == 0
            bound[pool] = idle == 0
    for i in range(len(rows)):
        row = rows[i]
        out[i] = -1
        if is_movable(q, row):
            first, pool = place_in_pool(q, row, q.node[row]), q.pool[row]
            alone = bound[pool] and q.size[row] == 1
            out[i] = q.single[pool, first] if alone else q.every[pool, first]


places_rows(QueueRows, observe_queue_rows, place_queue_rows)
