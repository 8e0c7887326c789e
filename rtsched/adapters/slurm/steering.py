"""Steering: from actions to commands for scontrol and scancel, and `restoring`, which undoes them.

`restoring` leaves waiting jobs as their users submitted them: for a site that takes rtsched out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.changes import (
    Steering,
    idle_nodes,
    is_ordered,
    kind_of,
    stoppable,
    with_exchanged_places,
)
from rtsched.adapters.live import Change
from rtsched.adapters.slurm.commands import (
    FIRST_FACTOR,
    Command,
    Rank,
    change,
    deletion,
    highest,
    job_update,
    only_waiting,
    priority_argument,
)
from rtsched.adapters.slurm.comments import with_message
from rtsched.adapters.slurm.last_applied import LastApplied
from rtsched.adapters.slurm.layout import foreign, is_ours
from rtsched.adapters.slurm.observation import (
    is_admitted,
    is_deferred,
    is_task,
    is_unpromised,
    keeps_order,
)
from rtsched.adapters.slurm.reserving import (
    RETURNED,
    comment_changes,
    has_shape,
    in_one_partition,
    is_first,
    keeps_nodes,
    out_of_order,
    own_nodes,
    own_shape,
    reserve_changes,
)
from rtsched.adapters.slurm.rows import NO_DEADLINE, WAITING, alive
from rtsched.logs.hostlist import fold
from rtsched.model.actions import Hold, Move
from rtsched.model.jobs import Kind
from rtsched.model.snapshot import are_in, places

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.adapters.slurm.last_applied import AppliedFile, SlurmState
    from rtsched.adapters.slurm.rows import JobRows, ReservationRow
    from rtsched.adapters.slurm.settings import SlurmSettings
    from rtsched.model.actions import (
        Admit,
        DropDeadline,
        ExchangePlaces,
        Place,
        Release,
        Requeue,
        Reserve,
        Restart,
        SetNodeWeight,
        SetPriority,
    )


LARGEST_FACTOR = FIRST_FACTOR >> 1
"""Of jobs without a promise."""


@dataclass
class SlurmSteering(Steering):
    """What actions ask of a Slurm.

    Parameters
    ----------
    view : SlurmState
        The last poll.
    last_applied : LastApplied
        What was asked for and cannot be read back.
    settings : SlurmSettings
        The `[slurm]` table.
    """

    view: SlurmState
    last_applied: LastApplied
    settings: SlurmSettings

    def name_of(self, job: int) -> str:
        """Return a job's number."""
        return str(job)

    def reserve(self, action: Reserve) -> list[Change]:
        """Return what a plan asks for: reservations, sizes, bindings, order."""
        applied, view = self.last_applied, self.view
        planned = [job for job in action.plan.entries.job.tolist() if job in view.queued]
        changes = reserve_changes(action.plan, view, self.settings, applied, action.secured)
        for job in planned:
            row = view.place[job]
            if applied.shapes.get(job, RETURNED) == RETURNED and has_shape(view.rows.mark[row]):
                applied.shapes[job] = int(view.rows.min_nodes[row]), float(view.rows.limit[row])
            changes += in_one_partition(view.rows, row)
        for job in view.queued.keys() - action.unplanned.union(planned):
            changes += own_shape(view.rows, view.place[job], applied.shapes, "reserve")
        return changes

    def set_priority(self, action: SetPriority) -> Iterator[Change]:
        """Yield site factors that differ by a step at least, the largest differences first."""
        settings, present = self.settings, self.last_applied.factors
        step = settings.site_factor_step
        value = np.nan_to_num(action.value * settings.site_factor_scale)
        basic = self.view.facts.basic
        most = min(LARGEST_FACTOR, highest(basic) - step)
        wanted = np.clip(np.round(value / step) * step, -LARGEST_FACTOR, most).astype(int)
        differ = [
            (abs(factor - present.get(job, 0)), factor, job)
            for job, factor in zip(action.job.tolist(), wanted.tolist(), strict=True)
            if job in self.view.queued and factor != present.get(job, 0)
        ]
        differ.sort(key=lambda each: (-each[0], -each[1], each[2]))
        for _, factor, job in differ[: settings.site_factors_per_cycle]:
            text = f"set the site factor of job {job} to {factor}"
            words = priority_argument(factor, basic)
            yield job_update("set-priority", job, text, Rank.JOB, words)

    def exchange_places(self, action: ExchangePlaces) -> Iterator[Change]:
        """Yield site factors with which jobs exchange their places within their partitions.

        Less its site factor, a job's priority is its own. One whose priority an admin has set stays
        where it is: site factors do not move it. No places are exchanged where a plug-in of the
        site's sets site factors, nor under priority/basic: a job whose Nice changes goes to the end
        of the queue there.
        """
        view, applied, queued = self.view, self.last_applied, self.view.observation.queued
        if view.facts.basic or view.facts.site_factors:
            return
        if not (len(action.job) or any(applied.factors.values())):
            return
        free = np.flatnonzero(~are_in(queued.id, list(view.held)))
        jobs, partition = queued.id[free], queued.column("partition")[free]
        row = places(view.rows.id, jobs)[0]
        priority = view.rows.priority[row].astype(np.int64)
        factor, shown = _values(applied.factors, jobs, 0), _values(applied.shown, jobs, -1)
        promised = view.rows.mark.take(row).map(is_admitted, np.bool_)
        at, asks = places(action.job, jobs)
        ours = np.abs(factor) <= LARGEST_FACTOR
        moves = asks & ours & (priority != shown)
        wanted = np.where(moves, factor, 0)
        wanted[moves] += (
            with_exchanged_places(
                (priority - factor)[moves],
                partition[moves],
                action.rank[at[moves]],
                priority[~moves],
                partition[~moves],
            )
            - priority[moves]
        )
        wanted = np.clip(wanted, -LARGEST_FACTOR, LARGEST_FACTOR)
        off = np.abs(wanted - factor)
        if is_ordered((priority - factor + wanted)[moves], priority[moves], partition[moves]):
            off[moves & (off < self.settings.site_factor_step)] = 0
        off[~moves & ~asks & (promised | ~ours)] = 0
        order = np.argsort(-off, kind="stable")[: self.settings.site_factors_per_cycle]
        for i in order[off[order] > 0].tolist():
            job = int(jobs[i])
            applied.shown[job] = int(priority[i])
            text = f"set the site factor of job {job} to {wanted[i]}: in order of deadlines"
            words = priority_argument(int(wanted[i]), basic=False)
            yield job_update("set-priority", job, text, Rank.JOB, words)

    def place(self, action: Place) -> Iterator[Change]:
        """Yield node counts and nodes of best-effort jobs."""
        yield from self._sizes(action)
        yield from self._nodes(action)

    def _sizes(self, action: Place) -> Iterator[Change]:
        """Yield node counts of best-effort jobs that left them open.

        A size is what fits now. A job that has to wait gets its own range back: when nodes come
        free, Slurm may start it before the next poll, on as many as there are.
        """
        view, placement, idle = self.view, action.placement, self._idle_nodes()
        left = self.settings.sizes_per_cycle
        for at, job in enumerate(action.job.tolist()):
            size = int(placement.size[at])
            if size <= 0 or job not in view.queued or left == 0:
                continue
            if view.observation.queued.kind[view.queued[job]] == Kind.RIGID:
                continue
            row, code = view.place[job], int(placement.node_set[at])
            present = (int(view.rows.min_nodes[row]), int(view.rows.max_nodes[row]))
            wanted = own = self.last_applied.ranges.get(job, present)
            nodes = placement.node_sets[code] if code >= 0 else np.arange(len(idle))
            free = nodes[idle[nodes]]
            if len(free) >= size and job not in view.held:
                idle[free[:size]] = False
                wanted = (size, size)
            if wanted == present:
                continue
            left -= 1
            count = f"NumNodes={wanted[0]}-{wanted[1]}"
            words = ("scontrol", "update", f"JobId={job}", count, only_waiting(view.rows, row))
            text = f"set the node count of job {job} to {count.partition('=')[2]}"
            yield Change("place", job, text, Command(Rank.SIZE, words, own))

    def _nodes(self, action: Place) -> Iterator[Change]:
        """Yield which single-node jobs are sent to an idle node, and which are let go again.

        A node list is binding in Slurm. So it is given late: only to as many of the first jobs as
        there are idle nodes, and taken back from those that have not started.
        """
        view, sent = self.view, self.last_applied.sent
        for job, (node, since) in sent.items():
            row = view.place.get(job, -1)
            late = view.now - since > self.settings.bound_late_s
            if row < 0 or is_admitted(view.rows.mark[row]):
                continue
            if late and job in view.queued and view.rows.required[row] == node:
                text = f"let job {job} start on any node again"
                yield job_update("place", job, text, Rank.JOB, "ReqNodeList=")
        idle = self._idle_nodes()
        left = min(self.settings.bound_late, int(idle.sum()))
        placement = action.placement
        for job, code in zip(action.job.tolist(), placement.node_set.tolist(), strict=True):
            if left == 0:
                return
            row = view.place.get(job, -1)
            if code < 0 or job not in view.queued or job in sent or view.rows.required[row]:
                continue
            at = view.queued[job]
            rigid = view.observation.queued.kind[at] == Kind.RIGID
            if not rigid or view.observation.queued.size[at] != 1 or job in view.held:
                continue
            wanted = [node for node in placement.node_sets[code].tolist() if idle[node]]
            if not wanted:
                continue
            idle[wanted[0]] = False
            left -= 1
            name = view.names[wanted[0]]
            text = f"send job {job} to node {name}"
            yield job_update("place", job, text, Rank.JOB, f"ReqNodeList={name}")

    def _idle_nodes(self) -> NDArray[np.bool_]:
        """Return bool[m]: nodes that take jobs, run none, and are not reserved, now or soon."""
        view = self.view
        soon = view.now + self.settings.reserved_ahead_s
        single, _ = foreign(view.reservations, view.now)
        near = [row for row in view.reservations if is_ours(row.name)]
        near += [row for row in single if row.start <= soon]
        kept = {name for row in near for name in row.nodes}
        unkept = np.array([name not in kept for name in view.names], np.bool_)
        return idle_nodes(view.observation, unkept)

    def set_node_weight(self, action: SetNodeWeight) -> Iterator[Change]:
        """Yield node weights that differ, one change per weight.

        A node that no job may have now keeps its weight: it may come free before the next poll.
        """
        if not self.settings.node_weights or self.last_applied.no_weights:
            return
        view, groups = self.view, dict[int, list[str]]()
        whole = np.clip(np.round(np.nan_to_num(action.weight)), 0, 1e6).astype(int)
        given = np.isfinite(action.weight)
        for name, weight, is_set in zip(view.names, whole.tolist(), given.tolist(), strict=True):
            if is_set and view.weights.get(name) != weight:
                groups.setdefault(weight, []).append(name)
        for weight, names in groups.items():
            nodes = fold(names)
            text = f"set the weight of {nodes} to {weight}"
            words = ("scontrol", "update", f"NodeName={nodes}", f"Weight={weight}")
            yield change("set-node-weight", -1, text, Rank.NODE, *words)

    def removal(self, job: int, text: str) -> Iterator[Change]:
        """Yield what removes a job, its user told before; Operators may set no text but Comment.

        The end comes after the comment, and whatever became of that.
        """
        if job in self.view.place:
            yield from self.notice(job, text)
            what = f"cancel job {job}: {text}"
            yield change("cancel", job, what, Rank.END, "scancel", str(job))

    def notice(self, job: int, text: str) -> Iterator[Change]:
        """Yield the comment that tells a job's user something; what the user wrote stays in it.

        Slurm changes nothing of a job that has ended.
        """
        view, row = self.view, self.view.place.get(job, -1)
        if row >= 0 and alive(view.rows.state[row]) and text.strip():
            comment = with_message(view.comment(job), text)
            yield from comment_changes(job, comment, Rank.JOB, view)

    def drop_deadline(self, action: DropDeadline) -> Iterator[Change]:
        """Yield what puts the deadlines of waiting jobs off for ever; Slurm takes none back."""
        rows = self.view.rows
        for job in action.job.tolist():
            row = self.view.place.get(job, -1)
            known = job in self.last_applied.deadlines or is_unpromised(rows.mark[row])
            if job not in self.view.queued or known:
                continue
            if math.isfinite(deadline := float(rows.deadline[row])):
                text = f"have Slurm not cancel job {job} at its deadline"
                words = ("scontrol", "update", f"JobId={job}", f"Deadline=uts{NO_DEADLINE:.0f}")
                command = Command(Rank.SIZE, words, deadline=deadline)
                yield Change("drop-deadline", job, text, command)

    def hold_or_release(self, action: Hold | Release | Admit) -> Iterator[Change]:
        """Yield which waiting jobs are held or let go."""
        word = "hold" if isinstance(action, Hold) else "release"
        for job in action.job.tolist():
            if job in self.view.queued and (job in self.view.held) != (word == "hold"):
                text = f"{word} job {job}"
                yield change(word, job, text, Rank.JOB, "scontrol", word, str(job))

    hold = release = admit = hold_or_release

    def requeue(self, action: Requeue | Move) -> Iterator[Change]:
        """Yield which running jobs are queued again, of those that Slurm may requeue at all."""
        view, kind = self.view, kind_of(action)
        why = "does not checkpoint" if isinstance(action, Move) else "does not allow requeueing"
        for job, able in stoppable(view.observation, action).items():
            if view.rows.state[view.place[job]] in WAITING:
                continue
            if able:
                yield _requeue(kind, job, view.rows.label[view.place[job]])
            else:
                yield Change(kind, job, f"job {job} {why}; it stays")

    move = requeue

    def restart(self, action: Restart) -> Iterator[Change]:
        """Yield which jobs that have ended are queued again."""
        for job in action.job.tolist():
            row = self.view.place.get(job, -1)
            if row >= 0 and not alive(self.view.rows.state[row]):
                yield _requeue("restart", job, str(job))


