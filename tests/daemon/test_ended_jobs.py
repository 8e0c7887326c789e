"""Jobs that polls show to end, where there is no accounting."""

from __future__ import annotations

import numpy as np

from rtsched.adapters.live import Completions
from rtsched.daemon.estimating import EndedJobs
from rtsched.model.cluster import Cluster
from rtsched.model.jobs import Jobs
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import Snapshot


def poll(queued: list[int], running: dict[int, float]) -> Snapshot:
    """Return a state with these jobs; those that run have their starts."""
    ids = sorted(running)
    starts = [running[job] for job in ids]
    return Snapshot(
        0.0,
        Cluster.uniform(8),
        queued=Jobs.build(len(queued), id=queued, name=["model"] * len(queued)),
        running=Jobs.build(len(ids), id=ids, name=["model"] * len(ids)),
        allocations=Schedule.build(
            ids,
            starts,
            [each + 100.0 for each in starts],
            np.arange(len(ids) + 1),
            np.arange(len(ids), dtype=np.int32),
        ),
    )


def test_ends_are_seen() -> None:
    """By the batch system's memory, else by the poll."""
    ended = EndedJobs()
    none = Completions.build(0)
    ended.poll(poll([3, 4], {1: 10.0, 2: 20.0}), none, 30.0)
    assert ended.taken() is None
    known = Completions.build(2, job=[1, 4], start=[10.0, 31.0], end=[33.0, 34.0])
    ended.poll(poll([], {}), known, 35.0)
    log = ended.taken()
    assert log is not None
    assert log.jobs.id.tolist() == [4, 1, 2]
    assert log.jobs.texts("name") == ["model"] * 3
    assert log.outcomes.end.tolist() == [34.0, 33.0, 35.0]
    assert log.outcomes.run_time.tolist() == [3.0, 23.0, 15.0]
    assert ended.taken() is None
