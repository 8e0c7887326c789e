"""Runs of delay-class mapping: its states, without a clock, and replays of parallel job streams."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from rtsched.core.capabilities import PreparedState
from rtsched.core.chain import Chain
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Edges, Jobs, Kind
from rtsched.model.log import Outcomes, Skipped
from rtsched.model.snapshot import Accounts
from rtsched.model.state import EventKind
from rtsched.replay.engine import Replay
from rtsched.replay.policies import presets
from rtsched.replay.results import Workload
from rtsched.testing import make_events, make_jobs, make_snapshot
from rtsched_plugins.sed import Recorded, Sed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike, NDArray

    from rtsched.kernels.delays import MigrationCost
    from rtsched.model.snapshot import Snapshot

State = list[list[int]]
"""Per delay class the sorted sizes of the jobs with that delay."""

VARIANTS: dict[str, Any] = {
    "SED": {"upgrade": True, "migrate": True},
    "SED-NU": {"upgrade": False, "migrate": True},
    "SED-NM": {"upgrade": True, "migrate": False},
}
"""Settings of the plug-in in each variant of the source."""


def machines(speed_factors: list[float]) -> Cluster:
    """Return nodes whose slowness is given."""
    alpha = np.array(speed_factors, np.float64)
    return Cluster(Nodes.build(len(alpha), speed=1.0 / alpha))


@dataclass(frozen=True)
class MappedCluster:
    """A cluster with running jobs, mapped by the sed plug-in without a clock.

    Attributes
    ----------
    nodes : dict of job id to list of node rows
        In the order in which the jobs started.
    """

    plugin: Sed
    cluster: Cluster
    nodes: dict[int, list[int]] = field(default_factory=dict)
    state: Recorded | None = None

    def snapshot(self, queued: Jobs | None = None) -> Snapshot:
        """Return what the plug-in sees."""
        ids = list(self.nodes)
        running = make_jobs(len(ids), id=ids, submit=np.arange(float(len(ids))))
        return make_snapshot(queued, self.cluster, running=running, nodes=list(self.nodes.values()))

    def asked(self, occasion: EventKind, queued: Jobs | None = None) -> Any:
        """Return the plug-in's answer after an occasion."""
        snapshot = self.snapshot(queued)
        none = np.zeros(0, np.int64)
        old = self.state or Recorded(none, none.astype(np.float64), 0)
        state = Recorded(old.job, old.delay, int(occasion))
        return self.plugin.rtsched_partition(
            snapshot.queued, self.cluster, snapshot, state, PreparedState()
        )

    def after(self, nodes: dict[int, list[int]], kind: EventKind, job: int) -> MappedCluster:
        """Return the place after a job started, ended or moved, on the nodes given."""
        then = replace(self, nodes=nodes)
        events = make_events(make_jobs(id=[job]), [(0.0, kind, 0)])
        state = self.plugin.rtsched_observe(events, then.snapshot(), self.state, PreparedState())
        return replace(then, state=state)

    def delays(self) -> dict[int, float]:
        """Return the recorded delay of each job."""
        if self.state is None:
            return {}
        return dict(zip(self.state.job.tolist(), self.state.delay.tolist(), strict=True))

    def assigned(self, job: int, least: int, most: int) -> MappedCluster | None:
        """Return the place with one job more, None if it must wait."""
        queued = make_jobs(
            id=[job], submit=[1e6], kind=Kind.MOLDABLE, size=most, size_min=least, size_max=most
        )
        answer = self.asked(EventKind.ARRIVED, queued)
        chosen = answer.node_sets[answer.node_set[0]]
        if not len(chosen):
            return None
        return self.after({**self.nodes, job: chosen.tolist()}, EventKind.STARTED, job)

    def terminated(self, job: int) -> tuple[MappedCluster, list[int]]:
        """Return the place without a job, and the jobs that were upgraded."""
        left = {other: nodes for other, nodes in self.nodes.items() if other != job}
        then = self.after(left, EventKind.ENDED, job)
        moves = then.asked(EventKind.ARRIVED).moves
        upgraded = [] if moves is None else sorted(moves.entries.job.tolist())
        for other in upgraded:
            then = then.after(then.nodes, EventKind.MOVED, other)
        return then, upgraded

    def migrated(self) -> Iterator[tuple[MappedCluster, int, int]]:
        """Yield the place after each migration, the job, and how many processes moved."""
        place = self
        while (moves := place.asked(EventKind.ENDED).moves) is not None:
            job = int(moves.entries.job[0])
            to = moves.nodes_of(0).tolist()
            moved = len(set(to) - set(place.nodes[job]))
            for row, other in enumerate(moves.entries.job.tolist()):
                nodes = {**place.nodes, other: moves.nodes_of(row).tolist()}
                place = place.after(nodes, EventKind.MOVED, other)
            yield place, job, moved

    def availability(self) -> list[int]:
        """Return the number of usable nodes per class and below."""
        snapshot = self.snapshot()
        mapping = self.plugin._mapping(snapshot, PreparedState())
        delays = self.delays()
        mapping.record(np.array([delays[job] for job in self.nodes], np.float64))
        return [int(count) for count in mapping.available()]

    def state_of(self) -> State:
        """Return the sizes of the jobs in each delay class."""
        delays = self.delays()
        return [
            sorted(len(nodes) for job, nodes in self.nodes.items() if delays[job] == bound)
            for bound in self.classes()
        ]

    def classes(self) -> list[float]:
        """Return the delay classes."""
        bounds = self.plugin.rtsched_delay_class(self.snapshot(), PreparedState()).bounds
        return [float(bound) for bound in bounds]


