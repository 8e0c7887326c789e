"""The submit filter's questions, answered from memory."""

from __future__ import annotations

import asyncio
import re
import time
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import structlog

from rtsched.adapters.users import NotKnownYetError, known, user_name
from rtsched.adapters.wire import ACCEPT, REJECT, MessageKind, Tag, decode_fields, encode
from rtsched.daemon.admission import AdmissionController
from rtsched.daemon.imminent import StartedBefore
from rtsched.daemon.likely import JudgedByOdds, LikelyController, Odds, odds_of
from rtsched.daemon.menu import (
    Allowance,
    ByOdds,
    Request,
    asking,
    has_menu,
    present,
    remember,
    with_menu,
)
from rtsched.daemon.messages import fixed
from rtsched.daemon.records import OPEN, JournalEntry
from rtsched.daemon.server import HungUpError
from rtsched.errors import AdapterError, PlannerError, RtschedError

if TYPE_CHECKING:
    from rtsched.adapters.live import Submission
    from rtsched.daemon.admission import AdmissionResult
    from rtsched.daemon.app import Daemon
    from rtsched.daemon.server import Client
    from rtsched.daemon.site import Site

log = structlog.get_logger(__name__)

_NUMBER = re.compile(r"\s*[+]?0*([0-9]{1,18})", re.ASCII)
"""How a job id begins, as strtol(3) reads it."""


PATIENCE = 0.02
"""Seconds that a submission waits for the end of a cycle's last attempt; the filter waits 50 ms in
all."""

NAMED = 0.02
"""Seconds that a submission waits for the name service, in the same 50 ms."""


LOOKED = 0.001
"""Seconds between two looks at whether somebody waits."""


class Judge(Protocol):
    """Who accepts or rejects a submission."""

    def judge(self, site: Site, submission: Submission, now: float) -> AdmissionResult:
        """Judge it at `now`, seconds since the epoch."""

    def later(self, site: Site) -> AdmissionResult:
        """Return the answer to it where nothing may be promised now."""


@dataclass(frozen=True)
class _Case:
    """A submission, and who judges it at an instant, seconds since the epoch."""

    judge: Judge
    admission: AdmissionController
    likely: LikelyController
    request: Request
    now: float


