"""Completions of jobs that the controller has purged, from Slurm's accounting.

A slurmctld that is killed loses the jobs that it took in since it last saved its state, and their
numbers are given again. Accounting shows such a job as pending, or not at all.

Source: manual page sacct. Jobs that are named are looked for at all times, and shown as they were
last. Manual page scontrol, `show config`: NEXT_JOB_ID.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.live import Completions, CompletionStatus
from rtsched.adapters.programs import reason_of
from rtsched.adapters.slurm.facts import config_of
from rtsched.adapters.slurm.rows import moment
from rtsched.errors import AdapterError
from rtsched.logs.slurm_text import ENDINGS
from rtsched.model import log

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rtsched.adapters.slurm.commands import CommandRunner

AT_A_TIME = 500
"""Jobs that sacct is asked for at once."""

LIVE = {
    log.Ending.COMPLETED: CompletionStatus.COMPLETED,
    log.Ending.TIMEOUT: CompletionStatus.OWN_LIMIT,
    log.Ending.NODE_FAILURE: CompletionStatus.NODE_LOST,
    log.Ending.MISSED: CompletionStatus.DEADLINE,
}
"""What the endings of a log are to the daemon; any other counts as failed."""

_ALIVE = {log.Ending.RUNNING, log.Ending.PENDING, log.Ending.UNKNOWN}


def completions_in(output: str) -> Completions:
    """Return the jobs of `sacct -P` lines `JobID|State|Start|End` that ended.

    An array has ended when all its tasks have, at the end of the last one (see `ending_of`), and so
    has a heterogeneous job with its components, `12+0`. Lines of another form and jobs whose end is
    not known are left out.
    """
    found = dict[int, list[tuple[log.Ending, float, float]]]()
    for line in output.splitlines():
        name, state, start, end = [*line.split("|"), "", "", ""][:4]
        job = re.split(r"[_+]", name, maxsplit=1)[0]
        if job.isascii() and job.isdigit() and len(job) < 12:
            ending = ENDINGS.get((state.split() or [""])[0], log.Ending.UNKNOWN)
            found.setdefault(int(job), []).append((ending, moment(start), moment(end)))
    rows = []
    for number, tasks in found.items():
        endings, starts, ends = zip(*tasks, strict=True)
        if not _ALIVE.intersection(endings) and all(map(math.isfinite, ends)):
            status = LIVE.get(ending_of(endings), CompletionStatus.FAILED)
            rows.append((number, float(np.fmin.reduce(starts)), max(ends), status))
    return Completions.of_rows(("job", "start", "end", "status"), rows)


def ending_of(endings: Sequence[log.Ending]) -> log.Ending:
    """Return how a job ended, an array by the endings of its tasks.

    What was promised is that all of them run in time, whatever comes of them: one that Slurm did
    not let run to its end counts first, then one that it did.
    """
    first = (log.Ending.NODE_FAILURE, log.Ending.MISSED, log.Ending.COMPLETED, log.Ending.TIMEOUT)
    return next((each for each in first if each in endings), endings[-1])


def place_of_ending(states: Iterable[str]) -> int:
    """Return which of the states of a job's parts, all of which are over, is how the job ended."""
    endings = [ENDINGS.get(state, log.Ending.UNKNOWN) for state in states]
    return endings.index(ending_of(endings))


OFF = "accounting storage is disabled"
"""What sacct says where the site has no accounting; its exit status is that of any failure."""


def find_completions(commands: CommandRunner, jobs: Sequence[int]) -> Completions:
    """Return how jobs ended, of those that accounting knows; none where there is no accounting.

    And which of the others the controller has lost.

    Raises
    ------
    AdapterError
        If sacct cannot be started, takes too long, or fails, as when slurmdbd does not answer.
    """
    words = ("-X", "-n", "-P", "-o", "JobID,State,Start,End")
    parts = [jobs[at : at + AT_A_TIME] for at in range(0, len(jobs), AT_A_TIME)]
    done = [commands.run("sacct", *words, "-j", ",".join(map(str, part))) for part in parts]
    for each in done:
        if each.returncode and OFF not in each.stderr:
            reason = reason_of(each.returncode, each.stderr)
            raise AdapterError(f"sacct: {reason}; check that slurmdbd runs (sacctmgr ping)")
    known = completions_in("".join(each.stdout for each in done if not each.returncode))
    others = sorted(set(jobs) - set(known.job.tolist()))
    return Completions.joined([known, _forgotten(commands, others)]) if others else known


def _forgotten(commands: CommandRunner, jobs: Sequence[int]) -> Completions:
    """Return which of some jobs, which are not over, have numbers still to be given."""
    done = commands.run("scontrol", "show", "config")
    upcoming = "" if done.returncode else config_of(done.stdout).get("NEXT_JOB_ID", "")
    if not (upcoming.isascii() and upcoming.isdigit()):
        return Completions.build(0)
    lost = [job for job in jobs if job >= int(upcoming)]
    return Completions.build(len(lost), job=lost, status=CompletionStatus.FORGOTTEN)
