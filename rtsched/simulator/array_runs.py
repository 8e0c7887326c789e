"""Arrays that the simulated system runs as one job each: how their tasks take their nodes in turn.

The tasks start in their order, each on the place that is free first, until none is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.kernels.order import list_schedule
from rtsched.model.jobs import Kind, last_end

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.jobs import Jobs
    from rtsched.model.table import Ragged

    Floats = NDArray[np.float64]
    Rows = NDArray[np.int64]


class ArrayRun(NamedTuple):
    """How the tasks of an array run."""

    start: Floats
    """float64[t]: seconds after the array's start."""
    end: Floats
    """float64[t]"""
    place: Rows
    """int64[t]: on which of the places that its nodes have for tasks."""


class ArrayRuns:
    """The arrays among the jobs of a workload, and how long their tasks really run.

    Parameters
    ----------
    jobs : Jobs
        `n` jobs.
    task_times : Ragged of float64
        Of each array the seconds of its tasks in their order; of other jobs nothing.
    """

    def __init__(self, jobs: Jobs, task_times: Ragged) -> None:
        self._times, self._is_array = task_times, np.equal(jobs.kind, Kind.ARRAY)
        self._per_node, self._limit = jobs.tasks_per_node, jobs.wall_time
        self._courses: dict[tuple[int, int], ArrayRun] = {}

    def among(self, rows: Rows) -> Rows:
        """Return which of these jobs are arrays, as places in `rows`."""
        return np.flatnonzero(self._is_array[rows])

    def course(self, row: int, nodes: int) -> ArrayRun:
        """Return how the tasks of the array in a row run on so many nodes of speed 1."""
        if (row, nodes) not in self._courses:
            run_time = np.ascontiguousarray(self._times.row(row))
            places = min(nodes * max(int(self._per_node[row]), 1), len(run_time))
            start, place = np.empty(len(run_time)), np.empty(len(run_time), np.int64)
            list_schedule(run_time, np.zeros(places), np.arange(places), start, place)
            self._courses[row, nodes] = ArrayRun(start, start + run_time, place)
        return self._courses[row, nodes]

    def run_times(self, rows: Rows, nodes: Rows, run_time: Floats) -> Floats:
        """Return the run times of jobs, those of arrays on so many nodes each, float64[k]."""
        arrays = self.among(rows)
        if not len(arrays):
            return run_time
        run_time = run_time.copy()
        for at in arrays.tolist():
            run_time[at] = self.course(int(rows[at]), int(nodes[at])).end.max()
        return run_time

    def course_within(self, row: int, nodes: int, seconds: float) -> ArrayRun:
        """Return the course of an array that takes so many seconds on nodes of whatever speed."""
        course = self.course(row, nodes)
        pace = seconds / float(course.end.max())
        if np.isnan(pace) or np.isclose(pace, 1.0, rtol=1e-9):
            return course
        return ArrayRun(course.start * pace, course.end * pace, course.place)

    def latest_end(self, row: int, nodes: int, seconds: float, passed: float) -> float:
        """Return when the last task ends at the latest, as far as is known by now.

        Parameters
        ----------
        row, nodes : int
            An array that runs, and on how many nodes.
        seconds : float
            How long it will really take.
        passed : float
            Seconds since its start; what is returned counts from there too.
        """
        course, limit = self.course_within(row, nodes, seconds), float(self._limit[row])
        started = course.start <= passed
        runs = started & (course.end > passed)
        waiting, places = int((~started).sum()), int(course.place.max()) + 1
        return last_end(course.start[runs] + limit, waiting, places, limit, passed)
