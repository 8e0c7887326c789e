"""Questions to a planner in its short form, and to who places jobs from within the system's loop.

What is asked and how answers are carried out and counted is as `rtsched.replay.engine` does by
snapshots; the results are equal.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import structlog

from rtsched.core.chain import Answer, Judgement, Stage
from rtsched.kernels.hooks import planned_rows
from rtsched.model.jobs import Kind
from rtsched.model.schedule import PlanRows
from rtsched.model.verdicts import Verdict
from rtsched.simulator.settings import ExclusiveSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from rtsched.core.capabilities import ReplayPlanner
    from rtsched.core.chain import Chain
    from rtsched.kernels.hooks import RowPlacer, RowTest
    from rtsched.replay.policies import Policy
    from rtsched.replay.results import Workload
    from rtsched.simulator.exclusive import ExclusiveNodes
    from rtsched.simulator.interface import DecisionPoint

log = structlog.get_logger(__name__)

_NOBODY = np.empty(0, np.int64)


class _ShortFormError(Exception):
    """The short form raised something."""


def short_form(chain: Chain, workload: Workload, policy: Policy) -> ReplayPlanner | None:
    """Return the short form of a policy's planner; None where the hooks must be asked."""
    name = chain.planner
    if name is None or not isinstance(policy.system, ExclusiveSettings):
        return None
    member = chain.member(name)
    others = {*chain.asks("admit"), *chain.asks("observe"), *chain.asks("delay_class")} - {name}
    if others or member.mode != "enforce":
        return None
    timed = len(workload.periodic) or len(workload.blocked.node) or len(workload.edges)
    if timed or workload.preemption is not None:
        return None
    offer = member.capabilities.replay_planner
    return None if offer is None else offer(workload.jobs, workload.cluster)


@dataclass
class PlannerAnswers:
    """The planner's short form, and the machine that its answers are carried out on.

    Attributes
    ----------
    planner : ReplayPlanner
        Who answers.
    chain : Chain
        Its plug-in is the planner there; hook metrics are counted as if that had been asked.
    system : ExclusiveNodes
        The machine.
    said : callable
        Called with a judgement that rejects some, its rows of the workload, and the time, or that
        of each row.
    """

    planner: ReplayPlanner
    chain: Chain
    system: ExclusiveNodes
    said: Callable[[Judgement, NDArray[np.int64], float | NDArray[np.float64]], None]

    def __post_init__(self) -> None:
        self._due = np.isfinite(self.system.jobs.deadline)
        self._failed = False
        self._name = self.chain.planner or ""
        self._metrics = self.chain.hook_metrics["admit"][self._name]
        self._ask_by(self.planner.row_test())

    def answer(self, point: DecisionPoint) -> bool:
        """Answer what is asked at a decision point; False: the hooks must be asked.

        That is so from the first time on that the short form raises an error.
        """
        self._record_rejected()
        if self._failed or (point.nodes_changed and not len(point.arrivals)):
            return False
        try:
            done = self._judge(point.arrivals) if len(point.arrivals) else self._improve()
        except _ShortFormError as error:
            self._give_up(error)
            return False
        self._ask_by(self.planner.row_test())
        return done

    def promise(self, row: int, *, carried_out: bool = True) -> bool | None:
        """Promise a job that waits its deadline; False: no room, None: the hooks must be asked.

        Parameters
        ----------
        row : int
            Its row of the workload.
        carried_out : bool
            Whether the promise is made; otherwise it is only said whether it could be.
        """
        if self._failed or not self.planner.answers[row]:
            return None
        try:
            with self._asked(1, 1):
                plan = self._plan_with(row)
        except _ShortFormError as error:
            self._give_up(error)
            return None
        if plan is not None and carried_out:
            self.system.settle(np.array([row]), _NOBODY, np.empty(0), plan)
        return plan is not None

    def _plan_with(self, row: int) -> PlanRows | None:
        """Return a plan of all promises and a job; None: there is none. No offer is looked for."""
        now, held_until, plan = self._present()
        test = self.planner.row_test()
        usable = np.count_nonzero(held_until < np.inf)
        if test is not None and test.direct[row] and test.usable == usable:
            found = planned_rows(test.prepared, plan.row, plan.start, row, now, held_until)
            columns = (np.append(plan.row, row), *found[1:5])
            return PlanRows(*columns) if found.accepted else None
        promises = self.system.open_promises
        verdicts, anew = self.planner.judge(np.array([row]), now, held_until, plan, promises)
        admitted = verdicts is None or verdicts.code[0] < Verdict.DEFER
        return anew if admitted else None

    def _present(self) -> tuple[float, NDArray[np.float64], PlanRows]:
        """Return the time, until when nodes are held, and the entries of the plan that are left."""
        return self.system.now, self.system.held_until(), self.system.plan_left()

    def _give_up(self, error: _ShortFormError) -> None:
        """Have the hooks asked from now on."""
        self._failed = True
        self._ask_by(None)
        log.warning("short_form_failed", plugin=self._name, error=str(error))

    def _judge(self, rows: NDArray[np.int64]) -> bool:
        """Judge those with a deadline; the system lets in the others."""
        due = self._due[rows]
        judged = rows if due.all() else rows[due]
        if not len(judged) or not self.planner.answers[judged].all():
            return False
        question = (judged, *self._present(), self.system.open_promises)
        with self._asked(len(rows), len(judged)):
            verdicts, anew = self.planner.judge(*question)
        if verdicts is None:
            self.system.settle(judged, _NOBODY, np.empty(0), anew)
            return True
        said = Judgement(verdicts, (Answer(self._name, "enforce", verdicts),))
        self.said(said, judged, self.system.now)
        rejected = verdicts.code == Verdict.REJECT
        offers = verdicts.offer[rejected]
        self.system.settle(judged[~rejected], judged[rejected], offers, anew)
        return True

    def _improve(self) -> bool:
        """Look for a better plan, unless nodes of the plan are out of service."""
        now, held_until, plan = self._present()
        if np.isposinf(held_until[plan.nodes]).any():
            return False
        better = None
        with self._asked(0, 0):
            if len(plan.row):
                better = self.planner.improve(now, held_until, plan)
        if better is not None:
            self.system.settle(_NOBODY, _NOBODY, np.empty(0), better)
        return True

    def _ask_by(self, test: RowTest | None) -> None:
        """From now on have the loop ask this test."""
        self._test = test
        self.system.ask_by(test)

    def _record_rejected(self) -> None:
        """Say whom the system's loop has rejected by the planner's test."""
        rejected = self.system.take_rejected()
        if rejected is None or self._test is None or self._test.verdicts is None:
            return
        verdicts = self._test.verdicts(rejected)
        answers = (Answer(self._name, "enforce", verdicts),)
        self.said(Judgement(verdicts, answers), rejected.row, rejected.at)

    def end(self) -> None:
        """Say what is not said yet, and count what the loop asked of the planner's test; once.

        The time that it took is not known.
        """
        self._record_rejected()
        _, calls, rows, judged, *_ = self.system.questions.counts.tolist()
        self._metrics.calls += calls
        self._metrics.judged += rows
        self._metrics.changed += judged
        self._metrics.abstained += rows - judged

    @contextmanager
    def _asked(self, asked: int, judged: int) -> Iterator[None]:
        """Count a question about so many jobs; an error of the planner is a `_ShortFormError`."""
        begun = time.perf_counter()
        try:
            yield
        except Exception as cause:  # whatever it raises; the hook is asked in its place
            raise _ShortFormError(f"{type(cause).__name__}: {cause}") from cause
        self._metrics.calls += 1
        self._metrics.judged += asked
        self._metrics.changed += judged
        self._metrics.abstained += asked - judged
        self._metrics.seconds += time.perf_counter() - begun


