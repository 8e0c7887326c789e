"""Divisible-load arithmetic: how one load is cut over many nodes, and how long it then takes.

A head node sends chunk 1, then chunk 2, ... of one load to `n` nodes; each node computes its
chunk once it has all of it, and the fractions are such that all nodes end together. Everything
here is per task and knows no clock: times are float64 seconds (any common unit will do).

Symbols of the source: sigma, cms, cps and the set-up times ST and SC (`loads.Load`);
q = cms/(cms + cps), beta = 1 - q and work = sigma (cms + cps) (`loads.LoadChain`).

References
----------
Lin, Lu, Deogun, Goddard, 2005: Real-Time Divisible Load Scheduling for Cluster Computing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from rtsched.kernels.compiling import compiled
from rtsched.kernels.loads import Load, LoadChain

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]

TOLERANCE: float = 1e-9
"""Relative and absolute slack of every comparison of a time with a deadline."""

LEAST_GAIN: float = 2.5e-13
"""A relative gain in E(n) below this is rounding: a further node is not worth having."""

SERIES_BELOW: float = 1e-2
"""Below this n q the set-up term is summed as a series (its closed form cancels)."""


@compiled
def at_most(a: float, b: float) -> bool:
    """Return whether a <= b but for rounding: a <= b + 1e-9 max(1, |a|, |b|).

    What never ends (an infinite a) is within no finite b.
    """
    return a <= b or (a < math.inf and a <= b + TOLERANCE * max(1.0, abs(a), abs(b)))


@compiled
def split_ratio(cms: float, cps: float) -> tuple[float, float]:
    """Return q = cms/(cms + cps) and ln beta = ln(1 - q), which is -inf where cps = 0."""
    q = cms / (cms + cps)
    if cps == 0.0:
        return q, -math.inf
    return q, math.log1p(-q)


@compiled
def chain_factors(n: int, q: float, log_beta: float) -> tuple[float, float]:
    """Return (b, s) with B(n) = b + phi s, the first fraction, and E = ST + SC + work b + ST s.

    With x = 1 - beta^n they are b = q/x and s = n/x - 1/q, evaluated through expm1 so that they
    hold for beta near 1 too; q = 0 and q = 1 are their limits.
    """
    if q == 0.0:
        return 1.0 / n, (n - 1) / 2.0
    x = -math.expm1(n * log_beta)
    if n * q >= SERIES_BELOW:
        return q / x, (n * q - x) / (x * q)
    term = n * (n - 1) / 2.0 * q * q
    gap = 0.0  # n q - x = C(n,2) q^2 - C(n,3) q^3 + ...
    for k in range(2, 9):
        gap += term
        term *= -(n - k) * q / (k + 1)
    return q / x, gap / (x * q)


@compiled
def chain_of(load: Load) -> LoadChain:
    """Return what E(n) of a load is computed from, which a caller may keep."""
    q, log_beta = split_ratio(load.cms, load.cps)
    work = load.sigma * (load.cms + load.cps)
    return LoadChain(work, q, log_beta, load.setup_link, load.setup_node)


@compiled
def chain_time(n: int, chain: LoadChain) -> float:
    """Return E(n) of a load's chain (see `exec_time`)."""
    b, s = chain_factors(n, chain.q, chain.log_beta)
    return chain.setup_link + chain.setup_node + chain.work * b + chain.setup_link * s


@compiled
def chain_derivative(n: int, chain: LoadChain) -> float:
    """Return DC = W(n + 1) - W(n) with W(n) = n E(n), even where n + 1 nodes would not be used.

    With q = 0 the work cancels, exactly: loads without send time must tie in an order by cost.
    """
    if chain.q == 0.0:
        return chain.setup_link + chain.setup_node + chain.setup_link * n
    return (n + 1) * chain_time(n + 1, chain) - n * chain_time(n, chain)


@compiled
def exec_time(n: int, load: Load) -> float:
    """Return E(n), the time from the first transmission to the common end on `n` nodes.

    E(n) = ST + SC + sigma (cms + cps) B(n) with B(n) the first fraction. Beyond
    `fastest_count` the value is that of the formula, whose last fractions are not positive.
    """
    return chain_time(n, chain_of(load))


@compiled
def fastest_of(limit: int, chain: LoadChain) -> int:
    """Return n* in 1..limit of a load's chain (see `fastest_count`)."""
    low, high = 1, limit  # E still falls at low, no longer at high + 1
    n = limit
    while low < high:
        here = chain_time(n, chain)
        before = chain_time(n - 1, chain)
        if here < before * (1.0 - LEAST_GAIN):
            low = n
        else:
            high = n - 1
        n = (low + high + 1) // 2
    return low


@compiled
def fastest_count(limit: int, load: Load) -> int:
    """Return n* <= limit: the largest n with a positive last fraction, where E is least.

    E falls up to n* and rises after it (T5.2), so the search is a bisection. Without set-up
    time E falls for ever; the count where a further node gains less than rounding is taken.
    """
    return fastest_of(limit, chain_of(load))


@compiled
def slack_floor(load: Load) -> float:
    """Return what the slack must exceed for any number of nodes to do.

    Without set-up of transmissions E(n) stays above sigma cms, so gamma = 1 - sigma cms/slack
    must be positive whatever the tolerance says; otherwise the slack need only be positive.
    """
    if load.setup_link == 0.0 and load.cps > 0.0:
        return load.setup_node + load.sigma * load.cms
    return 0.0


@compiled
def least_count(slack: float, limit: int, load: Load, low: int = 1) -> int:
    """Return n_min, the smallest n in low..min(limit, n*) with E(n) <= slack.

    Parameters
    ----------
    slack : float
        Seconds left until the deadline.
    limit : int
        Most nodes there are.
    low : int
        Fewest nodes allowed.

    Returns
    -------
    int
        0 where no such count exists.

    References
    ----------
    Section 4.2 of the source, with E(n) <= slack read as `at_most`.
    """
    if slack <= slack_floor(load):
        return 0
    chain = chain_of(load)
    high = fastest_of(limit, chain)
    if high < low or not at_most(chain_time(high, chain), slack):
        return 0
    while low < high:
        middle = (low + high) // 2
        if at_most(chain_time(middle, chain), slack):
            high = middle
        else:
            low = middle + 1
    return low


@compiled
def fractions(n: int, load: Load) -> Floats:
    """Return float64[n]: each node's fraction in sending order; the sum is 1.

    alpha_1 = B(n), alpha_{j+1} = beta alpha_j - phi with phi = ST/(sigma (cms + cps)).
    All are positive exactly when n <= n*; `setup_node` only shifts the common end.
    """
    chain = chain_of(load)
    alpha = np.empty(n)
    b, s = chain_factors(n, chain.q, chain.log_beta)
    alpha[0] = b + chain.setup_link / chain.work * s
    for j in range(1, n):
        alpha[j] = (1.0 - chain.q) * alpha[j - 1] - chain.setup_link / chain.work
    return alpha
