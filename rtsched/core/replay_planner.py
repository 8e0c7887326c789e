"""The short form of a planner, for replays that ask it at each submission.

A hook is asked with a snapshot: tables of who waits, runs and is promised what. Making these costs
a replay several times what a planner's own arithmetic does. A planner may offer, besides its hook,
an object that answers the same questions from the few arrays that it needs. Both forms must answer
alike; what the short form does not answer, the hook is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from rtsched.kernels.row_tests import RowTest
    from rtsched.model.plan_rows import PlanRows
    from rtsched.model.verdicts import Verdicts


class ReplayPlanner(Protocol):
    """Answers about the jobs of one workload, given to `Capabilities.replay_planner`."""

    @property
    def answers(self) -> NDArray[np.bool_]:
        """Return bool[n]: which jobs of the workload it can judge at their submission."""

    def judge(
        self,
        rows: NDArray[np.int64],
        now: float,
        held_until: NDArray[np.float64],
        plan: PlanRows,
        promises: Callable[[], int],
    ) -> tuple[Verdicts | None, PlanRows | None]:
        """Judge jobs as the hook does.

        Parameters
        ----------
        rows : int64[k]
            The jobs, as rows of the workload.
        now : float
            Seconds since the epoch.
        held_until : float64[m]
            When running jobs leave each node at the latest, seconds since the epoch; -inf: it is
            free; inf: it takes no job.
        plan : PlanRows
            What the planner planned last, without what has started since.
        promises : callable
            Returns how many promises there are to jobs that have not ended, without these.

        Returns
        -------
        Verdicts or None
            One row per job, without a plan; None: all are admitted with their own deadline.
        PlanRows or None
            The new plan; None: nobody is admitted, the old one stands.
        """

    def improve(
        self, now: float, held_until: NDArray[np.float64], plan: PlanRows
    ) -> PlanRows | None:
        """Return a better plan as the hook does that is asked about no job; None: there is none.

        No node of the plan is out of service.
        """

    def row_test(self) -> RowTest | None:
        """Return its compiled test, which a replay's loop calls itself; None: it has none.

        What the test accepts is done without asking `judge` or `improve`, which would accept the
        same. It may depend on what was asked last, and is looked at after each question.
        """
