"""Runs of the exclusive system that touch every part of it, for comparing two ways to run them.

python exclusive_scenarios.py        # prints what happened, as JSON
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rtsched.kernels.policy import JobColumns, job_columns, policy_kernels
from rtsched.model.actions import Admit, Hold, Place, Reject, Reserve, SetPriority
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Jobs
from rtsched.model.preemption import Preemption
from rtsched.model.schedule import Schedule
from rtsched.model.verdicts import Placement
from rtsched.simulator.exclusive import ExclusiveNodes
from rtsched.simulator.interface import NodeEvent, StaticAnswers, StopConditions
from rtsched.simulator.settings import ExclusiveSettings

ORIGIN = 1_000_000_000.0


class Served(NamedTuple):
    """Nodes given to each association so far."""

    columns: JobColumns
    nodes: NDArray[np.float64]


def least_served(policy, now, rows, out):  # type: ignore[no-untyped-def]
    """Rank by nodes already given to the job's association, fewest first."""
    silent = 0
    for i in range(len(rows)):
        owner = policy.columns.association[rows[i]]
        if owner < 0:
            silent += 1
        else:
            out[i] = -policy.nodes[owner]
    return silent


def served(policy, time, kind, row, size, nodes):  # type: ignore[no-untyped-def]
    """Count the nodes given to each association."""
    owner = policy.columns.association[row]
    if kind == 2 and owner >= 0:
        policy.nodes[owner] += size


policy_kernels(Served, rank=least_served, observe=served)


def serving(jobs: Jobs) -> Served:
    """Return the policy that puts first those to whom fewest nodes were given."""
    return Served(job_columns(jobs), np.zeros(3))


def random_jobs(seed: int, n: int, nodes: int, **columns: Any) -> tuple[Jobs, NDArray[np.float64]]:
    """Return `n` jobs that keep a machine of `nodes` nodes busy, and their run times."""
    rng = np.random.default_rng(seed)
    size = np.minimum(rng.geometric(4.0 / nodes, n), nodes).astype(np.int32)
    run = np.ceil(rng.exponential(40.0, n))
    jobs = Jobs.build(
        n,
        id=np.arange(n) * 2 + 5,
        submit=ORIGIN + np.cumsum(rng.integers(0, 25, n)),
        wall_time=run + rng.integers(0, 3, n) * np.ceil(rng.exponential(30.0, n)),
        size=size,
        deadline=ORIGIN + rng.integers(0, 5000, n),
        association=rng.integers(-1, 3, n).astype(np.int32),
        **columns,
    )
    return jobs, run


def answer(system: ExclusiveNodes, rng: np.random.Generator) -> None:
    """Drive a system to its end: reject, hold, plan, rank and place at random."""
    planned = Schedule.empty()
    while not (point := system.advance()).done:
        ids = system.jobs.id[point.arrivals]
        draw = rng.integers(0, 6, len(ids))
        system.apply(
            [
                Reject(ids[draw == 0], np.full((draw == 0).sum(), np.inf), ()),
                Hold(ids[draw == 1], np.full((draw == 1).sum(), point.time + 30.0)),
                Admit(ids[draw > 1], np.full((draw > 1).sum(), np.inf)),
            ]
        )
        snapshot = system.snapshot()
        planned = snapshot.plan
        for row in point.arrivals[draw == 2]:
            planned = Schedule.joined([planned, appended(system, planned, int(row))])
        if (draw == 2).any():
            system.apply([Reserve(planned.entries.job, planned)])
        if point.passes:
            queued = system.snapshot().queued
            values = rng.integers(0, 4, len(queued)).astype(np.float64)
            system.apply([SetPriority(queued.id, values)])


def appended(system: ExclusiveNodes, plan: Schedule, row: int) -> Schedule:
    """Return a plan entry for one job: on the lowest nodes, after all that is planned there."""
    free = system.snapshot().free_in + system.now
    ends = np.repeat(plan.entries.end, np.diff(plan.indptr))
    np.maximum.at(free, plan.nodes, ends)
    jobs = system.jobs
    nodes = np.flatnonzero(np.isfinite(free))[: jobs.size[row]].astype(np.int32)
    if len(nodes) < jobs.size[row]:
        return Schedule.empty()
    start = float(free[nodes].max()) + 10.0
    offsets = np.array([0, len(nodes)])
    return Schedule.build([jobs.id[row]], [start], [start + jobs.wall_time[row]], offsets, nodes)


def assert_no_overlap(system: ExclusiveNodes) -> None:
    """Check that each job ran on as many nodes as it has, and no node ran two jobs at a time.

    Of jobs that were killed and never started again nothing is known.
    """
    outcomes = system.job_outcomes()
    offsets, nodes = system.node_rows()
    ran = np.isfinite(outcomes.start)
    assert (np.diff(offsets)[ran] == outcomes.size[ran]).all()
    owner = np.repeat(np.arange(len(ran)), np.diff(offsets))
    nodes, owner = nodes[ran[owner]], owner[ran[owner]]
    order = np.lexsort((outcomes.start[owner], nodes))
    same = nodes[order][1:] == nodes[order][:-1]
    before, after = owner[order][:-1][same], owner[order][1:][same]
    assert (outcomes.end[before] <= outcomes.start[after]).all()
    for row in np.flatnonzero(ran):
        mine = nodes[owner == row]
        assert len(set(mine.tolist())) == len(mine)
        assert outcomes.first_node[row] == mine.min()


