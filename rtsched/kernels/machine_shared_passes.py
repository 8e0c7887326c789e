"""Passes over nodes that jobs share: FCFS, EASY and reservations on amounts of resources.

A job is given the nodes of lowest index on which it fits, or those that another rule prefers
(`machine_sharing.Placement`). FCFS starts jobs in queue order until one
does not fit. EASY then works out the shadow time of that job, the head: the earliest requested end
of a running job at which enough nodes have room for it. A later job that fits now starts if it ends
by then, or if the head still finds enough room at its shadow time.

While there is a plan, a job also fits only where it leaves the plan its nodes for the whole time it
asks for, and the shadow time is the head's earliest start by the profile: what nodes have left from
each time on, running jobs and the plan taken off.

Conservative backfilling (`machine_conservative`) adds its reservations to the profile. Each is the
earliest time at which enough nodes have room for the whole requested time, and of these nodes the
first, or those that the rule prefers.

References
----------
Lifka, 1995: The ANL/IBM SP scheduling system (EASY backfilling), here on several resources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels.compiling import only_with, outline, part
from rtsched.kernels.machine import CONSERVATIVE, EASY, UP, MachineState, start_job
from rtsched.kernels.machine_nodes import group_of, node_at, nodes_in
from rtsched.kernels.machine_queue import close_up, head_over_limit, leave, may_start
from rtsched.kernels.machine_sharing import (
    ANYWHERE,
    FIRST,
    TOO_FEW,
    UNKNOWN,
    exceeds,
    fits,
    licenses_left,
    measure_room,
    most_of,
    move_in,
    pack,
    pick_best,
    pick_by_room,
    score_of,
    take,
    take_licenses,
)
from rtsched.kernels.room import (
    earliest_start,
    first_fit,
    forget,
    licenses_fit,
    occupy,
    occupy_licenses,
    reset,
    step_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.kernels.machine_sharing import Placement
    from rtsched.kernels.room import RoomProfile


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
    if state.settled and head_over_limit(machine):
        state.settled = 0
    if not state.settled:
        state.scan = state.known + 1
        waits = scan_in_order(machine)
    if waits and state.loop == EASY:
        bound_growth(machine)
        backfill_shared(machine)
        if state.depth > 0:
            state.settled = 0
    if state.scan > state.known:
        state.known = state.scan
        state.grown = 0


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


@outline
def pick_reserved(
    placement: Placement,
    rule: int,
    profile: RoomProfile,
    candidates: NDArray[np.int64],
    count: int,
    start: float,
    wall: float,
    demand: NDArray[np.int64],
    row: int,
    size: int,
    picks: NDArray[np.int64],
) -> None:
    """Pick the nodes for a reservation whose time is known, among the first `count` candidates.

    They are chosen by what is left on them when the job starts.
    """
    found = 0
    for i in range(count):
        node = candidates[i]
        if first_fit(profile, node, start, wall, demand, row) <= start:
            at = step_of(profile, node, start)
            picks[found] = node
            placement.score[found] = score_of(
                placement, rule, profile.room, at, node, demand, row, size
            )
            found += 1
    pick_best(placement, found, size, picks)


@only_with("step_room")
def reserve_shared(machine: MachineState, at: int, start: float) -> None:
    """Give the job at one place of the queue its earliest reservation from `start` on."""
    slot = machine.queue[at]
    slot.reserved = earliest_of(machine, slot.row, slot.width, slot.wall, start)
    if slot.reserved < np.inf:
        if machine.state[0].placement != FIRST:
            count = list_candidates(machine, slot.row)
            pick_reserved(
                machine.placement,
                machine.state[0].placement,
                machine.step_room,
                machine.candidates,
                count,
                slot.reserved,
                slot.wall,
                machine.demand,
                slot.row,
                slot.width,
                machine.picks,
            )
        for i in range(slot.width):
            machine.held[machine.held_at[slot.row] + i] = machine.picks[i]
        end = slot.reserved + slot.wall
        occupy_held(machine, slot.row, slot.width, slot.reserved, end, 1)


@only_with("step_room")
def unreserve_shared(machine: MachineState, at: int) -> None:
    """Take the reservation of the job at one place of the queue out of the profile."""
    slot = machine.queue[at]
    end = slot.reserved + slot.wall
    occupy_held(machine, slot.row, slot.width, slot.reserved, end, -1)


@only_with("step_room")
def launch_reserved_shared(machine: MachineState, at: int) -> None:
    """Start the job at one place of the queue on the nodes that it has reserved."""
    slot = machine.queue[at]
    for i in range(slot.width):
        machine.picks[i] = machine.held[machine.held_at[slot.row] + i]
    launch_shared(machine, at)
