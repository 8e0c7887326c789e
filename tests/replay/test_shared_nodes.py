"""Nodes that jobs share by cores, memory and GPUs: from the log to the measures."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared_reference import Job, conservative, fits_at, licensed_at, starts, starts_beside

from rtsched.errors import ConfigError
from rtsched.logs import read_cluster, read_logs
from rtsched.logs.readers import ReadOptions
from rtsched.model.actions import Reserve
from rtsched.model.cluster import Cluster, Nodes, NodeState
from rtsched.model.jobs import Jobs
from rtsched.model.log import FinalState
from rtsched.model.schedule import Schedule
from rtsched.model.table import offsets_of
from rtsched.replay.engine import replay
from rtsched.replay.measures import measure
from rtsched.replay.planners import load_chain
from rtsched.replay.policies import Policy, presets
from rtsched.replay.resource_use import resource_use
from rtsched.replay.results import Workload
from rtsched.replay.settings import WorkloadOptions
from rtsched.replay.workload import prepare
from rtsched.simulator.exclusive import ExclusiveNodes
from rtsched.simulator.interface import NodeEvent, Outcome
from rtsched.simulator.settings import ExclusiveSettings

CPU, MEM, GPU = "cpu", "mem", "gres/gpu"
RESOURCES = (CPU, MEM, GPU)
MATLAB = "license/matlab"
RULES = ["first", "best_fit", "least_loaded", "pack_serial_at_end", "fewest_stranded_gpus"]


def machine(capacity: list[tuple[int, ...]], licenses: int = 0) -> Cluster:
    """Return nodes with these amounts of cores, memory and GPUs, and so many licences."""
    table = np.array(capacity, np.int64)
    nodes = Nodes.build(len(table), names={"capacity": RESOURCES}, capacity=table)
    return Cluster(nodes, licenses={MATLAB: licenses} if licenses else {})


def as_table(jobs: list[Job]) -> Jobs:
    """Return the jobs as a table."""
    return Jobs.build(
        len(jobs),
        names={"demand": (*RESOURCES, MATLAB)},
        id=np.arange(len(jobs)),
        submit=np.array([job.submit for job in jobs]),
        wall_time=np.array([job.wall for job in jobs]),
        size=np.array([job.nodes for job in jobs], np.int32),
        demand=np.array([(*job.demand, job.licenses) for job in jobs], np.int64),
        exclusive=np.array([job.exclusive for job in jobs]),
    )


def simulated(
    jobs: list[Job],
    capacity: list[tuple[int, ...]],
    loop: Any,
    placement: Any = "first",
    licenses: int = 0,
) -> ExclusiveNodes:
    """Return the system when all has happened."""
    run = np.array([job.run for job in jobs])
    settings = ExclusiveSettings(loop=loop, placement=placement)
    cluster = machine(capacity, licenses)
    system = ExclusiveNodes(as_table(jobs), run, cluster, settings, record_nodes=True)
    assert system.advance().done
    return system


def found(system: ExclusiveNodes) -> dict[int, tuple[float, list[int]]]:
    """Return start and nodes of each job that started."""
    begun, (offsets, nodes) = system.job_outcomes().start, system.node_rows()
    return {
        row: (float(begun[row]), nodes[offsets[row] : offsets[row + 1]].tolist())
        for row in np.flatnonzero(np.isfinite(begun)).tolist()
    }


amount = st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 2))
node = st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(0, 2))
licenses = st.sampled_from([0, 2])
"""How many there are: jobs that ask for more are refused."""


@st.composite
def workloads(draw: st.DrawFn) -> list[Job]:
    """Draw jobs that come close together, some longer than others."""
    jobs, time = [], 0.0
    for _ in range(draw(st.integers(1, 14))):
        time += draw(st.integers(0, 3))
        wall = draw(st.integers(1, 12))
        run = draw(st.integers(1, 14))
        alone = draw(st.sampled_from([False, False, False, True]))
        taken = draw(st.sampled_from([0, 0, 1, 2, 3]))
        jobs.append(
            Job(time, draw(st.integers(1, 3)), draw(amount), float(wall), float(run), alone, taken)
        )
    return jobs


@pytest.mark.parametrize("loop", ["fcfs", "easy"])
@given(jobs=workloads(), capacity=st.lists(node, min_size=1, max_size=4), licenses=licenses)
def test_as_the_plain_way(
    loop: str, jobs: list[Job], capacity: list[tuple[int, ...]], licenses: int
) -> None:
    """Each job starts when and where the rules say, worked out without a kernel."""
    system = simulated(jobs, capacity, loop, licenses=licenses)
    assert found(system) == starts(jobs, capacity, loop, licenses=licenses)


@given(jobs=workloads(), capacity=st.lists(node, min_size=1, max_size=4), licenses=licenses)
def test_reservations_as_the_plain_way(
    jobs: list[Job], capacity: list[tuple[int, ...]], licenses: int
) -> None:
    """The same of conservative backfilling."""
    system = simulated(jobs, capacity, "conservative", licenses=licenses)
    assert found(system) == conservative(jobs, capacity, licenses=licenses)


@given(
    jobs=workloads(),
    capacity=st.lists(node, min_size=1, max_size=4),
    loop=st.sampled_from(["fcfs", "easy", "conservative"]),
    rule=st.sampled_from(RULES),
    licenses=licenses,
)
def test_placement_as_the_plain_way(
    jobs: list[Job], capacity: list[tuple[int, ...]], loop: str, rule: str, licenses: int
) -> None:
    """Each rule gives each job the nodes that plain code says."""
    expected = (
        conservative(jobs, capacity, rule, licenses=licenses)
        if loop == "conservative"
        else starts(jobs, capacity, loop, rule, licenses=licenses)
    )
    assert found(simulated(jobs, capacity, loop, rule, licenses)) == expected


@pytest.mark.parametrize(
    ("rule", "demand", "expected"),
    [
        ("first", (1, 1, 0), 0),
        ("best_fit", (1, 1, 0), 2),  # half of its cores; 3 and 1 of 8 on the others
        ("best_fit", (1, 1, 1), 0),  # its only GPU; half of those of the last node
        ("least_loaded", (1, 1, 0), 1),  # eight idle cores
        ("pack_serial_at_end", (1, 1, 0), 2),
        ("pack_serial_at_end", (2, 1, 0), 0),
        ("fewest_stranded_gpus", (1, 1, 0), 1),  # there is no GPU; on the first 1/4 becomes 3/8
        ("fewest_stranded_gpus", (1, 1, 1), 0),  # 1/4 of a GPU becomes none
    ],
)
def test_which_node_a_job_is_given(rule: str, demand: tuple[int, int, int], expected: int) -> None:
    """Three nodes; two of the first one's eight cores are taken."""
    capacity = [(8, 8, 1), (8, 8, 0), (2, 2, 2)]
    jobs = [Job(0.0, 1, (2, 1, 0), 50.0, 50.0), Job(1.0, 1, demand, 5.0, 5.0)]
    begun = found(simulated(jobs[:1], capacity, "easy", "first"))
    assert begun == {0: (0.0, [0])}
    held = np.array([0, -1], np.int32)
    table = as_table(jobs).replace(pinned=held)
    settings = ExclusiveSettings(loop="easy", placement=rule)
    run = np.array([50.0, 5.0])
    system = ExclusiveNodes(table, run, machine(capacity), settings, record_nodes=True)
    assert system.advance().done
    assert found(system)[1] == (1.0, [expected])


