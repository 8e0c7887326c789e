"""Records of a log that can be replayed, in their order and unit.

The rules are those of the Parallel Workloads Archive's users: jobs that ran, on at least one and
at most all processors; requested size, else the allocated one; requested time no less than the run
time; in order of (submission, job number).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.model.log import Ending
from rtsched.replay.gathering import gathered
from rtsched.replay.machine import by_core, by_node, cores_per_node
from rtsched.replay.sharing import shared_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Jobs
    from rtsched.model.log import Log, Outcomes, Skipped

    Rows = NDArray[np.int64] | None  # None: all rows, as they stand


def in_units(
    log: Log, unit: str, machine: Cluster | None, notes: list[str]
) -> tuple[Log, Cluster | None]:
    """Return log and machine in the same unit, noting what was assumed.

    Raises
    ------
    ConfigError
        If jobs are to share nodes of a machine that is not known.
    """
    if unit == "resources":
        return shared_nodes(log, machine, notes)
    if len(log.jobs.names("demand")):
        log = replace(log, jobs=gathered(log.jobs, None, without=("demand",)))
    if machine is None:
        if unit == "node":
            notes.append(
                "Neither log nor options say how many cores a node has: a processor of the log "
                "counts as a node."
            )
        return log, None
    if unit == "core":
        cores = by_core(machine)
        if len(cores) != len(machine):
            notes.append(
                f"Jobs share nodes: {len(machine)} nodes are taken as {len(cores)} single cores."
            )
            if machine.topology.shape or len(machine.topology.link):
                notes.append("The links between nodes are left out: a core has none of its own.")
        return log, cores
    machine = by_node(machine)
    each = cores_per_node(machine)
    if each == 1:
        return log, machine
    notes.append(f"Jobs have nodes to themselves: every {each} processors asked for are one node.")
    sizes = {
        name: np.where(values > 0, -(-values // each), values)
        for name in ("size", "size_min", "size_max")
        if len(values := log.jobs.column(name)) and values.strides != (0,)
    }
    memory = log.jobs.memory
    if (memory >= 0).any():
        sizes["memory"] = np.where(memory >= 0, memory * each, -1)
    jobs = gathered(log.jobs, None, sizes)
    outcomes = gathered(log.outcomes, None, {"size": -(-log.outcomes.size // each)})
    return replace(log, jobs=jobs, outcomes=outcomes), machine


def run_times(outcomes: Outcomes) -> NDArray[np.float64]:
    """Return how long each job ran, by the log or by its start and end; nan: unknown."""
    missing = np.isnan(outcomes.run_time)
    if not missing.any():
        return outcomes.run_time
    return np.where(missing, outcomes.end - outcomes.start, outcomes.run_time)


def sizes(jobs: Jobs, outcomes: Outcomes) -> NDArray[np.int32]:
    """Return the units each job asked for, else those it was given."""
    if (jobs.size > 0).all():
        return jobs.size
    return np.where(jobs.size > 0, jobs.size, outcomes.size)


def _flaws(
    jobs: Jobs, outcomes: Outcomes, max_size: int | NDArray[np.int32]
) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yield each reason for which a job cannot be replayed, and the jobs it holds for."""
    run, start = run_times(outcomes), outcomes.start
    yield "its submit time is missing or negative", ~((jobs.submit >= 0) & (jobs.submit < np.inf))
    yield "it had not started when the log was written", outcomes.ending == Ending.PENDING
    yield "it starts before it is submitted", start < jobs.submit
    yield "it ends before it starts", (outcomes.end < start) | (run < 0)
    unknown = np.isnan(run)
    if unknown.any():
        yield "it never started", unknown & np.isnan(start)
        yield "how long it ran is not known", unknown
    yield "it ran for no time", run == 0
    yield "its run time is infinite", np.isinf(run)
    size = sizes(jobs, outcomes)
    yield "it asks for no processors", size <= 0
    if isinstance(max_size, int):
        yield "it asks for more processors than the machine has", size > max_size
    else:
        yield "too few nodes have what it asks for", size > max_size


