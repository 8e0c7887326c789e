"""Scheduling passes over whole nodes, FCFS and EASY: by counting, and over nodes that differ.

FCFS starts jobs in queue order until one does not fit. EASY then gives that job, the head, the
earliest time at which it can start (its shadow time), and lets later jobs start that end by then or
take nothing that the head needs.

Where every free node is as good as another, nodes are counted (`easy_pass`): the requested ends of
the running jobs give the shadow time and the nodes that the head leaves over.

Where nodes differ (`window_pass`, see `machine_nodes`), the shadow time is the earliest one from
which on enough of the head's nodes are free for its whole requested time, between the reservations.
Of these nodes the head keeps those that become free latest; what it must keep of the nodes free
now, a later job may use until the shadow time. Where all nodes are alike this is EASY by counting,
job by job.

References
----------
Lifka, 1995: The ANL/IBM SP scheduling system (EASY backfilling).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.kernels.compiling import inlined, only_with, outline, part
from rtsched.kernels.machine import (
    EASY,
    GONE,
    UP,
    MachineState,
    bit_index,
    is_free,
    start_job,
    take_lowest,
)
from rtsched.kernels.machine_nodes import choose, group_of, start_on_picks, usable_count
from rtsched.kernels.machine_queue import close_up, head_over_limit, leave, may_start

if TYPE_CHECKING:
    from numpy.typing import NDArray


@part
def launch(machine: MachineState, at: int) -> None:
    """Start the job at one place of the queue on the lowest free nodes."""
    slot = machine.queue[at]
    row = slot.row
    first = take_lowest(machine.nodes, machine.words, machine.top, row, slot.width)
    leave(machine, at)
    start_job(machine, row, first)


@part
def start_heads(machine: MachineState) -> None:
    """Start jobs in queue order until one does not fit or none waits."""
    state = machine.state[0]
    while state.waiting > 0 and machine.queue[state.head].width <= state.free:
        launch(machine, state.head)


@inlined
def find_shadow(machine: MachineState, size: int) -> None:
    """Find when the head can start by the requested ends, and how many nodes it leaves over then.

    Jobs that end at one instant all count; `extra` is what is free then less `width`.
    """
    state, running = machine.state[0], machine.running
    free, i = state.free, 0
    while i < state.running and free < size:
        state.shadow = running[i].time
        free += running[i].width
        i += 1
    while i < state.running and running[i].time == state.shadow:
        free += running[i].width
        i += 1
    state.extra = free - size


@part
def backfill(machine: MachineState, first: int) -> None:
    """Start the jobs from place `first` on that do not delay the head."""
    state, queue = machine.state[0], machine.queue
    at = first
    while at < state.tail and state.free > 0:
        block = machine.blocks[at >> 6]
        stop = min(state.tail, ((at >> 6) + 1) << 6)
        if block.width > state.free or (
            state.now + block.time > state.shadow and block.width > state.extra
        ):
            at = stop
            continue
        whole = at & 63 == 0
        least, shortest = GONE, np.inf
        while at < stop and state.free > 0:
            size, wall = queue[at].width, queue[at].wall
            if size <= state.free:
                in_time = state.now + wall <= state.shadow
                if in_time or size <= state.extra:
                    launch(machine, at)
                    if not in_time:
                        state.extra -= size
                    at += 1
                    continue
            least = min(least, size)
            shortest = min(shortest, wall)
            at += 1
        if whole and at == stop:
            block.width = least
            block.time = shortest


@inlined
def backfill_within(machine: MachineState, depth: int) -> None:
    """Start those of the first `depth` jobs behind the head that do not delay it."""
    state, queue = machine.state[0], machine.queue
    at, looked = state.head + 1, 0
    while at < state.tail and state.free > 0 and looked < depth:
        size = queue[at].width
        if size != GONE:
            looked += 1
            in_time = state.now + queue[at].wall <= state.shadow
            if size <= state.free and (in_time or size <= state.extra):
                launch(machine, at)
                if not in_time:
                    state.extra -= size
        at += 1


@inlined
def easy_pass(machine: MachineState) -> None:
    """Start what EASY lets start now.

    As long as no job ended and the head is the same, jobs that did not fit at the last pass do not
    fit now: only those that came since are looked at.
    """
    state = machine.state[0]
    if not state.settled:
        if state.tail - state.head > 2 * state.waiting + 64:
            close_up(machine)
        start_heads(machine)
        if state.waiting == 0 or state.free == 0:
            return
        find_shadow(machine, machine.queue[state.head].width)
        if state.depth > 0:
            backfill_within(machine, state.depth)
            return
        state.seen = state.head + 1
        state.settled = 1
    backfill(machine, state.seen)
    state.seen = state.tail


WIDENED = 8
"""Searches for the shadow time among soon gaps, each time further, before all are looked at."""


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
        elif (group < 0 and size <= state.free) or size <= usable_count(machine, group):
            return at
    return -1


@outline
def want(machine: MachineState, group: int) -> None:
    """Mark the nodes in service that a node set (-1: everybody) may use, and when they are free."""
    state, nodes = machine.state[0], machine.nodes
    mark(machine, group)
    for node in range(len(nodes)):
        nodes[node].until = state.now
    for i in range(state.running):
        node = machine.jobs[machine.running[i].row].first
        while node >= 0:
            nodes[node].until = machine.running[i].time
            node = nodes[node].next


@outline
def mark(machine: MachineState, group: int) -> None:
    """Mark the nodes in service that a node set (-1: everybody) may use."""
    nodes = machine.nodes
    for node in range(len(nodes)):
        nodes[node].wanted = group < 0 and nodes[node].state == UP
    if group >= 0:
        for i in range(machine.group_of[group], machine.group_of[group + 1]):
            node = machine.group_nodes[i]
            nodes[node].wanted = nodes[node].state == UP


@part
def may_use(machine: MachineState, node: int, group: int) -> bool:
    """Return whether a node is in service, and in a node set (-1: all are) that is marked."""
    entry = machine.nodes[node]
    return bool(entry.state == UP and (group < 0 or entry.wanted))


@outline
def shadow_by_ends(machine: MachineState, size: int, group: int) -> float:
    """Return when `width` usable nodes are free by the requested ends, without reservations."""
    state, nodes = machine.state[0], machine.nodes
    count = int(state.free)
    if group >= 0:
        count = 0
        for i in range(machine.group_of[group], machine.group_of[group + 1]):
            node = machine.group_nodes[i]
            count += nodes[node].state == UP and nodes[node].row < 0
    shadow = np.inf
    for i in range(state.running):
        if count >= size:
            break
        node = machine.jobs[machine.running[i].row].first
        while node >= 0:
            if may_use(machine, node, group):
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
def add_gap(
    machine: MachineState, count: int, start: float, end: float, wall: float, latest: float
) -> int:
    """Note a gap in which a job of `wall` seconds could start; return the changes so far.

    One that is there now counts in `extra`; what changes after `latest` does not matter.
    """
    sweep, now = machine.sweep, machine.state[0].now
    if start + wall > end:
        return count
    if start <= now:
        machine.state[0].extra += 1
    else:
        sweep[count].time = start
        sweep[count].width = 1
        count += 1
    closed = max(start, end - wall)
    if end < np.inf and closed <= latest:
        sweep[count].time = closed
        sweep[count].width = -1
        count += 1
    return count


@part
def add_gaps(
    machine: MachineState, count: int, node: int, start: float, wall: float, latest: float
) -> int:
    """Note the gaps of a node, free from `start` on, that begin by `latest`; return the changes."""
    spans = machine.spans
    for i in range(machine.nodes[node].span, machine.span_of[node + 1]):
        count = add_gap(machine, count, start, spans[i].start, wall, latest)
        start = max(start, spans[i].end)
        if start > latest:
            return count
    return add_gap(machine, count, start, np.inf, wall, latest)


@outline
def shadow_until(machine: MachineState, size: int, wall: float, group: int, latest: float) -> float:
    """Return when `width` usable nodes are free for `wall` seconds, if by `latest`; else inf."""
    state, nodes, sweep = machine.state[0], machine.nodes, machine.sweep
    count, extra = 0, state.extra
    state.extra = 0
    for word in range(len(machine.words)):
        bits = machine.words[word]
        while bits != 0:
            low = bits & -bits
            bits ^= low
            node = word * 32 + bit_index(low)
            if may_use(machine, node, group):
                count = add_gaps(machine, count, node, state.now, wall, latest)
    for i in range(state.running):
        if machine.running[i].time > latest:
            break
        node = machine.jobs[machine.running[i].row].first
        while node >= 0:
            if may_use(machine, node, group):
                count = add_gaps(machine, count, node, machine.running[i].time, wall, latest)
            node = nodes[node].next
    usable, state.extra = state.extra, extra
    if usable >= size:
        return float(state.now)
    if usable + count < size:
        return np.inf
    sort_changes(sweep, count)
    for i in range(count):
        usable += sweep[i].width
        if usable >= size:
            return float(sweep[i].time)
    return np.inf


@outline
def shadow_by_gaps(machine: MachineState, size: int, wall: float, group: int) -> float:
    """Return when `width` usable nodes are free for `wall` seconds between reservations.

    That is sought among the gaps that begin soon, at first by the shadow time found last.
    """
    state = machine.state[0]
    count, latest, i = state.free, state.now, 0
    while i < state.running and count < size:
        latest = machine.running[i].time
        count += machine.running[i].width
        i += 1
    if state.now < state.shadow < np.inf:
        latest = max(latest, state.shadow)
    for _ in range(WIDENED):
        shadow = shadow_until(machine, size, wall, group, latest)
        if shadow < np.inf:
            return shadow
        if latest == np.inf:
            break
        latest += 3.0 * (latest - state.now) + wall / 8.0
    return shadow_until(machine, size, wall, group, np.inf)


@part
def is_unreserved(machine: MachineState, node: int, start: float, end: float) -> bool:
    """Return whether no reservation of a node is between `start` and `end`."""
    for i in range(machine.nodes[node].span, machine.span_of[node + 1]):
        if machine.spans[i].start >= end:
            break
        if machine.spans[i].end > start:
            return False
    return True


@part
def is_open(machine: MachineState, node: int, start: float, end: float) -> bool:
    """Return whether a wanted node is free from `start` to `end` by requested ends and plan."""
    return bool(machine.nodes[node].until <= start and is_unreserved(machine, node, start, end))


@part
def keep(machine: MachineState, node: int, end: float, group: int) -> bool:
    """Keep a free node for the head, if the head can use it from its shadow time to `end`."""
    state, entry = machine.state[0], machine.nodes[node]
    if not (may_use(machine, node, group) and is_unreserved(machine, node, state.shadow, end)):
        return False
    entry.limit = min(entry.limit, state.shadow)
    entry.kept = 1
    state.extra -= 1
    return True


@part
def busy_but_open(machine: MachineState, group: int, end: float) -> int:
    """Return how many busy nodes the head can use from its shadow time to `end`."""
    state, count = machine.state[0], 0
    for i in range(state.running):
        if machine.running[i].time > state.shadow:
            break
        node = machine.jobs[machine.running[i].row].first
        while node >= 0:
            count += may_use(machine, node, group) and is_unreserved(
                machine, node, state.shadow, end
            )
            node = machine.nodes[node].next
    return count


@outline
def protect(machine: MachineState, at: int) -> None:
    """Find the head's shadow time and let the nodes it must keep end their jobs by then.

    Those are the first free ones in the order in which jobs take nodes, so that short jobs, which
    may use them, do not use up the others.
    """
    state, slot = machine.state[0], machine.queue[at]
    group = group_of(machine, slot.row)
    if group >= 0:
        mark(machine, group)
    if state.plan_left > 0:
        state.shadow = shadow_by_gaps(machine, slot.width, slot.wall, group)
    else:
        state.shadow = shadow_by_ends(machine, slot.width, group)
    state.extra = state.free
    if state.shadow == np.inf:
        return
    end = state.shadow + slot.wall
    missing = int(slot.width) - busy_but_open(machine, group, end)
    if group >= 0:
        for i in range(machine.group_of[group], machine.group_of[group + 1]):
            node = int(machine.group_nodes[i])
            if missing > 0 and is_free(machine.words, node):
                missing -= keep(machine, node, end, group)
        return
    for word in range(len(machine.words)):
        bits = machine.words[word] if missing > 0 else 0
        while bits != 0 and missing > 0:
            low = bits & -bits
            bits ^= low
            missing -= keep(machine, word * 32 + bit_index(low), end, group)


@part
def fits_beside(machine: MachineState, size: int, wall: float) -> bool:
    """Return whether a job could start beside the head if all nodes were alike."""
    state = machine.state[0]
    in_time = state.now + wall <= state.shadow
    return bool(size <= state.free and (in_time or size <= state.extra))


@part
def forget_failures(machine: MachineState) -> None:
    """Let every job find enough nodes, as far as is known."""
    for size in range(machine.state[0].free + 1):
        machine.latest_end[size] = np.inf


@part
def note_failure(machine: MachineState, end: float) -> None:
    """Note that a job that ends at a time did not find enough nodes.

    Neither does another as wide if it ends after the latest limit that is before that time.
    """
    nodes, count, limit = machine.nodes, 0, -np.inf
    for word in range(len(machine.words)):
        bits = machine.words[word]
        while bits != 0:
            low = bits & -bits
            bits ^= low
            node = word * 32 + bit_index(low)
            if end <= nodes[node].limit:
                count += 1
            else:
                limit = max(limit, nodes[node].limit)
    for size in range(count + 1, machine.state[0].free + 1):
        if machine.latest_end[size] <= limit:
            break
        machine.latest_end[size] = limit


@part
def start_beside(machine: MachineState, at: int) -> bool:
    """Start the job at one place of the queue if that does not delay the head."""
    state, slot = machine.state[0], machine.queue[at]
    size, group, end = int(slot.width), group_of(machine, slot.row), state.now + slot.wall
    if not choose(machine, size, slot.wall, group):
        if group < 0:
            note_failure(machine, end)
        return False
    for i in range(size):
        state.extra -= not machine.nodes[machine.picks[i]].kept
    launch_on_picks(machine, at)
    forget_failures(machine)
    return True


@part
def may_fit(machine: MachineState, size: int, wall: float) -> bool:
    """Return whether a job could start beside the head, by what is known of the free nodes."""
    state = machine.state[0]
    return bool(fits_beside(machine, size, wall) and state.now + wall <= machine.latest_end[size])


@outline
def backfill_block(machine: MachineState, at: int, stop: int) -> int:
    """Start the jobs from place `at` to `stop`, in one block, that do not delay the head.

    Return the place up to which it looked. The block's bounds are then those of the jobs left,
    unless jobs may be over limits: each pass then notes by which.
    """
    state, queue, block = machine.state[0], machine.queue, machine.blocks[at >> 6]
    whole, least, shortest = at & 63 == 0, GONE, np.inf
    while at < stop and state.free > 0:
        size, wall = queue[at].width, queue[at].wall
        fits = may_start(machine, at) and may_fit(machine, size, wall)
        if not (fits and start_beside(machine, at)):
            least, shortest = min(least, size), min(shortest, wall)
        at += 1
    if whole and at == stop and not state.limited:
        block.width, block.time = least, shortest
    return at


@part
def backfill_windows(machine: MachineState) -> None:
    """Start the jobs from place `seen` on, at most `depth`, that do not delay the head."""
    state, queue = machine.state[0], machine.queue
    at, looked = state.seen, 0
    forget_failures(machine)
    while at < state.tail and state.free > 0 and (state.depth == 0 or looked < state.depth):
        if state.depth == 0:
            block, stop = machine.blocks[at >> 6], ((at >> 6) + 1) << 6
            fits = fits_beside(machine, block.width, block.time)
            if fits and (state.limited or may_fit(machine, block.width, block.time)):
                at = backfill_block(machine, at, min(state.tail, stop))
            else:
                at = stop
            continue
        if may_start(machine, at):
            looked += 1
            if may_fit(machine, queue[at].width, queue[at].wall):
                start_beside(machine, at)
        at += 1
    state.seen = state.tail


@part
def reset_limits(machine: MachineState) -> None:
    """Let a job on a free node end by the node's next reservation."""
    nodes = machine.nodes
    for word in range(len(machine.words)):
        bits = machine.words[word]
        while bits != 0:
            low = bits & -bits
            bits ^= low
            node = word * 32 + bit_index(low)
            nodes[node].limit = nodes[node].window
            nodes[node].kept = 0


@only_with("sweep")
def window_pass(machine: MachineState) -> None:
    """Start what FCFS or EASY lets start now, on nodes that differ or for jobs with limits.

    Jobs that did not fit at the last pass are not looked at again before a job ends, as in
    `easy_pass`. With a plan they are if one started since, or if the head's shadow time has come:
    which nodes the head keeps may then be another matter.
    """
    state = machine.state[0]
    at_shadow = state.plan_left > 0 and state.now >= state.shadow
    if state.settled and (at_shadow or head_over_limit(machine)):
        state.settled = 0
    if not state.settled:
        if state.tail - state.head > 2 * state.waiting + 64:
            close_up(machine)
        reset_limits(machine)
        first = start_first(machine)
        if first < 0 or state.loop != EASY or state.free == 0:
            return
        protect(machine, first)
        state.seen = first + 1
        state.kept_for = machine.queue[first].row
        by_rules = state.limited or state.preempting
        state.settled = state.depth == 0 and not (by_rules and state.plan_left > 0)
    running = state.running
    backfill_windows(machine)
    if state.running > running and state.plan_left > 0:
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
