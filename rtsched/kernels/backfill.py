"""One scheduling pass over a machine in which every free node is as good as another.

FCFS starts jobs in queue order until one does not fit. EASY then gives that job, the head, the
earliest time at which the requested ends of the running jobs leave it enough nodes (its shadow
time), and lets later jobs start if they end by then or fit the nodes that the head leaves over.

References
----------
Lifka, 1995: The ANL/IBM SP scheduling system (EASY backfilling).
"""

from __future__ import annotations

import numpy as np

from rtsched.kernels.machine import GONE, MachineState, start_job, take_lowest
from rtsched.kernels.machine_compiling import inlined, part
from rtsched.kernels.machine_queue import close_up, leave


@part
def launch(machine: MachineState, at: int) -> None:
    """Start the job at one place of the queue on the lowest free nodes."""
    slot = machine.queue[at]
    row = slot.row
    first = take_lowest(machine.nodes, machine.words, machine.top, row, slot.width)
    leave(machine, at)
    start_job(machine, row, first)


@part
def start_heads(machine: MachineState) -> None:
    """Start jobs in queue order until one does not fit or none waits."""
    state = machine.state[0]
    while state.waiting > 0 and machine.queue[state.head].width <= state.free:
        launch(machine, state.head)


@inlined
def find_shadow(machine: MachineState, size: int) -> None:
    """Find when the head can start by the requested ends, and how many nodes it leaves over then.

    Jobs that end at one instant all count; `extra` is what is free then less `width`.
    """
    state, running = machine.state[0], machine.running
    free, i = state.free, 0
    while i < state.running and free < size:
        state.shadow = running[i].time
        free += running[i].width
        i += 1
    while i < state.running and running[i].time == state.shadow:
        free += running[i].width
        i += 1
    state.extra = free - size


@part
def backfill(machine: MachineState, first: int) -> None:
    """Start the jobs from place `first` on that do not delay the head."""
    state, queue = machine.state[0], machine.queue
    at = first
    while at < state.tail and state.free > 0:
        block = machine.blocks[at >> 6]
        stop = min(state.tail, ((at >> 6) + 1) << 6)
        if block.width > state.free or (
            state.now + block.time > state.shadow and block.width > state.extra
        ):
            at = stop
            continue
        whole = at & 63 == 0
        least, shortest = GONE, np.inf
        while at < stop and state.free > 0:
            size, wall = queue[at].width, queue[at].wall
            if size <= state.free:
                in_time = state.now + wall <= state.shadow
                if in_time or size <= state.extra:
                    launch(machine, at)
                    if not in_time:
                        state.extra -= size
                    at += 1
                    continue
            least = min(least, size)
            shortest = min(shortest, wall)
            at += 1
        if whole and at == stop:
            block.width = least
            block.time = shortest


@inlined
def backfill_within(machine: MachineState, depth: int) -> None:
    """Start those of the first `depth` jobs behind the head that do not delay it."""
    state, queue = machine.state[0], machine.queue
    at, looked = state.head + 1, 0
    while at < state.tail and state.free > 0 and looked < depth:
        size = queue[at].width
        if size != GONE:
            looked += 1
            in_time = state.now + queue[at].wall <= state.shadow
            if size <= state.free and (in_time or size <= state.extra):
                launch(machine, at)
                if not in_time:
                    state.extra -= size
        at += 1


@inlined
def easy_pass(machine: MachineState) -> None:
    """Start what EASY lets start now.

    As long as no job ended and the head is the same, jobs that did not fit at the last pass do not
    fit now: only those that came since are looked at.
    """
    state = machine.state[0]
    if not state.settled:
        if state.tail - state.head > 2 * state.waiting + 64:
            close_up(machine)
        start_heads(machine)
        if state.waiting == 0 or state.free == 0:
            return
        find_shadow(machine, machine.queue[state.head].width)
        if state.depth > 0:
            backfill_within(machine, state.depth)
            return
        state.seen = state.head + 1
        state.settled = 1
    backfill(machine, state.seen)
    state.seen = state.tail
