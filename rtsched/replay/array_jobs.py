"""Arrays with one promise each in a replay: one job in the place of the tasks of each.

A planner is asked about such a job as the daemon asks it, and the simulated system runs it on the
nodes that it is given. What became of it is then told by task. Policies without a planner start
tasks one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.model.jobs import Kind
from rtsched.model.resources import served
from rtsched.model.snapshot import places
from rtsched.model.table import Ragged, offsets_of
from rtsched.replay.arrays import Arrays
from rtsched.replay.results import Results
from rtsched.simulator.array_runs import ArrayRuns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from rtsched.model.jobs import Edges, Jobs
    from rtsched.replay.results import PolicyRun, Workload

    Rows = NDArray[np.int64]


@dataclass(frozen=True)
class OneJobEach:
    """A workload in which each array is one job.

    Attributes
    ----------
    by_task : Workload
        The workload with a job per task, `n` jobs.
    workload : Workload
        The same with one job in place of the tasks of each array.
    task_times : Ragged of float64
        Of each array in there how long its tasks really run; of other jobs nothing.
    """

    by_task: Workload
    workload: Workload
    task_times: Ragged

    def results_by_task(self, run: PolicyRun) -> PolicyRun:
        """Return what became of the jobs, by task where they are arrays."""
        return _TaskResults(self, run).by_task()


def as_one_job(workload: Workload) -> OneJobEach:
    """Return a workload with one job in place of the tasks of each of its arrays."""
    arrays, jobs = workload.arrays, workload.jobs
    tasks, first = arrays.tasks, arrays.first()
    others = np.ones(len(jobs), np.bool_)
    others[tasks.values] = False
    rows = np.union1d(np.flatnonzero(others), first)
    at = np.searchsorted(rows, first)
    lengths = np.zeros(len(rows), np.int64)
    lengths[at] = tasks.lengths
    task_times = Ragged(offsets_of(lengths), workload.run_time[tasks.values])
    each = arrays.per_node.astype(np.int64)
    columns: dict[str, Any] = {
        "kind": np.int8(Kind.ARRAY),
        "size_min": np.int32(1),
        "size_max": arrays.most,
        "tasks": tasks.lengths.astype(np.int32),
        "tasks_per_node": arrays.per_node,
        "wall_time": arrays.wall_time(jobs),
        "array_limit": np.int32(0),
        "cores": np.where(jobs.cores[first] > 0, jobs.cores[first] * each, -1),
        "billed": jobs.billed[first] * each,
    }
    if jobs.names("demand"):
        columns["demand"] = jobs.demand[first] * each[:, None]
        columns["exclusive"] = jobs.exclusive[first] | arrays.alone
    new = {name: _with(jobs, name, rows, at, values) for name, values in columns.items()}
    table = jobs.take(rows).replace(**new)
    runs, run_time = ArrayRuns(table, task_times), workload.run_time[rows]
    run_time = runs.run_times(np.arange(len(rows)), table.size.astype(np.int64), run_time)
    limits = workload.limits
    if limits is not None:
        asked = limits.asked[rows]
        asked[at] *= np.minimum(tasks.lengths, each * arrays.most)[:, None]
        limits = limits._replace(asked=asked, kind=limits.kind[rows])
    whole = replace(
        workload,
        jobs=table,
        run_time=run_time,
        outcomes=workload.outcomes.take(rows).replace(),
        edges=_edges_of_whole(workload.edges, jobs, tasks),
        limits=limits,
        arrays=Arrays.none(),
    )
    return OneJobEach(workload, whole, task_times)


def _with(jobs: Jobs, name: str, rows: Rows, at: Rows, values: NDArray[Any]) -> NDArray[Any]:
    """Return a column of the jobs in `rows`, with other values in places `at`."""
    column = jobs.column(name)[rows].copy()
    column[at] = values
    return column


def _edges_of_whole(edges: Edges, jobs: Jobs, tasks: Ragged) -> Edges:
    """Return dependencies with those of an array in place of those that all its tasks have.

    What waits for an array names its key, which is that of the job in its place too.
    """
    if not len(edges):
        return edges
    ids = jobs.id.copy()
    ids[tasks.values] = jobs.id[tasks.values[tasks.offsets[:-1]]][tasks.rows()]
    row, known = places(jobs.id, edges.after)
    after = np.where(known, ids[row], edges.after)
    table = np.column_stack([edges.before, after, edges.at_start, edges.whole_array])
    _, first = np.unique(table, axis=0, return_index=True)
    first = np.sort(first)
    return edges.take(first).replace(after=after[first])


class _TaskResults:
    """What became of the tasks of arrays that a policy ran as one job each."""

    def __init__(self, whole: OneJobEach, run: PolicyRun) -> None:
        self._run, self._work, self._by_task = run, whole.workload, whole.by_task
        arrays = whole.by_task.arrays
        tasks = arrays.tasks
        n = len(self._by_task.jobs)
        represented = np.arange(n)
        represented[tasks.values] = arrays.first()[tasks.rows()]
        _, self._of = np.unique(represented, return_inverse=True)
        self._tasks = tasks
        self._at = self._of[arrays.first()]
        self._course(ArrayRuns(self._work.jobs, whole.task_times))

    def _course(self, runs: ArrayRuns) -> None:
        """Find when each job starts and ends, and on which of the nodes of its array."""
        results, of, tasks = self._run.results, self._of, self._tasks
        self._start, self._end = results.start[of], results.end[of]
        self._node = np.zeros(len(of), np.int64)
        for at, row in enumerate(self._at.tolist()):
            size, begun = int(results.size[row]), float(results.start[row])
            if not size or np.isnan(begun):
                continue
            rows, end = tasks.row(at), float(results.end[row])
            course = runs.course_within(row, size, end - begun)
            self._start[rows] = begun + course.start
            self._end[rows] = np.minimum(begun + course.end, end)
            self._node[rows] = course.place % size

    def by_task(self) -> PolicyRun:
        """Return the run by task."""
        run, results, of = self._run, self._run.results, self._of
        tasks = self._tasks.values
        nodes = Ragged(*run.node_rows)
        lengths = nodes.lengths[of]
        lengths[tasks] = np.minimum(lengths[tasks], 1)
        offsets, within = Ragged.counted(lengths)
        rows = np.repeat(nodes.offsets[:-1][of] + self._node, lengths) + within
        node = nodes.values[rows]
        size, first = results.size[of], results.first_node[of]
        size[tasks] = np.minimum(size[tasks], 1)
        recorded = tasks[lengths[tasks] > 0]
        first[recorded] = node[offsets[recorded]]
        by_task = Results.build(
            len(of),
            names={"reason": results.names("reason")},
            start=self._start,
            end=self._end,
            size=size,
            fate=results.fate[of],
            first_node=first,
            promise=results.promise[of],
            offer=results.offer[of],
            reason=results.reason[of],
            ran_on=results.ran_on[of],
            service=self._service(size),
        )
        by_row = Ragged(offsets_of(np.bincount(of)), np.argsort(of, kind="stable"))
        decisions = _ByTask(run.decisions, by_row)
        return replace(run, results=by_task, node_rows=(offsets, node), decisions=decisions)

    def _service(self, size: NDArray[np.int32]) -> NDArray[np.float64] | None:
        """Return the node-seconds that jobs were served; nan: their nodes served them alone."""
        work, seconds = self._by_task, self._end - self._start
        if work.cluster.shared:
            return served(work.jobs, work.cluster, size, seconds)
        service = self._run.results.service[self._of]
        per_node, of = work.arrays.per_node, self._tasks.rows()
        together = per_node[of] > 1
        rows = self._tasks.values[together]
        service[rows] = seconds[rows] / per_node[of][together]
        return service


class _ByTask:
    """Decisions on jobs of which some are arrays, as such on each of their tasks."""

    def __init__(self, decisions: Iterable[Mapping[str, object]], rows: Ragged) -> None:
        self._decisions, self._rows = decisions, rows

    def __iter__(self) -> Iterator[dict[str, object]]:
        for decision in self._decisions:
            row: Any = decision["job"]
            for task in self._rows.row(row).tolist():
                yield {**decision, "job": task}
