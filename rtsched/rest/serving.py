"""Listening: TCP with TLS, a Unix socket, and limits on connections and their time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import ssl
import struct
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import h11
import structlog
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from rtsched.adapters.users import uid_of
from rtsched.daemon.server import answers_on
from rtsched.daemon.systemd import log_events, watched
from rtsched.errors import AdapterError, ConfigError
from rtsched.rest.app import create_app

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from rtsched.rest.settings import RestSettings

log = structlog.get_logger(__name__)

_CREDENTIALS = struct.Struct("iII")
BACKLOG = 1024

HEADERS = 16384
"""Bytes of a request's line and headers."""

IDLE = 5.0
"""Seconds for which a connection stays open between two requests."""

LAST_ANSWERS = 2.0
"""Seconds that a server which ends waits for the answers under way."""

_MALFORMED = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n"
    b'{"error":"this is not an HTTP request"}'
)


class Connections:
    """How many there are, and who has them.

    Parameters
    ----------
    number, each : int
        At the most, in all and of one peer.
    time_limit : float
        Seconds for one request with its answer.
    """

    def __init__(self, number: int, each: int, time_limit: float) -> None:
        self.number, self.each, self.time_limit = number, each, time_limit
        self.open = Counter[Any]()

    def admits(self, peer: Hashable) -> bool:
        """Return whether a peer may have one more."""
        return self.open[peer] < self.each and self.open.total() < self.number

    def drop(self, peer: Hashable) -> None:
        """Count one less."""
        self.open[peer] -= 1
        if not self.open[peer]:
            del self.open[peer]


class Connection(H11Protocol):
    """One connection; a local user's uid stands in the state of its requests as `peer_uid`."""

    limits: Connections
    timer: asyncio.TimerHandle | None = None
    peer: Hashable | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Look who it is, and give it its time."""
        super().connection_made(transport)
        end: socket.socket = transport.get_extra_info("socket")
        if end.family == socket.AF_UNIX:
            raw = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            peer: Hashable = _CREDENTIALS.unpack(raw)[1]
            self.app_state = {**self.app_state, "peer_uid": peer}
        else:
            peer = self.client[0] if self.client else ""
        if not self.limits.admits(peer):
            transport.abort()
            return
        self.peer = peer
        self.limits.open[peer] += 1
        self._restart()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it no more."""
        if self.timer is not None:
            self.timer.cancel()
        if self.peer is not None:
            self.limits.drop(self.peer)
            self.peer = None
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Give the next request its time."""
        super().on_response_complete()
        self._restart()

    def send_400_response(self, msg: str) -> None:
        """Say that this is no request of HTTP, and close."""
        del msg
        if self.conn.our_state is h11.IDLE:
            self.transport.write(_MALFORMED)
        self.transport.close()

    def _restart(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if not self.transport.is_closing():
            loop = asyncio.get_running_loop()
            self.timer = loop.call_later(self.limits.time_limit, self.transport.abort)


class Listener(NamedTuple):
    """A socket that is bound, and how it is encrypted."""

    socket: socket.socket
    tls: ssl.SSLContext | None


def listeners(settings: RestSettings) -> list[Listener]:
    """Return the sockets to listen on.

    Raises
    ------
    AdapterError
        If one cannot be bound.
    ConfigError
        If certificate or key cannot be read.
    """
    found = []
    if settings.port:
        where = (settings.address, settings.port)
        family = socket.AF_INET6 if ":" in settings.address else socket.AF_INET
        tls = tls_of(settings) if settings.certificate else None
        try:
            found.append(Listener(socket.create_server(where, family=family), tls))
        except OSError as error:
            raise AdapterError(
                f"{settings.address}, port {settings.port}: cannot listen: {error.strerror}"
            ) from error
    if settings.socket:
        found.append(Listener(_unix(settings.socket), None))
    return found


def _unix(path: str) -> socket.socket:
    if answers_on(Path(path)):
        raise AdapterError(f"{path}: another server is listening; stop it first")
    with contextlib.suppress(FileNotFoundError):
        Path(path).unlink()
    end = socket.socket(socket.AF_UNIX)
    try:
        end.bind(path)
        Path(path).chmod(0o666)  # anybody may connect: the kernel says who it is
    except OSError as error:
        end.close()
        raise AdapterError(
            f"{path}: cannot listen: {error.strerror}; the directory must exist and belong to "
            "this user"
        ) from error
    return end


def tls_of(settings: RestSettings) -> ssl.SSLContext:
    """Return how connections are encrypted.

    Raises
    ------
    ConfigError
        If certificate or key cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificate(context, settings)
    return context


def load_certificate(context: ssl.SSLContext, settings: RestSettings) -> None:
    """Read certificate and key, for new connections.

    Raises
    ------
    ConfigError
        If they cannot be read.
    """
    try:
        context.load_cert_chain(settings.certificate, settings.key)
    except (OSError, ssl.SSLError) as error:
        why = error.strerror or str(error)
        raise ConfigError(
            [f"certificate, key: {settings.certificate} and {settings.key}: {why}"]
        ) from error


async def serve(
    settings: RestSettings, ends: list[Listener], ready: Callable[[], None], stop: asyncio.Event
) -> None:
    """Answer requests until told to stop."""
    proxy = await asyncio.to_thread(uid_of, settings.proxy_user) if settings.proxy_user else -1
    if settings.proxy_user and proxy < 0:
        log.warning("no_such_user", user=settings.proxy_user, setting="proxy_user")
    config = uvicorn.Config(
        create_app(settings, proxy),
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=int(IDLE),
        h11_max_incomplete_event_size=HEADERS,
    )
    config.load()
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    state, loop = ServerState(), asyncio.get_running_loop()

    class Limited(Connection):
        limits = Connections(
            settings.connections, settings.connections_per_peer, settings.time_limit
        )

    servers = [
        await loop.create_server(
            lambda: Limited(config, state, {}),
            sock=end.socket,
            ssl=end.tls,
            ssl_handshake_timeout=settings.time_limit if end.tls else None,
            ssl_shutdown_timeout=settings.time_limit if end.tls else None,
            backlog=BACKLOG,
        )
        for end in ends
    ]
    ready()
    log.info("rest_started", listening=[str(end.socket.getsockname()) for end in ends])
    await stop.wait()
    for server in servers:
        server.close()
    for connection in list(state.connections):
        connection.shutdown()
    if state.tasks:
        await asyncio.wait(state.tasks, timeout=LAST_ANSWERS)
    for connection in list(state.connections):
        connection.transport.abort()
    if settings.socket:
        with contextlib.suppress(FileNotFoundError):
            Path(settings.socket).unlink()
    log.info("rest_stopped")


def run(settings: RestSettings) -> None:
    """Serve until SIGTERM or SIGINT; SIGHUP reads certificate and key anew.

    Raises
    ------
    RtschedError
        If it cannot listen.
    """
    log_events(settings.log_level)
    if os.geteuid() == 0:
        log.warning("runs_as_root", advice="run it as a user of its own, as the unit does")
    asyncio.run(_run(settings, listeners(settings)))


async def _run(settings: RestSettings, ends: list[Listener]) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def reload() -> None:
        for end in ends:
            if end.tls is None:
                continue
            try:
                load_certificate(end.tls, settings)
            except ConfigError as error:
                log.error("certificate_not_read", error=str(error))
            else:
                log.info("certificate_read")

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, reload)
    async with watched() as ready:
        await serve(settings, ends, ready, stop)
