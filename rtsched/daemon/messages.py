"""Messages to users, and the reason codes of the daemon itself; these are stable."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rtsched.adapters.live import FIRST_OWN_ID
from rtsched.model.limits import JOBS, minute_of
from rtsched.model.resources import CPU, MEMORY
from rtsched.model.verdicts import Verdict
from rtsched.text import counted, moment, per_cent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rtsched.core.chain import Judgement
    from rtsched.daemon.likely import Odds
    from rtsched.daemon.promises import Promise
    from rtsched.daemon.used_time import UsedUp
    from rtsched.model.verdicts import Finding

_NUMBERED = re.compile(r"(job|task) (\d+)")
WOULD = {Verdict.ADMIT: "admit", Verdict.DEFER: "put off", Verdict.REJECT: "reject"}
PREFIX = "rtsched: "
SUSPENDED = "the job is suspended"
NO_PLACE = (
    "no nodes are known on which the job could end in time; it is planned again at every poll"
)
ITS_USER = "its user"
"""Who cancels a promise, unless it is an admin."""

LONGEST = 900
"""Characters of a message at most; the batch system shows one line."""


@dataclass(frozen=True)
class Wording:
    """The batch system's words.

    Attributes
    ----------
    asking : callable
        From a deadline, seconds since the epoch, to how a user asks for it.
    name_of : callable
        From a job's id to its name.
    afterwards : str
        What becomes of a job whose promise broke.
    begin : str
        By what a user says when a job may begin.
    """

    asking: Callable[[float], str]
    name_of: Callable[[int], str]
    afterwards: str = "the job runs as best effort"
    begin: str = "its begin time"


def fixed(name: str, deadline: float, what: str, now: float) -> str:
    """Return what who changes a promised job reads, when that cannot be."""
    when = moment(deadline, now)
    return (
        f"{PREFIX}job {name} was promised to end by {when}; {what} cannot be changed. Cancel the "
        "job and submit it again"
    )


def promised(
    deadline: float, start: float, size: int, now: float | None, *, at_once: bool = False
) -> str:
    """Return what a user reads whose job was promised its deadline; `at_once`: it can start now.

    Without `now`, it is to be read at any time later.
    """
    when = "now" if at_once else f"at {moment(start, now)}"
    return f"{promised_by(deadline, now)}; planned to start {when} on {counted(size, 'node')}"


def promised_by(deadline: float, now: float | None = None) -> str:
    """Return the same without a plan."""
    return f"{PREFIX}promised to end by {moment(deadline, now)}"


def would_be(text: str) -> str:
    """Return what a user reads who asks what would become of a job, where `text` is for others."""
    what = text.removeprefix(PREFIX)
    return f"{PREFIX}would be {what}; no job is submitted, so nothing is promised yet"


def rejected(why: str, offer: float, asking: str, taken: str, now: float) -> str:
    """Return what a user reads whose job was turned away.

    `offer` is the earliest deadline that would be promised, inf if there is none; `asking` how to
    ask for it, empty where that cannot be done any more; `taken` until when, from `offer_for`.
    """
    text = f"{PREFIX}rejected: {why or 'this deadline cannot be promised'}"
    if not math.isfinite(offer):
        return shortened(text)
    how = f" ({asking})" if asking else ""
    return f"{shortened(text)}. Feasible: {moment(offer, now)}{how}{taken}"


def runs_anyway(text: str) -> str:
    """Return what a user reads whose job runs although it cannot be promised its deadline.

    `text` is what its user would read if it were rejected.
    """
    why = text.removeprefix(PREFIX).removeprefix("rejected: ")
    return f"{PREFIX}accepted without a promise, it runs as best effort: {why}"


def offer_for(seconds: float, *, reserved: bool) -> str:
    """Return for how many seconds an offer can be taken, 0: nobody can, as the end of a sentence.

    One that is not reserved is there until others take its place.
    """
    if not seconds:
        return ""
    if reserved:
        return f", reserved for you for {seconds:.0f} s"
    return f", not reserved: submit within {seconds:.0f} s"


def voided(why: str, *, held: bool = False) -> str:
    """Return what a user reads whose job is no longer the one that was promised its deadline."""
    released = " once it is released" if held else ""
    return f"{PREFIX}the promise is void: {why}; the job runs as best effort{released}"


def cancelled(by: str) -> str:
    """Return what a user reads whose promise was cancelled; `by` whom."""
    return f"{PREFIX}the promise was cancelled by {by}; the job goes on as best effort"


def broken(wording: Wording, limit: str | None = None) -> str:
    """Return what a user reads whose promise cannot be kept any more; `limit` if that is why."""
    why = f", since {kept_waiting(limit)}" if limit else ""
    return f"{PREFIX}the promised deadline can no longer be kept{why}; {wording.afterwards}"


def given_up(wording: Wording, limit: str, starts: int) -> str:
    """Return what a user reads whose job missed so many planned starts for a limit."""
    why = did_not_start(limit, starts)
    return f"{PREFIX}the promise is given up: {why}; {wording.afterwards}"


def moved(why: str, start: float, deadline: float, now: float) -> str:
    """Return what a user reads whose job is planned anew for when a limit has room; `why` it is."""
    return (
        f"{PREFIX}{why}; it is now planned to start at {moment(start, now)}, still promised to end "
        f"by {moment(deadline, now)}"
    )


def did_not_start(limit: str, starts: int) -> str:
    """Return that a limit kept a job from several planned starts."""
    return (
        f"the job did not start at {counted(starts, 'planned start')}, since it waits for a limit "
        f"of its account, QOS or partition ({limit})"
    )


def kept_waiting(limit: str) -> str:
    """Return that a limit kept a job from its planned start."""
    return f"the job waits for a limit of its account, QOS or partition ({limit})"


def requeued() -> str:
    """Return what a user reads whose running job was requeued for a promise."""
    return (
        f"{PREFIX}requeued: a job with a promised deadline needs its nodes; it starts again when "
        "there is room"
    )


def begins_again(deadline: float, start: float, now: float, *, lost: bool) -> str:
    """Return what a user reads whose job ran, waits again, and is still promised its deadline.

    `lost`: a node of it was.
    """
    when = "now" if start <= now + 1 else f"at {moment(start, now)}"
    return (
        f"{PREFIX}{'a node of the job was lost; it' if lost else 'the job'} restarts, planned to "
        f"start {when}, still promised to end by {moment(deadline, now)}"
    )


def may_end_late(
    end: float, deadline: float, now: float, *, runs: bool, reserved: bool = False
) -> str:
    """Return what a user reads whose job runs, or is planned to, until `end`, after its deadline.

    All times in seconds since the epoch; inf: it is suspended, or has no place in the plan.
    `reserved`: a reservation of the site delays it.
    """
    if not math.isfinite(end):
        why = SUSPENDED if runs else NO_PLACE
        return f"{PREFIX}at risk: {why}; it is promised to end by {moment(deadline, now)}"
    what = "the job may run until" if runs else "the job is now planned to end by"
    unless = "" if runs else f", {unless_earlier(reserved=reserved)}"
    return (
        f"{PREFIX}at risk: {what} {moment(end, now)}, later than the promised "
        f"{moment(deadline, now)}{unless}"
    )


def unless_earlier(*, reserved: bool) -> str:
    """Return what would let a job that is planned too late end in time."""
    what = "a reservation of the site ends" if reserved else "jobs that run there end"
    return f"unless {what} early"


def in_time_again(deadline: float, now: float) -> str:
    """Return what a user reads whose promise was at risk and no longer is."""
    return f"{PREFIX}the job will end by the promised {moment(deadline, now)} after all"


def within(limits: list[str]) -> str:
    """Return that a job would be promised its deadline but for limits."""
    return f"without {' and '.join(limits)} it could be met"


def limit_is_full(limit: str, until: float, now: float) -> str:
    """Return what a user reads whose job would be planned to run beyond a limit.

    `until`: when the limit has room, seconds since the epoch, as things are; inf: never.
    """
    why = f"{PREFIX}running and promised jobs leave no room for it in {limit}"
    if not math.isfinite(until):
        return f"{why}; use another account or QOS"
    return f"{why}; submit it again from {moment(until, now)} on, or use another account or QOS"


def used_up(used: UsedUp) -> str:
    """Return what a user reads whose job may need more than is left of a limit of used time."""
    minute = minute_of(used.thing)
    needed, left = math.ceil(used.needed / minute), math.floor(used.left / minute)
    names = {JOBS: "minute", CPU: "processor-minute", MEMORY: "MiB-minute"}
    what = counted(needed, names.get(used.thing, f"{used.thing}-minute"))
    return (
        f"{PREFIX}the job may use {what}, and {left:,} are left of {used.text}, beside what "
        "running and promised jobs may use; use a shorter --time, or another account or QOS"
    )


def too_many(most: int) -> str:
    """Return what a user reads who has as many promises as the site allows."""
    return f"{PREFIX}you have reached the limit of {counted(most, 'promise')} per user"


def too_many_unused(wait: float) -> str:
    """Return what a user reads whose promises came to nothing; `wait` in seconds."""
    minutes = max(math.ceil(wait / 60.0), 1)
    return (
        f"{PREFIX}too many promises to you came to nothing in the last hour: no job followed, or "
        f"it was cancelled before it started; try again in {minutes} min"
    )


def over_budget(what: str) -> str:
    """Return what a user reads whose promises take enough of the machine; `what` they do."""
    return f"{PREFIX}{what}; submit again when some of these jobs have ended, or without a deadline"


def unseen(name: str) -> str:
    """Return what a user reads whose job waits for one that no poll has shown yet."""
    return (
        f"{PREFIX}the job is held until it has been evaluated with job {name}, on which it depends "
        "and which no poll has shown yet"
    )


def unverified(what: str) -> str:
    """Return what a user reads of a job with an account or QOS that no poll has shown."""
    return f"{PREFIX}held for a moment: it is evaluated once its {what} has been accepted"


def with_dependencies(planner: str | None) -> str:
    """Return what a user reads whose job waits for others, where the planner ignores that."""
    return (
        f"{PREFIX}a job with dependencies gets no promise here (planner {planner}); submit it "
        "without dependencies or without a deadline"
    )


def put_off(why: str, until: float, now: float) -> str:
    """Return what a user reads whose job waits to be judged."""
    if math.isfinite(until):
        when = moment(until, now)
        return shortened(f"{PREFIX}held until {when}; it will be evaluated then: {why}")
    return shortened(f"{PREFIX}held; it is evaluated again: {why}")


def begins_later(begin: float, how: str, now: float) -> str:
    """Return what a user reads whose job is judged when it may begin; `how` she said when."""
    return f"{PREFIX}held until {moment(begin, now)} ({how}); it will be evaluated then"


def held() -> str:
    """Return what a user reads who submits a job that waits for a release."""
    return f"{PREFIX}held; it is evaluated when it is released, nothing is promised before"


def component() -> str:
    """Return what a user reads of a part of a job that can be judged only as a whole."""
    return f"{PREFIX}the job is held until it has been evaluated with all its components"


def singleton() -> str:
    """Return what a user reads of a job that waits for those of its name, not all known yet."""
    return f"{PREFIX}the job is held until it has been evaluated with the other jobs of its name"


def odds_in_queue() -> str:
    """Return what a user reads whose job asks for odds and was not judged at its submission."""
    return (
        f"{PREFIX}rejected: a promise with odds is given at submission only; submit the job again"
    )


def busy() -> str:
    """Return what a user reads whose job is judged in the next cycle."""
    return f"{PREFIX}held for a moment: it will be accepted or rejected in a few seconds"


def unconfirmed() -> str:
    """Return what a user reads whose job is judged by the next poll: jobs may have started."""
    return (
        f"{PREFIX}held for a moment: other jobs may just have started where it would run; it will "
        "be accepted or rejected in a few seconds"
    )


def store_lost(path: str, found: str) -> str:
    """Return what admins read while the database is gone and cannot be made again."""
    return (
        f"{path} {found}, and cannot be made again; nothing is promised until it is there: put it "
        "back, or make its directory writable for the daemon's user"
    )


def store_renewed(path: str, found: str, now: float, whole: bool) -> str:
    """Return what admins read when the database was made again; `whole`: with all of the past."""
    lost = "" if whole else ", without those that were closed"
    return (
        f"{path} {found}; it was made again at {moment(now, now)} with all open promises{lost}: "
        "find out who or what did that"
    )


def orphans(jobs: Sequence[str]) -> str:
    """Return what admins read of waiting jobs whose promises the database does not know."""
    named = ", ".join(jobs[:5]) + (", ..." if len(jobs) > 5 else "")
    return (
        f"{counted(len(jobs), 'waiting job')} had a promise that the database does not know "
        f"({named}): evaluated again when the daemon started; was the database lost or replaced?"
    )


def promised_again(deadline: float, now: float) -> str:
    """Return what a user reads whose job has its promise again, of which the record was lost."""
    return f"{PREFIX}promised again to end by {moment(deadline, now)}"


def lost_promise() -> str:
    """Return what a user reads whose job's promise was lost, and cannot be given again."""
    return (
        f"{PREFIX}the record of this job's promise was lost, and its deadline can no longer be "
        "promised; the job runs as best effort"
    )


