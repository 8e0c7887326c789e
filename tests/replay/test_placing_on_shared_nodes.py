"""Plug-ins that choose among nodes that jobs share by resources, in replays."""

import dataclasses
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_reference import Job, starts
from workloads import workload_of

from rtsched.core.config import PluginTable
from rtsched.errors import ConfigError
from rtsched.model.actions import Place
from rtsched.model.blocked import WHOLE, Blocked
from rtsched.model.cluster import Cluster, Nodes, NodeState
from rtsched.model.jobs import Jobs, Kind
from rtsched.model.log import FinalState
from rtsched.model.resources import fitting_sets
from rtsched.model.verdicts import Placement
from rtsched.replay.engine import replay
from rtsched.replay.planners import load_chain
from rtsched.replay.policies import presets
from rtsched.replay.results import PolicyRun, Workload
from rtsched.simulator.exclusive import ExclusiveNodes
from rtsched.simulator.interface import NodeEvent, StaticAnswers, StopConditions
from rtsched.simulator.settings import ExclusiveSettings

RESOURCES = ("cpu", "mem", "gres/gpu")


def machine(capacity: Sequence[tuple[int, ...]], **columns: Any) -> Cluster:
    """Return nodes with these amounts of cores, memory and GPUs."""
    names, table = {"capacity": RESOURCES}, np.array(capacity, np.int64)
    return Cluster(Nodes.build(len(table), names=names, capacity=table, **columns))


def asking(demand: Sequence[tuple[int, ...]], **columns: Any) -> Jobs:
    """Return jobs that ask for these amounts of cores, memory and GPUs on each node."""
    n = len(demand)
    table = np.array(demand, np.int64).reshape(n, 3)
    return Jobs.build(n, names={"demand": RESOURCES}, id=np.arange(n), demand=table, **columns)


def under(policy: str, workload: Workload, **changed: Any) -> PolicyRun:
    """Replay under a preset, with other settings of its plug-in where some are given."""
    table = presets()[policy]
    if changed:
        plugin = [PluginTable(table.plugin[0].name, settings=changed)]
        table = msgspec.structs.replace(table, plugin=plugin)
    run = replay(workload, policy, table)
    assert not any(m.errors for hook in run.hooks.values() for m in hook.values())
    return run


def nodes_of(run: PolicyRun) -> list[list[int]]:
    """Return each job's nodes."""
    offsets, nodes = run.node_rows
    return [nodes[a:b].tolist() for a, b in pairwise(offsets.tolist())]


def check_room(workload: Workload, run: PolicyRun) -> None:
    """Claim that no node is ever overcommitted, and no job on a node that does not hold it."""
    jobs, has = workload.jobs, workload.cluster.nodes.capacity
    start, end, nodes = run.results.start, run.results.end, nodes_of(run)
    code, sets = fitting_sets(jobs, workload.cluster)
    for row in np.flatnonzero(np.isfinite(start)).tolist():
        assert sets[code[row]][nodes[row]].all()
        left = has.copy()
        for other in np.flatnonzero((start <= start[row]) & (start[row] < end)).tolist():
            left[nodes[other]] -= jobs.demand[other]
        assert (left >= 0).all()


# The simulated system and what it is told.

amount = st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 2))
node = st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(0, 2))


@st.composite
def workloads(draw: st.DrawFn) -> list[Job]:
    """Draw jobs that come close together, some longer than others."""
    jobs, time = [], 0.0
    for _ in range(draw(st.integers(1, 12))):
        time += draw(st.integers(0, 3))
        wall, run = float(draw(st.integers(1, 12))), float(draw(st.integers(1, 14)))
        alone = draw(st.sampled_from([False, False, False, True]))
        jobs.append(Job(time, draw(st.integers(1, 3)), draw(amount), wall, run, alone))
    return jobs


def table_of(jobs: list[Job]) -> Jobs:
    """Return the jobs as a table."""
    return asking(
        [job.demand for job in jobs],
        submit=np.array([job.submit for job in jobs]),
        wall_time=np.array([job.wall for job in jobs]),
        size=np.array([job.nodes for job in jobs], np.int32),
        exclusive=np.array([job.exclusive for job in jobs]),
    )


