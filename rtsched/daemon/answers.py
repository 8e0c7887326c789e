"""Answers: to the submit filter from memory, and to commands within their user's turn."""

from __future__ import annotations

import asyncio
import math
import re
import time
from dataclasses import dataclass, replace
from functools import partial
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, Protocol

import msgspec
import structlog

from rtsched.adapters.users import NotKnownYetError, at_once, known, user_name
from rtsched.adapters.wire import ACCEPT, REJECT, MessageKind, Tag, decode_fields, encode, frame
from rtsched.daemon import questions
from rtsched.daemon.admission import AdmissionController
from rtsched.daemon.estimating import WAIT
from rtsched.daemon.feasibility import Holding, Judged, Rejected
from rtsched.daemon.instant import NodeLists, StartedBefore, filter_problem, instant_of
from rtsched.daemon.likely import JudgedByOdds, LikelyController, Odds, odds_of
from rtsched.daemon.menu import (
    Allowance,
    Request,
    odds_question,
    present,
    remember,
    with_lines,
    with_menu,
    with_odds,
)
from rtsched.daemon.messages import fixed, would_be
from rtsched.daemon.promises import OPEN, JournalEntry
from rtsched.daemon.questions import RefusedError
from rtsched.daemon.server import HungUpError
from rtsched.daemon.site_reader import (
    NAMED,
    Cancellation,
    SiteReader,
    Unsubmitted,
    when_report,
)
from rtsched.daemon.user_turns import BusyError, ClosedError, FairThread, Turns, Usual
from rtsched.errors import AdapterError, PlannerError, RtschedError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Future

    from rtsched.adapters.live import Submission
    from rtsched.daemon.admission import AdmissionResult
    from rtsched.daemon.app import Daemon
    from rtsched.daemon.server import Client
    from rtsched.daemon.site import Site

log = structlog.get_logger(__name__)

_NUMBER = re.compile(r"\s*[+]?0*+([0-9]{1,19})(?![0-9])", re.ASCII)
"""How a job id begins, as strtol(3) reads it; more digits are no job's for slurmctld either."""


PATIENCE = 0.02
"""Seconds that a submission waits for the end of a cycle's last attempt; the filter waits 50 ms in
all."""

FILTER_NAMED = 0.02
"""Seconds that a submission waits for the name service, in the same 50 ms."""

_ATTEMPTS = 5
"""Times that what is to be held is sought, on a site that changes meanwhile."""


REST = 0.015
"""Seconds of those that the filter waits that are left to what comes after the odds of a job are
known: its answer may have to be written down first."""

MOMENT = 0.002
"""Seconds that choices with odds may wait at the last for their turn to be judged."""

SPARE = 0.012
"""Seconds of those that the filter waits that are left to write an answer and to read it. A job
that is not evaluated by then is evaluated in a cycle."""

MENUS = 2
"""Menus at a time that wait for odds: the process that knows them answers one after the other."""

SOON = frozenset({"submit.unconfirmed", "submit.unseen", "submit.unverified"})
"""Codes of jobs that are evaluated as soon as a poll shows them."""


class Judge(Protocol):
    """Who accepts or rejects a submission."""

    def judge(self, site: Site, submission: Submission, now: float) -> AdmissionResult:
        """Judge it at `now`, seconds since the epoch."""

    def later(self, site: Site) -> AdmissionResult:
        """Return the answer to it where nothing may be promised now."""


@dataclass
class _Case:
    """A submission, and who judges it at an instant, seconds since the epoch.

    Its odds are waited for until an instant of `time.perf_counter`, and the filter waits for the
    answer until another one.
    """

    judge: Judge
    admission: AdmissionController
    likely: LikelyController
    request: Request
    now: float
    until: float
    answered_by: float
    asked: Future[Odds] | None = None
    """What is known of its odds, where it is rejected."""
    is_late: bool = False
    """Whether its user has been answered that it is evaluated later; then nothing is promised."""


