"""Recovery: open promises, the plan, plug-ins' states, and how jobs ended in the meantime.

A batch system remembers jobs that ended for some minutes, or not at all. After a longer absence of
the daemon a promise that was missed must not count as one that its user withdrew. So whoever keeps
the records (Slurm's accounting, the schedd's history) is asked; while it does not answer, and for a
while after it answered without knowing the job, the promise stays open.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import structlog

from rtsched.adapters.live import FIRST_OWN_ID, PART, Completions, CompletionStatus
from rtsched.daemon.promises import OpenPromises, decode_jobs, encode_jobs
from rtsched.daemon.reconcile import overlooked
from rtsched.daemon.site import LikelyPromises, Site, in_order
from rtsched.errors import AdapterError, RtschedError
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import NOBODY, Jobs
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import Snapshot, are_in
from rtsched.model.state import State, decode_state, encode_state

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from rtsched.adapters.live import Observation
    from rtsched.daemon.promises import StoredState

log = structlog.get_logger(__name__)

_OWN = "rtsched"
"""Key of the daemon's own state among those of the plug-ins; no plug-in has this name."""


class ReportedState(State, frozen=True):
    """What had been reported to the plug-ins when their states were written down.

    `seen` is the last poll; `queued` and `running` are its jobs (`encode_jobs`), empty where no
    plug-in keeps a state. `nodes` are the names of the nodes that the plan's rows mean, where a
    release wrote them that did not keep them beside the plan.
    """

    seen: float
    queued: bytes
    running: bytes
    nodes: list[str] = []  # noqa: RUF012  msgspec copies it


def states_to_store(site: Site, stateful: bool) -> dict[str, bytes]:
    """Return what has to be written down of a site beside its promises and plan.

    `stateful` says whether any plug-in keeps a state; else the jobs need not be stored.
    """
    snapshot = site.snapshot
    queued = snapshot.queued.take(snapshot.queued.id < FIRST_OWN_ID) if stateful else NOBODY
    running = snapshot.running if stateful else NOBODY
    own = ReportedState(site.seen, encode_jobs(queued), encode_jobs(running))
    states: Mapping[str, State] = {**snapshot.states, _OWN: own}
    return {f"{name}:{_kind(type(state))}": encode_state(state) for name, state in states.items()}


def recovered(stored: StoredState) -> Site:
    """Return the site as it was left; what cannot be read is left out, and said in the log."""
    states = dict(_states(stored.states))
    reported = states.pop(_OWN, None)
    guaranteed = [promise for promise in stored.promises if promise.odds is None]
    requested = Jobs.joined([_row(promise.job, promise.id) for promise in guaranteed])
    queued, running, seen = requested, NOBODY, -np.inf
    names: Sequence[str] = stored.nodes or ()
    if isinstance(reported, ReportedState):
        before = decode_jobs(reported.queued)
        others = before.take(~are_in(before.id, requested.id))
        queued, running = in_order(Jobs.joined([others, requested])), decode_jobs(reported.running)
        names = reported.nodes if stored.nodes is None else stored.nodes
        seen = reported.seen if len(queued) + len(running) + len(states) else -np.inf
    plan = stored.plan if stored.plan is not None else Schedule.empty()
    if len(plan.nodes) and plan.nodes.max() >= len(names):
        plan = Schedule.empty()
    promises = OpenPromises({promise.id: promise for promise in guaranteed})
    likely = LikelyPromises().learnt(stored.likely_outcomes)
    for promise in stored.promises:
        if promise.odds is not None:
            likely = likely.with_new(promise, _row(promise.job, promise.id))
    snapshot = Snapshot(
        now=0.0,
        cluster=Cluster(Nodes.build(len(names), name=names)),
        queued=queued,
        running=running,
        promises=promises.ledger,
        plan=plan.take(np.flatnonzero(are_in(plan.entries.job, queued.id))),
        states=states,
        version=stored.version,
    )
    next_id = max([FIRST_OWN_ID - 1, *promises, *likely.promises]) + 1
    return Site(
        snapshot,
        promises,
        requested,
        seen=seen,
        next_id=next_id,
        unused=stored.unused,
        likely=likely,
    )


def _row(job: bytes, key: int) -> Jobs:
    """Return the row that is kept of a promised job.

    Once the nodes of a Slurm partition that have a feature were a partition `name@feature`.
    """
    row = decode_jobs(job).replace(id=np.array([key]))
    name, _, feature = (row.texts("partition")[0] or "").partition("@")
    if not feature or PART in feature:
        return row
    asked = f"--constraint={feature} --partition={name}"
    return row.replace_text("partition", [0], (name,)).replace_text("node_request", [0], (asked,))


_STORED_KINDS: dict[type[State], str] = {ReportedState: "rtsched.daemon.memory.Told"}
"""Names under which databases hold types that have another name now."""


def _kind(kind: type[State]) -> str:
    """Return the name under which the database holds a type of state."""
    if kind in _STORED_KINDS:
        return _STORED_KINDS[kind]
    return f"{kind.__module__}.{kind.__qualname__}"


