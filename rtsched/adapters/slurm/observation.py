"""Observation of a cluster: a poll's models, made of Slurm's rows."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.adapters.live import LIKELY, UNJUDGED, Completions, CompletionStatus, Marks, dag_key
from rtsched.adapters.requirements import plain_columns
from rtsched.adapters.slurm.accounts import limits_for
from rtsched.adapters.slurm.commands import FIRST_PRIORITY, LAST_PRIORITY
from rtsched.adapters.slurm.comments import NOTHING, CommentOptions, options_in
from rtsched.adapters.slurm.completions import LIVE
from rtsched.adapters.slurm.layout import is_ours
from rtsched.adapters.slurm.per_node import needed_licenses, shown_demand, shown_licenses
from rtsched.adapters.slurm.requirements import (
    JobRequest,
    dependency_of,
    node_list_in,
    requirements_of,
    wishes_in,
)
from rtsched.adapters.slurm.rows import (
    MEGABYTE,
    WAITING,
    Texts,
    is_held,
    names_of_job,
    number,
    pairwise,
    taken,
)
from rtsched.adapters.slurm.submission import DEFERRED, MARK, UNPROMISED
from rtsched.logs.hostlist import names_of
from rtsched.logs.slurm_text import ENDINGS
from rtsched.model import log
from rtsched.model.jobs import Edges, Jobs
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import are_in
from rtsched.model.table import Amounts, offsets_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rtsched.adapters.slurm.facts import SlurmFacts
    from rtsched.adapters.slurm.layout import ClusterLayout
    from rtsched.adapters.slurm.rows import JobRows

Integers = "NDArray[np.int64]"

_TOKEN = re.compile(rf"{MARK}([\w-]+)", re.ASCII)
_DROPPED = re.compile(r"\s--deadline=uts(\d{1,11})(?!\S)", re.ASCII)
_TASK = re.compile(r"\d+_\d+", re.ASCII)

NOT_LAUNCHED = "Slurm could not launch it, and holds it"
"""Nobody asked for that hold; a controller that goes on with an older state causes it, too: it has
jobs launched a second time that run already."""

RESERVATION_DELETED = "Slurm deleted its reservation, and holds it"
"""Such as one with more licences than slurm.conf names now."""

NOT_FITTING = "Slurm holds it: no node that it may have has what it requests (BadConstraints)"
"""Such as more processors than slurm.conf says now."""

NOT_VALID = {
    "InvalidQOS": "Slurm does not start it: its QOS is not valid, or not for it (InvalidQOS)",
    "InvalidAccount": "Slurm does not start it: its account is not valid (InvalidAccount)",
}

NOT_PLANNED = "it can no longer be planned: "
"""How the reason begins why a promised job, as it is now, could not be promised anything."""

NEVER_SATISFIED = "a job that it waits for did not end as its dependency asks"

_BAD_CONSTRAINTS = "BadConstraints"

_PARTITION_GONE = "PartitionDown"
"""Why Slurm fails a job with NODE_FAIL whose partition slurm.conf has no longer."""

_LIMITS = ("Assoc", "QOS", "PartitionTimeLimit", "PartitionNodeLimit")
"""How the reasons begin that name a limit of an account, QOS or partition (manual page squeue)."""

_LAUNCHES = ("launch fail", "JobHoldMaxRequeue")
"""How the reasons begin of jobs that Slurm holds after launches that failed."""


def token_of(mark: str) -> str:
    """Return the token in an admin comment; empty: it has none."""
    match = _TOKEN.match(mark)
    return match[1] if match is not None and match[1] not in {DEFERRED, UNPROMISED} else ""


def is_admitted(mark: str) -> bool:
    """Return whether a job with this admin comment may have been promised something once."""
    token = token_of(mark)
    if is_deferred(mark) or is_unpromised(mark):
        return True
    return not (token in {"", UNJUDGED} or token.startswith(LIKELY))


def keeps_order(rows: JobRows, at: int, *, basic: bool) -> bool:
    """Return whether a waiting job has the priority of a planned one that shares nodes.

    Admins may give one to other jobs, which carry no admission. It has lost it, but still has its
    nodes, if Slurm holds it since these lack what it asks for.
    """
    if basic or not is_admitted(rows.mark[at]):
        return False
    if _fits_nowhere(rows, at):
        return set(names_of(rows.required[at])) != set(names_of(node_list_in(rows.mark[at])))
    return bool(LAST_PRIORITY <= rows.priority[at] <= FIRST_PRIORITY)


def is_deferred(mark: str) -> bool:
    """Return whether a job with this admin comment was held until it was evaluated."""
    return mark.split()[:1] == [MARK + DEFERRED]


def _has_else(text: str) -> bool:
    return "else=" in text and _is_for_us(text)


def is_unpromised(mark: str) -> bool:
    """Return whether a job with this admin comment runs without the promise that it asked for."""
    return mark.split()[:1] == [MARK + UNPROMISED]


def deadline_in(mark: str) -> float:
    """Return the deadline of such a job, seconds since the epoch; nan: the comment has none."""
    found = _DROPPED.search(mark) if is_unpromised(mark) else None
    return float(found[1]) if found is not None else math.nan


def completions_of(rows: JobRows, which: NDArray[np.int64]) -> Completions:
    """Return the jobs that ended and that the controller still knows."""
    state, started = rows.state.take(which), rows.nodes.take(which).map(bool, np.bool_)
    status = state.map(_status, np.int8)
    gone = rows.reason.take(which).map(_PARTITION_GONE.__eq__, np.bool_)
    status[gone & (status == CompletionStatus.NODE_LOST)] = CompletionStatus.PARTITION_GONE
    return Completions.build(
        len(which),
        **encoded({"token": rows.mark.take(which).replaced(token_of)}),
        job=rows.id[which],
        start=np.where(started, rows.start[which], np.nan),
        end=rows.end[which],
        status=status,
        exit_code=np.array([_failed_with(rows, i) for i in which.tolist()], np.int32),
        requeues=rows.requeue[which] & started,
        restarts=rows.restarts[which].astype(np.int32),
    )


def _status(state: str) -> CompletionStatus:
    return LIVE.get(ENDINGS.get(state, log.Ending.UNKNOWN), CompletionStatus.FAILED)


def _failed_with(rows: JobRows, i: int) -> int:
    """Return the exit status of a job that failed by itself; -1 of one that did not."""
    status, _, signal = rows.exit_code[i].partition(":")
    return number(status) if rows.state[i] == "FAILED" and signal == "0" else -1


def marks_of(
    rows: JobRows, which: NDArray[np.int64], facts: SlurmFacts, queued: Jobs | None = None
) -> Marks:
    """Return the marks of jobs that wait or run; `queued`: what those that wait ask for."""
    some = taken(rows, which)
    mark, reason = some.mark, some.reason
    deferred = mark.map(is_deferred, np.bool_)
    unfit = reason.map(_BAD_CONSTRAINTS.__eq__, np.bool_)
    asks = some.features.map(bool, np.bool_) | some.required.map(bool, np.bool_)
    first = (some.priority == 0) & ~(unfit & asks)
    held = first | reason.map(is_held, np.bool_)
    last = np.full(len(which), -1, np.int64)
    for job, components in rows.components.items():
        last[some.id == job] = max(components.ids)
    unusable, notify, otherwise = (Texts.alike("", len(which)) for _ in range(3))
    odds = np.full(len(which), np.nan)
    waits = some.state.map(WAITING.__contains__, np.bool_)
    due, to_judge = some.deadline < math.inf, deferred & (some.priority == 0)
    unpromised = mark.map(is_unpromised, np.bool_) & due & waits & ~held
    has_else = some.extra.map(_has_else, np.bool_) | some.comment.map(_has_else, np.bool_)
    for at in np.flatnonzero(to_judge | unpromised | (has_else & waits & due)).tolist():
        spec = _spec(rows, int(which[at]))
        otherwise[at] = "run" if unpromised[at] else spec.otherwise
        if to_judge[at] or unpromised[at]:
            notify[at], odds[at] = spec.notify, spec.odds
        if to_judge[at]:
            unusable[at] = _unusable(rows, int(which[at]), facts)
    texts = {
        "token": mark.replaced(token_of),
        "limit": reason.replaced(_limit),
        "problem": reason.replaced(_never_starts),
        "unusable": unusable,
        "notify": notify,
        "otherwise": otherwise,
    }
    for at in np.flatnonzero(some.state.map("RESV_DEL_HOLD".__eq__, np.bool_)).tolist():
        texts["problem"][at] = RESERVATION_DELETED
    for at in np.flatnonzero(unfit & first & ~deferred).tolist():
        texts["problem"][at] = NOT_FITTING
    if queued is not None:
        for at, problem in _not_planned(rows, which, queued, facts).items():
            texts["problem"][at] = texts["problem"][at] or problem
    return Marks.build(
        len(which),
        **encoded(texts),
        job=some.id,
        uid=some.uid,
        deferred=deferred,
        unpromised=unpromised,
        held=held & waits,
        priority=np.where(waits, some.priority.astype(np.float64), np.nan),
        requeues=some.requeue,
        suspended=some.state.map("SUSPENDED".__eq__, np.bool_),
        last=last,
        odds=odds,
    )


def _not_planned(
    rows: JobRows, which: NDArray[np.int64], queued: Jobs, facts: SlurmFacts
) -> dict[int, str]:
    """Return why promised jobs that wait, as they are now, could not be promised anything.

    By place in `which`, of which `queued` are the first; they count as jobs without a deadline.
    """
    first = which[: len(queued)]
    lost = ~np.isfinite(queued.deadline) & (rows.deadline[first] < math.inf)
    lost &= rows.mark.take(first).map(is_admitted, np.bool_)
    found = {}
    for at in np.flatnonzero(lost).tolist():
        i = int(first[at])
        if not is_deferred(rows.mark[i]) and (problem := _unusable(rows, i, facts)):
            found[at] = NOT_PLANNED + problem.removeprefix("rtsched: ")
    return found


def _fits_nowhere(rows: JobRows, i: int) -> bool:
    """Return whether Slurm holds a job since no node that it may have has what it wants.

    It lets it go when nodes or the job change (`FAIL_BAD_CONSTRAINTS`, src/slurmctld/job_mgr.c).
    """
    asks = rows.features[i] or rows.required[i]
    return rows.reason[i] == _BAD_CONSTRAINTS and bool(asks)


def _limit(reason: str) -> str:
    """Return the limit that a reason names, such as `QOSGrpCpuLimit`."""
    return reason if reason.startswith(_LIMITS) else ""


def _never_starts(reason: str) -> str:
    """Return why a job does not start by itself; scontrol writes no spaces in Slurm's reason."""
    if reason == "DependencyNeverSatisfied":
        return NEVER_SATISFIED
    if reason in NOT_VALID:
        return NOT_VALID[reason]
    return NOT_LAUNCHED if reason.replace("_", " ").startswith(_LAUNCHES) else ""


