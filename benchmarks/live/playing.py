"""A stream of jobs, played to a cluster in real time; what each of its users was told."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from testbed import Cluster, SlurmOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stream import Work

SETTINGS = {
    "SchedulerParameters": "bf_interval=5,bf_resolution=5,bf_continue,bf_max_job_test=2000",
    "PriorityCalcPeriod": "0:05",
    "SlurmdTimeout": "20",
    "TaskProlog": "/usr/src/rtsched/contrib/slurm/task_prolog.sh",
}
"""As a site with jobs of minutes would set Slurm, with and without rtsched."""

FAVOURED = "dave"

FILTER = "timeout_ms = 500\n"
"""submit.conf: the daemon shares two processors with a hundred others here."""

DAEMON = """
[daemon]
cycle = 1.0
"""


@dataclass(frozen=True)
class Said:
    """What became of one submission.

    Attributes
    ----------
    work : Work
        What was asked for.
    at : float
        When, seconds since the epoch.
    job : int
        Job id; 0: refused.
    text : str
        What its user read.
    seconds : float
        How long sbatch took.
    offer : str
        The deadline that was offered instead.
    taken : bool or None
        Whether the same job was accepted with that deadline; None: not tried.
    """

    work: Work
    at: float
    job: int
    text: str
    seconds: float
    offer: str = ""
    taken: bool | None = None


@dataclass
class Book:
    """All submissions of a run, in their order; `begun` is seconds since the epoch."""

    begun: float
    said: list[Said] = field(default_factory=list)

    def ids(self) -> dict[str, int]:
        """Return the job ids by name."""
        return {said.work.name: said.job for said in self.said if said.job}


def cluster(
    *, steered: bool, settings: Mapping[str, str] | None = None, admin_level: str = "Operator"
) -> Cluster:
    """Return a cluster, not up yet: 30 nodes, the same Slurm whether rtsched steers it or not."""
    options = SlurmOptions(
        settings=SETTINGS | dict(settings or {}),
        job_submit=("rtsched",) if steered else (),
        admin_level=admin_level,
    )
    if not steered:
        options = SlurmOptions(settings={**options.settings, "TaskProlog": ""})
    files = {"/etc/rtsched/submit.conf": FILTER}
    return Cluster("forky", options, software=steered, files=files)


def give_way(running: Cluster) -> None:
    """Let the user of the deadlines have the largest share, so that Slurm puts those jobs first."""
    words = ["sacctmgr", "--immediate", "modify", "user", FAVOURED, "set", "fairshare=100"]
    running.run(words)


def submit_all(running: Cluster, works: Iterable[Work], begun: float) -> Book:
    """Submit jobs one behind the other, as fast as it goes."""
    book = Book(begun)
    for work in works:
        book.said.append(submit(running, work, begun, book.ids() if work.before else {}))
    return book


def play(running: Cluster, works: Iterable[Work], *, offers: bool) -> Book:
    """Submit each job at its time; with `offers`, take each counter-offer once, and cancel it.

    A job whose predecessor was refused is not submitted.
    """
    book = Book(time.time())
    for work in works:
        time.sleep(max(0.0, book.begun + work.at - time.time()))
        ids = book.ids()
        if work.before and work.before not in ids:
            continue
        said = submit(running, work, book.begun, ids)
        if offers and not said.job:
            said = _take_offer(running, said, book.begun, ids)
        book.said.append(said)
    return book


def submit(running: Cluster, work: Work, begun: float, ids: Mapping[str, int]) -> Said:
    """Submit one job, with its predecessor's id where it has one."""
    words = work.arguments(begun, ids.get(work.before, 0))
    return _sbatch(running, work, words)


def _sbatch(running: Cluster, work: Work, words: list[str]) -> Said:
    at = time.time()
    begun = time.perf_counter()
    done = running.run(
        ["sbatch", "--output=/dev/null", *words], user=work.user, input=work.body(), check=False
    )
    seconds = time.perf_counter() - begun
    text = " ".join((done.stderr + done.stdout).split())
    found = re.search(r"Submitted batch job (\d+)", done.stdout)
    offer = re.search(r"--deadline=([^ )]+)\)", text)
    return Said(work, at, int(found[1]) if found else 0, text, seconds, offer[1] if offer else "")


def _take_offer(running: Cluster, said: Said, begun: float, ids: Mapping[str, int]) -> Said:
    """Return what was said, and whether the job was accepted with the offered deadline."""
    if not said.offer:
        return said
    asked = said.work.arguments(begun, ids.get(said.work.before, 0))
    words = [word for word in asked if not word.startswith(("--deadline=", "--job-name="))]
    words += [f"--deadline={said.offer}", f"--job-name={said.work.name}-again"]
    again = _sbatch(running, said.work, words)
    if again.job:
        running.run(["scancel", str(again.job)], user=said.work.user)
    return Said(said.work, said.at, 0, said.text, said.seconds, said.offer, taken=bool(again.job))
