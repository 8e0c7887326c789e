"""The list of promised jobs that Slurm's submit filter reads while it cannot ask the daemon.

The filter asks the daemon whether a user may change a job. While nobody answers, promised jobs must
stay as they are, and all others belong to their users; slurmctld shows the filter nothing of a job
by which it could tell them apart. So the daemon leaves a list:

    rtsched-promised-jobs 1 NEWEST
    JOB
    user UID
    end

NEWEST is the highest job id that a poll has shown. There is a line for each job with a promise, for
each component of one, and for each user who was promised something for a job that no poll has shown
yet: any of her jobs above NEWEST may be that one. Jobs and users ascend.

The file is replaced as a whole. A promise is on the list before its user reads of it.
"""

from __future__ import annotations

from bisect import bisect
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from rtsched.adapters.files import replace_file
from rtsched.adapters.live import FIRST_OWN_ID

if TYPE_CHECKING:
    from pathlib import Path

    from rtsched.daemon.site import Site

log = structlog.get_logger(__name__)

FILE = "promised_jobs"
"""Its name, in the directory of the sockets."""

HEAD = "rtsched-promised-jobs 1"

MOST = 262_144
"""Jobs on it; what is more than that is not read (`RTSCHED_MOST_PROMISED_JOBS`)."""


def lines_of(site: Site) -> str:
    """Return the lines that a poll settles: the first one, and those of jobs."""
    numbered = {promise.id for promise in site.all_promises() if promise.id < FIRST_OWN_ID}
    several = site.marks.take(site.marks.last >= 0)
    for job, last in zip(several.job.tolist(), several.last.tolist(), strict=True):
        if job in numbered:
            numbered.update(range(job, last + 1))
    return "\n".join([f"{HEAD} {site.newest}", *map(str, sorted(numbered)[-MOST:]), ""])


class PromisedJobs:
    """Keeps the file as the promises are.

    Parameters
    ----------
    path : Path
        The file; its directory must be writable.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""
        """Why the file is not as it should be; empty: it is."""
        self._jobs = f"{HEAD} 0\n"
        self._users: list[int] = []
        self._written = ""

    def update(self, jobs: str, site: Site) -> None:
        """Write the list, if it is another one than before.

        Parameters
        ----------
        jobs : str
            What `lines_of` returned for the last poll.
        site : Site
            After it, with what was promised since.
        """
        self._jobs = jobs
        waiting = (r for r in site.all_promises() if r.id >= FIRST_OWN_ID)
        self._users = sorted({promise.uid for promise in waiting if promise.state != "offered"})
        self._write()

    def add(self, uid: int) -> None:
        """Add a user who is about to be promised something."""
        if uid not in self._users:
            self._users.insert(bisect(self._users, uid), uid)
            self._write()

    def forget(self) -> None:
        """Remove the file: what stands in it is no longer known to be so.

        Without it the filter takes any job for one that may be promised something.
        """
        self._written = ""
        with suppress(OSError):
            self.path.unlink()

    def _write(self) -> None:
        text = "".join([self._jobs, *(f"user {uid}\n" for uid in self._users), "end\n"])
        if text == self._written:
            return
        try:
            replace_file(self.path, text, 0o644)
        except OSError as error:
            self._written = ""
            if not self.problem:
                log.error("promised_jobs_not_written", file=str(self.path), error=error.strerror)
            self.problem = (
                f"{self.path} cannot be written ({error.strerror}): when the daemon is down, the "
                "submit filter cannot know which jobs have a promise"
            )
        else:
            self._written, self.problem = text, ""
