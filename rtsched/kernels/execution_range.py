"""Between which execution times a divisible load can be run, for many loads at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels.compiling import compiled
from rtsched.kernels.dlt import chain_of, chain_time, fastest_of
from rtsched.kernels.loads import Load, Loads

if TYPE_CHECKING:
    from numpy.typing import NDArray


@compiled
def execution_ranges(
    low: NDArray[np.int64], high: NDArray[np.int64], loads: Loads
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (float64[n], float64[n]): the least and the greatest execution time, seconds.

    The least is E(n*) with n* <= `high` the fastest count, the greatest E(`low`).

    Parameters
    ----------
    low, high : int64[n]
        Fewest and most nodes of each load, 1 <= low <= high.
    loads : Loads
        Contiguous arrays.
    """
    sigma, cms, cps, setup_link, setup_node = loads
    n = len(sigma)
    least, most = np.empty(n), np.empty(n)
    for i in range(n):
        chain = chain_of(Load(sigma[i], cms[i], cps[i], setup_link[i], setup_node[i]))
        fastest = max(fastest_of(high[i], chain), low[i])
        least[i], most[i] = chain_time(fastest, chain), chain_time(low[i], chain)
    return least, most
