"""From Slurm's rows to an `Observation`."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.adapters.live import UNJUDGED, Completions, CompletionStatus, Marks, dag_key
from rtsched.adapters.requirements import plain_columns
from rtsched.adapters.slurm.completions import LIVE
from rtsched.adapters.slurm.demand import shown_demand, shown_licenses
from rtsched.adapters.slurm.dependencies import dependency_of
from rtsched.adapters.slurm.layout import is_ours
from rtsched.adapters.slurm.limits import limits_for
from rtsched.adapters.slurm.node_requests import node_list_in
from rtsched.adapters.slurm.requirements import JobRequest, requirements_of
from rtsched.adapters.slurm.rows import MEGABYTE, WAITING, names_of, number
from rtsched.adapters.slurm.scontrol import FIRST_PRIORITY, LAST_PRIORITY
from rtsched.adapters.slurm.spec import NOTHING, Spec, spec_of
from rtsched.adapters.slurm.submission import DEFERRED, MARK
from rtsched.logs.slurm_text import ENDINGS
from rtsched.model import log
from rtsched.model.jobs import Edges, Jobs
from rtsched.model.limit_rules import JobNames
from rtsched.model.ragged import offsets_of
from rtsched.model.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rtsched.adapters.slurm.facts import SlurmFacts
    from rtsched.adapters.slurm.layout import ClusterLayout
    from rtsched.adapters.slurm.rows import JobRows

Integers = "NDArray[np.int64]"

_TOKEN = re.compile(rf"{MARK}([\w-]+)", re.ASCII)

NOT_LAUNCHED = "Slurm could not launch it, and holds it"
"""Nobody asked for that hold; a controller that goes on with an older state causes it, too: it has
jobs launched a second time that run already."""

NEVER_SATISFIED = "a job that it waits for did not end as its dependency asks"

_LIMITS = ("Assoc", "QOS")
"""How the reasons begin that name a limit of an account or QOS (manual page squeue)."""

_LAUNCHES = ("launch fail", "JobHoldMaxRequeue")
"""How the reasons begin of jobs that Slurm holds after launches that failed."""


def parts(rows: JobRows) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return which rows wait, run, and have ended; waiting and running by (submit, id)."""
    kind = {
        state: 0 if state in WAITING else 1 if ENDINGS.get(state) == log.Ending.RUNNING else 2
        for state in set(rows.state)
    }
    code = np.array([kind[state] for state in rows.state], np.int8)
    order = np.lexsort((rows.id, rows.submit))
    ordered = code[order]
    return order[ordered == 0], order[ordered == 1], np.flatnonzero(code == 2)


def tokens_of(marks: list[str]) -> list[str | None]:
    """Return the token of each admin comment; None where it has none."""
    found = {}
    for mark in set(marks):
        match = _TOKEN.match(mark)
        known = match is not None and match[1] != DEFERRED
        found[mark] = match[1] if match is not None and known else None
    return [found[mark] for mark in marks]


def is_admitted(mark: str) -> bool:
    """Return whether a job with this admin comment may have been promised something once."""
    return is_deferred(mark) or tokens_of([mark])[0] not in {None, UNJUDGED}


def keeps_order(rows: JobRows, at: int, *, basic: bool) -> bool:
    """Return whether a waiting job has the priority of a planned one that shares nodes.

    Admins may give one to other jobs, which carry no admission. It has lost it, but still has its
    nodes, if Slurm holds it since these lack what it asks for.
    """
    if basic or not is_admitted(rows.mark[at]):
        return False
    if _lacks_features(rows, at):
        return set(names_of(rows.required[at])) != set(names_of(node_list_in(rows.mark[at])))
    return bool(LAST_PRIORITY <= rows.priority[at] <= FIRST_PRIORITY)


def is_deferred(mark: str) -> bool:
    """Return whether a job with this admin comment was held until it was evaluated."""
    return mark.split()[:1] == [MARK + DEFERRED]


