"""One scheduling pass over nodes that jobs share: FCFS and EASY on amounts of resources.

A job is given the nodes of lowest index on which it fits, or those that another rule prefers
(`rtsched.kernels.placement`). FCFS starts jobs in queue order until one
does not fit. EASY then works out the shadow time of that job, the head: the earliest requested end
of a running job at which enough nodes have room for it. A later job that fits now starts if it ends
by then, or if the head still finds enough room at its shadow time.

While there is a plan, a job also fits only where it leaves the plan its nodes for the whole time it
asks for, and the shadow time is the head's earliest start by the profile (`shared_profile`).

References
----------
Lifka, 1995: The ANL/IBM SP scheduling system (EASY backfilling), here on several resources.
"""

from __future__ import annotations

import numpy as np

from rtsched.kernels.machine import CONSERVATIVE, EASY, UP, MachineState, start_job
from rtsched.kernels.machine_compiling import only_with, outline, part
from rtsched.kernels.machine_nodes import group_of, node_at, nodes_in
from rtsched.kernels.machine_queue import close_up, head_over_limit, leave, may_start
from rtsched.kernels.machine_sharing import (
    ANYWHERE,
    TOO_FEW,
    UNKNOWN,
    fits,
    licenses_left,
    measure_room,
    move_in,
    take,
    take_licenses,
)
from rtsched.kernels.packed_amounts import exceeds, most_of, pack
from rtsched.kernels.placement import FIRST, pick_by_room
from rtsched.kernels.shared_profile import (
    earliest_of,
    leaves_licenses,
    leaves_plan,
    occupy_held,
    see_plan,
)


@part
def in_group(machine: MachineState, group: int, node: int) -> bool:
    """Return whether a node belongs to a node set, -1: all do."""
    if group < 0:
        return True
    at, end = nodes_in(machine, group)
    while at < end and node_at(machine, group, at) != node:
        at += 1
    return at < end


@part
def note_scan(machine: MachineState, row: int, place: int) -> None:
    """Note that a job has room on none of its nodes before `place`, or on `TOO_FEW` of all.

    Only where each scan sees the whole queue it is kept in `no_room`.
    """
    state = machine.state[0]
    machine.tried[row].scan, machine.tried[row].place = state.scan, place
    machine.no_room[row] = UNKNOWN
    if place == TOO_FEW and state.loop == EASY and state.depth == 0:
        machine.no_room[row] = pack(machine.lanes, machine.demand, row)


@part
def scan_from(machine: MachineState, row: int) -> int:
    """Return before which of its nodes a job has no room, or `TOO_FEW`.

    That is so as long as it has none on a node where room came free since the job was looked at.
    """
    state, tried = machine.state[0], machine.tried[row]
    place = TOO_FEW if machine.no_room[row] != UNKNOWN else int(tried.place)
    if machine.no_room[row] == UNKNOWN and tried.scan < state.known:
        return 0
    for i in range(state.grown):
        node = machine.grown[i]
        if fits(machine.room, node, machine.demand, row) and in_group(
            machine, group_of(machine, row), node
        ):
            return 0
    return place


@part
def asks_too_much(machine: MachineState, row: int) -> bool:
    """Return whether a job surely asks for more of a resource than any node has left."""
    for resource in range(machine.demand.shape[1]):
        if machine.demand[row, resource] > machine.most[resource]:
            return True
    return False


@part
def still_without_room(machine: MachineState, row: int) -> bool:
    """Return whether a job surely has room on too few nodes, as at the last scan."""
    demand = machine.no_room[row]
    return bool(demand != UNKNOWN and exceeds(machine.lanes, demand, machine.state[0].grown_most))


@outline
def list_fitting(machine: MachineState, row: int, size: int, place: int) -> int:
    """List the nodes from `place` on on which a job fits; return how many they are.

    They are the first ones, as many as it needs, if these are what it is given. It is noted before
    which place none has room.
    """
    state, group = machine.state[0], group_of(machine, row)
    planned, all_of_them = state.plan_left > 0, state.placement != FIRST
    first, end = nodes_in(machine, group)
    count, roomy, at = 0, 0, first + place
    place = TOO_FEW
    while at < end and (count < size or all_of_them):
        node = node_at(machine, group, at)
        if machine.nodes[node].state == UP and fits(machine.room, node, machine.demand, row):
            if roomy == 0:
                place = at - first
            roomy += 1
            if not planned or leaves_plan(machine, node, row):
                machine.picks[count] = node
                count += 1
        at += 1
    note_scan(machine, row, place if roomy >= size else TOO_FEW)
    return count


