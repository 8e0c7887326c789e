"""Logs, as readers make them: the jobs, and what became of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from rtsched.model.jobs import Edges, Jobs
from rtsched.model.table import Column, Table, Text

if TYPE_CHECKING:
    from rtsched.model.cluster import Cluster


class Ending(IntEnum):
    """How the log says a job ended."""

    UNKNOWN = 0
    COMPLETED = 1
    FAILED = 2
    CANCELLED = 3
    TIMEOUT = 4
    """Killed at its own time limit."""
    MISSED = 5
    """Killed or cancelled by the batch system at its deadline."""
    NODE_FAILURE = 6
    PREEMPTED = 7
    RUNNING = 8
    PENDING = 9
    RESIZED = 10
    """Not the end: it went on with other nodes, in a record of its own. In no `Log`."""


class Outcomes(Table):
    """One row per job of the log, in the same order: what really happened."""

    start = Column(np.float64, np.nan, "Seconds since the epoch; nan: never started.")
    end = Column(np.float64, np.nan, "Seconds since the epoch; nan: unknown.")
    run_time = Column(np.float64, np.nan, "Seconds it ran, suspensions left out; nan: unknown.")
    size = Column(np.int32, 0, "Nodes (slots, processors) it was given; 0: none or unknown.")
    ending = Column(np.int8, Ending.UNKNOWN, "An `Ending`.")
    restarts = Column(np.int32, 0, "How often it was requeued or started again.")
    nodes = Text("The node list as the log writes it.")
    reservation = Text("The site's reservation that it ran in, by name; missing: none, not read.")
    input_bytes = Column(np.float64, np.nan, "Bytes of input sent to it; nan: unknown, not read.")


@dataclass
class Skipped:
    """Records that a reader left out, counted by reason, each with its first place.

    Attributes
    ----------
    count : Counter of str
        Records left out per reason, a short plain text such as `run time is not a number`.
    first : dict of str to str
        Where the reason was first met, `FILE:LINE`.
    """

    count: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)

    def add(self, reason: str, where: str, times: int = 1) -> None:
        """Count `times` records left out for `reason`; `where` is the first one's place."""
        if times > 0:
            self.count[reason] += times
            self.first.setdefault(reason, where)


@dataclass(frozen=True)
class Log:
    """One or more log files of one site, read.

    Attributes
    ----------
    jobs : Jobs
        One row per job, in file order.
    outcomes : Outcomes
        The same rows: what the log records as having happened.
    sources : tuple of str
        The files.
    format : str
        Name of the format, `swf`, `sacct`, `sacct-json`, `condor-history`.
    edges : Edges
        Dependencies between jobs, where the log has them.
    cluster : Cluster or None
        The machine, where the log describes it (the SWF header does).
    assumptions : tuple of str
        What the reader had to assume, one plain sentence each.
    skipped : Skipped
        Records left out.
    """

    jobs: Jobs
    outcomes: Outcomes
    sources: tuple[str, ...]
    format: str
    edges: Edges = field(default_factory=lambda: Edges.build(0))
    cluster: Cluster | None = None
    assumptions: tuple[str, ...] = ()
    skipped: Skipped = field(default_factory=Skipped)


class FinalState(IntEnum):
    """What a policy made of a job."""

    FINISHED = 0
    REJECTED = 1
    """Rejected at submission."""
    UNFINISHED = 2
    """Never started, or lost: more nodes than the machine has up, or a node that died."""
