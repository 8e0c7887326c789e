"""Slurm through its own commands: argument lists, no shell, a time limit on each.

`squeue` gives the jobs: it is 80 times as fast as JSON. What users write could hold any delimiter,
so the one used is random, and reaches squeue by its environment, which other users cannot read.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from rtsched.adapters.programs import run_program
from rtsched.adapters.slurm.rows import (
    JobRows,
    NodeRow,
    ReservationRow,
    alive,
    extra_in,
    job_rows,
    license_counts,
    node_rows,
    release_of,
    reservation_rows,
    squeue_format,
)
from rtsched.errors import AdapterError
from rtsched.logs.slurm_limits import QOS_COLUMNS, SHOW_ASSOCIATIONS, SHOW_QOS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rtsched.adapters.slurm.settings import SlurmSettings

FEW = 20
"""So many jobs not seen before are read one by one in any case."""

LINES = 500
"""Commands that one scontrol process is given."""

_JOB = re.compile(r"(?m)^JobId=(\d{1,10}) ")
_PROMPT = "rtsched_mark_"
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
        program = str(Path(self.settings.bin_dir) / name) if self.settings.bin_dir else name
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SQUEUE_", "SCONTROL_"))}
        wording = {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0", "LC_ALL": "C.UTF-8"}
        variables = {**kept, **wording, **variables}
        try:
            done = run_program([program, *words], self.settings.command_timeout_s, text, variables)
        except subprocess.TimeoutExpired as error:
            raise AdapterError(
                f"{name} did not answer within {self.settings.command_timeout_s:g} s; check the "
                "load of slurmctld, or raise command_timeout_s in [slurm]"
            ) from error
        except OSError as error:
            raise AdapterError(
                f"{program} cannot be run ({error.strerror}); install Slurm's client commands, or "
                "set bin_dir in [slurm]"
            ) from error
        return CommandResult(done.returncode, done.stdout, done.stderr)

    def ask(self, name: str, *words: str, **variables: str) -> str:
        """Return what a command prints.

        Raises
        ------
        AdapterError
            If it fails, as when the controller does not answer.
        """
        said = self.run(name, *words, **variables)
        if said.status:
            reason = " ".join(said.errors.split())[-300:] or f"exit status {said.status}"
            raise AdapterError(
                f"{name} {' '.join(words)}: {reason}; check that slurmctld runs (scontrol ping)"
            )
        return said.output

    @cached_property
    def _release(self) -> tuple[int, int]:
        """The release of squeue."""
        return release_of(self.ask("squeue", "--version"))

    def jobs(self) -> JobRows:
        """Return all jobs that the controller knows, lately ended ones too."""
        separator = f"<{secrets.token_hex(6)}>"
        form = squeue_format(separator, self._release)
        shown = self.ask("squeue", "-h", "-a", "-t", "all", SQUEUE_FORMAT2=form)
        rows = job_rows(shown, separator, self._release)
        pairs = zip(rows.id.tolist(), rows.state, strict=True)
        self._read_extra([job for job, state in pairs if alive(state)])
        rows.extra = [self._extra.get(job, "") for job in rows.id.tolist()]
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

    def _read_extra(self, jobs: Sequence[int]) -> None:
        """Read Extra of jobs not seen before, which squeue does not show; forget the others'."""
        self._extra = {job: self._extra[job] for job in jobs if job in self._extra}
        new = [job for job in jobs if job not in self._extra]
        if len(new) > max(FEW, len(jobs) // 100):
            dump = self.ask("scontrol", "-a", "show", "job")
            whole = extras(dump)
            self._extra |= {job: whole[job] for job in new if job in whole}
            new = [job for job in new if job not in whole]
        shown = self.each(f"show job {job}" for job in new)
        self._extra |= {job: extra_in(output) for job, output in zip(new, shown, strict=True)}

    def each(self, lines: Iterable[str]) -> list[str]:
        """Return what scontrol prints on each of some commands that only read."""
        return [self.ask("scontrol", "-a", *line.split()) for line in lines]

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


def extras(dump: str) -> dict[int, str]:
    """Return Extra by job from `scontrol show job`.

    A job that occurs twice is left out: somebody wrote a comment that looks like another job.
    """
    parts = _JOB.split(dump)
    jobs = list(map(int, parts[1::2]))
    found = {job: extra_in(part) for job, part in zip(jobs, parts[2::2], strict=True)}
    times = Counter(jobs)
    return {job: extra for job, extra in found.items() if times[job] == 1}