def test_placement_is_refused_where_nodes_are_not_shared() -> None:
    """With what to change, before anything runs; and with a loop that cannot share nodes."""
    policy = Policy(system=ExclusiveSettings(placement="best_fit"))
    (problem,) = load_chain(policy, {}, periodic=False)[1]
    assert problem == (
        "system.placement: 'best_fit' chooses among nodes that jobs share; set `workload.unit` to "
        "'resources', or leave it out"
    )
    assert load_chain(policy, {}, periodic=False, resources=True)[1] == []
    with pytest.raises(ValueError, match="loops 'fcfs', 'easy' and 'conservative'"):
        ExclusiveSettings(loop="serial", placement="best_fit")


def run_of(job: Job) -> float:
    """Return how long a job runs, seconds."""
    return min(job.run, job.wall)


@pytest.mark.parametrize("loop", ["easy", "conservative"])
@given(
    jobs=workloads(), capacity=st.lists(node, min_size=1, max_size=4), rule=st.sampled_from(RULES)
)
def test_no_node_is_overcommitted(
    loop: str, jobs: list[Job], capacity: list[tuple[int, ...]], rule: str
) -> None:
    """At no instant do the jobs on a node take more than it has, nor does one join an exclusive."""
    begun = found(simulated(jobs, capacity, loop, rule, licenses=2))
    for now in {start for start, _ in begun.values()}:
        for at, room in enumerate(capacity):
            here = [
                jobs[key]
                for key, (start, nodes) in begun.items()
                if at in nodes and start <= now < start + run_of(jobs[key])
            ]
            assert all(sum(job.demand[k] for job in here) <= room[k] for k in range(3))
            assert len(here) < 2 or not any(job.exclusive for job in here)
        runs = [
            jobs[k] for k, (begin, _) in begun.items() if begin <= now < begin + run_of(jobs[k])
        ]
        assert sum(job.licenses for job in runs) <= 2