def likely_by(deadline: float, odds: float, now: float | None) -> str:
    """Return what a user reads whose job was given a likely promise, as `promised`."""
    return (
        f"{PREFIX}likely to end by {moment(deadline, now)}: odds {per_cent(odds)} by "
        "estimated run times; not guaranteed"
    )


def too_unlikely(asked: float, odds: Odds, asking: str, now: float) -> str:
    """Return what a user reads whose deadline has lower odds than asked for."""
    text = (
        f"{PREFIX}rejected: the odds of ending by this deadline are "
        f"{per_cent(odds.known)}, {per_cent(asked)} were asked for"
    )
    if not math.isfinite(odds.offer):
        return f"{text}, and no later deadline is known to have them"
    when = moment(odds.offer, now)
    return f"{text}. With odds of {per_cent(asked)}: {when} ({asking}), not reserved"


def low_odds(asked: float, least: float) -> str:
    """Return what a user reads who asks for lower odds than the site sells."""
    return (
        f"{PREFIX}rejected: odds of {per_cent(asked)} were asked for, the lowest here "
        f"are {per_cent(least)}"
    )


def no_estimate() -> str:
    """Return what a user reads whose odds nobody could tell."""
    return (
        f"{PREFIX}rejected: there is no estimate of it now, so no odds can be stated; "
        "submit it again in a minute, or without odds"
    )


