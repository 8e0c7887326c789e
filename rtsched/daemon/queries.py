"""Answers to users' questions, from memory; nothing is promised and nothing is held here."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from rtsched import __version__
from rtsched.adapters.live import FIRST_OWN_ID, Question
from rtsched.adapters.users import user_name
from rtsched.adapters.wire import Kind, frame
from rtsched.daemon import messages, reports
from rtsched.daemon.site import entry_of
from rtsched.daemon.submits import Desk
from rtsched.daemon.waiting import helps, terms, waits
from rtsched.errors import RtschedError
from rtsched.model.snapshot import places

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rtsched.daemon.app import Daemon
    from rtsched.daemon.records import Decision, Record
    from rtsched.daemon.server import Asker
    from rtsched.daemon.site import Site
    from rtsched.model.jobs import Jobs
    from rtsched.model.schedule import Schedule

LOAD = ("sigma", "cms", "cps", "setup_link", "setup_node")


class Queries:
    """Answers questions of users about a daemon.

    A user sees what is the user's own, and what says nothing about others: root, the daemon's own
    user and the site's `admins` see everything.
    """

    def __init__(self, daemon: Daemon, own_uid: int) -> None:
        self.daemon, self._own = daemon, own_uid

    async def answer(self, kind: Kind, payload: bytes, asker: Asker) -> bytes:  # noqa: ARG002
        """Return the answer to the question in `payload`, which is of the only kind there is."""
        try:
            report = self._report(reports.read_question(payload), asker.uid)
        except msgspec.MsgspecError as error:
            return self._refused("malformed", f"not a question: {error}")
        except RtschedError as error:
            return self._refused("refused", str(error))
        return frame(Kind.REPORT, reports.report_payload(report))

    def _refused(self, why: str, text: str) -> bytes:
        self.daemon.metrics.query_refused(why)
        return frame(Kind.REPORT, reports.refusal_payload(text))

    def _report(self, question: reports.AnyQuestion, uid: int) -> reports.Report:
        match question:
            case reports.Status():
                return self._status(uid, question.metrics)
            case reports.Explain():
                return self._explain(question, uid)
            case reports.Feasible():
                return self._feasible(question, uid)
            case reports.Plan():
                if not self._sees_all(uid):
                    raise RtschedError(
                        "the whole plan is for admins; `rtsched status` shows your own part"
                    )
                return self.plan()
            case reports.Chunk():
                return self._chunk(question, uid)

    def _sees_all(self, uid: int) -> bool:
        admins = self.daemon.policy.live.daemon.admins
        return uid in {0, self._own} or user_name(uid) in admins

    def _mode(self) -> Any:
        return "dry-run" if self.daemon.dry_run else "live"

    # --- status, plan --------------------------------------------------------------------------

    def _status(self, uid: int, metrics: bool) -> reports.StatusReport:
        daemon, site, everyone = self.daemon, self.daemon.site, self._sees_all(uid)
        status, snapshot = daemon.status, site.snapshot
        shown = [r for r in site.records.values() if everyone or r.uid == uid]
        own_problems = [status.problem] if status.problem else []
        return reports.StatusReport(
            version=__version__,
            mode=self._mode(),
            system=daemon.policy.live.daemon.system,
            now=daemon.clock(),
            started=status.started,
            looked=_time(site.seen),
            queued=len(snapshot.queued),
            running=len(snapshot.running),
            nodes=len(snapshot.cluster),
            usable=int(snapshot.cluster.usable.sum()),
            cycle_s=status.last_cycle_s or None,
            standings=daemon.store.counts(),
            problems=(*own_problems, *status.problems),
            everyone=everyone,
            promises=self._promises(shown),
            metrics=daemon.metrics.text() if metrics and everyone else "",
        )

    def plan(self) -> reports.PlanReport:
        """Return the whole plan, and in a dry-run what the last cycle would have changed."""
        daemon = self.daemon
        planned = set(daemon.site.snapshot.plan.entries.job.tolist())
        changes = [
            reports.PendingChange(
                c.kind, daemon.translator.name_of(c.job) if c.job >= 0 else "", c.text
            )
            for c in (daemon.pending if daemon.dry_run else ())
        ]
        return reports.PlanReport(
            now=daemon.clock(),
            mode=self._mode(),
            version=daemon.site.snapshot.version,
            entries=self._promises(r for job, r in daemon.site.records.items() if job in planned),
            changes=tuple(changes),
        )

    def _promises(self, records: Iterable[Record]) -> tuple[reports.Promise, ...]:
        found = [self._promise(record) for record in records]
        return tuple(sorted(found, key=lambda p: (p.start or math.inf, p.deadline or math.inf)))

    def _promise(self, record: Record) -> reports.Promise:
        """Return a record with the present plan for it."""
        site = self.daemon.site
        row, snapshot = site.row(record.id), site.snapshot
        start = end = None
        nodes: tuple[str, ...] = ()
        running = entry_of(snapshot.allocations, record.id) >= 0
        schedule = snapshot.allocations if running else snapshot.plan
        if (entry := entry_of(schedule, record.id)) >= 0:
            start, end = _span(schedule, entry)
            nodes = _names(site, schedule.nodes_of(entry).tolist())
        return reports.Promise(
            job=self.daemon.translator.name_of(record.id) if record.id < FIRST_OWN_ID else "",
            name=(row.texts("name")[0] or "") if len(row) else "",
            user=record.user,
            standing=record.standing,
            deadline=_time(record.deadline),
            made_at=_time(record.made_at),
            expires=_time(record.expires),
            running=running,
            start=start,
            end=end,
            nodes=nodes,
            why=record.why,
        )

    # --- explain, chunk ------------------------------------------------------------------------

    def _explain(self, question: reports.Explain, uid: int) -> reports.ExplainReport:
        daemon, now = self.daemon, self.daemon.clock()
        if not question.job:
            everyone = self._sees_all(uid)
            found = daemon.store.journal(None if everyone else uid, question.last)
            names = [user_name(d.uid) if everyone else "" for d in found]
            verdicts = tuple(_verdict(d, "", user) for d, user in zip(found, names, strict=True))
            return reports.ExplainReport(now=now, verdicts=verdicts)
        job = self._visible(question.job, uid)
        record = self._record(job)
        said = daemon.store.journal(limit=question.last, token=record.token) if record else ()
        shown = self._job(job)
        waiting = shown is not None and shown.state == "waiting"
        return reports.ExplainReport(
            now=now,
            job=shown,
            promise=self._promise(record) if record is not None else None,
            verdicts=tuple(_verdict(d, question.job) for d in said),
            waits=waits(daemon.site, daemon.steered, job, now) if waiting else (),
            helps=helps(daemon.site, job, now) if waiting else (),
            terms=terms(daemon.steered, job) if waiting else {},
        )

    def _visible(self, name: str, uid: int) -> int:
        """Return a job's id, if this user may ask about it.

        Raises
        ------
        RtschedError
            If not; the answer does not tell whether there is such a job.
        """
        unknown = RtschedError(
            f"no job {name!r} of yours is known; `rtsched explain --last` lists "
            "what was said to your submissions"
        )
        job, site = self.daemon.translator.number_of(name), self.daemon.site
        if job < 0:
            raise unknown
        place, there = places(site.marks.job, np.array([job]))
        owners = {int(site.marks.uid[place[0]])} if there[0] else set()
        owners |= {record.uid for record in self.daemon.store.find(job)}
        if not owners or not (self._sees_all(uid) or uid in owners):
            raise unknown
        return job

    def _record(self, job: int) -> Record | None:
        record = self.daemon.site.records.get(job)
        if record is not None:
            return record
        past = self.daemon.store.find(job)
        return past[0] if past else None

    def _job(self, job: int) -> reports.JobReport | None:
        site = self.daemon.site
        for table, state in ((site.snapshot.queued, "waiting"), (site.snapshot.running, "running")):
            place, there = places(table.id, np.array([job]))
            if there[0]:
                return self._shown(table.take(place), state)
        return None

    def _shown(self, row: Jobs, state: Any) -> reports.JobReport:
        site, job = self.daemon.site, int(row.id[0])
        start = end = None
        if (entry := entry_of(site.snapshot.allocations, job)) >= 0:
            start, end = _span(site.snapshot.allocations, entry)
        place, there = places(site.marks.job, np.array([job]))
        return reports.JobReport(
            job=self.daemon.translator.name_of(job),
            name=row.texts("name")[0] or "",
            user=row.texts("user")[0] or "",
            partition=row.texts("partition")[0] or "",
            state=state,
            size=int(row.size[0]),
            wall_time_s=_time(float(row.wall_time[0])),
            submit=_time(float(row.submit[0])),
            deadline=_time(float(row.deadline[0])),
            start=start,
            end=end,
            held=bool(there[0] and site.marks.held[place[0]]),
        )

    def _chunk(self, question: reports.Chunk, uid: int) -> reports.ChunkReport:
        job, site = self._visible(question.job, uid), self.daemon.site
        record, entry = site.records.get(job), entry_of(site.snapshot.plan, job)
        if record is None or entry < 0:
            raise RtschedError(
                f"job {question.job} has no planned start; one that runs reads its own record: "
                "`rtsched chunk` inside of it"
            )
        plan = site.snapshot.plan
        at = slice(int(plan.indptr[entry]), int(plan.indptr[entry + 1]))
        return reports.ChunkReport(
            job=question.job,
            deadline=_time(record.deadline),
            nodes=_names(site, plan.nodes[at].tolist()),
            fractions=tuple(plan.shares()[at].tolist()),
        )

    # --- feasible ------------------------------------------------------------------------------

    def _feasible(self, question: reports.Feasible, uid: int) -> reports.FeasibleReport:
        """Judge a job that nobody submits: by its deadline, or by the one that would be offered."""
        daemon, now = self.daemon, self.daemon.clock()
        age = now - daemon.site.seen
        if age > daemon.policy.live.daemon.stale or daemon.site.facts is None:
            raise RtschedError(f"the batch system was last seen {age:.0f} s ago; ask again later")
        wanted = question.deadline if question.deadline is not None else math.floor(now) + 1.0
        fields = daemon.translator.fields_of(_asked(question, uid, wanted))
        submission = daemon.translator.describe(fields, daemon.site.facts, now)
        if submission.problem:
            raise RtschedError(submission.problem)
        chain = daemon.policy.submits.of(submission.jobs)
        silent = msgspec.structs.replace(daemon.policy.live.daemon, offers_per_user=1, offer=1.0)
        desk = Desk(chain, silent, daemon.words)
        judged = desk.judge(daemon.site, submission, "", now)
        reasons = tuple(
            reports.Reason(f.reason.code, messages.sentence(f, daemon.words))
            for f in (judged.judgement.verdicts.findings if judged.judgement else ())
        )
        new = [r for r in judged.changed if r.standing in {"offered", "provisional"}]
        if not new:
            text = judged.ruling.text or f"{messages.PREFIX}no planner judges such a job"
            said = reasons or (reports.Reason("", text),)
            return reports.FeasibleReport(now=now, feasible=False, reasons=said)
        plan = judged.site.snapshot.plan
        entry = entry_of(plan, new[0].id)
        start, end = _span(plan, entry)
        deadline = new[0].deadline
        return reports.FeasibleReport(
            now=now,
            feasible=judged.verdict == "admit" or question.deadline is None,
            deadline=deadline,
            start=start,
            end=end,
            nodes=_names(daemon.site, plan.nodes_of(entry).tolist()),
            asking=daemon.translator.asking(deadline),
            reasons=reasons if question.deadline is not None else (),
        )


def _asked(q: reports.Feasible, uid: int, deadline: float) -> Question:
    """Return a question as the translator takes it."""
    load = {name: value for name in LOAD if (value := getattr(q, name)) is not None}
    return Question(
        uid, deadline, q.nodes, q.nodes_max, q.time_s, q.partition, q.account, q.qos, load
    )


def _time(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _span(schedule: Schedule, entry: int) -> tuple[float, float]:
    return float(schedule.entries.start[entry]), float(schedule.entries.end[entry])


def _names(site: Site, rows: Sequence[int]) -> tuple[str, ...]:
    names = site.snapshot.cluster.nodes.texts("name")
    return tuple(names[row] or str(row) for row in rows)


def _verdict(decision: Decision, job: str, user: str = "") -> reports.Verdict:
    return reports.Verdict(
        time=decision.time,
        job=decision.job or job,
        name=decision.name,
        verdict=decision.verdict,
        codes=decision.codes,
        text=decision.text,
        offer=_time(decision.offer),
        user=user,
    )