@pytest.mark.parametrize("loop", ["fcfs", "easy"])
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 4), st.integers(1, 4), st.integers(1, 9), st.integers(1, 9)),
        min_size=1,
        max_size=25,
    )
)
def test_one_resource_of_one_per_node_is_a_whole_node(
    loop: Any, rows: list[tuple[int, int, int, int]]
) -> None:
    """The same starts, ends and nodes as on nodes that are given to one job at a time."""
    submit = np.cumsum([float(gap) for gap, *_ in rows])
    size = np.array([nodes for _, nodes, *_ in rows], np.int32)
    run = np.array([float(seconds) for *_, seconds, _ in rows])
    wall = run + [float(more) for *_, more in rows]
    n = len(rows)
    whole = Jobs.build(n, id=np.arange(n), submit=submit, size=size, wall_time=wall)
    ones = np.ones((n, 1), np.int64)
    shared = Jobs.build(
        n,
        id=np.arange(n),
        submit=submit,
        size=size,
        wall_time=wall,
        names={"demand": ("node",)},
        demand=ones,
    )
    nodes = Nodes.build(4, names={"capacity": ("node",)}, capacity=np.ones((4, 1), np.int64))
    settings = ExclusiveSettings(loop=loop)
    one = ExclusiveNodes(whole, run, Cluster.uniform(4), settings, record_nodes=True)
    other = ExclusiveNodes(shared, run, Cluster(nodes), settings, record_nodes=True)
    assert one.advance().done
    assert other.advance().done
    assert found(one) == found(other)


def test_two_jobs_of_four_gpus_do_not_share_a_node_of_four() -> None:
    """The second waits for the first, though cores and memory are left."""
    jobs = [Job(0.0, 1, (1, 1, 4), 10.0, 10.0), Job(1.0, 1, (1, 1, 4), 10.0, 10.0)]
    assert found(simulated(jobs, [(8, 8, 4)], "easy")) == {0: (0.0, [0]), 1: (10.0, [0])}


