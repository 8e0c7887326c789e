"""Admission: jobs that ask for a deadline are accepted, rejected or deferred.

One set of rules for the three who ask: the submit filter while its user waits, a cycle for jobs
that wait held (`deferred`), and `rtsched feasible` for a job that nobody submits.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.changes import rounds_of
from rtsched.adapters.live import FIRST_OWN_ID, Submission, SubmitReply
from rtsched.adapters.requirements import HORIZON, beyond_horizon
from rtsched.core.decision import judge
from rtsched.daemon import messages
from rtsched.daemon.instant import (
    SOON,
    Instant,
    Present,
    SeenBefore,
    StartedBefore,
    can_start_now,
    present,
    with_imminent_started,
)
from rtsched.daemon.offers import (
    GAVE_WAY,
    STATED,
    dropped,
    in_the_way,
    narrowed,
    redeemable,
    room_for,
    rounded_up,
    same,
    too_early_by,
    unended,
)
from rtsched.daemon.promises import Promise, decode_jobs, encode_jobs
from rtsched.daemon.qos_limits import (
    for_job,
    full_limit,
    judged_by_limits,
    limits_in,
    texts_of,
    without_limits,
)
from rtsched.daemon.replanning import lost_starts
from rtsched.daemon.site import entry_of, renamed, with_late_plans_accepted
from rtsched.daemon.used_time import used_up
from rtsched.daemon.user_limits import UNUSED, refusal
from rtsched.errors import PlannerError
from rtsched.model.jobs import Edges, Kind
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import are_in, places
from rtsched.model.units import MINUTE
from rtsched.model.verdicts import Verdict

if TYPE_CHECKING:
    from rtsched.core.chain import Judgement
    from rtsched.core.config import Mode
    from rtsched.daemon.chains import Chains
    from rtsched.daemon.menu import Menu
    from rtsched.daemon.offers import Covers
    from rtsched.daemon.promises import PromiseState
    from rtsched.daemon.qos_limits import FullLimit
    from rtsched.daemon.settings import DaemonSettings
    from rtsched.daemon.site import Site
    from rtsched.daemon.used_time import UsedUp
    from rtsched.model.jobs import Jobs
    from rtsched.model.snapshot import Snapshot

NAMED_TRIES = 4
"""Deadlines that are tried at most for one that can be taken for a while."""

UNFIT = frozenset({"submit.unusable", "likely.off", "likely.low", "likely.unsuitable"})
"""Codes of rejections for what a job asks for, whatever deadline it has."""


@dataclass(frozen=True)
class AdmissionResult:
    """What the admission of a job came to.

    Attributes
    ----------
    site : Site
        The site after it; the same one if nothing was promised or offered.
    reply : SubmitReply
        For the user and the batch system.
    changed : tuple of Promise
        To be written down before the user is answered.
    verdict : str
        `admit`, `reject`, `defer`, `pass`, or `run`: without the promise that it asked for.
    codes : tuple of str
        Reason codes.
    offer : float
        Counter-offer, seconds since the epoch; inf: none.
    judgement : Judgement or None
        Who said what.
    foreseen : str
        What plug-ins that do not count would have done; for `pass`.
    retry_at : float
        When a deferred job is to be judged again, seconds since the epoch; inf: in the next cycle.
    menu : Menu or None
        What its user is offered from now on; None: as before.
    submission : Submission or None
        As what it was promised its deadline, where that is one of `Submission.elsewhere`.
    """

    site: Site
    reply: SubmitReply
    changed: tuple[Promise, ...] = ()
    verdict: str = "pass"
    codes: tuple[str, ...] = ()
    offer: float = math.inf
    judgement: Judgement | None = None
    foreseen: str = ""
    retry_at: float = math.inf
    menu: Menu | None = None
    submission: Submission | None = None

    @classmethod
    def rejected(cls, site: Site, code: str, text: str) -> AdmissionResult:
        """Reject a job whatever plug-ins would answer."""
        reply = SubmitReply(True, messages.shortened(text))
        return cls(site, reply, verdict="reject", codes=(code,))


def _id(job: Submission) -> int:
    return int(job.jobs.id[0])


def _queued(job: Submission) -> bool:
    """Return whether a job is in the batch system's queue, and is not being submitted."""
    return _id(job) < FIRST_OWN_ID


