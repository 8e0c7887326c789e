"""FCFS and EASY where jobs share nodes: passes that remember against ones that look at everything.

A pass remembers on which nodes each waiting job had no room, and looks again only where room came
free since. Here that is forgotten before each pass, and must make no difference; nor may the plain
way of `shared_reference`, with queues long enough for passes to remember something.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from exclusive_scenarios import ORIGIN
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_reference import Job, starts

from rtsched.kernels.machine import scalars
from rtsched.kernels.machine_sharing import ANYWHERE
from rtsched.model.actions import Place, Reserve
from rtsched.model.cluster import Cluster, Nodes, NodeState
from rtsched.model.jobs import Jobs
from rtsched.model.ragged import offsets_of
from rtsched.model.schedule import Schedule
from rtsched.model.verdicts import Placement
from rtsched.simulator.exclusive import ExclusiveNodes
from rtsched.simulator.interface import NodeEvent, StaticAnswers, StopConditions
from rtsched.simulator.settings import ExclusiveSettings

RESOURCES, LICENSE = ("cpu", "mem", "gres/gpu"), "license/matlab"
RULES = ["first", "first", "best_fit", "least_loaded", "fewest_stranded_gpus"]


def drawn(seed: int, nodes: int, others: int, licenses: int) -> tuple[list[tuple[int, ...]], Jobs]:
    """Return what nodes have, and jobs that come quicker than they end."""
    random = np.random.default_rng(seed)
    capacity: list[tuple[int, ...]] = [
        (int(random.integers(4, 17)), int(random.integers(8, 33)), int(random.choice([0, 2, 4])))
        for _ in range(nodes)
    ]
    demand = [random.integers(0, 9, others), random.integers(0, 13, others)]
    demand += [random.choice([0, 0, 0, 1, 2], others)]
    demand += [random.choice([0, 0, 1, 2], others) * (licenses > 0)]
    jobs = Jobs.build(
        others,
        id=np.arange(others),
        submit=ORIGIN + np.sort(random.integers(0, random.choice([1, others, 3 * others]), others)),
        wall_time=random.integers(5, 60, others).astype(np.float64),
        size=random.choice([1, 1, 1, 2, 3], others).astype(np.int32),
        names={"demand": (*RESOURCES, LICENSE)},
        demand=np.column_stack(demand).astype(np.int64),
        exclusive=random.random(others) < 0.05,
    )
    return capacity, jobs


def run_times(seed: int, jobs: Jobs) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return run times, of which half are the requested ones."""
    random = np.random.default_rng(seed)
    n = len(jobs)
    return np.maximum(jobs.wall_time - random.integers(0, 40, n) * random.integers(0, 2, n), 1.0)


def system_of(
    seed: int, capacity: list[tuple[int, ...]], jobs: Jobs, licenses: int, **more: Any
) -> ExclusiveNodes:
    """Return the machine before anything happened."""
    table = np.array(capacity, np.int64)
    nodes = Nodes.build(len(table), names={"capacity": RESOURCES}, capacity=table)
    cluster = Cluster(nodes, licenses={LICENSE: licenses} if licenses else {})
    return ExclusiveNodes(jobs, run_times(seed, jobs), cluster, record_nodes=True, **more)


def outcome(system: ExclusiveNodes) -> tuple[list[float], list[list[int]]]:
    """Return when each job started last, and on which nodes."""
    offsets, nodes = system.node_rows()
    start = np.nan_to_num(system.job_outcomes().start - ORIGIN, nan=-1.0)
    return start.tolist(), [part.tolist() for part in np.split(nodes, offsets[1:-1])]


def changes(seed: int, nodes: int) -> list[NodeEvent]:
    """Return nodes that go down or are drained, and come back."""
    random, time, events = np.random.default_rng(seed), ORIGIN, list[NodeEvent]()
    for _ in range(6):
        time += float(random.integers(1, 60))
        node, state = int(random.integers(nodes)), NodeState(int(random.integers(1, 3)))
        events.append(NodeEvent(time, node, state))
        events.append(NodeEvent(time + float(random.integers(1, 40)), node, NodeState.UP))
    return sorted(events, key=lambda event: event.time)


def sets_of(seed: int, jobs: int, nodes: int, planned: int) -> StaticAnswers:
    """Return node sets of most jobs that are not planned."""
    random = np.random.default_rng(seed)
    sets = tuple(
        random.permutation(nodes)[: random.integers(1, nodes + 1)].astype(np.int32)
        for _ in range(3)
    )
    code = random.integers(-1, 3, jobs).astype(np.int32)
    code[:planned] = -1
    return StaticAnswers(placement=Placement(np.zeros(jobs, np.int32), code, sets))