class Answers:
    """Answers the submit filter on behalf of a daemon.

    Submissions are evaluated in a thread, so the loop goes on reading; one at a time, since
    plug-ins keep what they prepared, and their users in turn. One whose turn does not come while
    its filter waits is held, and evaluated in a cycle: so nobody's flood makes filters give up.
    """

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.turns, self._commits, self.usual = Turns(), Turns(), Usual()
        self._started = StartedBefore()
        self._node_lists = NodeLists()
        self._asking = 0
        self._menus = BoundedSemaphore(MENUS)

    async def answer(self, kind: MessageKind, payload: bytes, client: Client) -> bytes:
        """Answer the submit filter; who submits stands in the message.

        Raises
        ------
        HungUpError
            If the filter did not wait; then nothing was promised.
        """
        begun = time.perf_counter()
        try:
            result, reply = await self._answered(kind, decode_fields(payload), client, begun)
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
        self, kind: MessageKind, fields: dict[int, int | str], client: Client, begun: float
    ) -> tuple[str, bytes]:
        """Answer, as soon as all users that matter are known."""
        while True:
            try:
                if kind is MessageKind.MODIFY:
                    return self._modification(fields)
                return await self._submission(fields, client, begun)
            except NotKnownYetError as missing:  # nothing has been done yet
                await known(missing, FILTER_NAMED)

    def _count(self, kind: MessageKind, result: str, begun: float) -> None:
        self.daemon.metrics.answered(kind.name.lower(), result, time.perf_counter() - begun)

    async def _submission(
        self, fields: dict[int, int | str], client: Client, begun: float
    ) -> tuple[str, bytes]:
        daemon = self.daemon
        now, site, settings = daemon.clock(), daemon.site, daemon.policy.live.daemon
        age = now - site.seen
        if age > settings.stale or site.facts is None:
            raise AdapterError(
                f"the last poll of the batch system was {age:.0f} s ago; not evaluated"
            )
        describe = partial(daemon.translator.describe, fields, site.facts, now)
        submission = await asyncio.to_thread(at_once, describe)
        submission = replace(submission, otherwise=submission.otherwise or settings.rejected)
        request = Request(daemon.translator, fields, submission)
        if submission.job >= 0 and submission.job in site.marks.job:
            return "pass", encode(MessageKind.ANSWER, [(Tag.VERDICT, ACCEPT)])  # it is in the queue
        daemon.filter_problem = filter_problem(fields)
        unstated = daemon.translator.default_limit(site.facts)
        admission = AdmissionController(
            daemon.policy.submits,
            settings,
            daemon.wording,
            self._started,
            instant_of(fields, site, self._node_lists, unstated),
        )
        likely = LikelyController(
            daemon.policy.submits, settings, daemon.policy.live.likely, daemon.wording
        )
        judge: Judge = admission
        asked = asked_at(fields, begun)
        until = asked + odds_wait(fields, daemon.policy.live.likely.wait)
        try:
            if likely.wanted(submission):
                wait = max(until - time.perf_counter(), 0.0)
                odds = await odds_of(daemon.odds, submission, site.likely.level, wait)
                judge = JudgedByOdds(likely, odds, submission)
            case = _Case(judge, admission, likely, request, now, until, asked + patience(fields))
            judged = await self._judged(case, client)
        except PlannerError as error:
            if not daemon.dry_run:
                raise
            log.warning("request_failed", kind=MessageKind.SUBMIT.name, error=str(error))
            return "pass", encode(MessageKind.ANSWER, [(Tag.VERDICT, ACCEPT)])
        if SOON.intersection(judged.codes):
            daemon.poll_soon()
        uid, menu = submission.uid, judged.menu
        if not daemon.dry_run:
            remember(daemon.menus, uid, menu, now)
            before = daemon.menus.get(uid)
            judged = await self._with_odds(case, judged)
            if daemon.menus.get(uid) is before:  # else its user has been answered anew
                remember(daemon.menus, uid, judged.menu, now)
        judged = with_lines(judged, request, now)
        self._note(judged, submission.jobs.texts("name")[0] or "", uid, now)
        if daemon.dry_run:
            return "pass", encode(MessageKind.ANSWER, [(Tag.VERDICT, ACCEPT)])
        return judged.verdict, self._reply(submission, judged)

    async def _judged(self, case: _Case, client: Client) -> AdmissionResult:
        """Judge a submission when its turn comes; write down what it is promised or offered.

        It is judged again if a cycle has changed the site before that can be written down. What is
        on a slow disk only after its user was answered is withdrawn.

        Raises
        ------
        HungUpError
            If nobody waits for the answer any more; then nothing was written down.
        """
        working = asyncio.ensure_future(self._when_in_turn(case, client))
        working.add_done_callback(partial(_settled, case))
        left = case.answered_by - time.perf_counter() - SPARE
        self._asking += 1
        try:
            await asyncio.wait([working], timeout=max(left, 0.0) if math.isfinite(left) else None)
            if working.done():
                return await working
            case.is_late = True
            if not client.waits():
                raise HungUpError
            return case.judge.later(self.daemon.site)
        finally:
            self._asking -= 1

    async def _when_in_turn(self, case: _Case, client: Client) -> AdmissionResult:
        """Judge a submission when its turn comes, unless it is too late for that by then.

        What is promised is written down when the turn of that comes: a slow disk keeps nobody from
        being judged.
        """
        uid = case.request.submission.uid
        async with self.turns.of(uid):
            left = case.answered_by - time.perf_counter() - SPARE
            if case.is_late or (left < self.usual.of(uid) and self._asking > 1):
                case.is_late = True
                self.usual.was_left_out(uid)
                return case.judge.later(self.daemon.site)
            begun = time.perf_counter()
            site, judged = await self._evaluated(case, client)
            spent = time.perf_counter() - begun
        if self.daemon.dry_run or not judged.changed:
            self.usual.took(uid, spent)
            return judged
        async with self._commits.of(uid):
            return await self._committed(case, client, site, judged, spent)

    async def _committed(
        self, case: _Case, client: Client, site: Site, judged: AdmissionResult, spent: float
    ) -> AdmissionResult:
        """Write down what a submission is promised or offered, judged on `site` in `spent` s."""
        daemon, submission = self.daemon, case.request.submission
        if not await self._lock_site(client):
            return case.judge.later(daemon.site)
        try:
            begun = time.perf_counter()
            if daemon.site is not site:
                async with self.turns.of(submission.uid):
                    _, judged = await self._evaluated(case, client)
            self._reply(submission, judged)  # one that fails does so before anything is promised
            if not client.waits():
                raise HungUpError
            if case.is_late:
                return case.judge.later(daemon.site)
            if judged.changed:
                await daemon.commit(judged.site, judged.changed)
                tokens = [promise.token for promise in judged.changed if promise.state in OPEN]
                if case.is_late:
                    daemon.withdraw(tokens)
                    return case.judge.later(daemon.site)
                client.if_unread(partial(daemon.withdraw, tokens))
            spent += time.perf_counter() - begun
        finally:
            daemon.site_lock.release()
        self.usual.took(submission.uid, spent)
        return judged

    async def _evaluated(self, case: _Case, client: Client) -> tuple[Site, AdmissionResult]:
        """Judge a submission in a thread, and return on which site.

        Raises
        ------
        HungUpError
            If nobody waits for the answer any more.
        """
        if not client.waits():
            raise HungUpError
        site, loop = self.daemon.site, asyncio.get_running_loop()
        return site, await asyncio.to_thread(self._judged_on, site, case, loop)

    def _judged_on(
        self, site: Site, case: _Case, loop: asyncio.AbstractEventLoop
    ) -> AdmissionResult:
        """Judge a submission, and look for alternatives to a rejected one if nobody waits."""
        request, now, admission = case.request, case.now, case.admission
        judged = case.judge.judge(site, request.submission, now)
        self._ask_odds(site, case, judged, loop)
        seconds = admission.settings.menu_ms / 1000.0
        allowance = Allowance(seconds, hurry=lambda: self._asking > 1)
        before = present(self.daemon.menus, site, request.submission.uid, now)
        judged = with_menu(admission, site, judged, request, now, allowance, before)
        if isinstance(case.judge, JudgedByOdds):
            return with_odds(judged, site, request, now, case.likely, case.judge.odds)
        return judged

    def _ask_odds(
        self, site: Site, case: _Case, judged: AdmissionResult, loop: asyncio.AbstractEventLoop
    ) -> None:
        """Have the odds of a rejected job worked out meanwhile, if they matter and may be had."""
        source, left = self.daemon.odds, case.until - time.perf_counter()
        wanted = case.admission.settings.menu_ms > 0 and not self.daemon.dry_run
        if isinstance(case.judge, JudgedByOdds) or case.asked is not None or not wanted:
            return
        job = odds_question(judged, case.likely, site, case.request, case.now)
        if source is None or job is None or left <= 0.0:
            return
        if self._menus.acquire(blocking=False):
            question = odds_of(source, job, site.likely.level, left)
            case.asked = asyncio.run_coroutine_threadsafe(question, loop)
            case.asked.add_done_callback(lambda _: self._menus.release())

    async def _with_odds(self, case: _Case, judged: AdmissionResult) -> AdmissionResult:
        """Return what became of a submission, with choices with odds if they are there in time."""
        if case.asked is None or judged.verdict != "reject":
            return judged
        odds = await _known(case.asked, case.until)
        if math.isnan(odds.known):
            return judged
        uid, left = case.request.submission.uid, case.until - time.perf_counter()
        try:
            async with self.turns.of(uid, max(left, MOMENT)):
                site, request, now = self.daemon.site, case.request, case.now
                arguments = judged, site, request, now, case.likely, odds
                return await asyncio.to_thread(with_odds, *arguments)
        except TimeoutError:
            return judged

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
        reply = judged.reply
        if submission.tested and reply.token:
            reply = replace(reply, text=would_be(reply.text))
        submission = judged.submission or submission
        answer = self.daemon.translator.answer(submission, reply, judged.site.facts)
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
        site = self.daemon.site
        job = site.whole(job_id(fields))
        promise = site.promise_of(job)
        promised = None if site.has_components(job) else site.row(job)
        what = self.daemon.translator.protected(fields, promised, site.facts)
        if promise is None or not what or self._may_change(fields):
            return "accept", encode(MessageKind.ANSWER, [(Tag.VERDICT, ACCEPT)])
        name = self.daemon.translator.name_of(job)
        now = self.daemon.clock()
        text = fixed(name, promise.deadline, what, now)
        if fields.get(Tag.SUBMIT_UID) == promise.uid:  # of an array, scontrol hold does not show it
            said = JournalEntry(now, promise.uid, name, "", "reject", (), text, token=promise.token)
            self.daemon.store.note(said)
        return "reject", encode(MessageKind.ANSWER, [(Tag.VERDICT, REJECT), (Tag.MESSAGE, text)])

    def _may_change(self, fields: dict[int, int | str]) -> bool:
        uid = int(fields.get(Tag.SUBMIT_UID, -1))
        return uid == 0 or user_name(uid) in self.daemon.policy.live.daemon.admins


