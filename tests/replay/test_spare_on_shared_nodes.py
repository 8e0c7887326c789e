"""The planner `spare` on nodes that jobs share: gaps in which their amounts are left, together."""

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_reference import Job
from test_planning_on_shared_nodes import (
    NOW,
    asking,
    cluster,
    keeps_promises,
    licensed,
    node,
    planned,
    streams,
)

from rtsched.core.chain import Chain, Member
from rtsched.core.plan_check import plan_fault
from rtsched.model.blocked import WHOLE, Blocked
from rtsched.model.cluster import Cluster, NodeState
from rtsched.model.jobs import Edges, Jobs
from rtsched.model.schedule import Promises
from rtsched.model.snapshot import Snapshot
from rtsched.model.verdicts import Verdict, Verdicts
from rtsched_plugins.spare import Spare

SELECT = ("response-first", "utilisation-first")


def spare(**settings: Any) -> Chain:
    """Return a chain of the one plug-in, as planner."""
    return Chain([Member("spare", Spare(Spare.Config(**settings)))], "spare")


def ask(jobs: Jobs, snapshot: Snapshot, **settings: Any) -> Verdicts:
    """Return the verdicts, of a plan that passes the checker."""
    chain = spare(**settings)
    verdicts = chain.admit(jobs, snapshot).verdicts
    assert not chain.hook_metrics["admit"]["spare"].first_error
    return verdicts


def placed(verdicts: Verdicts) -> dict[int, tuple[float, float, list[int]]]:
    """Return start, end and nodes by job id, seconds from now."""
    plan = verdicts.plan
    times = (plan.entries.start - NOW).tolist(), (plan.entries.end - NOW).tolist()
    return {
        job: (start, end, plan.nodes_of(row).tolist())
        for row, (job, start, end) in enumerate(zip(plan.entries.job.tolist(), *times, strict=True))
    }


def test_jobs_share_a_node_as_long_as_all_of_their_amounts_are_left() -> None:
    """Of 8 cores, 8 of memory and 4 GPUs: two with 2 GPUs together, then one; 4 cores beside it."""
    rows = [(300.0, 1, 100.0, (1, 1, 2))] * 3 + [(300.0, 1, 50.0, (7, 1, 0))]
    found = placed(ask(asking(*rows), Snapshot(NOW, cluster((8, 8, 4)))))
    assert found == {0: (0, 100, [0]), 1: (0, 100, [0]), 2: (100, 200, [0]), 3: (100, 150, [0])}


def test_a_common_gap_for_the_vector() -> None:
    """Node 0 has 2 cores left until 40 s, node 1 no memory from 60 to 90 s, node 2 no GPU at all.

    20 s on two nodes with 4 cores, 2 of memory and 1 GPU: from 40 to 60 s. 25 s: from 90 s on.
    """
    machine = cluster((8, 8, 4), (8, 8, 4), (8, 8, 0))
    held = asking((np.inf, 1, 40.0, (6, 1, 0)), (900.0, 1, 30.0, (1, 8, 0)))
    held = held.with_column("id", np.array([90, 91]))
    before = Snapshot(
        NOW,
        machine,
        queued=held.take([1]),
        running=held.take([0]),
        allocations=planned((90, -10.0, 40.0, [0])),
        plan=planned((91, 60.0, 90.0, [1])),
        promises=Promises.build(1, job=[91], deadline=[NOW + 900.0], made_at=NOW),
    )
    for wall, start in ((20.0, 40.0), (25.0, 90.0)):
        job = asking((500.0, 2, wall, (4, 2, 1)))
        assert placed(ask(job, before))[0] == (start, start + wall, [0, 1])
    late = ask(asking((100.0, 2, 25.0, (4, 2, 1))), before)
    assert late.code.tolist() == [Verdict.REJECT]
    assert late.offer.tolist() == [NOW + 115.0]
    assert late.findings[0].text(0).endswith("1 of 2 nodes would be free together in time")


def test_the_latest_end_that_is_in_time() -> None:
    """Of three nodes the first has its cores at 30 s, the second at 10 s, the third now."""
    # Response-first takes the third. Utilisation-first the first, due at 50 s the second.
    held = asking((np.inf, 1, 30.0, (6, 1, 0)), (np.inf, 1, 10.0, (6, 1, 0)))
    held = held.with_column("id", np.array([90, 91]))
    machine = cluster(*[(8, 8, 0)] * 3)
    runs = planned((90, 0.0, 30.0, [0]), (91, 0.0, 10.0, [1]))
    before = Snapshot(NOW, machine, running=held, allocations=runs)
    for due, start, where in ((100.0, 30.0, 0), (50.0, 10.0, 1), (35.0, 0.0, 2)):
        job = asking((due, 1, 30.0, (4, 1, 0)))
        assert placed(ask(job, before))[0] == (0.0, 30.0, [2])
        last = ask(job, before, select="utilisation-first")
        assert placed(last)[0] == (start, start + 30.0, [where])


