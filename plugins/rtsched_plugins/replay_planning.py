"""The short form of planners by admission tests: replays on whole nodes, one pool for all jobs.

It answers as `PlanningSession` does, on the rows of a workload in place of a snapshot's tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.api import PlanRows, Verdict, Verdicts
from rtsched_plugins.kernels.admission_of_rows import planning_origin, starts_earlier
from rtsched_plugins.planning import instead_of, refusal_of, tasks_at, tasks_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from rtsched.api import Finding, Jobs, RejectedRows, RowTest
    from rtsched_plugins.deadline_admission import DeadlineAdmission
    from rtsched_plugins.kernels.admission import Tasks
    from rtsched_plugins.kernels.admission_of_rows import Outcome
    from rtsched_plugins.planning import Proposal, Refusal, RowPlanner


class OnePool:
    """A planner that answers about the jobs of one workload (`rtsched.api.ReplayPlanner`).

    Parameters
    ----------
    admission : DeadlineAdmission
        Whose short form it is.
    planner : RowPlanner
        How it plans.
    jobs : Jobs
        The workload.
    nodes : int
        Nodes of the cluster.
    answers : bool[n]
        Which of them it judges.
    """

    def __init__(
        self,
        admission: DeadlineAdmission,
        planner: RowPlanner,
        jobs: Jobs,
        nodes: int,
        answers: NDArray[np.bool_],
    ) -> None:
        self.admission, self.planner = admission, planner
        self.jobs, self.answers, self._nodes = jobs, answers, nodes
        self._tasks = tasks_of(jobs, 0.0)
        self.tests = planner.row_tests(self._tasks, admission.offer_tests)
        self.direct = answers
        self._final = ~admission.proposes(jobs)

    def tasks(self, rows: NDArray[np.int64] | slice, origin: float) -> Tasks:
        """Return jobs as tasks, times relative to `origin`."""
        some = tasks_at(self._tasks, rows)
        return some._replace(arrival=some.arrival - origin, deadline=some.deadline - origin)

    def judge(
        self,
        rows: NDArray[np.int64],
        now: float,
        held_until: NDArray[np.float64],
        plan: PlanRows,
        promises: Callable[[], int],  # noqa: ARG002 - it says which one would be broken
    ) -> tuple[Verdicts | None, PlanRows | None]:
        """Judge jobs one by one; as `rtsched.api.ReplayPlanner.judge`."""
        session = _Session(self, now, held_until, plan)
        refusals: list[tuple[int, float]] = []
        findings: list[Finding] = []
        for at in np.argsort(rows, kind="stable").tolist():
            row = int(rows[at])
            refusal = session.admit(row)
            if refusal is not None:
                jobs = self.jobs.take(rows)
                offer, why = self.admission.refused(session, row, refusal, jobs, at)
                refusals.append((at, offer))
                findings += why
        if not refusals:
            return None, session.plan_rows()
        return self.verdicts(rows, refusals, findings), session.plan_rows()

    def verdicts(
        self,
        rows: NDArray[np.int64],
        refusals: Sequence[tuple[int, float]] = (),
        findings: Sequence[Finding] = (),
    ) -> Verdicts:
        """Return that jobs are admitted with their own deadlines, but for those refused.

        `refusals` are places in `rows`, each with the deadline that was offered.
        """
        code = np.full(len(rows), Verdict.ADMIT, np.int8)
        promise, offers = self.jobs.deadline[rows], np.full(len(rows), np.inf)
        for at, offer in refusals:
            code[at], promise[at], offers[at] = Verdict.REJECT, np.inf, offer
        never = np.full(len(rows), -np.inf)
        return Verdicts(code, never, promise, offers, tuple(findings))

    def improve(
        self, now: float, held_until: NDArray[np.float64], plan: PlanRows
    ) -> PlanRows | None:
        """Return an earlier plan, or None; as `rtsched.api.ReplayPlanner.improve`."""
        session = _Session(self, now, held_until, plan)
        return session.plan_rows() if session.improve() else None

    def row_test(self) -> RowTest | None:
        """Return its test for a replay's loop; as `rtsched.api.ReplayPlanner.row_test`."""
        return self.tests.row_test(self.direct, self._final, self._rejected)

    def _rejected(self, rejected: RejectedRows) -> Verdicts:
        """Return why the loop rejected jobs; as `rtsched.api.RowTest.verdicts`."""
        return self.admission.rejected(self.jobs, self._nodes, rejected)


class _Session:
    """The batch of one question; rows are those of the workload."""

    def __init__(
        self, pool: OnePool, now: float, held_until: NDArray[np.float64], plan: PlanRows
    ) -> None:
        self._pool, self._old = pool, plan
        self._origin = planning_origin(now)
        self._at, self._now = now, now - self._origin
        self._held_until = held_until
        self._free = np.maximum(held_until - self._origin, 0.0)
        self._rows = plan.row
        self._plan: Outcome | None = None
        self._prepared: Any = None
        self._offer = np.inf

    def _ready(self) -> Any:
        """Return what the planner prepares of those that wait."""
        if self._prepared is None:
            waiting = self._pool.tasks(self._rows, self._origin)
            self._prepared = self._pool.planner.prepare(self._free, waiting)
        return self._prepared

    def _task(self, row: int) -> Tasks:
        return self._pool.tasks(slice(row, row + 1), self._origin)

    def _tested(self, rows: NDArray[np.int64], *, has_new: bool) -> Outcome:
        """Return the plan of jobs, the last perhaps a new one, or who fails."""
        return self._pool.tests.admit(rows, has_new, self._origin, self._now, self._free)

    def admit(self, row: int) -> Refusal | None:
        """Admit a job and return None, or change nothing and say why not."""
        rows = np.append(self._rows, row)
        plan = self._tested(rows, has_new=True)
        if plan.accepted:
            self._rows, self._plan, self._prepared = rows, plan, None
            return None
        asked = (self._rows, row, self._at, self._held_until)
        needed, self._offer = self._pool.tests.rejected(*asked)
        left = float(self._pool.jobs.deadline[row] - self._at)
        ids = self._pool.jobs.id[self._rows]
        return refusal_of(needed, plan.failed, self._now, left, self._free, ids)

    def offer(self, *_: int) -> float:
        """Return the least whole second at which the last refused would be accepted, or inf."""
        return self._offer

    def instead(self, row: int) -> Proposal | None:
        """Return what a job that was not admitted could ask for; see `instead_of`."""

        def fits(changed: Tasks) -> bool:
            return self._pool.planner.admit(self._ready(), changed, self._now).accepted

        return instead_of(self._task(row), len(self._free), fits)

    def improve(self) -> bool:
        """Plan all promises anew; return whether that is better than the plan they have."""
        plan = self._tested(self._rows, has_new=False)
        better = plan.accepted and starts_earlier(plan.start, self._old.start, self._origin)
        if better:
            self._plan = plan
        return better

    def plan_rows(self) -> PlanRows | None:
        """Return the plan of all promises; None: the old one stands."""
        plan = self._plan
        if plan is None:
            return None
        start, end = plan.start + self._origin, plan.end + self._origin
        return PlanRows(self._rows, start, end, plan.indptr, plan.nodes)