def plan_updating() -> str:
    """Return what a user reads whose job came while the plan was updated."""
    return (
        f"{PREFIX}rejected: the plan is being updated, so no odds can be stated; "
        "submit it again in some seconds, or without odds"
    )


def without_estimate() -> str:
    """Return what a user reads whose job is accepted without the odds that it asks for."""
    return (
        f"{PREFIX}accepted without a promise: there is no estimate of it now, so no odds "
        "can be stated"
    )


def sold_out(share: float) -> str:
    """Return what a user reads when enough is promised with odds."""
    return (
        f"{PREFIX}rejected: promises with odds would take more than {100 * share:g} % of "
        "the machine until the latest of their deadlines; ask for a guarantee, or later"
    )


def likely_not_kept(promise: Promise, now: float) -> str:
    """Return what a user reads whose likely promise is over before the job has ended."""
    if promise.state == "void":
        return voided(promise.why)
    odds = per_cent(promise.odds or 0.0)
    return (
        f"{PREFIX}the likely promise (odds {odds}) to end by "
        f"{moment(promise.deadline, now)} was not kept: {promise.why}; the job goes on as "
        "best effort"
    )


def warned(why: str, offer: float, wording: Wording, now: float) -> str:
    """Return what a user reads of a job that plug-ins only warn of; empty: nothing.

    `why`: what they have against it; `offer`: a deadline that they would promise, inf: none.
    """
    if not why:
        return ""
    text = shortened(f"{PREFIX}warning: {why}")
    if offer == math.inf:
        return text
    return f"{text}. Feasible: {moment(offer, now)} ({wording.asking(offer)})"


