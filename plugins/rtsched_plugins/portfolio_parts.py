"""The parts of the portfolio plug-in: its memory of recent arrivals, and its planner."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray  # noqa: TC002 - states are decoded by their annotations

from rtsched.api import State
from rtsched_plugins.kernels.admission import Rows, needed_time, rows_of
from rtsched_plugins.kernels.fractions import Division, division_of
from rtsched_plugins.kernels.portfolio_plan import (
    Arrivals,
    InTurn,
    Reading,
    admit,
    counter_offer,
    prepare,
    read_arrivals,
)

if TYPE_CHECKING:
    from rtsched_plugins.kernels.admission import Plan, Tasks
    from rtsched_plugins.kernels.portfolio_walk import Prepared


class Recent(State, frozen=True):
    """Recent arrivals of jobs with a deadline, in order, and what was decided of each.

    `time` in epoch seconds, the other columns as in `Arrivals`; `above` counts all jobs so far
    that were above their threshold.
    """

    job: NDArray[np.int64]
    time: NDArray[np.float64]
    work: NDArray[np.float64]
    patience: NDArray[np.float64]
    threshold: NDArray[np.float64]
    load: NDArray[np.float64]
    declined: NDArray[np.bool_]
    above: int


NOBODY = Recent(
    np.empty(0, np.int64),
    np.empty(0),
    np.empty(0),
    np.empty(0),
    np.empty(0),
    np.empty(0),
    np.empty(0, np.bool_),
    0,
)
"""Before anybody came."""


def decided(
    recent: Recent,
    time: NDArray[np.float64],
    work: NDArray[np.float64],
    deadline: NDArray[np.float64],
    reading: Reading,
) -> tuple[Arrivals, int]:
    """Return the arrivals remembered and further ones, each decided upon by those before it.

    And how many of all so far were above their threshold.
    """
    n = len(time)
    arrivals = Arrivals(
        np.concatenate([recent.time, time]),
        np.concatenate([recent.work, work]),
        np.concatenate([recent.patience, deadline - time]),
        np.concatenate([recent.threshold, np.empty(n)]),
        np.concatenate([recent.load, np.empty(n)]),
        np.concatenate([recent.declined, np.empty(n, np.bool_)]),
    )
    return arrivals, read_arrivals(arrivals, len(recent.job), recent.above, reading)


def arrived(
    recent: Recent,
    job: NDArray[np.int64],
    time: NDArray[np.float64],
    work: NDArray[np.float64],
    deadline: NDArray[np.float64],
    reading: Reading,
) -> Recent:
    """Return the memory after further arrivals, each decided upon by those before it.

    It holds as many arrivals as a decision looks at, and all those of the last instant: they may
    be judged together. What is forgotten matters to no later decision, so that it does not matter
    either how arrivals are cut into batches.
    """
    arrivals, above = decided(recent, time, work, deadline, reading)
    count = len(arrivals.time)
    first = max(count - reading.arrivals, 0)
    first = min(first, int(np.searchsorted(arrivals.time, arrivals.time[-1])))
    return Recent(
        np.concatenate([recent.job, job])[first:],
        arrivals.time[first:],
        arrivals.work[first:],
        arrivals.patience[first:],
        arrivals.threshold[first:],
        arrivals.load[first:],
        arrivals.declined[first:],
        above,
    )


def without(recent: Recent, jobs: NDArray[np.int64]) -> Recent:
    """Return the memory as if some jobs had not come; what was decided of others stays."""
    kept = ~np.isin(recent.job, jobs)
    if kept.all():
        return recent
    return Recent(
        recent.job[kept],
        recent.time[kept],
        recent.work[kept],
        recent.patience[kept],
        recent.threshold[kept],
        recent.load[kept],
        recent.declined[kept],
        recent.above,
    )


class Several(NamedTuple):
    """The planner: orders tried in turn, thrifty node counts."""

    orders: tuple[int, ...]
    generosity: float
    efficiency: float
    rounds: int

    def prepare(self, free: NDArray[np.float64], waiting: Tasks) -> Prepared:
        """Return what all tests against these free times and waiting tasks share."""
        orders, generosity, efficiency, rounds = self
        return prepare(free, waiting, orders, generosity, efficiency=efficiency, rounds=rounds)

    def admit(self, prepared: Prepared, new: Tasks | None, now: float) -> Plan:
        """Return the plan of the waiting tasks and the one new task, the last; or who fails."""
        return admit(prepared, new, now=now)

    def row_of(self, task: Tasks, usable: int) -> Rows:
        """Return a task as the one row for a cluster of `usable` nodes."""
        return rows_of(task, usable, self.efficiency, self.rounds)

    def needed(self, prepared: Prepared, new: Tasks, now: float) -> float:
        """Return the new task's least run time if it would be late on an idle cluster; else nan."""
        return needed_time(self.row_of(new, prepared.usable), 0, now)

    def offer(self, prepared: Prepared, new: Tasks, now: float, max_tests: int) -> float:
        """Return a whole second as deadline with which it is admitted, inf: none."""
        return counter_offer(prepared, new, now=now, max_tests=max_tests).deadline

    def division(self, plan: Plan, tasks: Tasks) -> Division:
        """Return how the tasks' work is divided."""
        return division_of(plan, tasks, self.rounds)

    def prepared_rows(self, tasks: Tasks, usable: int, offer_tests: int) -> InTurn:
        """Return what tests of these jobs by their rows share, sent in one round."""
        rows, orders = rows_of(tasks, usable, self.efficiency), np.array(self.orders, np.int64)
        return InTurn(rows, orders, float(self.generosity), offer_tests)
