"""The process that estimates starts: it holds the estimator, and does one thing after the other.

One thread has the estimator to itself. It refreshes the estimates when a state is handed over,
answers questions between two simulations of a refresh, and learns what the batch system's records
hold, which another thread reads. The main thread passes requests on, and returns at once, or after
the seconds that a question may take.

The estimator, and with it the simulator, is imported only in that process: the daemon's own reads
the answers, and needs neither.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import queue
import resource
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import structlog

from rtsched import __version__
from rtsched.adapters.files import replace_file
from rtsched.daemon.systemd import log_events
from rtsched.errors import RtschedError
from rtsched.estimates.tables import BOUNDS, Accuracy, Estimates, odds_by
from rtsched.model.jobs import NOBODY
from rtsched.model.snapshot import places
from rtsched.model.units import DAY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from rtsched.daemon.systemd import Level
    from rtsched.estimates.ahead import LimitSource
    from rtsched.estimates.estimator import Estimator
    from rtsched.estimates.run_times import RunTimes
    from rtsched.estimates.settings import EstimateSettings
    from rtsched.model.jobs import Jobs
    from rtsched.model.log import Log
    from rtsched.model.snapshot import Snapshot
    from rtsched.simulator.settings import ExclusiveSettings

    Past = Callable[[float, float], Log]
    """Reads jobs that ended from a time to another, seconds since the epoch."""


FORM = "rtsched estimates 4"


class EstimatesFile:
    """Where an estimator is kept between two processes.

    Parameters
    ----------
    path : Path
        The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._problem = ""

    def read(self, fresh: Estimator) -> tuple[Estimator, float] | None:
        """Return the estimator, and until when it knows the past, seconds since the epoch.

        It goes on with the settings of a fresh one. None: there is no file, or none that can be
        used, which is logged.
        """
        try:
            with self.path.open("rb") as file:
                if os.fstat(file.fileno()).st_uid != os.geteuid():
                    raise ValueError("it is another user's")
                head, body = file.readline().decode("ascii").rstrip("\n"), file.read()
            if head != _head(body):
                raise ValueError("it is damaged or of another release")
            estimator, until = pickle.loads(body)  # noqa: S301 - our own file, checked above
            if not isinstance(estimator, type(fresh)):
                raise TypeError("it holds no estimator")
            estimator.settings, estimator.system = fresh.settings, fresh.system
        except FileNotFoundError:
            return None
        except Exception as error:  # whatever the file holds: the past is read again
            log.warning(
                "estimates_file_not_read",
                path=str(self.path),
                error=f"{error}; past and record of estimates begin anew",
            )
            return None
        return estimator, float(until)

    def write(self, estimator: Estimator, until: float) -> None:
        """Write it in place of the one before; a problem is logged once."""
        try:
            body = pickle.dumps((estimator, until), protocol=5)
            replace_file(self.path, f"{_head(body)}\n".encode("ascii") + body)
        except Exception as error:  # it is written again later
            if str(error) != self._problem:
                log.warning("estimates_file_not_written", path=str(self.path), error=str(error))
            self._problem = str(error)
        else:
            self._problem = ""


def _head(body: bytes) -> str:
    return f"{FORM} {__version__} {hashlib.sha256(body).hexdigest()}"


DRAWS = 128
"""Run times that are drawn for each job."""


def running_ends(run_times: RunTimes, snapshot: Snapshot, seed: int = 0) -> Estimates:
    """Return estimated ends of the running jobs, one row each, in seconds since the epoch.

    The odds are those that a job ends by its deadline, as `odds_by` has them; nan: it has none. A
    job that has run longer than any before it may take up to its limit. Starts are nan: they are
    known.
    """
    from rtsched.estimates.run_times import draw

    jobs, entries = snapshot.running, snapshot.allocations.entries
    place, there = places(entries.job, jobs.id)
    jobs, place = jobs.take(there), place[there]
    if not len(jobs):
        return Estimates.build(0)
    start, latest = entries.start[place], entries.end[place]
    elapsed = np.maximum(snapshot.now - start, 0.0)
    distribution = run_times.distributions(jobs)
    drawn = draw(distribution, elapsed, jobs.wall_time, jobs.id, jobs.user, range(DRAWS), seed)
    ends = np.maximum(np.minimum(start + drawn, latest), snapshot.now)
    levels = np.quantile(ends, list(BOUNDS.values()), axis=0)
    columns: dict[str, Any] = {
        f"end{name}": level for name, level in zip(BOUNDS, levels, strict=True)
    }
    odds = odds_by(ends.T, jobs.deadline)
    odds[~np.isfinite(jobs.deadline)] = np.nan
    return Estimates.build(len(jobs), job=jobs.id, odds=odds, **columns)


