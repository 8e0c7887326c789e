"""The sockets: who may ask, also for others, what is taken, and what is answered."""

import asyncio
import contextlib
import os
import socket
import time
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from daemon_replies import answering, reported
from running import ANN, Running, answer_of

from rtsched.adapters.wire import (
    HEADER,
    MAGIC,
    MessageKind,
    frame,
    frame_for,
    read_for,
    read_header,
)
from rtsched.daemon import questions
from rtsched.daemon.query_client import ask, report_in
from rtsched.daemon.questions import (
    AnyQuestion,
    Cancel,
    Choices,
    Chunk,
    ChunkReport,
    Closed,
    Explain,
    ExplainReport,
    Feasible,
    Hold,
    NodeList,
    Plan,
    Question,
    RefusedError,
    Reliability,
    Report,
    Shares,
    Status,
    StatusReport,
    Timeline,
    When,
    read_question,
    refusal_payload,
)
from rtsched.daemon.server import MAX_FOR_OTHERS, Client, SocketServer
from rtsched.errors import AdapterError, ProtocolError, RtschedError


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


async def test_one_daemon_at_a_time(tmp_path: Path) -> None:
    """A socket that somebody answers on is not taken over; a dead one is."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "q.sock"))
    first = SocketServer(tmp_path / "q.sock", (MessageKind.QUERY,), echo)
    await first.listen()
    with pytest.raises(AdapterError, match="another daemon"):
        await SocketServer(tmp_path / "q.sock", (MessageKind.QUERY,), echo).listen()
    first.close()


REPORT = ChunkReport("7", 12.0, ("n1", "n2"), (0.25, 0.75))


def test_there_and_back(tmp_path):
    """A question reaches the daemon as it was asked, and its report comes back."""
    path = tmp_path / "q"
    with answering(path, lambda _: reported(REPORT)) as asked:
        assert ask(Chunk("7"), str(path)) == REPORT
    assert asked == [Chunk("7")]


def test_no_number_is_null(tmp_path):
    """Infinity is not in JSON: it arrives as None."""
    path = tmp_path / "q"
    endless = ChunkReport("7", float("inf"), (), ())
    with answering(path, lambda _: reported(endless)):
        assert ask(Chunk("7"), str(path)).deadline is None


def test_a_refusal_is_told(tmp_path):
    """What the daemon says against a question is the error."""
    path = tmp_path / "q"
    with (
        answering(path, lambda _: frame(MessageKind.REPORT, refusal_payload("job 7 is not yours"))),
        pytest.raises(RtschedError, match=r"^job 7 is not yours$"),
    ):
        ask(Chunk("7"), str(path))


def test_nobody_there(tmp_path):
    """Without a daemon it is said how to look after it, with status 3."""
    with pytest.raises(AdapterError, match=r"no daemon answers .*systemctl status rtsched") as told:
        ask(Status(), str(tmp_path / "none"))
    assert told.value.exit_status == 3
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(tmp_path / "left"))
    with pytest.raises(AdapterError, match="no daemon answers"):
        ask(Status(), str(tmp_path / "left"))


def test_a_daemon_that_hangs(tmp_path):
    """An answer that does not come in time is not waited for."""
    path = tmp_path / "q"

    def slow(_: object) -> bytes:
        time.sleep(0.5)
        return b""

    with answering(path, slow), pytest.raises(AdapterError, match=r"within 0.2 s"):
        ask(Status(), str(path), timeout_s=0.2)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"", AdapterError),
        (b"HTTP/1.0 400 Bad", ProtocolError),
        (HEADER.pack(MAGIC, 2, MessageKind.REPORT, 0), ProtocolError),
        (HEADER.pack(MAGIC, 1, MessageKind.REPORT, 1 << 31), ProtocolError),
        (HEADER.pack(MAGIC, 1, MessageKind.REPORT, 100) + b"{", AdapterError),
        (frame(MessageKind.ANSWER, b""), ProtocolError),
        (frame(MessageKind.REPORT, b"[]"), ProtocolError),
        (frame(MessageKind.REPORT, b"{}"), ProtocolError),
        (frame(MessageKind.REPORT, b'{"report": {"job": 7}}'), ProtocolError),
        (frame(MessageKind.REPORT, b'{"error": 7}'), ProtocolError),
        (bytes(range(64)), ProtocolError),
    ],
)
def test_odd_answers(tmp_path, reply, error):
    """Whatever comes back, it is one error of the kind that is meant."""
    path = tmp_path / "q"
    with answering(path, lambda _: reply), pytest.raises(error):
        ask(Chunk("7"), str(path))


def test_every_question_is_read():
    """The daemon reads each kind of question, and says of others what is wrong."""
    questions = (Status(), Explain("7"), Feasible(4), Plan(), Chunk("7"))
    questions += (NodeList(), Timeline(), Shares(), Closed(5.0), Cancel("7"))
    questions += (Choices(), Hold(2), Reliability())
    questions += (When("7"), When(request=Feasible(4, gpus=2)))
    for question in questions:
        assert read_question(msgspec.json.encode(question)) == question
    assert {type(question) for question in questions} == set(AnyQuestion.__args__)
    for payload in (b"{}", b"[", b'{"ask": "x"}', b'{"ask": "feasible", "nodes": 0}'):
        with pytest.raises(msgspec.MsgspecError):
            read_question(payload)


def test_an_older_report():
    """A report without fields that later releases added is read."""
    assert msgspec.json.decode(b'{"now": 1.0}', type=ExplainReport) == ExplainReport(1.0)


def test_a_question_that_is_no_text() -> None:
    """Bytes that are no UTF-8 are no question, wherever they stand."""
    for payload in (b'{"ask":"\xff"}', b'{"\xc0":1}', b"\xff", b'{"ask":"explain","job":"\xe9"}'):
        with pytest.raises(msgspec.MsgspecError):
            read_question(payload)


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


async def serve_for(running: Running, rest: int) -> None:
    """Start a daemon whose REST server has this uid, ann promised one job."""
    running.users = SocketServer(
        running.path / "query.sock", KINDS, running.queries.answer, for_others=rest
    )
    await running.start()
    await asyncio.to_thread(answer_of, running.asked())


async def test_a_user_gets_what_is_the_users(running: Running) -> None:
    """Ann sees her promise, bob does not, though this process is root and asks for both."""
    await serve_for(running, os.getuid())
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


async def test_another_peer_is_refused(running: Running) -> None:
    """Not even root may ask for a user if it is not the one of the setting."""
    await serve_for(running, -1)
    for uid in (0, ANN, os.getuid()):
        message = frame_for(uid, msgspec.json.encode(Status()))
        assert await asyncio.to_thread(reply, running.users.path, message) == b""
    assert running.users.refused == 3
    own = await asyncio.to_thread(
        reply, running.users.path, frame(MessageKind.QUERY, b'{"ask":"status"}')
    )
    assert b'"everyone":true' in own or os.getuid() != 0


async def test_connections_are_counted_to_the_user(tmp_path: Path) -> None:
    """A user has a number of connections through the peer, and the peer has a number in all."""
    hold = asyncio.Event()
    seen: list[int] = []

    async def answer(kind: MessageKind, payload: bytes, client: object) -> bytes:
        seen.append(client.uid)
        await hold.wait()
        return frame(MessageKind.REPORT, questions.refusal_payload("held"))

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


async def test_a_malformed_uid_is_refused(running: Running) -> None:
    """Too few bytes for a uid close the connection; a number that is no uid is not sent."""
    await serve_for(running, os.getuid())
    short = frame(MessageKind.QUERY_FOR, b"\1\2")
    assert await asyncio.to_thread(reply, running.users.path, short) == b""
    with pytest.raises(ProtocolError, match="not a uid"):
        frame_for(-1, b"{}")
    assert read_for(frame_for(7, b"{}")[HEADER.size :]) == (7, b"{}")
