"""Arrays in a replay: one question and one promise for all of their tasks, as from the daemon."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from daemon.scene import T0, Scene
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from rtsched.adapters.slurm.facts import Partition, Sharing, SlurmFacts
from rtsched.adapters.slurm.submission import SlurmTranslator
from rtsched.adapters.wire import Tag
from rtsched.errors import InputError
from rtsched.logs import ReadOptions, read_logs
from rtsched.model.cluster import Cluster, Nodes, NodeState
from rtsched.model.jobs import Edges, Jobs, Kind, most_together
from rtsched.model.limits import Association, LimitSet, SiteLimits
from rtsched.model.log import FinalState, Log, Outcomes
from rtsched.model.resources import fitting_nodes
from rtsched.model.table import Ragged
from rtsched.replay.array_jobs import as_one_job
from rtsched.replay.engine import replay
from rtsched.replay.measures import measure
from rtsched.replay.policies import choose
from rtsched.replay.results import PolicyRun, Workload
from rtsched.replay.settings import WorkloadOptions
from rtsched.replay.workload import prepare
from rtsched.simulator.array_runs import ArrayRuns
from rtsched.simulator.interface import NodeEvent
from rtsched.simulator.settings import ExclusiveSettings

RESOURCES = ("cpu", "gres/gpu")
SHAPE = ("kind", "size", "size_min", "tasks", "tasks_per_node", "exclusive")


def cluster(*capacity: tuple[int, int], **more: Any) -> Cluster:
    """Return nodes with these cores and GPUs."""
    amounts = np.array(capacity, np.int64)
    names = {"capacity": RESOURCES}
    nodes = Nodes.build(len(amounts), names=names, capacity=amounts, cores=amounts[:, 0])
    return Cluster(nodes, **more)


def log(*jobs: dict[str, Any], edges: tuple[tuple[int, int], ...] = (), form: str = "sacct") -> Log:
    """Return a log of jobs: `run`, and columns; one core for 600 s at `T0` where nothing is said.

    `array`: the number of the first task; tasks are named after it.
    """
    n = len(jobs)
    usual = {"submit": T0, "wall_time": 600.0, "deadline": np.inf, "array": -1, "array_limit": 0}
    usual |= {"cores": 1, "gpus": 0, "nodes": 1}
    column = {name: [job.get(name, value) for job in jobs] for name, value in usual.items()}
    ids = np.arange(n, dtype=np.int64)
    names = [f"{a}_{k}" if a >= 0 else str(k) for k, a in enumerate(column["array"])]
    cores = np.array(column["cores"], np.int32)
    table = Jobs.build(
        n,
        names={"demand": RESOURCES},
        id=ids,
        label=names,
        size=cores * np.array(column["nodes"], np.int32),
        node_count=np.array(column["nodes"], np.int32),
        demand=np.column_stack([cores, column["gpus"]]).astype(np.int64),
        array=np.array(column["array"], np.int64),
        array_limit=np.array(column["array_limit"], np.int32),
        user=["ann"] * n,
        account=["physics"] * n,
        **{name: np.array(column[name]) for name in ("submit", "wall_time", "deadline")},
    )
    run = np.array([job.get("run", 600.0) for job in jobs], np.float64)
    links = Edges.build(
        len(edges), before=[e[0] for e in edges] or None, after=[e[1] for e in edges] or None
    )
    return Log(table, Outcomes.build(n, run_time=run, size=cores), ("log",), form, edges=links)


def array(n: int, first: int = 0, **columns: Any) -> list[dict[str, Any]]:
    """Return the tasks of an array that comes as job `first`."""
    runs = columns.pop("runs", [columns.pop("run", 600.0)] * n)
    return [{"array": first, "run": run, **columns} for run in runs]


def work(made: Log, machine: Cluster, **options: Any) -> Workload:
    """Return a log as a workload without assumed deadlines."""
    chosen = {"unit": "resources", "deadline_rule": "none", **options}
    return prepare(made, WorkloadOptions(**chosen), machine)


def planned(workload: Workload, policy: str = "mcdf") -> PolicyRun:
    """Return what a policy makes of it."""
    return replay(workload, policy, choose([policy], None)[policy])


def times(run: PolicyRun, rows: slice = slice(None)) -> list[tuple[float, float]]:
    """Return start and end of jobs, seconds after `T0`."""
    start, end = (run.results.column(name)[rows] - T0 for name in ("start", "end"))
    return list(zip(start.tolist(), end.tolist(), strict=True))


def test_tasks_of_a_promised_array_take_two_places_in_turn() -> None:
    """Six tasks on a node with two places: each starts where one ends first."""
    runs = [300.0, 350.0, 400.0, 450.0, 500.0, 550.0]
    made = work(log(*array(6, runs=runs, deadline=T0 + 1800)), cluster((2, 0)))
    run = planned(made)
    expected = [(0, 300), (0, 350), (300, 700), (350, 800), (700, 1200), (800, 1350)]
    assert times(run) == expected
    assert (run.results.promise == T0 + 1800).all()
    assert run.results.size.tolist() == [1] * 6
    found = measure(made, run.results, run.node_rows)
    assert (found["promises"], found["promises_kept"]) == (6, 6)
    assert (found["array_promises"], found["array_promises_kept"]) == (1, 1)
    assert found["utilisation"] == pytest.approx(sum(runs) / (2 * 1350))
    assert run.node_rows[1].tolist() == [0] * 6


def test_an_array_is_rejected_as_a_whole() -> None:
    """Three rounds of 600 s do not end in 1,799 s; four of the tasks would."""
    run = planned(work(log(*array(6, deadline=T0 + 1799)), cluster((2, 0))))
    assert (run.results.fate == FinalState.REJECTED).all()
    assert (run.results.offer == T0 + 1800).all()
    assert run.results.texts("reason") == ["mcdf.impossible"] * 6
    notes = [record["text"] for record in run.decisions if record["job"] == 5]
    assert "4 of its 6 tasks would be accepted with the same deadline" in notes


def test_tasks_by_themselves() -> None:
    """With `tasks` those are promised that end in time."""
    made = work(log(*array(6, deadline=T0 + 1799)), cluster((2, 0)), arrays="tasks")
    run = planned(made)
    assert np.isfinite(run.results.promise).tolist() == [True] * 4 + [False] * 2
    assert measure(made, run.results)["array_promises"] is None


def test_no_more_at_a_time_than_the_array_allows() -> None:
    """`%3` on nodes of two places: one node, since two would run four at a time."""
    tasks = array(6, deadline=T0 + 3600, array_limit=3)
    run = planned(work(log(*tasks), cluster((2, 0), (2, 0))))
    assert times(run) == [(0, 600)] * 2 + [(600, 1200)] * 2 + [(1200, 1800)] * 2
    rejected = planned(work(log(*array(6, deadline=T0 + 1700, array_limit=3)), cluster((9, 0))))
    assert times(rejected) == [(0, 600)] * 3 + [(600, 1200)] * 3  # three of its nine places


def test_as_few_nodes_as_end_in_time() -> None:
    """Six tasks in 1,200 s need two nodes of two places, and leave the third to others."""
    tasks = array(6, deadline=T0 + 1200)
    run = planned(work(log(*tasks, {"cores": 2}), cluster((2, 0), (2, 0), (2, 0))))
    assert times(run) == [(0, 600)] * 4 + [(600, 1200)] * 2 + [(0, 600)]
    assert run.results.first_node[-1] == 2


def test_who_shares_the_nodes_of_an_array() -> None:
    """On Slurm nobody; on HTCondor its procs are spread and others run beside them."""
    tasks = [*array(2, deadline=T0 + 600), {"submit": T0 + 1}]
    machine = cluster((2, 0), (2, 0))
    slurm = planned(work(log(*tasks), machine))
    assert (slurm.results.first_node.tolist(), times(slurm)[2]) == ([0, 0, 1], (1, 601))
    condor = planned(work(log(*tasks, form="condor-history"), machine))
    assert sorted(condor.results.first_node.tolist()[:2]) == [0, 1]
    assert times(condor)[2] == (1, 601)


def test_an_array_ends_sooner_than_planned() -> None:
    """By its limits at 400 s; at 25 s two tasks run until 120 s and two wait: at 220 s."""
    tasks = array(8, run=10.0, wall_time=100.0, deadline=T0 + 400)
    late = {"cores": 2, "submit": T0 + 25, "run": 100.0, "wall_time": 100.0, "deadline": T0 + 320}
    run = planned(work(log(*tasks, late), cluster((2, 0))))
    assert np.isfinite(run.results.promise[-1])
    assert times(run)[-1] == (40, 140)  # planned anew when the array is over
    too_soon = {**late, "deadline": T0 + 319}
    assert np.isinf(planned(work(log(*tasks, too_soon), cluster((2, 0)))).results.promise[-1])


def test_the_question_is_that_of_the_daemon() -> None:
    """A log's array is the job that the adapter makes of its submission on such a cluster."""
    capacity = ((16, 0), (16, 0), (16, 0), (16, 4), (8, 4))
    hardware = tuple(({"cpu": cores, "gres/gpu": gpus}, 1) for cores, gpus in capacity)
    part = Partition("all", 600.0, 86400.0, True, 5, 16, 64 << 30, hardware=hardware)
    facts = SlurmFacts(partitions={"all": part}, default="all", sharing=Sharing(RESOURCES))
    for cores, gpus, parallel in ((1, 0, 0), (3, 0, 0), (1, 1, 0), (5, 0, 4), (16, 0, 0)):
        fields: dict[int, str | int] = {
            Tag.USER_ID: 1000,
            Tag.DEADLINE: int(T0) + 80000,
            Tag.TIME_LIMIT: 10,
            Tag.CPUS_PER_TASK: cores,
            Tag.ARRAY_INX: "1-40" + (f"%{parallel}" if parallel else ""),
        } | ({Tag.TRES_PER_NODE: f"gres/gpu:{gpus}"} if gpus else {})
        asked = SlurmTranslator().describe(fields, facts, T0)
        assert not asked.problem
        tasks = array(40, cores=cores, gpus=gpus, array_limit=parallel, deadline=T0 + 80000)
        found = as_one_job(work(log(*tasks), cluster(*capacity))).workload.jobs
        for name in (*SHAPE, "deadline"):
            assert found.column(name).tolist() == asked.jobs.column(name).tolist(), name
        most = np.minimum(asked.jobs.size_max, fitting_nodes(found, cluster(*capacity)))
        assert found.size_max.tolist() == most.tolist()  # the planner leaves others out
        shown = dict(zip(asked.jobs.names("demand"), asked.jobs.demand[0].tolist(), strict=True))
        assert found.demand[0].tolist() == [shown.get(name, 0) for name in RESOURCES]
        assert asked.jobs.wall_time[0] == found.wall_time[0] + facts.margin


