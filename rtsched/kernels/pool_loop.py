"""The event loop of a pool of exclusive nodes: from instant to instant until something is asked.

At one instant, in this order: ends; node events; planned starts that are due; arrivals and jobs
that come back; the stop, if something must be answered; planned starts of the new plan; one
scheduling pass. Whoever drives the loop calls `advance` again to go on from a stop.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rtsched.kernels.backfill import easy_pass, start_heads
from rtsched.kernels.compiling import numba
from rtsched.kernels.hooks import FAIR_SHARE, OBSERVE, CompiledHook, JobColumns, compiled_hook
from rtsched.kernels.pool import (
    ARRIVED,
    ASK_ARRIVALS,
    ASK_EARLY_END,
    ASK_NODES,
    ASK_PASS,
    ASKED,
    CONSERVATIVE,
    EASY,
    ENDED,
    FULL,
    FUTURE,
    HELD,
    NEGOTIATOR,
    PAUSED,
    REJECTED,
    SERIAL,
    SLEEPING,
    TOO_WIDE,
    TURNED_AWAY,
    Pool,
    record,
    release,
)
from rtsched.kernels.pool_compiling import entry, part, spliced
from rtsched.kernels.pool_heap import pop, push
from rtsched.kernels.pool_nodes import change_nodes, group_of, start_planned
from rtsched.kernels.pool_profile import conservative_pass, give_back
from rtsched.kernels.pool_queue import enqueue, list_queue, rerank
from rtsched.kernels.pool_windows import serial_pass, window_pass

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

NEXT, ASK, ACT, PASS = 0, 1, 2, 3
"""Where the loop goes on (STATE.phase)."""

TELL, RANK, DEAL = 64, 128, 256
"""Stops at which hooks are called; at which HTCondor's loop makes its pass."""


@spliced
def next_time(pool: Pool) -> float:
    """Return the next instant at which something happens, inf if nothing will."""
    state = pool.state[0]
    time = np.inf
    if state.upcoming < len(pool.jobs):
        time = pool.jobs[state.upcoming].submit
    if state.running > 0:
        time = min(time, pool.ends[0].time)
    if state.sleeping > 0:
        time = min(time, pool.sleepers[0].time)
    if state.node_event < len(pool.node_events):
        time = min(time, pool.node_events[state.node_event].time)
    if state.loop == CONSERVATIVE:
        time = min(time, max(state.next_reserved, state.now))
    elif state.loop == NEGOTIATOR:
        time = min(time, state.next_cycle)
    for i in range(state.planned, len(pool.plan)):
        if pool.plan[i].row >= 0 and pool.plan[i].start > state.now:
            time = min(time, pool.plan[i].start)
            break
    return float(time)


@spliced
def has_room(pool: Pool, time: float) -> bool:
    """Return whether the records hold all that can happen at one instant."""
    state, m = pool.state[0], len(pool.nodes)
    needed = 3 * m + (len(pool.plan_nodes) if state.joining > 0 else 0)
    if state.logging and len(pool.log_nodes) - state.logged < needed:
        return False
    if not state.recording:
        return True
    arrivals = state.upcoming
    while arrivals < len(pool.jobs) and pool.jobs[arrivals].submit <= time:
        arrivals += 1
    most = 2 * (arrivals - state.upcoming) + 8 * m + len(pool.node_events) + 16
    return bool(len(pool.events) - state.events >= most)


@spliced
def end_jobs(pool: Pool) -> None:
    """End the jobs whose time has come and free their nodes."""
    state = pool.state[0]
    while state.running > 0 and pool.ends[0].time <= state.now:
        row = pop(pool.ends, state.running)
        job = pool.jobs[row]
        release(pool, row)
        job.status = ENDED
        until = job.start + job.wall
        if until > state.now:
            state.early = 1
            if state.loop == CONSERVATIVE:
                give_back(pool, until, job.width)


@part
def come_in(pool: Pool, row: int) -> None:
    """Let a job into the queue, or have it wait for its begin time."""
    state = pool.state[0]
    if state.extended and pool.more[row].begin > state.now:
        pool.jobs[row].status = SLEEPING
        push(pool.sleepers, state.sleeping, pool.more[row].begin, row)
        state.sleeping += 1
    else:
        admit_to_queue(pool, row)


