"""A user's side of the REST server: one question, one report, from any host.

The server stands in /etc/rtsched/client.toml::

    server = "https://head.example.org:6821"
    ca = "/etc/rtsched/ca.pem"

or in the environment variable RTSCHED_SERVER, or in a record of DNS. munge says who asks, or on
HTCondor a token of the pool's.
"""

from __future__ import annotations

import contextlib
import os
import time
from functools import cache
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from msgspec.structs import replace

from rtsched import __version__
from rtsched.daemon.query_client import SOCKET
from rtsched.errors import AdapterError, ConfigError, ProtocolError, RtschedError
from rtsched.rest.credential import CONDOR_SCHEME, SCHEME, TTL_S, payload_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from http.client import HTTPConnection

    from dns.name import Name
    from dns.resolver import Resolver

    from rtsched.daemon import questions

FILE = Path("/etc/rtsched/client.toml")
SERVER, CA = "RTSCHED_SERVER", "RTSCHED_CA"
"""Environment variables, which take the place of the file's settings."""

VERSION_HEADER = "rtsched-version"
CONNECT_S = 5.0
"""Seconds to wait for a connection."""
LONGEST = 1 << 24
"""Bytes of an answer."""

_LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))


class ClientSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A client.toml."""

    server: str = ""
    """Where `rtsched rest` answers, such as `https://head:6821`; several, separated by spaces,
    where a backup controller has one too. Empty: as the SRV record `_rtsched._tcp` of this host's
    domain says."""
    ca: str = ""
    """File with the certificates, PEM, one of which signed the server's; empty: those that this
    host trusts."""
    identity: Literal["", "munge", "condor"] = ""
    """By what the server knows users: credentials of `munge`, or limited tokens of the pool's
    (`condor`: `condor_token_fetch`). Empty: munge where it runs, else condor where HTCondor is
    installed."""


class UnavailableError(AdapterError):
    """A server, or the daemon behind it, does not answer; another one may."""


class HttpRequest(NamedTuple):
    """An HTTP request."""

    method: str
    target: str
    body: bytes = b""


def server_for(path: str, file: Path = FILE) -> ClientSettings | None:
    """Return which server to ask; None: the daemon's socket at `path`.

    A socket that was chosen comes first, then RTSCHED_SERVER, then the default socket if it is
    there, then the file, then DNS.

    Raises
    ------
    ConfigError
        If the file is wrong.
    """
    if path != SOCKET or (not os.environ.get(SERVER) and os.path.exists(path)):
        return None
    return named_server(file)


def named_server(file: Path = FILE) -> ClientSettings | None:
    """Return the server that RTSCHED_SERVER, the file or DNS names; None: none does.

    Raises
    ------
    ConfigError
        If the file is wrong.
    """
    from rtsched.core.config import read_settings

    named = os.environ.get(SERVER, "")
    settings = read_settings(file, ClientSettings) if file.exists() else ClientSettings()
    if named:
        return replace(settings, server=named, ca=os.environ.get(CA, settings.ca))
    if settings.server:
        return settings
    found = servers()
    return replace(settings, server=found) if found else None


def request_of(question: questions.Question) -> HttpRequest:
    """Return the request that asks a question, by the first of its routes that can."""
    for route in type(question).routes:
        if (request := _request(route, question)) is not None:
            return request
    if type(question).routes:
        raise RtschedError("'' is not the name of a job")
    raise RtschedError(f"{type(question).__name__}: the server answers no such question")


def _request(route: questions.Route, question: questions.Question) -> HttpRequest | None:
    """Return the request that asks a question by a route; None: it has no place for a field."""
    path = f"/v1{route.path}"
    if route.method == "POST":
        body = getattr(question, route.body) if route.body else question
        return HttpRequest(route.method, path, msgspec.json.encode(body))
    query = dict[str, str]()
    for name, value in msgspec.structs.asdict(question).items():
        part = f"{{{name}}}"
        if part in path:
            if not value:
                return None
            path = path.replace(part, _part(value))
        elif isinstance(value, msgspec.Struct):
            return None
        elif value is not None and value is not False and value != "":
            query[name] = msgspec.json.encode(value).decode()
    return HttpRequest(route.method, f"{path}?{urlencode(query)}" if query else path)


def _part(name: str) -> str:
    """Return a job's name as a part of a path."""
    if "/" in name:
        raise RtschedError(f"{name!r} is not the name of a job")
    return quote(name, safe="")


