"""Workloads: a log made ready for replay, with what it does not say filled in.

Everything dropped is counted by reason, everything filled in is said in a sentence.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from rtsched.errors import InputError
from rtsched.model.cluster import Cluster
from rtsched.model.jobs import Kind
from rtsched.model.log import Ending, Skipped
from rtsched.model.preemption import CANCEL, NONE, REQUEUE, SitePreemption
from rtsched.model.resources import allowed_nodes, fitting_nodes, mean_cores
from rtsched.replay.arrays import Arrays, whole_arrays
from rtsched.replay.limits import JobAmounts, billing_sentences, limits_of_jobs
from rtsched.replay.machine import (
    charge,
    chosen_unit,
    cores_per_node,
    node_events,
    overfull,
    peak_use,
    strange_nodes,
    with_speeds,
)
from rtsched.replay.normalise import (
    alike_components,
    ended,
    filled,
    in_units,
    joined,
    ordered,
    replayable,
    run_times,
    sizes,
    with_node_requests,
)
from rtsched.replay.preemption import as_set, higher_tiers, preemption_of_jobs
from rtsched.replay.reservations import blocked_spans, periodic_work, ran_inside
from rtsched.replay.results import Workload, obstacles, promisable_jobs
from rtsched.replay.rules import (
    CHOICE_DRAW,
    DeadlineRule,
    draw,
    kinds,
    relative_deadlines,
)
from rtsched.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rtsched.logs.sacctmgr import Outage
    from rtsched.logs.slurm_reservations import Reservation
    from rtsched.model.jobs import Edges, Jobs
    from rtsched.model.limits import BillingWeights, SiteLimits
    from rtsched.model.log import Log
    from rtsched.model.snapshot import Accounts
    from rtsched.replay.settings import WorkloadOptions


def prepare(
    log: Log,
    options: WorkloadOptions,
    cluster: Cluster | None = None,
    site: SiteLimits | None = None,
    outages: Sequence[Outage] = (),
    reservations: Sequence[Reservation] = (),
    preemption: SitePreemption = SitePreemption(),  # noqa: B008 - immutable
    *,
    assume_requested: bool = True,
    sharing: bool | None = None,
) -> Workload:
    """Return a log as a workload.

    Parameters
    ----------
    log : Log
        As read; sizes count processors.
    options : WorkloadOptions
        The rules.
    cluster : Cluster, optional
        The machine, in place of the one that the log describes.
    site : SiteLimits, optional
        Limits of accounts and QOS.
    outages : sequence of Outage
        When nodes were out of service.
    reservations : sequence of Reservation
        When nodes were set aside.
    preemption : SitePreemption
        How the site preempts jobs; the options come first.
    assume_requested : bool
        Whether a job without a requested time counts as if it had requested its run time; else it
        has no limit.
    sharing : bool, optional
        With unit `auto`: whether the policies need nodes that jobs share by resources (True), or
        cannot have them (False).

    Raises
    ------
    ConfigError
        If a rule is wrong.
    InputError
        If no job is left.
    """
    deadline_rule, kind_rule = options.rules()
    notes = list(log.assumptions)
    if options.unit == "auto":
        unit, sentence = chosen_unit(log, cluster or log.cluster, sharing=sharing)
        options = msgspec.structs.replace(options, unit=unit)
        notes = [*filter(None, [sentence]), *notes]
    skipped = Skipped(log.skipped.count.copy(), dict(log.skipped.first))
    read, log, machine, size = _on_machine(log, options, cluster, notes)
    periodic, sentences = periodic_work(options.periodic, machine)
    notes += sentences
    room = _room(log.jobs, machine)
    whole = options.arrays == "whole"
    promisable = promisable_jobs(read, obstacles(read, size, room, machine, whole_arrays=whole))
    inside = ran_inside(log.outcomes, reservations, machine, notes)
    rows = ordered(log.jobs, replayable(log, room, skipped, inside))
    if (len(log.jobs) if rows is None else len(rows)) == 0:
        raise InputError(
            log.sources[0] if log.sources else "log",
            f"no job is left to replay: {_why(skipped)}; check the log and the machine",
        )
    outcomes = log.outcomes if rows is None else log.outcomes.take(rows)
    run_time = run_times(outcomes)
    jobs = filled(log.jobs, rows, size, run_time, notes, assume_requested=assume_requested)
    if running := int(np.count_nonzero(outcomes.ending == Ending.RUNNING)):
        notes.append(
            f"{counted(running, 'job')} still ran when the log was written: taken to end then."
        )
    columns, sentences = kinds(jobs, kind_rule, len(machine))
    notes += sentences
    jobs, arrays = jobs.replace(**columns), Arrays.none()
    if whole:
        arrays = whole_arrays(
            jobs,
            log.edges,
            machine,
            read.jobs.size if rows is None else read.jobs.size[rows],
            options.unit,
            fills_nodes=read.format != "condor-history",
            all_due=deadline_rule.name != "none",
            notes=notes,
        )
    jobs, accounts = _ruled(jobs, run_time, arrays, deadline_rule, len(machine), options, notes)
    arrays = _with_deadlines(arrays, jobs, notes)
    events = node_events(outages, machine, float(jobs.submit[0]), notes)
    jobs_known = len(read.outcomes.names("reservation")) > 0
    blocked = blocked_spans(reservations, machine, float(jobs.submit[0]), notes, jobs_known)
    billing = (cluster or read.cluster or machine).billing
    limits = None
    if site is not None or (billing is not None and billing.partitions):
        amounts = _amounts(read.jobs, rows, options.unit, machine, billing)
        jobs = _billed(jobs, amounts, machine, notes)
        limits = None if site is None else limits_of_jobs(amounts, site, notes)
    outcomes = outcomes.replace()  # gathered, so that the log may go
    misfits = (strange_nodes(outcomes, machine), overfull(jobs, outcomes, machine))
    notes += filter(None, misfits)
    preemption = as_set(preemption, options.preempt_type, options.preempt_mode)
    if preemption.by == NONE and options.preempt_mode in (REQUEUE, CANCEL):
        notes.append("`preempt_mode` has no effect: no `preempt_type` says who preempts whom.")
    notes += higher_tiers(jobs, machine, preemption)
    qos = None if site is None else site.qos
    return Workload(
        jobs=jobs,
        run_time=run_time,
        outcomes=outcomes,
        cluster=machine,
        accounts=accounts,
        preemption=preemption_of_jobs(jobs, outcomes, preemption, qos, notes),
        edges=_edges(log.edges, jobs, notes),
        assumptions=tuple(notes),
        skipped=skipped,
        sources=log.sources,
        format=log.format,
        price=options.price * (_mean_cores(machine) if options.price_of == "core" else 1.0),
        periodic=periodic,
        promisable=promisable,
        limits=limits,
        node_events=events,
        blocked=blocked,
        arrays=arrays,
    )


class _OnMachine(NamedTuple):
    """A log on a machine, in the units of the replay; with sizes in nodes where jobs share none."""

    read: Log
    """As it was read: its sizes count processors."""
    log: Log
    machine: Cluster
    size: NDArray[np.int32]
    """Nodes or processors of each job."""


def _on_machine(
    log: Log, options: WorkloadOptions, cluster: Cluster | None, notes: list[str]
) -> _OnMachine:
    """Return a log on its machine or on another one; parts of a heterogeneous job are one job."""
    read = log
    log, known = in_units(log, options.unit, cluster or log.cluster, notes)
    log = replace(log, outcomes=ended(log.outcomes))
    machine, sentences = with_speeds(_machine(log, known, notes), options.speeds)
    notes += sentences
    size = sizes(log.jobs, log.outcomes)
    log, machine = with_node_requests(log, machine, size, notes)
    together = alike_components(log, machine, notes)
    if together is not None:
        log, read = joined(log, together), joined(read, together)
        size = sizes(log.jobs, log.outcomes)
    return _OnMachine(read, log, machine, size)


def _room(jobs: Jobs, machine: Cluster) -> int | NDArray[np.int32]:
    """Return how many nodes, or processors, there are for each job if nobody else is there."""
    if machine.shared:
        return fitting_nodes(jobs, machine, machine.usable)
    code, masks = allowed_nodes(jobs, machine)
    counts = [int((mask & machine.usable).sum()) for mask in [*masks, machine.usable]]
    return np.array(counts, np.int32)[code] if masks else counts[-1]


def _with_deadlines(arrays: Arrays, jobs: Jobs, notes: list[str]) -> Arrays:
    """Return the arrays that have a deadline, and say how many they are."""
    arrays = arrays.take(np.isfinite(jobs.deadline[arrays.first()]))
    if arrays:
        tasks = counted(len(arrays.tasks.values), "task")
        notes.append(
            f"{counted(len(arrays.first()), 'array')} with {tasks} and a deadline: a planner gives "
            "one promise for all tasks of each (machine 'exclusive' without outages and "
            "preemption; `--arrays tasks` has it judge each task)."
        )
    return arrays


def _amounts(
    jobs: Jobs,
    rows: NDArray[np.int64] | None,
    unit: str,
    machine: Cluster,
    billing: BillingWeights | None,
) -> JobAmounts:
    """Return how much jobs ask for; the sizes of `jobs`, as read, count processors."""
    asked = jobs if rows is None else jobs.take(rows)
    whole = asked.exclusive & (unit == "resources") if unit != "node" else np.ones(len(asked), bool)
    return JobAmounts(asked, whole, cores_per_node(machine), billing)


def _billed(jobs: Jobs, amounts: JobAmounts, machine: Cluster, notes: list[str]) -> Jobs:
    """Return the jobs with what they are billed for, where they share nodes and it is known."""
    billing = amounts.billing
    if billing is None or not billing.partitions:
        return jobs
    if not machine.shared:
        notes.append(
            "TRESBillingWeights are not used: service for fair share counts what is allocated "
            "(`--unit resources` uses them)."
        )
        return jobs
    cores = mean_cores(machine)
    notes += billing_sentences(amounts, cores)
    return jobs.replace(billed=amounts.billing_units() / cores)


def _mean_cores(machine: Cluster) -> float:
    return float(machine.nodes.cores.mean()) if len(machine) else 1.0


def _machine(log: Log, known: Cluster | None, notes: list[str]) -> Cluster:
    """Return the machine as it is known, else as large as the log's jobs show it to be."""
    if known is not None:
        unusable = ~known.usable
        if unusable.any():
            named = (known.nodes.host >= 0).any()
            host = known.nodes.host if named else np.arange(len(known), dtype=np.int32)
            away, nodes = len(np.unique(host[unusable])), len(np.unique(host))
            notes.append(
                f"{away} of {counted(nodes, 'node')} are down or drained and take no jobs."
            )
        return known
    rows = replayable(log, np.iinfo(np.int32).max, Skipped())
    outcomes = log.outcomes if rows is None else log.outcomes.take(rows)
    size = sizes(log.jobs, log.outcomes)
    size = size if rows is None else size[rows]
    in_use = peak_use(outcomes, np.where(outcomes.size > 0, outcomes.size, size))
    notes.append(
        f"The log does not describe the machine: {in_use} processors, the most that its jobs held "
        "at once, are taken."
    )
    return Cluster.uniform(in_use)


