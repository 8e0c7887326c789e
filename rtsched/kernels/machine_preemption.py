"""Preemption: a waiting job takes the nodes of running ones that it may preempt.

After the loop's own pass, the first waiting job in the queue's order that can start so does. It
does not wait for jobs that it may preempt; for others it waits as the loop says: with FCFS until
they have started, with EASY it may pass the first of them if that one's earliest start, by the
requested ends, stays. Then the loop makes another pass.

Which jobs are preempted: one candidate after the other is thought gone until the job fits, those of
the least rank first, of these the smallest, of these the youngest. That is done again with the
candidates found, those first that hold most of the nodes just chosen. Only jobs on the nodes chosen
in the end are preempted. A job that started at this very instant just goes back to the queue.

References
----------
Slurm manual, "Preemption"; slurm.conf: PreemptType, PreemptExemptTime, SchedulerParameters
(preempt_reorder_count, its default of 1; preempt_strict_order and preempt_youngest_first not set).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.kernels.compiling import only_with, outline, part
from rtsched.kernels.machine import EASY, UP, MachineState, is_free, release
from rtsched.kernels.machine_conservative import give_back
from rtsched.kernels.machine_nodes import (
    group_of,
    lose,
    node_at,
    nodes_in,
    remove_end,
    send_back,
    usable_count,
)
from rtsched.kernels.machine_passes import is_open, launch_on_picks, shadow_by_gaps, want
from rtsched.kernels.machine_queue import find, may_start
from rtsched.kernels.machine_shared_passes import (
    find_shared_shadow,
    in_group,
    launch_shared,
    leaves_licenses,
    leaves_plan,
    occupy_held,
    see_plan,
)
from rtsched.kernels.machine_sharing import (
    FIRST,
    fits,
    licenses_left,
    pick_by_room,
    take,
    take_licenses,
    takes_licenses,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


class PreemptionRules(NamedTuple):
    """Who may preempt whom, of `n` jobs of `k` kinds, and what came of it."""

    kind: NDArray[np.int64]
    """int64[n]"""
    may: NDArray[np.bool_]
    """bool[k, k]: whether jobs of the first kind may preempt those of the second."""
    preempts: NDArray[np.bool_]
    """bool[k]: whether they may preempt any."""
    cancels: NDArray[np.bool_]
    """bool[k]: whether a preempted job is cancelled, and not queued again."""
    rank: NDArray[np.float64]
    """float64[k]: those of the least rank are preempted first."""
    exempt: NDArray[np.float64]
    """float64[k]: seconds after its start for which a job is not preempted."""
    promised: NDArray[np.bool_]
    """bool[n]: jobs that were in a plan, which are never preempted."""
    until: NDArray[np.float64]
    """float64[1]: when the next job of which one waits for the nodes may be preempted; inf: never.
    """
    first: NDArray[np.int64]
    """int64[k], scratch: the first waiting job of each kind, -1: none."""
    place: NDArray[np.int64]
    """int64[k], scratch: how many jobs wait up to that one."""
    nodes: NDArray[np.int64]
    """int64[k], scratch: how many nodes the running jobs of each kind have together."""
    gone: NDArray[np.bool_]
    """bool[n], scratch: running jobs that are thought gone."""
    holds: NDArray[np.int64]
    """int64[n], scratch: how many of the chosen nodes a running job that is thought gone holds; -1:
    it is not needed."""
    chosen: NDArray[np.bool_]
    """bool[m], scratch: the nodes just chosen."""
    room: NDArray[np.int64]
    """int64[m, r], scratch: what is left on each node without them (shared nodes only)."""
    later: NDArray[np.int64]
    """int64[m, r], scratch: what will be left at the shadow time (shared nodes only)."""
    times: NDArray[np.int32]
    """int32[n]: how often a job was preempted."""
    lost: NDArray[np.float64]
    """float64[n]: node-seconds of its runs that preemption ended."""


@part
def may_be_preempted(machine: MachineState, row: int, other: int) -> bool:
    """Return whether a waiting job may preempt a running one now; note when it may later on."""
    rules, now = machine.preemption, machine.state[0].now
    if rules.promised[other] or not rules.may[rules.kind[row], rules.kind[other]]:
        return False
    start = machine.jobs[other].start
    until = start + rules.exempt[rules.kind[other]]
    if start < now < until:
        rules.until[0] = min(rules.until[0], until)
        return False
    return True


@only_with("preemption", np.inf)
def next_exemption_end(machine: MachineState) -> float:
    """Return when the next running job may be preempted for one that waits, inf if none."""
    until = machine.preemption.until[0]
    return float(until) if until > machine.state[0].now else np.inf


@part
def goes_first(machine: MachineState, one: int, other: int) -> bool:
    """Return whether one running job is preempted rather than another."""
    rules, a, b = machine.preemption, machine.jobs[one], machine.jobs[other]
    is_new = a.start == machine.state[0].now
    if is_new != (b.start == machine.state[0].now):
        return bool(is_new)
    if rules.holds[one] != rules.holds[other]:
        return bool(rules.holds[one] > rules.holds[other])
    rank, against = rules.rank[rules.kind[one]], rules.rank[rules.kind[other]]
    if rank != against:
        return bool(rank < against)
    if a.width != b.width:
        return bool(a.width < b.width)
    if a.start != b.start:
        return bool(a.start > b.start)
    return one > other


@outline
def next_gone(machine: MachineState, row: int) -> int:
    """Return the running job to be thought gone next for the sake of a waiting one, -1: none."""
    rules, best = machine.preemption, -1
    for i in range(machine.state[0].running):
        other = int(machine.running[i].row)
        if rules.gone[other] or rules.holds[other] < 0:
            continue
        if may_be_preempted(machine, row, other) and (best < 0 or goes_first(machine, other, best)):
            best = other
    return best


@outline
def think_gone(machine: MachineState, row: int, sign: int) -> None:
    """Think a running job gone (sign 1), or no longer so (-1)."""
    state, rules = machine.state[0], machine.preemption
    rules.gone[row] = sign > 0
    if not state.sharing:
        return
    at, size = machine.held_at[row], machine.jobs[row].width
    until = machine.jobs[row].start + machine.jobs[row].wall
    for i in range(at, at + size):
        take(rules.room, machine.held[i], machine.demand, row, -sign)
        if until > state.shadow:
            take(rules.later, machine.held[i], machine.demand, row, -sign)
    take_licenses(machine, rules.room, row, -sign)
    if state.plan_left > 0:
        occupy_held(machine, row, size, state.now, max(until, state.now), -sign)


@outline
def think_all_back(machine: MachineState) -> None:
    """Think of no running job as gone."""
    for i in range(machine.state[0].running):
        row = int(machine.running[i].row)
        if machine.preemption.gone[row]:
            think_gone(machine, row, -1)


@part
def could_take(machine: MachineState, node: int, row: int) -> bool:
    """Return whether a job could have a node now, without those that are thought gone."""
    state, entry = machine.state[0], machine.nodes[node]
    if entry.state != UP:
        return False
    if state.sharing:
        room = fits(machine.preemption.room, node, machine.demand, row)
        return bool(room and (state.plan_left == 0 or leaves_plan(machine, node, row)))
    if not is_free(machine.words, node) and not (
        entry.row >= 0 and machine.preemption.gone[entry.row]
    ):
        return False
    return bool(state.now + machine.jobs[row].wall <= entry.window)


@part
def serves(
    machine: MachineState, room: NDArray[np.int64], node: int, guard: int, group: int
) -> bool:
    """Return whether a job that waits could have a shared node later, with that room left."""
    up = machine.nodes[node].state == UP
    return bool(up and fits(room, node, machine.demand, guard) and in_group(machine, group, node))


@part
def is_lost(machine: MachineState, node: int, row: int, guard: int, group: int) -> bool:
    """Return whether a job on a node takes it from the one that waits ahead."""
    state, rules = machine.state[0], machine.preemption
    if not state.sharing:
        wanted = machine.nodes[node].wanted
        return bool(
            wanted and is_open(machine, node, state.shadow, state.shadow + machine.jobs[guard].wall)
        )
    if not serves(machine, machine.later, node, guard, group):
        return False
    take(rules.later, node, machine.demand, row, 1)
    left = serves(machine, rules.later, node, guard, group)
    take(rules.later, node, machine.demand, row, -1)
    return not left


@outline
def choose_without(machine: MachineState, row: int, size: int, guard: int) -> bool:
    """Choose nodes for a waiting job, without the running ones that are thought gone.

    `guard` is the job whose earliest start must stay, -1: none. Return whether there are enough.
    """
    state, rules = machine.state[0], machine.preemption
    if state.sharing and not (
        licenses_left(machine, rules.room, row)
        and (state.plan_left == 0 or leaves_licenses(machine, row))
    ):
        return False
    late = guard >= 0 and state.now + machine.jobs[row].wall > state.shadow
    left, of_guard = state.extra, group_of(machine, guard) if guard >= 0 else -1
    if late and state.sharing:
        both = takes_licenses(machine.demand, row, state.licenses)
        if state.plan_left > 0 or (both and takes_licenses(machine.demand, guard, state.licenses)):
            return False
    group, count = group_of(machine, row), 0
    first, end = nodes_in(machine, group)
    for i in range(first, end):
        node = node_at(machine, group, i)
        if not could_take(machine, node, row):
            continue
        if late and is_lost(machine, node, row, guard, of_guard):
            if left <= 0:
                continue
            left -= 1
        machine.picks[count] = node
        count += 1
        if count == size and state.placement == FIRST:
            return True
    if count < size:
        return False
    pick_by_room(
        machine.placement,
        state.placement,
        rules.room,
        machine.demand,
        row,
        size,
        count,
        machine.picks,
    )
    return True


@outline
def could_start(machine: MachineState, guard: int) -> bool:
    """Return whether a job that waits would fit on shared nodes now; if so, its start is now."""
    state, group = machine.state[0], group_of(machine, guard)
    if not licenses_left(machine, machine.room, guard):
        return False
    count = 0
    for node in range(len(machine.nodes)):
        count += serves(machine, machine.room, node, guard, group)
    if count < machine.jobs[guard].width:
        return False
    for at in range(len(machine.room)):
        for resource in range(machine.demand.shape[1]):
            machine.later[at, resource] = machine.room[at, resource]
    state.shadow, state.extra = state.now, count - machine.jobs[guard].width
    return True


@outline
def look_ahead(machine: MachineState, guard: int) -> None:
    """Find the earliest start of a job that waits, and how many nodes it leaves over then."""
    state, job = machine.state[0], machine.jobs[guard]
    if state.sharing:
        state.kept_for = guard
        if state.plan_left > 0 or not could_start(machine, guard):
            find_shared_shadow(machine)
        return
    group = group_of(machine, guard)
    want(machine, group)
    state.shadow = shadow_by_gaps(machine, job.width, job.wall, group)
    state.extra = -job.width
    for node in range(len(machine.nodes)):
        if machine.nodes[node].wanted and is_open(
            machine, node, state.shadow, state.shadow + job.wall
        ):
            state.extra += 1


@outline
def count_held(machine: MachineState, size: int) -> None:
    """Count how many of the nodes just chosen those hold that are thought gone; others: -1."""
    state, rules = machine.state[0], machine.preemption
    for k in range(size):
        rules.chosen[machine.picks[k]] = True
    for i in range(state.running):
        row = int(machine.running[i].row)
        rules.holds[row] = -1
        if not rules.gone[row]:
            continue
        count, node = 0, machine.jobs[row].first
        if state.sharing:
            at = machine.held_at[row]
            for k in range(at, at + machine.jobs[row].width):
                count += rules.chosen[machine.held[k]]
        else:
            while node >= 0:
                count += rules.chosen[node]
                node = machine.nodes[node].next
        rules.holds[row] = count
    for k in range(size):
        rules.chosen[machine.picks[k]] = False


@part
def choose_with_fewest(machine: MachineState, row: int, size: int, guard: int) -> bool:
    """Think candidates gone, one after the other, until nodes can be chosen; return whether so."""
    while not choose_without(machine, row, size, guard):
        other = next_gone(machine, row)
        if other < 0:
            return False
        think_gone(machine, other, 1)
    return True


@outline
def find_nodes(machine: MachineState, row: int, size: int, guard: int) -> bool:
    """Choose nodes for a waiting job; `holds` is above 0 for those that it must preempt for them.

    Return whether it can start so.
    """
    state, rules = machine.state[0], machine.preemption
    for i in range(state.running):
        rules.holds[machine.running[i].row] = 0
    if state.sharing:
        for at in range(len(machine.room)):
            for resource in range(machine.demand.shape[1]):
                rules.room[at, resource] = machine.room[at, resource]
                rules.later[at, resource] = machine.later[at, resource]
    for i in range(state.running):
        if may_be_preempted(machine, row, machine.running[i].row):
            think_gone(machine, int(machine.running[i].row), 1)
    possible = choose_without(machine, row, size, guard)
    think_all_back(machine)
    if not possible:
        return False
    for _ in range(2):
        possible = choose_with_fewest(machine, row, size, guard)
        count_held(machine, size)
        think_all_back(machine)
    return possible


@outline
def stop_preempted(machine: MachineState, row: int) -> None:
    """Stop a running job: it is queued again, or cancelled."""
    state, rules, job = machine.state[0], machine.preemption, machine.jobs[row]
    ran, until = state.now - job.start, job.start + job.wall
    remove_end(machine.ends, state.running, row)
    release(machine, row)
    if state.sharing and state.plan_left > 0:
        give_back(machine, row, until)
    if ran > 0.0:
        rules.times[row] += 1
        rules.lost[row] += ran * job.width
    if ran > 0.0 and rules.cancels[rules.kind[row]]:
        lose(machine, row)
    else:
        machine.more[row].restarts += ran > 0.0
        send_back(machine, row)


@outline
def start_by_preempting(machine: MachineState, row: int) -> None:
    """Start a waiting job on the nodes chosen, in place of those on them that it may preempt."""
    state = machine.state[0]
    for i in range(state.running - 1, -1, -1):
        other = int(machine.running[i].row)
        if machine.preemption.holds[other] > 0:
            stop_preempted(machine, other)
    if state.sharing:
        launch_shared(machine, find(machine, row))
    else:
        launch_on_picks(machine, find(machine, row))
    state.settled = 0


@outline
def guard_against(machine: MachineState, kind: int) -> int:
    """Return the kind of the first waiting job that those of a kind may not preempt, -1: none."""
    rules, guard = machine.preemption, -1
    for other in range(len(rules.first)):
        waits = rules.first[other] >= 0 and not rules.may[kind, other]
        if waits and (guard < 0 or rules.place[other] < rules.place[guard]):
            guard = other
    return guard


@outline
def may_gain(machine: MachineState, kind: int, size: int, place: int, ahead: int) -> bool:
    """Return whether to look for nodes for a job, the `place`-th that waits, of a kind.

    `ahead` is the kind of the first one that it may not preempt, -1: none.
    """
    state, rules = machine.state[0], machine.preemption
    nodes, passes = 0, False
    if ahead >= 0 and state.loop != EASY:
        return False
    if ahead >= 0 and 0 < state.depth < place - rules.place[ahead]:
        return False
    for other in range(len(rules.nodes)):
        if rules.may[kind, other]:
            nodes += rules.nodes[other]
            passes = passes or rules.first[other] >= 0
    enough = state.sharing or nodes + state.free >= size
    return bool(enough and (nodes > 0 or passes))


@outline
def begin_preempting(machine: MachineState) -> None:
    """Count what runs and forget what waits, of each kind."""
    state, rules = machine.state[0], machine.preemption
    rules.until[0] = np.inf
    for kind in range(len(rules.first)):
        rules.first[kind] = -1
        rules.nodes[kind] = 0
    for i in range(state.running):
        row = machine.running[i].row
        if not rules.promised[row]:
            rules.nodes[rules.kind[row]] += machine.jobs[row].width
    if state.sharing and state.plan_left > 0:
        see_plan(machine)


@outline
def preempt(machine: MachineState) -> bool:
    """Start the first waiting job that can start if it preempts others; return whether one did."""
    state, rules, place = machine.state[0], machine.preemption, 0
    begin_preempting(machine)
    for at in range(state.head, state.tail):
        if not may_start(machine, at):
            continue
        row, size = int(machine.queue[at].row), int(machine.queue[at].width)
        kind = rules.kind[row]
        place += 1
        ahead = guard_against(machine, kind) if rules.preempts[kind] else -1
        if rules.preempts[kind] and may_gain(machine, kind, size, place, ahead):
            guard = rules.first[ahead] if ahead >= 0 else -1
            state.settled = 0
            state.shadow = np.inf
            if guard >= 0:
                look_ahead(machine, guard)
            if find_nodes(machine, row, size, guard):
                start_by_preempting(machine, row)
                return True
        if rules.first[kind] < 0 and size <= usable_count(machine, group_of(machine, row)):
            rules.first[kind] = row
            rules.place[kind] = place
    return False
