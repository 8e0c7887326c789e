"""Verdicts of a planner that promises deadlines: the frame that its variants share.

The short form, for replays on whole nodes with one pool for all jobs, answers as `PlanningSession`
does, on the rows of a workload in place of a snapshot's tables.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol

import numpy as np
from msgspec import Meta

from rtsched.api import (
    Capabilities,
    Dependencies,
    Finding,
    Jobs,
    Kind,
    PlanRows,
    Ragged,
    Reason,
    RejectedRows,
    Schedule,
    Verdict,
    Verdicts,
    are_in,
    dependencies_of,
    places,
    planned_again,
    planned_in_turn,
    restored,
)
from rtsched.kernels.loads import Load
from rtsched_plugins.insurance import NOTHING, Insurance
from rtsched_plugins.kernels.admission import rows_of
from rtsched_plugins.kernels.admission_of_rows import WorkloadRows, planning_origin
from rtsched_plugins.planning import (
    PlanningSession,
    PreparedPlan,
    instead_of,
    planning_reads,
    tasks_at,
    tasks_of,
)
from rtsched_plugins.resource_planning import PreparedResources, ResourceSession, resource_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from rtsched.api import Cluster, PreparedState, ReplayPlanner, Snapshot
    from rtsched_plugins.kernels.admission import Tasks
    from rtsched_plugins.planners import EqualNodes, NodeAware, Planner
    from rtsched_plugins.planning import Proposal, Refusal


BesidePlan = Annotated[
    bool,
    Meta(
        description="A new job is planned beside the plan as it is where it fits, and a new plan "
        "is made only otherwise. Off: each new job is put into a new plan, in the planner's order, "
        "as published. On live systems the default is on. Replays take some times longer with it."
    ),
]
"""A setting of planners."""

NOTHING_PROMISED = (
    "cannot meet this deadline; {left:time} are left, {free} of {nodes:node} are free"
)
"""What `no_room` says while there is no promise that the job could break."""
TOO_WIDE = "needs more nodes than are in service"
"""What `impossible` says of a job that no idle machine has room for."""


class Session(Protocol):
    """Promises given and the new jobs of one batch: on whole nodes, or by what each has left."""

    def admit(self, row: int) -> Refusal | None:
        """Admit the batch's job `row` and return None, or change nothing and say why not."""

    def offer(self, row: int, max_tests: int) -> float:
        """Return a whole second at which the job's deadline would be accepted, or inf."""

    def instead(self, row: int) -> Proposal | None:
        """Return what a job that was not admitted could ask for; see `instead_of`."""

    def improve(self, leave_out: bool = True) -> bool | None:
        """Plan all promises anew; return whether that is better than the plan they have."""

    def schedule(self) -> Schedule:
        """Return the plan of all promises."""


