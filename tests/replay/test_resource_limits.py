"""Limits of accounts, users and QOS that the simulated system keeps to."""

import math
from collections.abc import Collection
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_loops import Over, Work, conservative, simulate
from shared_reference import Job
from shared_reference import conservative as conservative_on_shared_nodes
from shared_reference import starts as starts_on_shared_nodes
from test_shared_nodes import as_table, found, machine
from workloads import ended, jobs_of

from rtsched.kernels.machine_limits import HELD, NO_LIMIT
from rtsched.model.actions import Reserve
from rtsched.model.cluster import Cluster, NodeState
from rtsched.model.jobs import Jobs, Periodic
from rtsched.model.limits import JOBS, Limits
from rtsched.model.schedule import Schedule
from rtsched.model.table import Ragged
from rtsched.simulator.exclusive import ExclusiveNodes
from rtsched.simulator.interface import NodeEvent, StopConditions
from rtsched.simulator.machines import simulate as simulate_system
from rtsched.simulator.settings import ExclusiveSettings

NODES = 4
LOOPS = ["fcfs", "easy", "conservative"]
THINGS = (JOBS, "cpu")


def limits(
    asked: list[tuple[int, int]], kind: list[int], kinds: list[dict[int, tuple[float, float]]]
) -> Limits:
    """Return limits of jobs and cores: of each kind per group the most of both."""
    most = [amounts for groups in kinds for amounts in groups.values()]
    names = range(max((group for groups in kinds for group in groups), default=-1) + 1)
    return Limits(
        THINGS,
        np.full(2, HELD),
        np.array(asked, np.int64).reshape(-1, 2),
        np.array(kind, np.int64),
        Ragged.of([list(groups) for groups in kinds], np.int64),
        np.array(most, np.float64).reshape(-1, 2),
        np.full(len(names), np.inf),
        tuple(f"group {name}" for name in names),
    )


class Plain(Over):
    """The same, worked out anew from who runs."""

    def __init__(
        self,
        asked: list[tuple[int, int]],
        kind: list[int],
        kinds: list[dict[int, tuple[float, float]]],
    ) -> None:
        super().__init__()
        self.asked, self.kind, self.kinds = asked, kind, kinds

    def __call__(self, row: int, running: Collection[int]) -> bool:
        """Return whether a job would be over a limit."""
        for group, most in self.kinds[self.kind[row]].items():
            inside = [other for other in running if group in self.kinds[self.kind[other]]]
            for thing in range(2):
                held = sum(self.asked[other][thing] for other in inside)
                mine = self.asked[row][thing]
                if 0 < mine <= most[thing] < held + mine:
                    return True
        return False


def system(jobs: Jobs, run: list[float], loop: Any, given_limits: Limits, **more: Any) -> Any:
    """Return a system of `NODES` nodes when all has happened."""
    settings = ExclusiveSettings(loop=loop)
    return ended(
        ExclusiveNodes(
            jobs,
            np.array(run),
            more.pop("cluster", Cluster.uniform(NODES)),
            settings,
            limits=given_limits,
            record_nodes=True,
            **more,
        )
    )


def starts(work: list[Work], loop: str, given_limits: Limits, **more: Any) -> list[float]:
    """Return when each job of whole nodes starts, -1: never."""
    made = system(jobs_of(work), [job.run for job in work], loop, given_limits, **more)
    begun = made.job_outcomes().start.tolist()
    return [-1.0 if math.isnan(start) else start for start in begun]


ALICE, BOB = 0, 1


@pytest.mark.parametrize("loop", LOOPS)
def test_a_user_at_the_limit_of_jobs_waits_and_holds_up_nobody(loop: str) -> None:
    """Alice may run one job; her second one starts when the first ends, Bob's at once."""
    work = [Work(at, 10.0, 20.0, 1) for at in (0.0, 1.0, 2.0)]
    rules = limits([(1, 1)] * 3, [ALICE, ALICE, BOB], [{0: (1, NO_LIMIT)}, {}])
    assert starts(work, loop, rules) == [0, 10, 2]


@pytest.mark.parametrize("loop", LOOPS)
def test_amounts_of_a_group_and_of_the_group_above_it(loop: str) -> None:
    """Six cores for Alice, eight for the account of both: Bob's 2 fit, then his 1 does not."""
    work = [Work(float(at), 10.0, 20.0, 1) for at in range(4)]
    asked = [(1, 4), (1, 4), (1, 4), (1, 1)]
    kinds = [{0: (NO_LIMIT, 6), 1: (NO_LIMIT, 8)}, {1: (NO_LIMIT, 8)}]
    rules = limits(asked, [ALICE, ALICE, BOB, BOB], kinds)
    # 0: Alice 4; 1: she would have 8 of 6; 2: Bob 4, the account has 8; 3: it would have 9.
    # At 10 she starts the second, so that the account has 8 again; at 12 Bob his second.
    assert starts(work, loop, rules) == [0, 10, 2, 12]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_job_that_alone_is_beyond_a_limit_starts(loop: str) -> None:
    """It would wait for ever; those beside it wait for it, as it counts."""
    work = [Work(float(at), 10.0, 20.0, 1) for at in range(3)]
    rules = limits([(1, 9), (1, 1), (1, 9)], [0, 0, 0], [{0: (NO_LIMIT, 5)}])
    assert starts(work, loop, rules) == [0, 12, 2]


