"""Memory from one cycle to the next: what was asked of Slurm, and what its last poll showed.

Slurm shows only the last node count and node list that were set, and no site factor. What was asked
for is kept in a file too: without it a process that follows this one would take them for what users
asked for, and jobs would wait for just so many nodes, or for one node, for ever. What a poll showed
is kept up with what was changed since.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from rtsched.adapters.files import replace_file
from rtsched.adapters.slurm.commands import Command
from rtsched.adapters.slurm.observation import deadline_in, is_admitted, is_deferred, is_unpromised
from rtsched.adapters.slurm.reserving import RETURNED
from rtsched.adapters.slurm.rows import NO_DEADLINE, WAITING, ReservationRow, words_of
from rtsched.adapters.slurm.submission import DEFERRED, MARK, UNPROMISED
from rtsched.logs.hostlist import names_of
from rtsched.logs.slurm_text import licenses_in
from rtsched.model.snapshot import are_in
from rtsched.model.table import amounts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rtsched.adapters.live import Change, Done, Observation
    from rtsched.adapters.slurm.facts import SlurmFacts
    from rtsched.adapters.slurm.rows import JobRows

UNSURE = 1 << 40
"""In place of a site factor that was being set when the process ended."""


class AppliedFile(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What was asked for, by job id, as the next process must know it.

    Attributes
    ----------
    ranges : dict of int to (int, int)
        Fewest and most nodes that a best-effort job's user asked for, before another count was set.
    sent : dict of int to (str, float)
        The node that a best-effort job was sent to, and when, in seconds since the epoch.
    factors : dict of int to int
        The site factor, or Nice below zero under priority/basic; `UNSURE`: nobody knows.
    overwritten : dict of int to str
        Our part of the admin comment of promised jobs of which somebody else wrote another one.
    shapes : dict of int to (int, float)
        Node count and time limit, seconds, that a promised job was planned with last; `RETURNED`:
        it has its own again.
    deadlines : dict of int to float
        The deadline that was taken from a job, which runs without a promise, seconds since the
        epoch.
    """

    ranges: dict[int, tuple[int, int]] = {}
    sent: dict[int, tuple[str, float]] = {}
    factors: dict[int, int] = {}
    overwritten: dict[int, str] = msgspec.field(name="marks", default_factory=dict)
    shapes: dict[int, tuple[int, float]] = {}
    deadlines: dict[int, float] = {}

    def kept(self) -> AppliedFile:
        """Return what the next process must know."""
        return AppliedFile(**_copied(self))

    def note(self, job: int, command: Command, now: float) -> None:
        """Keep in mind what a command, carried out at `now`, takes the place of."""
        if command.before is not None:
            self.ranges[job] = command.before
        if command.deadline is not None:
            self.deadlines[job] = command.deadline
        if nodes := command.pairs.get("ReqNodeList"):
            self.sent[job] = nodes, now


def _copied(kept: AppliedFile) -> dict[str, Any]:
    return {name: dict(getattr(kept, name)) for name in AppliedFile.__struct_fields__}


def read(path: str) -> AppliedFile:
    """Return what a file keeps; nothing where it is missing or damaged."""
    if not path:
        return AppliedFile()
    try:
        found = msgspec.json.decode(Path(path).read_bytes(), type=AppliedFile)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return AppliedFile()
    found.ranges = {job: each for job, each in found.ranges.items() if 0 < each[0] <= each[1]}
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


class LastApplied(AppliedFile):
    """What the adapter has asked Slurm for and cannot read back.

    Attributes
    ----------
    counts : dict of job id to int
        The node counts that promised jobs were given of which Slurm shows no highest one.
    admitted : dict of job id to str
        The admin comments of promised jobs that wait, as the last poll showed them.
    shown : dict of job id to int
        The priority that Slurm showed when the job's site factor was changed to exchange places; if
        it is the same afterwards, site factors do not change it.
    no_weights : bool
        Slurm refuses weights to this user.
    """

    counts: dict[int, int] = {}
    admitted: dict[int, str] = {}
    shown: dict[int, int] = {}
    no_weights: bool = False

    @classmethod
    def of(cls, kept: AppliedFile) -> LastApplied:
        """Return what a process knows that follows another one."""
        return cls(**_copied(kept))

    def restore_marks(self, rows: JobRows) -> None:
        """Write into rows of waiting jobs the admissions over which admins wrote comments.

        An admin comment is for admins, and does not end a promise.
        """
        waits = rows.state.map(WAITING.__contains__, np.bool_)
        marked = waits & rows.mark.map(is_admitted, np.bool_)
        known = self.admitted | self.overwritten
        self.admitted = {int(rows.id[at]): rows.mark[at] for at in np.flatnonzero(marked).tolist()}
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
        for at in np.flatnonzero(are_in(rows.id, list(self.deadlines))).tolist():
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
            kept.note(each.job, each.command, now)
            if each.command.pairs.keys() & {"SiteFactor", "Nice"}:
                kept.factors[each.job] = UNSURE
        return kept

    def keep_only(self, jobs: set[int], unshown: set[int]) -> None:
        """Forget all other jobs; `unshown` are those of which Slurm shows no highest node count."""
        self.counts = {job: count for job, count in self.counts.items() if job in unshown}
        for name in ("factors", "ranges", "sent", "shapes", "deadlines", "shown"):
            known = getattr(self, name).items()
            setattr(self, name, {job: value for job, value in known if job in jobs})

    def remember(self, done: Done, now: float) -> None:
        """Keep in mind what was carried out, at `now`, and cannot be read back."""
        if not isinstance(done.change.command, Command):
            return
        job, command = done.change.job, done.change.command
        words = command.pairs
        if done.change.kind == "set-node-weight" and done.outcome == "refused":
            self.no_weights = True
        if done.outcome != "done":
            return
        if "SiteFactor" in words:
            self.factors[job] = int(words["SiteFactor"])
        if "Nice" in words:
            self.factors[job] = -int(words["Nice"])
        self.note(job, command, now)
        if command.before is None and "NumNodes" in words:
            self.counts[job] = int(words["NumNodes"].partition("-")[0])
        if command.returns:
            self.shapes[job] = RETURNED
        elif job in self.shapes:
            nodes, limit = self.shapes[job]
            nodes = int(words.get("NumNodes", f"{nodes}").partition("-")[0])
            self.shapes[job] = nodes, float(words.get("TimeLimit", limit / 60.0)) * 60.0