def _has_deadline(job: Submission) -> bool:
    return bool(np.isfinite(job.jobs.deadline[0]))


def _nodes(site: Site, job: Submission, judgement: Judgement) -> int:
    """Return on how many nodes a job would be promised its deadline; 0: it would not be."""
    verdicts = judgement.verdicts
    if verdicts.code[0] >= Verdict.DEFER or verdicts.plan is None:
        return 0
    if full_limit(site, job.jobs, verdicts.plan) is not None:
        return 0
    entry = entry_of(verdicts.plan, _id(job))
    return int(verdicts.plan.entries.size[entry]) if entry >= 0 else 0


def _at_once(site: Site, job: Submission, judgement: Judgement, now: float) -> bool:
    """Return whether a job would be promised its deadline, on all its nodes, and start now."""
    nodes = _nodes(site, job, judgement)
    if not nodes or nodes < _most_nodes(job) or judgement.verdicts.plan is None:
        return False
    plan = judgement.verdicts.plan
    return float(plan.entries.start[entry_of(plan, _id(job))]) <= now + SOON


def _most_nodes(job: Submission) -> int:
    """Return the nodes with which a job wants no more; one that is not moldable: any."""
    return int(job.jobs.size_max[0]) if job.jobs.kind[0] == Kind.MOLDABLE else 1


def or_run(result: AdmissionResult, job: Submission) -> AdmissionResult:
    """Return a result in which a job runs that is promised nothing, if that is wanted of it."""
    if result.verdict != "reject" or not _runs(job) or not UNFIT.isdisjoint(result.codes):
        return result
    text = messages.runs_anyway(result.reply.text)
    return replace(result, reply=SubmitReply(False, text, unpromised=True), verdict="run")


def _runs(job: Submission) -> bool:
    """Return whether a job runs as best effort if its deadline cannot be promised."""
    return job.otherwise == "run" and _has_deadline(job)


def _without_offer(judgement: Judgement) -> bool:
    """Return whether a job is rejected, and no later deadline could be promised either."""
    verdicts = judgement.verdicts
    return bool(verdicts.code[0] == Verdict.REJECT and not math.isfinite(verdicts.offer[0]))


def _plan_by(judgement: Judgement, mode: Mode) -> Schedule | None:
    """Return the plan in which plug-ins of a mode have a job; None: they do not admit it."""
    found = [judgement.verdicts]
    if mode != "enforce":
        found = [a.value for a in judgement.answers if a.mode == mode and a.value is not None]
    if any(verdicts.code[0] >= Verdict.DEFER for verdicts in found):
        return None
    return next((verdicts.plan for verdicts in found if verdicts.plan is not None), None)


def _deferred(
    site: Site, codes: tuple[str, ...], text: str, retry_at: float = math.inf
) -> AdmissionResult:
    """Have a job wait, held."""
    reply = SubmitReply(False, text, deferred=True)
    return AdmissionResult(site, reply, verdict="defer", codes=codes, retry_at=retry_at)


