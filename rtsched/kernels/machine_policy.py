"""The event loop with a policy in it: what it answers is done without a stop.

The policy (`rtsched.kernels.policy`) observes what happened, gives waiting jobs priorities or node
sets, and judges jobs that were submitted: what it admits is carried out, whom it rejects is written
down. The loop stops only where somebody else is to be asked.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar, cast

import numpy as np

from rtsched.kernels import policy as ask
from rtsched.kernels.compiling import (
    PART_OPTIONS,
    called,
    compiled,
    numba,
    specialised,
    taken_in,
)
from rtsched.kernels.machine import (
    ASK_ARRIVALS,
    ASK_EARLY_END,
    ASK_PASS,
    FULL,
    RUNNING,
    STARTED,
    MachineState,
)
from rtsched.kernels.machine_loop import OBSERVE, PROMISE, RANK, REJECT, RESIZE, change
from rtsched.kernels.machine_plan import (
    Planned,
    held_until,
    is_sound,
    lay_out,
    put_plan,
    unstarted_rows,
)
from rtsched.kernels.machine_queue import list_queue, rerank

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from numpy.typing import NDArray

    from rtsched.kernels.policy import RejectedRows, RowPlan

    Floats: TypeAlias = NDArray[np.float64]

    Integers: TypeAlias = NDArray[np.int64]

F = TypeVar("F", bound="Callable[..., Any]")


class KeptPlan(NamedTuple):
    """The plan that was laid out last, with what has started since."""

    row: Integers
    start: Floats
    end: Floats
    indptr: Integers
    nodes: NDArray[np.int32]
    source: Integers
    """As `Laid.source`."""


class JudgedJobs(NamedTuple):
    """What the loop reads of each job that may be judged, and what it writes down of it."""

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
    """What the loop needs to ask a policy, and what it writes down of its answers."""

    origin: float
    """The machine's time 0, seconds since the epoch."""
    n: int
    """Jobs of the workload; the machine's further rows are none."""
    m: int
    """Nodes of the cluster."""
    counts: Integers
    """int64[4, 4], by `HOOKS`: calls, rows in them, rows on which it changed something or decided,
    rows on which it had no opinion; written."""
    lengths: Integers
    """int64[3]: plans laid out, length of `promised` and of `rejected`; written."""
    jobs: JudgedJobs
    promised: Integers
    """int64[n]: rows of those promised something; written."""
    rejected: RejectedRows
    """Those rejected since somebody read it; if all places are taken, it is full; written."""
    codes: NDArray[np.int32]
    """Node set of the machine for each of the policy's node sets."""
    answers: Integers
    """int64[n], scratch: what it says."""
    nodes: NDArray[np.int32]
    """int32[m], scratch: nodes of a job."""


HOOKS = "fair_share", "observe", "partition", "admit"
"""The hooks in whose place kernels are called."""

RANKED, OBSERVED, PLACED, JUDGED = 0, 1, 2, 3
LAID, PROMISED, REJECTED = 0, 1, 2


def only_with_kernel(name: str, otherwise: Callable[..., Any], **options: Any) -> Callable[[F], F]:
    """Return a decorator for what the loop does where a policy has a kernel.

    For others it is not compiled, and their loop calls `otherwise`, with the same arguments.
    """

    def offered(stage: F) -> F:
        def chosen(policy: Any) -> Callable[..., Any]:
            return stage if getattr(ask.kernels_of(policy), name) else otherwise

        def call(machine: MachineState, policy: Any, *more: Any) -> Any:
            return chosen(policy)(machine, policy, *more)

        if numba is not None:

            @numba.extending.overload(call, jit_options=options, strict=False)  # type: ignore[untyped-decorator]
            def _chosen(_machine: Any, policy: Any, *_: Any) -> Callable[..., Any]:
                return chosen(policy.instance_class)

        return cast("F", call)

    return offered


def _nothing(_machine: MachineState, _policy: Any, _asked: Questions) -> bool:
    return False


def _nobody(_machine: MachineState, _policy: Any, _asked: Questions, _row: int) -> int:
    return 0