def ask_server(
    question: questions.Question,
    settings: ClientSettings,
    timeout_s: float = 15.0,
    encode: Callable[[bytes, int], str] | None = None,
) -> Any:
    """Return the report that answers a question: an instance of `type(question).Answer`.

    Of several servers the first one is asked behind which a daemon is active.

    Parameters
    ----------
    question : Question
        What to ask.
    settings : ClientSettings
        Which servers.
    timeout_s : float
        Seconds to wait for each part of the answer.
    encode : callable, optional
        From a payload and seconds of life to a credential of munge; by default as `settings`
        say.

    Raises
    ------
    AdapterError
        If the server, the daemon behind it or munged does not answer.
    ProtocolError
        If it answers what this release does not understand.
    RtschedError
        If it says why it does not answer the question.
    """
    report = None
    asked = request_of(question), type(question).Answer
    for _, report in _answers(*asked, settings, timeout_s, encode):
        if getattr(report, "mode", "") != "standby":
            break
    return report


def open_board(settings: ClientSettings, timeout_s: float = 15.0) -> str:
    """Return a link that opens the board in a browser, once and soon, as this user.

    Raises
    ------
    AdapterError, ProtocolError, RtschedError
        As `ask_server` does.
    """
    request = HttpRequest("POST", "/v1/sessions")
    url, session = next(_answers(request, dict[str, Any], settings, timeout_s))
    return url.rstrip("/") + str(session.get("path", ""))


def _answers(
    request: HttpRequest,
    kind: Any,
    settings: ClientSettings,
    timeout_s: float,
    encode: Callable[[bytes, int], str] | None = None,
) -> Iterator[tuple[str, Any]]:
    """Yield the URL and the answer of each server that answers; raises if none does."""
    answered, failures = False, list[UnavailableError]()
    for url in settings.server.split() or [""]:
        one = replace(settings, server=url)
        try:
            answer = _answer(request, kind, one, timeout_s, encode)
        except UnavailableError as error:
            failures.append(error)
        else:
            answered = True
            yield url, answer
    if not answered:
        raise AdapterError("; ".join(map(str, failures)))


def _answer(
    request: HttpRequest,
    kind: Any,
    settings: ClientSettings,
    timeout_s: float,
    encode: Callable[[bytes, int], str] | None = None,
) -> Any:
    """Return the answer of one server to a request, as a `kind`; raises as `ask_server` does."""
    _check_url(settings.server)
    headers = {
        "Authorization": _authorization(request, settings, encode),
        "Accept": "application/json",
        "Content-Type": "application/json",
        "User-Agent": f"rtsched/{__version__}",
        "Connection": "close",
    }
    status, version, body = _exchanged(settings, request, headers, timeout_s)
    other = "" if version == __version__ else _other(version)
    if status not in {200, 201}:
        raise _refusal(status, body, other)
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise ProtocolError(
            f"{settings.server}: the report cannot be decoded ({error}){other}"
        ) from error


def _authorization(
    request: HttpRequest, settings: ClientSettings, encode: Callable[[bytes, int], str] | None
) -> str:
    """Return the header that says who asks."""
    from rtsched.adapters import credentials

    identity = "munge" if encode is not None else settings.identity
    if not identity and not credentials.available() and which(credentials.FETCH):
        identity = "condor"
    if identity != "condor":
        payload = payload_for(request.method, request.target.encode(), request.body)
        return f"{SCHEME} {(encode or credentials.encode)(payload, TTL_S)}"
    if not settings.server.startswith("https:"):  # a token is good for other requests too
        raise ConfigError(
            [f"server: {settings.server} is without TLS; tokens of HTCondor are sent by https only"]
        )
    return f"{CONDOR_SCHEME} {credentials.fetch()}"