def _why(skipped: Skipped) -> str:
    if not skipped.count:
        return "the log is empty"
    reason, times = skipped.count.most_common(1)[0]
    left_out = counted(skipped.count.total(), "record was", "records were")
    return f"{left_out} left out, {times} because {reason}"


def _ruled(
    jobs: Jobs,
    run_time: NDArray[np.float64],
    arrays: Arrays,
    deadline_rule: DeadlineRule,
    machine: int,
    options: WorkloadOptions,
    notes: list[str],
) -> tuple[Jobs, Accounts]:
    """Return the jobs with deadlines and accounts, noting what was assumed."""
    asked = arrays.as_asked(jobs)
    deadline, sentences = _deadlines(asked, run_time, deadline_rule, machine, options)
    notes += sentences
    accounts, association, sentences = charge(jobs, options.shares)
    notes += sentences
    ruled = {"deadline": deadline, "association": association}
    changed = {name: values for name, values in ruled.items() if values is not None}
    return jobs.replace(**changed), accounts


def _deadlines(
    jobs: Jobs,
    run_time: NDArray[np.float64],
    rule: DeadlineRule,
    machine: int,
    options: WorkloadOptions,
) -> tuple[NDArray[np.float64] | None, list[str]]:
    """Return the deadlines (None: as the log has them), and what was assumed."""
    n, known = len(jobs), np.isfinite(jobs.deadline)
    missing, notes = n - int(known.sum()), []
    if options.deadline_fraction < 1 and (rule.name == "none" or not missing):
        why = "all jobs have one" if not missing else "without a `deadline_rule` no job gets one"
        notes.append(f"`deadline_fraction` has no effect: {why}.")
    if not missing:
        return None, notes
    if rule.name == "none" or options.deadline_fraction == 0:
        best_effort = f"{missing:,} of {counted(n, 'job')} have no deadline: they are best effort."
        return None, [best_effort, *notes]
    rows: NDArray[np.int64] | slice = slice(None) if missing == n else np.flatnonzero(~known)
    relative = relative_deadlines(jobs, rule, machine, options.seed, rows, run_time)
    if options.deadline_fraction < 1:
        chosen = draw(jobs.id[rows], options.seed, CHOICE_DRAW) < options.deadline_fraction
        relative = np.where(chosen, relative, np.inf)
        missing = int(chosen.sum())
    relative += jobs.submit[rows]
    if missing == n:
        deadline = relative
    else:
        deadline = jobs.deadline.copy()
        deadline[rows] = relative
    any_rigid = bool(np.equal(jobs.kind[rows], Kind.RIGID).any())
    return deadline, [_deadline_sentence(missing, n, rule, options.seed, any_rigid)]


