"""The ASGI application: endpoints, their OpenAPI description, and access control in front."""

from __future__ import annotations

import http
from functools import partial
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
from rtsched.adapters import munge
from rtsched.daemon import reports
from rtsched.daemon.reports import RefusalCode, RefusedError, Status
from rtsched.descriptions import described
from rtsched.errors import ProtocolError, RtschedError
from rtsched.rest import endpoints
from rtsched.rest.authentication import Authenticator, Sessions, TokenAuthenticator
from rtsched.rest.board import pages
from rtsched.rest.endpoints import DaemonClient, Problem, ask_for
from rtsched.rest.limits import ConcurrencyLimit, TokenBucket
from rtsched.rest.middleware import OPEN, AccessMiddleware, refusal_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from rtsched.rest.authentication import Pool
    from rtsched.rest.settings import RestSettings

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
        text = "; ".join(
            " ".join(filter(None, (each.get("key"), each.get("message"))))
            for each in details
            if isinstance(each, dict)
        )
    return _response(status, text or http.HTTPStatus(status).phrase, error.headers)


def create_app(
    settings: RestSettings,
    proxy_uid: int = -1,
    *,
    decode: Callable[[str], munge.Credential] | None = munge.decode,
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

    for kind in (*vars(reports).values(), *vars(endpoints).values()):
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
