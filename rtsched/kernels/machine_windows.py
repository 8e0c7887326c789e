"""One scheduling pass, FCFS or EASY, over nodes that differ (see `machine_nodes`).

EASY's shadow time is the earliest time from which on enough of the head's nodes are free for its
whole requested time, between the reservations. Of these nodes the head keeps those that become
free latest; what it must keep of the nodes free now, a later job may use until the shadow time.
Where all nodes are alike this is EASY by counting (`rtsched.kernels.backfill`), job by job.

References
----------
Lifka, 1995: The ANL/IBM SP scheduling system (EASY backfilling).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.kernels.machine import EASY, UP, MachineState, is_free
from rtsched.kernels.machine_compiling import inlined, only_with, outline, part
from rtsched.kernels.machine_nodes import choose, group_of, start_on_picks, usable_count
from rtsched.kernels.machine_queue import close_up, head_over_limit, leave, may_start

if TYPE_CHECKING:
    from numpy.typing import NDArray


@part
def launch_on_picks(machine: MachineState, at: int) -> None:
    """Start the job at one place of the queue on the nodes just chosen."""
    row = int(machine.queue[at].row)
    leave(machine, at)
    start_on_picks(machine, row, machine.jobs[row].width)


@inlined
def start_first(machine: MachineState) -> int:
    """Start jobs in queue order and return the place of the first that must wait, -1 if none.

    A job with more nodes than are in service in its node set is passed over, and one over a limit:
    it waits for them and holds up nobody.
    """
    state, queue = machine.state[0], machine.queue
    for at in range(state.head, state.tail):
        if not may_start(machine, at):
            continue
        size = queue[at].width
        group = group_of(machine, queue[at].row)
        if size <= state.free and choose(machine, size, queue[at].wall, group):
            launch_on_picks(machine, at)
        elif size <= usable_count(machine, group):
            return at
    return -1


@inlined
def want(machine: MachineState, group: int) -> None:
    """Mark the nodes in service that a node set (-1: everybody) may use, and when they are free."""
    state, nodes = machine.state[0], machine.nodes
    for node in range(len(nodes)):
        nodes[node].wanted = group < 0 and nodes[node].state == UP
        nodes[node].until = state.now
    if group >= 0:
        for i in range(machine.group_of[group], machine.group_of[group + 1]):
            node = machine.group_nodes[i]
            nodes[node].wanted = nodes[node].state == UP
    for i in range(state.running):
        node = machine.jobs[machine.running[i].row].first
        while node >= 0:
            nodes[node].until = machine.running[i].time
            node = nodes[node].next


@inlined
def shadow_by_ends(machine: MachineState, size: int) -> float:
    """Return when `width` wanted nodes are free by the requested ends, without reservations."""
    state, nodes = machine.state[0], machine.nodes
    count = 0
    for node in range(len(nodes)):
        count += nodes[node].wanted and nodes[node].row < 0
    shadow = np.inf
    for i in range(state.running):
        if count >= size:
            break
        node = machine.jobs[machine.running[i].row].first
        while node >= 0:
            if nodes[node].wanted:
                count += 1
                shadow = machine.running[i].time
            node = nodes[node].next
    return shadow if count >= size else np.inf


@part
def later(a: Any, b: Any) -> bool:
    """Return whether change `a` comes after `b`: by time, more nodes before fewer."""
    return bool(a.time > b.time or (a.time == b.time and a.width < b.width))


@part
def sink_change(sweep: NDArray[Any], count: int, at: int) -> None:
    """Let a change sink in a heap with the latest on top."""
    time, size = sweep[at].time, sweep[at].width
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        if child + 1 < count and later(sweep[child + 1], sweep[child]):
            child += 1
        if time > sweep[child].time or (time == sweep[child].time and size <= sweep[child].width):
            break
        sweep[at] = sweep[child]
        at = child
    sweep[at].time = time
    sweep[at].width = size


@inlined
def sort_changes(sweep: NDArray[Any], count: int) -> None:
    """Order changes by time, more nodes before fewer: heap sort, in place."""
    for at in range(count // 2 - 1, -1, -1):
        sink_change(sweep, count, at)
    for last in range(count - 1, 0, -1):
        time, size = sweep[0].time, sweep[0].width
        sweep[0] = sweep[last]
        sweep[last].time = time
        sweep[last].width = size
        sink_change(sweep, last, 0)


@part
def add_gap(sweep: NDArray[Any], count: int, start: float, end: float, wall: float) -> int:
    """Note a gap in which a job of `wall` seconds could start; return the changes so far."""
    if start + wall > end:
        return count
    sweep[count].time = start
    sweep[count].width = 1
    sweep[count + 1].time = max(start, end - wall) if end < np.inf else np.inf
    sweep[count + 1].width = -1
    return count + 2


@part
def shadow_by_gaps(machine: MachineState, size: int, wall: float) -> float:
    """Return when `width` wanted nodes are free for `wall` seconds between reservations."""
    nodes, sweep, spans = machine.nodes, machine.sweep, machine.spans
    count = 0
    for node in range(len(nodes)):
        if nodes[node].wanted:
            start = nodes[node].until
            for i in range(nodes[node].span, machine.span_of[node + 1]):
                count = add_gap(sweep, count, start, spans[i].start, wall)
                start = max(start, spans[i].end)
            count = add_gap(sweep, count, start, np.inf, wall)
    sort_changes(sweep, count)
    usable = 0
    for i in range(count):
        usable += sweep[i].width
        if usable >= size:
            return float(sweep[i].time)
    return np.inf


@part
def is_open(machine: MachineState, node: int, start: float, end: float) -> bool:
    """Return whether a wanted node is free from `start` to `end` by requested ends and plan."""
    if machine.nodes[node].until > start:
        return False
    for i in range(machine.nodes[node].span, machine.span_of[node + 1]):
        if machine.spans[i].start < end and machine.spans[i].end > start:
            return False
    return True


@part
def keep(machine: MachineState, node: int, end: float) -> bool:
    """Keep a free node for the head, if the head can use it from its shadow time to `end`."""
    state, entry = machine.state[0], machine.nodes[node]
    if not (
        entry.wanted and is_free(machine.words, node) and is_open(machine, node, state.shadow, end)
    ):
        return False
    entry.limit = min(entry.limit, state.shadow)
    entry.kept = 1
    state.extra -= 1
    return True


@outline
def protect(machine: MachineState, at: int) -> None:
    """Find the head's shadow time and let the nodes it must keep end their jobs by then.

    Those are the first free ones in the order in which jobs take nodes, so that short jobs, which
    may use them, do not use up the others.
    """
    state, nodes = machine.state[0], machine.nodes
    slot = machine.queue[at]
    group = group_of(machine, slot.row)
    want(machine, group)
    state.extra = state.free
    if state.plan_left > 0:
        state.shadow = shadow_by_gaps(machine, slot.width, slot.wall)
    else:
        state.shadow = shadow_by_ends(machine, slot.width)
    if state.shadow == np.inf:
        return
    end = state.shadow + slot.wall
    missing = int(slot.width)
    for node in range(len(nodes)):
        if (
            nodes[node].wanted
            and nodes[node].row >= 0
            and is_open(machine, node, state.shadow, end)
        ):
            missing -= 1
    first, last = 0, len(nodes)
    if group >= 0:
        first, last = machine.group_of[group], machine.group_of[group + 1]
    for i in range(first, last):
        if missing <= 0:
            break
        node = i if group < 0 else int(machine.group_nodes[i])
        missing -= keep(machine, node, end)


@part
def fits_beside(machine: MachineState, size: int, wall: float) -> bool:
    """Return whether a job could start beside the head if all nodes were alike."""
    state = machine.state[0]
    in_time = state.now + wall <= state.shadow
    return bool(size <= state.free and (in_time or size <= state.extra))


@part
def start_beside(machine: MachineState, at: int) -> bool:
    """Start the job at one place of the queue if that does not delay the head."""
    slot = machine.queue[at]
    if not fits_beside(machine, slot.width, slot.wall):
        return False
    size = int(slot.width)
    if not choose(machine, size, slot.wall, group_of(machine, slot.row)):
        return False
    for i in range(size):
        machine.state[0].extra -= not machine.nodes[machine.picks[i]].kept
    launch_on_picks(machine, at)
    return True


@part
def backfill_windows(machine: MachineState) -> None:
    """Start the jobs from place `seen` on, at most `depth`, that do not delay the head."""
    state = machine.state[0]
    at, looked = state.seen, 0
    while at < state.tail and state.free > 0 and (state.depth == 0 or looked < state.depth):
        block = machine.blocks[at >> 6]
        if state.depth == 0 and not fits_beside(machine, block.width, block.time):
            at = ((at >> 6) + 1) << 6
            continue
        if may_start(machine, at):
            looked += 1
            start_beside(machine, at)
        at += 1
    state.seen = state.tail


@only_with("sweep")
def window_pass(machine: MachineState) -> None:
    """Start what FCFS or EASY lets start now, on nodes that differ or for jobs with limits.

    Without a plan, jobs that did not fit at the last pass are not looked at again before a job
    ends, as in `easy_pass`; with one, what fits changes with time alone.
    """
    state = machine.state[0]
    if not state.settled:
        if state.tail - state.head > 2 * state.waiting + 64:
            close_up(machine)
        for node in range(len(machine.nodes)):
            machine.nodes[node].limit = machine.nodes[node].window
            machine.nodes[node].kept = 0
        first = start_first(machine)
        if first < 0 or state.loop != EASY or state.free == 0:
            return
        protect(machine, first)
        state.seen = first + 1
        state.kept_for = machine.queue[first].row
        state.settled = state.plan_left == 0 and state.depth == 0
    backfill_windows(machine)
    if head_over_limit(machine):
        state.settled = 0


@outline
def serial_pass(machine: MachineState) -> None:
    """Start the first job that fits, if none runs."""
    state, queue = machine.state[0], machine.queue
    if state.running > 0:
        return
    for node in range(len(machine.nodes)):
        machine.nodes[node].limit = machine.nodes[node].window
    for at in range(state.head, state.tail):
        if not may_start(machine, at):
            continue
        size, group = queue[at].width, group_of(machine, queue[at].row)
        if size <= state.free and choose(machine, size, queue[at].wall, group):
            launch_on_picks(machine, at)
            return