def backwards(jobs: Jobs, cluster: Cluster) -> Placement:
    """Return the nodes on which each job fits, the last one first."""
    code, sets = fitting_sets(jobs, cluster)
    orders = tuple(np.flatnonzero(mask)[::-1].astype(np.int32) for mask in sets)
    enough = np.array([len(nodes) for nodes in orders])[code] >= jobs.size
    node_set = np.where(enough, code, -1).astype(np.int32)
    return Placement(np.zeros(len(jobs), np.int32), node_set, orders)


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("loop", ["fcfs", "easy"])
@settings(max_examples=60)
@given(jobs=workloads(), capacity=st.lists(node, min_size=1, max_size=4))
def test_jobs_start_on_the_first_of_the_nodes_given_that_have_room(
    loop: Any, static: bool, jobs: list[Job], capacity: list[tuple[int, ...]]
) -> None:
    """As plain code says, whether the nodes were given before the run or at each decision."""
    table, cluster = table_of(jobs), machine(capacity)
    answers = StaticAnswers(placement=backwards(table, cluster) if static else None)
    system = ExclusiveNodes(
        table,
        np.array([job.run for job in jobs]),
        cluster,
        ExclusiveSettings(loop=loop),
        stop_at=StopConditions(passes=not static),
        static=answers,
        record_nodes=True,
    )
    while not system.advance().done:
        waiting = system.snapshot().queued
        (outcome,) = system.apply([Place(waiting.id, backwards(waiting, cluster))])
        assert outcome.name == "DONE"
    begun, (offsets, nodes) = system.job_outcomes().start, system.node_rows()
    found = {
        row: (float(begun[row]), sorted(nodes[offsets[row] : offsets[row + 1]].tolist()))
        for row in np.flatnonzero(np.isfinite(begun)).tolist()
    }
    assert found == starts(jobs, capacity, loop, "backwards")


@settings(max_examples=60)
@given(
    capacity=st.lists(node, min_size=2, max_size=5),
    rows=st.lists(
        st.tuples(amount, st.integers(0, 3), st.integers(1, 9), st.lists(st.integers(1, 4))),
        min_size=1,
        max_size=10,
    ),
    loop=st.sampled_from(["fcfs", "easy", "conservative"]),
)
def test_moldable_jobs_take_the_sizes_that_they_are_given_last(
    capacity: list[tuple[int, ...]], rows: list[tuple[Any, ...]], loop: Any
) -> None:
    """Sizes that grow and shrink while a job waits: it runs as wide as said last, where it fits."""
    n, cluster = len(rows), machine(capacity)
    jobs = asking(
        [demand for demand, *_ in rows],
        submit=np.cumsum([float(gap) for _, gap, *_ in rows]),
        wall_time=np.array([float(wall) for _, _, wall, _ in rows]),
        kind=np.full(n, Kind.MOLDABLE, np.int8),
        size_max=np.full(n, 4, np.int32),
    )
    code, sets = fitting_sets(jobs, cluster)
    most = np.array([int(mask.sum()) for mask in sets])[code]
    system = ExclusiveNodes(
        jobs,
        jobs.wall_time.copy(),
        cluster,
        ExclusiveSettings(loop=loop),
        stop_at=StopConditions(passes=True),
        record_nodes=True,
    )
    given_last, step = np.ones(n, np.int64), 0
    while not system.advance().done:
        waiting = system.snapshot().queued
        wanted = [[*sizes, 1][step % (len(sizes) + 1)] for *_, sizes in rows]
        size = np.minimum(np.array(wanted)[waiting.id], most[waiting.id]).astype(np.int32)
        given_last[waiting.id], step = size, step + 1
        system.apply([Place(waiting.id, Placement(size, np.full(len(size), -1, np.int32)))])
    outcomes, (offsets, nodes) = system.job_outcomes(), system.node_rows()
    ran = most > 0
    assert (outcomes.fate[ran] == FinalState.FINISHED).all()
    assert (outcomes.size[ran] == given_last[ran]).all()
    assert np.diff(offsets)[ran].tolist() == given_last[ran].tolist()
    assert (outcomes.end - outcomes.start)[ran] == pytest.approx(
        jobs.wall_time[ran] / given_last[ran]
    )
    for row in np.flatnonzero(ran).tolist():
        left = cluster.nodes.capacity.copy()
        here = (outcomes.start <= outcomes.start[row]) & (outcomes.start[row] < outcomes.end)
        for other in np.flatnonzero(here).tolist():
            left[nodes[offsets[other] : offsets[other + 1]]] -= jobs.demand[other]
        assert (left >= 0).all()


