"""The compiled admission test in FIFO or EDF order: a task that does not fit stops the walk."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from rtsched.kernels.compiling import compiled
from rtsched_plugins.kernels.admission import BY_DEADLINE
from rtsched_plugins.kernels.admission_events import (
    DeadlineSearch,
    Prepared,
    Trace,
    accepted,
    empty_trace,
    first_unfit,
    keep_up,
    next_instant,
    on_grid,
    rejected,
    release_nodes,
    start_task,
)
from rtsched_plugins.kernels.admission_heap import Heap, empty_heap, push
from rtsched_plugins.kernels.admission_rows import (
    DEADLINE,
    LOW,
    earlier,
    least_deadline,
    least_size,
)
from rtsched_plugins.kernels.no_refcount import no_refcount

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Integers: TypeAlias = NDArray[np.int64]


Moment: TypeAlias = tuple[float, float, int, int, int, int]
"""When the new task came up: the least deadline that would change what it did then, the instant,
and before anything started at it: releases, free nodes, place in the queue, placements."""


@no_refcount
def _goes_first(prepared: Prepared, new: int, other: int) -> bool:
    """Return whether the new task comes before waiting task `other` in the queue."""
    real = prepared.rows.real
    if prepared.order == BY_DEADLINE and real[new, DEADLINE] != real[other, DEADLINE]:
        return bool(real[new, DEADLINE] < real[other, DEADLINE])
    return earlier(prepared.rows, new, other)


@no_refcount
def _overtaken_at(prepared: Prepared, new: int, other: int) -> float:
    """Return the least deadline with which the new task no longer comes before `other`."""
    if prepared.order != BY_DEADLINE:
        return math.inf
    deadline = float(prepared.rows.real[other, DEADLINE])
    if earlier(prepared.rows, new, other):
        return float(np.nextafter(deadline, math.inf))
    return deadline


@no_refcount
def _walk(
    prepared: Prepared,
    trace: Trace,
    ends: Heap,
    place: int,
    pending: bool,
    t: float,
    available: int,
) -> tuple[int, int, int, int]:
    """Start what fits at t, in order, up to the first task that does not.

    Returns the place in the queue that was reached, how many nodes are left and, if the new
    task came up, how many were free then and how many it takes (else 0).
    """
    rows, new = prepared.rows, len(prepared.queue)
    room = size = 0
    while available > 0 and (place < new or pending):
        is_new = pending and (place == new or _goes_first(prepared, new, prepared.queue[place]))
        i = new if is_new else prepared.queue[place]
        n = least_size(rows, i, rows.whole[i, LOW], t)
        if is_new:
            room, size = available, n
        if n > available:
            break
        available = start_task(rows, trace, ends, i, n, t, available)
        if is_new:
            pending = False
        else:
            place += 1
    return place, available, room, size


@no_refcount
def _next_in_queue(
    prepared: Prepared, place: int, started: bool, room: int, n: int, t: float
) -> float:
    """Return the least later deadline that would change what the new task did in a walk at t.

    It came up when `room` nodes were free, and either started on n nodes or stopped the walk.
    With a later deadline it may need fewer nodes, or come after the task at `place`, the first
    of the others that did not start. (To come after one that did makes no difference.)
    """
    rows, new = prepared.rows, len(prepared.queue)
    known = math.inf
    fewer = n - 1 if started else min(n - 1, room)
    if fewer >= rows.whole[new, LOW]:
        known = least_deadline(rows, new, fewer, t)
    if place < new:
        other = prepared.queue[place]
        if started or least_size(rows, other, rows.whole[other, LOW], t) <= room:
            known = min(known, _overtaken_at(prepared, new, other))
    return known


@compiled
def _go_back(
    trace: Trace, ends: Heap, moments: list[Moment], deadline: float
) -> tuple[float, int, int, int]:
    """Undo the plan from the first moment on at which a new deadline makes a difference.

    Returns that instant, the releases and the free nodes by then, and the place in the queue.
    """
    k = 0
    while moments[k][0] > deadline:
        k += 1
    _, t, released, available, place, done = moments[k]
    for j in range(done, trace.done[0]):
        trace.placed[trace.order[j]] = False
    trace.done[0] = done
    while len(moments) > k:
        moments.pop()
    ends.instant[0], ends.used[0] = np.inf, 0
    for j in range(done):
        i = trace.order[j]
        if trace.end[i] > t:
            push(ends, trace.end[i], trace.size[i])
    return t, released, available, place


@compiled
def _earliest(moments: list[Moment]) -> float:
    """Return the least deadline at which anything would come out differently."""
    known = math.inf
    for moment in moments:
        known = min(known, moment[0])
    return known


@compiled
def run_in_queue(prepared: Prepared, has_new: bool, now: float, search: DeadlineSearch) -> Trace:
    """Run the test in FIFO or EDF order over the waiting tasks and, if any, the new one.

    A search that is rejected goes on with the next deadline from where that makes a difference:
    most of the plan before the new task comes up need not be made again.
    """
    rows, release = prepared.rows, prepared.release
    new = len(prepared.queue)
    trace = empty_trace(new + 1 if has_new else new)
    ends = empty_heap(new + 1)
    moments = [(np.inf, 0.0, 0, 0, 0, 0)]
    released = available = place = 0
    known, tests = math.inf, 1
    t = max(now, release[0]) if len(release) else now
    while trace.done[0] < len(trace.placed):
        released, freed = release_nodes(release, released, ends, t)
        available += freed
        pending = has_new and not trace.placed[new]
        alive, following = True, known
        if prepared.latest[place] < t:
            alive = first_unfit(rows, trace.placed[:new], t) < 0
        if alive and pending:
            alive, following = keep_up(rows, new, t, known, search)
        if not alive:
            deadline = on_grid(following, search.base, search.resolution)
            if not search.active or deadline == math.inf or tests >= search.max_tests:
                return rejected(rows, trace, t, following, tests)
            tests += 1
            rows.real[new, DEADLINE] = deadline
            t, released, available, place = _go_back(trace, ends, moments, deadline)
            known = _earliest(moments)
            continue
        moment = (t, released, available, place, trace.done[0])
        place, available, room, n = _walk(prepared, trace, ends, place, pending, t, available)
        if room > 0 and search.active:
            later = _next_in_queue(prepared, place, trace.placed[new], room, n, t)
            if later < math.inf:
                moments.append((later, *moment))
                known = min(known, later)
        t = next_instant(release, released, ends)
    return accepted(trace, rows.real[new, DEADLINE], tests)
