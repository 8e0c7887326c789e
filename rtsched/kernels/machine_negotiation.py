"""HTCondor's own loop over a machine: negotiation cycles, claims that are used again, wide jobs.

At every instant, vacated CPUs first go to the next job of their submitter that fits, without
negotiation, as long as the claim may take jobs; what nobody takes over is unclaimed. When a cycle
is due, unclaimed CPUs are dealt out (`deal`). A job that does not fit is passed over and holds up
nobody.

A job of at most as many CPUs as the largest slot has is one process: its CPUs and memory come from
one slot, the best with room, or from a claim left over. What a promised job needs later is out of
the question for one that ends after its start.

A job with more CPUs than any slot is a parallel job. These have one submitter, the dedicated
scheduler, and start first come first served: CPUs are claimed and held for the first until it has
enough.

References
----------
HTCondor manual, "User Priorities and Negotiation": negotiation, pie spin and pie slice; "Parallel
Applications": dedicated scheduler. "Configuration Macros": NEGOTIATOR_INTERVAL,
NEGOTIATOR_CYCLE_DELAY, CLAIM_WORKLIFE, DEDICATED_SCHEDULER_USE_FIFO.
"""

from __future__ import annotations

import numpy as np

from rtsched.kernels.compiling import entry, inlined, outline, part
from rtsched.kernels.machine import MachineState, is_free
from rtsched.kernels.machine_claims import NEVER, age, claim, give_up
from rtsched.kernels.machine_loop import DEAL, advance
from rtsched.kernels.machine_nodes import group_of, start_on_picks, usable_count
from rtsched.kernels.machine_queue import find, leave

SLACK = 1e-9
"""CPUs by which rounding may make a slice too small."""


@part
def possible(machine: MachineState, row: int) -> bool:
    """Return whether a job could start if nothing else ran."""
    enough = machine.jobs[row].width <= usable_count(machine, group_of(machine, row))
    return bool(enough and not machine.requests[row].hopeless)


@part
def first_wide(machine: MachineState) -> int:
    """Return the first wide job that may ever start, -1 if none waits."""
    row = int(machine.submitters[machine.state[0].dedicated].first)
    while row >= 0 and not possible(machine, row):
        row = int(machine.requests[row].after)
    return row


@outline
def keep_held(machine: MachineState, row: int) -> int:
    """Give up held CPUs that a wide job (-1: none) cannot use; pick the others, and count them."""
    state, count = machine.state[0], 0
    if state.held == 0:
        return 0
    group, end = EVERYBODY, np.inf
    if row >= 0:
        group, end = group_of(machine, row), state.now + machine.jobs[row].wall
        mark(machine, group)
    for at in range(len(machine.offers)):
        offer = machine.offers[at]
        for node in range(offer.first, offer.first + offer.count):
            if not machine.claims[node].held:
                continue
            fits = row >= 0 and machine.requests[row].memory <= machine.claims[node].memory
            if fits and usable(machine, node, group, end):
                machine.picks[count] = node
                count += 1
            else:
                give_up(machine, node)
    return count


@part
def start_held(machine: MachineState) -> None:
    """Start wide jobs, first come first served, that the held CPUs suffice for."""
    state = machine.state[0]
    while state.held > 0:
        row = first_wide(machine)
        size = machine.jobs[row].width if row >= 0 else NEVER
        if row >= 0 and state.held < size:
            return
        if keep_held(machine, row) < size:
            return
        launch(machine, row)


@outline
def serve_wide(machine: MachineState, limit: float) -> float:
    """Claim CPUs for wide jobs, up to the dedicated scheduler's slice; return how many.

    As many as the first one lacks; once it has them, it starts, and the next one is the first.
    """
    state, claims = machine.state[0], machine.claims
    who = machine.submitters[state.dedicated]
    taken = 0.0
    row = first_wide(machine)
    while row >= 0:
        size = int(machine.jobs[row].width)
        keep_held(machine, row)
        while state.held < size:
            if not pick(machine, row, 1):
                who.done = 1
                return taken
            if taken > 0.0 and taken + 1.0 > limit + SLACK:
                return taken
            node = machine.picks[0]
            claim(machine, node, row)
            claims[node].held = 1
            state.held += 1
            state.dealt += 1
            taken += 1.0
        keep_held(machine, row)
        launch(machine, row)
        row = first_wide(machine)
    who.done = 1
    return taken


@outline
def serve(machine: MachineState, who: int, limit: float) -> float:
    """Start a submitter's jobs in order, up to its slice, passing over those that do not fit.

    Returns the CPUs they take. The first job may be larger than the slice. A submitter whose jobs
    have all been looked at is done; one that comes to the end of its slice is not.
    """
    state, taken = machine.state[0], 0.0
    row = int(machine.submitters[who].first)
    while row >= 0:
        if state.free <= state.held:
            return taken
        after = int(machine.requests[row].after)
        size = int(machine.jobs[row].width)
        if pick(machine, row, size):
            if taken > 0.0 and taken + size > limit + SLACK:
                return taken
            launch(machine, row)
            taken += size
        row = after
    machine.submitters[who].done = 1
    return taken