async def _known(asked: Future[Odds], until: float) -> Odds:
    """Return the answer to a question as soon as it is there; none if that is too late."""
    answer = asyncio.wrap_future(asked)
    await asyncio.wait([answer], timeout=max(until - time.perf_counter(), 0.0))
    if not answer.done():
        answer.cancel()
        return Odds()
    if answer.cancelled():
        return Odds()
    if error := answer.exception():
        log.warning("odds_not_known", error=f"{type(error).__name__}: {error}")
        return Odds()
    return answer.result()


def _settled(case: _Case, done: asyncio.Future[AdmissionResult]) -> None:
    """Take notice of how an evaluation ended, and ask for no odds that nobody will see."""
    failed = done.cancelled() or done.exception() is not None
    shown = not failed and not case.is_late and done.result().verdict == "reject"
    if case.asked is not None and not shown:
        case.asked.cancel()


def patience(fields: Mapping[int, int | str]) -> float:
    """Return for how many seconds after a request its filter waits for the answer."""
    timeout = fields.get(Tag.TIMEOUT_MS)
    return math.inf if timeout is None else max(int(timeout) / 1000.0, 0.0)


def asked_at(fields: Mapping[int, int | str], begun: float) -> float:
    """Return since when the filter waits, of `time.perf_counter`.

    Parameters
    ----------
    fields : mapping of int to int or str
        The request.
    begun : float
        When it was read, which may be late on a busy machine. It counts where the filter's clock is
        another one.
    """
    age = begun - float(fields.get(Tag.ASKED_MS, math.inf)) / 1000.0
    return begun - age if 0.0 <= age <= patience(fields) else begun


