"""Limits of groups that count time, and service in billing units."""

import math
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_loops import Over, Work, conservative, simulate
from shared_reference import Job
from shared_reference import conservative as conservative_on_shared_nodes
from shared_reference import starts as starts_on_shared_nodes
from test_resource_limits import NODES, starts, system, whole_workloads
from test_shared_nodes import as_table, found, machine

from rtsched.errors import InputError
from rtsched.kernels.machine_limits import (
    ALLOTTED,
    HELD,
    NO_LIMIT,
    RECHECK,
    REMAINING,
    USED,
    USED_AND_ASKED,
)
from rtsched.logs import ReadOptions, read_cluster, read_logs
from rtsched.model.jobs import Jobs
from rtsched.model.limits import BillingWeights, Limits, LimitSet, Qos, SiteLimits
from rtsched.model.table import Ragged
from rtsched.replay.limits import JobAmounts, limits_of_jobs
from rtsched.replay.measures import charged, errors, logged_results
from rtsched.replay.settings import WorkloadOptions
from rtsched.replay.workload import prepare

LOOPS = ["fcfs", "easy", "conservative"]
MINUTE = 60.0


def of_cores(cores: list[int], basis: int, minutes: float, half_life: float = math.inf) -> Limits:
    """Return one limit, of core-minutes of jobs in one group."""
    return Limits(
        ("cpu",),
        np.array([basis]),
        np.array(cores).reshape(-1, 1),
        np.zeros(len(cores), np.int64),
        Ragged.of([[0]], np.int64),
        np.array([[minutes * MINUTE]]),
        np.array([half_life]),
        ("account physics",),
    )


def hours(*work: tuple[float, float, float]) -> list[Work]:
    """Return jobs of a node, with submission, run time and requested time in hours."""
    return [Work(at * 3600, run * 3600, wall * 3600, 1) for at, run, wall in work]


def in_hours(work: list[Work], loop: str, limits: Limits) -> list[float]:
    """Return when the jobs start, in hours."""
    return [round(start / 3600, 4) if start >= 0 else start for start in starts(work, loop, limits)]


@pytest.mark.parametrize("loop", LOOPS)
def test_running_jobs_leave_room_as_their_time_limits_come_near(loop: str) -> None:
    """GrpTRESRunMins=cpu=600: 10 core-hours to go."""
    # The first job has 8 of them at 0, the second asks for 4: it fits when the first has 6 to go,
    # which is at 2 h. The third asks for 3 at 4 h: the first has 4 to go, the second 2; it fits at
    # once. The fourth asks for 12, which never fits, so that it is not held up.
    work = hours((0, 8, 8), (1, 4, 4), (4, 3, 3), (4, 1, 12))
    assert in_hours(work, loop, of_cores([1] * 4, REMAINING, 600)) == [0, 2, 4, 4]


def test_a_job_that_ends_early_gives_the_rest_of_its_time_back() -> None:
    """8 core-hours of 10 until 1 h, when the first job ends: nothing is to go."""
    work = hours((0, 1, 8), (0, 1, 10))
    assert in_hours(work, "easy", of_cores([1, 1], REMAINING, 600)) == [0, 1]


def test_room_that_time_alone_makes_is_found_within_five_minutes() -> None:
    """The first job has 10 min to go, of 12; the second one asks for 9."""
    # It fits from 7 min on; nothing happens then, so the loop looks at 5 min and at 10.
    work = [Work(0.0, 600.0, 600.0, 1), Work(0.0, 540.0, 540.0, 1)]
    assert starts(work, "easy", of_cores([1, 1], REMAINING, 12)) == [0, 2 * RECHECK]


@pytest.mark.parametrize("loop", ["easy", "conservative"])
def test_a_job_behind_one_that_waits_for_nodes_is_looked_at_again(loop: str) -> None:
    """The first job has 100 of 120 core-minutes to go; the third asks for 40, from 20 min on."""
    # The second, which no limit holds up, waits for all nodes until 100 min; nothing else happens.
    limits = of_cores([1, 0, 1], REMAINING, 120)
    sizes, minutes = [2, 4, 1], [100.0, 10.0, 40.0]
    work = [Work(0.0, n * MINUTE, n * MINUTE, k) for n, k in zip(minutes, sizes, strict=True)]
    expected = [0.0, 100 * MINUTE, 20 * MINUTE]
    assert starts(work, loop, limits) == expected
    jobs = [Job(0.0, job.size, (4, 0, 0), job.wall, job.run) for job in work]
    walls = [job.run for job in work]
    made = system(as_table(jobs), walls, loop, limits, cluster=machine([(4, 1, 0)] * NODES))
    assert [found(made)[row][0] for row in range(3)] == expected


