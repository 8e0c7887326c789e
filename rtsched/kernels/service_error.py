"""Service-time error of users or accounts: what they got, less what their share entitled them to.

References
----------
Lopez and Raja: A dynamic error based fair scheduling algorithm for a computational grid; the
error goes back to Nieh, Vaill and Zhong, 2001. Here the ideal service accrues while the set of
active users changes: d ideal_A = dt C S_A / sum of the shares of active users, where a user is
active while a job of theirs waits or runs, and C is the machine's capacity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.kernels.compiling import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ServiceError(NamedTuple):
    """Errors of `u` users in node-seconds; positive: more than the share."""

    least: NDArray[np.float64]
    """float64[u], over the user's own instants (submissions, starts, ends)."""
    most: NDArray[np.float64]
    """float64[u]."""
    squares: NDArray[np.float64]
    """float64[u], sum of squares over these instants."""
    instants: NDArray[np.int64]
    """int64[u], how many there are."""
    final: NDArray[np.float64]
    """float64[u], after the last event."""
    course: NDArray[np.float64]
    """float64[g, u], at the instants of the grid."""


@compiled
def service_error(
    submit: NDArray[np.float64],
    start: NDArray[np.float64],
    end: NDArray[np.float64],
    by_start: NDArray[np.int64],
    by_end: NDArray[np.int64],
    size: NDArray[np.int32],
    user: NDArray[np.int32],
    share: NDArray[np.float64],
    capacity: float,
    grid: NDArray[np.float64],
) -> ServiceError:
    """Return the errors, by one pass over submissions, starts and ends in order of time.

    Parameters
    ----------
    submit : float64[n]
        Ascending; jobs that were turned away are left out.
    start, end : float64[n]
        inf where a job never started or never ended.
    by_start, by_end : int64[n]
        Jobs in ascending order of start and of end.
    size : int32[n]
        Nodes each job ran on.
    user : int32[n]
        Whose job it is, 0..u-1.
    share : float64[u]
        Shares, > 0.
    capacity : float
        Nodes of the machine.
    grid : float64[g]
        Instants, ascending, at which the course is wanted.

    Notes
    -----
    At one instant ends come first, then submissions, then starts, so a user whose next job
    arrives at that instant stays active only in the limit, which changes no error.
    """
    users, n = len(share), len(submit)
    got, ideal, since = np.zeros(users), np.zeros(users), np.zeros(users)
    busy, active = np.zeros(users), np.zeros(users, np.int64)
    accrued = np.zeros(users)  # `entitled` when the user's ideal was last brought up to date
    least, most = np.full(users, np.inf), np.full(users, -np.inf)
    squares, instants = np.zeros(users), np.zeros(users, np.int64)
    course = np.zeros((len(grid), users))
    entitled, total, now = 0.0, 0.0, 0.0
    a = s = e = g = 0
    while a < n or s < n or e < n:
        t_end = end[by_end[e]] if e < n else np.inf
        t_submit = submit[a] if a < n else np.inf
        t_start = start[by_start[s]] if s < n else np.inf
        t = min(t_end, t_submit, t_start)
        if t == np.inf:
            break
        while g < len(grid) and grid[g] <= t:
            ahead = entitled + (capacity * (grid[g] - now) / total if total > 0.0 else 0.0)
            for u in range(users):
                have = got[u] + busy[u] * (grid[g] - since[u])
                due = ideal[u] + (share[u] * (ahead - accrued[u]) if active[u] > 0 else 0.0)
                course[g, u] = have - due
            g += 1
        if total > 0.0:
            entitled += capacity * (t - now) / total
        now = t
        if t_end <= t:
            job = by_end[e]
        elif t_submit <= t:
            job = a
        else:
            job = by_start[s]
        u = user[job]
        got[u] += busy[u] * (t - since[u])
        since[u] = t
        if active[u] > 0:
            ideal[u] += share[u] * (entitled - accrued[u])
        accrued[u] = entitled
        if t_end <= t:
            e += 1
            busy[u] -= size[job]
            active[u] -= 1
            if active[u] == 0:
                total -= share[u]
        elif t_submit <= t:
            a += 1
            active[u] += 1
            if active[u] == 1:
                total += share[u]
        else:
            s += 1
            busy[u] += size[job]
        error = got[u] - ideal[u]
        least[u], most[u] = min(least[u], error), max(most[u], error)
        squares[u] += error * error
        instants[u] += 1
    while g < len(grid):
        course[g] = got - ideal
        g += 1
    return ServiceError(least, most, squares, instants, got - ideal, course)