@part
def admit_to_queue(pool: Pool, row: int) -> None:
    """Let a job into the queue, unless it can never start."""
    group = group_of(pool, row)
    most = len(pool.nodes)
    if group >= 0:
        most = pool.group_of[group + 1] - pool.group_of[group]
    if pool.jobs[row].width > most:
        pool.jobs[row].status = TOO_WIDE
    else:
        enqueue(pool, row)


@part
def ask_about(pool: Pool, row: int) -> None:
    """Put a job on the list of those to be judged at this instant."""
    state = pool.state[0]
    pool.jobs[row].status = ASKED
    pool.asked[state.asked] = row
    state.asked += 1


@part
def come_back(pool: Pool) -> None:
    """Wake the jobs whose begin time or next hearing has come."""
    state = pool.state[0]
    for i in range(state.again):
        if pool.jobs[pool.again[i]].status == HELD:
            ask_about(pool, pool.again[i])
    state.again = 0
    while state.sleeping > 0 and pool.sleepers[0].time <= state.now:
        row = pop(pool.sleepers, state.sleeping)
        state.sleeping -= 1
        status = pool.jobs[row].status
        if status == SLEEPING:
            admit_to_queue(pool, row)
        elif status == HELD:
            ask_about(pool, row)


@spliced
def arrive(pool: Pool) -> None:
    """Take in the jobs submitted at this instant."""
    state, jobs = pool.state[0], pool.jobs
    while state.upcoming < len(jobs) and jobs[state.upcoming].submit <= state.now:
        row = state.upcoming
        state.upcoming += 1
        if state.recording:
            record(pool, ARRIVED, row, jobs[row].width, -1)
        if jobs[row].status == FUTURE:
            if state.ask_arrivals:
                ask_about(pool, row)
            else:
                come_in(pool, row)
        elif jobs[row].status == REJECTED and state.recording:
            record(pool, TURNED_AWAY, row, jobs[row].width, -1)


@spliced
def questions(pool: Pool) -> int:
    """Return what must be answered at this instant before jobs are started."""
    state = pool.state[0]
    asks = 0
    if state.asked > 0:
        asks |= ASK_ARRIVALS
    some = state.waiting + state.asked > 0 and (state.loop > EASY or state.free > 0)
    if state.ask_passes and some:
        asks |= ASK_PASS
    if state.ask_early and state.early and state.plan_left > 0:
        asks |= ASK_EARLY_END
    if state.ask_nodes and state.changed:
        asks |= ASK_NODES
    return asks


@spliced
def settle_asked(pool: Pool) -> None:
    """Let in the jobs that were asked about and of which nothing was said."""
    state = pool.state[0]
    for i in range(state.asked):
        if pool.jobs[pool.asked[i]].status == ASKED:
            come_in(pool, pool.asked[i])
    state.asked = 0


@spliced
def start_waiting(pool: Pool) -> None:
    """Make one scheduling pass of the system's own loop."""
    state = pool.state[0]
    if state.loop == CONSERVATIVE:
        conservative_pass(pool)
    elif state.loop == SERIAL:
        serial_pass(pool)
    elif state.node_level or state.plan_left > 0:
        window_pass(pool)
    elif state.loop == EASY:
        easy_pass(pool)
    else:
        start_heads(pool)


@spliced
def next_instant(pool: Pool) -> int:
    """Go to the next instant and let happen what needs no answer; return 0, FULL, PAUSED or -1."""
    state = pool.state[0]
    time = next_time(pool)
    if time == np.inf:
        return -1
    if state.upcoming >= state.pause_at:
        return PAUSED
    if not has_room(pool, time):
        return FULL
    state.now = time
    state.early = 0
    state.changed = 0
    end_jobs(pool)
    if state.node_event < len(pool.node_events):
        change_nodes(pool)
    if state.plan_left > 0:
        start_planned(pool)
    if state.again or state.sleeping:
        come_back(pool)
    arrive(pool)
    return 0


