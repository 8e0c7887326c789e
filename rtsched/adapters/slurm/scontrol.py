"""What scontrol and scancel are told, in which order, and what their answers mean.

Source: manual pages scontrol, scancel; the texts of refusals are those of Slurm 24.11 and 26.05.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from rtsched.adapters.live import Change, Done, Outcome
from rtsched.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rtsched.adapters.slurm.commands import CommandRunner


ONLY_WAITING = "ExcNodeList="
"""With this word Slurm refuses an update of a job that has started meanwhile; without it, NumNodes
makes a running job smaller. Jobs that exclude nodes are given no size."""

FIRST_FACTOR = 1 << 29
"""Site factors have 32 bits, with an offset."""

TOP_NICE = 60_000


class Rank(IntEnum):
    """What comes first. Nodes are never left unguarded between two commands."""

    LEAVE = 0
    """A job leaves a reservation."""
    RENEW = 1
    """A reservation is deleted, to be made anew."""
    UPDATE = 2
    CREATE = 3
    SIZE = 4
    BIND = 5
    """A job enters a reservation."""
    DELETE = 6
    """A reservation that is no longer needed is deleted."""
    JOB = 7
    """Anything else about a job."""
    END = 8
    """A job is cancelled or queued again, after its user was told why."""
    NODE = 9


@dataclass(frozen=True)
class Command:
    """A command.

    Attributes
    ----------
    rank : Rank
        When it is its turn.
    words : tuple of str
        Command and arguments.
    before : (int, int) or None
        The node counts that the job's user asked for, where this sets another.
    nodes : tuple of str
        Names of the nodes that a reservation keeps, where this makes, changes or deletes one.
    """

    rank: Rank
    words: tuple[str, ...]
    before: tuple[int, int] | None = None
    nodes: tuple[str, ...] = ()


_SAFE = re.compile(r"[A-Za-z0-9_.,:=@\[\]+*/-]+", re.ASCII)
_REFUSED = ("permission denied", "invalid user id", "access denied", "not permitted", "disabled")


def change(
    kind: str, job: int, text: str, rank: Rank, *words: str, nodes: tuple[str, ...] = ()
) -> Change:
    """Return a change that runs one command."""
    return Change(kind, job, text, Command(rank, words, nodes=nodes))


def priority_argument(factor: int, basic: bool) -> str:
    """Return what puts a job forward by so much: its site factor, or Nice under priority/basic.

    There priorities begin just below 2^32, and Nice that would lift one above that is lost.
    """
    return f"Nice={-factor}" if basic else f"SiteFactor={factor}"


def highest(basic: bool) -> int:
    """Return the largest factor that a job can be given."""
    return TOP_NICE if basic else FIRST_FACTOR


def rank_of(asked: Change) -> int:
    """Return when it is a change's turn; what cannot be done comes last."""
    return asked.command.rank if isinstance(asked.command, Command) else len(Rank)


def batchable(command: Command) -> bool:
    """Return whether scontrol can read a command from its standard input unchanged."""
    return command.words[0] == "scontrol" and all(_SAFE.fullmatch(word) for word in command.words)


def carried_out(commands: CommandRunner, changes: Sequence[Change]) -> list[Done]:
    """Return what became of each change, in the order given.

    A reservation is kept where one that is to keep its nodes could not be made or changed.
    """
    done: dict[int, Done] = {}
    ranks: dict[Rank, list[int]] = {}
    for at, each in enumerate(changes):
        if isinstance(each.command, Command):
            ranks.setdefault(each.command.rank, []).append(at)
        else:
            done[at] = Done(each, "unsupported", "not supported on Slurm")
    for rank in sorted(ranks):
        if rank == Rank.DELETE:
            done |= _kept(changes, ranks[rank], done)
        left = [at for at in ranks[rank] if at not in done]
        done |= _one_rank(commands, changes, left)
    return [done[at] for at in range(len(changes))]


def _kept(
    changes: Sequence[Change], places: Iterable[int], done: Mapping[int, Done]
) -> dict[int, Done]:
    """Return which reservations are not deleted, since what is to follow them is not there."""
    bare = {
        name
        for each in done.values()
        if each.outcome != "done" and isinstance(each.change.command, Command)
        if each.change.command.rank in {Rank.UPDATE, Rank.CREATE}
        for name in each.change.command.nodes
    }
    return {
        at: Done(changes[at], "failed", "kept until its replacement exists")
        for at in places
        if not bare.isdisjoint(changes[at].command.nodes)
    }


def _one_rank(
    commands: CommandRunner, changes: Sequence[Change], places: Iterable[int]
) -> dict[int, Done]:
    """Return what became of changes of one rank, by place: many in one process where possible."""
    together = [at for at in places if batchable(changes[at].command)]
    single = [at for at in places if not batchable(changes[at].command)]
    done = {}
    try:
        said = commands.batch([" ".join(changes[at].command.words[1:]) for at in together])
        done = {at: result(changes[at], text) for at, text in zip(together, said, strict=True)}
    except AdapterError as error:
        done = {at: Done(changes[at], "failed", str(error)) for at in together}
    for at in single:
        program, *words = changes[at].command.words
        try:
            answer = commands.run(program, *words)
            text = " ".join(answer.errors.split()) or f"exit status {answer.status}"
            done[at] = result(changes[at], text if answer.status else "")
        except AdapterError as error:
            done[at] = Done(changes[at], "failed", str(error))
    return done


def result(asked: Change, complaint: str) -> Done:
    """Return what became of a change about which Slurm said this; nothing: it is done."""
    return Done(asked, outcome_of(complaint), complaint[:400])


def outcome_of(complaint: str) -> Outcome:
    """Return what a complaint means.

    `refused` is what Slurm would say again however often it is asked. Whatever depends on the state
    of jobs, nodes and controller is `failed`: the next poll may ask for something else.
    """
    text = complaint.lower()
    if not text:
        return "done"
    if any(words in text for words in _REFUSED):
        return "refused"
    return "failed"
