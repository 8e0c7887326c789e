"""The hooks: questions that the chain puts to plug-ins.

Arguments
---------
A plug-in's hook method names the arguments it needs, in any order, and gets no others:

`jobs`
    The `Jobs` to judge, one answer row per job. Never written to.
`cluster`
    The `Cluster`.
`classes`
    The combined `DelayClasses`, or None where no plug-in has an opinion.
`accounts`
    The `Accounts`.
`snapshot`
    The whole `Snapshot`.
`state`
    The plug-in's own last state, None at first.
`events`
    For the observing reducer: what happened.
`prepared`
    The plug-in's own `PreparedState`: what it made of its arguments, kept as long as they stand.

The arguments say how often a hook is asked. An answer made from `jobs` and `cluster` alone cannot
depend on anything that changes while jobs wait: it is asked once per job, in large batches. A hook
that names any other argument but `prepared` is asked again at every decision.

Answers
-------
Calls are always about batches; the submit path is a batch of one. None means no opinion on any
row; ABSTAIN (0, -1) in a row means no opinion on that row. Two calls with equal arguments give
equal answers: no clock, no random numbers, no file, nothing remembered on `self`. What a plug-in
must remember is its `State`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from rtsched.core.capabilities import PreparedState
    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Jobs
    from rtsched.model.snapshot import Accounts, Snapshot
    from rtsched.model.state import Events, State
    from rtsched.model.verdicts import DelayClasses, Placement, Terms, Verdicts

PROJECT = "rtsched"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a plug-in's method as the implementation of the hook of its name."""


@hookspec
def rtsched_delay_class(
    jobs: Jobs,
    cluster: Cluster,
    snapshot: Snapshot,
    state: State | None,
    prepared: PreparedState,
) -> DelayClasses | None:
    """Say how much slower each node would run a new process, and in which classes.

    Asked first, so that the other hooks can use the answer. Per job the first opinion in the
    configured order holds.
    """


@hookspec
def rtsched_admit(
    jobs: Jobs,
    cluster: Cluster,
    classes: DelayClasses | None,
    accounts: Accounts,
    snapshot: Snapshot,
    state: State | None,
    prepared: PreparedState,
) -> Verdicts | None:
    """Judge jobs at submission: admit (with a promise), defer, reject, or abstain.

    The strictest verdict wins, so the order of plug-ins never lets a job in. Of the plug-ins that
    make promises the configuration names one as planner; it is asked last, about the jobs that
    survived the others, judges them in order of (submit, id) and answers with the whole new plan.
    The planner is also asked about an empty batch when nodes came free early or were lost: it may
    then answer with a better plan for what it promised.
    """


@hookspec
def rtsched_fair_share(
    jobs: Jobs,
    cluster: Cluster,
    accounts: Accounts,
    snapshot: Snapshot,
    state: State | None,
    prepared: PreparedState,
) -> Terms | None:
    """Give terms of priority in [0, 1], per job or per account.

    The plug-ins' weighted sums are added; the higher sum starts sooner.
    """


@hookspec
def rtsched_partition(
    jobs: Jobs,
    cluster: Cluster,
    classes: DelayClasses | None,
    snapshot: Snapshot,
    state: State | None,
    prepared: PreparedState,
) -> Placement | None:
    """Choose size, nodes and fractions of queued jobs, and migrations of running ones.

    Per row the first opinion in the configured order holds. Jobs whose start the plan owns are
    not asked about.
    """


@hookspec
def rtsched_observe(
    events: Events, snapshot: Snapshot, state: State | None, prepared: PreparedState
) -> State | None:
    """Return the plug-in's next state after `events`; None keeps the present one.

    A pure reducer: batches of events may be cut differently from run to run without changing the
    final state. Every plug-in is asked; each answer is that plug-in's own.
    """
