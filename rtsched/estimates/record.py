"""Record of how good the estimates were, and estimates not judged yet.

Slurm shows the waiting tasks of an array as one job, such as `4711_[3-9]`. What is estimated of it
is that of its next task: the first one, such as `4711_3`, that starts after the estimate was made.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rtsched.estimates.calibration import MEDIAN
from rtsched.estimates.tables import Accuracy
from rtsched.model.snapshot import are_in
from rtsched.model.units import PERIODS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from rtsched.estimates.calibration import Settled
    from rtsched.model.jobs import Jobs
    from rtsched.model.log import Log

PARTS = 256
"""Additions that are kept apart until they are joined."""

MOST = 300_000
"""Judged estimates that are kept, the latest ones."""

KNOWN_AT, WITHIN_80, WITHIN_90, WITHIN_95, WIDTH, SCORE, MADE_AT, SIZE, JOB, ERROR = range(10)
"""Columns of judged estimates: when the outcome was known, seconds since the epoch; whether it was
within the intervals of 80, 90 and 95 %; width and interval score of that of 90 %, seconds; when it
was made, seconds since the epoch; size and id of the job; error of the median, seconds. Further
columns have the errors of estimates by simple predictors without arrivals, seconds; then, where
these have intervals, the widths of those of 90 % and their interval scores, seconds."""

ERROR_BY_LIMITS = ERROR + 1
"""Column of the first simple predictor: requested times."""

MISSED_90 = 2 / 0.1
"""What a second outside the interval of 90 % adds to its score, seconds."""


def judged(settled: Settled, simple: Sequence[Settled] = ()) -> NDArray[np.float64]:
    """Return float64[n, 10 + p + 2 q], columns as above, of settled estimates.

    A second is forgiven.

    Parameters
    ----------
    settled : Settled
        `n` estimates, with errors by `p` simple predictors.
    simple : sequence of Settled
        The same starts, as estimated by `q` simple predictors with intervals of their own.
    """
    value, bounds, known = settled.value, settled.open.quantiles, settled.open
    within = [
        (value >= bounds[:, place] - 1.0) & (value <= bounds[:, 2 * MEDIAN - place] + 1.0)
        for place in (2, 1, 0)
    ]
    errors = (np.abs(value - bounds[:, MEDIAN]), np.abs(value[:, None] - known.simple))
    made = (known.at, known.size, known.job)
    others = np.transpose([_width_and_score(each) for each in simple], (1, 2, 0)) if simple else ()
    columns = [known.at + value, *within, *_width_and_score(settled), *made, *errors, *others]
    return np.column_stack(columns).astype(np.float64)


def _width_and_score(settled: Settled) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return width and interval score of the intervals of 90 %, seconds.

    The score is that of Gneiting and Raftery, "Strictly proper scoring rules, prediction, and
    estimation", JASA 102, 2007, section 6.2: the lower, the better.
    """
    low, high = settled.open.quantiles[:, 1], settled.open.quantiles[:, 2 * MEDIAN - 1]
    outside = np.maximum(low - settled.value, 0.0) + np.maximum(settled.value - high, 0.0)
    return high - low, high - low + MISSED_90 * outside


class Record:
    """Judged estimates of the last month, or of all time."""

    def __init__(self, *, forever: bool = False) -> None:
        self._forever = forever
        self._parts: list[NDArray[np.float64]] = []

    @property
    def rows(self) -> NDArray[np.float64]:
        """Return float64[n, 10 + p + 2 q], columns as above, in the order of their outcomes."""
        if not self._parts:
            return np.zeros((0, ERROR_BY_LIMITS + 1))
        self._parts = [np.concatenate(self._parts)]
        return self._parts[0]

    def add(self, settled: Settled, now: float, simple: Sequence[Settled] = ()) -> None:
        """Add estimates whose outcome has become known, as `judged` takes them."""
        if len(settled.value):
            self._parts.append(judged(settled, simple))
        if not self._forever and len(self._parts) > PARTS:
            rows = self.rows
            self._parts = [rows[rows[:, KNOWN_AT] > now - max(PERIODS)][-MOST:]]

    def accuracy(self, now: float) -> Accuracy:
        """Return coverage and error of the last day, week and month, three rows."""
        parts = [self.rows[self.rows[:, KNOWN_AT] > now - period] for period in PERIODS]
        counts = [len(part) for part in parts]
        none = np.full(self.rows.shape[1], np.nan)
        means = np.array([part.mean(axis=0) if len(part) else none for part in parts])
        return Accuracy.build(
            len(PERIODS),
            seconds=np.array(list(PERIODS)),
            jobs=np.array(counts),
            covered_80=means[:, WITHIN_80],
            covered_90=means[:, WITHIN_90],
            covered_95=means[:, WITHIN_95],
            error=means[:, ERROR],
            error_by_limits=means[:, ERROR_BY_LIMITS],
        )


GONE = 7200.0
"""Seconds after which a job that is not shown any more, and in no log, is taken to be cancelled."""