log = structlog.get_logger(__name__)

NICE = 10
"""What is added to the nice value of the process."""

EVERY = 60.0
"""Seconds between two readings of what has ended."""

AGAIN = 300.0
"""Seconds after a reading that failed."""

OVERLAP = 600.0
"""Seconds that a reading goes back before the end of the one before: records come late."""

SAVED = 600.0
"""Seconds between two times at which past and record are written down."""

Question = Literal["estimate", "ends"]

SIMULATED = 0.25
"""Share of the time that is left for an answer with `ends` that its simulations may take."""


class Refreshed(NamedTuple):
    """What a refresh came to."""

    estimates: Estimates
    accuracy: Accuracy
    at: float
    """The time of the state, seconds since the epoch."""
    seconds: float
    """How long it took."""


class Report(NamedTuple):
    """How the process is."""

    busy: bool
    """Whether a refresh is under way."""
    refreshed: Refreshed | None
    """The last one, if it was not reported before."""
    failure: str
    """Why the last refresh failed; empty: it did not, or that was reported before."""
    cpu_s: float
    """Processor seconds used since its start, those of its commands included."""
    past: int
    """Ended jobs that were read."""
    past_problem: str
    """Why no ended jobs can be read now, one sentence; empty: they can."""


@dataclass
class _Asked:
    """A question that waits for the thread with the estimator."""

    kind: Question
    jobs: Jobs
    until: float
    answered: threading.Event
    answer: Any = None
    since: Jobs = NOBODY


