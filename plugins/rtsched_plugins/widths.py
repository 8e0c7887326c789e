"""Answers about queued jobs: on which nodes each starts, how wide, or that it waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.api import Kind, Placement, demand_of
from rtsched.kernels.delays import delay

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rtsched.api import Cluster, Jobs, Schedule
    from rtsched_plugins.mapping import Field, Mapping
    from rtsched_plugins.requests import Requests
    from rtsched_plugins.room_mapping import RoomMapping

    Nodes = NDArray[np.int32]

NOWHERE = np.empty(0, np.int32)


def placed(mapping: Mapping, requests: Requests, moves: Schedule | None) -> Placement:
    """Map jobs head first until one must wait; its node set is empty, and it holds up the rest.

    There is no opinion on the jobs behind it, and on those that no idle machine has room for.
    """
    n = len(requests.order)
    size, node_set = np.zeros(n, np.int32), np.full(n, -1, np.int32)
    sets: list[Nodes] = []
    for row in requests.order[requests.fits[requests.order]].tolist():
        nodes = mapping.place(
            int(requests.min_size[row]), int(requests.max_size[row]), requests.allowed(row)
        )
        node_set[row] = len(sets)
        sets.append(NOWHERE if nodes is None else nodes)
        if nodes is None:
            break
        size[row] = len(nodes)
    return Placement(size, node_set, tuple(sets), moves=moves)


def waiting(requests: Requests, moves: Schedule | None) -> Placement:
    """Have the head of the queue wait, and with it the rest."""
    n = len(requests.order)
    node_set = np.full(n, -1, np.int32)
    node_set[requests.order[requests.fits[requests.order]][:1]] = 0
    return Placement(np.zeros(n, np.int32), node_set, (NOWHERE,), moves=moves)


def preferred(
    mapping: Mapping, requests: Requests, jobs: Jobs, moves: Schedule | None
) -> Placement:
    """Have all jobs prefer the fastest nodes, and give moldable ones a size.

    The sizes are those with which they would be mapped now, one after the other in order of
    (submit, id); a job that would have to wait gets its least size.
    """
    left = int(mapping.usable().sum())

    def place(row: int, least: int, most: int) -> Nodes | None:
        nonlocal left
        if left < least:
            return None
        nodes = mapping.place(least, most, requests.allowed(row))
        left -= 0 if nodes is None else len(nodes)
        return nodes

    return _with_sizes(mapping.field, requests, jobs, place, moves)


def preferred_with_room(
    mapping: RoomMapping, requests: Requests, jobs: Jobs, cluster: Cluster
) -> Placement:
    """Answer as `preferred` does where jobs share nodes by resources."""
    demand = demand_of(jobs, cluster)

    def place(row: int, least: int, most: int) -> Nodes | None:
        return mapping.place(least, most, requests.allowed(row), demand[row])

    return _with_sizes(mapping.field, requests, jobs, place, None)


def _with_sizes(
    field: Field,
    requests: Requests,
    jobs: Jobs,
    place: Callable[[int, int, int], Nodes | None],
    moves: Schedule | None,
) -> Placement:
    """Return the fastest nodes for all jobs, and sizes for moldable ones.

    `place(row, least, most)` maps a job now; it returns None if the job must wait.
    """
    n = len(jobs)
    size = np.zeros(n, np.int32)
    sets = tuple(_ranked(field, allowed) for allowed in requests.nodes)
    widest = np.array([len(nodes) for nodes in sets], np.int64)[requests.group]
    fits = requests.min_size <= widest
    bends = fits & (jobs.kind != Kind.RIGID)
    size[bends] = requests.min_size[bends]
    for row in requests.order[bends[requests.order]].tolist():
        most = min(int(requests.max_size[row]), int(widest[row]))
        nodes = place(row, int(requests.min_size[row]), most)
        if nodes is not None:
            size[row] = len(nodes)
    return Placement(size, np.where(fits, requests.group, -1).astype(np.int32), sets, moves=moves)


def _ranked(field: Field, allowed: NDArray[np.bool_]) -> Nodes:
    """Return the allowed nodes that take jobs, the least delayed first, then by index."""
    idle = delay(field.alpha, 1.0 + field.foreign)
    usable = field.open & allowed & (idle <= field.bounds[-1:].max(initial=0.0))
    nodes = np.flatnonzero(usable).astype(np.int32)
    return nodes[np.argsort(idle[nodes], kind="stable")]
