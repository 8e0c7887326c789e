"""The sockets: who may ask, and what is taken."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from typing import TYPE_CHECKING

import pytest

from rtsched.adapters.wire import HEADER, MessageKind, frame, read_header
from rtsched.daemon.server import SocketServer
from rtsched.errors import AdapterError

if TYPE_CHECKING:
    from pathlib import Path

    from rtsched.daemon.server import Client


def asked(path: Path, message: bytes, timeout: float = 60.0) -> bytes:
    """Return what comes back from a socket; nothing if it is closed."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(timeout)
        line.connect(str(path))
        got = b""
        with contextlib.suppress(ConnectionError):
            line.sendall(message)
            while part := line.recv(65536):
                got += part
        return got


async def answers(server: SocketServer, *messages: bytes) -> list[bytes]:
    """Return the answers of a door, asked from threads."""
    await server.listen()
    try:
        questions = [asyncio.to_thread(asked, server.path, message) for message in messages]
        return list(await asyncio.gather(*questions, return_exceptions=False))
    finally:
        server.close()


async def echo(kind: MessageKind, payload: bytes, client: Client) -> bytes:
    """Answer with the payload."""
    del kind, client
    return frame(MessageKind.REPORT, payload)


def test_a_question_is_answered(tmp_path: Path) -> None:
    """A whole message gets one answer, and the connection ends."""
    server = SocketServer(tmp_path / "q.sock", (MessageKind.QUERY,), echo)
    (answer,) = asyncio.run(answers(server, frame(MessageKind.QUERY, b"hello")))
    assert read_header(answer[: HEADER.size]) == (MessageKind.REPORT, 5)
    assert answer[HEADER.size :] == b"hello"
    assert not (tmp_path / "q.sock").exists()


@pytest.mark.parametrize(
    "message",
    [
        b"GET / HTTP/1.0\r\n\r\n",
        frame(MessageKind.SUBMIT, b""),
        frame(MessageKind.QUERY, b"x") + b"y",
        HEADER.pack(b"RTSQ", 1, MessageKind.QUERY, 1 << 30),
    ],
)
def test_nonsense_is_cut_off(tmp_path: Path, message: bytes) -> None:
    """What is no question of this socket ends the connection, and is counted."""
    server = SocketServer(tmp_path / "q.sock", (MessageKind.QUERY,), echo)
    assert asyncio.run(answers(server, message)) == [b""]
    assert server.refused == 1


def test_others_are_sent_away(tmp_path: Path) -> None:
    """Who is not among the users of a socket is cut off before a word is read."""
    server = SocketServer(tmp_path / "q.sock", (MessageKind.QUERY,), echo, uids={987654})
    assert asyncio.run(answers(server, frame(MessageKind.QUERY, b"hello"))) == [b""]


def test_a_client_that_sends_no_more_is_answered(tmp_path: Path) -> None:
    """A client may close its sending half, and read the answer then."""

    def half_closed(path: Path) -> bytes:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(60.0)
            line.connect(str(path))
            line.sendall(frame(MessageKind.QUERY, b"hello"))
            line.shutdown(socket.SHUT_WR)
            return line.recv(100)

    async def ask() -> bytes:
        server = SocketServer(tmp_path / "q.sock", (MessageKind.QUERY,), echo)
        await server.listen()
        try:
            return await asyncio.to_thread(half_closed, server.path)
        finally:
            server.close()

    assert asyncio.run(ask()) == frame(MessageKind.REPORT, b"hello")


def test_a_defect_ends_the_connection(tmp_path: Path) -> None:
    """A handler that crashes keeps nobody waiting."""

    async def crash(kind: MessageKind, payload: bytes, client: Client) -> bytes:
        raise ZeroDivisionError(kind, payload, client)

    server = SocketServer(tmp_path / "q.sock", (MessageKind.QUERY,), crash)
    assert asyncio.run(answers(server, frame(MessageKind.QUERY, b"hello"))) == [b""]


def test_an_idle_connection_is_cut_off(tmp_path: Path) -> None:
    """Half a message does not keep a connection open."""
    server = SocketServer(tmp_path / "q.sock", (MessageKind.QUERY,), echo, idle=0.1)
    begun = time.monotonic()
    assert asyncio.run(answers(server, frame(MessageKind.QUERY, b"hello")[:-1])) == [b""]
    assert time.monotonic() - begun < 4


def test_one_daemon_at_a_time(tmp_path: Path) -> None:
    """A socket that somebody answers on is not taken over; a dead one is."""

    async def twice() -> None:
        first = SocketServer(tmp_path / "q.sock", (MessageKind.QUERY,), echo)
        await first.listen()
        with pytest.raises(AdapterError, match="another daemon"):
            await SocketServer(tmp_path / "q.sock", (MessageKind.QUERY,), echo).listen()
        first.close()

    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "q.sock"))
    asyncio.run(twice())
