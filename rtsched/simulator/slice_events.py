"""From the slices of servers to what happened to jobs: starts, suspensions, resumptions, ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.model.events import EventKind, EventRows, Events

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.kernels.sliced import Servers
    from rtsched.model.jobs import Jobs

    Rows = NDArray[np.int64]

_FIRST = {EventKind.ENDED: 0, EventKind.SUSPENDED: 0, EventKind.ARRIVED: 1, EventKind.REJECTED: 2}
"""Order of events at one instant; starts and resumptions come last."""


class SliceEvents:
    """Tells what happened since it was last asked; slices that follow one another are one.

    Parameters
    ----------
    jobs : Jobs
        In order of submission.
    server : int64[n]
        The server of each job.
    origin : float
        Seconds since the epoch at which the servers' time is 0.
    """

    def __init__(self, jobs: Jobs, server: Rows, origin: float) -> None:
        self._jobs, self._server, self._origin = jobs, server, origin
        self._open = np.zeros((3, 0))
        """Row, begin and end of the slices that had begun but not ended."""
        self._arrived = 0
        self._told_away = np.zeros(len(jobs), np.bool_)

    def take(
        self, servers: Servers, now: float, until: float, rejected: NDArray[np.bool_]
    ) -> Events:
        """Return what slices brought before `until`, and arrivals and rejections up to `now`."""
        count = int(servers.logged[0])
        log = np.stack(
            [servers.log_row[:count], servers.log_begin[:count], servers.log_end[:count]]
        )
        servers.logged[0] = 0
        parts = [
            self._slices(servers, log, until - self._origin),
            *self._submissions(now, rejected),
        ]
        time, kind, row = (np.concatenate(values) for values in zip(*parts, strict=True))
        first = np.array([_FIRST.get(EventKind(k), 3) for k in range(len(EventKind))])
        order = np.lexsort((row, first[kind], time))
        rows = EventRows.build(
            len(order),
            time=time[order] + self._origin,
            kind=kind[order].astype(np.int8),
            size=np.int32(1),
        )
        return Events(rows, self._jobs.take(row[order]))

    def _slices(self, servers: Servers, log: NDArray[np.float64], until: float) -> tuple[Any, ...]:
        """Return time, kind and row of the events that slices bring."""
        known = self._open.shape[1]
        rows, begin, end = np.concatenate([self._open, log], axis=1)
        told = np.arange(len(rows)) < known
        row = rows.astype(np.int64)
        by = np.lexsort((begin, self._server[row]))
        row, begin, end, told = row[by], begin[by], end[by], told[by]
        joined = (row[1:] == row[:-1]) & (begin[1:] == end[:-1])
        begins = ~told & ~np.concatenate([np.zeros(1, np.bool_), joined])[: len(row)]
        over = end < until
        ends = over & ~np.concatenate([joined, np.zeros(1, np.bool_)])[: len(row)]
        self._open = np.stack([row, begin, end])[:, ~over]
        first = begin[begins] == servers.start[row[begins]]
        final = end[ends] == servers.end[row[ends]]
        kind = np.concatenate(
            [
                np.where(first, EventKind.STARTED, EventKind.RESUMED),
                np.where(final, EventKind.ENDED, EventKind.SUSPENDED),
            ]
        )
        time = np.concatenate([begin[begins], end[ends]])
        return time, kind, np.concatenate([row[begins], row[ends]])

    def _submissions(self, now: float, rejected: NDArray[np.bool_]) -> list[tuple[Any, ...]]:
        """Return time, kind and row of arrivals and of rejections."""
        last = int(np.searchsorted(self._jobs.submit, now, "right"))
        came = np.arange(self._arrived, last)
        self._arrived = last
        turned = np.flatnonzero(rejected[:last] & ~self._told_away[:last])
        self._told_away[turned] = True
        submit = self._jobs.submit - self._origin
        when = (
            np.where(turned >= came[0], submit[turned], now - self._origin)
            if len(came)
            else (np.full(len(turned), now - self._origin))
        )
        return [
            (submit[came], np.full(len(came), int(EventKind.ARRIVED)), came),
            (when, np.full(len(turned), int(EventKind.REJECTED)), turned),
        ]