def test_a_node_that_dies_takes_all_its_jobs() -> None:
    """They are requeued and start again on another node; those elsewhere go on."""
    jobs = [Job(float(at), 1, (2, 1, 0), 50.0, 20.0) for at in range(3)]
    dies = NodeEvent(5.0, 0, NodeState.DOWN)
    system = ExclusiveNodes(
        as_table(jobs),
        np.full(3, 20.0),
        machine([(4, 4, 0), (4, 4, 0)]),
        ExclusiveSettings(loop="fcfs"),
        node_events=(dies,),
        record_nodes=True,
    )
    assert system.advance().done
    outcomes = system.job_outcomes()
    assert outcomes.restarts.tolist() == [1, 1, 0]
    assert found(system) == {0: (5.0, [1]), 1: (22.0, [1]), 2: (2.0, [1])}


# A plus sign stands for the first digits of the time.
LOG = """\
JobID|User|Partition|Submit|Start|End|ElapsedRaw|TimelimitRaw|ReqCPUS|NNodes|State|ReqTRES|SubmitLine
1|ann|all|+000|+000|+100|100|5|4|1|COMPLETED|billing=4,cpu=4,gres/gpu=1,mem=4G,node=1|sbatch j.sh
2|bob|all|+000|+000|+100|100|5|8|2|COMPLETED|cpu=8,mem=8G,node=2|sbatch -N2 --exclusive j.sh
3|bob|all|+010|+010|+110|100|5|1|1|COMPLETED|cpu=1,gres/gpu:a100=3,mem=1G,node=1|sbatch j.sh
4|eve|all|+020|+020|+120|100|5|1|1|COMPLETED|cpu=1,license/matlab=2,mem=1G,node=1|sbatch j.sh
"""

NODES = """\
NodeName=g1 Arch=x86_64 CoresPerSocket=8
   CPUAlloc=0 CPUEfctv=8 CPUTot=8 CPULoad=0.00
   Gres=gpu:a100:2(S:0-1)
   RealMemory=16384 AllocMem=0 State=IDLE
   Partitions=all

NodeName=c1 Arch=x86_64 CoresPerSocket=8
   CPUAlloc=0 CPUEfctv=8 CPUTot=8 CPULoad=0.00
   Gres=(null)
   RealMemory=8192 AllocMem=0 State=IDLE
   Partitions=all
"""


@pytest.fixture
def workload(tmp_path: Path) -> Workload:
    """Return the log on its two nodes."""
    (tmp_path / "log").write_text(LOG.replace("+", "1700000"))
    (tmp_path / "nodes").write_text(NODES)
    return prepared(tmp_path)


def prepared(folder: Path) -> Workload:
    """Return the log and the machine that stand in a folder."""
    log = read_logs([folder / "log"], ReadOptions(resources=True))
    return prepare(log, WorkloadOptions(unit="resources"), read_cluster(folder / "nodes")[0])


def test_a_log_of_shared_nodes(workload: Workload) -> None:
    """Demands, exclusive jobs, capacities; what cannot run or is not modelled is counted."""
    resources = (CPU, MEM, GPU, "gres/gpu:a100")
    gigabyte = 2**30
    assert workload.cluster.nodes.names("capacity") == resources
    assert workload.cluster.nodes.capacity.tolist() == [
        [8, 16 * gigabyte, 2, 2],
        [8, 8 * gigabyte, 0, 0],
    ]
    jobs = workload.jobs
    assert jobs.id.tolist() == [1, 2, 4]
    assert jobs.size.tolist() == [1, 2, 1]
    assert jobs.exclusive.tolist() == [False, True, False]
    assert jobs.demand.tolist() == [
        [4, 4 * gigabyte, 1, 0],
        [4, 4 * gigabyte, 0, 0],
        [1, gigabyte, 0, 0],
    ]
    assert workload.skipped.count == {"too few nodes have what it asks for": 1}
    assert [notes for notes in workload.assumptions if "license/matlab" in notes] == [
        "license/matlab is not modelled (1 job): how many there are is not known; append the "
        "output of `scontrol show licenses` to the file of --cluster."
    ]


