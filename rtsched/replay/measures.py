"""Measures of a replay, each with its unit and definition in one registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from rtsched.kernels.service_error import ServiceError, service_error
from rtsched.model.log import Ending, FinalState
from rtsched.model.resources import GPU, MEMORY, mean_cores, served
from rtsched.replay.resource_use import resource_use, stranded_gpu_hours
from rtsched.replay.results import Results

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rtsched.model.snapshot import Accounts
    from rtsched.replay.arrays import Arrays
    from rtsched.replay.resource_use import NodeRows
    from rtsched.replay.results import Workload

    Values: TypeAlias = dict[str, float | int | None]


TAU = 10.0
"""Seconds below which a run time counts as this in the bounded slowdown."""

TOLERANCE = 1e-9
"""Lateness that counts as rounding, relative to the time from submission to deadline ..."""

TICK = 5e-7
"""... and in seconds: what is left of a second's fraction in seconds since the epoch."""


class Measure(NamedTuple):
    """What a measure is."""

    unit: str
    definition: str
    better: int
    """-1: less is better, 1: more is better, 0: neither."""
    source: str = ""
    """Who defined it, where it is not plain."""


_STE = (
    "Lopez and Raja, A dynamic error based fair scheduling algorithm for a computational grid; "
    "Nieh, Vaill and Zhong 2001"
)
_STE_COST = "Lopez and Raja; they print an average cost without a definition, this one is ours"
_MCDF = "Lin, Lu, Deogun and Goddard 2005"