def foreseen(judgement: Judgement, wording: Wording) -> tuple[tuple[str, ...], str, float]:
    """Return what would have become of the job, had plug-ins counted that do not.

    Reason codes, a sentence, and an offer, inf if there is none; the sentence is empty where none
    of them has an opinion on a promise.
    """
    doing = []
    for answer in judgement.answers:
        if answer.mode == "enforce" or answer.value is None:
            continue
        verdict = Verdict(int(answer.value.code[0]))
        if verdict >= Verdict.DEFER or math.isfinite(answer.value.promise[0]):
            doing.append(f"{answer.plugin} ({answer.mode}) would {WOULD[verdict]} it")
    codes, why, offer = uncounted(judgement, ("shadow", "warn"), wording)
    return codes, shortened(": ".join(filter(None, (", ".join(doing), why)))), offer


def uncounted(
    judgement: Judgement, modes: tuple[str, ...], wording: Wording
) -> tuple[tuple[str, ...], str, float]:
    """Return what plug-ins of these modes have against the first job, and their offer."""
    against = [
        answer.value
        for answer in judgement.answers
        if answer.mode in modes
        and answer.value is not None
        and answer.value.code[0] >= Verdict.DEFER
    ]
    found = [f for value in against for f in value.findings if 0 in f.rows]
    offer = max((float(value.offer[0]) for value in against), default=math.inf)
    why = "; ".join(sentence(f, wording) for f in found)
    return tuple(f.reason.code for f in found), why, offer


def reasons(judgement: Judgement, wording: Wording) -> tuple[tuple[str, ...], str]:
    """Return the codes and sentences of what counted against the first job of a batch."""
    found = [f for f in judgement.verdicts.findings if 0 in f.rows]
    return tuple(f.reason.code for f in found), "; ".join(sentence(f, wording) for f in found)


