"""A plan that is put off: the same jobs in the same order, and nobody ends too late for it."""

import numpy as np

from rtsched.core.plan_repair import right_shifted
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import Snapshot

NOW = 1_000_000.0


def plan_of(*entries: tuple[int, float, float, tuple[int, ...]]) -> Schedule:
    """Return a plan of entries: job, start and end in seconds from now, nodes."""
    job, start, end, nodes = zip(*entries, strict=True)
    indptr = np.cumsum([0, *map(len, nodes)])
    on = np.array([node for some in nodes for node in some], np.int32)
    return Schedule.build(job, NOW + np.array(start), NOW + np.array(end), indptr, on)


def shifted(plan: Schedule, deadlines: list[float], down: tuple[int, ...] = ()) -> dict[int, float]:
    """Return when each job starts, in seconds from now, on a machine of four nodes."""
    state = np.zeros(4, np.int8)
    state[list(down)] = 2
    snapshot = Snapshot(NOW, Cluster(Nodes.build(4).replace(state=state)))
    found = right_shifted(snapshot, plan, NOW + np.array(deadlines), 1.0)
    entries = found.entries
    assert np.array_equal(entries.size, plan.entries.size[np.isin(plan.entries.job, entries.job)])
    return dict(zip(entries.job.tolist(), (entries.start - NOW).tolist(), strict=True))


def test_each_waits_for_those_before_it_on_its_nodes() -> None:
    """Job 1 is late; jobs 2 and 3 come after it, job 4 has a node of its own."""
    plan = plan_of(
        (1, -25, 75, (0,)), (2, 75, 175, (0, 1)), (3, 180, 200, (1,)), (4, 50, 90, (2,))
    )  # fmt: skip
    assert shifted(plan, [1000.0] * 4) == {1: 0, 2: 100, 3: 200, 4: 50}


def test_who_would_end_too_late_keeps_its_start() -> None:
    """Job 2 has 10 s left; job 1, which is late and has time, begins after it, and job 3 then."""
    plan = plan_of((1, -25, 75, (0,)), (2, 75, 175, (0, 1)), (3, 175, 200, (0,)))
    assert shifted(plan, [1000.0, 185.0, 1000.0]) == {1: 175, 2: 75, 3: 275}


def test_who_is_late_itself_and_has_no_time_has_no_place() -> None:
    """Nor has one whose node is lost; others stay where they are."""
    plan = plan_of((1, -25, 75, (0,)), (2, 75, 175, (1, 2)), (3, 10, 90, (3,)))
    assert shifted(plan, [90.0, 1000.0, 1000.0], down=(2,)) == {3: 10}
