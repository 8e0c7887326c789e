"""Planners in a replay: whether the simulated system keeps one's plan, and suits its plug-ins.

By what they declare: `rtsched.core.capabilities`. A planner in its short form, and compiled
policies, are asked from within the system's loop; what is asked, carried out and counted is as
`rtsched.replay.engine` does by snapshots, with equal results.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import structlog

from rtsched.core.capabilities import COMPILED
from rtsched.core.chain import Answer, Chain, Judgement, Stage
from rtsched.core.plugins import discover
from rtsched.errors import PluginError
from rtsched.kernels.policy import ABSTAIN, ADMIT, admit, kernels_of
from rtsched.model.jobs import Kind
from rtsched.model.schedule import PlanRows
from rtsched.model.verdicts import Verdict
from rtsched.simulator.settings import ExclusiveSettings, PreemptiveSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from rtsched.core.capabilities import ReplayPlanner
    from rtsched.core.plugins import Found
    from rtsched.replay.policies import Policy
    from rtsched.replay.results import Workload
    from rtsched.simulator.exclusive import ExclusiveNodes
    from rtsched.simulator.interface import DecisionPoint
    from rtsched.simulator.settings import SystemSettings


def load_chain(
    policy: Policy,
    found: Mapping[str, Found] | None = None,
    *,
    periodic: bool,
    resources: bool = False,
    reservations: bool = False,
) -> tuple[Chain, list[str]]:
    """Return a policy's chain, and why periodic work or promises would not be kept.

    Parameters
    ----------
    policy : Policy
        Its machine, plug-ins and planner.
    found : mapping of str to Found, optional
        Installed plug-ins; found anew if None.
    periodic : bool
        Whether nodes do periodic work.
    resources : bool
        Whether jobs share nodes, each taking amounts of resources.
    reservations : bool
        Whether nodes are set aside at times.

    Returns
    -------
    Chain, list of str
        No sentence: all is well. Where no planner is enforced, nothing is promised.

    Raises
    ------
    ConfigError, PluginError
        If the plug-ins cannot be loaded.
    """
    found = discover() if found is None else found
    chain = Chain.load(policy.plugin, policy.planner, found)
    machine, name = policy.system.machine, chain.planner
    problems = _sharing_problems(chain, policy.system)
    if resources:
        problems += _resource_problems(chain, policy)
    elif isinstance(policy.system, ExclusiveSettings) and policy.system.placement != "first":
        problems.append(
            f"system.placement: {policy.system.placement!r} chooses among nodes that jobs share; "
            "set `workload.unit` to 'resources', or leave it out"
        )
    if periodic and not policy.system.keeps_periodic:
        problems.append(
            f"system.machine: {machine!r} does not support periodic work, [[workload.periodic]]"
        )
    queues = isinstance(policy.system, ExclusiveSettings) and policy.system.promised == "queue"
    if queues and (periodic or reservations):
        problems.append(
            "system.promised: 'queue' lays out no plan, so nothing would keep jobs off nodes that "
            "are set aside or do periodic work; set it to 'plan'"
        )
    if name is None or chain.member(name).mode != "enforce":
        return chain, problems
    declared = chain.member(name).capabilities
    problems += _machine_problems(name, declared.suspends_every, policy)
    around = declared.plans_resources and not declared.spare_nodes
    if periodic and not (declared.keeps_periodic or around):
        problems.append(
            f"planner: {name!r} as configured would promise the time of the periodic work of "
            "[[workload.periodic]]; remove these tables, or use 'spare', or 'mcdf' or 'portfolio' "
            "without `spare_nodes`, `rounds`, `unequal_nodes` and `staggered`"
        )
    if reservations and not around:
        problems.append(
            f"planner: {name!r} as configured would promise nodes that are set aside; replay "
            "without --reservations, or use 'spare' in form 'gaps', or 'mcdf' or 'portfolio' "
            "without `spare_nodes`, `rounds`, `unequal_nodes` and `staggered`"
        )
    return chain, problems


def _sharing_problems(chain: Chain, system: SystemSettings) -> list[str]:
    """Return which enforced plug-ins choose nodes for another kind of machine."""
    has, machine = system.shares_nodes, system.machine
    kinds = {True: "jobs share its nodes", False: "a node runs one job at a time"}
    return [
        f"plugin {member.name!r} is set for a machine on which {kinds[not has]}, but on machine "
        f"{machine!r} {kinds[has]}; change its settings or the machine"
        for member in chain.members
        if member.mode == "enforce" and member.capabilities.shares_nodes not in {None, has}
    ]


def _resource_problems(chain: Chain, policy: Policy) -> list[str]:
    """Return what of a policy gives whole nodes to jobs, where they share them by resources."""
    remedy = "set `workload.unit` to 'core' or 'node'"
    system, problems = policy.system, []
    if system.machine != "exclusive" or system.loop not in {"fcfs", "easy", "conservative"}:
        problems.append(
            f"system: machine {system.machine!r} with loop {system.loop!r} gives whole nodes to "
            f"jobs; {remedy}, or use loop 'fcfs', 'easy' or 'conservative' "
            "of machine 'exclusive'"
        )
    name = chain.planner
    if name is not None and chain.member(name).mode == "enforce":
        declared = chain.member(name).capabilities
        if declared.spare_nodes:
            problems.append(
                f"planner: {name!r} cannot plan for lost nodes where jobs share nodes; set its "
                f"`spare_nodes` to 0, or {remedy}"
            )
        elif not declared.plans_resources:
            problems.append(
                f"planner: {name!r} as configured plans whole nodes, and jobs share them; {remedy}"
            )
    rule = system.placement if isinstance(system, ExclusiveSettings) else "first"
    if rule != "first" and chain.counts("partition"):
        problems.append(
            f"system.placement: {rule!r} would ignore the order in which plugin "
            f"{chain.asks('partition')[0]!r} prefers nodes; leave out one of them"
        )
    problems += [
        f"plugin {name!r} chooses whole nodes for jobs, which share them; {remedy}"
        for name in chain.asks("partition")
        if not chain.member(name).capabilities.places_resources
    ]
    return problems


def _machine_problems(name: str, every: float | None, policy: Policy) -> list[str]:
    """Return why the policy's machine would not keep plans that suspend jobs as often."""
    machine = policy.system.machine
    own = policy.system.slot if isinstance(policy.system, PreemptiveSettings) else None
    if not policy.system.keeps_plans:
        return [
            f"planner: machine {machine!r} follows no plan, so promises of {name!r} would not "
            "be kept; remove the planner or choose another machine"
        ]
    if own is None and every is not None:
        return [
            f"planner: {name!r} is set to suspend jobs, which machine {machine!r} does not "
            "support; "
            "change its settings or choose machine 'preemptive'"
        ]
    if own is not None and every is None:
        return [
            f"planner: {name!r} plans jobs that are never suspended, which machine {machine!r} "
            "does not guarantee; change its settings or choose machine 'exclusive'"
        ]
    if own != every:
        return [
            f"planner: {name!r} plans in slots of {every:g} s, machine {machine!r} has slots of "
            f"{own:g} s; set the same `slot` for both"
        ]
    return []


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
    planner = None if offer is None else offer(workload.jobs, workload.cluster)
    if planner is not None and not hasattr(planner, "compiled_policy"):
        raise PluginError(name, f"its short form has no method `compiled_policy`; {COMPILED}")
    return planner


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
    answered: Callable[[Judgement, NDArray[np.int64], float | NDArray[np.float64]], None]

    def __post_init__(self) -> None:
        self._due = np.isfinite(self.system.jobs.deadline)
        self._failed = False
        self._name = self.chain.planner or ""
        self._metrics = self.chain.hook_metrics["admit"][self._name]
        self.system.ask_planner(self.planner.compiled_policy())

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
        self.system.ask_planner(self.planner.compiled_policy())
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
        policy = self.planner.compiled_policy()
        if policy is not None:
            found = admit(policy, plan.row, plan.start, row, now, held_until)
            if found.code == ADMIT:
                return PlanRows(np.append(plan.row, row), *found[1:5])
            if found.code != ABSTAIN or found.failed >= 0:
                return None
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
        self.system.ask_planner(None)
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
        judgement = Judgement(verdicts, (Answer(self._name, "enforce", verdicts),))
        self.answered(judgement, judged, self.system.now)
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

    def _record_rejected(self) -> None:
        """Say whom the system's loop has rejected by the planner's policy."""
        rejected = self.system.take_rejected()
        if rejected is None:
            return
        verdicts = self.planner.verdicts(rejected)
        answers = (Answer(self._name, "enforce", verdicts),)
        self.answered(Judgement(verdicts, answers), rejected.row, rejected.at)

    def end(self) -> None:
        """Say what is not said yet; once."""
        self._record_rejected()

    @contextmanager
    def _asked(self, asked: int, judged: int) -> Iterator[None]:
        """Count a question about so many jobs; an error of the planner is a `_ShortFormError`."""
        begun = time.perf_counter()
        try:
            yield
        except Exception as cause:  # whatever it raises; the hook is asked in its place
            raise _ShortFormError(f"{type(cause).__name__}: {cause}") from cause
        self._metrics.add(1, asked, judged, asked - judged)
        self._metrics.seconds += time.perf_counter() - begun