class EstimatingProcess:
    """The estimator, as its own process serves it to the daemon.

    Parameters
    ----------
    settings : EstimateSettings
        How much work is put into estimates.
    system : ExclusiveSettings or None
        The site's own scheduler; None: as the estimator takes it.
    past : callable or None
        Reads ended jobs from the batch system's records, from a time until another; None: there are
        none.
    file : Path or None
        Where past and record are kept; None: nowhere.
    """

    def __init__(
        self,
        settings: EstimateSettings,
        system: ExclusiveSettings | None,
        past: Past | None,
        file: Path | None,
    ) -> None:
        from rtsched.estimates.estimator import Estimator

        self._settings, self._past = settings, past
        self._file = EstimatesFile(file) if file is not None else None
        self._estimator = Estimator(settings, system)
        self._read_until = 0.0
        self._work: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._asked: queue.SimpleQueue[_Asked] = queue.SimpleQueue()
        self._busy, self._failure = False, ""
        self._refreshed: Refreshed | None = None
        self._number, self._past_problem = 0, "no records have been read"
        self._defects: dict[str, str] = {}
        self._saved = time.monotonic()
        threading.Thread(target=self._serve, name="estimates", daemon=True).start()

    # --- requests -------------------------------------------------------------------------------

    def refresh(
        self,
        snapshot: Snapshot,
        order: NDArray[np.float64] | None,
        ended: Log | None,
        limits: LimitSource | None = None,
    ) -> None:
        """Begin to estimate the starts of all waiting jobs.

        Parameters
        ----------
        snapshot : Snapshot
            The state now.
        order : float64[n] or None
            Priorities of the queued jobs; None: they are not known.
        ended : Log or None
            Jobs that polls have shown to end since the last refresh.
        limits : LimitSource or None
            Of accounts, users and QOS; None: there are none.
        """
        if self._busy:
            return
        self._busy = True
        self._work.put((snapshot, order, ended, limits))

    def report(self) -> Report:
        """Return how it is, and what was estimated since the last report."""
        refreshed, self._refreshed = self._refreshed, None
        failure, self._failure = self._failure, ""
        return Report(self._busy, refreshed, failure, _cpu(), self._number, self._past_problem)

    def answer(self, kind: Question, jobs: Jobs, seconds: float, since: Jobs = NOBODY) -> Any:
        """Return estimates or ends of jobs that are not submitted; None: not within so long.

        `since` as of `Estimator.ends`.
        """
        asked = _Asked(kind, jobs, time.monotonic() + seconds, threading.Event(), since=since)
        self._asked.put(asked)
        self._work.put(None)
        asked.answered.wait(seconds)
        return asked.answer

    def save(self, seconds: float) -> None:
        """Write down past and record, unless that takes longer; nothing is estimated after it."""
        if not self._busy:
            saved = threading.Event()
            self._work.put(saved)
            saved.wait(seconds)

    # --- the thread with the estimator ----------------------------------------------------------

    def _restore(self) -> None:
        """Take the estimator of the file, if there is one."""
        oldest = time.time() - self._settings.history_days * DAY
        found = None if self._file is None else self._file.read(self._estimator)
        if found is None:
            self._read_until = oldest
        else:
            self._estimator, until = found
            self._read_until = max(min(until, time.time()), oldest)

    def _serve(self) -> None:
        self._restore()
        if self._past is not None:
            threading.Thread(target=self._read, name="past jobs", daemon=True).start()
        while True:
            item = self._work.get()
            self._answer_all()
            if isinstance(item, tuple):
                self._refresh(*item)
            elif isinstance(item, threading.Event):
                self._save()
                item.set()
            elif item is not None:
                self._learn(item)
            if time.monotonic() - self._saved > SAVED:
                self._save()

    def _refresh(
        self,
        snapshot: Snapshot,
        order: NDArray[np.float64] | None,
        ended: Log | None,
        limits: LimitSource | None,
    ) -> None:
        begun = time.monotonic()
        try:
            if ended is not None and self._past_problem:
                self._learn(ended)
            estimates = self._estimator.refresh(snapshot, order, self._answer_all, limits)
            ends = running_ends(self._estimator.history.run_times, snapshot)
            estimates = Estimates.joined([estimates, ends])
            accuracy = self._estimator.accuracy()
        except Exception as error:  # whatever it is, the process goes on
            self._failure = self._defect("estimate_failed", error)
        else:
            seconds = time.monotonic() - begun
            self._refreshed = Refreshed(estimates, accuracy, snapshot.now, seconds)
        self._busy = False

    def _answer_all(self) -> None:
        """Answer the questions that wait, between two simulations."""
        while True:
            try:
                asked = self._asked.get_nowait()
            except queue.Empty:
                return
            if time.monotonic() > asked.until:
                continue
            try:
                asked.answer = self._answered(asked)
            except Exception as error:  # who asks gets no answer, and the refresh goes on
                self._defect("question_failed", error)
            asked.answered.set()

    def _answered(self, asked: _Asked) -> Any:
        if asked.kind == "estimate":
            return self._estimator.estimate(asked.jobs)
        left = max(asked.until - time.monotonic(), 0.0)
        return self._estimator.ends(asked.jobs, SIMULATED * left, asked.since)

    def _learn(self, found: Any) -> None:
        try:
            self._estimator.learn(found)
            self._number += len(found.jobs)
        except Exception as error:  # it is estimated without them
            self._defect("past_not_learned", error)

    def _defect(self, event: str, error: Exception) -> str:
        """Log a defect with its traceback when it is first met; return it in words."""
        text = f"{type(error).__name__}: {error}"
        if self._defects.get(event) != text:
            log.error(event, error=text, exc_info=error)
        self._defects[event] = text
        return text

    def _save(self) -> None:
        if self._file is not None:
            self._file.write(self._estimator, self._read_until)
        self._saved = time.monotonic()

    # --- the thread that reads what has ended -----------------------------------------------------

    def _read(self) -> None:
        """Read the past a day at a time, the latest day first, then what comes."""
        assert self._past is not None  # noqa: S101 - else this thread is not started
        wanted, pause = self._read_until, 0.0
        upper: float | None = None
        """Where the days that were read begin, until all of them were."""
        newest = wanted
        while True:
            time.sleep(pause)
            try:
                if upper is None:
                    newest, first = time.time(), max(time.time() - DAY, wanted - OVERLAP)
                    self._take(first, newest)
                    upper, self._past_problem = first, ""
                while upper > wanted:
                    self._take(max(upper - DAY, wanted), upper)
                    upper = max(upper - DAY, wanted)
                    time.sleep(0.05)
                pause = EVERY
                now = time.time()
                if now - newest > EVERY / 2 or now < newest:
                    self._take(min(newest, now) - OVERLAP, now)
                    newest = now
                self._read_until, self._past_problem = newest, ""
            except (RtschedError, OSError, ValueError) as error:
                if str(error) != self._past_problem:
                    log.warning("past_not_read", error=str(error))
                self._past_problem, pause = str(error), AGAIN
            except Exception as error:  # it is estimated without them
                self._past_problem, pause = self._defect("past_not_read", error), AGAIN

    def _take(self, since: float, until: float) -> None:
        assert self._past is not None  # noqa: S101
        found = self._past(since, until)
        if len(found.jobs):
            self._work.put(found)


def low_priority_process(
    settings: EstimateSettings,
    system: ExclusiveSettings | None,
    past: Past | None,
    file: Path | None,
    level: Level,
) -> EstimatingProcess:
    """Return an `EstimatingProcess` that logs, and give way to all other processes of this host."""
    log_events(level)
    with suppress(OSError):
        os.nice(NICE)
    with suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    return EstimatingProcess(settings, system, past, file)


def _cpu() -> float:
    """Return the processor seconds of this process and its commands."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
