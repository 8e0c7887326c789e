"""Intervals of shares that were counted."""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]


def wilson(part: ArrayLike, draws: ArrayLike, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Return Wilson's interval of shares of independent draws.

    Parameters
    ----------
    part : float64[n]
        Shares found, 0 to 1.
    draws : float64[n]
        How many draws each stands on, > 0.
    confidence : float
        Odds that an interval holds the truth, above 0 and below 1.

    Returns
    -------
    float64[n], float64[n]
        Lower and upper ends, within 0 and 1.

    References
    ----------
    Wilson, 1927: Probable inference, the law of succession, and statistical inference.
    """
    share = np.asarray(part, np.float64)
    z = NormalDist().inv_cdf((1 + confidence) / 2) ** 2 / np.asarray(draws, np.float64)
    middle = (share + z / 2) / (1 + z)
    half = np.sqrt(share * (1 - share) * z + z * z / 4) / (1 + z)
    return np.maximum(middle - half, 0.0), np.minimum(middle + half, 1.0)
