"""The endpoints under /v1: each asks the daemon one question for the client of the request."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from litestar import Request, Response, Router, delete, get, post
from litestar.openapi import ResponseSpec
from litestar.params import Body, Parameter

from rtsched import __version__
from rtsched.daemon.reports import (
    Cancel,
    CancelReport,
    Choices,
    ChoicesReport,
    Chunk,
    ChunkReport,
    Explain,
    ExplainReport,
    Feasible,
    FeasibleReport,
    Hold,
    NodeList,
    NodesReport,
    Plan,
    PlanReport,
    Promise,
    Question,
    RefusedError,
    Reliability,
    ReliabilityReport,
    Shares,
    SharesReport,
    Status,
    StatusReport,
    Timeline,
    TimelineReport,
    When,
    WhenReport,
)
from rtsched.errors import RtschedError
from rtsched.rest.asking import ask_for
from rtsched.rest.limits import ConcurrencyLimit

VERSION = "v1"

HEALTH_S = 1.0
"""Seconds for which the daemon's health is remembered."""

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"

HttpRequest: TypeAlias = Request[Any, Any, Any]

JobName = Annotated[
    str, Parameter(description="The batch system's name of the job: `4711`, `4711_3`, `12.0`.")
]


class Problem(msgspec.Struct, frozen=True):
    """The answer to a request that is not answered."""

    error: str
    """Why not, one sentence."""


class Health(msgspec.Struct, frozen=True):
    """Whether the daemon answers; for load balancers and monitoring."""

    status: Literal["ok", "problem", "standby", "unavailable"]
    """`problem`: it answers, and reports problems in `/v1/status`."""
    version: str
    """Release of this server."""
    daemon: str | None = None
    """Release of the daemon; null: it does not answer."""


class PromiseList(msgspec.Struct, frozen=True):
    """The open promises that the client may see."""

    now: float
    """The daemon's clock."""
    everyone: bool
    """Whether those of all users are listed."""
    promises: tuple[Promise, ...]
    """By planned start."""


class DaemonClient:
    """Asks the daemon for users; one for the whole server.

    Parameters
    ----------
    path : str
        The daemon's query socket.
    timeout_s : float
        Seconds to wait for an answer.
    concurrency : ConcurrencyLimit
        How many questions there may be at a time.
    """

    def __init__(self, path: str, timeout_s: float, concurrency: ConcurrencyLimit) -> None:
        self._path, self._timeout, self._concurrency = path, timeout_s, concurrency
        self._health: tuple[float, Health] | None = None

    async def ask(self, uid: int, question: Question) -> Any:
        """Return the answer to a user's question, a `type(question).Answer`.

        Raises
        ------
        RtschedError
            As `ask_for` does.
        TooMuchError
            If too many are asked at a time.
        """
        with self._concurrency.slot(uid):
            return await ask_for(uid, question, self._path, self._timeout)

    async def health(self) -> Health:
        """Return how the daemon is, as of a moment ago."""
        now = time.monotonic()
        if self._health is None or now > self._health[0] + HEALTH_S:
            self._health = (now, Health("unavailable", __version__))  # while it is asked
            self._health = (now, await self._asked())
        return self._health[1]

    async def _asked(self) -> Health:
        try:
            status: StatusReport = await ask_for(None, Status(), self._path, self._timeout)
        except RtschedError:
            return Health("unavailable", __version__)
        if status.mode == "standby":
            return Health("standby", __version__, status.version)
        return Health("problem" if status.problems else "ok", __version__, status.version)


async def ask(request: HttpRequest, question: Question) -> Any:
    """Return the daemon's answer to a request's client, a `type(question).Answer`.

    Raises
    ------
    RtschedError
        As `DaemonClient.ask` does.
    """
    uid = request.scope["state"]["uid"]  # as AccessMiddleware found it
    return await request.app.state.daemon.ask(uid, question)


ERRORS = {
    400: "The request is malformed.",
    401: "Not authenticated.",
    403: "The client may not do that.",
    404: "The client has no such job, or there is no such path.",
    413: "Its body is too long.",
    422: "The question cannot be answered as it is, such as one for an unknown partition.",
    429: "Too many requests; `Retry-After` says when to try again.",
    502: "The daemon's answer cannot be decoded: install server and daemon from one release.",
    503: "The daemon does not answer now.",
}
"""What the statuses of refused requests mean."""

REFUSALS = {
    status: ResponseSpec(Problem, description=text, generate_examples=False)
    for status, text in ERRORS.items()
}

UNWELL = {
    429: REFUSALS[429],
    503: ResponseSpec(Health, description="The daemon does not answer.", generate_examples=False),
}


@get("/health", operation_id="health", responses=UNWELL, security=[])
async def health(request: HttpRequest) -> Response[Health]:
    """Return whether the daemon answers; needs no identity."""
    found: Health = await request.app.state.daemon.health()
    return Response(found, status_code=503 if found.status == "unavailable" else 200)


@get("/status", operation_id="status", responses=REFUSALS)
async def status(
    request: HttpRequest,
    metrics: Annotated[bool, Parameter(description="Return the metrics too, to admins.")] = False,
) -> StatusReport:
    """Return how the daemon is, and the open promises that the client may see."""
    return await ask(request, Status(metrics))