def test_fast_nodes_take_less_time() -> None:
    """A job of 40 s takes 20 s on the fast node, where another one is until 15 s."""
    machine = cluster((8, 8, 0), (8, 8, 0), speed=np.array([2.0, 1.0]))
    held = asking((np.inf, 1, 15.0, (8, 1, 0))).with_column("id", np.array([90]))
    before = Snapshot(NOW, machine, running=held, allocations=planned((90, 0.0, 15.0, [0])))
    job = asking((100.0, 1, 40.0, (1, 1, 0)))
    assert placed(ask(job, before))[0] == (15.0, 35.0, [0])
    assert placed(ask(job, before, select="utilisation-first"))[0] == (0.0, 40.0, [1])
    short = replace(planned((0, 15.0, 34.0, [0])))
    fault = plan_fault(short, job, before, job.deadline)
    assert fault == "gives job 0 less time than it asks for"


def test_licences_and_exclusive_jobs() -> None:
    """Of two licences one is taken for 50 s; alone on a node a job takes all of its room."""
    held = asking((np.inf, 1, 50.0, (1, 0, 0, 1))).with_column("id", np.array([90]))
    machine = licensed(2, (8, 8, 0), (8, 8, 0))
    before = Snapshot(NOW, machine, running=held, allocations=planned((90, 0.0, 50.0, [0])))
    jobs = asking(
        (500.0, 2, 10.0, (1, 0, 0, 2)),
        (500.0, 1, 20.0, (1, 0, 0, 1)),
        (500.0, 1, 30.0, (1, 0, 0, 0)),
        exclusive=[False, False, True],
    )
    found = placed(ask(jobs, before))
    assert found == {0: (50, 60, [0, 1]), 1: (0, 20, [0]), 2: (0, 30, [1])}
    more = ask(asking((500.0, 1, 10.0, (1, 0, 0, 3))), before)
    assert (more.code.tolist(), more.offer.tolist()) == ([Verdict.REJECT], [np.inf])


@pytest.mark.parametrize("by", ["partition", "node_request", "pinned"])
def test_jobs_keep_to_nodes_that_they_may_use(by: str) -> None:
    """One node is drained, one is not among those allowed: the third is the job's."""
    state = np.array([NodeState.DRAINED, NodeState.UP, NodeState.UP], np.int8)
    allowed = {"some": np.array([True, False, True])}
    machine = cluster(*[(8, 8, 0)] * 3, state=state)
    machine = replace(machine, partitions=allowed, node_sets=allowed)
    column: Any = {by: 2 if by == "pinned" else ["some"]}
    job = asking((99.0, 1, 10.0, (1, 1, 0)), **column)
    assert placed(ask(job, Snapshot(NOW, machine))) == {0: (0.0, 10.0, [2])}


def test_a_graph_with_messages() -> None:
    """Two tasks that take 5 of 8 cores each: the second beside the first, or where it was."""
    # The third waits for both. On node 0 it has one result at once, and the other one 7 s after.
    machine = cluster((8, 8, 0), (8, 8, 0))
    edges = Edges.build(2, before=[0, 1], after=[2, 2], message_time=[7.0, 7.0])
    rows = [(100.0, 1, 10.0, (5, 1, 0)), (100.0, 1, 10.0, (5, 1, 0)), (100.0, 1, 5.0, (5, 1, 0))]
    jobs = asking(*rows, dag=np.full(3, 4))
    snapshot = Snapshot(NOW, machine, edges=edges)
    found = placed(ask(jobs, snapshot))
    assert found == {0: (0, 10, [0]), 1: (0, 10, [1]), 2: (17, 22, [0])}
    late = ask(jobs.with_column("deadline", np.full(3, NOW + 21.0)), snapshot)
    assert late.code.tolist() == [Verdict.REJECT] * 3
    assert late.offer.tolist() == [NOW + 22.0] * 3
    light = jobs.with_column("demand", np.array([[4, 1, 0]] * 3))
    assert placed(ask(light, snapshot))[2] == (10.0, 15.0, [0])


