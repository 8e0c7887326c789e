"""Ask a planner in its short form where a replay can: at submissions, and at early ends.

What it is asked and how its answers are carried out and counted is as `rtsched.replay.engine` does
by snapshots; the results are equal.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rtsched.core.chain import Answer, Judgement
from rtsched.model.verdicts import Verdict
from rtsched.simulator.settings import ExclusiveSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rtsched.core.chain import Chain
    from rtsched.core.hook_metrics import HookMetrics
    from rtsched.core.replay_planner import ReplayPlanner
    from rtsched.replay.policies import Policy
    from rtsched.replay.results import Workload
    from rtsched.simulator.exclusive import ExclusiveNodes
    from rtsched.simulator.interface import DecisionPoint

_NOBODY = np.empty(0, np.int64)


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
    name : str
        Its plug-in.
    system : ExclusiveNodes
        The machine.
    metrics : HookMetrics
        Where questions are counted.
    said : callable
        Called with a judgement that rejects some, its rows of the workload, and the time.
    """

    planner: ReplayPlanner
    name: str
    system: ExclusiveNodes
    metrics: HookMetrics
    said: Callable[[Judgement, NDArray[np.int64], float], None]

    def __post_init__(self) -> None:
        self._due = np.isfinite(self.system.jobs.deadline)

    def answer(self, point: DecisionPoint) -> bool:
        """Answer what is asked at a decision point; False: the hooks must be asked."""
        if len(point.arrivals):
            return self._judge(point.arrivals, point.time)
        return not point.nodes_changed and self._improve(point.time)

    def _judge(self, rows: NDArray[np.int64], now: float) -> bool:
        """Judge those with a deadline; the system lets in the others."""
        due = self._due[rows]
        judged = rows if due.all() else rows[due]
        if not len(judged) or not self.planner.answers[judged].all():
            return False
        held_until, plan = self.system.held_until(), self.system.plan_left()
        begun = time.perf_counter()
        verdicts, anew = self.planner.judge(judged, now, held_until, plan)
        self._count(len(rows), len(judged), time.perf_counter() - begun)
        if verdicts is None:
            self.system.settle(judged, _NOBODY, np.empty(0), anew)
            return True
        self.said(Judgement(verdicts, (Answer(self.name, "enforce", verdicts),)), judged, now)
        rejected = verdicts.code == Verdict.REJECT
        offers = verdicts.offer[rejected]
        self.system.settle(judged[~rejected], judged[rejected], offers, anew)
        return True

    def _improve(self, now: float) -> bool:
        """Look for a better plan, unless nodes of the plan are out of service."""
        held_until, plan = self.system.held_until(), self.system.plan_left()
        if np.isposinf(held_until[plan.nodes]).any():
            return False
        begun = time.perf_counter()
        better = self.planner.improve(now, held_until, plan) if len(plan.row) else None
        self._count(0, 0, time.perf_counter() - begun)
        if better is not None:
            self.system.settle(_NOBODY, _NOBODY, np.empty(0), better)
        return True

    def _count(self, asked: int, judged: int, seconds: float) -> None:
        self.metrics.calls += 1
        self.metrics.judged += asked
        self.metrics.changed += judged
        self.metrics.abstained += asked - judged
        self.metrics.seconds += seconds
