"""The event loop of the exclusive machine: from instant to instant until something is asked.

At one instant, in this order: ends; node events; planned starts that are due; arrivals and jobs
that come back; the stop, if something must be answered; planned starts of the new plan; one
scheduling pass. Whoever drives the loop calls `advance` again to go on from a stop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels.compiling import entry, inlined, only_with, outline, part
from rtsched.kernels.machine import (
    ARRIVED,
    ASK_ARRIVALS,
    ASK_EARLY_END,
    ASK_NODES,
    ASK_PASS,
    ASKED,
    CANCELLED,
    CONSERVATIVE,
    EASY,
    ENDED,
    FULL,
    FUTURE,
    HELD,
    NEGOTIATOR,
    PAUSED,
    PLANNED,
    QUEUED,
    REJECTED,
    SERIAL,
    SLEEPING,
    TOO_WIDE,
    TURNED_AWAY,
    MachineState,
    place_of,
    record,
    release,
)
from rtsched.kernels.machine_conservative import conservative_pass, give_back, unplace
from rtsched.kernels.machine_gates import job_over, leave_array, next_task, passes_gate
from rtsched.kernels.machine_nodes import change_nodes, group_of, start_planned
from rtsched.kernels.machine_passes import easy_pass, serial_pass, start_heads, window_pass
from rtsched.kernels.machine_preemption import next_exemption_end, preempt
from rtsched.kernels.machine_queue import close_up, enqueue, find, rerank, withdraw
from rtsched.kernels.machine_shared_passes import shared_pass
from rtsched.kernels.records import pop, push

if TYPE_CHECKING:
    from numpy.typing import NDArray


NEXT, ASK, ACT, PASS = 0, 1, 2, 3
"""Where the loop goes on (STATE.phase)."""

OBSERVE, RANK, DEAL = 64, 128, 256
"""Stops at which a policy is asked; at which HTCondor's loop makes its pass."""


@inlined
def next_time(machine: MachineState) -> float:
    """Return the next instant at which something happens, inf if nothing will."""
    state = machine.state[0]
    time = np.inf
    if state.upcoming < len(machine.jobs):
        time = machine.jobs[state.upcoming].submit
    if state.running > 0:
        time = min(time, machine.ends[0].time)
    if state.sleeping > 0:
        time = min(time, machine.sleepers[0].time)
    if state.opened > 0:
        time = state.now
    if state.node_event < len(machine.node_events):
        time = min(time, machine.node_events[state.node_event].time)
    if state.limited:
        time = min(time, machine.limits.recheck[0])
    if state.preempting:
        time = min(time, next_exemption_end(machine))
    if state.loop == CONSERVATIVE:
        time = min(time, max(state.next_reserved, state.now))
    elif state.loop == NEGOTIATOR:
        time = min(time, state.next_cycle)
    for i in range(state.planned, state.plan_size):
        if machine.plan[i].row >= 0 and machine.plan[i].start > state.now:
            time = min(time, machine.plan[i].start)
            break
    return float(time)


@inlined
def has_room(machine: MachineState, time: float) -> bool:
    """Return whether the records hold all that can happen at one instant."""
    state, m = machine.state[0], len(machine.nodes)
    needed = 3 * m + (len(machine.plan_nodes) if state.joining > 0 else 0)
    if state.logging and len(machine.log_nodes) - state.logged < needed:
        return False
    if not state.recording:
        return True
    arrivals = state.upcoming
    while arrivals < len(machine.jobs) and machine.jobs[arrivals].submit <= time:
        arrivals += 1
    most = 2 * (arrivals - state.upcoming) + 8 * m + len(machine.node_events) + 16
    if state.sharing:
        most += 2 * (state.running + state.waiting + state.sleeping + state.again)
    return bool(len(machine.events) - state.events >= most)