def placer_of(chain: Chain, workload: Workload, policy: Policy) -> RowPlacer | None:
    """Return the compiled form of who places a policy's jobs; None where the hooks must be asked.

    It is asked only where it is the only plug-in that is asked anything during the replay, and
    where jobs that arrive wait at once, in order of arrival, for whole nodes that keep their state.
    """
    system, names = policy.system, chain.asks("partition")
    if not isinstance(system, ExclusiveSettings) or len(names) != 1 or chain.planner is not None:
        return None
    member = chain.member(names[0])
    others = {*chain.asks("admit"), *chain.asks("fair_share"), *chain.asks("delay_class")}
    others |= {*chain.asks("observe")} - {member.name}
    if chain.asks("partition", Stage.DYNAMIC) != names:
        return None
    if others or member.mode != "enforce" or not chain.asks("observe"):
        return None
    if system.order != "arrival" or system.loop == "negotiator" or workload.cluster.shared:
        return None
    jobs = workload.jobs
    timed = len(workload.periodic) or len(workload.blocked.node) or len(workload.edges)
    if timed or workload.preemption is not None or workload.node_events:
        return None
    plain = (jobs.kind == Kind.RIGID) & (jobs.size > 0) & (jobs.begin <= jobs.submit)
    if not plain.all() or len(np.unique(jobs.id)) < len(jobs):
        return None
    offer = member.capabilities.replay_placer
    return None if offer is None else offer(jobs, workload.cluster)


@dataclass
class PlacerAnswers:
    """A placer, and the machine whose loop asks it.

    Attributes
    ----------
    placer : RowPlacer
        Who answers.
    chain : Chain
        It is the only plug-in there; hook metrics are counted as if the hooks had been asked.
    system : ExclusiveNodes
        The machine.
    """

    placer: RowPlacer
    chain: Chain
    system: ExclusiveNodes

    def __post_init__(self) -> None:
        self.system.place_by(self.placer)

    def tell(self) -> None:
        """Tell the placer of what happened since it was told last."""
        self.system.tell_placer()

    def count(self) -> None:
        """Count what the system's loop asked; once, at the end. How long it took is not known."""
        told, events, asked, rows, placed = self.system.placing.counts.tolist()
        name = self.chain.asks("partition")[0]
        observed = self.chain.hook_metrics["observe"][name]
        observed.calls += told
        observed.judged += events
        observed.changed += events
        metrics = self.chain.hook_metrics["partition"][name]
        metrics.calls += asked
        metrics.judged += rows
        metrics.changed += placed
        metrics.abstained += rows - placed
