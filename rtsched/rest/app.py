"""The ASGI application: endpoints, their OpenAPI description, and access control in front."""

from __future__ import annotations

import http
import math
import time
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

import msgspec
import structlog
from litestar import Litestar, MediaType, Request, Response
from litestar.datastructures import State
from litestar.exceptions import HTTPException
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, License, SecurityScheme

from rtsched import __version__
from rtsched.adapters import credentials
from rtsched.daemon import questions
from rtsched.daemon.questions import RefusalCode, RefusedError, Status
from rtsched.daemon.server import LOG_EVERY
from rtsched.descriptions import described
from rtsched.errors import AdapterError, ProtocolError, RtschedError
from rtsched.rest import endpoints
from rtsched.rest.authentication import (
    AuthenticationError,
    Authenticator,
    ForbiddenError,
    Sessions,
    TokenAuthenticator,
)
from rtsched.rest.board import pages
from rtsched.rest.credential import CONDOR_SCHEME, SCHEME
from rtsched.rest.endpoints import DaemonClient, Problem, ask_for
from rtsched.rest.throttling import ConcurrencyLimit, OverloadError, TokenBucket, TooMuchError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, MutableMapping

    from rtsched.rest.authentication import Pool
    from rtsched.rest.settings import RestSettings

    Message = MutableMapping[str, Any]
    Scope = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    App = Callable[[Scope, Receive, Send], Awaitable[None]]


log = structlog.get_logger(__name__)

ANONYMOUS = (20.0, 50)
"""Requests without identity, per second and at once."""

STATUS_OF: dict[RefusalCode, int] = {
    "malformed": 400,
    "refused": 422,
    "forbidden": 403,
    "not-found": 404,
    "busy": 503,
    "unavailable": 503,
}
"""HTTP status by why the daemon does not answer a question."""


def _response(status: int, text: str, headers: dict[str, str] | None = None) -> Response[Problem]:
    return Response(Problem(text), status_code=status, headers=headers, media_type=MediaType.JSON)


def _refused(_: Request[Any, Any, Any], error: RtschedError) -> Response[Problem]:
    """Return the answer where the daemon, or a limit, refuses."""
    if isinstance(error, RefusedError):
        status = STATUS_OF[error.code]
        return _response(status, str(error), {"retry-after": "1"} if status == 503 else None)
    if isinstance(error, ProtocolError):
        return _response(502, str(error))
    return _response(*refusal_of(error))


def _failed(request: Request[Any, Any, Any], error: Exception) -> Response[Problem]:
    """Return the answer to what Litestar refuses, and to a defect of ours."""
    if isinstance(error, RecursionError):
        return _response(400, "the body is nested too deeply")
    if not isinstance(error, HTTPException):
        log.error("request_crashed", path=request.scope["path"], exc_info=error)
        return _response(500, "an internal error of rtsched rest; its log says more")
    status, text = error.status_code, error.detail
    if status == 404:
        text = (
            f"there is no {request.scope['path']} here: rtsched {__version__} answers under "
            f"/{endpoints.VERSION}, see {OPEN[1]}"
        )
    elif details := getattr(error, "extra", None):
        text = "; ".join(_wrong(each) for each in details if isinstance(each, dict))
    return _response(status, text or http.HTTPStatus(status).phrase, error.headers)


def _wrong(detail: dict[str, str]) -> str:
    """Return what Litestar says is wrong with a parameter; the body is one named `data`."""
    key, message = detail.get("key", ""), detail.get("message", "")
    what = "is missing" if message == repr(key) else message
    return " ".join(filter(None, ("the body" if key == "data" else key, what)))


