"""Divisible-load arithmetic: how one load is cut over many nodes, and how long it then takes.

A head node sends chunk 1, then chunk 2, ... of one load to `n` nodes; each node computes its
chunk once it has all of it, and the fractions are such that all nodes end together. Everything
here is per task and knows no clock: times are float64 seconds (any common unit will do).

Symbols of the source: sigma, cms, cps and the set-up times ST and SC (`Load`);
q = cms/(cms + cps), beta = 1 - q and work = sigma (cms + cps) (`LoadChain`).

Beyond equal nodes that start together in one round: unequal nodes and links (a single-level tree),
nodes that become free at different times (inserted idle times used), and several rounds of
transmissions.

References
----------
Lin, Lu, Deogun, Goddard, 2005: Real-Time Divisible Load Scheduling for Cluster Computing; 2007
(inserted idle times). Bharadwaj, Ghose, Robertazzi, 2003: Divisible Load Theory (unequal nodes).
Yang, Casanova, 2003: UMR (several rounds).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from rtsched.kernels.compiling import compiled
from rtsched.kernels.loads import Load, LoadChain, Loads

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
        May be <= 0: such a node should be dropped.
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


@compiled
def _fill_until(end: float, release: Floats, load: Load, alpha: Floats, send: Floats) -> float:
    """Write the fractions and send starts that end at `end`; return the fractions' sum."""
    total = 0.0
    for j in range(len(release)):
        start = release[j]
        if j > 0:
            sent = send[j - 1] + load.setup_link + alpha[j - 1] * load.sigma * load.cms
            start = max(start, sent)
        send[j] = start
        left = end - start - load.setup_link - load.setup_node
        alpha[j] = left / (load.sigma * (load.cms + load.cps))
        total += alpha[j]
    return total


@compiled
def common_end(release: Floats, load: Load) -> tuple[float, Floats, Floats]:
    """Return the common end, fractions and send starts when every node of `release` is used.

    Parameters
    ----------
    release : float64[n]
        When each node becomes free, ascending, seconds.

    Notes
    -----
    Early nodes start early (inserted idle times). Node j is sent its chunk from
    s_j = max(r_j, s_{j-1} + ST + alpha_{j-1} sigma cms) on, and
    alpha_j = (C - s_j - ST - SC)/(sigma (cms + cps)). The sum of the fractions rises with the
    end C, so C is bisected.
    """
    n = len(release)
    alpha = np.empty(n)
    send = np.empty(n)
    low = release[0]
    span = load.sigma * (load.cms + load.cps) + n * load.setup_link + load.setup_node
    high = release[n - 1] + span
    for _ in range(200):
        end = 0.5 * (low + high)
        if end <= low or end >= high:
            break
        if _fill_until(end, release, load, alpha, send) < 1.0:
            low = end
        else:
            high = end
    total = _fill_until(high, release, load, alpha, send)
    return high, alpha / total, send


@compiled
def fewest_until(end: float, release: Floats, load: Load) -> int:
    """Return how many of the nodes free from `release` on, ascending, end by `end`; 0: none do.

    What the first nodes can compute until then does not depend on the others, so one pass adds up
    fractions until they are the whole load.
    """
    work = load.sigma * (load.cms + load.cps)
    total, send = 0.0, -math.inf
    for j in range(len(release)):
        send = max(send, release[j])
        alpha = (end - send - load.setup_link - load.setup_node) / work
        if alpha <= 0.0:
            return 0
        total += alpha
        if total >= 1.0 - 1e-12:
            return j + 1
        send += load.setup_link + alpha * load.sigma * load.cms
    return 0


@compiled
def earliest_end(release: Floats, load: Load) -> tuple[float, int]:
    """Return the earliest common end on nodes free from `release` on, and how many are used.

    By one bisection in which each trial uses as many nodes as get something.
    """
    work = load.sigma * (load.cms + load.cps)
    low, high = release[0], release[0] + work + load.setup_link + load.setup_node
    for _ in range(100):
        end = 0.5 * (low + high)
        if end <= low or end >= high:
            break
        if fewest_until(end, release, load) > 0:
            high = end
        else:
            low = end
    return high, fewest_until(high, release, load)


class Rounds(NamedTuple):
    """A load sent in several rounds."""

    chunk: Floats
    """float64[M], data units that each node gets in each round."""
    makespan: float
    """Seconds from the first transmission to the last node's end."""
    valid: bool
    """Whether all chunks are positive and none shrinks; else the makespan does not hold."""


