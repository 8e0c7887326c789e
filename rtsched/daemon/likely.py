"""Likely promises: deadlines that are met with odds, beside the guaranteed ones.

A job that asks for odds runs as any best-effort job, started by the batch system's own scheduler:
no plan has an entry for it, and plans for guaranteed promises are made as if it had no promise. It
is accepted if the start estimates give its deadline the odds that it asks for, by what became of
the promises before, and if not too much has been sold so already. It is kept or missed by its real
end.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import msgspec
import numpy as np

from rtsched.adapters.live import FIRST_OWN_ID, LIKELY, SubmitReply
from rtsched.adapters.requirements import beyond_horizon
from rtsched.daemon import messages
from rtsched.daemon.admission import AdmissionResult, new_promise, or_run
from rtsched.daemon.promises import OPEN, OUTCOMES
from rtsched.daemon.reconcile import closed_by_poll
from rtsched.daemon.site import Step
from rtsched.daemon.user_limits import machine_size, refusal
from rtsched.estimates.tables import earliest_with, odds_by
from rtsched.model.actions import Notify
from rtsched.model.jobs import NOBODY, Jobs, Kind
from rtsched.model.resources import CPU
from rtsched.model.snapshot import places
from rtsched.model.table import amounts_of
from rtsched.model.units import MINUTE
from rtsched.model.verdicts import Verdict
from rtsched.text import CLASSES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.adapters.live import Observation, Submission
    from rtsched.daemon.chains import Chains
    from rtsched.daemon.estimating import LatestEstimates
    from rtsched.daemon.promises import Promise
    from rtsched.daemon.settings import DaemonSettings, LikelySettings
    from rtsched.daemon.site import LikelyPromises, Site
    from rtsched.estimates.calibration import LikelyLevel

ROUNDING = 1e-9
"""Of odds that are turned into a threshold and back."""


class OddsSource(Protocol):
    """Who knows the odds: the process that estimates starts."""

    async def ends(self, jobs: Jobs, timeout_s: float) -> NDArray[np.float64] | None:
        """Return when such jobs, submitted now, may end, each alone, as `Estimator.ends` does.

        None: not within `timeout_s` seconds, or there are no estimates.
        """


@dataclass(frozen=True)
class Odds:
    """What is known of a job's deadline.

    Attributes
    ----------
    known : float
        Odds that it is met, 0 to 1, by what became of the promises before; nan: not known.
    offer : float
        A later deadline that has the odds that are asked for, seconds since the epoch, on a whole
        minute; inf: none.
    raw : float
        Odds by the simulations alone; nan: not known.
    """

    known: float = math.nan
    offer: float = math.inf
    raw: float = math.nan


async def odds_of(
    source: OddsSource | None, job: Submission, level: LikelyLevel, wait: float
) -> Odds:
    """Return the odds of a job's deadline, and a later one that has the odds asked for.

    Parameters
    ----------
    source : OddsSource or None
        Who is asked; None: nobody can be.
    job : Submission
        With finite odds and deadline.
    level : LikelyLevel
        What became of the promises before.
    wait : float
        Seconds within which all must be answered.
    """
    if source is None:
        return Odds()
    found = await source.ends(job.jobs.replace(id=np.array([FIRST_OWN_ID])), wait)
    raw = math.nan if found is None else float(odds_by(found[0], job.jobs.deadline[0]))
    if found is None or math.isnan(raw):
        return Odds()
    known = level.calibrated(raw, job.odds)
    offer = math.inf if known >= job.odds else _later(found[0], job, level)
    return Odds(known, offer, raw)


def _later(ends: NDArray[np.float64], job: Submission, level: LikelyLevel) -> float:
    """Return the deadline that is offered: by the odds by which the job will be judged then.

    It is on a whole minute, and late enough for a job that is submitted a minute later.
    """
    first = earliest_with(ends, level.threshold(job.odds) + ROUNDING)
    if not math.isfinite(first):
        return math.inf
    offer = (math.ceil(first / MINUTE) + 1) * MINUTE
    known = level.calibrated(float(odds_by(ends, offer - MINUTE)), job.odds)
    return offer if known >= job.odds else math.inf


def stated_odds(raw: float, level: LikelyLevel, least: float) -> float:
    """Return the highest odds that may be stated of raw ones, 0 to 1; nan: none may.

    Those of a class, or `least`, the lowest that are sold. A job that asks for them is accepted.
    """
    stated = [least, *(low / 100.0 for low in CLASSES if low / 100.0 > least)]
    return max((odds for odds in stated if level.calibrated(raw, odds) >= odds), default=math.nan)


@dataclass(frozen=True)
class JudgedByOdds:
    """Judges one job whose odds are known, as an `AdmissionController` judges others."""

    controller: LikelyController
    odds: Odds
    job: Submission

    def judge(self, site: Site, submission: Submission, now: float) -> AdmissionResult:
        """Accept or reject the job at `now`, seconds since the epoch."""
        return or_run(self.controller.judge(site, submission, self.odds, now), submission)

    def later(self, site: Site) -> AdmissionResult:
        """Have the user submit again: now nothing may be promised."""
        return or_run(self.controller.later(site), self.job)


@dataclass(frozen=True)
class LikelyController:
    """Where jobs that ask for odds are accepted or rejected; nothing is written down here.

    Attributes
    ----------
    chains : Chains
        The plug-ins; the planner is not asked.
    settings : DaemonSettings
        How long admissions stand, and how many promises a user may have.
    likely : LikelySettings
        How much may be sold so.
    wording : Wording
        The batch system's.
    """

    chains: Chains
    settings: DaemonSettings
    likely: LikelySettings
    wording: messages.Wording

    def wanted(self, job: Submission) -> bool:
        """Return whether a job asks for a likely promise, where the answers of plug-ins count."""
        deadline = bool(np.isfinite(job.jobs.deadline[0]))
        counts = self.chains.of(job.jobs).counts("admit")
        return math.isfinite(job.odds) and deadline and not job.problem and counts

    def refused(self, site: Site, job: Submission, now: float) -> AdmissionResult | None:
        """Return why a job gets no likely promise whatever its odds; None: it may get one."""
        code, text = self._refusal(site, job, now)
        return AdmissionResult.rejected(site, code, text) if code else None

    def judge(self, site: Site, job: Submission, odds: Odds, now: float) -> AdmissionResult:
        """Accept or reject a job, by the odds of its deadline at `now`, seconds since the epoch."""
        if refused := self.refused(site, job, now):
            return refused
        if not math.isfinite(odds.known):
            if self.likely.without_estimate == "best-effort":
                reply = SubmitReply(False, messages.without_estimate())
                return AdmissionResult(site, reply, codes=("likely.no-estimate",))
            return AdmissionResult.rejected(site, "likely.no-estimate", messages.no_estimate())
        if odds.known < job.odds:
            asking = self.wording.asking(odds.offer) if math.isfinite(odds.offer) else ""
            text = messages.too_unlikely(job.odds, odds, asking, now)
            found = AdmissionResult.rejected(site, "likely.odds", text)
            return replace(found, offer=odds.offer)
        promise = new_promise(job, float(job.jobs.deadline[0]), "provisional", now, math.inf)
        promise = msgspec.structs.replace(
            promise,
            id=site.next_id,
            token=LIKELY + secrets.token_hex(16),
            expires=now + self.settings.lapse,
            odds=job.odds,
        )
        after = with_likely(site, promise, job.jobs)
        if job.job >= 0:
            after = replace(after, numbers={**after.numbers, promise.id: job.job})
        text = messages.likely_by(promise.deadline, job.odds, now)
        reply = SubmitReply(
            False,
            text,
            token=promise.token,
            promise=promise.deadline,
            likely=True,
            note=messages.likely_by(promise.deadline, job.odds, None),
        )
        return AdmissionResult(after, reply, (promise,), "admit", ("likely.accepted",))

    @staticmethod
    def later(site: Site) -> AdmissionResult:
        """Have a user submit again: now nothing may be promised."""
        return AdmissionResult.rejected(site, "likely.busy", messages.plan_updating())

    def _refusal(self, site: Site, job: Submission, now: float) -> tuple[str, str]:
        """Return a reason code and a sentence; empty: nothing is against the job."""
        likely, row = self.likely, job.jobs
        least = likely.odds_least / 100.0
        if likely.share <= 0:
            return "likely.off", f"{messages.PREFIX}rejected: this site gives no promises with odds"
        if job.odds < least:
            return "likely.low", messages.low_odds(job.odds, least)
        if why := _unsuitable(job) or beyond_horizon(job.jobs, job.edges, now):
            return "likely.unsuitable", f"{messages.PREFIX}rejected: {why}"
        if (found := refusal(site, row, job.uid, self.settings, now, likely=True)) is not None:
            return found.code, found.text
        if (code := self._by_plugins(site, job, now))[0]:
            return code
        if sold(site, row, now) > likely.share:
            return "likely.share", messages.sold_out(likely.share)
        return "", ""

    def _by_plugins(self, site: Site, job: Submission, now: float) -> tuple[str, str]:
        """Return what plug-ins other than the planner have against a job."""
        chain = self.chains.without_planner(job.jobs)
        if not chain.counts("admit"):
            return "", ""
        snapshot = replace(site.snapshot, now=now, promised=site.requested)
        row = job.jobs.replace(id=np.array([site.next_id]), submit=np.array([now]))
        judgement = chain.admit(row, snapshot, chain.delay_class(row, snapshot))
        if judgement.verdicts.code[0] < Verdict.DEFER:
            return "", ""
        codes, why = messages.reasons(judgement, self.wording)
        text = messages.rejected(why, math.inf, "", "", now)
        return (codes[0] if codes else "likely.unsuitable"), text


def _unsuitable(job: Submission) -> str:
    """Return why such a job gets no likely promise; empty: it may get one."""
    kind, row = Kind(int(job.jobs.kind[0])), job.jobs
    if kind not in {Kind.RIGID, Kind.MOLDABLE}:
        return "an array or a divisible load gets no promise with odds; ask for a guarantee"
    if len(job.edges) or job.singleton or row.dag[0] >= 0:
        return "a job that waits for others gets no promise with odds; ask for a guarantee"
    if job.component:
        return "a job with components gets no promise with odds; ask for a guarantee"
    if job.held:
        return "a job that is held gets no promise with odds; submit it without a hold"
    if not np.isfinite(row.wall_time[0]):
        return "a job without a time limit gets no promise with odds; state one"
    return ""


# --- how much is sold ----------------------------------------------------------------------------


def sold(site: Site, row: Jobs, now: float) -> float:
    """Return the share of the machine that likely promises would take with one more, 0 and more.

    It is what their jobs may use, size times requested time, over what the machine has until the
    latest of their deadlines: in node-seconds, or core-seconds where jobs share nodes.

    Parameters
    ----------
    site : Site
        With the open ones.
    row : Jobs
        One row: the job that asks; none: only the open ones count.
    now : float
        Seconds since the epoch.
    """
    cluster, open_ = site.snapshot.cluster, site.likely.requested
    work = float(_work(open_, cluster.shared).sum() + _work(row, cluster.shared).sum())
    if not work:
        return 0.0
    latest = max(open_.deadline.max(initial=-np.inf), row.deadline.max(initial=-np.inf))
    room = machine_size(cluster) * max(float(latest) - now, 0.0)
    return work / room if room > 0 else math.inf


def _work(jobs: Jobs, shared: bool) -> NDArray[np.float64]:
    """Return what jobs may use, float64[n]: node-seconds, or core-seconds."""
    size = jobs.size.astype(np.float64)
    if shared:
        each = amounts_of(jobs, "demand", (CPU,))[:, 0]
        size = np.maximum(size * each, jobs.cores)
    return np.asarray(size * jobs.wall_time)


def with_likely(site: Site, promise: Promise, row: Jobs) -> Site:
    """Return the site with one more likely promise; promises, queue and plan are the same ones."""
    next_id = max(site.next_id, promise.id + 1 if promise.id >= FIRST_OWN_ID else 0)
    return replace(site, likely=site.likely.with_new(promise, row), next_id=next_id)


# --- after a poll --------------------------------------------------------------------------------


def reconcile_likely(site: Site, before: Site, observation: Observation, now: float) -> Step:
    """Return what a poll means for likely promises: which became jobs, were kept, missed or broken.

    `site` is the one after all else that the poll means, `before` the one before the poll.

    One whose job still waits at its deadline is broken; one whose job runs then is missed when it
    ends, as a guaranteed one is.
    """
    likely = before.likely
    if not len(likely):
        return Step(replace(site, likely=likely))
    alone = replace(before, promises=likely.promises, requested=NOBODY)
    names, changed = closed_by_poll(alone, observation, now)
    by_id = {promise.id: promise for promise in changed}
    texts: dict[int, str] = {}
    state: list[Promise] = []
    for own, promise in likely.promises.items():
        job = names.get(own, own)
        new = by_id.get(job) or by_id.get(own) or promise
        if new.state in OPEN and (why := _broken(new, observation)):
            new = msgspec.structs.replace(
                new, state=why[0], why=why[1], changed_at=now, expires=math.inf
            )
            by_id[new.id] = new
            texts[new.id] = messages.likely_not_kept(new, now)
        if new.state in OPEN:
            state.append(new)
    over = [promise for promise in by_id.values() if promise.state not in OPEN]
    lapsed = {promise.token for promise in over if promise.state == "lapsed"}
    outcomes = ((r.odds or 0.0, r.state == "kept") for r in over if r.state in OUTCOMES)
    site = replace(site, likely=likely.changed(state, names).learnt(outcomes))
    unused = [promise for promise in likely.promises.values() if promise.token in lapsed]
    site = site.left_unused(unused, now) if unused else site
    return Step(site, tuple(by_id.values()), Notify.of(texts))


def present_odds(likely: LikelyPromises, latest: LatestEstimates) -> dict[int, float]:
    """Return the odds, 0 to 1, that open likely promises have now, by job, where they are known.

    They are calibrated as those were by which the promises were given.
    """
    raw = latest.odds(np.array(list(likely.promises), np.int64))
    return {
        job: likely.level.calibrated(each, promise.odds)
        for (job, promise), each in zip(likely.promises.items(), raw.tolist(), strict=True)
        if promise.odds is not None and math.isfinite(each)
    }


def has_fallen(stated: float | None, present: float | None, warn_below: float) -> bool:
    """Return whether odds are now below that share of those stated; None: they are not known."""
    return stated is not None and present is not None and present < warn_below * stated


def fallen(likely: LikelyPromises, latest: LatestEstimates, warn_below: float) -> int:
    """Return of how many open likely promises the odds have fallen."""
    now = present_odds(likely, latest)
    return sum(has_fallen(likely.promises[job].odds, odds, warn_below) for job, odds in now.items())


def _broken(promise: Promise, observation: Observation) -> tuple[str, str] | None:
    """Return how and why a likely promise ends before its job does; None: it goes on."""
    job = np.array([promise.id])
    if not np.isin(job, observation.queued.id)[0]:
        return None
    mark, known = places(observation.marks.job, job)
    if known[0] and (problem := observation.marks.texts("problem")[mark[0]]):
        return "void", problem
    if known[0] and observation.marks.held[mark[0]] and not observation.marks.deferred[mark[0]]:
        return "void", "it is held"
    if observation.time > promise.deadline:
        return "broken", "the job still waits at its deadline"
    return None
