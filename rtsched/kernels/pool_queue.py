"""The queue of a pool: places in order of (key, row), with emptied ones among them.

A started job leaves an emptied place behind, whose size fits nowhere; places are closed up when
too many are empty. Per block of 64 places a lower bound of size and wall time lets a scan pass
over blocks in which nothing can start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels.pool import GONE, NEGOTIATOR, QUEUED, Pool
from rtsched.kernels.pool_claims import link, unlink
from rtsched.kernels.pool_compiling import outline, part

if TYPE_CHECKING:
    from numpy.typing import NDArray


@part
def bound(pool: Pool, at: int) -> None:
    """Lower the bounds of a place's block to what stands there."""
    slot, block = pool.queue[at], pool.blocks[at >> 6]
    block.width = min(block.width, slot.width)
    block.time = min(block.time, slot.wall)


@part
def occupy(pool: Pool, at: int) -> None:
    """Bound the block of a place that is the last one of the queue so far."""
    if at & 63 == 0:
        pool.blocks[at >> 6].width = GONE
        pool.blocks[at >> 6].time = np.inf
    bound(pool, at)


@part
def close_up(pool: Pool) -> None:
    """Move the waiting jobs to the front of the queue, without gaps."""
    state, queue = pool.state[0], pool.queue
    to, seen = 0, 0
    for at in range(state.head, state.tail):
        if at == state.seen:
            seen = to
        if queue[at].width != GONE:
            if to != at:
                queue[to] = queue[at]
            occupy(pool, to)
            to += 1
    state.seen = to if state.seen >= state.tail else seen
    state.head = 0
    state.tail = to


@part
def enqueue(pool: Pool, row: int) -> None:
    """Put a job into the queue at its place in order of (key, row)."""
    state, queue, job = pool.state[0], pool.queue, pool.jobs[row]
    if state.waiting == 0:
        state.head = 0
        state.tail = 0
        state.seen = 0
        state.settled = 0
    elif state.tail >= len(queue) or state.head > 2 * (state.tail - state.head) + 1024:
        close_up(pool)
    key = pool.more[row].key if state.by_key else 0.0
    job.status = QUEUED
    at = state.tail
    state.tail += 1
    state.waiting += 1
    while at > state.head and (
        queue[at - 1].key > key or (queue[at - 1].key == key and queue[at - 1].row > row)
    ):
        queue[at] = queue[at - 1]
        at -= 1
    slot = queue[at]
    slot.key = key
    slot.row = row
    slot.width = job.width
    slot.wall = job.wall
    slot.reserved = np.inf
    occupy(pool, state.tail - 1)
    if state.loop == NEGOTIATOR:
        link(pool, row)
    if at < state.tail - 1:
        state.settled = 0
        for i in range(at, state.tail - 1):
            bound(pool, i)


@part
def leave(pool: Pool, at: int) -> None:
    """Empty one place of the queue; the head moves on to the next job that waits."""
    state, queue = pool.state[0], pool.queue
    if state.loop == NEGOTIATOR:
        unlink(pool, queue[at].row)
    queue[at].width = GONE
    queue[at].wall = np.inf
    state.waiting -= 1
    if at == state.head:
        while state.head < state.tail and queue[state.head].width == GONE:
            state.head += 1
        state.settled = 0


@part
def find(pool: Pool, row: int) -> int:
    """Return the place of a queued job, -1 if it does not wait."""
    state, queue = pool.state[0], pool.queue
    key = pool.more[row].key if state.by_key else 0.0
    low, high = state.head, state.tail
    while low < high:
        middle = (low + high) >> 1
        if queue[middle].key < key or (queue[middle].key == key and queue[middle].row < row):
            low = middle + 1
        else:
            high = middle
    while low < state.tail and queue[low].key == key and queue[low].row == row:
        if queue[low].width != GONE:
            return int(low)
        low += 1
    return -1


@part
def withdraw(pool: Pool, row: int) -> bool:
    """Take a job out of the queue; return whether it was there."""
    at = find(pool, row)
    if at < 0:
        return False
    leave(pool, at)
    pool.state[0].settled = 0
    return True


@part
def rerank(pool: Pool, values: NDArray[np.float64]) -> int:
    """Order the closed-up queue by priority, higher first, and return how many jobs moved.

    Parameters
    ----------
    pool : Pool
        `close_up` has just been called.
    values : float64[waiting]
        The priorities, in the queue's present order.
    """
    state, queue = pool.state[0], pool.queue
    moved = 0
    for i in range(state.tail):
        row, size, wall, reserved = queue[i].row, queue[i].width, queue[i].wall, queue[i].reserved
        key = -values[i]
        pool.more[row].key = key
        at = i
        while at > 0 and (
            queue[at - 1].key > key or (queue[at - 1].key == key and queue[at - 1].row > row)
        ):
            queue[at] = queue[at - 1]
            at -= 1
        if at != i:
            moved += 1
        slot = queue[at]
        slot.key, slot.row, slot.width, slot.wall, slot.reserved = key, row, size, wall, reserved
    for i in range(state.tail):
        occupy(pool, i)
    if state.loop == NEGOTIATOR:
        link_anew(pool)
    state.settled = 0
    return moved


@outline
def link_anew(pool: Pool) -> None:
    """Make the submitters' lists of waiting jobs anew, from the closed-up queue."""
    state = pool.state[0]
    fresh = state.fresh
    for who in range(len(pool.submitters)):
        pool.submitters[who].first = -1
        pool.submitters[who].last = -1
    for at in range(state.tail):
        link(pool, pool.queue[at].row)
    state.fresh = fresh


@part
def list_queue(pool: Pool) -> int:
    """Close up the queue, write down its rows with priority 0, and return how many they are."""
    state = pool.state[0]
    close_up(pool)
    for i in range(state.waiting):
        pool.rows[i] = pool.queue[i].row
        pool.values[i] = 0.0
    return int(state.waiting)
