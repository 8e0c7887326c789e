"""The share of each node in every entry of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.kernels import dlt
from rtsched.kernels.compiling import compiled
from rtsched_plugins.kernels.admission import DIVISIBLE, load_at
from rtsched_plugins.kernels.admission_varied import load_on

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched_plugins.kernels.admission import Plan, Tasks


class Division(NamedTuple):
    """How the work of a plan's tasks is divided."""

    fractions: NDArray[np.float64]
    """float64[k], row by row with the plan's nodes: each node's share of its task's work."""
    rounds: NDArray[np.int32]
    """int32[n]: in how many rounds each of its nodes takes its share."""


def division_of(plan: Plan, tasks: Tasks, most: int) -> Division:
    """Return how the tasks of a plan are divided, with at most so many rounds."""
    rounds = plan_rounds(plan.indptr, tasks, most)
    return Division(plan_fractions(plan.indptr, tasks, rounds), rounds)


@compiled
def plan_rounds(indptr: NDArray[np.int64], tasks: Tasks, most: int) -> NDArray[np.int32]:
    """Return int32[n]: in how many rounds, up to `most`, each task takes its load; 1: all others.

    The number with which it runs fastest on its nodes, as `plan_fractions` counts them.
    """
    rounds = np.ones(len(indptr) - 1, np.int32)
    for i in range(len(rounds)):
        allowed = min(int(tasks.rounds[i]), most)
        if tasks.kind[i] == DIVISIBLE and allowed > 1:
            chain = dlt.chain_of(load_at(tasks, i))
            n, once = indptr[i + 1] - indptr[i], tasks.setup_once[i]
            rounds[i] = dlt.rounds_time(n, chain, allowed, once)[1]
    return rounds


@compiled
def plan_fractions(
    indptr: NDArray[np.int64], tasks: Tasks, rounds: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Return float64[indptr[-1]]: the fraction of its task's work that each node gets.

    Parameters
    ----------
    indptr : int64[n + 1]
        Task i runs on the nodes indptr[i]:indptr[i + 1], in sending order.
    tasks : Tasks
        A divisible task is cut so that all its nodes end together (papers: MCDF, section 1.2), or
        equally where it is sent in several rounds; any other is shared equally.
    rounds : int32[n]
        In how many rounds each takes its load.
    """
    shares = np.empty(indptr[-1])
    for i in range(len(indptr) - 1):
        n = indptr[i + 1] - indptr[i]
        if tasks.kind[i] == DIVISIBLE and rounds[i] == 1:
            shares[indptr[i] : indptr[i + 1]] = dlt.fractions(n, load_at(tasks, i))
        else:
            shares[indptr[i] : indptr[i + 1]] = 1.0 / n
    return shares


@compiled
def staggered_fractions(
    indptr: NDArray[np.int64], node_start: NDArray[np.float64], tasks: Tasks
) -> NDArray[np.float64]:
    """Return as `plan_fractions` does, where nodes start a load one after the other.

    `node_start` is float64[indptr[-1]], ascending within a task; see `dlt.common_end`.
    """
    shares = np.empty(indptr[-1])
    for i in range(len(indptr) - 1):
        first, last = indptr[i], indptr[i + 1]
        if tasks.kind[i] == DIVISIBLE:
            _, alpha, _ = dlt.common_end(node_start[first:last], load_at(tasks, i))
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
    """Return as `plan_fractions` does, on nodes that differ (`dlt.unequal_fractions`).

    `nodes` are rows of `column`, in sending order within a task; see `NodeClasses`.
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
        alpha, _ = dlt.unequal_fractions(tasks.sigma[i], costs[0], costs[1], costs[2], costs[3])
        shares[first:last] = alpha
    return shares
