"""Interface of a simulated batch system: what it is given before it runs, and returns."""

from __future__ import annotations

import math
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.model.log import FinalState

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.verdicts import Finding, Placement


class StopConditions(NamedTuple):
    """At which occasions the system stops and asks."""

    arrivals: bool = False
    """Jobs came that must be judged."""
    passes: bool = False
    """Jobs wait and nodes are free: their priorities or node sets are wanted."""
    early_ends: bool = False
    """A job ended before its requested end while a plan exists."""
    nodes: bool = False
    """A node went down, was drained or came back."""


class StaticAnswers(NamedTuple):
    """Answers given before the run, because they cannot change while a job waits."""

    reject: NDArray[np.bool_] | None = None
    """bool[n]: turned away on arrival."""
    priority: NDArray[np.float64] | None = None
    """float64[n]: higher is sooner; used where the queue is ordered by priority."""
    placement: Placement | None = None
    """Sizes and node sets, row by row with the jobs."""


class NodeEvent(NamedTuple):
    """A node changes its state or, on a time-shared machine, its foreign load."""

    time: float
    """Seconds since the epoch."""
    node: int
    """Row of `Cluster.nodes`."""
    state: int
    """A `NodeState`."""
    foreign_load: float = math.nan
    """Runnable processes that belong to no job from then on; nan: as before."""


class DecisionPoint(NamedTuple):
    """Where the system stopped, and what it wants to know there."""

    time: float
    """Seconds since the epoch."""
    arrivals: NDArray[np.int64]
    """Rows of jobs to be judged, in order of (submit, id)."""
    passes: bool = False
    """Whether priorities and node sets of the waiting jobs are wanted."""
    early_end: bool = False
    """Whether a job ended early while a plan exists."""
    nodes_changed: bool = False
    """Whether a node changed its state."""
    arrived: int = 0
    """Jobs submitted so far."""
    done: bool = False
    """Whether nothing more will happen."""


class Outcome(Enum):
    """What became of an action."""

    DONE = "done"
    UNSUPPORTED = "unsupported"
    PARTLY = "partly"
    """Done for some jobs; the others no longer are in a state that allows it."""


class JobOutcomes(NamedTuple):
    """What happened to each job, `n` rows; times in seconds since the epoch."""

    start: NDArray[np.float64]
    """nan: it did not start."""
    end: NDArray[np.float64]
    """nan: it did not end."""
    size: NDArray[np.int32]
    """Nodes it ran on; 0: none."""
    fate: NDArray[np.int8]
    """A `FinalState`."""
    first_node: NDArray[np.int32]
    """Lowest node it ran on; -1: none."""
    promise: NDArray[np.float64]
    """Deadline promised; inf: none."""
    offer: NDArray[np.float64]
    """Counter-offer with its rejection; inf: none."""
    rejected: NDArray[np.bool_] | None = None
    """Which jobs were rejected and ran on; None: none."""
    restarts: NDArray[np.int32] | None = None
    """How often a dead node or preemption sent it back to the queue; None: never."""
    service: NDArray[np.float64] | None = None
    """Node-seconds that each job was served; None: its nodes served it from start to end."""
    preempted: NDArray[np.int32] | None = None
    """How often each job was preempted; None: there is no preemption."""
    lost: NDArray[np.float64] | None = None
    """Node-seconds of its runs that preemption ended; None: there is no preemption."""
    findings: tuple[Finding, ...] = ()
    """Why the system itself turned jobs away, held them up or never started them; rows of the
    workload."""
    released: int = 0
    """Jobs that did not wait for one they depend on, as that does not run."""
    beyond_limits: int = 0
    """Planned jobs that started though a group of theirs was at a limit."""


def final_states(*, finished: NDArray[np.bool_], rejected: NDArray[np.bool_]) -> NDArray[np.int8]:
    """Return each job's `FinalState`; one that is neither did not finish."""
    chosen = np.select(
        [rejected, finished],
        [np.int8(FinalState.REJECTED), np.int8(FinalState.FINISHED)],
        np.int8(FinalState.UNFINISHED),
    )
    return np.asarray(chosen, np.int8)
