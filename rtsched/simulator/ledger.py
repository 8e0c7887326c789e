"""What was said to jobs: promises and counter-offers, for snapshots and results."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.model.schedule import Promises

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.int64]


_NONE = Promises.build(0)


class Ledger:
    """Promises and offers per row of the workload; no memory before the first one."""

    def __init__(self, ids: NDArray[np.int64]) -> None:
        self._ids = ids
        self._promise = self._made_at = self._offer = np.zeros(0)
        self._rejected = np.zeros(0, np.bool_)
        self._open: Rows = np.zeros(0, np.int64)
        self._new: list[Rows] = []
        """Rows promised something since `_open` was put in order."""

    def promise(self, rows: Rows, deadline: NDArray[np.float64], now: float) -> bool:
        """Note promises (inf: none) made now; return whether there was one."""
        some = np.isfinite(deadline)
        if not some.any():
            return False
        promise, made_at = self.columns()
        promise[rows[some]], made_at[rows[some]] = deadline[some], now
        self.written(rows[some])
        return True

    def columns(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return float64[n] each: promised deadline and when it was promised, to be written to.

        Whoever writes a promise there tells `written`.
        """
        if not len(self._promise):
            self._promise = np.full(len(self._ids), np.inf)
            self._made_at = np.full(len(self._ids), np.nan)
        return self._promise, self._made_at

    def written(self, rows: Rows) -> None:
        """Take notice of promises that were written to `columns`."""
        self._new.append(rows)

    def offer(self, rows: Rows, deadline: NDArray[np.float64]) -> None:
        """Note counter-offers (inf: none)."""
        if np.isfinite(deadline).any():
            if not len(self._offer):
                self._offer = np.full(len(self._ids), np.inf)
            self._offer[rows] = deadline

    def reject(self, rows: Rows) -> None:
        """Note jobs that are rejected and run on."""
        if not len(self._rejected):
            self._rejected = np.zeros(len(self._ids), np.bool_)
        self._rejected[rows] = True

    def rejected(self) -> NDArray[np.bool_]:
        """Return bool[n]: which jobs were rejected and run on."""
        none = np.broadcast_to(np.False_, len(self._ids))
        return self._rejected.copy() if len(self._rejected) else none

    def open(self, alive: NDArray[np.bool_]) -> Promises:
        """Return the promises to jobs that are `alive`, one flag per row of `open_rows`."""
        self._open = rows = self.open_rows[alive]
        if not len(rows):
            return _NONE
        return Promises.build(
            len(rows),
            job=self._ids[rows],
            deadline=self._promise[rows],
            made_at=self._made_at[rows],
        )

    @property
    def open_rows(self) -> Rows:
        """Return the rows with a promise that was open when last asked, ascending."""
        if self._new:
            self._open = np.unique(np.concatenate([self._open, *self._new]))
            self._new = []
        return self._open

    def promises(self) -> NDArray[np.float64]:
        """Return float64[n]: each job's promised deadline, inf where there is none."""
        return self._all(self._promise)

    def offers(self) -> NDArray[np.float64]:
        """Return float64[n]: each job's counter-offer, inf where there is none."""
        return self._all(self._offer)

    def _all(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return values.copy() if len(values) else np.broadcast_to(np.inf, len(self._ids))
