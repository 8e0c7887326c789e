"""What scontrol and scancel are told, in which order, and what their answers mean.

Source: manual pages scontrol, scancel; the texts of refusals are those of Slurm 24.11 and 26.05.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from rtsched.adapters import changes as shared
from rtsched.adapters.live import Change, Done, Outcome
from rtsched.errors import AdapterError
from rtsched.logs.hostlist import fold, names_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rtsched.adapters.changes import Reply
    from rtsched.adapters.slurm.commands import CommandRunner
    from rtsched.adapters.slurm.rows import JobRows

FIRST_FACTOR = 1 << 29
"""Site factors have 32 bits, with an offset."""

TOP_NICE = 60_000

FIRST_PRIORITY = 4_000_000_000
"""Of a job that is planned to start at `FIRST_START`; no job without a promise comes near."""
LAST_PRIORITY = 3_000_000_000
FIRST_START = 1_600_000_000.0
"""Seconds since the epoch."""


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
    returns : bool
        Whether this gives a job the node count and time limit back that its user asked for.
    deadline : float or None
        The job's deadline, seconds since the epoch, where this takes it from the job.
    """

    rank: Rank
    words: tuple[str, ...]
    before: tuple[int, int] | None = None
    nodes: tuple[str, ...] = ()
    returns: bool = False
    deadline: float | None = None


_SAFE = re.compile(r"[A-Za-z0-9_.,:=@\[\]+*/-]+", re.ASCII)
_REFUSED = ("permission denied", "invalid user id", "access denied", "not permitted", "disabled")


def change(
    kind: str, job: int, text: str, rank: Rank, *words: str, nodes: tuple[str, ...] = ()
) -> Change:
    """Return a change that runs one command."""
    return Change(kind, job, text, Command(rank, words, nodes=nodes))


def job_update(kind: str, job: int, text: str, rank: Rank, *words: str) -> Change:
    """Return a change that sets something of a job."""
    return change(kind, job, text, rank, "scontrol", "update", f"JobId={job}", *words)


def only_waiting(rows: JobRows, at: int, rank: Rank = Rank.SIZE) -> str:
    """Return a word with which Slurm refuses an update of a job that has started meanwhile.

    Without it, NumNodes makes a running job smaller. It is the job's own list of excluded nodes,
    written otherwise than now, and than in its updates of other ranks: of a running job Slurm takes
    only exactly the text that it has (`_update_job` in src/slurmctld/job_mgr.c).
    """
    text = rows.excluded[at]
    names = names_of(text)
    texts = [",".join([fold(names), *names[:1] * more]) for more in range(3)] if names else [""]
    others = [other for other in texts if other != text] or texts
    return f"ExcNodeList={others[0 if rank == Rank.SIZE else -1]}"


def deletion(reservation: str, rank: Rank, why: str = "", nodes: tuple[str, ...] = ()) -> Change:
    """Return the change that deletes a reservation, which keeps these nodes."""
    text = f"delete reservation {reservation}{why}"
    words = ("scontrol", "delete", f"ReservationName={reservation}")
    return change("reserve", -1, text, rank, *words, nodes=nodes)


def priority_argument(factor: int, basic: bool) -> str:
    """Return what puts a job forward by so much: its site factor, or Nice under priority/basic.

    There priorities begin just below 2^32, and Nice that would lift one above that is lost.
    """
    return f"Nice={-factor}" if basic else f"SiteFactor={factor}"


def highest(basic: bool) -> int:
    """Return the largest factor that a job can be given."""
    return TOP_NICE if basic else FIRST_FACTOR


def promised_factor(deadline: float, basic: bool) -> int:
    """Return the factor of a promised job on whole nodes, by its deadline, seconds since the epoch.

    It comes before all jobs without a promise; the earlier its deadline, the larger.
    """
    return min(FIRST_FACTOR - int(deadline // 60.0), highest(basic))


def promised_priority(start: float) -> int:
    """Return the priority of a job that is planned to start then, seconds since the epoch.

    The earlier a planned start, the higher: what Slurm keeps for a job with a higher priority it
    does not give to one with a lower priority.
    """
    return max(FIRST_PRIORITY - int(max(start - FIRST_START, 0.0)), LAST_PRIORITY)


def rank_of(asked: Change) -> int:
    """Return when it is a change's turn; what cannot be done comes last."""
    return asked.command.rank if isinstance(asked.command, Command) else len(Rank)


def batchable(command: Command) -> bool:
    """Return whether scontrol can read a command from its standard input unchanged."""
    return command.words[0] == "scontrol" and all(_SAFE.fullmatch(word) for word in command.words)


def carried_out(commands: CommandRunner, changes: Sequence[Change]) -> list[Done]:
    """Return what became of each change, in the order given."""
    asked = [(each.command,) if isinstance(each.command, Command) else () for each in changes]
    return shared.carried_out(
        changes, asked, lambda turn: _run(commands, turn), _held_back, "Slurm"
    )


def _held_back(turn: Sequence[tuple[int, Command]], failed: Sequence[Command]) -> Mapping[int, str]:
    """Return which reservations are not deleted, since what is to follow them is not there."""
    made = {Rank.UPDATE, Rank.CREATE}
    bare = {name for command in failed if command.rank in made for name in command.nodes}
    return {
        at: "kept until its replacement exists"
        for at, command in turn
        if command.rank == Rank.DELETE and not bare.isdisjoint(command.nodes)
    }


def _run(
    commands: CommandRunner, turn: Sequence[tuple[int, Command]]
) -> Iterator[tuple[int, Reply]]:
    """Yield what became of commands of one rank: many in one process where possible."""
    together = [(at, command) for at, command in turn if batchable(command)]
    try:
        said = commands.batch([" ".join(command.words[1:]) for _, command in together])
        for (at, _), text in zip(together, said, strict=True):
            yield at, reply_of(text)
    except AdapterError as error:
        for at, _ in together:
            yield at, ("failed", str(error))
    for at, command in turn:
        if batchable(command):
            continue
        program, *words = command.words
        try:
            answer = commands.run(program, *words)
            text = " ".join(answer.errors.split()) or f"exit status {answer.status}"
            yield at, reply_of(text if answer.status else "")
        except AdapterError as error:
            yield at, ("failed", str(error))


def reply_of(complaint: str) -> Reply:
    """Return what became of a command about which Slurm said this; nothing: it is done."""
    return outcome_of(complaint), complaint[:400]


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
