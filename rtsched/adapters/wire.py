"""Messages between a submit filter, or a user's question, and the daemon; pure.

A message is a header of 12 bytes and a payload. All numbers are little endian::

    magic "RTSQ" | version u16 | kind u16 | payload length u32

The payload of a submit filter's request, and of the answer to it, is a row of fields::

    tag u16 | type u8 (1: int64, 2: text) | zero u8 | length u32 | value

The payload of `MessageKind.QUERY` and `MessageKind.REPORT` is JSON; that of `MessageKind.QUERY_FOR`
is a uid (u32), then JSON. `contrib/common/rtsched_wire.h`
states the same numbers in C, and a test compares the two. Numbers are never given a second meaning:
what is new gets a new tag, which an older reader skips; what an older reader must not skip gets a
new version.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING

from rtsched.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable

MAGIC = b"RTSQ"
VERSION = 1

HEADER = struct.Struct("<4sHHI")
"""Magic, version, kind, payload's length."""

_FIELD = struct.Struct("<HBBI")
_NUMBER = struct.Struct("<q")
_UID = struct.Struct("<I")
_IS_NUMBER, _IS_TEXT = 1, 2


class MessageKind(IntEnum):
    """What a message is."""

    SUBMIT = 1
    """Fields: somebody submits this job."""
    MODIFY = 2
    """Fields: somebody wants to change these properties of a job."""
    QUERY = 3
    """JSON: a user's question."""
    QUERY_FOR = 4
    """A uid and JSON: the question of that user, whom the peer has identified."""
    ANSWER = 0x101
    """Fields: what became of a `SUBMIT` or `MODIFY`."""
    ERROR = 0x102
    """Fields: the request could not be judged; `Tag.MESSAGE` says why."""
    REPORT = 0x103
    """JSON: what was asked for by a `QUERY`."""


LIMIT = {
    MessageKind.SUBMIT: 1 << 18,
    MessageKind.MODIFY: 1 << 18,
    MessageKind.QUERY: 1 << 18,
    MessageKind.QUERY_FOR: 1 << 18,
    MessageKind.ANSWER: 1 << 16,
    MessageKind.ERROR: 1 << 16,
    MessageKind.REPORT: 1 << 24,
}
"""Longest payload of each kind, bytes."""


