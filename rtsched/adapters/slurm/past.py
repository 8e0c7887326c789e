"""Jobs that ended, from Slurm's accounting, for estimates of run times.

Apart from `completions`, since it reads a log: the process that polls loads no reader, and so no
compiler.

Source: manual page sacct.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec

from rtsched.adapters.past import NO_JOBS, ended_between
from rtsched.adapters.slurm.commands import CommandRunner
from rtsched.adapters.slurm.completions import OFF
from rtsched.errors import AdapterError
from rtsched.logs.readers import ReadOptions, read_logs

if TYPE_CHECKING:
    from rtsched.adapters.slurm.settings import SlurmSettings
    from rtsched.model.log import Log

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
