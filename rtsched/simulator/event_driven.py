"""Event-driven machines: their queue, event log and main loop.

Jobs on their way in are submitted, judged, put off, until they wait in order of arrival.
"""

from __future__ import annotations

import heapq
from abc import abstractmethod
from bisect import insort
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rtsched.model.actions import Admit, Cancel, Hold, Reject, Release
from rtsched.model.state import EventKind, EventRows, Events
from rtsched.simulator.interface import DecisionPoint, final_states
from rtsched.simulator.system import System

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.jobs import Jobs

    Rows = NDArray[np.int64]


class EventDriven(System):
    """A machine that goes from event to event; jobs that have not started are in `Arrivals`.

    Times within it are seconds from the first submission.
    """

    def _open(self, fits: NDArray[np.bool_]) -> None:
        """Set up queue and event log; `fits`, bool[n]: who can ever start."""
        self._now = 0.0
        self._event_log = EventLog(self.jobs, self.origin, self.record_events)
        rejected = self.static.reject
        if rejected is None:
            rejected = np.zeros(len(self.jobs), np.bool_)
        self._arrivals = Arrivals(self.jobs, self._event_log, rejected, fits, self.stop_at.arrivals)

    @property
    def now(self) -> float:
        """Return the present instant, seconds since the epoch."""
        return self.origin + self._now

    def advance(self, max_arrivals: int | None = None) -> DecisionPoint:
        """Run until something must be answered, or after about `max_arrivals` more arrivals."""
        arrivals = self._arrivals
        pause = len(self.jobs) + 1 if max_arrivals is None else arrivals.arrived + max_arrivals
        self._resume()
        while True:
            if self._serve_queue():
                return self._point(passes=True)
            if arrivals.arrived >= pause:
                return self._point()
            if not self._next():
                return self._point(done=True)
            if len(arrivals.asked):
                return self._point()

    def _point(self, passes: bool = False, done: bool = False) -> DecisionPoint:
        arrivals = self._arrivals
        return DecisionPoint(
            self.now, arrivals.asked, passes=passes, arrived=arrivals.arrived, done=done
        )

    def _resume(self) -> None:
        """Go on after the answers."""
        self._arrivals.answered(self._now)

    @abstractmethod
    def _serve_queue(self) -> bool:
        """Start jobs that can start; return whether it must be asked which, and where."""

    @abstractmethod
    def _next(self) -> bool:
        """Let happen what happens next; return whether anything did."""

    def _alive(self, rows: Rows) -> NDArray[np.bool_]:
        return np.asarray(self._arrivals.status[rows] < ENDED)

    def _final_states(self) -> NDArray[np.int8]:
        status = self._arrivals.status
        return final_states(finished=status == ENDED, rejected=status == REJECTED)

    def events(self) -> Events:
        """Return what happened since the last time it was asked (`record_events`)."""
        return self._event_log.take()

    def _let_in(self, rows: Rows) -> int:
        return self._arrivals.admit(rows, self._now)

    def _turn_away(self, rows: Rows) -> int:
        return self._arrivals.reject(rows, self._now)

    def _hold(self, action: Hold, rows: Rows) -> int:
        return self._arrivals.hold(rows, action.until - self.origin, self._now)

    def _release(self, _: Release, rows: Rows) -> int:
        return self._arrivals.release(rows, self._now)

    def _cancel(self, _: Cancel, rows: Rows) -> int:
        return len(rows) - len(self._arrivals.remove(rows, GONE))

    handlers: ClassVar = {
        Admit: System._admit,
        Reject: System._reject,
        Hold: _hold,
        Release: _release,
        Cancel: _cancel,
    }


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


FUTURE, ASKED, HELD, SLEEPING, QUEUED, RUNNING, ENDED, REJECTED, GONE = range(9)
"""How far a job has come. GONE: cancelled, or wider than the machine."""


