"""A simulated grid of servers that give their time in slices; each node is one server.

    system = SlicedServers(jobs, run_time, cluster, SlicedSettings(quantum=60.0))
    while not (point := system.advance()).done:
        ...  # answer what it asks: system.apply(actions)

A job is one task of one server, whatever its size: one of n nodes needs n times its run time there,
over the speed of the server. It may be suspended at the end of each slice, at no cost. Jobs are
split equally among the nodes that are up; a job's share is that of the account it is charged to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rtsched.kernels import sliced as kernel
from rtsched.model.actions import Admit, Hold, Reject
from rtsched.model.schedule import Schedule
from rtsched.model.state import EventKind, EventRows, Events
from rtsched.simulator.event_driven import AdmissionQueue
from rtsched.simulator.interface import DecisionPoint, JobOutcomes, final_states
from rtsched.simulator.settings import SlicedSettings
from rtsched.simulator.system import System

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.kernels.sliced import Servers
    from rtsched.model.jobs import Jobs
    from rtsched.model.snapshot import Accounts

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
        self._turned_away = np.zeros(len(jobs), np.bool_)

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
        observed = np.arange(len(rows)) < known
        row = rows.astype(np.int64)
        by = np.lexsort((begin, self._server[row]))
        row, begin, end, observed = row[by], begin[by], end[by], observed[by]
        joined = (row[1:] == row[:-1]) & (begin[1:] == end[:-1])
        begins = ~observed & ~np.concatenate([np.zeros(1, np.bool_), joined])[: len(row)]
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
        turned = np.flatnonzero(rejected[:last] & ~self._turned_away[:last])
        self._turned_away[turned] = True
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


LOOPS = {
    "fcfs": kernel.FCFS,
    "round-robin": kernel.ROUND_ROBIN,
    "ste": kernel.SERVICE_ERROR,
    "least-error": kernel.LEAST_ERROR,
}
SLACK = 1e-9
"""Errors that differ by less than this part of the quantum are equal."""


def deal(n: int, servers: int, split: str) -> Rows:
    """Return the server of each of `n` tasks, int64[n]: equal parts, the first ones one larger.

    Lopez and Raja, figure 1, lines 2 to 4; they lose the remainder.
    """
    row = np.arange(n)
    if split == "in-turn":
        return row % servers
    size, more = divmod(n, servers)
    return np.repeat(np.arange(servers), size + (np.arange(servers) < more))


def shares_of(jobs: Jobs, accounts: Accounts) -> NDArray[np.float64]:
    """Return each job's share, float64[n]; one that is charged to nobody has the mean share."""
    charged = jobs.association >= 0
    if not len(accounts) or not charged.any():
        return np.ones(len(jobs))
    share = accounts.share()[jobs.association]
    return np.where(charged, share, share[charged].mean())


