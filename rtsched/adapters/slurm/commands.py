"""Slurm's own commands: those that show, and scontrol and scancel, their order and their answers.

They are argument lists, without a shell, with a time limit on each. `squeue` gives the jobs: it is
80 times as fast as JSON. What users write could hold any delimiter, so those used are random, and
reach squeue by its environment, which other users cannot read.

Source: manual pages squeue, scontrol, scancel; the texts of refusals are those of Slurm 24.11 and
26.05.
"""

from __future__ import annotations

import os
import re
import secrets
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from subprocess import CalledProcessError, TimeoutExpired
from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters import changes as shared
from rtsched.adapters.live import Change, Done, Outcome
from rtsched.adapters.programs import output_of, reason_of, run_program, text_of
from rtsched.adapters.slurm.route import JobReader, release_of
from rtsched.adapters.slurm.rows import (
    JobRows,
    NodeRow,
    ReservationRow,
    alive,
    extra_in,
    license_counts,
    node_rows,
    reservation_rows,
    text,
)
from rtsched.errors import AdapterError
from rtsched.logs.hostlist import fold, names_of
from rtsched.logs.slurm_limits import QOS_COLUMNS, SHOW_ASSOCIATIONS, SHOW_QOS
from rtsched.model.snapshot import are_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from subprocess import CompletedProcess

    from rtsched.adapters.changes import Reply
    from rtsched.adapters.slurm.settings import SlurmSettings

FEW = 20
"""So many jobs not seen before are read one by one in any case."""

LINES = 500
"""Commands that one scontrol process is given."""

_JOB_ID = b"\nJobId="
_JOB = re.compile(_JOB_ID + rb"\d{1,10} ")
_EXTRA = b"\n   Extra="
_PROMPT = "rtsched_mark_"
_NO_FIELD = re.compile(r"Invalid job format specification: (\S+)")
_NO_MESSAGE = re.compile(rf"invalid keyword: {_PROMPT}(\d+)")


