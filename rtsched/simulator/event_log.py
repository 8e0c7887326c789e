"""Log of events in a simulated system, kept until it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.model.events import EventRows, Events

if TYPE_CHECKING:
    from rtsched.model.jobs import Jobs


class EventLog:
    """Events of a workload in the order in which they are added; none are kept unless `wanted`."""

    def __init__(self, jobs: Jobs, origin: float, wanted: bool) -> None:
        self._jobs, self._origin, self._wanted = jobs, origin, wanted
        self._rows: list[tuple[float, int, int, int, int]] = []

    def add(self, time: float, kind: int, row: int, size: int, node: int = -1) -> None:
        """Note that something happened to a job (row -1: to a node), seconds from the origin."""
        if self._wanted:
            self._rows.append((time, kind, row, size, node))

    def take(self) -> Events:
        """Return what was added since the last time, and forget it."""
        time, kind, row, size, node = np.array(self._rows, np.float64).reshape(-1, 5).T
        self._rows = []
        rows = EventRows.build(
            len(time),
            time=time + self._origin,
            kind=kind.astype(np.int8),
            size=size.astype(np.int32),
            node=node.astype(np.int32),
        )
        return Events(rows, self._jobs.take(np.maximum(row, 0).astype(np.int64)))
