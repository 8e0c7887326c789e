"""The share of each node in every entry of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels import dlt
from rtsched.kernels.compiling import compiled
from rtsched_plugins.kernels.admission import DIVISIBLE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched_plugins.kernels.admission import Tasks


@compiled
def plan_fractions(indptr: NDArray[np.int64], tasks: Tasks) -> NDArray[np.float64]:
    """Return float64[indptr[-1]]: the fraction of its task's work that each node gets.

    Parameters
    ----------
    indptr : int64[n + 1]
        Task i runs on the nodes indptr[i]:indptr[i + 1], in sending order.
    tasks : Tasks
        A divisible task is cut so that all its nodes end together (papers: MCDF, section 1.2); any
        other is shared equally.
    """
    shares = np.empty(indptr[-1])
    for i in range(len(indptr) - 1):
        n = indptr[i + 1] - indptr[i]
        if tasks.kind[i] == DIVISIBLE:
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