@inlined
def rank_submitters(machine: MachineState) -> None:
    """Order the submitters whose jobs wait by effective priority, best first; ties by row."""
    state, submitters = machine.state[0], machine.submitters
    count = 0
    for k in range(state.active):
        who = submitters[k].rank
        submitter = submitters[who]
        if submitter.first < 0:
            submitter.listed = 0
            continue
        age(machine, who)
        submitter.effective = submitter.priority * submitter.factor
        submitter.done = 0
        at = count
        while at > 0 and comes_after(machine, submitters[at - 1].rank, who):
            submitters[at].rank = submitters[at - 1].rank
            at -= 1
        submitters[at].rank = who
        count += 1
    state.active = count


@part
def comes_after(machine: MachineState, a: int, b: int) -> bool:
    """Return whether submitter `a` is served after `b`."""
    mine, other = machine.submitters[a].effective, machine.submitters[b].effective
    return bool(mine > other or (mine == other and a > b))


@inlined
def slice_pie(machine: MachineState, total: int) -> float:
    """Set the slices of the submitters that are not done, and return their sum.

    Everybody's slice of all `total` CPUs goes with 1 / effective priority, less what is claimed.
    Of the dedicated scheduler's claims, which others pay for, only those of this cycle count.
    """
    state, submitters = machine.state[0], machine.submitters
    worst, parts, pie = 0.0, 0.0, 0.0
    for k in range(state.active):
        if not submitters[submitters[k].rank].done:
            worst = max(worst, submitters[submitters[k].rank].effective)
    for k in range(state.active):
        if not submitters[submitters[k].rank].done:
            parts += worst / submitters[submitters[k].rank].effective
    for k in range(state.active):
        submitter = submitters[submitters[k].rank]
        if not submitter.done:
            share = worst / (submitter.effective * parts)
            used = submitter.used if submitters[k].rank != state.dedicated else state.dealt
            submitter.limit = max(0.0, share * total - used)
            pie += submitter.limit
    return pie


@inlined
def deal(machine: MachineState) -> None:
    """Make one negotiation cycle: spin the pie until no more job fits or nothing is unclaimed.

    In each spin the submitters, best priority first, are served up to their slices. From the second
    spin on one whose slice is less than a CPU is passed over.
    """
    state, submitters = machine.state[0], machine.submitters
    state.asked_size = NEVER
    state.dealt = 0
    keep_held(machine, first_wide(machine))
    rank_submitters(machine)
    total = usable_count(machine, EVERYBODY)
    least, left, went_on = 0.0, int(state.active), True
    while left > 0 and went_on and state.free > state.held:
        pie = slice_pie(machine, total)
        went_on = False
        for k in range(state.active):
            who = submitters[k].rank
            limit = min(submitters[who].limit, pie)
            if submitters[who].done or limit <= 0.0 or limit + SLACK < least:
                continue
            if state.free <= state.held:
                break
            wide = who == state.dedicated
            taken = serve_wide(machine, limit) if wide else serve(machine, who, limit)
            pie -= taken
            left -= submitters[who].done
            went_on = went_on or taken > 0.0 or submitters[who].done
        least = 1.0
    state.calm = left == 0 or state.free <= state.held
    state.fresh = 0
    state.last_cycle = state.now


@part
def plan_cycle(machine: MachineState) -> None:
    """Work out when the next cycle is due; those that would change nothing are left out.

    Cycles follow one another at the interval. A submission asks for one at once, though not before
    the delay since the last one has passed.
    """
    state = machine.state[0]
    state.next_cycle = np.inf
    needless = state.waiting == 0 or state.calm or state.free == 0
    if needless and not state.fresh:
        return
    passed = np.floor((state.now - state.last_cycle) / state.interval)
    if passed >= 1.0:
        state.last_cycle += passed * state.interval
    if state.last_cycle == state.now and passed >= 1.0:
        state.next_cycle = state.now
    elif state.fresh:
        state.next_cycle = max(state.now, state.last_cycle + state.cycle_delay)
    else:
        state.next_cycle = state.last_cycle + state.interval


@entry
def negotiation_pass(machine: MachineState) -> None:
    """Start what HTCondor would start now."""
    state = machine.state[0]
    state.marked = NOBODY
    if state.rebuild:
        state.rebuild = 0
        state.calm = 0
    hand_on(machine)
    start_held(machine)
    plan_cycle(machine)
    if state.next_cycle <= state.now:
        deal(machine)
        plan_cycle(machine)


@entry
def negotiate(machine: MachineState) -> int:
    """Run as `advance` does, with HTCondor's pass at each instant; return the questions as bits."""
    while True:
        stop = advance(machine)
        if stop != DEAL:
            return int(stop)
        negotiation_pass(machine)


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
