"""What was asked of Slurm that Slurm does not show any more, kept in a file too.

Slurm shows only the last node count and node list that were set, and no site factor. Without the
file a process that follows this one would take them for what users asked for: jobs would wait for
just so many nodes, or for one node, for ever.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from rtsched.adapters.files import replace_file
from rtsched.adapters.slurm.observation import (
    deadline_in,
    is_admitted,
    is_deferred,
    is_unpromised,
)
from rtsched.adapters.slurm.reserving import RETURNED
from rtsched.adapters.slurm.rows import NO_DEADLINE, WAITING
from rtsched.adapters.slurm.scontrol import Command
from rtsched.adapters.slurm.submission import DEFERRED, MARK, UNPROMISED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rtsched.adapters.live import Change, Done
    from rtsched.adapters.slurm.rows import JobRows

Range = tuple[int, int]

UNSURE = 1 << 40
"""In place of a site factor that was being set when the process ended."""


class AppliedFile(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What was asked for, by job id.

    Attributes
    ----------
    ranges : dict of int to (int, int)
        Fewest and most nodes that a best-effort job's user asked for, before another count was set.
    sent : dict of int to (str, float)
        The node that a best-effort job was sent to, and when, in seconds since the epoch.
    factors : dict of int to int
        The site factor, or Nice below zero under priority/basic; `UNSURE`: nobody knows.
    marks : dict of int to str
        Our part of the admin comment of promised jobs of which somebody else wrote another one.
    shapes : dict of int to (int, float)
        Node count and time limit, seconds, that a promised job was planned with last; `RETURNED`:
        it has its own again.
    deadlines : dict of int to float
        The deadline that was taken from a job, which runs without a promise, seconds since the
        epoch.
    """

    ranges: dict[int, Range] = {}
    sent: dict[int, tuple[str, float]] = {}
    factors: dict[int, int] = {}
    marks: dict[int, str] = {}
    shapes: dict[int, tuple[int, float]] = {}
    deadlines: dict[int, float] = {}


def read(path: str) -> AppliedFile:
    """Return what a file keeps; nothing where it is missing or damaged."""
    if not path:
        return AppliedFile()
    try:
        found = msgspec.json.decode(Path(path).read_bytes(), type=AppliedFile)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return AppliedFile()
    ranges = {job: (least, most) for job, (least, most) in found.ranges.items()}
    found.ranges = {job: each for job, each in ranges.items() if 0 < each[0] <= each[1]}
    return found


