"""Recurring work of the site on nodes that jobs share: it takes whole nodes, or given amounts."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_reference import Job
from test_planning_on_shared_nodes import (
    NOW,
    RESOURCES,
    asked_in_turn,
    asking,
    chain,
    cluster,
    licensed,
    planned,
    streams,
)
from test_spare_on_shared_nodes import ask, placed, spare
from workloads import ended

from rtsched.core.decision import admission_actions, judge
from rtsched.core.plan_check import plan_fault
from rtsched.errors import ConfigError
from rtsched.model.blocked import NOTHING_BLOCKED, with_recurring
from rtsched.model.cluster import Cluster
from rtsched.model.jobs import Jobs, Periodic, occurrences
from rtsched.model.resources import demand_of, room_of
from rtsched.model.snapshot import Snapshot
from rtsched.replay.reservations import periodic_work
from rtsched.replay.settings import PeriodicTable
from rtsched.simulator.interface import StopConditions
from rtsched.simulator.machines import simulate
from rtsched.simulator.recurring import check_apart
from rtsched.simulator.settings import ExclusiveSettings
from rtsched.simulator.system import System


def work(*rows: tuple[int, float, float, float, tuple[int, ...] | None]) -> Periodic:
    """Return work from (node, first start, period, duration, amounts); None: all of the node."""
    node, first, period, duration, amounts = zip(*rows, strict=True)
    taken = [each or (0, 0, 0) for each in amounts]
    return Periodic.build(
        len(rows),
        names={"demand": RESOURCES},
        id=np.arange(len(rows)),
        node=np.array(node, np.int32),
        phase=NOW + np.array(first, np.float64),
        period=np.array(period, np.float64),
        exec_time=np.array(duration, np.float64),
        exclusive=np.array([each is None for each in amounts]),
        demand=np.array(taken, np.int64),
    )


def test_a_job_beside_and_between_occurrences() -> None:
    """Node 0 is taken whole for 10 s in every 40; on node 1 6 of 8 cores are for 20 s in every 50.

    From now on. 2 cores for 35 s have node 1 at once; 3 cores for 30 s node 0 at 10 s. For 40 s
    without an occurrence node 0 has no time ever, and node 1 has no 3 cores.
    """
    before = Snapshot(
        NOW,
        cluster((8, 8, 0), (8, 8, 0)),
        periodic=work((0, 0.0, 40.0, 10.0, None), (1, 0.0, 50.0, 20.0, (6, 1, 0))),
    )
    for cores, wall, start, where in ((2, 35.0, 0.0, 1), (3, 30.0, 10.0, 0)):
        job = asking((900.0, 1, wall, (cores, 1, 0)))
        assert placed(ask(job, before)) == {0: (start, start + wall, [where])}
    both = asking((900.0, 2, 20.0, (3, 1, 0)))
    assert placed(ask(both, before)) == {0: (20.0, 40.0, [0, 1])}
    never = ask(asking((900.0, 1, 40.0, (3, 1, 0))), before)
    assert never.offer.tolist() == [np.inf]
    assert placed(ask(asking((900.0, 1, 40.0, (2, 1, 0))), before)) == {0: (0.0, 40.0, [1])}


def test_the_checker_counts_occurrences() -> None:
    """From 40 to 50 s the node is the site's, and from 50 to 70 s 6 of its cores."""
    job, amounts = asking((900.0, 1, 20.0, (3, 1, 0))), (6, 1, 0)
    for periodic, starts in (
        (work((0, 0.0, 40.0, 10.0, None)), (15.0, 20.0)),
        (work((0, 0.0, 50.0, 20.0, amounts)), (25.0, 30.0)),
    ):
        before = Snapshot(NOW, cluster((8, 8, 0)), periodic=periodic)
        late = starts[1] + 1
        faults = [
            plan_fault(planned((0, start, start + 20.0, [0])), job, before, job.deadline)
            for start in (*starts, late)
        ]
        assert faults == [None, None, "takes more of node 0 than it has"]


