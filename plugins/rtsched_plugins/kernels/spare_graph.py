"""Place the tasks of one graph on nodes of one processor each, beside all that is guaranteed there.

References
----------
He, Jarvis, Spooner, Nudd, IEEE CLUSTER 2003: response-first and utilisation-first selection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rtsched.kernels.compiling import compiled
from rtsched.kernels.edf import NEVER, Work, reserve, withdraw
from rtsched_plugins.kernels.spare import earliest_finish

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Slots = NDArray[np.int64]


class Tasks(NamedTuple):
    """The `t` tasks of a graph in the order in which they are placed, predecessors first."""

    ready: Slots
    """[t]: slot before which a task must not run, whatever its predecessors do."""
    cost: Slots
    """[t, m]: slots that it takes on each node; 0: it cannot run there."""
    deadline: Slots
    """[t]: slot by which it must end."""
    before_of: Slots
    """[t + 1]: task i waits for the places `before[before_of[i]:before_of[i + 1]]`."""
    before: Slots
    """Places: the `e` outer predecessors first, then task i as e + i."""
    message: Slots
    """Slots that each result travels to another node."""


class Places(NamedTuple):
    """Where `e` outer predecessors and the tasks themselves end; the latter are filled in."""

    node: Slots
    ready: Slots
    finish: Slots


class Machine(NamedTuple):
    """Nodes with their work as it is at slot `now`, and what `hyperperiods` says of them."""

    now: int
    work: Work
    hyper: Slots
    utilisation: NDArray[np.float64]


@compiled
def ready_on(tasks: Tasks, places: Places, task: int, node: int) -> int:
    """Return the slot at which a task has all that it waits for on a node."""
    ready = int(tasks.ready[task])
    for i in range(tasks.before_of[task], tasks.before_of[task + 1]):
        place = tasks.before[i]
        away = places.node[place] != node
        ready = max(ready, places.finish[place] + (tasks.message[i] if away else 0))
    return ready


@compiled
def choose_node(
    machine: Machine, tasks: Tasks, places: Places, task: int, last: bool, beyond: bool
) -> tuple[int, int, int]:
    """Return the node for a task, its finish there, and the least finish that would be too late.

    Response-first takes the least finish, utilisation-first (`last`) the greatest that meets the
    deadline; of equals the lowest node. Node -1: it meets the deadline on none. The third number is
    asked for by `beyond` and else `NEVER`.
    """
    node, finish, late = -1, NEVER, NEVER
    deadline = tasks.deadline[task]
    for k in range(len(machine.hyper)):
        cost = tasks.cost[task, k]
        if cost <= 0:
            continue
        ready = ready_on(tasks, places, task, k)
        limit = deadline
        if beyond:
            limit = max(limit, late)
        if not last:
            limit = min(limit, finish - 1)
        end = earliest_finish(
            machine.work,
            k,
            machine.now,
            ready,
            cost,
            limit,
            machine.hyper[k],
            machine.utilisation[k],
        )
        if end > deadline:
            late = min(late, end)
        elif node < 0 or (end > finish if last else end < finish):
            node, finish = k, end
    return node, finish, late


@compiled
def place_graph(
    machine: Machine, tasks: Tasks, places: Places, last: bool, beyond: bool
) -> tuple[int, int]:
    """Place all tasks of a graph, or none; the machine is left as it was.

    Parameters
    ----------
    machine : Machine
        Its `work` has rows for the tasks, the first `len(tasks.ready)` ones, in no list.
    places : Places
        Filled in for the tasks up to the first that fails.
    last : bool
        Utilisation-first instead of response-first.
    beyond : bool
        Whether the second number is wanted; that takes longer.

    Returns
    -------
    int, int
        The first task that meets its deadline on no node (-1: all do), and the least deadline
        later than the asked one, the same for all tasks, at which a choice could be another.
    """
    outer, work = len(places.node) - len(tasks.ready), machine.work
    failed, later = -1, NEVER
    for task in range(len(tasks.ready)):
        node, finish, late = choose_node(machine, tasks, places, task, last, beyond)
        later = min(later, late)
        if node < 0:
            failed = task
            break
        ready = ready_on(tasks, places, task, node)
        place = outer + task
        places.node[place], places.ready[place], places.finish[place] = node, ready, finish
        reserve(work, node, task, ready, finish, tasks.cost[task, node])
    for task in range(len(tasks.ready) if failed < 0 else failed):
        withdraw(work, places.node[outer + task], task)
    return failed, later