class Tag(IntEnum):
    """What a field holds: names are those of Slurm's `job_desc_msg_t`; HTCondor sends one `AD`.

    A property that the user left open is not sent. Offsets that Slurm adds are taken off. -1 is
    "unlimited" (`time_limit`, `max_nodes`) or "release" (`priority` in a `MessageKind.MODIFY`).
    """

    # who, and which job
    USER_ID = 1
    """Owner of the job."""
    GROUP_ID = 2
    SUBMIT_UID = 3
    """Who sent the request to the batch system; the daemon trusts this one."""
    JOB_ID = 4
    """`MessageKind.MODIFY` only; absent where the request names the job by `JOB_ID_STR`."""
    JOB_ID_STR = 5
    """`MessageKind.MODIFY` only: such as `12` or `12_[3-4]`."""
    # text
    NAME = 16
    ACCOUNT = 17
    PARTITION = 18
    QOS = 19
    RESERVATION = 20
    COMMENT = 21
    EXTRA = 22
    ADMIN_COMMENT = 23
    FEATURES = 24
    DEPENDENCY = 25
    ARRAY_INX = 26
    LICENSES = 27
    REQ_NODES = 28
    EXC_NODES = 29
    TRES_PER_JOB = 30
    TRES_PER_NODE = 31
    TRES_PER_SOCKET = 32
    TRES_PER_TASK = 33
    PREFER = 34
    OTHER = 35
    """Further options that say where or when a job may run, such as `contiguous,switches`; values
    of some are sent in fields of their own."""
    CLUSTERS = 36
    """The value of `clusters`, which is in `OTHER` too."""
    CPUS_PER_TRES = 37
    """Such as `gres/gpu:4`; in `OTHER` too, as `cpus-per-gpu`."""
    MEM_PER_TRES = 38
    """MiB, such as `gres/gpu:2048`; in `OTHER` too, as `mem-per-gpu`."""
    SUBMIT_LINE = 39
    """The command line, cut off; options in a script and in variables are not in it."""
    ALLOC_NODE = 40
    """The host on which it is submitted, `MessageKind.SUBMIT` only."""
    # text: what the batch system knows at the instant of the request, `MessageKind.SUBMIT` only
    IDLE_NODES = 48
    """Nodes on which nothing runs, as Slurm writes lists of nodes; absent: not known."""
    AVAIL_NODES = 49
    """Nodes that take jobs, likewise."""
    PASSED = 50
    """The longest time limits of jobs that passed the filter in the last minute, by the second, as
    `SECOND:MINUTES,...`; -1: unlimited, -2: not given. Absent: the filter does
    not count them."""
    UNKNOWN_JOBS = 51
    """Jobs of `DEPENDENCY` that do not exist, or no more, as `NUMBER` or `NUMBER_TASK`, with commas
    between; absent: all do, or that is not known."""
    # numbers
    DEADLINE = 64
    """Seconds since the epoch."""
    BEGIN_TIME = 65
    """Seconds since the epoch."""
    TIME_LIMIT = 66
    """Minutes."""
    TIME_MIN = 67
    """Minutes."""
    MIN_NODES = 68
    MAX_NODES = 69
    MIN_CPUS = 70
    MAX_CPUS = 71
    NUM_TASKS = 72
    CPUS_PER_TASK = 73
    NTASKS_PER_NODE = 74
    PN_MIN_MEMORY = 75
    """MiB on each node."""
    MEM_PER_CPU = 76
    """MiB for each processor; instead of `PN_MIN_MEMORY`."""
    PRIORITY = 77
    """0: held."""
    NICE = 78
    SITE_FACTOR = 79
    SHARED = 80
    """0: exclusive nodes; 1: nodes may be shared."""
    REQUEUE = 81
    HET_JOB_OFFSET = 82
    """Part of a heterogeneous job; absent for others."""
    BATCH = 83
    """1: it has a script, and so an environment that can be set."""
    PN_MIN_CPUS = 84
    PN_MIN_TMP_DISK = 85
    DELAY_BOOT = 86
    CRON = 87
    """1: an occurrence of a cron job."""
    TIMEOUT_MS = 88
    """Milliseconds after the request for which the filter waits for the answer."""
    SOCKETS_PER_NODE = 89
    """This one and those up to `REQ_SWITCH` are in `OTHER` too."""
    CORES_PER_SOCKET = 90
    THREADS_PER_CORE = 91
    NTASKS_PER_SOCKET = 92
    NTASKS_PER_CORE = 93
    """-1: as many as there are threads."""
    NTASKS_PER_TRES = 94
    """Tasks for each GPU."""
    CONTIGUOUS = 95
    """1: nodes that follow each other."""
    REQ_SWITCH = 96
    """The most leaf switches that its nodes may be spread over."""
    OVERCOMMIT = 97
    """1: its tasks need no processors of their own."""
    ASKED_MS = 98
    """When the filter began to wait, milliseconds of the host's monotonic clock."""
    LAST_NODE_UPDATE = 111
    """When a node changed last, seconds since the epoch; absent: not known."""
    # answers only
    VERDICT = 128
    """0: accept. 1: reject."""
    MESSAGE = 129
    """What the user reads."""
    ENV = 130
    """`NAME=value` for the job's environment; may occur more than once."""
    # HTCondor
    AD = 200
    """Lines `Name = literal`: attributes of a job ad, worked out by the schedd."""


ACCEPT, REJECT = 0, 1


def frame(kind: MessageKind, payload: bytes) -> bytes:
    """Return a message with this payload.

    Raises
    ------
    ProtocolError
        If the payload is longer than messages of this kind may be.
    """
    if len(payload) > LIMIT[kind]:
        raise ProtocolError(
            f"a message of kind {kind.name} would be {len(payload)} bytes long, at most "
            f"{LIMIT[kind]} are allowed"
        )
    return HEADER.pack(MAGIC, VERSION, kind, len(payload)) + payload


def frame_for(uid: int, payload: bytes) -> bytes:
    """Return a message with the question of another user.

    Raises
    ------
    ProtocolError
        If it is too long, or this is no uid.
    """
    try:
        return frame(MessageKind.QUERY_FOR, _UID.pack(uid) + payload)
    except struct.error as error:
        raise ProtocolError(f"{uid} is not a uid") from error