class SlicedServers(System):
    """A grid of sliced servers. `compiled` is not used: no plug-in orders the queues."""

    settings: SlicedSettings
    usual = SlicedSettings()

    def _set_up(self) -> None:
        jobs, n = self.jobs, len(self.jobs)
        self._now = self._until = self.origin
        self._nodes = np.flatnonzero(self.cluster.usable)
        self._servers = self._lay_out(self.run_time, self.record_events)
        self._rejected = np.zeros(n, np.bool_)
        if self.static.reject is not None:
            self._rejected |= self.static.reject
        self._servers.away[:] = self._rejected | (len(self._nodes) == 0)
        heard = self._rejected if self.stop_at.arrivals else np.ones(n, np.bool_)
        self._admission_queue = AdmissionQueue(jobs.submit, heard)
        self._asked = np.zeros(0, np.int64)
        self._arrived = 0
        self._slices = SliceEvents(jobs, self._server, self.origin)

    @property
    def now(self) -> float:
        """Return the present instant, seconds since the epoch."""
        return self._now

    def _lay_out(self, run_time: NDArray[np.float64], record: bool) -> kernel.Servers:
        """Return the servers before the first instant, times relative to the origin."""
        jobs, count = self.jobs, max(len(self._nodes), 1)
        self._server = deal(len(jobs), count, self.settings.split)
        speed = self.cluster.nodes.speed[self._nodes] if len(self._nodes) else np.ones(1)
        return kernel.lay_out(
            shares_of(jobs, self.accounts),
            np.maximum(jobs.submit, jobs.begin) - self.origin,
            run_time * jobs.size / speed[self._server],
            self._server,
            count,
            jobs.id,
            slices=4 * count + 1024 if record else 0,
        )

    def advance(self, max_arrivals: int | None = None) -> DecisionPoint:
        """Run until something must be answered, or after about `max_arrivals` more arrivals."""
        submit, judging = self.jobs.submit, self._admission_queue.next_time
        pause = len(submit) if max_arrivals is None else self._arrived + max_arrivals
        time = min(judging, float(submit[pause]) if pause < len(submit) else np.inf)
        self._asked = self._admission_queue.take() if time == judging < np.inf else self._asked[:0]
        self._run(time)
        self._until, self._now = time, time if time < np.inf else self._last_end()
        self._arrived = int(np.searchsorted(submit, self._now, "right"))
        return DecisionPoint(self._now, self._asked, arrived=self._arrived, done=time == np.inf)

    def _run(self, until: float) -> None:
        """Simulate what happens before `until`."""
        settings, quantum = self.settings, self.settings.quantum
        loop, slack = LOOPS[settings.loop], SLACK * quantum
        while not kernel.run(self._servers, loop, quantum, slack, until - self.origin):
            self._servers = kernel.with_room(self._servers)

    def _last_end(self) -> float:
        ended = self._servers.end[np.isfinite(self._servers.end)]
        return max(self._now, self.origin + float(ended.max(initial=0.0)))

    def _waiting(self) -> Rows:
        """Return the jobs that do not run; a suspended one waits."""
        servers, now = self._servers, self._now - self.origin
        inside = (servers.arrival < now) & ~servers.away & np.isnan(servers.end)
        inside[servers.current[servers.current >= 0]] = False
        return np.flatnonzero(inside)

    def _running(self) -> tuple[Rows, Schedule]:
        rows = np.sort(self._servers.current[self._servers.current >= 0])
        return rows, self._allocations(rows)

    def _alive(self, rows: Rows) -> NDArray[np.bool_]:
        return np.isnan(self._servers.end[rows])

    def _allocations(self, rows: Rows) -> Schedule:
        """Return nodes and starts of running jobs, and their ends if none were suspended again."""
        if not len(rows):
            return Schedule.empty()
        servers, nodes = self._servers, self._nodes[self._server[rows]]
        wanted = self.jobs.wall_time[rows] * self.jobs.size[rows] / self.cluster.nodes.speed[nodes]
        left = np.maximum(wanted - servers.got[rows], 0.0)
        end = np.where(np.isfinite(left), self._now + left, self._now)
        start = servers.start[rows] + self.origin
        indptr = np.arange(len(rows) + 1)
        return Schedule.build(self.jobs.id[rows], start, end, indptr, nodes.astype(np.int32))

    def events(self) -> Events:
        """Return what happened since the last time it was asked (`record_events`)."""
        return self._slices.take(self._servers, self._now, self._until, self._rejected)

    def _let_in(self, rows: Rows) -> int:
        return int((~np.isin(rows, self._asked)).sum())

    def _turn_away(self, rows: Rows) -> int:
        asked = np.isin(rows, self._asked)
        self._rejected[rows[asked]] = self._servers.away[rows[asked]] = True
        return int((~asked).sum())

    def _hold(self, action: Hold, rows: Rows) -> int:
        asked = np.isin(rows, self._asked)
        self._put_off(rows[asked], action.until[asked])
        return int((~asked).sum())

    def _put_off(self, rows: Rows, until: NDArray[np.float64]) -> None:
        """Let jobs arrive when they are judged again, if they are let in then."""
        servers = self._servers
        again = self._admission_queue.put_off(rows, until, self._now)
        servers.arrival[rows] = np.maximum(again, self.jobs.begin[rows]) - self.origin
        for server in np.unique(self._server[rows]).tolist():
            piece = slice(servers.upcoming[server], servers.last[server])
            left = servers.order[piece]
            by = np.lexsort((self.jobs.id[left], -servers.share[left], servers.arrival[left]))
            servers.order[piece] = left[by]

    def job_outcomes(self) -> JobOutcomes:
        """Return what happened to each job so far."""
        servers = self._servers
        started, ended = np.isfinite(servers.start), np.isfinite(servers.end)
        node = self._nodes[self._server] if len(self._nodes) else self._server
        return JobOutcomes(
            start=servers.start + self.origin,
            end=servers.end + self.origin,
            size=started.astype(np.int32),
            fate=final_states(finished=ended, rejected=self._rejected),
            first_node=np.where(started, node, -1).astype(np.int32),
            promise=self._ledger.promises(),
            offer=self._ledger.offers(),
            service=np.where(started, servers.got, np.nan),
        )

    handlers: ClassVar = {Admit: System._admit, Reject: System._reject, Hold: _hold}
