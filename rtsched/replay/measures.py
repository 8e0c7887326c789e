"""What a replay is measured by, each measure with its unit and definition in one registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.model.log import Ending
from rtsched.replay.fairness import fairness
from rtsched.replay.results import Fate, Results

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rtsched.replay.results import Workload

TAU = 10.0
"""Seconds below which a run time counts as this in the bounded slowdown."""


class Measure(NamedTuple):
    """What a measure is."""

    unit: str
    definition: str
    better: int
    """-1: less is better, 1: more is better, 0: neither."""


MEASURES: Mapping[str, Measure] = {
    "jobs": Measure("jobs", "Jobs of the workload.", 0),
    "finished": Measure("jobs", "Jobs that ran to their end.", 0),
    "rejected": Measure("jobs", "Jobs turned away at submission.", -1),
    "unfinished": Measure("jobs", "Jobs that never started, or were lost with their node.", -1),
    "reject_ratio": Measure("1", "Rejected jobs over all jobs.", -1),
    "rejected_work_ratio": Measure(
        "1", "Node-seconds that rejected jobs asked for, over those of all jobs.", -1
    ),
    "missed": Measure(
        "jobs",
        "Jobs that were let in and ended after their deadline, or did not end; half a microsecond "
        "counts as rounding.",
        -1,
    ),
    "miss_ratio": Measure("1", "Missed jobs over all jobs.", -1),
    "promises": Measure("jobs", "Jobs that were promised to finish by a deadline.", 0),
    "promises_kept": Measure("jobs", "Promised jobs that ended by the promised deadline.", 1),
    "mean_wait_s": Measure("s", "Mean time from submission to start.", -1),
    "median_wait_s": Measure("s", "Median time from submission to start.", -1),
    "p95_wait_s": Measure("s", "Time from submission to start that 95 % of jobs stay below.", -1),
    "max_wait_s": Measure("s", "Longest time from submission to start.", -1),
    "mean_response_s": Measure("s", "Mean time from submission to end.", -1),
    "mean_bounded_slowdown": Measure(
        "1", "Mean of max(1, (wait + run)/max(run, 10 s)) (Feitelson and Rudolph 1998).", -1
    ),
    "utilisation": Measure("1", "Busy node-seconds over nodes times makespan.", 1),
    "makespan_s": Measure("s", "From the first submission to the last end.", -1),
    "throughput_per_h": Measure("1/h", "Finished jobs per hour of makespan.", 1),
    "user_error_min_node_s": Measure(
        "node s",
        "Least service-time error of any user: service received less the service that the user's "
        "share of the busy hours entitles to, at the user's own submissions, starts and ends.",
        1,
    ),
    "user_error_max_node_s": Measure("node s", "Greatest service-time error of any user.", -1),
    "user_error_rms_node_s": Measure(
        "node s", "Root mean square of the service-time errors of all users at their instants.", -1
    ),
    "account_error_min_node_s": Measure("node s", "Least service-time error of any account.", 1),
    "account_error_max_node_s": Measure(
        "node s", "Greatest service-time error of any account.", -1
    ),
    "account_error_rms_node_s": Measure(
        "node s", "Root mean square of the service-time errors of all accounts.", -1
    ),
}
"""Every measure by name; the name ends in the unit, none is a pure number or a count."""


def measure(workload: Workload, results: Results) -> dict[str, float | int | None]:
    """Return every measure of what a policy made of a workload; None where nothing ran."""
    jobs = workload.jobs
    n = len(jobs)
    fate = results.fate
    done = fate == Fate.FINISHED
    started = np.isfinite(results.start) & (fate != Fate.REJECTED)
    let_in = fate != Fate.REJECTED
    late = let_in & is_late(results.end, jobs.deadline)
    promised = np.isfinite(results.promise)
    kept = promised & ~is_late(results.end, results.promise)
    work = jobs.wall_time * jobs.size
    counts = {
        "jobs": n,
        "finished": _count(done),
        "rejected": n - _count(let_in),
        "unfinished": _count(fate == Fate.UNFINISHED),
        "reject_ratio": _ratio(n - _count(let_in), n),
        "rejected_work_ratio": _ratio(float(work[~let_in].sum()), float(work.sum())),
        "missed": _count(late),
        "miss_ratio": _ratio(_count(late), n),
        "promises": _count(promised),
        "promises_kept": _count(kept),
    }
    del work, late, promised, kept
    times = _times(jobs.submit[started], results.start[started], results.end[started])
    span = _span(workload, results, started)
    return counts | times | span | fairness(workload, results)


def logged(workload: Workload) -> dict[str, float | int | None]:
    """Return the same measures of what the log itself records as having happened."""
    return measure(workload, logged_results(workload))


def logged_results(workload: Workload) -> Results:
    """Return what the log records as if a policy had done it."""
    outcomes = workload.outcomes
    ran = np.isfinite(outcomes.start)
    end = np.where(outcomes.ending == Ending.RUNNING, np.nan, outcomes.end)
    return Results.build(
        len(outcomes),
        start=outcomes.start,
        end=end,
        size=np.where(outcomes.size > 0, outcomes.size, workload.jobs.size),
        fate=np.where(ran, Fate.FINISHED, Fate.UNFINISHED).astype(np.int8),
    )


def is_late(end: NDArray[np.float64], deadline: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return bool[n]: a job with a deadline ended after it, or did not end."""
    return np.isfinite(deadline) & ~(end <= deadline + 5e-7)


def bounded_slowdown(
    submit: NDArray[np.float64], start: NDArray[np.float64], end: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return float64[n]: max(1, (wait + run)/max(run, 10 s))."""
    return np.maximum(1.0, (end - submit) / np.maximum(end - start, TAU))


def _times(
    submit: NDArray[np.float64], start: NDArray[np.float64], end: NDArray[np.float64]
) -> dict[str, float | int | None]:
    if not len(submit):
        names = "mean_wait_s median_wait_s p95_wait_s max_wait_s mean_response_s"
        return dict.fromkeys([*names.split(), "mean_bounded_slowdown"])
    wait = start - submit
    median, p95 = np.percentile(wait, [50, 95]).tolist()
    ended = np.isfinite(end)
    submit, start, end = submit[ended], start[ended], end[ended]
    return {
        "mean_wait_s": float(wait.mean()),
        "median_wait_s": median,
        "p95_wait_s": p95,
        "max_wait_s": float(wait.max()),
        "mean_response_s": float((end - submit).mean()) if len(end) else None,
        "mean_bounded_slowdown": (
            float(bounded_slowdown(submit, start, end).mean()) if len(end) else None
        ),
    }


def _span(
    workload: Workload, results: Results, started: NDArray[np.bool_]
) -> dict[str, float | int | None]:
    ended = started & np.isfinite(results.end)
    if not ended.any():
        return dict.fromkeys(["utilisation", "makespan_s", "throughput_per_h"])
    end = results.end[ended]
    makespan = float(end.max() - workload.jobs.submit[0])
    busy = float(((end - results.start[ended]) * results.size[ended]).sum())
    return {
        "utilisation": _ratio(busy, len(workload.cluster) * makespan),
        "makespan_s": makespan,
        "throughput_per_h": _ratio(3600.0 * len(end), makespan),
    }


def _count(mask: NDArray[np.bool_]) -> int:
    return int(np.count_nonzero(mask))


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None
