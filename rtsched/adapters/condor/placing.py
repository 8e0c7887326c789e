"""Which promised jobs may start where: node sets for those whose turn it is; pure.

A promised job starts on the slots of its node set and nowhere else. It gets one when it is the
first on all its planned rows, all of these are free and have been closed to other jobs for some
seconds (so that none is on its way there), and it waits for no other job. Where jobs share slots,
what it takes must be free there beside the others (`sharing.may_start_beside`). From then on it
counts as running (`starting.bound_of`): matching takes up to a negotiation's interval, and a plan
that moved the job meanwhile would have it start nowhere. If it has not started by the time that a
start may take, it is planned anew; after two of those its promise is void.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.changes import idle_nodes
from rtsched.adapters.condor.pool_state import IDLE
from rtsched.adapters.condor.recurring import occurrences
from rtsched.adapters.condor.sharing import may_start_beside
from rtsched.adapters.live import FIRST_OWN_ID
from rtsched.adapters.planned import first_everywhere
from rtsched.model.jobs import Kind
from rtsched.model.snapshot import places

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.adapters.condor.pool_state import PoolState
    from rtsched.model.schedule import Schedule


@dataclass(frozen=True)
class Binding:
    """A job that may start.

    Attributes
    ----------
    job : int
        Its id in the models.
    entry : int
        Its row in the plan.
    procs : tuple of int
        Rows of `PoolState.procs`: one per chunk of a divisible load, in sending order.
    slots : tuple of tuple of str
        By proc, the slots on which it may start.
    lengths : tuple of float
        By proc, for how many seconds its slots are planned, the margin included.
    """

    job: int
    entry: int
    procs: tuple[int, ...]
    slots: tuple[tuple[str, ...], ...]
    lengths: tuple[float, ...]


def bindings_of(
    plan: Schedule, view: PoolState, closed: NDArray[np.bool_], now: float
) -> tuple[list[Binding], list[int]]:
    """Return which jobs get which slots, and those that have fewer procs than planned.

    Parameters
    ----------
    plan : Schedule
        Planned starts of jobs that wait.
    view : PoolState
        The last poll.
    closed : bool[m] or bool[k]
        Rows on which no other job may start; where jobs share slots, for each node of the entries
        whether no other job may take there what the entry takes.
    now : float
        Seconds since the epoch.
    """
    turn = np.flatnonzero(their_turn(plan, view, closed, now))
    jobs = plan.entries.job[turn]
    idle, names = view.rows_of(jobs.tolist(), IDLE), view.slots.texts("name")
    place, _ = places(view.observation.queued.id, jobs)
    starts, found, short = plan.starts(), [], []
    for entry, job, at in zip(turn.tolist(), jobs.tolist(), place.tolist(), strict=True):
        within = slice(int(plan.indptr[entry]), int(plan.indptr[entry + 1]))
        slots = [names[row] or "" for row in plan.nodes[within].tolist()]
        lengths = (float(plan.entries.end[entry]) - starts[within]).tolist()
        divided = view.observation.queued.kind[at] == Kind.DIVISIBLE
        procs = idle[job]
        if divided and len(procs) < len(slots):
            short.append(job)
        elif divided:
            each = tuple((slot,) for slot in slots)
            found.append(Binding(job, entry, tuple(procs[: len(slots)]), each, tuple(lengths)))
        elif procs:
            wide = len(procs)
            array = job in view.arrays
            together = (tuple(slots if array else dict.fromkeys(slots)),) * wide
            found.append(Binding(job, entry, tuple(procs), together, (max(lengths),) * wide))
    return found, short


def ready(plan: Schedule, view: PoolState, now: float) -> NDArray[np.bool_]:
    """Return bool[n]: which entries could start at once, if no other job came."""
    shared = view.observation.cluster.shared
    closed = np.ones(len(plan.nodes) if shared else len(view.slots), np.bool_)
    return their_turn(plan, view, closed, now)


def rows_in_turn(plan: Schedule, view: PoolState, now: float) -> NDArray[np.int32]:
    """Return the rows of the entries that could start at once, if no other job came, int32[k]."""
    return plan.nodes[plan.per_node(ready(plan, view, now))]


def their_turn(
    plan: Schedule, view: PoolState, closed: NDArray[np.bool_], now: float
) -> NDArray[np.bool_]:
    """Return bool[n]: which entries of a plan may have their node sets now; see `bindings_of`."""
    jobs, queued = plan.entries.job, view.observation.queued
    turn = jobs < FIRST_OWN_ID
    edges = view.observation.edges
    unfinished = np.isin(edges.before, queued.id) | np.isin(
        edges.before, view.observation.running.id
    )
    turn &= ~np.isin(jobs, edges.after[unfinished])
    place, known = places(queued.id, jobs)
    turn &= known
    if known.any():
        turn[known] &= queued.begin[place[known]] <= now + view.facts.margin
    if view.observation.cluster.shared:
        return turn & may_start_beside(plan, view, closed, now)
    turn &= first_everywhere(plan, len(view.slots))
    return turn & ~_on_busy_rows(plan, view, closed)


def _on_busy_rows(plan: Schedule, view: PoolState, closed: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return bool[n]: which entries have rows that are not free, or recurring work before them."""
    free = idle_nodes(view.observation, closed)
    before = occurrences(view.observation.periodic, len(view.slots))[plan.nodes] < plan.starts()
    entry = plan.rows()
    blocked = np.zeros(len(plan), np.bool_)
    blocked[entry[~free[plan.nodes] | before]] = True
    return blocked
