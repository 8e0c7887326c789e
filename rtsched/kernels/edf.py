"""Pre-emptive EDF on nodes of one processor each, in integer slots: the work, and how it runs off.

A node has periodic jobs, each with at most one unfinished instance (deadline at most one period
after the release), and tasks that run once. At every slot boundary the released work with the
earliest deadline runs; of equal deadlines periodic jobs go first, then the task reserved first.

Slot k is the time [k, k + 1). All numbers are int64 slots; sums must stay below `NEVER`.

References
----------
He, Jarvis, Spooner, Nudd, 2003: spare capability (machine model).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.kernels.compiling import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.jobs import Periodic

NEVER = 2**60
"""Later than every slot."""
IDLE, PERIODIC = -1, -2


class Work(NamedTuple):
    """The work of `m` nodes at one instant: `p` periodic jobs and `k` tasks, changed in place."""

    first: NDArray[np.int64]
    """[m + 1]: node i has the periodic rows `first[i]:first[i + 1]`."""
    cost: NDArray[np.int64]
    """[p]: slots per instance (paper: C)."""
    period: NDArray[np.int64]
    """[p]: slots between releases (paper: T)."""
    relative: NDArray[np.int64]
    """[p]: slots from release to deadline (paper: d)."""
    upcoming: NDArray[np.int64]
    """[p]: slot of the next release."""
    rest: NDArray[np.int64]
    """[p]: slots that the present instance still needs."""
    due: NDArray[np.int64]
    """[p]: deadline of the present instance."""
    head: NDArray[np.int64]
    """[m]: each node's task of the earliest deadline; -1: none."""
    after: NDArray[np.int64]
    """[k]: the task of the same node with the next deadline; -1: none."""
    release: NDArray[np.int64]
    """[k]: slot before which the task does not run."""
    deadline: NDArray[np.int64]
    """[k]: slot by which it ends."""
    left: NDArray[np.int64]
    """[k]: slots that it still needs."""
    missed: NDArray[np.int64]
    """[m]: deadlines missed so far, of instances and tasks."""


def work_of(
    nodes: int,
    tasks: int,
    node: NDArray[np.int64],
    cost: NDArray[np.int64],
    period: NDArray[np.int64],
    relative: NDArray[np.int64],
    upcoming: NDArray[np.int64],
    rest: NDArray[np.int64] | int = 0,
) -> Work:
    """Return the work of `nodes` nodes with room for `tasks` tasks and none there yet.

    Parameters
    ----------
    node : int64[p]
        The node of each periodic job, ascending.
    cost, period, relative, upcoming : int64[p]
        See `Work`.
    rest : int64[p] or int
        Slots that instances released before now still need.
    """
    first = np.zeros(nodes + 1, np.int64)
    np.cumsum(np.bincount(node, minlength=nodes), out=first[1:])
    full = np.broadcast_to(np.asarray(rest, np.int64), cost.shape)
    none = np.full(tasks, -1, np.int64)
    return Work(
        first,
        np.ascontiguousarray(cost, np.int64),
        np.ascontiguousarray(period, np.int64),
        np.ascontiguousarray(relative, np.int64),
        np.array(upcoming, np.int64),
        full.copy(),
        np.asarray(upcoming - period + relative, np.int64),
        np.full(nodes, -1, np.int64),
        none,
        np.zeros(tasks, np.int64),
        np.zeros(tasks, np.int64),
        np.zeros(tasks, np.int64),
        np.zeros(nodes, np.int64),
    )


def grid(seconds: NDArray[np.float64], slot: float, *, up: bool) -> NDArray[np.int64]:
    """Return times or durations in slots of `slot` seconds, rounded up or down.

    A millionth of a slot counts as rounding, not as work. Unlimited ones become `NEVER`.
    """
    slots = np.asarray(seconds, np.float64) / slot
    whole = np.ceil(slots - 1e-6) if up else np.floor(slots + 1e-6)
    return np.clip(whole, -NEVER, NEVER).astype(np.int64)


