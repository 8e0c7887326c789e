"""What the last poll of a Slurm showed, kept up with what was changed since.

Until the next poll it is the truth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from rtsched.adapters.slurm.rows import ReservationRow, words_of
from rtsched.logs.hostlist import names_of
from rtsched.logs.slurm_text import licenses_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rtsched.adapters.live import Observation
    from rtsched.adapters.slurm.facts import SlurmFacts
    from rtsched.adapters.slurm.rows import JobRows
    from rtsched.adapters.slurm.scontrol import Command

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

    def __post_init__(self) -> None:
        self.held = set(self.observation.marks.job[self.observation.marks.held].tolist())


def applied(view: SlurmState, command: Command) -> None:
    """Write into the state what a command that Slurm carried out has changed."""
    words = dict(word.partition("=")[::2] for word in command.words)
    if "StartTime" in words and "JobId" in words:
        for parts in view.requeued.values():
            parts.pop(words["JobId"], None)
    elif "JobId" in words:
        _job(view, view.place.get(int(words["JobId"]), -1), words)
    elif "ReservationName" in words:
        _reservation(view, words, deleted="delete" in words)
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
    if "StartTime" in words:
        row = replace(row, start=_moment(words["StartTime"], now))
    if "EndTime" in words:
        row = replace(row, end=_moment(words["EndTime"], now))
    if "Nodes" in words:
        row = replace(row, nodes=tuple(names_of(words["Nodes"])))
    if "Users" in words:
        row = replace(row, users=words_of(words["Users"]))
    if "Licenses" in words:
        row = replace(row, licenses=licenses_in(words["Licenses"]))
    return row


def _moment(text: str, now: float) -> float:
    """Return the time that `advance_reservations.written` wrote."""
    return now if text == "now" else float(text.removeprefix("uts"))
