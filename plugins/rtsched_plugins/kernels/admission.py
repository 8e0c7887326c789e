"""Deadline admission by a complete plan (MCDF and its FIFO and EDF baselines): tasks and plans.

A new task passes if a complete plan of all waiting tasks and the new one can be built in which
none ends late; that plan then replaces the old one. This module holds the data types;
`admission_fast` has the test, event by event. Tests compare it with the test as the source states
it, which recomputes everything at every instant.

Four kinds of task share the test. A *rigid* task runs `wall` seconds on `size` nodes. A
*moldable* one runs wall (size/n)^efficiency seconds on n nodes. A *divisible* one is a load of
`sigma` data units (`rtsched.kernels.dlt`). An *array* runs ceil(sigma/n) rounds of `wall` seconds
on n nodes. Times are float64 seconds relative to a common instant near now: on epoch seconds the
tolerance would forgive more than a second.

References
----------
Lin, Lu, Deogun, Goddard, 2005: Real-Time Divisible Load Scheduling for Cluster Computing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from rtsched.kernels.compiling import compiled
from rtsched.kernels.loads import Load

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Integers: TypeAlias = NDArray[np.int64]

RIGID, MOLDABLE, DIVISIBLE, ARRAY = 0, 1, 2, 3
"""Kinds of task."""

BY_COST, BY_ARRIVAL, BY_DEADLINE = 0, 1, 2
"""Orders: cost derivative (MCDF, later ones may overtake), FIFO and EDF (nobody overtakes)."""

LEAST_NODES, FASTEST_NODES = 0, 1
"""Node rules: MN, the fewest nodes that meet the deadline; AN, the count that is fastest."""

ANY_SIZE: int = 2**31 - 1
"""A `size_max` that sets no bound."""


class Tasks(NamedTuple):
    """Waiting and new tasks as a structure of arrays, all of length n."""

    arrival: Floats
    """Seconds; <= 0 for those that wait."""
    rank: Integers
    """Breaks ties after `arrival`: the order of the job ids."""
    deadline: Floats
    """Seconds, +inf where there is none."""
    kind: NDArray[np.int8]
    """RIGID, MOLDABLE, DIVISIBLE or ARRAY."""
    size: NDArray[np.int32]
    """Nodes asked for, n0 (of rigid and moldable tasks)."""
    size_min: NDArray[np.int32]
    """Fewest nodes (unused where rigid)."""
    size_max: NDArray[np.int32]
    """Most nodes (unused where rigid)."""
    wall: Floats
    """Seconds on `size` nodes, of an array seconds of one round (unused where divisible)."""
    sigma: Floats
    """Data units, > 0 where divisible; of an array its rounds on one node, > 0."""
    cms: Floats
    """Seconds to send one unit; cms + cps > 0 where divisible."""
    cps: Floats
    """Seconds to compute one unit."""
    setup_link: Floats
    """Seconds to set up one transmission."""
    setup_node: Floats
    """Seconds to set up one computation."""
    rounds: NDArray[np.int32]
    """Most rounds in which it takes its load, >= 1 (unused unless divisible)."""
    setup_once: Floats
    """Seconds of `setup_node` that pass once, whatever the number of rounds."""


KINDS: dict[str, type[np.number[Any]]] = dict.fromkeys(Tasks._fields, np.float64) | {
    "rank": np.int64,
    "kind": np.int8,
    "size": np.int32,
    "size_min": np.int32,
    "size_max": np.int32,
    "rounds": np.int32,
}
"""Element type of each column of `Tasks`."""


@compiled
def load_at(tasks: Tasks, i: int) -> Load:
    """Return the load of divisible task i."""
    link, node = tasks.setup_link[i], tasks.setup_node[i]
    return Load(tasks.sigma[i], tasks.cms[i], tasks.cps[i], link, node)


def joined(first: Tasks, second: Tasks) -> Tasks:
    """Return the tasks of both, the first ones first."""
    pairs: zip[tuple[Any, Any]] = zip(first, second, strict=True)
    columns: list[NDArray[Any]] = [np.concatenate(pair) for pair in pairs]
    return Tasks(*columns)


def uniform(tasks: Tasks) -> Tasks:
    """Return `tasks` as contiguous, writable arrays: numba compiles for each other mixture anew."""
    columns: list[NDArray[Any]] = list(tasks)
    for k, kind in enumerate(KINDS.values()):
        if columns[k].dtype != kind or not columns[k].flags.carray:
            columns[k] = np.require(columns[k], kind, ("C", "W"))
    return Tasks(*columns)


class Plan(NamedTuple):
    """The outcome of one admission test; per-task arrays are empty if it failed."""

    accepted: bool
    failed: int
    """Index of the first task (by arrival, rank) that cannot be kept, -1 if accepted."""
    failed_at: float
    """Seconds: the instant of the plan at which that shows, nan if accepted."""
    start: Floats
    """float64[n], seconds."""
    end: Floats
    """float64[n], seconds, <= deadline but for rounding."""
    size: NDArray[np.int32]
    """int32[n], nodes given."""
    position: Integers
    """int64[n], place of each task in the order in which the test placed them."""
    indptr: Integers
    """int64[n + 1]: task i gets nodes[indptr[i]:indptr[i + 1]]."""
    nodes: NDArray[np.int32]
    """Node indices, ascending within a task; empty if they were not asked for."""
    node_start: Floats = np.empty(0)
    """float64[k], seconds, row by row with `nodes`: since when it is taken; empty: `start`."""


def rejection(failed: int, failed_at: float) -> Plan:
    """Return the plan that says which task cannot be kept, and when that shows."""
    none, counts = np.empty(0), np.empty(0, np.int64)
    few = np.empty(0, np.int32)
    return Plan(False, failed, failed_at, none, none, few, counts, np.zeros(1, np.int64), few)


def task_table(n: int, **columns: ArrayLike) -> Tasks:
    """Return `n` tasks; a column may be a scalar, and one left out says nothing special.

    Defaults: rigid, one node, no work, no deadline, arrived at 0, ranked by index, any size, as
    many rounds as the test allows.
    """
    values: dict[str, ArrayLike] = dict.fromkeys(Tasks._fields, 0.0)
    values |= {"rank": np.arange(n), "deadline": np.inf, "sigma": 1.0, "cps": 1.0}
    values |= {"kind": RIGID, "size": 1, "size_min": 1, "size_max": ANY_SIZE}
    values["rounds"] = ANY_SIZE
    values |= columns
    return Tasks(
        *(np.array(np.broadcast_to(values[name], n), KINDS[name]) for name in Tasks._fields)
    )
