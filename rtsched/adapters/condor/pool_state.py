"""State of a pool at one poll, in HTCondor's own terms."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.condor.ids import PROC_BITS
from rtsched.model.snapshot import are_in
from rtsched.model.table import Column, Table, Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rtsched.adapters.condor.facts import CondorFacts
    from rtsched.adapters.live import Observation
    from rtsched.logs.classads import Record
    from rtsched.model.jobs import Jobs

IDLE, RUNNING, REMOVED, COMPLETED, HELD, TRANSFERRING, SUSPENDED = range(1, 8)
"""JobStatus."""

DEFERRED, UNJUDGED, JUDGED = "parked", "unjudged", "judged"
"""What RtAdmission says; the last of a job that starts by its node set only."""


class Procs(Table):
    """One row per proc in the queue, in order of (cluster, proc)."""

    job = Column(
        np.int64, -1, "The job in the models; procs of a divisible load, or an array, share one."
    )
    cluster = Column(np.int64, -1, "ClusterId.")
    proc = Column(np.int64, -1, "ProcId.")
    status = Column(np.int8, IDLE, "JobStatus.")
    passing = Column(np.bool_, False, "It is held by nobody, and goes on by itself.")
    spools = Column(np.bool_, False, "It is held from its submission on, for its files.")
    universe = Column(np.int8, 5, "JobUniverse.")
    submit = Column(np.float64, np.nan, "QDate, seconds since the epoch.")
    begin = Column(np.float64, -np.inf, "DeferralTime, seconds since the epoch; -inf: none.")
    start = Column(np.float64, np.nan, "JobCurrentStartDate of one that runs; else nan.")
    run_time = Column(np.float64, np.inf, "Stated run time, seconds; inf: none.")
    limited = Column(np.bool_, False, "That is a limit of HTCondor's own, which counts otherwise.")
    vacating = Column(
        np.float64, 0.0, "Seconds to leave its slot, beyond what the margin contains of them."
    )
    executing = Column(
        np.float64,
        np.nan,
        "Since when it runs, where only that counts for its limit; inf: it does not yet.",
    )
    cpus = Column(np.int32, 1, "RequestCpus.")
    memory = Column(np.int64, -1, "RequestMemory, bytes; -1: not known.")
    gpus = Column(np.int32, 0, "RequestGPUs.")
    disk = Column(
        np.int64,
        0,
        "RequestDisk where jobs share slots, bytes, rounded up: the most of any proc of its job.",
    )
    priority = Column(np.int32, 0, "JobPrio.")
    own_priority = Column(np.int32, 0, "JobPrio that its user gave it, where rtsched changed it.")
    reordered = Column(np.bool_, False, "RtJobPrio says so: JobPrio may be rtsched's.")
    user = Text("Owner.")
    submitter = Text("Who is charged, such as alice@example.org or group.alice@example.org.")
    account = Text("AcctGroup.")
    name = Text("JobBatchName, else Cmd's last part.")
    slot = Text("RemoteHost: the slot that it runs on.")
    admission = Text("RtAdmission.")
    node_set = Text("RtNodeSet.")
    rank_set = Text("RtRankSet.")


_RUNS = (RUNNING, TRANSFERRING, SUSPENDED, REMOVED)
"""States of procs that have a slot; a removed one has until it has cleaned up."""


def has_slot(procs: Procs) -> NDArray[np.bool_]:
    """Return bool[n]: which procs run."""
    return np.isin(procs.status, _RUNS)


def slot_names(names: str | None) -> list[str]:
    """Return the names of a list."""
    return [name.strip() for name in names.split(",")] if names else []


DEFERRAL_S = 600.0
"""Seconds at most for which a job may wait in its slot for its DeferralTime."""


def work_began(procs: Procs) -> NDArray[np.float64]:
    """Return float64[n]: when each that runs began to work, seconds since the epoch; nan: unknown.

    HTCondor gives a job its slot some time before its DeferralTime. A limit of HTCondor's own may
    count from when its files were there.
    """
    latest: NDArray[np.float64] = np.minimum(procs.begin, procs.start + DEFERRAL_S)
    return np.fmax(np.fmax(procs.start, latest), procs.executing)


@dataclass(frozen=True)
class Array:
    """A cluster with one promise, as a poll shows it.

    Attributes
    ----------
    per_slot : int
        How many of its procs run on a row of the cluster at a time.
    slots : tuple of str
        Names of the slots that it was given, each as often as it has rows of it; empty: none yet.
    waits, runs : tuple of int
        Rows of its procs that are idle or held, and of those that have slots.
    bound : float
        When its procs were given slots last, seconds since the epoch; -inf: they were not.
    """

    per_slot: int = 1
    slots: tuple[str, ...] = ()
    waits: tuple[int, ...] = ()
    runs: tuple[int, ...] = ()
    bound: float = -math.inf

    @property
    def at_a_time(self) -> int:
        """How many of its procs run at a time on its slots."""
        return len(self.slots) * self.per_slot

    def free_places(self, on: Sequence[str]) -> Counter[str]:
        """Return how many more procs may run on each of its slots; `on`: where some do."""
        room = Counter({slot: rows * self.per_slot for slot, rows in Counter(self.slots).items()})
        room.subtract(on)
        return Counter({slot: count for slot, count in room.items() if count > 0})


class Slots(Table):
    """One row per row of `Cluster.nodes`, in the same order."""

    name = Text("Name of the slot in the negotiator's eyes; several rows of one share it.")
    machine = Text("Machine.")
    cpus = Column(np.int32, 1, "CPUs of this row.")


@dataclass
class PoolState:
    """What the last poll showed, as changes are worked out from it.

    Attributes
    ----------
    procs : Procs
        All procs that were not over.
    ads : dict of int to Record
        By row of `procs`, the ads of those that want something of rtsched, names in lower case.
    slots : Slots
        The rows of the cluster in HTCondor's names.
    observation : Observation
        What the daemon was told.
    facts : CondorFacts
        Margins and limits.
    factors : dict of str to float
        Priority factors by submitter.
    negotiates : bool
        Whether the negotiator answered: without it the factors are those of the last time.
    bound : frozenset of int
        Jobs that wait and count as running: they have their slots, which are free.
    leaving : frozenset of str
        Slots whose jobs have been told to go, and have not gone yet.
    planned : Jobs or None
        The jobs of the plan that is kept, where jobs share slots; some may not be in the queue yet.
    unplanned : frozenset of int
        Promised jobs for which that plan has no start.
    arrays : dict of int to Array
        Clusters with one promise, by job.
    away : frozenset of int
        Schedds that do not answer, by their places in the settings: their procs are old ones.
    free : dict of str to tuple of float
        What partitionable slots have left beside their dynamic slots, by name: CPUs, MB, GPUs and
        KB of disk; where jobs do not share slots, CPUs that have their part of the memory.
    """

    procs: Procs
    ads: dict[int, Record]
    slots: Slots
    observation: Observation
    facts: CondorFacts
    factors: dict[str, float] = field(default_factory=dict)
    negotiates: bool = True
    bound: frozenset[int] = frozenset()
    leaving: frozenset[str] = frozenset()
    planned: Jobs | None = None
    unplanned: frozenset[int] = frozenset()
    arrays: dict[int, Array] = field(default_factory=dict)
    away: frozenset[int] = frozenset()
    free: dict[str, tuple[float, ...]] = field(default_factory=dict)

    @cached_property
    def place(self) -> dict[int, int]:
        """Row of the queue by job."""
        return {job: at for at, job in enumerate(self.observation.queued.id.tolist())}

    @cached_property
    def of_slot(self) -> dict[str, list[int]]:
        """Rows of the cluster by slot."""
        found: dict[str, list[int]] = {}
        for at, name in enumerate(self.slots.texts("name")):
            found.setdefault(name or "", []).append(at)
        return found

    @cached_property
    def behind(self) -> frozenset[int]:
        """The jobs that wait for others which have not ended."""
        return frozenset(self.observation.edges.after.tolist())

    @cached_property
    def numbers(self) -> NDArray[np.int64]:
        """Cluster and proc of each row of `procs` in one, int64[n]."""
        return self.procs.cluster << PROC_BITS | self.procs.proc

    def name_of(self, job: int) -> str:
        """Return what a job is called; `job`: cluster and proc in one."""
        return self.facts.names.of(job)

    def rows_of(self, jobs: Sequence[int], *states: int) -> dict[int, list[int]]:
        """Return the procs of jobs that are in one of these states, rows of `procs` in order."""
        found: dict[int, list[int]] = {job: [] for job in jobs}
        rows = np.flatnonzero(are_in(self.procs.job, jobs) & np.isin(self.procs.status, states))
        for row, job in zip(rows.tolist(), self.procs.job[rows].tolist(), strict=True):
            found[job].append(row)
        return found
