"""The board's pages: the whole one, and the parts of it that its script asks for again."""

from __future__ import annotations

import asyncio
import math
import time
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any

import jinja2
import msgspec
import numpy as np
from litestar import MediaType, Request, Response, Router, get, post
from litestar.params import QueryParameter

from rtsched import __version__
from rtsched.daemon.questions import (
    AccountShare,
    Choice,
    Choices,
    ChoicesReport,
    EstimateRecord,
    Explain,
    ExplainReport,
    Feasible,
    FeasibleReport,
    Hold,
    PromiseStatus,
    Reliability,
    ReliabilityReport,
    Shares,
    SharesReport,
    StartEstimate,
    Status,
    StatusReport,
    Timeline,
    TimelineReport,
    When,
    WhenReport,
)
from rtsched.errors import RtschedError
from rtsched.logs.hostlist import fold
from rtsched.report.reliability import reliability, reliability_drawing
from rtsched.report.wording import (
    MISSING,
    about,
    count,
    duration,
    ends,
    interval,
    period_name,
    sentence,
    shortened,
    starts,
    visible,
)
from rtsched.rest.authentication import COOKIE, SESSION_S, TICKET_S, Sessions
from rtsched.rest.board.drawing import (
    SPANS,
    Drawing,
    coverage_bars,
    drawing,
    error_bars,
    marks,
)
from rtsched.rest.endpoints import REFUSALS, ask
from rtsched.text import moment, state_of

if TYPE_CHECKING:
    from collections.abc import Mapping

HttpRequest = Request[Any, Any, Any]

OPEN = ("/board/enter", "/board/board.css", "/board/board.js")
"""Paths that need no identity."""

LAST = 2.0**33
"""What is later is no deadline: the year 2242."""
SHOWN = 200
"""Promises in the table, and those that are marked, at most."""
REMEMBERED_S = 60.0
"""Seconds for which the record of likely promises is shown again."""
FRESH_S = 2.0
"""Seconds for which a timeline, which is the same for all users, is shown again."""

STATES = {
    "offered": "offered",
    "provisional": "promised, not in the queue yet",
    "firm": "promised",
    "at-risk": "at risk",
}
"""Words for the state of an open promise."""


class Session(msgspec.Struct, frozen=True):
    """A link to the board for one browser."""

    path: str
    """Path of the link, to be opened once."""
    expires_s: float
    """Seconds within which it must be opened."""


@cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("rtsched.rest.board"),
        autoescape=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["sentence"] = lambda text: text[:1].upper() + text[1:]
    return made


class Timelines:
    """The timeline of a moment ago and what was drawn of it, which are the same for all users."""

    def __init__(self) -> None:
        self._asking = asyncio.Lock()
        self._last: tuple[float, TimelineReport] | None = None
        self._reliability: tuple[float, ReliabilityReport] | None = None
        self._drawn: dict[tuple[str, str], Drawing] = {}

    async def latest(self, request: HttpRequest) -> TimelineReport:
        """Return the timeline, no older than `FRESH_S`."""
        async with self._asking:
            now = time.monotonic()
            if self._last is None or self._last[0] + FRESH_S < now:
                found: TimelineReport = await ask(request, Timeline())
                self._last, self._drawn = (now, found), {}
            return self._last[1]

    async def reliability(self, request: HttpRequest) -> ReliabilityReport:
        """Return how many likely promises were kept, no older than a minute."""
        async with self._asking:
            now = time.monotonic()
            if self._reliability is None or self._reliability[0] + REMEMBERED_S < now:
                found: ReliabilityReport = await ask(request, Reliability())
                self._reliability = now, found
            return self._reliability[1]

    async def drawing(self, request: HttpRequest, span: str, partition: str) -> Drawing:
        """Return what the timeline shows of a span and a partition, both known; empty: all."""
        report = await self.latest(request)
        key = span, partition
        found = self._drawn.get(key)
        if found is None:
            found = await asyncio.to_thread(drawing, report, SPANS[span], partition)
            if self._last is not None and self._last[1] is report:
                self._drawn[key] = found
        return found