# psts.


def both_kinds(speed: list[float], rows: list[tuple[int, ...]]) -> tuple[Workload, Workload]:
    """Return jobs on whole nodes, and the same ones where a node has one unit of one resource."""
    n, m = len(rows), len(speed)
    columns: dict[str, Any] = {
        "id": np.arange(n),
        "submit": np.cumsum([60.0 * gap for gap, *_ in rows]),
        "size": np.array([min(nodes, m) for _, nodes, *_ in rows], np.int32),
        "kind": np.array([kind for *_, kind in rows], np.int8),
    }
    columns["size_max"] = np.minimum(2 * columns["size"], m).astype(np.int32)
    run = np.array([300.0 * units for _, _, units, *_ in rows])
    columns["wall_time"] = run + np.array([300.0 * more for *_, more, _ in rows])
    shared = Jobs.build(n, names={"demand": ("node",)}, demand=np.ones((n, 1), int), **columns)
    names, ones = {"capacity": ("node",)}, np.ones((m, 1), np.int64)
    whole = workload_of(Jobs.build(n, **columns), run, Cluster(Nodes.build(m, speed=speed)))
    nodes = Nodes.build(m, speed=speed, names=names, capacity=ones)
    return whole, workload_of(shared, run, Cluster(nodes))


speeds = st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=2, max_size=5)


@pytest.mark.parametrize("binding", ["soft", "strict"])
@pytest.mark.parametrize("seed", range(6))
def test_psts_with_one_unit_of_one_resource_is_psts_on_whole_nodes(binding: str, seed: int) -> None:
    """Jobs of one node have the same starts, ends and nodes, to the last digit."""
    rng = np.random.default_rng(seed)
    speed = rng.choice([0.5, 1.0, 2.0], 4).tolist()
    columns = (rng.integers(0, 5, 25), rng.integers(1, 20, 25), rng.integers(0, 9, 25))
    rows = [(gap, 1, units, more, Kind.RIGID) for gap, units, more in zip(*columns, strict=True)]
    free = {"comm_step": 0.0, "comp_step": 0.0, "least_imbalance": 0.0}
    whole, shared = both_kinds(speed, rows)
    one, other = (under("psts", each, binding=binding, **free) for each in (whole, shared))
    assert one.results.start.tolist() == other.results.start.tolist()
    assert one.results.end.tolist() == other.results.end.tolist()
    assert nodes_of(one) == nodes_of(other)


def gpu_cluster() -> Cluster:
    """Return two nodes of 8 cores and 4 GPUs, and one of 16 cores."""
    return machine([(8, 64, 4), (8, 64, 4), (16, 64, 0)])


GPU_LOG = [(4, 8, 0), (4, 8, 0), (4, 8, 2), (2, 8, 4), (1, 8, 1)]
"""Two jobs of 4 cores, and then three with GPUs."""


def gpu_log() -> Workload:
    """Return five jobs a minute apart on the nodes of `gpu_cluster`."""
    n = len(GPU_LOG)
    jobs = asking(GPU_LOG, submit=60.0 * np.arange(n), wall_time=np.full(n, 3600.0))
    return workload_of(jobs, np.full(n, 1800.0), gpu_cluster())