def read_for(payload: bytes) -> tuple[int, bytes]:
    """Return who asks and the question, of a `MessageKind.QUERY_FOR`.

    Raises
    ------
    ProtocolError
        If it is too short.
    """
    if len(payload) < _UID.size:
        raise ProtocolError("the payload ends within the uid")
    uid: int = _UID.unpack_from(payload)[0]
    return uid, payload[_UID.size :]


def encode(kind: MessageKind, fields: Iterable[tuple[Tag, int | str]]) -> bytes:
    """Return a message made of fields, in their order.

    Raises
    ------
    ProtocolError
        If a number needs more than 64 bits, a text holds a NUL, or all is too long.
    """
    parts = []
    for tag, value in fields:
        kept, coded = _coded(tag, value)
        parts += [_FIELD.pack(tag, kept, 0, len(coded)), coded]
    return frame(kind, b"".join(parts))


def _coded(tag: Tag, value: int | str) -> tuple[int, bytes]:
    """Return a value's type and bytes."""
    if isinstance(value, str):
        if "\0" in value:
            raise ProtocolError(f"field {tag.name}: a text must not hold a NUL")
        return _IS_TEXT, value.encode(errors="replace")
    try:
        return _IS_NUMBER, _NUMBER.pack(value)
    except struct.error as error:
        raise ProtocolError(f"field {tag.name}: {value} is no 64-bit number") from error


def read_header(header: bytes) -> tuple[MessageKind, int]:
    """Return the kind of a message, and how many bytes of payload follow.

    Parameters
    ----------
    header : bytes
        The first `HEADER.size` bytes of a message.

    Raises
    ------
    ProtocolError
        If this is no message, one of another version or of an unknown kind, or one too long.
    """
    if len(header) != HEADER.size:
        raise ProtocolError(f"a header has {HEADER.size} bytes, not {len(header)}")
    magic, version, number, length = HEADER.unpack(header)
    if magic != MAGIC:
        raise ProtocolError("this is no message of rtsched")
    if version != VERSION:
        raise ProtocolError(
            f"the message has version {version}, this side knows {VERSION}: install the submit "
            "filter and the daemon from one release"
        )
    try:
        kind = MessageKind(number)
    except ValueError as error:
        raise ProtocolError(f"messages of kind {number} are not known") from error
    if length > LIMIT[kind]:
        raise ProtocolError(
            f"the payload has {length} bytes, at most {LIMIT[kind]} are allowed in messages of "
            f"kind {kind.name}"
        )
    return kind, length


def decode(payload: bytes) -> list[tuple[int, int | str]]:
    """Return all fields of a payload in their order, unknown tags too.

    Bytes that are no UTF-8 become U+FFFD.

    Raises
    ------
    ProtocolError
        If the payload does not consist of whole fields, a type is not known, or a text holds a
        NUL.
    """
    fields: list[tuple[int, int | str]] = []
    at = 0
    while at < len(payload):
        if len(payload) - at < _FIELD.size:
            raise ProtocolError(f"the payload ends within a field's header, at byte {at}")
        tag, kept, zero, length = _FIELD.unpack_from(payload, at)
        at += _FIELD.size
        if zero or length > len(payload) - at:
            raise ProtocolError(f"field {tag} is malformed or longer than the payload")
        fields.append((tag, _value(tag, kept, payload[at : at + length])))
        at += length
    return fields


def _value(tag: int, kept: int, coded: bytes) -> int | str:
    """Return the number or text of a field."""
    if kept == _IS_NUMBER and len(coded) == _NUMBER.size:
        number: int = _NUMBER.unpack(coded)[0]
        return number
    if kept == _IS_TEXT and b"\0" not in coded:
        return coded.decode(errors="replace")
    raise ProtocolError(f"field {tag} holds neither a number nor a text")


def decode_fields(payload: bytes) -> dict[int, int | str]:
    """Return the fields of a payload by tag; of a tag that occurs twice, the last.

    Raises
    ------
    ProtocolError
        As `decode` does.
    """
    return dict(decode(payload))
