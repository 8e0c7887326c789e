"""The C client under sanitizers, against servers of all kinds, and the wire format."""

import os
import re
import socket
import subprocess
from pathlib import Path

import pytest
from filter_server import ACCEPTED, Behaviour, FilterServer, answering, dripping, hanging, sending
from filter_sources import ADDRESSES, COMMON, PROGRAMS, THREADS, Build
from hypothesis import given
from hypothesis import strategies as st

from rtsched.adapters import wire
from rtsched.adapters.wire import (
    HEADER,
    LIMIT,
    VERSION,
    MessageKind,
    Tag,
    decode,
    decode_fields,
    encode,
    frame,
    read_header,
)
from rtsched.errors import ProtocolError

ANSWERED, NO_DAEMON, BUSY, WRONG_OWNER, TIMED_OUT, CLOSED, MALFORMED, NOT_SENT, NOT_ASKED = range(9)
ANY_OWNER = 2**32 - 1
GOOD = encode(MessageKind.ANSWER, ACCEPTED)


def ask(
    program: Path,
    path: Path,
    *,
    timeout: int = 300,
    owner: int = ANY_OWNER,
    threads: int = 1,
    questions: int = 1,
    length: int = 10,
) -> list[tuple[int, int, str]]:
    """Return outcome, milliseconds and message of each question."""
    numbers = [timeout, owner, threads, questions, length]
    done = subprocess.run(
        [program, path, *map(str, numbers)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split(" ", 2) for line in done.stdout.splitlines()]
    return [(int(outcome), int(ms), text) for outcome, ms, text in rows]


@pytest.fixture(scope="session")
def asker(build: Build) -> Path:
    """Return the program that asks, with address and undefined-behaviour sanitizers."""
    return build("ask", PROGRAMS / "ask.c", COMMON / "rtsched_client.c")


def test_the_header_in_c_says_the_same() -> None:
    """Every number of the wire format is equal in C and in Python."""
    text = (COMMON / "rtsched_wire.h").read_text()
    found = {
        name: int(number, 0)
        for name, number in re.findall(r"RTSCHED_(\w+) =? ?(0x\w+|\d+)\b", text)
    }
    expected = {f"TAG_{tag.name}": tag.value for tag in Tag}
    expected |= {f"KIND_{kind.name}": kind.value for kind in MessageKind}
    expected |= {"VERSION": wire.VERSION, "HEADER_SIZE": HEADER.size, "FIELD_SIZE": 8}
    expected |= {"NUMBER": 1, "TEXT": 2, "ACCEPT": wire.ACCEPT, "REJECT": wire.REJECT}
    expected |= {"REQUEST_LIMIT": wire.LIMIT[MessageKind.SUBMIT]}
    expected |= {"ANSWER_LIMIT": wire.LIMIT[MessageKind.ANSWER]}
    assert found == expected
    assert f'RTSCHED_MAGIC "{wire.MAGIC.decode()}"' in text


def test_what_c_asks_python_reads(asker: Path, tmp_path: Path) -> None:
    """A request arrives field by field, and the answer's text comes back."""
    with FilterServer(tmp_path / "s", answering(*ACCEPTED)) as server:
        assert [row[::2] for row in ask(asker, tmp_path / "s", length=100_000)] == [
            (ANSWERED, "promised")
        ]
    kind, fields = server.asked[0]
    assert kind == MessageKind.SUBMIT
    assert fields == {Tag.SUBMIT_UID: -5, Tag.COMMENT: "x" * 100_000}


@pytest.mark.parametrize(
    ("behave", "outcome"),
    [
        (hanging, TIMED_OUT),
        (dripping(GOOD, 0.03), TIMED_OUT),
        (dripping(GOOD, 0.001), ANSWERED),
        (sending(b""), CLOSED),
        (sending(GOOD[:7]), CLOSED),
        (sending(GOOD[:-1]), CLOSED),
        (sending(GOOD[:-1], hang_up=False), TIMED_OUT),
        (sending(b"HTTP/1.1 400 Bad Request\r\n\r\n"), MALFORMED),
        (sending(HEADER.pack(b"RTSQ", 2, MessageKind.ANSWER, 0)), MALFORMED),
        (sending(HEADER.pack(b"RTSQ", 1, MessageKind.SUBMIT, 0)), MALFORMED),
        (sending(HEADER.pack(b"RTSQ", 1, MessageKind.ANSWER, 65537) + b"x" * 65537), MALFORMED),
        (sending(HEADER.pack(b"RTSQ", 1, MessageKind.ANSWER, 2**32 - 1)), MALFORMED),
        (sending(HEADER.pack(b"RTSQ", 1, MessageKind.ANSWER, 3) + b"abc"), MALFORMED),
        (
            sending(HEADER.pack(b"RTSQ", 1, MessageKind.ANSWER, 9) + b"\x81\0\2\0\2\0\0\0x"),
            MALFORMED,
        ),
        (
            sending(HEADER.pack(b"RTSQ", 1, MessageKind.ANSWER, 9) + b"\x81\0\2\0\1\0\0\0\0"),
            MALFORMED,
        ),
        (
            sending(HEADER.pack(b"RTSQ", 1, MessageKind.ANSWER, 9) + b"\x81\0\1\0\1\0\0\0x"),
            MALFORMED,
        ),
        (
            sending(HEADER.pack(b"RTSQ", 1, MessageKind.ANSWER, 9) + b"\x81\0\3\0\1\0\0\0x"),
            MALFORMED,
        ),
        (
            sending(HEADER.pack(b"RTSQ", 1, MessageKind.ANSWER, 9) + b"\x81\0\2\1\1\0\0\0x"),
            MALFORMED,
        ),
        (
            sending(HEADER.pack(b"RTSQ", 1, MessageKind.ANSWER, 9) + b"\x81\0\2\0\1\0\0\0x"),
            ANSWERED,
        ),
        (
            sending(HEADER.pack(b"RTSQ", 1, MessageKind.ANSWER, 9) + b"\xff\xff\2\0\1\0\0\0x"),
            ANSWERED,
        ),
        (sending(GOOD + b"more"), ANSWERED),
        (answering((Tag.MESSAGE, "busy"), kind=MessageKind.ERROR), ANSWERED),
    ],
)
def test_each_misbehaviour_has_its_outcome(
    asker: Path, tmp_path: Path, behave: Behaviour, outcome: int
) -> None:
    """Whatever the server does, the client returns in time and says what was wrong."""
    with FilterServer(tmp_path / "s", behave):
        ((found, ms, _),) = ask(asker, tmp_path / "s")
    assert found == outcome
    assert ms < 450
    assert (ms >= 300) == (outcome == TIMED_OUT)


def test_nobody_listens(asker: Path, tmp_path: Path) -> None:
    """A path that does not exist, is a file, or is too long is told at once."""
    (tmp_path / "file").touch()
    for name in ("missing", "file", "x" * 120):
        assert ask(asker, tmp_path / name)[0][0] == NO_DAEMON


def test_a_full_queue_is_waited_for_until_the_deadline(asker: Path, tmp_path: Path) -> None:
    """With a full backlog the client tries until its time is over, and no longer."""
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as first:
        server.bind(str(tmp_path / "s"))
        server.listen(0)
        first.connect(str(tmp_path / "s"))
        ((outcome, ms, _),) = ask(asker, tmp_path / "s", timeout=100)
    assert outcome == BUSY
    assert 100 <= ms < 200


def test_a_server_that_reads_nothing_cannot_hold_the_client(asker: Path, tmp_path: Path) -> None:
    """A request that does not fit into the socket's buffer is given up at the deadline."""
    with socket.socket(socket.AF_UNIX) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        server.bind(str(tmp_path / "s"))
        server.listen(5)
        ((outcome, ms, _),) = ask(asker, tmp_path / "s", timeout=100, length=262_000)
    assert outcome == TIMED_OUT
    assert ms < 200


def test_a_request_that_is_too_long_is_not_sent(asker: Path, tmp_path: Path) -> None:
    """A text of a megabyte is refused before anybody is asked."""
    with FilterServer(tmp_path / "s", answering(*ACCEPTED)) as server:
        assert ask(asker, tmp_path / "s", length=1 << 20)[0][0] == NOT_SENT
    assert server.asked == []


def test_only_the_daemons_socket_is_trusted(asker: Path, tmp_path: Path) -> None:
    """A socket of another user than the configured one is not told the job."""
    owner = os.geteuid() or 65534
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        os.seteuid(owner)
        server.listen(5)
        os.seteuid(os.getuid())
        assert ask(asker, tmp_path / "s", timeout=50, owner=owner + 1)[0][0] == WRONG_OWNER
        assert ask(asker, tmp_path / "s", timeout=50, owner=owner)[0][0] == TIMED_OUT


def test_roots_socket_is_trusted(asker: Path, tmp_path: Path) -> None:
    """Whoever may answer as root may answer, as may the configured user."""
    with FilterServer(tmp_path / "s", answering(*ACCEPTED)):
        owner = os.getuid() + (os.getuid() == 0)
        assert ask(asker, tmp_path / "s", owner=owner)[0][0] == ANSWERED


@pytest.mark.parametrize("flags", [ADDRESSES, THREADS], ids=["addresses", "threads"])
def test_many_threads_ask_at_once(build: Build, tmp_path: Path, flags: tuple[str, ...]) -> None:
    """Threads do not disturb each other, neither answered nor turned away by the breaker."""
    sources = [PROGRAMS / "ask.c", COMMON / "rtsched_client.c"]
    program = build(f"ask{flags[0][11:17]}", *sources, flags=flags)
    with FilterServer(tmp_path / "s", answering(*ACCEPTED)):
        rows = ask(program, tmp_path / "s", timeout=5000, threads=8, questions=50)
    assert {row[::2] for row in rows} == {(ANSWERED, "promised")}
    assert len(rows) == 400


@pytest.mark.parametrize("flags", [ADDRESSES, THREADS], ids=["addresses", "threads"])
def test_the_breaker(build: Build, flags: tuple[str, ...]) -> None:
    """It opens after the failures allowed, lets one probe through, and closes after a success."""
    program = build(f"breaker{flags[0][11:17]}", PROGRAMS / "breaker.c", flags=flags)
    assert (
        subprocess.run([program], check=True, capture_output=True, timeout=60).stdout == b"good\n"
    )


def test_the_header_suits_cpp(build: Build, tmp_path: Path) -> None:
    """HTCondor's filter can include all headers from C++."""
    source = tmp_path / "a.cpp"
    headers = sorted(path.name for path in COMMON.glob("*.h"))
    assert headers
    source.write_text("".join(f'#include "{header}"\n' for header in headers))
    command = ["g++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    subprocess.run([*command, f"-I{COMMON}", source], check=True, timeout=60)


KINDS = st.sampled_from(
    [MessageKind.SUBMIT, MessageKind.MODIFY, MessageKind.ANSWER, MessageKind.ERROR]
)
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
VALUES = st.integers(-(2**63), 2**63 - 1) | TEXTS
FIELDS = st.lists(st.tuples(st.sampled_from(list(Tag)), VALUES), max_size=30)


@given(KINDS, FIELDS)
def test_what_is_written_is_read(kind: MessageKind, fields: list[tuple[Tag, int | str]]) -> None:
    """Every row of fields comes back as it was, in its order."""
    message = encode(kind, fields)
    assert read_header(message[: HEADER.size]) == (kind, len(message) - HEADER.size)
    assert decode(message[HEADER.size :]) == fields


@given(st.lists(st.tuples(st.sampled_from([Tag.ENV, Tag.NAME]), TEXTS)))
def test_the_last_of_a_repeated_field_counts(fields: list[tuple[Tag, str]]) -> None:
    """A field that occurs twice has its last value."""
    assert decode_fields(encode(MessageKind.ANSWER, fields)[HEADER.size :]) == dict(fields)


@given(st.binary())
def test_garbage_is_refused_or_read(payload: bytes) -> None:
    """Whatever the bytes are, the outcome is fields or one clear error."""
    try:
        fields = decode(payload)
    except ProtocolError:
        return
    assert all(isinstance(value, int) or "\0" not in value for _, value in fields)


@given(KINDS, FIELDS, st.data())
def test_a_cut_payload_is_refused(
    kind: MessageKind, fields: list[tuple[Tag, int | str]], data: st.DataObject
) -> None:
    """A payload cut anywhere but between two fields is no payload."""
    ends = [len(encode(kind, fields[:i])) - HEADER.size for i in range(len(fields) + 1)]
    payload = encode(kind, fields)[HEADER.size :]
    cut = data.draw(st.integers(0, len(payload)))
    if cut in ends:
        assert decode(payload[:cut]) == fields[: ends.index(cut)]
    else:
        with pytest.raises(ProtocolError):
            decode(payload[:cut])


@given(st.binary(max_size=20))
def test_a_header_is_whole_and_ours(header: bytes) -> None:
    """What is no header is refused."""
    try:
        kind, length = read_header(header)
    except ProtocolError:
        return
    assert header[:4] == b"RTSQ"
    assert length <= LIMIT[kind]


@pytest.mark.parametrize(
    ("header", "says"),
    [
        (HEADER.pack(b"HTTP", VERSION, 1, 0), "no message of rtsched"),
        (HEADER.pack(b"RTSQ", VERSION + 1, 1, 0), "version 2, this side knows 1"),
        (HEADER.pack(b"RTSQ", VERSION, 99, 0), "kind 99"),
        (HEADER.pack(b"RTSQ", VERSION, MessageKind.SUBMIT, (1 << 18) + 1), "at most 262144"),
        (HEADER.pack(b"RTSQ", VERSION, MessageKind.ANSWER, (1 << 16) + 1), "at most 65536"),
        (b"RTSQ", "12 bytes, not 4"),
    ],
)
def test_a_wrong_header_is_named(header: bytes, says: str) -> None:
    """The error says what is wrong with the header."""
    with pytest.raises(ProtocolError, match=says):
        read_header(header)


@pytest.mark.parametrize(
    ("value", "says"),
    [("a\0b", "must not hold a NUL"), (2**63, "no 64-bit number"), ("x" * (1 << 18), "at most")],
)
def test_what_cannot_be_said_is_not_sent(value: int | str, says: str) -> None:
    """Neither a NUL, nor too large a number, nor too long a text is written."""
    with pytest.raises(ProtocolError, match=says):
        encode(MessageKind.SUBMIT, [(Tag.COMMENT, value)])


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    """A user's bytes that are no text become U+FFFD, and lone surrogates a question mark."""
    fields = b"\x15\x00\x02\x00\x03\x00\x00\x00a\xffb"
    assert decode_fields(fields) == {Tag.COMMENT: "a�b"}
    assert decode_fields(encode(MessageKind.SUBMIT, [(Tag.COMMENT, "\udcff")])[12:]) == {
        Tag.COMMENT: "?"
    }


@pytest.mark.parametrize("kind", MessageKind)
def test_a_payload_may_be_as_long_as_its_limit(kind: MessageKind) -> None:
    """The longest payload passes, one byte more does not."""
    assert len(frame(kind, b" " * LIMIT[kind])) == HEADER.size + LIMIT[kind]
    with pytest.raises(ProtocolError):
        frame(kind, b" " * (LIMIT[kind] + 1))
