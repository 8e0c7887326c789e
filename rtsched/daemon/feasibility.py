"""Feasibility of jobs that nobody submits: which deadline one could have, and what may be held."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from rtsched.adapters.live import FeasibilityRequest
from rtsched.daemon import messages, questions
from rtsched.daemon.admission import AdmissionController, AdmissionResult
from rtsched.daemon.likely import LikelyController
from rtsched.daemon.menu import (
    TRIES,
    Allowance,
    Request,
    odds_question,
    present,
    with_menu,
    with_odds,
)
from rtsched.daemon.offers import STATED
from rtsched.daemon.questions import RefusedError
from rtsched.daemon.site import entry_of
from rtsched.daemon.waiting import finite
from rtsched.errors import RtschedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rtsched.adapters.live import Submission
    from rtsched.daemon.app import Daemon
    from rtsched.daemon.likely import Odds
    from rtsched.daemon.menu import Menu
    from rtsched.daemon.site import Site

LOAD = ("sigma", "cms", "cps", "setup_link", "setup_node", "rounds")


class Judged(NamedTuple):
    """A job that nobody submits, how it was judged, by whom, and on whose site."""

    question: questions.Feasible
    reader: FeasibilityReader
    request: Request
    admission: AdmissionController
    result: AdmissionResult
    now: float


class Rejected(NamedTuple):
    """A job that was rejected, and the one that asks for odds in its place."""

    judged: Judged
    asking: Submission


class Holding(NamedTuple):
    """What is to be held for a user, on which site it was found, and the report of it.

    `odds`: of the job, if they were asked for.
    """

    question: questions.Feasible
    site: Site
    judged: AdmissionResult
    report: questions.FeasibleReport
    odds: Odds | None


class FeasibilityReader:
    """Judges such jobs on the site of one instant, for another thread than the daemon's loop.

    Parameters
    ----------
    daemon : Daemon
        Whose settings and policy hold.
    site : Site
        The site of that instant.
    uid : int
        Who asks.
    names : callable
        Returns the names of some of the site's nodes, by their rows.
    """

    def __init__(
        self,
        daemon: Daemon,
        site: Site,
        uid: int,
        names: Callable[[Sequence[int]], tuple[str, ...]],
    ) -> None:
        self.daemon, self.site, self.uid, self._names = daemon, site, uid, names

    def judged(self, question: questions.Feasible) -> Judged:
        """Judge a job that nobody submits: by its deadline, or by the one that would be offered.

        What is to be held is judged as a submission is.

        Raises
        ------
        RefusedError
            If it is to be held, and this daemon promises nothing.
        """
        daemon, settings, now = self.daemon, self.daemon.policy.live.daemon, self.daemon.clock()
        if not isinstance(question, questions.Hold):
            offer = settings.offer or STATED
            settings = msgspec.structs.replace(settings, offers_per_user=1, offer=offer)
        elif daemon.dry_run:
            raise RefusedError("a dry run makes no promises, so nothing can be held")
        request = self.described(question, now)
        admission = AdmissionController(daemon.policy.queries, settings, daemon.wording)
        result = admission.judge(self.site, request.submission, now)
        return Judged(question, self, request, admission, result, now)

    @property
    def _likely(self) -> LikelyController:
        """Who judges whether a job may have odds."""
        daemon = self.daemon
        live = daemon.policy.live
        return LikelyController(daemon.policy.queries, live.daemon, live.likely, daemon.wording)

    def with_odds(self, judged: Judged) -> Rejected | None:
        """Return a rejected job whose odds matter; None: they do not, or it may have none."""
        searched = judged.question.deadline is not None and judged.admission.settings.menu_ms
        if self.daemon.odds is None or not searched:
            return None
        request, now = judged.request, judged.now
        job = odds_question(judged.result, self._likely, self.site, request, now)
        return Rejected(judged, job) if job is not None else None

    def report(self, judged: Judged, odds: Odds | None = None) -> questions.FeasibleReport:
        """Return what a job that nobody submits could have."""
        return self._chosen(judged, odds)[1]

    def holding(self, judged: Judged, odds: Odds | None = None) -> Holding:
        """Return what is to be held for the user of a job that nobody submits."""
        result, report = self._chosen(judged, odds)
        if result.verdict == "admit":  # nobody submits it
            result = AdmissionResult(self.site, result.reply)
        elif result.menu is not None:
            choices = self._menu(result.menu, result.site)
            report = msgspec.structs.replace(report, choices=choices, expires=result.menu.expires)
        return Holding(judged.question, self.site, result, report, odds)

    def choices(self) -> questions.ChoicesReport:
        """Return what is held for the user's last rejected job, if it can still be taken."""
        daemon, now = self.daemon, self.daemon.clock()
        menu, system = present(daemon.menus, self.site, self.uid, now), daemon.policy.live.daemon
        if menu is None:
            return questions.ChoicesReport(now, system=system.system)
        choices = self._menu(menu, self.site)
        return questions.ChoicesReport(now, menu.expires, system.system, choices)

    def _menu(self, menu: Menu, site: Site | None) -> tuple[questions.Choice, ...]:
        """Return a menu as its user sees it; `site`: which holds it, None: nothing does."""
        return tuple(
            questions.Choice(
                number=number,
                kind=choice.kind,
                text=choice.text,
                deadline=choice.deadline,
                start=finite(choice.start),
                end=finite(choice.end),
                nodes=self._names(choice.nodes),
                options=choice.options,
                take=self.daemon.translator.taking.format(number),
                held=site is not None and choice.reserved and choice.promise in site.promises,
                odds=choice.odds,
            )
            for number, choice in enumerate(menu.choices, 1)
        )

    def _chosen(
        self, case: Judged, odds: Odds | None
    ) -> tuple[AdmissionResult, questions.FeasibleReport]:
        """Return what came of a job that nobody submits, with its menu, and the report of that."""
        daemon, question, now = self.daemon, case.question, case.now
        admission, request = case.admission, case.request
        searched = question.deadline is not None and admission.settings.menu_ms
        allowance = Allowance(tries=TRIES if searched else 0)
        judged = with_menu(admission, self.site, case.result, request, now, allowance)
        if odds is not None:
            judged = with_odds(judged, self.site, request, now, self._likely, odds)
        reasons = tuple(
            questions.Reason(f.reason.code, messages.sentence(f, daemon.wording))
            for f in (judged.judgement.verdicts.findings if judged.judgement else ())
        )
        planned = _planned(judged)
        if planned is None:
            text = judged.reply.text or f"{messages.PREFIX}no planner evaluates such a job"
            reasons = reasons or (questions.Reason("", text),)
            choices = self._menu(judged.menu, None) if judged.menu is not None else ()
            return judged, questions.FeasibleReport(
                now=now, feasible=False, reasons=reasons, choices=choices
            )
        deadline, start, end, nodes = planned
        menu = judged.menu if question.deadline is not None else None
        return judged, questions.FeasibleReport(
            now=now,
            feasible=judged.verdict == "admit" or question.deadline is None,
            deadline=deadline,
            start=start,
            end=end,
            nodes=self._names(nodes),
            asking=daemon.translator.asking(deadline),
            reasons=reasons if question.deadline is not None else (),
            choices=self._menu(menu, None) if menu is not None else (),
        )

    def described(self, question: questions.Feasible, now: float) -> Request:
        """Return a job that nobody submits as the submit filter would describe it.

        Raises
        ------
        RtschedError
            If it makes no sense, or the batch system does not answer now.
        """
        daemon = self.daemon
        age = now - self.site.seen
        if age > daemon.policy.live.daemon.stale or self.site.facts is None:
            raise RefusedError(
                f"the last poll of the batch system was {age:.0f} s ago; try again later",
                "unavailable",
            )
        wanted = question.deadline if question.deadline is not None else math.floor(now) + 1.0
        fields = daemon.translator.fields_of(_as_question(question, self.uid, wanted))
        submission = daemon.translator.describe(fields, self.site.facts, now)
        if submission.problem:
            raise RtschedError(submission.problem)
        return Request(daemon.translator, fields, submission)


def _planned(judged: AdmissionResult) -> tuple[float, float, float, tuple[int, ...]] | None:
    """Return deadline, start, end and rows of nodes of what could be promised; None: nothing."""
    for promise in judged.changed:
        if promise.state in {"offered", "provisional"}:
            plan = judged.site.snapshot.plan
            entry = entry_of(plan, promise.id)
            return promise.deadline, *plan.span_of(entry), tuple(plan.nodes_of(entry).tolist())
    for choice in judged.menu.choices if judged.menu is not None else ():
        if choice.kind == "later":  # nothing is held for a user who left too many offers unused
            return choice.deadline, choice.start, choice.end, choice.nodes
    return None


def _as_question(q: questions.Feasible, uid: int, deadline: float) -> FeasibilityRequest:
    """Return a question as the translator takes it."""
    load = {name: value for name in LOAD if (value := getattr(q, name)) is not None}
    names = {field.name for field in fields(FeasibilityRequest)} - {"deadline"}
    asked = {name: getattr(q, name) for name in names.intersection(q.__struct_fields__)}
    return FeasibilityRequest(uid=uid, deadline=deadline, load=load, **asked)
