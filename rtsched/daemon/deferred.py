"""Jobs that wait held until somebody has judged them: the filter could not ask, or they came early.

What was decided is asked of the batch system with every poll until it is so: a release that failed
once, or that a daemon did not live to see, is asked for again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import structlog

from rtsched.core.cycle import judge
from rtsched.counting import counted
from rtsched.daemon import messages
from rtsched.daemon.admission import UNUSED, record_of
from rtsched.daemon.records import JournalEntry
from rtsched.daemon.site import HOUR, promises_of
from rtsched.errors import PlannerError
from rtsched.model.actions import Action, Admit, Cancel, Release, Tell
from rtsched.model.jobs import Jobs
from rtsched.model.snapshot import places
from rtsched.model.verdicts import Verdict

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.core.chain import Judgement
    from rtsched.daemon.chains import Chains
    from rtsched.daemon.records import PromiseRecord
    from rtsched.daemon.site import Site

log = structlog.get_logger(__name__)

AT_A_TIME = 500
"""Deferred jobs judged in one cycle, at the most."""

UNPROMISED = "rtsched: no deadline can be promised; the job runs as best effort"

AGAIN = 60.0
"""Seconds after which a job is judged again that the planner, or rtsched, failed to judge."""


@dataclass(frozen=True)
class DeferredResult:
    """What judging deferred jobs came to.

    Attributes
    ----------
    site : Site
        After it.
    changed : tuple of PromiseRecord
        Promises given, to be written down.
    journal : tuple of JournalEntry
        What was said, for `rtsched explain`.
    actions : tuple of Action
        What users are told.
    problem : str
        How many jobs could not be judged, and why the first of them; empty if all were.
    """

    site: Site
    changed: tuple[PromiseRecord, ...] = ()
    journal: tuple[JournalEntry, ...] = ()
    actions: tuple[Action, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class DeferredAdmission:
    """Where deferred jobs are judged.

    Attributes
    ----------
    chains : Chains
        The plug-ins.
    wording : Wording
        The batch system's.
    max_promises : int
        Promises that one user may have at a time; 0: any number.
    everything : bool
        Whether all jobs with a deadline are judged, deferred or not: a dry-run.
    max_unused : int
        Promises in an hour that came to nothing after which a user waits for more; 0: any number.
    """

    chains: Chains
    wording: messages.Wording
    max_promises: int = 0
    everything: bool = False
    max_unused: int = 0

    def judge(self, site: Site, now: float, most: int = AT_A_TIME) -> DeferredResult:
        """Judge the first `most` jobs that are deferred, in order of (submit, id)."""
        whole, problems = DeferredResult(site), list[str]()
        for job in self._waiting(site)[:most].tolist():
            one = self._tried(whole.site, job, now)
            problems += [one.problem] if one.problem else []
            whole = DeferredResult(
                one.site,
                (*whole.changed, *one.changed),
                (*whole.journal, *one.journal),
                (*whole.actions, *one.actions),
            )
        if not problems:
            return whole
        many = f"{counted(len(problems), 'held job')} could not be evaluated: {problems[0]}"
        return replace(whole, problem=many)

    def _tried(self, site: Site, job: int, now: float) -> DeferredResult:
        """Judge one job; one that cannot be judged must keep no cycle from its end."""
        try:
            return self._judge_one(site, job, now)
        except PlannerError as error:
            return _unjudged(site, job, str(error), now)
        except Exception as error:
            log.exception("job_not_judged", job=job)
            return _unjudged(site, job, f"{type(error).__name__}: {error}", now)

    def _waiting(self, site: Site) -> NDArray[np.int64]:
        queued = site.snapshot.queued
        waits = _is_deferred(site)
        if self.everything:
            waits |= np.isfinite(queued.deadline)
        done = [*site.declined, *site.put_off]
        waits &= ~np.isin(queued.id, site.requested.id) & ~np.isin(queued.id, done)
        return queued.id[waits]

    def _judge_one(self, site: Site, job: int, now: float) -> DeferredResult:
        snapshot = replace(site.snapshot, now=now)
        row = snapshot.queued.take(snapshot.queued.id == job)
        rest = replace(snapshot, queued=snapshot.queued.take(snapshot.queued.id != job))
        judgement = judge(rest, self.chains.of(row), row).judgement
        assert judgement is not None  # noqa: S101  one job was judged
        place, _ = places(site.marks.job, np.array([job]))
        uid = int(site.marks.uid[place[0]])
        verdicts = judgement.verdicts
        if judgement.planner_error and math.isfinite(row.deadline[0]):
            raise PlannerError(judgement.planner_error)
        if verdicts.code[0] == Verdict.DEFER:
            until = float(verdicts.retry_at[0])
            later = {**site.put_off, job: until} if now < until < math.inf else site.put_off
            return DeferredResult(replace(site, put_off=later))
        if verdicts.code[0] == Verdict.REJECT:
            why = messages.reasons(judgement, self.wording)[1]
            text = messages.rejected(why, float(verdicts.offer[0]), "", 0.0, now)
            return self._declined(site, row, uid, judgement, text, now)
        if verdicts.plan is None or not math.isfinite(verdicts.promise[0]):
            return self._passed(site, row, uid, judgement, now)
        if self.max_promises and len(site.of_user(uid, "provisional", "firm")) >= self.max_promises:
            text = messages.too_many(self.max_promises)
            return self._declined(site, row, uid, judgement, text, now)
        unused = site.unused_by(uid, now, *UNUSED)
        if self.max_unused and len(unused) >= self.max_unused:
            until = unused[-self.max_unused] + HOUR
            return _waits_for_more(site, row.id, len(unused), until, now)
        return self._promised(site, row, uid, judgement, now)

    def _declined(
        self, site: Site, row: Jobs, uid: int, judgement: Judgement, text: str, now: float
    ) -> DeferredResult:
        said = _entry(row, uid, "reject", judgement, text, now)
        declined = {**site.declined, int(row.id[0]): text}
        return DeferredResult(replace(site, declined=declined), journal=(said,))

    def _passed(
        self, site: Site, row: Jobs, uid: int, judgement: Judgement, now: float
    ) -> DeferredResult:
        said = _entry(row, uid, "pass", judgement, UNPROMISED, now)
        declined = {**site.declined, int(row.id[0]): ""}
        told = Tell(row.id, (UNPROMISED,))
        return DeferredResult(replace(site, declined=declined), (), (said,), (told,))

    def _promised(
        self, site: Site, row: Jobs, uid: int, judgement: Judgement, now: float
    ) -> DeferredResult:
        verdicts, job = judgement.verdicts, int(row.id[0])
        assert verdicts.plan is not None  # noqa: S101  it was promised something
        who, deadline = (uid, row.texts("user")[0] or str(uid)), float(verdicts.promise[0])
        record = record_of(row, who, deadline, "firm", now, np.inf)
        records = {**site.records, job: record}
        snapshot = replace(
            site.snapshot,
            promises=promises_of(records.values()),
            plan=verdicts.plan,
            version=site.snapshot.version + 1,
        )
        requested = Jobs.joined([site.requested, row])
        after = replace(site, snapshot=snapshot, records=records, requested=requested)
        text = f"{messages.PREFIX}promised to end by {messages.moment(deadline, now)}"
        said = _entry(row, uid, "admit", judgement, text, now, record.token)
        return DeferredResult(after, (record,), (said,), (Tell(row.id, (text,)),))


def _unjudged(site: Site, job: int, problem: str, now: float) -> DeferredResult:
    """Leave a job held that could not be judged, by no fault of its own; it is judged again."""
    why = "rtsched could not evaluate it; its log says why"
    told = Tell(np.array([job], np.int64), (messages.put_off(why, math.inf, now),))
    later = replace(site, put_off={**site.put_off, job: now + AGAIN})
    return DeferredResult(later, actions=(told,), problem=problem)


def _waits_for_more(
    site: Site, job: NDArray[np.int64], unused: int, until: float, now: float
) -> DeferredResult:
    """Put off a job, int64[1], whose user left too many promises unused."""
    why = messages.too_many_unused(unused, until - now).removeprefix(messages.PREFIX)
    told = Tell(job, (messages.put_off(why, until, now),))
    later = {**site.put_off, int(job[0]): until}
    return DeferredResult(replace(site, put_off=later), actions=(told,))


def settled_deferred(site: Site) -> tuple[Action, ...]:
    """Return what deferred jobs that have been judged still wait for: a release, or their end."""
    deferred = site.snapshot.queued.id[_is_deferred(site)]
    promised = [job for job in deferred.tolist() if job in site.records]
    free = [job for job in deferred.tolist() if site.declined.get(job) == ""]
    over = {job: text for job in deferred.tolist() if (text := site.declined.get(job))}
    actions: list[Action] = []
    if promised:
        deadline = np.array([site.records[job].deadline for job in promised])
        actions.append(Admit(np.array(promised, np.int64), deadline))
    if free:
        actions.append(Release(np.array(free, np.int64)))
    if over:
        actions.append(Cancel(np.array(list(over), np.int64), tuple(over.values())))
    return tuple(actions)


def _is_deferred(site: Site) -> NDArray[np.bool_]:
    """Return which queued jobs are held until they have been judged."""
    queued = site.snapshot.queued
    place, known = places(site.marks.job, queued.id)
    deferred = np.zeros(len(queued), np.bool_)
    deferred[known] = (site.marks.deferred & site.marks.held)[place[known]]
    return deferred


def _entry(
    row: Jobs,
    uid: int,
    verdict: str,
    judgement: Judgement,
    text: str,
    now: float,
    token: str = "",
) -> JournalEntry:
    """Return what is noted of a verdict on one job."""
    codes = tuple(f.reason.code for f in judgement.verdicts.findings if 0 in f.rows)
    offer = float(judgement.verdicts.offer[0])
    name = row.texts("name")[0] or ""
    return JournalEntry(now, uid, row.labels()[0], name, verdict, codes, text, offer, token)
