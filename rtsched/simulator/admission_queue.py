"""When jobs are judged: at their submission, and again when one was put off."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.int64]


class AdmissionQueue:
    """The instants at which jobs must be judged, in order of time.

    Parameters
    ----------
    submit : float64[n]
        Seconds since the epoch, ascending.
    judged : bool[n]
        Jobs that were judged before the run.
    """

    def __init__(self, submit: NDArray[np.float64], judged: NDArray[np.bool_]) -> None:
        self._rows = np.flatnonzero(~judged)
        self._submit = submit[self._rows]
        self._at = 0
        self._again: list[tuple[float, int]] = []

    @property
    def next_time(self) -> float:
        """When jobs are judged next, seconds since the epoch; inf: there is none."""
        time = float(self._submit[self._at]) if self._at < len(self._submit) else np.inf
        return min(time, self._again[0][0]) if self._again else time

    def take(self) -> Rows:
        """Return the rows of the jobs to be judged next, ascending."""
        time = self.next_time
        last = int(np.searchsorted(self._submit, time, "right"))
        rows = self._rows[self._at : last].tolist()
        self._at = last
        while self._again and self._again[0][0] <= time:
            rows.append(heapq.heappop(self._again)[1])
        return np.array(sorted(rows), np.int64)

    def put_off(self, rows: Rows, until: NDArray[np.float64], now: float) -> NDArray[np.float64]:
        """Note that jobs are judged again, and return when, float64[k].

        That is at `until`; where it has passed, when jobs are judged next, inf if never.
        """
        times = np.where(until > now, until, self.next_time)
        for row, time in zip(rows.tolist(), times.tolist(), strict=True):
            if time < np.inf:
                heapq.heappush(self._again, (time, row))
        return times