MEASURES: Mapping[str, Measure] = {
    "jobs": Measure("jobs", "Jobs of the workload.", 0),
    "finished": Measure("jobs", "Jobs that ran to their end.", 0),
    "rejected": Measure("jobs", "Jobs rejected at submission.", -1),
    "ran_on": Measure("jobs", "Rejected jobs that were run all the same.", 0),
    "promised_later": Measure(
        "jobs", "Of these, jobs that were promised their deadline while they waited.", 1
    ),
    "unfinished": Measure(
        "jobs",
        "Jobs that never started, were lost with their node, or were cancelled by preemption.",
        -1,
    ),
    "reject_ratio": Measure("1", "Rejected jobs over all jobs.", -1, _MCDF),
    "rejected_work_ratio": Measure(
        "1", "Node-seconds requested by rejected jobs, over those of all jobs.", -1
    ),
    "rejected_run_ratio": Measure(
        "1", "Node-seconds that rejected jobs would have run, over those of all jobs.", -1
    ),
    "in_time": Measure(
        "jobs",
        "Jobs with a deadline, of all submitted ones, that ended by it. A rejected job did not.",
        1,
    ),
    "in_time_ratio": Measure("1", "Jobs that ended in time over all jobs with a deadline.", 1),
    "in_time_work_ratio": Measure(
        "1",
        "Node-seconds that jobs which ended in time ran, over those that all jobs with a deadline "
        "run.",
        1,
    ),
    "missed": Measure(
        "jobs",
        "Accepted jobs with a deadline that ended after it, or did not end; lateness below 1e-9 of "
        "the time from submission to deadline counts as rounding.",
        -1,
    ),
    "miss_ratio": Measure(
        "1", "Missed jobs over all jobs, those without a deadline included.", -1, _MCDF
    ),
    "promises": Measure("jobs", "Jobs that were promised to finish by a deadline.", 0),
    "promises_kept": Measure("jobs", "Promised jobs that ended by the promised deadline.", 1),
    "promised_work_ratio": Measure(
        "1", "Node-seconds requested by promised jobs, over those of all jobs with a deadline.", 1
    ),
    "array_promises": Measure(
        "arrays", "Arrays of which all tasks were promised to finish by a deadline.", 0
    ),
    "array_promises_kept": Measure(
        "arrays", "Promised arrays of which all tasks ended by the promised deadline.", 1
    ),
    "mean_wait_s": Measure("s", "Mean time from submission to start.", -1),
    "mean_common_wait_s": Measure(
        "s",
        "Mean time from submission to start of the jobs that started under all of the policies "
        "that are compared.",
        -1,
    ),
    "mean_baseline_wait_s": Measure(
        "s",
        "Mean time from submission to start of the jobs that this policy accepted, under the "
        "baseline (policy `site`, else the first) without those that it rejected. What that is "
        "below the baseline's own mean comes from rejecting, what this policy's is below that "
        "from its plan. Of a policy that rejects nobody it is the baseline's own. Not known where "
        "the baseline itself plans or rejects, or nobody rejects.",
        0,
    ),
    "mean_best_effort_wait_s": Measure(
        "s", "Mean time from submission to start of the jobs without a deadline.", -1
    ),
    "median_wait_s": Measure("s", "Median time from submission to start.", -1),
    "p95_wait_s": Measure("s", "95th percentile of the time from submission to start.", -1),
    "max_wait_s": Measure("s", "Longest time from submission to start.", -1),
    "mean_response_s": Measure("s", "Mean time from submission to end.", -1),
    "mean_bounded_slowdown": Measure(
        "1",
        "Mean of max(1, (wait + run)/max(run, 10 s)).",
        -1,
        "Feitelson and Rudolph 1998",
    ),
    "utilisation": Measure(
        "1",
        "Busy node-seconds over usable nodes times makespan; where jobs share nodes, of their "
        "cores.",
        1,
    ),
    "memory_utilisation": Measure(
        "1", "Memory in use over that of usable nodes times makespan, where jobs share nodes.", 1
    ),
    "gpu_utilisation": Measure(
        "1", "GPUs in use over those of usable nodes times makespan, where jobs share nodes.", 1
    ),
    "stranded_gpu_h": Measure(
        "GPU h",
        "Free GPUs that no job can use, times hours, where jobs share nodes: those of a node of "
        "which all cores or all memory are taken, or which an exclusive job has to itself.",
        -1,
        "Weng and others 2023",
    ),
    "preempted": Measure("jobs", "Jobs that were preempted, once or more often.", -1),
    "preempted_core_h": Measure(
        "core h",
        "Core-hours of runs that preemption ended: a job that is requeued begins again. A node "
        "counts as one with the mean number of cores.",
        -1,
    ),
    "makespan_s": Measure("s", "From the first submission to the last end.", -1),
    "throughput_per_h": Measure("1/h", "Ended jobs per hour of makespan.", 1),
    "mean_cost": Measure(
        "currency",
        "Mean over the ended jobs of price times busy time: the `price` of an hour of a node, and "
        "the node-hours that the job was served.",
        -1,
        _STE_COST,
    ),
    "user_error_min_node_s": Measure(
        "node s",
        "Least service-time error of any user at their own submissions, starts and ends: service "
        "received less ideal service, which is handed out at every instant, in proportion to "
        "their shares, to the users with a job waiting or running, as much as the nodes serve.",
        1,
        _STE,
    ),
    "user_error_max_node_s": Measure(
        "node s", "Greatest service-time error of any user at these instants.", -1, _STE
    ),
    "user_error_rms_node_s": Measure(
        "node s",
        "Root of the mean square of the service-time errors of all users at these instants.",
        -1,
        _STE,
    ),
    "account_error_min_node_s": Measure(
        "node s", "Least service-time error of any account, its users taken together.", 1, _STE
    ),
    "account_error_max_node_s": Measure(
        "node s", "Greatest service-time error of any account.", -1, _STE
    ),
    "account_error_rms_node_s": Measure(
        "node s",
        "Root of the mean square of the service-time errors of all accounts.",
        -1,
        _STE,
    ),
}
"""Every measure by name; the name ends in the unit, none is a pure number or a count."""


