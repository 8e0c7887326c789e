"""Columns that grow block by block, and what every reader does with them at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray


def of_jobs(sentence: str, n: int) -> str:
    """Return `sentence` with "(n jobs)" behind it."""
    return f"{sentence} ({counted(n, 'job')})"


MOST = 2**31 - 1
"""Largest number of processors (int32)."""

SUSPENDED = "the time for which a job was suspended is not replayed"

_SMALL_TABLE = 1 << 22

_WHOLE: tuple[type[np.signedinteger[Any]], ...] = (np.int8, np.int16, np.int32, np.int64)

_SPARE = 16
"""A column that is full grows by one part in this many beyond what is appended."""


class Columns:
    """Named columns of one length, appended to and at last taken out one by one.

    Each is one array that grows where it stands: large ones are moved by the operating system,
    page by page, so that neither copies nor gaps between freed pieces take memory.
    """

    def __init__(self) -> None:
        self._columns: dict[str, NDArray[Any]] = {}
        self.rows = 0

    def append(self, rows: int, columns: Mapping[str, NDArray[Any]]) -> None:
        """Append `rows` rows; every call names the same columns. Not after `look` or `take`.

        A column is of the smallest type that holds all values appended so far.
        """
        if not rows:
            return
        end = self.rows + rows
        for name, values in columns.items():
            column = self._columns.get(name)
            if column is None:
                column = np.empty(0, values.dtype)
            kind = np.promote_types(column.dtype, values.dtype)
            if kind != column.dtype:
                column = column.astype(kind)
            if len(column) < end:
                column.resize(end + self.rows // _SPARE, refcheck=False)
            column[self.rows : end] = values
            self._columns[name] = column
        self.rows = end

    def look(self, name: str) -> NDArray[Any]:
        """Return a whole column."""
        column = self._columns[name]
        if len(column) > self.rows:
            column.resize(self.rows, refcheck=False)
        return column

    def take(self, name: str) -> NDArray[Any]:
        """Return a whole column and forget it."""
        whole = self.look(name)
        del self._columns[name]
        return whole


class Coder:
    """Codes for texts, one by one, in order of first appearance."""

    def __init__(self) -> None:
        self._table: dict[str, int] = {}

    def code(self, text: str | None) -> int:
        """Return the code of a text, -1 for None and for nothing."""
        return self._table.setdefault(text, len(self._table)) if text else -1

    def names(self) -> tuple[str, ...]:
        """Return the texts behind the codes."""
        return tuple(self._table)


def unless_constant(values: NDArray[Any], constant: Any) -> NDArray[Any] | None:
    """Return `values`, or None (the table's own constant) if all are `constant`."""
    different = ~np.isnan(values) if constant != constant else values != constant
    return values if different.any() else None


def compact(values: NDArray[np.float64]) -> NDArray[np.signedinteger[Any]]:
    """Return whole numbers below 2**63 as the smallest of int8, int16, int32, int64 they fit."""
    most = float(np.abs(values).max(initial=0.0))
    kind = next(kind for kind in _WHOLE if most <= np.iinfo(kind).max)
    return values.astype(kind)


def number_codes(
    numbers: NDArray[np.signedinteger[Any]], names: Mapping[int, str]
) -> tuple[NDArray[np.int32], tuple[str, ...]] | None:
    """Return codes and names of what a log numbers; negative numbers are missing.

    Parameters
    ----------
    numbers : int[n]
        User, group or queue numbers.
    names : mapping of int to str
        What the log's header calls them; others are named by their number.

    Returns
    -------
    codes : int32[n], names : tuple of str
        In ascending order of the numbers; None if all are missing.
    """
    if len(numbers) == 0 or (highest := int(numbers.max())) < 0:
        return None
    if highest < max(_SMALL_TABLE, len(numbers)):
        occurs = np.zeros(highest + 2, np.bool_)  # the last place, at -1, is for the missing
        occurs[np.maximum(numbers, -1)] = True
        occurs[-1] = False
        known = np.flatnonzero(occurs)
        place = np.full(highest + 2, -1, np.int32)
        place[known] = np.arange(len(known), dtype=np.int32)
        codes = place[np.maximum(numbers, -1)]
    else:
        known, found = np.unique(numbers, return_inverse=True)
        missing = int(np.searchsorted(known, 0))
        known = known[missing:]
        codes = np.maximum(found.astype(np.int32) - np.int32(missing), np.int32(-1))
    return codes, tuple(names.get(number, str(number)) for number in known.tolist())


def unique_ids(numbers: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Return None if all numbers differ, else their ranks (equal ones in order of rows)."""
    if (numbers[1:] > numbers[:-1]).all():
        return None
    order = np.argsort(numbers, kind="stable")
    if (numbers[order[1:]] != numbers[order[:-1]]).all():
        return None
    ranks = np.empty(len(numbers), np.int64)
    ranks[order] = np.arange(len(numbers))
    return ranks


def whole(values: ArrayLike, most: float = MOST) -> NDArray[np.int32]:
    """Return whole numbers, rounded up and clipped to 0..`most`; nan becomes 0."""
    numbers = np.ceil(np.clip(np.asarray(values, np.float64), 0, most))
    return np.where(np.isnan(numbers), 0, numbers).astype(np.int32)