@dataclass(frozen=True)
class AdmissionController:
    """Where jobs are admitted; nothing is written down here.

    Attributes
    ----------
    chains : Chains
        The plug-ins.
    settings : DaemonSettings
        How long offers and admissions stand, and how many a user may have.
    wording : Wording
        The batch system's.
    started : StartedBefore
        What was made for the job before, of jobs that are about to start.
    instant : Instant or None
        What the batch system knows now that the last poll does not show; None: nothing happened
        since the poll.
    worst : bool
        Whether all counts as taken that may have been taken since.
    names_offers : bool
        Whether a rejected job is named a deadline that can be taken for a while; else the earliest
        one that the plug-ins know.
    seen : SeenBefore
        What it found out about sites.
    """

    chains: Chains
    settings: DaemonSettings
    wording: messages.Wording
    started: StartedBefore = field(default_factory=StartedBefore, repr=False, compare=False)
    instant: Instant | None = None
    worst: bool = False
    names_offers: bool = True
    seen: SeenBefore = field(default_factory=SeenBefore, repr=False, compare=False)

    def judge(self, site: Site, submission: Submission, now: float) -> AdmissionResult:
        """Judge a submission at `now`, seconds since the epoch.

        Raises
        ------
        PlannerError
            If the planner failed on it.
        """
        result = or_run(self._anywhere(site, submission, now), submission)
        given = [promise.id for promise in result.changed if promise.state == "provisional"]
        if not given or submission.job < 0:
            return result
        numbers = {**result.site.numbers, **dict.fromkeys(given, submission.job)}
        return replace(result, site=replace(result.site, numbers=numbers))

    def _anywhere(self, site: Site, submission: Submission, now: float) -> AdmissionResult:
        """Judge a job wherever its user lets it run; the place where it starts first counts.

        Rejected everywhere, it is answered for the place that was named first.
        """
        found = judged_by_limits(self._submitted, site, submission, now)
        for other in submission.elsewhere:
            if found.verdict not in {"admit", "reject"} or found.reply.start <= now + SOON:
                break
            tried = judged_by_limits(self._submitted, site, other, now)
            sooner = found.verdict == "reject" or tried.reply.start < found.reply.start
            if tried.verdict == "admit" and sooner:
                found = replace(tried, submission=other)
        return found

    def judge_queued(self, site: Site, job: int, now: float) -> AdmissionResult:
        """Judge a job of the queue, by its id, by the same rules.

        It has no user who waits for the answer: no counter-offer is held for it.

        Raises
        ------
        PlannerError
            If the planner failed on it.
        """
        queued, edges, marks = site.snapshot.queued, site.snapshot.edges, site.marks
        row = queued.take(queued.id == job)
        mark = marks.take(places(marks.job, row.id)[0])
        uid = int(mark.uid[0])
        if problem := mark.texts("unusable")[0]:
            return self._unusable(site, Submission(row, edges.take([]), uid, problem, job=job))
        otherwise = mark.texts("otherwise")[0] or self.settings.rejected
        if np.isfinite(mark.odds[0]) and self.chains.of(row).counts("admit"):
            refused = AdmissionResult.rejected(site, "likely.queued", messages.odds_in_queue())
            return or_run(refused, Submission(row, edges.take([]), uid, otherwise=otherwise))
        notify = mark.texts("notify")[0] or ""
        links = edges.take(edges.after == job)
        links = links.take(unended(site, links))
        rejected = [job for job, one in site.waiting.items() if one.declined]
        if are_in(links.before, rejected).any():  # it is about to be cancelled
            return self.later(site)
        asked = Submission(row, links, uid, job=job, notify=notify, otherwise=otherwise)
        return or_run(self._admit(site, asked, now), asked)

    def holds_anyway(self, site: Site, job: int, now: float) -> bool:
        """Return whether a job of the queue is promised its deadline if all free nodes are taken.

        Raises
        ------
        PlannerError
            As `judge_queued` does.
        """
        worst = replace(self, instant=Instant(), worst=True, names_offers=False)
        return worst.judge_queued(site, job, now).verdict == "admit"

    @staticmethod
    def later(site: Site) -> AdmissionResult:
        """Have a job wait, held, until the next cycle judges it: now nothing may be promised."""
        return _deferred(site, ("submit.busy",), messages.busy())

    def _submitted(self, site: Site, submission: Submission, now: float) -> AdmissionResult:
        if submission.problem:
            return self._unusable(site, submission)
        if _has_deadline(submission) and (submission.component or submission.singleton):
            return self._with_others(site, submission)
        row = submission.jobs.replace(
            id=np.array([site.next_id]), submit=np.array([now]), label=np.array([-1], np.int32)
        )
        links = submission.edges.replace(after=np.full(len(submission.edges), site.next_id))
        links, unseen, doubtful = _open(site, row, links, submission.uid)
        job = replace(submission, jobs=row, edges=links)
        if job.held and _has_deadline(job) and self.chains.of(row).counts("admit"):
            return _deferred(site, ("submit.held",), messages.held())
        if job.unverified and _has_deadline(job) and self.chains.of(row).counts("admit"):
            return _deferred(site, ("submit.unverified",), messages.unverified(job.unverified))
        result = self._admit(site, job, now, redeems=not doubtful)
        if result.judgement is None or result.verdict != doubtful:
            return self._confirmed(site, job, now, result, redeems=not doubtful)
        name = self.wording.name_of(unseen)
        return _deferred(site, ("submit.unseen",), messages.unseen(name))

    def _confirmed(
        self, site: Site, job: Submission, now: float, result: AdmissionResult, *, redeems: bool
    ) -> AdmissionResult:
        """Return a result that holds whatever happened since the last poll, or defer the job.

        A promise must hold also if all that may have been taken was. A rejection without an offer,
        or while a promised job may have started elsewhere than planned, must hold if nothing was.
        """
        instant = self.instant
        if instant is None or result.verdict not in {"admit", "reject"}:
            return result
        if result.verdict == "admit":
            if instant.is_certain(site):
                return result
            if not instant.doubtful(self._at(site, now).snapshot, site).any():
                return result
            other = replace(self, worst=True)
        else:
            if result.judgement is None or instant.idle is None:
                return result
            seen = self._at(site, now)
            if not seen.taken.any() or (math.isfinite(result.offer) and not seen.unclear):
                return result
            other = replace(self, instant=None)
        stays = other._admit(site, job, now, redeems).verdict == "admit"
        if stays == (result.verdict == "admit"):
            return result
        return _deferred(site, ("submit.unconfirmed",), messages.unconfirmed())

    def _at(self, site: Site, now: float) -> Present:
        """Return the site's snapshot at `now`, brought to the instant of the submission."""
        return self._present(site, replace(site.snapshot, now=now))

    def _present(self, site: Site, snapshot: Snapshot) -> Present:
        """Return a snapshot of the site, brought to the instant of the submission."""
        if self.instant is None:
            nothing = np.zeros(len(snapshot.cluster), np.bool_)
            return Present(snapshot, Schedule.empty(), nothing)
        return present(snapshot, site, self.instant, worst=self.worst)

    def _with_others(self, site: Site, submission: Submission) -> AdmissionResult:
        """Have a job wait until a poll shows what belongs to it, if answers of plug-ins count.

        That is the other parts of the job, or the jobs of its name.
        """
        code, text = "submit.component", messages.component()
        if not submission.component:
            code, text = "submit.singleton", messages.singleton()
        if self.chains.of(submission.jobs).counts("admit"):
            return _deferred(site, (code,), text)
        return AdmissionResult(site, SubmitReply(False, ""), codes=(code,))

    def _unusable(self, site: Site, submission: Submission) -> AdmissionResult:
        """Reject what cannot be promised anything, if the answers of some plug-in count."""
        chain, code = self.chains.of(submission.jobs), "submit.unusable"
        problem = submission.problem.removeprefix(messages.PREFIX)
        if chain.counts("admit"):
            return AdmissionResult.rejected(site, code, messages.PREFIX + problem)
        modes = {chain.member(name).mode for name in chain.asks("admit")}
        text = f"{messages.PREFIX}warning: {problem}" if "warn" in modes else ""
        foreseen = f"would be rejected: {problem}" if modes else ""
        reply = SubmitReply(False, messages.shortened(text))
        return AdmissionResult(site, reply, codes=(code,), foreseen=messages.shortened(foreseen))

    def _admit(
        self, site: Site, job: Submission, now: float, redeems: bool = True
    ) -> AdmissionResult:
        """Judge a job, by the rules that hold for all."""
        if _has_deadline(job):
            if problem := beyond_horizon(job.jobs, job.edges, now):
                return self._unusable(site, replace(job, problem=problem))
            site, row = for_job(site, job.jobs)
            job = replace(job, jobs=row)
            if (used := self._used_up(site, job)) is not None:
                return AdmissionResult.rejected(site, "submit.used-up", messages.used_up(used))
            if redeems and (offer := self._redeemed(site, job, now, same)) is not None:
                return self._redeem(site, offer, job, now)
            if (refused := self._too_much(site, job, now)) is not None:
                return refused
            if len(job.edges) and not self._follows_edges(job):
                text = messages.with_dependencies(self.chains.of(job.jobs).planner)
                return AdmissionResult.rejected(site, "submit.waits", text)
        return self._judge(site, job, now, redeems)

    def _redeemed(self, site: Site, job: Submission, now: float, covers: Covers) -> Promise | None:
        """Return the offer that a job takes; None: there is none.

        One whose planned start was lost, and that no cycle could plan anew, is not there to be
        taken.
        """
        offers = redeemable(site, job, now, covers)
        if not offers:
            return None
        lost = lost_starts(site, self._at(site, now).snapshot)
        return next((offer for offer in offers if offer.id not in lost), None)

    def _used_up(self, site: Site, job: Submission) -> UsedUp | None:
        """Return the limit of used time of which not enough is left, if some plug-in counts."""
        if not self.chains.of(job.jobs).counts("admit"):
            return None
        own = {promise.id for promise in site.of_user(job.uid, "offered")}
        return used_up(site, job.jobs, own)

    def _follows_edges(self, job: Submission) -> bool:
        """Return whether the planner, if one is enforced, minds what a job waits for."""
        chain = self.chains.of(job.jobs)
        if chain.planner is None:
            return True
        planner = chain.member(chain.planner)
        return planner.mode != "enforce" or planner.capabilities.follows_dependencies

    def _too_much(self, site: Site, job: Submission, now: float) -> AdmissionResult | None:
        """Refuse a user who may be promised no more for now.

        A job of the queue waits, where its user left too many promises unused.
        """
        found = refusal(site, job.jobs, job.uid, self.settings, now)
        if found is None:
            return None
        if not _queued(job) or not math.isfinite(found.until):
            return AdmissionResult.rejected(site, found.code, found.text)
        text = messages.put_off(found.text.removeprefix(messages.PREFIX), found.until, now)
        return _deferred(site, (found.code,), text, found.until)

    def _judge(
        self, site: Site, job: Submission, now: float, redeems: bool = True
    ) -> AdmissionResult:
        judgement, base = self._evaluate(site, job, now), site
        own = [promise.id for promise in site.of_user(job.uid, "offered")]
        held = [*dict.fromkeys([*own, *in_the_way(site, now)])]
        if held and _has_deadline(job) and not _at_once(site, job, judgement, now):
            # what is held may be in its way
            free = self.seen.of(site, "without", *held, find=lambda: site.without(held))
            alone, nodes = self._evaluate(free, job, now), _nodes(site, job, judgement)
            rejected = judgement.verdicts.code[0] == Verdict.REJECT
            better = _nodes(free, job, alone) > nodes or _at_once(free, job, alone, now)
            if better or (rejected and held == own):
                base, judgement = free, alone
            elif rejected and own:
                base = site.without(own)
                judgement = self._evaluate(base, job, now)
        if (
            redeems
            and judgement.verdicts.code[0] == Verdict.REJECT
            and (offer := self._redeemed(site, job, now, room_for)) is not None
        ):
            return replace(self._redeem(site, offer, job, now), judgement=judgement)
        if (
            own
            and judgement.verdicts.code[0] == Verdict.REJECT
            and self.settings.offers_per_user > 1
        ):
            base = self._without_oldest_offers(site, job.uid)
            judgement = self._evaluate(base, job, now)
        verdicts = judgement.verdicts
        codes, why = messages.reasons(judgement, self.wording)
        if verdicts.code[0] == Verdict.REJECT:
            result = self._reject(site, base, job, now, judgement)
        elif verdicts.code[0] == Verdict.DEFER:
            retry_at = float(verdicts.retry_at[0])
            text = messages.put_off(why, retry_at, now)
            if math.isfinite(retry_at) and retry_at == job.jobs.begin[0]:
                text = messages.begins_later(retry_at, self.wording.begin, now)
            result = _deferred(site, codes, text, retry_at)
        elif verdicts.plan is None or not math.isfinite(verdicts.promise[0]):
            return self._passed(site, job, judgement, now)
        elif (full := full_limit(base, job.jobs, verdicts.plan)) is not None:
            result = self._beyond_limit(site, job, now, full)
            codes = result.codes
        else:
            deadline = float(verdicts.promise[0])
            result = self._promise(base, job, deadline, verdicts.plan, now)
        why = "replaced by another one" if result.verdict == "reject" else GAVE_WAY
        changed = (*result.changed, *dropped(site, result.site, now, why))
        return replace(result, changed=changed, codes=codes, judgement=judgement)

    def _beyond_limit(
        self, site: Site, job: Submission, now: float, full: FullLimit
    ) -> AdmissionResult:
        """Reject a job that would be planned beyond a limit; one of the queue waits till then."""
        text = messages.limit_is_full(full.text, full.until, now)
        if not _queued(job) or not math.isfinite(full.until):
            return AdmissionResult.rejected(site, "submit.limit", text)
        text = messages.put_off(text.removeprefix(messages.PREFIX), full.until, now)
        return _deferred(site, ("submit.limit",), text, full.until)

    def _passed(
        self, site: Site, job: Submission, judgement: Judgement, now: float
    ) -> AdmissionResult:
        """Let a job pass that nobody promises anything; say what would have become of it."""
        codes, text, offer = messages.foreseen(judgement, self.wording)
        _, why, named = messages.uncounted(judgement, ("warn",), self.wording)
        named = named if named <= now + HORIZON else math.inf
        if why and math.isfinite(named) and self.names_offers:
            until = now + (self.settings.offer or STATED)
            offer = named = self._named(site, job, now, named, until, of="warn")[0]
        reply = SubmitReply(False, messages.warned(why, named, self.wording, now))
        return AdmissionResult(site, reply, (), "pass", codes, offer, judgement, text)

    def _promise(
        self, site: Site, job: Submission, deadline: float, plan: Schedule, now: float
    ) -> AdmissionResult:
        """Promise a job its deadline: firmly, if it is in the queue already."""
        if _queued(job):
            promise = new_promise(job, deadline, "firm", now, math.inf)
        else:
            promise = new_promise(job, deadline, "provisional", now, now + self.settings.lapse)
        after = site.with_promise(promise, job.jobs, job.edges, plan)
        return AdmissionResult(after, reply_of(promise, after, now), (promise,), "admit")

    def _evaluate(self, site: Site, job: Submission, now: float) -> Judgement:
        """Ask the plug-ins about a job. Nodes that an imminent start needs are not counted on.

        What is admitted or offered from now on, and has not been submitted yet, would be planned a
        little later each time. Once that leaves no place for the promises behind it, whatever is
        asked, it stays where it was planned.

        Raises
        ------
        PlannerError
            If the planner failed on a job with a deadline, and the site does not defer it for that.
        """
        snapshot, due = self._ground(site, job, now)
        judgement = judge(snapshot, self.chains.of(job.jobs), job.jobs)
        if _without_offer(judgement):
            pinned, more = with_imminent_started(snapshot, site.leeway, admissions=True)
            if len(more):
                judgement = judge(pinned, self.chains.of(job.jobs), job.jobs)
                due = Schedule.joined([due, more])
        unknown = judgement.planner_error and judgement.verdicts.code[0] < Verdict.DEFER
        if unknown and _has_deadline(job):
            raise PlannerError(f"{judgement.planner_error}; nothing was evaluated")
        if judgement.verdicts.plan is None or not len(due):
            return judgement
        plan = Schedule.joined([due, judgement.verdicts.plan])
        return replace(judgement, verdicts=replace(judgement.verdicts, plan=plan))

    def _ground(self, site: Site, job: Submission, now: float) -> tuple[Snapshot, Schedule]:
        """Return what a job is judged on, and the entries of the plan that count as started."""

        def found() -> tuple[Snapshot, Schedule]:
            snapshot = replace(site.snapshot, now=now, promised=site.requested)
            if _queued(job):
                others = snapshot.queued.take(snapshot.queued.id != job.job)
                snapshot = replace(snapshot, queued=others)
            elif len(job.edges):
                edges = Edges.joined([snapshot.edges, job.edges])
                snapshot = replace(snapshot, edges=edges)
            snapshot = with_late_plans_accepted(snapshot)
            snapshot, due = with_imminent_started(snapshot, site.leeway, self.started)
            seen = self._present(site, snapshot)
            return seen.snapshot, Schedule.joined([due, seen.started])

        if _queued(job) or len(job.edges):
            return found()
        key = (now, self.instant is None, self.worst)
        return self.seen.of(site, "ground", *key, find=found)

    def _reject(
        self, site: Site, base: Site, job: Submission, now: float, judgement: Judgement
    ) -> AdmissionResult:
        """Reject, with a counter-offer that is held for the user where that can be.

        `base` is the site without the user's offers that a new one replaces; they are given up.
        """
        offer, reserved = float(judgement.verdicts.offer[0]), False
        offer = offer if offer <= now + HORIZON else math.inf
        in_queue = _queued(job) or _runs(job)  # it is not submitted again
        after, changed = site if in_queue else base, tuple[Promise, ...]()
        seconds = self.settings.offer or STATED
        if math.isfinite(offer) and self.names_offers:
            offer, asked, plan = self._named(base, job, now, offer, now + seconds)
            if plan is not None and not in_queue and self.may_hold(base, job.uid, now):
                promise = new_promise(asked, offer, "offered", now, now + seconds)
                after, changed = (
                    base.with_promise(promise, asked.jobs, asked.edges, plan),
                    (promise,),
                )
                reserved = promise.id not in in_the_way(after, now)
        gone = [r for r in site.of_user(job.uid, "offered") if r.id not in after.promises]
        after = after.left_unused(gone, now) if gone else after
        why = messages.reasons(judgement, self.wording)[1]
        if limits := self._limits_in_the_way(base, job, now):
            why = f"{why}; {messages.within(limits)}"
        asking = self.wording.asking(offer) if math.isfinite(offer) else ""
        taken = messages.offer_for(0.0 if in_queue else seconds, reserved=reserved)
        text = messages.rejected(why, offer, asking, taken, now)
        return AdmissionResult(after, SubmitReply(True, text), changed, "reject", offer=offer)

    def _limits_in_the_way(self, site: Site, job: Submission, now: float) -> list[str]:
        """Return the limits without which a rejected job would be promised its deadline."""
        if not limits_in(job.jobs):
            return []
        try:
            free = self._evaluate(site, replace(job, jobs=without_limits(job.jobs)), now).verdicts
        except PlannerError:
            return []
        return texts_of(site, job.jobs) if free.code[0] == Verdict.ADMIT else []

    def may_hold(self, site: Site, uid: int, now: float) -> bool:
        """Return whether an offer may be held for a user, who may not take one after another."""
        settings = self.settings
        wanted = settings.offer > 0 and settings.offers_per_user > 0
        unused = site.unused_by(uid, now, "offered", *UNUSED)
        return wanted and len(unused) < settings.unused_offers_per_hour

    def _without_oldest_offers(self, site: Site, uid: int) -> Site:
        """Return the site without the offers of a user that one more replaces."""
        older = site.of_user(uid, "offered")
        menus = list(dict.fromkeys(promise.made_at for promise in older))
        given_up = set(menus[: max(len(menus) + 1 - self.settings.offers_per_user, 0)])
        return site.without(promise.id for promise in older if promise.made_at in given_up)

    def _named(
        self,
        site: Site,
        job: Submission,
        now: float,
        offer: float,
        until: float,
        of: Mode = "enforce",
    ) -> tuple[float, Submission, Schedule | None]:
        """Return the deadline that a rejected job is named, the job with it, and a plan for both.

        On a whole minute, and so late that the job is admitted if it is submitted until then and
        nothing else changes; where that cannot be, the earliest one. None: no plan was found. `of`
        is the mode of the plug-ins that reject it.
        """
        deadline, found = rounded_up(offer), list[tuple[float, Submission, Schedule | None]]()
        for _ in range(NAMED_TRIES):
            tried = self._with_deadline(site, job, now, deadline, of)
            early = MINUTE
            if tried[2] is not None:
                found.append(tried)
                early = too_early_by(tried[2], entry_of(tried[2], _id(job)), deadline, until)
            if early <= 0.0:
                break
            deadline = rounded_up(deadline + early)
        return found[-1] if found else self._with_deadline(site, job, now, offer, of)

    def _with_deadline(
        self, site: Site, job: Submission, now: float, deadline: float, of: Mode
    ) -> tuple[float, Submission, Schedule | None]:
        """Return a deadline, the job with it, and a plan that has the job then, if there is one."""
        asked = replace(job, jobs=job.jobs.replace(deadline=np.array([deadline])))
        try:
            judgement = self._evaluate(site, asked, now)
        except PlannerError:  # the rejection stands, and its offer is named; it is not held
            return deadline, asked, None
        return deadline, asked, _plan_by(judgement, of)

    def _redeem(self, site: Site, offer: Promise, job: Submission, now: float) -> AdmissionResult:
        """Give the promise that was offered: the plan already holds its place."""
        plan = renamed(narrowed(site, offer, job.jobs), {offer.id: _id(job)})
        deadline = float(job.jobs.deadline[0])
        result = self._promise(site.without([offer.id]), job, deadline, plan, now)
        changed = (*result.changed, *dropped(site, result.site, now, "accepted"))
        return replace(result, changed=changed, codes=("submit.offer",))