@outline
def choose_by_score(machine: MachineState, row: int, size: int, place: int) -> bool:
    """Choose, from `place` on, the nodes of the least scores; return whether there are enough."""
    count = list_fitting(machine, row, size, place)
    if count < size:
        return False
    pick_by_room(
        machine.placement,
        machine.state[0].placement,
        machine.room,
        machine.demand,
        row,
        size,
        count,
        machine.picks,
    )
    return True


@part
def choose_shared(machine: MachineState, row: int, size: int) -> bool:
    """Choose the nodes for a job among those on which it fits; return whether it may start.

    Most jobs still fit nowhere, which is found here: calling a function costs more.
    """
    place = scan_from(machine, row)
    if place == TOO_FEW or asks_too_much(machine, row):
        note_scan(machine, row, TOO_FEW)
        return False
    note_scan(machine, row, place)
    if not licenses_left(machine, machine.room, row):
        return False
    if machine.state[0].plan_left > 0 and not leaves_licenses(machine, row):
        return False
    if machine.state[0].placement == FIRST:
        return list_fitting(machine, row, size, place) == size
    return choose_by_score(machine, row, size, place)


@part
def bound_growth(machine: MachineState) -> None:
    """Note the most that a node where room came free has left of each resource, packed."""
    state, lanes = machine.state[0], machine.lanes
    state.grown_most = 0
    for i in range(state.grown):
        left = pack(lanes, machine.room, machine.grown[i])
        state.grown_most = most_of(lanes, state.grown_most, left)


@part
def launch_shared(machine: MachineState, at: int) -> None:
    """Start the job at one place of the queue on the nodes just chosen."""
    state, row, size = machine.state[0], machine.queue[at].row, machine.queue[at].width
    first = move_in(machine, row, size)
    leave(machine, at)
    start_job(machine, row, first)
    if state.plan_left > 0 and state.loop != CONSERVATIVE:
        occupy_held(machine, row, size, state.now, state.now + machine.jobs[row].wall, 1)


@part
def serves_later(machine: MachineState, head: int, group: int, node: int) -> bool:
    """Return whether the head could use a node at its shadow time."""
    room = fits(machine.later, node, machine.demand, head)
    return bool(room and machine.nodes[node].state == UP and in_group(machine, group, node))


@part
def leave_later(machine: MachineState, row: int, head: int, group: int) -> int:
    """Let a running job be gone at the shadow time; return how many nodes the head gains."""
    gained, at = 0, machine.held_at[row]
    for i in range(machine.jobs[row].width):
        node = machine.held[at + i]
        gained -= serves_later(machine, head, group, node)
        take(machine.later, node, machine.demand, row, -1)
        gained += serves_later(machine, head, group, node)
    take_licenses(machine, machine.later, row, -1)
    return gained


@outline
def find_shared_shadow(machine: MachineState) -> None:
    """Find the head's shadow time, the room at it, and how many nodes the head leaves over then."""
    state, running, head = machine.state[0], machine.running, machine.state[0].kept_for
    size = machine.jobs[head].width
    state.protected = 1
    if state.plan_left > 0:
        state.shadow = earliest_of(machine, head, size, machine.jobs[head].wall, state.now)
        return
    group, count = group_of(machine, head), 0
    for at in range(len(machine.room)):
        for resource in range(machine.demand.shape[1]):
            machine.later[at, resource] = machine.room[at, resource]
    for node in range(len(machine.nodes)):
        count += serves_later(machine, head, group, node)
    state.shadow, i = np.inf, 0
    while i < state.running and state.shadow == np.inf:
        time = running[i].time
        while i < state.running and running[i].time == time:
            count += leave_later(machine, running[i].row, head, group)
            i += 1
        if count >= size and licenses_left(machine, machine.later, head):
            state.shadow = time
    state.extra = count - size


@outline
def spares_head_in_plan(machine: MachineState, row: int, size: int) -> bool:
    """Return as `spares_head` does while there is a plan, by the profile."""
    state = machine.state[0]
    head, width = state.kept_for, machine.jobs[state.kept_for].width
    at, end = machine.held_at[row], state.now + machine.jobs[row].wall
    for i in range(size):
        machine.held[at + i] = machine.picks[i]
    occupy_held(machine, row, size, state.now, end, 1)
    keeps = earliest_of(machine, head, width, machine.jobs[head].wall, state.now) <= state.shadow
    occupy_held(machine, row, size, state.now, end, -1)
    for i in range(size):
        machine.picks[i] = machine.held[at + i]
    return bool(keeps)


