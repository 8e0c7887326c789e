"""The event loop with compiled planners in it: what they decide is done without a stop.

A replay that asks a plug-in at each submission or pass spends most of its time between compiled
calls. `tested_loop` calls a planner's own test (`RowTest`), has what it accepts carried out, writes
down whom it rejects, and stops only where more is to be said of a job, or somebody else is asked.
`placed_loop` calls a plug-in's own placer (`RowPlacer`): it tells it what happened, and has carried
out what it says of each job that waits.
"""

from __future__ import annotations

from functools import cache
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import numpy as np

from rtsched.kernels.compiling import compiled, numba, taken_in, watched
from rtsched.kernels.hooks import (
    RejectedRows,
    RowPlan,
    kernel_of,
    kernels_of,
    observe_row,
    place_rows,
    planned_rows,
    rejected_row,
)
from rtsched.kernels.machine import (
    ASK_ARRIVALS,
    ASK_EARLY_END,
    ASK_PASS,
    GONE,
    RUNNING,
    STARTED,
    MachineState,
)
from rtsched.kernels.machine_loop import PROMISE, REJECT, RESIZE, advance, change
from rtsched.kernels.machine_plan import (
    Planned,
    held_until,
    is_sound,
    lay_out,
    put_plan,
    unstarted_rows,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]

    Integers: TypeAlias = NDArray[np.int64]


class KeptPlan(NamedTuple):
    """The plan that was laid out last, with what has started since."""

    row: Integers
    start: Floats
    end: Floats
    indptr: Integers
    nodes: NDArray[np.int32]
    source: Integers
    """As `Laid.source`."""


class TestedJobs(NamedTuple):
    """What the loop reads of each job of the workload, and what it writes down of it."""

    kind: NDArray[np.int8]
    size: NDArray[np.int32]
    wall: Floats
    run: Floats
    deadline: Floats
    """Seconds since the epoch; inf: it is not asked about."""
    promise: Floats
    """Promised deadline, seconds since the epoch; written."""
    made_at: Floats
    """When it was promised, seconds since the epoch; written."""


class Questions(NamedTuple):
    """What was asked, who was promised a deadline, and who was rejected; written."""

    counts: Integers
    """int64[6]: plans laid out, questions, jobs in them, jobs judged, promised, rejected."""
    promised: Integers
    """int64[n]: rows of those promised something."""
    rejected: RejectedRows
    """Those rejected since somebody read it, in the first places; if all are taken, it is full."""


LAID, ASKED, ROWS, JUDGED, PROMISED, REJECTED = 0, 1, 2, 3, 4, 5


@compiled
def _settled(
    machine: MachineState,
    jobs: TestedJobs,
    asked: Questions,
    rows: Integers,
    new: Integers,
    plan: RowPlan,
    now: float,
    origin: float,
    m: int,
) -> Integers:
    """Promise new jobs their deadlines and lay out a plan of all; return its `Laid.source`."""
    for row in new:
        jobs.promise[row], jobs.made_at[row] = jobs.deadline[row], now
        asked.promised[asked.counts[PROMISED]] = row
        asked.counts[PROMISED] += 1
    if len(new) > 0:
        change(machine, PROMISE, new, np.empty(0))
    planned = Planned(
        rows,
        plan.start,
        plan.end,
        plan.indptr,
        plan.nodes,
        np.empty(0),
        jobs.kind[rows],
        jobs.size[rows],
        jobs.wall[rows],
        jobs.run[rows],
    )
    nobody = np.empty(0, np.int32)
    laid = lay_out(planned, origin, machine.nodes[:m], machine.plan[:0], nobody)
    put_plan(
        machine.state,
        machine.plan,
        machine.plan_nodes,
        machine.span_of,
        machine.spans,
        laid,
        len(rows),
    )
    asked.counts[LAID] += 1
    return laid.source


@compiled
def _fits(machine: MachineState, plan: RowPlan, m: int) -> bool:
    """Return whether a plan makes sense and the machine has room for it."""
    room = len(plan.start) <= len(machine.plan)
    room = room and len(plan.nodes) <= min(len(machine.plan_nodes), len(machine.spans))
    return room and is_sound(plan.indptr, plan.nodes, m)


