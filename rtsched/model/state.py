"""States of plug-ins between cycles: typed, versioned, kept in the snapshot.

    class Usage(State, frozen=True):
        version: ClassVar[int] = 1
        spent: NDArray[np.float64]
        as_of: float

A state is data: the daemon stores it with `encode_state` and gives it back with `decode_state`.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar, cast

import msgspec
import numpy as np

from rtsched.errors import RtschedError


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
