"""An HTCondor pool whose users get promises: what they read, and what is written down."""

import json
import re
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from promising import OPEN, QUICK, SUBMIT_CONF, Reply, Watched
from testbed import Pool, PoolOptions, fragments
from testbed.waiting import QuietClock, eventually

from rtsched.adapters.condor.ids import job_id, name_of

TABLE = "/run/rtsched/slots"
SITE = """
planner = "mcdf"

[[plugin]]
name = "mcdf"

[daemon]
system = "condor"
cycle = 1
patience = 10
lapse = 8
offer = 20
admins = ["carol"]

[condor]
start_delay_s = 6
overrun_s = 3
completing_s = 4
"""
SITES_OWN = {
    "60-sites-own.conf": "RTSCHED_OVERRUN = 3\nRTSCHED_VACATE_TIME = 4\n",
}
"""What `SITE` says differently from our fragments of the configuration."""

EAGER = {"NEGOTIATOR_INTERVAL": "3", "NEGOTIATOR_CYCLE_DELAY": "1", "SCHEDD_INTERVAL": "3"}

STATUS = {1: "idle", 2: "running", 3: "removed", 4: "completed", 5: "held", 6: "sending"}


@dataclass
class LivePool(Watched):
    """A running pool with the ClassAd library and the daemon; jobs are named by their numbers."""

    LOOK = ("condor_q", "-totals")

    @property
    def pool(self) -> Pool:
        """The pool."""
        assert isinstance(self.box, Pool)
        return self.box

    def submit(self, *lines: str, user: str = "alice", seconds: float = 30) -> Reply:
        """Submit a job that sleeps so long, with more lines for its submit file."""
        begun, clock = time.monotonic(), QuietClock()
        done = self.pool.run(
            ["condor_submit"], user=user, input=submit_file(*lines, seconds=seconds), check=False
        )
        taken = time.monotonic() - begun
        found = re.search(r"submitted to cluster (\d+)", done.stdout)
        job = job_id(int(found[1]), 0) if found else 0
        reply = Reply(job, done.stdout + done.stderr, taken, clock.now())
        self.replies.append(reply)
        return reply

    def wish(
        self, due: float | str, *more: str, limit: float = 20, nodes: int = 1, **options: Any
    ) -> Reply:
        """Submit a job that asks for a deadline; return what its user read."""
        asked, run_time = within(0 if isinstance(due, str) else due, limit)
        wide = ("universe = parallel", f"machine_count = {nodes}") if nodes > 1 else ()
        lines = (*wide, due if isinstance(due, str) else asked, run_time, *more)
        return self.submit(*lines, **{"seconds": limit / 4, **options})

    def name(self, job: int) -> str:
        """Return what users call a job."""
        return name_of(job)

    def promise(self, *lines: str, user: str = "alice", seconds: float = 30) -> int:
        """Submit a job that must be promised its deadline; return its number."""
        return self.must_promise(lambda: self.submit(*lines, user=user, seconds=seconds))

    def ads(self, constraint: str = "true") -> dict[int, dict[str, Any]]:
        """Return the jobs in the queue, by number."""
        done = self.pool.run(["condor_q", "-allusers", "-json", "-constraint", constraint])
        return _by_number(done.stdout)

    def past(self, constraint: str = "true") -> dict[int, dict[str, Any]]:
        """Return the jobs in the history, by number."""
        return _by_number(
            self.pool.run(["condor_history", "-json", "-constraint", constraint]).stdout
        )

    def ad(self, job: int) -> dict[str, Any]:
        """Return a job's ad, from the queue or the history; {} when neither has it."""
        return self.pool.job(*map(int, name_of(job).split(".")))

    def status(self, job: int) -> str:
        """Return whether a job is idle, running, held, completed, ..."""
        return STATUS.get(self.ad(job).get("JobStatus", 0), "unknown")

    def began(self, job: int) -> float:
        """Return when a job that has ended began, seconds since the epoch."""
        return float(self.wait_status(job, "completed")["JobStartDate"])

    def tokens(self) -> dict[int, str]:
        """Return the admissions that jobs carry, of those in the queue and in the history."""
        known = self.past("RtToken =!= undefined") | self.ads("RtToken =!= undefined")
        return {job: ad["RtToken"] for job, ad in known.items()}

    def known_jobs(self) -> set[int]:
        """Return the jobs in the queue and in the history."""
        return {*self.ads(), *self.past()}

    def kept_slots(self) -> dict[str, str]:
        """Return what the daemon's table says is kept of slots, by name."""
        lines = self.pool.path(TABLE).read_text().splitlines()[1:]
        rows = [line.split("\t") for line in lines]
        again = "_@"  # how the table names a slot whose dynamic slots are used again
        return {name: kept for name, _, kept in rows if kept != "-" and again not in name}

    def fill(self, count: int, seconds: float = 10, *, limit: float | None = None) -> int:
        """Submit best-effort jobs that state their run time; return their cluster's first job."""
        lines = (f"+RtRunTime = {limit or seconds + 5:.0f}", f"queue {count}")
        return self.submit(*lines, user="bob", seconds=seconds).job

    def occupy(self, count: int, seconds: float, *, limit: float | None = None) -> list[int]:
        """Have so many best-effort jobs of bob's, and the daemon know of them; return them."""
        first = self.fill(count, seconds, limit=limit)
        running = min(count, len(self.pool.options.nodes))
        eventually(lambda: len(self.ads("JobStatus == 2")) == running, 60, "best-effort jobs run")
        self.polled()
        return [first + proc for proc in range(count)]

    def odds(self, percent: object) -> str:
        """Return the line that asks for odds."""
        return f"+RtOdds = {percent}"

    def several(self, count: int) -> str:
        """Return the line of a cluster of so many procs."""
        return f"queue {count}"

    def kept_free(self) -> Collection[str]:
        """Return the slots that are kept."""
        return self.kept_slots()

    def remove(self, *jobs: int, user: str = "root") -> None:
        """Remove jobs."""
        self.pool.run(["condor_rm", *map(name_of, jobs)], user=user)

    def cancel_all(self) -> None:
        """Cancel all jobs, and wait until their promises are closed."""
        self.pool.remove_all()
        if self.pool.services.alive("rtsched"):
            eventually(lambda: not [each for each in self.kept() if each.state in OPEN], 30)