def test_psts_keeps_cores_beside_gpus_free() -> None:
    """EASY fills the first node's cores, so that its four GPUs are of no use to the GPU jobs."""
    # Under EASY both jobs without GPUs are on node 0, the job with 2 GPUs on node 1, and that with
    # 4 waits for the end of the first at 1,800 s: its 2 cores are not free on node 0, its GPUs not
    # on node 1. The last job fits on node 1 beside the one of 2 GPUs. Under psts the first job goes
    # to node 2, of which it takes a quarter. So does the second, as the first is to end there
    # sooner by then than a job of half of node 0 would; the GPU jobs find both nodes empty.
    easy, psts = under("easy", gpu_log()), under("psts", gpu_log())
    assert nodes_of(easy) == [[0], [0], [1], [0], [1]]
    assert easy.results.start.tolist() == [0.0, 60.0, 120.0, 1800.0, 240.0]
    assert [node for (node,) in nodes_of(psts)][:2] == [2, 2]
    assert psts.results.start.tolist() == [0.0, 60.0, 120.0, 180.0, 240.0]


@st.composite
def logs(draw: st.DrawFn, kinds: Sequence[Kind] = (Kind.RIGID,)) -> Workload:
    """Draw jobs of amounts that some node has, on nodes of unequal speed."""
    capacity = draw(st.lists(node, min_size=1, max_size=4))
    m = len(capacity)
    speed = draw(st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=m, max_size=m))
    row = st.tuples(
        amount, st.integers(0, 9), st.integers(1, 9), st.integers(0, 9), st.sampled_from(kinds)
    )
    rows = draw(st.lists(row, min_size=1, max_size=14))
    least = np.array(capacity).max(axis=0)
    run = np.array([100.0 * units for _, _, units, *_ in rows])
    jobs = asking(
        [tuple(np.minimum(demand, least).tolist()) for demand, *_ in rows],
        submit=np.cumsum([20.0 * gap for _, gap, *_ in rows]),
        wall_time=run + np.array([100.0 * more for *_, more, _ in rows]),
        kind=np.array([kind for *_, kind in rows], np.int8),
        size_max=np.full(len(rows), m, np.int32),
    )
    return workload_of(jobs, run, machine(capacity, speed=speed))


@pytest.mark.parametrize("loop", ["fcfs", "easy", "conservative"])
@pytest.mark.parametrize("binding", ["soft", "strict"])
@settings(max_examples=15, deadline=None)
@given(workload=logs())
def test_psts_starts_every_job_that_fits_somewhere_where_it_fits(
    loop: Any, binding: str, workload: Workload
) -> None:
    """Nobody is left behind, no node is overcommitted, and nothing that psts says is refused."""
    plugin = [PluginTable("psts", settings={"binding": binding, "comm_step": 0.0})]
    policy = msgspec.structs.replace(
        presets()["psts"], plugin=plugin, system=ExclusiveSettings(loop=loop)
    )
    run = replay(workload, "psts", policy)
    assert not any(m.errors for hook in run.hooks.values() for m in hook.values())
    assert not run.undone
    code, sets = fitting_sets(workload.jobs, workload.cluster)
    fits = np.array([mask.any() for mask in sets])[code]
    assert ((run.results.fate == FinalState.FINISHED) == fits).all()
    check_room(workload, run)


def test_psts_leaves_a_node_that_goes_down() -> None:
    """Jobs bound to a node that fails go to the one that is left."""
    cluster = machine([(4, 8, 0), (4, 8, 0)])
    n = 4
    jobs = asking([(4, 8, 0)] * n, submit=np.arange(n, dtype=float), wall_time=np.full(n, 100.0))
    events = (NodeEvent(50.0, 1, NodeState.DOWN),)
    run = under(
        "psts", workload_of(jobs, np.full(n, 100.0), cluster, node_events=events), binding="strict"
    )
    assert (run.results.fate[[0, 2, 3]] == FinalState.FINISHED).all()
    assert [nodes_of(run)[row] for row in (0, 2, 3)] == [[0], [0], [0]]


# sed-batch.


