"""Planners in their short form: a replay comes out as one that asks the hooks by snapshots."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from workloads import workload_of

from rtsched.core.config import PluginTable
from rtsched.kernels.machine_policy import JUDGED
from rtsched.model.cluster import Cluster, Nodes, NodeState
from rtsched.model.jobs import Edges, Jobs, Kind
from rtsched.model.log import FinalState
from rtsched.replay import engine
from rtsched.replay.measures import measure
from rtsched.replay.planners import PlannerAnswers, load_chain, short_form
from rtsched.replay.policies import RECOMMENDED, Policy, presets
from rtsched.replay.results import PolicyRun, Workload
from rtsched.simulator.interface import DecisionPoint, NodeEvent
from rtsched_plugins.deadline_admission import OnePool

NODES = 12
PLANNERS = ["mcdf", "fifo-mn", "fifo-an", "edf-mn", "edf-an", "portfolio", "spare-rf", "spare-uf"]


def workload(seed: int, n: int = 150, **columns: Any) -> Workload:
    """Return jobs of three kinds, some at the same instant, a few without a deadline."""
    rng = np.random.default_rng(seed)
    kind = rng.choice([Kind.RIGID, Kind.MOLDABLE, Kind.DIVISIBLE], n)
    submit = 1_795_000_000.25 + np.cumsum(rng.choice([0.0, 0.0, 30.5, 200.0], n))
    size = rng.integers(1, 7, n).astype(np.int32)
    wall = np.ceil(rng.lognormal(5, 1, n))
    cms, cps = rng.uniform(0.0, 0.5, n), rng.uniform(1.0, 8.0, n)
    sigma = np.ceil(rng.uniform(10, 200, n))
    alone = np.where(kind == Kind.DIVISIBLE, sigma * (cms + cps), wall)
    slack = rng.choice([0.5, 1.5, 4.0, np.inf], n)
    values = {
        "id": 100 + np.arange(n),
        "submit": submit,
        "size": size,
        "size_min": np.where(kind == Kind.MOLDABLE, 1, 0).astype(np.int32),
        "size_max": np.where(kind == Kind.MOLDABLE, 8, 0).astype(np.int32),
        "kind": kind.astype(np.int8),
        "wall_time": wall,
        "deadline": submit + np.ceil(slack * alone),
        "sigma": sigma,
        "cms": cms,
        "cps": cps,
        **columns,
    }
    jobs = Jobs.build(n, **values)
    run_time = np.ceil(wall * rng.uniform(0.2, 1.0, n))
    cluster = Cluster.uniform(NODES)
    return workload_of(jobs, run_time, cluster)


def by_hooks(work: Workload, policy: Policy, monkeypatch: pytest.MonkeyPatch) -> PolicyRun:
    """Return the replay in which planners have no short form."""
    with monkeypatch.context() as patched:
        patched.setattr(engine, "short_form", lambda *_: None)
        return engine.replay(work, "test", policy)


def differences(one: PolicyRun, other: PolicyRun) -> Iterator[str]:
    """Yield in what two runs differ."""
    for name in ("start", "end", "size", "fate", "first_node", "promise", "offer", "reason"):
        if not np.array_equal(one.results.column(name), other.results.column(name), equal_nan=True):
            yield name
    if any(not np.array_equal(a, b) for a, b in zip(one.node_rows, other.node_rows, strict=True)):
        yield "nodes"
    if list(one.decisions) != list(other.decisions):
        yield "decisions"
    counts = [
        {
            name: (m.calls, m.judged, m.changed, m.abstained)
            for name, m in run.hooks["admit"].items()
        }
        for run in (one, other)
    ]
    if counts[0] != counts[1]:
        yield "counts"


def with_loop(policy: Policy, loop: str) -> Policy:
    """Return the policy with another scheduler for the jobs beside the plan."""
    return msgspec.structs.replace(policy, system=msgspec.structs.replace(policy.system, loop=loop))


class Questions:
    """Counts who was asked: the test in the loop, the short form, or the hooks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.in_loop = self.short = self.hooks = 0
        answer = PlannerAnswers.answer

        def counted(answers: PlannerAnswers, point: DecisionPoint) -> bool:
            answered = answer(answers, point)
            self.short += answered
            self.hooks += not answered
            return answered

        monkeypatch.setattr(PlannerAnswers, "answer", counted)
        end = PlannerAnswers.end

        def with_tests(answers: PlannerAnswers) -> None:
            end(answers)
            self.in_loop += int(answers.system.questions.counts[JUDGED, 0])

        monkeypatch.setattr(PlannerAnswers, "end", with_tests)