def _not_judged(
    _machine: MachineState, _policy: Any, _asked: Questions, kept: KeptPlan
) -> tuple[bool, KeptPlan]:
    return False, kept


@taken_in
def count(asked: Questions, hook: int, calls: int, rows: int, changed: int, abstained: int) -> None:
    """Count calls of a kernel."""
    asked.counts[hook, 0] += calls
    asked.counts[hook, 1] += rows
    asked.counts[hook, 2] += changed
    asked.counts[hook, 3] += abstained


@only_with_kernel("place", _nobody, **PART_OPTIONS)
def list_nodes(machine: MachineState, _policy: Any, asked: Questions, row: int) -> int:
    """Write down the nodes on which a job runs, and return how many; 0: it does not any more."""
    job, count = machine.jobs[row], 0
    node = job.first if job.status == RUNNING else -1
    while node >= 0:
        asked.nodes[count] = node
        count += 1
        node = machine.nodes[node].next
    return count


@only_with_kernel("observe", _nothing, **PART_OPTIONS)
def observe_events(machine: MachineState, policy: Any, asked: Questions) -> bool:
    """Tell a policy of all events that it does not know; forget them, unless Python wants them."""
    state, seen = machine.state[0], 0
    for i in range(state.observed, state.events):
        event = machine.events[i]
        if 0 <= event.row < asked.n:
            row, size, used = int(event.row), int(event.width), 0
            if event.kind == STARTED:
                used = list_nodes(machine, policy, asked, row)
            ask.observe(policy, event.time, int(event.kind), row, size, asked.nodes[:used])
            seen += 1
    calls = seen if state.observing else min(seen, 1)  # else they come as the hook has them
    count(asked, OBSERVED, calls, seen, seen, 0)
    state.events = state.events if state.keeping else 0
    state.observed = state.events
    return True


@only_with_kernel("rank", _nothing, **PART_OPTIONS)
def rank_waiting(machine: MachineState, policy: Any, asked: Questions) -> bool:
    """Give the jobs that wait the priorities that a policy wants for them."""
    waiting = list_queue(machine)
    now, rows, values = machine.state[0].now, machine.rows[:waiting], machine.values[:waiting]
    abstained = ask.rank(policy, now, rows, values)
    count(asked, RANKED, 1, waiting, rerank(machine, machine.values), abstained)
    return True


@only_with_kernel("place", _nothing, **PART_OPTIONS)
def place_waiting(machine: MachineState, policy: Any, asked: Questions) -> bool:
    """Give the jobs that wait the node sets that a policy wants for them."""
    waiting = list_queue(machine)
    state, rows, answers = machine.state[0], machine.rows[:waiting], asked.answers[:waiting]
    ask.place(policy, state.now, rows, answers)
    placed, changed = 0, 0
    for i in range(waiting):
        if answers[i] < 0:
            continue
        placed += 1
        state.node_level = 1
        row, code = rows[i], asked.codes[answers[i]]
        if machine.more[row].group != code:
            machine.more[row].group = code
            rows[changed] = row
            changed += 1
    count(asked, PLACED, 1, waiting, placed, waiting - placed)
    change(machine, RESIZE, rows[:changed], machine.values)
    return True


@compiled
def _settled(
    machine: MachineState, asked: Questions, rows: Integers, new: Integers, plan: RowPlan
) -> Integers:
    """Promise new jobs their deadlines and lay out a plan of all; return its `Laid.source`."""
    jobs, origin = asked.jobs, asked.origin
    for row in new:
        jobs.promise[row] = jobs.deadline[row]
        jobs.made_at[row] = machine.state[0].now + origin
        asked.promised[asked.lengths[PROMISED]] = row
        asked.lengths[PROMISED] += 1
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
    nodes = machine.nodes[: asked.m]
    laid = lay_out(planned, origin, nodes, machine.plan[:0], nobody)
    put_plan(
        machine.state,
        machine.plan,
        machine.plan_nodes,
        machine.span_of,
        machine.spans,
        laid,
        len(rows),
    )
    asked.lengths[LAID] += 1
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