@pytest.mark.parametrize("slack", [1200.0, 1799.0, 1800.0, 2400.0])
def test_the_answer_is_that_of_the_daemon(slack: float) -> None:
    """Behind a promised job: the same verdict, promise and counter-offer as in `rtsched serve`."""
    capacity = ((4, 0), (4, 0))
    before = {"cores": 4, "nodes": 2, "deadline": T0 + 600}
    tasks = array(10, first=1, cores=2, deadline=T0 + slack)
    run = planned(work(log(before, *tasks), cluster(*capacity)))
    scene = Scene(2, capacity=capacity)
    one = {"wall_time": 600.0, "size": 2, "deadline": T0 + 600}
    assert scene.submit(T0, demand=(4, 0), **one).verdict == "admit"
    row = as_one_job(work(log(before, *tasks), cluster(*capacity))).workload.jobs.take([1])
    names = (*SHAPE, "size_max", "wall_time", "deadline")
    columns = {name: row.column(name)[0] for name in names}
    judged = scene.submit(T0, demand=tuple(row.demand[0].tolist()), **columns)
    admitted = np.isfinite(run.results.promise[1:])
    assert judged.judgement is not None
    assert (judged.verdict == "admit") == admitted.all() == admitted.any()
    if judged.verdict == "admit":
        verdicts = judged.judgement.verdicts
        assert (run.results.promise[1:] == verdicts.promise[0]).all()
        assert run.results.start[1] == verdicts.plan.entries.start[-1]
    else:
        offer = judged.judgement.verdicts.offer[0]  # the daemon's is the next full minute
        assert (run.results.offer[1:] == offer).all()
        assert run.results.texts("reason")[1] in judged.codes


