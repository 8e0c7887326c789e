"""Admission tests of jobs of one workload, each of which is a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.api import RowTest, rejected_row
from rtsched_plugins.kernels.admission import rows_of, uniform

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rtsched.api import RejectedRows, RowRejection, Verdicts
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
    prepared : callable
        Makes what it is called with first, of all jobs as rows and of the planner's settings.
    *settings
        These.
    """

    def __init__(
        self,
        tasks: Tasks,
        efficiency: float,
        node_rule: int,
        test: Callable[..., Outcome],
        prepared: Callable[..., Any],
        *settings: Any,
    ) -> None:
        self._tasks, self._efficiency, self._node_rule = uniform(tasks), efficiency, node_rule
        self._test, self._prepare, self._settings = test, prepared, settings
        self._usable, self._prepared = -1, None

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
            rows = rows_of(self._tasks, usable, self._efficiency, node_rule=self._node_rule)
            self._usable, self._prepared = usable, self._prepare(rows, *self._settings)
        return self._test(self._prepared, chosen, has_new, origin, now, free)

    def rejected(
        self, rows: NDArray[np.int64], new: int, now: float, held_until: NDArray[np.float64]
    ) -> RowRejection:
        """Return what is said to a new job, behind these rows, that `admit` did not accept.

        Parameters as those of `rtsched.api.rejects_rows`.
        """
        return rejected_row(self._prepared, rows, new, now, held_until)

    def row_test(
        self,
        direct: NDArray[np.bool_],
        final: NDArray[np.bool_],
        verdicts: Callable[[RejectedRows], Verdicts],
    ) -> RowTest | None:
        """Return the test for a replay's loop; None before the first question.

        Parameters
        ----------
        direct, final, verdicts
            As in `rtsched.api.RowTest`.
        """
        if self._prepared is None:
            return None
        return RowTest(self._prepared, self._usable, direct, final, verdicts)
