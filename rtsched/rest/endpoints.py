"""The endpoints under /v1: each asks the daemon one question for the client of the request.

Those of `questions.Question.routes` are made from the questions' fields.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_type_hints

import msgspec
from litestar import Request, Response, Router, get
from litestar import route as http_route
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import ResponseSpec
from litestar.params import Body, Parameter
from msgspec.inspect import BoolType, Field, IntType, Metadata, type_info

from rtsched import __version__
from rtsched.adapters.wire import HEADER, MessageKind, frame, frame_for, read_header
from rtsched.daemon import questions
from rtsched.daemon.query_client import report_in, silence
from rtsched.daemon.questions import (
    Explain,
    ExplainReport,
    PromiseStatus,
    Question,
    RefusedError,
    Route,
    Status,
    StatusReport,
)
from rtsched.descriptions import field_texts, structures
from rtsched.errors import AdapterError, RtschedError
from rtsched.rest.throttling import ConcurrencyLimit

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
    promises: tuple[PromiseStatus, ...]
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
async def show_promise(request: HttpRequest, job: JobName) -> PromiseStatus:
    """Return the promise of a job, open or closed."""
    report: ExplainReport = await ask(request, Explain(job, 0))
    if report.promise is None:
        raise RefusedError(f"job {job} has no promise", "not-found")
    return report.promise


def router() -> Router:
    """Return the endpoints: those by which questions are asked, and some more."""
    kinds = get_args(questions.AnyQuestion)
    asked = [_endpoint(kind, route) for kind in kinds for route in kind.routes]
    return Router(
        f"/{VERSION}",
        route_handlers=[health, metrics, list_promises, show_promise, *asked],
        security=[{"munge": []}, {"idtoken": []}],
    )


def _endpoint(kind: type[Question], route: Route) -> HTTPRouteHandler:
    """Return the endpoint of a route; its parameters are fields of the question."""
    parameters = [_parameter("request", HttpRequest)]
    if route.method == "POST":
        hint = get_type_hints(kind)[route.body] if route.body else kind
        parameters.append(_parameter("data", Annotated[next(structures(hint)), Body()]))
    else:
        for field in type_info(kind).fields:  # type: ignore[attr-defined]
            if f"{{{field.name}}}" in route.path:
                parameters.append(_parameter(field.name, JobName))
            elif (hint := _in_query(kind, field)) is not None:
                parameters.append(_parameter(field.name, hint, field.default))

    async def answer(request: HttpRequest, **given: Any) -> Any:
        if route.method == "POST":
            data = given["data"]
            return await ask(request, kind(**{route.body: data}) if route.body else data)
        return await ask(request, kind(**given))

    answer.__annotations__ = {each.name: each.annotation for each in parameters}
    answer.__annotations__["return"] = kind.Answer
    answer.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        parameters, return_annotation=kind.Answer
    )
    answer.__doc__ = route.summary or (kind.__doc__ or "").partition("\n")[0]
    return http_route(
        route.path.replace("{job}", "{job:str}"),
        http_method=route.method,
        operation_id=route.operation,
        responses=REFUSALS,
        status_code=200,
    )(answer)


def _parameter(name: str, hint: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    """Return a parameter of an endpoint's function."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=default, annotation=hint)


def _in_query(kind: type[Question], field: Field) -> Any:
    """Return the type of a parameter in the query, with the bounds and the text of a field.

    None: the query has no such field.
    """
    text, plain = field_texts(kind).get(field.name, ""), field.type
    while isinstance(plain, Metadata):
        plain = plain.type
    if isinstance(plain, IntType):
        return Annotated[int, Parameter(ge=plain.ge, le=plain.le, description=text)]
    return Annotated[bool, Parameter(description=text)] if isinstance(plain, BoolType) else None


async def ask_for(uid: int | None, question: Question, path: str, timeout_s: float = 10.0) -> Any:
    """Return the report that answers a user's question: a `type(question).Answer`.

    Parameters
    ----------
    uid : int or None
        Whose question it is; None: this process's own.
    question : Question
        What to ask.
    path : str
        The daemon's query socket; the daemon must know this process's user as `rest_user`.
    timeout_s : float
        Seconds within which the whole answer must be here.

    Raises
    ------
    AdapterError
        If the daemon does not answer.
    ProtocolError
        If it answers what this release does not understand.
    RefusedError
        If it says why it does not answer the question.
    """
    text = msgspec.json.encode(question)
    message = frame(MessageKind.QUERY, text) if uid is None else frame_for(uid, text)
    try:
        async with asyncio.timeout(timeout_s):
            kind, payload = await _exchanged(message, path)
    except (OSError, EOFError) as error:
        raise AdapterError(silence(path, timeout_s, error)) from error
    return report_in(question, kind, payload, path)


async def _exchanged(message: bytes, path: str) -> tuple[MessageKind, bytes]:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(message)
        kind, length = read_header(await reader.readexactly(HEADER.size))
        return kind, await reader.readexactly(length)
    finally:
        writer.close()