@pytest.mark.parametrize(
    ("unit", "cores", "starts"),
    [
        ("core", 1, [0.0] * 6),  # six single cores
        ("node", 1, [0.0] * 4 + [600.0] * 2),  # they share a whole node of four cores
        ("node", 2, [0.0] * 2 + [600.0] * 2 + [1200.0] * 2),
        ("node", 3, [0.0, 600.0, 1200.0, 1800.0, 2400.0, 3000.0]),
    ],
)
def test_where_jobs_have_whole_nodes(unit: str, cores: int, starts: list[float]) -> None:
    """Tasks of a promised array share whole nodes, and each is served by its part of them."""
    tasks = array(6, cores=cores, deadline=T0 + 3600)
    made = work(log(*tasks), cluster((4, 0), (4, 0)), unit=unit)
    run = planned(made)
    if unit == "core":  # as few cores as end in time
        assert [start for start, _ in times(run)] == [600.0 * k for k in range(6)]
        soon = log(*(task | {"deadline": T0 + 600} for task in tasks))
        run = planned(work(soon, cluster((4, 0), (4, 0)), unit=unit))
        assert len(set(run.results.first_node.tolist())) == 6
    assert [start for start, _ in times(run)] == starts
    together = starts.count(0.0) if unit == "node" else 1
    assert run.results.served().tolist() == [600.0 / together] * 6