def _values(known: Mapping[int, int], jobs: NDArray[np.int64], missing: int) -> NDArray[np.int64]:
    """Return the value of each job, int64[n]; `missing` where none is known."""
    if not known:
        return np.full(len(jobs), missing, np.int64)
    at, there = places(np.array(list(known), np.int64), jobs)
    return np.where(there, np.array(list(known.values()), np.int64)[at], missing)


def _requeue(kind: str, job: int, label: str) -> Change:
    """Return the change that queues a job again.

    `label` is such as `12_3` of a task: one of an array has the number of the array, which Slurm
    takes for all of its tasks.
    """
    name = label if is_task(label) else str(job)
    return change(kind, job, f"queue job {name} again", Rank.END, "scontrol", "requeue", name)


ENDED = "the promise has ended: rtsched was removed from this cluster; the job runs as best effort"
"""What users of promised jobs are told."""


def restoring(
    rows: JobRows,
    reservations: Sequence[ReservationRow],
    kept: AppliedFile,
    *,
    basic: bool,
    promised: Container[int] = (),
) -> list[Change]:
    """Return what undoes all that rtsched set in waiting jobs, and its reservations.

    Parameters
    ----------
    rows : JobRows
        All jobs.
    reservations : sequence of ReservationRow
        All there are.
    kept : AppliedFile
        What was asked for that Slurm does not show.
    basic : bool
        The site has priority/basic: jobs were put forward and back by Nice.
    promised : container of int
        Jobs whose promises end with this: their users are told, in the jobs' comments.
    """
    LastApplied.of(kept).restore_marks(rows)
    changes = [deletion(row.name, Rank.DELETE) for row in reservations if is_ours(row.name)]
    for at in range(len(rows)):
        if alive(rows.state[at]):
            changes += _job(rows, at, kept, basic=basic)
            job = int(rows.id[at])
            if job in promised:
                comment = with_message(rows.comment[at], ENDED)
                text = f"set the comment of job {job}: {comment}"
                changes.append(job_update("restore", job, text, Rank.JOB, f"Comment={comment}"))
    return changes


