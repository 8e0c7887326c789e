"""States and questions of the policies' benchmark: what each plug-in is asked, and how often.

Each function takes a size and returns the ways to put one question: through the chain, as the
daemon and a replay do, and to the arithmetic alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from admission import NOW, PLANNER, jobs_of, snapshot_of
from msgspec.structs import replace as changed
from scans import queues_of, rebalanced
from states import newcomer, random_state

from rtsched.core.capabilities import PreparedState
from rtsched.core.chain import Chain, Member
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Edges, Jobs, Periodic
from rtsched.model.schedule import Promises, Schedule
from rtsched.model.snapshot import Accounts, Snapshot
from rtsched.model.state import EventKind, EventRows, Events
from rtsched.model.verdicts import Verdict
from rtsched_plugins.kernels import ste as ste_kernel
from rtsched_plugins.kernels.scans import INDEX, MAJORITY, placed
from rtsched_plugins.mapping import Mapping
from rtsched_plugins.mcdf import Mcdf
from rtsched_plugins.portfolio import Portfolio
from rtsched_plugins.psts import NODE, WORK, Psts, machine_of
from rtsched_plugins.sed import Sed
from rtsched_plugins.spare import EdfForm, Spare
from rtsched_plugins.spare_form import place_graph
from rtsched_plugins.ste import Ste
from rtsched_plugins.task_graphs import graphs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rtsched.core.chain import Judgement

NODES = 10_000
MACHINES, GRAPH_TASKS, GRAPHS_BEFORE = 256, 20, 10
QUEUE = 64
"""Jobs that wait when a whole queue is mapped."""


class Way(NamedTuple):
    """One way to put a question.

    Attributes
    ----------
    label : str
        For the table.
    given : callable
        Makes the arguments of test k; this is not measured.
    ask : callable
        What is measured.
    said_yes : callable
        Whether an answer is one that decided something: admitted, moved, mapped.
    per : int
        Decisions of one answer, between which its time is shared.
    """

    label: str
    given: Callable[[int], tuple[Any, ...]]
    ask: Callable[..., Any]
    said_yes: Callable[[Any], bool] = bool
    per: int = 1


class Question(NamedTuple):
    """A question to a policy: how to put it at a size, at what sizes, and how often.

    `target_ms` is the 99th percentile wanted of the first `judged` ways at `target_size`.
    """

    title: str
    axis: str
    ways: Callable[[int], list[Way]]
    sizes: Sequence[int]
    tests: int
    target_size: int
    target_ms: float = np.inf
    judged: int = 1


def all_admitted(judgement: Judgement) -> bool:
    """Return whether every job of a batch was admitted."""
    return bool((judgement.verdicts.code == Verdict.ADMIT).all())


def admission(name: str, plugin: Mcdf | Portfolio) -> Callable[[int], list[Way]]:
    """Return the question of a job with a deadline, by the number of promised tasks that wait."""

    def ways(waiting: int) -> list[Way]:
        free, tasks = random_state(waiting, NODES, 1)
        base = snapshot_of(free, tasks, PLANNER.admit(PLANNER.prepare(free, tasks), None, 0.0))
        chain, planner = Chain([Member(name, plugin)], name), plugin.planner
        prepared = planner.prepare(free, tasks)

        def task(k: int) -> Any:
            hours = np.random.default_rng([2, k]).uniform(np.log(1 / 60), np.log(96.0))
            return newcomer(k, deadline=float(np.round(3600 * np.exp(hours))), n_nodes=NODES)

        def same(k: int) -> tuple[Jobs, Snapshot]:
            return jobs_of(task(k), 10**6), replace(base)

        def anew(k: int) -> tuple[Jobs, Snapshot]:
            return jobs_of(task(k), 10**6), replace(base, queued=base.queued.take(range(waiting)))

        def from_scratch(task: Any) -> Any:
            return planner.admit(planner.prepare(free, tasks), task, 0.0)

        return [
            Way("plug-in, promises as at the test before", same, chain.admit, all_admitted),
            Way("plug-in, first test after a promise", anew, chain.admit, all_admitted),
            Way("kernel", lambda k: (task(k),), from_scratch, lambda plan: plan.accepted),
            Way(
                "kernel, state prepared before",
                lambda k: (prepared, task(k), 0.0),
                planner.admit,
                lambda plan: plan.accepted,
            ),
        ]

    return ways


def periodic_work(jobs: int, rng: np.random.Generator) -> Periodic:
    """Return periodic jobs that keep each of the machines 20 to 70 % busy."""
    node = np.sort(np.arange(jobs) % MACHINES)
    period = rng.choice([300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0], jobs)
    share = rng.uniform(0.2, 0.7, MACHINES)[node] / np.bincount(node, minlength=MACHINES)[node]
    cost = np.maximum(np.floor(period * share), 1.0)
    ids = 10**8 + np.arange(jobs)
    columns = {"exec_time": cost, "period": period, "relative_deadline": period}
    return Periodic.build(jobs, id=ids, node=node, phase=NOW - 100 * 7200.0, **columns)


def task_graphs(first: int, count: int, rng: np.random.Generator) -> tuple[Jobs, Edges]:
    """Return graphs of 20 tasks in layers of 4, each task behind one or two of the layer before."""
    n = count * GRAPH_TASKS
    graph, place = np.divmod(np.arange(n), GRAPH_TASKS)
    later = np.flatnonzero(place >= 4)
    start = later - later % 4 - 4
    pairs = [np.stack([start + rng.integers(0, 4, len(later)), later]) for _ in range(2)]
    before, after = np.unique(np.concatenate(pairs, axis=1), axis=1)
    work = rng.lognormal(np.log(300.0), 0.7, n).clip(30.0, 3600.0).round()
    patience = np.repeat(rng.uniform(2_000.0, 12_000.0, count).round(), GRAPH_TASKS)
    jobs = Jobs.build(
        n,
        id=first + np.arange(n),
        submit=NOW,
        wall_time=work,
        deadline=NOW + patience,
        dag=first + graph,
        suspends=True,
    )
    message = rng.integers(0, 30, len(before)).astype(np.float64)
    edges = Edges.build(
        len(before), before=first + before, after=first + after, message_time=message
    )
    return jobs, edges


def spare(periodic: int) -> list[Way]:
    """Ask about a graph of 20 tasks, by the number of periodic jobs on 256 machines."""
    rng = np.random.default_rng(1)
    cluster = Cluster(Nodes.build(MACHINES, speed=rng.choice([1.0, 1.2, 1.5, 2.0], MACHINES)))
    plugin = Spare(Spare.Config(form="edf", offer_tests=0))
    in_gaps = Chain([Member("spare", Spare(Spare.Config(offer_tests=0)))], "spare")
    suspended = Chain([Member("spare", plugin)], "spare")
    work = periodic_work(periodic, rng)
    bases = {
        id(chain): _with_graphs(Snapshot(NOW, cluster, periodic=work), chain)
        for chain in (suspended, in_gaps)
    }

    def given(chain: Chain) -> Callable[[int], tuple[Jobs, Snapshot]]:
        def make(k: int) -> tuple[Jobs, Snapshot]:
            new = task_graphs(10**6 * (k + 10), 1, np.random.default_rng([3, k]))
            return new[0], replace(bases[id(chain)], edges=new[1])

        return make

    def form_of(k: int) -> tuple[Any, ...]:
        jobs, snapshot = given(suspended)(k)
        form = EdfForm.of(snapshot, jobs, 1.0, False)
        return form, next(graphs_of(jobs, snapshot.edges)), jobs.deadline

    return [
        Way("plug-in, tasks can be suspended", given(suspended), suspended.admit, all_admitted),
        Way(
            "trial, tasks can be suspended, state prepared before",
            form_of,
            lambda form, graph, deadline: place_graph(form, graph, deadline[graph.rows], {}),
            lambda trial: not trial.failed,
        ),
        Way("plug-in, tasks in gaps", given(in_gaps), in_gaps.admit, all_admitted),
    ]


def _with_graphs(snapshot: Snapshot, chain: Chain) -> Snapshot:
    """Return the snapshot with what was admitted of ten graphs."""
    jobs, edges = task_graphs(0, GRAPHS_BEFORE, np.random.default_rng(7))
    verdicts = chain.admit(jobs, replace(snapshot, edges=edges)).verdicts
    rows = np.flatnonzero(verdicts.code == Verdict.ADMIT)
    if not len(rows):
        raise AssertionError("none of the graphs that come first is admitted")
    promises = Promises.build(len(rows), job=jobs.id[rows], deadline=verdicts.promise[rows])
    return replace(snapshot, queued=jobs.take(rows), promises=promises, plan=verdicts.plan)


def sed(nodes: int) -> list[Way]:
    """Ask where jobs of 1 to 64 processes run, by the nodes of a machine that is half busy."""
    rng = np.random.default_rng(1)
    cluster = Cluster(Nodes.build(nodes, speed=rng.choice([1.0, 1.25, 1.5, 2.0], nodes)))
    sizes = np.minimum(rng.geometric(1 / 8, nodes // 16), 64)
    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    busy = np.concatenate([rng.choice(nodes, size, replace=False) for size in sizes])
    running = Jobs.build(len(sizes), id=np.arange(len(sizes)), submit=NOW - 9e3, size=sizes)
    held = Schedule.build(running.id, NOW - 8e3, NOW + 9e3, indptr, busy.astype(np.int32))
    base = Snapshot(NOW, cluster, running=running, allocations=held)
    chain, plugin = Chain([Member("sed", Sed(Sed.Config(time_sharing=True)))]), Sed()

    def given(count: int) -> Callable[[int], tuple[Jobs, Snapshot]]:
        def make(k: int) -> tuple[Jobs, Snapshot]:
            most = np.minimum(np.random.default_rng([4, k]).geometric(1 / 8, count), 64)
            ids = 10**6 + np.arange(count)
            jobs = Jobs.build(count, id=ids, submit=NOW, size=most, kind=1, size_min=1)
            return jobs, replace(base, queued=jobs)

        return make

    def alone(k: int) -> tuple[Mapping, int, Any]:
        field = plugin._mapping(base, PreparedState()).field._replace(shared=True)
        mapping = Mapping(field, held.indptr, held.nodes)
        mapping.usable()
        return mapping, int(given(1)(k)[0].size[0]), np.ones(nodes, np.bool_)

    return [
        Way(
            f"plug-in, a queue of {QUEUE} jobs, per job",
            given(QUEUE),
            chain.partition,
            lambda placement: bool((placement.size > 0).all()),
            QUEUE,
        ),
        Way("plug-in, one job", given(1), chain.partition, lambda p: bool(p.size[0] > 0)),
        Way(
            "kernel, one job",
            alone,
            lambda mapping, most, allowed: mapping.place(1, most, allowed),
            lambda found: found is not None,
        ),
    ]


def psts(nodes: int) -> list[Way]:
    """Tell of one arrival to uneven queues of ten jobs per node, by the number of nodes."""
    plugin = Psts()
    cluster, queues = queues_of(nodes, 10 * nodes, plugin.config.dimension)
    machine = machine_of(cluster, queues.shape, queues.cell, queues.sets)
    base = Snapshot(0.0, cluster)
    chain = Chain([Member("psts", plugin)])
    power = np.zeros(int(np.prod(queues.shape)), np.int64)
    power[queues.cell] = machine.power[0]
    owner, units = queues.cell[queues.waiting[:, NODE]], queues.waiting[:, WORK].copy()
    job = Jobs.build(1, id=10 * nodes, wall_time=3600.0, size=1)
    came = Events(EventRows.build(1, time=0.0, kind=EventKind.ARRIVED), job)
    many = Jobs.build(10 * nodes, id=np.arange(10 * nodes), wall_time=units, size=1)

    def told(_k: int) -> tuple[Events, Snapshot]:
        return came, replace(base, states={"psts": changed(queues)})

    def asked(_k: int) -> tuple[Jobs, Snapshot]:
        return many, replace(base, queued=many, states={"psts": changed(queues)})

    def scan(_k: int) -> tuple[Any, ...]:
        return machine.shape, owner, units, power, MAJORITY, INDEX

    return [
        Way(
            "plug-in, one arrival",
            told,
            chain.observe,
            lambda states: states["psts"].moved > 0,
        ),
        Way(
            "rebalance alone",
            lambda _k: (queues, machine),
            rebalanced,
            lambda after: after.moved > 0,
        ),
        Way("scan alone", scan, placed, lambda found: bool((found != owner).any())),
        Way(
            "plug-in, the nodes of all waiting jobs",
            asked,
            chain.partition,
            lambda placement: bool((placement.node_set >= 0).all()),
        ),
    ]


def ste(jobs: int) -> list[Way]:
    """Ask for the priorities of all waiting jobs, by their number; each user has ten."""
    rng = np.random.default_rng(1)
    users, top = jobs // 10, max(jobs // 1000, 2)
    accounts = Accounts.build(
        top + users,
        parent=np.concatenate([np.full(top, -1), rng.integers(0, top, users)]),
        shares=rng.integers(1, 10, top + users),
        is_user=np.arange(top + users) >= top,
    )
    cluster = Cluster(Nodes.build(1000))
    waiting = Jobs.build(
        jobs,
        id=np.arange(jobs),
        submit=np.sort(NOW - rng.uniform(0.0, 86400.0, jobs)),
        size=rng.geometric(1 / 8, jobs),
        association=top + rng.integers(0, users, jobs),
    )
    plugin = Ste(Ste.Config())
    chain = Chain([Member("ste", plugin)])
    base = Snapshot(NOW, cluster, waiting, accounts=accounts)
    started = rng.random(jobs) < 0.02
    rows = np.concatenate([np.arange(jobs), np.flatnonzero(started)])
    kind = np.where(np.arange(len(rows)) < jobs, EventKind.ARRIVED, EventKind.STARTED)
    events = EventRows.build(
        len(rows), time=waiting.submit[rows], kind=kind, size=waiting.size[rows]
    )
    order = np.argsort(events.time, kind="stable")
    told = Events(events.take(order), waiting.take(rows[order]))
    states = chain.observe(told, base)
    queued = waiting.take(~started)
    params, tables = plugin._lay_out(accounts, cluster)
    lines = np.zeros((ste_kernel.LINES, len(accounts) + 1))
    lines[: ste_kernel.KEPT] = states["ste"].kept

    def given(k: int) -> tuple[Jobs, Snapshot]:
        return queued, replace(base, now=NOW + k, queued=queued, states=states)

    def fresh(k: int) -> tuple[Any, ...]:
        own = lines.copy()
        own[ste_kernel.AT] = np.nan
        return NOW + k, params, tables, own, np.empty((2, len(accounts) + 1))

    return [
        Way("plug-in", given, chain.fair_share, lambda order: bool(np.ptp(order.value) > 0)),
        Way("kernel, all users and accounts", fresh, ste_kernel.terms, lambda _none: True),
    ]


QUESTIONS = {
    "mcdf": Question(
        f"mcdf: admission of a job, {NODES:,} nodes",
        "promised tasks wait",
        admission("mcdf", Mcdf(Mcdf.Config(offer_tests=0))),
        sizes=(100, 1_000, 10_000),
        tests=300,
        target_size=1_000,
        target_ms=1.0,
        judged=2,
    ),
    "portfolio": Question(
        f"portfolio: admission of a job, {NODES:,} nodes",
        "promised tasks wait",
        admission("portfolio", Portfolio(Portfolio.Config(offer_tests=0))),
        sizes=(100, 1_000, 10_000),
        tests=200,
        target_size=1_000,
        target_ms=10.0,
        judged=2,
    ),
    "spare": Question(
        f"spare: admission of a graph of {GRAPH_TASKS} tasks, {MACHINES} machines",
        "periodic jobs",
        spare,
        sizes=(300, 1_000, 3_000),
        tests=100,
        target_size=1_000,
    ),
    "sed": Question(
        "sed: mapping of a job",
        "nodes",
        sed,
        sizes=(1_000, 10_000, 100_000),
        tests=50,
        target_size=10_000,
        target_ms=1.0,
    ),
    "psts": Question(
        "psts: rebalance, ten jobs wait per node",
        "nodes",
        psts,
        sizes=(1_000, 3_000, 10_000),
        tests=20,
        target_size=10_000,
        target_ms=100.0,
    ),
    "ste": Question(
        "ste: priorities of all waiting jobs, ten per user",
        "waiting jobs",
        ste,
        sizes=(10_000, 30_000, 100_000),
        tests=50,
        target_size=100_000,
        target_ms=20.0,
    ),
}