def test_memory_that_processors_do_not_divide(tmp_path: Path) -> None:
    """Two jobs of 3 processors and half the memory run side by side; one of all of it is kept."""
    (tmp_path / "log").write_text(
        "JobID|Submit|Start|End|ElapsedRaw|ReqCPUS|NNodes|State|ReqMem\n"
        + "".join(
            f"{job}|1700000000|1700000000|1700000100|100|3|1|COMPLETED|{memory}\n"
            for job, memory in ((1, "4096M"), (2, "4096M"), (3, "8G"))
        )
    )
    (tmp_path / "nodes").write_text(NODES.partition("\n\n")[2])
    workload = prepared(tmp_path)
    assert not workload.skipped.count
    results = replay(workload, "easy", presets()["easy"]).results
    assert (results.start - 1.7e9).tolist() == [0.0, 0.0, 100.0]


def test_licenses_of_a_log(tmp_path: Path) -> None:
    """Of three, two jobs want two each: the second waits for the first, on idle nodes."""
    # The third wants four and is omitted.
    lines = LOG.splitlines()
    lines += [
        lines[4].replace("4|", "5|", 1).replace("+020|+020", "+021|+021"),
        lines[4].replace("4|", "6|", 1).replace("matlab=2", "matlab=4"),
    ]
    (tmp_path / "log").write_text("\n".join([lines[0], *lines[4:], ""]).replace("+", "1700000"))
    licenses = "LicenseName=matlab\n    Total=3 Used=0 Free=3 Reserved=0 Remote=no\n"
    (tmp_path / "nodes").write_text(NODES + licenses)
    workload = prepared(tmp_path)
    assert workload.skipped.count == {"too few nodes have what it asks for": 1}
    results = replay(workload, "easy", presets()["easy"]).results
    assert (results.start - 1.7e9).tolist() == [20.0, 120.0]
    use = resource_use(workload, results)
    assert use.resources["license/matlab"].used_h == pytest.approx(400 / 3600)
    assert use.resources["license/matlab"].available_h == pytest.approx(600 / 3600)


def test_a_job_that_fits_only_on_a_node_that_is_down_is_omitted(tmp_path: Path) -> None:
    """It is counted and holds up nobody: the fourth job starts at once on the other node."""
    (tmp_path / "log").write_text(LOG.replace("+", "1700000"))
    down = NODES.replace("State=IDLE", "State=DOWN*+DRAIN", 1)
    (tmp_path / "nodes").write_text(down)
    workload = prepared(tmp_path)
    assert workload.jobs.id.tolist() == [4]
    assert workload.skipped.count == {"too few nodes have what it asks for": 3}
    assert "1 of 2 nodes are down or drained and take no jobs." in workload.assumptions
    results = replay(workload, "fcfs", presets()["fcfs"]).results
    assert (results.start - 1.7e9).tolist() == [20.0]


def test_measures_of_shared_nodes(workload: Workload) -> None:
    """Utilisation is of cores, memory and GPUs; the makespan is 300 s."""
    results = replay(workload, "fcfs", presets()["fcfs"]).results
    assert (results.start - 1.7e9).tolist() == [0.0, 100.0, 200.0]
    found = measure(workload, results)
    assert found["makespan_s"] == 300.0
    assert found["utilisation"] == pytest.approx((4 + 8 + 1) * 100 / (16 * 300))
    assert found["memory_utilisation"] == pytest.approx((4 + 8 + 1) * 100 / (24 * 300))
    assert found["gpu_utilisation"] == pytest.approx(100 / (2 * 300))


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        ("spare-rf-edf", "planner: 'spare' as configured plans whole nodes"),
        ("negotiator", "loop 'negotiator' gives whole nodes to jobs"),
        ("ste-sliced", "machine 'sliced' with loop"),
        ("sed", "chooses whole nodes for jobs"),
    ],
)
def test_policies_of_whole_nodes_are_refused(workload: Workload, policy: str, problem: str) -> None:
    """With what to change, before anything runs."""
    with pytest.raises(ConfigError) as refused:
        replay(workload, policy, presets()[policy])
    assert problem in str(refused.value)
    assert "set `workload.unit` to 'core' or 'node'" in str(refused.value)