def odds_wait(fields: Mapping[int, int | str], wait: float) -> float:
    """Return for how many seconds after a request came its odds may be waited for.

    Parameters
    ----------
    fields : mapping of int to int or str
        The request.
    wait : float
        The setting, seconds; less where the filter waits for a shorter time.
    """
    timeout = fields.get(Tag.TIMEOUT_MS)
    return wait if timeout is None else min(wait, max(int(timeout) / 1000.0 - REST, 0.0))


def job_id(fields: dict[int, int | str]) -> int:
    """Return the job that a request to change one is about, -1 if that is not one job.

    Slurmctld keeps 32 bits of the number that it reads (`update_job_str`, src/slurmctld/job_mgr.c),
    so any of 2^31 numbers means a job.
    """
    if Tag.JOB_ID in fields:
        return int(fields[Tag.JOB_ID])
    found = _NUMBER.match(str(fields.get(Tag.JOB_ID_STR, "")))
    number = int(found[1]) if found else 0
    return number & 0xFFFFFFFF if 0 < number < (1 << 63) - 1 else -1


def _error(text: str) -> bytes:
    return encode(MessageKind.ERROR, [(Tag.MESSAGE, f"rtsched: {text}"[:900])])


class Queries:
    """Answers questions of users about a daemon, in a thread of its own.

    A user sees what is the user's own, and what says nothing about others: root, the daemon's own
    user and the site's `admins` see everything.
    """

    def __init__(self, daemon: Daemon, own_uid: int) -> None:
        self.daemon, self._own = daemon, own_uid
        self._thread = FairThread("queries")

    async def answer(self, kind: MessageKind, payload: bytes, client: Client) -> bytes:  # noqa: ARG002
        """Return the answer to the question in `payload`, which is of the only kind there is.

        Raises
        ------
        HungUpError
            If nobody waits for it any more when its turn comes.
        """
        try:
            answer = await self._thread.run(
                client.uid, lambda: self._answered(payload, client.uid), client.waits
            )
            if isinstance(answer, Rejected):
                level = self.daemon.site.likely.level
                odds = await odds_of(self.daemon.odds, answer.asking, level, WAIT)
                answer = await self._thread.run(
                    client.uid, partial(self._chosen, answer.judged, odds), client.waits
                )
            if isinstance(answer, Cancellation):
                return await self._cancelled(answer)
            if isinstance(answer, Unsubmitted):
                return await self._estimated(answer)
            if isinstance(answer, Holding):
                return await self._held(answer, client)
            return answer
        except BusyError as error:
            return self._refused("busy", str(error))
        except ClosedError as error:
            return self._refused("unavailable", str(error))
        except RefusedError as error:
            return self._refused(error.code, str(error))
        except RtschedError as error:
            return self._refused("refused", str(error))

    def close(self) -> None:
        """Answer no more."""
        self._thread.close()

    def _answered(
        self, payload: bytes, uid: int
    ) -> bytes | Cancellation | Unsubmitted | Holding | Rejected:
        try:
            question = questions.read_question(payload)
        except msgspec.MsgspecError as error:
            return self._refused("malformed", f"{questions.NOT_A_QUESTION}{error}")
        reader = self.reader(uid)
        if isinstance(question, questions.Cancel):
            return reader.cancellation(question)
        if isinstance(question, questions.When) and question.request is not None:
            return reader.unsubmitted(question.request)
        if isinstance(question, questions.Feasible):
            judged = reader.feasibility.judged(question)
            rejected = reader.feasibility.with_odds(judged)
            return self._chosen(judged) if rejected is None else rejected
        return frame(MessageKind.REPORT, questions.report_payload(reader.report(question)))

    async def _estimated(self, asked: Unsubmitted) -> bytes:
        """Have the start of a job that is not submitted estimated, if that is soon done."""
        estimating = self.daemon.estimating
        found = None if estimating is None else await estimating.estimate(asked.jobs)
        report = asked.starts.unsubmitted(asked.jobs, found)
        whole = when_report(asked.starts, asked.now, (report,))
        return frame(MessageKind.REPORT, questions.report_payload(whole))

    async def _cancelled(self, asked: Cancellation) -> bytes:
        """Cancel a promise, on the loop: the site is changed in one place at a time."""
        closed = await self.daemon.cancel(asked.promise, asked.by)
        promise = msgspec.structs.replace(
            asked.shown, state=closed.state, why=closed.why, start=None, end=None, nodes=()
        )
        report = questions.CancelReport(closed.changed_at, promise)
        return frame(MessageKind.REPORT, questions.report_payload(report))

    def _chosen(self, judged: Judged, odds: Odds | None = None) -> bytes | Holding:
        """Return the answer about a job that nobody submits, or what is to be held for it."""
        if isinstance(judged.question, questions.Hold):
            return judged.reader.holding(judged, odds)
        report = judged.reader.report(judged, odds)
        return frame(MessageKind.REPORT, questions.report_payload(report))

    def _again(self, asked: Holding, uid: int) -> Holding:
        reader = self.reader(uid).feasibility
        return reader.holding(reader.judged(asked.question), asked.odds)

    async def _held(self, asked: Holding, client: Client) -> bytes:
        """Hold what was found, on the loop, as soon as the site is still the one it was found on.

        Raises
        ------
        RefusedError
            If the site changes too fast for that.
        """
        daemon, uid = self.daemon, client.uid
        for _ in range(_ATTEMPTS):
            async with daemon.site_lock:
                if daemon.site is asked.site:
                    if asked.judged.changed:
                        await daemon.commit(asked.judged.site, asked.judged.changed)
                    remember(daemon.menus, uid, asked.judged.menu, asked.report.now)
                    return frame(MessageKind.REPORT, questions.report_payload(asked.report))
            again = partial(self._again, asked, uid)
            asked = await self._thread.run(uid, again, client.waits)
        raise RefusedError("the site changes too fast now; try again", "busy")

    def _refused(self, why: questions.RefusalCode, text: str) -> bytes:
        self.daemon.metrics.query_refused(why)
        return frame(MessageKind.REPORT, questions.refusal_payload(text, why))

    def reader(self, uid: int) -> SiteReader:
        """Return a reader of the present site for a user."""
        admins = self.daemon.policy.live.daemon.admins
        everyone = uid in {0, self._own} or user_name(uid, NAMED) in admins
        return SiteReader(self.daemon, uid, everyone)
