"""From actions on single jobs and nodes to what scontrol and scancel are told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.live import Change
from rtsched.adapters.slurm.applied_file import UNSURE, AppliedFile
from rtsched.adapters.slurm.comments import with_message
from rtsched.adapters.slurm.layout import is_ours
from rtsched.adapters.slurm.rows import WAITING, alive
from rtsched.adapters.slurm.scontrol import (
    FIRST_FACTOR,
    ONLY_WAITING,
    Command,
    Rank,
    change,
    highest,
    priority_argument,
)
from rtsched.logs.hostlist import fold
from rtsched.model.actions import (
    Action,
    Admit,
    Cancel,
    Hold,
    Move,
    Place,
    Reject,
    Release,
    Requeue,
    Reserve,
    Restart,
    SetNodeWeight,
    SetPriority,
    Tell,
)
from rtsched.model.cluster import NodeState
from rtsched.model.jobs import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from rtsched.adapters.slurm.reserving import SlurmState
    from rtsched.adapters.slurm.settings import SlurmSettings

LARGEST_FACTOR = FIRST_FACTOR >> 1
"""Of jobs without a promise."""


@dataclass
class LastApplied:
    """What the adapter has asked Slurm for and cannot read back.

    Attributes
    ----------
    factors : dict of job id to int
        Site factors set; `UNSURE`: set by a process before this one, or not.
    ranges : dict of job id to (int, int)
        Node counts that best-effort jobs asked for before theirs was set.
    sent : dict of job id to (str, float)
        The node that a job was sent to, and when.
    counts : dict of job id to int
        The node counts that promised jobs were given of which Slurm shows no highest one.
    no_weights : bool
        Slurm refuses weights to this user.
    """

    factors: dict[int, int] = field(default_factory=dict)
    ranges: dict[int, tuple[int, int]] = field(default_factory=dict)
    sent: dict[int, tuple[str, float]] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    no_weights: bool = False

    @classmethod
    def of(cls, kept: AppliedFile) -> LastApplied:
        """Return what a process knows that follows another one."""
        return cls(dict(kept.factors), dict(kept.ranges), dict(kept.sent))

    def kept(self) -> AppliedFile:
        """Return what the next process must know."""
        return AppliedFile(dict(self.ranges), dict(self.sent), dict(self.factors))

    def foreseen(self, changes: Sequence[Change], now: float) -> AppliedFile:
        """Return what the next process must know if this one ends while it carries out changes."""
        kept = self.kept()
        for each in changes:
            if not isinstance(each.command, Command):
                continue
            words = _words(each.command)
            if words.keys() & {"SiteFactor", "Nice"}:
                kept.factors[each.job] = UNSURE
            if each.command.before is not None:
                kept.ranges[each.job] = each.command.before
            if words.get("ReqNodeList"):
                kept.sent[each.job] = (words["ReqNodeList"], now)
        return kept

    def keep_only(self, jobs: set[int], unshown: set[int]) -> None:
        """Forget all other jobs; `unshown` are those of which Slurm shows no highest node count."""
        self.counts = {job: count for job, count in self.counts.items() if job in unshown}
        self.factors = {job: value for job, value in self.factors.items() if job in jobs}
        self.ranges = {job: value for job, value in self.ranges.items() if job in jobs}
        self.sent = {job: value for job, value in self.sent.items() if job in jobs}


def steer_changes(
    action: Action, view: SlurmState, last_applied: LastApplied, settings: SlurmSettings
) -> Iterator[Change]:
    """Yield what one action other than `Reserve` asks for and is not so yet."""
    if isinstance(action, SetPriority):
        yield from _priorities(action, view, last_applied, settings)
    elif isinstance(action, Place):
        yield from _sizes(action, view, last_applied, settings)
        yield from _nodes(action, view, last_applied, settings)
    elif isinstance(action, SetNodeWeight):
        yield from _weights(action, view, last_applied, settings)
    elif isinstance(action, Cancel | Reject):
        for job, text in zip(action.job.tolist(), action.text, strict=True):
            yield from _cancel(job, text, view)
    elif isinstance(action, Tell):
        for job, text in zip(action.job.tolist(), action.text, strict=True):
            yield from _notify(job, text, view)
    elif isinstance(action, Hold | Release | Admit):
        yield from _holds(action, view)
    elif isinstance(action, Requeue | Move):
        yield from _requeues(action, view)
    elif isinstance(action, Restart):
        yield from _restarts(action, view)
    elif not isinstance(action, Reserve):
        for job in action.job.tolist():
            yield Change(_kind(action), job, f"{_kind(action)} job {job}")


def _kind(action: Action) -> str:
    """Return the name of an action, such as `set-priority`."""
    name = type(action).__name__
    return "".join(f"-{c.lower()}" if c.isupper() else c for c in name).lstrip("-")


def _priorities(
    action: SetPriority, view: SlurmState, last_applied: LastApplied, settings: SlurmSettings
) -> Iterator[Change]:
    """Yield site factors that differ by a step at least, the largest differences first."""
    step = settings.site_factor_step
    value = np.nan_to_num(action.value * settings.site_factor_scale)
    basic = view.facts.basic
    most = min(LARGEST_FACTOR, highest(basic) - step)
    wanted = np.clip(np.round(value / step) * step, -LARGEST_FACTOR, most).astype(int)
    differ = [
        (abs(factor - last_applied.factors.get(job, 0)), factor, job)
        for job, factor in zip(action.job.tolist(), wanted.tolist(), strict=True)
        if job in view.queued and factor != last_applied.factors.get(job, 0)
    ]
    differ.sort(key=lambda each: (-each[0], -each[1], each[2]))
    for _, factor, job in differ[: settings.site_factors_per_cycle]:
        yield change(
            "set-priority",
            job,
            f"set the site factor of job {job} to {factor}",
            Rank.JOB,
            "scontrol",
            "update",
            f"JobId={job}",
            priority_argument(factor, basic),
        )


def _sizes(
    action: Place, view: SlurmState, last_applied: LastApplied, settings: SlurmSettings
) -> Iterator[Change]:
    """Yield node counts of best-effort jobs that left them open.

    A size is what fits now. A job that has to wait gets its own range back: when nodes come free,
    Slurm may start it before the next poll, on as many as there are.
    """
    placement, idle = action.placement, idle_nodes(view)
    left = settings.sizes_per_cycle
    for at, job in enumerate(action.job.tolist()):
        size = int(placement.size[at])
        if size <= 0 or job not in view.queued or left == 0:
            continue
        if view.observation.queued.kind[view.queued[job]] == Kind.RIGID:
            continue
        row, code = view.place[job], int(placement.node_set[at])
        present = (int(view.rows.min_nodes[row]), int(view.rows.max_nodes[row]))
        wanted = own = last_applied.ranges.get(job, present)
        nodes = placement.node_sets[code] if code >= 0 else np.arange(len(idle))
        free = nodes[idle[nodes]]
        if len(free) >= size and job not in view.held:
            idle[free[:size]] = False
            wanted = (size, size)
        if wanted == present:
            continue
        left -= 1
        said = f"NumNodes={wanted[0]}-{wanted[1]}"
        words = ("scontrol", "update", f"JobId={job}", said, ONLY_WAITING)
        text = f"set the node count of job {job} to {said.partition('=')[2]}"
        yield Change("place", job, text, Command(Rank.SIZE, words, own))


def _nodes(
    action: Place, view: SlurmState, last_applied: LastApplied, settings: SlurmSettings
) -> Iterator[Change]:
    """Yield which single-node jobs are sent to an idle node, and which are let go again.

    A node list is binding in Slurm. So it is given late: only to as many of the first jobs as
    there are idle nodes, and taken back from those that have not started.
    """
    for job, (node, since) in last_applied.sent.items():
        row = view.place.get(job, -1)
        late = view.now - since > settings.bound_late_s
        if row >= 0 and late and job in view.queued and view.rows.required[row] == node:
            yield change(
                "place",
                job,
                f"let job {job} start on any node again",
                Rank.JOB,
                "scontrol",
                "update",
                f"JobId={job}",
                "ReqNodeList=",
            )
    idle = idle_nodes(view)
    left = min(settings.bound_late, int(idle.sum()))
    placement = action.placement
    for job, code in zip(action.job.tolist(), placement.node_set.tolist(), strict=True):
        if left == 0:
            return
        row = view.place.get(job, -1)
        if (
            code < 0
            or job not in view.queued
            or job in last_applied.sent
            or view.rows.required[row]
        ):
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
        yield change(
            "place",
            job,
            f"send job {job} to node {name}",
            Rank.JOB,
            "scontrol",
            "update",
            f"JobId={job}",
            f"ReqNodeList={name}",
        )


def idle_nodes(view: SlurmState) -> NDArray[np.bool_]:
    """Return bool[m]: nodes that take jobs, run none, and are not kept for a promise."""
    idle = np.equal(view.observation.cluster.nodes.state, NodeState.UP)
    idle[view.observation.allocations.nodes] = False
    kept = {name for row in view.reservations if is_ours(row.name) for name in row.nodes}
    return idle & np.array([name not in kept for name in view.names], np.bool_)


def _weights(
    action: SetNodeWeight, view: SlurmState, last_applied: LastApplied, settings: SlurmSettings
) -> Iterator[Change]:
    """Yield node weights that differ, one change per weight.

    A node that no job may have now keeps its weight: it may come free before the next poll.
    """
    if not settings.node_weights or last_applied.no_weights:
        return
    groups: dict[int, list[str]] = {}
    whole = np.clip(np.round(np.nan_to_num(action.weight)), 0, 1e6).astype(int)
    says = np.isfinite(action.weight)
    for name, weight, said in zip(view.names, whole.tolist(), says.tolist(), strict=True):
        if said and view.weights.get(name) != weight:
            groups.setdefault(weight, []).append(name)
    for weight, names in groups.items():
        nodes = fold(names)
        yield change(
            "set-node-weight",
            -1,
            f"set the weight of {nodes} to {weight}",
            Rank.NODE,
            "scontrol",
            "update",
            f"NodeName={nodes}",
            f"Weight={weight}",
        )


def _cancel(job: int, text: str, view: SlurmState) -> Iterator[Change]:
    """Yield what removes a job, its user told before; Operators may set no other text than Comment.

    The end comes after the comment, and whatever became of that.
    """
    if job not in view.place:
        return
    yield from _notify(job, text, view)
    yield change("cancel", job, f"cancel job {job}: {text}", Rank.END, "scancel", str(job))


def _notify(job: int, text: str, view: SlurmState) -> Iterator[Change]:
    """Yield the comment that tells a job's user something; what the user wrote stays in it.

    Slurm changes nothing of a job that has ended.
    """
    row = view.place.get(job, -1)
    if row < 0 or not alive(view.rows.state[row]) or not text.strip():
        return
    present = view.comment(job)
    comment = with_message(present, text)
    if comment == present:
        return
    view.comments[job] = comment
    yield change(
        "tell",
        job,
        f"set the comment of job {job}: {comment}",
        Rank.JOB,
        "scontrol",
        "update",
        f"JobId={job}",
        f"Comment={comment}",
    )


def _holds(action: Hold | Release | Admit, view: SlurmState) -> Iterator[Change]:
    """Yield which waiting jobs are held or let go."""
    word = "hold" if isinstance(action, Hold) else "release"
    for job in action.job.tolist():
        if job not in view.queued or (job in view.held) == (word == "hold"):
            continue
        yield change(word, job, f"{word} job {job}", Rank.JOB, "scontrol", word, str(job))


def _requeues(action: Requeue | Move, view: SlurmState) -> Iterator[Change]:
    """Yield which running jobs are queued again, of those that Slurm may requeue at all.

    A job is moved only if it says that it keeps checkpoints; what it did so far would be lost.
    """
    why = "does not allow requeueing" if isinstance(action, Requeue) else "does not checkpoint"
    first = len(view.observation.queued)
    running = {job: at for at, job in enumerate(view.observation.running.id.tolist())}
    for job in action.job.tolist():
        at = running.get(job, -1)
        if at < 0 or view.rows.state[view.place[job]] in WAITING:
            continue
        able = bool(view.observation.marks.requeues[first + at])
        if isinstance(action, Move):
            able = able and bool(view.observation.running.checkpoints[at])
        if not able:
            yield Change(_kind(action), job, f"job {job} {why}; it stays")
            continue
        yield change(
            _kind(action),
            job,
            f"queue job {job} again",
            Rank.END,
            "scontrol",
            "requeue",
            str(job),
        )


def _restarts(action: Restart, view: SlurmState) -> Iterator[Change]:
    """Yield which jobs that have ended are queued again."""
    for job in action.job.tolist():
        row = view.place.get(job, -1)
        if row < 0 or alive(view.rows.state[row]):
            continue
        words = ("scontrol", "requeue", str(job))
        yield change("restart", job, f"queue job {job} again", Rank.END, *words)


def _words(command: Command) -> dict[str, str]:
    """Return what a command sets."""
    return dict(word.partition("=")[::2] for word in command.words[2:])


def remember(done: Change, outcome: str, last_applied: LastApplied, now: float) -> None:
    """Keep in mind what was carried out and cannot be read back."""
    words = _words(done.command)
    if done.kind == "set-node-weight" and outcome == "refused":
        last_applied.no_weights = True
    if outcome != "done":
        return
    if "SiteFactor" in words:
        last_applied.factors[done.job] = int(words["SiteFactor"])
    if "Nice" in words:
        last_applied.factors[done.job] = -int(words["Nice"])
    if done.command.before is not None:
        last_applied.ranges[done.job] = done.command.before
    elif "NumNodes" in words:
        last_applied.counts[done.job] = int(words["NumNodes"].partition("-")[0])
    if words.get("ReqNodeList"):
        last_applied.sent[done.job] = (words["ReqNodeList"], now)