def policy_of(
    chain: Chain, workload: Workload, policy: Policy, origin: float
) -> tuple[str, Any] | None:
    """Return whose compiled policy orders or places jobs, and it; None: the hooks must be asked.

    `origin`: the time that its times are relative to, seconds since the epoch.
    """
    name, kernel = _orders_alone(chain, policy), "rank"
    if name is None:
        name, kernel = _places_alone(chain, workload, policy), "place"
    offer = None if name is None else chain.member(name).capabilities.compiled_policy
    if name is None or offer is None:
        return None
    found = offer(workload.jobs, workload.accounts, workload.cluster, origin)
    return None if getattr(kernels_of(found), kernel) is None else (name, found)


def _orders_alone(chain: Chain, policy: Policy) -> str | None:
    """Return the plug-in that orders the queue, if no other does or observes."""
    names = chain.asks("fair_share")
    if len(names) != 1 or not chain.asks("fair_share", Stage.DYNAMIC):
        return None
    if chain.asks("partition", Stage.DYNAMIC) or {*chain.asks("observe")} - {*names}:
        return None
    ordered = policy.system.order == "priority" and chain.member(names[0]).mode == "enforce"
    return names[0] if ordered else None


def _places_alone(chain: Chain, workload: Workload, policy: Policy) -> str | None:
    """Return the plug-in that places jobs, if it is the only one asked anything during the replay.

    And jobs that arrive wait at once, in order of arrival, for whole nodes that keep their state.
    """
    system, names = policy.system, chain.asks("partition")
    if not isinstance(system, ExclusiveSettings) or len(names) != 1 or chain.planner is not None:
        return None
    others = {*chain.asks("admit"), *chain.asks("fair_share"), *chain.asks("delay_class")}
    others |= {*chain.asks("observe")} - {*names}
    if chain.asks("partition", Stage.DYNAMIC) != names:
        return None
    if others or chain.member(names[0]).mode != "enforce" or not chain.asks("observe"):
        return None
    if system.order != "arrival" or system.loop == "negotiator" or workload.cluster.shared:
        return None
    jobs = workload.jobs
    timed = len(workload.periodic) or len(workload.blocked.node) or len(workload.edges)
    if timed or workload.preemption is not None or workload.node_events:
        return None
    plain = (jobs.kind == Kind.RIGID) & (jobs.size > 0) & (jobs.begin <= jobs.submit)
    return names[0] if plain.all() and len(np.unique(jobs.id)) == len(jobs) else None