def _deadline_sentence(count: int, n: int, rule: DeadlineRule, seed: int, any_rigid: bool) -> str:
    start = f"{count:,} of {counted(n, 'job')} got a deadline that the log does not give: "
    drawn = f"{rule.least:g} to " if rule.least else ""
    seeded = f" (drawn with seed {seed})" if rule.least else ""
    if rule.name == "slowdown":
        return f"{start}{drawn}{rule.factor:g} times the requested time after submission{seeded}."
    if rule.name == "run_time":
        return (
            f"{start}{drawn}{rule.factor:g} times the time for which each ran, after submission"
            f"{seeded}."
        )
    rigid = (
        f", for rigid jobs between the requested time and {rule.factor:g} times it"
        if any_rigid
        else ""
    )
    return f"{start}drawn (seed {seed}) between the least and the greatest execution time{rigid}."


def _edges(edges: Edges, jobs: Jobs, notes: list[str]) -> Edges:
    """Return the dependencies between jobs that are left, and say who keeps them."""
    limited = int(np.count_nonzero(jobs.array_limit))
    if limited:
        notes.append(
            f"{counted(limited, 'task')} of arrays with a limit: no more of an array run at a time "
            "(machine 'exclusive'; a planner's own jobs do not count)."
        )
    if not len(edges):
        return edges
    whole = edges.whole_array & np.isin(edges.before, jobs.array)
    both = whole | (~edges.whole_array & np.isin(edges.before, jobs.id))
    both &= np.isin(edges.after, jobs.id)
    lost = np.flatnonzero(~both)
    if len(lost):
        notes.append(
            f"{counted(len(lost), 'dependency', 'dependencies')} on or of jobs that are left out: "
            "nobody waits for them."
        )
        edges = edges.take(both)
    if len(edges):
        notes.append(
            f"{counted(len(np.unique(edges.after)), 'job')} waiting for others that they depend "
            "on: where such a job is rejected or never starts, nobody waits for it. Only machine "
            "'exclusive' holds jobs back, and planners that follow dependencies promise a job "
            "nothing that waits for one without a promise or a limit."
        )
    return edges
