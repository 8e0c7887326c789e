"""Events since the last time, for plug-ins that keep a state."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from rtsched.errors import ShapeError
from rtsched.model.jobs import NOBODY, Jobs
from rtsched.model.table import Column, Table

if TYPE_CHECKING:
    from collections.abc import Sequence


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