def _open(site: Site, row: Jobs, links: Edges, uid: int) -> tuple[Edges, int, str]:
    """Return the links to jobs that have not ended, one that nobody knows yet, a doubtful verdict.

    A job that was submitted after the last poll has no number here. It may be any of the user's
    admissions without a number, of the same graph if there are such: the new job waits for them
    all, until a poll tells. If that is too much it is not to be rejected for it; if there are none
    it is not to be admitted.
    """
    if not len(links):
        return links, 0, ""
    known, new = links.take(unended(site, links)), links.before > site.newest
    if not new.any():
        return known, 0, ""
    own = [r.id for r in site.of_user(uid, "provisional") if r.id >= FIRST_OWN_ID]
    graph = [job for job in own if row.dag[0] >= 0 and site.row(job).dag[0] == row.dag[0]]
    own = graph or own
    guessed = Edges.build(
        len(own),
        before=own or None,
        after=links.after[0],
        message_time=float(links.message_time[new].max()),
    )
    sure = len(own) == int(new.sum())
    doubtful = "" if sure else "reject" if own else "admit"
    return Edges.joined([known, guessed]), int(links.before[new][0]), doubtful


def new_promise(
    job: Submission, deadline: float, state: PromiseState, now: float, expires: float
) -> Promise:
    """Return a new promise or offer to a job, with a new token."""
    return Promise(
        token=secrets.token_hex(16),
        id=_id(job),
        uid=job.uid,
        user=job.jobs.texts("user")[0] or str(job.uid),
        deadline=deadline,
        made_at=now,
        state=state,
        changed_at=now,
        why="",
        job=encode_jobs(job.jobs),
        expires=expires,
        notify=job.notify,
    )


