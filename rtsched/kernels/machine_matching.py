"""Which CPUs a job gets in HTCondor's loop: of the best slot with room, or of a claim left over.

A job of at most as many CPUs as the largest slot has is one process: its CPUs and memory come from
one slot. What a promised job needs later is out of the question for one that ends after its start.
"""

from __future__ import annotations

from rtsched.kernels.machine import MachineState, is_free
from rtsched.kernels.machine_claims import give_up
from rtsched.kernels.machine_compiling import outline, part
from rtsched.kernels.machine_nodes import group_of, start_on_picks
from rtsched.kernels.machine_queue import find, leave

EVERYBODY, NOBODY = -1, -2
"""No node set at all; no node set is marked."""


@part
def mark(machine: MachineState, group: int) -> None:
    """Mark the nodes of a node set as wanted, and no others."""
    state, nodes = machine.state[0], machine.nodes
    if group in (EVERYBODY, state.marked):
        return
    for node in range(len(nodes)):
        nodes[node].wanted = 0
    for i in range(machine.group_of[group], machine.group_of[group + 1]):
        nodes[machine.group_nodes[i]].wanted = 1
    state.marked = group


@part
def usable(machine: MachineState, node: int, group: int, end: float) -> bool:
    """Return whether no job is on a node, and one of a marked node set may be there until `end`."""
    entry = machine.nodes[node]
    inside = group == EVERYBODY or entry.wanted
    return bool(inside and is_free(machine.words, node) and end <= entry.window)


@part
def launch(machine: MachineState, row: int) -> None:
    """Start a waiting job on the nodes just picked."""
    leave(machine, find(machine, row))
    start_on_picks(machine, row, machine.jobs[row].width)


@outline
def pick(machine: MachineState, row: int, size: int) -> bool:
    """Pick `size` unclaimed CPUs of the best slot that has room for a job; return if there is one.

    While CPUs are dealt out no slot gains any. So what did not fit a job will not fit one that asks
    for no less, and the search goes on where it ended.
    """
    state, offers = machine.state[0], machine.offers
    group, wall = group_of(machine, row), machine.jobs[row].wall
    memory = size * machine.requests[row].memory
    end, at = state.now + wall, 0
    no_less = size >= state.asked_size and memory >= state.asked_memory
    if group == state.asked_group and no_less and wall >= state.asked_wall:
        at = state.cursor
    mark(machine, group)
    found = False
    while at < len(offers) and not found:
        offer = offers[at]
        if offer.free >= size and offer.memory >= memory:
            count = 0
            for node in range(offer.first, offer.first + offer.count):
                if machine.claims[node].owner < 0 and usable(machine, node, group, end):
                    machine.picks[count] = node
                    count += 1
                    if count == size:
                        break
            found = count == size
        at += not found
    state.cursor = at
    state.asked_group = group
    state.asked_size = size
    state.asked_memory = memory
    state.asked_wall = wall
    return found


@part
def accepts(machine: MachineState, head: int, size: int, row: int) -> bool:
    """Return whether a vacated claim of `size` CPUs, from entry `head` on, suits a waiting job."""
    claims = machine.claims
    if machine.jobs[row].width != size:
        return False
    group, end = group_of(machine, row), machine.state[0].now + machine.jobs[row].wall
    mark(machine, group)
    for k in range(head, head + size):
        node = claims[k].vacated
        fits = machine.requests[row].memory <= claims[node].memory
        if not (fits and usable(machine, node, group, end)):
            return False
    return True


@part
def successor(machine: MachineState, head: int, size: int) -> int:
    """Return the next job of its submitter that takes over a vacated claim, -1 if none may."""
    state, claims = machine.state[0], machine.claims
    first = claims[claims[head].vacated]
    if state.worklife >= 0.0 and state.now - first.since >= state.worklife:
        return -1
    for k in range(head, head + size):
        node = claims[k].vacated
        if claims[node].owner != first.owner or not is_free(machine.words, node):
            return -1
    if first.owner < 0:
        return -1
    row = int(machine.submitters[first.owner].first)
    while row >= 0 and not accepts(machine, head, size, row):
        row = int(machine.requests[row].after)
    return row


@outline
def hand_on(machine: MachineState) -> None:
    """Give vacated CPUs to the next jobs of their submitters, or give them up."""
    state, claims = machine.state[0], machine.claims
    head = 0
    while head < state.vacated:
        size = int(claims[head].part)
        node = claims[head].vacated
        wide = claims[node].owner == state.dedicated
        expired = 0.0 <= state.worklife <= state.now - claims[node].since
        row = -1 if wide else successor(machine, head, size)
        if row >= 0:
            for k in range(size):
                machine.picks[k] = claims[head + k].vacated
            launch(machine, row)
        else:
            for k in range(head, head + size):
                node = claims[k].vacated
                mine = claims[node]
                if mine.owner < 0 or machine.nodes[node].row >= 0:
                    continue  # a planned job has it
                if wide and not expired and is_free(machine.words, node):
                    mine.held = 1
                    state.held += 1
                    state.calm = 0
                else:
                    give_up(machine, node)
        head += size
    state.vacated = 0
