"""Plans on nodes that jobs share: who gets which nodes when, by the resources that are left.

Tasks are placed one after the other, each at its earliest start beside those before it. Nodes
count as equal but for what they have; a task runs as long as in the test on whole nodes
(`admission_rows`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from rtsched.kernels.compiling import compiled
from rtsched.kernels.machine import TIMED
from rtsched.kernels.room import (
    RoomProfile,
    empty_profile,
    fill_room,
    first_fit,
    licenses_fit,
    occupy,
    occupy_licenses,
    search_start,
)
from rtsched_plugins.kernels.admission import (
    BY_LAXITY,
    DEADLINE,
    HIGH,
    LOW,
    Rows,
    derivative_of,
    exec_of,
    least_size,
    meets,
)
from rtsched_plugins.kernels.admission_in_orders import key_of, thrifty_count

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.api import Ragged

    Floats: TypeAlias = NDArray[np.float64]
    Integers: TypeAlias = NDArray[np.int64]

ROUNDING = 1e-6
"""Seconds by which tasks may overlap that stay: epoch seconds are exact to a quarter of that."""
FEWEST = -1.0
"""The generosity of plans in which each task has the fewest nodes with which it is in time."""
FULL = -2
"""Returned by `place_tasks` if the profile's store has too few steps."""


class Chains(NamedTuple):
    """What `n` tasks wait for, `k` times one of their own number."""

    ready: Floats
    """float64[n], seconds: none starts before."""
    indptr: Integers
    """int64[n + 1]: the links of those that wait for task i are `indptr[i]` to `indptr[i + 1]`."""
    after: Integers
    """int64[k]: who waits."""
    lag: Floats
    """float64[k]: seconds after that ..."""
    at_start: NDArray[np.bool_]
    """bool[k]: ... for the start, and else for the end."""


def unchained(count: int) -> Chains:
    """Return that tasks wait for nobody."""
    nobody = np.zeros(0, np.int64)
    ready = np.full(count, -np.inf)
    return Chains(ready, np.zeros(count + 1, np.int64), nobody, np.zeros(0), np.zeros(0, np.bool_))


class TaskRequests(NamedTuple):
    """What `n` tasks ask for."""

    rows: Rows
    """How long each runs on how many nodes, and until when."""
    demand: Integers
    """int64[n, r]: what it takes on each node, licences once."""
    class_of: Integers
    """int64[n]: its row of `bounds`."""
    bounds: Floats
    """float64[c, m]: before that no task of a class fits on a node; inf: it may not use it."""
    generosity: float
    """Further nodes may cost this fraction of node-seconds more; `FEWEST`: there are none."""
    chains: Chains
    """What they wait for."""


class Places(NamedTuple):
    """Where `n` tasks are planned so far."""

    start: Floats
    """float64[n], seconds; nan: nowhere."""
    end: Floats
    """float64[n], seconds."""
    indptr: Integers
    """int64[n + 1]: task i has the nodes `nodes[indptr[i]:indptr[i + 1]]`."""
    nodes: NDArray[np.int32]
    """int32[k]."""


def nowhere(count: int) -> Places:
    """Return the places of tasks that are not planned yet."""
    times = np.full(count, np.nan)
    return Places(times, times, np.zeros(count + 1, np.int64), np.empty(0, np.int32))


class Scratch(NamedTuple):
    """What searches of starts write to, for `m` nodes and `c` classes."""

    heap: NDArray[Any]
    """TIMED[m]."""
    picks: Integers
    """int64[m]: the nodes found."""
    bounds: Floats
    """float64[c, m]: those of the requests, raised as a plan grows."""
    reach: Floats
    """float64[c]: how far the last search for a class went, seconds; nan: there was none."""


def scratch_for(requests: TaskRequests) -> Scratch:
    """Return scratch for one plan of such tasks."""
    classes, nodes = requests.bounds.shape
    heap, picks = np.zeros(nodes + 1, TIMED), np.empty(nodes, np.int64)
    return Scratch(heap, picks, np.empty((classes, nodes)), np.full(classes, np.nan))


class Placed(NamedTuple):
    """What `place_tasks` found, in the order in which the tasks were placed."""

    failed: int
    """The task that cannot be in time, -1: all are; `FULL`: the store is too small."""
    start: Floats
    """float64[k], seconds."""
    end: Floats
    """float64[k], seconds."""
    size: Integers
    """int64[k]: nodes of each."""
    nodes: NDArray[np.int32]
    """Theirs, one task after the other."""


@compiled
def in_node_order(profile: RoomProfile, ordered: RoomProfile) -> None:
    """Copy a profile into another of its size, each node's steps one after the other.

    They are then read in the order in which they are in memory, which is several times as fast.
    """
    at = 0
    for node in range(len(profile.first)):
        ordered.first[node] = at
        step = profile.first[node]
        while step >= 0:
            ordered.time[at] = profile.time[step]
            ordered.room[at, :] = profile.room[step]
            step = profile.after[step]
            at += 1
            ordered.after[at - 1] = at if step >= 0 else -1
    ordered.unused[0], ordered.unused[1] = -1, at