@compiled
def _open(held: Floats, now: float) -> int:
    """Return how many nodes are free now."""
    found = 0
    for until in held:
        found += until <= now
    return found


@compiled
def _in_service(held: Floats, nodes: NDArray[np.int32]) -> bool:
    """Return whether all these nodes take jobs."""
    out = 0
    for node in nodes:
        out += held[node] == np.inf
    return out == 0


def advance_by_tests(
    machine: MachineState,
    jobs: TestedJobs,
    asked: Questions,
    kept: KeptPlan,
    origin: float,
    m: int,
    usable: int,
    direct: NDArray[np.bool_],
    final: NDArray[np.bool_],
    prepared: Any,
) -> tuple[int, KeptPlan]:
    """Run as `advance` does, answering by a test; return the questions that are left, and the plan.

    A question is left as if it had not been looked at.

    Parameters
    ----------
    machine : MachineState
        The system, changed in place; its jobs have whole nodes.
    jobs, asked, kept
        See there.
    origin : float
        The machine's time 0, seconds since the epoch.
    m : int
        Nodes of the cluster.
    usable, direct, final, prepared
        A `RowTest`.
    """
    state, said = machine.state[0], asked.rejected
    while True:
        stop = advance(machine)
        if stop == 0 or stop & ~(ASK_ARRIVALS | ASK_EARLY_END) or state.joining > 0:
            return stop, kept
        now, held = state.now + origin, held_until(machine.nodes[:m], machine.jobs, origin)
        in_service = 0
        for node in range(m):
            in_service += held[node] != np.inf
        if in_service != usable:
            return stop, kept
        came = np.sort(machine.asked[: state.asked])
        due = came[jobs.deadline[came] < np.inf]
        if (len(came) > 0 and len(due) == 0) or not direct[due].all():
            return stop, kept
        rows, start, _, _, nodes = unstarted_rows(
            machine.plan[: state.plan_size],
            kept.source,
            kept.row,
            kept.start,
            kept.end,
            kept.indptr,
            kept.nodes,
        )
        taken, first = due[:0], asked.counts[REJECTED]
        count = first
        if len(due) > 0:
            for row in due:
                found = planned_rows(prepared, rows, start, row, now, held)
                if found.accepted:
                    plan, rows, start = found, np.append(rows, row), found.start
                    taken = np.append(taken, row)
                    continue
                if not final[row] or count == len(said.row):
                    return stop, kept
                why = rejected_row(prepared, rows, row, now, held)
                said.row[count], said.at[count] = row, now
                late = found.failed < len(rows)
                said.failed[count] = rows[found.failed] if late else -1
                said.promised[count] = len(rows)
                said.free[count] = _open(held, now)
                said.needed[count], said.offer[count] = why.needed, why.offer
                count += 1
            accepted = len(taken) > 0
        else:
            if not _in_service(held, nodes):
                return stop, kept
            plan = planned_rows(prepared, rows, start, -1, now, held)
            accepted = plan.accepted
        if accepted and not _fits(machine, plan, m):
            return stop, kept
        if count > first:
            change(machine, REJECT, said.row[first:count], np.empty(0))
            asked.counts[REJECTED] = count
        if accepted:
            source = _settled(machine, jobs, asked, rows, taken, plan, now, origin, m)
            kept = KeptPlan(rows, plan.start, plan.end, plan.indptr, plan.nodes, source)
        asked.counts[ASKED] += 1
        asked.counts[ROWS] += len(came)
        asked.counts[JUDGED] += len(due)


@cache
def tested_loop(prepared: Hashable) -> Callable[..., tuple[int, KeptPlan]]:
    """Return `advance_by_tests` for tests that are prepared so, compiled where numba is installed.

    Each is kept on disk under a name of its own, and compiled anew if the kernel's source changes.
    """
    if numba is None:
        return advance_by_tests
    kernel = kernel_of(cast("type", prepared))
    name, code = f"{advance_by_tests.__name__}_{kernel.__name__}", advance_by_tests.__code__
    loop = FunctionType(code, advance_by_tests.__globals__, name)
    loop.__qualname__ = f"{kernel.__module__}.{name}".replace(".", "_")
    return cast(
        "Callable[..., tuple[int, KeptPlan]]", watched(numba.njit(cache=True)(loop), kernel)
    )


