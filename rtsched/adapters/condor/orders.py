"""What HTCondor is asked to do, in which order, and what its answers mean."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from rtsched.adapters.live import Change, Done, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rtsched.adapters.condor.table import SlotTable

Reply = tuple[Outcome, str]
Deed = Literal["Hold", "Release", "Remove", "Vacate", "VacateFast"]

UNDEFINED = "undefined"
"""Value of an attribute that is taken away."""


class Rank(IntEnum):
    """What comes first. No two jobs are ever bound to one slot between two steps."""

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
    """A job is removed or vacated, after its user was told why."""
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

    deed: Deed
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


Step: TypeAlias = Edit | Act | Publish | SetFactor | Negotiate


class Hands(Protocol):
    """What can be done to a pool; see `pool.Pool`."""

    def edit(self, jobs: Sequence[int], attribute: str, value: str) -> list[Reply]:
        """Set an attribute of jobs; return one reply per job."""

    def act(self, deed: Deed, jobs: Sequence[int], reason: str = "") -> Reply:
        """Do something with jobs."""

    def set_factors(self, factors: Mapping[str, float]) -> dict[str, Reply]:
        """Set priority factors by submitter."""

    def reschedule(self) -> Reply:
        """Ask for a negotiation soon."""


def change(kind: str, job: int, text: str, *steps: Step) -> Change:
    """Return a change that takes these steps."""
    return Change(kind, job, text, steps)


def carried_out(
    hands: Hands, publish: Callable[[SlotTable], Reply], changes: Sequence[Change]
) -> list[Done]:
    """Return what became of each change, in the order given.

    The steps of a change follow one another by rank, and end with the first one that fails. No job
    is bound while another could not be unbound.
    """
    replies: list[Reply] = [
        ("done", "") if each.order else ("unsupported", "HTCondor's adapter cannot do this")
        for each in changes
    ]
    for rank in Rank:
        taken = rank > Rank.TAKE and any(
            reply[0] not in {"done", "unsupported"} and _takes(each)
            for reply, each in zip(replies, changes, strict=True)
        )
        steps = list(_steps(changes, replies, rank))
        if rank == Rank.BIND and taken:
            for at, _ in steps:
                replies[at] = ("failed", "not bound while another job could not be unbound")
            continue
        for at, reply in _one_rank(hands, publish, steps):
            if reply[0] != "done":
                replies[at] = reply
    return [Done(each, *reply) for each, reply in zip(changes, replies, strict=True)]


def _takes(each: Change) -> bool:
    return any(step.rank == Rank.TAKE for step in each.order or ())


def _steps(
    changes: Sequence[Change], replies: Sequence[Reply], rank: Rank
) -> Iterator[tuple[int, Step]]:
    """Yield the steps of one rank of the changes that went well so far, and whose they are."""
    for at, each in enumerate(changes):
        if replies[at][0] == "done":
            for step in each.order:
                if step.rank == rank:
                    yield at, step


def _one_rank(
    hands: Hands, publish: Callable[[SlotTable], Reply], steps: Sequence[tuple[int, Step]]
) -> Iterator[tuple[int, Reply]]:
    """Yield what became of steps of one rank; equal edits are one request."""
    edits: dict[tuple[str, str], list[tuple[int, int]]] = {}
    factors: dict[str, tuple[int, float]] = {}
    for at, step in steps:
        if isinstance(step, Edit):
            same = edits.setdefault((step.attribute, step.value), [])
            same += [(at, job) for job in step.jobs]
        elif isinstance(step, SetFactor):
            factors[step.submitter] = (at, step.factor)
        elif isinstance(step, Act):
            yield from ((at, hands.act(step.deed, [job], step.reason)) for job in step.jobs)
        elif isinstance(step, Publish):
            yield at, publish(step.table)
        else:
            yield at, hands.reschedule()
    for (attribute, value), rows in edits.items():
        answers = hands.edit([job for _, job in rows], attribute, value)
        yield from ((at, reply) for (at, _), reply in zip(rows, answers, strict=True))
    if factors:
        said = hands.set_factors({name: factor for name, (_, factor) in factors.items()})
        yield from ((at, said[name]) for name, (at, _) in factors.items())
