"""Queries: the questions that commands ask the daemon, each answered within its turn."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from rtsched.adapters.users import user_name
from rtsched.adapters.wire import MessageKind, frame
from rtsched.daemon import questions
from rtsched.daemon.estimating import WAIT
from rtsched.daemon.likely import odds_of
from rtsched.daemon.menu import (
    remember,
)
from rtsched.daemon.questions import RefusedError
from rtsched.daemon.site_reader import (
    NAMED,
    Cancellation,
    Holding,
    Judged,
    Rejected,
    SiteReader,
    Unsubmitted,
    when_report,
)
from rtsched.daemon.user_turns import BusyError, ClosedError, FairThread
from rtsched.errors import RtschedError

if TYPE_CHECKING:
    from rtsched.daemon.app import Daemon
    from rtsched.daemon.likely import Odds
    from rtsched.daemon.server import Client

ATTEMPTS = 5
"""Times that what is to be held is sought, on a site that changes meanwhile."""


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
            judged = reader.judged(question)
            rejected = reader.with_odds(judged)
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
        report = judged.reader.feasible(judged, odds)
        return frame(MessageKind.REPORT, questions.report_payload(report))

    def _again(self, asked: Holding, uid: int) -> Holding:
        reader = self.reader(uid)
        return reader.holding(reader.judged(asked.question), asked.odds)

    async def _held(self, asked: Holding, client: Client) -> bytes:
        """Hold what was found, on the loop, as soon as the site is still the one it was found on.

        Raises
        ------
        RefusedError
            If the site changes too fast for that.
        """
        daemon, uid = self.daemon, client.uid
        for _ in range(ATTEMPTS):
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
