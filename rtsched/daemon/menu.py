"""The menu: what a rejected job could have instead, each judged as a submission, none dominated.

A choice changes one thing that its user asked for: the deadline, the nodes, the time limit, the
GPUs on each node, their type, or the partition; and the deadline too where it cannot be met
otherwise. Each is admitted by the same judge as submissions are, on the site as it is. The search
halves what it does not know, takes the kinds in turn, and so may be stopped at any time. Less is
not always easier to plan: what halving left out above the best that it found is tried at last. Of
each kind the choice closest to what was asked for is shown.

Where the site sells likely promises, the job as it is with odds is a choice too: by the deadline
asked for, or by a later one that still comes before the guaranteed one. After a request for odds
the choices are guaranteed ones and other odds. A guarantee is never dominated by odds.

One choice is held for its user, and others beside it where there is room; a choice that could run
in the place of a held one is held by that. Whichever of these the user submits within the time is
promised its deadline; the others are not reserved, nor are held ones that would keep a job from
starting that could start now. All that were held at one instant are one menu:
they have the same `made_at`, count as one offer, and are given up together once one of the menu is
taken.
"""

from __future__ import annotations

import math
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from rtsched.adapters.live import Adjustment
from rtsched.daemon.changed_requests import (
    Search,
    amounts,
    efficient,
    left_out,
    most,
    one_by_one,
    what,
)
from rtsched.daemon.likely import Odds, stated_odds
from rtsched.daemon.offers import in_the_way, lapsed, same_request
from rtsched.daemon.questions import ChoiceKind
from rtsched.daemon.site import entry_of
from rtsched.errors import RtschedError
from rtsched.model.jobs import Kind
from rtsched.text import moment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rtsched.adapters.live import Submission, Translator
    from rtsched.daemon.admission import AdmissionController, AdmissionResult
    from rtsched.daemon.likely import LikelyController
    from rtsched.daemon.promises import Promise
    from rtsched.daemon.site import Site
    from rtsched.model.schedule import Schedule

MOST_CHOICES = 5
"""Choices of a menu at most."""

IN_TEXT = 3
"""Lines for choices in the text that a user reads at the prompt, beside the later deadline."""

MOST_HELD = 3
"""Choices of a menu that are held, at most."""

ROOM_HELD = 2.0
"""How many times the node-seconds asked for all held choices may take together."""

ALONE: tuple[ChoiceKind, ...] = ("later", "shorter")
"""Kinds that are not tried with a later deadline beside."""

ODDS = 0.95
"""With which odds a later deadline is offered to who asked for a guarantee, or the lowest sold."""

WORTH = 5.0
"""One per cent of odds counts as much as so many per cent of anything else that is given up."""

TRIES = 60
"""Requests that are judged for a menu at most, however much time there is."""


@dataclass(frozen=True)
class Choice:
    """What a rejected job could have instead.

    Attributes
    ----------
    kind : str
        What is changed first of all, a `ChoiceKind`.
    to : Adjustment
        How the request is changed; with the deadline.
    job : Submission
        The job that asks for that.
    start, end : float
        Planned, seconds since the epoch; nan with odds.
    nodes : tuple of int
        Rows of the planned nodes; none with odds.
    options : tuple of str
        By which its user asks for it on a command line.
    text : str
        What it is, for its user; without the time by which it ends.
    promise : int
        Id of the offer that holds it, its own or one in whose place it could run; -1: none does,
        it is only as of now.
    odds : float or None
        Odds, 0 to 1, that its user asks for and that it has now; None: it is guaranteed.
    reserved : bool
        Whether nobody else may have the place of an offer that holds it.
    """

    kind: ChoiceKind
    to: Adjustment
    job: Submission
    start: float
    end: float
    nodes: tuple[int, ...]
    options: tuple[str, ...]
    text: str
    promise: int = -1
    odds: float | None = None
    reserved: bool = True

    @property
    def deadline(self) -> float:
        """By when it would be promised to end, seconds since the epoch."""
        return float(self.job.jobs.deadline[0])