@only_with_kernel("admit", _not_judged)
def judge(
    machine: MachineState, policy: Any, asked: Questions, kept: KeptPlan
) -> tuple[bool, KeptPlan]:
    """Answer what is asked as a policy says; return whether that could be done, and the plan.

    A question that is not answered is left as if it had not been looked at. Jobs have whole nodes.
    """
    state, jobs, rejected, m = machine.state[0], asked.jobs, asked.rejected, asked.m
    if state.joining > 0:
        return False, kept
    now = state.now + asked.origin
    held = held_until(machine.nodes[:m], machine.jobs, asked.origin)
    came = np.sort(machine.asked[: state.asked])
    due = came[jobs.deadline[came] < np.inf]
    if len(came) > 0 and len(due) == 0:
        return False, kept
    rows, start, _, _, nodes = unstarted_rows(
        machine.plan[: state.plan_size],
        kept.source,
        kept.row,
        kept.start,
        kept.end,
        kept.indptr,
        kept.nodes,
    )
    taken, first = due[:0], asked.lengths[REJECTED]
    last = first
    if len(due) > 0:
        for row in due:
            found = ask.admit(policy, rows, start, row, now, held)
            if found.code == ask.ADMIT:
                plan, rows, start = found, np.append(rows, row), found.start
                taken = np.append(taken, row)
                continue
            if found.code == ask.ABSTAIN or last == len(rejected.row):
                return False, kept
            why = ask.reject(policy, rows, row, now, held)
            rejected.row[last], rejected.at[last] = row, now
            rejected.failed[last] = rows[found.failed] if found.failed < len(rows) else -1
            rejected.promised[last] = len(rows)
            rejected.free[last] = _open(held, now)
            rejected.needed[last], rejected.offer[last] = why.needed, why.offer
            last += 1
        accepted = len(taken) > 0
    else:
        if not _in_service(held, nodes):
            return False, kept
        plan = ask.admit(policy, rows, start, -1, now, held)
        if plan.code == ask.ABSTAIN:
            return False, kept
        accepted = plan.code == ask.ADMIT
    if accepted and not _fits(machine, plan, m):
        return False, kept
    if last > first:
        change(machine, REJECT, rejected.row[first:last], np.empty(0))
        asked.lengths[REJECTED] = last
    if accepted:
        source = _settled(machine, asked, rows, taken, plan)
        kept = KeptPlan(rows, plan.start, plan.end, plan.indptr, plan.nodes, source)
    count(asked, JUDGED, 1, len(came), len(due), len(came) - len(due))
    return True, kept


def advance_with(
    machine: MachineState,
    further: Any,
    policy: Any,
    asked: Questions,
    kept: KeptPlan,
    pause_after: int,
) -> tuple[int, KeptPlan]:
    """Run as `advance` does, answering by a policy; return what is left to ask, and the plan.

    Parameters
    ----------
    machine : MachineState
        The system, changed in place.
    further : int
        Where `advance` is (`rtsched.kernels.compiling.address_of`).
    policy : named tuple
        Who answers; see `rtsched.kernels.policy`.
    asked, kept
        See there.
    pause_after : int
        Arrivals without a question after which to pause.
    """
    state = machine.state[0]
    while True:
        stop = called(further, machine)
        if stop == OBSERVE:
            observe_events(machine, policy, asked)
            continue
        if stop == RANK:
            rank_waiting(machine, policy, asked)
            continue
        if stop == FULL:
            return stop, kept
        observe_events(machine, policy, asked)
        if stop == ASK_PASS and place_waiting(machine, policy, asked):
            state.pause_at = state.upcoming + pause_after
            continue
        done = False
        if stop != 0 and not stop & ~(ASK_ARRIVALS | ASK_EARLY_END):
            done, kept = judge(machine, policy, asked, kept)
        if not done:
            return stop, kept


@cache
def policy_loop(kind: Hashable) -> Callable[..., tuple[int, KeptPlan]]:
    """Return `advance_with` for policies of one type, compiled where numba is installed.

    Each is kept on disk under a name of its own, and compiled anew if a kernel's source changes.
    """
    of, kernels = cast("type", kind), ask.kernels_of(kind)
    others = [kernel for kernel in kernels if kernel is not None]
    return specialised(advance_with, of, *others, allocates=kernels.admit is not None)
