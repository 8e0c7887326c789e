"""FCFS and EASY, on shared nodes and beside a plan: compiled passes against plain ones.

A pass remembers on which nodes each waiting job had no room, and looks again only where room came
free since. Here that is forgotten before each pass, and must make no difference, whatever happens
to the queue meanwhile; nor may the plain way of `shared_reference`, with queues long enough for
passes to remember something.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from exclusive_scenarios import ORIGIN
from hypothesis import example, given, settings
from hypothesis import strategies as st
from shared_reference import Job, starts

from rtsched.kernels.machine import scalars
from rtsched.kernels.machine_limits import ALLOTTED, HELD, REMAINING, USED
from rtsched.kernels.machine_sharing import ANYWHERE
from rtsched.model.actions import Action, Cancel, Hold, Place, Release, Reserve, SetPriority
from rtsched.model.cluster import Cluster, Nodes, NodeState
from rtsched.model.jobs import Edges, Jobs
from rtsched.model.limits import JOBS, Limits
from rtsched.model.preemption import Preemption
from rtsched.model.schedule import Schedule
from rtsched.model.table import Ragged, offsets_of
from rtsched.model.verdicts import Placement
from rtsched.simulator.exclusive import ExclusiveNodes
from rtsched.simulator.interface import NodeEvent, StaticAnswers, StopConditions
from rtsched.simulator.settings import ExclusiveSettings

RESOURCES, LICENSE = ("cpu", "mem", "gres/gpu"), "license/matlab"
RULES = ["first", "first", "best_fit", "least_loaded", "fewest_stranded_gpus"]


def drawn(seed: int, nodes: int, others: int, licenses: int) -> tuple[list[tuple[int, ...]], Jobs]:
    """Return what nodes have, and jobs that come quicker than they end.

    All times of half of the seeds are multiples of 10 s: then many jobs end at once.
    """
    random = np.random.default_rng(seed)
    grain = int(random.choice([1, 10]))
    capacity: list[tuple[int, ...]] = [
        (int(random.integers(4, 17)), int(random.integers(8, 33)), int(random.choice([0, 2, 4])))
        for _ in range(nodes)
    ]
    demand = [random.integers(0, 9, others), random.integers(0, 13, others)]
    demand += [random.choice([0, 0, 0, 1, 2], others)]
    demand += [random.choice([0, 0, 1, 2], others) * (licenses > 0)]
    submit = np.sort(random.integers(0, random.choice([1, others, 3 * others]), others))
    jobs = Jobs.build(
        others,
        id=np.arange(others),
        submit=ORIGIN + submit // grain * grain,
        wall_time=(random.integers(5, 60, others) // grain + 1.0) * grain,
        size=random.choice([1, 1, 1, 2, 3], others).astype(np.int32),
        names={"demand": (*RESOURCES, LICENSE)},
        demand=np.column_stack(demand).astype(np.int64),
        exclusive=random.random(others) < 0.05,
    )
    return capacity, jobs


def run_times(seed: int, jobs: Jobs) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return run times, of which half are the requested ones."""
    random = np.random.default_rng(seed)
    n, grain = len(jobs), int(np.gcd.reduce(jobs.wall_time.astype(np.int64)))
    less = random.integers(0, 40, n) * random.integers(0, 2, n) // grain * grain
    return np.maximum(jobs.wall_time - less, float(grain))


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


def plan_of(system: ExclusiveNodes, jobs: Any, begin: float) -> Reserve:
    """Return a plan of some jobs, one after the other from `begin` on, on the first nodes."""
    table = system._machine.jobs[np.searchsorted(system.jobs.id, jobs)]
    size = np.minimum(table["width"], len(system.cluster))
    end = begin + np.cumsum(table["wall"])
    places = [np.arange(one, dtype=np.int32) for one in size.tolist()]
    nodes = np.concatenate([np.zeros(0, np.int32), *places])
    plan = Schedule.build(jobs, end - table["wall"], end, offsets_of(size), nodes)
    return Reserve(plan.entries.job, plan)