def _states(stored: Mapping[str, bytes]) -> Iterator[tuple[str, State]]:
    """Yield the states whose types are still there."""
    known = {_kind(kind): kind for kind in _kinds(State)}
    for key, data in stored.items():
        name, _, kind = key.partition(":")
        try:
            yield name, decode_state(data, known[kind])
        except (KeyError, RtschedError) as error:
            log.warning("state_dropped", plugin=name, error=str(error))


def _kinds(base: type[State]) -> Iterator[type[State]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _kinds(kind)


FIRST_RETRY_S, LAST_RETRY_S = 10.0, 300.0
"""Seconds until records that did not answer are asked again: at first, and at the most; the time
doubles with each failure."""

SILENT_S = 86400.0
"""Seconds for which records that do not answer are asked about a job."""

REPEAT_S = 30.0
"""Seconds until records that did not know a job are asked about it again."""

LATE_S = 600.0
"""Seconds for which records that answer are asked about a job they do not know: slurmctld hands
its records over late after slurmdbd was away."""


def _purged_jobs(site: Site, observation: Observation) -> tuple[int, ...]:
    """Return the jobs of promises that a poll does not show, neither alive nor ended."""
    known = [promise.id for promise in site.all_promises() if promise.id < FIRST_OWN_ID]
    jobs = np.array([*known, *overlooked(site, observation).values()], np.int64)
    shown = np.concatenate(
        [observation.queued.id, observation.running.id, observation.completions.job]
    )
    return tuple(jobs[~are_in(jobs, shown)].tolist())


def _since(numbers: Mapping[int, int], site: Site, jobs: Sequence[int]) -> float:
    """Return when the first of the promises to these jobs was made: none had ended by then."""
    asked = set(jobs)
    return min(r.made_at for r in site.all_promises() if numbers.get(r.id, r.id) in asked)


@dataclass
class _Purged:
    """A job that no poll shows; by the clock of `CompletionLookup`, in seconds.

    Attributes
    ----------
    first : float
        When it was missed.
    answered : float
        When the records first answered without it; inf: never.
    again : float
        When they are asked about it again.
    """

    first: float
    answered: float = math.inf
    again: float = -math.inf

    def open(self, now: float) -> bool:
        """Return whether the records may still come to know the job."""
        return now < min(self.first + SILENT_S, self.answered + LATE_S)


class CompletionLookup:
    """Asks the records about forgotten jobs, and remembers which of them it asked about.

    Parameters
    ----------
    find : callable
        `LiveSystem.find_completions` in the process that talks to the batch system; raises
        AdapterError.
    failed : callable
        Called when the records did not answer.
    clock : callable
        Seconds from any start.
    """

    def __init__(
        self,
        find: Callable[[Sequence[int], float], Awaitable[Completions]],
        failed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find, self._failed, self._clock = find, failed, clock
        self._missing: dict[int, _Purged] = {}
        self._pause, self._resume = FIRST_RETRY_S, -math.inf
        self._error = ""

    async def __call__(self, site: Site, observation: Observation) -> Observation:
        """Return an observation with the known ends of jobs that it did not show.

        Those that may become known yet are its `unknown` ones.
        """
        jobs, now = _purged_jobs(site, observation), self._clock()
        if not jobs:
            self._missing = {}
            return observation
        self._missing = {job: self._missing.get(job, _Purged(now)) for job in jobs}
        found = Completions.build(0)
        due = [job for job, missing in self._missing.items() if missing.again <= now]
        if due and now >= self._resume:
            found = await self._ask(site, observation, due, now)
        numbers = set(overlooked(site, observation).values())
        unknown = self._missing.keys() - set(found.job.tolist())
        if not self._error:  # whom the records do not know the batch system did not take
            unknown -= numbers
        unknown = {job for job in unknown if self._missing[job].open(now)}
        problems = observation.problems
        if self._error and unknown:
            count = f"{len(unknown)} promised job" + "s" * (len(unknown) > 1)
            problems = (*problems, f"the end of {count} is not known yet: {self._error}")
        completions = observation.completions
        if len(found):
            completions = Completions.joined([completions, found])
        return replace(
            observation, completions=completions, unknown=tuple(sorted(unknown)), problems=problems
        )

    async def _ask(
        self, site: Site, observation: Observation, jobs: Sequence[int], now: float
    ) -> Completions:
        """Return what the records know of some jobs, and remember when to ask again."""
        try:
            found = await self._find(jobs, _since(overlooked(site, observation), site, jobs))
        except AdapterError as error:
            self._error, self._resume = str(error), now + self._pause
            self._pause = min(2 * self._pause, LAST_RETRY_S)
            self._failed()
            log.warning("ends_not_known", jobs=jobs[:20], count=len(jobs), error=self._error)
            return Completions.build(0)
        self._error, self._pause = "", FIRST_RETRY_S
        unanswered = found.status == CompletionStatus.UNANSWERED
        if unanswered.any():
            self._error = "a schedd does not answer"
            self._failed()
        for job in found.job[unanswered].tolist():
            self._missing[job].again = now + REPEAT_S
        for job in set(jobs) - set(found.job.tolist()):
            missing = self._missing[job]
            missing.answered, missing.again = min(missing.answered, now), now + REPEAT_S
        return found.take(~unanswered)