@dataclass(frozen=True)
class Menu:
    """The choices of a user.

    Attributes
    ----------
    made_at, expires : float
        Seconds since the epoch; `expires` where none is held: as long as one would be.
    choices : tuple of Choice
        Closest to what was asked for first; the later deadline before all.
    """

    made_at: float
    expires: float
    choices: tuple[Choice, ...]


@dataclass(frozen=True)
class Request:
    """A submit request, as the batch system's filter sent it.

    Attributes
    ----------
    translator : Translator
        The batch system's.
    fields : mapping of int to str or int
        What the filter sent.
    submission : Submission
        What that means.
    """

    translator: Translator
    fields: Mapping[int, str | int]
    submission: Submission


@dataclass
class Allowance:
    """How much may be spent on the search for a menu.

    Parameters
    ----------
    seconds : float
        Of a clock, from now on.
    tries : int
        Requests to judge.
    hurry : callable
        Returns whether somebody waits for this search to end.
    """

    seconds: float = math.inf
    tries: int = TRIES
    hurry: Callable[[], bool] = field(default=lambda: False)
    clock: Callable[[], float] = time.perf_counter

    def __post_init__(self) -> None:
        self._until = self.clock() + self.seconds

    def left(self) -> float:
        """Return for how many seconds more it may be searched; 0 if somebody waits for its end."""
        return 0.0 if self.hurry() else max(self._until - self.clock(), 0.0)

    def spent(self) -> bool:
        """Return whether no further request may be judged; count one if it may."""
        if self.tries <= 0 or self.left() <= 0.0:
            return True
        self.tries -= 1
        return False


def asking(controller: LikelyController, job: Submission) -> Submission:
    """Return the job as one that asks for odds; one that does already is the same."""
    if math.isfinite(job.odds):
        return job
    return replace(job, odds=max(ODDS, controller.likely.odds_least / 100.0))


def odds_question(
    judged: AdmissionResult, controller: LikelyController, site: Site, request: Request, now: float
) -> Submission | None:
    """Return the job of which the odds matter for a menu, as `asking`; None: there are no choices.

    Parameters
    ----------
    judged : AdmissionResult
        What the request came to.
    controller : LikelyController
        Who accepts what has odds.
    site : Site
        As it is.
    request : Request
        The job as it was asked for.
    now : float
        Seconds since the epoch.
    """
    if not has_menu(judged):
        return None
    job = asking(controller, request.submission)
    return job if controller.refused(site, job, now) is None else None


@dataclass(frozen=True)
class _Tried:
    """A request that was judged: what came of it."""

    kind: ChoiceKind
    to: Adjustment
    job: Submission
    result: AdmissionResult

    @property
    def admitted(self) -> bool:
        return self.result.verdict == "admit"

    @property
    def planned(self) -> tuple[Promise, Schedule, int]:
        """What an admitted one would be promised, the plan that has it, and its entry there."""
        promise = next(r for r in self.result.changed if r.state in {"offered", "provisional"})
        plan = self.result.site.snapshot.plan
        return promise, plan, entry_of(plan, promise.id)


def with_menu(
    admission: AdmissionController,
    site: Site,
    judged: AdmissionResult,
    request: Request,
    now: float,
    allowance: Allowance,
    before: Menu | None = None,
) -> AdmissionResult:
    """Return what the admission of a job came to, with the guaranteed choices of a rejected one.

    A rejected one that could have nothing else leaves what its user was offered before. An admitted
    one that was on its user's menu closes that.

    Parameters
    ----------
    admission : AdmissionController
        Which judges jobs that ask for a guarantee.
    site : Site
        On which it did.
    judged : AdmissionResult
        What came of it.
    request : Request
        The job as it was asked for.
    now : float
        Seconds since the epoch.
    allowance : Allowance
        How much may be spent.
    before : Menu, optional
        What its user was offered before.
    """
    if judged.verdict == "admit":
        return _closed(judged, before, request.submission, now)
    if not has_menu(judged):
        return judged
    finder = _Finder(admission, site, request, now, allowance)
    base, choices = finder.choices(judged)
    if not choices:
        return replace(judged, site=site, changed=())
    after, choices, changed = finder.held(base, choices)
    menu = Menu(now, now + admission.settings.offer, tuple(choices))
    return replace(judged, site=after, changed=(*base.changed, *changed), menu=menu)


