"""Promises that survive the loss of nodes: any node is killed at any instant, and none breaks."""

from dataclasses import dataclass, field, replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtsched.core.capabilities import PreparedState
from rtsched.model.cluster import Cluster, Nodes, NodeState
from rtsched.model.jobs import Jobs
from rtsched.model.schedule import Promises, Schedule
from rtsched.model.snapshot import Snapshot
from rtsched.model.verdicts import Verdict
from rtsched_plugins.mcdf import Mcdf

EPS = 1e-6


@dataclass
class Machine:
    """A machine of equal nodes that runs its plan; all jobs run as long as they may.

    `recovery`: seconds until a loss is noticed.
    """

    nodes: int
    planner: Mcdf
    recovery: float = 0.0
    now: float = 0.0
    jobs: dict[int, tuple[int, float, float, float]] = field(default_factory=dict)
    """Size, wall time, deadline and submission of each admitted job."""
    runs: dict[int, tuple[float, tuple[int, ...]]] = field(default_factory=dict)
    ended: dict[int, float] = field(default_factory=dict)
    dead: set[int] = field(default_factory=set)
    noticed: set[int] = field(default_factory=set)
    plan: Schedule = field(default_factory=Schedule.empty)

    def rows(self, ids: list[int]) -> Jobs:
        """Return jobs as a planner sees them."""
        columns = [self.jobs[job] for job in ids]
        return Jobs.build(
            len(ids),
            id=ids or None,
            size=[c[0] for c in columns] or None,
            wall_time=[c[1] for c in columns] or None,
            deadline=[c[2] for c in columns] or None,
            submit=[c[3] for c in columns] or None,
        )

    def snapshot(self) -> Snapshot:
        """Return what a planner sees."""
        state = np.zeros(self.nodes, np.int8)
        state[list(self.noticed)] = NodeState.DOWN
        names = [f"n{k}" for k in range(self.nodes)]
        here = [job for job in self.jobs if job not in self.ended]
        running = [job for job in here if job in self.runs]
        counts = [len(self.runs[job][1]) for job in running]
        starts = [self.runs[job][0] for job in running]
        where = [node for job in running for node in self.runs[job][1]]
        return Snapshot(
            self.now,
            Cluster(Nodes.build(self.nodes, name=names, state=state)),
            queued=self.rows([job for job in here if job not in self.runs]),
            running=self.rows(running),
            allocations=Schedule.build(
                running,
                starts,
                [s + self.jobs[j][1] for s, j in zip(starts, running, strict=True)],
                np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
                np.array(where, np.int32),
            ),
            promises=Promises.build(
                len(here), job=here or None, deadline=[self.jobs[j][2] for j in here] or None
            ),
            plan=self.plan,
        )

    def submit(self, size: int, wall: float, slack: float) -> bool:
        """Ask for a deadline; return whether it was promised."""
        job = len(self.jobs) + 1000
        deadline = self.now + slack * wall + 1.0
        asked = Jobs.build(
            1, id=[job], size=[size], wall_time=[wall], deadline=[deadline], submit=[self.now]
        )
        verdicts = self.planner.judge(asked, self.snapshot(), PreparedState())
        if verdicts.code[0] != Verdict.ADMIT:
            return False
        self.jobs[job], self.plan = (size, wall, deadline, self.now), verdicts.plan
        return True

    def replan(self) -> None:
        """Have the planner look again."""
        found = self.planner.judge(self.rows([]), self.snapshot(), PreparedState())
        if found is not None:
            self.plan = found.plan

    def kill(self, node: int) -> None:
        """Lose a node; whoever runs there begins again when that is noticed."""
        self.dead.add(node)
        self.advance(self.now + self.recovery)
        self.noticed.add(node)
        self.runs = {job: run for job, run in self.runs.items() if not self.dead & set(run[1])}
        self.replan()

    def advance(self, until: float) -> None:
        """Run until an instant; what ends on a dead node has not ended."""
        while True:
            ends = [
                (start + self.jobs[job][1], 0, job)
                for job, (start, nodes) in self.runs.items()
                if not self.dead & set(nodes)
            ]
            starts = []
            for row, job in enumerate(self.plan.entries.job.tolist()):
                if not self.dead & set(self.plan.nodes_of(row).tolist()):
                    starts.append((max(float(self.plan.entries.start[row]), self.now), 1, row, job))
            coming = [each for each in (*ends, *starts) if each[0] <= until + EPS]
            if not coming:
                self.now = max(self.now, until)
                return
            at, what, *rest = min(coming)
            self.now = max(self.now, at)
            if what == 0:
                (job,) = rest
                self.ended[job] = at
                del self.runs[job]
                continue
            row, job = rest
            nodes = tuple(self.plan.nodes_of(row).tolist())
            busy = {node for _, run in self.runs.values() for node in run}
            assert not busy & set(nodes), "a node is free when a job is to start there"
            self.runs[job] = (at, nodes)
            kept = np.flatnonzero(np.arange(len(self.plan)) != row)
            self.plan = self.plan.take(kept)

    def late(self) -> list[int]:
        """Run to the end; return the jobs whose promise is not kept."""
        self.advance(self.now + 1e7)
        return [
            job
            for job, (_, _, deadline, _) in self.jobs.items()
            if self.ended.get(job, np.inf) > deadline + 1e-3
        ]


