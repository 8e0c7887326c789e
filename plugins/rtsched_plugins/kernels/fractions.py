"""The share of each node in every entry of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels import dlt, dlt_variants
from rtsched.kernels.compiling import compiled
from rtsched_plugins.kernels.admission import DIVISIBLE, load_at
from rtsched_plugins.kernels.admission_fit import load_on

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched_plugins.kernels.admission import Tasks


@compiled
def _in_one_round(tasks: Tasks, i: int, n: int, rounds: int) -> bool:
    """Return whether a divisible task runs fastest in a single round on n nodes."""
    if rounds == 1:
        return True
    return dlt_variants.rounds_time(n, dlt.chain_of(load_at(tasks, i)), rounds)[1] == 1


@compiled
def plan_fractions(indptr: NDArray[np.int64], tasks: Tasks, rounds: int = 1) -> NDArray[np.float64]:
    """Return float64[indptr[-1]]: the fraction of its task's work that each node gets.

    Parameters
    ----------
    indptr : int64[n + 1]
        Task i runs on the nodes indptr[i]:indptr[i + 1], in sending order.
    tasks : Tasks
        A divisible task is cut so that all its nodes end together (papers: MCDF, section 1.2), or
        equally where it is sent in several rounds; any other is shared equally.
    rounds : int
        Most rounds.
    """
    shares = np.empty(indptr[-1])
    for i in range(len(indptr) - 1):
        n = indptr[i + 1] - indptr[i]
        if tasks.kind[i] == DIVISIBLE and _in_one_round(tasks, i, n, rounds):
            shares[indptr[i] : indptr[i + 1]] = dlt.fractions(n, load_at(tasks, i))
        else:
            shares[indptr[i] : indptr[i + 1]] = 1.0 / n
    return shares


@compiled
def staggered_fractions(
    indptr: NDArray[np.int64], node_start: NDArray[np.float64], tasks: Tasks
) -> NDArray[np.float64]:
    """Return as `plan_fractions` does, where nodes start a load one after the other.

    `node_start` is float64[indptr[-1]], ascending within a task; see `dlt_variants.common_end`.
    """
    shares = np.empty(indptr[-1])
    for i in range(len(indptr) - 1):
        first, last = indptr[i], indptr[i + 1]
        if tasks.kind[i] == DIVISIBLE:
            _, alpha, _ = dlt_variants.common_end(node_start[first:last], load_at(tasks, i))
            shares[first:last] = alpha
        else:
            shares[first:last] = 1.0 / (last - first)
    return shares


@compiled
def unequal_plan_fractions(
    indptr: NDArray[np.int64],
    nodes: NDArray[np.int32],
    column: NDArray[np.float64],
    tasks: Tasks,
) -> NDArray[np.float64]:
    """Return as `plan_fractions` does, on nodes that differ (`dlt_variants.unequal_fractions`).

    `nodes` are rows of `column`, in sending order within a task; see `admission_fit.Machine`.
    """
    shares = np.empty(indptr[-1])
    for i in range(len(indptr) - 1):
        first, last = indptr[i], indptr[i + 1]
        if tasks.kind[i] != DIVISIBLE:
            shares[first:last] = 1.0 / (last - first)
            continue
        costs = np.empty((4, last - first))
        for k in range(last - first):
            _, cms, cps, link, node = load_on(tasks, i, column, nodes[first + k])
            costs[0, k], costs[1, k], costs[2, k], costs[3, k] = cms, cps, link, node
        alpha, _ = dlt_variants.unequal_fractions(
            tasks.sigma[i], costs[0], costs[1], costs[2], costs[3]
        )
        shares[first:last] = alpha
    return shares
