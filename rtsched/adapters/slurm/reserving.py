"""From a plan to reservations, and to jobs at their planned size that are bound to them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from rtsched.adapters.planned import waiting
from rtsched.adapters.slurm.comments import RECORD, record_of, with_record
from rtsched.adapters.slurm.guards import Guard, Moved, compared, guards_of, written
from rtsched.adapters.slurm.machine import is_ours
from rtsched.adapters.slurm.orders import (
    FIRST_FACTOR,
    ONLY_WAITING,
    Rank,
    change,
    highest,
    lever,
)
from rtsched.adapters.slurm.rows import WAITING
from rtsched.adapters.slurm.submission import limit_minutes
from rtsched.logs.hostlist import fold
from rtsched.model.jobs import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rtsched.adapters.live import Change, Sight
    from rtsched.adapters.slurm.facts import SlurmFacts
    from rtsched.adapters.slurm.rows import JobRows, ReservationRow
    from rtsched.adapters.slurm.settings import SlurmSettings
    from rtsched.model.schedule import Schedule

FLAGS = "IGNORE_JOBS,OVERLAP,NO_HOLD_JOBS_AFTER_END"
"""Of every reservation of ours: it is made over jobs that run, beside others of ours, and a job
that it leaves behind waits on."""

SLACK_S = 60.0
"""Seconds by which guards are made before a job that starts now could reach into them."""

_RUNS = frozenset({"RUNNING", "CONFIGURING", "SUSPENDED"})
"""States in which a job can leave its reservation. It must: Slurm kills it when that ends."""


@dataclass
class View:
    """What the last look showed, and was changed since, as changes are worked out from it.

    Attributes
    ----------
    rows : JobRows
        All jobs; `place` is the row by job id.
    sight : Sight
        What the daemon was told; `queued` is the row of its queue by job id, `held` whose jobs wait
        for a release.
    facts : SlurmFacts
        Margins and limits.
    names : tuple of str
        Node names by row.
    reservations : sequence of ReservationRow
        All there are.
    weights : dict of str to int
        Node weights by name.
    now : float
        When the changes are worked out, seconds since the epoch.
    comments : dict of int to str
        Comments by job id that the changes worked out now will set.
    """

    rows: JobRows
    sight: Sight
    facts: SlurmFacts
    names: tuple[str, ...]
    reservations: Sequence[ReservationRow]
    now: float
    place: dict[int, int] = field(default_factory=dict)
    queued: dict[int, int] = field(default_factory=dict)
    held: set[int] = field(default_factory=set)
    weights: dict[str, int] = field(default_factory=dict)
    comments: dict[int, str] = field(default_factory=dict)

    def comment(self, job: int) -> str:
        """Return what will stand in a job's comment when the changes so far are carried out."""
        return self.comments.get(job, self.rows.comment[self.place[job]])

    def __post_init__(self) -> None:
        self.place = {job: at for at, job in enumerate(self.rows.id.tolist())}
        self.queued = {job: at for at, job in enumerate(self.sight.queued.id.tolist())}
        self.held = set(self.sight.marks.job[self.sight.marks.held].tolist())


def reserve_changes(
    plan: Schedule,
    view: View,
    settings: SlurmSettings,
    factors: Mapping[int, int],
    counts: Mapping[int, int],
) -> list[Change]:
    """Return what a plan asks for: reservations, sizes, bindings, order.

    `factors` are the site factors set so far, by job id; `counts` the node counts set of which
    Slurm shows no highest one.
    """
    plan = waiting(plan, view.sight.queued.id)
    ahead = settings.horizon_s
    if ahead is None:
        ahead = view.facts.longest + settings.grace_s + SLACK_S
    users = {
        job: view.rows.user[view.place[job]]
        for job in plan.entries.job.tolist()
        if job in view.place
    }
    guards = guards_of(
        plan,
        view.names,
        users,
        own_user=settings.user,
        horizon=view.now + ahead,
        grace=settings.grace_s,
        lead=view.facts.margin,
    )
    moved = compared(guards, view.reservations, view.now, settings.grace_s / 2)
    return [
        *_reservations(moved, view),
        *_bindings(guards, view, frozenset(moved.renew)),
        *_sizes(plan, view, counts),
        *_records(plan, guards, view),
        *(_orders(plan, view, factors) if settings.promised_first else ()),
    ]


