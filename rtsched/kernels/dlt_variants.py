"""Divisible loads beyond equal nodes that start together in one round.

Unequal nodes and links (a single-level tree), nodes that become free at different times
(inserted idle times used), and several rounds of transmissions. Symbols are those of `dlt`.

References
----------
Bharadwaj, Ghose, Robertazzi, 2003: Divisible Load Theory (unequal nodes); Lin, Lu, Deogun,
Goddard, 2007 (inserted idle times); Yang, Casanova, 2003: UMR (several rounds).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from rtsched.kernels.compiling import compiled
from rtsched.kernels.dlt import TOLERANCE, at_most

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]


@compiled
def unequal_fractions(
    sigma: float, cms: Floats, cps: Floats, setup_link: Floats, setup_node: Floats
) -> tuple[Floats, float]:
    """Return the fractions and the common end of a tree of unequal nodes and links.

    Parameters
    ----------
    cms, cps, setup_link, setup_node : float64[n]
        Per node, in sending order. Without set-up the best order is by increasing cms.

    Returns
    -------
    alpha : float64[n]
        May be <= 0: such a node should be dropped (see `worthwhile_nodes`).
    end : float
        Seconds after the first transmission began.

    Notes
    -----
    alpha_{j+1} sigma (cms_{j+1} + cps_{j+1}) =
    alpha_j sigma cps_j + SC_j - SC_{j+1} - ST_{j+1}, solved as alpha_j = u_j alpha_1 + v_j.
    """
    n = len(cms)
    u = np.ones(n)
    v = np.zeros(n)
    for j in range(1, n):
        whole = sigma * (cms[j] + cps[j])
        u[j] = u[j - 1] * sigma * cps[j - 1] / whole
        shift = setup_node[j - 1] - setup_node[j] - setup_link[j]
        v[j] = (v[j - 1] * sigma * cps[j - 1] + shift) / whole
    first = (1.0 - v.sum()) / u.sum()
    end = setup_link[0] + setup_node[0] + first * sigma * (cms[0] + cps[0])
    return u * first + v, end


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


@compiled
def _fill_until(
    end: float,
    release: Floats,
    sigma: float,
    cms: float,
    cps: float,
    setup_link: float,
    setup_node: float,
    alpha: Floats,
    send: Floats,
) -> float:
    """Write the fractions and send starts that end at `end`; return the fractions' sum."""
    total = 0.0
    for j in range(len(release)):
        start = release[j]
        if j > 0:
            start = max(start, send[j - 1] + setup_link + alpha[j - 1] * sigma * cms)
        send[j] = start
        alpha[j] = (end - start - setup_link - setup_node) / (sigma * (cms + cps))
        total += alpha[j]
    return total


@compiled
def _common_end(
    release: Floats, sigma: float, cms: float, cps: float, setup_link: float, setup_node: float
) -> tuple[float, Floats, Floats]:
    """Return the common end, fractions and send starts when every node of `release` is used."""
    n = len(release)
    alpha = np.empty(n)
    send = np.empty(n)
    low = release[0]
    span = sigma * (cms + cps) + n * setup_link + setup_node
    high = release[n - 1] + span
    for _ in range(200):
        end = 0.5 * (low + high)
        if end <= low or end >= high:
            break
        if _fill_until(end, release, sigma, cms, cps, setup_link, setup_node, alpha, send) < 1.0:
            low = end
        else:
            high = end
    total = _fill_until(high, release, sigma, cms, cps, setup_link, setup_node, alpha, send)
    return high, alpha / total, send


class Staggered(NamedTuple):
    """A load on nodes that become free at different times."""

    end: float
    """Common end, seconds, on the clock of the release times."""
    alpha: Floats
    """float64[n], fractions of the first n nodes, each > 0."""
    send: Floats
    """float64[n], when each node's transmission starts."""


def staggered(
    release: Floats,
    sigma: float,
    cms: float,
    cps: float,
    setup_link: float = 0.0,
    setup_node: float = 0.0,
) -> Staggered:
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
        end, alpha, send = _common_end(release[:n], sigma, cms, cps, setup_link, setup_node)
        if end < best.end and (alpha > 0.0).all():
            best = Staggered(end, alpha, send)
    return best


class Rounds(NamedTuple):
    """A load sent in several rounds."""

    chunk: Floats
    """float64[M], data units that each node gets in each round."""
    makespan: float
    """Seconds from the first transmission to the last node's end."""
    valid: bool
    """Whether all chunks are positive and none shrinks; else the makespan does not hold."""


def multi_round(
    rounds: int,
    n: int,
    sigma: float,
    cms: float,
    cps: float,
    setup_link: float = 0.0,
    setup_node: float = 0.0,
) -> Rounds:
    """Return the uniform multi-round (UMR) chunks on `n` equal nodes, without gaps in sending.

    n (ST + c_{j+1} cms) = SC + c_j cps and n sum c_j = sigma, solved as c_j = u_j c_0 + v_j;
    the makespan is n (ST + c_0 cms) + M SC + (sigma/n) cps. Needs cms > 0 for M > 1.
    """
    u = np.ones(rounds)
    v = np.zeros(rounds)
    for j in range(1, rounds):
        u[j] = u[j - 1] * cps / (n * cms)
        v[j] = (v[j - 1] * cps + setup_node - n * setup_link) / (n * cms)
    chunk = u * ((sigma / n - v.sum()) / u.sum()) + v
    makespan = n * (setup_link + chunk[0] * cms) + rounds * setup_node + sigma / n * cps
    grows = bool((np.diff(chunk) >= -TOLERANCE * np.abs(chunk[1:])).all())
    return Rounds(chunk, float(makespan), grows and bool((chunk > 0.0).all()))


def best_rounds(
    most: int,
    n: int,
    sigma: float,
    cms: float,
    cps: float,
    setup_link: float = 0.0,
    setup_node: float = 0.0,
) -> Rounds:
    """Return the valid plan of 1..`most` rounds with the least makespan (ties: fewest rounds)."""
    best = multi_round(1, n, sigma, cms, cps, setup_link, setup_node)
    for count in range(2, most + 1 if cms > 0.0 else 2):
        plan = multi_round(count, n, sigma, cms, cps, setup_link, setup_node)
        if plan.valid and plan.makespan < best.makespan:
            best = plan
    return best