def loaded(
    nodes: int,
    spare: int,
    wishes: list[tuple[int, float, float, float]],
    recovery: float = 0.0,
    order: str = "cost-derivative",
) -> Machine:
    """Return a machine with what it promised of these: pause, size, wall time, slack."""
    config = Mcdf.Config(spare_nodes=spare, recovery=recovery, order=order)
    machine = Machine(nodes, Mcdf(config), recovery)
    for pause, size, wall, slack in wishes:
        machine.advance(machine.now + pause)
        machine.submit(size, wall, slack)
    return machine


def copy(machine: Machine) -> Machine:
    """Return a machine that goes its own way."""
    return replace(
        machine,
        jobs=dict(machine.jobs),
        runs=dict(machine.runs),
        ended=dict(machine.ended),
        dead=set(machine.dead),
        noticed=set(machine.noticed),
    )


wishes = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.0, 30.0, 110.0]),
        st.integers(1, 3),
        st.sampled_from([50.0, 100.0, 170.0]),
        st.floats(2.0, 9.0),
    ),
    min_size=1,
    max_size=7,
)


@settings(max_examples=60, deadline=None)
@given(
    wishes=wishes,
    recovery=st.sampled_from([0.0, 25.0]),
    order=st.sampled_from(["cost-derivative", "deadline", "arrival"]),
)
def test_any_node_may_die_at_any_instant(
    wishes: list[tuple[float, int, float, float]], recovery: float, order: str
) -> None:
    """Each node, just before and after all that is planned to happen, and in between."""
    machine = loaded(4, 1, wishes, recovery, order)
    entries = machine.plan.entries
    instants = {machine.now, *entries.start.tolist(), *entries.end.tolist()}
    instants |= {start + machine.jobs[job][1] for job, (start, _) in machine.runs.items()}
    edges = sorted(instants)
    between = [(a + b) / 2 for a, b in pairwise(edges)]
    for node, at in product(range(4), [*between, *(e - 0.5 for e in edges), *edges]):
        if at < machine.now:
            continue
        other = copy(machine)
        other.advance(at)
        other.kill(node)
        assert other.late() == [], (node, at)


@settings(max_examples=40, deadline=None)
@given(wishes=wishes, data=st.data())
def test_two_may_die_where_two_are_spared(
    wishes: list[tuple[float, int, float, float]], data: st.DataObject
) -> None:
    """One after the other or at once; the plan is looked at again in between."""
    machine = loaded(5, 2, wishes)
    for node in data.draw(st.permutations(range(5)))[:2]:
        machine.advance(machine.now + data.draw(st.floats(0.0, 400.0)))
        machine.replan()
        machine.kill(node)
    assert machine.late() == []


def test_without_spare_nodes_promises_break() -> None:
    """The same as before: one node fewer, and a job that is to begin again, are too much."""
    machine = loaded(2, 0, [(0.0, 2, 100.0, 1.0)])
    machine.advance(50.0)
    machine.kill(0)
    assert machine.late() == [1000]


def test_what_is_admitted_where_nodes_are_spared() -> None:
    """A job must fit on the nodes but one, and twice before its deadline."""
    machine = loaded(4, 1, [])
    assert not machine.submit(4, 100.0, 9.0)
    assert not machine.submit(2, 100.0, 1.9)
    assert machine.submit(2, 100.0, 2.0)
    assert not machine.submit(2, 100.0, 3.0), "two of three nodes may be wanted twice"
    assert machine.submit(2, 100.0, 4.0)
    assert machine.submit(1, 100.0, 2.0)
    entries = machine.plan.entries
    assert (entries.end - entries.start).tolist() == pytest.approx([100.0] * 3)


def test_the_reason_names_the_insurance() -> None:
    """A job that an idle machine could end in time once, but not twice."""
    planner = Mcdf(Mcdf.Config(spare_nodes=1))
    asked = Jobs.build(1, id=[1], size=[1], wall_time=[100.0], deadline=[150.0], submit=[0.0])
    verdicts = planner.judge(asked, Machine(3, planner).snapshot(), PreparedState())
    assert [finding.reason.code for finding in verdicts.findings] == ["mcdf.uninsured"]
    assert verdicts.offer.tolist() == [200.0]


def test_partitions_have_their_own_numbers() -> None:
    """Where the table names a partition its number counts, elsewhere that of `*`."""
    planner = Mcdf(Mcdf.Config(spare_nodes={"sure": 1, "*": 0}))
    machine = Machine(4, planner)
    snapshot = machine.snapshot()
    masks = {"sure": np.array([1, 1, 0, 0], np.bool_), "rest": np.array([0, 0, 1, 1], np.bool_)}
    snapshot = replace(snapshot, cluster=replace(snapshot.cluster, partitions=masks))
    for partition, code in (("sure", Verdict.REJECT), ("rest", Verdict.ADMIT)):
        asked = Jobs.build(
            1, id=[1], size=[1], wall_time=[100.0], deadline=[150.0], partition=[partition]
        )
        assert planner.judge(asked, snapshot, PreparedState()).code.tolist() == [code]
    with pytest.raises(ValueError, match="must not be negative"):
        Mcdf.Config(spare_nodes=-1)
    with pytest.raises(ValueError, match="cannot be combined with rounds"):
        Mcdf.Config(spare_nodes=1, unequal_nodes=True)
