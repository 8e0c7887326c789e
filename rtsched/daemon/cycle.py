"""Work of a cycle: pure functions from a site and a poll to a site and actions."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.changes import exchanged
from rtsched.adapters.live import FIRST_OWN_ID
from rtsched.core.capabilities import Capabilities
from rtsched.core.decision import observe, steer
from rtsched.daemon import messages
from rtsched.daemon.deferred import (
    AT_A_TIME,
    judge_deferred,
    running_unpromised,
    settled_deferred,
)
from rtsched.daemon.likely import reconcile_likely
from rtsched.daemon.offers import promised_rows
from rtsched.daemon.promises import JournalEntry
from rtsched.daemon.reconcile import reconcile
from rtsched.daemon.replanning import replan
from rtsched.daemon.restarting import NEVER, restarted
from rtsched.daemon.site import Step, entry_of, late_by_reservation
from rtsched.model.actions import (
    Action,
    ExchangePlaces,
    Notify,
    Requeue,
    Reserve,
    SetNodeWeight,
    SetPriority,
)
from rtsched.model.blocked import NOTHING_BLOCKED, with_recurring
from rtsched.model.cluster import NodeState
from rtsched.model.jobs import Kind
from rtsched.model.snapshot import are_in, places

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.adapters.live import Observation
    from rtsched.core.chain import Chain, Priorities
    from rtsched.daemon.admission import AdmissionController
    from rtsched.daemon.chains import Chains
    from rtsched.daemon.restarting import RestartPolicy
    from rtsched.daemon.settings import DaemonSettings
    from rtsched.daemon.site import Site
    from rtsched.model.jobs import Jobs
    from rtsched.model.schedule import Schedule
    from rtsched.model.state import Events, State


@dataclass(frozen=True)
class Steered:
    """What the plug-ins want of the queue after a poll."""

    states: Mapping[str, State]
    actions: tuple[Action, ...]
    orders: tuple[tuple[NDArray[np.int64], Priorities], ...]


@dataclass(frozen=True)
class CycleRules:
    """What a cycle goes by.

    Attributes
    ----------
    chains : Chains
        The plug-ins.
    planner : Chain or None
        The planner alone.
    young : float
        Seconds for which a best-effort job that has just started may be requeued for a promise.
    admission : AdmissionController
        Where deferred jobs are judged.
    everything : bool
        Whether all jobs with a deadline are judged, deferred or not: a dry-run.
    restart_policy : RestartPolicy
        Which promised jobs that failed may begin again.
    """

    chains: Chains
    planner: Chain | None
    young: float
    admission: AdmissionController
    everything: bool = False
    restart_policy: RestartPolicy = NEVER


def after_poll(
    before: Site,
    observation: Observation,
    rules: CycleRules,
    now: float,
    deferred: int = AT_A_TIME,
) -> Step:
    """Return promises and plan after a poll: who appeared and ended, who is judged, who moves.

    At most `deferred` of the deferred jobs are judged. The first action is the plan.
    """
    planner, wording = rules.planner, rules.admission.wording
    seen = _as_planned_with(observation, rules)
    step, failed = reconcile(before, seen, wording, now, rules.restart_policy)
    keeps_after = math.inf if rules.everything else observation.keeps_after
    judged, secures = judge_deferred(
        step.site,
        rules.admission,
        now,
        deferred,
        everything=rules.everything,
        keeps_after=keeps_after,
    )
    step = step.then(judged).then(Step(judged.site, actions=settled_deferred(judged.site)))
    step = step.then(reconcile_likely(step.site, before, observation, now))
    if planner is not None:
        flapping = observation.flapping
        step = step.then(replan(step.site, planner, wording, now, rules.young, flapping))
    if len(failed):
        delay = observation.requeue_delay
        step = step.then(restarted(step.site, planner, failed, delay, now))
    site = step.site
    step = step.then(_requeued(site, step.actions, now))
    actions = (*_begin_again(site, before, now), *_may_end_late(site, before, now))
    return replace(step, actions=(_reserved(site, secures), *step.actions, *actions))


def _reserved(site: Site, secures: Schedule) -> Reserve:
    """Return the plan as the batch system is to keep it; it starts what it can beside offers."""
    rows = promised_rows(site)
    plan = site.snapshot.plan.take(rows)
    planned = site.snapshot.planned.take(rows) if site.snapshot.cluster.shared else None
    asked = site.requested.id
    unplanned = frozenset(asked[~are_in(asked, site.snapshot.plan.entries.job)].tolist())
    return Reserve(plan.entries.job, plan, planned, unplanned, secures)


def _requeued(site: Site, actions: Sequence[Action], now: float) -> Step:
    """Return what users are notified of whose running jobs are requeued for promises.

    `now` in seconds since the epoch.
    """
    asked = [action.job for action in actions if isinstance(action, Requeue)]
    if not asked:
        return Step(site)
    jobs, text = np.unique(np.concatenate(asked)), messages.requeued()
    rows = site.snapshot.running.take(are_in(site.snapshot.running.id, jobs))
    uids = dict(zip(site.marks.job.tolist(), site.marks.uid.tolist(), strict=True))
    journal = tuple(
        JournalEntry(now, uids.get(job, -1), label, name or "", "requeue", (), text)
        for job, label, name in zip(
            rows.id.tolist(), rows.labels(), rows.texts("name"), strict=True
        )
    )
    return Step(site, actions=Notify.of(dict.fromkeys(jobs.tolist(), text)), journal=journal)


def _begin_again(site: Site, before: Site, now: float) -> tuple[Action, ...]:
    """Return what users are told whose promised jobs ran, wait again, and are planned anew.

    `before` is the site after the poll before: there they ran, or were to be queued again.
    """
    plan, runs, queued = site.snapshot.plan, before.snapshot.allocations, site.snapshot.queued
    planned = plan.entries.job[are_in(plan.entries.job, queued.id)]
    planned = planned[~are_in(planned, [*site.restarting, *site.at_risk])]
    known = np.concatenate([runs.entries.job, np.array(before.restarting, np.int64)])
    again = planned[are_in(planned, known)]
    if not len(again):
        return ()
    nodes, names = site.snapshot.cluster.nodes, before.snapshot.cluster.nodes.texts("name")
    usable = zip(nodes.texts("name"), site.snapshot.cluster.usable.tolist(), strict=True)
    up = {name for name, good in usable if good}
    texts = {}
    for job in again.tolist():
        row = entry_of(runs, job)
        ran_on = {names[node] for node in runs.nodes_of(row).tolist()} if row >= 0 else set()
        start = float(plan.entries.start[entry_of(plan, job)])
        deadline = site.promises[job].deadline
        texts[job] = messages.begins_again(deadline, start, now, lost=not ran_on <= up)
    return Notify.of(texts)


def _may_end_late(site: Site, before: Site, now: float) -> tuple[Action, ...]:
    """Return what users are told whose promises are at risk, or no longer.

    Such as an array that runs with fewer tasks at a time when it loses nodes, and a job for which
    there is no place in time. `before` is the site after the poll before.
    """
    late, then = site.at_risk, before.at_risk
    runs = set(site.snapshot.allocations.entries.job.tolist())
    texts = {
        job: messages.may_end_late(
            end,
            site.promises[job].deadline,
            now,
            runs=job in runs,
            reserved=late_by_reservation(site, job, now),
        )
        for job, end in late.items()
        if job not in then and job < FIRST_OWN_ID and now < site.promises[job].deadline
    }
    known = runs | set(site.snapshot.plan.entries.job.tolist())
    for job in (then.keys() - late.keys()) & site.promises.keys() & known:
        if now < site.promises[job].deadline:  # what completes then may seem to end before
            texts[job] = messages.in_time_again(site.promises[job].deadline, now)
    return Notify.of(texts)


def _as_planned_with(observation: Observation, rules: CycleRules) -> Observation:
    """Return a poll with times at which nodes are set aside as the planner knows them.

    A planner that plans around spans of time has recurring work as such spans. For another one, and
    where there is none, the nodes are closed to all jobs.
    """
    name = None if rules.planner is None else rules.planner.planner
    declared = Capabilities()
    if rules.planner is not None and name is not None:
        declared = rules.planner.member(name).capabilities
    recurs = len(observation.periodic) and not declared.keeps_periodic
    if declared.plans_resources:
        if not recurs:
            return observation
        spans = with_recurring(observation.blocked, observation.periodic, observation.time)
        return replace(observation, blocked=spans)
    spans = observation.blocked.within(
        observation.time, observation.time + observation.reserved_ahead
    )
    rows = spans.node
    if recurs and name is not None:
        rows = np.concatenate([rows, observation.periodic.node])
    observation = replace(observation, blocked=NOTHING_BLOCKED)
    if not len(rows):
        return observation
    state = observation.cluster.nodes.state.copy()
    state[rows] = np.maximum(state[rows], NodeState.DRAINED)
    nodes = observation.cluster.nodes.replace(state=state)
    return replace(observation, cluster=replace(observation.cluster, nodes=nodes))


def steered(site: Site, events: Events, rules: CycleRules, now: float) -> Steered:
    """Return what plug-ins remember after the events, and how the queue is to be ordered.

    `now` in seconds since the epoch.
    """
    snapshot, states = observe(site.snapshot, rules.chains.chain, events)
    actions: list[Action] = []
    orders = []
    settings = rules.admission.settings
    order = _by_deadline(site, settings, now) if settings.order != "site" else None
    for rows, chain in rules.chains.groups(snapshot.queued):
        jobs = snapshot.queued.take(rows)
        cycle = steer(snapshot, chain, jobs=jobs)
        actions += [_exchanged(action, order, jobs) for action in cycle.actions]
        if cycle.priorities is not None:
            planned = are_in(jobs.id, snapshot.plan.entries.job)
            orders.append((jobs.id[~planned], cycle.priorities))
    if order is not None and not any(isinstance(each, SetPriority) for each in actions):
        actions.append(order)
    actions += _weights(site, rules)
    return Steered(states, tuple(actions), tuple(orders))


def _by_deadline(site: Site, settings: DaemonSettings, now: float) -> ExchangePlaces:
    """Return the jobs that may start now, and have a deadline but no guarantee, in order.

    Those with odds come first, then those without a promise, and last those of them that can no
    longer end in time, as far as anyone knows.
    """
    queued, likely = site.snapshot.queued, site.likely.promises
    unpromised = list(running_unpromised(site, settings.rejected))
    may = are_in(queued.id, [*unpromised, *likely]) & ~(queued.begin > now)
    cannot = np.concatenate([site.marks.job[site.marks.held], site.snapshot.edges.after])
    may &= ~are_in(queued.id, cannot)
    rows = queued.take(may)
    promised = np.array([job in likely for job in rows.id.tolist()], np.bool_)
    deadline = rows.deadline.copy()
    deadline[promised] = [likely[job].deadline for job in rows.id[promised].tolist()]
    surely = ~promised & (rows.kind == Kind.RIGID)
    late = now + np.where(surely, rows.wall_time, 0.0) > deadline
    order = np.lexsort((deadline, late, ~promised))
    order = order[np.isfinite(deadline[order])]
    return ExchangePlaces(rows.id[order], np.arange(len(order)))


def _exchanged(action: Action, order: ExchangePlaces | None, jobs: Jobs) -> Action:
    """Return an action; of one that sets priorities, those after the places were exchanged."""
    if order is None or not isinstance(action, SetPriority):
        return action
    at, moves = places(order.job, action.job)
    value = np.nan_to_num(action.value)
    partition = jobs.column("partition")[places(jobs.id, action.job)[0][moves]]
    value[moves] = exchanged(value[moves], partition, order.rank[at[moves]])
    return SetPriority(action.job, value)


def _weights(site: Site, rules: CycleRules) -> list[Action]:
    """Return weights of the nodes: those of low delay are preferred."""
    chain, snapshot = rules.chains.chain, site.snapshot
    if not (len(snapshot.queued) and chain.counts("delay_class")):
        return []
    classes = chain.delay_class(snapshot.queued, snapshot)
    if classes is None:
        return []
    return [SetNodeWeight(np.empty(0, np.int64), np.asarray(classes.factor, np.float64))]
