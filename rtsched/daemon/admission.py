"""A submission, judged while its user waits."""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import numpy as np

from rtsched.adapters.live import FIRST_OWN_ID, SubmitReply
from rtsched.core.cycle import judge
from rtsched.daemon import messages
from rtsched.daemon.codec import encode_jobs
from rtsched.daemon.imminent import with_imminent_started
from rtsched.daemon.records import PromiseRecord
from rtsched.daemon.replanning import lost_starts
from rtsched.daemon.site import HOUR, entry_of, renamed
from rtsched.errors import PlannerError
from rtsched.model.jobs import Edges
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import places
from rtsched.model.verdicts import Verdict

if TYPE_CHECKING:
    from rtsched.adapters.live import Submission
    from rtsched.core.chain import Chain, Judgement
    from rtsched.daemon.records import PromiseState
    from rtsched.daemon.settings import DaemonSettings
    from rtsched.daemon.site import Site
    from rtsched.model.jobs import Jobs

REQUIREMENTS = (
    *("kind", "size", "size_min", "size_max", "wall_time", "begin", "dag", "pinned"),
    *("sigma", "cms", "cps", "setup_link", "setup_node"),
)
CHARGED = ("partition", "account", "qos")
"""What must be equal for a submission to be the one that an offer was made for."""

UNUSED: tuple[PromiseState, ...] = ("provisional", "firm")
"""Standings, as they were, of promises that came to nothing: no job took them, or it never started
on what was kept for it."""

Who: TypeAlias = tuple[int, str]
"""A user's uid and name."""


@dataclass(frozen=True)
class AdmissionResult:
    """What a submission came to.

    Attributes
    ----------
    site : Site
        The site after it; the same one if nothing was promised or offered.
    reply : SubmitReply
        For the user and the batch system.
    changed : tuple of PromiseRecord
        To be written down before the user is answered.
    verdict : str
        `admit`, `reject`, `defer` or `pass`.
    codes : tuple of str
        Reason codes.
    offer : float
        Counter-offer, seconds since the epoch; inf: none.
    judgement : Judgement or None
        Who said what.
    foreseen : str
        What plug-ins that do not count would have done; for `pass`.
    """

    site: Site
    reply: SubmitReply
    changed: tuple[PromiseRecord, ...] = ()
    verdict: str = "pass"
    codes: tuple[str, ...] = ()
    offer: float = math.inf
    judgement: Judgement | None = None
    foreseen: str = ""