def submit_file(*lines: str, seconds: float = 30) -> str:
    """Return a submit file with these lines, by default of one job that sleeps."""
    reply = {re.split(r"[\s=]", line.strip().lower(), maxsplit=1)[0] for line in lines}
    text = list(lines)
    if "executable" not in reply:
        text = ["executable = /bin/sleep", f"arguments = {seconds:g}", *text]
    if "job_lease_duration" not in reply:
        text.insert(0, "job_lease_duration = 20")
    if "queue" not in reply:
        text.append("queue")
    return "\n".join([*text, ""])


def within(seconds: float, run_time: float = 20) -> tuple[str, str]:
    """Return the lines that ask for a deadline so far from now, and state a run time."""
    return (f"+RtDeadline = {time.time() + seconds:.0f}", f"+RtRunTime = {run_time:.0f}")


@contextmanager
def live_pool(
    site: str = SITE,
    *,
    files: Mapping[str, str] | None = None,
    suite: str = "forky",
    **options: Any,
) -> Iterator[LivePool]:
    """Give a pool of six slots, or as `options` say, with the library and the daemon."""
    config = fragments() | SITES_OWN
    own = {"fast": 2, "slow": 4, "library": True, "config": config, "settings": EAGER} | options
    with Pool(suite, PoolOptions(**own), files={SUBMIT_CONF: QUICK} | dict(files or {})) as pool:
        pool.start_daemon(site)
        yield LivePool(pool)


def _by_number(text: str) -> dict[int, dict[str, Any]]:
    ads = json.loads(text) if text.strip() else []
    return {job_id(ad["ClusterId"], ad["ProcId"]): ad for ad in ads}