def test_the_machine_must_be_known(tmp_path: Path) -> None:
    """What each node has cannot be guessed from a log."""
    (tmp_path / "log").write_text(LOG.replace("+", "1700000"))
    log = read_logs([tmp_path / "log"], ReadOptions(resources=True))
    with pytest.raises(ConfigError, match="give --cluster"):
        prepare(log, WorkloadOptions(unit="resources"))


def test_a_job_that_never_fits_is_not_started() -> None:
    """The simulated system itself never starts it, and lets the others pass."""
    jobs = [Job(0.0, 1, (9, 1, 0), 10.0, 10.0), Job(0.0, 1, (1, 1, 0), 10.0, 10.0)]
    system = simulated(jobs, [(8, 8, 0)], "fcfs")
    assert system.job_outcomes().fate.tolist() == [FinalState.UNFINISHED, FinalState.FINISHED]


@pytest.mark.parametrize("loop", ["fcfs", "easy"])
@given(
    jobs=workloads(),
    capacity=st.lists(node, min_size=1, max_size=3),
    chosen=st.sets(st.integers(0, 13), max_size=5),
    licenses=licenses,
)
def test_planned_jobs_start_on_time_and_others_beside_them(
    loop: str, jobs: list[Job], capacity: list[tuple[int, ...]], chosen: set[int], licenses: int
) -> None:
    """As the plain way, with a plan that keeps its nodes free of jobs which would stay too long."""
    plan = planned_by_hand(jobs, capacity, chosen, licenses)
    system = with_plan(jobs, capacity, loop, plan, licenses)
    assert system.advance().done
    assert found(system) == starts_beside(jobs, capacity, loop, plan, licenses)


def planned_by_hand(
    jobs: list[Job], capacity: list[tuple[int, ...]], chosen: set[int], licenses: int = 0
) -> dict[int, tuple[float, list[int]]]:
    """Return start and nodes of the chosen jobs, some time after they are submitted."""
    held: dict[int, tuple[float, float, list[int]]] = {}
    for key in sorted(chosen & set(range(len(jobs)))):
        for start in (jobs[key].submit + wait for wait in range(2, 40, 3)):
            where = [
                n for n in range(len(capacity)) if fits_at(jobs, capacity, held, key, n, start)
            ]
            if len(where) >= jobs[key].nodes and licensed_at(jobs, licenses, held, key, start):
                held[key] = (start, start + jobs[key].wall, where[-jobs[key].nodes :])
                break
    return {key: (start, where) for key, (start, _, where) in held.items()}


def with_plan(
    jobs: list[Job],
    capacity: list[tuple[int, ...]],
    loop: Any,
    plan: dict[int, tuple[float, list[int]]],
    licenses: int = 0,
) -> ExclusiveNodes:
    """Return a system that has been given a plan before the first job came."""
    sizes = np.array([len(where) for _, where in plan.values()], np.int64)
    start = np.array([begin for begin, _ in plan.values()])
    schedule = Schedule.build(
        np.array(list(plan), np.int64),
        start,
        start + [jobs[key].wall for key in plan],
        offsets_of(sizes),
        np.array([n for _, where in plan.values() for n in where], np.int32),
    )
    settings = ExclusiveSettings(loop=loop)
    run = np.array([job.run for job in jobs])
    cluster = machine(capacity, licenses)
    system = ExclusiveNodes(as_table(jobs), run, cluster, settings, record_nodes=True)
    assert system.apply([Reserve(schedule.entries.job, schedule)]) == (Outcome.DONE,)
    return system