def write(path: str, what: AppliedFile) -> str:
    """Write it, and return what went wrong; empty: nothing, or no file is wanted."""
    if not path:
        return ""
    try:
        replace_file(path, msgspec.json.encode(what))
    except OSError as error:
        return (
            f"{path} cannot be written ({error.strerror}): after a restart, some best-effort jobs "
            "keep the node count, node list or site factor that rtsched set; "
            "make it writable, or set "
            'memory = "" in [slurm]'
        )
    return ""


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
    marks : dict of job id to str
        The admin comments of promised jobs that wait, as the last poll showed them.
    overwritten : dict of job id to str
        Those in whose place somebody has written another one.
    shapes : dict of job id to (int, float)
        The node count and time limit, seconds, that a promised job was planned with last.
    deadlines : dict of job id to float
        Those that were taken from jobs that run without a promise, seconds since the epoch.
    no_weights : bool
        Slurm refuses weights to this user.
    """

    factors: dict[int, int] = field(default_factory=dict)
    ranges: dict[int, tuple[int, int]] = field(default_factory=dict)
    sent: dict[int, tuple[str, float]] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    marks: dict[int, str] = field(default_factory=dict)
    overwritten: dict[int, str] = field(default_factory=dict)
    shapes: dict[int, tuple[int, float]] = field(default_factory=dict)
    deadlines: dict[int, float] = field(default_factory=dict)
    no_weights: bool = False

    @classmethod
    def of(cls, kept: AppliedFile) -> LastApplied:
        """Return what a process knows that follows another one."""
        return cls(
            dict(kept.factors),
            dict(kept.ranges),
            dict(kept.sent),
            overwritten=dict(kept.marks),
            shapes=dict(kept.shapes),
            deadlines=dict(kept.deadlines),
        )

    def kept(self) -> AppliedFile:
        """Return what the next process must know."""
        return AppliedFile(
            dict(self.ranges),
            dict(self.sent),
            dict(self.factors),
            dict(self.overwritten),
            dict(self.shapes),
            dict(self.deadlines),
        )

    def restore_marks(self, rows: JobRows) -> None:
        """Write into rows of waiting jobs the admissions over which admins wrote comments.

        An admin comment is for admins, and does not end a promise.
        """
        waits = rows.state.map(WAITING.__contains__, np.bool_)
        marked = waits & rows.mark.map(is_admitted, np.bool_)
        known = self.marks | self.overwritten
        self.marks = {int(rows.id[at]): rows.mark[at] for at in np.flatnonzero(marked).tolist()}
        self.overwritten = {}
        for at in np.flatnonzero(waits & ~marked).tolist() if known else ():
            mark = known.get(int(rows.id[at]), "")
            if mark and not rows.mark[at].startswith(MARK):
                rows.mark[at] = self.overwritten[int(rows.id[at])] = mark

    def restore_deadlines(self, rows: JobRows) -> None:
        """Write into rows of jobs without a promise the deadlines that were taken from them.

        One that was held until it was evaluated is marked as others are.
        """
        rows.deadline[rows.deadline >= NO_DEADLINE] = math.nan
        marked = np.flatnonzero(rows.mark.map(is_unpromised, np.bool_)).tolist()
        for at in marked:
            rows.deadline[at] = deadline_in(rows.mark[at])
        if not self.deadlines:
            return
        for at in np.flatnonzero(np.isin(rows.id, list(self.deadlines))).tolist():
            if math.isnan(rows.deadline[at]):
                rows.deadline[at] = self.deadlines[int(rows.id[at])]
                if is_deferred(rows.mark[at]):
                    rows.mark[at] = rows.mark[at].replace(DEFERRED, UNPROMISED, 1)

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
            if each.command.deadline is not None:
                kept.deadlines[each.job] = each.command.deadline
        return kept

    def keep_only(self, jobs: set[int], unshown: set[int]) -> None:
        """Forget all other jobs; `unshown` are those of which Slurm shows no highest node count."""
        self.counts = {job: count for job, count in self.counts.items() if job in unshown}
        self.factors = {job: value for job, value in self.factors.items() if job in jobs}
        self.ranges = {job: value for job, value in self.ranges.items() if job in jobs}
        self.sent = {job: value for job, value in self.sent.items() if job in jobs}
        self.shapes = {job: value for job, value in self.shapes.items() if job in jobs}
        self.deadlines = {job: value for job, value in self.deadlines.items() if job in jobs}

    def remember(self, done: Done, now: float) -> None:
        """Keep in mind what was carried out, at `now`, and cannot be read back."""
        if not isinstance(done.change.command, Command):
            return
        job, command = done.change.job, done.change.command
        words = _words(command)
        if done.change.kind == "set-node-weight" and done.outcome == "refused":
            self.no_weights = True
        if done.outcome != "done":
            return
        if "SiteFactor" in words:
            self.factors[job] = int(words["SiteFactor"])
        if "Nice" in words:
            self.factors[job] = -int(words["Nice"])
        if command.deadline is not None:
            self.deadlines[job] = command.deadline
        if command.before is not None:
            self.ranges[job] = command.before
        elif "NumNodes" in words:
            self.counts[job] = int(words["NumNodes"].partition("-")[0])
        if command.returns:
            self.shapes[job] = RETURNED
        elif job in self.shapes:
            nodes, limit = self.shapes[job]
            nodes = int(words.get("NumNodes", f"{nodes}").partition("-")[0])
            self.shapes[job] = nodes, float(words.get("TimeLimit", limit / 60.0)) * 60.0
        if words.get("ReqNodeList"):
            self.sent[job] = (words["ReqNodeList"], now)


def _words(command: Command) -> dict[str, str]:
    """Return what a command sets."""
    return dict(word.partition("=")[::2] for word in command.words[2:])
