"""Make a log ready for replay: normalise it, sort it, and apply the rules for what it lacks.

Every rule that had to be applied is said as an assumption. The normalisation is the usual one of
the Parallel Workloads Archive: keep jobs that ran and that fit the machine; the size is the
requested one, else the allocated one; the requested time is never below the run time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np
from msgspec import Meta

from rtsched.errors import InputError
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.log import Skipped
from rtsched.replay.results import Workload
from rtsched.replay.rules import accounts_of, with_deadlines, with_kinds, with_speeds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.jobs import Jobs
    from rtsched.model.log import Log, Outcomes


class WorkloadOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a log is made ready: what to assume where it says nothing."""

    seed: Annotated[int, Meta(ge=0, description="Seed of every rule that draws at random.")] = 0
    deadline_rule: Annotated[
        str,
        Meta(
            pattern=r"^(none|uniform|slowdown:[0-9]+(\.[0-9]+)?)$",
            description="Deadline of jobs whose log has none. `none`. `slowdown:F`: F times the "
            "requested time after submission. `uniform`: the relative deadline is uniform between "
            "the job's least and greatest run time over its sizes; for a rigid job, between its "
            "requested time and what one node would take.",
        ),
    ] = "slowdown:4"
    deadline_fraction: Annotated[
        float,
        Meta(ge=0, le=1, description="Fraction of jobs that the deadline rule gives one."),
    ] = 1.0
    jobs_are: Annotated[
        str,
        Meta(
            pattern=r"^(rigid|moldable:[0-9.]+-[0-9.]+|divisible:[0-9.]+)$",
            description="What jobs are that the log does not tell more of. `rigid`. "
            "`moldable:LOW-HIGH`: any size between LOW and HIGH times the requested one. "
            "`divisible:R`: a load with Cms/Cps = R that takes its requested time at its size.",
        ),
    ] = "rigid"
    unit: Annotated[
        str,
        Meta(
            pattern="^(core|node)$",
            description="What is given to one job at a time: each core, or whole nodes.",
        ),
    ] = "core"
    shares: Annotated[
        dict[str, Annotated[float, Meta(gt=0)]],
        Meta(description="Shares of accounts and users by name; 1 where a name is missing."),
    ] = {}
    speeds: Annotated[
        dict[str, Annotated[float, Meta(gt=0)]],
        Meta(description="Speed of nodes by a pattern of their names, such as `slow*` = 0.5."),
    ] = {}


def prepare(log: Log, options: WorkloadOptions, cluster: Cluster | None = None) -> Workload:
    """Return a log as a workload.

    Parameters
    ----------
    log : Log
        What a reader made of the files.
    options : WorkloadOptions
        The rules for what the log lacks.
    cluster : Cluster, optional
        The machine; else the log's own; else the peak use seen in the log.

    Returns
    -------
    Workload
        Jobs in order of (submit, id), with everything assumed said in a sentence.

    Raises
    ------
    InputError
        If no job is left.
    """
    said = list(log.assumptions)
    skipped = Skipped(log.skipped.count.copy(), dict(log.skipped.first))
    machine = _machine(log, cluster, options, said)
    jobs, outcomes = _kept(log, len(machine), skipped)
    jobs = _requested(jobs, outcomes, said)
    if not len(jobs):
        raise InputError(
            ", ".join(log.sources), "no job in it ran on this machine; nothing to replay"
        )
    machine = with_speeds(machine, options.speeds, said)
    accounts, jobs = accounts_of(jobs, options.shares, said)
    jobs = with_kinds(jobs, options.jobs_are, len(machine), said)
    rule, fraction = options.deadline_rule, options.deadline_fraction
    jobs = with_deadlines(jobs, rule, fraction, options.seed, len(machine), said)
    return Workload(
        jobs,
        outcomes.run_time,
        outcomes,
        machine,
        accounts,
        log.edges,
        tuple(said),
        skipped,
        log.sources,
        log.format,
    )


def _machine(
    log: Log, cluster: Cluster | None, options: WorkloadOptions, said: list[str]
) -> Cluster:
    """Return the machine in units that are given to one job at a time."""
    if cluster is not None:
        return by_core(cluster) if options.unit == "core" else cluster
    if log.cluster is not None:
        return log.cluster
    peak = peak_use(log.outcomes)
    said.append(
        f"The log does not describe the machine: it is taken to have {peak} processors, the most "
        "that ran at one time (say otherwise with --cluster)."
    )
    return Cluster.uniform(peak)