def test_a_head_that_comes_over_its_limit_holds_up_nobody() -> None:
    """The second job waits for the GPU of the first, which has used the core-minute at 60 s."""
    # So the third, which comes then, is the first in the queue that may start.
    asked = [(0.0, (1, 0, 1)), (0.0, (1, 0, 1)), (60.0, (1, 0, 0))]
    jobs = [Job(at, 1, demand, 120.0, 120.0) for at, demand in asked]
    limits = of_cores([1, 1, 0], USED, 1)
    made = system(as_table(jobs), [120.0] * 3, "fcfs", limits, cluster=machine([(4, 4, 1)]))
    assert found(made) == {0: (0.0, [0]), 2: (60.0, [0])}


@pytest.mark.parametrize("loop", LOOPS)
def test_used_time_without_safe(loop: str) -> None:
    """GrpTRESMins=cpu=600: 10 core-hours in all; jobs of 4 cores start as long as some are left."""
    # At 1 h 4 are used, at 2 h 8, at 3 h 12 by the first alone, which goes on to its end.
    work = hours((0, 4, 9), (2, 1, 9), (3, 1, 1), (9, 1, 1))
    limits = of_cores([4] * 4, USED, 600)
    assert in_hours(work, loop, limits) == [0, 2, -1, -1]


@pytest.mark.parametrize("loop", LOOPS)
def test_used_time_with_safe(loop: str) -> None:
    """10 core-hours in all; the first job may use 8 of them, but uses 2."""
    # The second asks for 3, which are left when it has ended; then 5 are left, so the third, which
    # asks for 6, never starts, and the fourth, which asks for 5, does.
    work = hours((0, 2, 8), (1, 3, 3), (5, 1, 6), (5, 1, 5))
    limits = of_cores([1] * 4, ALLOTTED, 600)
    assert in_hours(work, loop, limits) == [0, 2, -1, 5]


def test_running_time_of_a_group_with_safe() -> None:
    """GrpWall=10:00:00: what runs counts with what it has used only, as in Slurm."""
    # At 1 h the first has used 1 of its 8: the second one's 9 fit. At 5 h 9 are used.
    work = hours((0, 8, 8), (1, 9, 9), (5, 1, 2), (5, 1, 1))
    limits = of_cores([1] * 4, USED_AND_ASKED, 600)
    assert in_hours(work, "easy", limits) == [0, 1, -1, 5]


def test_used_time_decays() -> None:
    """Half of it in 4 h; GrpTRESMins=cpu=120, of which the second job asks for 90."""
    # A job that runs for t hours uses (1 - 2 ** (-t / 4)) * 4 / ln 2 core-hours: the first one
    # 1.69, by 2 h. The second fits when less than 31 min of them are left, 4 h * log2(1.69 * 60 /
    # 31) = 6.84 h later. The loop looks at 3 h, when it comes, and then every 5 min: at 8 h 55 min.
    used = (1 - 2**-0.5) * 4 / math.log(2)
    assert 2 + 4 * math.log2(used * 60 / 31) == pytest.approx(8.84, abs=0.005)
    work = hours((0, 2, 2), (3, 1, 1.5))
    limits = of_cores([1, 1], ALLOTTED, 120, half_life=4 * 3600.0)
    assert in_hours(work, "easy", limits) == [0, round(8 + 55 / 60, 4)]


def test_less_than_a_minute_does_not_count() -> None:
    """Slurm rounds used minutes down: 59 s of one hour are none, 60 s are one."""
    for seconds, start in ((59.0, 100.0), (60.0, -1.0)):
        work = [Work(0.0, seconds, 60.0, 1), Work(100.0, 60.0, 3600.0, 1)]
        assert starts(work, "easy", of_cores([1, 1], ALLOTTED, 60)) == [0.0, start]