def reply_of(promise: Promise, site: Site, now: float) -> SubmitReply:
    """Return the reply to user and batch system about a promise that the site now holds."""
    plan, nodes = site.snapshot.plan, site.snapshot.cluster.nodes
    entry = entry_of(plan, promise.id)
    start, size = float(plan.entries.start[entry]), int(plan.entries.size[entry])
    at_once = can_start_now(replace(site.snapshot, now=now), entry)
    at = slice(int(plan.indptr[entry]), int(plan.indptr[entry + 1]))
    return SubmitReply(
        False,
        messages.promised(promise.deadline, start, size, now, at_once=at_once),
        note=messages.promised(promise.deadline, start, size, None),
        token=promise.token,
        promise=promise.deadline,
        start=start,
        end=float(plan.entries.end[entry]),
        size=size,
        nodes=tuple(name or "" for name in nodes.take(plan.nodes[at]).texts("name")),
        shares=tuple(plan.shares()[at].tolist()),
        rounds=rounds_promised(promise, plan, entry),
    )


def rounds_promised(promise: Promise, plan: Schedule, entry: int) -> tuple[float, ...]:
    """Return `rounds_of` a promised job's entry in the plan."""
    if plan.entries.rounds[entry] == 1:
        return ()
    return tuple(rounds_of(plan, entry, decode_jobs(promise.job), 0))
