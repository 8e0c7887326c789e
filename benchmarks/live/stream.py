"""Jobs that an experiment submits: streams drawn from a seed, and what sbatch is told of each.

All times are seconds; a job's body is a sleep, as long as its model says and somewhat less than it
asked for, as people do.
"""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass, replace

KINDS = ("rigid", "moldable", "divisible", "chain")

BODY = """#!/bin/sh
exec awk -v n="${{RTSCHED_NODES:-$SLURM_JOB_NUM_NODES}}" -v on="$SLURM_JOB_NODELIST" 'BEGIN {{
    {model}
    if ({slow} > 1 && on ~ /slow/) t *= {slow}
    system("sleep " {part} * t)
}}'
"""
MODELS = {
    "rigid": "t = {seconds}",
    "chain": "t = {seconds}",
    "moldable": "t = {seconds} * {least} / n",
    "divisible": (
        "b = {cps} / ({cms} + {cps}); t = {sigma} * ({cms} + {cps}) * (1 - b) / (1 - b ^ n)"
    ),
}
"""How long a job of each kind takes on n nodes, as awk says it."""


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
class Work:
    """A job of a stream.

    Attributes
    ----------
    name, user : str
        Job name, unique, and who submits.
    at : float
        When, after the stream's start.
    least, most : int
        Nodes.
    minutes : int
        Time limit on the fewest nodes.
    part : float
        Of the time that its model says, it really takes this much.
    kind : str
        One of `KINDS`.
    deadline : float
        After `at`; inf: best effort.
    load : Load, optional
        Of a divisible job.
    before : str
        Name of the job that it waits for.
    slow : float
        How many times as long it takes if any of its nodes is slow.
    words : str
        More for `--extra`.
    """

    name: str
    user: str
    at: float
    least: int
    most: int
    minutes: int
    part: float
    kind: str = "rigid"
    deadline: float = math.inf
    load: Load | None = None
    before: str = ""
    slow: float = 1.0
    words: str = ""

    def arguments(self, begun: float, before: int = 0) -> list[str]:
        """Return what sbatch is told, where the stream began at `begun` (since the epoch)."""
        nodes = str(self.least) if self.least == self.most else f"{self.least}-{self.most}"
        words = [f"--job-name={self.name}", f"--nodes={nodes}", "--exclusive"]
        words.append(f"--time={self.minutes}")
        if math.isfinite(self.deadline):
            words.append(f"--deadline={moment(begun + self.at + self.deadline)}")
        if before:
            words.append(f"--dependency=afterok:{before}")
        extra = self.words
        if self.load is not None:
            extra = f"sigma={self.load.sigma:g},cms={self.load.cms:g},cps={self.load.cps:g}"
        if self.kind == "chain":
            extra = f"dag={self.name.rpartition('-')[0]}"
        return [*words, f"--extra=rtsched:{extra}"] if extra else words

    def body(self) -> str:
        """Return its script."""
        given: dict[str, float] = {"seconds": self.minutes * 60, "least": self.least}
        if self.load is not None:
            given |= {"sigma": self.load.sigma, "cms": self.load.cms, "cps": self.load.cps}
        model = MODELS[self.kind].format(**given)
        return BODY.format(model=model, slow=self.slow, part=self.part)


def moment(at: float) -> str:
    """Return seconds since the epoch as sbatch reads it; the cluster's time zone is UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))


@dataclass(frozen=True)
class Extent:
    """How long an experiment is.

    Attributes
    ----------
    seconds : float
        For how long jobs with deadlines arrive.
    gap : float
        Mean seconds between two of them.
    minutes : tuple of int
        Time limits, of which one is drawn.
    slack : tuple of float
        Least and greatest deadline, as a multiple of the time limit, beyond `lead`.
    lead : float
        Seconds that every deadline has beyond that.
    nodes : tuple of int
        Nodes, of which one is drawn.
    flood : int
        Best-effort node-seconds that wait at the start.
    """

    seconds: float
    gap: float
    minutes: tuple[int, ...]
    slack: tuple[float, float]
    lead: float
    nodes: tuple[int, ...]
    flood: int

    @property
    def longest(self) -> float:
        """Seconds until the last deadline has passed."""
        return self.seconds + self.lead + 60 * max(self.minutes) * self.slack[1]


def deadline_stream(seed: int, extent: Extent, kinds: tuple[str, ...], user: str) -> list[Work]:
    """Return jobs with deadlines, arriving as a Poisson process."""
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
            part=chance.uniform(0.8, 0.97),
            kind=chance.choice(kinds),
            deadline=extent.lead + 60 * minutes * chance.uniform(*extent.slack),
        )
        found += _of_kind(work, chance)
    return found


def _of_kind(work: Work, chance: random.Random) -> list[Work]:
    """Return the jobs that one draw stands for, by its kind."""
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


def flood(seed: int, node_seconds: float, users: tuple[str, ...]) -> list[Work]:
    """Return best-effort jobs that together ask for so many node-seconds, all at once."""
    chance = random.Random(seed)  # noqa: S311
    asked, found = 0.0, list[Work]()
    while asked < node_seconds:
        size = chance.choice((1, 1, 1, 2, 3))
        minutes = chance.choice((1, 1, 2, 3))
        work = Work(
            name=f"b{len(found)}",
            user=users[len(found) % len(users)],
            at=0.0,
            least=size,
            most=size,
            minutes=minutes,
            part=chance.uniform(0.4, 0.95),
        )
        found.append(work)
        asked += size * minutes * 60 * work.part
    return found