def test_tasks_that_fill_the_memory_of_a_node() -> None:
    """Two tasks of 3 cores with half the memory each share a node, though 3 divides no MiB."""
    made = log(*array(4, cores=3, deadline=T0 + 1200))
    made = replace(made, jobs=made.jobs.replace(memory=np.full(4, -(-(4000 << 20) // 3))))
    machine = cluster((8, 0))
    machine = replace(machine, nodes=machine.nodes.replace(memory=[8000 << 20]))
    run = planned(work(made, machine, unit="node"))
    assert [start for start, _ in times(run)] == [0.0, 0.0, 600.0, 600.0]


def test_dependencies_of_an_array() -> None:
    """It waits as a whole for others, and others for it; where tasks do so, they stay jobs."""
    machine = cluster((2, 0), (2, 0))
    tasks = array(4, first=1, deadline=T0 + 9000)
    after = tuple((0, 1 + k) for k in range(4))
    made = work(log({}, *tasks, edges=after), machine)
    edges = as_one_job(made).workload.edges
    assert (edges.before.tolist(), edges.after.tolist()) == ([0], [1])
    for single in (((0, 1),), ((2, 5),)):
        found = work(log({}, *tasks, {}, edges=single), machine)
        assert not found.arrays
        assert any("one by one" in sentence for sentence in found.assumptions)
    whole = Edges.build(1, before=[1], after=[5], whole_array=np.ones(1, np.bool_))
    made = work(replace(log({}, *tasks, {}), edges=whole), machine)
    run = planned(made)
    assert times(run)[5][0] == max(end for _, end in times(run)[1:5])


@pytest.mark.parametrize("policy", ["mcdf", "portfolio-run", "edf-easy-admit"])
def test_a_job_after_the_start_of_an_array(policy: str) -> None:
    """Slurm's `after:1`: job 4 runs once the third task has started, which waits for the second."""
    tasks = array(3, first=1, deadline=T0 + 1200)
    edges = Edges.build(1, before=[1], after=[4], whole_array=[True], at_start=[True])
    made = replace(log({"deadline": T0 + 600}, *tasks, {"deadline": T0 + 9000}), edges=edges)
    run = planned(work(made, cluster((1, 0), (1, 0)), unit="node"), policy)
    assert times(run)[1:] == [(0, 600), (600, 1200), (600, 1200), (1200, 1800)]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"nodes": 2}, "need several nodes each"),
        ({"cores": 2}, "do not all ask for the same"),
        ({"submit": T0 + 1}, None),
        ({"deadline": T0 + 7000}, "do not all ask for the same"),
    ],
)
def test_tasks_that_stay_jobs(change: dict[str, Any], why: str | None) -> None:
    """The log tells why; a task that came later is a job, and the others an array still."""
    tasks = array(4, deadline=T0 + 9000)
    which = range(4) if why and "several" in why else [3]
    for at in which:
        tasks[at] |= change
    made = work(log(*tasks), cluster((4, 0), (4, 0)))
    assert made.arrays.tasks.lengths.tolist() == ([] if why else [3])
    if why:
        assert any(why in sentence for sentence in made.assumptions)
    several = change == {"nodes": 2}
    assert made.promisable.others.count.total() == (4 if several else 0)
    single = prepare(log(*tasks), WorkloadOptions(unit="resources", arrays="tasks"), made.cluster)
    assert single.promisable.share == 1.0


def test_jobs_of_one_name_are_no_array() -> None:
    """`--dependency=singleton` has jobs take turns as tasks do; each has its own promise."""
    tasks = array(3, deadline=T0 + 9000, array_limit=1)
    made = log(*tasks)
    codes = np.arange(3, dtype=np.int32)
    made = replace(made, jobs=made.jobs.replace_text("label", codes, ("0", "1", "2")))
    assert not work(made, cluster((4, 0))).arrays


