"""The cycle: from a snapshot, through the chain, to actions. Pure; nothing is applied here.

There are two questions. `judge` is asked when jobs are submitted, and by the planner's leave when
something changed under its plan; its answer must come at once. `steer` is asked whenever the batch
system is about to start jobs: in which order, on which nodes. The daemon, a replay and a dry-run
call the same two functions with another source of snapshots and another sink for the actions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rtsched.core.chain import Stage
from rtsched.model.actions import Action, Admit, Hold, Move, Place, Reject, Reserve, SetPriority
from rtsched.model.snapshot import are_in
from rtsched.model.verdicts import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rtsched.core.chain import Chain, Judgement, Priorities
    from rtsched.model.jobs import Jobs
    from rtsched.model.snapshot import Snapshot
    from rtsched.model.state import Events, State
    from rtsched.model.verdicts import Placement, Verdicts


@dataclass(frozen=True)
class Decision:
    """What steering came to.

    Attributes
    ----------
    actions : tuple of Action
        What the batch system is to do, in order.
    priorities : Priorities or None
        Of the jobs that were steered, and the terms behind them.
    placement : Placement or None
        Sizes and node sets of the jobs that were steered.
    """

    actions: tuple[Action, ...]
    priorities: Priorities | None = None
    placement: Placement | None = None


def observe(
    snapshot: Snapshot, chain: Chain, events: Events
) -> tuple[Snapshot, Mapping[str, State]]:
    """Tell the plug-ins what happened; return the snapshot with their next states, and those."""
    if not len(events):
        return snapshot, snapshot.states
    states = chain.observe(events, snapshot)
    return replace(snapshot, states=states), states


def judge(snapshot: Snapshot, chain: Chain, jobs: Jobs, stage: Stage = Stage.ALL) -> Judgement:
    """Judge `jobs` at their submission; an empty batch lets the planner improve its plan.

    `admission_actions` says what that asks of the batch system.
    """
    return chain.admit(jobs, snapshot, chain.delay_class(jobs, snapshot), stage)


def admission_actions(jobs: Jobs, verdicts: Verdicts) -> tuple[Action, ...]:
    """Return what verdicts ask of the batch system. An abstention lets the job in."""
    code, job = verdicts.code, jobs.id
    actions: list[Action] = []
    rejected = np.flatnonzero(code == Verdict.REJECT)
    if len(rejected):
        actions.append(Reject(job[rejected], verdicts.offer[rejected], _texts(verdicts, rejected)))
    deferred = np.flatnonzero(code == Verdict.DEFER)
    if len(deferred):
        actions.append(Hold(job[deferred], verdicts.retry_at[deferred]))
    passed = np.flatnonzero(code < Verdict.DEFER)
    if len(passed):
        actions.append(Admit(job[passed], verdicts.promise[passed]))
    if verdicts.plan is not None:
        actions.append(Reserve(verdicts.plan.entries.job, verdicts.plan))
    return tuple(actions)


def steer(
    snapshot: Snapshot, chain: Chain, stage: Stage = Stage.ALL, jobs: Jobs | None = None
) -> Decision:
    """Priorities and place queued jobs whose start the plan does not own, and move running ones.

    `jobs` are some of the queued ones, for which this chain's modes hold; None: all.
    """
    jobs = snapshot.queued if jobs is None else jobs
    planned = are_in(jobs.id, snapshot.plan.entries.job)
    jobs = jobs.take(~planned) if planned.any() else jobs
    actions: list[Action] = []
    priorities = placement = None
    if chain.asks("fair_share", stage):
        priorities = chain.fair_share(jobs, snapshot, stage)
        if chain.counts("fair_share", stage):
            actions.append(SetPriority(jobs.id, priorities.value))
    if chain.asks("partition", stage):
        classes = chain.delay_class(jobs, snapshot)
        placement = chain.partition(jobs, snapshot, classes, stage)
        actions.append(Place(jobs.id, placement))
        if placement.moves is not None and len(placement.moves):
            actions.append(Move(placement.moves.entries.job, placement.moves))
    return Decision(tuple(actions), priorities, placement)


def _texts(verdicts: Verdicts, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> tuple[str, ...]:
    """Return for each of `rows` its findings' sentences, joined."""
    sentences: dict[int, list[str]] = {int(row): [] for row in rows}
    for finding in verdicts.findings:
        for position, row in enumerate(finding.rows.tolist()):
            if row in sentences:
                sentences[row].append(finding.text(position))
    return tuple("; ".join(parts) for parts in sentences.values())
