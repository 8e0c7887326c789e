"""A pool of nodes, each given to one job at a time: its state as records, and who takes which node.

The records are rows of structured arrays, so that compiled code touches one place per job and the
same source runs plainly. Times are float64 seconds relative to the first submission.

Which nodes: the free ones are bits of 32-bit words under one summary level, and the nodes of a
running job form a linked list through `NODE.next`, so starting a job allocates nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rtsched.kernels.pool_claims import take_over, vacate
from rtsched.kernels.pool_compiling import part
from rtsched.kernels.pool_heap import push
from rtsched.kernels.records import record_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Where a job stands (JOB.status).
FUTURE, ASKED, QUEUED, SLEEPING, HELD, PLANNED, RUNNING, ENDED = 0, 1, 2, 3, 4, 5, 6, 7
REJECTED, CANCELLED, LOST, TOO_WIDE = 8, 9, 10, 11

# The loops (STATE.loop).
FCFS, EASY, CONSERVATIVE, SERIAL, NEGOTIATOR = 0, 1, 2, 3, 4

# Why the loop stopped: bits; 0 is the end.
ASK_ARRIVALS, ASK_PASS, ASK_EARLY_END, ASK_NODES, FULL, PAUSED = 1, 2, 4, 8, 16, 32

# What happened (EVENT.kind), as in the model.
ARRIVED, TURNED_AWAY, STARTED, STOPPED, NODE_CHANGED = 0, 1, 2, 3, 4

# What an entry of the plan does (PLANNED_START.joins).
STARTS, JOINS, DROPPED = 0, 1, 2

# A node's state, as in the model; and the size of an emptied place in the queue.
UP, DRAINED, DOWN = 0, 1, 2
GONE = 2**31 - 1


JOB = record_type(
    ("submit", "f8"),
    ("run", "f8"),
    ("wall", "f8"),
    ("start", "f8"),
    ("end", "f8"),
    ("width", "i4"),
    ("first", "i4"),
    ("status", "i1"),
)
"""One per job: 56 bytes. `first` is where the list of its nodes begins, later the lowest."""

MORE = record_type(("key", "f8"), ("begin", "f8"), ("group", "i4"), ("restarts", "i4"))
"""One per job where a run needs it, else a single row: queue key, begin time, node set."""

NODE = record_type(
    ("speed", "f8"),
    ("window", "f8"),
    ("limit", "f8"),
    ("until", "f8"),
    ("span", "i8"),
    ("next", "i4"),
    ("row", "i4"),
    ("state", "i1"),
    ("wanted", "i1"),
    ("kept", "i1"),
)
"""One per node: `next` node of the same job (-1: last), the `row` that runs there (-1: none).

`window` is the start of its next reservation, the one at `spans[span]`. For the length of a pass:
`limit` is when a job started now must end, `until` when it is free by the requested ends, `wanted`
whether the job in question may use it, and `kept` whether the head of the queue needs it.
"""

SLOT = record_type(
    ("key", "f8"), ("wall", "f8"), ("reserved", "f8"), ("row", "i4"), ("width", "i4")
)
"""One place in the queue, in order of (key, row); width `GONE`: emptied."""

TIMED = record_type(("time", "f8"), ("row", "i4"), ("width", "i4"))
"""A row and a time: entry of a heap, of the running list, of the node events."""

EVENT = record_type(("time", "f8"), ("row", "i4"), ("width", "i4"), ("node", "i4"), ("kind", "i1"))
"""One thing that happened."""

PLANNED_START = record_type(
    ("start", "f8"),
    ("run", "f8"),
    ("wall", "f8"),
    ("at", "i8"),
    ("row", "i4"),
    ("width", "i4"),
    ("joins", "i1"),
)
"""One entry of the plan: its nodes are `plan_nodes[at:at + width]`; row -1: no longer waits.

`joins` says whether it starts a job (`STARTS`), gives a node more to a job that has started
(`JOINS`), or would have done so if the job were still there (`DROPPED`).
"""

SPAN = record_type(("start", "f8"), ("end", "f8"))
"""One interval reserved on one node."""

_TIMES = """
    now shadow next_reserved
    last_cycle next_cycle interval cycle_delay half_life least_priority worklife
    asked_memory asked_wall
"""
_COUNTS = """
    loop depth by_key extended uneven requeue keeps_shadow node_level
    ask_arrivals ask_passes ask_early ask_nodes pause_at phase
    free extra settled head tail seen waiting upcoming running sleeping again asked
    planned plan_left joining node_event early changed
    steps past tighten rebuild
    dedicated widest active fresh calm held dealt vacated marked cursor asked_size asked_group
    recording keeping events told logging logged
    ranking calls judged abstained moved observing observed