@entry
def advance(pool: Pool) -> int:
    """Run until something must be answered; return the questions as bits, 0 at the end.

    `TELL` and `RANK` are for `advance_with_hooks`: events wait for the observing hook, waiting jobs
    for their priorities. `DEAL` is for `rtsched.kernels.pool_negotiation`.
    """
    state = pool.state[0]
    while True:
        if state.phase == NEXT:
            stop = next_instant(pool)
            if stop != 0:
                return max(stop, 0)
            state.phase = ASK
        if state.observing and state.told < state.events:
            return TELL
        if state.phase == ASK:
            state.phase = ACT
            asks = questions(pool)
            if asks:
                return asks
        if state.phase == ACT:
            settle_asked(pool)
            if state.plan_left > 0:
                start_planned(pool)
            state.phase = NEXT
            if state.waiting == 0 and state.loop != NEGOTIATOR:
                state.next_reserved = np.inf
                continue
            if state.free == 0 and state.loop <= EASY:
                continue
            if state.ranking and state.waiting > 0:
                state.phase = PASS
                return RANK
        state.phase = NEXT
        if state.loop == NEGOTIATOR:
            return DEAL
        start_waiting(pool)


def advance_with_hooks(
    pool: Pool,
    fair_share: Callable[..., Any],
    fair_params: NDArray[np.float64],
    fair_tables: NDArray[np.float64],
    fair_state: NDArray[np.float64],
    observe: Callable[..., Any],
    seen_params: NDArray[np.float64],
    seen_tables: NDArray[np.float64],
    seen_state: NDArray[np.float64],
    submit: NDArray[np.float64],
    wall_time: NDArray[np.float64],
    deadline: NDArray[np.float64],
    nice: NDArray[np.float64],
    size: NDArray[np.int32],
    association: NDArray[np.int32],
    partition: NDArray[np.int32],
    qos: NDArray[np.int32],
) -> int:
    """Run as `advance` does, calling compiled hooks; return the questions as bits, 0 at the end.

    Parameters
    ----------
    pool : Pool
        The system, changed in place.
    fair_share, observe : callable
        Compiled hooks (`rtsched.kernels.hooks`), called where `state.ranking` and
        `state.observing` say so, each with its params, tables and state.
    submit, wall_time, deadline, nice, size, association, partition, qos
        What the hooks see of the jobs (`JobColumns`).
    """
    columns = JobColumns(submit, wall_time, deadline, nice, size, association, partition, qos)
    state = pool.state[0]
    while True:
        stop = advance(pool)
        if stop == TELL:
            for i in range(state.told, state.events):
                event = pool.events[i]
                if event.row >= 0:
                    observe(
                        event.time,
                        event.kind,
                        event.row,
                        event.width,
                        columns,
                        seen_params,
                        seen_tables,
                        seen_state,
                    )
                    state.observed += 1
            state.events = state.events if state.keeping else 0
            state.told = state.events
        elif stop == RANK:
            count = list_queue(pool)
            state.abstained += fair_share(
                state.now,
                pool.rows[:count],
                columns,
                fair_params,
                fair_tables,
                fair_state,
                pool.values[:count],
            )
            state.calls += 1
            state.judged += count
            state.moved += rerank(pool, pool.values)
        else:
            return stop


@compiled_hook(FAIR_SHARE)
def _no_priority(_now, _rows, _columns, _params, _tables, _state, _out):  # type: ignore[no-untyped-def]
    return 0


@compiled_hook(OBSERVE)
def _no_observer(_time, _kind, _row, _size, _columns, _params, _tables, _state):  # type: ignore[no-untyped-def]
    pass


NO_PRIORITY = CompiledHook(_no_priority, np.zeros(1), np.zeros((1, 1)), np.zeros((1, 1)))
NO_OBSERVER = CompiledHook(_no_observer, np.zeros(1), np.zeros((1, 1)), np.zeros((1, 1)))
"""Stand for a hook that no plug-in offers; never called."""


@cache
def _compiled_with_hooks(pool: Any) -> Callable[..., int]:
    hooks = (FAIR_SHARE, *FAIR_SHARE.signature.args[3:6], OBSERVE, *OBSERVE.signature.args[5:8])
    kernel: Any = entry(advance_with_hooks)
    kernel.compile((pool, *hooks, *OBSERVE.signature.args[4].types))
    kernel.disable_compile()
    return cast("Callable[..., int]", kernel)


def hooked_loop(pool: Pool) -> Callable[..., int]:
    """Return `advance_with_hooks`, compiled for pools such as `pool` where numba is installed."""
    return advance_with_hooks if numba is None else _compiled_with_hooks(numba.typeof(pool))