def test_whom_a_limit_held_up_is_told() -> None:
    """Alice's second job waits for the first one's end; so does the fourth, and for its GPU."""
    # The third asks for 6 of the 8 cores that Bob may hold, of which his first has 4.
    asked = [(1, 4, 0), (1, 4, 0), (1, 6, 0), (1, 1, 2)]
    rule = Limits(
        (JOBS, "cpu", "gres/gpu"),
        np.full(3, HELD),
        np.array(asked),
        np.array([0, 0, 1, 2]),
        Ragged.of([[0], [1], [2]], np.int64),
        np.array([[1, NO_LIMIT, 3], [NO_LIMIT, 8, NO_LIMIT], [NO_LIMIT, NO_LIMIT, 3]]),
        np.full(3, np.inf),
        ("alice", "bob", "gpus"),
    )
    rule = rule._replace(
        kind=np.array([0, 0, 1, 2, 1, 2]), asked=np.array([*asked, (1, 4, 0), (1, 1, 2)])
    )
    jobs = Jobs.build(6, id=np.arange(6), submit=np.arange(6.0), wall_time=np.full(6, 20.0))
    made = system(jobs, [10.0] * 6, "easy", rule, cluster=Cluster.uniform(9))
    outcomes = made.job_outcomes()
    assert outcomes.start.tolist() == [0, 10, 2, 3, 12, 13]
    assert [(each.reason.code, each.rows.tolist(), each.text(0)) for each in outcomes.findings] == [
        ("site-limit.jobs", [1], "its user, account or QOS may run 1 job at once, and did"),
        (
            "site-limit.cores",
            [4],
            "it asks for 4 cores, of which its user, account or QOS may hold 8 at once",
        ),
        (
            "site-limit.resource",
            [5],
            "it asks for 2 of a resource, of which its user, account or QOS may hold 3 at once",
        ),
    ]


def test_easy_keeps_no_nodes_for_a_job_over_a_limit() -> None:
    """Alice's job of 4 nodes would be the head; as she is at her limit, Bob's does not wait."""
    # Without limits Bob's job, which does not end by 20, is held for the sake of hers.
    work = [Work(0.0, 20.0, 20.0, 1), Work(1.0, 5.0, 5.0, 4), Work(2.0, 30.0, 30.0, 1)]
    free = limits([(1, 1)] * 3, [0, 0, 0], [{}])
    rules = limits([(1, 1)] * 3, [ALICE, ALICE, BOB], [{0: (1, NO_LIMIT)}, {}])
    assert starts(work, "easy", free) == [0, 20, 25]
    assert starts(work, "easy", rules) == [0, 32, 2]


def test_conservative_takes_the_reservation_of_a_job_over_a_limit() -> None:
    """Both of Alice's jobs have a reservation at 10; when one starts, Bob takes the other's place.

    At 10 her first takes 2 nodes, the second is over her limit: Bob's job of 2 nodes, which was to
    start at 15, starts at once.
    """
    work = [
        Work(0.0, 10.0, 10.0, 4),
        Work(1.0, 5.0, 5.0, 2),
        Work(2.0, 5.0, 5.0, 2),
        Work(3.0, 5.0, 5.0, 2),
    ]
    rules = limits([(1, 1)] * 4, [BOB, ALICE, ALICE, BOB], [{0: (1, NO_LIMIT)}, {}])
    assert starts(work, "conservative", rules) == [0, 10, 15, 10]


def test_planned_jobs_start_beyond_limits_and_are_counted() -> None:
    """Both of Alice's jobs are planned for 0; as they run, her third one waits until 10."""
    work = [Work(0.0, 10.0, 20.0, 1)] * 3
    jobs = Jobs.build(3, id=np.arange(3), submit=np.zeros(3), wall_time=np.full(3, 20.0))
    made = ExclusiveNodes(
        jobs,
        np.array([job.run for job in work]),
        Cluster.uniform(NODES),
        ExclusiveSettings(),
        limits=limits([(1, 1)] * 3, [0] * 3, [{0: (1, NO_LIMIT)}]),
        stop_at=StopConditions(arrivals=True),
    )
    made.advance()
    plan = Schedule.build(
        [0, 1], [0.0, 0.0], [20.0, 20.0], np.arange(3), np.array([0, 1], np.int32)
    )
    made.apply([Reserve(np.array([0, 1]), plan)])
    ended(made)
    outcomes = made.job_outcomes()
    assert outcomes.start.tolist() == [0, 0, 10]
    assert outcomes.beyond_limits == 1