class Placing(NamedTuple):
    """What the loop needs to ask a placer; written."""

    counts: Integers
    """int64[5]: times it was told of events, events, times it was asked, jobs in these, and jobs
    of them that it gave a node set."""
    codes: NDArray[np.int32]
    """Node set of the machine for each of the placer's node sets."""
    answers: Integers
    """int64[n], scratch: what it says."""
    nodes: NDArray[np.int32]
    """int32[m], scratch: nodes of a job."""


TOLD, EVENTS, PLACINGS, CANDIDATES, PLACED = 0, 1, 2, 3, 4


@taken_in
def _tell_events(machine: MachineState, placing: Placing, origin: float, prepared: Any) -> None:
    """Tell a placer of all events that are written down, and forget them.

    `origin` is the machine's time 0, seconds since the epoch.
    """
    state = machine.state[0]
    if state.events == 0:
        return
    for i in range(state.events):
        event = machine.events[i]
        count, node = 0, -1
        if event.kind == STARTED and machine.jobs[event.row].status == RUNNING:
            node = machine.jobs[event.row].first
        while node >= 0:
            placing.nodes[count] = node
            count += 1
            node = machine.nodes[node].next
        time, kind, row = event.time + origin, int(event.kind), int(event.row)
        observe_row(prepared, time, kind, row, placing.nodes[:count])
    placing.counts[TOLD] += 1
    placing.counts[EVENTS] += state.events
    state.events, state.told = 0, 0


@taken_in
def _place_waiting(machine: MachineState, placing: Placing, origin: float, prepared: Any) -> None:
    """Give the jobs that wait the node sets that the placer wants for them."""
    state, waiting = machine.state[0], 0
    for at in range(state.head, state.tail):
        if machine.queue[at].width != GONE:
            machine.rows[waiting] = machine.queue[at].row
            waiting += 1
    rows, answers = machine.rows[:waiting], placing.answers[:waiting]
    place_rows(prepared, state.now + origin, rows, answers)
    placing.counts[PLACINGS] += 1
    placing.counts[CANDIDATES] += waiting
    changed = 0
    for i in range(waiting):
        if answers[i] < 0:
            continue
        placing.counts[PLACED] += 1
        state.node_level = 1
        row, code = rows[i], placing.codes[answers[i]]
        if machine.more[row].group != code:
            machine.more[row].group = code
            rows[changed] = row
            changed += 1
    change(machine, RESIZE, rows[:changed], np.empty(0))


def advance_by_placer(
    machine: MachineState, placing: Placing, origin: float, prepared: Any, pause_after: int
) -> int:
    """Run as `advance` does, asking a placer before each pass; return the questions that are left.

    Parameters
    ----------
    machine : MachineState
        The system, changed in place; its jobs have whole nodes, wait in order of their rows, and
        depend on nothing. It writes down events and stops before passes.
    placing : Placing
        See there.
    origin : float
        The machine's time 0, seconds since the epoch.
    prepared : named tuple
        Of a `RowPlacer`.
    pause_after : int
        Arrivals without a question after which to pause; 0: nothing is run, the placer is only
        told of what happened since it was told last.
    """
    if pause_after == 0:
        _tell_events(machine, placing, origin, prepared)
        return 0
    while True:
        stop = advance(machine)
        if stop != ASK_PASS:
            return stop
        _tell_events(machine, placing, origin, prepared)
        _place_waiting(machine, placing, origin, prepared)
        machine.state[0].pause_at = machine.state[0].upcoming + pause_after


@cache
def placed_loop(prepared: Hashable) -> Callable[..., int]:
    """Return `advance_by_placer` for placers that are prepared so, compiled if numba is installed.

    Each is kept on disk under a name of its own, and compiled anew if a kernel's source changes.
    """
    if numba is None:
        return advance_by_placer
    kernels = kernels_of(cast("type", prepared))
    name, code = f"{advance_by_placer.__name__}_{kernels[1].__name__}", advance_by_placer.__code__
    loop = FunctionType(code, advance_by_placer.__globals__, name)
    loop.__qualname__ = f"{kernels[1].__module__}.{name}".replace(".", "_")
    return cast("Callable[..., int]", watched(numba.njit(cache=True)(loop), *kernels))