@settings(max_examples=40, deadline=None)
@given(
    speed=speeds,
    rows=st.lists(
        st.tuples(
            st.integers(0, 9),
            st.integers(1, 3),
            st.integers(1, 20),
            st.integers(0, 9),
            st.sampled_from([Kind.RIGID, Kind.MOLDABLE]),
        ),
        min_size=1,
        max_size=15,
    ),
)
def test_sed_batch_with_one_unit_of_one_resource_is_that_on_whole_nodes(
    speed: list[float], rows: list[tuple[int, ...]]
) -> None:
    """In order of submission: the same sizes, starts, ends and nodes, to the last digit."""
    policy = msgspec.structs.replace(presets()["sed-batch"], system=ExclusiveSettings(loop="fcfs"))
    whole, shared = (replay(each, "sed-batch", policy) for each in both_kinds(speed, rows))
    for name in ("size", "start", "end"):
        assert whole.results.column(name).tolist() == shared.results.column(name).tolist()
    assert [sorted(each) for each in nodes_of(whole)] == [sorted(each) for each in nodes_of(shared)]


@pytest.mark.parametrize("loop", ["fcfs", "easy", "conservative"])
@settings(max_examples=30, deadline=None)
@given(workload=logs((Kind.RIGID, Kind.MOLDABLE)))
def test_sed_batch_starts_every_job_that_fits_somewhere_where_it_fits(
    loop: Any, workload: Workload
) -> None:
    """Rigid and moldable; no node is overcommitted, no size is beyond what a job may have."""
    policy = msgspec.structs.replace(presets()["sed-batch"], system=ExclusiveSettings(loop=loop))
    run = replay(workload, "sed-batch", policy)
    assert not any(m.errors for hook in run.hooks.values() for m in hook.values())
    assert not run.undone
    code, sets = fitting_sets(workload.jobs, workload.cluster)
    count = np.array([int(mask.sum()) for mask in sets])[code]
    assert ((run.results.fate == FinalState.FINISHED) == (count > 0)).all()
    assert (run.results.size <= count).all()
    check_room(workload, run)


def test_sed_batch_is_easy_for_rigid_jobs_on_nodes_of_one_speed() -> None:
    """Whatever they ask for, the first nodes with room are the fastest ones."""
    easy, sed = under("easy", gpu_log()), under("sed-batch", gpu_log())
    assert easy.results.start.tolist() == sed.results.start.tolist()
    assert nodes_of(easy) == nodes_of(sed)


def test_sed_batch_gives_moldable_jobs_the_nodes_with_room_for_their_gpus() -> None:
    """Two fast nodes without GPUs, four slow ones of which three have GPUs free."""
    # The job of 1 to 4 processes with a GPU each takes these three, and a third of the 2,400 s that
    # it needs on one of them. That without GPUs takes all six nodes: a delay of 2 for each of 6 is
    # less than 1 for each of 2. EASY runs both on the one node that they ask for.
    cluster = machine([(4, 64, 0)] * 2 + [(4, 64, 2)] * 4, speed=[2.0] * 2 + [1.0] * 4)
    n = 3
    jobs = asking(
        [(1, 1, 2), (1, 1, 1), (1, 1, 0)],
        submit=np.arange(n, dtype=float),
        wall_time=np.full(n, 4800.0),
        kind=np.array([Kind.RIGID, Kind.MOLDABLE, Kind.MOLDABLE], np.int8),
        size_max=np.array([1, 4, 6], np.int32),
    )
    workload = workload_of(jobs, np.full(n, 2400.0), cluster)
    easy, sed = under("easy", workload), under("sed-batch", workload)
    assert sed.results.size.tolist() == [1, 3, 6]
    assert nodes_of(sed) == [[2], [3, 4, 5], [0, 1, 2, 3, 4, 5]]
    assert (sed.results.end - sed.results.start).tolist() == [2400.0, 800.0, 400.0]
    assert nodes_of(easy) == [[2], [3], [0]]
    assert (easy.results.end - easy.results.start).tolist() == [2400.0, 2400.0, 1200.0]