def sentence(finding: Finding, wording: Wording) -> str:
    """Return what a finding says of the first job of a batch, its numbers rounded for a prompt.

    A job that the batch system has not numbered is just the job.
    """
    row = finding.rows.tolist().index(0)
    numbers = {name: float(values[row]) for name, values in finding.numbers.items()}
    text = finding.reason.text({k: round(v) if abs(v) >= 100 else v for k, v in numbers.items()})

    def named(found: re.Match[str]) -> str:
        job = int(found[2])
        return f"{found[1]} {wording.name_of(job)}" if job < FIRST_OWN_ID else "the job"

    return _NUMBERED.sub(named, text)


def shortened(text: str) -> str:
    """Return a text on one line that is not too long for a prompt."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


REASONS: dict[str, str] = {
    "submit.unusable": "The request cannot be promised, such as a job without a time limit or one "
    "beyond a limit of its account or QOS, or is malformed; the text says which.",
    "submit.too-many": "The user has reached the limit `promises_per_user`.",
    "submit.budget": "Promises to the user, or to the account, would take more of the machine than "
    "`promised_share_per_user` or `promised_share_per_account` allows.",
    "submit.unused": "The user has reached the limit `unused_promises_per_hour` of admissions in "
    "the last hour that no job followed, as with `sbatch --test-only`: each reserved nodes.",
    "submit.waits": "The job depends on other jobs, and the planner, as it is configured, does not "
    "support dependencies.",
    "submit.unseen": "Not a rejection: the job depends on a job that was submitted a moment ago "
    "and that no poll of the batch system has shown yet. It is held, and evaluated some seconds "
    "later.",
    "submit.unverified": "Not a rejection: no poll has shown its account or QOS, which the batch "
    "system itself checks after rtsched. If it accepts the job, the job is held, and evaluated "
    "some seconds later.",
    "submit.held": "Not a rejection: the user holds the job, so it is not known when it may start; "
    "it is evaluated when it is released.",
    "submit.component": "Not a rejection: it is a component of a heterogeneous job, which is held, "
    "and evaluated as one job as soon as all its components are there.",
    "submit.singleton": "Not a rejection: the job waits for those of its user and name "
    "(`--dependency=singleton`). It is held, and evaluated as soon as a poll shows all of these, "
    "some seconds later.",
    "submit.busy": "Not a rejection: the daemon was updating its plan at that moment and could not "
    "promise anything. The job is held, and accepted or rejected in the next cycle, some seconds "
    "later.",
    "submit.unconfirmed": "Not a rejection: jobs may have started since the last poll on nodes "
    "that the job would need. It is held, and accepted or rejected by a poll, in a few "
    "seconds.",
    "submit.limit": "The running and promised jobs of its account, user or QOS leave no room for "
    "the job, where it would be planned, in a limit that the text names.",
    "submit.used-up": "The jobs of its account, user or QOS have used, and may yet use, so much of "
    "GrpTRESMins or GrpWall that less is left than the job may need; the text names the limit.",
    "submit.offer": "Not a rejection: the job was admitted by the counter-offer that was held "
    "for it.",
    "likely.accepted": "Not a rejection: the deadline has the odds that the user asks for, by "
    "estimated run times.",
    "likely.odds": "The deadline has lower odds than the user asks for; the text states them, and "
    "a later deadline with the odds asked for, if one is known.",
    "likely.no-estimate": "There is no estimate of the job's start now, so no odds can be stated.",
    "likely.busy": "The daemon was updating its plan at that moment and could not promise "
    "anything; the user can submit the job again some seconds later.",
    "likely.low": "The user asks for lower odds than `odds_least`.",
    "likely.share": "Open likely promises would take more than `share` of the machine.",
    "likely.off": "The site gives no promises with odds (`share = 0`).",
    "likely.unsuitable": "Such a job gets no promise with odds: an array, a divisible load, one "
    "that waits for others or is held, or one without a time limit.",
    "likely.queued": "The job asks for odds and was not evaluated at its submission.",
    "wait.held": "The job is held by its user or an admin, or until it has been evaluated.",
    "wait.limit": "The job waits for a limit of its account, QOS or partition, which the batch "
    "system names. A promise is moved when that keeps its job from two planned starts, or breaks "
    "where it cannot be.",
    "wait.planned": "The job has a promise, and its planned start is in the future.",
    "wait.dependency": "The job waits for other jobs, as its user asked.",
    "wait.begin": "The job may not start before the time that its user set.",
    "wait.nodes": "The job needs more nodes than are free.",
    "wait.kept": "Nodes are free, but reserved for promised jobs that start before this "
    "job would end.",
    "wait.reservation": "Nodes are free, but set aside by a reservation of the site before "
    "this job would end.",
    "wait.order": "Other jobs have a higher priority from rtsched.",
}
"""By code, what it means."""
