"""Divisible loads as types: one load, several, and a load as its run time reads it.

They have a file of their own as what reads jobs takes them, and is not to load the compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Load(NamedTuple):
    """One divisible load on equal nodes; sigma > 0 and cms + cps > 0.

    Kernels are compiled anew for other types of number, so all five are floats.
    """

    sigma: float
    """Data units."""
    cms: float
    """Seconds to send one unit."""
    cps: float
    """Seconds to compute one unit."""
    setup_link: float = 0.0
    """Seconds to set up one transmission."""
    setup_node: float = 0.0
    """Seconds to set up one computation."""


class Loads(NamedTuple):
    """Several loads as a structure of arrays, float64[n] each."""

    sigma: NDArray[np.float64]
    cms: NDArray[np.float64]
    cps: NDArray[np.float64]
    setup_link: NDArray[np.float64]
    setup_node: NDArray[np.float64]


class LoadChain(NamedTuple):
    """A load as the chain of its transmissions reads it: what E(n) is computed from, for any n."""

    work: float
    """sigma (cms + cps), the seconds on one node without set-up."""
    q: float
    """cms/(cms + cps)."""
    log_beta: float
    """ln(1 - q); -inf where cps = 0."""
    setup_link: float
    setup_node: float
