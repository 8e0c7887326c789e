"""The segments in which pre-empted jobs run: when each began and ended, and the events of that."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.model.events import EventKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.simulator.event_log import EventLog

ROOM = 4096


class Segments:
    """What the nodes' log says of `n` jobs. Times are seconds since the epoch.

    Attributes
    ----------
    log : int64[l, 3]
        Filled by `rtsched.kernels.edf.run_nodes`: job, first slot and end of each segment.
    start, end : float64[n]
        When each job began and ended; nan: not yet.
    """

    def __init__(self, n: int, event_log: EventLog, slot: float, origin: float) -> None:
        self.log = np.zeros((ROOM, 3), np.int64)
        self.start, self.end = np.full(n, np.nan), np.full(n, np.nan)
        self._event_log, self._slot, self._origin = event_log, slot, origin
        self._reached: dict[int, int] = {}
        self._found: list[tuple[int, int, int]] = []

    def take(self, count: int, left: NDArray[np.int64]) -> None:
        """Take in the first `count` rows of the log; `left` is what each job still needs."""
        for row, begin, end in self.log[:count].tolist():
            before = self._reached.pop(row, None)
            if np.isnan(self.start[row]):
                self.start[row] = begin * self._slot
                self._found.append((begin, int(EventKind.STARTED), row))
            elif before is None:
                self._found.append((begin, int(EventKind.RESUMED), row))
            elif before < begin:
                self._found.append((before, int(EventKind.SUSPENDED), row))
                self._found.append((begin, int(EventKind.RESUMED), row))
            self._reached[row] = end
        rows, last = self.log[:count, 0], self.log[:count, 2]
        ended = np.zeros(len(left), np.int64)
        np.maximum.at(ended, rows, last)
        for row in np.unique(rows[left[rows] == 0]).tolist():
            if self._reached[row] == ended[row]:
                self.end[row] = ended[row] * self._slot
                del self._reached[row]
                self._found.append((int(ended[row]), int(EventKind.ENDED), row))

    def pause(self, until: int, left: NDArray[np.int64]) -> None:
        """Tell, in order of time, what happened up to a slot boundary that all nodes reached."""
        for row, end in list(self._reached.items()):
            if end < until and left[row] > 0:
                self._found.append((end, int(EventKind.SUSPENDED), row))
                del self._reached[row]
        for slot, kind, row in sorted(self._found, key=lambda event: event[0]):
            self._event_log.add(slot * self._slot - self._origin, kind, row, 1)
        self._found = []
