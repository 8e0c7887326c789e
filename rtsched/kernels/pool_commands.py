"""What the outside may change in a pool between two instants, and what it may look up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels.pool import (
    ASKED,
    CANCELLED,
    CONSERVATIVE,
    FUTURE,
    HELD,
    PLANNED,
    QUEUED,
    REJECTED,
    SLEEPING,
    TURNED_AWAY,
    Pool,
    record,
)
from rtsched.kernels.pool_compiling import entry, part, spliced
from rtsched.kernels.pool_heap import push
from rtsched.kernels.pool_loop import come_in
from rtsched.kernels.pool_profile import unplace
from rtsched.kernels.pool_queue import close_up, find, rerank, withdraw

if TYPE_CHECKING:
    from numpy.typing import NDArray

ADMIT, REJECT, HOLD, RELEASE, CANCEL, PLAN, UNPLAN, RESIZE = 0, 1, 2, 3, 4, 5, 6, 7
"""What `change` does."""


@part
def take_out(pool: Pool, row: int) -> None:
    """Take a job out of the queue, and its reservation out of the profile."""
    state = pool.state[0]
    if state.loop == CONSERVATIVE and state.steps > 0:
        at = find(pool, row)
        if at >= 0:
            unplace(pool, at)
            state.tighten = 1
    withdraw(pool, row)


@part
def set_aside(pool: Pool, row: int, status: int) -> bool:
    """Give a job that waits in any way another status; return whether it did wait."""
    was = pool.jobs[row].status
    if was not in (FUTURE, ASKED, QUEUED, SLEEPING, HELD, PLANNED):
        return False
    if was == QUEUED:
        take_out(pool, row)
    pool.jobs[row].status = status
    return True


@part
def hold(pool: Pool, row: int, until: float) -> bool:
    """Hold a job; it is asked about again at `until`, or at the next instant if that is past."""
    state = pool.state[0]
    if not set_aside(pool, row, HELD):
        return False
    if until <= state.now:
        if state.again < len(pool.again):
            pool.again[state.again] = row
            state.again += 1
    elif until < np.inf:
        push(pool.sleepers, state.sleeping, until, row)
        state.sleeping += 1
    return True


@spliced
def resize(pool: Pool, row: int) -> bool:
    """Let a waiting job's new size, wall time and node set count in the queue."""
    status = pool.jobs[row].status
    if status == QUEUED:
        take_out(pool, row)
        come_in(pool, row)
    return bool(status in (FUTURE, ASKED, QUEUED, SLEEPING, HELD))


@entry
def change(pool: Pool, what: int, rows: NDArray[np.int64], values: NDArray[np.float64]) -> int:
    """Do one thing to many jobs and return for how many it could be done.

    Parameters
    ----------
    what : int
        `ADMIT`, ...
    rows : int64[k]
        The jobs.
    values : float64[k]
        For `HOLD` until when, relative to the origin; else not read.
    """
    state, done = pool.state[0], 0
    for i in range(len(rows)):
        row = rows[i]
        status = pool.jobs[row].status
        changed = False
        if what == ADMIT:
            changed = status in (ASKED, HELD, SLEEPING, QUEUED, PLANNED)
            if status in (ASKED, HELD):
                come_in(pool, row)
        elif what == REJECT:
            changed = set_aside(pool, row, REJECTED)
            if changed and state.recording:
                record(pool, TURNED_AWAY, row, pool.jobs[row].width, -1)
        elif what == HOLD:
            changed = hold(pool, row, values[i])
        elif what == RELEASE:
            changed = status in (ASKED, HELD, SLEEPING, QUEUED, PLANNED)
            if status in (ASKED, HELD):
                come_in(pool, row)
        elif what == CANCEL:
            changed = set_aside(pool, row, CANCELLED)
        elif what == PLAN:
            changed = set_aside(pool, row, PLANNED)
        elif what == UNPLAN:
            changed = status == PLANNED
            if changed:
                come_in(pool, row)
        elif what == RESIZE:
            changed = resize(pool, row)
        done += changed
    return done


@entry
def prioritise(pool: Pool, rows: NDArray[np.int64], values: NDArray[np.float64]) -> int:
    """Give jobs new priorities, higher is sooner; return how many places in the queue changed."""
    state, queue = pool.state[0], pool.queue
    close_up(pool)
    for i in range(len(rows)):
        pool.more[rows[i]].key = -values[i]
    for at in range(state.tail):
        pool.values[at] = -pool.more[queue[at].row].key
    return rerank(pool, pool.values)


@entry
def list_nodes(pool: Pool, rows: NDArray[np.int64], out: NDArray[np.int32]) -> int:
    """Write down the nodes of running jobs, one job after the other; return how many they are."""
    count = 0
    for i in range(len(rows)):
        node = pool.jobs[rows[i]].first
        while node >= 0:
            out[count] = node
            count += 1
            node = pool.nodes[node].next
    return count
