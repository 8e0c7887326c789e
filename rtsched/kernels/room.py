"""Room: what is left of each node's resources from each time on, a step function per node.

Running jobs and reservations are taken off. A node's steps are a linked list in a common store, so
that to add a reservation moves nothing.

References
----------
Planner of the Flux framework's resource graph (flux-sched): earliest fits on a time line of free
amounts. Here each node has a time line, and all resources of a node are in one step.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rtsched.kernels.compiling import compiled, entry, outline, part, taken_in
from rtsched.kernels.machine_sharing import fits, take, takes_licenses
from rtsched.kernels.records import pop, push, sift

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

    Integers = NDArray[np.int64]


class RoomProfile(NamedTuple):
    """The step functions of `m` nodes in a store of `p` steps; changed in place.

    If there are licences, the last of the nodes is none: it stands for what is left of these.
    """

    first: NDArray[np.int32]
    """int32[m]: each node's step in which the present lies."""
    after: NDArray[np.int32]
    """int32[p]: the next step of the same node, -1: none; of a discarded step the next such."""
    time: NDArray[np.float64]
    """float64[p]: when a step begins, seconds."""
    room: NDArray[np.int64]
    """int64[p, r]: what is left from then on."""
    unused: NDArray[np.int64]
    """int64[2]: the step discarded last, -1: none; and the first that was never used."""
    fit: NDArray[np.float64]
    """Scratch, float64[m]: when a job first fits on each node."""
    licenses: int
    """How many kinds of licences there are."""


@taken_in
def empty_profile(nodes: int, steps: int, resources: int, licenses: int = 0) -> RoomProfile:
    """Return a profile of `nodes` nodes with a store of `steps` steps, for `reset` to fill in."""
    return RoomProfile(
        first=np.zeros(nodes, np.int32),
        after=np.zeros(steps, np.int32),
        time=np.zeros(steps),
        room=np.zeros((steps, resources), np.int64),
        unused=np.zeros(2, np.int64),
        fit=np.zeros(nodes),
        licenses=licenses,
    )


@part
def reset(profile: RoomProfile, room: NDArray[np.int64], now: float) -> None:
    """Let every node have what is in `room`, int64[m, r], for ever."""
    m = len(profile.first)
    for node in range(m):
        profile.first[node] = node
        profile.after[node] = -1
        profile.time[node] = now
        for resource in range(room.shape[1]):
            profile.room[node, resource] = room[node, resource]
    profile.unused[0] = -1
    profile.unused[1] = m


@part
def forget(profile: RoomProfile, node: int, now: float) -> None:
    """Let a node's profile begin at the step in which the present lies."""
    while True:
        at = profile.first[node]
        following = profile.after[at]
        if following < 0 or profile.time[following] > now:
            break
        profile.first[node] = following
        discard(profile, at)


@part
def discard(profile: RoomProfile, at: int) -> None:
    """Put a step back into the store."""
    profile.after[at] = profile.unused[0]
    profile.unused[0] = at


@part
def step_of(profile: RoomProfile, node: int, time: float) -> int:
    """Return the step of a node in which a time lies, the first for earlier times."""
    at = profile.first[node]
    while profile.after[at] >= 0 and profile.time[profile.after[at]] <= time:
        at = profile.after[at]
    return int(at)


@part
def cut(profile: RoomProfile, node: int, time: float) -> int:
    """Return the step of a node that begins at a time, made if there is none."""
    at = step_of(profile, node, time)
    if profile.time[at] >= time:
        return at
    new = profile.unused[0]
    if new >= 0:
        profile.unused[0] = profile.after[new]
    else:
        new = profile.unused[1]
        profile.unused[1] += 1
    profile.after[new] = profile.after[at]
    profile.after[at] = new
    profile.time[new] = time
    for resource in range(profile.room.shape[1]):
        profile.room[new, resource] = profile.room[at, resource]
    return int(new)


@outline
def join_alike(profile: RoomProfile, node: int) -> None:
    """Join neighbouring steps of a node that leave the same."""
    at = profile.first[node]
    while profile.after[at] >= 0:
        following = profile.after[at]
        alike = True
        for resource in range(profile.room.shape[1]):
            alike = alike and profile.room[at, resource] == profile.room[following, resource]
        if alike:
            profile.after[at] = profile.after[following]
            discard(profile, following)
        else:
            at = following


@outline
def occupy(
    profile: RoomProfile,
    node: int,
    start: float,
    end: float,
    demand: NDArray[np.int64],
    row: int,
    sign: int,
) -> None:
    """Take a job's demand on a node from `start` to `end` (sign 1), or give it back (-1).

    The store must have two unused steps.
    """
    if start >= end:
        return
    at = cut(profile, node, start)
    last = cut(profile, node, end) if end < np.inf else -1
    while at != last:
        take(profile.room, at, demand, row, sign)
        at = profile.after[at]
    if sign < 0:
        join_alike(profile, node)


