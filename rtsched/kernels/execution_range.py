"""Between which execution times a divisible load can be run, for many loads at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels.compiling import compiled
from rtsched.kernels.dlt import exec_time, fastest_count

if TYPE_CHECKING:
    from numpy.typing import NDArray


@compiled
def execution_ranges(
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    sigma: NDArray[np.float64],
    cms: NDArray[np.float64],
    cps: NDArray[np.float64],
    setup_link: NDArray[np.float64],
    setup_node: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (float64[n], float64[n]): the least and the greatest execution time, seconds.

    The least is E(n*) with n* <= `high` the fastest count, the greatest E(`low`).

    Parameters
    ----------
    low, high : int64[n]
        Fewest and most nodes of each load, 1 <= low <= high.
    sigma, cms, cps, setup_link, setup_node : float64[n]
        See `rtsched.kernels.dlt`.
    """
    n = len(sigma)
    least, most = np.empty(n), np.empty(n)
    for i in range(n):
        fastest = fastest_count(high[i], sigma[i], cms[i], cps[i], setup_link[i], setup_node[i])
        fastest = max(fastest, low[i])
        least[i] = exec_time(fastest, sigma[i], cms[i], cps[i], setup_link[i], setup_node[i])
        most[i] = exec_time(low[i], sigma[i], cms[i], cps[i], setup_link[i], setup_node[i])
    return least, most