FIRST_KEY = -10
"""Keys of estimates of arrays, which have no job id, from this one downwards."""

_ARRAY, _TASK = re.compile(r"(\d+)_\["), re.compile(r"(\d+)_\d+")


@dataclass
class _NextTask:
    """An estimate of an array's next task."""

    array: str
    row: int
    """Id of the waiting job that stands for all tasks."""
    at: float
    """Seconds since the epoch of the estimate."""
    task: str = ""
    """The task, when it has started."""
    job: int = -1
    """Its id, where a poll has shown it."""


class Awaited:
    """Estimates whose outcomes are not known, by keys: the jobs' ids, or others for arrays."""

    def __init__(self) -> None:
        self._labels: dict[int, str] = {}
        self._tasks: dict[int, _NextTask] = {}
        self._next = FIRST_KEY
        self._missing: dict[int, float] = {}
        """Since when jobs are not shown any more."""

    def added(self, queued: Jobs, now: float) -> NDArray[np.int64]:
        """Return keys for estimates that are made now, one of each waiting job."""
        keys = queued.id.copy()
        for row, (job, label) in enumerate(zip(keys.tolist(), queued.labels(), strict=True)):
            found = _ARRAY.match(label)
            if found is None:
                self._labels[job] = label
            else:
                keys[row] = self._next
                self._tasks[self._next] = _NextTask(found[1], job, now)
                self._next -= 1
        return keys

    def started(
        self, running: Jobs, start: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return keys and starts, seconds since the epoch, of the jobs that run now."""
        tasks = self._open_tasks()
        keys, starts = [running.id], [start]
        if tasks:
            labels = running.labels()
            found = _first_starts(tasks, labels, start)
            for key, row in found:
                tasks[key].task, tasks[key].job = labels[row], int(running.id[row])
            keys.append(np.array([key for key, _ in found], np.int64))
            starts.append(start[[row for _, row in found]])
        return np.concatenate(keys), np.concatenate(starts)

    def ended(self, log: Log) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """Return keys, starts and ends, seconds since the epoch, of jobs of a log.

        Starts are nan of those that did not run.
        """
        labels, start = log.jobs.labels(), log.outcomes.start
        tasks = self._open_tasks()
        for key, row in _first_starts(tasks, labels, start) if tasks else ():
            tasks[key].task = labels[row]
        keys: dict[str, list[int]] = {}
        for key, label in self._labels.items():
            keys.setdefault(label, []).append(key)
        for key, one in self._tasks.items():
            if one.task:
                keys.setdefault(one.task, []).append(key)
        pairs = [(key, row) for row, label in enumerate(labels) for key in keys.get(label, ())]
        found = np.array(pairs, np.int64).reshape(-1, 2)
        rows = found[:, 1]
        return found[:, 0], start[rows], log.outcomes.end[rows]

    def keep(
        self, waiting: NDArray[np.int64], shown: NDArray[np.int64], now: float
    ) -> NDArray[np.int64]:
        """Forget all but what is still waited for, and return which keys will have no outcome.

        Parameters
        ----------
        waiting : int64[k]
            Keys of all open estimates.
        shown : int64[n]
            Ids of the jobs that wait or run, ascending.
        now : float
            Seconds since the epoch.
        """
        open_keys = set(waiting.tolist())
        self._labels = {key: text for key, text in self._labels.items() if key in open_keys}
        self._tasks = {key: one for key, one in self._tasks.items() if key in open_keys}
        here = set(waiting[are_in(waiting, shown)].tolist())
        jobs = set(shown.tolist()) if self._tasks else set()
        for key, one in self._tasks.items():
            if (one.job if one.job >= 0 else one.row) in jobs:
                here.add(key)
        self._missing = {key: self._missing.get(key, now) for key in open_keys - here}
        gone = [key for key, since in self._missing.items() if now - since > GONE]
        return np.array(gone, np.int64)

    def _open_tasks(self) -> dict[int, _NextTask]:
        """Return the arrays of which no task is known to have started since."""
        return {key: one for key, one in self._tasks.items() if not one.task}


def _first_starts(
    tasks: dict[int, _NextTask], labels: list[str], start: NDArray[np.float64]
) -> list[tuple[int, int]]:
    """Return of each array the row of the first of its tasks that started since, with its key."""
    rows: dict[str, list[int]] = {}
    arrays = {one.array for one in tasks.values()}
    for row, label in enumerate(labels):
        found = _TASK.fullmatch(label)
        if found is not None and found[1] in arrays:
            rows.setdefault(found[1], []).append(row)
    return list(_firsts(tasks, rows, start))


def _firsts(
    tasks: dict[int, _NextTask], rows: dict[str, list[int]], start: NDArray[np.float64]
) -> Iterator[tuple[int, int]]:
    for key, one in tasks.items():
        since = [row for row in rows.get(one.array, ()) if start[row] > one.at]
        if since:
            yield key, min(since, key=lambda row: float(start[row]))