def idle(speed_factors: list[float], **settings: Any) -> MappedCluster:
    """Return idle machines under the plug-in with these settings."""
    return MappedCluster(Sed(Sed.Config(time_sharing=True, **settings)), machines(speed_factors))


def diagram(
    speed_factors: list[float], variant: str, least: int, most: int
) -> tuple[list[State], list[tuple[State, str, State]]]:
    """Return all states that equal jobs of `least` to `most` processes lead to, and the edges.

    Edges are labelled `arrive`, `end` (nobody waits) and `end+queue` (one waiting job is mapped).
    """
    seen: dict[str, State] = {}
    edges: dict[str, tuple[State, str, State]] = {}
    ahead = [idle(speed_factors, **VARIANTS[variant])]
    while ahead:
        place = ahead.pop()
        here = place.state_of()
        if str(here) in seen:
            continue
        seen[str(here)] = here
        for label, then in _next(place, least, most):
            there = then.state_of()
            edges[str((here, label, there))] = (here, label, there)
            ahead.append(then)
    return sorted(seen.values()), sorted(edges.values())


def _next(place: MappedCluster, least: int, most: int) -> Iterator[tuple[str, MappedCluster]]:
    fresh = max(place.nodes, default=0) + 1
    if (then := place.assigned(fresh, least, most)) is not None:
        yield "arrive", then
    for job in place.nodes:
        left, _ = place.terminated(job)
        if (then := left.assigned(fresh, least, most)) is not None:
            yield "end+queue", then
        settled = [left, *(then for then, _, _ in left.migrated())]
        yield "end", settled[-1]


SYSTEMS: dict[int, list[float]] = {
    1: [1.0] * 5 + [4.0] * 25,
    2: [1.0] * 20 + [4.0] * 10,
}
"""Slowness of the machines of each system."""
DEMAND, LEAST, MOST = 6000.0, 3, 30
"""Seconds of work of each job, fewest and most processes."""


class Courses(NamedTuple):
    """What became of `n` jobs, row by row."""

    arrival: NDArray[np.float64]
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    size: NDArray[np.int32]
    """Processes."""
    upgraded: NDArray[np.bool_]
    migrated: NDArray[np.bool_]


