"""Reader of the site: the reports that answer users' questions, from memory; nothing is changed."""

from __future__ import annotations

import math
from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from rtsched import __version__
from rtsched.adapters.live import FIRST_OWN_ID
from rtsched.adapters.users import user_name
from rtsched.daemon import messages, questions
from rtsched.daemon.account_shares import account_shares
from rtsched.daemon.admission import rounds_promised
from rtsched.daemon.feasibility import FeasibilityReader
from rtsched.daemon.likely import has_fallen, present_odds
from rtsched.daemon.promises import AT_RISK, OPEN, decode_jobs
from rtsched.daemon.questions import RefusedError
from rtsched.daemon.site import entry_of
from rtsched.daemon.standby import unseen
from rtsched.daemon.waiting import OFF, Starts, finite, helps, terms, waits
from rtsched.model.jobs import Jobs, Kind
from rtsched.model.snapshot import are_in, places

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from rtsched.daemon.app import Daemon
    from rtsched.daemon.estimating import LatestEstimates
    from rtsched.daemon.promises import JournalEntry, Promise
    from rtsched.model.schedule import Schedule

MAY_END_LATE = "the job may end later than promised"

MOST_UNPROMISED = 1000
"""Jobs without a promise that a report of the daemon's state lists."""

FAR = 366 * 86400.0
"""Seconds after which a job without a limit ends in a timeline."""

NAMED = 0.5
"""Seconds that a question waits for the name service."""


class Cancellation(NamedTuple):
    """A promise that its user or an admin may cancel."""

    promise: Promise
    shown: questions.PromiseStatus
    by: str


class Unsubmitted(NamedTuple):
    """A job that is not submitted, one row, and what says more about it."""

    jobs: Jobs
    starts: Starts
    now: float


def when_report(
    starts: Starts, now: float, jobs: tuple[questions.StartEstimate, ...], more: int = 0
) -> questions.WhenReport:
    """Return a report of start estimates."""
    return questions.WhenReport(
        now, starts.estimated, jobs, more, starts.record(), starts.problem, starts.past
    )


