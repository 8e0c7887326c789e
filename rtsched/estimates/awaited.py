"""What estimates wait for: what the batch system calls their jobs, in polls and in its records.

Slurm shows the waiting tasks of an array as one job, such as `4711_[3-9]`. What is estimated of it
is that of its next task: the first one, such as `4711_3`, that starts after the estimate was made.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from rtsched.model.jobs import Jobs
    from rtsched.model.log import Log

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
        here = set(waiting[np.isin(waiting, shown)].tolist())
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
