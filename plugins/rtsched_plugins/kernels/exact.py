"""Exact integer arithmetic on arrays: a·b/c where a·b does not fit 64 bits.

A quotient is guessed in floating point and put right by its remainder, which is small and therefore
exact in arithmetic modulo 2^64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.api import ShapeError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

MOST = 1 << 51
"""Totals up to this are exact: the guess is then off by less than 4, its remainder below 2^54."""


def checked(name: str, values: Ints) -> Ints:
    """Return `values` as int64, none of them negative, their sum at most `MOST`.

    Raises
    ------
    ShapeError
        Where one is negative or no whole number, or the sum is too large to be exact.
    """
    given = np.asarray(values)
    whole = given.astype(np.int64)
    if (whole != given).any() or (whole < 0).any():
        raise ShapeError(f"{name} contains a negative or non-integer value")
    if float(whole.sum(dtype=np.float64)) > MOST:
        raise ShapeError(f"{name} adds up to more than 2^51; use larger units")
    return whole


def divided(a: Ints, b: Ints, c: Ints, *, up: bool = False) -> Ints:
    """Return floor(a·b/c), or ceil(a·b/c) with `up`; 0 where c is 0.

    Parameters
    ----------
    a, b, c : int64[...]
        Not negative, at most `MOST`, and so is the result.
    """
    by = np.maximum(c, 1)
    guess = (a.astype(np.float64) * b / by).astype(np.int64)
    with np.errstate(over="ignore"):
        left = a * b - guess * by
    quotient = guess + left // by
    if up:
        quotient += left % by != 0
    return np.where(c == 0, 0, quotient)


def scan(values: Ints) -> Ints:
    """Return the exclusive prefix sums along the last axis, the total at the end: [..., n + 1]."""
    sums = np.zeros((*values.shape[:-1], values.shape[-1] + 1), np.int64)
    np.cumsum(values, axis=-1, out=sums[..., 1:])
    return sums