def test_memory_counts_in_megabytes() -> None:
    """100 TB times a month are more than 64 bits hold; the second job fits to the byte."""
    month, memory = 30 * 86400.0, 100 << 40
    limits = of_cores([memory, memory, 1 << 20], ALLOTTED, 2 * memory * month / MINUTE)._replace(
        things=("mem",)
    )
    work = [Work(0.0, month, month, 1), Work(1.0, 60.0, month, 1), Work(2.0, 60.0, 60.0, 1)]
    assert starts(work, "easy", limits) == [0, 1, 61]


def test_whom_limits_of_time_held_up_is_told() -> None:
    """With the minutes that the job asks for, and those that there are."""
    jobs = Jobs.build(2, id=np.arange(2), submit=np.zeros(2), wall_time=np.full(2, 3600.0))
    notes = {}
    for basis in (REMAINING, ALLOTTED):
        made = system(jobs, [3600.0] * 2, "easy", of_cores([4, 2], basis, 300))
        (finding,) = made.job_outcomes().findings
        notes[finding.reason.code] = finding.rows.tolist(), finding.text(0)
    assert notes == {
        "site-limit.run-minutes": (
            [1],
            "it asks for 120 minutes of a resource, of which running jobs of its user, account or "
            "QOS may have 300 left until their time limits",
        ),
        "site-limit.used-minutes": (
            [1],
            "it asks for 120 minutes of a resource or of run time, of which its account or QOS may "
            "use 300 in all",
        ),
    }


Drawn = tuple[list[int], list[int], list[int], list[list[tuple[int, list[float]]]], list[float]]
"""What jobs ask for; their kinds; what is compared; per kind groups with limits; half-lives."""


@st.composite
def rules(draw: st.DrawFn, n: int) -> Drawn:
    """Draw limits of up to three groups."""
    bases = draw(st.lists(st.sampled_from([HELD, REMAINING, USED, USED_AND_ASKED, ALLOTTED])))
    bases = bases[:3] or [REMAINING]
    minutes = st.one_of(st.just(math.inf), st.integers(0, 60).map(lambda n: 60.0 * n))
    held = st.sampled_from([2.0, 4.0, NO_LIMIT])
    most = st.tuples(*(held if basis == HELD else minutes for basis in bases)).map(list)
    groups = st.dictionaries(st.integers(0, 2), most, max_size=3).map(lambda some: [*some.items()])
    kinds = draw(st.lists(groups, min_size=1, max_size=3))
    kind = draw(st.lists(st.integers(0, len(kinds) - 1), min_size=n, max_size=n))
    cores = draw(st.lists(st.integers(0, 5), min_size=n, max_size=n))
    half_life = st.sampled_from([math.inf, math.inf, 1000.0])
    return cores, kind, bases, kinds, draw(st.lists(half_life, min_size=3, max_size=3))


def as_limits(cores: list[int], kind: list[int], bases: list[int], kinds: Any, half: Any) -> Limits:
    """Return them as the system takes them; each basis is of cores."""
    most = [amounts for groups in kinds for _, amounts in groups]
    return Limits(
        ("cpu",) * len(bases),
        np.array(bases),
        np.repeat(np.array(cores).reshape(-1, 1), len(bases), axis=1),
        np.array(kind, np.int64),
        Ragged.of([[group for group, _ in groups] for groups in kinds], np.int64),
        np.array(most, np.float64).reshape(-1, len(bases)),
        np.array(half),
        ("a", "b", "c"),
    )