def periodic_work(periodic: Periodic, nodes: int, now: int, slot: float, tasks: int) -> Work:
    """Return a machine's periodic work at slot `now`, with room for `tasks` tasks.

    Parameters
    ----------
    periodic : Periodic
        Times in seconds since the epoch; `left` as it is at slot `now`.
    nodes : int
        Nodes of the machine.
    slot : float
        Seconds per slot. Work is rounded up, periods and deadlines down.
    """
    order = np.argsort(periodic.node, kind="stable")
    row = periodic.take(order)
    period = grid(row.period, slot, up=False)
    phase = grid(row.phase, slot, up=True)
    stated = np.where(np.isnan(row.relative_deadline), row.period, row.relative_deadline)
    relative = grid(stated, slot, up=False)
    upcoming = phase + np.maximum(-((phase - now) // period), 0) * period
    cost, left = grid(row.exec_time, slot, up=True), grid(row.left, slot, up=True)
    node = row.node.astype(np.int64)
    return work_of(nodes, tasks, node, cost, period, relative, upcoming, left)


@compiled
def reserve(work: Work, node: int, row: int, release: int, deadline: int, cost: int) -> None:
    """Give a node a task; it stands behind those of equal deadline."""
    work.release[row], work.deadline[row], work.left[row] = release, deadline, cost
    before, place = -1, work.head[node]
    while place >= 0 and work.deadline[place] <= deadline:
        before, place = place, work.after[place]
    work.after[row] = place
    if before < 0:
        work.head[node] = row
    else:
        work.after[before] = row


@compiled
def withdraw(work: Work, node: int, row: int) -> None:
    """Take a task from a node, as if it had never been there."""
    if work.head[node] == row:
        work.head[node] = work.after[row]
        return
    place = work.head[node]
    while work.after[place] != row:
        place = work.after[place]
    work.after[place] = work.after[row]


@compiled
def choose(work: Work, node: int, now: int) -> tuple[int, int, int]:
    """Release what is due and return what runs: (kind or task row, periodic row, until when).

    The first is `IDLE`, `PERIODIC` or the row of a task; it runs, unless it ends before, until
    something that may pre-empt it is released.
    """
    who, which, best, until = IDLE, -1, 2 * NEVER, NEVER
    for p in range(work.first[node], work.first[node + 1]):
        if work.upcoming[p] <= now:
            work.missed[node] += work.rest[p] > 0
            work.rest[p] += work.cost[p]
            work.due[p] = work.upcoming[p] + work.relative[p]
            work.upcoming[p] += work.period[p]
        until = min(until, work.upcoming[p])
        if work.rest[p] > 0 and work.due[p] < best:
            who, which, best = PERIODIC, p, work.due[p]
    row = work.head[node]
    while row >= 0 and work.deadline[row] < best:
        if work.release[row] > now:
            until = min(until, work.release[row])
        elif work.left[row] > 0:
            return row, which, until
        row = work.after[row]
    return who, which, until


@compiled
def run(
    work: Work, node: int, begin: int, until: int, stop: bool, log: NDArray[np.int64]
) -> tuple[int, int, int]:
    """Run one node from `begin` to `until`, or with `stop` to the first end of a task.

    Parameters
    ----------
    log : int64[l, 3]
        Receives task row, begin and end of each piece in which a task runs; when it is full the
        node stops, so that the caller can empty it. With no rows nothing is logged.

    Returns
    -------
    int, int, int
        The slot reached, the task that ended just then (-1: none), the rows of `log` written.
    """
    now, count = begin, 0
    while now < until and (count < len(log) or len(log) == 0):
        row, which, wake = choose(work, node, now)
        end = min(wake, until)
        if row == IDLE:
            now = end
        elif row == PERIODIC:
            end = min(end, now + work.rest[which])
            work.rest[which] -= end - now
            now = end
            work.missed[node] += work.rest[which] == 0 and now > work.due[which]
        else:
            end = min(end, now + work.left[row])
            work.left[row] -= end - now
            if len(log):
                log[count, 0], log[count, 1], log[count, 2] = row, now, end
                count += 1
            now = end
            if work.left[row] == 0:
                work.missed[node] += now > work.deadline[row]
                if stop:
                    return now, row, count
    return now, -1, count


@compiled
def run_nodes(
    work: Work, reached: NDArray[np.int64], until: int, log: NDArray[np.int64]
) -> tuple[int, bool]:
    """Run all nodes from `reached` to `until`, until `log` is full; tasks that end are taken away.

    Returns
    -------
    int, bool
        The rows of `log` written (see `run`), and whether it must be emptied before going on.
    """
    count = 0
    for node in range(len(reached)):
        while reached[node] < until:
            if count == len(log):
                return count, True
            now, ended, pieces = run(work, node, reached[node], until, True, log[count:])
            reached[node] = now
            count += pieces
            if ended >= 0:
                withdraw(work, node, ended)
    return count, False


@compiled
def hyperperiods(work: Work) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return per node the least common multiple of its periods, and its utilisation.

    A multiple that is not below `NEVER` is given as `NEVER`. A utilisation of exactly 1 is 1.0.
    """
    m = len(work.head)
    multiple, utilisation = np.ones(m, np.int64), np.zeros(m)
    for node in range(m):
        low, high = work.first[node], work.first[node + 1]
        lcm, used = 1, 0.0
        for p in range(low, high):
            used += work.cost[p] / work.period[p]
            if lcm < NEVER:
                a, b = lcm, work.period[p]
                while b:
                    a, b = b, a % b
                step = work.period[p] // a
                lcm = NEVER if lcm > NEVER // step else lcm * step
        if lcm < NEVER:
            slots = 0
            for p in range(low, high):
                slots += work.cost[p] * (lcm // work.period[p])
            used = 1.0 if slots == lcm else used
        multiple[node], utilisation[node] = lcm, used
    return multiple, utilisation


@compiled
def first_miss(work: Work, node: int, horizon: int) -> int:
    """Return a slot by which a periodic job of the node misses a deadline, -1 if none does.

    The node's work is run off in slots up to `horizon`; give it a copy.
    """
    now = 0
    while now < horizon:
        _, which, wake = choose(work, node, now)
        end = min(wake, horizon)
        if which >= 0:
            end = min(end, now + work.rest[which])
            work.rest[which] -= end - now
            work.missed[node] += work.rest[which] == 0 and end > work.due[which]
        now = end
        if work.missed[node] > 0:
            return now
    return -1