@get("/metrics", operation_id="metrics", responses=REFUSALS, media_type=PROMETHEUS)
async def metrics(request: HttpRequest) -> str:
    """Return the daemon's metrics as Prometheus text; for admins."""
    report: StatusReport = await ask(request, Status(metrics=True))
    if not report.everyone:
        raise RefusedError("only admins may see the metrics", "forbidden")
    return report.metrics


@get("/promises", operation_id="listPromises", responses=REFUSALS)
async def list_promises(request: HttpRequest) -> PromiseList:
    """Return the open promises that the client may see."""
    report: StatusReport = await ask(request, Status())
    return PromiseList(report.now, report.everyone, report.promises)


@get("/promises/{job:str}", operation_id="showPromise", responses=REFUSALS)
async def show_promise(request: HttpRequest, job: JobName) -> Promise:
    """Return the promise of a job, open or closed."""
    report: ExplainReport = await ask(request, Explain(job, 0))
    if report.promise is None:
        raise RefusedError(f"job {job} has no promise", "not-found")
    return report.promise


@delete("/promises/{job:str}", operation_id="cancelPromise", responses=REFUSALS, status_code=200)
async def cancel_promise(request: HttpRequest, job: JobName) -> CancelReport:
    """Give up the promise of a job, which goes on as best effort; for its user and admins."""
    return await ask(request, Cancel(job))


@get("/explain/{job:str}", operation_id="explain", responses=REFUSALS)
async def explain(
    request: HttpRequest,
    job: JobName,
    last: Annotated[
        int, Parameter(ge=0, le=1000, description="Return so many of its last verdicts.")
    ] = 5,
) -> ExplainReport:
    """Return what became of a job, and why."""
    return await ask(request, Explain(job, last))


@get("/verdicts", operation_id="listVerdicts", responses=REFUSALS)
async def list_verdicts(
    request: HttpRequest,
    last: Annotated[
        int, Parameter(ge=0, le=1000, description="Return so many of the last verdicts.")
    ] = 5,
) -> ExplainReport:
    """Return the replies to the client's last submissions; to admins those of all users."""
    return await ask(request, Explain("", last))


@post("/feasible", operation_id="feasible", responses=REFUSALS, status_code=200)
async def feasible(request: HttpRequest, data: Annotated[Feasible, Body()]) -> FeasibleReport:
    """Return which deadline a job could have now; nothing is reserved."""
    return await ask(request, data)


@get("/when", operation_id="listStarts", responses=REFUSALS)
async def list_starts(request: HttpRequest) -> WhenReport:
    """Return when the client's waiting jobs are estimated to start; to admins those of all."""
    return await ask(request, When())


@get("/when/{job:str}", operation_id="showStart", responses=REFUSALS)
async def show_start(request: HttpRequest, job: JobName) -> WhenReport:
    """Return when a job is estimated to start and end."""
    return await ask(request, When(job))


@post("/when", operation_id="estimateStart", responses=REFUSALS, status_code=200)
async def estimate_start(request: HttpRequest, data: Annotated[Feasible, Body()]) -> WhenReport:
    """Return when a job would start that is not submitted."""
    return await ask(request, When(request=data))


@post("/hold", operation_id="hold", responses=REFUSALS, status_code=200)
async def hold(request: HttpRequest, data: Annotated[Hold, Body()]) -> FeasibleReport:
    """Return as `feasible` does, and hold the choices for the client for a while."""
    return await ask(request, data)


@get("/choices", operation_id="listChoices", responses=REFUSALS)
async def list_choices(request: HttpRequest) -> ChoicesReport:
    """Return what the client could have in place of the last job that was rejected."""
    return await ask(request, Choices())


@get("/chunk/{job:str}", operation_id="chunk", responses=REFUSALS)
async def chunk(request: HttpRequest, job: JobName) -> ChunkReport:
    """Return how a divisible job is cut; it may change until the job starts."""
    return await ask(request, Chunk(job))


@get("/plan", operation_id="plan", responses=REFUSALS)
async def plan(request: HttpRequest) -> PlanReport:
    """Return the present plan of all promises; for admins."""
    return await ask(request, Plan())


@get("/nodes", operation_id="listNodes", responses=REFUSALS)
async def list_nodes(request: HttpRequest) -> NodesReport:
    """Return the nodes, and how busy each is."""
    return await ask(request, NodeList())


@get("/timeline", operation_id="timeline", responses=REFUSALS)
async def timeline(request: HttpRequest) -> TimelineReport:
    """Return what is on the nodes and what is planned there; nothing says whose it is."""
    return await ask(request, Timeline())


@get("/shares", operation_id="listShares", responses=REFUSALS)
async def list_shares(request: HttpRequest) -> SharesReport:
    """Return the shares of accounts and users; for admins of all, else of the user's own."""
    return await ask(request, Shares())


@get("/reliability", operation_id="reliability", responses=REFUSALS)
async def show_reliability(request: HttpRequest) -> ReliabilityReport:
    """Return how many of the likely promises were kept, by the odds that were stated."""
    return await ask(request, Reliability())


def router() -> Router:
    """Return the endpoints."""
    return Router(
        f"/{VERSION}",
        route_handlers=[
            health,
            status,
            metrics,
            list_promises,
            show_promise,
            cancel_promise,
            explain,
            list_verdicts,
            feasible,
            list_starts,
            show_start,
            estimate_start,
            hold,
            list_choices,
            chunk,
            plan,
            list_nodes,
            timeline,
            list_shares,
            show_reliability,
        ],
        security=[{"munge": []}, {"idtoken": []}],
    )