@compiled
def first_times(
    profile: RoomProfile, demand: Integers, row: int, now: float, bound: Floats
) -> None:
    """Write when a demand first fits on each node, however shortly; those at inf stay so."""
    for node in range(len(bound)):
        if bound[node] < math.inf:
            bound[node] = first_fit(profile, node, now, 0.0, demand, row)


@compiled
def begin_search(requests: TaskRequests, i: int, now: float, scratch: Scratch) -> None:
    """Set the bounds of task i's class, unless they are set: none of its tasks starts before."""
    which = requests.class_of[i]
    if math.isnan(scratch.reach[which]):
        scratch.bounds[which, :] = np.maximum(requests.bounds[which], now)
        scratch.reach[which] = now


@compiled
def start_of(
    profile: RoomProfile, requests: TaskRequests, i: int, n: int, now: float, scratch: Scratch
) -> float:
    """Return the earliest start of task i on n nodes, inf if there is none; they are in `picks`."""
    begin_search(requests, i, now, scratch)
    which = requests.class_of[i]
    wall = exec_of(requests.rows, i, n)
    start, free = -math.inf, now
    while start < free:
        start = search_start(
            profile,
            scratch.bounds[which],
            n,
            free,
            wall,
            requests.demand,
            i,
            free + 2.0 * max(scratch.reach[which] - now, 0.0),
            scratch.heap,
            scratch.picks,
        )
        free = licenses_fit(profile, start, wall, requests.demand, i)
    if start < math.inf:
        scratch.reach[which] = start
    return start


@compiled
def next_size(n: int, high: int) -> int:
    """Return the size to try after n: an eighth more, and the most before more than that."""
    more = n + 1 + n // 8
    return high if n < high < more else more


@compiled
def more_nodes(
    profile: RoomProfile,
    requests: TaskRequests,
    i: int,
    start: float,
    few: int,
    now: float,
    scratch: Scratch,
) -> tuple[float, int]:
    """Return the start of task i, where `few` nodes do at `start`, and how many it gets.

    As many as it can have by bisection, no later, as long as they cost few more node-seconds; they
    are in `picks`. On more nodes it is shorter, and may fit earlier.
    """
    rows = requests.rows
    if requests.generosity < 0.0 or rows.whole[i, HIGH] <= few:
        return start, few
    most = thrifty_count(rows, i, few, rows.whole[i, HIGH], requests.generosity)
    low, high, n, last, begin = few, most + 1, most, few, start
    while low < n < high:
        last, found = n, math.inf
        if meets(rows, i, n, start):
            found = start_of(profile, requests, i, n, now, scratch)
        if found <= start:
            low, begin = n, found
        else:
            high = n
        n = (low + high) // 2
    if last != low:
        begin = start_of(profile, requests, i, low, now, scratch)
    return begin, low


@compiled
def place(
    profile: RoomProfile, requests: TaskRequests, i: int, now: float, scratch: Scratch
) -> tuple[float, int]:
    """Return the start of task i on the fewest nodes with which it is in time, and their number.

    Sizes are tried from the least that does if the task starts now; more nodes are given as
    `more_nodes` says. 0 nodes: there is no such start.
    """
    rows = requests.rows
    low, high = rows.whole[i, LOW], rows.whole[i, HIGH]
    while low <= high:
        n = least_size(rows, i, low, now)
        if n == 0:
            break
        start = start_of(profile, requests, i, n, now, scratch)
        if start < math.inf and meets(rows, i, n, start):
            return more_nodes(profile, requests, i, start, n, now, scratch)
        low = next_size(n, high)
    return math.inf, 0


@compiled
def soonest(
    profile: RoomProfile, requests: TaskRequests, i: int, now: float, scratch: Scratch
) -> float:
    """Return the earliest end of task i over the sizes tried, seconds; inf: it never fits."""
    rows = requests.rows
    n, high = rows.whole[i, LOW], rows.whole[i, HIGH]
    best = math.inf
    while n <= high:
        best = min(best, start_of(profile, requests, i, n, now, scratch) + exec_of(rows, i, n))
        n = next_size(n, high)
    return best


@compiled
def free_now(profile: RoomProfile, requests: TaskRequests, i: int, now: float) -> int:
    """Return on how many nodes task i would fit now, however shortly."""
    bound, count = requests.bounds[requests.class_of[i]], 0
    for node in range(len(bound)):
        if bound[node] <= now:
            count += first_fit(profile, node, now, 0.0, requests.demand, i) <= now
    return count


@compiled
def cost_derivatives(rows: Rows, now: float) -> Floats:
    """Return float64[n]: each task's derivative at the fewest nodes that do if it starts now."""
    found = np.empty(len(rows.real))
    for i in range(len(found)):
        low = rows.whole[i, LOW]
        n = least_size(rows, i, low, now)
        found[i] = derivative_of(rows, i, n if n > 0 else low)
    return found


@compiled
def latest_starts(rows: Rows) -> Floats:
    """Return float64[n]: when each task must start at the latest, on as many nodes as it can."""
    found = np.empty(len(rows.real))
    for i in range(len(found)):
        found[i] = key_of(rows, i, BY_LAXITY)
    return found


