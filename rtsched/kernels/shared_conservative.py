"""Conservative backfilling over nodes that jobs share: every queued job has its nodes reserved.

A job that comes gets the earliest time at which enough nodes have room for its whole requested
time, and of these the first. When a job ends early, in queue order each reservation is taken out
and put back at its earliest time, which is never later than where it was.

References
----------
Mu'alem and Feitelson, 2001: Utilization, predictability, workloads, and user runtime estimates in
scheduling the IBM SP2 with backfilling; here on several resources.
"""

from __future__ import annotations

import numpy as np

from rtsched.kernels.machine import GONE, UP, MachineState
from rtsched.kernels.machine_compiling import outline, part
from rtsched.kernels.machine_nodes import group_of
from rtsched.kernels.machine_queue import close_up
from rtsched.kernels.room_profile import earliest_start, forget, occupy, reset
from rtsched.kernels.shared_backfill import launch_shared


@part
def list_candidates(machine: MachineState, row: int) -> int:
    """List the nodes that are up and in a job's node set; return how many they are."""
    group, count = group_of(machine, row), 0
    first, last = 0, len(machine.nodes)
    if group >= 0:
        first, last = machine.group_of[group], machine.group_of[group + 1]
    for i in range(first, last):
        node = machine.group_nodes[i] if group >= 0 else i
        if machine.nodes[node].state == UP:
            machine.candidates[count] = node
            count += 1
    return count


@part
def occupy_held(
    machine: MachineState, row: int, size: int, start: float, end: float, sign: int
) -> None:
    """Take a job's demand on its nodes from `start` to `end` (sign 1), or give it back (-1)."""
    at = machine.held_at[row]
    for i in range(at, at + size):
        occupy(machine.step_room, machine.held[i], start, end, machine.demand, row, sign)


@outline
def reserve_shared(machine: MachineState, at: int) -> None:
    """Give the job at one place of the queue its earliest reservation."""
    state, slot = machine.state[0], machine.queue[at]
    count = list_candidates(machine, slot.row)
    slot.reserved = earliest_start(
        machine.step_room,
        machine.candidates,
        count,
        slot.width,
        state.now,
        slot.wall,
        machine.demand,
        slot.row,
        machine.picks,
    )
    if slot.reserved < np.inf:
        for i in range(slot.width):
            machine.held[machine.held_at[slot.row] + i] = machine.picks[i]
        end = slot.reserved + slot.wall
        occupy_held(machine, slot.row, slot.width, slot.reserved, end, 1)


@part
def unreserve_shared(machine: MachineState, at: int) -> None:
    """Take the reservation of the job at one place of the queue back."""
    slot = machine.queue[at]
    if slot.reserved < np.inf:
        end = slot.reserved + slot.wall
        occupy_held(machine, slot.row, slot.width, slot.reserved, end, -1)
        slot.reserved = np.inf


@outline
def rebuild_shared(machine: MachineState) -> None:
    """Make the profile anew of what runs; all reservations are to be made again."""
    state = machine.state[0]
    reset(machine.step_room, machine.room, state.now)
    for i in range(state.running):
        entry = machine.running[i]
        size = machine.jobs[entry.row].width
        occupy_held(machine, entry.row, size, max(entry.time, state.now), np.inf, -1)
    for at in range(state.head, state.tail):
        machine.queue[at].reserved = np.inf
    state.next_reserved = np.inf
    state.steps = 1
    state.rebuild = 0
    state.tighten = 0
    state.settled = 0


@outline
def give_back_shared(machine: MachineState, row: int, until: float) -> None:
    """Take the rest of an early ended job's requested time out of the profile."""
    state = machine.state[0]
    if state.steps > 0 and not state.rebuild:
        occupy_held(machine, row, machine.jobs[row].width, state.now, until, -1)
        state.tighten = 1


@part
def reserve_all_shared(machine: MachineState) -> None:
    """Compress the reservations if a job ended early, and give one to each job without."""
    state, queue = machine.state[0], machine.queue
    looked = 0
    first = state.seen if state.settled and not state.tighten and state.depth == 0 else state.head
    for at in range(first, state.tail):
        if queue[at].width == GONE:
            continue
        if state.depth > 0 and looked == state.depth:
            break
        looked += 1
        if state.tighten and state.now < queue[at].reserved < np.inf:
            unreserve_shared(machine, at)
        if queue[at].reserved == np.inf:
            reserve_shared(machine, at)
        state.next_reserved = min(state.next_reserved, queue[at].reserved)
    state.seen = state.tail
    state.settled = 1
    state.tighten = 0


@part
def start_reserved_shared(machine: MachineState) -> None:
    """Start the jobs whose reserved time has come, and find the next such time."""
    state, queue = machine.state[0], machine.queue
    if state.next_reserved > state.now:
        return
    state.next_reserved = np.inf
    for at in range(state.head, state.tail):
        if queue[at].width == GONE:
            continue
        if queue[at].reserved <= state.now:
            for i in range(queue[at].width):
                machine.picks[i] = machine.held[machine.held_at[queue[at].row] + i]
            launch_shared(machine, at)
        else:
            state.next_reserved = min(state.next_reserved, queue[at].reserved)


@outline
def shared_conservative_pass(machine: MachineState) -> None:
    """Start what conservative backfilling lets start now."""
    state = machine.state[0]
    if state.rebuild or state.steps == 0:
        rebuild_shared(machine)
    for node in range(len(machine.nodes)):
        forget(machine.step_room, node, state.now)
    if state.waiting > 0:
        if state.tail - state.head > 2 * state.waiting + 64:
            close_up(machine)
        reserve_all_shared(machine)
        start_reserved_shared(machine)
