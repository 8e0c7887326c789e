"""Conservative backfilling: every queued job has a reservation, and none is ever put off.

The profile says how many nodes are free from each time on, running and reserved jobs taken off.
A job that comes gets the earliest hole. When a job ends before its requested time, the
reservations are compressed: in queue order each is taken out and put back at its earliest place,
which is never later than where it was.

References
----------
Mu'alem and Feitelson, 2001: Utilization, predictability, workloads, and user runtime estimates in
scheduling the IBM SP2 with backfilling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.kernels.compiling import inlined, only_with, outline, part
from rtsched.kernels.machine import GONE, UP, MachineState
from rtsched.kernels.machine_limits import held_up
from rtsched.kernels.machine_nodes import choose, group_of
from rtsched.kernels.machine_passes import launch, launch_on_picks
from rtsched.kernels.machine_queue import close_up
from rtsched.kernels.machine_shared_passes import (
    forget_past_shared,
    give_back_shared,
    launch_reserved_shared,
    rebuild_shared,
    reserve_shared,
    unreserve_shared,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


@part
def step_at(states: NDArray[Any], profile: NDArray[Any], time: float) -> int:
    """Return the step of the profile in which a time lies (the present one for earlier times)."""
    state = states[0]
    low, high = state.past, state.steps
    while high - low > 1:
        middle = (low + high) >> 1
        if profile[middle].time <= time:
            low = middle
        else:
            high = middle
    return int(low)


@part
def cut(states: NDArray[Any], profile: NDArray[Any], time: float) -> int:
    """Return the step that begins at a time, made if there is none."""
    state = states[0]
    at = step_at(states, profile, time)
    if profile[at].time >= time:
        return at
    at += 1
    for i in range(state.steps, at, -1):
        profile[i] = profile[i - 1]
    profile[at].time = time
    profile[at].width = profile[at - 1].width
    state.steps += 1
    return at


@part
def drop_if_flat(states: NDArray[Any], profile: NDArray[Any], at: int) -> None:
    """Drop a step that is as high as the one before it."""
    state = states[0]
    if state.past < at < state.steps and profile[at].width == profile[at - 1].width:
        for i in range(at, state.steps - 1):
            profile[i] = profile[i + 1]
        state.steps -= 1


@outline
def occupy(
    states: NDArray[Any], profile: NDArray[Any], start: float, end: float, size: int
) -> None:
    """Take `size` nodes (negative: give them back) from `start` to `end`."""
    if start >= end:
        return
    first = cut(states, profile, start)
    last = cut(states, profile, end) if end < np.inf else states[0].steps
    for i in range(first, last):
        profile[i].width -= size
    if end < np.inf:
        drop_if_flat(states, profile, last)
    drop_if_flat(states, profile, first)


@outline
def earliest(
    states: NDArray[Any],
    profile: NDArray[Any],
    size: int,
    wall: float,
    start: float,
    own: float,
    before: float,
) -> float:
    """Return when `size` nodes are first free for `wall` seconds, from `start` on.

    Parameters
    ----------
    own : float
        Steps that reach beyond this time and begin before `own + wall` count `size` nodes more:
        an upper estimate of what is free without the job's own reservation at `own` (inf: none).
    before : float
        The search ends here: inf is returned if the job cannot start earlier.
    """
    state = states[0]
    at = step_at(states, profile, start)
    time = start
    while time < before:
        if at == state.steps or profile[at].time >= time + wall:
            return time
        free = profile[at].width
        if (
            own < np.inf
            and profile[at].time < own + wall
            and (at + 1 == state.steps or profile[at + 1].time > own)
        ):
            free += size
        at += 1
        if free < size:
            if at == state.steps:
                break
            time = profile[at].time
    return np.inf


@part
def place(machine: MachineState, at: int, start: float) -> None:
    """Give the job at one place of the queue its earliest reservation from `start` on."""
    slot = machine.queue[at]
    if machine.state[0].sharing:
        reserve_shared(machine, at, start)
        return
    states, profile = machine.state, machine.profile
    slot.reserved = earliest(states, profile, slot.width, slot.wall, start, np.inf, np.inf)
    if slot.reserved < np.inf:
        occupy(states, profile, slot.reserved, slot.reserved + slot.wall, slot.width)


@only_with("profile")
def unplace(machine: MachineState, at: int) -> None:
    """Take the reservation of the job at one place of the queue out of the profile."""
    slot = machine.queue[at]
    if slot.reserved < np.inf:
        if machine.state[0].sharing:
            unreserve_shared(machine, at)
        else:
            end = slot.reserved + slot.wall
            occupy(machine.state, machine.profile, slot.reserved, end, -slot.width)
        slot.reserved = np.inf


@inlined
def move_up(machine: MachineState, at: int) -> None:
    """Put the reservation at one place of the queue to its earliest time, not later than it is."""
    state, slot = machine.state[0], machine.queue[at]
    now, was = state.now, slot.reserved
    if state.sharing:
        if was > now:
            unplace(machine, at)
            place(machine, at, now)
        return
    states, profile, size, wall = machine.state, machine.profile, slot.width, slot.wall
    if was <= now or earliest(states, profile, size, wall, now, was, was) == np.inf:
        return
    occupy(states, profile, was, was + wall, -size)
    slot.reserved = min(was, earliest(states, profile, size, wall, now, np.inf, was))
    occupy(states, profile, slot.reserved, slot.reserved + wall, size)


@outline
def rebuild(machine: MachineState) -> None:
    """Make the profile anew; all reservations are to be made again."""
    state = machine.state[0]
    state.past = 0
    state.steps = 1
    if state.sharing:
        rebuild_shared(machine)
    else:
        rebuild_counts(machine)
    for at in range(state.head, state.tail):
        machine.queue[at].reserved = np.inf
    state.next_reserved = np.inf
    state.rebuild = 0
    state.tighten = 0
    state.settled = 0


@outline
def rebuild_counts(machine: MachineState) -> None:
    """Make the profile of whole nodes anew: what runs, and what the plan owns."""
    state, nodes = machine.state[0], machine.nodes
    machine.profile[0].time = state.now
    machine.profile[0].width = 0
    for node in range(len(nodes)):
        machine.profile[0].width += nodes[node].state == UP
    for i in range(state.running):
        entry, size = machine.running[i], 0
        node = machine.jobs[entry.row].first
        while node >= 0:
            size += nodes[node].state == UP
            node = nodes[node].next
        occupy(machine.state, machine.profile, state.now, entry.time, size)
    for i in range(state.planned, state.plan_size):
        planned = machine.plan[i]
        if planned.row >= 0:
            begin = max(planned.start, state.now)
            end = begin + planned.wall
            occupy(machine.state, machine.profile, begin, end, planned.width)


@part
def forget_past(machine: MachineState) -> None:
    """Let the profile begin at the step in which the present lies."""
    state, profile = machine.state[0], machine.profile
    if state.sharing:
        forget_past_shared(machine)
        return
    state.past = step_at(machine.state, profile, state.now)
    if state.past > state.steps - state.past + 64:
        for i in range(state.past, state.steps):
            profile[i - state.past] = profile[i]
        state.steps -= state.past
        state.past = 0


@inlined
def reserve_all(machine: MachineState) -> None:
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
        if queue[at].reserved == np.inf:
            place(machine, at, state.now)
        elif state.tighten:
            move_up(machine, at)
        state.next_reserved = min(state.next_reserved, queue[at].reserved)
    state.seen = state.tail
    state.settled = 1
    state.tighten = 0


@outline
def start_due(machine: MachineState, at: int) -> bool:
    """Start the job at one place of the queue, whose reserved time has come; return whether it can.

    On nodes that differ it may find too few that it can use: it then gets another reservation,
    after the next change of the profile.
    """
    state, slot = machine.state[0], machine.queue[at]
    if state.sharing:
        launch_reserved_shared(machine, at)
        return True
    if not state.node_level and state.plan_left == 0:
        launch(machine, at)
        return True
    if choose(machine, slot.width, slot.wall, group_of(machine, slot.row)):
        launch_on_picks(machine, at)
        return True
    unplace(machine, at)
    step = step_at(machine.state, machine.profile, state.now) + 1
    if step < state.steps:
        place(machine, at, machine.profile[step].time)
    return False


@inlined
def start_reserved(machine: MachineState) -> None:
    """Start the jobs whose reserved time has come, and find the next such time."""
    state, queue = machine.state[0], machine.queue
    if state.next_reserved > state.now:
        return
    state.next_reserved = np.inf
    for at in range(state.head, state.tail):
        if queue[at].width == GONE:
            continue
        if queue[at].reserved <= state.now and start_due(machine, at):
            continue
        state.next_reserved = min(state.next_reserved, queue[at].reserved)


@outline
def sweep_within_limits(machine: MachineState) -> bool:
    """Reserve and start in queue order; return whether a job over a limit lost its reservation.

    A job that starts may bring those behind it over a limit.
    """
    state, queue = machine.state[0], machine.queue
    looked, lost = 0, False
    state.next_reserved = np.inf
    for at in range(state.head, state.tail):
        if queue[at].width == GONE:
            continue
        if held_up(machine.limits, queue[at].row, state.now, queue[at].wall):
            lost = lost or queue[at].reserved < np.inf
            unplace(machine, at)
            continue
        if state.depth == 0 or looked < state.depth:
            looked += 1
            if queue[at].reserved == np.inf:
                place(machine, at, state.now)
            elif state.tighten:
                move_up(machine, at)
        if queue[at].reserved <= state.now and start_due(machine, at):
            continue
        state.next_reserved = min(state.next_reserved, queue[at].reserved)
    state.tighten = lost
    return lost


@outline
def pass_within_limits(machine: MachineState) -> None:
    """Start what can start within limits; what a lost reservation leaves free, others may take."""
    while sweep_within_limits(machine):
        pass


@only_with("profile")
def conservative_pass(machine: MachineState) -> None:
    """Start what conservative backfilling lets start now."""
    state = machine.state[0]
    if state.rebuild or state.steps == 0:
        rebuild(machine)
    forget_past(machine)
    if state.node_level or state.plan_left > 0:
        for node in range(len(machine.nodes)):
            machine.nodes[node].limit = machine.nodes[node].window
    if state.waiting > 0:
        if state.tail - state.head > 2 * state.waiting + 64:
            close_up(machine)
        if state.limited:
            pass_within_limits(machine)
        else:
            reserve_all(machine)
            start_reserved(machine)


@only_with("profile")
def give_back(machine: MachineState, row: int, until: float) -> None:
    """Take the rest of an early ended job's requested time out of the profile."""
    state = machine.state[0]
    if state.steps > 0 and not state.rebuild:
        if state.sharing:
            give_back_shared(machine, row, until)
        else:
            forget_past(machine)
            size = machine.jobs[row].width
            occupy(machine.state, machine.profile, state.now, until, -size)
        state.tighten = 1
