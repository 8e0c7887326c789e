"""Replay a workload under a policy: one discrete-event loop around the same cycle as live.

The simulated batch system runs by itself until something must be decided: jobs arrived that a
plug-in judges, jobs wait that a plug-in orders or places, something changed under the plan. Then
the cycle is asked as the daemon would ask it, and its actions are applied as Slurm's or HTCondor's
adapter would apply them.

What cannot change while a job waits is asked once per job, in large batches, before the run; what
a plug-in offers in compiled form is asked from the system's own compiled loop, at each decision.

`with_baseline_waits` replays the baseline with only the jobs that another policy accepted. A policy
that rejects jobs has the others wait less, whatever its plan is worth. Under the baseline those
others alone wait for less too: that part of the gain comes from rejecting, the rest from the plan.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np

from rtsched.core.chain import Answer, Judgement, Stage
from rtsched.core.decision import admission_actions, judge, observe, steer
from rtsched.errors import ConfigError
from rtsched.kernels.policy import kernels_of
from rtsched.model import on_disk
from rtsched.model.actions import Admit
from rtsched.model.blocked import with_recurring
from rtsched.model.jobs import alike_but_for_deadlines
from rtsched.model.log import FinalState
from rtsched.model.snapshot import Snapshot
from rtsched.model.verdicts import Placement, Verdict, Verdicts
from rtsched.replay.array_jobs import as_one_job
from rtsched.replay.decisions import Decisions
from rtsched.replay.planners import PlannerAnswers, load_chain, policy_of, short_form
from rtsched.replay.policies import baseline
from rtsched.replay.results import PolicyRun, Results
from rtsched.simulator.interface import Outcome, StaticAnswers, StopConditions
from rtsched.simulator.machines import simulate
from rtsched.simulator.settings import ExclusiveSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.core.chain import Chain
    from rtsched.core.plugins import Found
    from rtsched.model.actions import Action
    from rtsched.model.table import Ragged
    from rtsched.replay.checkpoints import Checkpoint
    from rtsched.replay.policies import Policy
    from rtsched.replay.results import Workload
    from rtsched.simulator.exclusive import ExclusiveNodes
    from rtsched.simulator.interface import JobOutcomes


BLOCK = 1 << 16
"""Jobs judged in one batch where the answer depends on the jobs alone."""


@dataclass
class Replay:
    """One policy's replay of one workload, from static answers to results."""

    name: str
    workload: Workload
    chain: Chain
    policy: Policy
    record_nodes: bool = True
    task_times: Ragged | None = None
    absent: NDArray[np.bool_] | None = None
    decisions: Decisions = field(default_factory=Decisions)
    undone: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        jobs = self.workload.jobs
        self.origin = float(jobs.submit[0]) if len(jobs) else 0.0
        self.states: Mapping[str, Any] = {}
        self.chain.mark_static(jobs, self.workload.cluster)
        found = policy_of(self.chain, self.workload, self.policy, self.origin)
        self._compiled_of = None if found is None else found[0]
        self.compiled: Any = None if found is None else found[1]
        self._stage = Stage.DYNAMIC
        self._offers = np.empty(0)
        static = self._static_answers()
        self._judged = self.chain.may_judge(jobs, self._stage)
        stop_at = StopConditions(
            arrivals=bool(self._judged.any()),
            passes=self._dynamic("partition")
            or (self._dynamic("fair_share") and self.compiled is None),
            early_ends=self.chain.planner is not None,
            nodes=self.chain.planner is not None,
        )
        self._steering = self._steering_stage()
        self._recurs = self._plans_around_recurring()
        self._blocked = self.workload.blocked
        planner = short_form(self.chain, self.workload, self.policy)
        asked = planner is None and self.compiled is None
        self._observes = asked and bool(self.chain.asks("observe"))
        self.system = simulate(
            self.workload.jobs,
            self.workload.run_time,
            self.workload.cluster,
            settings=self.policy.system,
            accounts=self.workload.accounts,
            edges=self.workload.edges,
            periodic=self.workload.periodic,
            blocked=self.workload.blocked,
            limits=self.workload.limits,
            preemption=self.workload.preemption,
            task_times=self.task_times,
            stop_at=stop_at,
            static=static,
            compiled=self.compiled,
            node_events=self.workload.node_events,
            record_events=self._observes,
            record_nodes=self.record_nodes,
        )
        self._planner: PlannerAnswers | None = None
        if planner is not None:
            machine = cast("ExclusiveNodes", self.system)
            self._planner = PlannerAnswers(planner, self.chain, machine, self.decisions.add)

    def run(
        self,
        progress: Callable[[float], None] | None = None,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        """Run to the end, answering what the system asks; where possible, from a checkpoint."""
        total = max(len(self.workload.jobs), 1)
        if self._observes or not self.system.resumable:
            checkpoint = None
        if checkpoint is not None and (state := checkpoint.read()) is not None:
            self.system.restore(state)
            del state
        with_events = self._observes or kernels_of(self.compiled).place is not None
        watched = with_events or progress is not None or checkpoint is not None
        step = max(total // 200, 1) if watched else None
        while not (point := self.system.advance(step)).done:
            asked = len(point.arrivals) or point.early_end or point.nodes_changed
            if asked and not (self._planner and self._planner.answer(point)):
                self._judge(point.arrivals)
            if point.early_end or point.nodes_changed:
                self._judge_again()
            if point.passes:
                self._carry_out(steer(self._observed(), self.chain, self._steering).actions)
            if self._observes and self.system.has_events():
                self._observed()
            if watched:
                on_disk.let_go()
            if progress is not None:
                progress(point.arrived / total)
            if checkpoint is not None and checkpoint.is_due():
                checkpoint.keep(self.system.checkpoint())
        if self._observes:
            self._observed()

    def _judge(self, rows: NDArray[np.int64]) -> None:
        """Ask about the jobs in these rows of the workload, or with none about the plan."""
        if len(rows) and not self._judged[rows].any():
            job = self.workload.jobs.id[rows]
            self._carry_out([Admit(job, np.full(len(rows), np.inf))])
            return
        snapshot = self._observed()
        jobs = self.workload.jobs.take(rows)
        judgement = judge(snapshot, self.chain, jobs, self._stage)
        self.decisions.add(judgement, rows, snapshot.now)
        self._carry_out(admission_actions(jobs, judgement.verdicts))

    def _judge_again(self) -> None:
        """Promise rejected jobs that wait, the earliest deadline first, where there is room by now.

        Among jobs that are alike but for their deadlines there is room for the later ones first:
        if not for the latest, the others are not asked about.
        """
        self.system.put_late_last()
        rows = self.system.rejected_waiting()
        while len(rows):
            if self._promise(int(rows[0])):
                rows = rows[1:]
                continue
            of = self._alike[rows]
            alike = rows[of == of[0]].tolist()
            refused = len(alike)
            if refused > 1 and self._has_room(alike[-1]):
                refused = bisect_left(alike, True, 1, refused - 1, key=self._has_room)
            rows = rows[~np.isin(rows, alike[:refused])]

    @cached_property
    def _alike(self) -> NDArray[np.int64]:
        return alike_but_for_deadlines(self.workload.jobs)

    def _has_room(self, row: int) -> bool:
        """Return whether a job that waits could be promised its deadline."""
        return self._promise(row, carried_out=False)

    def _promise(self, row: int, *, carried_out: bool = True) -> bool:
        """Promise a job that waits its deadline, if there is room; return whether there is."""
        if self._planner is not None:
            promised = self._planner.promise(row, carried_out=carried_out)
            if promised is not None:
                return promised
        snapshot, jobs = self._observed(), self.workload.jobs.take([row])
        others = snapshot.queued.take(snapshot.queued.id != jobs.id)
        snapshot = replace(snapshot, queued=others)
        verdicts = judge(snapshot, self.chain, jobs, self._stage).verdicts
        accepted = bool(verdicts.code[0] < Verdict.DEFER)
        if accepted and carried_out:
            self._carry_out(admission_actions(jobs, verdicts))
        return accepted

    def _carry_out(self, actions: Sequence[Action]) -> None:
        """Have the system do what was asked, and count what it cannot do."""
        for action, outcome in zip(actions, self.system.apply(actions), strict=True):
            if outcome is Outcome.UNSUPPORTED:
                self.undone[type(action).__name__] += len(action.job)

    def _dynamic(self, hook: str) -> bool:
        return bool(self.chain.asks(hook, Stage.DYNAMIC))

    def _static(self, hook: str) -> bool:
        """Return whether the answers of all who are asked this are known before the run."""
        return bool(self.chain.asks(hook, Stage.STATIC)) and not self._dynamic(hook)

    def _steering_stage(self) -> Stage:
        """Return who is asked when jobs are about to start: the dynamic ones.

        Their priorities are added to those of static plug-ins, and the first opinion counts: where
        a hook has both, all are asked.
        """
        hooks = ("fair_share", "partition")
        mixed = any(self._dynamic(hook) and self.chain.asks(hook, Stage.STATIC) for hook in hooks)
        return Stage.ALL if mixed else Stage.DYNAMIC

    def _observed(self) -> Snapshot:
        """Return the system's snapshot after telling the plug-ins what happened."""
        snapshot = self.system.snapshot(self.states)
        if self._recurs:
            blocked = with_recurring(self.workload.blocked, self.workload.periodic, snapshot.now)
            self._blocked = self._blocked if blocked.equals(self._blocked) else blocked
            snapshot = replace(snapshot, blocked=self._blocked)
        if self._observes:
            snapshot, self.states = observe(snapshot, self.chain, self.system.events())
        return snapshot

    def _plans_around_recurring(self) -> bool:
        """Return whether the planner knows recurring work as times at which nodes are set aside."""
        name, recurs = self.chain.planner, len(self.workload.periodic) > 0
        if name is None or not recurs:
            return False
        declared = self.chain.member(name).capabilities
        return declared.plans_resources and not declared.keeps_periodic

    def _static_answers(self) -> StaticAnswers:
        """Ask, in large batches, everything that cannot change while a job waits."""
        jobs, n = self.workload.jobs, len(self.workload.jobs)
        snapshot = Snapshot(self.origin, self.workload.cluster, accounts=self.workload.accounts)
        blocks = [np.arange(first, min(first + BLOCK, n)) for first in range(0, n, BLOCK)]
        priority = placement = None
        if self._static("fair_share"):
            parts = [self.chain.fair_share(jobs.take(rows), snapshot).value for rows in blocks]
            priority = np.concatenate([np.empty(0), *parts])
        if self._static("partition") and n:
            sets = [self.chain.partition(jobs.take(rows), snapshot) for rows in blocks]
            placement = _binding(Placement.joined(sets), len(self.workload.cluster))
        reject = self._static_rejections(blocks, snapshot)
        if self.absent is not None:
            reject = self.absent if reject is None else reject | self.absent
        return StaticAnswers(reject, priority, placement)

    def _static_rejections(
        self, blocks: Sequence[NDArray[np.int64]], snapshot: Snapshot
    ) -> NDArray[np.bool_] | None:
        """Return who is turned away for good; None if that must be asked at each submission.

        A static plug-in may put a job off (it failed and the site defers, or it names a time) or
        promise it something; then all are asked again at the submissions.
        """
        if not self.chain.asks("admit", Stage.STATIC):
            return None
        reject = np.zeros(len(self.workload.jobs), np.bool_)
        for rows in blocks:
            batch = self.workload.jobs.take(rows)
            judgement = self.chain.admit(batch, snapshot, stage=Stage.STATIC)
            code, promise = judgement.verdicts.code, judgement.verdicts.promise
            if (code == Verdict.DEFER).any() or np.isfinite(promise).any():
                self._stage, self.decisions = Stage.ALL, Decisions()
                self.chain.forget("admit")
                return None
            self.decisions.add(judgement, rows)
            reject[rows] = code == Verdict.REJECT
            offer = judgement.verdicts.offer
            if np.isfinite(offer).any():
                if not len(self._offers):
                    self._offers = np.full(len(reject), np.inf)
                self._offers[rows] = offer
        return reject

    def outcome(self, seconds: float) -> PolicyRun:
        """Return the results; the chain's hook metrics count compiled policies too."""
        self._count_compiled()
        outcomes = self.system.job_outcomes()
        if outcomes.findings:
            self.decisions.add(_of_system(outcomes), np.arange(len(self.workload.jobs)))
        reason, reasons = self.decisions.reasons(len(self.workload.jobs))
        results = Results.build(
            len(self.workload.jobs),
            names={"reason": reasons},
            start=outcomes.start,
            end=outcomes.end,
            size=outcomes.size,
            fate=outcomes.fate,
            first_node=outcomes.first_node,
            promise=outcomes.promise,
            offer=self._with_static_offers(outcomes.offer),
            reason=reason,
            ran_on=outcomes.rejected,
            service=outcomes.service,
            preempted=outcomes.preempted,
            lost=outcomes.lost,
        )
        return PolicyRun(
            self.name,
            results,
            self.system.node_rows(),
            self.chain.hook_metrics,
            self.decisions,
            msgspec.to_builtins(self.policy),
            seconds,
            self.undone,
            outcomes.released,
            outcomes.beyond_limits,
        )

    def _with_static_offers(self, offer: NDArray[np.float64]) -> NDArray[np.float64]:
        if self._stage is Stage.ALL or not len(self._offers):
            return offer
        return np.where(np.isfinite(offer), offer, self._offers)

    def _count_compiled(self) -> None:
        if self._planner is not None:
            self._planner.end()
        for hook, numbers in self.system.hook_calls().items():
            name = self.chain.planner if hook == "admit" else self._compiled_of
            if name is not None:
                self.chain.hook_metrics[hook][name].add(*numbers)


def _of_system(outcomes: JobOutcomes) -> Judgement:
    """Return what the system itself found, as the judgement of one more judge.

    Jobs count as rejected, or as deferred if it held them up or never started them.
    """
    codes = np.where(outcomes.fate == FinalState.REJECTED, Verdict.REJECT, Verdict.DEFER)
    verdicts = Verdicts.build(codes, findings=outcomes.findings)
    return Judgement(verdicts, (Answer("the system", "enforce", verdicts),))


def _binding(placement: Placement, nodes: int) -> Placement:
    """Return a placement without the node sets that are all nodes in order of their rows.

    Such a set says what the system does anyway: it gives the lowest free nodes. Where no set is
    left, the system counts free nodes instead of looking at each.
    """
    binds = np.array(
        [not np.array_equal(some, np.arange(nodes)) for some in placement.node_sets], np.bool_
    )
    if binds.all() or placement.fractions:
        return placement
    code = np.full(len(binds) + 1, -1, np.int32)  # the last serves code -1
    code[:-1][binds] = np.arange(binds.sum())
    left = tuple(placement.node_sets[row] for row in np.flatnonzero(binds))
    return replace(placement, node_set=code[placement.node_set], node_sets=left)


def replay(
    workload: Workload,
    name: str,
    policy: Policy,
    *,
    found: Mapping[str, Found] | None = None,
    record_nodes: bool = True,
    progress: Callable[[float], None] | None = None,
    checkpoint: Checkpoint | None = None,
    absent: NDArray[np.bool_] | None = None,
) -> PolicyRun:
    """Replay a workload under one policy.

    Parameters
    ----------
    workload : Workload
        Jobs, machine and accounts, from `prepare`.
    name : str
        What to call the policy.
    policy : Policy
        Its loop and plug-ins.
    found : mapping of str to Found, optional
        Installed plug-ins; found anew if None.
    record_nodes : bool
        Whether to keep every job's node list.
    progress : callable, optional
        Called now and then with the fraction of jobs that have arrived.
    checkpoint : Checkpoint, optional
        Where the state is kept now and then, and the replay goes on from what was kept, if the
        policy allows that.
    absent : bool[n], optional
        Jobs that are rejected whatever the policy says; it has no planner and rejects nobody.

    Returns
    -------
    PolicyRun
        Equal for equal arguments, but for its times.

    Raises
    ------
    ConfigError, PluginError
        If the policy's plug-ins cannot be loaded, or its planner promises what nobody would keep.
    """
    chain, problems = load_chain(
        policy,
        found,
        periodic=len(workload.periodic) > 0,
        resources=workload.cluster.shared,
        reservations=len(workload.blocked.node) > 0,
    )
    if problems:
        raise ConfigError([f"policy {name}: {problem}" for problem in problems])
    begun = time.perf_counter()
    whole = as_one_job(workload) if _promises_arrays(workload, chain, policy) else None
    if whole is None:
        run = Replay(name, workload, chain, policy, record_nodes, absent=absent)
    else:
        run = Replay(name, whole.workload, chain, policy, record_nodes, whole.task_times)
    run.run(progress, checkpoint)
    outcome = run.outcome(time.perf_counter() - begun)
    return outcome if whole is None else whole.results_by_task(outcome)


def _promises_arrays(workload: Workload, chain: Chain, policy: Policy) -> bool:
    """Return whether a policy's planner is asked about whole arrays."""
    planner = chain.planner
    if not workload.arrays or planner is None or chain.member(planner).mode != "enforce":
        return False
    steady = not (len(workload.periodic) or workload.node_events or len(workload.blocked.node))
    steady = steady and workload.preemption is None
    return steady and isinstance(policy.system, ExclusiveSettings)


def with_baseline_waits(
    workload: Workload,
    runs: Sequence[PolicyRun],
    policies: Mapping[str, Policy],
    found: Mapping[str, Found] | None = None,
) -> list[PolicyRun]:
    """Return the runs with `baseline_wait`, if some policy left jobs out that the baseline ran.

    It is not known where the baseline itself plans or rejects. It is replayed once more for each
    policy that left some out.

    Parameters
    ----------
    workload : Workload
        From `prepare`.
    runs : sequence of PolicyRun
        What each policy made of it.
    policies : mapping of str to Policy
        By the names of the runs.
    found : mapping of str to Found, optional
        Installed plug-ins; found anew if None.
    """
    base = baseline(run.policy for run in runs)
    left_out = {run.policy: np.equal(run.results.fate, FinalState.REJECTED) for run in runs}
    some = any(absent.any() for absent in left_out.values())
    if not some or policies[base].planner is not None or left_out[base].any():
        return list(runs)
    results = {run.policy: run.results for run in runs}
    waits: dict[str, float | None] = {}
    for name, absent in left_out.items():
        alone = results[base]
        if absent.any():
            given = (workload, base, policies[base])
            alone = replay(*given, found=found, record_nodes=False, absent=absent).results
        wait = (alone.start - workload.jobs.submit)[np.isfinite(alone.start)]
        waits[name] = float(wait.mean()) if len(wait) else None
    return [replace(run, baseline_wait=waits[run.policy]) for run in runs]