def _rendered(
    request: HttpRequest, template: str, status: int = 200, **given: Any
) -> Response[str]:
    """Return a page that may run the board's own script, and load nothing from elsewhere."""
    ancestors = " ".join(request.app.state.embedders) or "'none'"
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src "
        f"'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors {ancestors}"
    )
    return Response(
        _environment().get_template(template).render(version=__version__, **given),
        status_code=status,
        media_type=MediaType.HTML,
        headers={"content-security-policy": policy, "referrer-policy": "no-referrer"},
    )


def _elsewhere(status: int, headers: dict[str, str]) -> Response[str]:
    """Return an answer that sends the browser on."""
    return Response("", status_code=status, headers=headers, media_type=MediaType.TEXT)


# --- what is shown -------------------------------------------------------------------------------


async def _now(request: HttpRequest, span: str, partition: str) -> dict[str, Any]:
    """Return what the part of the page shows that is brought up to date."""
    status: StatusReport = await ask(request, Status())
    shares: SharesReport = await ask(request, Shares())
    estimates: WhenReport = await ask(request, When())
    offered: ChoicesReport = await ask(request, Choices())
    timeline: TimelineReport = await request.app.state.timelines.latest(request)
    partition = partition if partition in timeline.partitions else ""
    span = span if span in SPANS else "1d"
    drawn = await request.app.state.timelines.drawing(request, span, partition)
    shown = status.promises[:SHOWN]
    states = status.states
    lost = {"missed", "broken"}
    tiles = [
        ("Nodes in service", f"{status.usable:,} of {status.nodes:,}"),
        ("Jobs running", count(status.running)),
        ("Jobs waiting", count(status.queued)),
        (
            "Promised",
            count(sum(states.get(each, 0) for each in ("firm", "at-risk", "provisional"))),
        ),
        ("Kept", count(states.get("kept", 0))),
        ("Missed or broken", count(sum(states.get(each, 0) for each in lost))),
        ("Rejected", count(status.answers.get("reject", 0))),
    ]
    return {
        "status": status,
        "clock": time.strftime("%H:%M:%S %z", time.localtime(status.now)),
        "tiles": tiles,
        "drawing": drawn,
        "own": tuple(marks(drawn.axes, shown)),
        "span": span,
        "partition": partition,
        "promises": [_row(each, status.now) for each in shown],
        "offered": [_choice(each, status.now) for each in offered.choices],
        "offered_until": _moment(offered.expires, status.now),
        "more": max(len(status.promises) - SHOWN, 0),
        "likely": await _reliability(request),
        "shares": [_share(each) for each in shares.accounts[:SHOWN]],
        "starts": _starts(estimates),
    }


def _starts(report: WhenReport) -> dict[str, Any]:
    """Return what is estimated of waiting jobs without a promise, and how good estimates were."""
    waiting = [each for each in report.jobs if each.basis != "plan"]
    return {
        "rows": [_start(each, report.now) for each in waiting[:SHOWN]],
        "more": max(len(waiting) - SHOWN, 0) + report.more,
        "age": "" if report.estimated is None else duration(max(report.now - report.estimated, 0)),
        "problem": report.problem,
        "coverage": coverage_bars(report.record),
        "errors": error_bars(report.record),
        "record": [_recorded(each) for each in report.record if each.jobs],
    }


def _start(estimate: StartEstimate, now: float) -> dict[str, str]:
    """Return an estimate as a row of the table."""
    e = estimate
    return {
        "job": e.job,
        "name": shortened(e.name, 40),
        "user": e.user,
        "start": MISSING if e.start is None else about(e.start, now),
        "wide": interval(e.start_low_95, e.start_high_95, now),
        "narrow": interval(e.start_low_80, e.start_high_80, now),
        "end": MISSING if e.end is None else about(e.end, now),
        "why": e.why,
    }


def _recorded(each: EstimateRecord) -> dict[str, Any]:
    """Return the record of a period as a row of the table."""
    shares = (each.covered_80, each.covered_90, each.covered_95)
    return {
        "period": f"last {period_name(each.period_s)}",
        "jobs": count(each.jobs),
        "shares": [MISSING if share is None else f"{100 * share:.0f} %" for share in shares],
        "error": duration(each.error_s),
        "limits": duration(each.error_by_limits_s),
    }


