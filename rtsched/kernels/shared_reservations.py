"""Reservations on nodes that jobs share: the steps of conservative backfilling that differ there.

The pass is that of `rtsched.kernels.machine_profile`. A reservation is the earliest time at which
enough nodes have room for the whole requested time, and of these nodes the first.
"""

from __future__ import annotations

import numpy as np

from rtsched.kernels.machine import UP, MachineState
from rtsched.kernels.machine_compiling import outline, part
from rtsched.kernels.machine_nodes import group_of
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
def reserve_shared(machine: MachineState, at: int, start: float) -> None:
    """Give the job at one place of the queue its earliest reservation from `start` on."""
    slot = machine.queue[at]
    count = list_candidates(machine, slot.row)
    slot.reserved = earliest_start(
        machine.step_room,
        machine.candidates,
        count,
        slot.width,
        start,
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
    """Take the reservation of the job at one place of the queue out of the profile."""
    slot = machine.queue[at]
    end = slot.reserved + slot.wall
    occupy_held(machine, slot.row, slot.width, slot.reserved, end, -1)


@outline
def rebuild_shared(machine: MachineState) -> None:
    """Make the profile anew: what runs."""
    state = machine.state[0]
    reset(machine.step_room, machine.room, state.now)
    for i in range(state.running):
        entry = machine.running[i]
        size = machine.jobs[entry.row].width
        occupy_held(machine, entry.row, size, max(entry.time, state.now), np.inf, -1)


@part
def forget_past_shared(machine: MachineState) -> None:
    """Let the profile of each node begin at the step in which the present lies."""
    for node in range(len(machine.nodes)):
        forget(machine.step_room, node, machine.state[0].now)


@part
def give_back_shared(machine: MachineState, row: int, until: float) -> None:
    """Take the rest of an early ended job's requested time out of the profile."""
    occupy_held(machine, row, machine.jobs[row].width, machine.state[0].now, until, -1)


@part
def launch_reserved_shared(machine: MachineState, at: int) -> None:
    """Start the job at one place of the queue on the nodes that it has reserved."""
    slot = machine.queue[at]
    for i in range(slot.width):
        machine.picks[i] = machine.held[machine.held_at[slot.row] + i]
    launch_shared(machine, at)