def with_odds(
    judged: AdmissionResult,
    site: Site,
    request: Request,
    now: float,
    controller: LikelyController,
    odds: Odds,
) -> AdmissionResult:
    """Return what the admission of a rejected job came to, with its choices with odds too.

    Nothing is held for them: the site after it is the same.

    Parameters
    ----------
    judged : AdmissionResult
        From `with_menu`.
    site : Site
        As it is.
    request : Request
        The job as it was asked for.
    now : float
        Seconds since the epoch.
    controller : LikelyController
        Who accepts what has odds.
    odds : Odds
        Of the job as `asking` returns it.
    """
    guaranteed = judged.menu.choices if judged.menu is not None else ()
    if not has_menu(judged) or any(each.kind == "guaranteed" for each in guaranteed):
        return judged
    asked = _Asked(site, request, now)
    likely = _likely(asked, controller, odds)
    if not likely:
        return judged
    expires = now + controller.settings.offer
    menu = judged.menu if judged.menu is not None else Menu(now, expires, ())
    choices = asked.shown([*guaranteed, *likely])
    return replace(judged, menu=replace(menu, choices=tuple(choices)))


def with_lines(judged: AdmissionResult, request: Request, now: float) -> AdmissionResult:
    """Return what an admission came to, with a line for each choice in the text for the user.

    But for the later deadline, which that names already.
    """
    if judged.verdict != "reject" or judged.menu is None:
        return judged
    named = _named(request)
    text = _text(judged.reply.text, judged.menu, request.translator.taking, now, named)
    return replace(judged, reply=replace(judged.reply, text=text))


def has_menu(judged: AdmissionResult) -> bool:
    """Return whether a job was rejected for what could be otherwise.

    Where there is no estimate, its user is to submit it again in a minute.
    """
    codes = [code for code in judged.codes if code.startswith("likely.")]
    by_odds = bool(codes) and codes != ["likely.no-estimate"]
    return judged.verdict == "reject" and (by_odds or judged.judgement is not None)


def present(menus: Mapping[int, Menu], site: Site, uid: int, now: float) -> Menu | None:
    """Return a user's menu; None: there is none any more. What was lost is held no longer."""
    menu = menus.get(uid)
    if menu is None or menu.expires <= now:
        return None
    choices = (c if c.promise in site.promises else replace(c, promise=-1) for c in menu.choices)
    return replace(menu, choices=tuple(choices))


def remember(menus: dict[int, Menu], uid: int, menu: Menu | None, now: float) -> None:
    """Put a user's new menu, if there is one, in place of the last; forget those that ended."""
    if menu is None:
        return
    menus[uid] = menu
    for other in [each for each, kept in menus.items() if kept.expires <= now]:
        del menus[other]


def _closed(
    judged: AdmissionResult, menu: Menu | None, submission: Submission, now: float
) -> AdmissionResult:
    """Give up a menu from which its user has taken a choice; it counts as used."""
    if menu is None or menu.expires <= now:
        return judged
    odds = math.isfinite(submission.odds)
    taken = any(
        odds == (choice.odds is not None)
        and same_request(choice.job.jobs, submission.jobs)
        and submission.jobs.deadline[0] >= choice.deadline
        for choice in menu.choices
    )
    if not taken:
        return judged
    after = judged.site
    others = [r for r in after.of_user(submission.uid, "offered") if r.made_at == menu.made_at]
    after = after.without(promise.id for promise in others)
    gone = tuple(lapsed(promise, "another choice was taken", now) for promise in others)
    ended = Menu(menu.made_at, now, ())
    return replace(judged, site=after, changed=(*judged.changed, *gone), menu=ended)


