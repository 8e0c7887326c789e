"""The batch system's machine: its state as records, and who takes which node.

Each node is given to one job at a time, unless jobs share nodes
(`rtsched.kernels.machine_sharing`). The records are rows of structured arrays, so that compiled
code touches one place per job and the same source runs plainly. Times are float64 seconds relative
to the first submission.

Which nodes: the free ones are bits of 32-bit words under one summary level, and the nodes of a
running job form a linked list through `NODE.next`, so starting a job allocates nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rtsched.kernels.compiling import part
from rtsched.kernels.machine_claims import take_over, vacate
from rtsched.kernels.machine_gates import dependency_over
from rtsched.kernels.machine_limits import count_running
from rtsched.kernels.machine_sharing import move_out, slowest_held
from rtsched.kernels.records import push, record_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.kernels.machine_limits import LimitCounts
    from rtsched.kernels.machine_preemption import PreemptionRules
    from rtsched.kernels.machine_sharing import Lanes, Placement
    from rtsched.kernels.room import RoomProfile

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

TRIED = record_type(("scan", "i8"), ("place", "i8"))
"""The scan of shared nodes in which a waiting job was looked at last, and what came of it.

The job had room on none of its nodes before `place` (in the order of its node set), `TOO_FEW`: on
too few of all.
"""

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

STATE_FIELDS = (
    # The clock, and when something is due.
    ("now", "f8", "The present time."),
    ("shadow", "f8", "When the head of the queue can start by the requested ends; inf: never."),
    ("next_reserved", "f8", "Conservative: the earliest reservation of a queued job; inf: none."),
    ("last_cycle", "f8", "Negotiator: time of the last negotiation cycle."),
    ("next_cycle", "f8", "Negotiator: time of the next one; inf: none is due."),
    ("interval", "f8", "Negotiator: seconds between cycles."),
    ("cycle_delay", "f8", "Negotiator: seconds after a cycle before a submission causes another."),
    ("half_life", "f8", "Negotiator: seconds in which a real priority halves."),
    ("least_priority", "f8", "Negotiator: best real priority, that of a new user."),
    (
        "worklife",
        "f8",
        "Negotiator: seconds for which a claim takes further jobs; below 0: no end.",
    ),
    ("asked_memory", "f8", "Negotiator: memory of the last request that searched the slots, MB."),
    ("asked_wall", "f8", "Negotiator: requested time of that request."),
    # Settings.
    ("loop", "i8", "The scheduler: FCFS, EASY, CONSERVATIVE, SERIAL or NEGOTIATOR."),
    ("depth", "i8", "Queued jobs that backfilling looks at; 0: all."),
    ("by_key", "i8", "Whether the queue is in order of `more.key`, not of arrival."),
    ("extended", "i8", "Whether `more` has a row per job."),
    ("uneven", "i8", "Whether nodes differ in speed."),
    ("requeue", "i8", "Whether a job whose node died is queued again, not lost."),
    ("keeps_shadow", "i8", "Whether the running list is kept, which `shadow` is found by."),
    ("sharing", "i8", "Whether nodes run several jobs at a time, each with its demand."),
    ("licenses", "i8", "How many kinds of licences there are, where jobs share nodes."),
    ("placement", "i8", "Which of the nodes with room a job is given: FIRST or another rule."),
    ("refused", "i8", "Whether a job that fits was kept waiting for the head of the queue."),
    ("protected", "i8", "Whether the head's shadow time is known, where jobs share nodes."),
    ("scan", "i8", "Number of the scan of shared nodes that is under way, or was the last."),
    ("known", "i8", "The scan of which it is known where room came free since: in `grown`."),
    ("grown", "i8", "Length of `grown`; ANYWHERE: room may have come free on any node."),
    ("grown_most", "i8", "Packed: no node of `grown` has more left."),
    ("limited", "i8", "Whether jobs may be over limits of their groups."),
    ("beyond", "i8", "Planned jobs that started though they were over a limit."),
    ("preempting", "i8", "Whether waiting jobs may preempt running ones."),
    ("retry", "i8", "Whether a job started since: such a job may now be given other nodes."),
    ("node_level", "i8", "Whether passes must look at each node: node sets, or nodes not up."),
    ("ask_arrivals", "i8", "Whether to stop for jobs that arrived."),
    ("ask_passes", "i8", "Whether to stop before a pass."),
    ("ask_early", "i8", "Whether to stop when a job ended early while a plan exists."),
    ("ask_nodes", "i8", "Whether to stop when a node changed its state."),
    ("pause_at", "i8", "Value of `upcoming` at which to pause."),
    ("phase", "i8", "Where the event loop goes on: NEXT, ASK, ACT or PASS."),
    # The queue, the running jobs and the plan.
    ("free", "i8", "Free nodes that are up."),
    ("extra", "i8", "Free nodes that the head of the queue leaves over at `shadow`."),
    (
        "settled",
        "i8",
        "Whether nothing came free since the last pass: before `seen` none can start.",
    ),
    ("head", "i8", "First place of the queue in use."),
    ("kept_for", "i8", "Row of the first job that limits let start, for which EASY keeps nodes."),
    ("tail", "i8", "First place behind the queue."),
    ("seen", "i8", "First place of the queue that no pass has looked at."),
    ("waiting", "i8", "Jobs in the queue."),
    ("upcoming", "i8", "Row of the next job to arrive; jobs that have arrived."),
    ("running", "i8", "Running jobs: length of `ends` and `running`."),
    ("sleeping", "i8", "Length of `sleepers`."),
    ("again", "i8", "Length of `again`."),
    ("gated", "i8", "Whether some jobs wait for others: `gates` has a row per job."),
    ("opened", "i8", "Length of `opened`."),
    ("asked", "i8", "Length of `asked`."),
    ("planned", "i8", "First entry of the plan whose job still waits."),
    ("plan_size", "i8", "Entries of the plan: length of `plan`."),
    ("plan_left", "i8", "Entries of the plan that are still to come."),
    ("joining", "i8", "Entries of the plan that are to give a node to a running job."),
    ("node_event", "i8", "Next entry of `node_events`."),
    ("early", "i8", "Whether a job ended before its requested end at this instant."),
    ("changed", "i8", "Whether a node changed its state at this instant."),
    # The profile (conservative).
    ("steps", "i8", "Length of `profile`."),
    ("past", "i8", "Its step in which the present lies."),
    ("tighten", "i8", "Whether the next pass compresses the reservations: a job ended early."),
    ("rebuild", "i8", "Whether the next pass makes the profile anew: nodes or plan changed."),
    # The negotiator.
    ("dedicated", "i8", "Submitter to whom parallel jobs belong."),
    ("widest", "i8", "CPUs of the largest slot; wider jobs are parallel ones."),
    ("active", "i8", "Submitters with a job in the queue."),
    ("fresh", "i8", "Whether a job was submitted since the last cycle."),
    ("calm", "i8", "Whether another cycle would match nothing, as nothing changed."),
    ("held", "i8", "Claimed CPUs that are kept idle for a parallel job."),
    ("dealt", "i8", "CPUs given to parallel jobs in this cycle."),
    ("vacated", "i8", "CPUs whose jobs stopped, noted in `claims`."),
    ("marked", "i8", "Node set that is marked in the nodes."),
    ("cursor", "i8", "Where the last search of the slots ended."),
    ("asked_size", "i8", "CPUs that this search asked for; above all: it says nothing any more."),
    ("asked_group", "i8", "Node set that it asked for."),
    # Records of what happened.
    ("recording", "i8", "Whether events are written down."),
    ("keeping", "i8", "Whether they are kept for Python after a policy has seen them."),
    ("events", "i8", "Length of `events`."),
    ("observed", "i8", "How many of them the policy has seen."),
    ("logging", "i8", "Whether the nodes of each start are written down."),
    ("logged", "i8", "Length of `log_nodes`."),
    # For what the loop stops that a policy answers.
    ("ranking", "i8", "Whether a policy gives priorities."),
    ("observing", "i8", "Whether a policy observes events at each instant."),
)
STATE = record_type(*((name, kind) for name, kind, _ in STATE_FIELDS))
"""The scalars of the whole system, by `STATE_FIELDS`: name, type and meaning of each."""

_BARE_STATE = np.dtype((np.void, STATE))


class MachineState(NamedTuple):
    """The state of the exclusive machine; the arrays are changed in place."""

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
    """PLANNED_START, in order of (start, row), with room for more; `state.joining` of them do not
    start a job."""
    plan_nodes: NDArray[np.int32]
    """Nodes of the plan's entries, with room for more."""
    span_of: NDArray[np.int64]
    """Node i has the reserved intervals `spans[span_of[i]:span_of[i + 1]]`, in order of start."""
    spans: NDArray[Any]
    """SPAN, with room for more."""
    awaited: NDArray[np.float64]
    """float64[n], node-seconds for which a job waited for nodes that joined it; empty: nobody."""
    group_of: NDArray[np.int64]
    """Node set g holds `group_nodes[group_of[g]:group_of[g + 1]]`, most wanted first."""
    group_nodes: NDArray[np.int32]
    """Nodes of the node sets."""
    profile: NDArray[Any]
    """TIMED: free nodes (`width`) from each time on, for conservative backfilling. `ABSENT` where
    there is none, and jobs neither share nodes nor preempt."""
    rows: NDArray[np.int64]
    """Scratch: rows handed to a hook."""
    values: NDArray[np.float64]
    """Scratch: what the hook says of them."""
    picks: NDArray[np.int64]
    """Scratch of m entries: nodes chosen for a job."""
    latest_end: NDArray[np.float64]
    """Scratch of m + 1 entries: a job of so many nodes that ends later finds too few."""
    sweep: NDArray[Any]
    """TIMED, scratch: changes in the number of nodes that a job could use. `ABSENT` where only
    `profile` is asked for that."""
    gates: NDArray[Any]
    """GATE[n], then one per array that jobs wait for (where jobs wait for others only, as all up to
    `dependent_rows`)."""
    dependent_of: NDArray[np.int64]
    """For job or array i wait `dependents[dependent_of[i]:dependent_of[i + 1]]`."""
    dependents: NDArray[Any]
    """DEPENDENT."""
    arrays: NDArray[Any]
    """ARRAY."""
    tasks: NDArray[np.int64]
    """Rows of the tasks of arrays."""
    opened: NDArray[np.int64]
    """Rows whose gate may have opened."""
    dependent_rows: NDArray[np.int64]
    """Rows of the jobs that wait for others at some time, ascending; no kernel reads it."""
    requests: NDArray[Any]
    """REQUEST[n] (negotiator only, as all below)."""
    claims: NDArray[Any]
    """CLAIM[m]."""
    offers: NDArray[Any]
    """OFFER, one per slot, best first."""
    submitters: NDArray[Any]
    """SUBMITTER."""
    demand: NDArray[np.int64]
    """int64[n, r]: what a job takes on each of its nodes, the last resource being tenancy (shared
    nodes only, as all below)."""
    fitting: NDArray[np.int32]
    """int32[n]: on how many of its nodes a job fits if nobody else is there."""
    held_at: NDArray[np.int64]
    """Job i has or had the nodes `held[held_at[i]:held_at[i] + width]`."""
    held: NDArray[np.int32]
    """Nodes of the jobs, of each those of its last start, ascending."""
    room: NDArray[np.int64]
    """int64[m, r]: what is left on each node."""
    later: NDArray[np.int64]
    """int64[m, r]: what is left at the head's shadow time."""
    tried: NDArray[Any]
    """TRIED[n]."""
    no_room: NDArray[np.int64]
    """int64[n]: the packed demand of a job that still had room on too few nodes at the scan
    `state.known`, `UNKNOWN`: of no other is it known."""
    lanes: Lanes
    """How demands are packed."""
    grown: NDArray[np.int64]
    """Nodes on which room came free since the scan `state.known`, some of them twice."""
    most: NDArray[np.int64]
    """int64[r]: no node has more left."""
    candidates: NDArray[np.int64]
    """Scratch of m entries: nodes that a job may have."""
    step_room: RoomProfile
    """What is left from each time on, reservations and the plan taken off. `ABSENT`, as are
    `placement` and `preemption`, where jobs neither share nodes nor preempt."""
    placement: Placement
    """What nodes are chosen by, unless the first ones with room are taken."""
    limits: LimitCounts
    """Limits of groups of jobs, where there are any."""
    preemption: PreemptionRules
    """Who may preempt whom, where somebody may."""


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
def take_picks(machine: MachineState, row: int, count: int) -> int:
    """Give the nodes `machine.picks[:count]` to a job, in that order, and return the first."""
    nodes, picks = machine.nodes, machine.picks
    for i in range(count):
        node = picks[i]
        set_busy(machine.words, machine.top, node)
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
def record(machine: MachineState, kind: int, row: int, size: int, node: int) -> None:
    """Write down one event at the present time."""
    state = machine.state[0]
    event = machine.events[state.events]
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
def start_job(machine: MachineState, row: int, first: int) -> None:
    """Start a job on the linked nodes from `first` on, which it has been given."""
    state, job = machine.state[0], machine.jobs[row]
    run = job.run
    if state.uneven and state.sharing:
        run = run / slowest_held(machine, row, job.width)
    elif state.uneven:
        run = run / slowest(machine.nodes, first)
    job.start = state.now
    job.end = state.now + min(run, job.wall)
    job.first = first
    job.status = RUNNING
    if not state.sharing:
        state.free -= job.width
    push(machine.ends, state.running, job.end, row)
    if state.keeps_shadow:
        until = state.now + job.wall
        running = machine.running
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
    if state.limited:
        count_running(machine.limits, row, 1, state.now, state.now + job.wall)
    if state.gated:
        dependency_over(machine, row, True, True)
    if state.loop == NEGOTIATOR:
        take_over(machine, row, first)
    if state.logging:
        machine.log_at[row] = state.logged
        node = first
        while node >= 0:
            machine.log_nodes[state.logged] = node
            state.logged += 1
            node = machine.nodes[node].next
    if state.recording:
        record(machine, STARTED, row, job.width, -1)


