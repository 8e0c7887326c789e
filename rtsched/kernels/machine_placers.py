"""The event loop with a placer in it: waiting jobs are given nodes without a stop.

A replay that asks at each pass where jobs are to run spends most of its time between compiled
calls. This loop calls the plug-in's own kernels (`RowPlacer`): it tells them what happened, and
has carried out what they say of each job that waits.
"""

from __future__ import annotations

from functools import cache
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import numpy as np

from rtsched.kernels.compiling import numba, taken_in, watched
from rtsched.kernels.machine import ASK_PASS, GONE, RUNNING, STARTED, MachineState
from rtsched.kernels.machine_commands import RESIZE, change
from rtsched.kernels.machine_scheduler import advance
from rtsched.kernels.row_placers import kernels_of, observe_row, place_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from numpy.typing import NDArray

    Integers: TypeAlias = NDArray[np.int64]


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


TOLD, EVENTS, ASKED, ROWS, PLACED = 0, 1, 2, 3, 4


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
    placing.counts[ASKED] += 1
    placing.counts[ROWS] += waiting
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