def _named(request: Request) -> ChoiceKind:
    """Return of which kind the choice is that the text of a rejection names."""
    return "likely-later" if math.isfinite(request.submission.odds) else "later"


def _likely(asked: _Asked, controller: LikelyController, odds: Odds) -> list[Choice]:
    """Return the job as it is with odds: by the deadline asked for, and by a later one.

    Each is accepted if its user asks for it: that is judged by the same odds.
    """
    level, least = asked.site.likely.level, controller.likely.odds_least / 100.0
    wanted = asking(controller, asked.request.submission).odds
    could: list[tuple[ChoiceKind, float, float]] = [
        ("likely", asked.deadline, stated_odds(odds.raw, level, least)),
        ("likely-later", odds.offer, wanted),
    ]
    found = list[_Tried]()
    for kind, deadline, stated in could:
        if math.isfinite(deadline) and math.isfinite(stated):
            to = Adjustment(deadline=deadline, odds=stated)
            job = asked.job(to)
            judged = controller.judge(asked.site, job, Odds(stated), asked.now)
            found.append(_Tried(kind, to, job, judged))
    return [asked.choice(each) for each in found if each.admitted]


class _Asked:
    """A rejected request, and how far others are from it."""

    def __init__(self, site: Site, request: Request, now: float) -> None:
        self.site, self.request, self.now = site, request, now
        self.asks_odds = math.isfinite(request.submission.odds)
        self.asked = request.translator.adjustable(request.fields, request.submission, site.facts)
        self.deadline = float(request.submission.jobs.deadline[0])
        self.rigid = request.submission.jobs.kind[0] == Kind.RIGID

    def job(self, to: Adjustment) -> Submission:
        """Return the job that asks for something else."""
        translator, fields = self.request.translator, self.request.fields
        job = translator.describe(translator.adjusted(fields, to), self.site.facts, self.now)
        return replace(job, job=-1)

    def shown(self, choices: Sequence[Choice]) -> list[Choice]:
        """Return those that are efficient, the closest of each kind; closest first.

        The one that the text names is before all. None that is held is left out.
        """
        if not choices:
            return []
        costs = np.array([self.cost(each.to) for each in choices])
        kept = [choices[row] for row in np.flatnonzero(efficient(costs)).tolist()]
        named = _named(self.request)
        kept.sort(key=lambda each: (each.kind != named, float(self.far(each.to))))
        closest = {each.kind: each for each in reversed(kept)}
        shown = [each for each in kept if closest[each.kind] is each]
        further = [each for each in reversed(shown) if each.promise < 0]
        left_out = {each.kind for each in further[: max(len(shown) - MOST_CHOICES, 0)]}
        return [each for each in shown if each.kind not in left_out]

    def cost(self, to: Adjustment) -> tuple[float, ...]:
        """Return what a request gives up of what was asked for, thing by thing; 0: nothing."""
        asked = self.asked
        return (
            0.0 if to.deadline is None else max(to.deadline - self.deadline, 0.0),
            0.0 if to.nodes is None else asked.nodes - to.nodes,
            0.0 if to.limit_s is None else max(asked.limit_s - to.limit_s, 0.0),
            0.0 if to.gpus is None else asked.gpus - to.gpus,
            float(to.gpu_type is not None),
            float(to.partition is not None),
            max(self._work(Adjustment()) - self._work(to), 0.0),
            0.0 if to.odds is None else 1.0 - to.odds,
        )

    def _work(self, to: Adjustment) -> float:
        """Return the node-seconds of a request; 0 where it has no time limit."""
        nodes = self.asked.nodes if to.nodes is None else to.nodes
        limit_s = self.asked.limit_s if to.limit_s is None else to.limit_s
        return nodes * limit_s if math.isfinite(limit_s) else 0.0

    def far(self, to: Adjustment) -> float:
        """Return how far a request is from what was asked for: the sum of relative changes."""
        late, nodes, limit, gpus, kind, partition, _, odds = self.cost(to)
        left = max(self.deadline - self.now, 1.0)
        limit_s = self.asked.limit_s if math.isfinite(self.asked.limit_s) else 1.0
        more = 1.0 - self.request.submission.odds if self.asks_odds else 0.0
        parts = (
            late / left,
            nodes / self.asked.nodes,
            limit / limit_s,
            WORTH * max(odds - more, 0.0),
        )
        return sum(parts) + gpus / max(self.asked.gpus, 1) + 0.5 * (kind + partition)

    def choice(self, tried: _Tried) -> Choice:
        """Return what was judged, as a choice."""
        to, options = tried.to, self.request.translator.options
        if to.odds is not None and to.odds < 1.0:
            return Choice(
                kind=tried.kind,
                to=to,
                job=tried.job,
                start=math.nan,
                end=math.nan,
                nodes=(),
                options=options(self.request.fields, to),
                text=what(to, self.asked),
                odds=to.odds,
            )
        promise, plan, entry = tried.planned
        to = to._replace(deadline=promise.deadline)
        row = tried.job.jobs.replace(deadline=np.array([promise.deadline]))
        return Choice(
            kind=tried.kind,
            to=to,
            job=replace(tried.job, jobs=row),
            start=float(plan.entries.start[entry]),
            end=float(plan.entries.end[entry]),
            nodes=tuple(plan.nodes_of(entry).tolist()),
            options=options(self.request.fields, to),
            text=what(to, self.asked),
        )