def create_app(
    settings: RestSettings,
    proxy_uid: int = -1,
    *,
    decode: Callable[[str], credentials.Credential] | None = credentials.decode,
    pool: Pool | None = None,
) -> AccessMiddleware:
    """Return the ASGI application.

    Parameters
    ----------
    settings : RestSettings
        The rest.toml.
    proxy_uid : int
        Of the site's proxy; -1: there is none.
    decode : callable or None
        From a credential of munge to what it says.
    pool : Pool, optional
        How HTCondor's tokens are verified; by default by its commands.
    """
    each = max(settings.daemon_requests // 4, 1)
    concurrency = ConcurrencyLimit(settings.daemon_requests, each)
    client = DaemonClient(settings.query_socket, settings.daemon_timeout, concurrency)
    sessions, chosen = Sessions(), settings.identities

    async def system() -> str:
        status = await ask_for(None, Status(), settings.query_socket, settings.daemon_timeout)
        return str(status.system)

    for kind in (*vars(questions).values(), *vars(endpoints).values()):
        if msgspec.inspect.is_struct_type(kind):
            described(kind)  # for the description of the interface
    tokens = TokenAuthenticator(pool, system if chosen is None else None)
    inner = Litestar(
        [endpoints.router(), pages.router(), pages.open_session],
        state=State(
            {
                "daemon": client,
                "sessions": sessions,
                "timelines": pages.Timelines(),
                "embedders": settings.embedders,
            }
        ),
        openapi_config=_description(),
        exception_handlers={RtschedError: _refused, Exception: _failed},
        logging_config=None,
        request_max_body_size=settings.max_body,
    )
    return AccessMiddleware(
        inner,  # type: ignore[arg-type]
        Authenticator(
            decode if chosen is None or "munge" in chosen else None,
            proxy_uid,
            sessions,
            tokens if chosen is None or "condor" in chosen else None,
        ),
        TokenBucket(settings.rate, settings.burst),
        TokenBucket(*ANONYMOUS),
        settings.max_body,
        (*OPEN, *pages.OPEN),
    )


def _description() -> OpenAPIConfig:
    header = partial(
        SecurityScheme, type="apiKey", name="Authorization", security_scheme_in="header"
    )
    schemes = {
        "munge": header(
            description="`Munge CREDENTIAL`: made by munge(1) for `rtsched-rest 1`, method, path "
            "with query, and the SHA-256 of the body in hexadecimal, in four lines without a last "
            "line end. On the Unix socket the kernel says who asks, and no header is needed."
        ),
        "idtoken": header(
            description="`IDToken TOKEN`: made by `condor_token_fetch -authz READ -lifetime 60`, "
            "which allows no more than that, for one request."
        ),
    }
    return OpenAPIConfig(
        title="rtsched",
        version=__version__,
        summary="Promised deadlines on Slurm and HTCondor.",
        license=License(name="MIT", identifier="MIT"),
        path="/schema",
        use_handler_docstrings=True,
        render_plugins=[JsonRenderPlugin(path="/openapi.json")],
        components=Components(security_schemes=dict(schemes)),
    )


OPEN = ("/v1/health", "/schema/openapi.json")
"""Paths that say nothing of jobs, and need no identity."""

VERSION_HEADER = "rtsched-version"

_HEADERS = [
    (VERSION_HEADER.encode(), __version__.encode()),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
]
_PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>rtsched</title>'
    "<main><h1>rtsched</h1><p>{}</p></main></html>"
)
_ONCE = frozenset(("authorization", "x-remote-user", "content-length"))


class TooLargeError(RtschedError):
    """A body that is longer than allowed."""


class DisconnectedError(RtschedError):
    """The client has gone."""