class SiteReader:
    """Reads the site of one instant for a user; for another thread than the daemon's loop.

    Parameters
    ----------
    daemon : Daemon
        Its site is taken as it is now.
    uid : int
        Who asks.
    everyone : bool
        Whether the user may see what is others'.
    """

    def __init__(self, daemon: Daemon, uid: int, everyone: bool) -> None:
        self.daemon, self.site, self.uid, self.everyone = daemon, daemon.site, uid, everyone

    def report(self, question: questions.AnyQuestion) -> questions.Report:
        """Return the answer to a question that changes nothing.

        Raises
        ------
        RtschedError
            If there is none for this user.
        """
        match question:
            case questions.Status():
                return self._status(question.metrics)
            case questions.Explain():
                return self._explain(question)
            case questions.Feasible():
                return self.feasibility.report(self.feasibility.judged(question))
            case questions.When():
                return self._when(question)
            case questions.Plan():
                if not self.everyone:
                    raise RefusedError(
                        "only admins may see the whole plan; `rtsched status` shows your own part",
                        "forbidden",
                    )
                return self.plan()
            case questions.Chunk():
                return self._chunk(question)
            case questions.NodeList():
                return self._node_list()
            case questions.Timeline():
                return self._timeline()
            case questions.Shares():
                return self._shares()
            case questions.Reliability():
                return self._reliability()
            case questions.Closed():
                return self._closed(question)
            case questions.Choices():
                return self.feasibility.choices()
            case questions.Cancel():
                raise RefusedError("a cancellation is no question")

    @cached_property
    def feasibility(self) -> FeasibilityReader:
        """Who tells what jobs that nobody submits could have."""
        return FeasibilityReader(self.daemon, self.site, self.uid, self._names)

    def _mode(self) -> Any:
        return "dry-run" if self.daemon.dry_run else "live"

    @cached_property
    def _nodes(self) -> list[str]:
        names = self.site.snapshot.cluster.nodes.texts("name")
        return [name or str(row) for row, name in enumerate(names)]

    @cached_property
    def _titles(self) -> dict[int, str | None]:
        """What users call the jobs with promises."""
        both = (self.site.requested, self.site.likely.requested)
        return {
            job: name
            for asked in both
            for job, name in zip(asked.id.tolist(), asked.texts("name"), strict=True)
        }

    @cached_property
    def _limits(self) -> dict[int, str]:
        """For which limits of accounts, QOS and partitions jobs wait."""
        return self.site.limits()

    @cached_property
    def _suspended(self) -> set[int]:
        """Jobs that are suspended."""
        return set(self.site.marks.job[self.site.marks.suspended].tolist())

    @cached_property
    def _waiting_tasks(self) -> dict[int, int]:
        """How many tasks of promised arrays have not been started, by job."""
        asked, running = self.site.requested, self.site.snapshot.running
        arrays = asked.take(asked.kind == Kind.ARRAY)
        place, runs = places(running.id, arrays.id)
        tasks = arrays.tasks.copy()
        tasks[runs] = running.tasks[place[runs]]
        return dict(zip(arrays.id.tolist(), tasks.tolist(), strict=True))

    @cached_property
    def _odds_now(self) -> dict[int, float]:
        """The odds that likely promises have now, by job."""
        return present_odds(self.site.likely, self._estimates)

    @cached_property
    def _planned(self) -> dict[int, int]:
        """Entries of the plan, by job."""
        return _entries(self.site.snapshot.plan)

    @cached_property
    def _running(self) -> dict[int, int]:
        """Entries of what runs, by job."""
        return _entries(self.site.snapshot.allocations)

    # --- status, plan --------------------------------------------------------------------------

    def _status(self, metrics: bool) -> questions.StatusReport:
        daemon, site, everyone = self.daemon, self.site, self.everyone
        status, snapshot = daemon.status, site.snapshot
        shown = [r for r in site.all_promises() if everyone or r.uid == self.uid]
        peers = daemon.peers()
        return questions.StatusReport(
            version=__version__,
            mode=self._mode(),
            system=daemon.policy.live.daemon.system,
            now=daemon.clock(),
            started=status.started,
            looked=finite(site.seen),
            queued=len(snapshot.queued),
            running=len(snapshot.running),
            nodes=len(snapshot.cluster),
            usable=int(snapshot.cluster.usable.sum()),
            cycle_s=status.last_cycle_s or None,
            states=self._states(),
            answers=daemon.metrics.answers(),
            lag_s=round(daemon.lag.longest(), 6) if everyone else None,
            problems=(*daemon.problems(), *unseen(peers)),
            everyone=everyone,
            promises=self._promises(shown),
            unpromised=self._unpromised(),
            metrics=daemon.metrics.text() if metrics and everyone else "",
            peers=peers,
        )

    def _states(self) -> dict[str, int]:
        """Return how many promises are in each state, those at risk apart from the firm ones."""
        counts = Counter(self.daemon.store.counts())
        promises = self.site.promises
        risky = Counter(promises[job].state for job in self.site.at_risk if job in promises)
        counts.subtract(risky)
        counts[AT_RISK] = risky.total()
        return dict(+counts)

    def plan(self) -> questions.PlanReport:
        """Return the whole plan, and in a dry-run what the last cycle would have changed."""
        daemon = self.daemon
        planned = set(self.site.snapshot.plan.entries.job.tolist())
        changes = [
            questions.PendingChange(
                c.kind, daemon.translator.name_of(c.job) if c.job >= 0 else "", c.text
            )
            for c in (daemon.pending if daemon.dry_run else ())
        ]
        return questions.PlanReport(
            now=daemon.clock(),
            mode=self._mode(),
            version=self.site.snapshot.version,
            entries=self._promises(r for job, r in self.site.promises.items() if job in planned),
            changes=tuple(changes),
        )

    def _promises(self, promises: Iterable[Promise]) -> tuple[questions.PromiseStatus, ...]:
        found = [self._promise(promise) for promise in promises]
        return tuple(sorted(found, key=lambda p: (p.start or math.inf, p.deadline or math.inf)))

    def _unpromised(self) -> tuple[questions.PromiseStatus, ...]:
        """Return jobs of this user with a deadline and no open promise; the first by submission."""
        site, marks = self.site, self.site.marks
        mine = marks.job if self.everyone else marks.job[marks.uid == self.uid]
        open_ = [promise.id for promise in site.all_promises()]
        jobs = Jobs.joined([site.snapshot.queued, site.snapshot.running])
        wanted = np.isfinite(jobs.deadline) & are_in(jobs.id, mine) & ~are_in(jobs.id, open_)
        rows = np.flatnonzero(wanted)
        order = np.argsort(jobs.submit[rows], kind="stable")
        jobs = jobs.take(rows[order[:MOST_UNPROMISED]])
        closed = self.daemon.store.latest(jobs.id.tolist())
        columns = (jobs.texts("name"), jobs.texts("user"), jobs.id.tolist(), jobs.deadline.tolist())
        return tuple(
            self._without(job, name or "", user or "", deadline, closed.get(job))
            for name, user, job, deadline in zip(*columns, strict=True)
        )

    def _without(
        self, job: int, name: str, user: str, deadline: float, promise: Promise | None
    ) -> questions.PromiseStatus:
        """Return a job without a promise as one that is not kept; `promise`: one that it had."""
        if promise is not None:
            return msgspec.structs.replace(self._promise(promise), name=name)
        running = (entry := self._running.get(job)) is not None
        start = end = None
        nodes: tuple[str, ...] = ()
        if entry is not None:
            start, end = self.site.snapshot.allocations.span_of(entry)
            nodes = self._names(self.site.snapshot.allocations.nodes_of(entry).tolist())
        return questions.PromiseStatus(
            job=self.daemon.translator.name_of(job),
            name=name,
            user=user,
            state="none",
            deadline=finite(deadline),
            made_at=None,
            running=running,
            start=start,
            end=end,
            nodes=nodes,
        )

    def _promise(self, promise: Promise) -> questions.PromiseStatus:
        """Return a promise with the present plan for it."""
        snapshot, job = self.site.snapshot, promise.id
        start = end = None
        nodes: tuple[str, ...] = ()
        running = job in self._running
        schedule = snapshot.allocations if running else snapshot.plan
        entry = (self._running if running else self._planned).get(job)
        if entry is not None:
            start, end = schedule.span_of(entry)
            nodes = self._names(schedule.nodes_of(entry).tolist())
        waiting = self._waiting_tasks.get(job)
        overdue = start is not None and not running and start < self.daemon.clock()
        limit = self._limits.get(job) if overdue else None
        why = messages.kept_waiting(limit) if limit else ""
        why = MAY_END_LATE if job in self.site.at_risk else why
        paused = job in self._suspended
        if not math.isfinite(self.site.at_risk.get(job, 0.0)):
            why = messages.SUSPENDED if paused else messages.NO_PLACE
        odds_now = self._odds_now.get(job) if promise.state in OPEN else None
        below = self.daemon.policy.live.likely.warn_below
        return questions.PromiseStatus(
            job=self.daemon.translator.name_of(promise.id) if promise.id < FIRST_OWN_ID else "",
            name=self._titles.get(job) or "",
            user=promise.user,
            state=AT_RISK if promise.state in OPEN and job in self.site.at_risk else promise.state,
            deadline=finite(promise.deadline),
            made_at=finite(promise.made_at),
            expires=finite(promise.expires),
            running=running,
            suspended=paused,
            late=job in self.site.at_risk,
            start=start,
            end=end,
            nodes=nodes,
            why=why or promise.why,
            tasks=None if waiting is None else int(decode_jobs(promise.job).tasks[0]),
            waiting=waiting,
            notify=promise.notify,
            odds=promise.odds,
            odds_now=odds_now,
            unlikely=has_fallen(promise.odds, odds_now, below),
            text=_text(promise, None if running else start, len(nodes)),
        )

    def _closed(self, question: questions.Closed) -> questions.ClosedReport:
        if not self.everyone:
            raise RefusedError("only admins may see the promises of all users", "forbidden")
        found = self.daemon.store.closed_since(question.since)
        return questions.ClosedReport(
            self.daemon.clock(),
            tuple(questions.ClosedPromise(each.changed_at, self._past(each)) for each in found),
        )

    def _past(self, promise: Promise) -> questions.PromiseStatus:
        """Return a closed promise, with its job's name as it was submitted."""
        name = decode_jobs(promise.job).texts("name")[0] or ""
        return msgspec.structs.replace(self._promise(promise), name=name)

    # --- explain, chunk ------------------------------------------------------------------------

    def _explain(self, question: questions.Explain) -> questions.ExplainReport:
        daemon, now = self.daemon, self.daemon.clock()
        if not question.job:
            everyone, uid = self.everyone, self.uid
            found = daemon.store.journal(None if everyone else uid, question.last)
            names = [user_name(d.uid, NAMED) if everyone else "" for d in found]
            verdicts = tuple(_verdict(d, "", user) for d, user in zip(found, names, strict=True))
            return questions.ExplainReport(now=now, verdicts=verdicts)
        job = self._visible(question.job)
        promise = self._promise_to(job)
        token, name = (promise.token, None) if promise else (None, question.job)
        whose = None if self.everyone or promise else self.uid
        decisions = daemon.store.journal(whose, question.last, job=name, token=token)
        shown = self._job(job)
        waiting = shown is not None and shown.state == "waiting"
        return questions.ExplainReport(
            now=now,
            job=shown,
            promise=self._promise(promise) if promise is not None else None,
            verdicts=tuple(_verdict(d, question.job) for d in decisions),
            waits=waits(self.site, daemon.steered, job, now) if waiting else (),
            helps=helps(self.site, job, now) if waiting else (),
            terms=terms(daemon.steered, job) if waiting else {},
            estimate=self._starts(now).of_job(job) if self._estimates.enabled else None,
        )

    # --- when ----------------------------------------------------------------------------------

    @property
    def _estimates(self) -> LatestEstimates:
        estimating = self.daemon.estimating
        return OFF if estimating is None else estimating.latest

    def _starts(self, now: float) -> Starts:
        daemon = self.daemon
        name_of = daemon.translator.name_of
        return Starts(self.site, self._estimates, daemon.steered, name_of, now)

    def _when(self, question: questions.When) -> questions.WhenReport:
        now = self.daemon.clock()
        starts = self._starts(now)
        if question.job:
            found = starts.of_job(self._visible(question.job))
            if found is None:
                raise RefusedError(f"job {question.job} neither waits nor runs", "not-found")
            return when_report(starts, now, (found,))
        marks, queued = self.site.marks, self.site.snapshot.queued
        jobs = queued.id if self.everyone else marks.job[marks.uid == self.uid]
        shown, more = starts.of_jobs(jobs[jobs < FIRST_OWN_ID].tolist())
        return when_report(starts, now, shown, more)

    def unsubmitted(self, request: questions.Feasible) -> Unsubmitted:
        """Return a job that is not submitted as the batch system would show it.

        Raises
        ------
        RtschedError
            If it makes no sense, or the batch system does not answer now.
        """
        now = self.daemon.clock()
        submission = self.feasibility.described(request, now).submission
        jobs = submission.jobs.with_column("deadline", np.full(len(submission.jobs), np.inf))
        return Unsubmitted(
            jobs.with_column("submit", np.full(len(jobs), now)), self._starts(now), now
        )

    def _visible(self, name: str) -> int:
        """Return a job's id, if this user may ask about it.

        Raises
        ------
        RtschedError
            If not; the answer does not tell whether there is such a job.
        """
        site, translator = self.site, self.daemon.translator
        job = site.whole(translator.number_of(name))
        help_ = "`rtsched explain --last` lists the replies to your submissions"
        if job < 0 and translator.naming:
            help_ = translator.naming
        unknown = RefusedError(f"no job {name!r} of yours is known; {help_}", "not-found")
        if job < 0:
            raise unknown
        place, there = places(site.marks.job, np.array([job]))
        owners = {int(site.marks.uid[place[0]])} if there[0] else set()
        owners |= {promise.uid for promise in self.daemon.store.find(job)}
        if not owners or not (self.everyone or self.uid in owners):
            raise unknown
        return job

    def _promise_to(self, job: int) -> Promise | None:
        promise = self.site.promise_of(job)
        if promise is not None:
            return promise
        past = self.daemon.store.find(job)
        return past[0] if past else None

    def _job(self, job: int) -> questions.JobReport | None:
        site = self.site
        for table, state in ((site.snapshot.queued, "waiting"), (site.snapshot.running, "running")):
            place, there = places(table.id, np.array([job]))
            if there[0]:
                return self._shown(table.take(place), state)
        return None

    def _shown(self, row: Jobs, state: Any) -> questions.JobReport:
        site, job = self.site, int(row.id[0])
        start = end = None
        if (entry := entry_of(site.snapshot.allocations, job)) >= 0:
            start, end = site.snapshot.allocations.span_of(entry)
        place, there = places(site.marks.job, np.array([job]))
        return questions.JobReport(
            job=self.daemon.translator.name_of(job),
            name=row.texts("name")[0] or "",
            user=row.texts("user")[0] or "",
            partition=row.texts("partition")[0] or "",
            state="suspended" if job in self._suspended else state,
            size=int(row.size[0]),
            wall_time_s=finite(float(row.wall_time[0])),
            submit=finite(float(row.submit[0])),
            deadline=finite(float(row.deadline[0])),
            start=start,
            end=end,
            held=bool(there[0] and site.marks.held[place[0]]),
        )

    def _chunk(self, question: questions.Chunk) -> questions.ChunkReport:
        job, site = self._visible(question.job), self.site
        promise, entry = site.promises.get(job), entry_of(site.snapshot.plan, job)
        if promise is None or entry < 0:
            raise RefusedError(
                f"job {question.job} has no planned start; a running job reads its own record: "
                "`rtsched chunk` inside the job",
                "not-found",
            )
        plan = site.snapshot.plan
        at = slice(int(plan.indptr[entry]), int(plan.indptr[entry + 1]))
        return questions.ChunkReport(
            job=question.job,
            deadline=finite(promise.deadline),
            nodes=self._names(plan.nodes[at].tolist()),
            fractions=tuple(plan.shares()[at].tolist()),
            rounds=rounds_promised(promise, plan, entry),
        )

    # --- nodes, cancel -------------------------------------------------------------------------

    def _node_list(self) -> questions.NodesReport:
        snapshot = self.site.snapshot
        cluster, runs, plan = snapshot.cluster, snapshot.allocations, snapshot.plan
        number = len(cluster)
        until, begins = np.full(number, -np.inf), np.full(number, np.inf)
        np.maximum.at(until, runs.nodes, runs.entries.end[runs.rows()])
        np.minimum.at(begins, plan.nodes, plan.starts())
        columns = (
            cluster.usable.tolist(),
            np.bincount(runs.nodes, minlength=number).tolist(),
            np.bincount(plan.nodes, minlength=number).tolist(),
            until.tolist(),
            begins.tolist(),
        )
        rows = zip(self._nodes, *columns, strict=True)
        nodes = tuple(
            questions.NodeLoad(name, usable, runs, planned, finite(end), finite(start))
            for name, usable, runs, planned, end, start in rows
        )
        return questions.NodesReport(self.daemon.clock(), nodes)

    def _timeline(self) -> questions.TimelineReport:
        snapshot, cluster = self.site.snapshot, self.site.snapshot.cluster
        running, now = snapshot.allocations, self.daemon.clock()
        kept = are_in(running.entries.job, np.fromiter(self.site.promises, np.int64))
        reserved = snapshot.blocked.schedule()
        parts = {
            "running": running.take(np.flatnonzero(~kept)),
            "kept": running.take(np.flatnonzero(kept)),
            "planned": snapshot.plan,
            "reserved": reserved.take(np.flatnonzero(reserved.entries.end > now)),
        }
        kinds: list[Any] = []
        columns: list[list[NDArray[Any]]] = []
        for kind, schedule in parts.items():
            entry, first, count = schedule.ragged.runs()
            ends = np.minimum(schedule.entries.end, now + FAR)
            columns.append([first, count, schedule.entries.start[entry], ends[entry]])
            kinds += [kind] * len(entry)
        joined = map(np.concatenate, zip(*columns, strict=True))
        first, count, start, end = (column.tolist() for column in joined)
        return questions.TimelineReport(
            now=now,
            nodes=tuple(self._nodes),
            usable=tuple(cluster.usable.tolist()),
            partitions={
                name: tuple(np.flatnonzero(mask).tolist())
                for name, mask in cluster.partitions.items()
                if "," not in name
            },
            kind=tuple(kinds),
            first=tuple(first),
            count=tuple(count),
            start=tuple(start),
            end=tuple(end),
        )

    def _shares(self) -> questions.SharesReport:
        daemon, user = self.daemon, None if self.everyone else user_name(self.uid)
        found = account_shares(self.site.snapshot, daemon.steered, user)
        return questions.SharesReport(daemon.clock(), self.everyone, found)

    def _reliability(self) -> questions.ReliabilityReport:
        found: dict[float, list[int]] = {}
        for odds, kept, number in self.daemon.store.likely_outcomes():
            found.setdefault(odds, [0, 0])[kept] += number
        rows = (questions.OddsKept(odds, sum(each), each[1]) for odds, each in found.items())
        return questions.ReliabilityReport(self.daemon.clock(), tuple(rows))

    def cancellation(self, question: questions.Cancel) -> Cancellation:
        """Return the promise that is to be cancelled.

        Raises
        ------
        RefusedError
            If there is none of this user's, or this daemon changes nothing.
        """
        if self.daemon.dry_run:
            raise RefusedError("a dry run makes no promises, so there is nothing to cancel")
        promise = self.site.promise_of(self._visible(question.job))
        if promise is None or promise.state != "firm":
            raise RefusedError(
                f"job {question.job} has no promise that could be cancelled; `rtsched explain "
                f"{question.job}` shows what became of it",
                "not-found",
            )
        by = user_name(self.uid, NAMED)
        own = messages.ITS_USER if self.uid == promise.uid else f"an admin ({by})"
        return Cancellation(promise, self._promise(promise), own)

    def _names(self, rows: Sequence[int]) -> tuple[str, ...]:
        return tuple(self._nodes[row] for row in rows)


def _text(promise: Promise, start: float | None, size: int) -> str:
    """Return what a job's user read when it was promised its deadline, by the present plan."""
    if promise.state not in {"provisional", "firm"}:
        return ""
    if promise.odds is not None:
        return messages.likely_by(promise.deadline, promise.odds, None)
    if start is None:
        return messages.promised_by(promise.deadline)
    return messages.promised(promise.deadline, start, size, None)


def _entries(schedule: Schedule) -> dict[int, int]:
    """Return the rows of a schedule's entries, by job."""
    return {job: row for row, job in enumerate(schedule.entries.job.tolist())}


def _verdict(decision: JournalEntry, job: str, user: str = "") -> questions.Verdict:
    return questions.Verdict(
        time=decision.time,
        job=decision.job or job,
        name=decision.name,
        verdict=decision.verdict,
        codes=decision.codes,
        text=decision.text,
        offer=finite(decision.offer),
        user=user,
    )