def waiting_for_others(seed: int, jobs: Jobs, planned: int) -> tuple[Jobs, Edges]:
    """Return jobs of which some are tasks of arrays or may begin later, and who waits for whom."""
    random, n = np.random.default_rng(seed), len(jobs)
    array = random.integers(-1, 3, n)
    begin = jobs.submit + random.integers(0, 30, n) * (np.arange(n) >= planned)
    limit = np.array([0, 2, 5, 0], np.int32)[array]
    before, after = np.sort(random.integers(0, n, (2, n // 3)), axis=0)
    before, after = before[before < after], after[before < after]
    edges = Edges.build(
        len(after), before=before, after=after, at_start=random.random(len(after)) < 0.3
    )
    return jobs.replace(array=array, array_limit=limit, begin=begin), edges


def limits_of(seed: int, jobs: Jobs, basis: int) -> Limits:
    """Return limits of jobs, and of cores or core-seconds, of two groups that overlap."""
    random, n = np.random.default_rng(seed), len(jobs)
    groups = Ragged.of([[0], [1], [0, 1], []], np.int64)
    unit = 1.0 if basis == HELD else 120.0
    most = [random.integers(1, 8, 4).astype(float), unit * random.integers(5, 40, 4)]
    return Limits(
        (JOBS, "cpu"),
        np.array([HELD, basis]),
        np.column_stack([np.ones(n, np.int64), jobs.demand[:, 0] * jobs.size]),
        random.integers(0, 4, n),
        groups,
        np.column_stack(most),
        np.array([np.inf, 500.0]),
        ("one", "two"),
    )


def preemption_of(seed: int, n: int) -> Preemption:
    """Return who may preempt whom: three kinds of jobs, few of them of the highest."""
    random = np.random.default_rng(seed)
    may = np.zeros((3, 3), np.bool_)
    may[2, 0], may[2, 1], may[1, 0] = True, random.random() < 0.6, random.random() < 0.6
    kind = random.choice([0, 0, 0, 1, 1, 2], n).astype(np.int64)
    return Preemption(
        kind, may, random.random(3) < 0.2, np.arange(3.0), random.choice([0.0, 0.0, 10.0], 3)
    )


def action_on(system: ExclusiveNodes, seed: int) -> Action:
    """Return something that is done to some of the jobs that wait, or are held."""
    random, queued, m = np.random.default_rng(seed), system.snapshot().queued, len(system.cluster)
    some = queued.id[random.random(len(queued)) < random.choice([0.05, 0.3, 1.0])]
    k, what = len(some), int(random.integers(6))
    if what == 0:
        return SetPriority(some, random.integers(0, 5, k).astype(np.float64))
    if what == 1:
        until = system.now + random.integers(1, 40, k)
        return Hold(some, np.where(random.random(k) < 0.5, np.inf, until))
    if what == 2:
        return Release(system.jobs.id[random.random(len(system.jobs)) < 0.5])
    if what == 3:
        return Cancel(some[:1], ("",) * len(some[:1]))
    if what == 4:
        start = system.now + float(random.integers(60))
        return plan_of(system, some[: random.integers(4)], start)
    sets = (np.arange(m, dtype=np.int32)[::2], np.zeros(1, np.int32))
    size = random.integers(0, 4, k).astype(np.int32)
    return Place(some, Placement(size, random.integers(-1, 2, k).astype(np.int32), sets))


BASES = [None, None, HELD, REMAINING, USED, ALLOTTED]


@given(
    seed=st.integers(0, 2**16),
    nodes=st.sampled_from([1, 2, 6, 30]),
    others=st.integers(1, 140),
    loop=st.sampled_from(["easy", "easy", "fcfs"]),
    order=st.sampled_from(["arrival", "priority"]),
    rule=st.sampled_from(RULES),
    licenses=st.sampled_from([0, 0, 3]),
    planned=st.sampled_from([0, 0, 4]),
    depth=st.sampled_from([0, 0, 0, 5]),
    sets=st.booleans(),
    fails=st.booleans(),
    requeue=st.booleans(),
    waits=st.booleans(),
    basis=st.sampled_from(BASES),
    preempts=st.booleans(),
    every=st.sampled_from([0, 3, 9]),
)
@settings(max_examples=150, deadline=None)
def test_what_a_pass_remembers_makes_no_difference(
    seed: int,
    nodes: int,
    others: int,
    loop: Any,
    order: Any,
    rule: Any,
    licenses: int,
    planned: int,
    depth: int,
    sets: bool,
    fails: bool,
    requeue: bool,
    waits: bool,
    basis: int | None,
    preempts: bool,
    every: int,
) -> None:
    """Each job starts at the same time on the same nodes, whatever else there is."""
    # At one of `every` stops something is done to jobs that wait; 0: never.
    capacity, jobs = drawn(seed, nodes, others, licenses)
    planned, edges = min(planned, others), None
    jobs = jobs.replace(submit=np.where(np.arange(others) < planned, ORIGIN, jobs.submit))
    if waits:
        jobs, edges = waiting_for_others(seed, jobs, planned)
    systems = [
        system_of(
            seed,
            capacity,
            jobs,
            licenses,
            settings=ExclusiveSettings(
                loop=loop, order=order, placement=rule, depth=depth, requeue=requeue
            ),
            edges=edges,
            limits=None if basis is None else limits_of(seed, jobs, basis),
            preemption=preemption_of(seed, others) if preempts else None,
            static=sets_of(seed, others, nodes, planned) if sets else StaticAnswers(),
            node_events=changes(seed, nodes) if fails else (),
            stop_at=StopConditions(passes=True),
        )
        for _ in range(2)
    ]
    for system in systems:
        if planned:
            system.apply([plan_of(system, jobs.id[:planned], ORIGIN + 60.0)])
    step = 0
    while not (points := [system.advance() for system in systems])[0].done:
        assert points[0].time == points[1].time
        scalars(systems[1]._machine)["grown"] = ANYWHERE
        if every and step % every == 1:
            action = action_on(systems[0], seed + step)
            for system in systems:
                system.apply([action])
        step += 1
    assert points[1].done
    assert outcome(systems[0]) == outcome(systems[1])


@pytest.mark.parametrize("loop", ["fcfs", "easy"])
@given(
    seed=st.integers(0, 2**16),
    nodes=st.sampled_from([3, 8]),
    others=st.integers(20, 60),
    rule=st.sampled_from(RULES),
    licenses=st.sampled_from([0, 3]),
)
@example(seed=1, nodes=3, others=58, rule="best_fit", licenses=3)
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


def test_a_job_without_room_that_came_to_be_over_a_limit_is_reported() -> None:
    """The user of jobs 3 and 4 may have 2 cores at a time."""
    # Jobs 0 and 1 run, 2 is the head, and 3 has no room. From 3 on 4 has a core of the two, so that
    # 3, which asks for both, is over the limit until 53.
    cores = np.array([[3], [1], [4], [2], [1]], np.int64)
    jobs = Jobs.build(
        5,
        id=np.arange(5),
        submit=np.array([0.0, 0.0, 1.0, 2.0, 3.0]),
        wall_time=np.array([100.0, 20.0, 10.0, 10.0, 50.0]),
        names={"demand": ("cpu",)},
        demand=cores,
    )
    limits = Limits(
        ("cpu",),
        np.array([HELD]),
        cores,
        np.array([1, 1, 1, 0, 0]),
        Ragged.of([[0], []], np.int64),
        np.array([[2.0]]),
        np.array([np.inf]),
        ("user",),
    )
    capacity = np.array([[4], [1]], np.int64)
    cluster = Cluster(Nodes.build(2, names={"capacity": ("cpu",)}, capacity=capacity))
    easy = ExclusiveSettings(loop="easy")
    system = ExclusiveNodes(jobs, jobs.wall_time.copy(), cluster, easy, limits=limits)
    assert system.advance().done
    findings = system.job_outcomes().findings
    assert [finding.rows.tolist() for finding in findings] == [[3]]


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
