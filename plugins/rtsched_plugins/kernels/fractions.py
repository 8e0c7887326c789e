"""The share of each node in every entry of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels import dlt, dlt_variants
from rtsched.kernels.compiling import compiled
from rtsched_plugins.kernels.admission import DIVISIBLE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched_plugins.kernels.admission import Tasks


@compiled
def _in_one_round(tasks: Tasks, i: int, n: int, rounds: int) -> bool:
    """Return whether a divisible task runs fastest in a single round on n nodes."""
    if rounds == 1:
        return True
    cms, cps = tasks.cms[i], tasks.cps[i]
    q, log_beta = dlt.split_ratio(cms, cps)
    work, link, node = tasks.sigma[i] * (cms + cps), tasks.setup_link[i], tasks.setup_node[i]
    return dlt_variants.rounds_time(n, work, q, log_beta, link, node, rounds)[1] == 1


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
            shares[indptr[i] : indptr[i + 1]] = dlt.fractions(
                n,
                tasks.sigma[i],
                tasks.cms[i],
                tasks.cps[i],
                tasks.setup_link[i],
                tasks.setup_node[i],
            )
        else:
            shares[indptr[i] : indptr[i + 1]] = 1.0 / n
    return shares
