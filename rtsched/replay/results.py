"""Results of a policy: the rows that measures, reports and `explain` read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.core.chain import HookMetrics
from rtsched.model.blocked import NOTHING_BLOCKED, Blocked
from rtsched.model.final_state import FinalState
from rtsched.model.jobs import Periodic
from rtsched.model.log import Skipped
from rtsched.model.table import Column, Table, Text
from rtsched.replay.arrays import Arrays
from rtsched.replay.promisable import PromisableJobs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from rtsched.model.accounts import Accounts
    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Edges, Jobs
    from rtsched.model.limits import Limits
    from rtsched.model.log import Outcomes
    from rtsched.model.preemption import Preemption
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
        None: not known, or no policy rejected any (`rtsched.replay.baseline`).
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