def allocations_of(
    rows: JobRows, which: NDArray[np.int64], machine: ClusterLayout, facts: SlurmFacts, now: float
) -> Schedule:
    """Return where the running jobs run, and until when at the latest.

    A job outlives its limit by the margins; nodes of one that is completing are busy for the
    completing margin. One that is later than that still counts as ending soon. Where jobs share
    nodes, one counts as ending at its limit until that is over, as Slurm's backfill scheduler has
    it: what starts before a planned start ends by its limit at the latest when that is, and the
    planned job's own margin lets it start so much later.
    """
    shown = list(rows.nodes.take(which))
    nodes = {text: machine.rows_of(text) for text in set(shown)}
    having = [nodes[text] for text in shown]
    indptr = offsets_of([len(each) for each in having])
    completing = rows.state.take(which).map("COMPLETING".__eq__, np.bool_)
    start = rows.start[which]
    start = np.where(np.isnan(start), now, start)
    limit = start + rows.limit[which]
    resumed = ~completing & (rows.end[which] > limit)  # Slurm adds the time that it was suspended
    limit = np.where(resumed, rows.end[which], limit)
    by_limit = bool(facts.sharing.resources) & (limit > now)
    outlived = np.where(by_limit, limit, limit + facts.margin)
    end = np.where(completing, rows.end[which] + facts.completing, outlived)
    soon = now + np.where(completing, facts.completing, facts.margin)
    end = np.where(end > now, end, soon)
    end = np.where(np.isnan(end), np.inf, end)
    together = np.concatenate([np.empty(0, np.int32), *having]).astype(np.int32)
    return Schedule.build(rows.id[which], start, end, indptr, together)


