"""Nodes of a machine that differ: reserved for later, in a job's node set, down or drained.

Which nodes a job may use now follows from each node's *limit*: a job started now must end by then.
It is the start of the node's next reservation, and on nodes that the head of the queue needs, the
head's shadow time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.kernels.compiling import inlined, only_with, outline, part
from rtsched.kernels.machine import (
    DOWN,
    DROPPED,
    JOINS,
    LOST,
    NEGOTIATOR,
    NODE_CHANGED,
    PLANNED,
    RUNNING,
    STARTS,
    UP,
    MachineState,
    bit_index,
    is_free,
    place_of,
    record,
    release,
    set_busy,
    set_free,
    start_job,
    take_picks,
)
from rtsched.kernels.machine_claims import take_over
from rtsched.kernels.machine_gates import job_over
from rtsched.kernels.machine_limits import limit_reached
from rtsched.kernels.machine_queue import enqueue
from rtsched.kernels.machine_sharing import ANYWHERE, fits, licenses_left, move_in
from rtsched.kernels.records import sift

if TYPE_CHECKING:
    from numpy.typing import NDArray


@part
def group_of(machine: MachineState, row: int) -> int:
    """Return the node set a job is bound to, -1 if to none."""
    return int(machine.more[row].group) if machine.state[0].extended else -1


@part
def nodes_in(machine: MachineState, group: int) -> tuple[int, int]:
    """Return first and end of the places (see `node_at`) of the nodes of a node set, -1: of all."""
    if group < 0:
        return 0, len(machine.nodes)
    return machine.group_of[group], machine.group_of[group + 1]


@part
def node_at(machine: MachineState, group: int, place: int) -> int:
    """Return the node at one place of a node set, -1: of all nodes."""
    return int(machine.group_nodes[place]) if group >= 0 else place


@part
def usable_count(machine: MachineState, group: int) -> int:
    """Return how many nodes of a node set (-1: of all) take new jobs, now or when they are free."""
    count = 0
    first, end = nodes_in(machine, group)
    for i in range(first, end):
        count += machine.nodes[node_at(machine, group, i)].state == UP
    return count


@part
def before(nodes: NDArray[Any], a: int, b: int) -> bool:
    """Return whether node `a` is the tighter fit: less time to its limit, then the lower index."""
    return bool(nodes[a].limit < nodes[b].limit or (nodes[a].limit == nodes[b].limit and a < b))


@outline
def sort_picks(nodes: NDArray[Any], picks: NDArray[np.int64], count: int, size: int) -> None:
    """Put the first `size` of `count` picks by (limit, index) first, in order: heap sort in place.

    The loosest of those so far are on top of a heap, and make room for tighter ones.
    """
    for at in range(size // 2 - 1, -1, -1):
        sink(nodes, picks, size, at)
    for at in range(size, count):
        if before(nodes, picks[at], picks[0]):
            picks[0] = picks[at]
            sink(nodes, picks, size, 0)
    for last in range(size - 1, 0, -1):
        picks[0], picks[last] = picks[last], picks[0]
        sink(nodes, picks, last, 0)


@part
def sink(nodes: NDArray[Any], picks: NDArray[np.int64], count: int, at: int) -> None:
    """Let the pick at a place of a heap (the loosest fit on top) sink to where it belongs."""
    node = picks[at]
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        if child + 1 < count and before(nodes, picks[child], picks[child + 1]):
            child += 1
        if before(nodes, picks[child], node):
            break
        picks[at] = picks[child]
        at = child
    picks[at] = node


@outline
def choose(machine: MachineState, size: int, wall: float, group: int) -> bool:
    """Choose `width` free nodes for a job of `wall` seconds; return whether there are as many.

    In a node set, its first ones; else those of the tightest limit, then of the lowest index.
    """
    state, nodes, picks = machine.state[0], machine.nodes, machine.picks
    end, count = state.now + wall, 0
    if group >= 0:
        first, last = nodes_in(machine, group)
        for i in range(first, last):
            node = node_at(machine, group, i)
            if is_free(machine.words, node) and end <= nodes[node].limit:
                picks[count] = node
                count += 1
                if count == size:
                    return True
        return False
    same = True
    for word in range(len(machine.words)):
        bits = machine.words[word]
        while bits != 0:
            low = bits & -bits
            bits ^= low
            node = word * 32 + bit_index(low)
            if end <= nodes[node].limit:
                picks[count] = node
                same = same and nodes[node].limit == nodes[picks[0]].limit
                count += 1
    if count < size:
        return False
    if not same:
        sort_picks(nodes, picks, count, size)
    return True


@part
def start_on_picks(machine: MachineState, row: int, size: int) -> None:
    """Start a job on the nodes just chosen."""
    start_job(machine, row, take_picks(machine, row, size))


@part
def next_span(machine: MachineState, node: int) -> None:
    """Let a node go on to its next reservation."""
    entry = machine.nodes[node]
    entry.span += 1
    entry.window = np.inf
    if entry.span < machine.span_of[node + 1]:
        entry.window = machine.spans[entry.span].start


@part
def count_joins(machine: MachineState, row: int, drop: bool) -> int:
    """Return how many nodes are still to join a job; `drop`: they no longer are."""
    count = 0
    if machine.state[0].joining > 0:
        for i in range(machine.state[0].planned, machine.state[0].plan_size):
            if machine.plan[i].row == row and machine.plan[i].joins == JOINS:
                count += 1
                if drop:
                    machine.plan[i].joins = DROPPED
    return count


@outline
def remove_end(ends: NDArray[Any], count: int, row: int) -> None:
    """Take a job out of the heap of ends, wherever it stands."""
    at = 0
    while at < count and ends[at].row != row:
        at += 1
    ends[at] = ends[count - 1]
    for k in range((count - 1) // 2 - 1, -1, -1):
        sift(ends, count - 1, k, ends[k].time, ends[k].row)


@part
def send_back(machine: MachineState, row: int) -> None:
    """Queue a stopped job again, at its old place."""
    job = machine.jobs[row]
    job.start = np.nan
    job.end = np.nan
    job.first = -1
    enqueue(machine, row)


@part
def lose(machine: MachineState, row: int) -> None:
    """Give a stopped job up: it does not finish."""
    machine.jobs[row].end = machine.state[0].now
    machine.jobs[row].status = LOST
    if machine.state[0].gated:
        job_over(machine, row, False)


@inlined
def kill(machine: MachineState, row: int) -> None:
    """Stop a job whose node died; it is queued again at its old place, or lost."""
    state = machine.state[0]
    missing = count_joins(machine, row, True)
    remove_end(machine.ends, state.running, row)
    release(machine, row)
    if state.requeue:
        machine.jobs[row].width += missing
        machine.more[row].restarts += 1
        send_back(machine, row)
    else:
        lose(machine, row)


@only_with("step_room")
def kill_guests(machine: MachineState, node: int) -> None:
    """Stop the jobs on a shared node that died."""
    state = machine.state[0]
    for i in range(state.running - 1, -1, -1):
        row = machine.running[i].row
        at = machine.held_at[row]
        for k in range(at, at + machine.jobs[row].width):
            if machine.held[k] == node:
                kill(machine, row)
                break


@outline
def join(machine: MachineState, i: int) -> None:
    """Give a running job the node that it has been waiting for, if the node is idle.

    If the node is dead by then, so is the job, as if the node had died under it.
    """
    state, entry = machine.state[0], machine.plan[i]
    row, node = int(entry.row), int(machine.plan_nodes[entry.at])
    job, status = machine.jobs[row], machine.jobs[row].status
    here = entry.joins == JOINS and status == RUNNING
    if entry.joins == JOINS and (status == PLANNED or (here and machine.nodes[node].row >= 0)):
        return
    dead = here and machine.nodes[node].state == DOWN
    if dead:
        kill(machine, row)
    next_span(machine, node)
    state.settled = 0
    entry.row = -1
    state.plan_left -= 1
    state.joining -= 1
    if dead or not here:
        return
    if is_free(machine.words, node):
        set_busy(machine.words, machine.top, node)
        state.free -= 1
    if state.logging:
        machine.log_nodes[machine.log_at[row] + job.width] = node
    machine.nodes[node].row = row
    machine.nodes[node].next = job.first
    job.first = node
    job.width += 1
    machine.awaited[row] += state.now - job.start
    if state.loop == NEGOTIATOR:
        take_over(machine, row, node)
    if state.keeps_shadow:
        machine.running[
            place_of(machine.running, state.running, job.start + job.wall, row)
        ].width += 1


@outline
def start_planned(machine: MachineState) -> None:
    """Start the planned jobs that are due on their nodes.

    One whose nodes are still busy starts when they are free; one of whose nodes is out of service
    loses its place in the plan and waits in the queue.
    """
    state, plan, picks = machine.state[0], machine.plan, machine.picks
    for i in range(state.planned, state.plan_size):
        entry = plan[i]
        if entry.start > state.now:
            break
        if entry.row < 0:
            continue
        ready, in_service = True, True
        if entry.joins != STARTS:
            join(machine, i)
            continue
        if state.sharing:
            ready = licenses_left(machine, machine.room, entry.row)
        for k in range(entry.width):
            node = machine.plan_nodes[entry.at + k]
            picks[k] = node
            if state.sharing:
                ready = ready and fits(machine.room, node, machine.demand, entry.row)
            else:
                ready = ready and is_free(machine.words, node)
            in_service = in_service and machine.nodes[node].state == UP
        if in_service and not ready:
            continue
        row = int(entry.row)
        if state.sharing:
            state.settled = 0
            state.rebuild |= entry.start < state.now
        else:
            state.settled = 0
            for k in range(entry.width):
                next_span(machine, picks[k])
        entry.row = -1
        state.plan_left -= 1
        if in_service:
            if state.limited and limit_reached(machine.limits, row, state.now, entry.wall) >= 0:
                state.beyond += 1
            job = machine.jobs[row]
            job.width, job.run, job.wall = entry.width, entry.run, entry.wall
            if state.sharing:
                start_job(machine, row, move_in(machine, row, job.width))
            else:
                start_on_picks(machine, row, job.width)
            if state.logging and state.joining > 0:
                state.logged += count_joins(machine, row, False)
        else:
            count_joins(machine, row, True)
            enqueue(machine, row)
    while state.planned < len(plan) and plan[state.planned].row < 0:
        state.planned += 1


@outline
def change_nodes(machine: MachineState) -> None:
    """Let the node events happen that are due."""
    state, events = machine.state[0], machine.node_events
    while state.node_event < len(events) and events[state.node_event].time <= state.now:
        node = int(events[state.node_event].row)
        entry = machine.nodes[node]
        if entry.state == UP and entry.row < 0:
            set_busy(machine.words, machine.top, node)
            state.free -= 1
        entry.state = events[state.node_event].width
        if entry.state == DOWN and entry.row >= 0:
            kill(machine, int(entry.row))
        elif entry.state == DOWN and state.sharing:
            kill_guests(machine, node)
        if entry.state == UP and entry.row < 0:
            set_free(machine.words, machine.top, node)
            state.free += 1
        if state.recording:
            record(machine, NODE_CHANGED, -1, 0, node)
        state.node_event += 1
        state.changed = 1
        state.settled = 0
        state.rebuild = 1
        state.grown = ANYWHERE
