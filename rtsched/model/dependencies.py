"""Dependencies: when the jobs before a job have ended, as far as that is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rtsched.model.snapshot import places

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.snapshot import Snapshot


@dataclass(frozen=True)
class Dependencies:
    """What `n` jobs wait for: jobs that run, `k` times one of their own number, others.

    Attributes
    ----------
    ready : float64[n]
        When the running jobs that it waits for have ended at the latest, seconds since the epoch;
        -inf: it waits for none.
    unknown : int64[n]
        Id of a job that it waits for and of which no end is known; -1: there is none.
    before, after : int64[k]
        Row `after` waits for row `before`.
    lag : float64[k]
        Seconds after that.
    at_start : bool[k]
        Whether for its start only.
    """

    ready: NDArray[np.float64]
    unknown: NDArray[np.int64]
    before: NDArray[np.int64]
    after: NDArray[np.int64]
    lag: NDArray[np.float64]
    at_start: NDArray[np.bool_]

    def __bool__(self) -> bool:
        """Return whether any job waits for another one."""
        return bool(len(self.after) or (self.unknown >= 0).any() or (self.ready > -np.inf).any())


def dependencies_of(ids: NDArray[np.int64], snapshot: Snapshot) -> Dependencies:
    """Return what jobs wait for.

    Parameters
    ----------
    ids : int64[n]
        Jobs of the plan, or that are being planned.
    snapshot : Snapshot
        Its edges, and what runs.
    """
    edges = snapshot.edges
    if len(edges):
        edges = edges.take(np.flatnonzero(np.isin(edges.after, ids)))
    ready, unknown = np.full(len(ids), -np.inf), np.full(len(ids), -1, np.int64)
    after, _ = places(ids, edges.after)
    before, among = places(ids, edges.before)
    entries = snapshot.allocations.entries
    run, runs = places(entries.job, edges.before)
    end = np.full(len(edges), np.inf)
    end[runs] = np.where(edges.at_start[runs], -np.inf, entries.end[run[runs]])
    runs &= end < np.inf
    np.maximum.at(ready, after[runs], end[runs] + edges.message_time[runs])
    lost = ~runs & ~among
    unknown[after[lost]] = edges.before[lost]
    return Dependencies(
        ready,
        unknown,
        before[among],
        after[among],
        edges.message_time[among],
        edges.at_start[among],
    )