@pytest.mark.parametrize("name", PLANNERS)
@pytest.mark.parametrize("seed", range(3))
def test_a_replay_comes_out_as_by_hooks(
    name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Starts, nodes, promises, offers, reasons and what was counted are equal."""
    work, policy, asked = workload(seed), presets()[name], Questions(monkeypatch)
    if name.startswith("spare"):  # it says nothing of the end of divisible jobs: few of them
        kinds = [Kind.RIGID, Kind.MOLDABLE, Kind.DIVISIBLE]
        rng = np.random.default_rng(seed)
        kind = rng.choice(kinds, 150, p=[0.45, 0.5, 0.05])
        work = replace(work, jobs=work.jobs.replace(kind=kind.astype(np.int8)))
    if name == "portfolio":  # loads in several rounds have no short form
        policy = with_settings(policy, rounds=1)
    short = engine.replay(work, "test", policy)
    assert asked.in_loop + asked.short > asked.hooks
    assert asked.in_loop
    assert not list(differences(short, by_hooks(work, policy, monkeypatch)))
    assert np.isfinite(short.results.promise).any()
    assert np.isfinite(short.results.offer).any()


def with_settings(policy: Policy, **settings: Any) -> Policy:
    """Return a policy whose planner has other settings."""
    tables = [replace_settings(table, **settings) for table in policy.plugin]
    return msgspec.structs.replace(policy, plugin=tables)


def replace_settings(table: PluginTable, **settings: Any) -> PluginTable:
    """Return a plug-in's table with other settings."""
    return msgspec.structs.replace(table, settings={**table.settings, **settings})


@pytest.mark.parametrize("loop", ["fcfs", "conservative", "negotiator"])
def test_beside_every_scheduler(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs without a deadline are started by another scheduler."""
    work, policy = workload(7), with_loop(presets()["mcdf"], loop)
    short = engine.replay(work, "test", policy)
    assert not list(differences(short, by_hooks(work, policy, monkeypatch)))


@pytest.mark.parametrize("name", ["mcdf", "portfolio", "spare-rf"])
def test_nodes_that_go_out_of_service(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hooks are asked where nodes change their state, and while a plan needs a lost one."""
    work = workload(3)
    events = [
        NodeEvent(float(work.jobs.submit[k]) + 1.0, node, int(state))
        for k, node, state in [
            (20, 0, NodeState.DOWN),
            (40, 0, NodeState.UP),
            (60, 1, NodeState.DRAINED),
            (61, 2, NodeState.DOWN),
            (90, 1, NodeState.UP),
        ]
    ]
    work, asked = replace(work, node_events=tuple(events)), Questions(monkeypatch)
    policy = presets()[name]
    if name == "spare-rf":
        work = replace(work, jobs=work.jobs.replace(kind=np.full(150, Kind.RIGID, np.int8)))
    else:
        policy = with_settings(policy, rounds=1)
    short = engine.replay(work, "test", policy)
    assert asked.hooks
    assert asked.in_loop + asked.short > asked.hooks
    assert asked.in_loop
    assert not list(differences(short, by_hooks(work, policy, monkeypatch)))


def test_jobs_that_the_short_form_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that may begin later only, say nothing of their end, or have a load without sense."""
    work = workload(4)
    jobs, rows = work.jobs, np.arange(len(work.jobs))
    begin = np.where(rows % 9 == 0, jobs.submit + 500.0, jobs.begin)
    wall = np.where(rows % 11 == 0, np.inf, jobs.wall_time)
    sigma = np.where(rows % 13 == 0, -1.0, jobs.sigma)
    work = replace(work, jobs=jobs.replace(begin=begin, wall_time=wall, sigma=sigma))
    asked, policy = Questions(monkeypatch), presets()["mcdf"]
    short = engine.replay(work, "test", policy)
    assert asked.hooks
    assert asked.short
    assert not list(differences(short, by_hooks(work, policy, monkeypatch)))


def test_a_short_form_that_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The hooks are asked from then on, and nothing is lost."""
    work, policy = workload(6), presets()["mcdf"]
    judge = OnePool.judge
    left = [3]

    def failing(pool: OnePool, *question: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise ValueError("no plan")
        return judge(pool, *question)

    expected = by_hooks(work, policy, monkeypatch)
    monkeypatch.setattr(OnePool, "judge", failing)
    assert not list(differences(engine.replay(work, "test", policy), expected))
    assert left == [-1]
    said = capsys.readouterr()
    assert (said.out + said.err).count("ValueError: no plan") == 1


def is_short(work: Workload, policy: Policy) -> bool:
    """Return whether a policy's planner has a short form for a workload."""
    chain, problems = load_chain(policy, periodic=False)
    assert not problems
    return short_form(chain, work, policy) is not None


def test_where_there_is_no_short_form() -> None:
    """It takes all nodes as one pool, and knows no dependencies, arrays or other judges."""
    work, mcdf = workload(5, 20), presets()["mcdf"]
    jobs = work.jobs
    assert is_short(work, mcdf)
    codes = np.zeros(len(jobs), np.int32)
    for nodes, short in ((NODES, True), (NODES - 1, False)):
        cluster = Cluster(Nodes.build(NODES), partitions={"p": np.arange(NODES) < nodes})
        some = Jobs.build(
            len(jobs), names={"partition": ("p",)}, **{**given(jobs), "partition": codes}
        )
        assert is_short(replace(work, jobs=some, cluster=cluster), mcdf) is short
    arrays = jobs.replace(kind=np.full(len(jobs), Kind.ARRAY, np.int8))
    assert not is_short(replace(work, jobs=arrays), mcdf)
    edges = Edges.build(1, before=[100], after=[101])
    assert not is_short(replace(work, edges=edges), mcdf)
    for settings in ({"spare_nodes": 1}, {"rounds": 4}, {"unequal_nodes": True}):
        assert not is_short(work, with_settings(mcdf, **settings))
    beside = PluginTable("limits")
    assert not is_short(work, msgspec.structs.replace(mcdf, plugin=[*mcdf.plugin, beside]))
    shadow = msgspec.structs.replace(mcdf.plugin[0], mode="shadow")
    assert not is_short(work, msgspec.structs.replace(mcdf, plugin=[shadow]))
    endless = jobs.replace(wall_time=np.full(len(jobs), np.inf))
    assert is_short(replace(work, jobs=endless), mcdf)
    assert not is_short(replace(work, jobs=endless), presets()["portfolio"])


def given(jobs: Jobs) -> dict[str, Any]:
    """Return the columns that tests set."""
    names = ("id", "submit", "size", "kind", "wall_time", "deadline", "sigma", "cms", "cps")
    return {name: getattr(jobs, name) for name in names}


def test_gaps_on_unequal_nodes_in_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each job may use some nodes, or one, gaps are chosen as by the hook."""
    work, n = workload(8), 150
    rng = np.random.default_rng(8)
    speed = np.where(np.arange(NODES) % 3 == 1, 1.5, 1.0)
    masks = {"left": np.arange(NODES) < 8, "right": np.arange(NODES) >= 4}
    columns = {
        **given(work.jobs),
        "kind": np.full(n, Kind.RIGID, np.int8),
        "partition": rng.choice([-1, 0, 1], n).astype(np.int32),
        "pinned": np.where(work.jobs.size == 1, rng.integers(-1, NODES, n), -1).astype(np.int32),
        "begin": work.jobs.submit + rng.choice([-np.inf, 400.0], n, p=[0.9, 0.1]),
    }
    jobs = Jobs.build(n, names={"partition": ("left", "right")}, **columns)
    cluster = Cluster(Nodes.build(NODES, speed=speed), partitions=masks)
    work = replace(work, jobs=jobs, cluster=cluster)
    for name in ("spare-rf", "spare-uf"):
        asked, policy = Questions(monkeypatch), presets()[name]
        short = engine.replay(work, "test", policy)
        assert asked.in_loop > asked.hooks  # these where nobody who came has a deadline
        assert not list(differences(short, by_hooks(work, policy, monkeypatch)))
    graphs = jobs.replace(dag=np.zeros(n, np.int64))
    assert is_short(work, presets()["spare-rf"])
    assert not is_short(replace(work, jobs=graphs), presets()["spare-rf"])


def running_on(policy: Policy) -> Policy:
    """Return the policy with rejected jobs that run on, in the order of deadlines."""
    order = "deadline_in_place"
    system = msgspec.structs.replace(policy.system, order=order, rejected="run")
    return msgspec.structs.replace(policy, system=system)


@pytest.mark.parametrize("name", ["mcdf", "edf-mn", "spare-uf"])
def test_rejected_jobs_may_run_on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hooks and in short form alike; they break no promise, and all jobs run."""
    rigid = np.full(150, Kind.RIGID, np.int8)
    work, policy = workload(5, kind=rigid, sigma=0.0), running_on(presets()[name])
    run = engine.replay(work, "test", policy)
    assert not list(differences(run, by_hooks(work, policy, monkeypatch)))
    results, due = run.results, np.isfinite(work.jobs.deadline)
    assert np.equal(results.fate, FinalState.FINISHED).all()
    promised = np.isfinite(results.promise)
    assert (results.end[promised] <= results.promise[promised] + 1e-6).all()
    assert results.ran_on.any()
    assert (results.ran_on | promised == due).all()
    later = results.ran_on & promised
    found = measure(work, results)
    assert found["rejected"] == found["ran_on"] == int(results.ran_on.sum())
    assert found["promised_later"] == int(later.sum())
    in_time = int((results.end <= work.jobs.deadline)[due].sum())
    assert found["in_time"] == in_time


@pytest.mark.parametrize("name", ["edf-easy-admit", "mcdf"])
@pytest.mark.parametrize("seed", range(2))
def test_promised_jobs_in_the_queue(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hooks and in short form alike, jobs are judged by a plan that is not laid out."""
    policy = presets()[name]
    system = msgspec.structs.replace(policy.system, promised="queue")
    work, policy = workload(seed), msgspec.structs.replace(policy, system=system)
    run = engine.replay(work, "test", policy)
    assert not list(differences(run, by_hooks(work, policy, monkeypatch)))
    found = measure(work, run.results)
    assert found["promises"]
    assert found["rejected"]
    assert found["missed"] == found["promises"] - found["promises_kept"]


def test_a_queue_breaks_what_its_own_plan_promised() -> None:
    """On three nodes job 1 has two until 100 s, then job 2, then job 3 all of them until 300 s."""
    # Job 4 fits beside job 2, so the queue starts it at once: job 3 waits for its end, 903 s. A
    # plan that is kept has it wait until 300 s. Job 5 cannot end in time by either.
    jobs = Jobs.build(
        5,
        id=[1, 2, 3, 4, 5],
        submit=[0.0, 1.0, 2.0, 3.0, 4.0],
        size=[2, 2, 3, 1, 1],
        wall_time=[100.0, 100.0, 100.0, 900.0, 10.0],
        deadline=[np.inf, 250.0, 320.0, 5000.0, 20.0],
    )
    work = workload_of(jobs, jobs.wall_time, 3)
    queued = engine.replay(work, "test", presets()["edf-easy-admit"]).results
    assert queued.start[:4].tolist() == [0.0, 100.0, 903.0, 3.0]
    assert queued.promise.tolist() == [np.inf, 250.0, 320.0, 5000.0, np.inf]
    assert queued.fate[4] == FinalState.REJECTED
    found = measure(work, queued)
    assert (found["promises"], found["promises_kept"], found["in_time"]) == (3, 2, 2)
    planned = engine.replay(work, "test", presets()["edf-mn"]).results
    assert planned.start[:4].tolist() == [0.0, 100.0, 200.0, 300.0]


def test_a_rejected_job_runs_when_promises_leave_its_nodes() -> None:
    """Two jobs of 100 s for both nodes by 150 s: one is promised, one is late and still runs."""
    jobs = Jobs.build(
        2, id=[1, 2], submit=[0.0, 0.0], size=2, wall_time=100.0, deadline=[150.0, 150.0]
    )
    cluster = Cluster.uniform(2)
    work = workload_of(jobs, np.full(2, 100.0), cluster)
    leaves = engine.replay(work, "test", presets()["edf-mn"]).results
    assert leaves.fate.tolist() == [FinalState.FINISHED, FinalState.REJECTED]
    runs = engine.replay(work, "test", running_on(presets()["edf-mn"])).results
    assert runs.start.tolist() == [0.0, 100.0]
    assert runs.ran_on.tolist() == [False, True]
    assert runs.promise.tolist() == [150.0, np.inf]
    assert runs.offer[1] == leaves.offer[1] == 200.0


def test_a_rejected_job_is_promised_when_something_ends_early() -> None:
    """Both nodes may be taken until 100 s, then one until 110 s: 100 s more are too late for 150 s.

    The first job ends at 10 s. The other two follow, and there is room until 120 s for the rejected
    one. One whose deadline has passed by then waits like a job without a deadline.
    """
    jobs = Jobs.build(
        4,
        id=[1, 2, 3, 4],
        submit=[0.0, 1.0, 2.0, 3.0],
        size=[2, 1, 2, 2],
        wall_time=[100.0, 10.0, 100.0, 100.0],
        deadline=[400.0, 390.0, 150.0, 20.0],
    )
    work = workload_of(jobs, np.array([10.0, 10.0, 100.0, 100.0]), 2)
    results = engine.replay(work, "test", running_on(presets()["edf-mn"])).results
    assert results.ran_on.tolist() == [False, False, True, True]
    assert results.promise.tolist() == [400.0, 390.0, 150.0, np.inf]
    assert results.start[2] <= 50.0
    assert results.start[3] >= results.end[2]
    found = measure(work, results)
    assert (found["promised_later"], found["promises_kept"], found["in_time"]) == (1, 3, 3)


def test_not_each_of_many_like_jobs_is_asked_about_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One node, taken until 1000 s at the most; 101 jobs of 100 s, due at 250, 250.5, .. 300 s."""
    # The first job ends at 100 s: there is room for the first of them until 200 s then, behind it
    # for none but the last. Finding that takes 7 halvings, not 101 questions. A job with a late
    # deadline comes after them.
    n = 103
    jobs = Jobs.build(
        n,
        id=np.arange(n),
        submit=np.arange(n) / n,
        wall_time=[1000.0, *np.full(n - 1, 100.0)],
        deadline=[2000.0, 5000.0, *np.linspace(250.0, 300.0, n - 2)],
    )
    cluster = Cluster.uniform(1)
    run_time = np.full(n, 100.0)
    work = workload_of(jobs, run_time, cluster)
    policy = running_on(presets()["edf-mn"])
    run = engine.replay(work, "test", policy)
    assert np.flatnonzero(np.isfinite(run.results.promise)).tolist() == [0, 1, 2, 102]
    assert run.hooks["admit"]["mcdf"].calls < n + 20
    assert not list(differences(run, by_hooks(work, policy, monkeypatch)))


def test_the_recommended_policy_exists() -> None:
    """It promises, and lets rejected jobs run."""
    policy = presets()[RECOMMENDED]
    assert policy.planner
    assert policy.system.rejected == "run"
