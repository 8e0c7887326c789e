"""Promises on whole nodes in partitions that overlap: one plan for all of them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtsched.core.chain import Chain, Member
from rtsched.core.decision import judge
from rtsched.core.plan_check import plan_fault
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Jobs
from rtsched.model.schedule import Promises, Schedule
from rtsched.model.snapshot import Snapshot
from rtsched.model.verdicts import Verdict, Verdicts
from rtsched_plugins.mcdf import Mcdf
from rtsched_plugins.planning import PreparedPlan
from rtsched_plugins.portfolio import Portfolio

NOW = 1_795_000_000.0
Row = tuple[str, int, float, float]
"""Partition, nodes, seconds of run time, seconds until the deadline."""


def machine(nodes: int, **partitions: range) -> Cluster:
    """Return nodes that jobs have for themselves, in these partitions."""
    inside = {name: np.isin(np.arange(nodes), list(rows)) for name, rows in partitions.items()}
    return Cluster(Nodes.build(nodes), partitions=inside)


def asking(*rows: Row) -> Jobs:
    """Return rigid jobs, in the order in which they are judged."""
    partition, size, wall, deadline = zip(*rows, strict=True)
    names = tuple(dict.fromkeys(partition))
    return Jobs.build(
        len(rows),
        names={"partition": names},
        id=np.arange(len(rows)),
        submit=NOW,
        partition=np.array([names.index(name) for name in partition], np.int32),
        size=np.array(size, np.int32),
        wall_time=np.array(wall, np.float64),
        deadline=NOW + np.array(deadline),
    )


def mcdf(**given_settings: object) -> Chain:
    """Return a chain of MCDF, which plans by deadline unless told otherwise."""
    config = Mcdf.Config(**{"order": "deadline", **given_settings})
    return Chain([Member("mcdf", Mcdf(config))], "mcdf")


def portfolio() -> Chain:
    """Return a chain of the planner that tries several orders."""
    return Chain([Member("portfolio", Portfolio(Portfolio.Config()))], "portfolio")


def busy(snapshot: Snapshot, nodes: list[int], seconds: float) -> Snapshot:
    """Return the snapshot with a job that runs on some nodes for so long."""
    running = Jobs.build(1, id=np.array([90]), size=np.array([len(nodes)], np.int32))
    held = Schedule.build(
        np.array([90]),
        np.array([NOW - 1.0]),
        np.array([NOW + seconds]),
        np.array([0, len(nodes)]),
        np.array(nodes, np.int32),
    )
    return replace(snapshot, running=running, allocations=held)


def verdicts(jobs: Jobs, snapshot: Snapshot, chain: Chain) -> Verdicts:
    """Return what the planner says of jobs."""
    judgement = judge(snapshot, chain, jobs)
    assert not judgement.planner_error
    return judgement.verdicts


@pytest.mark.parametrize("chain", [mcdf(), portfolio()])
def test_a_job_runs_before_one_of_another_partition(chain: Chain) -> None:
    """Node 1 is busy for 1000 s: job 0, which needs both, waits for it; job 1 has node 0 first."""
    partitions = machine(2, wide=range(2), small=range(1))
    jobs = asking(("wide", 2, 100, 1100), ("small", 1, 400, 1000), ("small", 1, 400, 1000))
    found = verdicts(jobs, busy(Snapshot(NOW, partitions), [1], 1000), chain)
    assert found.code.tolist() == [Verdict.ADMIT] * 3
    start = dict(zip(found.plan.entries.job, found.plan.entries.start - NOW, strict=True))
    assert start == {0: 1000, 1: 0, 2: 400}


def test_promises_of_other_partitions_are_planned_anew() -> None:
    """Job 2 needs node 0 at once: job 0 is planned on the other one, and job 1 after it."""
    partitions = machine(2, wide=range(2), small=range(1))
    jobs = asking(("wide", 1, 100, 200), ("wide", 1, 100, 200), ("small", 1, 100, 100))
    found = verdicts(jobs, Snapshot(NOW, partitions), mcdf())
    assert found.code.tolist() == [Verdict.ADMIT] * 3


def test_insured_promises_are_planned_by_partition() -> None:
    """Where promises survive the loss of a node, each partition keeps nodes of its own free."""
    partitions = machine(3, wide=range(3), small=range(2))
    jobs = asking(("wide", 1, 100, 400), ("small", 1, 100, 400))
    found = verdicts(jobs, Snapshot(NOW, partitions), mcdf(spare_nodes=1))
    assert found.code.tolist() == [Verdict.ADMIT] * 2


@pytest.mark.parametrize("order", ["arrival", "cost-derivative", "deadline"])
def test_one_plan_admits_more(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Than plans by partition: 150 jobs ask at once, in partitions of 8, 24 and all of 32 nodes."""
    partitions = machine(32, small=range(8), most=range(24), wide=range(32))
    names, rng = list(partitions.partitions), np.random.default_rng(7)
    rows = []
    for _ in range(150):
        wall = float(rng.integers(300, 1800))
        name, size = names[rng.integers(3)], int(rng.choice([1, 1, 2, 4, 6, 8]))
        rows.append((name, size, wall, wall * float(rng.uniform(1.05, 12.0))))
    jobs, snapshot = asking(*rows), Snapshot(NOW, partitions)
    one = int((verdicts(jobs, snapshot, mcdf(order=order)).code == Verdict.ADMIT).sum())
    monkeypatch.setattr(PreparedPlan, "has_overlapping_pools", lambda *_: False)
    apart = int((verdicts(jobs, snapshot, mcdf(order=order)).code == Verdict.ADMIT).sum())
    print(f"{order}: {one} of {len(jobs)} jobs are admitted with one plan, {apart} without")
    assert one > 1.1 * apart


MASKS = st.lists(st.sets(st.integers(0, 4), min_size=1), min_size=2, max_size=3)
ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 3), st.integers(1, 9), st.integers(1, 40)),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(MASKS, ROWS, st.sets(st.integers(0, 4), max_size=3), st.booleans())
def test_plans_are_sound(
    masks: list[set[int]], rows: list[tuple[int, int, int, int]], taken: set[int], several: bool
) -> None:
    """Nobody has a node of another partition or two at a time, and every promise is kept."""
    # Asked one by one, as at submissions, with what was promised before.
    names = [f"p{k}" for k in range(len(masks))]
    inside = {
        name: np.isin(np.arange(5), list(mask)) for name, mask in zip(names, masks, strict=True)
    }
    snapshot = Snapshot(NOW, Cluster(Nodes.build(5), partitions=inside))
    if taken:
        snapshot = busy(snapshot, sorted(taken), 7.0)
    asked = asking(
        *((names[p % len(masks)], size, 10.0 * w, 10.0 * due) for p, size, w, due in rows)
    )
    chain, promised = portfolio() if several else mcdf(), np.empty(0, np.int64)
    for row in range(len(asked)):
        job = asked.take([row])
        found = verdicts(job, snapshot, chain)
        if found.plan is None:
            continue
        assert plan_fault(found.plan, job, snapshot, found.promise) is None
        promised = np.append(promised, row)
        kept = asked.take(promised)
        assert sorted(found.plan.entries.job.tolist()) == promised.tolist()
        promises = Promises.build(len(kept), job=kept.id, deadline=kept.deadline)
        snapshot = replace(snapshot, queued=kept, promises=promises, plan=found.plan)