@inlined
def end_jobs(machine: MachineState) -> None:
    """End the jobs whose time has come and free their nodes."""
    state = machine.state[0]
    while state.running > 0 and machine.ends[0].time <= state.now:
        row = pop(machine.ends, state.running)
        job = machine.jobs[row]
        release(machine, row)
        job.status = ENDED
        if state.gated:
            job_over(machine, row, True)
        until = job.start + job.wall
        if until > state.now:
            state.early = 1
            if state.loop == CONSERVATIVE or (state.sharing and state.plan_left > 0):
                give_back(machine, row, until)


@part
def come_in(machine: MachineState, row: int) -> None:
    """Let a job into the queue, or have it wait for its begin time."""
    state = machine.state[0]
    if state.extended and machine.more[row].begin > state.now:
        machine.jobs[row].status = SLEEPING
        push(machine.sleepers, state.sleeping, machine.more[row].begin, row)
        state.sleeping += 1
    else:
        try_gate(machine, row)


@part
def try_gate(machine: MachineState, row: int) -> None:
    """Let a job that may begin into the queue, or have it wait for other jobs."""
    if machine.state[0].gated and not passes_gate(machine, row):
        machine.jobs[row].status = SLEEPING
    else:
        admit_to_queue(machine, row)


@part
def admit_to_queue(machine: MachineState, row: int) -> None:
    """Let a job into the queue, unless it can never start."""
    group = group_of(machine, row)
    most = len(machine.nodes)
    if machine.state[0].sharing:
        most = machine.fitting[row]
    elif group >= 0:
        most = machine.group_of[group + 1] - machine.group_of[group]
    if machine.jobs[row].width > most:
        machine.jobs[row].status = TOO_WIDE
        if machine.state[0].gated:
            job_over(machine, row, False)
    else:
        enqueue(machine, row)


@part
def ask_about(machine: MachineState, row: int) -> None:
    """Put a job on the list of those to be judged at this instant."""
    state = machine.state[0]
    machine.jobs[row].status = ASKED
    machine.asked[state.asked] = row
    state.asked += 1


@part
def come_back(machine: MachineState) -> None:
    """Wake the jobs whose begin time or next hearing has come."""
    state = machine.state[0]
    for i in range(state.again):
        if machine.jobs[machine.again[i]].status == HELD:
            ask_about(machine, machine.again[i])
    state.again = 0
    while state.sleeping > 0 and machine.sleepers[0].time <= state.now:
        row = pop(machine.sleepers, state.sleeping)
        state.sleeping -= 1
        status = machine.jobs[row].status
        if status == SLEEPING:
            try_gate(machine, row)
        elif status == HELD:
            ask_about(machine, row)


@outline
def let_in_opened(machine: MachineState) -> None:
    """Let in the jobs that need not wait for others any more."""
    state = machine.state[0]
    while state.opened > 0:
        state.opened -= 1
        row = machine.opened[state.opened]
        early = state.extended and machine.more[row].begin > state.now
        if machine.jobs[row].status == SLEEPING and not early:
            try_gate(machine, row)
        elif machine.gates[row].array >= 0 and not machine.gates[row].counted:
            next_task(machine, machine.gates[row].array)


@inlined
def arrive(machine: MachineState) -> None:
    """Take in the jobs submitted at this instant."""
    state, jobs = machine.state[0], machine.jobs
    while state.upcoming < len(jobs) and jobs[state.upcoming].submit <= state.now:
        row = state.upcoming
        state.upcoming += 1
        if state.recording:
            record(machine, ARRIVED, row, jobs[row].width, -1)
        if jobs[row].status == FUTURE:
            if state.ask_arrivals:
                ask_about(machine, row)
            else:
                come_in(machine, row)
        elif jobs[row].status == REJECTED:
            if state.gated:
                job_over(machine, row, False)
            if state.recording:
                record(machine, TURNED_AWAY, row, jobs[row].width, -1)


