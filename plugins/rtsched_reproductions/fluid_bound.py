"""A bound that no admission policy can beat: tasks as fluid, and all of the future known.

Whatever a schedule does, a task that it finishes holds nodes for at least so many node-seconds,
within the window from its arrival to its deadline. Leave out everything else: tasks may be
interrupted, cut into any parts and run on any number of nodes at once, and a part of a task counts
as that part of it. What such a schedule can finish at most is an upper bound for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from rtsched.kernels.compiling import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Integers: TypeAlias = NDArray[np.int64]


def most_value(arrival: Floats, deadline: Floats, work: Floats, value: Floats, nodes: int) -> float:
    """Return the most that any schedule could finish, in the unit of `value`.

    Parameters
    ----------
    arrival, deadline : float64[n]
        Seconds.
    work : float64[n]
        Node-seconds that each task holds at least, > 0.
    value : float64[n]
        What finishing it counts: 1 for the number of tasks, its work for the work.
    nodes : int
        Nodes of the machine.

    Notes
    -----
    Amounts of work that fit are those that no interval overfills: for each, the amounts of the
    tasks whose windows lie within it come to at most nodes x length. They form a polymatroid, so
    that the greedy choice is the best one: tasks by value per node-second, each as much as still
    fits.

    References
    ----------
    Edmonds, 1970: Submodular functions, matroids, and certain polyhedra.
    """
    starts, first = np.unique(arrival, return_inverse=True)
    ends, last = np.unique(deadline, return_inverse=True)
    room = nodes * np.maximum(ends[None, :] - starts[:, None], 0.0)
    order = np.argsort(-value / work, kind="stable")
    done = _fill(room, first[order], last[order], work[order])
    return float((done / work[order] * value[order]).sum())


@compiled
def _fill(room: Floats, first: Integers, last: Integers, work: Floats) -> Floats:
    """Return how much of each task's work fits, one after the other; `room` is used up."""
    done = np.empty(len(work))
    for k in range(len(work)):
        amount = work[k]
        for a in range(first[k] + 1):
            for b in range(last[k], room.shape[1]):
                amount = min(amount, room[a, b])
        for a in range(first[k] + 1):
            for b in range(last[k], room.shape[1]):
                room[a, b] -= amount
        done[k] = amount
    return done