@dataclass(frozen=True)
class AdmissionController:
    """Where submissions are judged.

    Attributes
    ----------
    chain : Chain
        With the modes that hold for this job.
    settings : DaemonSettings
        How long offers and admissions stand.
    wording : Wording
        The batch system's.
    """

    chain: Chain
    settings: DaemonSettings
    wording: messages.Wording

    def judge(self, site: Site, submission: Submission, user: str, now: float) -> AdmissionResult:
        """Judge a submission at `now`, seconds since the epoch; nothing is written down.

        Raises
        ------
        PlannerError
            If the planner failed on it.
        """
        judged = self._judged(site, submission, user, now)
        given = [record.id for record in judged.changed if record.standing == "provisional"]
        if not given or submission.job < 0:
            return judged
        numbers = {**judged.site.numbers, **dict.fromkeys(given, submission.job)}
        return replace(judged, site=replace(judged.site, numbers=numbers))

    @staticmethod
    def later(site: Site) -> AdmissionResult:
        """Have a job wait, held, until the next cycle judges it: now nothing may be promised."""
        reply = SubmitReply(False, messages.busy(), deferred=True)
        return AdmissionResult(site, reply, verdict="defer", codes=("submit.busy",))

    def _judged(self, site: Site, submission: Submission, user: str, now: float) -> AdmissionResult:
        if submission.problem:
            return self._unusable(site, submission.problem)
        wants = np.isfinite(submission.jobs.deadline[0]) and self.chain.counts("admit")
        if submission.held and wants:
            reply = SubmitReply(False, messages.held(), deferred=True)
            return AdmissionResult(site, reply, verdict="defer", codes=("submit.held",))
        row = submission.jobs.replace(
            id=np.array([site.next_id]), submit=np.array([now]), label=np.array([-1], np.int32)
        )
        links = submission.edges.replace(after=np.full(len(submission.edges), site.next_id))
        links, unseen, doubtful = _open(site, row, links, submission.uid)
        offer = None if doubtful else _redeemed(site, row, links, submission.uid, now)
        if offer is not None:
            return self._redeem(site, offer, row, links, now)
        code, text = self._too_much(site, submission.uid, now)
        if code and np.isfinite(row.deadline[0]):
            return AdmissionResult(site, SubmitReply(True, text), verdict="reject", codes=(code,))
        if len(links) and np.isfinite(row.deadline[0]) and not self._follows_links():
            text = (
                f"{messages.PREFIX}a job with dependencies gets no promise here (planner "
                f"{self.chain.planner}); submit it without dependencies or without a deadline"
            )
            return AdmissionResult(
                site, SubmitReply(True, text), verdict="reject", codes=("submit.waits",)
            )
        judged = self._judge(site, row, links, (submission.uid, user), now)
        return self._unseen(site, unseen) if judged.verdict == doubtful else judged

    def _too_much(self, site: Site, uid: int, now: float) -> tuple[str, str]:
        """Return why a user is promised no more for now: a reason code and a text; else empty."""
        most = self.settings.promises_per_user
        if most and len(site.of_user(uid, "provisional", "firm")) >= most:
            return "submit.too-many", messages.too_many(most)
        most, unused = (
            self.settings.unused_promises_per_hour,
            site.unused_by(uid, now, *UNUSED),
        )
        if most and len(unused) >= most:
            return "submit.unused", messages.too_many_unused(
                len(unused), unused[-most] + HOUR - now
            )
        return "", ""

    def _unseen(self, site: Site, job: int) -> AdmissionResult:
        text = (
            f"{messages.PREFIX}job {self.wording.name_of(job)}, on which it depends, was submitted "
            "a moment ago and is not known yet; submit again in a few seconds"
        )
        return AdmissionResult(
            site, SubmitReply(True, text), verdict="reject", codes=("submit.unseen",)
        )

    def _unusable(self, site: Site, problem: str) -> AdmissionResult:
        """Reject what cannot be promised anything, if the answers of some plug-in count."""
        codes, problem = ("submit.unusable",), problem.removeprefix(messages.PREFIX)
        if self.chain.counts("admit"):
            text = messages.shortened(messages.PREFIX + problem)
            return AdmissionResult(site, SubmitReply(True, text), verdict="reject", codes=codes)
        modes = {self.chain.member(name).mode for name in self.chain.asks("admit")}
        text = f"{messages.PREFIX}warning: {problem}" if "warn" in modes else ""
        foreseen = f"would be rejected: {problem}" if modes else ""
        reply = SubmitReply(False, messages.shortened(text))
        return AdmissionResult(site, reply, codes=codes, foreseen=messages.shortened(foreseen))

    def _follows_links(self) -> bool:
        """Return whether the planner, if one is enforced, minds what a job waits for."""
        if self.chain.planner is None:
            return True
        planner = self.chain.member(self.chain.planner)
        return planner.mode != "enforce" or planner.capabilities.follows_dependencies

    def _judge(self, site: Site, row: Jobs, links: Edges, who: Who, now: float) -> AdmissionResult:
        judgement, base = self._evaluate(site, row, links, now), site
        own = [record.id for record in site.of_user(who[0], "offered")]
        if judgement.verdicts.code[0] == Verdict.REJECT and own:
            base = site.without(own)  # what is held for the user stands in the user's own way
            judgement = self._evaluate(base, row, links, now)
        verdicts = judgement.verdicts
        if verdicts.code[0] == Verdict.REJECT:
            judged = self._reject(base, row, links, who, now, judgement)
            gone = [r for r in site.of_user(who[0], "offered") if r.id not in judged.site.records]
            judged = replace(judged, site=judged.site.left_unused(gone, now)) if gone else judged
        elif verdicts.code[0] == Verdict.DEFER:
            why = messages.reasons(judgement, self.wording)[1]
            text = messages.put_off(why, float(verdicts.retry_at[0]), now)
            judged = AdmissionResult(site, SubmitReply(False, text, deferred=True), verdict="defer")
        elif verdicts.plan is None or not math.isfinite(verdicts.promise[0]):
            return self._passed(site, judgement, now)
        else:
            lapse = now + self.settings.lapse
            record = record_of(row, who, float(verdicts.promise[0]), "provisional", now, lapse)
            after = base.with_record(record, row, links, verdicts.plan)
            reply = reply_of(record, after, now)
            judged = AdmissionResult(after, reply, (record,), "admit")
        changed = (*judged.changed, *_dropped(site, judged.site, now))
        codes = messages.reasons(judgement, self.wording)[0]
        return replace(judged, changed=changed, codes=codes, judgement=judgement)

    def _passed(self, site: Site, judgement: Judgement, now: float) -> AdmissionResult:
        """Let a job pass that nobody promises anything; say what would have become of it."""
        codes, text, offer = messages.foreseen(judgement, self.wording)
        reply = SubmitReply(False, messages.warned(judgement, self.wording, now))
        return AdmissionResult(site, reply, (), "pass", codes, offer, judgement, text)

    def _evaluate(self, site: Site, row: Jobs, links: Edges, now: float) -> Judgement:
        """Judge a job.

        Raises
        ------
        PlannerError
            If the planner failed on a job with a deadline, and the site does not defer it for that.
        """
        edges = Edges.joined([site.snapshot.edges, links]) if len(links) else site.snapshot.edges
        snapshot = replace(site.snapshot, now=now, edges=edges)
        snapshot, due = with_imminent_started(snapshot, site.leeway)
        judgement = judge(snapshot, self.chain, row).judgement
        assert judgement is not None  # noqa: S101  one job was judged
        unknown = judgement.planner_error and judgement.verdicts.code[0] < Verdict.DEFER
        if unknown and np.isfinite(row.deadline[0]):
            raise PlannerError(f"{judgement.planner_error}; nothing was evaluated")
        if judgement.verdicts.plan is None or not len(due):
            return judgement
        plan = Schedule.joined([due, judgement.verdicts.plan])
        return replace(judgement, verdicts=replace(judgement.verdicts, plan=plan))

    def _reject(
        self, site: Site, row: Jobs, links: Edges, who: Who, now: float, judgement: Judgement
    ) -> AdmissionResult:
        """Reject, with a counter-offer that is held for the user where that can be."""
        offer, held = float(judgement.verdicts.offer[0]), 0.0
        after, changed = site, tuple[PromiseRecord, ...]()
        if math.isfinite(offer) and self._may_hold(site, who[0], now):
            found = self._held(site, row, links, who, now, offer)
            if found is not None:
                after, record = found
                offer, held, changed = record.deadline, self.settings.offer, (record,)
        why = messages.reasons(judgement, self.wording)[1]
        asking = self.wording.asking(offer) if math.isfinite(offer) else ""
        text = messages.rejected(why, offer, asking, held, now)
        return AdmissionResult(after, SubmitReply(True, text), changed, "reject", offer=offer)

    def _may_hold(self, site: Site, uid: int, now: float) -> bool:
        """Return whether an offer may be held for a user, who may not take one after another."""
        settings = self.settings
        wanted = settings.offer > 0 and settings.offers_per_user > 0
        unused = site.unused_by(uid, now, "offered", *UNUSED)
        return wanted and len(unused) < settings.unused_offers_per_hour

    def _held(
        self, site: Site, row: Jobs, links: Edges, who: Who, now: float, offer: float
    ) -> tuple[Site, PromiseRecord] | None:
        """Return the site with the job as if admitted by the offer; on a whole minute if it can."""
        older = site.of_user(who[0], "offered")
        given_up = older[: max(len(older) + 1 - self.settings.offers_per_user, 0)]
        site = site.without(record.id for record in given_up)
        for deadline in (math.ceil(offer / 60.0) * 60.0, offer):
            asked = row.replace(deadline=np.array([deadline]))
            try:
                verdicts = self._evaluate(site, asked, links, now).verdicts
            except PlannerError:  # the rejection stands, and its offer is named; it is not held
                continue
            if verdicts.code[0] == Verdict.ADMIT and verdicts.plan is not None:
                expires = now + self.settings.offer
                record = record_of(asked, who, deadline, "offered", now, expires)
                return site.with_record(record, asked, links, verdicts.plan), record
        return None

    def _redeem(
        self, site: Site, offer: PromiseRecord, row: Jobs, links: Edges, now: float
    ) -> AdmissionResult:
        """Give the promise that was offered: the plan already holds its place."""
        new = int(row.id[0])
        lapse = now + self.settings.lapse
        who, deadline = (offer.uid, offer.user), float(row.deadline[0])
        record = record_of(row, who, deadline, "provisional", now, lapse)
        plan = renamed(site.snapshot.plan, {offer.id: new})
        bare = site.without([offer.id])
        after = bare.with_record(record, row, links, plan)
        changed = (record, *_dropped(site, after, now))
        return AdmissionResult(
            after, reply_of(record, after, now), changed, "admit", ("submit.offer",)
        )