@compiled
def may_stay(
    profile: RoomProfile,
    requests: TaskRequests,
    i: int,
    now: float,
    places: Places,
    picks: Integers,
) -> int:
    """Return on how many nodes task i may stay where it is planned; they are in `picks`.

    0: it has no room there, is not planned yet, or would start in the past or end too late.
    """
    start, end = places.start[i], places.end[i]
    if not (now <= start and end <= requests.rows.real[i, DEADLINE] + ROUNDING):
        return 0
    first = places.indptr[i]
    n = int(places.indptr[i + 1] - first)
    wall = end - start - 2.0 * ROUNDING
    for p in range(n):
        node = places.nodes[first + p]
        if not requests.bounds[requests.class_of[i], node] < math.inf:
            return 0
        if first_fit(profile, node, start + ROUNDING, wall, requests.demand, i) > start + ROUNDING:
            return 0
        picks[p] = node
    if licenses_fit(profile, start + ROUNDING, wall, requests.demand, i) > start + ROUNDING:
        return 0
    return n


@compiled
def place_tasks(
    profile: RoomProfile,
    requests: TaskRequests,
    order: Integers,
    now: float,
    scratch: Scratch,
    places: Places,
    in_turn: bool,
) -> Placed:
    """Place tasks in the given order until one cannot be in time.

    Each stays where it is planned, if it may, and has its earliest start otherwise. None starts
    before those that it waits for, where these are placed before it, have ended.

    Parameters
    ----------
    profile : RoomProfile
        What is left; what the tasks take is taken off.
    requests : TaskRequests
    order : int64[k]
        Rows of `requests`.
    now : float
        Seconds: nothing starts before.
    scratch : Scratch
    places : Places
        Of all rows of `requests`.
    in_turn : bool
        Whether no task starts before one that is placed before it.
    """
    count, at = len(order), 0
    start, end, size = np.empty(count), np.empty(count), np.empty(count, np.int64)
    nodes = np.empty(16 + 4 * count, np.int32)
    chains, ready = requests.chains, requests.chains.ready.copy()
    for k in range(count):
        i = order[k]
        first = max(now, ready[i])
        n = may_stay(profile, requests, i, first, places, scratch.picks)
        begin, until = places.start[i], places.end[i]
        if n == 0:
            begin_search(requests, i, now, scratch)
            begin, n = place(profile, requests, i, first, scratch)
            until = begin + exec_of(requests.rows, i, n) if n > 0 else math.inf
        if n == 0:
            return Placed(i, start[:k], end[:k], size[:k], nodes[:at])
        if profile.unused[1] + 2 * (n + 1) > len(profile.after):
            return Placed(FULL, start[:k], end[:k], size[:k], nodes[:at])
        start[k], end[k], size[k] = begin, until, n
        if at + n > len(nodes):
            more = np.empty(2 * (at + n), np.int32)
            more[:at] = nodes[:at]
            nodes = more
        for p in range(n):
            nodes[at + p] = scratch.picks[p]
            occupy(profile, scratch.picks[p], begin, end[k], requests.demand, i, 1)
        occupy_licenses(profile, begin, end[k], requests.demand, i, 1)
        at += n
        for link in range(chains.indptr[i], chains.indptr[i + 1]):
            over = (begin if chains.at_start[link] else until) + chains.lag[link]
            ready[chains.after[link]] = max(ready[chains.after[link]], over)
        if in_turn:
            now = max(now, begin)
    return Placed(-1, start, end, size, nodes[:at])


def left_beside(
    room: NDArray[np.int64],
    start: NDArray[np.float64],
    end: NDArray[np.float64],
    nodes: Ragged,
    demand: NDArray[np.int64],
    now: float,
    licenses: int,
) -> RoomProfile:
    """Return what is left from now on, each node's steps in order of time, with some to spare.

    Parameters
    ----------
    room : int64[m, r]
        What empty nodes have (`room_of`).
    start, end : float64[n]
        From when to when each span takes its demand, seconds.
    nodes : Ragged
        The nodes of each.
    demand : int64[n, r]
        What it takes on each of them.
    now : float
        Seconds.
    licenses : int
        How many kinds of licences there are.
    """
    steps = 3 * len(room) + 2 * (len(nodes.values) + len(start))
    shape = len(room), steps, room.shape[1], licenses
    profile, ordered = empty_profile(*shape), empty_profile(*shape)
    fill_room(profile, room, start, end, nodes.offsets.copy(), nodes.values.copy(), demand, now)
    in_node_order(profile, ordered)
    return ordered


def copied(profile: RoomProfile, more: int) -> RoomProfile:
    """Return a profile of its own with some more steps in its store."""
    used = int(profile.unused[1])
    steps, resources = used + more, profile.room.shape[1]
    copy = empty_profile(len(profile.first), steps, resources, profile.licenses)
    copy.first[:], copy.unused[:] = profile.first, profile.unused
    for name in ("after", "time", "room"):
        getattr(copy, name)[:used] = getattr(profile, name)[:used]
    return copy