class DeadlineAdmission:
    """Judge jobs with a deadline one by one, each against all promises given before.

    A plug-in derives from it, says how it plans, and declares the reasons under its own name.

    Attributes
    ----------
    planner : Planner or NodeAware
        How a plan is made.
    offer_tests : int
        Admission tests that one counter-offer may cost; 0: no counter-offer.
    capabilities : Capabilities
        With `replay_only`, why no live system can follow its plans (empty: one can),
        `spare_nodes`, and whether it plans by resources, and so jobs that wait for others.
    insurance : Insurance
        How many lost nodes promises survive.
    beside_plan : bool
        Whether a new job is planned beside the plan as it is where that can be.
    """

    live_settings: ClassVar[Mapping[str, object]] = {"beside_plan": True}
    impossible: ClassVar[Reason]
    no_room: ClassVar[Reason]
    breaks_promise: ClassVar[Reason]
    uninsured: ClassVar[Reason | None] = None
    """For jobs that could be kept only while no node is lost; None: the planner insures nothing."""
    endless: ClassVar[Reason]
    not_yet: ClassVar[Reason]
    waits: ClassVar[Reason]
    behind: ClassVar[Reason]
    no_load: ClassVar[Reason | None] = None
    """For loads whose numbers make no sense; None: they count as `endless`."""
    smaller_load: ClassVar[Reason | None] = None
    fewer_tasks: ClassVar[Reason | None] = None
    more_nodes: ClassVar[Reason | None] = None
    """What a job could ask for instead; None: it is not looked for."""

    def __init__(
        self,
        planner: Planner | NodeAware,
        offer_tests: int,
        replay_only: str = "",
        insurance: Insurance = NOTHING,
        *,
        beside_plan: bool = False,
    ) -> None:
        self.planner = planner
        self.beside_plan = beside_plan
        self.offer_tests = offer_tests
        self.insurance = insurance
        self._resource_rules = resource_rules(planner)
        by_resources = self._resource_rules is not None and not insurance.max_nodes
        self.capabilities = Capabilities(
            replay_only=replay_only,
            spare_nodes=insurance.max_nodes,
            plans_resources=by_resources,
            follows_dependencies=by_resources,
            judges_only_deadlines=True,
            replay_planner=self.replay_planner,
        )

    def replay_planner(self, jobs: Jobs, cluster: Cluster) -> ReplayPlanner | None:  # noqa: ARG002
        """Return its short form for a replay of these jobs; None: it has none."""
        return None

    def one_pool(self, planner: EqualNodes, jobs: Jobs, cluster: Cluster) -> OnePool | None:
        """Return the short form of a planner that plans for all jobs on the same whole nodes.

        None where some of them may not use all nodes, are arrays or loads sent in several rounds,
        or could restart after a loss; and where new jobs are planned beside the plan.
        """
        used = {jobs.names("partition")[code] for code in np.unique(jobs.partition) if code >= 0}
        everywhere = all(cluster.partitions[name].all() for name in used & set(cluster.partitions))
        if self.insurance.max_nodes or self.beside_plan or cluster.shared or not everywhere:
            return None
        sent = planner.rounds > 1 and (jobs.kind == Kind.DIVISIBLE).any()
        if sent or jobs.names("node_request") or (jobs.kind == Kind.ARRAY).any():
            return None
        known = np.isfinite(jobs.deadline) & bounded(jobs) & ~(jobs.begin > jobs.submit)
        return OnePool(self, planner, jobs, len(cluster), known & ~senseless(jobs))

    def proposes(self, jobs: Jobs) -> NDArray[np.bool_]:
        """Return to which jobs, if they are rejected, something else may be proposed, bool[n]."""
        if self.smaller_load is None:
            return np.zeros(len(jobs), np.bool_)
        return np.isin(jobs.kind, (Kind.DIVISIBLE, Kind.ARRAY, Kind.MOLDABLE))

    def rejected(self, jobs: Jobs, nodes: int, rejected: RejectedRows) -> Verdicts:
        """Return as verdicts why jobs of a workload were rejected, with their counter-offers.

        `nodes` are those of the cluster. As `refusal_of` and `refused`, of all at once.
        """
        left = jobs.deadline[rejected.row] - rejected.at
        late, breaks = ~np.isnan(rejected.needed), rejected.failed >= 0
        too_wide = late & np.isinf(rejected.needed)
        alone = ~late & ~breaks & (rejected.promised == 0)
        plan_numbers = {"promises": rejected.promised, "left": left, "free": rejected.free}
        plan_numbers["nodes"] = np.full(len(left), nodes)
        other = jobs.id[np.maximum(rejected.failed, 0)]
        found = (
            (late & ~too_wide, self.impossible, {"left": left, "needed": rejected.needed}),
            (too_wide, replace(self.impossible, template=TOO_WIDE), {"left": left}),
            (
                ~late & breaks,
                self.breaks_promise,
                {"other": other, "promises": rejected.promised},
            ),
            (~late & ~breaks & ~alone, self.no_room, plan_numbers),
            (alone, replace(self.no_room, template=NOTHING_PROMISED), plan_numbers),
        )
        findings = (Finding.where(mask, reason, **numbers) for mask, reason, numbers in found)
        code = np.full(len(left), Verdict.REJECT)
        return Verdicts.build(code, offer=rejected.offer, findings=findings)

    def judge(self, jobs: Jobs, snapshot: Snapshot, prepared: PreparedState) -> Verdicts | None:
        """Judge one by one in order of (submit, id), each against all admitted before it.

        Jobs that are promised something already are to be planned anew: they are kept with as much
        insurance as can be had.
        """
        max_nodes = self.insurance.max_nodes
        if not len(jobs):
            return (self._restored if max_nodes else self._improve)(snapshot, prepared)
        if not max_nodes or not are_in(jobs.id, snapshot.promises.job).all():
            return self._judged(jobs, snapshot, self.insurance, prepared)
        found = None
        for nodes in range(max_nodes, -1, -1):
            found = self._judged(jobs, snapshot, self.insurance.at_most(nodes), prepared)
            if found is None or (found.code == Verdict.ADMIT).all():
                break
        return found

    def _judged(
        self, jobs: Jobs, snapshot: Snapshot, insurance: Insurance, prepared: PreparedState
    ) -> Verdicts | None:
        due = np.isfinite(jobs.deadline)
        if not due.any():
            return None
        wrong = due & senseless(jobs) & (self.no_load is not None)
        endless = due & ~wrong & ~bounded(jobs)
        later = due & ~wrong & ~endless & self.cannot_plan_yet(jobs, snapshot)
        judged = np.flatnonzero(due & ~wrong & ~endless & ~later)
        code = np.zeros(len(jobs), np.int8)
        code[endless | wrong], code[later] = Verdict.REJECT, Verdict.DEFER
        promise, offer = np.full(len(jobs), np.inf), np.full(len(jobs), np.inf)
        findings = []
        all_judged = len(judged) == len(jobs)
        if self.no_load is not None and wrong.any():
            findings.append(Finding.where(wrong, self.no_load, **_numbers(jobs)))
        if not all_judged:
            findings.append(Finding.where(endless, self.endless))
            findings.append(Finding.where(later, self.not_yet, wait=jobs.begin - snapshot.now))
        due_now = jobs if all_judged else jobs.take(judged)
        session = self._session(snapshot, due_now, insurance, prepared)
        for k in np.lexsort((jobs.id[judged], jobs.submit[judged])).tolist():
            row = judged[k]
            refusal = session.admit(k)
            if refusal is None:
                code[row], promise[row] = Verdict.ADMIT, jobs.deadline[row]
                continue
            code[row] = Verdict.REJECT
            offer[row], why = self.refused(session, k, refusal, jobs, int(row))
            findings += why
        plan = session.schedule() if (code == Verdict.ADMIT).any() else None
        retry_at = np.where(later, jobs.begin, -np.inf)
        return Verdicts.build(
            code, retry_at=retry_at, promise=promise, offer=offer, findings=findings, plan=plan
        )

    def refused(
        self, session: Session, k: int, refusal: Refusal, jobs: Jobs, row: int
    ) -> tuple[float, list[Finding]]:
        """Return the counter-offer to a session's job k, row `row` of `jobs`, and the findings."""
        offer, offers = np.inf, self.offer_tests and refusal.why != "waits"
        if offers:
            offer = session.offer(k, self.offer_tests)
        reason = getattr(self, refusal.why)
        if refusal.why == "no_room" and not refusal.numbers["promises"]:
            reason = replace(reason, template=NOTHING_PROMISED)
        if refusal.why == "impossible" and "needed" not in refusal.numbers:
            reason = replace(reason, template=TOO_WIDE)
        numbers = {name: np.array([value]) for name, value in refusal.numbers.items()}
        findings = [Finding(reason, np.array([row]), numbers)]
        if offers and self.smaller_load is not None:
            findings += self.proposed(session.instead(k), jobs, row)
        return offer, findings

    def cannot_plan_yet(self, jobs: Jobs, snapshot: Snapshot) -> NDArray[np.bool_]:
        """Return which jobs cannot be planned yet, as they begin later, bool[n].

        Where jobs share nodes there is a plan for all times.
        """
        ahead = snapshot.cluster.shared and self._resource_rules and not self.insurance.max_nodes
        return (jobs.begin > snapshot.now) & (not ahead)

    def proposed(self, proposal: Proposal | None, jobs: Jobs, row: int) -> list[Finding]:
        """Return what row `row` of `jobs` could ask for to keep its deadline; None: nothing."""
        if proposal is None:
            return []
        numbers = dict(proposal.numbers)
        if proposal.why == "fewer_tasks":
            tasks = int(jobs.tasks[row])
            fewer = int(numbers.pop("rounds")) * int(jobs.tasks_per_node[row])
            numbers |= {"tasks": fewer, "all": tasks}
        reason = getattr(self, proposal.why)
        columns = {name: np.array([value]) for name, value in numbers.items()}
        return [Finding(reason, np.array([row]), columns)]

    def _improve(self, snapshot: Snapshot, prepared: PreparedState) -> Verdicts | None:
        """Return an earlier plan for the promises given, by `PlanningSession.improve`, or None."""
        if not len(snapshot.plan):
            return None
        session = self._session(snapshot, snapshot.queued.take([]), self.insurance, prepared)
        return Verdicts.build([], plan=session.schedule()) if session.improve() else None

    def _restored(self, snapshot: Snapshot, prepared: PreparedState) -> Verdicts | None:
        """Return a better plan, or one that keeps all promises where nodes were lost.

        Promised jobs that ran on such a node and wait again are part of it. If no plan is found,
        those that fail are left out, as `PlanningSession.improve` says.
        """
        queued, promises = snapshot.queued, snapshot.promises
        waits = are_in(queued.id, promises.job) & ~are_in(queued.id, snapshot.plan.entries.job)
        anew = queued.take(waits)
        if len(anew):
            place, _ = places(promises.job, anew.id)
            anew = anew.with_column("deadline", promises.deadline[place])
        if not len(snapshot.plan) and not len(anew):
            return None
        for nodes in range(self.insurance.max_nodes, -1, -1):
            session = self._session(snapshot, anew, self.insurance.at_most(nodes), prepared)
            better = session.improve(leave_out=False)
            if better is not None and all(session.admit(k) is None for k in range(len(anew))):
                return Verdicts.build([], plan=session.schedule()) if better or len(anew) else None
            same = self._in_order(snapshot, anew, self.insurance.at_most(nodes))
            if same is not None:
                return Verdicts.build([], plan=same)
        session = self._session(snapshot, anew, self.insurance.at_most(0), prepared)
        better = session.improve()
        admitted = [session.admit(k) is None for k in range(len(anew))]
        return Verdicts.build([], plan=session.schedule()) if better or any(admitted) else None

    def _in_order(self, snapshot: Snapshot, anew: Jobs, insurance: Insurance) -> Schedule | None:
        """Return the plan in the order of its starts on the nodes that are left; see `restored`."""
        if (anew.kind != Kind.RIGID).any():
            return None  # it is not known how many nodes it takes
        plan, jobs = _begun_again(snapshot, anew)
        prepared = PreparedPlan(snapshot, self.planner, insurance)
        losses, entries = prepared.losses(jobs), plan.entries
        end = entries.end + losses * (entries.end - entries.start)
        longer = replace(plan, entries=entries.replace(end=end))
        sooner = jobs.deadline - losses * insurance.recovery
        due = jobs.with_column("deadline", sooner)
        found = restored(snapshot, longer, due, prepared.open_after(snapshot.now))
        if found is None:
            return None
        start, end = found.entries.start, found.entries.end
        once = start + (end - start) / (1.0 + losses)
        return replace(found, entries=found.entries.replace(end=np.where(losses, once, end)))

    def _session(
        self, snapshot: Snapshot, jobs: Jobs, insurance: Insurance, prepared: PreparedState
    ) -> Session:
        """Return the session; the plan is prepared once as long as promises and plan stand."""
        rules, links = self._resource_rules, self._links(snapshot, jobs)
        if rules is not None and not self.insurance.max_nodes:
            one_plan = snapshot.cluster.shared or links is not None or len(snapshot.blocked.node)
            pools = None if one_plan else self._pools(snapshot, insurance, prepared)
            if pools is None or pools.has_overlapping_pools(jobs):
                reads = planning_reads(snapshot)
                resources = prepared.get(PreparedResources, snapshot, rules, reads=reads)
                return ResourceSession(snapshot, jobs, resources, links)
        pools = self._pools(snapshot, insurance, prepared)
        return PlanningSession(snapshot, jobs, pools, self.beside_plan)

    def _pools(
        self, snapshot: Snapshot, insurance: Insurance, prepared: PreparedState
    ) -> PreparedPlan:
        """Return what is planned by pool of nodes."""
        if insurance != self.insurance:
            return PreparedPlan(snapshot, self.planner, insurance)

        def grown(last: PreparedPlan) -> PreparedPlan | None:
            return last.after(snapshot)

        reads, given = planning_reads(snapshot), (snapshot, self.planner, insurance)
        return prepared.get(PreparedPlan, *given, reads=reads, after=grown)

    def _links(self, snapshot: Snapshot, jobs: Jobs) -> Dependencies | None:
        """Return what the jobs of the plan and the new ones wait for; None: for nobody."""
        if not len(snapshot.edges) or not self.capabilities.follows_dependencies:
            return None
        ids = np.concatenate([snapshot.plan.entries.job, jobs.id])
        return dependencies_of(ids, snapshot) or None


