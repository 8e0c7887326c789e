"""Jobs that ended, from the schedds' histories, for estimates of run times.

Apart from `completions`, since it reads a log: the process that polls loads no reader, and so no
compiler.

Source: HTCondor's manual, condor_history.
"""

from __future__ import annotations

import math
import subprocess
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.condor.ids import JobNames
from rtsched.adapters.past import NO_JOBS, ended_between, joined_logs
from rtsched.adapters.programs import run_program
from rtsched.errors import AdapterError
from rtsched.logs.condor_history import ATTRIBUTES
from rtsched.logs.readers import ReadOptions, read_logs

if TYPE_CHECKING:
    from rtsched.adapters.condor.settings import CondorSettings
    from rtsched.model.log import Log

LONGEST_S = 300.0
"""Seconds that one condor_history may take: a history may have millions of records."""


def past_jobs(settings: CondorSettings, since: float, until: float) -> Log:
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
    """Return what a schedd's history has."""
    first = math.floor(since)
    words = ["condor_history", "-long", "-attributes", ",".join(sorted(ATTRIBUTES))]
    words += ["-completedsince", str(first)]
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
        reason = " ".join(done.stderr.split())[-300:] or f"exit status {done.returncode}"
        raise AdapterError(f"condor_history: {reason}; run times of past jobs are not known")
    if not done.stdout.strip():
        return NO_JOBS
    with TemporaryDirectory(prefix="rtsched-history-") as directory:
        path = Path(directory) / "history.ads"
        path.write_text(done.stdout, "utf-8", "surrogateescape")
        log = read_logs([path], ReadOptions("condor-history", details=True))
    return ended_between(_as_polled(log, settings, at), since, until)


def _as_polled(log: Log, settings: CondorSettings, at: int) -> Log:
    """Return a log in which jobs have the numbers and sizes that polls give them: slots."""
    jobs = log.jobs
    size = np.where(jobs.node_count >= 1, jobs.node_count, 1).astype(np.int32)
    known = JobNames(tuple(settings.schedds))
    numbers = [known.number(label.rpartition("#")[2], at) for label in jobs.labels()]
    ids = np.array(numbers, np.int64)
    codes = np.arange(len(jobs), dtype=np.int32)
    named = jobs.replace_text("label", codes, known.all_of(ids))
    return replace(log, jobs=named.replace(id=ids, size=size))