def jobs_of(
    rows: JobRows,
    which: NDArray[np.int64],
    facts: SlurmFacts,
    sizes: NDArray[np.int32] | None = None,
    ranges: Mapping[int, tuple[int, int]] | None = None,
    now: float = math.inf,
) -> Jobs:
    """Return jobs that wait or run.

    Of jobs that want something of rtsched, one that can be promised nothing keeps the form of any
    other job, and has no deadline here; one that runs has the form that it runs in.

    Parameters
    ----------
    rows : JobRows
        All jobs.
    which : int64[n]
        Rows to return, in order.
    facts : SlurmFacts
        Margins, partitions, accounts.
    sizes : int32[n], optional
        Nodes that running jobs have; None: they wait.
    ranges : mapping of job id to (int, int), optional
        Node counts that were asked for, of jobs whose count was set by us.
    now : float
        Seconds since the epoch; no job counts as beginning later than inf.
    """
    some = taken(rows, which)
    first = some.partition.replaced(lambda text: text.split(",", 1)[0])
    plain = _plain(some, first, facts)
    if sizes is not None:
        plain["size"] = np.maximum(sizes, 1)
    specs = _specs(some)
    requests = _in_any_partition(some, plain["size"])
    due = np.flatnonzero(some.deadline < math.inf).tolist()
    for at in sorted({*due, *specs}):
        i, spec = int(which[at]), specs.get(at, NOTHING)
        request = request_in(rows, i, spec, (ranges or {}).get(int(rows.id[i])), facts, now)
        limits = limits_for(facts, names_of_job(rows, i))
        needs = requirements_of(request, facts, fresh=_deferred(rows, i), limits=limits)
        if needs.problem:
            continue
        plain["deadline"][at], requests[at] = request.deadline, needs.node_request
        if sizes is None:
            needs.write_to(plain, at)
    dag, checkpoints = np.full(len(which), -1, np.int64), np.zeros(len(which), np.bool_)
    for at, spec in specs.items():
        dag[at] = dag_key(some.user[at], spec.dag) if spec.dag else -1
        checkpoints[at] = spec.checkpoint
    texts = encoded(
        {name: getattr(some, name) for name in ("label", "name", "user", "account", "qos")}
        | {"partition": first, "node_request": requests}
    )
    texts["names"] |= plain.pop("names", {})
    return Jobs.build(
        len(which),
        **{name: values for name, values in plain.items() if not _is_missing(name, values)},
        **texts,
        association=_associations(some, facts),
        dag=dag,
        checkpoints=checkpoints,
    )