def _begun_again(snapshot: Snapshot, anew: Jobs) -> tuple[Schedule, Jobs]:
    """Return the plan with entries from now on for rigid jobs that lost their nodes, and its jobs.

    Which nodes such an entry names means nothing: it had none.
    """
    indptr, nodes = Ragged.counted(anew.size)
    start = np.full(len(anew), snapshot.now)
    entries = Schedule.build(anew.id, start, start + anew.wall_time, indptr, nodes.astype(np.int32))
    whole = Schedule.joined([snapshot.plan, entries])
    return whole, Jobs.joined([snapshot.planned, anew])


def _numbers(jobs: Jobs) -> dict[str, NDArray[np.float64]]:
    return {name: getattr(jobs, name) for name in Load._fields}


def senseless(jobs: Jobs) -> NDArray[np.bool_]:
    """Return which divisible jobs have no units, no time per unit, or a negative time."""
    negative = (jobs.cms < 0) | (jobs.cps < 0) | (jobs.setup_link < 0) | (jobs.setup_node < 0)
    nothing = (jobs.sigma <= 0) | (jobs.cms + jobs.cps <= 0)
    wrong: NDArray[np.bool_] = (jobs.kind == Kind.DIVISIBLE) & (negative | nothing)
    return wrong


def bounded(jobs: Jobs) -> NDArray[np.bool_]:
    """Return which jobs say enough to know when they will have ended."""
    load = np.isfinite(jobs.sigma) & (jobs.sigma > 0) & np.isfinite(jobs.cms + jobs.cps)
    load &= jobs.cms + jobs.cps > 0
    return np.where(jobs.kind == Kind.DIVISIBLE, load, np.isfinite(jobs.wall_time))


