"""Commands to HTCondor: their order, what its answers mean, and what was asked of it last."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Literal, TypeAlias

from rtsched.adapters import changes as shared
from rtsched.adapters.live import Change, Done

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rtsched.adapters.changes import Reply
    from rtsched.adapters.condor.pool import Pool
    from rtsched.adapters.condor.table import SlotTable, Steps


JobAction = Literal["Hold", "Release", "Remove", "Vacate", "VacateFast"]

UNDEFINED = "undefined"
"""Value of an attribute that is taken away."""


class Rank(IntEnum):
    """What comes first. No two jobs are ever bound to one slot between two commands."""

    TABLE = 0
    TAKE = 1
    """A node set is taken back."""
    MARK = 2
    """What a job must carry before it may start."""
    BIND = 3
    """A node set is given."""
    JOB = 4
    """Anything else about a job."""
    END = 5
    """A job is removed or vacated, after its user was given the reason."""
    USER = 6
    NEGOTIATE = 7


@dataclass(frozen=True)
class Edit:
    """An attribute that jobs get: `jobs` are cluster and proc in one, `value` an expression."""

    rank: Rank
    jobs: tuple[int, ...]
    attribute: str
    value: str


def priority_edits(job: int, wanted: int, present: int, own: int | None) -> tuple[Edit, ...]:
    """Return the edits that give a job this JobPrio; none where all is so.

    RtJobPrio keeps what its user gave it, from before rtsched changes it until it is so again: a
    daemon that was started anew would take ours for the user's.

    Parameters
    ----------
    job : int
        Cluster and proc in one.
    wanted, present : int
        JobPrio.
    own : int or None
        RtJobPrio; None: there is none.
    """
    if wanted != present:
        mark = () if own is not None else (Edit(Rank.MARK, (job,), "RtJobPrio", str(present)),)
        return (*mark, Edit(Rank.JOB, (job,), "JobPrio", str(wanted)))
    return (Edit(Rank.JOB, (job,), "RtJobPrio", UNDEFINED),) if own == wanted else ()


@dataclass(frozen=True)
class Act:
    """Something that is done with jobs, and why."""

    action: JobAction
    jobs: tuple[int, ...]
    reason: str = ""
    rank: Rank = Rank.END


@dataclass(frozen=True)
class Publish:
    """A new table of slots."""

    table: SlotTable
    rank: Rank = Rank.TABLE


@dataclass(frozen=True)
class SetFactor:
    """The priority factor of a submitter."""

    submitter: str
    factor: float
    rank: Rank = Rank.USER


@dataclass(frozen=True)
class Negotiate:
    """A negotiation soon."""

    rank: Rank = Rank.NEGOTIATE


Command: TypeAlias = Edit | Act | Publish | SetFactor | Negotiate


def change(kind: str, job: int, text: str, *commands: Command) -> Change:
    """Return a change that takes these commands."""
    return Change(kind, job, text, commands)


def carried_out(
    pool: Pool, publish: Callable[[SlotTable], Reply], changes: Sequence[Change]
) -> list[Done]:
    """Return what became of each change, in the order given.

    No job is bound while another could not be unbound.
    """
    commands = [each.command or () for each in changes]
    return shared.carried_out(
        changes, commands, lambda turn: _run(pool, publish, turn), _held_back, "HTCondor"
    )


def _held_back(turn: Sequence[tuple[int, Command]], failed: Sequence[Command]) -> Mapping[int, str]:
    """Return which jobs are not bound, since others could not be unbound."""
    if all(command.rank != Rank.TAKE for command in failed):
        return {}
    why = "not bound, because another job could not be unbound"
    return {at: why for at, command in turn if command.rank == Rank.BIND}


def _run(
    pool: Pool, publish: Callable[[SlotTable], Reply], commands: Sequence[tuple[int, Command]]
) -> Iterator[tuple[int, Reply]]:
    """Yield what became of the commands of one rank; equal edits are one request."""
    edits: dict[tuple[str, str], list[tuple[int, int]]] = {}
    factors: dict[str, tuple[int, float]] = {}
    for at, command in commands:
        if isinstance(command, Edit):
            same = edits.setdefault((command.attribute, command.value), [])
            same += [(at, job) for job in command.jobs]
        elif isinstance(command, SetFactor):
            factors[command.submitter] = (at, command.factor)
        elif isinstance(command, Act):
            for job in command.jobs:
                yield at, pool.act(command.action, job, command.reason)
        elif isinstance(command, Publish):
            yield at, publish(command.table)
        else:
            yield at, pool.reschedule()
    for (attribute, value), rows in edits.items():
        answers = pool.edit([job for _, job in rows], attribute, value)
        yield from ((at, reply) for (at, _), reply in zip(rows, answers, strict=True))
    if factors:
        outcomes = pool.set_factors({name: factor for name, (_, factor) in factors.items()})
        yield from ((at, outcomes[name]) for name, (at, _) in factors.items())


PATIENCE_S = 60.0
"""Seconds until a job that was told to end is told again."""

CLOSED_S = 2.0
"""Seconds after which what was being started on a slot when it was closed shows in a poll: the
library reads the table once a second."""

_ENDS = ("Remove", "Vacate", "VacateFast")


@dataclass
class LastApplied:
    """What was asked of HTCondor and cannot be read back.

    Attributes
    ----------
    table : SlotTable or None
        The table as it was written last, and `written` when, seconds since the epoch.
    kept : mapping of str to steps
        What the last plan keeps of slots, written or not.
    closed : dict of str to float
        By row of the cluster, since when no job but those of the plan may start on it, seconds
        since the epoch.
    delays : mapping of str to float
        Delay factors that a plug-in gave slots.
    negotiated : float
        When a negotiation was asked for last, seconds since the epoch.
    urged : dict of int to float
        When jobs were told to end, by cluster and proc in one, seconds since the epoch.
    no_factors : bool
        The negotiator lets this user set no priority factors.
    """

    table: SlotTable | None = None
    written: float = -math.inf
    kept: Mapping[str, Steps] = field(default_factory=dict)
    closed: dict[str, float] = field(default_factory=dict)
    delays: Mapping[str, float] = field(default_factory=dict)
    negotiated: float = -math.inf
    urged: dict[int, float] = field(default_factory=dict)
    no_factors: bool = False

    def keep_only(self, jobs: set[int]) -> None:
        """Forget all other jobs, cluster and proc in one."""
        self.urged = {job: value for job, value in self.urged.items() if job in jobs}

    def close(self, rows: Iterable[str], looked: float, now: float) -> set[str]:
        """Note which rows are closed from `now` on; return those that were when we looked.

        Both in seconds since the epoch.
        """
        self.closed = {row: self.closed.get(row, now) for row in rows}
        return {row for row, since in self.closed.items() if since + CLOSED_S <= looked}

    def urged_lately(self, job: int, now: float) -> bool:
        """Return whether a job was told to end a short while ago; cluster and proc in one."""
        return now - self.urged.get(job, -math.inf) < PATIENCE_S

    def remember(self, done: Done, now: float) -> None:
        """Keep in mind what became of a change of ours, at `now`, seconds since the epoch."""
        for step in done.change.command or ():
            if isinstance(step, SetFactor) and done.outcome == "refused":
                self.no_factors = True
            if isinstance(step, Negotiate):
                self.negotiated = now
            elif isinstance(step, Act) and step.action in _ENDS:
                self.urged |= dict.fromkeys(step.jobs, now)
            elif done.outcome != "done":
                continue
            elif isinstance(step, Publish):
                self.table, self.written = step.table, now