def lay_plan(system: ExclusiveNodes, planned: int) -> None:
    """Plan the first jobs, one after the other, on the first nodes."""
    jobs, nodes = system.jobs, len(system.cluster)
    size = np.minimum(jobs.size[:planned], nodes)
    start = ORIGIN + 60.0 + np.cumsum(jobs.wall_time[:planned])
    places = np.concatenate([np.arange(one, dtype=np.int32) for one in size.tolist()])
    end = start + jobs.wall_time[:planned]
    plan = Schedule.build(np.arange(planned), start, end, offsets_of(size), places)
    system.apply([Reserve(plan.entries.job, plan)])


def place_some(system: ExclusiveNodes, seed: int) -> None:
    """Give some of the jobs that wait another number of nodes and another node set."""
    random, queued = np.random.default_rng(seed), system.snapshot().queued
    sets = (np.arange(len(system.cluster), dtype=np.int32)[::2], np.zeros(1, np.int32))
    size = random.integers(0, 4, len(queued)).astype(np.int32)
    code = random.integers(-1, 2, len(queued)).astype(np.int32)
    system.apply([Place(queued.id, Placement(size, code, sets))])


@given(
    seed=st.integers(0, 2**16),
    nodes=st.sampled_from([2, 6, 30]),
    others=st.integers(1, 120),
    loop=st.sampled_from(["easy", "easy", "fcfs"]),
    rule=st.sampled_from(RULES),
    licenses=st.sampled_from([0, 0, 3]),
    planned=st.sampled_from([0, 0, 4]),
    depth=st.sampled_from([0, 0, 5]),
    sets=st.booleans(),
    fails=st.booleans(),
    places=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_what_a_pass_remembers_makes_no_difference(
    seed: int,
    nodes: int,
    others: int,
    loop: Any,
    rule: Any,
    licenses: int,
    planned: int,
    depth: int,
    sets: bool,
    fails: bool,
    places: bool,
) -> None:
    """Each job starts at the same time on the same nodes, whatever else there is."""
    capacity, jobs = drawn(seed, nodes, others, licenses)
    planned = min(planned, others)
    jobs = jobs.replace(submit=np.where(np.arange(others) < planned, ORIGIN, jobs.submit))
    systems = [
        system_of(
            seed,
            capacity,
            jobs,
            licenses,
            settings=ExclusiveSettings(loop=loop, placement=rule, depth=depth),
            static=sets_of(seed, others, nodes, planned) if sets else StaticAnswers(),
            node_events=changes(seed, nodes) if fails else (),
            stop_at=StopConditions(passes=True),
        )
        for _ in range(2)
    ]
    for system in systems:
        if planned:
            lay_plan(system, planned)
    step = 0
    while not (over := [system.advance().done for system in systems])[0]:
        assert not over[1]
        scalars(systems[1]._machine)["grown"] = ANYWHERE
        if places and step % 7 == 3:
            for system in systems:
                place_some(system, seed + step)
        step += 1
    assert over[1]
    assert outcome(systems[0]) == outcome(systems[1])


@pytest.mark.parametrize("loop", ["fcfs", "easy"])
@given(
    seed=st.integers(0, 2**16),
    nodes=st.sampled_from([3, 8]),
    others=st.integers(20, 60),
    rule=st.sampled_from(RULES),
    licenses=st.sampled_from([0, 3]),
)
@settings(max_examples=15, deadline=None)
def test_long_queues_as_the_plain_way(
    loop: Any, seed: int, nodes: int, others: int, rule: Any, licenses: int
) -> None:
    """The same as plain code that looks at every job and node at each event."""
    capacity, jobs = drawn(seed, nodes, others, licenses)
    system = system_of(
        seed, capacity, jobs, licenses, settings=ExclusiveSettings(loop=loop, placement=rule)
    )
    assert system.advance().done
    run = run_times(seed, jobs)
    plain = [
        Job(
            float(jobs.submit[i] - ORIGIN),
            int(jobs.size[i]),
            tuple(jobs.demand[i, :3].tolist()),
            float(jobs.wall_time[i]),
            float(run[i]),
            bool(jobs.exclusive[i]),
            int(jobs.demand[i, 3]),
        )
        for i in range(others)
    ]
    found = starts(plain, capacity, loop, rule, licenses=licenses)
    start, took = outcome(system)
    assert {i: (start[i], took[i]) for i in range(others) if start[i] >= 0.0} == found