class Plain(Over):
    """The same, worked out anew from all that ran."""

    def __init__(self, work: list[Work], drawn: Drawn) -> None:
        super().__init__()
        self.work, (self.cores, self.kind, self.bases, kinds, self.half) = work, drawn
        self.kinds = [dict(groups) for groups in kinds]

    def used(self, row: int, half: float) -> float:
        """Return the core-seconds that a job has used, decayed."""
        begin, run = self.begun[row], min(self.work[row].run, self.work[row].wall)
        end = min(begin + run, self.now)
        if half == math.inf:
            return self.cores[row] * (end - begin)
        rate = math.log(2) / half
        left = math.exp(rate * (end - self.now)) - math.exp(rate * (begin - self.now))
        return self.cores[row] * left / rate

    def __call__(self, row: int, running: Collection[int]) -> bool:
        """Return whether a job would be over a limit."""
        mine, wall = self.cores[row], self.work[row].wall
        for group, limits in self.kinds[self.kind[row]].items():
            inside = [r for r in self.begun if group in self.kinds[self.kind[r]]]
            inside += [r for r in running if r not in inside and group in self.kinds[self.kind[r]]]
            ends = {r: self.begun.get(r, self.now) + self.work[r].wall for r in inside}
            to_go = sum(self.cores[r] * (ends[r] - self.now) for r in inside if r in running)
            used = sum(self.used(r, self.half[group]) for r in inside if r in self.begun)
            held = sum(self.cores[r] for r in inside if r in running)
            for basis, most in zip(self.bases, limits, strict=True):
                has = {
                    HELD: held,
                    REMAINING: to_go // 60,
                    USED: used // 60,
                    USED_AND_ASKED: used // 60,
                    ALLOTTED: (used + to_go) // 60,
                }[basis]
                asked, most = mine * wall / 60, most / 60
                if basis == HELD:
                    asked, most = mine, most * 60
                if basis == USED:
                    over = mine > 0 and 0 < most <= has
                else:
                    over = mine > 0 and asked <= most < has + asked
                if over:
                    decays = basis != HELD and self.half[group] < math.inf
                    if basis == REMAINING or decays:
                        self.again = self.now + RECHECK
                    return True
        return False


def minutes_long(work: list[Work]) -> list[Work]:
    """Return jobs with minutes in place of seconds."""
    return [
        Work(job.submit * MINUTE, job.run * MINUTE, job.wall * MINUTE, job.size) for job in work
    ]


@pytest.mark.parametrize("loop", LOOPS)
@given(data=st.data(), work=whole_workloads())
def test_whole_nodes_as_the_plain_way(loop: str, data: Any, work: list[Work]) -> None:
    """Each job starts when the rules say, worked out without a kernel; or never."""
    work = minutes_long(work)
    drawn = data.draw(rules(len(work)))
    over = Plain(work, drawn)
    if loop == "conservative":
        expected = conservative(work, NODES, over)[0]
    else:
        expected = simulate(work, NODES, loop, over=over)
    expected = [-1.0 if math.isnan(start) else start for start in expected]
    assert starts(work, loop, as_limits(*drawn)) == expected


amount = st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 2))
node = st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(0, 2))


@pytest.mark.parametrize("loop", LOOPS)
@given(data=st.data(), work=whole_workloads(), capacity=st.lists(node, min_size=1, max_size=4))
def test_shared_nodes_as_the_plain_way(
    loop: str, data: Any, work: list[Work], capacity: list[tuple[int, ...]]
) -> None:
    """The same, also on which nodes."""
    work = minutes_long(work)
    jobs = [Job(job.submit, min(job.size, 3), data.draw(amount), job.wall, job.run) for job in work]
    drawn = data.draw(rules(len(jobs)))
    made = system(
        as_table(jobs),
        [job.run for job in jobs],
        loop,
        as_limits(*drawn),
        cluster=machine(capacity),
    )
    over = Plain(work, drawn)
    if loop == "conservative":
        expected = conservative_on_shared_nodes(jobs, capacity, over=over)
    else:
        expected = starts_on_shared_nodes(jobs, capacity, loop, over=over)
    assert found(made) == expected


G = 2**30
THINGS = ("cpu", "mem", "gres/gpu", "license/x")


def jobs(n: int, **columns: Any) -> Jobs:
    """Return jobs of 4 cores, 8 GB, 1 GPU on each of 2 nodes, and 3 licences."""
    usual: dict[str, Any] = {
        "id": np.arange(n),
        "size": np.full(n, 8, np.int32),
        "node_count": np.full(n, 2, np.int32),
        "demand": np.tile([4, 8 * G, 1, 3], (n, 1)),
        "partition": ["gpu"] * n,
        "names": {"demand": THINGS},
    }
    return Jobs.build(n, **{**usual, **columns})


def units(table: Jobs, weights: BillingWeights) -> list[float]:
    """Return the billing units of jobs that share nodes."""
    amounts = JobAmounts(table, np.zeros(len(table), bool), 16, weights)
    return amounts.billing_units().tolist()