def test_assumed_deadlines_count_from_all_rounds() -> None:
    """Four times three rounds on the one node that takes the tasks; `tasks`: four times one."""
    tasks = array(6, gpus=1)
    machine = cluster((2, 0), (2, 2))
    rule = {"deadline_rule": "slowdown:4"}
    assert (work(log(*tasks), machine, **rule).jobs.deadline == T0 + 7200).all()
    single = work(log(*tasks), machine, arrays="tasks", **rule)
    assert (single.jobs.deadline == T0 + 2400).all()
    drawn = work(log(*tasks), machine, deadline_rule="uniform:4", deadline_fraction=0.5)
    assert len(np.unique(drawn.jobs.deadline)) == 1  # all of them, or none


def test_limits_count_all_that_may_run_at_a_time() -> None:
    """Two places on each of two nodes: four jobs, four cores."""
    account = Association("physics", limits=LimitSet(group={"jobs": 9}))
    site = SiteLimits(associations=(account, Association("physics", "ann")))
    tasks = array(6, deadline=T0 + 9000)
    options = WorkloadOptions(unit="resources", deadline_rule="none")
    made = prepare(log(*tasks, {}), options, cluster((2, 0), (2, 0)), site)
    limits = as_one_job(made).workload.limits
    assert limits.asked[:, limits.things.index("jobs")].tolist() == [4, 1]


def test_policies_that_judge_tasks() -> None:
    """Where no planner promises, and where nodes go down, tasks start one by one."""
    tasks = array(4, deadline=T0 + 9000)
    machine = cluster((2, 0), (2, 0))
    made = work(log(*tasks), machine)
    for policy in ("fcfs", "easy", "conservative"):
        assert times(planned(made, policy)) == times(
            planned(replace(made, arrays=work(log({}), machine).arrays), policy)
        )
    event = NodeEvent(T0 + 5e5, 0, int(NodeState.DOWN))
    down = replace(made, node_events=(event,))
    assert times(planned(down)) == [(0.0, 600.0)] * 4