@pytest.mark.parametrize("loop", ["fcfs", "easy", "conservative"])
@pytest.mark.parametrize("policy", ["psts", "sed-batch"])
@settings(max_examples=10, deadline=None)
@given(workload=logs((Kind.RIGID, Kind.MOLDABLE)), begin=st.integers(0, 9))
def test_reservations_of_the_site_keep_their_nodes(
    policy: str, loop: Any, workload: Workload, begin: int
) -> None:
    """The first node is set aside for a while: jobs placed there end before it, or come later."""
    span = (100.0 * begin, 100.0 * begin + 400.0)
    blocked = Blocked.of([(0, *span, WHOLE)])
    changed = dataclasses.replace(workload, blocked=blocked)
    table = msgspec.structs.replace(presets()[policy], system=ExclusiveSettings(loop=loop))
    run = replay(changed, policy, table)
    assert not any(m.errors for hook in run.hooks.values() for m in hook.values())
    assert not run.undone
    check_room(changed, run)
    code, sets = fitting_sets(changed.jobs, changed.cluster)
    fits = np.array([mask.any() for mask in sets])[code]
    assert ((run.results.fate == FinalState.FINISHED) == fits).all()
    for row, nodes in enumerate(nodes_of(run)):
        if 0 in nodes:
            assert run.results.end[row] <= span[0] or run.results.start[row] >= span[1]


@pytest.mark.parametrize("loop", ["easy", "conservative"])
@pytest.mark.parametrize("policy", ["psts", "sed-batch"])
@settings(max_examples=15, deadline=None)
@given(workload=logs((Kind.RIGID, Kind.MOLDABLE)), hours=st.lists(st.integers(0, 30), min_size=14))
def test_promises_are_kept_beside_jobs_that_are_placed(
    policy: str, loop: Any, workload: Workload, hours: list[int]
) -> None:
    """Every other job has a deadline, which mcdf promises or not; the rest is placed beside."""
    jobs, rows = workload.jobs, np.arange(len(workload.jobs))
    slack = 100.0 * np.array(hours)[: len(rows)]
    deadline = np.where(rows % 2, jobs.submit + jobs.wall_time + slack, np.inf)
    changed = dataclasses.replace(workload, jobs=jobs.replace(deadline=deadline))
    plugin = [*presets()[policy].plugin, *presets()["mcdf"].plugin]
    system = ExclusiveSettings(loop=loop)
    table = msgspec.structs.replace(presets()[policy], system=system, plugin=plugin, planner="mcdf")
    run = replay(changed, policy, table)
    assert not any(m.errors for hook in run.hooks.values() for m in hook.values())
    promised = np.isfinite(run.results.promise)
    assert (run.results.end[promised] <= run.results.promise[promised]).all()
    check_room(changed, run)


# Which combinations are refused.


def problems_of(policy: Any) -> str:
    """Return what is wrong with a policy where jobs share nodes by resources."""
    return " ".join(load_chain(policy, periodic=False, resources=True)[1])


def test_plug_ins_that_place_by_resources_are_accepted() -> None:
    """They know what a node has; those that do not are refused as before."""
    assert not problems_of(presets()["psts"])
    assert not problems_of(presets()["sed-batch"])
    assert "plugin 'sed' chooses whole nodes for jobs" in problems_of(presets()["sed"])
    fastest = msgspec.structs.replace(presets()["easy"], plugin=[PluginTable("fastest")])
    assert "plugin 'fastest' chooses whole nodes for jobs" in problems_of(fastest)


def test_a_rule_of_the_system_that_would_ignore_the_order_is_refused() -> None:
    """Best fit would take another node than the one that psts balanced for."""
    system = ExclusiveSettings(loop="easy", placement="best_fit")
    policy = msgspec.structs.replace(presets()["psts"], system=system)
    assert "'best_fit' would ignore the order in which plugin 'psts'" in problems_of(policy)
    with pytest.raises(ConfigError, match="leave out one of them"):
        replay(gpu_log(), "psts", policy)
    shadow = msgspec.structs.replace(policy, plugin=[PluginTable("psts", "shadow")])
    assert not problems_of(shadow)