def completions_of(rows: JobRows, which: NDArray[np.int64]) -> Completions:
    """Return the jobs that ended and that the controller still knows."""
    endings = [
        LIVE.get(ENDINGS.get(rows.state[i], log.Ending.UNKNOWN), CompletionStatus.FAILED)
        for i in which.tolist()
    ]
    started = np.array([bool(rows.nodes[i]) for i in which.tolist()], np.bool_)
    return Completions.build(
        len(which),
        job=rows.id[which],
        start=np.where(started, rows.start[which], np.nan),
        end=rows.end[which],
        status=np.array(endings, np.int8),
        token=tokens_of([rows.mark[i] for i in which.tolist()]),
        exit_code=np.array([_failed_with(rows, i) for i in which.tolist()], np.int32),
        requeues=rows.requeue[which] & started,
        restarts=rows.restarts[which].astype(np.int32),
    )


def _failed_with(rows: JobRows, i: int) -> int:
    """Return the exit status of a job that failed by itself; -1 of one that did not."""
    status, _, signal = rows.exit_code[i].partition(":")
    return number(status) if rows.state[i] == "FAILED" and signal == "0" else -1


def marks_of(rows: JobRows, which: NDArray[np.int64], facts: SlurmFacts) -> Marks:
    """Return the marks of jobs that wait or run."""
    components = [rows.components[i] for i in which.tolist()]
    mark = [rows.mark[i] for i in which.tolist()]
    held = [_held(rows, i) for i in which.tolist()]
    waits = np.array([rows.state[i] in WAITING for i in which.tolist()], np.bool_)
    return Marks.build(
        len(which),
        job=rows.id[which],
        uid=rows.uid[which],
        token=tokens_of(mark),
        deferred=np.array([is_deferred(text) for text in mark], np.bool_),
        held=np.array(held, np.bool_) & waits,
        requeues=rows.requeue[which],
        limit=[_limit(rows.reason[i]) for i in which.tolist()],
        problem=[_never_starts(rows.reason[i]) for i in which.tolist()],
        unusable=[_unusable(rows, i, facts) for i in which.tolist()],
        last=np.array([max(each.ids) if each else -1 for each in components], np.int64),
        singleton=np.array(
            [dependency_of(rows.dependency[i]).singleton for i in which.tolist()], np.bool_
        ),
    )


def _held(rows: JobRows, i: int) -> bool:
    """Return whether somebody holds a job."""
    first = rows.priority[i] == 0 and not _lacks_features(rows, i)
    return bool(first) or rows.reason[i].startswith("JobHeld")


def _lacks_features(rows: JobRows, i: int) -> bool:
    """Return whether Slurm holds a job since no node that it may have has the features it wants.

    It lets it go when features or the job change (`FAIL_BAD_CONSTRAINTS`, src/slurmctld/job_mgr.c).
    """
    return rows.reason[i] == "BadConstraints" and bool(rows.features[i])


def _limit(reason: str) -> str | None:
    """Return the limit of an account or QOS that a reason names, such as `QOSGrpCpuLimit`."""
    return reason if reason.startswith(_LIMITS) else None


def _never_starts(reason: str) -> str | None:
    """Return why a job does not start by itself; scontrol writes no spaces in Slurm's reason."""
    if reason == "DependencyNeverSatisfied":
        return NEVER_SATISFIED
    return NOT_LAUNCHED if reason.replace("_", " ").startswith(_LAUNCHES) else None


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
    nodes = {text: machine.rows_of(text) for text in {rows.nodes[i] for i in which.tolist()}}
    taken = [nodes[rows.nodes[i]] for i in which.tolist()]
    indptr = offsets_of([len(each) for each in taken])
    completing = np.array([rows.state[i] == "COMPLETING" for i in which.tolist()], np.bool_)
    start = rows.start[which]
    start = np.where(np.isnan(start), now, start)
    limit = start + rows.limit[which]
    by_limit = bool(facts.sharing.resources) & (limit > now)
    outlived = np.where(by_limit, limit, limit + facts.margin)
    end = np.where(completing, rows.end[which] + facts.completing, outlived)
    soon = now + np.where(completing, facts.completing, facts.margin)
    end = np.where(end > now, end, soon)
    end = np.where(np.isnan(end), np.inf, end)
    together = np.concatenate([np.empty(0, np.int32), *taken]).astype(np.int32)
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
    chosen = which.tolist()
    texts: dict[str, Any] = {
        name: [getattr(rows, name)[i] or None for i in chosen]
        for name in ("label", "name", "user", "account", "partition", "qos")
    }
    first = [None if text is None else text.split(",", 1)[0] for text in texts["partition"]]
    plain = _plain(rows, which, first, facts)
    if sizes is not None:
        plain["size"] = np.maximum(sizes, 1)
    specs = _specs(rows, which)
    requests = _reshape(plain, rows, which, specs, facts, sizes, ranges or {}, now)
    pairs = zip(texts["account"], texts["user"], strict=True)
    known = facts.associations
    return Jobs.build(
        len(which),
        **plain,
        **{name: values for name, values in texts.items() if name != "partition"},
        partition=first,
        node_request=requests,
        association=np.array([known.get((a or "", u or ""), -1) for a, u in pairs], np.int32),
        dag=np.array(
            [
                dag_key(rows.user[i], spec.dag) if spec.dag else -1
                for i, spec in zip(chosen, specs, strict=True)
            ],
            np.int64,
        ),
        checkpoints=np.array([spec.checkpoint for spec in specs], np.bool_),
    )


