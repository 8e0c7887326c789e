"""Which CPUs a job gets in HTCondor's loop: of the best slot with room, or of a claim left over.

A job of at most as many CPUs as the largest slot has is one process: its CPUs and memory come from
one slot. What a promised job needs later is out of the question for one that ends after its start.
"""

from __future__ import annotations

from rtsched.kernels.pool import Pool, is_free
from rtsched.kernels.pool_claims import give_up
from rtsched.kernels.pool_compiling import outline, part
from rtsched.kernels.pool_nodes import group_of, start_on_picks
from rtsched.kernels.pool_queue import find, leave

EVERYBODY, NOBODY = -1, -2
"""No node set at all; no node set is marked."""


@part
def mark(pool: Pool, group: int) -> None:
    """Mark the nodes of a node set as wanted, and no others."""
    state, nodes = pool.state[0], pool.nodes
    if group in (EVERYBODY, state.marked):
        return
    for node in range(len(nodes)):
        nodes[node].wanted = 0
    for i in range(pool.group_of[group], pool.group_of[group + 1]):
        nodes[pool.group_nodes[i]].wanted = 1
    state.marked = group


@part
def usable(pool: Pool, node: int, group: int, end: float) -> bool:
    """Return whether no job is on a node, and one of a marked node set may be there until `end`."""
    entry = pool.nodes[node]
    inside = group == EVERYBODY or entry.wanted
    return bool(inside and is_free(pool.words, node) and end <= entry.window)


@part
def launch(pool: Pool, row: int) -> None:
    """Start a waiting job on the nodes just picked."""
    leave(pool, find(pool, row))
    start_on_picks(pool, row, pool.jobs[row].width)


@outline
def pick(pool: Pool, row: int, size: int) -> bool:
    """Pick `size` unclaimed CPUs of the best slot that has room for a job; return if there is one.

    While CPUs are dealt out no slot gains any. So what did not fit a job will not fit one that asks
    for no less, and the search goes on where it ended.
    """
    state, offers = pool.state[0], pool.offers
    group, wall = group_of(pool, row), pool.jobs[row].wall
    memory = size * pool.requests[row].memory
    end, at = state.now + wall, 0
    no_less = size >= state.asked_size and memory >= state.asked_memory
    if group == state.asked_group and no_less and wall >= state.asked_wall:
        at = state.cursor
    mark(pool, group)
    found = False
    while at < len(offers) and not found:
        offer = offers[at]
        if offer.free >= size and offer.memory >= memory:
            count = 0
            for node in range(offer.first, offer.first + offer.count):
                if pool.claims[node].owner < 0 and usable(pool, node, group, end):
                    pool.picks[count] = node
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
def accepts(pool: Pool, head: int, size: int, row: int) -> bool:
    """Return whether a vacated claim of `size` CPUs, from entry `head` on, suits a waiting job."""
    claims = pool.claims
    if pool.jobs[row].width != size:
        return False
    group, end = group_of(pool, row), pool.state[0].now + pool.jobs[row].wall
    mark(pool, group)
    for k in range(head, head + size):
        node = claims[k].vacated
        fits = pool.requests[row].memory <= claims[node].memory
        if not (fits and usable(pool, node, group, end)):
            return False
    return True


@part
def successor(pool: Pool, head: int, size: int) -> int:
    """Return the next job of its submitter that takes over a vacated claim, -1 if none may."""
    state, claims = pool.state[0], pool.claims
    first = claims[claims[head].vacated]
    if state.worklife >= 0.0 and state.now - first.since >= state.worklife:
        return -1
    for k in range(head, head + size):
        node = claims[k].vacated
        if claims[node].owner != first.owner or not is_free(pool.words, node):
            return -1
    if first.owner < 0:
        return -1
    row = int(pool.submitters[first.owner].first)
    while row >= 0 and not accepts(pool, head, size, row):
        row = int(pool.requests[row].after)
    return row


@outline
def hand_on(pool: Pool) -> None:
    """Give vacated CPUs to the next jobs of their submitters, or give them up."""
    state, claims = pool.state[0], pool.claims
    head = 0
    while head < state.vacated:
        size = int(claims[head].part)
        node = claims[head].vacated
        wide = claims[node].owner == state.dedicated
        expired = 0.0 <= state.worklife <= state.now - claims[node].since
        row = -1 if wide else successor(pool, head, size)
        if row >= 0:
            for k in range(size):
                pool.picks[k] = claims[head + k].vacated
            launch(pool, row)
        else:
            for k in range(head, head + size):
                node = claims[k].vacated
                mine = claims[node]
                if mine.owner < 0 or pool.nodes[node].row >= 0:
                    continue  # a planned job has it
                if wide and not expired and is_free(pool.words, node):
                    mine.held = 1
                    state.held += 1
                    state.calm = 0
                else:
                    give_up(pool, node)
        head += size
    state.vacated = 0