def multi_round(rounds: int, n: int, load: Load, once: float = 0.0) -> Rounds:
    """Return the uniform multi-round (UMR) chunks on `n` equal nodes, without gaps in sending.

    Of `load.setup_node`, seconds, `once` pass in the last round only; SC is the rest.
    n (ST + c_{j+1} cms) = SC + c_j cps and n sum c_j = sigma, solved as c_j = u_j c_0 + v_j;
    the makespan is n (ST + c_0 cms) + M SC + (sigma/n) cps. Needs cms > 0 for M > 1.
    """
    sigma, cms, cps, setup_link, setup_node = load
    setup_node -= once
    u = np.ones(rounds)
    v = np.zeros(rounds)
    for j in range(1, rounds):
        u[j] = u[j - 1] * cps / (n * cms)
        v[j] = (v[j - 1] * cps + setup_node - n * setup_link) / (n * cms)
    chunk = u * ((sigma / n - v.sum()) / u.sum()) + v
    makespan = n * (setup_link + chunk[0] * cms) + rounds * setup_node + sigma / n * cps + once
    grows = bool((np.diff(chunk) >= -TOLERANCE * np.abs(chunk[1:])).all())
    return Rounds(chunk, float(makespan), grows and bool((chunk > 0.0).all()))


@compiled
def rounds_time(n: int, chain: LoadChain, rounds: int, once: float = 0.0) -> tuple[float, int]:
    """Return the least run time on `n` nodes in at most `rounds` rounds, and how many it takes.

    One round is that of `dlt.chain_time`, in which all nodes end together; more are those of
    `multi_round`, where they are valid: all chunks positive, none smaller than the one before.
    Equal times: fewer rounds. `once`: seconds of the set-up time SC that pass once, not per round.
    """
    best, count = chain_time(n, chain), 1
    work, q, _, setup_link, setup_node = chain
    if q == 0.0:
        return best, count
    growth = (1.0 - q) / (n * q)
    setup_node -= once
    step = (setup_node - n * setup_link) / (n * q * work)
    last_u = sum_u = 1.0
    last_v = sum_v = 0.0
    fixed = n * setup_link + work * (1.0 - q) / n + once
    for m in range(2, rounds + 1):
        if fixed + m * setup_node >= best or last_u > 1e60:
            break
        last_u *= growth
        last_v = last_v * growth + step
        sum_u += last_u
        sum_v += last_v
        first = (1.0 / n - sum_v) / sum_u
        grows = first * growth + step >= first * (1.0 - TOLERANCE)
        time = fixed + m * setup_node + n * first * work * q
        if time < best and grows and first > 0.0 and first * last_u + last_v > 0.0:
            best, count = time, m
    return best, count


@compiled
def rounds_reach(limit: int, chain: LoadChain, once: float = 0.0) -> int:
    """Return the most nodes, up to `limit`, on which several rounds can be valid.

    Chunks do not shrink where n (ST + c_0 cms) <= SC + c_0 cps, so not for n above both SC/ST
    and cps/cms.
    """
    if chain.q == 0.0:
        return 0
    most = (1.0 - chain.q) / chain.q
    setup_node = chain.setup_node - once
    if setup_node > 0.0:
        linked = chain.setup_link > 0.0
        most = max(most, setup_node / chain.setup_link) if linked else np.inf
    return int(min(float(limit), most * (1.0 + TOLERANCE)))


@compiled
def uses_all(n: int, chain: LoadChain) -> bool:
    """Return whether one round on `n` nodes gives each of them something: E(n) < E(n - 1)."""
    return n == 1 or chain_time(n, chain) < chain_time(n - 1, chain)


@compiled
def fastest_in_rounds(
    low: int, limit: int, chain: LoadChain, rounds: int, once: float = 0.0
) -> int:
    """Return the fastest node count in low..limit with at most `rounds` rounds; 0: there is none.

    The run time need not fall in n: a count small enough for several rounds may beat a larger one.
    """
    found = fastest_of(limit, chain)
    best = math.inf
    if found < low:
        found = 0
    else:
        best = chain_time(found, chain)
    for n in range(rounds_reach(limit, chain, once), low - 1, -1):
        if chain.setup_link + chain.setup_node + chain.work * (1.0 - chain.q) / n > best:
            break
        time, count = rounds_time(n, chain, rounds, once)
        if count > 1 and time <= best:
            found, best = n, time
    return found


def round_shares(rounds: int, n: int, load: Load, once: float = 0.0) -> list[float]:
    """Return how each of `n` nodes divides its part over the rounds: shares that sum to 1.

    Empty for one round. The rounds are those of `multi_round`; where these are not valid, since
    the load is another one than was planned with, the shares are equal.
    """
    if rounds <= 1:
        return []
    found = multi_round(rounds, n, load, once)
    chunk = found.chunk if found.valid else np.ones(rounds)
    shares: list[float] = (chunk / chunk.sum()).tolist()
    return shares


def chunk_table(rounds: int, n: int, load: Load) -> Floats:
    """Return float64[m, n]: the data units that each of `n` nodes is sent in each round.

    What the launcher of a divisible job needs: rows are sent one after the other, the nodes of a
    row in sending order, and it ends when `rounds_time` says.
    """
    _, count = rounds_time(n, chain_of(load), rounds)
    if count == 1:
        return load.sigma * fractions(n, load)[np.newaxis]
    chunk = multi_round(count, n, load).chunk
    return np.repeat(chunk[:, np.newaxis], n, axis=1)


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
