"""Sorting in compiled code: stable, so that several keys are sorted by one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels.compiling import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray


@compiled
def stable_order(keys: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the places of keys in ascending order, equal ones in theirs."""
    return np.argsort(keys, kind="mergesort")
