"""A plan laid out for the event loop: what starts when, and what each node is reserved for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from rtsched.kernels.compiling import compiled
from rtsched.kernels.machine import JOINS, PLANNED_START, SPAN, STARTS, UP
from rtsched.kernels.order import stable_order

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Integers: TypeAlias = NDArray[np.int64]

DIVISIBLE, ARRAY = 2, 3
"""Kinds of job, as in `rtsched.model.jobs.Kind`."""


class Planned(NamedTuple):
    """Entries of a plan, and what is known of their jobs; times in seconds since the epoch."""

    row: Integers
    """int64[n]"""
    start: Floats
    """float64[n]"""
    end: Floats
    """float64[n]"""
    indptr: Integers
    """int64[n + 1]: entry i has the nodes `nodes[indptr[i]:indptr[i + 1]]`."""
    nodes: NDArray[np.int32]
    """int32[k]"""
    node_start: Floats
    """float64[k]: from when it has each; float64[0]: all from its start."""
    kind: NDArray[np.int8]
    """int8[n]: a `Kind`."""
    size: NDArray[np.int32]
    """int32[n]: nodes that it asks for."""
    wall: Floats
    """float64[n]: requested seconds on so many nodes."""
    run: Floats
    """float64[n]: seconds that it takes on them; of an array, on its planned nodes."""


class Laid(NamedTuple):
    """A plan as the machine keeps it."""

    plan: NDArray[Any]
    """PLANNED_START[n + j], in order of (start, row)."""
    nodes: NDArray[np.int32]
    """Nodes of its entries."""
    source: Integers
    """int64[n + j]: which entry starts the job; -1: it gives a job that runs a node more."""
    span_of: Integers
    """int64[m + 1]: node i has the intervals `spans[span_of[i]:span_of[i + 1]]`."""
    spans: NDArray[Any]
    """SPAN, of each node in order of start."""


@compiled
def put_plan(
    state: NDArray[Any],
    plan: NDArray[Any],
    plan_nodes: NDArray[np.int32],
    span_of: Integers,
    spans: NDArray[Any],
    laid: Laid,
    entries: int,
) -> bool:
    """Put a plan in place of a machine's present one; False: its arrays have no room for it.

    Parameters
    ----------
    state, plan, plan_nodes, span_of, spans
        Those of the machine.
    laid : Laid
        The plan.
    entries : int
        How many jobs it starts; what else it has gives nodes to jobs that run.
    """
    size, many, reserved = len(laid.plan), len(laid.nodes), len(laid.spans)
    if len(plan) < size or len(plan_nodes) < many or len(spans) < reserved:
        return False
    plan[:size], plan_nodes[:many], spans[:reserved] = laid.plan, laid.nodes, laid.spans
    span_of[:] = laid.span_of
    state[0].planned, state[0].plan_size, state[0].plan_left = 0, size, size
    state[0].joining = size - entries
    state[0].settled, state[0].rebuild = 0, 1
    return True


@compiled
def is_sound(indptr: Integers, nodes: NDArray[np.int32], m: int) -> bool:
    """Return whether each entry has a node, and all nodes exist."""
    for i in range(len(indptr) - 1):
        if indptr[i + 1] <= indptr[i]:
            return False
    return len(nodes) == 0 or (nodes.min() >= 0 and nodes.max() < m)


@compiled
def _times(planned: Planned, i: int) -> tuple[float, float]:
    """Return how long entry i runs, and for how long it holds its nodes at most.

    A divisible job runs as long as its plan says; a rigid one as long as it does, a moldable one
    by that and its size, both at most until its planned end. A planned end is rounded to the
    clock's resolution: a job's own limit stands where it can.
    """
    span = planned.end[i] - planned.start[i]
    if planned.kind[i] == DIVISIBLE:
        return span, span
    factor = planned.size[i] / max(planned.indptr[i + 1] - planned.indptr[i], 1)
    if planned.kind[i] == ARRAY:
        return planned.run[i], span
    own = planned.wall[i] * factor
    near = own == span or (np.isfinite(span) and abs(own - span) <= 1e-5 + 1e-9 * abs(span))
    return planned.run[i] * factor, own if near else span


@compiled
def _late_last(first: int, last: int, start: float, nodes: NDArray[np.int32], begin: Floats) -> int:
    """Put the nodes that join later behind the others, in their order; return how many do not."""
    count, late = 0, 0
    for p in range(first, last):
        late += begin[p] > start
    if late > 0:
        some, times = nodes[first:last].copy(), begin[first:last].copy()
        behind = last - first - late
        for p in range(last - first):
            if times[p] > start:
                nodes[first + behind], begin[first + behind] = some[p], times[p]
                behind += 1
            else:
                nodes[first + count], begin[first + count] = some[p], times[p]
                count += 1
    return last - first - late


@compiled
def lay_out(
    planned: Planned,
    origin: float,
    records: NDArray[Any],
    open_joins: NDArray[Any],
    open_nodes: NDArray[np.int32],
) -> Laid:
    """Lay out a plan for a machine, whose nodes' next reservations are set anew.

    Parameters
    ----------
    planned : Planned
        Its entries.
    origin : float
        The machine's time 0, seconds since the epoch.
    records : NODE[m]
        The machine's nodes.
    open_joins : PLANNED_START[j]
        Entries of the present plan that are to give running jobs a node more.
    open_nodes : int32[j]
        Those nodes.
    """
    n, k, m = len(planned.row), len(planned.nodes), len(records)
    nodes, begin = np.empty(k + len(open_nodes), np.int32), np.empty(k + len(open_nodes))
    nodes[:k], nodes[k:] = planned.nodes, open_nodes
    end, width, late = np.empty(len(nodes)), np.empty(n, np.int64), 0
    for i in range(n):
        first, last = planned.indptr[i], planned.indptr[i + 1]
        begin[first:last] = planned.start[i]
        if len(planned.node_start) > 0:
            begin[first:last] = planned.node_start[first:last]
        width[i] = _late_last(first, last, planned.start[i], nodes, begin)
        late += last - first - width[i]
    count = n + late + len(open_joins)
    table, source = np.zeros(count, PLANNED_START), np.full(count, -1)
    rows, starts = np.empty(count), np.empty(count)
    at = n
    for i in range(n):
        first, last = planned.indptr[i], planned.indptr[i + 1]
        start, row = planned.start[i] - origin, planned.row[i]
        run, wall = _times(planned, i)
        if planned.kind[i] == DIVISIBLE:  # how fast the nodes are is in the plan already
            pace = np.inf
            for p in range(first, first + width[i]):
                pace = min(pace, records[nodes[p]].speed)
            run *= pace
        entry = table[i]
        entry.start, entry.run, entry.wall = start, run, wall
        entry.at, entry.row, entry.width = first, row, width[i]
        rows[i], starts[i], source[i] = row, start, i
        for p in range(first, last):
            begin[p] -= origin
            end[p] = start + wall
            if p >= first + width[i]:
                entry = table[at]
                entry.start, entry.wall, entry.at = begin[p], end[p] - begin[p], p
                entry.row, entry.width, entry.joins = row, 1, JOINS
                rows[at], starts[at] = row, begin[p]
                at += 1
    for j in range(len(open_joins)):
        table[at] = open_joins[j]
        table[at].at = k + j
        rows[at], starts[at] = open_joins[j].row, open_joins[j].start
        begin[k + j] = open_joins[j].start
        end[k + j] = open_joins[j].start + open_joins[j].wall
        at += 1
    order = stable_order(rows)
    order = order[stable_order(starts[order])]
    span_of, spans = _spans(nodes, begin, end, m)
    for node in range(m):
        first = span_of[node]
        records[node].span = first
        records[node].window = spans[first].start if first < span_of[node + 1] else np.inf
    return Laid(table[order], nodes, source[order], span_of, spans)


@compiled
def _spans(
    nodes: NDArray[np.int32], begin: Floats, end: Floats, m: int
) -> tuple[Integers, NDArray[Any]]:
    """Return the reserved intervals of m nodes, of each in order of their start, and offsets."""
    span_of = np.zeros(m + 1, np.int64)
    for node in nodes:
        span_of[node + 1] += 1
    for node in range(m):
        span_of[node + 1] += span_of[node]
    spans, filled = np.zeros(len(nodes), SPAN), span_of[:-1].copy()
    for p in stable_order(begin):
        span = spans[filled[nodes[p]]]
        span.start, span.end = begin[p], end[p]
        filled[nodes[p]] += 1
    return span_of, spans


@compiled
def unstarted_rows(
    plan: NDArray[Any],
    source: Integers,
    row: Integers,
    start: Floats,
    end: Floats,
    indptr: Integers,
    nodes: NDArray[np.int32],
) -> tuple[Integers, Floats, Floats, Integers, NDArray[np.int32]]:
    """Return the entries of a plan that have not started, as `Planned` has them.

    Parameters
    ----------
    plan, source
        The plan as it was laid out; `row` of an entry is -1 where its job does not wait any more.
    row, start, end, indptr, nodes
        What was laid out.
    """
    left, count, many = np.zeros(len(row), np.bool_), 0, 0
    for k in range(len(plan)):
        if plan[k].row >= 0 and plan[k].joins == STARTS:
            i = source[k]
            left[i] = True
            count += 1
            many += indptr[i + 1] - indptr[i]
    rows, starts, ends = np.empty(count, np.int64), np.empty(count), np.empty(count)
    offsets, some = np.zeros(count + 1, np.int64), np.empty(many, np.int32)
    at = 0
    for i in range(len(row)):
        if left[i]:
            rows[at], starts[at], ends[at] = row[i], start[i], end[i]
            first = offsets[at]
            offsets[at + 1] = first + indptr[i + 1] - indptr[i]
            some[first : offsets[at + 1]] = nodes[indptr[i] : indptr[i + 1]]
            at += 1
    return rows, starts, ends, offsets, some


@compiled
def held_until(records: NDArray[Any], jobs: NDArray[Any], origin: float) -> Floats:
    """Return until when running jobs hold each node at most, seconds since the epoch.

    -inf where there is none, inf where the node takes no job.
    """
    until = np.full(len(records), -np.inf)
    for node in range(len(records)):
        if records[node].state != UP:
            until[node] = np.inf
        elif records[node].row >= 0:
            job = jobs[records[node].row]
            until[node] = job.start + job.wall + origin
    return until
