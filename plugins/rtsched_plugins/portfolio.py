"""Deadline admission by several planners that reads the load: the policy `portfolio`.

As `mcdf` it admits a job if a complete plan keeps its deadline and every promise given before, and
it makes better plans and chooses better among jobs:

* Loads are sent in several rounds, so that nodes begin to compute sooner.
* A job gets more nodes than it needs as long as that costs little more node-seconds.
* Plans are tried in several orders, in which a later job may start before one that does not fit;
  the first complete plan counts.
* When more work arrives than the machine can do, large jobs are declined so that more small ones
  get in; a share of the large ones is judged all the same. What is large follows from recent
  arrivals: smallest first, those that together fill the machine are not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray  # noqa: TC002 - states are decoded by their annotations

from rtsched.api import (
    EventKind,
    Finding,
    Reason,
    State,
    Verdict,
    Verdicts,
    are_in,
    hookimpl,
    places,
)
from rtsched_plugins.deadline_admission import BesidePlan, DeadlineAdmission, bounded, senseless
from rtsched_plugins.kernels.admission import BY_DEADLINE, BY_LAXITY, IN_TURN, LOW, rows_of
from rtsched_plugins.kernels.arrivals import Arrivals, Reading, least_work, read_arrivals
from rtsched_plugins.planners import Several
from rtsched_plugins.planning import tasks_of
from rtsched_plugins.resource_planning import scarcest_share

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rtsched.api import (
        Cluster,
        Events,
        Jobs,
        PlanRows,
        PreparedState,
        RejectedRows,
        ReplayPlanner,
        Snapshot,
    )
    from rtsched_plugins.deadline_admission import OnePool


class Recent(State, frozen=True):
    """Recent arrivals of jobs with a deadline, in order, and what was decided of each.

    `time` in epoch seconds, the other columns as in `Arrivals`; `above` counts all jobs so far
    that were above their threshold.
    """

    job: NDArray[np.int64]
    time: NDArray[np.float64]
    work: NDArray[np.float64]
    patience: NDArray[np.float64]
    threshold: NDArray[np.float64]
    load: NDArray[np.float64]
    declined: NDArray[np.bool_]
    above: int


_NOBODY = Recent(
    np.empty(0, np.int64),
    np.empty(0),
    np.empty(0),
    np.empty(0),
    np.empty(0),
    np.empty(0),
    np.empty(0, np.bool_),
    0,
)
"""Before anybody came."""


def decided(
    recent: Recent,
    time: NDArray[np.float64],
    work: NDArray[np.float64],
    deadline: NDArray[np.float64],
    reading: Reading,
) -> tuple[Arrivals, int]:
    """Return the arrivals remembered and further ones, each decided upon by those before it.

    And how many of all so far were above their threshold.
    """
    n = len(time)
    arrivals = Arrivals(
        np.concatenate([recent.time, time]),
        np.concatenate([recent.work, work]),
        np.concatenate([recent.patience, deadline - time]),
        np.concatenate([recent.threshold, np.empty(n)]),
        np.concatenate([recent.load, np.empty(n)]),
        np.concatenate([recent.declined, np.empty(n, np.bool_)]),
    )
    return arrivals, read_arrivals(arrivals, len(recent.job), recent.above, reading)


def arrived(
    recent: Recent,
    job: NDArray[np.int64],
    time: NDArray[np.float64],
    work: NDArray[np.float64],
    deadline: NDArray[np.float64],
    reading: Reading,
) -> Recent:
    """Return the memory after further arrivals, each decided upon by those before it.

    It holds as many arrivals as a decision looks at, and all those of the last instant: they may
    be judged together. What is forgotten matters to no later decision, so that it does not matter
    either how arrivals are cut into batches.
    """
    arrivals, above = decided(recent, time, work, deadline, reading)
    count = len(arrivals.time)
    first = max(count - reading.arrivals, 0)
    first = min(first, int(np.searchsorted(arrivals.time, arrivals.time[-1])))
    jobs, kept = np.concatenate([recent.job, job]), slice(first, None)
    return Recent(jobs[kept], **_rows(arrivals._asdict(), kept), above=above)


def without(recent: Recent, jobs: NDArray[np.int64]) -> Recent:
    """Return the memory as if some jobs had not come; what was decided of others stays."""
    kept = ~are_in(recent.job, jobs)
    if kept.all():
        return recent
    columns = {name: getattr(recent, name) for name in Arrivals._fields}
    return Recent(recent.job[kept], **_rows(columns, kept), above=recent.above)


def _rows(columns: Mapping[str, Any], kept: slice | NDArray[np.bool_]) -> dict[str, Any]:
    """Return some rows of each column."""
    return {name: column[kept] for name, column in columns.items()}


ORDERS = {"deadline": BY_DEADLINE, "laxity": BY_LAXITY, "in-turn": IN_TURN}


class Portfolio(DeadlineAdmission):
    """Admit by several planners; under overload decline what costs most."""

    class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Settings."""

        orders: Annotated[
            tuple[Literal["deadline", "laxity", "in-turn"], ...], Meta(min_length=1)
        ] = ("in-turn", "deadline", "laxity")
        """Orders in which a plan is tried, one after the other. `deadline`: earliest deadline
        first; `laxity`: earliest latest start first. A later job may start before one that does not
        fit. The first complete plan is used."""
        generosity: Annotated[float, Meta(ge=0)] = 0.15
        """A job gets as many free nodes as possible, as long as it uses at most this fraction more
        node-seconds than on the fewest that meet its deadline."""
        rounds: Annotated[int, Meta(ge=1, le=64)] = 8
        """Divisible jobs: maximum number of rounds in which a load is sent, so that nodes start
        computing sooner. The fastest number is used. On live systems only jobs that state that they
        take their load in rounds do so."""
        efficiency: Annotated[float, Meta(gt=0, le=1)] = 1.0
        """Moldable jobs: run time on n nodes is wall time (size/n)^efficiency."""
        arrivals: Annotated[int, Meta(gt=0)] = 200
        """Number of arrivals before a job from which the load is estimated."""
        least: Annotated[int, Meta(gt=0)] = 50
        """With fewer arrivals before it, no job is declined."""
        overbooking: Annotated[float, Meta(gt=0)] = 1.3
        """Jobs are declined from the size at which recent work, smallest job first, is this many
        times what the cluster can do by its deadlines; inf: none is."""
        spared: Annotated[float, Meta(ge=0, le=1)] = 0.5
        """Jobs that are smaller than this fraction of recent jobs are never declined."""
        heard: Annotated[float, Meta(ge=0, le=1)] = 0.1
        """Fraction of the large jobs that is evaluated all the same, so that some large jobs are
        admitted."""
        beside_plan: BesidePlan = False
        offer_tests: Annotated[int, Meta(ge=0)] = 32
        """Maximum number of deadlines tried per counter-offer; 0: no counter-offer. When they are
        used up, a later deadline that passed the test is offered."""

    overloaded: ClassVar = Reason(
        "portfolio.overloaded",
        "takes {work} node-seconds; at present jobs of more than {threshold} are rejected, "
        "because {load} times the capacity is requested",
    )
    impossible: ClassVar = Reason(
        "portfolio.impossible",
        "deadline too soon: the job may need {needed:time up}, {left:time} are left",
    )
    no_room: ClassVar = Reason(
        "portfolio.no-room",
        "cannot meet this deadline without breaking {promises:existing promise}; {left:time} "
        "are left, {free} of {nodes:node} are free",
    )
    breaks_promise: ClassVar = Reason(
        "portfolio.breaks-promise",
        "with this job, job {other} would miss its promised deadline; {promises:existing "
        "promise} must be kept",
    )
    endless: ClassVar = Reason(
        "portfolio.endless",
        "states neither its run time nor its work, so its end cannot be predicted",
    )
    no_load: ClassVar = Reason(
        "portfolio.no-load",
        "invalid divisible load: {sigma} units, {cms} s to send and {cps} s to compute one, "
        "set-up {setup_link} s and {setup_node} s; units and time per unit must be above 0, "
        "and no time may be negative",
    )
    smaller_load: ClassVar = Reason(
        "portfolio.smaller-load",
        "{percent} % of its load would be accepted with the same deadline",
    )
    fewer_tasks: ClassVar = Reason(
        "portfolio.fewer-tasks",
        "{tasks} of its {all} tasks would be accepted with the same deadline",
    )
    more_nodes: ClassVar = Reason(
        "portfolio.more-nodes",
        "the same deadline would be accepted if the job could use {nodes:node} instead of {most}",
    )
    not_yet: ClassVar = Reason(
        "portfolio.not-yet",
        "may not start for another {wait:time}; it is evaluated then",
    )
    waits: ClassVar = Reason(
        "portfolio.waits",
        "waits for job {task}, whose end cannot be predicted: it neither runs with a time limit "
        "nor has a promise; give it a deadline too",
    )
    behind: ClassVar = Reason(
        "portfolio.behind",
        "deadline too soon: it may have to wait for its begin time, or for other jobs, for "
        "{wait:time up}, and it may need {needed:time up}; {left:time} are left",
    )

    def __init__(self, config: Config | None = None) -> None:
        self.config = config = config or self.Config()
        orders = tuple(ORDERS[name] for name in config.orders)
        self._several = Several(orders, config.generosity, config.efficiency, config.rounds)
        beside = config.beside_plan
        super().__init__(self._several, config.offer_tests, beside_plan=beside)

    @hookimpl
    def rtsched_observe(
        self, events: Events, snapshot: Snapshot, state: Recent | None
    ) -> Recent | None:
        """Take in who arrived, and decide whom of them to decline; forget who was withdrawn."""
        recent = self._with_arrivals(events, snapshot, state or _NOBODY)
        gone = events.jobs.id[events.rows.kind == EventKind.WITHDRAWN]
        recent = without(recent, gone) if len(gone) else recent
        return None if recent is (state or _NOBODY) else recent

    def _with_arrivals(self, events: Events, snapshot: Snapshot, recent: Recent) -> Recent:
        came = np.flatnonzero(events.rows.kind == EventKind.ARRIVED)
        came = came[np.isfinite(events.jobs.deadline[came])]
        if not len(came):
            return recent
        jobs, time = events.jobs.take(came), events.rows.time[came]
        known = bounded(jobs) & ~senseless(jobs)
        if not known.all():
            jobs, time = jobs.take(known), time[known]
        return self._after(recent, jobs, time, snapshot) if len(jobs) else recent

    @hookimpl
    def rtsched_admit(
        self, jobs: Jobs, snapshot: Snapshot, state: Recent | None, prepared: PreparedState
    ) -> Verdicts | None:
        """Decline what is too large for the present load, and plan for the rest."""
        recent, place = self._looked_up(jobs, snapshot, state or _NOBODY)
        declined = place >= 0
        declined[declined] = recent.declined[place[declined]]
        if not declined.any():
            return self.judge(jobs, snapshot, prepared)
        rest = np.flatnonzero(~declined)
        judged = self.judge(jobs.take(rest), snapshot, prepared) if len(rest) else None
        numbers = {name: getattr(recent, name)[place] for name in ("work", "threshold", "load")}
        return _joined(judged, rest, Finding.where(declined, self.overloaded, **numbers))

    def replay_planner(self, jobs: Jobs, cluster: Cluster) -> ReplayPlanner | None:
        """Return its short form for a replay of these jobs; None: it has none."""
        pool = self.one_pool(self._several, jobs, cluster)
        if pool is None or (np.isfinite(jobs.deadline) & ~pool.answers).any():
            return None  # who is declined follows from all that arrive: each must be known here
        came = np.flatnonzero(pool.answers)
        origin = jobs.submit[0] if len(jobs) else 0.0
        time = (jobs.submit[came] - origin) + origin  # as the replay's clock has it
        work, some = self._work(jobs.take(came), cluster, origin), jobs.deadline[came]
        arrivals, _ = decided(_NOBODY, time, work, some, self._reading(cluster))
        place = np.cumsum(pool.answers) - 1
        pool.direct = pool.answers.copy()
        pool.direct[came] = ~arrivals.declined
        return _Declining(pool, self.overloaded, arrivals, place)

    def _looked_up(
        self, jobs: Jobs, snapshot: Snapshot, recent: Recent
    ) -> tuple[Recent, NDArray[np.int64]]:
        """Return the arrivals with these jobs among them, and the place of each; -1: not judged.

        A job may be judged before anybody was told that it came.
        """
        judged = np.isfinite(jobs.deadline) & bounded(jobs) & ~senseless(jobs)
        judged &= ~self.cannot_plan_yet(jobs, snapshot)
        _, known = places(recent.job, jobs.id)
        unheard = np.flatnonzero(judged & ~known)
        if len(unheard):
            unheard = unheard[np.lexsort((jobs.id[unheard], jobs.submit[unheard]))]
            time = np.full(len(unheard), snapshot.now)
            recent = self._after(recent, jobs.take(unheard), time, snapshot)
        place, _ = places(recent.job, jobs.id)
        return recent, np.where(judged, place, -1)

    def _after(
        self, recent: Recent, jobs: Jobs, time: NDArray[np.float64], snapshot: Snapshot
    ) -> Recent:
        """Return the arrivals with these jobs, which came at these times, decided upon."""
        work = self._work(jobs, snapshot.cluster, snapshot.now)
        reading = self._reading(snapshot.cluster)
        return arrived(recent, jobs.id, time, work, jobs.deadline, reading)

    def _work(self, jobs: Jobs, cluster: Cluster, now: float) -> NDArray[np.float64]:
        """Return float64[n]: the least node-seconds of jobs, or what their resources are worth."""
        config, nodes = self.config, len(cluster)
        rounds = 1 if cluster.shared else config.rounds
        rows = rows_of(tasks_of(jobs, now), nodes, config.efficiency, rounds)
        work = least_work(rows)
        if cluster.shared:  # the node-seconds that its scarcest resource is worth
            size = np.maximum(rows.whole[:, LOW], 1)
            work *= nodes * scarcest_share(jobs, cluster, size) / size
        return work

    def _reading(self, cluster: Cluster) -> Reading:
        config = self.config
        return Reading(
            float(len(cluster)),
            config.arrivals,
            config.least,
            config.overbooking,
            config.spared,
            config.heard,
        )