def _is_missing(name: str, values: NDArray[Any]) -> bool:
    """Return whether no job has a value in a column of `Jobs`: then it need not be handed on.

    Amounts of resources are, even if nobody asks for any: their names say what nodes have.
    """
    if isinstance(Jobs.columns()[name], Amounts):
        return False
    missing = np.asarray(Jobs.columns()[name].missing)
    return bool(((values == missing) | ((values != values) & (missing != missing))).all())


def encoded(columns: Mapping[str, Texts]) -> dict[str, Any]:
    """Return texts as `Table.build` takes them: codes by column, and `names`."""
    pairs = {name: column.encoded() for name, column in columns.items()}
    names = {name: texts for name, (_, texts) in pairs.items()}
    return {"names": names, **{name: codes for name, (codes, _) in pairs.items()}}


def _associations(rows: JobRows, facts: SlurmFacts) -> NDArray[np.int32]:
    """Return which association each job is charged to, int32[n]; -1: that is not known."""
    known = facts.associations
    return pairwise(rows.account, rows.user, lambda *pair: known.get(pair, -1), np.int32)


def _plain(rows: JobRows, first: Texts, facts: SlurmFacts) -> dict[str, Any]:
    """Return the columns of jobs, each as a rigid one without a promise; `first`: partitions."""
    partitions = facts.partitions
    per_node = first.map(lambda name: partitions[name].cores if name in partitions else 1, np.int64)
    cpus, memory = rows.cpus, rows.memory
    fewest = -(-cpus // np.maximum(per_node, 1))
    size = np.maximum(np.maximum(rows.min_nodes, fewest), 1)
    eligible, submit, limit = rows.eligible, rows.submit, rows.limit
    return (
        plain_columns(len(rows))
        | _demands(rows, first, facts)
        | {
            "id": rows.id,
            "submit": submit,
            "begin": np.where(eligible > submit, eligible, -np.inf),
            "wall_time": np.where(np.isnan(limit), np.inf, limit) + facts.margin,
            "size": size.astype(np.int32),
            "cores": np.where(cpus > 0, cpus, -1).astype(np.int32),
            "memory": np.where(memory > 0, memory * MEGABYTE, -1),
            "nice": rows.nice.astype(np.float64),
            "tasks": np.where(rows.array < 0, 1, rows.tasks).astype(np.int32),
            "array_limit": np.where(rows.array < 0, 0, rows.parallel).astype(np.int32),
            "singleton": rows.dependency.map(lambda text: dependency_of(text).singleton, np.bool_),
        }
    )


def _in_any_partition(rows: JobRows, size: NDArray[np.int32]) -> Texts:
    """Return requests for the nodes of all partitions that a job of one node names."""
    found = rows.partition.replaced(lambda text: f"--partition={text}" if "," in text else "")
    for at in np.flatnonzero((size > 1) & found.map(bool, np.bool_)).tolist():
        found[at] = ""  # Slurm spreads no job over several
    return found


def _demands(rows: JobRows, first: Texts, facts: SlurmFacts) -> dict[str, Any]:
    """Return the columns of what jobs take on each node and of licences, where they share nodes.

    An array has its reserved nodes to itself, and each component of a heterogeneous job that was
    held for us has whole nodes.
    """
    if not facts.sharing.resources:
        return {}
    resources = (*facts.sharing.resources, *(facts.sharing.licenses or ()))

    def amounts_of(amounts: str, licenses: str) -> list[int]:
        known = shown_demand(amounts) | shown_licenses(licenses)
        return [known.get(name, 0) for name in resources]

    demand = pairwise(rows.amounts, rows.licenses, amounts_of, np.int64)
    whole = {name for name, part in facts.partitions.items() if part.exclusive}
    exclusive = rows.exclusive.map(is_exclusive, np.bool_) | first.map(whole.__contains__, np.bool_)
    exclusive |= (rows.array == rows.id) & rows.reservation.map(is_ours, np.bool_)
    joined = are_in(rows.id, list(rows.components))
    exclusive |= joined & rows.mark.map(is_admitted, np.bool_)
    return {
        "demand": demand.reshape(len(rows), len(resources)),
        "names": {"demand": resources},
        "exclusive": exclusive,
    }


def may_not_start_yet(rows: JobRows, i: int, now: float) -> bool:
    """Return whether a waiting job begins later, or waits for another one.

    Not whether Slurm puts it off for a moment since it was queued again.
    """
    return bool(rows.dependency[i]) or _begins(rows, i, now) > now


def _begins(rows: JobRows, i: int, now: float) -> float:
    """Return when a waiting job begins by its own wish, if that is ahead; -inf: it is not."""
    later = rows.eligible[i] > now and not rows.restarts[i]
    return float(rows.eligible[i]) if later else -math.inf


def requeued_parts(rows: JobRows, now: float) -> dict[int, dict[str, float]]:
    """Return the promised jobs that Slurm puts off after it queued them again, and until when.

    By job, an array or heterogeneous job as a whole: what Slurm calls each part of it that is put
    off, and until when, seconds since the epoch. `rows` are as Slurm shows them.
    """
    off = (rows.eligible > now) & (rows.restarts > 0)
    off &= rows.state.map(WAITING.__contains__, np.bool_) & rows.mark.map(is_admitted, np.bool_)
    found: dict[int, dict[str, float]] = {}
    for at in np.flatnonzero(off).tolist():
        whole = max(int(rows.array[at]), int(rows.het[at]))
        job = whole if whole >= 0 else int(rows.id[at])
        name = rows.label[at] if is_task(rows.label[at]) else str(job)
        found.setdefault(job, {})[name] = float(rows.eligible[at])
    return found


def is_task(label: str) -> bool:
    """Return whether a label, such as `12_3`, is that of one task of an array."""
    return bool(_TASK.fullmatch(label))


def is_exclusive(exclusive: str) -> bool:
    """Return whether a job's nodes are no other user's."""
    return exclusive not in {"", "NO"}


def _specs(rows: JobRows) -> dict[int, CommentOptions]:
    """Return what jobs say to rtsched, by row, of those that say something."""
    ours = rows.extra.map(_is_for_us, np.bool_) | rows.comment.map(_is_for_us, np.bool_)
    found = {at: _spec(rows, at) for at in np.flatnonzero(ours).tolist()}
    return {at: spec for at, spec in found.items() if spec.present}


def _is_for_us(text: str) -> bool:
    return "rtsched:" in text


def _spec(rows: JobRows, i: int) -> CommentOptions:
    return options_in(rows.extra[i], rows.comment[i])


def _deferred(rows: JobRows, i: int) -> bool:
    """Return whether a job waits held until it has been evaluated."""
    return bool(rows.priority[i] == 0) and is_deferred(rows.mark[i])


def _unusable(rows: JobRows, i: int, facts: SlurmFacts) -> str:
    """Return why a job that waits to be evaluated cannot be promised what it asks for."""
    request = request_in(rows, i, _spec(rows, i), None, facts)
    if not request.needs_rtsched:
        return ""
    limits = limits_for(facts, names_of_job(rows, i))
    return requirements_of(request, facts, limits=limits).problem


def request_in(
    rows: JobRows,
    i: int,
    spec: CommentOptions,
    counts: tuple[int, int] | None,
    facts: SlurmFacts,
    now: float = math.inf,
) -> JobRequest:
    """Return what a job in the queue asks for; what it was given by us is not its wish.

    It does not count as beginning later unless it does so after `now`, seconds since the epoch.
    Its own node list, in whose place it has that of its planned nodes, is in its admin comment.
    """
    ours = is_admitted(rows.mark[i]) and bool(facts.sharing.resources)
    ours |= keeps_order(rows, i, basic=facts.basic)
    least, most = counts or (int(rows.min_nodes[i]), int(rows.max_nodes[i]))
    deadline = float(rows.deadline[i])
    components = rows.components.get(int(rows.id[i]))
    return JobRequest(
        limit=float(rows.limit[i]),
        deadline=math.inf if math.isnan(deadline) else deadline,
        min_nodes=least,
        max_nodes=max(most, least),
        cpus=int(rows.cpus[i]),
        each=components.cpus if components else 0,
        memory=int(rows.memory[i]) * MEGABYTE,
        partition=rows.partition[i],
        features=rows.features[i],
        required=node_list_in(rows.mark[i]) if ours else rows.required[i],
        excluded=rows.excluded[i],
        reservation="" if is_ours(rows.reservation[i]) else rows.reservation[i],
        licenses=needed_licenses(rows.licenses[i]),
        tres_node=rows.tres_node[i],
        tres_job=rows.tres_job[i],
        tres_socket=rows.tres_socket[i],
        tres_task=rows.tres_task[i],
        wishes=wishes_in(rows.mark[i]) if is_admitted(rows.mark[i]) else "",
        shown=rows.amounts[i],
        exclusive=is_exclusive(rows.exclusive[i]),
        dependency=rows.dependency[i],
        begin=_begins(rows, i, now),
        array=int(rows.tasks[i]) if rows.array[i] >= 0 else 0,
        parallel=int(rows.parallel[i]),
        het=bool(rows.het[i] >= 0),
        unlike=components.problem if components else "",
        spec=spec,
    )


def edges_of(rows: JobRows, queued: NDArray[np.int64], which: NDArray[np.int64]) -> Edges:
    """Return who waits for whom.

    Parameters
    ----------
    rows : JobRows
        All jobs.
    queued, which : int64[n]
        Rows of the jobs that wait, and of those that wait or run.
    """
    waits = queued[rows.dependency.take(queued).map(bool, np.bool_)].tolist()
    known = set(rows.id[which].tolist() if waits else ())
    pairs: list[tuple[int, int, float]] = []
    for i in waits:
        dependency = dependency_of(rows.dependency[i])
        before = [job for job in dependency.jobs if job in known]
        if dependency.singleton and (rows.deadline[i] < math.inf or is_admitted(rows.mark[i])):
            before = list(dict.fromkeys(before + _namesakes(rows, which, i)))
        if before:
            numbers = _spec(rows, i).numbers
            time = numbers.get("message_time", 0.0)
            pairs += [(job, int(rows.id[i]), time) for job in before]
    return Edges.of_rows(("before", "after", "message_time"), pairs)


def _namesakes(rows: JobRows, which: NDArray[np.int64], i: int) -> list[int]:
    """Return the ids of those for which a job that waits, with `singleton`, has to wait."""
    name = rows.name.codes
    same = (rows.uid[which] == rows.uid[i]) & (name[which] == name[i]) & (which != i)
    waits = rows.state.take(which).map(WAITING.__contains__, np.bool_)
    same &= (rows.id[which] < rows.id[i]) | ~waits
    same &= (rows.het[i] < 0) | (rows.het[which] != rows.het[i])
    return rows.id[which[same]].tolist() if rows.name[i] else []
