"""Jobs that an experiment submits: streams drawn from a seed.

All times are seconds; a job's body is a sleep, as long as its model says and somewhat less than it
asked for, as people do. How a batch system is told of a job stands with that system.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

HOUR = 3600.0
KINDS = ("rigid", "several", "moldable", "divisible", "chain", "array")


@dataclass(frozen=True)
class Load:
    """A divisible load: units, and seconds to send and to compute one."""

    sigma: float
    cms: float
    cps: float

    def seconds(self, nodes: int) -> float:
        """Return the run time (Lin, Lu, Deogun, Goddard 2005: E(sigma, n))."""
        beta = self.cps / (self.cms + self.cps)
        return self.sigma * (self.cms + self.cps) * (1 - beta) / (1 - beta**nodes)


@dataclass(frozen=True)
class Demand:
    """What a job takes on each of its nodes, which others share, and of licences in all."""

    cores: int = 1
    gigabytes: int = 1
    gpus: int = 0
    licenses: int = 0


@dataclass(frozen=True)
class Work:
    """What one submission of a stream asks for.

    Attributes
    ----------
    name, user : str
        Job name, unique, and who submits.
    at : float
        When, after the stream's start.
    least, most : int
        Nodes, all at a time.
    minutes : float
        Time limit on the fewest nodes.
    part : float
        Of the time that its model says, it really takes this much, if all its nodes are fast.
    kind : str
        One of `KINDS`.
    deadline : float
        After `at`; inf: best effort.
    jobs : int
        How many such jobs it is; all or none of them are accepted.
    load : Load, optional
        Of a divisible job.
    before : str
        Name of the job that it waits for.
    slow : float
        How many times as long it takes if any of its nodes is slow.
    linear : bool
        Whether twice the nodes are said to halve its run time, though it has no deadline.
    demand : Demand, optional
        What it takes on each node, a task of an array each; None: the whole node.
    tasks : int
        Of an array, which has one promise.
    """

    name: str
    user: str
    at: float
    least: int
    most: int
    minutes: float
    part: float
    kind: str = "rigid"
    deadline: float = math.inf
    jobs: int = 1
    load: Load | None = None
    before: str = ""
    slow: float = 1.0
    linear: bool = False
    demand: Demand | None = None
    tasks: int = 1


@dataclass(frozen=True)
class Extent:
    """How long an experiment is.

    Attributes
    ----------
    seconds : float
        For how long jobs with deadlines arrive.
    gap : float
        Mean seconds between two of them.
    minutes : tuple of float
        Time limits, of which one is drawn.
    slack : tuple of float
        Least and greatest deadline, as a multiple of the time limit, beyond `lead`.
    lead : float
        Seconds that every deadline has beyond that.
    nodes : tuple of int
        Nodes, of which one is drawn.
    flood : int
        Best-effort node-seconds that wait at the start.
    filling : tuple of float
        Time limits of best-effort jobs, of which one is drawn.
    part : tuple of float
        Least and greatest share of its limit that a job with a deadline takes on slow nodes.
    array : int
        Where jobs share nodes, how many best-effort jobs one large array has.
    """

    seconds: float
    gap: float
    minutes: tuple[float, ...]
    slack: tuple[float, float]
    lead: float
    nodes: tuple[int, ...]
    flood: int
    filling: tuple[float, ...] = (1, 1, 2, 3)
    part: tuple[float, float] = (0.8, 0.97)
    array: int = 0

    @property
    def longest(self) -> float:
        """Seconds until the last deadline has passed."""
        return self.seconds + self.lead + 60 * max(self.minutes) * self.slack[1]


@dataclass(frozen=True)
class Recurring:
    """Work that recurs every hour on some nodes.

    Attributes
    ----------
    name : str
        What it is called.
    rows : tuple of int
        The nodes, counted from 0.
    after : float
        Seconds from the start of the experiment to the first occurrence.
    minutes : int
        How long each takes.
    """

    name: str
    rows: tuple[int, ...]
    after: float
    minutes: int

    def columns(self, begun: float) -> list[dict[str, float]]:
        """Return the columns of `Periodic`, a row per node; `begun` is since the epoch."""
        length, start = self.minutes * 60.0, begun + self.after
        times = {"exec_time": length, "period": HOUR, "relative_deadline": HOUR, "phase": start}
        return [{"id": row, "node": row, **times} for row in self.rows]


def recurring(extent: Extent) -> list[Recurring]:
    """Return recurring work whose first occurrences fall into the experiment."""
    whole = 60 * round((40 + extent.seconds / 2) / 60)
    return [
        Recurring("backup", (28, 29), max(60, whole), 2),
        Recurring("model", (25, 26, 27), max(120, whole + 60), 2),
    ]


def deadline_stream(
    seed: int, extent: Extent, kinds: tuple[str, ...], user: str, slow: float = 1.0
) -> list[Work]:
    """Return jobs with deadlines, arriving as a Poisson process; limits are those of slow nodes."""
    chance = random.Random(seed)  # noqa: S311
    at, found = 0.0, list[Work]()
    while (at := at + chance.expovariate(1 / extent.gap)) < extent.seconds:
        work = Work(
            name=f"d{len(found)}",
            user=user,
            at=at,
            least=(least := chance.choice(extent.nodes)),
            most=least,
            minutes=(minutes := chance.choice(extent.minutes)),
            part=chance.uniform(*extent.part) / slow,
            kind=chance.choice(kinds),
            deadline=extent.lead + 60 * minutes * chance.uniform(*extent.slack),
            slow=slow,
        )
        found += _of_kind(work, chance)
    return found


def _of_kind(work: Work, chance: random.Random) -> list[Work]:
    """Return the jobs that one draw stands for, by its kind."""
    if work.kind == "several":
        return [replace(work, jobs=work.least, least=1, most=1)]
    if work.kind == "moldable":
        return [replace(work, most=2 * work.least)]
    if work.kind == "divisible":
        cps = chance.uniform(1.0, 2.0)
        sigma = float(round(60 * work.minutes * work.least * 0.9 / cps))
        return [replace(work, most=3 * work.least, load=Load(sigma, 0.01, round(cps, 3)))]
    if work.kind == "chain":
        name, after = work.name, 0.2
        first = replace(work, name=f"{name}-1", minutes=1)
        deadline = work.deadline + 90.0
        last = replace(first, name=f"{name}-2", at=work.at + after, before=first.name)
        return [replace(first, deadline=deadline), replace(last, deadline=deadline - after)]
    return [work]


def flood(
    seed: int,
    extent: Extent,
    users: tuple[str, ...],
    slow: float = 1.0,
    *,
    wide: bool = True,
) -> list[Work]:
    """Return best-effort jobs that together take enough seconds of slow nodes, all at once.

    Some are `wide`, on several nodes at a time; else they are several jobs.
    """
    chance = random.Random(seed)  # noqa: S311
    asked, found = 0.0, list[Work]()
    while asked < extent.flood:
        size = chance.choice((1, 1, 1, 2, 3))
        minutes = chance.choice(extent.filling)
        nodes = size if wide else 1
        work = Work(
            name=f"b{len(found)}",
            user=users[len(found) % len(users)],
            at=0.0,
            least=nodes,
            most=nodes,
            minutes=minutes,
            part=chance.uniform(0.4, 0.95) / slow,
            kind="rigid" if nodes == size else "several",
            jobs=size // nodes,
            slow=slow,
        )
        found.append(work)
        asked += size * minutes * 60 * work.part * slow
    return found


SHAPES = {
    "cores": ((1, Demand(4, 8)), (1, Demand(12, 16)), (2, Demand(8, 16)), (3, Demand(4, 8))),
    "gpus": ((1, Demand(2, 16, 1)), (1, Demand(4, 32, 2)), (2, Demand(4, 16, 3))),
    "memory": ((1, Demand(1, 48)), (1, Demand(2, 200)), (2, Demand(2, 40))),
}
"""Nodes, and what is taken on each: jobs bound by cores, by GPUs and by memory."""


LICENSED = 0.35
"""The share of jobs that take licences, of those that may."""

DRAIN_S = 240.0
"""So much later are the deadlines of arrays: other jobs leave their nodes first."""


def shared_stream(
    seed: int,
    extent: Extent,
    user: str,
    *,
    wide: bool = True,
    kinds: tuple[str, ...] = ("rigid",),
) -> list[Work]:
    """Return jobs with deadlines that share nodes, arriving as a Poisson process.

    Some are `wide`, on several nodes at a time; else they are several jobs. Among `kinds` may be
    moldable jobs and arrays of small tasks.
    """
    chance = random.Random(seed)  # noqa: S311
    more = random.Random(seed + 1)  # noqa: S311
    at, found = 0.0, list[Work]()
    while (at := at + chance.expovariate(1 / extent.gap)) < extent.seconds:
        size, demand = chance.choice(SHAPES[chance.choice(sorted(SHAPES))])
        minutes = chance.choice(extent.minutes)
        nodes = size if wide else 1
        work = Work(
            name=f"d{len(found)}",
            user=user,
            at=at,
            least=nodes,
            most=nodes,
            minutes=minutes,
            part=chance.uniform(*extent.part),
            kind="rigid" if nodes == size else "several",
            deadline=extent.lead + 60 * minutes * chance.uniform(*extent.slack),
            jobs=size // nodes,
            demand=demand,
        )
        found.append(_of_shared_kind(work, more.choice(kinds), more))
    return found


def _of_shared_kind(work: Work, kind: str, chance: random.Random) -> Work:
    """Return a job, or in its place a moldable one or an array."""
    if kind == "moldable":
        return replace(work, kind=kind, most=2 * work.least)
    if kind != "array":
        return work
    tasks = chance.randrange(20, 61)
    return replace(
        work,
        kind=kind,
        least=1,
        most=1,
        minutes=1,
        deadline=work.deadline + DRAIN_S,
        demand=Demand(1, 2),
        tasks=tasks,
    )


def shared_flood(seed: int, extent: Extent, users: tuple[str, ...]) -> list[Work]:
    """Return best-effort jobs for `extent.flood` core-seconds: arrays, memory hogs, GPU jobs.

    Before them comes one array of `extent.array` jobs.
    """
    chance = random.Random(seed)  # noqa: S311
    kinds = (Demand(1, 2), Demand(1, 2), Demand(2, 4), Demand(1, 56), Demand(2, 8, 1))
    asked, found = 0.0, list[Work]()
    while asked < extent.flood:
        demand, minutes = chance.choice(kinds), chance.choice(extent.filling)
        part, jobs = chance.uniform(0.4, 0.95), 40 if demand == kinds[0] else 1
        name, user = f"b{len(found)}", users[len(found) % len(users)]
        work = Work(name, user, 0.0, 1, 1, minutes, part, jobs=jobs, demand=demand)
        found.append(work)
        asked += jobs * demand.cores * minutes * 60 * part
    if not extent.array:
        return found
    minutes = extent.filling[0]
    array = Work("b-array", users[0], 0.0, 1, 1, minutes, 0.7, jobs=extent.array, demand=kinds[0])
    return [array, *found]


def licensed(seed: int, works: list[Work]) -> list[Work]:
    """Return the jobs, of which about a third takes one or two licences; arrays take none."""
    chance = random.Random(seed)  # noqa: S311
    found = []
    for work in works:
        takes, count = chance.random() < LICENSED, chance.choice((1, 2))
        if takes and work.demand is not None and work.kind != "array" and work.jobs == 1:
            work = replace(work, demand=replace(work.demand, licenses=count))
        found.append(work)
    return found
