"""Admission tests of jobs of one workload, each of which is a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched_plugins.kernels.admission import uniform
from rtsched_plugins.kernels.admission_rows import empty_rows, fill_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rtsched_plugins.kernels.admission import Tasks
    from rtsched_plugins.kernels.admission_of_rows import Outcome


class RowTests:
    """The admission tests of a planner on the jobs of one workload.

    Parameters
    ----------
    tasks : Tasks
        The jobs, times in seconds since the epoch.
    efficiency, node_rule
        As the planner has them.
    test : callable
        `admit_rows` or one like it.
    *settings
        What it is called with behind all jobs as rows and what `admit` is given.
    """

    def __init__(
        self,
        tasks: Tasks,
        efficiency: float,
        node_rule: int,
        test: Callable[..., Outcome],
        *settings: Any,
    ) -> None:
        self._tasks, self._efficiency, self._node_rule = uniform(tasks), efficiency, node_rule
        self._test, self._settings = test, settings
        self._usable, self._rows = -1, empty_rows(0, efficiency)

    def admit(
        self,
        chosen: NDArray[np.int64],
        has_new: bool,
        origin: float,
        now: float,
        free: NDArray[np.float64],
    ) -> Outcome:
        """Return the plan of jobs, the last perhaps a new one, or which of them fails."""
        usable = int(np.count_nonzero(np.isfinite(free)))
        if usable != self._usable:
            self._usable = usable
            self._rows = empty_rows(len(self._tasks.arrival), self._efficiency)
            fill_rows(self._rows, 0, self._tasks, usable, self._node_rule)
        question = (self._rows, chosen, has_new, origin, now, free)
        return self._test(*question, *self._settings)