def _orders(plan: Schedule, view: View, factors: Mapping[int, int]) -> list[Change]:
    """Return which jobs are to be put before all others, the earliest deadline first.

    Those that left the plan go back among the others.
    """
    changes, basic = [], view.facts.basic
    for job in plan.entries.job.tolist():
        row = view.place.get(job, -1)
        if job not in view.queued or not math.isfinite(view.rows.deadline[row]):
            continue
        factor = min(FIRST_FACTOR - int(view.rows.deadline[row] // 60.0), highest(basic))
        if factors.get(job) != factor:
            changes.append(
                change(
                    "set-priority",
                    job,
                    f"put job {job} before jobs without a promise: site factor {factor}",
                    Rank.JOB,
                    "scontrol",
                    "update",
                    f"JobId={job}",
                    lever(factor, basic),
                )
            )
    planned = set(plan.entries.job.tolist())
    changes += [
        change(
            "set-priority",
            job,
            f"put job {job} among jobs without a promise again: site factor 0",
            Rank.JOB,
            "scontrol",
            "update",
            f"JobId={job}",
            lever(0, basic),
        )
        for job in view.queued
        if job not in planned
        and (
            factors[job] >= _top(basic)
            if job in factors
            else is_first(view.rows, view.place[job], basic=basic)
        )
    ]
    return changes


def is_first(rows: JobRows, at: int, *, basic: bool) -> bool:
    """Return whether a waiting job was put before all others, by us or a process before this one.

    The priority that Slurm shows is the site factor and what else Slurm adds, which is far less.
    """
    return int(-rows.nice[at] if basic else rows.priority[at]) >= _top(basic)


def _top(basic: bool) -> int:
    """Return the least factor that puts a job before all others."""
    return highest(basic) if basic else FIRST_FACTOR * 3 // 4


def _reservations(moved: Moved, view: View) -> list[Change]:
    """Return what is to be done about reservations."""
    changes = [
        change(
            "reserve",
            -1,
            f"delete reservation {name}, to make it anew",
            Rank.RENEW,
            "scontrol",
            "delete",
            f"ReservationName={name}",
        )
        for name in moved.renew
    ]
    for guard, words in moved.update:
        said = " ".join(f"{key}={value}" for key, value in words.items())
        pairs = [f"{key}={value}" for key, value in words.items()]
        changes.append(
            change(
                "reserve",
                guard.job,
                f"change reservation {guard.name}: {said}",
                Rank.UPDATE,
                "scontrol",
                "update",
                f"ReservationName={guard.name}",
                *pairs,
                nodes=guard.nodes,
            )
        )
    changes += [_create(guard, view) for guard in moved.create]
    kept = {row.name: row.nodes for row in view.reservations}
    changes += [
        change(
            "reserve",
            -1,
            f"delete reservation {name}",
            Rank.DELETE,
            "scontrol",
            "delete",
            f"ReservationName={name}",
            nodes=kept.get(name, ()),
        )
        for name in moved.delete
    ]
    return changes


def _create(guard: Guard, view: View) -> Change:
    """Return the change that makes a reservation."""
    nodes = fold(guard.nodes)
    start = max(guard.start, view.now)
    text = (
        f"create reservation {guard.name} on {nodes} from {clock(start)} for "
        f"{math.ceil((guard.end - start) / 60)} min for {guard.user}"
    )
    return change(
        "reserve",
        guard.job,
        text,
        Rank.CREATE,
        "scontrol",
        "create",
        "reservation",
        f"ReservationName={guard.name}",
        f"StartTime={written(guard.start, view.now)}",
        f"EndTime=uts{guard.end:.0f}",
        f"Nodes={nodes}",
        f"Users={guard.user}",
        f"Flags={FLAGS}",
        nodes=guard.nodes,
    )


def clock(moment: float) -> str:
    """Return a time of day in the machine's own zone, for people."""
    return datetime.fromtimestamp(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")


def _bindings(guards: list[Guard], view: View, renewed: frozenset[str]) -> list[Change]:
    """Return which jobs enter and leave reservations of ours.

    A job that runs needs its guard no longer. A job that stands in a guard that is not its own has
    no business there. One whose guard is made anew has to leave it, and enters it again.
    """
    wanted = {guard.job: guard.name for guard in guards if guard.whole}
    changes = []
    for at, name in enumerate(view.rows.reservation):
        job = int(view.rows.id[at])
        waits = view.rows.state[at] in WAITING
        stays = waits and job in wanted and name not in renewed
        if not is_ours(name) or stays:
            continue
        if waits or view.rows.state[at] in _RUNS:
            changes.append(
                change(
                    "reserve",
                    job,
                    f"take job {job} out of reservation {name}",
                    Rank.LEAVE,
                    "scontrol",
                    "update",
                    f"JobId={job}",
                    "ReservationName=",
                )
            )
    for job, name in wanted.items():
        if view.rows.reservation[view.place[job]] != name or name in renewed:
            changes.append(
                change(
                    "reserve",
                    job,
                    f"bind job {job} to reservation {name}",
                    Rank.BIND,
                    "scontrol",
                    "update",
                    f"JobId={job}",
                    f"ReservationName={name}",
                    ONLY_WAITING,
                )
            )
    return changes


def _sizes(plan: Schedule, view: View, counts: Mapping[int, int]) -> list[Change]:
    """Return which jobs get another node count or time limit, to be as planned.

    A controller that was started anew shows no highest node count of jobs that waited before (0;
    Slurm 26.05), whatever they are given. A rigid job has its own; others are given theirs once.
    """
    changes = []
    for at, job in enumerate(plan.entries.job.tolist()):
        if job not in view.queued:
            continue
        row, asked = view.place[job], view.queued[job]
        size = int(plan.entries.size[at])
        rigid = view.sight.queued.kind[asked] == Kind.RIGID
        most = int(view.rows.most[row]) or (size if rigid else counts.get(job, 0))
        same = view.rows.least[row] == most == size
        words = [] if same else [f"NumNodes={size}-{size}"]
        if not rigid or not same:
            duration = float(plan.entries.end[at] - plan.entries.start[at])
            partition = view.rows.partition[row].split(",", 1)[0]
            minutes = limit_minutes(duration, partition, view.facts)
            if minutes * 60.0 != view.rows.limit[row]:
                words.append(f"TimeLimit={minutes}")
        if words:
            said = " ".join(words)
            changes.append(
                change(
                    "reserve",
                    job,
                    f"set {said} of job {job}, as planned",
                    Rank.SIZE,
                    "scontrol",
                    "update",
                    f"JobId={job}",
                    *words,
                    ONLY_WAITING,
                )
            )
    return changes


def _records(plan: Schedule, guards: list[Guard], view: View) -> list[Change]:
    """Return the comments that tell divisible jobs which fraction goes to which node.

    Jobs that left the plan are told nothing any more.
    """
    planned = set(plan.entries.job.tolist())
    records = {
        int(view.rows.id[at]): ""
        for at, comment in enumerate(view.rows.comment)
        if comment.startswith(RECORD)
        and int(view.rows.id[at]) not in planned
        and int(view.rows.id[at]) in view.queued
    }
    bound = {guard.job for guard in guards if guard.whole}
    for at, job in enumerate(plan.entries.job.tolist()):
        if job not in bound or view.sight.queued.kind[view.queued[job]] != Kind.DIVISIBLE:
            continue
        nodes = [view.names[node] for node in plan.nodes_of(at).tolist()]
        shares = plan.shares()[plan.indptr[at] : plan.indptr[at + 1]].tolist()
        records[job] = record_of(float(view.rows.deadline[view.place[job]]), nodes, shares)
    changes = []
    for job, record in records.items():
        present = view.comment(job)
        comment = with_record(present, record)
        if comment == present:
            continue
        view.comments[job] = comment
        changes.append(
            change(
                "tell",
                job,
                f"set the comment of job {job}: {comment}",
                Rank.SIZE,
                "scontrol",
                "update",
                f"JobId={job}",
                f"Comment={comment}",
            )
        )
    return changes