def by_core(cluster: Cluster) -> Cluster:
    """Return a cluster with a row for every core, which keeps its node's name as `host`."""
    nodes = cluster.nodes
    cores = np.maximum(nodes.cores, 1)
    if (cores == 1).all():
        return cluster
    rows = np.repeat(np.arange(len(nodes)), cores)
    split = nodes.take(rows)
    columns = {
        name: split.column(name) for name in Nodes.columns() if name not in {"host", "cores"}
    }
    names = {"name": nodes.names("name"), "host": nodes.names("name")}
    table = Nodes.build(len(rows), names=names, host=split.name, cores=1, **columns)
    masks = {name: mask[rows] for name, mask in cluster.partitions.items()}
    return Cluster(table, masks, version=cluster.version)


def peak_use(outcomes: Outcomes) -> int:
    """Return the most processors that were in use at one time, by what the log records."""
    ran = np.isfinite(outcomes.start) & np.isfinite(outcomes.end) & (outcomes.size > 0)
    ran &= outcomes.end > outcomes.start
    size = outcomes.size[ran].astype(np.int64)
    if not len(size):
        return 0
    times = np.concatenate([outcomes.end[ran], outcomes.start[ran]])
    steps = np.concatenate([-size, size])
    order = np.lexsort((steps > 0, times))  # at one instant ends come first
    return int(np.cumsum(steps[order]).max())


def _kept(log: Log, machine: int, skipped: Skipped) -> tuple[Jobs, Outcomes]:
    """Return the jobs that ran and fit, in order of (submit, id); count the others by reason."""
    jobs, run, size = log.jobs, log.outcomes.run_time, _size(log)
    where = log.sources[0] if log.sources else "?"
    reasons = {
        "submit time is missing or negative": ~(jobs.submit >= 0.0),
        "did not run": ~(run > 0.0),
        "asks for no processors": size <= 0,
        f"asks for more than the machine's {machine} processors": size > machine,
    }
    bad = np.zeros(len(jobs), np.bool_)
    for reason, mask in reasons.items():
        skipped.add(reason, where, int(np.count_nonzero(mask & ~bad)))
        bad |= mask
    rows = np.flatnonzero(~bad)
    key, submit = jobs.id[rows], jobs.submit[rows]
    if not _ascending(submit, key):
        rows = rows[np.lexsort((key, submit))]
    whole = len(rows) == len(jobs) and bool((np.diff(rows) > 0).all())
    kept, outcomes = (jobs, log.outcomes) if whole else (jobs.take(rows), log.outcomes.take(rows))
    size = size[rows]
    if (kept.size != size).any():
        kept = kept.replace(size=size)
    return _unique(kept), outcomes


def _size(log: Log) -> NDArray[np.int32]:
    """Return each job's requested size, else the allocated one."""
    asked = log.jobs.size
    if (asked > 0).all():
        return asked
    return np.where(asked > 0, asked, log.outcomes.size).astype(np.int32)


def _ascending(submit: NDArray[np.float64], key: NDArray[np.int64]) -> bool:
    later = np.diff(submit)
    return bool(((later > 0) | ((later == 0) & (np.diff(key) > 0))).all())


def _unique(jobs: Jobs) -> Jobs:
    """Return jobs with unique ids; where several files share ids, labels keep the names."""
    ids = jobs.id
    if (np.diff(ids) > 0).all() or len(np.unique(ids)) == len(ids):
        return jobs
    labels = jobs.labels()
    table = {name: code for code, name in enumerate(dict.fromkeys(labels))}
    codes = np.array([table[label] for label in labels], np.int32)
    return jobs.replace(id=np.arange(len(jobs))).replace_text("label", codes, tuple(table))


def _requested(jobs: Jobs, outcomes: Outcomes, said: list[str]) -> Jobs:
    """Return jobs whose requested time is at least their run time, and known."""
    wall, run = jobs.wall_time, outcomes.run_time
    unknown = ~np.isfinite(wall)
    if unknown.any():
        said.append(
            f"{np.count_nonzero(unknown)} jobs asked for no run time: theirs stands in for it, as "
            "if their users had known it."
        )
    short = ~unknown & (wall < run)
    if short.any():
        said.append(
            f"{np.count_nonzero(short)} jobs ran longer than they asked for: they are taken to "
            "have asked for their run time."
        )
    if not (unknown | short).any():
        return jobs
    return jobs.replace(wall_time=np.where(unknown, run, np.maximum(wall, run)))