def _plain(
    rows: JobRows,
    which: NDArray[np.int64],
    first: list[str | None],
    facts: SlurmFacts,
) -> dict[str, Any]:
    """Return the columns of jobs, each as a rigid one without a promise."""
    cores = {
        name: facts.partitions[name or ""].cores if (name or "") in facts.partitions else 1
        for name in set(first)
    }
    per_node = np.array([cores[name] for name in first], np.int64)
    cpus, memory = rows.cpus[which], rows.memory[which]
    fewest = -(-cpus // np.maximum(per_node, 1))
    size = np.maximum(np.maximum(rows.min_nodes[which], fewest), 1)
    eligible, submit = rows.eligible[which], rows.submit[which]
    limit = rows.limit[which]
    return (
        plain_columns(len(which))
        | _demands(rows, which, first, facts)
        | {
            "id": rows.id[which],
            "submit": submit,
            "begin": np.where(eligible > submit, eligible, -np.inf),
            "wall_time": np.where(np.isnan(limit), np.inf, limit) + facts.margin,
            "size": size.astype(np.int32),
            "cores": np.where(cpus > 0, cpus, -1).astype(np.int32),
            "memory": np.where(memory > 0, memory * MEGABYTE, -1),
            "nice": rows.nice[which].astype(np.float64),
            "tasks": np.where(rows.array[which] < 0, 1, rows.tasks[which]).astype(np.int32),
        }
    )


def _demands(
    rows: JobRows,
    which: NDArray[np.int64],
    first: list[str | None],
    facts: SlurmFacts,
) -> dict[str, Any]:
    """Return the columns of what jobs take on each node and of licences, where they share nodes.

    An array has its reserved nodes to itself, and each component of a heterogeneous job that was
    held for us has whole nodes.
    """
    if not facts.sharing.resources:
        return {}
    resources = (*facts.sharing.resources, *(facts.sharing.licenses or ()))
    chosen = which.tolist()
    asked = [(rows.amounts[i], rows.licenses[i]) for i in chosen]
    known = {each: shown_demand(each[0]) | shown_licenses(each[1]) for each in set(asked)}
    amounts = [[known[each].get(name, 0) for name in resources] for each in asked]
    whole = {name for name, part in facts.partitions.items() if part.exclusive}
    exclusive = [
        is_exclusive(rows.exclusive[i])
        or (name or "") in whole
        or (rows.array[i] == rows.id[i] and is_ours(rows.reservation[i]))
        or (rows.components[i] is not None and is_admitted(rows.mark[i]))
        for i, name in zip(chosen, first, strict=True)
    ]
    return {
        "demand": np.array(amounts, np.int64).reshape(len(chosen), len(resources)),
        "names": {"demand": resources},
        "exclusive": np.array(exclusive, np.bool_),
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


def is_exclusive(exclusive: str) -> bool:
    """Return whether a job's nodes are no other user's."""
    return exclusive not in {"", "NO"}


def _specs(rows: JobRows, which: NDArray[np.int64]) -> list[Spec]:
    """Return what each job says to rtsched."""
    found = []
    for i in which.tolist():
        extra, comment = rows.extra[i], rows.comment[i]
        ours = "rtsched:" in extra or "rtsched:" in comment
        found.append(spec_of(extra, comment) if ours else NOTHING)
    return found


def _reshape(
    plain: dict[str, Any],
    rows: JobRows,
    which: NDArray[np.int64],
    specs: list[Spec],
    facts: SlurmFacts,
    sizes: NDArray[np.int32] | None,
    ranges: Mapping[int, tuple[int, int]],
    now: float,
) -> list[str | None]:
    """Set the requirements of jobs that want something of rtsched; return their node requests.

    One that can be promised nothing keeps the form of any other job, and has no deadline here. One
    that runs has the form that it runs in.
    """
    deadline = rows.deadline[which]
    requests: list[str | None] = [None] * len(which)
    for at, i in enumerate(which.tolist()):
        spec = specs[at]
        if not spec.present and not deadline[at] < math.inf:
            continue
        request = request_in(rows, i, spec, ranges.get(int(rows.id[i])), facts, now)
        limits = limits_for(facts, names_of_job(rows, i))
        fresh = _deferred(rows, i)
        requirements = requirements_of(request, facts, fresh=fresh, limits=limits)
        if requirements.problem:
            continue
        plain["deadline"][at] = request.deadline
        requests[at] = requirements.node_request or None
        if sizes is None:
            requirements.write_to(plain, at)
    return requests


def names_of_job(rows: JobRows, i: int) -> JobNames:
    """Return what limits of a job go by."""
    first = rows.partition[i].split(",", 1)[0]
    return JobNames(rows.qos[i], first, rows.account[i], rows.user[i])


def _deferred(rows: JobRows, i: int) -> bool:
    """Return whether a job waits held until it has been evaluated."""
    return bool(rows.priority[i] == 0) and is_deferred(rows.mark[i])


def _unusable(rows: JobRows, i: int, facts: SlurmFacts) -> str | None:
    """Return why a job that waits to be evaluated cannot be promised what it asks for."""
    if not _deferred(rows, i):
        return None
    (spec,) = _specs(rows, np.array([i]))
    request = request_in(rows, i, spec, None, facts)
    if not request.needs_rtsched:
        return None
    limits = limits_for(facts, names_of_job(rows, i))
    return requirements_of(request, facts, limits=limits).problem or None


def request_in(
    rows: JobRows,
    i: int,
    spec: Spec,
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
    components = rows.components[i]
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
        licenses=rows.licenses[i],
        tres_node=rows.tres[i],
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


def edges_of(rows: JobRows, queued: NDArray[np.int64], alive: NDArray[np.int64]) -> Edges:
    """Return who waits for whom.

    Parameters
    ----------
    rows : JobRows
        All jobs.
    queued, alive : int64[n]
        Rows of the jobs that wait, and of those that wait or run.
    """
    known = set(rows.id[alive].tolist())
    named = _Namesakes(rows, alive)
    pairs: list[tuple[int, int, float]] = []
    for i in queued.tolist():
        if not rows.dependency[i]:
            continue
        dependency = dependency_of(rows.dependency[i])
        before = [job for job in dependency.jobs if job in known]
        if dependency.singleton and (rows.deadline[i] < math.inf or is_admitted(rows.mark[i])):
            before = list(dict.fromkeys(before + named.before(i)))
        if before:
            numbers = spec_of(rows.extra[i], rows.comment[i]).numbers
            time = numbers.get("message_time", 0.0)
            pairs += [(job, int(rows.id[i]), time) for job in before]
    return Edges.of_rows(("before", "after", "message_time"), pairs)


class _Namesakes:
    """The jobs that wait or run, by user and name."""

    def __init__(self, rows: JobRows, alive: NDArray[np.int64]) -> None:
        self._rows, self._alive = rows, alive
        self._found: dict[tuple[int, str], list[int]] | None = None

    def before(self, i: int) -> list[int]:
        """Return the ids of those for which a job that waits, with `singleton`, has to wait."""
        rows = self._rows
        if self._found is None:
            self._found = {}
            for at in self._alive.tolist():
                if rows.name[at]:
                    self._found.setdefault((int(rows.uid[at]), rows.name[at]), []).append(at)
        job, whole = int(rows.id[i]), int(rows.het[i])
        return [
            int(rows.id[at])
            for at in self._found.get((int(rows.uid[i]), rows.name[i]), ())
            if (rows.id[at] < job or rows.state[at] not in WAITING)
            and at != i
            and (whole < 0 or rows.het[at] != whole)
        ]
