"""Admission by spare capability: new task graphs beside periodic work, with every deadline kept.

A job with a deadline is admitted if it can end in time while every occurrence of the periodic work
and every job admitted before keeps what it was guaranteed. Jobs that depend on each other (one
`dag` key) are admitted or rejected together. Jobs without a deadline are not judged: they are best
effort.

Each task is reserved on its nodes with its finish as its deadline. What is planned stays where it
is; only the periodic work and what has been admitted decide, not the order of admission to come.

References
----------
He, Jarvis, Spooner, Nudd, IEEE CLUSTER 2003: Dynamic scheduling of parallel real-time jobs by
modelling spare capabilities in heterogeneous clusters.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray  # noqa: TC002 - states are decoded by their annotations

from rtsched.api import Capabilities, EventKind, Reason, State, hookimpl
from rtsched_plugins.spare_edf import EdfForm
from rtsched_plugins.spare_form import Batch
from rtsched_plugins.spare_gaps import GapForm, gap_planner

if TYPE_CHECKING:
    from rtsched.api import Cluster, Events, Jobs, ReplayPlanner, Snapshot, Verdicts
    from rtsched_plugins.spare_form import Form


class Executed(State, frozen=True):
    """How long jobs have run that have a deadline, or are part of a graph, and have not ended.

    `seconds` up to `since`, the start of the piece that runs now; `since` is inf while the job is
    suspended.
    """

    job: NDArray[np.int64]
    seconds: NDArray[np.float64]
    since: NDArray[np.float64]


class Spare:
    """Admit task graphs with a deadline into the capacity that periodic work leaves."""

    class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Settings."""

        form: Literal["gaps", "edf"] = "gaps"
        """`gaps`: jobs are not suspended; each uses one gap between fixed work, on whole nodes or
        beside others on nodes that they share. `edf`: every job can be suspended; single-processor
        nodes run the work with the earliest deadline (machine `preemptive`)."""
        select: Literal["response-first", "utilisation-first"] = "response-first"
        """Among the nodes on which a task meets its deadline, choose the one where it ends first,
        or the one where it ends last."""
        slot: Annotated[float, Meta(gt=0)] = 1.0
        """Form `edf`: seconds per slot, as the machine's setting says."""
        offer_tests: Annotated[int, Meta(ge=0)] = 64
        """Maximum number of admission tests per counter-offer; 0: no counter-offer.
        Utilisation-first offers none where they do not suffice."""

    no_room = Reason(
        "spare.no-room",
        "task {task} cannot meet its deadline in {left:time} beside {promises:promise} and "
        "{periodic:periodic job}; {fits} of {nodes:node} would be free together in time",
    )
    no_spare = Reason(
        "spare.no-capability",
        "task {task} cannot meet its deadline in {left:time} on any node beside {promises:promise} "
        "and {periodic:periodic job}",
    )
    endless = Reason(
        "spare.endless", "job {task} states no run time, so its end cannot be predicted"
    )
    array = Reason("spare.array", "job {task} is an array; this planner gives arrays no promise")
    cyclic = Reason("spare.cyclic", "job {task} depends on itself")
    waits = Reason("spare.waits", "waits for job {task}, whose end cannot be predicted")
    wide = Reason(
        "spare.wide",
        "requests {nodes:node}; where tasks are suspended each runs on one node",
    )

    capabilities = Capabilities(
        keeps_periodic=True,
        follows_dependencies=True,
        judges_only_deadlines=True,
        plans_resources=True,
    )

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or self.Config()
        if self.config.form == "edf":
            every = self.config.slot
            self.capabilities = replace(
                self.capabilities, suspends_every=every, plans_resources=False
            )
        else:
            self.capabilities = replace(self.capabilities, replay_planner=self.replay_planner)
            self.rtsched_observe = None  # type: ignore[method-assign, assignment]  # not told

    def replay_planner(self, jobs: Jobs, cluster: Cluster) -> ReplayPlanner | None:
        """Return its short form for a replay of these jobs; None: it has none."""
        return gap_planner(self, jobs, cluster)

    @hookimpl
    def rtsched_admit(
        self, jobs: Jobs, snapshot: Snapshot, state: Executed | None
    ) -> Verdicts | None:
        """Judge graph by graph in order of (submit, id), each against all admitted before it."""
        if not np.isfinite(jobs.deadline).any():
            return None
        batch = Batch(self, jobs, snapshot, self._form(jobs, snapshot, state))
        batch.judge()
        return batch.verdicts()

    def _form(self, jobs: Jobs, snapshot: Snapshot, state: Executed | None) -> Form:
        last = self.config.select == "utilisation-first"
        if self.config.form == "gaps":
            return GapForm(snapshot, jobs, last)
        done: dict[int, float] = {}
        if state is not None:
            boundary = np.ceil(snapshot.now / self.config.slot - 1e-6) * self.config.slot
            running = np.maximum(boundary - state.since, 0.0)
            done = dict(zip(state.job.tolist(), (state.seconds + running).tolist(), strict=True))
        return EdfForm(snapshot, jobs, self.config.slot, last, done)

    @hookimpl
    def rtsched_observe(self, events: Events, state: Executed | None) -> Executed | None:
        """Add up how long jobs have run that may have a promise; only form `edf` needs it."""
        kinds = (EventKind.STARTED, EventKind.SUSPENDED, EventKind.RESUMED, EventKind.ENDED)
        announced = np.isfinite(events.jobs.deadline) | (events.jobs.dag >= 0)
        announced &= np.isin(events.rows.kind, kinds)
        if not announced.any():
            return None
        table: dict[int, tuple[float, float]] = {}
        if state is not None:
            pairs = zip(state.seconds.tolist(), state.since.tolist(), strict=True)
            table = dict(zip(state.job.tolist(), pairs, strict=True))
        columns = (
            events.jobs.id[announced],
            events.rows.kind[announced],
            events.rows.time[announced],
        )
        for job, kind, time in zip(*(column.tolist() for column in columns), strict=True):
            seconds, since = table.pop(job, (0.0, np.inf))
            if kind != EventKind.ENDED:
                goes_on = kind in {EventKind.STARTED, EventKind.RESUMED}
                seconds += max(time - since, 0.0)
                table[job] = (seconds, time if goes_on else np.inf)
        values = np.array([(job, *pair) for job, pair in sorted(table.items())]).reshape(-1, 3)
        return Executed(values[:, 0].astype(np.int64), values[:, 1].copy(), values[:, 2].copy())