def test_recurring_work_counts_nowhere() -> None:
    """It takes a node for 1 s in 10; Alice still may run one job at a time."""
    work = [Work(0.0, 4.0, 4.0, 1), Work(0.0, 4.0, 4.0, 1), Work(0.0, 4.0, 4.0, 1)]
    periodic = Periodic.build(1, node=[3], exec_time=[1.0], period=[10.0])
    rule = limits([(1, 1)] * 3, [ALICE, ALICE, BOB], [{0: (1, NO_LIMIT)}, {}])
    settings = ExclusiveSettings()
    jobs = Jobs.build(3, id=np.arange(3), submit=np.zeros(3), wall_time=np.full(3, 4.0))
    run = np.array([job.run for job in work])
    made = ended(
        simulate_system(jobs, run, Cluster.uniform(NODES), settings, periodic=periodic, limits=rule)
    )
    assert made.job_outcomes().start.tolist() == [0, 4, 0]


def test_the_negotiator_has_rules_of_its_own() -> None:
    """Limits of Slurm do not hold there."""
    work = [Work(0.0, 10.0, 20.0, 1)] * 2
    rule = limits([(1, 1)] * 2, [0, 0], [{0: (1, NO_LIMIT)}])
    assert starts(work, "negotiator", rule) == [0, 0]
    assert starts(work, "serial", rule) == [0, 10]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_node_failure_gives_the_place_in_a_group_back(loop: str) -> None:
    """Alice's job dies at 3 and is queued again; the place that it left is hers again at once."""
    work = [Work(0.0, 10.0, 20.0, 4), Work(1.0, 10.0, 20.0, 1)]
    rule = limits([(1, 1)] * 2, [0, 0], [{0: (1, NO_LIMIT)}])
    events = [NodeEvent(3.0, 0, NodeState.DOWN), NodeEvent(5.0, 0, NodeState.UP)]
    # From 3 to 5 only three nodes are up: the first job cannot start, the second does at 3.
    assert starts(work, loop, rule, node_events=events) == [13, 3]


@st.composite
def rules(draw: st.DrawFn, n: int) -> tuple[Any, Any, Any]:
    """Draw what jobs ask for, their kinds, and limits of up to three groups."""
    most = st.tuples(st.sampled_from([1, 2, 3, NO_LIMIT]), st.sampled_from([2, 4, 6, NO_LIMIT]))
    groups = st.dictionaries(st.integers(0, 2), most, max_size=3)
    kinds = draw(st.lists(groups, min_size=1, max_size=3))
    kind = draw(st.lists(st.integers(0, len(kinds) - 1), min_size=n, max_size=n))
    cores = draw(st.lists(st.integers(0, 5), min_size=n, max_size=n))
    return [(1, count) for count in cores], kind, kinds


@st.composite
def whole_workloads(draw: st.DrawFn) -> list[Work]:
    """Draw few short jobs on few nodes, with many ties."""
    jobs, time = [], 0.0
    for _ in range(draw(st.integers(1, 14))):
        time += draw(st.integers(0, 3))
        run, slack = draw(st.integers(1, 12)), draw(st.sampled_from([0, 0, 3, 9]))
        size = draw(st.integers(1, NODES))
        jobs.append(Work(time, float(run), float(run + slack), size))
    return jobs


@pytest.mark.parametrize("loop", LOOPS)
@given(data=st.data(), work=whole_workloads())
def test_whole_nodes_as_the_plain_way(loop: str, data: Any, work: list[Work]) -> None:
    """Each job starts when the rules say, worked out without a kernel."""
    drawn = data.draw(rules(len(work)))
    over = Plain(*drawn)
    if loop == "conservative":
        expected = conservative(work, NODES, over)[0]
    else:
        expected = simulate(work, NODES, loop, over=over)
    assert starts(work, loop, limits(*drawn)) == expected


amount = st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 2))
node = st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(0, 2))


@pytest.mark.parametrize("loop", LOOPS)
@given(data=st.data(), work=whole_workloads(), capacity=st.lists(node, min_size=1, max_size=4))
def test_shared_nodes_as_the_plain_way(
    loop: str, data: Any, work: list[Work], capacity: list[tuple[int, ...]]
) -> None:
    """The same, also on which nodes."""
    jobs = [Job(job.submit, min(job.size, 3), data.draw(amount), job.wall, job.run) for job in work]
    drawn = data.draw(rules(len(jobs)))
    made = system(
        as_table(jobs), [job.run for job in jobs], loop, limits(*drawn), cluster=machine(capacity)
    )
    over = Plain(*drawn)
    if loop == "conservative":
        expected = conservative_on_shared_nodes(jobs, capacity, over=over)
    else:
        expected = starts_on_shared_nodes(jobs, capacity, loop, over=over)
    assert found(made) == expected