@dataclass
class CommandRunner:
    """Slurm's commands.

    Parameters
    ----------
    settings : SlurmSettings
        Where they are, and how long each may take.
    """

    settings: SlurmSettings
    _seen: set[int] = field(default_factory=set)
    _extra: dict[int, str] = field(default_factory=dict)

    def run(
        self, name: str, *words: str, text: str | None = None, **variables: str
    ) -> CompletedProcess[str]:
        """Run one command; a failing one is no error here.

        Raises
        ------
        AdapterError
            If it cannot be started, or takes too long.
        """
        with self._failing(name) as program:
            return run_program(
                [program, *words], self.settings.command_timeout_s, text, _environment(variables)
            )

    def ask(self, name: str, *words: str, text: str | None = None, **variables: str) -> str:
        """Return what a command prints.

        Raises
        ------
        AdapterError
            If it fails, as when the controller does not answer.
        """
        result = self.run(name, *words, text=text, **variables)
        if result.returncode:
            raise _failed(name, words, result.returncode, result.stderr)
        return result.stdout

    def _output(self, name: str, *words: str, **variables: str) -> Iterator[bytes]:
        """Yield what a command prints, as it comes; it raises as `ask`, at the end too."""
        with self._failing(name) as program:
            command, seconds = [program, *words], self.settings.command_timeout_s
            try:
                yield from output_of(command, seconds, _environment(variables))
            except CalledProcessError as error:
                raise _failed(name, words, error.returncode, text_of(error.stderr)) from error

    @contextmanager
    def _failing(self, name: str) -> Iterator[str]:
        """Have errors in running a command be ours; the value is its path."""
        program = str(Path(self.settings.bin_dir) / name) if self.settings.bin_dir else name
        try:
            yield program
        except TimeoutExpired as error:
            raise AdapterError(
                f"{name} did not answer within {self.settings.command_timeout_s:g} s; check the "
                "load of slurmctld, or raise command_timeout_s in [slurm]"
            ) from error
        except OSError as error:
            raise AdapterError(
                f"{program} cannot be run ({error.strerror}); install Slurm's client commands, or "
                "set bin_dir in [slurm]"
            ) from error

    @cached_property
    def _reader(self) -> JobReader:
        """What reads squeue's output, of its release.

        squeue prints an unknown field as an empty one, and complains on standard error only.
        """
        release = release_of(self.ask("squeue", "--version"))
        token = secrets.token_hex(6)
        reader = JobReader(token, release)
        result = self.run("squeue", "-h", f"--name={token}", SQUEUE_FORMAT2=reader.format)
        if found := _NO_FIELD.search(result.stderr):
            raise AdapterError(
                f"squeue of Slurm {release[0]}.{release[1]:02d} has no field {found[1]}: this "
                "release of rtsched does not know that Slurm; see docs/releases.md"
            )
        return reader

    def jobs(self) -> JobRows:
        """Return all jobs that the controller knows, lately ended ones too."""
        reader = self._reader
        shown = self._output(
            "squeue", "-h", "-a", "--local", "-t", "all", SQUEUE_FORMAT2=reader.format
        )
        rows = reader.read(shown)
        if not reader.knows_excluded:
            self._read_excluded(rows)
        self._read_extra(rows.id[rows.state.map(alive, np.bool_)].tolist())
        for at in np.flatnonzero(are_in(rows.id, list(self._extra))).tolist():
            rows.extra[at] = self._extra[int(rows.id[at])]
        return rows

    def nodes(self) -> list[NodeRow]:
        """Return all nodes."""
        return node_rows(self.ask("scontrol", "-o", "-a", "show", "node"))

    def reservations(self) -> list[ReservationRow]:
        """Return all advance reservations."""
        return reservation_rows(self.ask("scontrol", "-o", "show", "reservation"))

    def licenses(self) -> dict[str, int]:
        """Return how many there are of each licence."""
        return license_counts(self.ask("scontrol", "-o", "show", "licenses"))

    def config(self) -> str:
        """Return the configuration."""
        return self.ask("scontrol", "show", "config")

    def federation(self) -> str | None:
        """Return the federation that the cluster is in, if any; None: it is not known."""
        result = self.run("scontrol", "show", "federation")
        return None if result.returncode else result.stdout

    def partitions(self) -> str:
        """Return the partitions, one on a line."""
        return self.ask("scontrol", "-o", "-a", "show", "partition")

    def shares(self) -> str | None:
        """Return the associations with their shares and use; None: no accounting."""
        result = self.run("sshare", "-a", "-l", "-P", "-h", "-o", SHARES)
        return None if result.returncode else result.stdout

    def users(self) -> str:
        """Return the users that accounting knows, one on a line; empty: it is not known."""
        return self.run("scontrol", "-o", "show", "assoc_mgr", "flags=users").stdout

    def limits(self, cluster: str) -> tuple[str, str]:
        """Return the QOS, and the associations of a cluster, with their limits.

        Raises
        ------
        AdapterError
            If accounting does not answer.
        """
        qos, associations = SHOW_QOS.split()[1:], SHOW_ASSOCIATIONS.split()[1:]
        return (
            self.ask("sacctmgr", *qos, f"format={','.join(QOS_COLUMNS)}"),
            self.ask("sacctmgr", *associations, f"cluster={cluster}"),
        )

    def used_time(self) -> str:
        """Return what associations and QOS have used, one on a line.

        Raises
        ------
        AdapterError
            If the controller does not answer.
        """
        return self.ask("scontrol", "-o", "show", "assoc_mgr", "flags=assoc,qos")

    def _read_excluded(self, rows: JobRows) -> None:
        """Read the nodes that jobs exclude, where squeue shows them in its short format only."""
        lines = self.ask("squeue", "-h", "-a", "-t", "all", "-o", "%A %x").splitlines()
        pairs = (line.split(" ", 1) for line in lines if " " in line)
        excluded = {int(job): text(nodes) for job, nodes in pairs if text(nodes)}
        for at in np.flatnonzero(are_in(rows.id, list(excluded))).tolist():
            rows.excluded[at] = excluded[int(rows.id[at])]

    def _read_extra(self, jobs: Sequence[int]) -> None:
        """Read Extra of jobs not seen before, which squeue does not show; forget the others'."""
        self._seen.intersection_update(jobs)
        self._extra = {job: extra for job, extra in self._extra.items() if job in self._seen}
        new = [job for job in jobs if job not in self._seen]
        found: dict[int, str] = {}
        if len(new) > max(FEW, len(jobs) // 100):
            found = extras(self._output("scontrol", "-a", "show", "job"))
        left = [job for job in new if job not in found]
        found |= dict(zip(left, map(extra_in, self._details(left)), strict=True))
        self._seen.update(new)
        self._extra |= {job: found[job] for job in new if found[job]}

    def _details(self, jobs: Sequence[int]) -> list[str]:
        """Return what scontrol prints on each of some jobs.

        One process tells of all of them. What it prints as the name of a host, which is random, is
        in no text of a user.
        """
        if not jobs:
            return []
        mark = f"{_PROMPT}{secrets.token_hex(6)}"
        lines = [f"show job {job}\nshow hostnames {mark}\n" for job in jobs]
        shown = self.ask("scontrol", "-a", text="".join(lines) + "quit\n")
        *parts, _ = re.split(rf"(?m)^(?:scontrol: )?{mark}$", shown)
        if len(parts) != len(jobs):
            raise AdapterError(
                "scontrol exited before it had shown all jobs; check that slurmctld runs "
                "(scontrol ping)"
            )
        return parts

    def batch(self, lines: Sequence[str]) -> list[str]:
        """Give scontrol many commands at once; return what it complains of on each, or nothing.

        Each is followed by a word that is no command, about which scontrol complains too: so the
        complaints can be told apart. Only words that this adapter made go here: scontrol splits
        lines at white space.

        Raises
        ------
        AdapterError
            If it cannot be started, or takes too long.
        """
        parts = [lines[at : at + LINES] for at in range(0, len(lines), LINES)]
        return [complaint for part in parts for complaint in self._batch(part)]

    def _batch(self, lines: Sequence[str]) -> list[str]:
        """Return the complaints of one process."""
        marked = [f"{line}\n{_PROMPT}{at}\n" for at, line in enumerate(lines)]
        result = self.run("scontrol", text="".join(marked) + "quit\n")
        parts = _NO_MESSAGE.split(result.stderr)
        complaints = dict(zip(map(int, parts[1::2]), parts[0::2], strict=False))
        silent = "scontrol exited before this command; check that slurmctld runs (scontrol ping)"
        return [" ".join(complaints.get(at, silent).split()) for at in range(len(lines))]


SHARES = "Account,User,RawShares,RawUsage"


def extras(dump: Iterable[bytes]) -> dict[int, str]:
    """Return Extra by job from what `scontrol show job` prints, which comes in pieces.

    A job that occurs twice is left out: somebody wrote a comment that looks like another job.
    """
    found: dict[int, str] = {}
    times = Counter[int]()
    for record in _records(dump):
        head, _, rest = record.partition(b" ")
        job = int(head)
        line = rest.rfind(_EXTRA)
        times[job] += 1
        found[job] = text_of(rest[line + len(_EXTRA) :].partition(b"\n")[0]) if line >= 0 else ""
    return {job: extra for job, extra in found.items() if times[job] == 1}


def _records(dump: Iterable[bytes]) -> Iterator[bytes]:
    """Yield what stands behind each `JobId=` that begins a record."""
    left = b"\n"
    for piece in dump:
        left += piece.replace(b"\r", b"\n")
        begins = [match.start() for match in _JOB.finditer(left)]
        for begin, end in pairwise(begins):
            yield left[begin + len(_JOB_ID) : end]
        left = left[begins[-1] :] if begins else left
    if _JOB.match(left):
        yield left[len(_JOB_ID) :]


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a command: none that change what it prints, but these."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SQUEUE_", "SCONTROL_"))}
    wording = {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0", "LC_ALL": "C.UTF-8"}
    return {**kept, **wording, **variables}


def _failed(name: str, words: Sequence[str], status: int, errors: str) -> AdapterError:
    """Return the error that a command failed."""
    reason = reason_of(status, errors)
    return AdapterError(
        f"{name} {' '.join(words)}: {reason}; check that slurmctld runs (scontrol ping)"
    )


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
    """A job is cancelled or queued again, after its user was given the reason."""
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

    @property
    def pairs(self) -> dict[str, str]:
        """What it is about and what it sets, by the names of scontrol's words."""
        return dict(word.partition("=")[::2] for word in self.words[2:])


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
        complaints = commands.batch([" ".join(command.words[1:]) for _, command in together])
        for (at, _), text in zip(together, complaints, strict=True):
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
            text = " ".join(answer.stderr.split()) or f"exit status {answer.returncode}"
            yield at, reply_of(text if answer.returncode else "")
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