@part
def release(machine: MachineState, row: int) -> None:
    """Free the nodes of a job that stops and forget it in the running list (not in the heap)."""
    state, job = machine.state[0], machine.jobs[row]
    nodes = machine.nodes
    if state.loop == NEGOTIATOR:
        vacate(machine, row)
    node = lowest = job.first
    if state.sharing:
        move_out(machine, row)
        node = -1
    while node >= 0:
        lowest = min(lowest, node)
        nodes[node].row = -1
        if nodes[node].state == UP:
            set_free(machine.words, machine.top, node)
            state.free += 1
        node = nodes[node].next
    job.first = lowest
    if state.keeps_shadow:
        running = machine.running
        at = place_of(running, state.running, job.start + job.wall, row)
        for i in range(at, state.running - 1):
            running[i] = running[i + 1]
    state.running -= 1
    state.settled = 0
    if state.limited:
        count_running(machine.limits, row, -1, state.now, job.start + job.wall)
    if state.recording:
        record(machine, STOPPED, row, job.width, -1)


def scalars(machine: MachineState) -> Any:
    """Return the state as Python code outside kernels reads and writes it, `scalars["now"]`.

    Attributes of records are convenient where they are compiled and slow where they are not.
    """
    return machine.state.view(_BARE_STATE)[0]
