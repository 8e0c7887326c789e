"""Service-time error of users or accounts: what they got, less what their share entitled them to.

    error_A(t) = W_A(t) - ideal_A(t),    d ideal_A = dt C S_A / sum of the shares of active users

W_A is the service received in node-seconds, S_A the share; a user is active while a job of theirs
waits or runs. C is the number of nodes that serve these users at the instant, so what is handed
out is what is shared out: the errors of all users add up to 0 at every instant, a lone user's
error is 0, and with one node the definition is that of a single server.

The ideal rates fill a capacity like water (`fill`): each gets rate = level x share, but no more
than it can use (its cap); what one cannot use raises the level for the others. Without caps this is
capacity x share / sum of shares. With a half-life h past errors fade by 2^(-t/h) (`kept`,
`weight`); errors that add up to 0 go on doing so.

References
----------
Lopez and Raja: A dynamic error based fair scheduling algorithm for a computational grid; the
error goes back to Nieh, Vaill and Zhong, 2001: Virtual-Time Round-Robin. There the set of users is
fixed; here the ideal service accrues while the set changes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rtsched.kernels.compiling import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[Any]

    """float64, or objects: fractions (`plain(fill)`)."""


class ServiceError(NamedTuple):
    """Errors of `u` users in node-seconds; positive: more than the share."""

    least: NDArray[np.float64]
    """float64[u], over the user's own instants (submissions, starts, ends); inf: none."""
    most: NDArray[np.float64]
    """float64[u]; -inf: none."""
    squares: NDArray[np.float64]
    """float64[u], sum of squares over these instants."""
    instants: NDArray[np.int64]
    """int64[u], how many there are."""
    final: NDArray[np.float64]
    """float64[u], after the last event."""
    course: NDArray[np.float64]
    """float64[g, k], of the watched users at the instants of the grid."""


@compiled
def service_error(
    submit: NDArray[np.float64],
    start: NDArray[np.float64],
    end: NDArray[np.float64],
    by_submit: NDArray[np.int64],
    by_start: NDArray[np.int64],
    by_end: NDArray[np.int64],
    size: NDArray[np.int32] | NDArray[np.float64],
    user: NDArray[np.int32],
    share: NDArray[np.float64],
    grid: NDArray[np.float64],
    watched: NDArray[np.int64],
) -> ServiceError:
    """Return the errors, by one pass over submissions, starts and ends in order of time.

    Parameters
    ----------
    submit, start, end : float64[n]
        Seconds from any origin: only differences matter.
    by_submit, by_start, by_end : int64[k], int64[s], int64[e]
        The jobs that were submitted, that started, that ended, each in order of that time. A job
        that ended has started; one that started and did not end is served on.
    size : int32[n] or float64[n]
        Nodes that served each job from its start to its end.
    user : int32[n]
        Whose job it is, 0..u-1; -1: nobody's, it is left out.
    share : float64[u]
        Shares, > 0.
    grid : float64[g]
        Instants, ascending, at which the course is wanted ...
    watched : int64[k]
        ... and of which users.

    Notes
    -----
    The errors are continuous in time, so the order of events at one instant changes none of them.
    Ends come first, then submissions, then starts.
    """
    users = len(share)
    got, ideal, since = np.zeros(users), np.zeros(users), np.zeros(users)
    busy, active = np.zeros(users), np.zeros(users, np.int64)
    accrued = np.zeros(users)  # `entitled` when the user's ideal was last brought up to date
    least, most = np.full(users, np.inf), np.full(users, -np.inf)
    squares, instants = np.zeros(users), np.zeros(users, np.int64)
    course = np.zeros((len(grid), len(watched)))
    entitled, total, serving, now = 0.0, 0.0, 0.0, -np.inf  # `entitled`: per unit of share
    inside = a = s = e = g = 0
    while a < len(by_submit) or s < len(by_start) or e < len(by_end):
        t_end = end[by_end[e]] if e < len(by_end) else np.inf
        t_submit = submit[by_submit[a]] if a < len(by_submit) else np.inf
        t_start = start[by_start[s]] if s < len(by_start) else np.inf
        t = min(t_end, t_submit, t_start)
        while g < len(grid) and grid[g] <= t:
            ahead = entitled
            if serving > 0.0:
                ahead += serving * (grid[g] - now) / total
            for k in range(len(watched)):
                u = watched[k]
                course[g, k] = got[u] - ideal[u]
                if active[u] > 0:
                    course[g, k] += busy[u] * (grid[g] - since[u])
                    course[g, k] -= share[u] * (ahead - accrued[u])
            g += 1
        if serving > 0.0:
            entitled += serving * (t - now) / total
        now = t
        ends = t_end <= t
        submits = not ends and t_submit <= t
        if ends:
            job = by_end[e]
            e += 1
        elif submits:
            job = by_submit[a]
            a += 1
        else:
            job = by_start[s]
            s += 1
        u = user[job]
        if u < 0:
            continue
        if active[u] > 0:
            got[u] += busy[u] * (t - since[u])
            ideal[u] += share[u] * (entitled - accrued[u])
        since[u], accrued[u] = t, entitled
        if ends:
            busy[u] -= size[job]
            serving -= size[job]
            active[u] -= 1
            inside -= 1
            if active[u] == 0:
                total -= share[u]
            if inside == 0:  # nothing is left of the sums but rounding
                serving, total = 0.0, 0.0
        elif submits:
            active[u] += 1
            inside += 1
            if active[u] == 1:
                total += share[u]
        else:
            busy[u] += size[job]
            serving += size[job]
        error = got[u] - ideal[u]
        least[u], most[u] = min(least[u], error), max(most[u], error)
        squares[u] += error * error
        instants[u] += 1
    for u in range(users):
        if active[u] > 0:
            got[u] += busy[u] * (now - since[u])
            ideal[u] += share[u] * (entitled - accrued[u])
    final = got - ideal
    while g < len(grid):
        course[g] = final[watched]
        g += 1
    return ServiceError(least, most, squares, instants, final, course)


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
