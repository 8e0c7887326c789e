"""Completions of jobs, from Slurm's accounting: of those purged, and of all in a span of time.

`past_jobs` reads the latter, for estimates of run times. A slurmctld that is killed loses the jobs
that it took in since it last saved its state, and their numbers are given again. Accounting shows
such a job as pending, or not at all.

Source: manual page sacct. Jobs that are named are looked for at all times, and shown as they were
last. Manual page scontrol, `show config`: NEXT_JOB_ID.
"""

from __future__ import annotations

import math
import re
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from rtsched.adapters.live import Completions, CompletionStatus
from rtsched.adapters.past import NO_JOBS, ended_between
from rtsched.adapters.slurm.commands import CommandRunner
from rtsched.adapters.slurm.facts import config_of
from rtsched.adapters.slurm.rows import moment
from rtsched.errors import AdapterError
from rtsched.logs.readers import ReadOptions, read_logs
from rtsched.logs.slurm_text import ENDINGS
from rtsched.model import log

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rtsched.adapters.slurm.settings import SlurmSettings
    from rtsched.model.log import Log


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
        if each.status and OFF not in each.errors:
            reason = " ".join(each.errors.split())[-300:] or f"exit status {each.status}"
            raise AdapterError(f"sacct: {reason}; check that slurmdbd runs (sacctmgr ping)")
    known = completions_in("".join(each.output for each in done if each.status == 0))
    others = sorted(set(jobs) - set(known.job.tolist()))
    return Completions.joined([known, _forgotten(commands, others)]) if others else known


def _forgotten(commands: CommandRunner, jobs: Sequence[int]) -> Completions:
    """Return which of some jobs, which are not over, have numbers still to be given."""
    done = commands.run("scontrol", "show", "config")
    upcoming = config_of(done.output).get("NEXT_JOB_ID", "") if done.status == 0 else ""
    if not (upcoming.isascii() and upcoming.isdigit()):
        return Completions.build(0)
    lost = [job for job in jobs if job >= int(upcoming)]
    return Completions.build(len(lost), job=lost, status=CompletionStatus.FORGOTTEN)


FIELDS = (
    "JobID,JobIDRaw,User,Account,Partition,QOS,Submit,Eligible,Start,End,ElapsedRaw,TimelimitRaw,"
    "ReqCPUS,NCPUS,NNodes,State,JobName"
)
"""Columns of sacct; `SubmitLine` and what else users write without limit is not read."""

STATES = "BF,CA,CD,DL,F,NF,OOM,PR,TO"
"""Of jobs that are over."""

LONGEST_S = 300.0
"""Seconds that one sacct may take: slurmdbd may be slow with a day of many jobs."""


def past_jobs(settings: SlurmSettings, since: float, until: float) -> Log:
    """Return the jobs that ended between two times, seconds since the epoch.

    Raises
    ------
    AdapterError
        If there is no accounting, or sacct cannot be started, fails or takes too long.
    """
    patient = max(settings.command_timeout_s, LONGEST_S)
    commands = CommandRunner(msgspec.structs.replace(settings, command_timeout_s=patient))
    words = ("-a", "-X", "-P", "--state", STATES, "-S", _local(since), "-E", _local(until + 1.0))
    done = commands.run("sacct", *words, "-o", FIELDS)
    if done.status or OFF in done.errors:
        reason = " ".join(done.errors.split())[-300:] or f"exit status {done.status}"
        raise AdapterError(f"sacct: {reason}; run times of past jobs are not known")
    if done.output.count("\n") < 2:  # the header alone
        return NO_JOBS
    with TemporaryDirectory(prefix="rtsched-sacct-") as directory:
        path = Path(directory) / "sacct.txt"
        path.write_text(done.output, "utf-8", "surrogateescape")
        log = read_logs([path], ReadOptions("sacct", "|", details=True))
    known = log.jobs.node_count >= 1
    size = log.jobs.size.copy()
    size[known] = log.jobs.node_count[known]  # as in polls: nodes
    return ended_between(replace(log, jobs=log.jobs.replace(size=size)), since, until)


def _local(at: float) -> str:
    """Return an instant on the local clock, as sacct reads it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(max(at, 0.0)))