def run(
    jobs: Jobs, seconds: list[float], machine: Cluster, periodic: Periodic, loop: Any = "easy"
) -> System:
    """Return the system when all has happened, without a planner."""
    return ended(
        simulate(
            jobs,
            np.array(seconds),
            machine,
            ExclusiveSettings(loop=loop),
            periodic=periodic,
            record_nodes=True,
        )
    )


@pytest.mark.parametrize("loop", ["fcfs", "easy", "conservative"])
def test_jobs_start_beside_occurrences(loop: str) -> None:
    """6 of 8 cores are the site's from 10 to 30 s, and every 50 s. Three jobs of 16 s come at 0."""
    # One with 2 cores starts at once, one with 4 at 30 s, one with 8 not at 46 s, since it would
    # run into the next occurrence at 60 s, but at 80 s. Where all of the node is the site's, the
    # first starts at 30 s.
    jobs = asking(*[(np.inf, 1, 16.0, (cores, 1, 0)) for cores in (2, 4, 8)])
    amounts = work((0, 10.0, 50.0, 20.0, (6, 1, 0)))
    outcomes = run(jobs, [16.0] * 3, cluster((8, 8, 0)), amounts, loop).job_outcomes()
    assert (outcomes.start - NOW).tolist() == [0.0, 30.0, 80.0]
    whole = run(jobs, [16.0] * 3, cluster((8, 8, 0)), work((0, 10.0, 50.0, 20.0, None)), loop)
    assert (whole.job_outcomes().start - NOW).tolist() == [30.0, 30.0, 80.0]


def test_work_that_may_meet_needs_room_together() -> None:
    """Periods 40 and 60 meet at any multiple of 20 s: 4 and 4 of 8 cores fit, 4 and 5 do not."""
    nodes = cluster((8, 8, 0))
    check_apart(work((0, 0.0, 40.0, 10.0, (4, 1, 0)), (0, 5.0, 60.0, 10.0, (4, 1, 0))), nodes)
    with pytest.raises(ConfigError, match="on node 0 occurrences of two periodic jobs overlap"):
        check_apart(work((0, 0.0, 40.0, 10.0, (4, 1, 0)), (0, 5.0, 60.0, 10.0, (5, 1, 0))), nodes)
    with pytest.raises(ConfigError, match="on node 0 occurrences of two periodic jobs overlap"):
        check_apart(work((0, 0.0, 40.0, 10.0, (4, 1, 0)), (0, 5.0, 60.0, 10.0, None)), nodes)
    three = work(*[(0, 5.0 * k, 40.0, 12.0, (3, 1, 0)) for k in range(3)])
    with pytest.raises(ConfigError, match="node 0 has no room for all periodic jobs"):
        check_apart(three, nodes)
    check_apart(three.take([0, 2]), nodes)


def test_tables_of_amounts() -> None:
    """By count, only nodes count that have so much."""
    machine = cluster((8, 8, 0), (8, 8, 4), (8, 8, 2))
    given_amounts = {"cpu": 2, "gres/gpu": 1}
    tables = [
        PeriodicTable("a", 100.0, 10.0, 2, amounts=given_amounts),
        PeriodicTable("b", 100.0, 10.0, 1),
    ]
    found, notes = periodic_work(tables, machine)
    assert found.node.tolist() == [1, 2, 0]
    assert found.exclusive.tolist() == [False, False, True]
    assert demand_of(found, machine)[:2, :3].tolist() == [[2, 0, 1]] * 2
    assert notes[0] == "a takes 10 s of every 100 s on 2 nodes: 2 of cpu, 1 of gres/gpu of each."


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"amounts": {"gres/gpu": 1}, "nodes": 3}, "3 asked for, 2 take jobs and have these"),
        ({"amounts": {"gres/gpu": 3}, "nodes": ["n*"]}, "'n*' has a node with less than these"),
        ({"amounts": {"license/a": 3}}, "no node has 'license/a'; there are cpu, mem, gres/gpu"),
        ({"amounts": {}}, "names no resource"),
    ],
)
def test_bad_amounts_are_refused(table: dict[str, Any], problem: str) -> None:
    """Each mistake is one sentence with its path."""
    machine = cluster((8, 8, 0), (8, 8, 4), (8, 8, 2), name=["n1", "n2", "n3"])
    with pytest.raises(ConfigError, match=r"workload\.periodic\[0\]") as caught:
        periodic_work([PeriodicTable("a", 100.0, 10.0, **table)], machine)
    assert problem in str(caught.value)
    whole = replace(machine, nodes=type(machine.nodes).build(3, name=["n1", "n2", "n3"]))
    if table["amounts"]:
        with pytest.raises(ConfigError, match="jobs have whole nodes here"):
            periodic_work([PeriodicTable("a", 100.0, 10.0, **table)], whole)


