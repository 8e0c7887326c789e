"""Jobs that ended, from Slurm's accounting or the schedds' histories, for estimates of run times.

Apart from the systems' `completions`, since it reads logs: the process that polls loads no reader,
and so no compiler.

Sources: manual page sacct; HTCondor's manual, condor_history.
"""

from __future__ import annotations

import math
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from rtsched.adapters.programs import reason_of, run_program
from rtsched.errors import AdapterError
from rtsched.logs.condor_history import ATTRIBUTES
from rtsched.logs.readers import ReadOptions, read_logs
from rtsched.model.jobs import NOBODY, Edges, Jobs
from rtsched.model.log import Ending, Log, Outcomes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.adapters.condor.settings import CondorSettings
    from rtsched.adapters.slurm.settings import SlurmSettings

NO_JOBS = Log(NOBODY, Outcomes.build(0), (), "past")
"""A log without jobs."""

FIELDS = (
    "JobID,JobIDRaw,User,Account,Partition,QOS,Submit,Eligible,Start,End,ElapsedRaw,TimelimitRaw,"
    "ReqCPUS,NCPUS,NNodes,State,JobName"
)
"""Columns of sacct; `SubmitLine` and what else users write without limit is not read."""

STATES = "BF,CA,CD,DL,F,NF,OOM,PR,TO"
"""Of jobs that are over, for sacct."""

LONGEST_S = 300.0
"""Seconds that one sacct or condor_history may take: there may be millions of records."""

_ALIVE = (Ending.RUNNING, Ending.PENDING)


def slurm_past(settings: SlurmSettings, since: float, until: float) -> Log:
    """Return the jobs that ended between two times, seconds since the epoch.

    Raises
    ------
    AdapterError
        If there is no accounting, or sacct cannot be started, fails or takes too long.
    """
    from rtsched.adapters.slurm.commands import CommandRunner  # only where there is a Slurm
    from rtsched.adapters.slurm.completions import OFF

    patient = max(settings.command_timeout_s, LONGEST_S)
    commands = CommandRunner(msgspec.structs.replace(settings, command_timeout_s=patient))
    words = ("-a", "-X", "-P", "--state", STATES, "-S", _local(since), "-E", _local(until + 1.0))
    done = commands.run("sacct", *words, "-o", FIELDS)
    if done.returncode or OFF in done.stderr:
        reason = reason_of(done.returncode, done.stderr)
        raise AdapterError(f"sacct: {reason}; run times of past jobs are not known")
    if done.stdout.count("\n") < 2:  # the header alone
        return NO_JOBS
    log = _read(done.stdout, ReadOptions("sacct", "|", details=True))
    return ended_between(log.jobs.replace(size=_nodes(log.jobs, log.jobs.size)), log, since, until)


def _local(at: float) -> str:
    """Return an instant on the local clock, as sacct reads it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(max(at, 0.0)))


def condor_past(settings: CondorSettings, since: float, until: float) -> Log:
    """Return the jobs that ended between two times, seconds since the epoch.

    Raises
    ------
    AdapterError
        If no history can be read: condor_history cannot be started, fails or takes too long.
    """
    found: list[Log] = []
    problem = ""
    named = list(settings.schedds) if settings.schedds else [settings.schedd]
    for at, name in enumerate(named):
        if settings.schedds and not name:
            continue
        try:
            found.append(_of_schedd(settings, at, name, since, until))
        except AdapterError as error:
            problem = str(error)
    if problem and not found:
        raise AdapterError(problem)
    return joined_logs(found)


def _of_schedd(settings: CondorSettings, at: int, name: str, since: float, until: float) -> Log:
    """Return what a schedd's history has; jobs have the numbers and sizes that polls give them."""
    words = ["condor_history", "-long", "-attributes", ",".join(sorted(ATTRIBUTES))]
    words += ["-completedsince", str(math.floor(since))]
    words += ["-constraint", f"EnteredCurrentStatus <= {math.ceil(until)}"]
    if settings.collector:
        words += ["-pool", settings.collector]
    if name:
        words += ["-name", name]
    try:
        done = run_program(words, LONGEST_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise AdapterError(f"condor_history: {error}; run times are not known") from error
    if done.returncode:
        reason = reason_of(done.returncode, done.stderr)
        raise AdapterError(f"condor_history: {reason}; run times of past jobs are not known")
    if not done.stdout.strip():
        return NO_JOBS
    log = _read(done.stdout, ReadOptions("condor-history", details=True))
    jobs, known = log.jobs, settings.names
    ids = [known.number(label.rpartition("#")[2], at) for label in jobs.labels()]
    number = np.array(ids, np.int64)
    codes = np.arange(len(jobs), dtype=np.int32)
    jobs = jobs.replace_text("label", codes, known.all_of(number))
    size = _nodes(jobs, np.ones(len(jobs), np.int32))
    return ended_between(jobs.replace(id=number, size=size), log, since, until)


def _read(text: str, options: ReadOptions) -> Log:
    """Return the log that a command printed."""
    with TemporaryDirectory(prefix="rtsched-past-") as directory:
        path = Path(directory) / "log"
        path.write_text(text, "utf-8", "surrogateescape")
        return read_logs([path], options)


def _nodes(jobs: Jobs, otherwise: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the sizes of jobs as polls count them, int32[n]: nodes, where these are known."""
    return np.where(jobs.node_count >= 1, jobs.node_count, otherwise).astype(np.int32)


def ended_between(jobs: Jobs, log: Log, since: float, until: float) -> Log:
    """Return the jobs that ran and ended in [since, until], seconds since the epoch.

    `jobs` stand for those of the `log`.
    """
    start, end = log.outcomes.start, log.outcomes.end
    with np.errstate(invalid="ignore"):
        over = np.isfinite(start) & (end >= since) & (end <= until) & (end >= start)
    over &= ~np.isin(log.outcomes.ending, _ALIVE)
    rows = np.flatnonzero(over)
    return replace(
        log, jobs=jobs.take(rows), outcomes=log.outcomes.take(rows), edges=Edges.build(0)
    )


def joined_logs(logs: list[Log]) -> Log:
    """Return the jobs of several logs, one after the other."""
    logs = [log for log in logs if len(log.jobs)]
    if not logs:
        return NO_JOBS
    return Log(
        Jobs.joined([log.jobs for log in logs]),
        Outcomes.joined([log.outcomes for log in logs]),
        tuple(source for log in logs for source in log.sources),
        logs[0].format,
    )
