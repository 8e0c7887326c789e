"""Placing by compiled kernels in the loop: a replay comes out as one that asks by snapshots."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from workloads import workload_of

from rtsched.core.config import PluginTable
from rtsched.model.cluster import Cluster, Nodes, NodeState
from rtsched.model.jobs import Edges, Jobs, Kind
from rtsched.model.log import Outcomes
from rtsched.replay import engine
from rtsched.replay.planners import load_chain, policy_of
from rtsched.replay.policies import Policy, presets
from rtsched.replay.results import PolicyRun, Workload
from rtsched.simulator.interface import NodeEvent

NODES = 13
SETTINGS: dict[str, dict[str, Any]] = {
    "usual": {},
    "free scans": {"comm_step": 0.0, "comp_step": 0.0, "least_imbalance": 0.0, "dimension": 0},
    "strict": {"binding": "strict", "comm_step": 0.0, "comp_step": 0.0, "least_imbalance": 0.0},
    "moves take time": {
        "comm_step": 0.0,
        "comp_step": 0.0,
        "least_imbalance": 0.0,
        "bandwidth": 1e5,
        "job_bytes": 1 << 20,
    },
    "other rules": {"tasks": "first", "leave": "proportional", "comm_step": 0.1, "dimension": 1},
}


def cluster(uneven: bool) -> Cluster:
    """Return nodes, one of them drained, with two partitions that overlap."""
    speed = np.where(np.arange(NODES) % 3 == 1, 1.5, 1.0) if uneven else np.ones(NODES)
    state = np.where(np.arange(NODES) == 5, NodeState.DRAINED, NodeState.UP)
    nodes = Nodes.build(NODES, speed=speed, state=state.astype(np.int8))
    masks = {"left": np.arange(NODES) < 8, "right": np.arange(NODES) >= 4}
    return Cluster(nodes, partitions=masks)


def workload(seed: int, n: int = 150, *, uneven: bool = False) -> Workload:
    """Return jobs, some at one instant, too wide, without a limit, pinned or in a partition."""
    rng = np.random.default_rng(seed)
    submit = 1_795_000_000.25 + np.cumsum(rng.choice([0.0, 0.0, 30.5, 300.0], n))
    wall = np.ceil(rng.lognormal(5, 1, n))
    jobs = Jobs.build(
        n,
        names={"partition": ("left", "right")},
        id=100 + rng.permutation(n),
        submit=submit,
        size=rng.choice([1, 1, 1, 2, 3, 5, 7], n).astype(np.int32),
        wall_time=np.where(rng.random(n) < 0.05, np.inf, wall),
        partition=rng.choice([-1, -1, 0, 1], n).astype(np.int32),
        pinned=np.where(rng.random(n) < 0.1, rng.integers(0, NODES, n), -1).astype(np.int32),
    )
    order = np.lexsort((jobs.id, jobs.submit))
    run_time = np.ceil(wall * rng.uniform(0.2, 1.0, n))
    return workload_of(jobs.take(order), run_time[order], cluster(uneven))


def with_settings(settings: dict[str, Any], loop: str = "easy") -> Policy:
    """Return the preset with settings of its plug-in, and another loop."""
    policy = presets()["psts"]
    return msgspec.structs.replace(
        policy,
        system=msgspec.structs.replace(policy.system, loop=loop),
        plugin=[PluginTable("psts", settings=settings)],
    )


def by_hooks(work: Workload, policy: Policy, monkeypatch: pytest.MonkeyPatch) -> PolicyRun:
    """Return the replay in which nobody has a compiled placer."""
    with monkeypatch.context() as patched:
        patched.setattr(engine, "policy_of", lambda *_: None)
        return engine.replay(work, "test", policy)


def counts(run: PolicyRun) -> dict[str, tuple[int, int, int, int, int]]:
    """Return the hook metrics that are compared."""
    return {
        hook: (m.calls, m.judged, m.changed, m.abstained, m.errors)
        for hook, metrics in run.hooks.items()
        for m in metrics.values()
    }


def differences(one: PolicyRun, other: PolicyRun) -> Iterator[str]:
    """Yield in what two runs differ."""
    for name in ("start", "end", "size", "fate", "first_node", "reason"):
        if not np.array_equal(one.results.column(name), other.results.column(name), equal_nan=True):
            yield name
    if any(not np.array_equal(a, b) for a, b in zip(one.node_rows, other.node_rows, strict=True)):
        yield "nodes"
    if list(one.decisions) != list(other.decisions):
        yield "decisions"
    if counts(one) != counts(other):
        yield "counts"


def is_placed_in_loop(work: Workload, policy: Policy) -> bool:
    """Return whether a policy's plug-in has a compiled placer for a workload."""
    chain, problems = load_chain(policy, periodic=False)
    assert not problems
    return policy_of(chain, work, policy, 0.0) is not None


@pytest.mark.parametrize("uneven", [False, True], ids=["equal nodes", "unequal nodes"])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_replay_is_the_same(
    settings: dict[str, Any], uneven: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outcomes, nodes and hook metrics are those of the hooks."""
    policy = with_settings(settings)
    for seed in (1, 2):
        work = workload(seed, uneven=uneven)
        assert is_placed_in_loop(work, policy)
        run = engine.replay(work, "test", policy)
        assert not list(differences(run, by_hooks(work, policy, monkeypatch)))
        assert counts(run)["partition"][0] > 50


@pytest.mark.parametrize("loop", ["fcfs", "conservative"])
def test_replay_is_the_same_in_other_loops(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The placer does not depend on the scheduler that starts the jobs."""
    policy, work = with_settings(SETTINGS["strict"], loop), workload(3)
    run = engine.replay(work, "test", policy)
    assert not list(differences(run, by_hooks(work, policy, monkeypatch)))


def test_pauses_tell_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nodes are full for long, the placer is told of events at the same arrivals."""
    jobs = Jobs.build(
        900, id=np.arange(900), submit=np.arange(900.0), size=np.full(900, NODES, np.int32),
        wall_time=np.full(900, 500.0),
    )  # fmt: skip
    work = replace(
        workload(4, 1),
        jobs=jobs,
        run_time=np.full(900, 400.0),
        outcomes=Outcomes.build(900),
        cluster=Cluster.uniform(NODES),
    )
    policy = with_settings({})
    run = engine.replay(work, "test", policy)
    assert not list(differences(run, by_hooks(work, policy, monkeypatch)))
    assert counts(run)["observe"][0] > counts(run)["partition"][0]


def test_where_there_is_no_placer() -> None:
    """It takes whole nodes that keep their state, jobs that wait at once, and no other plug-in."""
    work, policy = workload(5, 20), with_settings({})
    jobs = work.jobs
    assert is_placed_in_loop(work, policy)
    later = jobs.replace(begin=jobs.submit + 1.0)
    moldable = jobs.replace(kind=np.full(len(jobs), Kind.MOLDABLE, np.int8))
    for other in (later, moldable):
        assert not is_placed_in_loop(replace(work, jobs=other), policy)
    edges = Edges.build(1, before=[100], after=[101])
    assert not is_placed_in_loop(replace(work, edges=edges), policy)
    down = (NodeEvent(float(jobs.submit[0]), 0, NodeState.DOWN),)
    assert not is_placed_in_loop(replace(work, node_events=down), policy)
    beside = PluginTable("limits")
    assert not is_placed_in_loop(
        work, msgspec.structs.replace(policy, plugin=[*policy.plugin, beside])
    )
    shadow = PluginTable("psts", mode="shadow")
    assert not is_placed_in_loop(work, msgspec.structs.replace(policy, plugin=[shadow]))
