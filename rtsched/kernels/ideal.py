"""Ideal service: what shares entitle to, and how the error of service builds up.

    error = service received - ideal service        d error = (served - rate) dt

The ideal rates fill a capacity like water: each gets rate = level x share, but no more than it can
use (its cap); what one cannot use raises the level for the others. Without caps this is
capacity x share / sum of shares. With a half-life h past errors fade by 2^(-t/h); errors that add
up to 0 go on doing so.

References
----------
Lopez and Raja: A dynamic error based fair scheduling algorithm for a computational grid, equation
2, for one server and a fixed set; the capacity of several servers and the caps are our
generalisation.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rtsched.kernels.compiling import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[Any]
    """float64, or objects: fractions (`plain(fill)`)."""


@compiled
def fill(capacity: Any, share: Numbers, cap: Numbers, rate: Numbers) -> None:
    """Fill in the ideal rates: proportional to shares, none above its cap.

    Parameters
    ----------
    capacity : number
        What is handed out, >= 0.
    share : float64[n]
        Shares, > 0.
    cap : float64[n]
        What each can use, >= 0.
    rate : float64[n]
        Filled in. The rates add up to the lesser of `capacity` and the sum of the caps.

    Notes
    -----
    Who is capped at a level is capped at any higher one, so each round caps all it can. One who is
    alone gets exactly the capacity, without rounding.
    """
    n = len(share)
    rate[:] = -1
    while True:
        left, total = capacity, share[:0].sum()
        for i in range(n):
            if rate[i] < 0:
                total += share[i]
            else:
                left -= rate[i]
        if not total > 0:
            return
        capped = False
        for i in range(n):
            if rate[i] < 0 and cap[i] * total <= left * share[i]:
                rate[i] = cap[i]
                capped = True
        if not capped:
            break
    for i in range(n):
        if rate[i] < 0:
            rate[i] = left * (share[i] / total)


@compiled
def kept(span: float, half_life: float) -> float:
    """Return the part of an error that is left after `span` seconds; a half-life of 0: all."""
    return float(2.0 ** (-span / half_life)) if half_life > 0.0 else 1.0


@compiled
def weight(span: float, half_life: float) -> float:
    """Return what a rate of 1 leaves after `span` seconds, in seconds."""
    if half_life > 0.0:
        fading = math.log(2.0) / half_life
        return float(-math.expm1(-span * fading) / fading)
    return span
