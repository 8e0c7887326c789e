"""The submit filter's questions, answered from memory."""

from __future__ import annotations

import asyncio
import re
import time
from functools import partial
from typing import TYPE_CHECKING

import structlog

from rtsched.adapters.users import NotKnownYetError, known, user_name
from rtsched.adapters.wire import ACCEPT, REJECT, Kind, Tag, decode_fields, encode
from rtsched.daemon.messages import fixed
from rtsched.daemon.records import OPEN, Decision
from rtsched.daemon.server import HungUpError
from rtsched.daemon.submits import Desk
from rtsched.errors import AdapterError, PlannerError, RtschedError

if TYPE_CHECKING:
    from rtsched.adapters.live import Submission
    from rtsched.daemon.app import Daemon
    from rtsched.daemon.server import Asker
    from rtsched.daemon.submits import Judged

log = structlog.get_logger(__name__)

_NUMBER = re.compile(r"\s*[+]?0*([0-9]{1,18})", re.ASCII)
"""How a job id begins, as strtol(3) reads it."""


PATIENCE = 0.02
"""Seconds that a submission waits for a cycle's last attempt; the filter waits 50 ms in all."""

NAMED = 0.02
"""Seconds that a submission waits for the name service, in the same 50 ms."""


class Answers:
    """Answers the submit filter on behalf of a daemon."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon

    async def answer(self, kind: Kind, payload: bytes, asker: Asker) -> bytes:
        """Answer the submit filter; who submits stands in the message.

        Raises
        ------
        HungUpError
            If the filter did not wait; then nothing was promised.
        """
        begun = time.perf_counter()
        try:
            result, reply = await self._answered(kind, decode_fields(payload), asker)
        except HungUpError:
            self._count(kind, "unheard", begun)
            raise
        except RtschedError as error:
            log.warning("request_failed", kind=kind.name, error=str(error))
            result, reply = "error", _error(str(error))
        except Exception as error:  # the filter must get an answer, and the daemon must go on
            log.exception("request_crashed", kind=kind.name, filter=asker.uid)
            result, reply = "error", _error(f"{type(error).__name__}: {error}")
        self._count(kind, result, begun)
        return reply

    async def _answered(
        self, kind: Kind, fields: dict[int, int | str], asker: Asker
    ) -> tuple[str, bytes]:
        """Answer, as soon as all users that matter are known."""
        while True:
            try:
                if kind is Kind.MODIFY:
                    return self._modification(fields)
                return await self._submission(fields, asker)
            except NotKnownYetError as missing:  # nothing has been done yet
                await known(missing, NAMED)

    def _count(self, kind: Kind, result: str, begun: float) -> None:
        self.daemon.metrics.answered(kind.name.lower(), result, time.perf_counter() - begun)

    async def _submission(self, fields: dict[int, int | str], asker: Asker) -> tuple[str, bytes]:
        daemon = self.daemon
        now, site, settings = daemon.clock(), daemon.site, daemon.policy.live.daemon
        age = now - site.seen
        if age > settings.stale or site.facts is None:
            raise AdapterError(f"the batch system was last seen {age:.0f} s ago; not judged")
        submission = daemon.translator.describe(fields, site.facts, now)
        if submission.job >= 0 and submission.job in site.marks.job:
            return "pass", encode(Kind.ANSWER, [(Tag.VERDICT, ACCEPT)])  # it is in the queue
        chain = daemon.policy.submits.of(submission.jobs)
        desk = Desk(chain, settings, daemon.words)
        try:
            judged = await self._judged(desk, submission, now)
        except PlannerError as error:
            if not daemon.dry_run:
                raise
            log.warning("request_failed", kind=Kind.SUBMIT.name, error=str(error))
            return "pass", encode(Kind.ANSWER, [(Tag.VERDICT, ACCEPT)])
        name = submission.jobs.texts("name")[0] or ""
        if daemon.dry_run:
            self._note(judged, name, submission.uid, now)
            return "pass", encode(Kind.ANSWER, [(Tag.VERDICT, ACCEPT)])
        answer = daemon.translator.answer(submission, judged.ruling, judged.site.facts)
        reply = encode(Kind.ANSWER, [(Tag(t), v) for t, v in answer.items()])
        if not asker.waits():
            raise HungUpError
        if judged.changed:
            daemon.admit(judged.site, judged.changed)
            tokens = [record.token for record in judged.changed if record.standing in OPEN]
            asker.if_unheard(partial(daemon.withdraw, tokens))
        self._note(judged, name, submission.uid, now)
        return judged.verdict, reply

    async def _judged(self, desk: Desk, submission: Submission, now: float) -> Judged:
        """Judge a submission on the site as it is; none is judged while nothing may be promised."""
        daemon, user = self.daemon, submission.jobs.texts("user")[0] or str(submission.uid)
        judged = desk.judge(daemon.site, submission, user, now)
        if not judged.changed or daemon.dry_run or daemon.admitting.is_set():
            return judged
        if await self._may_admit():
            return desk.judge(daemon.site, submission, user, now)
        return desk.later(daemon.site)

    async def _may_admit(self) -> bool:
        """Return whether promises may be given, now or as soon as a filter can wait for."""
        try:
            await asyncio.wait_for(self.daemon.admitting.wait(), PATIENCE)
        except TimeoutError:
            return False
        return self.daemon.admitting.is_set()

    def _note(self, judged: Judged, name: str, uid: int, now: float) -> None:
        if judged.judgement is not None:
            self.daemon.metrics.judged(judged.judgement)
        text = judged.ruling.text or judged.foreseen
        if judged.verdict == "pass" and not text:
            return
        token = judged.ruling.token
        decision = Decision(
            now, uid, "", name, judged.verdict, judged.codes, text, judged.offer, token
        )
        self.daemon.store.note(decision)
        log.info("submission_judged", uid=uid, verdict=judged.verdict, codes=judged.codes)

    def _modification(self, fields: dict[int, int | str]) -> tuple[str, bytes]:
        job = job_id(fields)
        record = self.daemon.site.records.get(job)
        what = self.daemon.translator.guarded(fields)
        if record is None or not what or self._may_change(fields):
            return "accept", encode(Kind.ANSWER, [(Tag.VERDICT, ACCEPT)])
        name = self.daemon.translator.name_of(job)
        text = fixed(name, record.deadline, what, self.daemon.clock())
        return "reject", encode(Kind.ANSWER, [(Tag.VERDICT, REJECT), (Tag.MESSAGE, text)])

    def _may_change(self, fields: dict[int, int | str]) -> bool:
        uid = int(fields.get(Tag.SUBMIT_UID, -1))
        return uid == 0 or user_name(uid) in self.daemon.policy.live.daemon.admins


def job_id(fields: dict[int, int | str]) -> int:
    """Return the job that a request to change one is about, -1 if that is not one job."""
    if Tag.JOB_ID in fields:
        return int(fields[Tag.JOB_ID])
    found = _NUMBER.match(str(fields.get(Tag.JOB_ID_STR, "")))
    return int(found[1]) if found else -1


def _error(text: str) -> bytes:
    return encode(Kind.ERROR, [(Tag.MESSAGE, f"rtsched: {text}"[:900])])