@part
def spares_head(machine: MachineState, row: int, size: int) -> bool:
    """Return whether the head keeps its shadow time with a job on the nodes just chosen.

    If so, the job is counted in there.
    """
    state = machine.state[0]
    head = state.kept_for
    if state.plan_left > 0:
        return spares_head_in_plan(machine, row, size)
    group, lost = group_of(machine, head), 0
    for i in range(size):
        node = machine.picks[i]
        lost += serves_later(machine, head, group, node)
        take(machine.later, node, machine.demand, row, 1)
        lost -= serves_later(machine, head, group, node)
    take_licenses(machine, machine.later, row, 1)
    if lost <= state.extra and licenses_left(machine, machine.later, head):
        state.extra -= lost
        return True
    for i in range(size):
        take(machine.later, machine.picks[i], machine.demand, row, -1)
    take_licenses(machine, machine.later, row, -1)
    return False


@outline
def backfill_shared(machine: MachineState) -> None:
    """Start the jobs that do not delay the head.

    As long as no job ended and the head is the same, jobs that did not fit at the last pass do not
    fit now, and only those that came since are looked at; unless one that does fit was kept waiting
    for the head's sake, and its first nodes may be others now.
    """
    state, queue = machine.state[0], machine.queue
    at, looked = max(state.seen, state.head + 1), 0
    if state.retry:
        at, state.refused, state.retry = state.head, 0, 0
    while at < state.tail and (state.depth == 0 or looked < state.depth):
        size, row = queue[at].width, queue[at].row
        if not state.limited and still_without_room(machine, row):
            at += 1
            continue
        if not may_start(machine, at):
            machine.no_room[row] = UNKNOWN
        elif row != state.kept_for:
            looked += 1
            if choose_shared(machine, row, size):
                if not state.protected:
                    find_shared_shadow(machine)
                in_time = state.now + queue[at].wall <= state.shadow
                if in_time or spares_head(machine, row, size):
                    launch_shared(machine, at)
                    bound_growth(machine)
                    state.retry = state.refused
                else:
                    state.refused = 1
        at += 1
    state.seen = state.tail


@part
def start_in_order(machine: MachineState) -> int:
    """Start jobs in queue order; return the place of the first that does not fit, or the tail.

    Jobs over a limit are passed over.
    """
    state, queue = machine.state[0], machine.queue
    at = state.head
    while at < state.tail:
        if may_start(machine, at):
            if not choose_shared(machine, queue[at].row, queue[at].width):
                return int(at)
            launch_shared(machine, at)
        else:
            machine.no_room[queue[at].row] = UNKNOWN
        at += 1
    return int(at)


@part
def forget_scans(machine: MachineState) -> None:
    """Let nothing be known of where waiting jobs have no room."""
    state = machine.state[0]
    for at in range(state.head, state.tail):
        machine.tried[machine.queue[at].row].scan = UNKNOWN
        machine.no_room[machine.queue[at].row] = UNKNOWN
    state.grown = 0


@part
def scan_in_order(machine: MachineState) -> bool:
    """Start jobs in queue order; return whether there is one that does not fit, the head.

    Its shadow time is found when another job fits, but while there is a plan at once.
    """
    state = machine.state[0]
    if state.tail - state.head > 2 * state.waiting + 64:
        close_up(machine)
    measure_room(machine)
    if state.grown == ANYWHERE:
        forget_scans(machine)
    if state.plan_left > 0:
        see_plan(machine)
    at = start_in_order(machine)
    if at == state.tail:
        return False
    state.settled = 1
    state.kept_for = machine.queue[at].row
    state.seen = at + 1
    state.refused, state.retry, state.protected = 0, 0, 0
    if state.loop == EASY and state.plan_left > 0:
        find_shared_shadow(machine)
    return True


@only_with("step_room")
def shared_pass(machine: MachineState) -> None:
    """Start what FCFS or EASY lets start now."""
    state, waits = machine.state[0], True
    if not state.settled:
        state.scan = state.known + 1
        waits = scan_in_order(machine)
    if waits and state.loop == EASY:
        bound_growth(machine)
        backfill_shared(machine)
        if state.depth > 0 or head_over_limit(machine):
            state.settled = 0
    if state.scan > state.known:
        state.known = state.scan
        state.grown = 0