class Arrivals:
    """The jobs of a workload that have not started. Times are seconds from the first submission.

    Parameters
    ----------
    jobs : Jobs
        `n` rows in order of (submit, id).
    event_log : EventLog
        Where arrivals and rejections are noted.
    rejected : bool[n]
        Who is turned away on arrival.
    fits : bool[n]
        Who can ever start; the others are let in and forgotten.
    asks : bool
        Whether arrivals are judged.

    Attributes
    ----------
    status : int8[n]
        How far each job has come.
    queue : list of int
        Rows of the jobs that wait to start, ascending.
    asked : int64[k]
        Rows of the jobs that are being judged.
    arrived : int
        Jobs submitted so far.
    """

    def __init__(
        self,
        jobs: Jobs,
        event_log: EventLog,
        rejected: NDArray[np.bool_],
        fits: NDArray[np.bool_],
        asks: bool,
    ) -> None:
        self._event_log, self._asks, self._fits = event_log, asks, fits
        self._size = jobs.size
        origin = jobs.submit[0] if len(jobs) else 0.0
        self._submit, self._begin = jobs.submit - origin, jobs.begin - origin
        self.status = np.where(rejected, REJECTED, FUTURE).astype(np.int8)
        heard = rejected if asks else np.ones(len(jobs), np.bool_)
        self._admission_queue = AdmissionQueue(self._submit, heard)
        self._sleepers: list[tuple[float, int]] = []
        self.queue: list[int] = []
        self.asked = np.zeros(0, np.int64)
        self.arrived = 0

    @property
    def head(self) -> int:
        """The first job of the queue, -1: nobody waits."""
        return self.queue[0] if self.queue else -1

    def next_time(self) -> float:
        """Return when the next job arrives, may begin or must be judged, inf if none will."""
        time = self._admission_queue.next_time
        if self.arrived < len(self._submit):
            time = min(time, float(self._submit[self.arrived]))
        return min(time, self._sleepers[0][0]) if self._sleepers else time

    def take(self, now: float) -> None:
        """Take in the jobs that are submitted, may begin, or must be judged by now."""
        while self._sleepers and self._sleepers[0][0] <= now:
            row = heapq.heappop(self._sleepers)[1]
            if self.status[row] == SLEEPING:
                self._enqueue(row)
        while self.arrived < len(self._submit) and self._submit[self.arrived] <= now:
            row, self.arrived = self.arrived, self.arrived + 1
            self._event_log.add(now, EventKind.ARRIVED, row, int(self._size[row]))
            if self.status[row] == REJECTED:
                self._event_log.add(now, EventKind.REJECTED, row, 0)
            elif not self._asks:
                self._come_in(row, now)
        if self._admission_queue.next_time <= now:
            rows = self._admission_queue.take()
            self.asked = rows[(self.status[rows] == FUTURE) | (self.status[rows] == HELD)]
            self.status[self.asked] = ASKED

    def answered(self, now: float) -> None:
        """Let in the jobs that were asked about and of which nothing was said."""
        self.admit(self.asked[self.status[self.asked] == ASKED], now)
        self.asked = self.asked[:0]

    def admit(self, rows: Rows, now: float) -> int:
        """Let jobs in; return for how many it is too late."""
        waits = (self.status[rows] == ASKED) | (self.status[rows] == HELD)
        for row in rows[waits].tolist():
            self._come_in(row, now)
        return int((~waits).sum())

    def reject(self, rows: Rows, now: float) -> int:
        """Turn jobs away; return for how many it is too late."""
        removed = self.remove(rows, REJECTED)
        for row in removed.tolist():
            self._event_log.add(now, EventKind.REJECTED, row, 0)
        return len(rows) - len(removed)

    def hold(self, rows: Rows, until: NDArray[np.float64], now: float) -> int:
        """Have jobs judged again at `until`; return for how many it is too late."""
        waits = self.status[rows] < RUNNING
        self.remove(rows, HELD)
        self._admission_queue.put_off(rows[waits], until[waits], now)
        return int((~waits).sum())

    def release(self, rows: Rows, now: float) -> int:
        """Let held jobs in; return how many of the jobs were not held."""
        held = rows[self.status[rows] == HELD]
        self.admit(held, now)
        return len(rows) - len(held)

    def remove(self, rows: Rows, status: int) -> Rows:
        """Take jobs that have not started out of the queue; return the rows of these."""
        gone = rows[self.status[rows] < RUNNING]
        self.status[gone] = status
        leaving = set(gone.tolist())
        self.queue = [row for row in self.queue if row not in leaving]
        return gone

    def start(self) -> int:
        """Take the head out of the queue, as running, and return its row."""
        row = self.queue.pop(0)
        self.status[row] = RUNNING
        return row

    def waiting(self) -> Rows:
        """Return the rows of the jobs that were let in and have not started, ascending."""
        asleep = [row for _, row in self._sleepers if self.status[row] == SLEEPING]
        return np.sort(np.array([*self.queue, *asleep], np.int64))

    def _come_in(self, row: int, now: float) -> None:
        if self._begin[row] > now:
            self.status[row] = SLEEPING
            heapq.heappush(self._sleepers, (float(self._begin[row]), row))
        else:
            self._enqueue(row)

    def _enqueue(self, row: int) -> None:
        self.status[row] = QUEUED if self._fits[row] else GONE
        if self._fits[row]:
            insort(self.queue, row)


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
