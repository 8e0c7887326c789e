"""The wire format: what Python writes it reads, and nothing malformed gets through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
