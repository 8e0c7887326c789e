"""One trusted peer asks for users whom it has identified; nobody gains its rights or others'."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import closing
from typing import TYPE_CHECKING

import msgspec
import pytest
from running import ANN, Running, answer_of

from rtsched.adapters.wire import HEADER, MessageKind, frame, frame_for, read_for, read_header
from rtsched.daemon import reports
from rtsched.daemon.ask import report_in
from rtsched.daemon.reports import Explain, Plan, RefusedError, Status
from rtsched.daemon.server import MAX_FOR_OTHERS, SocketServer
from rtsched.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from rtsched.daemon.reports import Question, Report, StatusReport

BOB = 1002
KINDS = (MessageKind.QUERY, MessageKind.QUERY_FOR)


def reply(path: Path, message: bytes) -> bytes:
    """Return the payload of the answer; nothing if the connection was closed."""
    with closing(socket.socket(socket.AF_UNIX)) as line:
        line.settimeout(60.0)
        line.connect(str(path))
        try:
            line.sendall(message)
            header = line.recv(HEADER.size, socket.MSG_WAITALL)
        except ConnectionError:
            return b""
        return line.recv(read_header(header)[1], socket.MSG_WAITALL) if header else b""


def asked_for(path: Path, uid: int, question: Question) -> Report:
    """Ask for a user, and return the report."""
    payload = reply(path, frame_for(uid, msgspec.json.encode(question)))
    return report_in(question, MessageKind.REPORT, payload, str(path))


def run(running: Running, course: Callable[[], Awaitable[None]], rest: int) -> None:
    """Run a course with a daemon whose REST server has this uid, ann promised one job."""
    running.users = SocketServer(
        running.path / "query.sock", KINDS, running.queries.answer, for_others=rest
    )

    async def whole() -> None:
        await running.start()
        await asyncio.to_thread(answer_of, running.asked())
        await course()

    asyncio.run(whole())


def test_a_user_gets_what_is_the_users(running: Running) -> None:
    """Ann sees her promise, bob does not, though this process is root and asks for both."""

    async def course() -> None:
        path = running.users.path
        ann: StatusReport = await asyncio.to_thread(asked_for, path, ANN, Status(metrics=True))
        bob: StatusReport = await asyncio.to_thread(asked_for, path, BOB, Status(metrics=True))
        root: StatusReport = await asyncio.to_thread(asked_for, path, 0, Status())
        assert (len(ann.promises), ann.everyone, ann.metrics) == (1, False, "")
        assert (len(bob.promises), bob.everyone) == (0, False)
        assert (len(root.promises), root.everyone) == (1, True)
        with pytest.raises(RefusedError, match="only admins") as refused:
            await asyncio.to_thread(asked_for, path, BOB, Plan())
        assert refused.value.code == "forbidden"
        with pytest.raises(RefusedError) as refused:
            await asyncio.to_thread(asked_for, path, BOB, Explain("4711"))
        assert refused.value.code == "not-found"

    run(running, course, os.getuid())


def test_another_peer_is_refused(running: Running) -> None:
    """Not even root may ask for a user if it is not the one of the setting."""

    async def course() -> None:
        for uid in (0, ANN, os.getuid()):
            message = frame_for(uid, msgspec.json.encode(Status()))
            assert await asyncio.to_thread(reply, running.users.path, message) == b""
        assert running.users.refused == 3
        own = await asyncio.to_thread(
            reply, running.users.path, frame(MessageKind.QUERY, b'{"ask":"status"}')
        )
        assert b'"everyone":true' in own or os.getuid() != 0

    run(running, course, -1)


def test_connections_are_counted_to_the_user(tmp_path: Path) -> None:
    """A user has a number of connections through the peer, and the peer has a number in all."""
    hold = asyncio.Event()
    seen: list[int] = []

    async def answer(kind: MessageKind, payload: bytes, client: object) -> bytes:
        seen.append(client.uid)  # type: ignore[attr-defined]
        await hold.wait()
        return frame(MessageKind.REPORT, reports.refusal_payload("held"))

    async def course() -> None:
        server = SocketServer(
            tmp_path / "q.sock", KINDS, answer, max_connections=2, for_others=os.getuid()
        )
        await server.listen()
        message = frame_for(ANN, b"{}")
        first = [asyncio.create_task(asyncio.to_thread(reply, server.path, message)) for _ in "ab"]
        while len(seen) < 2:
            await asyncio.sleep(0.01)
        assert await asyncio.to_thread(reply, server.path, message) == b""
        other = asyncio.create_task(asyncio.to_thread(reply, server.path, frame_for(BOB, b"{}")))
        while len(seen) < 3:
            await asyncio.sleep(0.01)
        assert (server.open[ANN], server.open[BOB]) == (2, 1)
        lines = []
        for _ in range(MAX_FOR_OTHERS + 5):
            line = socket.socket(socket.AF_UNIX)
            line.connect(str(server.path))
            lines.append(line)
        await asyncio.sleep(0.2)
        assert server.open[os.getuid()] == MAX_FOR_OTHERS
        for line in lines:
            line.close()
        hold.set()
        assert all(b"held" in text for text in await asyncio.gather(*first, other))
        await asyncio.sleep(0.2)
        assert not server.open
        server.close()

    asyncio.run(course())


def test_a_malformed_uid_is_refused(running: Running) -> None:
    """Too few bytes for a uid close the connection; a number that is no uid is not sent."""

    async def course() -> None:
        short = frame(MessageKind.QUERY_FOR, b"\1\2")
        assert await asyncio.to_thread(reply, running.users.path, short) == b""

    run(running, course, os.getuid())
    with pytest.raises(ProtocolError, match="not a uid"):
        frame_for(-1, b"{}")
    assert read_for(frame_for(7, b"{}")[HEADER.size :]) == (7, b"{}")