@part
def occupy_licenses(
    profile: RoomProfile, start: float, end: float, demand: NDArray[np.int64], row: int, sign: int
) -> None:
    """Take a job's licences from `start` to `end` (sign 1), or give them back (-1).

    If it has any, the store must have two unused steps.
    """
    if takes_licenses(demand, row, profile.licenses):
        occupy(profile, len(profile.first) - 1, start, end, demand, row, sign)


def fill_room(
    profile: RoomProfile,
    room: NDArray[np.int64],
    start: NDArray[np.float64],
    end: NDArray[np.float64],
    indptr: NDArray[np.int64],
    nodes: NDArray[np.int32],
    demand: NDArray[np.int64],
    now: float,
) -> None:
    """Let the profile begin now with empty nodes, and take off what jobs hold.

    The latest are taken off first: each is then among the first steps of its nodes, and thousands
    of spans on one node cost no more than one on each of thousands.

    Parameters
    ----------
    profile : RoomProfile
        With two unused steps for each of `nodes`, and for each job that takes licences.
    room : int64[m, r]
        What empty nodes have.
    start, end : float64[n]
        From when to when each job holds its nodes, seconds.
    indptr, nodes
        Job i has the nodes `nodes[indptr[i]:indptr[i + 1]]`.
    demand : int64[n, r]
        What it takes on each.
    now : float
        Seconds.
    """
    order = np.argsort(-start, kind="stable")
    _fill_room(profile, room, order, start, end, indptr, nodes, demand, now)


@entry
def _fill_room(
    profile: RoomProfile,
    room: NDArray[np.int64],
    order: NDArray[np.int64],
    start: NDArray[np.float64],
    end: NDArray[np.float64],
    indptr: NDArray[np.int64],
    nodes: NDArray[np.int32],
    demand: NDArray[np.int64],
    now: float,
) -> None:
    """Take off in the given order."""
    reset(profile, room, now)
    for i in order:
        for k in range(indptr[i], indptr[i + 1]):
            occupy(profile, nodes[k], max(start[i], now), end[i], demand, i, 1)
        occupy_licenses(profile, max(start[i], now), end[i], demand, i, 1)


@part
def first_fit(
    profile: RoomProfile, node: int, start: float, wall: float, demand: NDArray[np.int64], row: int
) -> float:
    """Return when a job first fits on a node for `wall` seconds, from `start` on; inf: never."""
    at, time = step_of(profile, node, start), start
    while True:
        following = profile.after[at]
        if not fits(profile.room, at, demand, row):
            if following < 0:
                return float(np.inf)
            time = profile.time[following]
        elif following < 0 or profile.time[following] >= time + wall:
            return float(time)
        at = following


@part
def licenses_fit(
    profile: RoomProfile, start: float, wall: float, demand: NDArray[np.int64], row: int
) -> float:
    """Return when a job first has its licences for `wall` seconds, from `start` on; inf: never."""
    if start < np.inf and takes_licenses(demand, row, profile.licenses):
        return first_fit(profile, len(profile.first) - 1, start, wall, demand, row)
    return start


@outline
def earliest_start(
    profile: RoomProfile,
    candidates: NDArray[np.int64],
    count: int,
    size: int,
    start: float,
    wall: float,
    demand: NDArray[np.int64],
    row: int,
    picks: NDArray[np.int64],
) -> float:
    """Return when a job can first have `size` nodes for `wall` seconds, from `start` on.

    Parameters
    ----------
    profile : RoomProfile
    candidates : int64[k]
        The first `count` are the nodes it may have; those that come first are preferred.
    size : int
        Nodes wanted.
    start, wall : float
        Seconds.
    demand : int64[n, r]
        Row `row` is what it takes on each node.
    picks : int64[m]
        Is given the nodes.

    Returns
    -------
    float
        inf: never.
    """
    time = start
    for i in range(count):
        profile.fit[i] = first_fit(profile, candidates[i], time, wall, demand, row)
    while time < np.inf:
        found, following = 0, np.inf
        for i in range(count):
            if profile.fit[i] < time:
                profile.fit[i] = first_fit(profile, candidates[i], time, wall, demand, row)
            if profile.fit[i] <= time:
                picks[found] = candidates[i]
                found += 1
                if found == size:
                    return float(time)
            else:
                following = min(following, profile.fit[i])
        time = following
    return float(np.inf)


LAST: float = np.finfo(np.float64).max
"""No node's finite bound is later."""