async def _reliability(request: HttpRequest) -> dict[str, str] | None:
    """Return stated odds against what was kept, drawn; None: no likely promise has ended."""
    report: ReliabilityReport = await request.app.state.timelines.reliability(request)
    if not report.stated:
        return None
    many = [
        (each.odds, good, n)
        for each in report.stated
        for good, n in ((True, each.kept), (False, each.promises - each.kept))
    ]
    odds, kept, number = (np.array(column) for column in zip(*many, strict=True))
    found = reliability(np.repeat(odds, number), np.repeat(kept, number))
    return {"sentence": found.sentence(), "drawing": reliability_drawing(found, standalone=False)}


def _share(row: AccountShare) -> dict[str, Any]:
    """Return an account or user as a row of the table."""
    error = row.service_error
    return {
        "name": row.name,
        "account": row.account,
        "share": f"{100 * row.share:.3g} %",
        "nodes": count(row.nodes),
        "waiting": count(row.waiting),
        "error": MISSING if error is None else f"{error / 3600:+,.1f}",
    }


def _row(promise: PromiseStatus, now: float) -> dict[str, str]:
    """Return a promise as a row of the table."""
    state = "running" if promise.running else STATES.get(promise.state, promise.state)
    state = state_of(state, promise.odds, promise.odds_now)
    if promise.tasks is not None and promise.waiting is not None:
        state += f", {promise.tasks - promise.waiting:,} of {promise.tasks:,} tasks started"
    left = None
    if promise.deadline is not None and promise.end is not None:
        left = promise.deadline - promise.end
    return {
        "job": promise.job,
        "name": shortened(promise.name, 40),
        "user": promise.user,
        "state": state,
        "start": _moment(promise.start, now),
        "end": _moment(promise.end, now),
        "deadline": _moment(promise.deadline, now),
        "left": duration(left),
        "nodes": shortened(fold(promise.nodes), 60) if promise.nodes else MISSING,
        "why": promise.why,
        "likely": "likely" if promise.odds is not None else "",
    }


def _moment(at: float | None, now: float) -> str:
    return MISSING if at is None else moment(at, now)


def _choice(choice: Choice, now: float) -> dict[str, Any]:
    """Return what could be had in place of a job as a row."""
    return {
        "number": choice.number,
        "kind": choice.kind,
        "text": choice.text,
        "by": _moment(choice.deadline, now),
        "start": "" if choice.start is None else _moment(choice.start, now),
        "options": " ".join(choice.options),
        "take": choice.take,
        "held": choice.held,
    }


async def _hold(request: HttpRequest, given: Mapping[str, str]) -> dict[str, Any]:
    """Hold what stands in the form, and return the choice of a kind."""
    try:
        question = msgspec.convert(msgspec.structs.asdict(_question(given)), Hold)
        found: FeasibleReport = await ask(request, question)
    except (ValueError, RtschedError) as error:
        return {"problem": str(error)}
    kind = given.get("choice", "")
    choice = next((each for each in found.choices if each.kind == kind), None)
    if choice is None:
        return {"problem": "It cannot be had any more. Ask again."}
    until = _moment(found.expires, found.now)
    return {"problem": "", "until": until, **_choice(choice, found.now)}


async def _when(request: HttpRequest, given: Mapping[str, str]) -> dict[str, Any]:
    """Return the answer to "when could I have it?", by what stands in the form."""
    try:
        question = _question(given)
        found: FeasibleReport = await ask(request, question)
    except (ValueError, RtschedError) as error:
        return {"problem": str(error)}
    status: StatusReport = await ask(request, Status())
    lines = _lines(status.system, question, found) if found.deadline is not None else ()
    likely = await _likely(request, question)
    return {
        "problem": "",
        "feasible": found.feasible,
        "deadline": _moment(found.deadline, found.now),
        "away": duration(found.deadline - found.now) if found.deadline else MISSING,
        "start": _moment(found.start, found.now),
        "nodes": shortened(fold(found.nodes), 80) if found.nodes else MISSING,
        "reasons": [reason.text for reason in found.reasons],
        "lines": "\n".join(lines),
        **likely,
        "choices": [_choice(each, found.now) for each in found.choices],
        "system": status.system,
    }


async def _likely(request: HttpRequest, asked: Feasible) -> dict[str, str]:
    """Return when such a job without a deadline would start and end, as estimated."""
    try:
        question = When(request=msgspec.structs.replace(asked, deadline=None))
        found: WhenReport = await ask(request, question)
    except RtschedError:
        return {"likely": "", "likely_end": ""}
    (estimate,) = found.jobs
    if estimate.basis == "none":
        return {"likely": "", "likely_end": ""}
    return {"likely": starts(estimate, found.now), "likely_end": ends(estimate, found.now)}