recurring = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 9),
        st.sampled_from([20, 30, 60]),
        st.integers(1, 6),
        st.one_of(st.none(), st.tuples(*[st.integers(0, 2)] * 3).filter(any)),
    ),
    min_size=1,
    max_size=3,
)


@pytest.mark.parametrize("select", ["response-first", "utilisation-first", "mcdf"])
@pytest.mark.parametrize("loop", ["fcfs", "easy", "conservative"])
@given(
    stream=streams(),
    capacity=st.lists(
        st.tuples(st.integers(2, 4), st.integers(2, 4), st.integers(2, 3)), min_size=1, max_size=3
    ),
    rows=recurring,
)
@settings(max_examples=60, deadline=None)
def test_promises_and_occurrences_are_kept(
    select: str,
    loop: Any,
    stream: tuple[list[Job], list[float]],
    capacity: list[tuple[int, ...]],
    rows: list[tuple[int, int, int, int, tuple[int, ...] | None]],
) -> None:
    """By a plain count at every start: jobs and occurrences take no more than there is."""
    jobs, deadlines = stream
    machine = licensed(2, *capacity)
    periodic = work(*[(node % len(capacity), *others) for node, *others in rows])
    try:
        check_apart(periodic, machine)
    except ConfigError:
        return
    table = asked_in_turn(jobs, deadlines)
    seconds = np.array([min(job.run, job.wall) for job in jobs])
    policy = chain() if select == "mcdf" else spare(select=select)
    system = simulate(
        table,
        seconds,
        machine,
        ExclusiveSettings(loop=loop),
        stop_at=StopConditions(arrivals=True, early_ends=True),
        periodic=periodic,
        record_nodes=True,
    )
    while not (point := system.advance()).done:
        snapshot = system.snapshot()
        if select == "mcdf":
            spans = with_recurring(NOTHING_BLOCKED, periodic, snapshot.now)
            snapshot = replace(snapshot, blocked=spans)
        arrived = table.take(point.arrivals)
        judgement = judge(snapshot, policy, arrived)
        assert not judgement.planner_error
        system.apply(admission_actions(arrived, judgement.verdicts))
    outcomes = system.job_outcomes()
    promised = np.isfinite(outcomes.promise)
    assert (outcomes.end[promised] <= outcomes.promise[promised] + 1e-5).all()
    ran = np.flatnonzero(np.isfinite(outcomes.start))
    offsets, nodes = system.node_rows()
    spans = [
        (outcomes.start[job], outcomes.end[job], where, taken)
        for job, taken in zip(ran, demand_of(table.take(ran), machine), strict=True)
        for where in nodes[offsets[job] : offsets[job + 1]]
    ]
    last = max((end for _, end, *_ in spans), default=NOW)
    of_work = demand_of(periodic, machine)
    spans += [
        (start, end, periodic.node[row], of_work[row])
        for row, start, end in zip(*occurrences(periodic, NOW, last), strict=True)
    ]
    room, on_nodes = room_of(machine), [*range(len(RESOURCES)), -1]
    for instant, *_ in spans:
        used = np.zeros_like(room)
        for start, end, where, taken in spans:
            if start <= instant + 1e-3 and end > instant + 2e-3:
                used[where] += taken
        assert (used[:, on_nodes] <= room[:, on_nodes]).all()