def stream(
    speed_factors: list[float],
    arrival: ArrayLike,
    demand: ArrayLike = DEMAND,
    least: ArrayLike = LEAST,
    most: ArrayLike = MOST,
    job_id: ArrayLike | None = None,
) -> Workload:
    """Return a stream of moldable jobs as a workload.

    Parameters
    ----------
    speed_factors : list of float
        Slowness of each machine.
    arrival, demand : float64[n]
        Seconds; the demand is that of one process on a machine of slowness 1.
    least, most : int[n]
        Processes.
    job_id : int[n], optional
        0, 1, 2, ... if left out.
    """
    submit = np.asarray(arrival, np.float64)
    n = len(submit)
    widest = np.broadcast_to(np.asarray(most, np.int32), n)
    wall = np.broadcast_to(np.asarray(demand, np.float64), n) / widest
    jobs = Jobs.build(
        n,
        id=np.arange(n) if job_id is None else job_id,
        submit=submit,
        kind=Kind.MOLDABLE,
        size=widest,
        size_min=np.asarray(least, np.int32),
        size_max=widest,
        wall_time=wall,
    )
    order = np.lexsort((jobs.id, jobs.submit))
    nobody, nothing = Accounts.build(0), Edges.build(0)
    cluster, outcomes = machines(speed_factors), Outcomes.build(n)
    table, took = jobs.take(order), wall[order]
    return Workload(table, took, outcomes, cluster, nobody, nothing, (), Skipped())


def run(workload: Workload, variant: str, cost: MigrationCost = "serial") -> Any:
    """Replay a workload under a variant (`SED`, `SED-NU`, `SED-NM`); return the machine after it.

    Raises
    ------
    RuntimeError
        If the plug-in failed.
    """
    policy = presets()[variant.lower()]
    system = msgspec.structs.replace(policy.system, migration_cost=cost)
    policy = msgspec.structs.replace(policy, system=system)
    chain = Chain.load(policy.plugin)
    replayed = Replay(variant, workload, chain, policy, record_nodes=False)
    replayed.run()
    failed = [use.first_error for hook in chain.hook_metrics.values() for use in hook.values()]
    if any(failed):
        raise RuntimeError("; ".join(filter(None, failed)))
    return replayed.system


def courses(
    system: int, arrival: ArrayLike, variant: str, cost: MigrationCost = "serial"
) -> Courses:
    """Return what becomes of jobs of the paper's kind that arrive at these instants."""
    workload = stream(SYSTEMS[system], arrival)
    machine = run(workload, variant, cost)
    course = machine.job_outcomes()
    upgraded, migrated = machine.upgrades > 0, machine.migrations > 0
    return Courses(workload.jobs.submit, course.start, course.end, course.size, upgraded, migrated)


def means(
    system: int, variant: str, rate: float, jobs: int, seed: int, cost: MigrationCost = "serial"
) -> NDArray[np.float64]:
    """Return what jobs of a Poisson stream of `rate` jobs per 1000 s get on average.

    Equal seeds give every variant and rate the same gaps, in proportion.

    Returns
    -------
    float64[7]
        Residence, wait and computing, seconds; shares of jobs that were upgraded and migrated, and
        of the processes of all jobs those of these jobs.
    """
    gaps = np.random.default_rng(seed).exponential(size=jobs)
    found = courses(system, np.cumsum(gaps) * 1000.0 / rate, variant, cost)
    return np.array(
        [
            np.mean(found.end - found.arrival),
            np.mean(found.start - found.arrival),
            np.mean(found.end - found.start),
            np.mean(found.upgraded),
            np.mean(found.migrated),
            np.average(found.upgraded, weights=found.size),
            np.average(found.migrated, weights=found.size),
        ]
    )


def saturated(system: int, variant: str, jobs: int, idle_first: bool) -> NDArray[np.float64]:
    """Return mean computing time and throughput (jobs per 1000 s) while jobs always wait.

    `idle_first`: two jobs come to the idle machines, and the others after 400 s, when one of the
    two has ended; else all come at once. The first and the last fifth of the ends are left out.
    """
    arrival = np.zeros(jobs)
    if idle_first:
        arrival[2:] = 400.0
    found = courses(system, arrival, variant)
    order = np.argsort(found.end, kind="stable")[jobs // 5 : -jobs // 5]
    ends = found.end[order]
    throughput = 1000.0 * (len(ends) - 1) / (ends[-1] - ends[0])
    return np.array([np.mean((found.end - found.start)[order]), throughput])


def ends_of_two(system: int, variant: str) -> NDArray[np.float64]:
    """Return when two jobs end that arrive together at idle machines, and when one alone does."""
    both = courses(system, [0.0, 0.0], variant).end
    return np.array([*both, *courses(system, [0.0], variant).end])
