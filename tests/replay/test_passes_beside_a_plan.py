"""EASY and FCFS around reserved nodes: the compiled passes against one that looks at everything.

The loop searches for the head's shadow time among the gaps that begin soon, remembers which jobs
found too few nodes, and passes over those that cannot start. The reference here does none of this.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest
from exclusive_scenarios import ORIGIN
from hypothesis import given, settings
from hypothesis import strategies as st

from rtsched.model.actions import Reserve
from rtsched.model.cluster import Cluster, NodeState
from rtsched.model.jobs import Jobs
from rtsched.model.schedule import Schedule
from rtsched.model.table import offsets_of
from rtsched.model.verdicts import Placement
from rtsched.simulator.exclusive import ExclusiveNodes
from rtsched.simulator.interface import NodeEvent, StaticAnswers
from rtsched.simulator.settings import ExclusiveSettings


class Case(NamedTuple):
    """A machine, jobs in order of submission, of which the first ones are planned, and node sets.

    A set is a list of nodes, most wanted first; `sets_of` has that of each job, empty: all nodes.
    """

    nodes: int
    submit: list[int]
    run: list[int]
    wall: list[int]
    size: list[int]
    plan: list[tuple[int, list[int]]]
    sets_of: list[list[int]]


def case(seed: int, nodes: int, planned: int, others: int, sets: int) -> Case:
    """Return a random machine on which many jobs wait, and nodes are reserved again and again."""
    random = np.random.default_rng(seed)
    n = planned + others
    wall = random.integers(1, 40, n)
    if seed % 2:
        wall = random.choice([5, 10, 30], n)
    size = np.minimum(random.geometric(min(4.0 / nodes, 0.5), n), nodes)
    submit = np.sort(random.integers(0, max(2 * others, 1), n))
    submit[:planned] = 0
    plan, taken = list[tuple[int, list[int]]](), np.zeros((2000, nodes), np.bool_)
    for row in range(planned):
        start = int(random.integers(1, max(3 * others, 2)))
        free = np.flatnonzero(~taken[start : start + wall[row]].any(axis=0))
        while not len(free):
            start += 1
            free = np.flatnonzero(~taken[start : start + wall[row]].any(axis=0))
        size[row] = min(size[row], len(free))
        some = random.permutation(free)[: size[row]]
        taken[start : start + wall[row], some] = True
        plan.append((start, some.tolist()))
    known = [random.permutation(nodes)[: random.integers(1, nodes + 1)].tolist()] * (sets > 0)
    known += [random.permutation(nodes).tolist() for _ in range(sets - 1)]
    sets_of = [known[random.integers(sets)] if k % 3 and sets else [] for k in range(n)]
    sets_of[:planned] = [[]] * planned
    size = np.array([min(s, len(mine) or nodes) for s, mine in zip(size, sets_of, strict=True)])
    run = np.maximum(wall - random.integers(0, 20, n) * random.integers(0, 2, n), 1)
    numbers = (column.tolist() for column in (submit, run, wall, size))
    return Case(nodes, *numbers, plan, sets_of)


class Reference:
    """The machine once more: at every instant each pass looks at all nodes and all jobs.

    But where nothing is reserved, what the head keeps stays until a job ends, as is EASY's rule.
    """

    def __init__(self, given: Case, loop: str, depth: int) -> None:
        self.case, self.loop, self.depth = given, loop, depth
        self.start = [math.nan] * len(given.wall)
        self.took: list[list[int]] = [[]] * len(given.wall)
        self.running, self.queue = list[int](), list[int]()
        self.ahead = set(range(len(given.plan)))
        self.now, self.settled = 0.0, False
        self.shadow, self.extra = math.inf, 0
        self.kept, self.seen = list[int](), set[int]()
        self.limits = dict[int, float]()

    def simulate(self) -> None:
        """Let all jobs run."""
        case = self.case
        left = list(range(len(case.plan), len(case.wall)))
        while left or self.running or self.ahead:
            times = [self.start[row] + case.run[row] for row in self.running]
            times += [case.submit[row] for row in left]
            times += [case.plan[row][0] for row in self.ahead]
            self.now = min(times)
            ended = [row for row in self.running if self.start[row] + case.run[row] <= self.now]
            self.running = [row for row in self.running if row not in ended]
            self.settled = self.settled and not ended and len(self.queue) > 0
            for row in sorted(self.ahead):
                if case.plan[row][0] <= self.now:
                    self.settled = False
                    self.ahead.remove(row)
                    self.begin(row, case.plan[row][1])
            while left and case.submit[left[0]] <= self.now:
                self.queue.append(left.pop(0))
            if self.queue and self.free():
                self.make_pass()

    def begin(self, row: int, nodes: list[int]) -> None:
        """Start a job."""
        self.start[row], self.took[row] = self.now, nodes
        self.running.append(row)
        if row in self.queue:
            self.queue.remove(row)

    def free(self) -> list[int]:
        """Return the free nodes."""
        busy = {node for row in self.running for node in self.took[row]}
        return [node for node in range(self.case.nodes) if node not in busy]

    def spans(self, node: int) -> list[tuple[float, float]]:
        """Return what a node is reserved for."""
        plan, wall = self.case.plan, self.case.wall
        return [
            (plan[row][0], plan[row][0] + wall[row]) for row in self.ahead if node in plan[row][1]
        ]

    def is_open(self, node: int, start: float, end: float) -> bool:
        """Return whether a node is free then, by requested ends and reservations."""
        for row in self.running:
            if node in self.took[row] and self.start[row] + self.case.wall[row] > start:
                return False
        return all(first >= end or last <= start for first, last in self.spans(node))

    def choose(self, row: int) -> list[int]:
        """Return the nodes that a job may start on now; none: there are too few."""
        limits, size, mine = self.limits, self.case.size[row], self.case.sets_of[row]
        end = self.now + self.case.wall[row]
        free = [node for node in self.free() if end <= limits[node]]
        order = mine or sorted(free, key=lambda node: (limits[node], node))
        chosen = [node for node in order if node in free][:size]
        return chosen if len(chosen) == size else []

    def make_pass(self) -> None:
        """Start what may start."""
        if not self.settled:
            self.limits = {
                node: min((first for first, _ in self.spans(node)), default=math.inf)
                for node in range(self.case.nodes)
            }
            while self.queue and (nodes := self.choose(self.queue[0])):
                self.begin(self.queue[0], nodes)
            if not self.queue or self.loop != "easy" or not self.free():
                return
            self.protect(self.queue[0])
            self.seen = {self.queue[0]}
            self.settled = not self.ahead and self.depth == 0
        self.backfill()

    def protect(self, head: int) -> None:
        """Find when the head can start, and the free nodes that it needs then."""
        case = self.case
        size, wall, mine = case.size[head], case.wall[head], case.sets_of[head]
        mine = mine or list(range(case.nodes))
        times = [self.start[row] + case.wall[row] for row in self.running]
        times += [last for node in mine for _, last in self.spans(node)]
        self.shadow = min(
            time
            for time in [self.now, *times]
            if time >= self.now
            and sum(self.is_open(node, time, time + wall) for node in mine) >= size
        )
        usable = [node for node in mine if self.is_open(node, self.shadow, self.shadow + wall)]
        free = self.free()
        missing = size - sum(node not in free for node in usable)
        self.kept = [node for node in usable if node in free][: max(missing, 0)]
        self.limits |= {node: min(self.limits[node], self.shadow) for node in self.kept}
        self.extra = len(free) - len(self.kept)

    def backfill(self) -> None:
        """Start what does not delay the head."""
        case = self.case
        behind = [row for row in self.queue if row not in self.seen]
        self.seen |= set(behind)
        for row in behind[: self.depth or len(behind)]:
            in_time = self.now + case.wall[row] <= self.shadow
            if case.size[row] > len(self.free()) or not (in_time or case.size[row] <= self.extra):
                continue
            if nodes := self.choose(row):
                self.extra -= sum(node not in self.kept for node in nodes)
                self.begin(row, nodes)


def simulated(given: Case, loop: str, depth: int) -> tuple[list[float], list[list[int]]]:
    """Return when jobs start, and on which nodes, by the machine."""
    n, planned = len(given.wall), len(given.plan)
    jobs = Jobs.build(
        n,
        id=np.arange(n),
        submit=ORIGIN + np.array(given.submit, np.float64),
        wall_time=np.array(given.wall, np.float64),
        size=np.array(given.size, np.int32),
    )
    sets = list({tuple(mine): None for mine in given.sets_of if mine})
    code = np.array([sets.index(tuple(m)) if m else -1 for m in given.sets_of], np.int32)
    arrays = tuple(np.array(nodes, np.int32) for nodes in sets)
    placement = Placement(np.zeros(n, np.int32), code, arrays)
    system = ExclusiveNodes(
        jobs,
        np.array(given.run, np.float64),
        Cluster.uniform(given.nodes),
        ExclusiveSettings(loop="easy" if loop == "easy" else "fcfs", depth=depth),
        static=StaticAnswers(placement=placement) if sets else StaticAnswers(),
        node_events=[NodeEvent(ORIGIN + 1e6, 0, NodeState.UP)],  # passes look at single nodes
        record_nodes=True,
    )
    if planned:
        start = ORIGIN + np.array([float(at) for at, _ in given.plan])
        offsets = offsets_of(np.array(given.size[:planned]))
        nodes = np.array([node for _, some in given.plan for node in some], np.int32)
        ends = start + np.array(given.wall[:planned])
        plan = Schedule.build(np.arange(planned), start, ends, offsets, nodes)
        system.apply([Reserve(plan.entries.job, plan)])
    assert system.advance().done
    offsets, nodes = system.node_rows()
    took = [sorted(part.tolist()) for part in np.split(nodes, offsets[1:-1])]
    return (system.job_outcomes().start - ORIGIN).tolist(), took


@pytest.mark.parametrize("loop", ["fcfs", "easy"])
@given(
    seed=st.integers(0, 2**16),
    nodes=st.sampled_from([3, 8, 40]),
    planned=st.integers(0, 30),
    others=st.integers(1, 40),
    sets=st.integers(0, 3),
    depth=st.sampled_from([0, 0, 3]),
)
@settings(max_examples=25, deadline=None)
def test_passes_are_those_that_look_at_everything(
    loop: str, seed: int, nodes: int, planned: int, others: int, sets: int, depth: int
) -> None:
    """Each job starts at the same time on the same nodes, with node sets and without."""
    given = case(seed, nodes, planned, others, sets)
    reference = Reference(given, loop, depth)
    reference.simulate()
    start, took = simulated(given, loop, depth)
    assert start == reference.start
    assert took == [sorted(some) for some in reference.took]


@pytest.mark.parametrize("seed", [1, 2])
def test_long_queues_are_passed_as_if_each_job_were_looked_at(seed: int) -> None:
    """So are queues of several blocks, which a pass may leave out as wholes."""
    given = case(seed, 24, 60, 150, 0)
    given = given._replace(submit=[0] * 180 + given.submit[180:])
    reference = Reference(given, "easy", 0)
    reference.simulate()
    start, took = simulated(given, "easy", 0)
    assert start == reference.start
    assert took == [sorted(some) for some in reference.took]