class AccessMiddleware:
    """An ASGI application in front of another one.

    Parameters
    ----------
    app : callable
        The application behind.
    authenticator : Authenticator
        Who sends requests.
    users, anonymous : TokenBucket
        How many requests each user may send, and all those together who need no identity.
    max_body : int
        Bytes of a request's body.
    open_paths : collection of str
        Paths that need no identity.
    """

    def __init__(
        self,
        app: App,
        authenticator: Authenticator,
        users: TokenBucket,
        anonymous: TokenBucket,
        max_body: int,
        open_paths: Collection[str] = OPEN,
    ) -> None:
        self._app, self._authenticator, self._max_body = app, authenticator, max_body
        self._users, self._anonymous, self._open = users, anonymous, frozenset(open_paths)
        self.refused, self._last_logged = 0, -LOG_EVERY

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
            await send(message)

        try:
            body = await self._admitted(scope, receive)
        except DisconnectedError:
            return
        except RtschedError as error:
            refusal = refusal_of(error)
            self._log(scope, *refusal[:2])
            await refuse(send_with_headers, *refusal, html=_wants_page(scope))
            return
        answered = False

        async def receive_again() -> Message:
            nonlocal answered
            if answered:
                return await receive()
            answered = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, receive_again, send_with_headers)

    def _log(self, scope: Scope, status: int, why: str) -> None:
        """Count a refused request; a flood of them is no flood of log lines."""
        self.refused += 1
        now = time.monotonic()
        if now - self._last_logged >= LOG_EVERY:
            self._last_logged = now
            address = (scope.get("client") or ("",))[0]
            peer = scope["state"].get("peer_uid") if "state" in scope else None
            log.warning(
                "request_refused",
                status=status,
                why=why,
                address=address,
                peer_uid=peer,
                refused=self.refused,
            )

    async def _admitted(self, scope: Scope, receive: Receive) -> bytes:
        """Return a request's body, its client noted in the scope.

        Raises
        ------
        RtschedError
            If the request is refused.
        """
        headers = _headers(scope)
        if not headers.get("content-length", "0").isdecimal():
            raise RtschedError("Content-Length is not a number")
        if int(headers.get("content-length", "0")[:20]) > self._max_body:
            raise self._too_large()
        body = await self._body(receive)
        state = scope.setdefault("state", {})
        if scope["path"] in self._open and scope["method"] == "GET":
            self._anonymous.take(None)
            return body
        query = scope.get("query_string", b"")
        target = scope.get("raw_path", b"") + (b"?" + query if query else b"")
        uid = await self._authenticator.uid(
            scope["method"],
            target,
            headers,
            body,
            state.get("peer_uid"),
            (scope.get("client") or ("",))[0],
        )
        self._users.take(uid)
        state["uid"] = uid
        return body

    async def _body(self, receive: Receive) -> bytes:
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise DisconnectedError
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._max_body:
                raise self._too_large()
            if not message.get("more_body", False):
                return b"".join(parts)

    def _too_large(self) -> TooLargeError:
        return TooLargeError(f"the body is longer than {self._max_body} bytes")


def _headers(scope: Scope) -> dict[str, str]:
    """Return a request's headers by name.

    Raises
    ------
    RtschedError
        If one that says who asks stands there twice.
    """
    found: dict[str, str] = {}
    for raw, value in scope["headers"]:
        name = raw.decode("latin-1").lower()
        if name in found and name in _ONCE:
            raise RtschedError(f"the header {name} may be given once")
        found[name] = value.decode("latin-1")
    return found


def refusal_of(error: RtschedError) -> tuple[int, str, dict[str, str]]:
    """Return status, text and headers of the answer to a request that is refused."""
    match error:
        case AuthenticationError():
            return 401, str(error), {"www-authenticate": f"{SCHEME}, {CONDOR_SCHEME}"}
        case ForbiddenError():
            return 403, str(error), {}
        case TooLargeError():
            return 413, str(error), {"connection": "close"}
        case TooMuchError():
            status = 503 if isinstance(error, OverloadError) else 429
            return status, str(error), {"retry-after": str(max(math.ceil(error.retry_s), 1))}
        case AdapterError():
            return 503, str(error), {"retry-after": "1"}
    return 400, str(error), {}


def _wants_page(scope: Scope) -> bool:
    """Return whether a browser asks, which shows its user the answer."""
    accepted = (value for name, value in scope["headers"] if name.lower() == b"accept")
    return any(b"text/html" in value for value in accepted)


async def refuse(
    send: Send, status: int, text: str, headers: dict[str, str], html: bool = False
) -> None:
    """Send an answer that says why a request is refused."""
    if html:
        body = _PAGE.format(escape(text)).encode()
        kind = "text/html; charset=utf-8"
    else:
        body, kind = msgspec.json.encode({"error": text}), "application/json"
    given = {"content-type": kind, "content-length": str(len(body)), **headers}
    pairs = [(name.encode(), value.encode()) for name, value in given.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
