"""Which procs of divisible loads have run.

A load has begun as soon as one of its chunks has: from then on its plan is fixed. A chunk may run
and be over between two polls; that it was there shows when its cluster has fewer procs than were
submitted, and the history tells whether a proc that is gone ever ran.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rtsched.adapters.condor.completions import started_of
from rtsched.adapters.condor.ids import cluster_of, job_id, proc_of
from rtsched.adapters.condor.pool_state import has_slot
from rtsched.adapters.condor.queue import OF_ENDS
from rtsched.errors import AdapterError
from rtsched.logs.classads import number

if TYPE_CHECKING:
    from rtsched.adapters.condor.pool import Pool
    from rtsched.adapters.condor.queue import Queue


class StartedLoads:
    """Which procs of divisible loads have run, from poll to poll.

    Parameters
    ----------
    pool : Pool
        Whose history is asked.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._ran: dict[int, set[int]] = {}
        self._left: dict[int, int] = {}

    def update(self, queue: Queue) -> dict[int, int]:
        """Return how many procs of a load ran up to now, of those loads that have begun.

        One of which all procs wait again, and none is over, has not begun.
        """
        procs, runs = queue.procs, has_slot(queue.procs).tolist()
        present: dict[int, set[int]] = {}
        running: dict[int, set[int]] = {}
        left: dict[int, int] = {}
        for row, needs in queue.requirements.items():
            if needs.whole:
                job, proc = int(procs.job[row]), int(procs.proc[row])
                present.setdefault(job, set()).add(proc)
                submitted = number(queue.ads[row], "totalsubmitprocs")
                left[job] = int(submitted) if math.isfinite(submitted) else 0
                if runs[row]:
                    running.setdefault(job, set()).add(proc)
        left = {job: count - len(present[job]) for job, count in left.items()}
        over = self._over(queue, left)
        self._ran = {
            job: self._ran.get(job, set()) | running.get(job, set()) | over.get(job, set())
            for job in present
        }
        return {
            job: len(ran) for job, ran in self._ran.items() if job in running or ran - present[job]
        }

    def _over(self, queue: Queue, left: dict[int, int]) -> dict[int, set[int]]:
        """Return the procs that ran and are over, of loads that have lost procs since last time."""
        new = [job for job, count in left.items() if count > max(self._left.get(job, 0), 0)]
        self._left = left
        over: dict[int, set[int]] = {}
        for one in started_of(queue.over):
            over.setdefault(job_id(cluster_of(one), 0), set()).add(proc_of(one))
        for job in new:
            over.setdefault(job, set()).update(self._gone(job, left[job]))
        return over

    def _gone(self, job: int, count: int) -> set[int]:
        """Return which procs of a load ran, of so many that are gone; none without a history."""
        try:
            found = self._pool.history(f"ClusterId == {cluster_of(job)}", OF_ENDS, count)
        except AdapterError:
            return set()
        return {proc_of(one) for one in started_of(found)}
