"""A stream of jobs, played to a batch system in real time; what each of its users was told."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from measure import Row
    from stream import Extent, Work
    from testbed import Box

USERS = ("alice", "bob", "carol")
"""Who submits best-effort jobs."""
FAVOURED = "dave"
"""Who submits jobs with deadlines."""

DAEMON = """
[daemon]
cycle = 1.0
unused_offers_per_hour = 1000
unused_promises_per_hour = 0
"""
"""The user of the deadlines takes every offer and then removes the job, which a site may limit."""


@dataclass(frozen=True)
class Reply:
    """What became of one submission.

    Attributes
    ----------
    work : Work
        What was asked for.
    at : float
        When, seconds since the epoch.
    jobs : tuple of int
        Job ids; none: refused.
    text : str
        What its user read.
    seconds : float
        How long the command took.
    offer : str
        The deadline that was offered instead, in the batch system's words.
    taken : bool or None
        Whether the same was accepted with that deadline; None: not tried.
    """

    work: Work
    at: float
    jobs: tuple[int, ...]
    text: str
    seconds: float
    offer: str = ""
    taken: bool | None = None


@dataclass
class Book:
    """All submissions of a run, in their order; `begun` is seconds since the epoch."""

    begun: float
    replies: list[Reply] = field(default_factory=list)

    def ids(self) -> dict[str, int]:
        """Return the first job id by name."""
        return {reply.work.name: reply.jobs[0] for reply in self.replies if reply.jobs}


@dataclass(frozen=True)
class Setup:
    """Of what a machine of 30 nodes is set up for.

    Attributes
    ----------
    steered : bool
        Whether rtsched is on it.
    site : str
        The site.toml of the daemon.
    settings : mapping of str to str
        More of the batch system's own configuration.
    weights : bool
        Whether the daemon may weigh nodes.
    factors : mapping of str to float
        Priority factors of users.
    single : bool
        Whether each node can be killed on its own.
    """

    steered: bool
    site: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    weights: bool = False
    factors: Mapping[str, float] = field(default_factory=dict)
    single: bool = False


class Live(ABC):
    """A batch system of 30 nodes, 5 fast and 25 slow, that runs with rtsched or without.

    Attributes
    ----------
    name : str
        What it is called where it runs alone.
    command : str
        What its users submit with.
    margins : (float, float)
        Seconds by which a plan lets a job outlive its limit, and the same where its size is open.
    full, reduced : Extent
        How much is played to it.
    planners : mapping of str to tuple of str
        The kinds of jobs that each planner is given. `edf` is mcdf in the order of deadlines, in
        which every rejection comes with an offer.
    wide : bool
        Whether best-effort jobs have several nodes at a time.
    slow : float
        How many times as long its slow nodes take for a stream with deadlines.
    workload : str
        How `rtsched replay` is to read the accounting: lines of the `[workload]` table.
    pool : str
        The table `[policy.pool]` of a site.toml: its own loop, as set up here; empty: none.
    recurs_alone : bool
        Whether it keeps nodes free for recurring work without rtsched, too.
    recovery : float
        Seconds from the loss of a node, as set up here, until a job that it ran may start again.
    settling : float
        Seconds from the submission of best-effort jobs until those with deadlines arrive.
    licenses : int
        How many licences there are, where jobs share nodes.
    """

    name: ClassVar[str]
    command: ClassVar[str]
    margins: ClassVar[tuple[float, float]]
    full: ClassVar[Extent]
    reduced: ClassVar[Extent]
    planners: ClassVar[Mapping[str, tuple[str, ...]]]
    wide: ClassVar[bool]
    slow: ClassVar[float]
    workload: ClassVar[str]
    pool: ClassVar[str] = ""
    recurs_alone: ClassVar[bool] = True
    recovery: ClassVar[float]
    settling: ClassVar[float] = 3.0
    licenses: ClassVar[int] = 0

    def __init__(self, box: Box, setup: Setup) -> None:
        self.box = box
        self.setup = setup

    @classmethod
    @abstractmethod
    def up(cls, setup: Setup) -> AbstractContextManager[Self]:
        """Bring one up, the daemon too where there is one."""

    @abstractmethod
    def favour(self) -> None:
        """Let the system itself put the jobs with deadlines first."""

    @abstractmethod
    def submit(self, work: Work, begun: float, before: int = 0, deadline: str = "") -> Reply:
        """Submit; the stream began at `begun`, its predecessor has the id `before`.

        `deadline` is an offer that is taken.
        """

    @abstractmethod
    def cancel(self, jobs: Sequence[int]) -> None:
        """Cancel jobs, as their users do."""

    @abstractmethod
    def empty(self, users: Sequence[str]) -> None:
        """Cancel all jobs of users."""

    @abstractmethod
    def waiting(self) -> list[str]:
        """Return the user of each job that waits."""

    @abstractmethod
    def busy(self) -> bool:
        """Whether any job waits or runs."""

    @abstractmethod
    def kill_under(self, user: str, spared: Sequence[str]) -> str:
        """Kill a node that runs a job of a user's, of the latest first start; return its name.

        One that has begun again is left alone; empty if there is no other.
        """

    @abstractmethod
    def revive(self, node: str) -> None:
        """Bring back a node that was killed."""

    @abstractmethod
    def accounting(self) -> str:
        """Return what the system writes down of all jobs, as text."""

    @staticmethod
    @abstractmethod
    def rows(accounting: str) -> list[Row]:
        """Return each run of each job in such a text."""

    @staticmethod
    def named(job: int) -> str:
        """Return what the system calls a job."""
        return str(job)

    @abstractmethod
    def machine(self) -> str:
        """Return the nodes, as a file that `rtsched replay --cluster` reads."""

    @abstractmethod
    def save(self, directory: Path) -> None:
        """Keep logs, and what the system still knows."""

    @abstractmethod
    def recur(self, extent: Extent, begun: float) -> None:
        """Set up recurring work."""

    @abstractmethod
    def lateness(self, rows: Sequence[Row], extent: Extent, begun: float) -> list[float]:
        """Return by how many seconds recurring work started late."""


def submit_all(live: Live, works: Iterable[Work], begun: float) -> Book:
    """Submit jobs one behind the other, as fast as it goes."""
    book = Book(begun)
    book.replies += [live.submit(work, begun) for work in works]
    return book


def play(live: Live, works: Iterable[Work], *, offers: bool) -> Book:
    """Submit each job at its time; with `offers`, take each counter-offer, and cancel the job.

    A job whose predecessor was refused is not submitted.
    """
    book = Book(time.time())
    for work in works:
        time.sleep(max(0.0, book.begun + work.at - time.time()))
        before = book.ids().get(work.before, 0)
        if work.before and not before:
            continue
        reply = live.submit(work, book.begun, before)
        if offers and not reply.jobs and reply.offer:
            again = _taken(live, work, book.begun, before, reply.offer)
            live.cancel(again.jobs)
            reply = replace(reply, taken=bool(again.jobs))
        book.replies.append(reply)
    return book


def _taken(live: Live, work: Work, begun: float, before: int, offer: str) -> Reply:
    """Submit with the deadline that was offered.

    Where several jobs are judged one by one the offer is the first one's that has no room, and the
    next one may be answered with a later offer, which is taken in its turn.
    """
    again = live.submit(work, begun, before, offer)
    for _ in range(work.jobs - 1):
        if again.jobs or not again.offer:
            break
        again = live.submit(work, begun, before, again.offer)
    return again


def texts(live: Live, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Yield those files of a machine that exist, by their last names."""
    for name in names:
        source = live.box.path(name)
        if source.is_file():
            yield source.name, source.read_bytes()