@pytest.mark.parametrize(
    ("machine", "first"),
    [(cluster((8, 8, 0), (8, 8, 0)), (0.0, 25.0, [1])), (Cluster.uniform(2), (30.0, 55.0, [1]))],
)
def test_what_is_set_aside_is_left_alone(
    machine: Cluster, first: tuple[float, float, list[int]]
) -> None:
    """A node is a reservation's from 20 to 60 s, 6 CPUs of the other one from 10 to 30 s."""
    # Where jobs have whole nodes, nobody is beside it there.
    blocked = Blocked.of([(0, NOW + 20, NOW + 60, WHOLE), (1, NOW + 10, NOW + 30, 6)])
    jobs = asking((900.0, 1, 25.0, (2, 1, 0)), (900.0, 2, 15.0, (3, 1, 0)))
    found = placed(ask(jobs, Snapshot(NOW, machine, blocked=blocked)))
    assert found == {0: first, 1: (60, 75, [0, 1])}


amount = st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 2), st.integers(0, 2))
spans = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(1, 8), amount), max_size=7
)
LICENSES = 2


def beside_each_other(
    drawn: list[tuple[int, int, int, tuple[int, ...]]], capacity: list[tuple[int, ...]]
) -> list[tuple[int, int, int, tuple[int, ...]]]:
    """Return those of the spans (node, start, end, amounts) for which there is room."""
    kept: list[tuple[int, int, int, tuple[int, ...]]] = []
    for where, start, length, takes in drawn:
        span = where % len(capacity), start, start + length, takes
        if all(room_at(time, span[0], [*kept, span], capacity) for time in range(span[1], span[2])):
            kept.append(span)
    return kept


def room_at(
    time: int,
    where: int,
    taken: list[tuple[int, int, int, tuple[int, ...]]],
    capacity: list[tuple[int, ...]],
    more: tuple[int, ...] = (0, 0, 0, 0),
) -> bool:
    """Return whether a node, and the licences, are enough at a whole second, for `more` too."""
    now = [span for span in taken if span[1] <= time < span[2]]
    here = [span[3] for span in now if span[0] == where]
    fits = all(sum(each[r] for each in here) + more[r] <= capacity[where][r] for r in range(3))
    return fits and sum(span[3][3] for span in now) + more[3] <= LICENSES


@given(
    capacity=st.lists(node, min_size=1, max_size=3),
    drawn=spans,
    size=st.integers(1, 2),
    wall=st.integers(1, 6),
    takes=amount,
    left=st.integers(1, 30),
    select=st.sampled_from(SELECT),
)
@settings(max_examples=300, deadline=None)
def test_as_by_trying_all_starts_and_sets_of_nodes(
    capacity: list[tuple[int, ...]],
    drawn: list[tuple[int, int, int, tuple[int, ...]]],
    size: int,
    wall: int,
    takes: tuple[int, ...],
    left: int,
    select: str,
) -> None:
    """The earliest end of all; or of the earliest ends with each node the last that is in time."""
    taken = beside_each_other(drawn, capacity)
    first: dict[int, int] = {}
    for start in range(60):
        able = [
            where
            for where in range(len(capacity))
            if all(
                room_at(time, where, taken, capacity, takes) for time in range(start, start + wall)
            )
        ]
        for chosen in combinations(able, size):
            for where in chosen:
                first.setdefault(where, start)
    ends = [start + wall for start in first.values()]
    in_time = [end for end in ends if end <= left]
    before = Snapshot(NOW, licensed(LICENSES, *capacity))
    if taken:
        jobs = asking(*[(900.0, 1, end - start, each) for _, start, end, each in taken])
        jobs = jobs.with_column("id", np.arange(len(jobs)) + 90)
        plan = [(90 + k, span[1], span[2], [span[0]]) for k, span in enumerate(taken)]
        before = replace(before, queued=jobs, plan=planned(*plan))
    found = ask(asking((float(left), size, float(wall), takes)), before, select=select)
    assert (found.code[0] == Verdict.ADMIT) == bool(in_time)
    if not in_time:
        assert found.offer[0] - NOW == (min(ends) if ends else np.inf) or select == SELECT[1]
        return
    start, end, nodes = placed(found)[0]
    assert end == (min(in_time) if select == SELECT[0] else max(in_time))
    assert len(set(nodes)) == size
    for where in nodes:
        for time in range(int(start), int(end)):
            assert room_at(time, where, taken, capacity, takes)


@pytest.mark.parametrize("select", SELECT)
@pytest.mark.parametrize("loop", ["fcfs", "easy", "conservative"])
@given(stream=streams(), capacity=st.lists(node, min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_every_promise_is_kept_beside_best_effort_jobs(
    select: str, loop: Any, stream: tuple[list[Job], list[float]], capacity: list[tuple[int, ...]]
) -> None:
    """Jobs come one after the other; each plan passes the checker and is carried out."""
    keeps_promises(spare(select=select), loop, stream, capacity)
