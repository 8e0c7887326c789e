"""Rows of jobs by their ids."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from rtsched.errors import AdapterError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class RowsById:
    """Find the rows of job ids; the index is made when it is first needed."""

    def __init__(self, ids: NDArray[np.int64]) -> None:
        self._ids = ids

    @cached_property
    def _order(self) -> NDArray[np.int64] | None:
        """Rows in order of id; None if they are in that order."""
        if (np.diff(self._ids) > 0).all():
            return None
        return np.argsort(self._ids, kind="stable")

    @cached_property
    def _sorted(self) -> NDArray[np.int64]:
        return self._ids if self._order is None else self._ids[self._order]

    @cached_property
    def _dense(self) -> bool:
        """Whether the sorted ids leave none out."""
        ids = self._sorted
        return len(ids) > 0 and bool(ids[-1] - ids[0] == len(ids) - 1)

    def find(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row of each id, int64[k].

        Raises
        ------
        AdapterError
            For an id that no job has.
        """
        known, wanted = self._sorted, np.asarray(ids, np.int64)
        if not len(wanted):
            return wanted
        if self._dense:
            place = wanted - known[0]
            missing = (place < 0) | (place >= len(known))
        else:
            place = np.searchsorted(known, wanted)
            missing = place >= len(known)
            missing[~missing] = known[place[~missing]] != wanted[~missing]
        if missing.any():
            raise AdapterError(f"there is no job {wanted[missing][0]} in this workload")
        return place if self._order is None else np.asarray(self._order[place], np.int64)