def scenarios() -> Iterator[tuple[str, ExclusiveNodes]]:
    """Return named systems that have run to their end."""
    nodes = 40
    cluster = Cluster.uniform(nodes)
    jobs, run = random_jobs(1, 60, nodes)
    for loop in ("fcfs", "easy", "conservative", "serial", "negotiator"):
        for order in ("arrival", "deadline"):
            for depth in (0, 3):
                settings = ExclusiveSettings(loop=loop, order=order, depth=depth)
                system = ExclusiveNodes(jobs, run, cluster, settings, record_nodes=True)
                system.advance()
                yield f"{loop} {order} {depth}", system
    events = [NodeEvent(ORIGIN + 40.0 * k, k % 7, (2, 0, 1, 0)[k % 4]) for k in range(24)]
    for loop in ("fcfs", "easy", "conservative", "negotiator"):
        settings = ExclusiveSettings(loop=loop, order="priority")
        system = ExclusiveNodes(
            jobs,
            run,
            cluster,
            settings,
            compiled=serving(jobs),
            record_nodes=True,
            record_events=True,
        )
        system.advance()
        yield f"{loop} hooks", system
        system = ExclusiveNodes(
            jobs,
            run,
            cluster,
            settings,
            stop_at=StopConditions(True, True, True, True),
            node_events=events,
            record_nodes=True,
            record_events=True,
        )
        answer(system, np.random.default_rng(2))
        yield f"{loop} asked", system
        yield f"{loop} sets", on_sets(loop)
    yield from preempting(jobs, run, cluster, events)


def preempting(
    jobs: Jobs, run: NDArray[np.float64], cluster: Cluster, events: list[NodeEvent]
) -> Iterator[tuple[str, ExclusiveNodes]]:
    """Return named systems in which jobs preempt others, on whole nodes and on shared ones."""
    rng = np.random.default_rng(5)
    shared = Cluster(
        Nodes.build(len(cluster), names={"capacity": ("cpu",)}, capacity=[[4]] * len(cluster))
    )
    demand = rng.integers(1, 4, (len(jobs), 1))
    parts, _ = random_jobs(1, len(jobs), len(cluster), names={"demand": ("cpu",)}, demand=demand)
    given: dict[str, Any] = {
        "preemption": Preemption(
            rng.integers(0, 3, len(jobs)),
            np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0]], np.bool_),
            np.array([False, True, False]),
            np.arange(3.0),
            np.array([20.0, 0.0, 0.0]),
        ),
        "record_nodes": True,
        "record_events": True,
    }
    for loop in ("fcfs", "easy"):
        settings = ExclusiveSettings(loop=loop, order="priority")
        for name, table, nodes in (("whole", jobs, cluster), ("shared", parts, shared)):
            system = ExclusiveNodes(table, run, nodes, settings, compiled=serving(table), **given)
            system.advance()
            yield f"{loop} preempting {name} hooks", system
            stops = StopConditions(True, True, True, True)
            system = ExclusiveNodes(
                table, run, nodes, settings, stop_at=stops, node_events=events, **given
            )
            answer(system, np.random.default_rng(2))
            yield f"{loop} preempting {name} asked", system


def on_sets(loop: str) -> ExclusiveNodes:
    """Return a run on partitions, node sets, pinned jobs, begin times and nodes of two speeds."""
    n, nodes = 80, 12
    rng = np.random.default_rng(3)
    jobs, run = random_jobs(
        4,
        n,
        nodes,
        partition=[("all", "low", None)[k % 3] for k in range(n)],
        pinned=np.where(np.arange(n) % 11 == 0, 3, -1).astype(np.int32),
    )
    jobs = jobs.replace(begin=jobs.submit + rng.integers(-1, 2, n) * 60.0)
    low = np.arange(nodes) < 6
    speed = np.where(np.arange(nodes) % 4 == 0, 0.5, 1.0)
    cluster = Cluster(
        Nodes.build(nodes, speed=speed), {"all": np.ones(nodes, np.bool_), "low": low}
    )
    sets = (np.array([11, 2, 7], np.int32), np.arange(12, dtype=np.int32))
    code = rng.integers(-1, 2, n).astype(np.int32)
    placement = Placement(np.zeros(n, np.int32), code, sets)
    settings = ExclusiveSettings(loop=loop)
    system = ExclusiveNodes(
        jobs,
        run,
        cluster,
        settings,
        static=StaticAnswers(placement=placement),
        stop_at=StopConditions(passes=True),
        record_nodes=True,
    )
    while not system.advance().done:
        queued = system.snapshot().queued
        code = np.where(queued.id % 4 == 1, 0, -1).astype(np.int32)
        some = Placement(np.zeros(len(queued), np.int32), code, sets)
        system.apply([Place(queued.id, some)])
    return system


def report(system: ExclusiveNodes) -> dict[str, Any]:
    """Return what happened in a run, in plain numbers."""
    outcomes = system.job_outcomes()
    offsets, nodes = system.node_rows()
    return {
        "start": np.nan_to_num(outcomes.start, nan=-1.0).tolist(),
        "end": np.nan_to_num(outcomes.end, nan=-1.0).tolist(),
        "fate": outcomes.fate.tolist(),
        "first": outcomes.first_node.tolist(),
        "restarts": outcomes.restarts.tolist(),
        "offsets": offsets.tolist(),
        "nodes": nodes.tolist(),
        "events": system.events().rows.kind.tolist(),
        "calls": system.hook_calls(),
    }


def main() -> None:
    """Print the reports of all scenarios."""
    print(json.dumps({name: report(system) for name, system in scenarios()}))


if __name__ == "__main__":
    main()
