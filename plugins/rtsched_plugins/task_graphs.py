"""Jobs that depend on each other, as graphs of tasks in the order in which they are judged."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.api import offsets_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from rtsched.api import Edges, Jobs


class Graph(NamedTuple):
    """Tasks that are admitted or rejected together, in topological order.

    Of the tasks that wait for no other one the smallest id comes first. A graph with a cycle holds
    the tasks of the cycle and behind it in `stuck`.
    """

    rows: NDArray[np.int64]
    """Rows of `Jobs`, in the order in which they are placed."""
    job: NDArray[np.int64]
    """Their ids."""
    before_of: NDArray[np.int64]
    """Task i waits for `before[before_of[i]:before_of[i + 1]]`."""
    before: NDArray[np.int64]
    """Job ids of the predecessors."""
    message: NDArray[np.float64]
    """Seconds that each result travels to another node."""
    stuck: NDArray[np.int64]
    """Rows that wait for themselves."""


def graphs_of(jobs: Jobs, edges: Edges) -> Iterator[Graph]:
    """Yield the graphs among `jobs` in order of their first (submit, id), or behind predecessors.

    Jobs with the same `dag` key are one graph, every other job is one of its own.
    """
    ids = jobs.id
    order = np.lexsort((ids, jobs.submit))
    table = edges.take(np.flatnonzero(np.isin(edges.after, ids))) if len(edges) else edges
    if len(table) and (inside := np.isin(table.before, ids)).any():
        place_of = {job: place for place, job in enumerate(ids[order].tolist())}
        before, after = (
            [place_of[job] for job in column[inside].tolist()]
            for column in (table.before, table.after)
        )
        placed = topological(list(range(len(ids))), before, after)
        order = order[[*placed, *sorted(set(range(len(ids))) - set(placed))]]
    members: dict[int, list[int]] = {}
    for row, dag in zip(order.tolist(), jobs.dag[order].tolist(), strict=True):
        members.setdefault(dag if dag >= 0 else -1 - row, []).append(row)
    for group in members.values():
        rows = np.array(group, np.int64)
        yield graph_of(rows, ids[rows], table)


def graph_of(rows: NDArray[np.int64], ids: NDArray[np.int64], edges: Edges) -> Graph:
    """Return the graph of the jobs in `rows`."""
    if not len(edges):
        order, none = np.argsort(ids, kind="stable"), rows[:0]
        alone = np.zeros(len(rows) + 1, np.int64)
        return Graph(rows[order], ids[order], alone, none, np.empty(0), none)
    mine = np.isin(edges.after, ids)
    before, after, message = edges.before[mine], edges.after[mine], edges.message_time[mine]
    placed = topological(ids.tolist(), before.tolist(), after.tolist())
    row_of = dict(zip(ids.tolist(), rows.tolist(), strict=True))
    rank = {job: place for place, job in enumerate(placed)}
    order = np.array([rank.get(job, len(ids)) for job in after.tolist()], np.int64)
    count = np.bincount(order, minlength=len(ids) + 1)[: len(placed)]
    by_task = np.argsort(order, kind="stable")
    stuck = [row_of[job] for job in ids.tolist() if job not in rank]
    return Graph(
        np.array([row_of[job] for job in placed], np.int64),
        np.array(placed, np.int64),
        offsets_of(count),
        before[by_task],
        message[by_task],
        np.array(stuck, np.int64),
    )


def topological(ids: list[int], before: list[int], after: list[int]) -> list[int]:
    """Return ids, predecessors first, the smallest ready one first; those on cycles left out."""
    waits = dict.fromkeys(ids, 0)
    follows: dict[int, list[int]] = {job: [] for job in ids}
    for first, second in zip(before, after, strict=True):
        if first in waits:
            waits[second] += 1
            follows[first].append(second)
    ready = [job for job in ids if waits[job] == 0]
    heapify(ready)
    placed = []
    while ready:
        job = heappop(ready)
        placed.append(job)
        for other in follows[job]:
            waits[other] -= 1
            if waits[other] == 0:
                heappush(ready, other)
    return placed