def _open(site: Site, row: Jobs, links: Edges, uid: int) -> tuple[Edges, int, str]:
    """Return the links to jobs that have not ended, one that nobody knows yet, a doubtful verdict.

    A job that was submitted after the last poll has no number here. It may be any of the user's
    admissions without a number, of the same graph if there are such: the new job waits for them
    all, until a poll tells. If that is too much it is not to be rejected for it; if there are none
    it is not to be admitted.
    """
    if not len(links):
        return links, 0, ""
    tables = (site.snapshot.queued, site.snapshot.running)
    there = np.logical_or.reduce([places(jobs.id, links.before)[1] for jobs in tables])
    known, new = links.take(there), links.before > site.newest
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


def _redeemed(site: Site, row: Jobs, links: Edges, uid: int, now: float) -> PromiseRecord | None:
    """Return the offer that a submission takes: the same job by the offered deadline or later.

    It waits for the same jobs, of those that have not ended (`links`). An offer whose planned start
    was lost, and that no cycle could plan anew, is not there to be taken.
    """
    offers = site.of_user(uid, "offered") if np.isfinite(row.deadline[0]) else []
    lost = lost_starts(site, replace(site.snapshot, now=now)) if offers else ()
    for record in offers:
        if record.id in lost:
            continue
        kept = site.row(record.id)
        alike = all(_equal(kept, row, name) for name in REQUIREMENTS)
        alike = alike and all(kept.texts(name) == row.texts(name) for name in CHARGED)
        alike = alike and _waits(site, links) == _waits(
            site, site.links.take(site.links.after == record.id)
        )
        if alike and row.deadline[0] >= record.deadline and now < record.expires:
            return record
    return None


