"""Small models with sensible columns, so that a test says only what it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Jobs
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import Snapshot
from rtsched.model.state import EventKind, EventRows, Events
from rtsched.model.table import Ragged

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def make_jobs(n: int | None = None, **columns: Any) -> Jobs:
    """Return `n` jobs of one node and one hour, submitted a minute apart from time 0.

    Parameters
    ----------
    n : int, optional
        Number of jobs; if left out, the length of the longest column given, or 1.
    **columns
        Columns of `Jobs`; a scalar, a text too, stands for all rows.
    """
    lengths = [len(values) for values in columns.values() if not np.isscalar(values)]
    count = n if n is not None else max(lengths, default=1)
    rows = np.arange(count)
    given: dict[str, Any] = {"id": rows, "submit": 60.0 * rows, "wall_time": 3600.0}
    for name, values in columns.items():
        given[name] = [values] * count if isinstance(values, str) else values
    return Jobs.build(count, **given)


def make_cluster(
    n: int = 16, *, partitions: Mapping[str, Sequence[int]] | None = None, **columns: Any
) -> Cluster:
    """Return `n` nodes that are up, and partitions given by the rows of their nodes."""
    masks = {}
    for name, rows in (partitions or {}).items():
        masks[name] = np.zeros(n, np.bool_)
        masks[name][list(rows)] = True
    return Cluster(Nodes.build(n, **columns), masks)


def make_snapshot(
    queued: Jobs | None = None,
    cluster: Cluster | None = None,
    now: float = 0.0,
    *,
    running: Jobs | None = None,
    nodes: Sequence[Sequence[int]] = (),
    **others: Any,
) -> Snapshot:
    """Return a snapshot of a system.

    Parameters
    ----------
    queued : Jobs, optional
        Jobs that wait.
    cluster : Cluster, optional
        The machine; 16 nodes if left out.
    now : float
        Seconds since the epoch.
    running : Jobs, optional
        Jobs that run since their submission.
    nodes : sequence of sequences of int
        The nodes of each running job.
    **others
        Further attributes of `Snapshot`: `accounts`, `states`, `promises`, ...
    """
    none = Jobs.build(0)
    running = none if running is None else running
    end = running.submit + running.wall_time
    allocations = Schedule.build(running.id, running.submit, end, *Ragged.of(nodes))
    return Snapshot(
        now,
        make_cluster() if cluster is None else cluster,
        none if queued is None else queued,
        running,
        allocations,
        **others,
    )


def make_events(jobs: Jobs, events: Sequence[tuple[float, EventKind, int]]) -> Events:
    """Return events given as (seconds since the epoch, kind, row of `jobs`), in order of time."""
    rows = np.array([row for _, _, row in events], np.int64)
    about = jobs.take(rows)
    table = EventRows.build(
        len(events),
        time=np.array([time for time, _, _ in events], np.float64),
        kind=np.array([kind for _, kind, _ in events], np.int8),
        size=about.size,
    )
    return Events(table, about)