WEIGHTS = {"cpu": 1.0, "mem": 0.25 / G, "gres/gpu": 5.0, "license/x": 2.0}


@pytest.mark.parametrize(
    ("rule", "expected"),
    # 8 cores, 16 GB, 2 GPUs, 3 licences: 8, 4, 10 and 6 units.
    [("sum", 28.0), ("max", 16.0), ("max-gres", 24.0)],
)
def test_units_of_a_job(rule: Any, expected: float) -> None:
    """The sum, or the greatest of what nodes have; licences come on top; CPUs without weights."""
    table = jobs(3, partition=["gpu", "cpu", None])
    assert units(table, BillingWeights({"gpu": WEIGHTS}, rule)) == [expected, 8.0, 8.0]


@given(data=st.data(), rule=st.sampled_from(["sum", "max", "max-gres"]))
def test_units_as_the_plain_way(data: Any, rule: Any) -> None:
    """Job by job, resource by resource."""
    n = data.draw(st.integers(1, 6))
    amounts = st.tuples(*[st.integers(0, 5)] * 4)
    demand = data.draw(st.lists(amounts, min_size=n, max_size=n))
    nodes = data.draw(st.lists(st.integers(1, 3), min_size=n, max_size=n))
    names = data.draw(st.lists(st.sampled_from(["a", "b", "c"]), min_size=n, max_size=n))
    weight = st.dictionaries(st.sampled_from([*THINGS, "node"]), st.sampled_from([0.0, 0.5, 3.0]))
    weights = {"a": data.draw(weight), "b": data.draw(weight)}
    size = [each[0] * count for each, count in zip(demand, nodes, strict=True)]
    table = jobs(
        n,
        size=np.array(size, np.int32),
        node_count=np.array(nodes, np.int32),
        demand=np.array(demand),
        partition=names,
    )
    expected = []
    for row in range(n):
        held = dict(zip(THINGS, demand[row], strict=True))
        held = {name: count * nodes[row] for name, count in held.items() if name != "license/x"}
        held |= {"license/x": demand[row][3], "node": nodes[row]}
        mine = weights.get(names[row])
        if not mine:
            expected.append(float(size[row]))
            continue
        most = total = 0.0
        for name, value in mine.items():
            at_most = name in {"cpu", "mem", "node"} or (rule == "max" and name == "gres/gpu")
            if rule != "sum" and at_most:
                most = max(most, value * held[name])
            else:
                total += value * held[name]
        expected.append(most + total)
    assert units(table, BillingWeights(weights, rule)) == expected


CONF = """\
PriorityFlags=MAX_TRES
NodeName=n1 CPUs=8 RealMemory=8192 Gres=gpu:2
PartitionName=DEFAULT TRESBillingWeights="CPU=1.0,Mem=0.25G"
PartitionName=one Nodes=n1
PartitionName=two Nodes=n1 TRESBillingWeights=CPU=.5,Mem=1,GRES/gpu=2.0,License/x=1K
"""

SHOWN = """\
NodeName=n1 Arch=x86_64 CoresPerSocket=8
   CPUAlloc=0 CPUEfctv=8 CPUTot=8 CPULoad=0.00
   Gres=gpu:2
   RealMemory=8192 AllocMem=0 State=IDLE
   Partitions=all,free

PartitionName=all
   AllowGroups=ALL QoS=N/A
   TRESBillingWeights=CPU=1.0,GRES/gpu=7.0
PartitionName=free
   AllowGroups=ALL QoS=N/A
"""


def test_weights_of_a_slurm_conf(tmp_path: Path) -> None:
    """Of memory per byte, from MB if no unit is given; DEFAULT holds for those without."""
    (tmp_path / "slurm.conf").write_text(CONF)
    billing = read_cluster(tmp_path / "slurm.conf")[0].billing
    assert billing == BillingWeights(
        {
            "one": {"cpu": 1.0, "mem": 0.25 / G},
            "two": {"cpu": 0.5, "mem": 1 / 2**20, "gres/gpu": 2.0, "license/x": 1 / 1024},
        },
        "max",
    )