"""
STATE = record_type(
    *((name, "f8") for name in _TIMES.split()), *((name, "i8") for name in _COUNTS.split())
)
"""The scalars of the whole system."""

_BARE_STATE = np.dtype((np.void, STATE))


class Pool(NamedTuple):
    """The state of a pool of exclusive nodes; the arrays are changed in place."""

    state: NDArray[Any]
    """STATE[1]."""
    jobs: NDArray[Any]
    """JOB[n]."""
    more: NDArray[Any]
    """MORE[n] or MORE[1]."""
    queue: NDArray[Any]
    """SLOT[n + 1]."""
    blocks: NDArray[Any]
    """TIMED, one per 64 places of the queue: its shortest wall time and least size, or less."""
    nodes: NDArray[Any]
    """NODE[m]."""
    words: NDArray[np.int64]
    """Bit b of word w: node 32 w + b is free."""
    top: NDArray[np.int64]
    """Bit b of word w: word 32 w + b is not 0."""
    ends: NDArray[Any]
    """TIMED[m + 1]: heap of the running jobs' ends."""
    running: NDArray[Any]
    """TIMED[m + 1]: the running jobs in order of (requested end, row)."""
    sleepers: NDArray[Any]
    """TIMED: heap of jobs that come back at a time (begin time, or held until then)."""
    again: NDArray[np.int64]
    """Rows to be asked about at the next instant."""
    asked: NDArray[np.int64]
    """Rows that the present stop asks about."""
    node_events: NDArray[Any]
    """TIMED: `row` is a node, `width` its new state."""
    events: NDArray[Any]
    """EVENT: the record of what happened."""
    log_nodes: NDArray[np.int32]
    """Nodes of every start, one after the other."""
    log_at: NDArray[np.int64]
    """Where a job's last start begins in `log_nodes`."""
    plan: NDArray[Any]
    """PLANNED_START, in order of (start, row); `state.joining` of them do not start a job."""
    plan_nodes: NDArray[np.int32]
    """Nodes of the plan's entries."""
    span_of: NDArray[np.int64]
    """Node i has the reserved intervals `spans[span_of[i]:span_of[i + 1]]`, in order of start."""
    spans: NDArray[Any]
    """SPAN."""
    awaited: NDArray[np.float64]
    """float64[n], node-seconds for which a job waited for nodes that joined it; empty: nobody."""
    group_of: NDArray[np.int64]
    """Node set g holds `group_nodes[group_of[g]:group_of[g + 1]]`, most wanted first."""
    group_nodes: NDArray[np.int32]
    """Nodes of the node sets."""
    profile: NDArray[Any]
    """TIMED: free nodes (`width`) from each time on (conservative only)."""
    rows: NDArray[np.int64]
    """Scratch: rows handed to a hook."""
    values: NDArray[np.float64]
    """Scratch: what the hook says of them."""
    picks: NDArray[np.int64]
    """Scratch of m entries: nodes chosen for a job."""
    sweep: NDArray[Any]
    """TIMED, scratch: changes in the number of nodes that a job could use."""
    requests: NDArray[Any]
    """REQUEST[n] (negotiator only, as all below)."""
    claims: NDArray[Any]
    """CLAIM[m]."""
    offers: NDArray[Any]
    """OFFER, one per slot, best first."""
    submitters: NDArray[Any]
    """SUBMITTER."""


_DE_BRUIJN = np.zeros(32, np.int64)
for _bit in range(32):
    _DE_BRUIJN[((0x077CB531 << _bit) & 0xFFFFFFFF) >> 27] = _bit


@part
def bit_index(low: int) -> int:
    """Return which bit is set in `low`, one power of two below 2**32 (de Bruijn sequence)."""
    return int(_DE_BRUIJN[((low * 0x077CB531) & 0xFFFFFFFF) >> 27])


@part
def set_free(words: NDArray[np.int64], top: NDArray[np.int64], node: int) -> None:
    """Mark one node free."""
    place = int(node)
    word = place >> 5
    words[word] |= 1 << (place & 31)
    top[word >> 5] |= 1 << (word & 31)


@part
def set_busy(words: NDArray[np.int64], top: NDArray[np.int64], node: int) -> None:
    """Mark one node not free."""
    place = int(node)
    word = place >> 5
    words[word] &= ~(1 << (place & 31))
    if words[word] == 0:
        top[word >> 5] &= ~(1 << (word & 31))


