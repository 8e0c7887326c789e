"""What the outside may change in a machine between two instants, and what it may look up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels.machine import (
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
    MachineState,
    place_of,
    record,
)
from rtsched.kernels.machine_compiling import entry, inlined, part
from rtsched.kernels.machine_gates import job_over, leave_array
from rtsched.kernels.machine_heap import push
from rtsched.kernels.machine_profile import unplace
from rtsched.kernels.machine_queue import close_up, find, rerank, withdraw
from rtsched.kernels.machine_scheduler import come_in

if TYPE_CHECKING:
    from numpy.typing import NDArray

ADMIT, REJECT, HOLD, RELEASE, CANCEL, PLAN, UNPLAN, RESIZE, PROMISE = 0, 1, 2, 3, 4, 5, 6, 7, 8
"""What `change` does; `PROMISE` is `ADMIT` and then `PLAN`."""


@part
def take_out(machine: MachineState, row: int) -> None:
    """Take a job out of the queue, and its reservation out of the profile."""
    state = machine.state[0]
    if state.loop == CONSERVATIVE and state.steps > 0:
        at = find(machine, row)
        if at >= 0:
            unplace(machine, at)
            state.tighten = 1
    withdraw(machine, row)


@part
def set_aside(machine: MachineState, row: int, status: int) -> bool:
    """Give a job that waits in any way another status; return whether it did wait."""
    was = machine.jobs[row].status
    if was not in (FUTURE, ASKED, QUEUED, SLEEPING, HELD, PLANNED):
        return False
    if was == QUEUED:
        take_out(machine, row)
    if machine.state[0].gated:
        if status in (REJECTED, CANCELLED):
            job_over(machine, row, False)
        else:
            leave_array(machine, row)
    machine.jobs[row].status = status
    return True


@part
def hold(machine: MachineState, row: int, until: float) -> bool:
    """Hold a job; it is asked about again at `until`, or at the next instant if that is past."""
    state = machine.state[0]
    if not set_aside(machine, row, HELD):
        return False
    if until <= state.now:
        if state.again < len(machine.again):
            machine.again[state.again] = row
            state.again += 1
    elif until < np.inf:
        push(machine.sleepers, state.sleeping, until, row)
        state.sleeping += 1
    return True


@inlined
def resize(machine: MachineState, row: int) -> bool:
    """Let a waiting job's new size, wall time and node set count in the queue."""
    status = machine.jobs[row].status
    if status == QUEUED:
        take_out(machine, row)
        come_in(machine, row)
    return bool(status in (FUTURE, ASKED, QUEUED, SLEEPING, HELD))


@entry
def change(
    machine: MachineState, what: int, rows: NDArray[np.int64], values: NDArray[np.float64]
) -> int:
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
    state, done = machine.state[0], 0
    for i in range(len(rows)):
        row = rows[i]
        status = machine.jobs[row].status
        changed = False
        if what == ADMIT:
            changed = status in (ASKED, HELD, SLEEPING, QUEUED, PLANNED)
            if status in (ASKED, HELD):
                come_in(machine, row)
        elif what == REJECT:
            changed = set_aside(machine, row, REJECTED)
            if changed and state.recording:
                record(machine, TURNED_AWAY, row, machine.jobs[row].width, -1)
        elif what == HOLD:
            changed = hold(machine, row, values[i])
        elif what == RELEASE:
            changed = status in (ASKED, HELD, SLEEPING, QUEUED, PLANNED)
            if status in (ASKED, HELD):
                come_in(machine, row)
        elif what == CANCEL:
            changed = set_aside(machine, row, CANCELLED)
        elif what in (PLAN, PROMISE):
            if what == PROMISE and status in (ASKED, HELD):
                come_in(machine, row)
            changed = set_aside(machine, row, PLANNED)
        elif what == UNPLAN:
            changed = status == PLANNED
            if changed:
                come_in(machine, row)
        elif what == RESIZE:
            changed = resize(machine, row)
        done += changed
    return done


@entry
def shorten(machine: MachineState, row: int, wall: float) -> int:
    """Let a running job end within `wall` seconds of its start at the latest; return its place.

    That is less than it was so far. The place is that in the running list, -1: there is none.
    """
    state, job = machine.state[0], machine.jobs[row]
    before, after = job.start + job.wall, job.start + wall
    job.wall = wall
    state.settled = 0
    state.rebuild = 1
    if not state.keeps_shadow:
        return -1
    running = machine.running
    at = place_of(running, state.running, before, row)
    while at > 0 and (
        running[at - 1].time > after
        or (running[at - 1].time == after and running[at - 1].row > row)
    ):
        running[at] = running[at - 1]
        at -= 1
    running[at].time = after
    running[at].row = row
    running[at].width = job.width
    return at


@entry
def prioritise(machine: MachineState, rows: NDArray[np.int64], values: NDArray[np.float64]) -> int:
    """Give jobs new priorities, higher is sooner; return how many places in the queue changed."""
    state, queue = machine.state[0], machine.queue
    close_up(machine)
    for i in range(len(rows)):
        machine.more[rows[i]].key = -values[i]
    for at in range(state.tail):
        machine.values[at] = -machine.more[queue[at].row].key
    return rerank(machine, machine.values)


@entry
def list_nodes(machine: MachineState, rows: NDArray[np.int64], out: NDArray[np.int32]) -> int:
    """Write down the nodes of running jobs, one job after the other; return how many they are."""
    count = 0
    for i in range(len(rows)):
        row = rows[i]
        node = machine.jobs[row].first
        if machine.state[0].sharing:
            for k in range(machine.held_at[row], machine.held_at[row] + machine.jobs[row].width):
                out[count] = machine.held[k]
                count += 1
            continue
        while node >= 0:
            out[count] = node
            count += 1
            node = machine.nodes[node].next
    return count