def _job(rows: JobRows, at: int, kept: AppliedFile, *, basic: bool) -> Iterator[Change]:
    """Yield what undoes all that was set in one job that waits or runs."""
    job, waits = int(rows.id[at]), rows.state[at] in WAITING

    def update(text: str, rank: Rank, *words: str) -> Change:
        return job_update("restore", job, text, rank, *words)

    if is_ours(rows.reservation[at]):
        text = f"take job {job} out of reservation {rows.reservation[at]}"
        yield update(text, Rank.LEAVE, "ReservationName=")
    if not waits:
        return
    if keeps_order(rows, at, basic=basic):
        yield from out_of_order(rows, at, "restore")
    elif keeps_nodes(rows, at, kept.sent):
        yield from own_nodes(rows, at, "restore")
    elif kept.factors.get(job, int(is_first(rows, at, basic=basic))):
        words = priority_argument(0, basic)
        yield update(f"set {words} of job {job}", Rank.JOB, words)
    yield from own_shape(rows, at, kept.shapes, "restore")
    asked = kept.ranges.get(job)
    if asked and asked != (rows.min_nodes[at], rows.max_nodes[at]):
        words = f"NumNodes={asked[0]}-{asked[1]}"
        text = f"set {words} of job {job}, as asked for"
        yield update(text, Rank.SIZE, words, only_waiting(rows, at))
    node, _ = kept.sent.get(job, ("", 0.0))
    if node and rows.required[at] == node and not is_admitted(rows.mark[at]):
        yield update(f"let job {job} start on any node again", Rank.JOB, "ReqNodeList=")
    if is_deferred(rows.mark[at]) and rows.priority[at] == 0:
        yield change(
            "restore", job, f"release job {job}", Rank.END, "scontrol", "release", str(job)
        )
