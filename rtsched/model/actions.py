"""Actions that the batch system is asked for: values, one per kind, each about many jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from rtsched.model.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rtsched.model.jobs import Jobs
    from rtsched.model.verdicts import Placement


@dataclass(frozen=True)
class Action:
    """Base of all actions. `job` holds job ids, int64[n]."""

    job: NDArray[np.int64]


@dataclass(frozen=True)
class Admit(Action):
    """Let the jobs into the queue; `promise` is inf or the deadline promised, float64[n]."""

    promise: NDArray[np.float64]


@dataclass(frozen=True)
class Reject(Action):
    """Turn the jobs away; `offer` is inf or the least acceptable deadline, `text` is for users."""

    offer: NDArray[np.float64]
    text: tuple[str, ...]


@dataclass(frozen=True)
class Hold(Action):
    """Keep the jobs from starting until released; `until` is -inf or when to ask again."""

    until: NDArray[np.float64]


@dataclass(frozen=True)
class Release(Action):
    """Let held jobs compete again."""


@dataclass(frozen=True)
class DropDeadline(Action):
    """Do not end the jobs at the deadlines that their users gave: they have no promise."""


@dataclass(frozen=True)
class Cancel(Action):
    """Remove the jobs; `text` is shown to their users."""

    text: tuple[str, ...]


@dataclass(frozen=True)
class SetPriority(Action):
    """Order the queue: higher `value` is sooner, float64[n]."""

    value: NDArray[np.float64]


@dataclass(frozen=True)
class ExchangePlaces(Action):
    """Have the jobs exchange their places in the queue, the lowest `rank` first, int64[n].

    All others keep their places, and a job that is no longer among these gets its own again.
    """

    rank: NDArray[np.int64]


@dataclass(frozen=True)
class Place(Action):
    """Give the jobs these sizes and node sets, row by row."""

    placement: Placement


@dataclass(frozen=True)
class Reserve(Action):
    """Keep nodes for promised starts: the whole new plan, in place of the old one.

    `jobs` are those of the plan, row by row, where jobs share nodes: what each takes there. The
    batch system may not know all of them yet. `unplanned` are ids of promised jobs for which the
    plan has no start now: they wait for one. `secured` are nodes to be kept for jobs that wait held
    and are promised nothing yet; nothing else is done about these jobs.
    """

    plan: Schedule
    jobs: Jobs | None = None
    unplanned: frozenset[int] = frozenset()
    secured: Schedule = field(default_factory=Schedule.empty)


@dataclass(frozen=True)
class SetNodeWeight(Action):
    """Prefer nodes of lower weight: `weight` is float64[m], one per node; `job` is empty."""

    weight: NDArray[np.float64]


@dataclass(frozen=True)
class Requeue(Action):
    """Stop running jobs and queue them again, keeping their checkpoints."""


@dataclass(frozen=True)
class Restart(Action):
    """Queue jobs again that have ended, to run from their beginning."""


@dataclass(frozen=True)
class Move(Action):
    """Migrate running jobs to other nodes, one entry of `moves` after the other.

    A move to the very nodes that a job runs on makes it adapt to their present load.
    """

    moves: Schedule


@dataclass(frozen=True)
class Notify(Action):
    """Tell the jobs' users something; one `text` per job."""

    text: tuple[str, ...]

    @classmethod
    def of(cls, texts: Mapping[int, str]) -> tuple[Action, ...]:
        """Return the action by which users read these texts, by job id; none if there are none."""
        return (cls(np.array(list(texts), np.int64), tuple(texts.values())),) if texts else ()
