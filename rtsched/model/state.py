"""States of plug-ins between cycles, and the events since the last time that they take in.

    class Usage(State, frozen=True):
        version: ClassVar[int] = 1
        spent: NDArray[np.float64]
        as_of: float

A state is data, typed and versioned, and kept in the snapshot: the daemon stores it with
`encode_state` and gives it back with `decode_state`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import msgspec
import numpy as np

from rtsched.errors import RtschedError, ShapeError
from rtsched.model.jobs import NOBODY, Jobs
from rtsched.model.table import Column, Table

if TYPE_CHECKING:
    from collections.abc import Sequence


class State(msgspec.Struct, frozen=True):
    """Base of all plug-in states. Raise `version` whenever a field changes its meaning."""

    version: ClassVar[int] = 1


T = TypeVar("T", bound=State)


def encode_state(state: State) -> bytes:
    """Return a state as bytes: MessagePack, arrays as dtype, shape and raw data."""
    return msgspec.msgpack.encode((state.version, state), enc_hook=_pack)


def decode_state(data: bytes, kind: type[T]) -> T:
    """Return the state in `data`.

    Raises
    ------
    RtschedError
        If it is no state of this kind, or of another version.
    """
    try:
        version, body = msgspec.msgpack.decode(data, type=tuple[int, msgspec.Raw])
        if version != kind.version:
            raise RtschedError(
                f"stored {kind.__name__} has version {version}, this plug-in wants "
                f"{kind.version}; delete it to start afresh"
            )
        return msgspec.msgpack.decode(body, type=kind, dec_hook=_unpack)
    except (msgspec.MsgspecError, ValueError) as cause:
        raise RtschedError(f"stored {kind.__name__} is damaged: {cause}") from cause


def _pack(value: object) -> object:
    if isinstance(value, np.ndarray) and value.dtype != object:
        return (value.dtype.str, value.shape, value.tobytes())
    raise NotImplementedError(f"a plug-in's state cannot hold {type(value).__name__}")


def _unpack(_kind: type, value: object) -> object:
    try:
        dtype, shape, data = cast("Any", value)
        return np.frombuffer(data, dtype).reshape(shape)
    except (TypeError, ValueError, SyntaxError) as cause:  # numpy parses a dtype like Python
        raise ValueError(f"expected an array, found {type(value).__name__}") from cause


class EventKind(IntEnum):
    """What happened."""

    ARRIVED = 0
    REJECTED = 1
    STARTED = 2
    ENDED = 3
    NODE_CHANGED = 4
    SUSPENDED = 5
    """It stands still and keeps what it has done: pre-empted, or between two slices."""
    RESUMED = 6
    """It goes on, on `size` nodes."""
    MOVED = 7
    """It was given other nodes while it ran, or adapted to the load of its own."""
    WITHDRAWN = 8
    """It was promised its deadline, and left the queue without having run: nobody wants it now."""


class EventRows(Table):
    """One row per event, in order of time."""

    time = Column(np.float64, np.nan, "Seconds since the epoch.")
    kind = Column(np.int8, EventKind.ARRIVED, "An `EventKind`.")
    size = Column(np.int32, 0, "Nodes the job runs on.")
    node = Column(np.int32, -1, "The node that changed; -1: none.")


@dataclass(frozen=True)
class Events:
    """Events, and for each the job it is about (row by row; meaningless for node events)."""

    rows: EventRows
    jobs: Jobs

    def __post_init__(self) -> None:
        if len(self.rows) != len(self.jobs):
            raise ShapeError(f"{len(self.rows)} events about {len(self.jobs)} jobs")

    def __len__(self) -> int:
        return len(self.rows)


NO_EVENTS = Events(EventRows.build(0), NOBODY)
"""Nothing happened."""


def joined(parts: Sequence[Events]) -> Events:
    """Return the events of all parts, one after the other."""
    return Events(
        EventRows.joined([part.rows for part in parts]),
        Jobs.joined([part.jobs for part in parts]),
    )
