"""Which dependencies hold at an instant, for snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.model.jobs import Edges
from rtsched.model.snapshot import places
from rtsched.model.table import Ragged

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rtsched.model.jobs import Jobs

    Rows = NDArray[np.int64]


class OpenDependencies:
    """The dependencies between jobs that are submitted and have not ended.

    Those on a job that is submitted later are left out, as is one on a job that is not there.

    Parameters
    ----------
    jobs : Jobs
        The workload, in order of (submit, id).
    edges : Edges
        All dependencies.
    """

    def __init__(self, jobs: Jobs, edges: Edges) -> None:
        self._jobs, self._edges = jobs, edges
        if not len(edges):
            return
        self._tasks = np.argsort(jobs.array, kind="stable")
        self._arrays = jobs.array[self._tasks]
        order = np.argsort(jobs.id, kind="stable")
        after, there = places(jobs.id[order], edges.after)
        before, known = places(jobs.id[order], edges.before)
        self._after, self._before = order[after], np.where(known, order[before], 0)
        known &= jobs.submit[self._before] <= jobs.submit[self._after]
        rows = np.flatnonzero(there & (known | edges.whole_array))
        self._rows = rows[np.argsort(self._after[rows], kind="stable")]
        self._submitted = jobs.submit[self._after[self._rows]]
        self._taken, self._open = 0, np.zeros(0, np.int64)

    def at(self, now: float, alive: Callable[[Rows], NDArray[np.bool_]]) -> Edges:
        """Return those that hold now; one on an array stands there for each of its tasks.

        Parameters
        ----------
        now : float
            Seconds since the epoch, never before that of the last call.
        alive : callable
            Which rows of jobs have not ended.
        """
        if not len(self._edges):
            return self._edges
        until = int(np.searchsorted(self._submitted, now, side="right"))
        rows = np.concatenate([self._open, self._rows[self._taken : until]])
        whole = self._edges.whole_array[rows]
        holds = alive(self._after[rows]) & (whole | alive(self._before[rows]))
        self._open, self._taken = rows[holds], until
        whole = whole[holds]
        edges = self._edges.take(self._open)
        if not whole.any():
            return edges
        return Edges.joined([edges.take(~whole), self._of_tasks(edges.take(whole), now, alive)])

    def _of_tasks(
        self, edges: Edges, now: float, alive: Callable[[Rows], NDArray[np.bool_]]
    ) -> Edges:
        """Return dependencies on arrays as such on their tasks that have not ended."""
        first = np.searchsorted(self._arrays, edges.before, "left")
        last = np.searchsorted(self._arrays, edges.before, "right")
        within = Ragged.counted(last - first)
        of = within.rows()
        tasks = self._tasks[first[of] + within.values]
        open_ = alive(tasks) & (self._jobs.submit[tasks] <= now)
        tasks, of = tasks[open_], of[open_]
        single = np.zeros(len(of), np.bool_)
        return edges.take(of).replace(before=self._jobs.id[tasks], whole_array=single)
