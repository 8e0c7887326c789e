"""How jobs ended that the controller no longer knows, from Slurm's accounting.

Source: manual page sacct. Jobs that are named are looked for at all times, and shown as they were
last.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rtsched.adapters.live import Completions, CompletionStatus
from rtsched.adapters.slurm.rows import moment
from rtsched.errors import AdapterError
from rtsched.logs.slurm_text import ENDINGS
from rtsched.model import log

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    """Return the jobs of `sacct -P` lines `JobIDRaw|State|Start|End` that ended.

    Lines of another form and jobs whose end is not known are left out.
    """
    rows = []
    for line in output.splitlines():
        job, state, start, end = [*line.split("|"), "", "", ""][:4]
        ending = ENDINGS.get((state.split() or [""])[0], log.Ending.UNKNOWN)
        known = job.isascii() and job.isdigit() and len(job) < 12
        if known and ending not in _ALIVE and math.isfinite(moment(end)):
            rows.append(
                (int(job), moment(start), moment(end), LIVE.get(ending, CompletionStatus.FAILED))
            )
    return Completions.of_rows(("job", "start", "end", "status"), rows)


OFF = "accounting storage is disabled"
"""What sacct says where the site has no accounting; its exit status is that of any failure."""


def find_completions(commands: CommandRunner, jobs: Sequence[int]) -> Completions:
    """Return how jobs ended, of those that accounting knows; none where there is no accounting.

    Raises
    ------
    AdapterError
        If sacct cannot be started, takes too long, or fails, as when slurmdbd does not answer.
    """
    words = ("-X", "-n", "-P", "-o", "JobIDRaw,State,Start,End")
    parts = [jobs[at : at + AT_A_TIME] for at in range(0, len(jobs), AT_A_TIME)]
    said = [commands.run("sacct", *words, "-j", ",".join(map(str, part))) for part in parts]
    for each in said:
        if each.status and OFF not in each.errors:
            reason = " ".join(each.errors.split())[-300:] or f"exit status {each.status}"
            raise AdapterError(f"sacct: {reason}; check that slurmdbd runs (sacctmgr ping)")
    return completions_in("".join(each.output for each in said if each.status == 0))