class OnePool:
    """A planner that answers about the jobs of one workload (`rtsched.api.ReplayPlanner`).

    Parameters
    ----------
    admission : DeadlineAdmission
        Whose short form it is.
    planner : EqualNodes
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
        planner: EqualNodes,
        jobs: Jobs,
        nodes: int,
        answers: NDArray[np.bool_],
    ) -> None:
        self.admission, self.planner = admission, planner
        self.jobs, self.answers, self._nodes = jobs, answers, nodes
        self._tasks = tasks_of(jobs, 0.0)
        self.direct = answers
        self._final = ~admission.proposes(jobs)
        self._usable, self._policy = -1, None

    def _policy_for(self, held_until: NDArray[np.float64]) -> Any:
        """Return the compiled policy for so many nodes in service."""
        usable = int(np.count_nonzero(held_until < np.inf))
        if usable != self._usable:
            planner, tests = self.planner, self.admission.offer_tests
            rows = rows_of(self._tasks, usable, planner.efficiency, 1, planner.node_rule)
            jobs = WorkloadRows(rows, usable, self.direct, self._final, tests)
            self._policy, self._usable = planner.policy_of(jobs), usable
        return self._policy

    def judge(
        self,
        rows: NDArray[np.int64],
        now: float,
        held_until: NDArray[np.float64],
        plan: PlanRows,
        promises: Callable[[], int],  # noqa: ARG002 - it says which one would be broken
    ) -> tuple[Verdicts | None, PlanRows | None]:
        """Judge jobs one by one; as `rtsched.api.ReplayPlanner.judge`."""
        policy = self._policy_for(held_until)
        anew, rejected, final = planned_in_turn(policy, rows, now, held_until, plan)
        better = anew if len(anew.row) > len(plan.row) else None
        if not len(rejected.row):
            return None, better
        at = np.argsort(rows)
        at = at[np.searchsorted(rows, rejected.row, sorter=at)]
        code, findings = np.full(len(rows), Verdict.ADMIT, np.int8), list[Finding]()
        promise, offer = self.jobs.deadline[rows], np.full(len(rows), np.inf)
        code[at], promise[at], offer[at] = Verdict.REJECT, np.inf, rejected.offer
        for k, row in enumerate(rejected.row.tolist()):
            why = self.verdicts(RejectedRows._make(column[[k]] for column in rejected)).findings
            if self.admission.offer_tests and not final[k]:
                waiting = anew.row[: rejected.promised[k]]
                proposal = self._instead(row, waiting, now, held_until)
                why += tuple(self.admission.proposed(proposal, self.jobs.take([row]), 0))
            findings += [finding.moved(at[[k]]) for finding in why]
        return Verdicts.build(code, promise=promise, offer=offer, findings=tuple(findings)), better

    def _instead(
        self, row: int, waiting: NDArray[np.int64], now: float, held_until: NDArray[np.float64]
    ) -> Proposal | None:
        """Return what a job that was not admitted could ask for; see `instead_of`."""
        origin = planning_origin(now)
        free = np.maximum(held_until - origin, 0.0)
        prepared = self.planner.prepare(free, self._tasks_at(waiting, origin))

        def fits(changed: Tasks) -> bool:
            return self.planner.admit(prepared, changed, now - origin).accepted

        return instead_of(self._tasks_at(slice(row, row + 1), origin), len(free), fits)

    def _tasks_at(self, rows: NDArray[np.int64] | slice, origin: float) -> Tasks:
        """Return jobs as tasks, times relative to `origin`."""
        some = tasks_at(self._tasks, rows)
        return some._replace(arrival=some.arrival - origin, deadline=some.deadline - origin)

    def improve(
        self, now: float, held_until: NDArray[np.float64], plan: PlanRows
    ) -> PlanRows | None:
        """Return an earlier plan, or None; as `rtsched.api.ReplayPlanner.improve`."""
        return planned_again(self._policy_for(held_until), now, held_until, plan)

    def compiled_policy(self) -> Any:
        """Return its compiled form; as `rtsched.api.ReplayPlanner.compiled_policy`."""
        return self._policy

    def verdicts(self, rejected: RejectedRows) -> Verdicts:
        """Return why jobs were rejected; as `rtsched.api.ReplayPlanner.verdicts`."""
        return self.admission.rejected(self.jobs, self._nodes, rejected)
