"""Results of a policy: the rows that measures, reports and `explain` read; and who is promisable.

Promisable jobs are of a form that planners can promise a deadline to: what a job asks for, not what
became of it. Jobs that were cancelled before they started count too. Each task of an array is
counted, and a heterogeneous job whose components start together as one job.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rtsched.core.chain import HookMetrics
from rtsched.model.blocked import NOTHING_BLOCKED, Blocked
from rtsched.model.jobs import Periodic
from rtsched.model.log import FinalState, Skipped
from rtsched.model.resources import CPU, DISK, GRES, MEMORY, asking_for
from rtsched.model.table import Column, Table, Text
from rtsched.replay.arrays import Arrays, are_tasks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Edges, Jobs
    from rtsched.model.limits import Limits
    from rtsched.model.log import Log, Outcomes
    from rtsched.model.preemption import Preemption
    from rtsched.model.snapshot import Accounts
    from rtsched.simulator.interface import NodeEvent


__all__ = ["HookMetrics", "PolicyRun", "Results", "Workload"]


@dataclass(frozen=True)
class Workload:
    """A log made ready for replay: normalised, sorted by (submit, id), with every rule applied.

    Attributes
    ----------
    jobs : Jobs
        What policies may see, `n` rows.
    run_time : float64[n]
        Seconds each job really takes at `jobs.size` on nodes of speed 1; hidden from policies.
    outcomes : Outcomes
        The same rows: what the log records as having happened.
    cluster, accounts, edges
        The machine, who is charged with which share, dependencies.
    assumptions : tuple of str
        Everything that was assumed, one plain sentence each, for the table and the report.
    skipped : Skipped
        Records left out by reader and normalisation.
    sources : tuple of str
        The files.
    format : str
        The log's format.
    periodic : Periodic
        The site's recurring work.
    price : float
        Price of a row of the cluster for an hour.
    limits : Limits or None
        Limits of groups of jobs that the simulated system keeps to.
    promisable : PromisableJobs
        How many jobs of the log have a form that a deadline can be promised to.
    preemption : Preemption or None
        Who of the jobs may preempt whom.
    node_events : tuple of NodeEvent
        When nodes go out of service and come back, in order of time.
    blocked : Blocked
        When nodes are set aside by reservations.
    arrays : Arrays
        Those with one promise for all of their tasks, which planners are asked about as a whole.
    """

    jobs: Jobs
    run_time: NDArray[np.float64]
    outcomes: Outcomes
    cluster: Cluster
    accounts: Accounts
    edges: Edges
    assumptions: tuple[str, ...]
    skipped: Skipped
    sources: tuple[str, ...] = ()
    format: str = ""
    periodic: Periodic = field(default_factory=lambda: Periodic.build(0))
    price: float = 1.0
    promisable: PromisableJobs = field(default_factory=lambda: PromisableJobs(0, Skipped()))
    limits: Limits | None = None
    preemption: Preemption | None = None
    node_events: tuple[NodeEvent, ...] = ()
    blocked: Blocked = NOTHING_BLOCKED
    arrays: Arrays = field(default_factory=Arrays.none)

    @property
    def named(self) -> str:
        """Return what messages call the log: its files."""
        return ", ".join(self.sources) or "the log"


class Results(Table):
    """One row per job of the workload, in the same order. Times are seconds since the epoch."""

    start = Column(np.float64, np.nan, "When it started; nan: it did not.")
    end = Column(np.float64, np.nan, "When it ended; nan: it did not.")
    size = Column(np.int32, 0, "Nodes it ran on; 0: none.")
    fate = Column(np.int8, FinalState.FINISHED, "A `FinalState`.")
    first_node = Column(np.int32, -1, "Lowest node row it ran on; -1: none.")
    promise = Column(np.float64, np.inf, "The deadline it was promised; inf: no promise.")
    offer = Column(np.float64, np.inf, "Counter-offer: earliest feasible deadline; inf: none.")
    reason = Text("Code of the reason that decided its rejection or wait; missing: none.")
    ran_on = Column(np.bool_, False, "Whether it was rejected, and run all the same.")
    service = Column(
        np.float64,
        np.nan,
        "Node-seconds that it was served, where it had to share nodes; nan: `size` from start to "
        "end.",
    )
    preempted = Column(np.int32, 0, "How often it was preempted.")
    lost = Column(np.float64, 0.0, "Node-seconds of its runs that preemption ended.")

    def served(self) -> NDArray[np.float64]:
        """Return float64[n]: node-seconds that each job was served; nan: it did not end."""
        whole = (self.end - self.start) * self.size
        shared = np.isfinite(self.service)
        return np.where(shared, self.service, whole) if shared.any() else whole

    def serving(self) -> NDArray[np.int32] | NDArray[np.float64]:
        """Return [n]: nodes that served each job, on average from its start to its end."""
        shared = np.isfinite(self.service) & (self.end > self.start)
        if not shared.any():
            return self.size
        nodes = self.size.astype(np.float64)
        nodes[shared] = self.service[shared] / (self.end - self.start)[shared]
        return nodes


@dataclass(frozen=True)
class PolicyRun:
    """One policy's replay.

    Attributes
    ----------
    policy : str
        Its name.
    results : Results
        Per job.
    node_rows : (int64[n + 1], int32[k])
        Per job the node rows it ran on: `rows[indptr[i]:indptr[i + 1]]`; empty when not recorded.
    hooks : mapping of hook name to mapping of plug-in name to HookMetrics
        The chain's hook metrics.
    decisions : iterable of mapping
        One record per finding of a plug-in: `job` (row), `plugin`, `verdict`, `reason` (code),
        `text`, `numbers`.
    settings : mapping
        The policy's tables as they were used (system and plug-ins).
    seconds : float
        Wall time of the replay, left out of compared files.
    undone : mapping of str to int
        Per kind of action that the simulated system cannot do, for how many jobs it was asked for.
    released : int
        Jobs that did not wait for one they depend on, as that was rejected or never started.
    beyond_limits : int
        Jobs that started as planned though a group of theirs was at a limit.
    baseline_wait : float or None
        Mean wait, seconds, of the jobs that it accepted under the baseline without the others;
        None: not known, or no policy rejected any (`rtsched.replay.engine`).
    """

    policy: str
    results: Results
    node_rows: tuple[NDArray[np.int64], NDArray[np.int32]]
    hooks: Mapping[str, Mapping[str, HookMetrics]] = field(default_factory=dict)
    decisions: Iterable[Mapping[str, object]] = ()
    settings: Mapping[str, object] = field(default_factory=dict)
    seconds: float = 0.0
    undone: Mapping[str, int] = field(default_factory=dict)
    released: int = 0
    beyond_limits: int = 0
    baseline_wait: float | None = None

    @property
    def shares_nodes(self) -> bool:
        """Return whether a node may be given to several jobs at a time."""
        system: Any = self.settings.get("system", {})
        return bool(system.get("machine", "exclusive") != "exclusive")


class Obstacle(IntEnum):
    """Why no deadline can be promised to a job, if anything; the first that applies counts."""

    NONE = 0
    NO_SIZE = 1
    HETEROGENEOUS = 2
    LICENSES = 3
    GENERIC_RESOURCE = 4
    UNKNOWN_RESOURCE = 5
    TOO_LARGE = 6
    NO_TIME_LIMIT = 7
    ARRAY = 8


REASONS = {
    Obstacle.NO_SIZE: "the log does not say how many processors it asks for",
    Obstacle.HETEROGENEOUS: "it is a component of a heterogeneous job whose components ask for "
    "different nodes, or in all for more than there are",
    Obstacle.LICENSES: "it asks for licences or burst buffers, which are not taken into account",
    Obstacle.GENERIC_RESOURCE: "it asks for GPUs or other generic resources, which only --unit "
    "resources takes into account",
    Obstacle.UNKNOWN_RESOURCE: "it asks for a generic resource that no node has",
    Obstacle.TOO_LARGE: "too few nodes have what it asks for",
    Obstacle.NO_TIME_LIMIT: "it has no time limit",
    Obstacle.ARRAY: "it is a task of an array whose tasks need several nodes or licences",
}
"""Each obstacle in words."""


class PromisableJobs(NamedTuple):
    """How many jobs can be promised a deadline, and why others cannot."""

    jobs: int
    """Jobs of the log, those that cannot be replayed included."""
    others: Skipped
    """Those that cannot, by reason, each with its first job."""

    @property
    def promisable(self) -> int:
        """Return how many can."""
        return self.jobs - self.others.count.total()

    @property
    def share(self) -> float | None:
        """Return which part of them can; None where there are none."""
        return self.promisable / self.jobs if self.jobs else None


def obstacles(
    log: Log,
    size: NDArray[np.int32],
    room: int | NDArray[np.int32],
    cluster: Cluster,
    *,
    whole_arrays: bool = True,
) -> NDArray[np.int8]:
    """Return per job why no deadline can be promised to it, an `Obstacle`, int8[n].

    Parameters
    ----------
    log : Log
        As read, with `demand` where the log says what jobs ask for; components of heterogeneous
        jobs that start together are one job.
    size : int32[n]
        Rows of the cluster (nodes, processors) that each job asks for; 0 or less: not known.
    room : int or int32[n]
        On how many rows of the cluster each job fits.
    cluster : Cluster
        The machine.
    whole_arrays : bool
        Whether an array gets one promise for all of its tasks.
    """
    jobs = log.jobs
    generic = Obstacle.UNKNOWN_RESOURCE if cluster.shared else Obstacle.GENERIC_RESOURCE
    nowhere = [name for name in jobs.names("demand") if not _known(name, cluster)]
    holds = {
        Obstacle.NO_SIZE: size <= 0,
        Obstacle.HETEROGENEOUS: jobs.het_job >= 0,
        Obstacle.LICENSES: asking_for(jobs, [n for n in nowhere if not n.startswith(GRES)]),
        generic: asking_for(jobs, [name for name in nowhere if name.startswith(GRES)]),
        Obstacle.TOO_LARGE: size > room,
        Obstacle.NO_TIME_LIMIT: ~(np.isfinite(jobs.wall_time) & (jobs.wall_time > 0)),
        Obstacle.ARRAY: _of_wide_array(jobs, list(cluster.licenses)) & whole_arrays,
    }
    return np.select(list(holds.values()), [np.int8(code) for code in holds], np.int8(0))


def promisable_jobs(log: Log, obstacle: NDArray[np.int8]) -> PromisableJobs:
    """Return how many jobs can be promised a deadline, and why others cannot.

    Parameters
    ----------
    log : Log
        With `n` jobs.
    obstacle : int8[n]
        From `obstacles`.
    """
    others = Skipped()
    count = np.bincount(obstacle, minlength=len(Obstacle))
    for code in np.argsort(-count, kind="stable").tolist():
        if code != Obstacle.NONE and count[code]:
            first = log.jobs.take(np.flatnonzero(obstacle == code)[:1])
            others.add(REASONS[Obstacle(code)], f"job {first.labels()[0]}", int(count[code]))
    return PromisableJobs(len(log.jobs), others)


def _known(resource: str, cluster: Cluster) -> bool:
    """Return whether a resource is taken into account where jobs are given nodes."""
    counts = (CPU, MEMORY, DISK, *cluster.nodes.names("capacity"), *cluster.licenses)
    return resource in counts


def _of_wide_array(jobs: Jobs, licenses: list[str]) -> NDArray[np.bool_]:
    """Return which jobs are tasks of arrays whose tasks need several nodes or licences."""
    if not (jobs.array >= 0).any():
        return np.zeros(len(jobs), np.bool_)
    return are_tasks(jobs) & ((jobs.node_count > 1) | asking_for(jobs, licenses))