class _Finder(_Asked):
    """Searches the guaranteed choices of one rejected request."""

    def __init__(
        self,
        admission: AdmissionController,
        site: Site,
        request: Request,
        now: float,
        allowance: Allowance,
    ) -> None:
        offered = site.of_user(request.submission.uid, "offered")
        super().__init__(site.without(promise.id for promise in offered), request, now)
        self.silent = replace(admission, names_offers=False)
        self.admission, self.whole, self.allowance = admission, site, allowance

    def choices(self, judged: AdmissionResult) -> tuple[AdmissionResult, list[Choice]]:
        """Return the guaranteed choices that are efficient, closest to what was asked for first.

        And the rejection beside which they may be held: of the job that asks for a guarantee.
        """
        base, tried = judged, list[_Tried]()
        if self.asks_odds:
            base, tried = self._guaranteed(judged)
        if not tried and base.judgement is not None and base.verdict == "reject":
            tried = self._searched(base)
        return base, self.shown([self.choice(each) for each in tried if each.admitted])

    def _searched(self, judged: AdmissionResult) -> list[_Tried]:
        """Return the guaranteed requests that were judged in place of a rejected one."""
        tried = [self._later(judged)] if math.isfinite(judged.offer) else []
        latest = judged.offer
        tried += self._in_turn(self._searches(tried))
        tried += self._with_both(tried, latest)
        tried += self._in_turn(self._left_out(tried))
        in_time = {each.kind for each in tried if each.admitted and not self._is_later(each.to)}
        return [each for each in tried if not (self._is_later(each.to) and each.kind in in_time)]

    def _in_turn(self, begun: Sequence[tuple[ChoiceKind, Search]]) -> list[_Tried]:
        """Judge what searches ask for, one request of each in turn, until no more may be spent."""
        firsts = ((kind, search, next(search, None)) for kind, search in begun)
        searches = [(kind, search, to) for kind, search, to in firsts if to is not None]
        tried = list[_Tried]()
        while searches:
            kind, search, to = searches.pop(0)
            found = self._try(kind, to)
            if found is None:
                break
            tried.append(found)
            with suppress(StopIteration):
                searches.append((kind, search, search.send(found.admitted)))
        return tried

    def _guaranteed(self, judged: AdmissionResult) -> tuple[AdmissionResult, list[_Tried]]:
        """Return what a guarantee for a job that asked for odds comes to.

        That is the rejection of it, or the choice of it; neither: that is not known.
        """
        if self.allowance.spent():
            return judged, []
        to = Adjustment(deadline=self.deadline, odds=1.0)
        job = self.job(to)
        result = self.admission.judge(self.site, job, self.now)
        gone = self.whole.of_user(job.uid, "offered")
        if result.verdict == "admit":
            found, kept = [_Tried("guaranteed", to, job, result)], self.site
        elif result.verdict == "reject" and result.judgement is not None:
            found, kept = [], result.site
        else:
            return judged, []
        kept = kept.left_unused(gone, self.now) if gone else kept
        why = "replaced by another one"
        changed = [lapsed(promise, why, self.now) for promise in gone]
        if not found:
            changed += result.changed
        return replace(result, site=kept, changed=tuple(changed)), found

    def held(
        self, judged: AdmissionResult, choices: list[Choice]
    ) -> tuple[Site, list[Choice], tuple[Promise, ...]]:
        """Return the site with choices held beside one another, as far as there is room."""
        site, kept = judged.site, list[Choice]()
        changed: list[Promise] = []
        offered = [r for r in judged.changed if r.state == "offered"]
        may = self.admission.may_hold(self.site, self.request.submission.uid, self.now)
        size = int(self.request.submission.jobs.size[0])
        room = ROOM_HELD * max(size, 1) * float(self.request.submission.jobs.wall_time[0])
        for choice in choices:
            extent = len(choice.nodes) * (choice.end - choice.start)
            if choice.odds is not None:
                kept.append(choice)
                continue
            if choice.kind == "later":
                promise = offered[0] if offered else None
            elif (by := self._covering(choice, kept)) is not None:
                kept.append(replace(choice, promise=by.promise))
                continue
            elif may and len(changed) + len(offered) < MOST_HELD and not extent > room:
                site, promise = self._hold(site, choice)
                changed += [promise] if promise is not None else []
            else:
                promise = None
            room -= extent if promise is not None else 0.0
            kept.append(choice if promise is None else replace(choice, promise=promise.id))
        loose = in_the_way(site, self.now)
        kept = [replace(choice, reserved=choice.promise not in loose) for choice in kept]
        return site, kept, tuple(changed)

    def _covering(self, choice: Choice, held: Sequence[Choice]) -> Choice | None:
        """Return a held choice in whose place another could run, wherever that is planned.

        The held one starts early enough to end by its deadline; the other one, which asks for
        nothing more and is as much shorter, then ends by its own.
        """
        for one in held:
            if one.promise < 0:
                continue
            latest = one.deadline - (one.end - one.start)
            less = max(0.0, *self._more(choice.to, one.to)) == 0.0
            in_time = latest + (choice.end - choice.start) <= choice.deadline
            if self.rigid and less and in_time:
                return one
        return None

    def _more(self, one: Adjustment, other: Adjustment) -> tuple[float, ...]:
        """Return of what one request asks for more than another, or for something else."""
        nodes, limit_s, gpus = self.asked.nodes, self.asked.limit_s, self.asked.gpus
        return (
            (one.nodes or nodes) - (other.nodes or nodes),
            float((one.limit_s or limit_s) > (other.limit_s or limit_s)),
            (one.gpus or gpus) - (other.gpus or gpus),
            float(one.gpu_type != other.gpu_type),
            float(one.partition != other.partition),
        )

    def _hold(self, site: Site, choice: Choice) -> tuple[Site, Promise | None]:
        """Return the site with a choice held beside what is held; unchanged where it cannot be."""
        try:
            result = self.silent.judge(site, choice.job, self.now)
        except RtschedError:
            return site, None
        made = [r for r in result.changed if r.state == "provisional"]
        if not made or site.promises.keys() - result.site.promises.keys():
            return site, None
        expires = self.now + self.admission.settings.offer
        promise = msgspec.structs.replace(
            made[0], state="offered", expires=expires, made_at=self.now
        )
        links = result.site.links
        row, own = result.site.row(promise.id), links.take(links.after == promise.id)
        return site.with_promise(promise, row, own, result.site.snapshot.plan), promise

    # --- the search ----------------------------------------------------------------------------

    def _searches(self, later: Sequence[_Tried]) -> list[tuple[ChoiceKind, Search]]:
        """Return the searches of all kinds.

        Where it could start with a later deadline, a shorter job may end by the one asked for.
        """
        asked, steps = self.asked, 0
        for _, plan, entry in (each.planned for each in later if each.admitted):
            left = self.deadline - float(plan.entries.start[entry])
            steps = max(math.floor(left / asked.step_s), 0)
        return [
            *(
                (kind, most(amount, asked, steps if kind == "shorter" else 0))
                for kind, amount in amounts(asked).items()
            ),
            ("partition", one_by_one([Adjustment(partition=n) for n in asked.partitions])),
            ("gpu-type", one_by_one([Adjustment(gpu_type=n) for n in asked.gpu_types])),
        ]

    def _left_out(self, tried: Sequence[_Tried]) -> list[tuple[ChoiceKind, Search]]:
        """Return searches of what halving left out above the best that it found."""
        found = list[tuple[ChoiceKind, Search]]()
        for kind, amount in amounts(self.asked).items():
            known = dict[int, bool]()
            for each in tried:
                if each.kind == kind and not self._is_later(each.to):
                    number = amount.number(each.to)
                    known[number] = known.get(number, False) or each.admitted
            found.append((kind, left_out(amount, self.asked, known)))
        return found

    def _is_later(self, to: Adjustment) -> bool:
        return to.deadline is not None and to.deadline > self.deadline

    def _try(self, kind: ChoiceKind, to: Adjustment) -> _Tried | None:
        """Judge a changed request; None: no more may be spent."""
        if self.allowance.spent():
            return None
        to = self._certain(to)
        job = self.job(to if to.deadline is not None else to._replace(deadline=self.deadline))
        return _Tried(kind, to, job, self.silent.judge(self.site, job, self.now))

    def _certain(self, to: Adjustment) -> Adjustment:
        """Return a change with which the request asks for a guarantee."""
        return to._replace(odds=1.0) if self.asks_odds else to

    def _later(self, judged: AdmissionResult) -> _Tried:
        """Return the deadline that was offered, as it is held, or judged again."""
        to = self._certain(Adjustment(deadline=judged.offer))
        job = self.job(to)
        held = [r for r in judged.changed if r.state == "offered"]
        if held:
            result = replace(judged, verdict="admit", changed=tuple(held))
        else:
            result = self.silent.judge(self.site, job, self.now)
        return _Tried("later", to, job, result)

    def _with_both(self, tried: Sequence[_Tried], latest: float) -> list[_Tried]:
        """Return, of each kind that cannot meet the deadline, one that is later too, and judged.

        It is late by half as much, at the most, as with the deadline alone changed.
        """
        found, latest = [], self.deadline + (latest - self.deadline) / 2.0
        for kind in dict.fromkeys(each.kind for each in tried if each.kind not in ALONE):
            mine = [each for each in tried if each.kind == kind]
            if any(each.admitted for each in mine):
                continue
            offers = [
                each.to._replace(deadline=math.ceil(each.result.offer / 60.0) * 60.0)
                for each in mine
                if each.result.offer <= latest and math.isfinite(each.result.offer)
            ]
            for to in sorted(offers, key=self.far)[:1]:
                judged = self._try(kind, to)
                found += [judged] if judged is not None else []
        return found


def _text(text: str, menu: Menu, taking: str, now: float, named: ChoiceKind) -> str:
    """Return a rejection with the menu: a line for each choice but the one `named` in it."""
    lines = [text]
    for number, choice in enumerate(menu.choices, 1):
        if choice.kind == named or len(lines) > IN_TEXT:
            continue
        by, reserved = moment(choice.deadline, now), choice.promise >= 0 and choice.reserved
        held = "reserved" if reserved and choice.odds is None else "not reserved"
        lines.append(f"or `{taking.format(number)}`: {choice.text}, by {by}, {held}")
    return "\n".join(lines)
