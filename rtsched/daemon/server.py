"""The two sockets: one for the submit filter, one for users' questions.

Who is at the other end is what the kernel says (peer credentials, unix(7)), never what a message
says; one peer may be trusted to ask for users whom it has identified itself. A connection brings
one message and gets one answer. It is cut off when it is idle, sends too much or nonsense, or when
its user has too many open at a time.

Whether the answer was read is known too. A Unix socket that is closed with data unread resets the
connection (`unix_release_sock` in Linux), so the server keeps its end open until the client has
closed its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import grp
import os
import select
import socket
import struct
import time
from collections import Counter
from typing import TYPE_CHECKING, Protocol

import structlog

from rtsched.adapters.wire import HEADER, LIMIT, MessageKind, read_for, read_header
from rtsched.daemon.failpoints import passing
from rtsched.errors import AdapterError, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection
    from pathlib import Path

    Handler = Callable[[MessageKind, bytes, "Client"], Awaitable[bytes]]

log = structlog.get_logger(__name__)

_CREDENTIALS = struct.Struct("3i")
BACKLOG = 1024
MAX_FOR_OTHERS = 64
"""Connections at a time of the peer that asks for other users."""

LOG_EVERY = 1.0
"""Seconds between two log lines about refused messages."""


class HungUpError(ProtocolError):
    """Nobody waits for the answer any more."""

    def __init__(self) -> None:
        super().__init__("the client disconnected before it was answered")


class Client(Protocol):
    """The client at the other end of a connection.

    Attributes
    ----------
    uid : int
        As the kernel says; or as a trusted peer says, of the user it asks for.
    """

    uid: int

    def waits(self) -> bool:
        """Return whether the client still waits for the answer."""

    def if_unread(self, undo: Callable[[], None]) -> None:
        """Have `undo` called if it turns out that the client did not read the answer."""


class SocketServer:
    """A listening Unix socket.

    Parameters
    ----------
    path : Path
        Of the socket; a dead one in its place is removed.
    kinds : collection of MessageKind
        What may be asked here.
    handler : callable
        From kind, payload and the client to the answer's bytes; must not block for long.
    uids : collection of int, optional
        Who may ask; None: everybody.
    max_connections : int
        Connections of one user at a time; root and `uids` may have any number.
    idle : float
        Seconds for which a connection may keep us waiting.
    for_others : int
        Uid of the peer that may ask for other users (`MessageKind.QUERY_FOR`): each question then
        has the rights and limits of its user, and none of the peer's. -1: nobody may.
    """

    def __init__(
        self,
        path: Path,
        kinds: Collection[MessageKind],
        handler: Handler,
        *,
        uids: Collection[int] | None = None,
        max_connections: int = 8,
        idle: float = 5.0,
        for_others: int = -1,
    ) -> None:
        self.path, self.kinds, self.handler = path, frozenset(kinds), handler
        self.uids, self.max_connections, self.idle = uids, max_connections, idle
        self.for_others = for_others
        self.open: Counter[int] = Counter()
        self.answering = set[asyncio.Task[None]]()
        self.refused = 0
        self._last_logged = -LOG_EVERY
        self._server: asyncio.Server | None = None

    async def listen(self, group: str | None = None) -> None:
        """Begin to listen; only members of `group` can connect, if this process may say so.

        Raises
        ------
        AdapterError
            If the socket cannot be made, or another daemon listens there.
        """
        if answers_on(self.path):
            raise AdapterError(f"{self.path}: another daemon is listening; stop it first")
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_unix_server(
                lambda: _Connection(self), str(self.path), backlog=BACKLOG
            )
            self._set_permissions(group)
        except OSError as error:
            raise AdapterError(
                f"{self.path}: cannot listen: {error.strerror}; the directory must exist and "
                "belong to the daemon's user"
            ) from error

    def _set_permissions(self, group: str | None) -> None:
        mode = 0o666
        if group is not None:
            try:
                os.chown(self.path, -1, grp.getgrnam(group).gr_gid)
                mode = 0o660
            except (KeyError, PermissionError):
                log.warning("socket_open_to_all", path=str(self.path), group=group)
        self.path.chmod(mode)

    def close(self) -> None:
        """Stop listening and remove the socket."""
        if self._server is not None:
            self._server.close()
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()

    async def answered(self, seconds: float) -> None:
        """Wait until what was asked before is answered, at most so many seconds."""
        if self.answering:
            await asyncio.wait(self.answering, timeout=seconds)

    def refuse(self, uid: int, why: str) -> None:
        """Count a message that is not answered; a flood of them is no flood of log lines."""
        self.refused += 1
        now = time.monotonic()
        if now - self._last_logged >= LOG_EVERY:
            self._last_logged = now
            log.warning(
                "message_refused", path=self.path.name, uid=uid, why=why, refused=self.refused
            )

    def admits(self, uid: int) -> bool:
        """Return whether a user may ask, and has not too many connections open."""
        if self.uids is not None:
            return uid in self.uids
        if uid == self.for_others:
            return self.open[uid] < MAX_FOR_OTHERS
        return uid == 0 or self.open[uid] < self.max_connections


class _Connection(asyncio.Protocol):
    """One connection: one message, one answer. It is the `Client` of its message."""

    def __init__(self, server: SocketServer) -> None:
        self.server, self.uid, self.buffer = server, -1, bytearray()
        self.counted: list[int] = []
        self.complete = self.half_closed = self.written = False
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self.undo: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Look who it is."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  a stream socket
        self.transport = transport
        peer: socket.socket = transport.get_extra_info("socket")
        raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        self.uid = _CREDENTIALS.unpack(raw)[1]
        if not self.server.admits(self.uid):
            self.server.refused += 1
            transport.abort()
            return
        self._count()
        self.timer = asyncio.get_running_loop().call_later(self.server.idle, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Answer once the message is complete."""
        self.buffer += data
        if len(self.buffer) < HEADER.size:
            return
        try:
            kind, length = read_header(bytes(self.buffer[: HEADER.size]))
            if kind not in self.server.kinds or length > LIMIT[kind]:
                raise ProtocolError(f"a message of kind {kind.name} is not accepted here")
            if len(self.buffer) < HEADER.size + length:
                return
            if len(self.buffer) > HEADER.size + length:
                raise ProtocolError("more than one message")
            payload = bytes(self.buffer[HEADER.size :])
            if kind is MessageKind.QUERY_FOR:
                payload = self._for_other(payload)
        except ProtocolError as error:
            self._refuse(error)
            return
        self.complete = True
        self.task = asyncio.get_running_loop().create_task(self._answer(kind, payload))
        self.server.answering.add(self.task)
        self.task.add_done_callback(self.server.answering.discard)

    def _count(self) -> None:
        """Count this connection to its user until it is closed."""
        self.server.open[self.uid] += 1
        self.counted.append(self.uid)

    def _for_other(self, payload: bytes) -> bytes:
        """Go on as the user whom a trusted peer names; return the question.

        Raises
        ------
        ProtocolError
            If the peer is not trusted, or the user has too many connections open.
        """
        if self.uid != self.server.for_others:
            raise ProtocolError("this peer may not ask for other users")
        self.uid, payload = read_for(payload)
        if not self.server.admits(self.uid):
            raise ProtocolError("too many connections for this user")
        self._count()
        return payload

    def eof_received(self) -> bool:
        """Close, unless the client sends no more and still waits for its answer."""
        self.half_closed = True
        return self.complete and not self.written

    async def _answer(self, kind: MessageKind, payload: bytes) -> None:
        """Work out the answer, and write it."""
        try:
            if not self.waits():
                raise HungUpError
            answer = await self.server.handler(kind, payload, self)
        except ProtocolError as error:
            self._refuse(error)
            return
        except Exception:  # a defect must not leave the client waiting
            log.exception("request_crashed", kind=kind.name, uid=self.uid)
            self.transport.abort()
            return
        if self.transport.is_closing():
            self._answer_unread()
            return
        self.written = True
        self.transport.write(answer)
        if kind is MessageKind.SUBMIT:
            passing("answered")
        if self.half_closed:
            self.transport.close()
        else:
            self.transport.write_eof()  # the client closes when it has read that

    def _refuse(self, error: ProtocolError) -> None:
        self.server.refuse(self.uid, str(error))
        self.transport.abort()

    def waits(self) -> bool:
        """Return whether the client still waits for the answer."""
        if self.transport.is_closing():
            return False
        waits = select.poll()
        waits.register(self.transport.get_extra_info("socket"), 0)  # hang-ups are always told
        return not waits.poll(0)

    def if_unread(self, undo: Callable[[], None]) -> None:
        """Have `undo` called if it turns out that the client did not read the answer."""
        self.undo = undo

    def _answer_unread(self) -> None:
        undo, self.undo = self.undo, None
        if undo is not None:
            undo()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it; an error after the answer means that nobody has read that."""
        if self.timer is not None:
            self.timer.cancel()
        for uid in self.counted:
            self.server.open[uid] -= 1
            if not self.server.open[uid]:
                del self.server.open[uid]
        if exc is not None and self.written:
            self._answer_unread()


def answers_on(path: Path) -> bool:
    """Return whether somebody listens on a socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True