class Answers:
    """Answers the submit filter on behalf of a daemon.

    Submissions are evaluated in a thread, so the loop goes on reading; one at a time, since
    plug-ins keep what they prepared.
    """

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self._evaluating = asyncio.Lock()
        self._started = StartedBefore()
        self._asking = 0

    async def answer(self, kind: MessageKind, payload: bytes, client: Client) -> bytes:
        """Answer the submit filter; who submits stands in the message.

        Raises
        ------
        HungUpError
            If the filter did not wait; then nothing was promised.
        """
        begun = time.perf_counter()
        try:
            result, reply = await self._answered(kind, decode_fields(payload), client)
        except HungUpError:
            self._count(kind, "unheard", begun)
            raise
        except RtschedError as error:
            log.warning("request_failed", kind=kind.name, error=str(error))
            result, reply = "error", _error(str(error))
        except Exception as error:  # the filter must get an answer, and the daemon must go on
            log.exception("request_crashed", kind=kind.name, filter=client.uid)
            result, reply = "error", _error(f"{type(error).__name__}: {error}")
        self._count(kind, result, begun)
        return reply

    async def _answered(
        self, kind: MessageKind, fields: dict[int, int | str], client: Client
    ) -> tuple[str, bytes]:
        """Answer, as soon as all users that matter are known."""
        while True:
            try:
                if kind is MessageKind.MODIFY:
                    return self._modification(fields)
                return await self._submission(fields, client)
            except NotKnownYetError as missing:  # nothing has been done yet
                await known(missing, NAMED)

    def _count(self, kind: MessageKind, result: str, begun: float) -> None:
        self.daemon.metrics.answered(kind.name.lower(), result, time.perf_counter() - begun)

    async def _submission(self, fields: dict[int, int | str], client: Client) -> tuple[str, bytes]:
        daemon = self.daemon
        now, site, settings = daemon.clock(), daemon.site, daemon.policy.live.daemon
        age = now - site.seen
        if age > settings.stale or site.facts is None:
            raise AdapterError(
                f"the last poll of the batch system was {age:.0f} s ago; not evaluated"
            )
        submission = daemon.translator.describe(fields, site.facts, now)
        request = Request(daemon.translator, fields, submission)
        if submission.job >= 0 and submission.job in site.marks.job:
            return "pass", encode(MessageKind.ANSWER, [(Tag.VERDICT, ACCEPT)])  # it is in the queue
        admission = AdmissionController(
            daemon.policy.submits, settings, daemon.wording, self._started
        )
        likely = LikelyController(
            daemon.policy.submits, settings, daemon.policy.live.likely, daemon.wording
        )
        judge: Judge = admission
        try:
            if likely.wanted(submission):
                wait, level = daemon.policy.live.likely.wait, site.likely.level
                odds = await odds_of(daemon.odds, submission, level, wait)
                judge = JudgedByOdds(likely, odds)
            case = _Case(judge, admission, likely, request, now)
            judged, reply = await self._judged(case, client)
        except PlannerError as error:
            if not daemon.dry_run:
                raise
            log.warning("request_failed", kind=MessageKind.SUBMIT.name, error=str(error))
            return "pass", encode(MessageKind.ANSWER, [(Tag.VERDICT, ACCEPT)])
        self._note(judged, submission.jobs.texts("name")[0] or "", submission.uid, now)
        if daemon.dry_run:
            return "pass", encode(MessageKind.ANSWER, [(Tag.VERDICT, ACCEPT)])
        remember(daemon.menus, submission.uid, judged.menu, now)
        return judged.verdict, reply

    async def _judged(self, case: _Case, client: Client) -> tuple[AdmissionResult, bytes]:
        """Judge a submission, and write down what it is promised or offered; return the answer.

        It is judged at once; only what it is promised waits for its turn, and is judged again if
        the site has changed by then.

        Raises
        ------
        HungUpError
            If nobody waits for the answer any more; then nothing was written down.
        """
        daemon, submission = self.daemon, case.request.submission
        site, judged = await self._evaluated(case, client)
        if daemon.dry_run or not judged.changed:
            return judged, self._reply(submission, judged)
        if not await self._lock_site(client):
            judged = case.judge.later(daemon.site)
            return judged, self._reply(submission, judged)
        try:
            if daemon.site is not site:
                _, judged = await self._evaluated(case, client)
            reply = self._reply(submission, judged)
            if not client.waits():
                raise HungUpError
            if judged.changed:
                await daemon.admit(judged.site, judged.changed)
                tokens = [record.token for record in judged.changed if record.standing in OPEN]
                client.if_unread(partial(daemon.withdraw, tokens))
        finally:
            daemon.site_lock.release()
        return judged, reply

    async def _evaluated(self, case: _Case, client: Client) -> tuple[Site, AdmissionResult]:
        """Judge a submission in a thread when its turn comes, and return on which site.

        Raises
        ------
        HungUpError
            If nobody waits for the answer any more by then.
        """
        self._asking += 1
        try:
            async with self._evaluating:
                if not client.waits():
                    raise HungUpError
                site = self.daemon.site
                loop = asyncio.get_running_loop()
                return site, await asyncio.to_thread(self._judged_on, site, case, loop)
        finally:
            self._asking -= 1

    def _judged_on(
        self, site: Site, case: _Case, loop: asyncio.AbstractEventLoop
    ) -> AdmissionResult:
        """Judge a submission, and look for alternatives to a rejected one if nobody waits."""
        request, now, admission = case.request, case.now, case.admission
        judged = case.judge.judge(site, request.submission, now)
        seconds = admission.settings.menu_ms / 1000.0
        allowance = Allowance(seconds, hurry=lambda: self._asking > 1)
        by_odds = self._by_odds(site, case, allowance, loop) if has_menu(judged) else None
        before = present(self.daemon.menus, site, request.submission.uid, now)
        return with_menu(admission, site, judged, request, now, allowance, before, by_odds)

    def _by_odds(
        self, site: Site, case: _Case, allowance: Allowance, loop: asyncio.AbstractEventLoop
    ) -> ByOdds | None:
        """Return how choices with odds are found; their odds are asked for meanwhile."""
        if isinstance(case.judge, JudgedByOdds):
            odds = case.judge.odds
            return ByOdds(case.likely, lambda: odds)
        source, left = self.daemon.odds, allowance.left()
        job = asking(case.likely, case.request.submission)
        if source is None or left <= 0.0 or case.likely.refused(site, job, case.now):
            return None
        asked = asyncio.run_coroutine_threadsafe(
            odds_of(source, job, site.likely.level, left), loop
        )
        return ByOdds(case.likely, partial(_known, asked, allowance))

    async def _lock_site(self, client: Client) -> bool:
        """Wait for the turn to change the site; return whether it was given.

        Behind what others are promised just now the filter waits for as long as it likes; behind a
        cycle's last attempt for a moment only: the job can as well be held for the next cycle.
        """
        while True:
            try:
                await asyncio.wait_for(self.daemon.site_lock.acquire(), PATIENCE)
            except TimeoutError:
                if self.daemon.last_attempt:
                    return False
                if not client.waits():
                    raise HungUpError from None
            else:
                return True

    def _reply(self, submission: Submission, judged: AdmissionResult) -> bytes:
        answer = self.daemon.translator.answer(submission, judged.reply, judged.site.facts)
        return encode(MessageKind.ANSWER, [(Tag(tag), value) for tag, value in answer.items()])

    def _note(self, judged: AdmissionResult, name: str, uid: int, now: float) -> None:
        if judged.judgement is not None:
            self.daemon.metrics.judged(judged.judgement)
        text = judged.reply.text or judged.foreseen
        if judged.verdict == "pass" and not text:
            return
        token = judged.reply.token
        decision = JournalEntry(
            now, uid, "", name, judged.verdict, judged.codes, text, judged.offer, token
        )
        self.daemon.store.note(decision)
        log.info("submission_judged", uid=uid, verdict=judged.verdict, codes=judged.codes)

    def _modification(self, fields: dict[int, int | str]) -> tuple[str, bytes]:
        job = self.daemon.site.whole(job_id(fields))
        record = self.daemon.site.promise_of(job)
        what = self.daemon.translator.protected(fields)
        if record is None or not what or self._may_change(fields):
            return "accept", encode(MessageKind.ANSWER, [(Tag.VERDICT, ACCEPT)])
        name = self.daemon.translator.name_of(job)
        text = fixed(name, record.deadline, what, self.daemon.clock())
        return "reject", encode(MessageKind.ANSWER, [(Tag.VERDICT, REJECT), (Tag.MESSAGE, text)])

    def _may_change(self, fields: dict[int, int | str]) -> bool:
        uid = int(fields.get(Tag.SUBMIT_UID, -1))
        return uid == 0 or user_name(uid) in self.daemon.policy.live.daemon.admins


def _known(asked: Future[Odds], allowance: Allowance) -> Odds:
    """Return the answer to a question as soon as it is there; none if that takes too long."""
    while not asked.done() and (left := allowance.left()) > 0.0:
        wait([asked], min(left, LOOKED))
    if asked.done():
        return asked.result()
    asked.cancel()
    return Odds()


def job_id(fields: dict[int, int | str]) -> int:
    """Return the job that a request to change one is about, -1 if that is not one job."""
    if Tag.JOB_ID in fields:
        return int(fields[Tag.JOB_ID])
    found = _NUMBER.match(str(fields.get(Tag.JOB_ID_STR, "")))
    return int(found[1]) if found else -1


def _error(text: str) -> bytes:
    return encode(MessageKind.ERROR, [(Tag.MESSAGE, f"rtsched: {text}"[:900])])
