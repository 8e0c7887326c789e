"""Arrays with one promise: how many tasks run at a time and where, and when the last one ends.

Batch systems, live and simulated, plan an array as one job of kind `ARRAY` (`rtsched.model.jobs`):
its tasks run in rounds on the nodes that it is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def most_together(fits: ArrayLike, count: ArrayLike, tasks: int | None = None) -> int:
    """Return so many tasks on a node that the most of them run at a time; the fewest such.

    Nodes that take fewer are left out then.

    Parameters
    ----------
    fits : int[k]
        How many tasks a node of each sort takes.
    count : int[k]
        How many nodes there are of each sort.
    tasks : int, optional
        How many tasks there are: they are spread over as many nodes as have all of them, or the
        most, run at once. None: a node that is taken is filled.
    """
    each, nodes = np.asarray(fits, np.int64), np.asarray(count, np.int64)
    most = int(each.max(initial=0))
    if most < 1:
        return 1
    tried = np.unique(each[each > 0]) if tasks is None else np.arange(1, min(most, tasks) + 1)
    together = tried * ((each >= tried[:, None]) * nodes).sum(axis=1)
    if tasks is not None:
        together = np.minimum(together, tasks)
    return int(tried[np.argmax(together)])


def array_width(tasks: int, per_node: int, parallel: int, nodes: int) -> tuple[int, int]:
    """Return how many tasks of an array run on a node at a time, and on how many nodes at most.

    Parameters
    ----------
    tasks : int
        How many there are.
    per_node : int
        How many a node takes.
    parallel : int
        How many may run at a time; 0: any number.
    nodes : int
        How many nodes there are.
    """
    if parallel:
        per_node = min(per_node, parallel)
    most = -(-tasks // per_node)
    if parallel:
        most = min(most, parallel // per_node)
    return per_node, max(min(most, nodes), 1)


def last_end(
    ends: NDArray[np.float64], tasks: int, at_a_time: int, limit: float, now: float
) -> float:
    """Return when the last task of an array ends at the latest.

    Parameters
    ----------
    ends : float64[r]
        When those that run end at the latest, seconds since the epoch.
    tasks : int
        How many still wait.
    at_a_time : int
        How many run at a time.
    limit : float
        Seconds of each.
    now : float
        Seconds since the epoch.

    All that run end within one limit, so those that wait follow them in rounds, in that order.
    """
    last = float(ends.max(initial=now))
    if tasks <= 0:
        return last
    free = np.sort(np.concatenate([ends, np.full(max(at_a_time - len(ends), 0), now)]))
    rounds, place = divmod(tasks - 1, len(free))
    return max(last, float(free[place]) + (rounds + 1) * limit)
