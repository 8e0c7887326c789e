"""Rows of different length, one after the other in one array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, DTypeLike, NDArray


class Ragged(NamedTuple):
    """Row `i` is `values[offsets[i]:offsets[i + 1]]`."""

    offsets: NDArray[np.int64]
    """int64[n + 1], from 0, ascending."""
    values: NDArray[Any]

    @classmethod
    def of(cls, rows: Sequence[ArrayLike], kind: DTypeLike = np.int32) -> Self:
        """Return these rows, with values of one type."""
        parts = [np.asarray(row, kind) for row in rows]
        flat = np.concatenate(parts) if parts else np.empty(0, kind)
        return cls(offsets_of([len(part) for part in parts]), flat)

    @classmethod
    def counted(cls, lengths: ArrayLike) -> Self:
        """Return rows of these lengths with the values 0, 1, 2, ... each."""
        offsets = offsets_of(lengths)
        begins = np.repeat(offsets[:-1], offsets[1:] - offsets[:-1])
        return cls(offsets, np.arange(offsets[-1]) - begins)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Return int64[n]."""
        return self.offsets[1:] - self.offsets[:-1]

    def rows(self) -> NDArray[np.int64]:
        """Return int64[k]: the row that each value belongs to."""
        return np.repeat(np.arange(len(self.offsets) - 1), self.lengths)

    def rows_at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row that the value at each of these places in `values` belongs to."""
        return np.searchsorted(self.offsets, places, side="right") - 1

    def row(self, i: int) -> NDArray[Any]:
        """Return the values of one row."""
        return self.values[self.offsets[i] : self.offsets[i + 1]]

    def places(self, rows: NDArray[Any]) -> Self:
        """Return for some rows, in the given order, where in `values` theirs stand."""
        lengths = self.lengths[rows]
        offsets, within = self.counted(lengths)
        return self._replace(
            offsets=offsets, values=np.repeat(self.offsets[rows], lengths) + within
        )

    def runs(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return the runs of neighbouring whole numbers among each row's values, int64[r] each.

        Their rows, their lowest values, and how many values there are in each.
        """
        row = self.rows()
        order = np.lexsort((self.values, row))
        row, value = row[order], self.values[order].astype(np.int64)
        begins = np.ones(len(value), np.bool_)
        begins[1:] = (np.diff(row) != 0) | (np.diff(value) != 1)
        at = np.flatnonzero(begins)
        return row[at], value[at], np.diff(np.append(at, len(value)))

    def take(self, rows: NDArray[Any]) -> Self:
        """Return some rows, in the given order."""
        offsets, places = self.places(rows)
        return self._replace(offsets=offsets, values=self.values[places])


def offsets_of(lengths: ArrayLike) -> NDArray[np.int64]:
    """Return int64[n + 1]: where rows of these lengths begin and the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
