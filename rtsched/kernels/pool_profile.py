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

import numpy as np

from rtsched.kernels.backfill import launch
from rtsched.kernels.pool import GONE, UP, Pool
from rtsched.kernels.pool_compiling import outline, part, spliced
from rtsched.kernels.pool_nodes import choose, group_of
from rtsched.kernels.pool_queue import close_up
from rtsched.kernels.pool_windows import launch_on_picks


@part
def step_at(pool: Pool, time: float) -> int:
    """Return the step of the profile in which a time lies (the present one for earlier times)."""
    state, profile = pool.state[0], pool.profile
    low, high = state.past, state.steps
    while high - low > 1:
        middle = (low + high) >> 1
        if profile[middle].time <= time:
            low = middle
        else:
            high = middle
    return int(low)


@part
def cut(pool: Pool, time: float) -> int:
    """Return the step that begins at a time, made if there is none."""
    state, profile = pool.state[0], pool.profile
    at = step_at(pool, time)
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
def drop_if_flat(pool: Pool, at: int) -> None:
    """Drop a step that is as high as the one before it."""
    state, profile = pool.state[0], pool.profile
    if state.past < at < state.steps and profile[at].width == profile[at - 1].width:
        for i in range(at, state.steps - 1):
            profile[i] = profile[i + 1]
        state.steps -= 1


@outline
def occupy(pool: Pool, start: float, end: float, size: int) -> None:
    """Take `width` nodes (negative: give them back) from `start` to `end`."""
    if start >= end:
        return
    first = cut(pool, start)
    last = cut(pool, end) if end < np.inf else pool.state[0].steps
    for i in range(first, last):
        pool.profile[i].width -= size
    if end < np.inf:
        drop_if_flat(pool, last)
    drop_if_flat(pool, first)


@outline
def earliest(pool: Pool, size: int, wall: float, start: float, own: float, before: float) -> float:
    """Return when `width` nodes are first free for `wall` seconds, from `start` on.

    Parameters
    ----------
    own : float
        Steps that reach beyond this time and begin before `own + wall` count `width` nodes more:
        an upper estimate of what is free without the job's own reservation at `own` (inf: none).
    before : float
        The search ends here: inf is returned if the job cannot start earlier.
    """
    state, profile = pool.state[0], pool.profile
    at = step_at(pool, start)
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
def place(pool: Pool, at: int, start: float) -> None:
    """Give the job at one place of the queue its earliest reservation from `start` on."""
    slot = pool.queue[at]
    slot.reserved = earliest(pool, slot.width, slot.wall, start, np.inf, np.inf)
    if slot.reserved < np.inf:
        occupy(pool, slot.reserved, slot.reserved + slot.wall, slot.width)


@part
def unplace(pool: Pool, at: int) -> None:
    """Take the reservation of the job at one place of the queue out of the profile."""
    slot = pool.queue[at]
    if slot.reserved < np.inf:
        occupy(pool, slot.reserved, slot.reserved + slot.wall, -slot.width)
        slot.reserved = np.inf


@spliced
def move_up(pool: Pool, at: int) -> None:
    """Put the reservation at one place of the queue to its earliest time, not later than it is."""
    state, slot = pool.state[0], pool.queue[at]
    now, was = state.now, slot.reserved
    if was <= now or earliest(pool, slot.width, slot.wall, now, was, was) == np.inf:
        return
    unplace(pool, at)
    slot.reserved = min(was, earliest(pool, slot.width, slot.wall, now, np.inf, was))
    occupy(pool, slot.reserved, slot.reserved + slot.wall, slot.width)


@outline
def rebuild(pool: Pool) -> None:
    """Make the profile anew: what runs, what the plan owns, then the queue in its order."""
    state, nodes = pool.state[0], pool.nodes
    state.past = 0
    state.steps = 1
    pool.profile[0].time = state.now
    pool.profile[0].width = 0
    for node in range(len(nodes)):
        pool.profile[0].width += nodes[node].state == UP
    for i in range(state.running):
        entry, size = pool.running[i], 0
        node = pool.jobs[entry.row].first
        while node >= 0:
            size += nodes[node].state == UP
            node = nodes[node].next
        occupy(pool, state.now, entry.time, size)
    for i in range(state.planned, len(pool.plan)):
        planned = pool.plan[i]
        if planned.row >= 0:
            begin = max(planned.start, state.now)
            occupy(pool, begin, begin + planned.wall, planned.width)
    for at in range(state.head, state.tail):
        pool.queue[at].reserved = np.inf
    state.next_reserved = np.inf
    state.rebuild = 0
    state.tighten = 0
    state.settled = 0


@part
def forget_past(pool: Pool) -> None:
    """Let the profile begin at the step in which the present lies."""
    state, profile = pool.state[0], pool.profile
    state.past = step_at(pool, state.now)
    if state.past > state.steps - state.past + 64:
        for i in range(state.past, state.steps):
            profile[i - state.past] = profile[i]
        state.steps -= state.past
        state.past = 0


@spliced
def reserve_all(pool: Pool) -> None:
    """Compress the reservations if a job ended early, and give one to each job without."""
    state, queue = pool.state[0], pool.queue
    looked = 0
    first = state.seen if state.settled and not state.tighten and state.depth == 0 else state.head
    for at in range(first, state.tail):
        if queue[at].width == GONE:
            continue
        if state.depth > 0 and looked == state.depth:
            break
        looked += 1
        if queue[at].reserved == np.inf:
            place(pool, at, state.now)
        elif state.tighten:
            move_up(pool, at)
        state.next_reserved = min(state.next_reserved, queue[at].reserved)
    state.seen = state.tail
    state.settled = 1
    state.tighten = 0


@spliced
def start_reserved(pool: Pool) -> None:
    """Start the jobs whose reserved time has come, and find the next such time.

    On nodes that differ a job may find too few that it can use: it then gets another reservation,
    after the next change of the profile.
    """
    state, queue = pool.state[0], pool.queue
    if state.next_reserved > state.now:
        return
    state.next_reserved = np.inf
    for at in range(state.head, state.tail):
        if queue[at].width == GONE:
            continue
        if queue[at].reserved <= state.now:
            if state.node_level or state.plan_left > 0:
                group = group_of(pool, queue[at].row)
                if choose(pool, queue[at].width, queue[at].wall, group):
                    launch_on_picks(pool, at)
                    continue
                unplace(pool, at)
                step = step_at(pool, state.now) + 1
                if step < state.steps:
                    place(pool, at, pool.profile[step].time)
            else:
                launch(pool, at)
                continue
        state.next_reserved = min(state.next_reserved, queue[at].reserved)


@outline
def conservative_pass(pool: Pool) -> None:
    """Start what conservative backfilling lets start now."""
    state = pool.state[0]
    if state.rebuild or state.steps == 0:
        rebuild(pool)
    forget_past(pool)
    if state.node_level or state.plan_left > 0:
        for node in range(len(pool.nodes)):
            pool.nodes[node].limit = pool.nodes[node].window
    if state.waiting > 0:
        if state.tail - state.head > 2 * state.waiting + 64:
            close_up(pool)
        reserve_all(pool)
        start_reserved(pool)


@part
def give_back(pool: Pool, until: float, size: int) -> None:
    """Take the rest of an early ended job's requested time out of the profile."""
    state = pool.state[0]
    if state.steps > 0 and not state.rebuild:
        forget_past(pool)
        occupy(pool, state.now, until, -size)
        state.tighten = 1
