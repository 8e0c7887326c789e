"""HTCondor's own loop over a pool: negotiation cycles, claims that are used again, wide jobs.

At every instant, vacated CPUs first go to the next job of their submitter that fits, without
negotiation, as long as the claim may take jobs; what nobody takes over is unclaimed. When a cycle
is due, unclaimed CPUs are dealt out (`deal`). A job that does not fit is passed over and holds up
nobody.

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

from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels.pool_claims import NEVER, age, claim, give_up
from rtsched.kernels.pool_compiling import entry, outline, part, spliced
from rtsched.kernels.pool_loop import DEAL, advance
from rtsched.kernels.pool_matching import (
    EVERYBODY,
    NOBODY,
    hand_on,
    launch,
    mark,
    pick,
    usable,
)
from rtsched.kernels.pool_nodes import group_of, usable_count

if TYPE_CHECKING:
    from rtsched.kernels.pool import Pool

SLACK = 1e-9
"""CPUs by which rounding may make a slice too small."""


@part
def possible(pool: Pool, row: int) -> bool:
    """Return whether a job could start if nothing else ran."""
    enough = pool.jobs[row].width <= usable_count(pool, group_of(pool, row))
    return bool(enough and not pool.requests[row].hopeless)


@part
def first_wide(pool: Pool) -> int:
    """Return the first wide job that may ever start, -1 if none waits."""
    row = int(pool.submitters[pool.state[0].dedicated].first)
    while row >= 0 and not possible(pool, row):
        row = int(pool.requests[row].after)
    return row


@outline
def keep_held(pool: Pool, row: int) -> int:
    """Give up held CPUs that a wide job (-1: none) cannot use; pick the others, and count them."""
    state, count = pool.state[0], 0
    if state.held == 0:
        return 0
    group, end = EVERYBODY, np.inf
    if row >= 0:
        group, end = group_of(pool, row), state.now + pool.jobs[row].wall
        mark(pool, group)
    for at in range(len(pool.offers)):
        offer = pool.offers[at]
        for node in range(offer.first, offer.first + offer.count):
            if not pool.claims[node].held:
                continue
            fits = row >= 0 and pool.requests[row].memory <= pool.claims[node].memory
            if fits and usable(pool, node, group, end):
                pool.picks[count] = node
                count += 1
            else:
                give_up(pool, node)
    return count


@part
def start_held(pool: Pool) -> None:
    """Start wide jobs, first come first served, that the held CPUs suffice for."""
    state = pool.state[0]
    while state.held > 0:
        row = first_wide(pool)
        size = pool.jobs[row].width if row >= 0 else NEVER
        if row >= 0 and state.held < size:
            return
        if keep_held(pool, row) < size:
            return
        launch(pool, row)


@outline
def serve_wide(pool: Pool, limit: float) -> float:
    """Claim CPUs for wide jobs, up to the dedicated scheduler's slice; return how many.

    As many as the first one lacks; once it has them, it starts, and the next one is the first.
    """
    state, claims = pool.state[0], pool.claims
    who = pool.submitters[state.dedicated]
    taken = 0.0
    row = first_wide(pool)
    while row >= 0:
        size = int(pool.jobs[row].width)
        keep_held(pool, row)
        while state.held < size:
            if not pick(pool, row, 1):
                who.done = 1
                return taken
            if taken > 0.0 and taken + 1.0 > limit + SLACK:
                return taken
            node = pool.picks[0]
            claim(pool, node, row)
            claims[node].held = 1
            state.held += 1
            state.dealt += 1
            taken += 1.0
        keep_held(pool, row)
        launch(pool, row)
        row = first_wide(pool)
    who.done = 1
    return taken


@outline
def serve(pool: Pool, who: int, limit: float) -> float:
    """Start a submitter's jobs in order, up to its slice, passing over those that do not fit.

    Returns the CPUs they take. The first job may be larger than the slice. A submitter whose jobs
    have all been looked at is done; one that comes to the end of its slice is not.
    """
    state, taken = pool.state[0], 0.0
    row = int(pool.submitters[who].first)
    while row >= 0:
        if state.free <= state.held:
            return taken
        after = int(pool.requests[row].after)
        size = int(pool.jobs[row].width)
        if pick(pool, row, size):
            if taken > 0.0 and taken + size > limit + SLACK:
                return taken
            launch(pool, row)
            taken += size
        row = after
    pool.submitters[who].done = 1
    return taken


@spliced
def rank_submitters(pool: Pool) -> None:
    """Order the submitters whose jobs wait by effective priority, best first; ties by row."""
    state, submitters = pool.state[0], pool.submitters
    count = 0
    for k in range(state.active):
        who = submitters[k].rank
        submitter = submitters[who]
        if submitter.first < 0:
            submitter.listed = 0
            continue
        age(pool, who)
        submitter.effective = submitter.priority * submitter.factor
        submitter.done = 0
        at = count
        while at > 0 and comes_after(pool, submitters[at - 1].rank, who):
            submitters[at].rank = submitters[at - 1].rank
            at -= 1
        submitters[at].rank = who
        count += 1
    state.active = count


@part
def comes_after(pool: Pool, a: int, b: int) -> bool:
    """Return whether submitter `a` is served after `b`."""
    mine, other = pool.submitters[a].effective, pool.submitters[b].effective
    return bool(mine > other or (mine == other and a > b))


@spliced
def slice_pie(pool: Pool, total: int) -> float:
    """Set the slices of the submitters that are not done, and return their sum.

    Everybody's slice of all `total` CPUs goes with 1 / effective priority, less what is claimed.
    Of the dedicated scheduler's claims, which others pay for, only those of this cycle count.
    """
    state, submitters = pool.state[0], pool.submitters
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


@spliced
def deal(pool: Pool) -> None:
    """Make one negotiation cycle: spin the pie until no more job fits or nothing is unclaimed.

    In each spin the submitters, best priority first, are served up to their slices. From the second
    spin on one whose slice is less than a CPU is passed over.
    """
    state, submitters = pool.state[0], pool.submitters
    state.asked_size = NEVER
    state.dealt = 0
    keep_held(pool, first_wide(pool))
    rank_submitters(pool)
    total = usable_count(pool, EVERYBODY)
    least, left, went_on = 0.0, int(state.active), True
    while left > 0 and went_on and state.free > state.held:
        pie = slice_pie(pool, total)
        went_on = False
        for k in range(state.active):
            who = submitters[k].rank
            limit = min(submitters[who].limit, pie)
            if submitters[who].done or limit <= 0.0 or limit + SLACK < least:
                continue
            if state.free <= state.held:
                break
            wide = who == state.dedicated
            taken = serve_wide(pool, limit) if wide else serve(pool, who, limit)
            pie -= taken
            left -= submitters[who].done
            went_on = went_on or taken > 0.0 or submitters[who].done
        least = 1.0
    state.calm = left == 0 or state.free <= state.held
    state.fresh = 0
    state.last_cycle = state.now


@part
def plan_cycle(pool: Pool) -> None:
    """Work out when the next cycle is due; those that would change nothing are left out.

    Cycles follow one another at the interval. A submission asks for one at once, though not before
    the delay since the last one has passed.
    """
    state = pool.state[0]
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
def negotiation_pass(pool: Pool) -> None:
    """Start what HTCondor would start now."""
    state = pool.state[0]
    state.marked = NOBODY
    if state.rebuild:
        state.rebuild = 0
        state.calm = 0
    hand_on(pool)
    start_held(pool)
    plan_cycle(pool)
    if state.next_cycle <= state.now:
        deal(pool)
        plan_cycle(pool)


@entry
def negotiate(pool: Pool) -> int:
    """Run as `advance` does, with HTCondor's pass at each instant; return the questions as bits."""
    while True:
        stop = advance(pool)
        if stop != DEAL:
            return int(stop)
        negotiation_pass(pool)