def _question(given: Mapping[str, str]) -> Feasible:
    """Return the question that a form asks.

    Raises
    ------
    ValueError
        If a field cannot be read; its text is for the user.
    """
    values: dict[str, Any] = {
        "nodes": _whole(given, "nodes", "Nodes") or 1,
        "time_s": _seconds(given.get("time", "")),
        "partition": given.get("partition", ""),
        "gpus": _whole(given, "gpus", "GPUs per node"),
        "tasks": _whole(given, "tasks", "Tasks"),
        "cpus_per_task": _whole(given, "cpus", "Processors per task"),
        "memory": _whole(given, "memory", "Memory") << 30,
        "deadline": _instant(given.get("deadline", "")),
    }
    try:
        return msgspec.convert(values, Feasible)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error


def _whole(given: Mapping[str, str], name: str, title: str) -> int:
    text = given.get(name, "").strip()
    if not text:
        return 0
    if not (text.isascii() and text.isdecimal()) or len(text) > 9:
        raise ValueError(f"{title}: {shortened(text, 20)!r} is not a whole number")
    return int(text)


def _seconds(text: str) -> float | None:
    """Return the seconds of `90` (minutes), `1:30` (hours and minutes) or `1-0` (days-hours)."""
    text = text.strip()
    if not text:
        return None
    days, dash, rest = text.rpartition("-")
    parts = [*(days.split() if dash else []), *rest.split(":")]
    if not all(part.isascii() and part.isdecimal() and len(part) <= 7 for part in parts):
        raise ValueError(
            f"Time: {shortened(text, 20)!r} is neither minutes (90) nor hours and minutes (1:30)"
        )
    numbers = [int(part) for part in parts]
    if dash:
        units: tuple[int, ...] = (86_400, 3600, 60, 1)
    else:
        units = (60,) if len(numbers) == 1 else (3600, 60, 1)
    return float(sum(number * unit for number, unit in zip(numbers, units, strict=False)))


def _instant(text: str) -> float | None:
    """Return an instant given in seconds since the epoch, or as the cluster's local time."""
    text = text.strip()
    if not text:
        return None
    try:
        at = float(text) if text.isdecimal() else datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        at = math.inf
    if not 0 <= at < LAST:
        raise ValueError(f"Finish by: {shortened(text, 30)!r} is not a time")
    return at


def _lines(system: str, asked: Feasible, found: FeasibleReport) -> list[str]:
    """Return what to write into a job script, or into a submit file, for that."""
    if system == "condor":
        names = ("request_cpus", "request_memory", "request_gpus")
        amounts = (asked.cpus_per_task, asked.memory >> 20, asked.gpus)
        pairs = zip(names, amounts, strict=True)
        lines = [f"{name} = {amount}" for name, amount in pairs if amount]
        if asked.nodes > 1:
            lines += ["universe = parallel", f"machine_count = {asked.nodes}"]
        if asked.time_s:
            lines.append(f"+RtRunTime = {asked.time_s:.0f}")
        return [*lines, found.asking]
    lines = [f"#SBATCH --nodes={asked.nodes}"]
    if asked.time_s:
        lines.append(f"#SBATCH --time={asked.time_s / 60:.0f}")
    options = {
        "partition": asked.partition,
        "ntasks": asked.tasks,
        "cpus-per-task": asked.cpus_per_task,
        "gpus-per-node": asked.gpus,
        "mem": f"{asked.memory >> 30}G" if asked.memory else "",
    }
    lines += [f"#SBATCH --{name}={value}" for name, value in options.items() if value]
    return [*lines, f"#SBATCH {found.asking}"]


async def _why(request: HttpRequest, job: str) -> dict[str, Any]:
    """Return why a job waits, or what became of it."""
    job = job.strip()
    if not job:
        return {"job": "", "problem": ""}
    try:
        found: ExplainReport = await ask(request, Explain(job, 5))
    except RtschedError as error:
        return {"job": job, "problem": str(error)}
    now = found.now
    return {
        "job": job,
        "problem": "",
        "shown": found.job,
        "promise": _row(found.promise, now) if found.promise else None,
        "waits": [reason.text for reason in found.waits],
        "estimate": _estimated(found.estimate, now),
        "helps": found.helps,
        "terms": sorted(found.terms.items(), key=lambda term: -term[1]),
        "verdicts": [(_moment(each.time, now), each.text) for each in found.verdicts],
    }


