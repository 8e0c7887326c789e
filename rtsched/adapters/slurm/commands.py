"""Slurm through its own commands: argument lists, no shell, a time limit on each.

`squeue` gives the jobs: it is 80 times as fast as JSON. What users write could hold any delimiter,
so those used are random, and reach squeue by its environment, which other users cannot read.
"""

from __future__ import annotations

import os
import re
import secrets
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from subprocess import CalledProcessError, TimeoutExpired
from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.programs import output_of, run_program, text_of
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
from rtsched.adapters.slurm.squeue import JobReader, release_of
from rtsched.errors import AdapterError
from rtsched.logs.slurm_limits import QOS_COLUMNS, SHOW_ASSOCIATIONS, SHOW_QOS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

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
class CommandResult:
    """What a command said: its exit status and both outputs."""

    status: int
    output: str
    errors: str


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
    ) -> CommandResult:
        """Run one command; a failing one is no error here.

        Raises
        ------
        AdapterError
            If it cannot be started, or takes too long.
        """
        with self._failing(name) as program:
            done = run_program(
                [program, *words], self.settings.command_timeout_s, text, _environment(variables)
            )
        return CommandResult(done.returncode, done.stdout, done.stderr)

    def ask(self, name: str, *words: str, text: str | None = None, **variables: str) -> str:
        """Return what a command prints.

        Raises
        ------
        AdapterError
            If it fails, as when the controller does not answer.
        """
        said = self.run(name, *words, text=text, **variables)
        if said.status:
            raise _failed(name, words, said.status, said.errors)
        return said.output

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
        said = self.run("squeue", "-h", f"--name={token}", SQUEUE_FORMAT2=reader.format)
        if found := _NO_FIELD.search(said.errors):
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
        for at in np.flatnonzero(np.isin(rows.id, list(self._extra))).tolist():
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
        said = self.run("scontrol", "show", "federation")
        return said.output if said.status == 0 else None

    def partitions(self) -> str:
        """Return the partitions, one on a line."""
        return self.ask("scontrol", "-o", "-a", "show", "partition")

    def shares(self) -> str | None:
        """Return the associations with their shares and use; None: no accounting."""
        said = self.run("sshare", "-a", "-l", "-P", "-h", "-o", SHARES)
        return said.output if said.status == 0 else None

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
        for at in np.flatnonzero(np.isin(rows.id, list(excluded))).tolist():
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
        said = self.run("scontrol", text="".join(marked) + "quit\n")
        parts = _NO_MESSAGE.split(said.errors)
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
    reason = " ".join(errors.split())[-300:] or f"exit status {status}"
    return AdapterError(
        f"{name} {' '.join(words)}: {reason}; check that slurmctld runs (scontrol ping)"
    )