class _Declining(NamedTuple):
    """The short form: declines whom the arrivals before it say, and asks a planner of the rest."""

    pool: OnePool
    overloaded: Reason
    arrivals: Arrivals
    """Of all jobs with a deadline, and what was decided of each."""
    place: NDArray[np.int64]
    """int64[n]: where each of the workload's jobs with a deadline stands among them."""

    @property
    def answers(self) -> NDArray[np.bool_]:
        """Return bool[n]: which jobs of the workload it judges."""
        return self.pool.answers

    def judge(
        self,
        rows: NDArray[np.int64],
        now: float,
        held_until: NDArray[np.float64],
        plan: PlanRows,
        promises: Callable[[], int],
    ) -> tuple[Verdicts | None, PlanRows | None]:
        """Judge jobs one by one; as `rtsched.api.ReplayPlanner.judge`."""
        place = self.place[rows]
        declined = self.arrivals.declined[place]
        if not declined.any():
            return self.pool.judge(rows, now, held_until, plan, promises)
        rest = np.flatnonzero(~declined)
        judged, anew = None, None
        if len(rest):
            judged, anew = self.pool.judge(rows[rest], now, held_until, plan, promises)
            if judged is None:
                promise = self.pool.jobs.deadline[rows[rest]]
                judged = Verdicts.build(np.full(len(rest), Verdict.ADMIT), promise=promise)
        names = ("work", "threshold", "load")
        numbers = {name: getattr(self.arrivals, name)[place] for name in names}
        finding = Finding.where(declined, self.overloaded, **numbers)
        return _joined(judged, rest, finding), anew

    def improve(
        self, now: float, held_until: NDArray[np.float64], plan: PlanRows
    ) -> PlanRows | None:
        """Return a better plan; as `rtsched.api.ReplayPlanner.improve`."""
        return self.pool.improve(now, held_until, plan)

    def compiled_policy(self) -> Any:
        """Return its compiled form; as `rtsched.api.ReplayPlanner.compiled_policy`."""
        return self.pool.compiled_policy()

    def verdicts(self, rejected: RejectedRows) -> Verdicts:
        """Return why jobs were rejected; as `rtsched.api.ReplayPlanner.verdicts`."""
        return self.pool.verdicts(rejected)


def _joined(judged: Verdicts | None, rest: NDArray[np.int64], declined: Finding) -> Verdicts:
    """Return the verdicts on the rows `rest`, and rejections of the rows of a finding."""
    n = len(rest) + len(declined.rows)
    judged = judged or Verdicts.abstain(len(rest))
    code = np.full(n, Verdict.REJECT, np.int8)
    retry_at, promise, offer = np.full(n, -np.inf), np.full(n, np.inf), np.full(n, np.inf)
    code[rest], retry_at[rest] = judged.code, judged.retry_at
    promise[rest], offer[rest] = judged.promise, judged.offer
    findings = (declined, *(finding.moved(rest) for finding in judged.findings))
    return Verdicts(code, retry_at, promise, offer, findings, judged.plan)
