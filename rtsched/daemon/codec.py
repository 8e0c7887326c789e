"""Tables and schedules as bytes, for the database: MessagePack, arrays as dtype and raw data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from rtsched.errors import RtschedError
from rtsched.model.jobs import Jobs
from rtsched.model.schedule import Entries, Schedule
from rtsched.model.table import Amounts, Table, Text, amounts_from, resource_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

T = TypeVar("T", bound=Table)


class _Array(msgspec.Struct, array_like=True, frozen=True):
    """One array of one dimension."""

    dtype: str
    data: bytes

    @classmethod
    def of(cls, array: NDArray[Any]) -> _Array:
        """Return an array packed."""
        return cls(array.dtype.str, array.tobytes())

    def array(self) -> NDArray[Any]:
        """Return it, not writable."""
        return np.frombuffer(self.data, np.dtype(self.dtype))


class _Table(msgspec.Struct, array_like=True, frozen=True):
    """The columns of a table that say something, and the texts behind codes."""

    rows: int
    columns: dict[str, _Array]
    texts: dict[str, list[str | None]]


class _Schedule(msgspec.Struct, array_like=True, frozen=True):
    """A schedule; `nodes` are rows of the cluster of that time."""

    entries: _Table
    indptr: _Array
    nodes: _Array
    fractions: _Array
    node_start: _Array
    preemptive: bool


_encoder = msgspec.msgpack.Encoder()


def encode_table(table: Table) -> bytes:
    """Return a table as bytes; a column that holds only missing values takes no room."""
    return _encoder.encode(_packed(table))


def decode_table(data: bytes, kind: type[T]) -> T:
    """Return the table in `data`; a column that this release does not have is left out.

    Raises
    ------
    RtschedError
        If it is no such table.
    """
    try:
        return _unpacked(msgspec.msgpack.decode(data, type=_Table), kind)
    except _DAMAGED as cause:
        raise _damaged(kind.__name__, cause) from cause


def encode_jobs(jobs: Jobs) -> bytes:
    """Return jobs as bytes."""
    return encode_table(jobs)


def decode_jobs(data: bytes) -> Jobs:
    """Return the jobs in `data`; RtschedError if there are none."""
    return decode_table(data, Jobs)


def encode_schedule(schedule: Schedule) -> bytes:
    """Return a schedule as bytes."""
    arrays = (schedule.indptr, schedule.nodes, schedule.fractions, schedule.node_start)
    indptr, nodes, fractions, starts = (_Array.of(array) for array in arrays)
    entries = _packed(schedule.entries)
    return _encoder.encode(
        _Schedule(entries, indptr, nodes, fractions, starts, schedule.preemptive)
    )


def decode_schedule(data: bytes) -> Schedule:
    """Return the schedule in `data`.

    Raises
    ------
    RtschedError
        If it is no schedule.
    """
    try:
        found = msgspec.msgpack.decode(data, type=_Schedule)
        entries = _unpacked(found.entries, Entries)
        indptr, nodes, fractions, starts = (
            packed.array()
            for packed in (found.indptr, found.nodes, found.fractions, found.node_start)
        )
        if len(indptr) and (indptr[-1] != len(nodes) or (np.diff(indptr) < 0).any()):
            raise ValueError("node offsets and nodes differ")
        return Schedule(entries, indptr, nodes, fractions, found.preemptive, starts)
    except _DAMAGED as cause:
        raise _damaged("schedule", cause) from cause


_DAMAGED = (msgspec.MsgspecError, RtschedError, ValueError, TypeError, SyntaxError, IndexError)
"""What damaged bytes may raise: numpy reads a dtype as Python would."""


def _damaged(what: str, cause: Exception) -> RtschedError:
    return RtschedError(
        f"a stored {what} is damaged ({cause}); stop the daemon and restore a backup of its "
        "database"
    )


def _packed(table: Table) -> _Table:
    texts, n = {}, len(table)
    columns = {title: _Array.of(array) for title, array in resource_columns(table).items()}
    for name in table.given():
        column, array = table.columns()[name], table.column(name)
        if isinstance(column, Text):
            if (array >= 0).any():
                texts[name] = table.texts(name)
        elif not isinstance(column, Amounts):
            packed = _Array.of(array)
            if packed.data != column.nothing * n:
                columns[name] = packed
    return _Table(n, columns, texts)


def _unpacked(found: _Table, kind: type[T]) -> T:
    columns: dict[str, Any] = {name: packed.array() for name, packed in found.columns.items()}
    amounts, names = amounts_from(kind, columns)
    columns |= found.texts | amounts
    known = {k: v for k, v in columns.items() if k in kind.columns()}
    return kind.build(found.rows, names=names, **known)