def replayable(
    log: Log,
    max_size: int | NDArray[np.int32],
    skipped: Skipped,
    others: Mapping[str, NDArray[np.bool_]] | None = None,
) -> Rows:
    """Return the rows of jobs that can be replayed; the others are counted in `skipped`.

    Parameters
    ----------
    log : Log
        As read.
    max_size : int or int32[n]
        Units that the machine has; or on how many nodes each job fits.
    skipped : Skipped
        Grows.
    others : mapping of str to bool[n]
        Jobs to leave out besides, by reason.
    """
    jobs, keep = log.jobs, None
    for reason, fails in chain(_flaws(jobs, log.outcomes, max_size), (others or {}).items()):
        if not fails.any():
            continue
        if keep is None:
            keep = np.ones(len(jobs), np.bool_)
        lost = np.flatnonzero(fails & keep)
        if len(lost):
            skipped.add(reason, f"job {_label(jobs, int(lost[0]))}", len(lost))
            keep[lost] = False
    return None if keep is None else np.flatnonzero(keep)


def _label(jobs: Jobs, row: int) -> str:
    code = int(jobs.label[row])
    return jobs.names("label")[code] if code >= 0 else str(int(jobs.id[row]))


def ordered(jobs: Jobs, rows: Rows) -> Rows:
    """Return `rows` in order of (submit, id)."""
    submit = jobs.submit if rows is None else jobs.submit[rows]
    ids = jobs.id if rows is None else jobs.id[rows]
    in_order = submit[1:] > submit[:-1]
    if not in_order.all():
        in_order |= (submit[1:] == submit[:-1]) & (ids[1:] >= ids[:-1])
    if in_order.all():
        return rows
    order = np.lexsort((ids, submit))
    return order if rows is None else rows[order]


def filled(
    jobs: Jobs,
    rows: Rows,
    size: NDArray[np.int32],
    run_time: NDArray[np.float64],
    notes: list[str],
    *,
    assume_requested: bool = True,
) -> Jobs:
    """Return the jobs of `rows` with sizes, requested times and unique ids, noting assumptions.

    Parameters
    ----------
    jobs : Jobs
        As read.
    rows : int64[k] or None
        Which, in order.
    size : int32[n]
        See `sizes`.
    run_time : float64[k]
        Seconds each ran.
    notes : list of str
        Grows.
    assume_requested : bool
        Whether a job without a requested time counts as if it had requested its run time; else it
        has no limit.
    """
    new: dict[str, Any] = {}
    if size is not jobs.size:
        new["size"] = size if rows is None else size[rows]
    wall = jobs.wall_time if rows is None else jobs.wall_time[rows]
    known = np.isfinite(wall) & (wall > 0)
    short = wall < run_time
    unknown, exceeded = int((~known).sum()), int((known & short).sum())
    if unknown:
        then = (
            "their run time stands in" if assume_requested else "they count as jobs without a limit"
        )
        notes.append(f"{unknown:,} of {len(wall):,} jobs had no requested time; {then}.")
    if exceeded:
        notes.append(
            f"{exceeded:,} of {len(wall):,} jobs ran longer than requested; their run time counts "
            "as requested."
        )
    if unknown == len(wall) and assume_requested:
        new["wall_time"] = run_time
    elif unknown or exceeded:
        missing = run_time if assume_requested else np.inf
        new["wall_time"] = np.where(known, np.where(short, run_time, wall), missing)
    return _told_apart(gathered(jobs, rows, new), notes)


def _told_apart(jobs: Jobs, notes: list[str]) -> Jobs:
    """Return the jobs with unique ids: the first of each keeps its own, labels stay."""
    ids = jobs.id
    if (ids[1:] > ids[:-1]).all():
        return jobs
    order = np.argsort(ids, kind="stable")
    again = np.sort(order[1:][ids[order[1:]] == ids[order[:-1]]])
    if not len(again):
        return jobs
    notes.append(f"{len(again)} jobs have the number of another job and got a new one.")
    fresh = ids.copy()
    fresh[again] = max(int(ids.max()), 0) + 1 + np.arange(len(again))
    labels, names = jobs.label.copy(), list(jobs.names("label"))
    for row in again[labels[again] < 0].tolist():
        labels[row] = len(names)
        names.append(str(int(ids[row])))
    columns = {"id": fresh}
    return gathered(jobs, None, columns).replace_text("label", labels, names)