_COLUMNS = {
    "ReservationName": "reservation",
    "Comment": "comment",
    "ReqNodeList": "required",
    "ExcNodeList": "excluded",
}


@dataclass
class SlurmState:
    """What the last poll showed, and was changed since, as changes are worked out from it.

    Attributes
    ----------
    rows : JobRows
        All jobs.
    observation : Observation
        As the daemon has it; `held` whose jobs wait for a release.
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
    requeued : dict of int to dict of str to float
        Promised jobs that Slurm puts off after it queued them again (see `requeued_parts`).
    """

    rows: JobRows
    observation: Observation
    facts: SlurmFacts
    names: tuple[str, ...]
    reservations: Sequence[ReservationRow]
    now: float
    held: set[int] = field(default_factory=set)
    weights: dict[str, int] = field(default_factory=dict)
    comments: dict[int, str] = field(default_factory=dict)
    requeued: dict[int, dict[str, float]] = field(default_factory=dict)

    def comment(self, job: int) -> str:
        """Return a job's comment as it will be when the changes so far are carried out."""
        return self.comments.get(job, self.rows.comment[self.place[job]])

    @cached_property
    def place(self) -> dict[int, int]:
        """Row of all jobs by job id."""
        return {job: at for at, job in enumerate(self.rows.id.tolist())}

    @cached_property
    def queued(self) -> dict[int, int]:
        """Row of the daemon's queue by job id."""
        return {job: at for at, job in enumerate(self.observation.queued.id.tolist())}

    @cached_property
    def licensed(self) -> frozenset[int]:
        """The waiting jobs that need licences."""
        queued = self.observation.queued
        amounts = amounts_of(queued, "demand", tuple(self.observation.cluster.licenses))
        return frozenset(queued.id[amounts.any(axis=1)].tolist())

    def __post_init__(self) -> None:
        self.held = set(self.observation.marks.job[self.observation.marks.held].tolist())


def applied(view: SlurmState, command: Command) -> None:
    """Write into the state what a command that Slurm carried out has changed."""
    words = command.pairs
    if "StartTime" in words and "JobId" in words:
        for parts in view.requeued.values():
            parts.pop(words["JobId"], None)
    elif "JobId" in words:
        _job(view, view.place.get(int(words["JobId"]), -1), words)
    elif "ReservationName" in words:
        _reservation(view, words, deleted=command.words[1] == "delete")
    elif "Weight" in words:
        view.weights |= dict.fromkeys(names_of(words["NodeName"]), int(words["Weight"]))
    elif command.words[1] in {"hold", "release"}:
        held = command.words[1] == "hold"
        (view.held.add if held else view.held.discard)(int(command.words[2]))


def _job(view: SlurmState, row: int, words: dict[str, str]) -> None:
    """Change the row of a job."""
    if row < 0:
        return
    for word, column in _COLUMNS.items():
        if word in words:
            getattr(view.rows, column)[row] = words[word]
    if "NumNodes" in words:
        least, _, most = words["NumNodes"].partition("-")
        view.rows.min_nodes[row], view.rows.max_nodes[row] = int(least), int(most or least)
    if "Priority" in words:
        view.rows.priority[row] = int(words["Priority"])
    if "TimeLimit" in words:
        view.rows.limit[row] = int(words["TimeLimit"]) * 60.0


def _reservation(view: SlurmState, words: dict[str, str], *, deleted: bool) -> None:
    """Make, change or delete a reservation."""
    name = words["ReservationName"]
    others = [row for row in view.reservations if row.name != name]
    found = [row for row in view.reservations if row.name == name]
    if not deleted:
        row = found[0] if found else ReservationRow(name, math.nan, math.nan, (), (), ())
        others.append(_changed(row, words, view.now))
    view.reservations = others


def _changed(row: ReservationRow, words: dict[str, str], now: float) -> ReservationRow:
    """Return a reservation after an update."""
    meanings: dict[str, tuple[str, Callable[[str], Any]]] = {
        "StartTime": ("start", lambda text: _moment(text, now)),
        "EndTime": ("end", lambda text: _moment(text, now)),
        "Nodes": ("nodes", lambda text: tuple(names_of(text))),
        "Users": ("users", words_of),
        "Licenses": ("licenses", licenses_in),
    }
    found = {name: read(words[word]) for word, (name, read) in meanings.items() if word in words}
    return replace(row, **found)


def _moment(text: str, now: float) -> float:
    """Return the time that `advance_reservations.written` wrote."""
    return now if text == "now" else float(text.removeprefix("uts"))