def _waits(site: Site, links: Edges) -> set[tuple[int, float]]:
    """Return which jobs that have not ended are waited for, and how long their messages travel."""
    snapshot = site.snapshot
    there = [places(jobs.id, links.before)[1] for jobs in (snapshot.queued, snapshot.running)]
    there.append(links.before >= FIRST_OWN_ID)
    open_ = links.take(np.logical_or.reduce(there))
    return set(zip(open_.before.tolist(), open_.message_time.tolist(), strict=True))


def _equal(one: Jobs, other: Jobs, name: str) -> bool:
    return bool(np.array_equal(one.column(name), other.column(name), equal_nan=True))


def record_of(
    row: Jobs, who: Who, deadline: float, standing: PromiseState, now: float, expires: float
) -> PromiseRecord:
    """Return a record of a promise or an offer to the job in `row`, with a new token."""
    return PromiseRecord(
        token=secrets.token_hex(16),
        id=int(row.id[0]),
        uid=who[0],
        user=who[1],
        deadline=deadline,
        made_at=now,
        standing=standing,
        changed_at=now,
        why="",
        job=encode_jobs(row),
        expires=expires,
    )


def reply_of(record: PromiseRecord, site: Site, now: float) -> SubmitReply:
    """Return what user and batch system are told of a promise that the site now holds."""
    plan, names = site.snapshot.plan, site.snapshot.cluster.nodes.texts("name")
    entry = entry_of(plan, record.id)
    start, size = float(plan.entries.start[entry]), int(plan.entries.size[entry])
    at = slice(int(plan.indptr[entry]), int(plan.indptr[entry + 1]))
    return SubmitReply(
        False,
        messages.promised(record.deadline, start, size, now),
        token=record.token,
        promise=record.deadline,
        start=start,
        end=float(plan.entries.end[entry]),
        size=size,
        nodes=tuple(names[row] or "" for row in plan.nodes[at].tolist()),
        shares=tuple(plan.shares()[at].tolist()),
    )


def _dropped(before: Site, after: Site, now: float) -> tuple[PromiseRecord, ...]:
    """Return the offers of `before` that `after` no longer holds, as lapsed."""
    return tuple(
        msgspec.structs.replace(
            record, standing="lapsed", why="accepted, or replaced by another one", changed_at=now
        )
        for job, record in before.records.items()
        if job not in after.records
    )