def _estimated(estimate: StartEstimate | None, now: float) -> str:
    """Return what is estimated of a job in a sentence; empty: nothing, or it is planned."""
    if estimate is None or estimate.basis == "plan":
        return ""
    if estimate.basis == "none":
        return f"No estimate: {estimate.why}." if estimate.state == "waiting" else ""
    return f"Estimate: it {sentence(estimate, now)}."


# --- pages ---------------------------------------------------------------------------------------

Text = Annotated[str, QueryParameter(max_length=200)]


@get("/", include_in_schema=False)
async def board(
    request: HttpRequest, span: Text = "1d", partition: Text = "", job: Text = ""
) -> Response[Any]:
    """Return the whole page; without a script its forms ask for it again."""
    path = request.scope.get("raw_path", b"")
    if not path.endswith(b"/"):  # relative links begin at the folder
        return _elsewhere(308, {"location": "board/"})
    timeline: TimelineReport = await request.app.state.timelines.latest(request)
    given = dict(request.query_params)
    asks = any(given.get(name) for name in ("nodes", "time", "gpus", "memory", "deadline"))
    return _rendered(
        request,
        "board.html.j2",
        partitions=sorted(timeline.partitions),
        spans=list(SPANS),
        given=given,
        now=await _now(request, span, partition),
        when=await _when(request, given) if asks else None,
        why=await _why(request, job),
    )


@get("/now", include_in_schema=False)
async def now(request: HttpRequest, span: Text = "1d", partition: Text = "") -> Response[Any]:
    """Return the part that is brought up to date."""
    return _rendered(request, "now.html.j2", now=await _now(request, span, partition))


@get("/when", include_in_schema=False)
async def when(request: HttpRequest) -> Response[Any]:
    """Return when a job could be had."""
    return _rendered(request, "when.html.j2", when=await _when(request, dict(request.query_params)))


@post("/hold", include_in_schema=False, status_code=200)
async def hold(request: HttpRequest) -> Response[Any]:
    """Hold the choices for the job in the form, and return how to take one of them."""
    return _rendered(request, "held.html.j2", held=await _hold(request, dict(request.query_params)))


@get("/why", include_in_schema=False)
async def why(request: HttpRequest, job: Text = "") -> Response[Any]:
    """Return why a job waits."""
    return _rendered(request, "why.html.j2", why=await _why(request, job))


@get("/enter", include_in_schema=False)
async def enter(request: HttpRequest, ticket: Text = "") -> Response[Any]:
    """Open a session for the holder of a ticket, and go to the board."""
    secret = request.app.state.sessions.enter(ticket)
    secure = "; Secure" if request.scope["scheme"] == "https" else ""
    cookie = (
        f"{COOKIE}={secret}; Path=/board; Max-Age={SESSION_S:.0f}; HttpOnly; SameSite=Lax{secure}"
    )
    headers = {"location": "./", "set-cookie": cookie, "referrer-policy": "no-referrer"}
    return _elsewhere(303, headers)


@get("/board.css", include_in_schema=False)
async def style() -> Response[bytes]:
    """Return the style sheet."""
    return Response(_static("board.css"), media_type=MediaType.CSS)


@get("/board.js", include_in_schema=False)
async def script() -> Response[bytes]:
    """Return the script."""
    return Response(_static("board.js"), media_type="text/javascript")


def _static(name: str) -> bytes:
    return (files(__package__) / "static" / name).read_bytes()


@post("/v1/sessions", operation_id="openSession", responses=REFUSALS, status_code=201)
async def open_session(request: HttpRequest) -> Session:
    """Return a link that opens the board once in a browser, as the sender."""
    sessions: Sessions = request.app.state.sessions
    ticket = sessions.ticket(request.scope["state"]["uid"])
    return Session(f"/board/enter?ticket={ticket}", TICKET_S)


def router() -> Router:
    """Return the pages."""
    return Router("/board", route_handlers=[board, now, when, hold, why, enter, style, script])
