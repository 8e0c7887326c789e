"""What nodes that jobs share have left from each time on: running jobs and the plan taken off.

Conservative backfilling adds its reservations. The other loops use it while there is a plan: a job
that starts now must leave the plan its nodes.
"""

from __future__ import annotations

import numpy as np

from rtsched.kernels.machine import UP, MachineState
from rtsched.kernels.machine_compiling import only_with, outline, part
from rtsched.kernels.machine_nodes import group_of, node_at, nodes_in
from rtsched.kernels.room_profile import (
    earliest_start,
    first_fit,
    forget,
    licenses_fit,
    occupy,
    occupy_licenses,
    reset,
)


@part
def list_candidates(machine: MachineState, row: int) -> int:
    """List the nodes that are up and in a job's node set; return how many they are."""
    group, count = group_of(machine, row), 0
    first, end = nodes_in(machine, group)
    for i in range(first, end):
        node = node_at(machine, group, i)
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
    occupy_licenses(machine.step_room, start, end, machine.demand, row, sign)


@outline
def earliest_of(machine: MachineState, row: int, size: int, wall: float, start: float) -> float:
    """Return when a job can first have its nodes for `wall` seconds; they are in `picks`."""
    count, time, free = list_candidates(machine, row), -np.inf, start
    while time < free:
        time = earliest_start(
            machine.step_room,
            machine.candidates,
            count,
            size,
            free,
            wall,
            machine.demand,
            row,
            machine.picks,
        )
        free = licenses_fit(machine.step_room, time, wall, machine.demand, row)
    return time


@part
def leaves_plan(machine: MachineState, node: int, row: int) -> bool:
    """Return whether a job that starts now on a node leaves the plan what it owns there."""
    now, wall = machine.state[0].now, machine.jobs[row].wall
    return bool(first_fit(machine.step_room, node, now, wall, machine.demand, row) <= now)


@part
def leaves_licenses(machine: MachineState, row: int) -> bool:
    """Return whether a job that starts now leaves the plan its licences."""
    now, wall = machine.state[0].now, machine.jobs[row].wall
    return bool(licenses_fit(machine.step_room, now, wall, machine.demand, row) <= now)


@only_with("step_room")
def rebuild_shared(machine: MachineState) -> None:
    """Make the profile anew: what runs, and what the plan owns, the latest first.

    Each is then among the first steps of its nodes.
    """
    state = machine.state[0]
    reset(machine.step_room, machine.room, state.now)
    for i in range(state.running):
        entry = machine.running[i]
        size = machine.jobs[entry.row].width
        occupy_held(machine, entry.row, size, max(entry.time, state.now), np.inf, -1)
    for i in range(state.plan_size - 1, state.planned - 1, -1):
        planned = machine.plan[i]
        if planned.row >= 0:
            begin = max(planned.start, state.now)
            end = begin + planned.wall
            for k in range(planned.at, planned.at + planned.width):
                node = machine.plan_nodes[k]
                occupy(machine.step_room, node, begin, end, machine.demand, planned.row, 1)
            occupy_licenses(machine.step_room, begin, end, machine.demand, planned.row, 1)


@only_with("step_room")
def forget_past_shared(machine: MachineState) -> None:
    """Let the profile of each node begin at the step in which the present lies."""
    for node in range(len(machine.step_room.first)):
        forget(machine.step_room, node, machine.state[0].now)


@only_with("step_room")
def give_back_shared(machine: MachineState, row: int, until: float) -> None:
    """Take the rest of an early ended job's requested time out of the profile."""
    occupy_held(machine, row, machine.jobs[row].width, machine.state[0].now, until, -1)


@outline
def see_plan(machine: MachineState) -> None:
    """Bring the profile up to the present; made anew if plan or nodes changed."""
    state = machine.state[0]
    if state.rebuild or state.steps == 0:
        rebuild_shared(machine)
        state.rebuild = 0
        state.steps = 1
    forget_past_shared(machine)
