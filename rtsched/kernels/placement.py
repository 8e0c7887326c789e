"""Which of the nodes that have room for a job it is given, where jobs share nodes.

A rule gives each node a score, and the job is given the nodes of the least scores; of equal ones
those that come first. The rule `FIRST` has no scores: it takes the first nodes that have room.

References
----------
Slurm manual, slurm.conf: SelectTypeParameters, CR_LLN and CR_Pack_Serial_At_End (option
pack_serial_at_end of SchedulerParameters). Weng and others 2023, Beware of fragmentation:
scheduling GPU-sharing workloads with fragmentation gradient descent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.kernels.machine_compiling import outline, part

if TYPE_CHECKING:
    from numpy.typing import NDArray

FIRST, BEST_FIT, LEAST_LOADED, SERIAL_AT_END, FEWEST_STRANDED = range(5)


class Placement(NamedTuple):
    """What scores are worked out from, for `m` nodes and `r` resources, the last being tenancy."""

    capacity: NDArray[np.int64]
    """int64[m, r]: what nodes have; empty with the rule `FIRST`."""
    column: NDArray[np.int64]
    """int64[3]: which resource is cores, memory, GPUs; -1: no node has any."""
    score: NDArray[np.float64]
    """Scratch, float64[m]: of each candidate."""


@part
def filled(
    placement: Placement,
    room: NDArray[np.int64],
    at: int,
    node: int,
    demand: NDArray[np.int64],
    row: int,
) -> float:
    """Return how full a node is with the job, by the fullest of the resources it asks for."""
    most = 0.0
    for resource in range(demand.shape[1] - 1):
        has = placement.capacity[node, resource]
        if demand[row, resource] > 0 and has > 0:
            most = max(most, (has - room[at, resource] + demand[row, resource]) / has)
    return most


@part
def stranded(
    placement: Placement,
    room: NDArray[np.int64],
    at: int,
    node: int,
    demand: NDArray[np.int64],
    row: int,
    times: int,
) -> float:
    """Return how many free GPUs a node has no cores or memory for, once the job took its demand.

    An even share of the node's cores and memory is counted for each GPU. `times` 0: without the
    job.
    """
    gpu = placement.column[2]
    if gpu < 0 or placement.capacity[node, gpu] == 0:
        return 0.0
    has = placement.capacity[node, gpu]
    free = float(room[at, gpu] - times * demand[row, gpu])
    usable = free
    for i in range(2):
        other = placement.column[i]
        if other >= 0 and placement.capacity[node, other] > 0:
            left = room[at, other] - times * demand[row, other]
            usable = min(usable, left / placement.capacity[node, other] * has)
    return free - usable


@part
def score_of(
    placement: Placement,
    rule: int,
    room: NDArray[np.int64],
    at: int,
    node: int,
    demand: NDArray[np.int64],
    row: int,
    size: int,
) -> float:
    """Return the score of a node for a job of `size` nodes; less is better.

    Parameters
    ----------
    placement : Placement
    rule : int
        Not `FIRST`.
    room : int64[p, r]
        Its row `at` is what is left on the node.
    at, node : int
        That row, and the node.
    demand : int64[n, r]
        Its row `row` is what the job takes on each of its nodes.
    row, size : int
        That row, and the job's number of nodes.
    """
    cores = placement.column[0]
    if rule == BEST_FIT:
        return -filled(placement, room, at, node, demand, row)
    if rule == LEAST_LOADED:
        return -float(room[at, cores]) if cores >= 0 else 0.0
    if rule == SERIAL_AT_END:
        serial = size == 1 and cores >= 0 and demand[row, cores] <= 1
        return float(-node if serial else node)
    after = stranded(placement, room, at, node, demand, row, 1)
    return after - stranded(placement, room, at, node, demand, row, 0)


@outline
def pick_best(placement: Placement, count: int, size: int, picks: NDArray[np.int64]) -> None:
    """Keep of the first `count` picks the `size` of the least scores, in the order they have.

    Their scores are in `placement`, and are overwritten.
    """
    score = placement.score
    for _ in range(size):
        best = -1
        for i in range(count):
            if score[i] > -np.inf and (best < 0 or score[i] < score[best]):
                best = i
        score[best] = -np.inf
    found = 0
    for i in range(count):
        if score[i] == -np.inf:
            picks[found] = picks[i]
            found += 1


@outline
def pick_by_room(
    placement: Placement,
    rule: int,
    room: NDArray[np.int64],
    demand: NDArray[np.int64],
    row: int,
    size: int,
    count: int,
    picks: NDArray[np.int64],
) -> None:
    """Keep of the first `count` picks the `size` of the least scores by what is left on them now.

    Only a few arrays are handed over, not the whole machine, which would cost its caller time.
    """
    for i in range(count):
        node = picks[i]
        placement.score[i] = score_of(placement, rule, room, node, node, demand, row, size)
    pick_best(placement, count, size, picks)