def measure(
    workload: Workload,
    results: Results,
    node_rows: NodeRows | None = None,
    common: NDArray[np.bool_] | None = None,
    baseline_wait: float | None = None,
) -> Values:
    """Return every measure of what a policy made of a workload; None where nothing ran.

    Parameters
    ----------
    workload : Workload
        With `n` jobs.
    results : Results
        What became of them.
    node_rows : (int64[n + 1], int32[k]), optional
        Nodes of each job, as in `PolicyRun`; without them no measure tells of nodes.
    common : bool[n], optional
        Which jobs started under all of the policies that are compared, where not all did.
    baseline_wait : float, optional
        As in `PolicyRun`.
    """
    jobs, fate = workload.jobs, results.fate
    n = len(jobs)
    rejected = np.equal(fate, FinalState.REJECTED) | results.ran_on
    late = is_late(results.end, jobs.deadline, jobs.submit)
    promised, due = np.isfinite(results.promise), np.isfinite(jobs.deadline)
    without = np.isfinite(results.start) & ~due
    requested = _work(workload, jobs.wall_time)
    broken = is_late(results.end, results.promise, jobs.submit)
    counts: Values = {
        "jobs": n,
        "finished": _count(np.equal(fate, FinalState.FINISHED)),
        "rejected": _count(rejected),
        "unfinished": _count(np.equal(fate, FinalState.UNFINISHED)),
        "reject_ratio": _ratio(_count(rejected), n),
        "rejected_work_ratio": _part(requested, rejected),
        "rejected_run_ratio": _part(_work(workload, workload.run_time), rejected),
        "ran_on": _count(results.ran_on),
        "promised_later": _count(results.ran_on & promised),
        "missed": _count(late & ~rejected),
        "miss_ratio": _ratio(_count(late & ~rejected), n),
        "promises": _count(promised),
        "promises_kept": _count(promised & ~broken),
        "promised_work_ratio": _part(requested[due], promised[due]),
    }
    return (
        counts
        | _in_time(workload, late)
        | _of_arrays(workload.arrays, promised, broken)
        | _times(workload, results)
        | {
            "mean_common_wait_s": _mean_wait(workload, results, common),
            "mean_baseline_wait_s": baseline_wait,
            "mean_best_effort_wait_s": _mean_wait(workload, results, without),
        }
        | _span(workload, results)
        | _preemption(workload, results)
        | {"stranded_gpu_h": stranded_gpu_hours(workload, results, node_rows)}
        | fairness(workload, results)
    )


def logged(workload: Workload) -> Values:
    """Return the same measures of what the log itself records as having happened.

    A log does not tell what was turned away or promised, and one without start times tells nothing
    of what happened: None. A job that the batch system killed at its deadline has missed it.
    """
    results = logged_results(workload)
    found = measure(workload, results)
    unknown = ["rejected", "reject_ratio", "rejected_work_ratio", "rejected_run_ratio"]
    unknown += ["ran_on", "promised_later", "promises", "promises_kept"]
    unknown += ["promised_work_ratio"]
    unknown += ["array_promises", "array_promises_kept", "preempted", "preempted_core_h"]
    if not np.isfinite(workload.outcomes.start).any():
        unknown = [name for name in found if name != "jobs"]
    else:
        jobs, outcomes = workload.jobs, workload.outcomes
        late = is_late(results.end, jobs.deadline, jobs.submit)
        late |= np.equal(outcomes.ending, Ending.MISSED)
        found |= {"missed": _count(late), "miss_ratio": _ratio(_count(late), len(jobs))}
        found |= _in_time(workload, late)
    return found | dict.fromkeys(unknown)


def logged_results(workload: Workload) -> Results:
    """Return what the log records as if a policy had done it."""
    outcomes = workload.outcomes
    ran = np.isfinite(outcomes.start)
    size = outcomes.size
    if not (size > 0).all():
        size = np.where(size > 0, size, workload.jobs.size)
    fate = (
        FinalState.FINISHED
        if ran.all()
        else np.where(ran, FinalState.FINISHED, FinalState.UNFINISHED)
    )
    return Results.build(
        len(outcomes),
        start=outcomes.start,
        end=outcomes.end,
        size=size,
        service=served(workload.jobs, workload.cluster, size, outcomes.end - outcomes.start),
        fate=np.asarray(fate, np.int8),
    )


