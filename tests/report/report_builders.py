"""Small workloads and policy runs for the report's tests, made without reader and engine."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rtsched.core.chain import HookMetrics
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Edges, Jobs
from rtsched.model.log import Ending, FinalState, Outcomes, Skipped
from rtsched.model.snapshot import Accounts
from rtsched.replay.results import REASONS, Obstacle, PolicyRun, PromisableJobs, Results, Workload

MARKUP = "[red]eve[/red]"
SCRIPT = "<script>alert(1)</script>"
ESCAPE = "bell\x07\x1b[31mred"
OVERRIDE = "abc\u202edef"
TEMPLATE = "%{x} {{ 7*7 }} $x^2$ <a href='http://evil.example'>x</a>"
HOSTILE = (MARKUP, SCRIPT, ESCAPE, OVERRIDE, TEMPLATE)

START = 1_700_000_000.0


def workload(
    n: int = 60,
    nodes: int = 8,
    seed: int = 1,
    users: Sequence[str] = ("ann", "bob", "cleo"),
    start: float = START,
    gap: float = 900.0,
    skipped: bool = True,
) -> Workload:
    """Return `n` random jobs on `nodes` nodes, with what a first-come log records of them."""
    random = np.random.default_rng(seed)
    submit = start + np.floor(np.cumsum(random.exponential(gap, n)))
    run_time = np.ceil(random.lognormal(7.5, 1.3, n))
    wall_time = np.ceil(run_time * random.uniform(1.0, 3.0, n))
    size = np.minimum(2 ** random.integers(0, 6, n), nodes).astype(np.int32)
    who = random.integers(0, len(users), n).astype(np.int32)
    deadline = np.where(random.random(n) < 0.6, submit + 4 * wall_time, np.inf)
    jobs = Jobs.build(
        n,
        id=np.arange(n),
        label=[f"{100 + i}" for i in range(n)],
        submit=submit,
        wall_time=wall_time,
        deadline=deadline,
        size=size,
        user=who,
        account=(who % 2).astype(np.int32),
        association=who + 2,
        names={"user": users, "account": [f"project {name}" for name in users[:2]]},
    )
    began = first_come(submit, run_time, size, nodes)[0] + 60.0
    outcomes = Outcomes.build(
        n, start=began, end=began + run_time, run_time=run_time, size=size,
        ending=np.full(n, Ending.COMPLETED, np.int8),
    )  # fmt: skip
    left_out = Skipped()
    if skipped:
        left_out.add("run time is not a number", "site.swf:17", 3)
        left_out.add("more processors than the machine", "site.swf:40")
    no_promise = Skipped()
    no_promise.add(REASONS[Obstacle.NO_TIME_LIMIT], "job 103", 2)
    return Workload(
        jobs=jobs,
        run_time=run_time,
        outcomes=outcomes,
        cluster=Cluster.uniform(nodes),
        accounts=Accounts.build(
            2 + len(users),
            name=[*(f"project {name}" for name in users[:2]), *users],
            parent=[-1, -1, *(i % 2 for i in range(len(users)))],
            is_user=[False, False, *(True for _ in users)],
        ),
        edges=Edges.build(0),
        assumptions=(
            f"The log does not describe the machine: {nodes} processors, the most that its jobs "
            "held at once, are taken.",
            "All accounts have equal shares, and so have the users in each account.",
        ),
        skipped=left_out,
        sources=("site.swf",),
        format="swf",
        promisable=PromisableJobs(n, no_promise),
    )


def shared_workload() -> Workload:
    """Return the workload on nodes of 8 cores, 16 GiB and a GPU, in partitions `cpu` and `gpu`."""
    work, names = workload(), ("cpu", "mem", "gres/gpu")
    kept = "id label submit wall_time deadline size user account association"
    n, nodes = len(work.jobs), len(work.cluster)
    demand = np.tile([4, 2**30, 0], (n, 1))
    demand[1::2, 2] = 1
    jobs = Jobs.build(
        n,
        names={
            "demand": names,
            "partition": ("cpu", "gpu"),
            **{name: work.jobs.names(name) for name in ("label", "user", "account")},
        },
        demand=demand,
        partition=np.arange(n, dtype=np.int32) % 2,
        **{name: work.jobs.column(name) for name in kept.split()},
    )
    capacity = np.tile([8, 2**34, 1], (nodes, 1))
    machine = Nodes.build(nodes, names={"capacity": names}, capacity=capacity)
    return dataclasses.replace(work, jobs=jobs, cluster=Cluster(machine))


def shared_run(work: Workload, policy: str = "fcfs") -> PolicyRun:
    """Return a run on shared nodes, served by half of the cores of its nodes."""
    made = run(work, policy)
    results = made.results.replace(service=made.results.served() / 2)
    return dataclasses.replace(made, results=results)


def first_come(
    submit: NDArray[np.float64],
    run_time: NDArray[np.float64],
    size: NDArray[np.int32],
    nodes: int,
    order: NDArray[np.int64] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int32]]:
    """Return starts and nodes of jobs that start strictly one after the other in `order`."""
    free, last = np.full(nodes, -np.inf), -np.inf
    starts = np.full(len(submit), np.nan)
    chosen: list[NDArray[np.int64]] = [np.empty(0, np.int64)] * len(submit)
    for i in range(len(submit)) if order is None else order.tolist():
        mine = np.argsort(free, kind="stable")[: size[i]]
        last = starts[i] = max(last, submit[i], free[mine].max())
        free[mine] = starts[i] + run_time[i]
        chosen[i] = np.sort(mine)
    indptr = np.concatenate([[0], np.cumsum([len(rows) for rows in chosen])]).astype(np.int64)
    return starts, indptr, np.concatenate(chosen).astype(np.int32)


def run(work: Workload, policy: str = "fcfs", *, rejects: float = 0.0, seed: int = 3) -> PolicyRun:
    """Return a policy that turns some jobs away and starts the rest, in order of arrival.

    A policy of another name than `fcfs` takes the shortest of every twenty arrivals first.
    """
    jobs, n = work.jobs, len(work.jobs)
    random = np.random.default_rng(seed)
    rejected = (random.random(n) < rejects) & np.isfinite(jobs.deadline)
    kept = np.flatnonzero(~rejected)
    if policy != "fcfs":
        kept = kept[np.lexsort((work.run_time[kept], kept // 20))]
    starts, indptr, rows = first_come(
        jobs.submit, work.run_time, jobs.size, len(work.cluster), kept
    )
    ran = ~rejected
    return PolicyRun(
        policy=policy,
        results=Results.build(
            n,
            start=starts,
            end=starts + work.run_time,
            size=np.where(ran, jobs.size, 0).astype(np.int32),
            fate=np.where(ran, FinalState.FINISHED, FinalState.REJECTED).astype(np.int8),
            first_node=np.where(ran, rows[np.minimum(indptr[:-1], len(rows) - 1)], -1),
            promise=np.where(ran & (rejects > 0), jobs.deadline, np.inf),
            offer=np.where(rejected, jobs.deadline + 3600.0, np.inf),
            reason=["mcdf.late" if late else None for late in rejected.tolist()],
        ),
        node_rows=(indptr, rows),
        hooks={
            "admit": {"mcdf": HookMetrics(n, n, int(rejected.sum()), 3, 0.25)},
            "fair_share": {"multifactor": HookMetrics(n, 4 * n, n, 0, 0.5, 1, "ValueError: no")},
        }
        if rejects
        else {},
        decisions=[
            {
                "job": int(row),
                "plugin": "mcdf",
                "mode": "enforce",
                "verdict": "reject",
                "reason": "mcdf.late",
                "text": f"needs {jobs.size[row]} nodes for longer than there is",
                "numbers": {"nodes": float(jobs.size[row])},
                "offer_s": float(jobs.deadline[row] + 3600.0),
            }
            for row in np.flatnonzero(rejected)
        ],
        settings={"system": {"loop": policy}, "plugin": [{"name": "mcdf", "settings": {}}]},
        seconds=1.25,
    )


def million(n: int = 1_000_000) -> tuple[Workload, list[PolicyRun]]:
    """Return a large workload and two made-up runs: plausible waits, nobody schedules them."""
    random = np.random.default_rng(7)
    users = [f"u{i:03d}" for i in range(300)]
    submit = START + np.sort(random.uniform(0, 3.15e7, n))
    run_time = np.ceil(random.lognormal(6.5, 1.5, n))
    wall_time = np.ceil(run_time * random.uniform(1, 3, n))
    size = (2 ** random.integers(0, 7, n)).astype(np.int32)
    who = random.integers(0, len(users), n).astype(np.int32)
    jobs = Jobs.build(
        n, id=np.arange(n), submit=submit, wall_time=wall_time, size=size, user=who,
        deadline=submit + 6 * wall_time, association=who + 30, account=who // 10,
        names={"user": users, "account": [f"a{i}" for i in range(30)]},
    )  # fmt: skip
    runs, began = [], submit
    for name, scale in (("log", 3000.0), ("fcfs", 9000.0), ("easy", 2000.0)):
        began = submit + random.exponential(scale, n) * (random.random(n) < 0.7)
        if name == "log":
            outcomes = Outcomes.build(
                n, start=began, end=began + run_time, run_time=run_time, size=size
            )
            continue
        results = Results.build(n, start=began, end=began + run_time, size=size)
        runs.append(PolicyRun(name, results, (np.zeros(n + 1, np.int64), np.empty(0, np.int32))))
    work = Workload(
        jobs, run_time, outcomes, Cluster.uniform(2048),
        Accounts.build(
            330, name=[*(f"a{i}" for i in range(30)), *users], is_user=np.arange(330) >= 30,
            parent=np.concatenate([np.full(30, -1), np.arange(300) // 10]).astype(np.int32),
        ), Edges.build(0),
        ("The machine has 2048 nodes.",), Skipped(), ("big.swf",), "swf",
    )  # fmt: skip
    return work, runs