@outline
def add_nodes(
    bound: NDArray[np.float64],
    start: float,
    after: float,
    until: float,
    heap: NDArray[Any],
    count: int,
) -> int:
    """Add nodes with bounds in (after, until], none before `start`, to a heap of `count` nodes.

    Returns how many it then has.
    """
    for node in range(len(bound)):
        if after < bound[node] <= until:
            heap[count].time = max(bound[node], start)
            heap[count].row = node
            count += 1
    for at in range(count // 2 - 1, -1, -1):
        sift(heap, count, at, heap[at].time, heap[at].row)
    return count


@part
def fit_and_bound(
    profile: RoomProfile,
    node: int,
    start: float,
    wall: float,
    demand: NDArray[np.int64],
    row: int,
    bound: NDArray[np.float64],
    until: float,
) -> float:
    """Return as `first_fit` does; if the node's bound is `start`, raise it, to `until` at the most.

    It becomes the time at which the demand first fits there, however shortly.
    """
    if bound[node] < start:
        return first_fit(profile, node, start, wall, demand, row)
    fit = first_fit(profile, node, start, 0.0, demand, row)
    bound[node] = min(fit, until)
    return first_fit(profile, node, fit, wall, demand, row) if fit < np.inf else fit


@outline
def search_start(
    profile: RoomProfile,
    bound: NDArray[np.float64],
    size: int,
    start: float,
    wall: float,
    demand: NDArray[np.int64],
    row: int,
    until: float,
    heap: NDArray[Any],
    picks: NDArray[np.int64],
) -> float:
    """Return when a job can first have `size` nodes for `wall` seconds, from `start` on.

    Parameters
    ----------
    profile : RoomProfile
    bound : float64[m]
        A time before which its demand does not fit on each node, seconds; inf: it may not use it.
        Raised where the search finds that it fits later.
    size : int
        Nodes wanted, at least 1.
    start, wall : float
        Seconds.
    demand : int64[n, r]
        Row `row` is what it takes on each node.
    until : float
        Seconds: by then it will probably start. It decides how long the search takes, and nothing
        else.
    heap : TIMED[m]
        Scratch.
    picks : int64[m]
        Is given the nodes: those that have room first, of these the lowest.

    Returns
    -------
    float
        inf: never.
    """
    count, found, time = add_nodes(bound, start, -np.inf, until, heap, 0), 0, start
    while True:
        while count > 0 and heap[0].time <= time and found < size:
            node = pop(heap, count)
            count -= 1
            fit = fit_and_bound(profile, node, time, wall, demand, row, bound, until)
            if fit <= time:
                picks[found] = node
                found += 1
            elif fit < np.inf:
                push(heap, count, fit, node)
                count += 1
        if found == size:
            return float(time)
        if until < np.inf and (count == 0 or heap[0].time > until):
            count = add_nodes(bound, start, until, LAST, heap, count)
            until = np.inf
        if count == 0:
            return float(np.inf)
        time, still = heap[0].time, 0
        for k in range(found):
            fit = first_fit(profile, picks[k], time, wall, demand, row)
            if fit <= time:
                picks[still] = picks[k]
                still += 1
            elif fit < np.inf:
                push(heap, count, fit, picks[k])
                count += 1
        found = still


@compiled
def first_starts(
    profile: RoomProfile,
    order: Integers,
    ready: Floats,
    latest: Floats,
    otherwise: Floats,
    wall: Floats,
    indptr: Integers,
    nodes: NDArray[np.int32],
    demand: Integers,
    start: Floats,
) -> None:
    """Write when each entry of a plan first finds room on its own nodes, one after the other.

    Parameters
    ----------
    profile : RoomProfile
        What there is; it is changed. With two unused steps for each of `nodes` and each entry.
    order : int64[n]
        The entries in order: none gives way to a later one.
    ready : float64[n]
        From when each may start, seconds.
    latest : float64[n]
        One that finds room by then takes it from its start on ...
    otherwise : float64[n]
        ... any other from here on, whether there is room or not; inf: it takes none.
    wall : float64[n]
        For how long each has its nodes, seconds.
    indptr, nodes
        Entry i has the nodes `nodes[indptr[i]:indptr[i + 1]]`.
    demand : int64[n, r]
        What it takes on each.
    start : float64[n]
        Is given the starts, seconds; inf: never.
    """
    for i in order:
        first, end = indptr[i], indptr[i + 1]
        time, k = ready[i], first
        settled = 0  # nodes in a row that have room from `time` on
        while settled < end - first and time < math.inf:
            fit = first_fit(profile, nodes[k], time, wall[i], demand, i)
            settled = settled + 1 if fit <= time else 1
            time = fit
            k = k + 1 if k + 1 < end else first
            if settled == end - first:
                time = licenses_fit(profile, fit, wall[i], demand, i)
                settled = settled if time <= fit else 0
        start[i] = time
        taken = time if time <= latest[i] else otherwise[i]
        for k in range(first, end):
            occupy(profile, nodes[k], taken, taken + wall[i], demand, i, 1)
        occupy_licenses(profile, taken, taken + wall[i], demand, i, 1)