def is_late(
    end: NDArray[np.float64], deadline: NDArray[np.float64], submit: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Return bool[n]: a job with a deadline ended after it, or did not end.

    Lateness below 1e-9 of the time from submission to deadline is rounding, as in the admission
    tests that gave the promise; below half a microsecond it always is.
    """
    grace = np.maximum((deadline - submit) * TOLERANCE, TICK)
    return np.isfinite(deadline) & ~(end <= deadline + grace)


def bounded_slowdown(
    submit: NDArray[np.float64], start: NDArray[np.float64], end: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return float64[n]: max(1, (wait + run)/max(run, 10 s))."""
    return np.maximum(1.0, (end - submit) / np.maximum(end - start, TAU))


def _in_time(workload: Workload, late: NDArray[np.bool_]) -> Values:
    """Return how much ended in time, given who with a deadline did not; None without deadlines."""
    asked = np.isfinite(workload.jobs.deadline)
    work = _work(workload, workload.run_time)
    return {
        "in_time": _count(asked & ~late),
        "in_time_ratio": _ratio(_count(asked & ~late), _count(asked)),
        "in_time_work_ratio": _part(work[asked], ~late[asked]),
    }


def _work(workload: Workload, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return float64[n]: node-seconds of jobs of the sizes asked for that run for so long."""
    jobs = workload.jobs
    work = served(jobs, workload.cluster, jobs.size, seconds)
    return np.asarray(seconds * jobs.size if work is None else work)


def _part(work: NDArray[np.float64], chosen: NDArray[np.bool_]) -> float | None:
    whole = float(work.sum())
    return _ratio(float(work[chosen].sum()), whole) if whole < np.inf else None


def _of_arrays(arrays: Arrays, promised: NDArray[np.bool_], broken: NDArray[np.bool_]) -> Values:
    """Return how many arrays were promised, and kept their promise; None where there are none."""
    if not arrays:
        return {"array_promises": None, "array_promises_kept": None}
    rows, begins = arrays.tasks.values, arrays.tasks.offsets[:-1]
    whole = np.logical_and.reduceat(promised[rows], begins)
    kept = np.logical_and.reduceat((promised & ~broken)[rows], begins)
    return {"array_promises": _count(whole), "array_promises_kept": _count(kept)}


def _times(workload: Workload, results: Results) -> Values:
    """Return the measures of waiting, over the jobs that started, and of response."""
    started = np.isfinite(results.start)
    if not started.any():
        names = "mean_wait_s median_wait_s p95_wait_s max_wait_s mean_response_s"
        return dict.fromkeys([*names.split(), "mean_bounded_slowdown"])
    wait = results.start - workload.jobs.submit
    wait = wait if started.all() else wait[started]
    mean, longest = float(wait.mean()), float(wait.max())
    median, p95 = np.percentile(wait, [50, 95], overwrite_input=True).tolist()
    del wait
    ended = started & np.isfinite(results.end)
    rows: slice | NDArray[np.bool_] = slice(None) if ended.all() else ended
    submit, start, end = workload.jobs.submit[rows], results.start[rows], results.end[rows]
    return {
        "mean_wait_s": mean,
        "median_wait_s": median,
        "p95_wait_s": p95,
        "max_wait_s": longest,
        "mean_response_s": float((end - submit).mean()) if len(end) else None,
        "mean_bounded_slowdown": (
            float(bounded_slowdown(submit, start, end).mean()) if len(end) else None
        ),
    }


def _mean_wait(
    workload: Workload, results: Results, rows: NDArray[np.bool_] | None
) -> float | None:
    if rows is None or not rows.any():
        return None
    return float((results.start - workload.jobs.submit)[rows].mean())


def _span(workload: Workload, results: Results) -> Values:
    ended = np.isfinite(results.start) & np.isfinite(results.end)
    if not ended.any():
        return dict.fromkeys(
            [
                "utilisation",
                "memory_utilisation",
                "gpu_utilisation",
                "makespan_s",
                "throughput_per_h",
                "mean_cost",
            ]
        )
    end = results.end[ended]
    makespan = float(end.max() - workload.jobs.submit.min())
    busy = float(results.served()[ended].sum())
    use = resource_use(workload, results)
    resources = {} if use is None else use.resources
    return {
        "utilisation": _ratio(busy, int(workload.cluster.usable.sum()) * makespan),
        "memory_utilisation": resources[MEMORY].utilisation if MEMORY in resources else None,
        "gpu_utilisation": resources[GPU].utilisation if GPU in resources else None,
        "makespan_s": makespan,
        "throughput_per_h": _ratio(3600.0 * len(end), makespan),
        "mean_cost": workload.price * busy / 3600.0 / len(end),
    }


def _preemption(workload: Workload, results: Results) -> Values:
    """Return how many jobs were preempted and what that cost; None where nobody may preempt."""
    if workload.preemption is None:
        return {"preempted": None, "preempted_core_h": None}
    cluster = workload.cluster
    cores = mean_cores(cluster) if cluster.shared else float(cluster.nodes.cores.mean())
    return {
        "preempted": _count(results.preempted > 0),
        "preempted_core_h": float(results.lost.sum()) * cores / 3600.0,
    }


def _count(mask: NDArray[np.bool_]) -> int:
    return int(np.count_nonzero(mask))


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


LEVELS = ("user", "account")

_NO_TIMES, _NOBODY = np.empty(0), np.empty(0, np.int64)


class Errors(NamedTuple):
    """The errors of all users or accounts of one level."""

    rows: NDArray[np.int64]
    """int64[u], their rows in `Accounts`."""
    names: tuple[str, ...]
    error: ServiceError


class Order(NamedTuple):
    """Jobs in order of submission, of start and of end; those that have no such time left out."""

    submit: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]


def in_order(workload: Workload, results: Results) -> Order:
    """Return the jobs that were let in, in order of their times."""
    let_in = np.not_equal(results.fate, FinalState.REJECTED)
    started = let_in & np.isfinite(results.start)
    ended = started & np.isfinite(results.end)
    return Order(
        _sorted(workload.jobs.submit, let_in),
        _sorted(results.start, started),
        _sorted(results.end, ended),
    )


def _sorted(time: NDArray[np.float64], counted: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the counted rows in order of time; those already in order are not sorted again."""
    rows = np.flatnonzero(counted)
    known = time if len(rows) == len(time) else time[rows]
    if (known[1:] >= known[:-1]).all():
        return rows
    order = np.argsort(known, kind="stable")
    return order if len(rows) == len(time) else rows[order]


def errors(
    workload: Workload,
    results: Results,
    level: str,
    order: Order | None = None,
    grid: NDArray[np.float64] = _NO_TIMES,
    watched: NDArray[np.int64] = _NOBODY,
) -> Errors | None:
    """Return the service-time errors at a level; None where no job has such a name.

    Users of the same name in several accounts count apart, as their shares do. An account is the
    one that a job is charged to, whatever stands above it.

    Parameters
    ----------
    workload, results
        What was to be done, and what was.
    level : str
        `user` or `account`.
    order : Order, optional
        See `in_order`, if the caller has it.
    grid : float64[g]
        Seconds since the epoch, ascending, at which the course is wanted ...
    watched : int64[k]
        ... and whose: places in what is returned.
    """
    accounts = workload.accounts
    group = _groups(accounts, level)
    known = np.flatnonzero(group >= 0)
    rows, place = np.unique(group[known], return_inverse=True)
    place_of = np.full(len(accounts) + 1, -1, np.int32)
    place_of[known] = place
    whose = place_of[workload.jobs.association]
    if not (whose >= 0).any():
        return None
    error = service_error(
        workload.jobs.submit,
        results.start,
        results.end,
        *(order or in_order(workload, results)),
        charged(workload, results),
        whose,
        accounts.share()[rows],
        grid,
        watched,
    )
    names = accounts.texts("name")
    return Errors(rows, tuple(names[row] or "?" for row in rows.tolist()), error)


def charged(workload: Workload, results: Results) -> NDArray[np.int32] | NDArray[np.float64]:
    """Return [n]: nodes that each job is charged for, on average from its start to its end."""
    jobs = workload.jobs
    if not np.isfinite(jobs.billed[:1]).any():  # of all jobs, or of none
        return results.serving()
    return np.asarray(jobs.billed * (results.size / np.maximum(jobs.size, 1)))


def _groups(accounts: Accounts, level: str) -> NDArray[np.int64]:
    """Return for each row of the accounts the row that stands for it at a level; -1: none."""
    row = np.arange(len(accounts))
    if level == "user":
        return np.where(accounts.is_user, row, -1)
    return np.where(accounts.is_user, accounts.parent, row)


def fairness(workload: Workload, results: Results) -> dict[str, float | int | None]:
    """Return min, max and RMS of the errors of users and accounts, node-seconds."""
    found: dict[str, float | int | None] = {}
    order = in_order(workload, results) if len(workload.accounts) else None
    for level in LEVELS:
        some = errors(workload, results, level, order=order)
        values: tuple[float | None, ...] = (None, None, None)
        if some is not None and some.error.instants.any():
            error = some.error
            rms = np.sqrt(error.squares.sum() / error.instants.sum())
            values = float(error.least.min()), float(error.most.max()), float(rms)
        for what, value in zip(("min", "max", "rms"), values, strict=True):
            found[f"{level}_error_{what}_node_s"] = value
    return found
