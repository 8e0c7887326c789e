"""Questions to the daemon: asked, answered, refused, or not answered at all."""

from __future__ import annotations

import socket
import time

import msgspec
import pytest
from daemon_replies import answering, reported

from rtsched.adapters.wire import HEADER, MAGIC, MessageKind, frame
from rtsched.daemon.ask import ask
from rtsched.daemon.reports import (
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
    Reliability,
    Shares,
    Status,
    Timeline,
    When,
    read_question,
    refusal_payload,
)
from rtsched.errors import AdapterError, ProtocolError, RtschedError

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
