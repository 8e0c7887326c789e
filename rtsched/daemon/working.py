"""What a cycle works out: pure functions from a site and a look to a site and actions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.cycle import judge, observe, steer
from rtsched.daemon import messages
from rtsched.daemon.merging import merge
from rtsched.daemon.replanning import replan
from rtsched.daemon.site import promises_of
from rtsched.daemon.submits import record_of
from rtsched.model.actions import Action, Cancel, Release, Reserve, SetNodeWeight
from rtsched.model.cluster import NodeState
from rtsched.model.snapshot import places
from rtsched.model.verdicts import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from rtsched.adapters.live import Sight
    from rtsched.chain import Chain, Order
    from rtsched.daemon.chains import Chains
    from rtsched.daemon.records import Record
    from rtsched.daemon.site import Site
    from rtsched.model.events import Events
    from rtsched.model.state import State

PARKED = 500
"""Most jobs without a verdict that are judged in one cycle."""


@dataclass(frozen=True)
class Settled:
    """Promises and plan after a look.

    Attributes
    ----------
    site : Site
        After it.
    changed : tuple of Record
        To be written down.
    actions : tuple of Action
        What the promises ask for: the plan first.
    events : Events
        What happened since the look before.
    """

    site: Site
    changed: tuple[Record, ...]
    actions: tuple[Action, ...]
    events: Events


@dataclass(frozen=True)
class Steered:
    """What the plug-ins want of the queue after a look."""

    states: Mapping[str, State]
    actions: tuple[Action, ...]
    orders: tuple[tuple[NDArray[np.int64], Order], ...]


@dataclass(frozen=True)
class Rules:
    """What a cycle goes by.

    Attributes
    ----------
    chains : Chains
        The plug-ins.
    planner : Chain or None
        The planner alone.
    young : float
        Seconds for which a best-effort job that has just started may be requeued for a promise.
    name_of : callable
        From a uid to the user's name.
    judge_all : bool
        Whether jobs with a deadline are judged though no filter asked: a dry-run.
    """

    chains: Chains
    planner: Chain | None
    young: float
    name_of: Callable[[int], str]
    judge_all: bool = False


def settle(site: Site, sight: Sight, rules: Rules, now: float) -> Settled:
    """Return promises and plan after a look: who appeared and ended, who is judged, who moves."""
    merged = merge(site, _without_periodic_nodes(sight, rules), now)
    site, changed = merged.site, list(merged.changed)
    actions: list[Action] = []
    site = _judge_waiting(site, rules, now, changed, actions)
    if rules.planner is not None:
        replanned = replan(site, rules.planner, now, rules.young)
        site = replanned.site
        changed += replanned.changed
        actions += replanned.actions
    plan = site.snapshot.plan
    reserve = Reserve(plan.entries.job, plan)
    return Settled(site, tuple(changed), (reserve, *actions), merged.events)


def _without_periodic_nodes(sight: Sight, rules: Rules) -> Sight:
    """Return a look in which nodes with recurring work take no job, if the planner ignores it."""
    if not len(sight.periodic) or rules.planner is None or rules.planner.planner is None:
        return sight
    plugin = rules.planner.member(rules.planner.planner).plugin
    if getattr(plugin, "keeps_periodic", False):
        return sight
    state = sight.cluster.nodes.state.copy()
    state[sight.periodic.node] = np.maximum(state[sight.periodic.node], NodeState.DRAINED)
    nodes = sight.cluster.nodes.replace(state=state)
    return replace(sight, cluster=replace(sight.cluster, nodes=nodes))


def steered(site: Site, events: Events, rules: Rules) -> Steered:
    """Return what plug-ins remember after the events, and how they want the queue."""
    snapshot, states = observe(site.snapshot, rules.chains.chain, events)
    actions: list[Action] = []
    orders = []
    for rows, chain in rules.chains.groups(snapshot.queued):
        jobs = snapshot.queued.take(rows)
        cycle = steer(snapshot, chain, jobs=jobs)
        actions += cycle.actions
        if cycle.order is not None:
            planned = np.isin(jobs.id, snapshot.plan.entries.job)
            orders.append((jobs.id[~planned], cycle.order))
    actions += _weights(site, rules)
    return Steered(states, tuple(actions), tuple(orders))


def _weights(site: Site, rules: Rules) -> list[Action]:
    """Return weights of the nodes: those of low delay are preferred."""
    chain, snapshot = rules.chains.chain, site.snapshot
    if not (len(snapshot.queued) and chain.counts("delay_class")):
        return []
    classes = chain.delay_class(snapshot.queued, snapshot)
    if classes is None:
        return []
    return [SetNodeWeight(np.empty(0, np.int64), np.asarray(classes.factor, np.float64))]


def _judge_waiting(
    site: Site, rules: Rules, now: float, changed: list[Record], actions: list[Action]
) -> Site:
    """Judge the jobs that are parked until somebody does, in order of (submit, id).

    A long queue of them is judged over several cycles.
    """
    queued = site.snapshot.queued
    place, known = places(site.marks.job, queued.id)
    waits = np.zeros(len(queued), np.bool_)
    waits[known] = (site.marks.unjudged & site.marks.held)[place[known]]
    if rules.judge_all:
        waits |= np.isfinite(queued.deadline)
    waits &= ~np.isin(queued.id, site.asked.id) & ~np.isin(queued.id, list(site.declined))
    waits &= ~np.isin(queued.id, list(site.put_off))
    put_off: dict[int, float] = {}
    for job in queued.id[waits][:PARKED].tolist():
        site = _judge_parked(site, job, rules, now, changed, actions, put_off)
    return replace(site, put_off={**site.put_off, **put_off}) if put_off else site


def _judge_parked(
    site: Site,
    job: int,
    rules: Rules,
    now: float,
    changed: list[Record],
    actions: list[Action],
    put_off: dict[int, float],
) -> Site:
    snapshot = replace(site.snapshot, now=now)
    row = snapshot.queued.take(snapshot.queued.id == job)
    rest = replace(snapshot, queued=snapshot.queued.take(snapshot.queued.id != job))
    judgement = judge(rest, rules.chains.of(row), row).judgement
    assert judgement is not None  # noqa: S101  one job was judged
    verdicts, about = judgement.verdicts, np.array([job])
    if verdicts.code[0] == Verdict.DEFER:
        if now < verdicts.retry_at[0] < np.inf:
            put_off[job] = float(verdicts.retry_at[0])
        return site
    if verdicts.code[0] == Verdict.REJECT:
        why = messages.reasons(judgement)[1]
        text = messages.rejected(why, float(verdicts.offer[0]), "", 0.0, now)
        actions.append(Cancel(about, (text,)))
        return replace(site, declined=site.declined | {job})
    actions.append(Release(about))
    if verdicts.plan is None or not np.isfinite(verdicts.promise[0]):
        return replace(site, declined=site.declined | {job})
    place, _ = places(site.marks.job, about)
    uid = int(site.marks.uid[place[0]])
    who = (uid, rules.name_of(uid))
    record = record_of(row, who, float(verdicts.promise[0]), "firm", now, np.inf)
    changed.append(record)
    records: dict[int, Any] = {**site.records, job: record}
    after = replace(
        site.snapshot,
        promises=promises_of(records.values()),
        plan=verdicts.plan,
        version=site.snapshot.version + 1,
    )
    asked = type(site.asked).joined([site.asked, row])
    return replace(site, snapshot=after, records=records, asked=asked)