@inlined
def questions(machine: MachineState) -> int:
    """Return what must be answered at this instant before jobs are started."""
    state = machine.state[0]
    asks = 0
    if state.asked > 0:
        asks |= ASK_ARRIVALS
    some = state.waiting + state.asked > 0
    some = some and (state.loop > EASY or state.free > 0 or state.preempting)
    if state.ask_passes and some:
        asks |= ASK_PASS
    if state.ask_early and state.early and state.plan_left > 0:
        asks |= ASK_EARLY_END
    if state.ask_nodes and state.changed:
        asks |= ASK_NODES
    return asks


@inlined
def settle_asked(machine: MachineState) -> None:
    """Let in the jobs that were asked about and of which nothing was said."""
    state = machine.state[0]
    for i in range(state.asked):
        if machine.jobs[machine.asked[i]].status == ASKED:
            come_in(machine, machine.asked[i])
    state.asked = 0


@inlined
def start_waiting(machine: MachineState) -> None:
    """Make one scheduling pass of the system's own loop."""
    state = machine.state[0]
    if state.loop == CONSERVATIVE:
        conservative_pass(machine)
    elif state.sharing:
        shared_pass(machine)
    elif state.loop == SERIAL:
        serial_pass(machine)
    elif state.node_level or state.limited or state.plan_left > 0:
        window_pass(machine)
    elif state.loop == EASY:
        easy_pass(machine)
    else:
        start_heads(machine)


@inlined
def next_instant(machine: MachineState) -> int:
    """Go to the next instant and let happen what needs no answer; return 0, FULL, PAUSED or -1."""
    state = machine.state[0]
    time = next_time(machine)
    if time == np.inf:
        return -1
    if state.upcoming >= state.pause_at:
        return PAUSED
    if not has_room(machine, time):
        return FULL
    state.now = time
    state.early = 0
    state.changed = 0
    if state.limited and machine.limits.recheck[0] < np.inf:
        machine.limits.recheck[0] = np.inf
        state.settled = 0
    end_jobs(machine)
    if state.node_event < len(machine.node_events):
        change_nodes(machine)
    if state.plan_left > 0:
        start_planned(machine)
    if state.opened:
        let_in_opened(machine)
    if state.again or state.sleeping:
        come_back(machine)
    arrive(machine)
    return 0


@only_with("preemption", (NEXT, False))
def after_pass(machine: MachineState) -> tuple[int, bool]:
    """Let one job preempt others after a pass; return where to go on, and if records are full.

    If one did, another pass is made; and if there was no room to write it down.
    """
    state = machine.state[0]
    if state.waiting == 0:
        return NEXT, False
    if not has_room(machine, state.now):
        return PASS, True
    again = preempt(machine) and state.waiting > 0
    return (PASS if again else NEXT), False


@entry
def advance(machine: MachineState) -> int:
    """Run until something must be answered; return the questions as bits, 0 at the end.

    `OBSERVE` and `RANK` are for a policy (`rtsched.kernels.machine_policy`): events to be seen,
    waiting jobs to be ordered. `DEAL` is for `rtsched.kernels.machine_negotiation`.
    """
    state = machine.state[0]
    while True:
        if state.phase == NEXT:
            stop = next_instant(machine)
            if stop != 0:
                return max(stop, 0)
            state.phase = ASK
        if state.observing and state.observed < state.events:
            return OBSERVE
        if state.phase == ASK:
            state.phase = ACT
            asks = questions(machine)
            if asks:
                return asks
        if state.phase == ACT:
            settle_asked(machine)
            if state.plan_left > 0:
                start_planned(machine)
            state.phase = NEXT
            if state.waiting == 0 and state.loop != NEGOTIATOR:
                state.next_reserved = np.inf
                continue
            if state.free == 0 and state.loop <= EASY and not state.preempting:
                continue
            if state.ranking and state.waiting > 0:
                state.phase = PASS
                return RANK
        state.phase = NEXT
        if state.loop == NEGOTIATOR:
            return DEAL
        start_waiting(machine)
        if state.preempting:
            state.phase, full = after_pass(machine)
            if full:
                return FULL


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