@part
def is_free(words: NDArray[np.int64], node: int) -> bool:
    """Return whether a node is free."""
    return bool((words[node >> 5] >> (node & 31)) & 1)


@part
def take_lowest(
    nodes: NDArray[Any], words: NDArray[np.int64], top: NDArray[np.int64], row: int, count: int
) -> int:
    """Give the `count` lowest free nodes to a job and return the first; that many must be free."""
    first, last, left = -1, -1, count
    for group in range(len(top)):
        while left > 0 and top[group] != 0:
            mark = top[group] & -top[group]
            word = group * 32 + bit_index(mark)
            bits = words[word]
            while bits != 0 and left > 0:
                low = bits & -bits
                node = word * 32 + bit_index(low)
                bits ^= low
                left -= 1
                nodes[node].row = row
                if last < 0:
                    first = node
                else:
                    nodes[last].next = node
                last = node
            words[word] = bits
            if bits == 0:
                top[group] ^= mark
        if left == 0:
            break
    if last >= 0:
        nodes[last].next = -1
    return first


@part
def take_picks(pool: Pool, row: int, count: int) -> int:
    """Give the nodes `pool.picks[:count]` to a job, in that order, and return the first."""
    nodes, picks = pool.nodes, pool.picks
    for i in range(count):
        node = picks[i]
        set_busy(pool.words, pool.top, node)
        nodes[node].row = row
        nodes[node].next = picks[i + 1] if i + 1 < count else -1
    return int(picks[0])


@part
def place_of(running: NDArray[Any], count: int, time: float, row: int) -> int:
    """Return the first place of the running list that is not before (time, row)."""
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        entry = running[middle]
        if entry.time < time or (entry.time == time and entry.row < row):
            low = middle + 1
        else:
            high = middle
    return low


@part
def record(pool: Pool, kind: int, row: int, size: int, node: int) -> None:
    """Write down one event at the present time."""
    state = pool.state[0]
    event = pool.events[state.events]
    event.time = state.now
    event.kind = kind
    event.row = row
    event.width = size
    event.node = node
    state.events += 1


@part
def slowest(nodes: NDArray[Any], first: int) -> float:
    """Return the least speed among the nodes of a job."""
    speed, node = np.inf, first
    while node >= 0:
        speed = min(speed, nodes[node].speed)
        node = nodes[node].next
    return speed


@part
def start_job(pool: Pool, row: int, first: int) -> None:
    """Start a job on the linked nodes from `first` on, which it has been given."""
    state, job = pool.state[0], pool.jobs[row]
    run = job.run
    if state.uneven:
        run = run / slowest(pool.nodes, first)
    job.start = state.now
    job.end = state.now + min(run, job.wall)
    job.first = first
    job.status = RUNNING
    state.free -= job.width
    push(pool.ends, state.running, job.end, row)
    if state.keeps_shadow:
        until = state.now + job.wall
        running = pool.running
        at = state.running
        while at > 0 and (
            running[at - 1].time > until
            or (running[at - 1].time == until and running[at - 1].row > row)
        ):
            running[at] = running[at - 1]
            at -= 1
        running[at].time = until
        running[at].row = row
        running[at].width = job.width
    state.running += 1
    if state.loop == NEGOTIATOR:
        take_over(pool, row, first)
    if state.logging:
        pool.log_at[row] = state.logged
        node = first
        while node >= 0:
            pool.log_nodes[state.logged] = node
            state.logged += 1
            node = pool.nodes[node].next
    if state.recording:
        record(pool, STARTED, row, job.width, -1)


@part
def release(pool: Pool, row: int) -> None:
    """Free the nodes of a job that stops and forget it in the running list (not in the heap)."""
    state, job = pool.state[0], pool.jobs[row]
    nodes = pool.nodes
    if state.loop == NEGOTIATOR:
        vacate(pool, row)
    node = lowest = job.first
    while node >= 0:
        lowest = min(lowest, node)
        nodes[node].row = -1
        if nodes[node].state == UP:
            set_free(pool.words, pool.top, node)
            state.free += 1
        node = nodes[node].next
    job.first = lowest
    if state.keeps_shadow:
        running = pool.running
        at = place_of(running, state.running, job.start + job.wall, row)
        for i in range(at, state.running - 1):
            running[i] = running[i + 1]
    state.running -= 1
    state.settled = 0
    if state.recording:
        record(pool, STOPPED, row, job.width, -1)


def scalars(pool: Pool) -> Any:
    """Return the state as Python code outside kernels reads and writes it, `scalars["now"]`.

    Attributes of records are convenient where they are compiled and slow where they are not.
    """
    return pool.state.view(_BARE_STATE)[0]