def _exchanged(
    settings: ClientSettings, request: HttpRequest, headers: Mapping[str, str], timeout_s: float
) -> tuple[int, str, bytes]:
    """Return status, release of the server, and body of the answer."""
    from http.client import HTTPException

    connect_s = min(CONNECT_S, timeout_s)
    with contextlib.closing(_connection(settings, connect_s)) as connection:
        try:
            connection.connect()
            connection.sock.settimeout(timeout_s)
            connection.request(request.method, request.target, request.body or None, headers)
            response = connection.getresponse()
            body = response.read(LONGEST + 1)
        except TimeoutError as error:
            raise UnavailableError(
                f"{settings.server} did not answer within {timeout_s:g} s; try again"
            ) from error
        except (OSError, HTTPException) as error:
            why = getattr(error, "verify_message", "") or getattr(error, "strerror", "") or error
            raise UnavailableError(f"{settings.server} does not answer: {why}") from error
    if len(body) > LONGEST:
        raise ProtocolError(f"{settings.server}: the answer is longer than {LONGEST} bytes")
    return response.status, response.getheader(VERSION_HEADER, ""), body


def _connection(settings: ClientSettings, timeout_s: float) -> HTTPConnection:
    """Return a connection to the server, not open yet."""
    from http.client import HTTPConnection, HTTPSConnection

    secure, host, port = _check_url(settings.server)
    if not secure:
        return HTTPConnection(host, port, timeout=timeout_s)
    import ssl

    try:
        context = ssl.create_default_context(cafile=settings.ca or None)
    except (OSError, ssl.SSLError) as error:
        why = error.strerror or error
        raise ConfigError([f"ca: {settings.ca} cannot be read: {why}"]) from error
    return HTTPSConnection(host, port, timeout=timeout_s, context=context)


def _check_url(url: str) -> tuple[bool, str, int | None]:
    """Return whether a URL is one of TLS, its host and its port.

    Raises
    ------
    ConfigError
        If it is not the URL of a server.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host = ""
        parts, port = urlsplit(""), None
    if not host or parts.scheme not in {"http", "https"} or parts.path not in {"", "/"}:
        raise ConfigError([f"server: {url!r} is not a URL such as https://head:6821"])
    if parts.scheme == "http" and host not in _LOOPBACK:
        raise ConfigError([f"server: {url} is on another host; use https"])
    return parts.scheme == "https", host, port


def _other(version: str) -> str:
    """Return what to add where the server is of another release."""
    if not version:
        return "; this is not a server of rtsched"
    return f"; the server runs rtsched {version}, this is {__version__}: use the same release"


def _refusal(status: int, body: bytes, other: str) -> RtschedError:
    """Return the error that says why there is no report."""
    try:
        text = msgspec.json.decode(body, type=dict[str, str])["error"]
    except (msgspec.MsgspecError, KeyError):
        text = f"the server answered with status {status}"
    if status == 503:
        return UnavailableError(text)
    if status in {401, 429} or status >= 500:
        return AdapterError(text + (other if status == 502 else ""))
    differs = status in {400, 404, 405} and not text.startswith("no job ")
    return RtschedError(text + (other if differs else ""))


SERVICE = "_rtsched._tcp"
LIMIT_S = 2.0
"""Seconds that all questions may take."""


@cache
def servers(file: str = "/etc/resolv.conf") -> str:
    """Return the URLs of the servers, separated by spaces, first come first; empty: none is found.

    Parameters
    ----------
    file : str
        Which name servers to ask, and for which domains: those of `search`, or of the host's name.
    """
    try:
        from dns.exception import DNSException
        from dns.resolver import Resolver
    except ImportError:
        return ""
    try:
        resolver = Resolver(file)
        return _found(resolver)
    except (DNSException, OSError, ValueError):
        return ""


def _found(resolver: Resolver) -> str:
    """Return what the first domain that has such records says."""
    from dns.exception import Timeout
    from dns.resolver import NXDOMAIN, NoAnswer, NoNameservers

    end = time.monotonic() + LIMIT_S
    for domain in resolver.search or [resolver.domain]:
        left = end - time.monotonic()
        if len(domain) < 2 or left <= 0:  # never the root
            continue
        try:
            answer = resolver.resolve(_name(domain), "SRV", lifetime=left, search=False)
        except (NXDOMAIN, NoAnswer, NoNameservers):
            continue
        except Timeout:
            return ""
        records = sorted(answer, key=lambda each: (each.priority, -each.weight))
        inside = [each for each in records if each.target.is_subdomain(domain)]
        if inside:
            return " ".join(
                f"https://{each.target.to_text(omit_final_dot=True)}:{each.port}" for each in inside
            )
    return ""


def _name(domain: Name) -> Name:
    from dns.name import from_text

    return from_text(SERVICE, domain)
