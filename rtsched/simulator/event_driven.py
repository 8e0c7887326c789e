"""Event-driven machines: their queue, event log and main loop."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rtsched.model.actions import Admit, Cancel, Hold, Reject, Release
from rtsched.simulator.arrivals import ENDED, GONE, REJECTED, Arrivals
from rtsched.simulator.event_log import EventLog
from rtsched.simulator.interface import DecisionPoint, final_states
from rtsched.simulator.system import System

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.events import Events

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