def test_weights_of_scontrol(tmp_path: Path) -> None:
    """Partitions behind nodes; without them it is not known what jobs are billed for."""
    (tmp_path / "nodes").write_text(SHOWN)
    billing = read_cluster(tmp_path / "nodes")[0].billing
    assert billing == BillingWeights({"all": {"cpu": 1.0, "gres/gpu": 7.0}})
    (tmp_path / "nodes").write_text(SHOWN.partition("PartitionName")[0])
    assert read_cluster(tmp_path / "nodes")[0].billing is None


@pytest.mark.parametrize("text", ["CPU", "CPU=much", "CPU=-1", "CPU=1,,Mem=1"])
def test_weights_that_are_none(tmp_path: Path, text: str) -> None:
    """File, line and remedy."""
    (tmp_path / "slurm.conf").write_text(
        f"NodeName=n CPUs=1\nPartitionName=a TRESBillingWeights={text}\n"
    )
    with pytest.raises(InputError, match=r"slurm.conf:2: TRESBillingWeights has .* put it right"):
        read_cluster(tmp_path / "slurm.conf")


LOG = """\
JobID|User|Account|Partition|Submit|Start|End|ElapsedRaw|TimelimitRaw|ReqCPUS|NNodes|State|ReqTRES
1|ann|lab|all|+000|+000|+100|100|5|1|1|COMPLETED|cpu=1,gres/gpu=1,mem=1G,node=1
2|bob|lab|free|+000|+000|+100|100|5|4|1|COMPLETED|cpu=4,mem=1G,node=1
"""


def workload(folder: Path, nodes: str, unit: Any = "resources") -> Any:
    """Return the log on one node of 8 cores."""
    (folder / "log").write_text(LOG.replace("+", "1700000"))
    (folder / "nodes").write_text(nodes)
    log = read_logs([folder / "log"], ReadOptions(resources=True))
    return prepare(log, WorkloadOptions(unit=unit), read_cluster(folder / "nodes")[0])


def test_errors_in_billing_units(tmp_path: Path) -> None:
    """Ann's core and GPU are billed with 8 units, Bob's four cores with 4: she has 2 of 8 too much.

    Both are active for 100 s, and are entitled to 6 units each.
    """
    made = workload(tmp_path, SHOWN)
    assert (made.jobs.billed * 8).tolist() == [8.0, 4.0]
    assert any(
        notes.startswith("Service for fair share counts billing") for notes in made.assumptions
    )
    found = errors(made, logged_results(made), "user")
    assert dict(zip(found.names, (found.error.final * 8).tolist(), strict=True)) == {
        "ann": 200.0,
        "bob": -200.0,
    }


def test_without_weights_nothing_changes(tmp_path: Path) -> None:
    """Cores count, whether partitions are known or not; whole nodes are not billed."""
    bare = SHOWN.replace("TRESBillingWeights=CPU=1.0,GRES/gpu=7.0", "")
    made = workload(tmp_path, bare)
    assert np.isnan(made.jobs.billed).all()
    results = logged_results(made)
    assert charged(made, results).tolist() == results.serving().tolist()
    whole = workload(tmp_path, SHOWN, "node")
    assert np.isnan(whole.jobs.billed).all()
    assert any(notes.startswith("TRESBillingWeights are not used") for notes in whole.assumptions)


def test_weights_of_cpus_alone_are_cores(tmp_path: Path) -> None:
    """CPU=1 everywhere gives what is counted without weights."""
    made = workload(tmp_path, SHOWN.replace(",GRES/gpu=7.0", ""))
    results = logged_results(made)
    assert charged(made, results).tolist() == results.serving().tolist()


def test_limits_of_billing_units() -> None:
    """They hold once it is known what jobs are billed for, by whole units."""
    site = SiteLimits(qos={"normal": Qos(LimitSet(group={"billing": 30}))})
    table = jobs(1, qos=["normal"])
    weights = BillingWeights({"gpu": {"cpu": 1.2}})
    made = limits_of_jobs(JobAmounts(table, np.zeros(1, bool), 16, weights), site, [])
    assert (made.things, made.asked.tolist(), made.most.tolist()) == (("billing",), [[9]], [[30]])
    assert limits_of_jobs(JobAmounts(table, np.zeros(1, bool), 16), site, []) is None
