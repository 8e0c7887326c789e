"""The queue of a machine: places in order of (key, row), with emptied ones among them.

A started job leaves an emptied place behind, whose size fits nowhere; places are closed up when
too many are empty. Per block of 64 places a lower bound of size and wall time lets a scan pass
over blocks in which nothing can start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels.compiling import outline, part
from rtsched.kernels.machine import GONE, NEGOTIATOR, QUEUED, MachineState
from rtsched.kernels.machine_claims import link, unlink
from rtsched.kernels.machine_limits import held_up, limit_reached
from rtsched.kernels.machine_sharing import UNKNOWN

if TYPE_CHECKING:
    from numpy.typing import NDArray


@part
def bound(machine: MachineState, at: int) -> None:
    """Lower the bounds of a place's block to what stands there."""
    slot, block = machine.queue[at], machine.blocks[at >> 6]
    block.width = min(block.width, slot.width)
    block.time = min(block.time, slot.wall)


@part
def occupy(machine: MachineState, at: int) -> None:
    """Bound the block of a place that is the last one of the queue so far."""
    if at & 63 == 0:
        machine.blocks[at >> 6].width = GONE
        machine.blocks[at >> 6].time = np.inf
    bound(machine, at)


@part
def close_up(machine: MachineState) -> None:
    """Move the waiting jobs to the front of the queue, without gaps."""
    state, queue = machine.state[0], machine.queue
    to, seen = 0, 0
    for at in range(state.head, state.tail):
        if at == state.seen:
            seen = to
        if queue[at].width != GONE:
            if to != at:
                queue[to] = queue[at]
            occupy(machine, to)
            to += 1
    state.seen = to if state.seen >= state.tail else seen
    state.head = 0
    state.tail = to


@part
def enqueue(machine: MachineState, row: int) -> None:
    """Put a job into the queue at its place in order of (key, row)."""
    state, queue, job = machine.state[0], machine.queue, machine.jobs[row]
    if state.waiting == 0:
        state.head = 0
        state.tail = 0
        state.seen = 0
        state.settled = 0
    elif state.tail >= len(queue) or state.head > 2 * (state.tail - state.head) + 1024:
        close_up(machine)
    key = machine.more[row].key if state.by_key else 0.0
    job.status = QUEUED
    at = state.tail
    state.tail += 1
    state.waiting += 1
    while at > state.head and (
        queue[at - 1].key > key or (queue[at - 1].key == key and queue[at - 1].row > row)
    ):
        queue[at] = queue[at - 1]
        at -= 1
    slot = queue[at]
    slot.key = key
    slot.row = row
    slot.width = job.width
    slot.wall = job.wall
    slot.reserved = np.inf
    if state.sharing:
        machine.tried[row].scan = UNKNOWN
        machine.no_room[row] = UNKNOWN
    occupy(machine, state.tail - 1)
    if state.loop == NEGOTIATOR:
        link(machine, row)
    if at < state.tail - 1:
        state.settled = 0
        for i in range(at, state.tail - 1):
            bound(machine, i)


@part
def leave(machine: MachineState, at: int) -> None:
    """Empty one place of the queue; the head moves on to the next job that waits."""
    state, queue = machine.state[0], machine.queue
    if state.loop == NEGOTIATOR:
        unlink(machine, queue[at].row)
    queue[at].width = GONE
    queue[at].wall = np.inf
    state.waiting -= 1
    if at == state.head:
        while state.head < state.tail and queue[state.head].width == GONE:
            state.head += 1
        state.settled = 0


@part
def may_start(machine: MachineState, at: int) -> bool:
    """Return whether a job waits at one place of the queue, and limits let it start."""
    state, slot = machine.state[0], machine.queue[at]
    if slot.width == GONE:
        return False
    return not (state.limited and held_up(machine.limits, slot.row, state.now, slot.wall))


@part
def head_over_limit(machine: MachineState) -> bool:
    """Return whether a limit came to hold up the job for which the others wait."""
    state = machine.state[0]
    if not state.limited:
        return False
    row = state.kept_for
    wall = machine.jobs[row].wall
    return bool(limit_reached(machine.limits, row, state.now, wall) >= 0)


@part
def find(machine: MachineState, row: int) -> int:
    """Return the place of a queued job, -1 if it does not wait."""
    state, queue = machine.state[0], machine.queue
    key = machine.more[row].key if state.by_key else 0.0
    low, high = state.head, state.tail
    while low < high:
        middle = (low + high) >> 1
        if queue[middle].key < key or (queue[middle].key == key and queue[middle].row < row):
            low = middle + 1
        else:
            high = middle
    while low < state.tail and queue[low].key == key and queue[low].row == row:
        if queue[low].width != GONE:
            return int(low)
        low += 1
    return -1


@part
def withdraw(machine: MachineState, row: int) -> bool:
    """Take a job out of the queue; return whether it was there."""
    at = find(machine, row)
    if at < 0:
        return False
    leave(machine, at)
    machine.state[0].settled = 0
    return True


@part
def rerank(machine: MachineState, values: NDArray[np.float64]) -> int:
    """Order the closed-up queue by priority, higher first, and return how many jobs moved.

    Parameters
    ----------
    machine : MachineState
        `close_up` has just been called.
    values : float64[waiting]
        The priorities, in the queue's present order.
    """
    state, queue = machine.state[0], machine.queue
    moved = 0
    for i in range(state.tail):
        row, size, wall, reserved = queue[i].row, queue[i].width, queue[i].wall, queue[i].reserved
        key = -values[i]
        machine.more[row].key = key
        at = i
        while at > 0 and (
            queue[at - 1].key > key or (queue[at - 1].key == key and queue[at - 1].row > row)
        ):
            queue[at] = queue[at - 1]
            at -= 1
        if at != i:
            moved += 1
        slot = queue[at]
        slot.key, slot.row, slot.width, slot.wall, slot.reserved = key, row, size, wall, reserved
    for i in range(state.tail):
        occupy(machine, i)
    if state.loop == NEGOTIATOR:
        link_anew(machine)
    state.settled = 0
    return moved


@outline
def link_anew(machine: MachineState) -> None:
    """Make the submitters' lists of waiting jobs anew, from the closed-up queue."""
    state = machine.state[0]
    fresh = state.fresh
    for who in range(len(machine.submitters)):
        machine.submitters[who].first = -1
        machine.submitters[who].last = -1
    for at in range(state.tail):
        link(machine, machine.queue[at].row)
    state.fresh = fresh


@part
def list_queue(machine: MachineState) -> int:
    """Close up the queue, write down its rows with priority 0, and return how many they are."""
    state = machine.state[0]
    close_up(machine)
    for i in range(state.waiting):
        machine.rows[i] = machine.queue[i].row
        machine.values[i] = 0.0
    return int(state.waiting)
