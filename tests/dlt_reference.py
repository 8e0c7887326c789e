"""Rules of divisible loads that kernels do by other steps: what tests compare these with."""

import math
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rtsched.kernels.dlt import (
    at_most,
    chain_derivative,
    chain_of,
    chain_time,
    common_end,
    exec_time,
    fastest_of,
    slack_floor,
    unequal_fractions,
)
from rtsched.kernels.loads import Load

Floats: TypeAlias = NDArray[np.float64]


def cost(n: int, load: Load) -> float:
    """Return W(n) = n E(n) in node-seconds; it rises in n."""
    return n * exec_time(n, load)


def cost_derivative(n: int, load: Load) -> float:
    """Return DC = W(n + 1) - W(n), by formula even where n + 1 nodes would not be used."""
    return chain_derivative(n, chain_of(load))


def worthwhile_nodes(
    sigma: float, cms: Floats, cps: Floats, setup_link: Floats, setup_node: Floats
) -> NDArray[np.intp]:
    """Return the indices of the nodes that get a positive fraction, in sending order.

    Nodes with a fraction <= 0 are dropped, the last such first, until none is left.
    """
    kept = np.arange(len(cms))
    while len(kept) > 1:
        alpha, _ = unequal_fractions(
            sigma, cms[kept], cps[kept], setup_link[kept], setup_node[kept]
        )
        useless = np.flatnonzero(alpha <= 0.0)
        if not len(useless):
            break
        kept = np.delete(kept, useless[-1])
    return kept


def least_prefix(
    slack: float,
    sigma: float,
    cms: Floats,
    cps: Floats,
    setup_link: Floats,
    setup_node: Floats,
) -> int:
    """Return n_min of unequal nodes: the shortest prefix that ends within `slack`, or 0.

    Only prefixes whose fractions are all positive count.
    """
    for n in range(1, len(cms) + 1):
        alpha, end = unequal_fractions(sigma, cms[:n], cps[:n], setup_link[:n], setup_node[:n])
        if (alpha > 0.0).all() and at_most(end, slack):
            return n
    return 0


class Staggered(NamedTuple):
    """A load on nodes that become free at different times."""

    end: float
    """Common end, seconds, on the clock of the release times."""
    alpha: Floats
    """float64[n], fractions of the first n nodes, each > 0."""
    send: Floats
    """float64[n], when each node's transmission starts."""


def staggered(release: Floats, load: Load) -> Staggered:
    """Return the earliest common end when early nodes start early (inserted idle times).

    Parameters
    ----------
    release : float64[N]
        When each node becomes free, ascending, seconds.

    Notes
    -----
    Node j is sent its chunk from s_j = max(r_j, s_{j-1} + ST + alpha_{j-1} sigma cms) on, and
    alpha_j = (C - s_j - ST - SC)/(sigma (cms + cps)). The sum of the fractions rises with the
    end C, so C is bisected for each prefix of the nodes, and the least valid one is kept.
    """
    best = Staggered(math.inf, np.empty(0), np.empty(0))
    for n in range(1, len(release) + 1):
        if release[n - 1] >= best.end:
            break
        end, alpha, send = common_end(release[:n], load)
        if end < best.end and (alpha > 0.0).all():
            best = Staggered(end, alpha, send)
    return best


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