def test_how_many_tasks_run_on_a_node() -> None:
    """As many as have the most run at once; spread, as few as have that many run."""
    assert most_together([16, 8], [2, 8]) == 8  # 8 on ten nodes are more than 16 on two
    assert most_together([16, 1], [2, 8]) == 16
    assert most_together([0], [4]) == 1
    assert most_together([4], [3], 3) == 1
    assert most_together([4], [3], 7) == 3
    assert most_together([4], [3], 5000) == 4


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.integers(1, 8))
def test_the_course_of_an_array(runs: list[int], places: int) -> None:
    """Each task starts on the place that is free first; no task that is left ends later than said.

    The latest end that is known falls from all rounds at the limit to the real one.
    """
    table = Jobs.build(1, kind=np.array([Kind.ARRAY], np.int8), wall_time=[9.0])
    times_of = Ragged.of([np.array(runs, np.float64)], np.float64)
    arrays = ArrayRuns(table, times_of)
    course = arrays.course(0, places)
    free = [0.0] * min(places, len(runs))
    for task, run in enumerate(runs):
        place = free.index(min(free))
        assert (course.start[task], course.place[task]) == (free[place], place)
        free[place] += run
        assert course.end[task] == free[place]
    end = max(free)
    known = [arrays.latest_end(0, places, end, at) for at in np.arange(0.0, end, 0.5).tolist()]
    assert known[0] == -(-len(runs) // len(free)) * 9.0
    assert (np.diff(known) <= 0).all()
    assert min(known) >= end


SACCT = """\
JobID|Submit|Start|ElapsedRaw|TimelimitRaw|ReqCPUS|NNodes|State|ReqTRES|SubmitLine
12_1|1970-01-12T13:46:40|1970-01-12T13:46:40|300|10|1|1|COMPLETED|cpu=1|sbatch -a 1-3%2 x
13|1970-01-12T13:46:40|1970-01-12T13:46:40|300|10|1|1|COMPLETED|cpu=1|sbatch x
12_2|1970-01-12T13:46:40|1970-01-12T13:46:40|700|10|1|1|COMPLETED|cpu=1|sbatch -a 1-3%2 x
12_3|1970-01-12T13:46:40|1970-01-12T13:51:40|200|10|1|1|COMPLETED|cpu=1|sbatch -a 1-3%2 x
14_1|1970-01-12T13:46:40|1970-01-12T13:46:40|300|10|1|1|COMPLETED|cpu=1|sbatch -a 1 x
"""


@pytest.mark.parametrize("arrays", ["whole", "tasks"])
def test_a_log_of_sacct(tmp_path: Path, arrays: str) -> None:
    """Two tasks at a time, for 700 s at most as one took longer than its limit: two rounds."""
    (tmp_path / "log").write_text(SACCT)
    made = read_logs([tmp_path / "log"], ReadOptions(timezone="UTC", resources=True))
    options = {"unit": "resources", "arrays": arrays, "deadline_rule": "slowdown:2"}
    found = prepare(made, WorkloadOptions(**options), cluster((4, 0)))
    due = dict(zip(found.jobs.labels(), (found.jobs.deadline - T0).tolist(), strict=True))
    if arrays == "tasks":
        assert due == {"12_1": 1200, "13": 1200, "12_2": 1400, "12_3": 1200, "14_1": 1200}
        assert not found.arrays
        return
    assert due == {"12_1": 2800, "13": 1200, "12_2": 2800, "12_3": 2800, "14_1": 1200}
    run = planned(found)
    assert measure(found, run.results)["array_promises_kept"] == 1
    began = dict(zip(found.jobs.labels(), times(run), strict=True))
    start = began["12_1"][0]
    assert (began["12_1"], began["12_2"]) == ((start, start + 300), (start, start + 700))
    assert began["12_3"] == (start + 300, start + 500)


shapes = st.tuples(st.integers(1, 3), st.integers(0, 1), st.integers(1, 9), st.integers(1, 40))


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=3),
    st.lists(
        st.tuples(
            st.integers(1, 9),
            st.integers(0, 3),
            st.integers(0, 30),
            shapes,
            st.integers(1, 6),
            st.randoms(use_true_random=False),
        ),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from(["mcdf", "portfolio"]),
    st.sampled_from(["fcfs", "easy", "conservative"]),
    st.sampled_from(["sacct", "condor-history"]),
    st.sampled_from(["resources", "resources", "node", "core"]),
)
@settings(max_examples=50)
def test_promised_arrays_end_in_time(
    capacity: list[tuple[int, int]],
    asked: list[Any],
    policy: str,
    loop: Literal["fcfs", "easy", "conservative"],
    form: str,
    unit: str,
) -> None:
    """Whatever the tasks take up to their limits; and no node ever holds more than it has."""
    jobs: list[dict[str, Any]] = []
    for count, limit, submit, (cores, gpus, wall, slack), least, chance in asked:
        shape = {"cores": cores, "gpus": gpus, "submit": T0 + submit, "wall_time": float(wall)}
        deadline = np.inf if least == 6 else T0 + submit + wall + slack
        runs = [float(chance.randint(1, wall)) for _ in range(count)]
        more = {"deadline": deadline, "array_limit": limit}
        jobs += array(count, first=len(jobs), runs=runs, **shape, **more)
    machine = cluster(*capacity)
    try:
        made = work(log(*jobs, form=form), machine, unit=unit)
    except InputError:
        return  # no job fits
    chosen = structs.replace(choose([policy], None)[policy], system=ExclusiveSettings(loop=loop))
    run = replay(made, policy, chosen)
    found = measure(made, run.results, run.node_rows)
    assert found["promises"] == found["promises_kept"]
    assert found["array_promises"] == found["array_promises_kept"]
    for rows in (made.arrays.tasks.row(at) for at in range(len(made.arrays.per_node))):
        promises = run.results.promise[rows]
        assert (promises == promises[0]).all()
        limit = int(made.jobs.array_limit[rows[0]])
        if limit and np.isfinite(promises[0]):
            for begin in run.results.start[rows]:
                runs_then = (run.results.start[rows] <= begin) & (run.results.end[rows] > begin)
                assert runs_then.sum() <= limit
    whole = np.full(len(made.jobs), -1)
    whole[made.arrays.tasks.values] = made.arrays.tasks.rows()
    offsets, nodes = run.node_rows
    started = np.flatnonzero(np.isfinite(run.results.start))
    for moment in run.results.start[started]:
        beside: dict[int, list[int]] = {}
        for row in started:
            if run.results.start[row] <= moment < run.results.end[row]:
                for node in nodes[offsets[row] : offsets[row + 1]].tolist():
                    beside.setdefault(node, []).append(row)
        for node, rows in beside.items():
            assert unit != "core" or len(rows) == 1
            if unit == "node":
                assert len(rows) == 1 or (len(set(whole[rows])) == 1 and whole[rows[0]] >= 0)
            if unit == "resources":
                assert (made.jobs.demand[rows].sum(axis=0) <= capacity[node]).all()
