"""Runners of the kinds of sed.json."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.chain import Chain
from rtsched.model.accounts import Accounts
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.events import EventKind
from rtsched.model.jobs import Edges, Jobs, Kind
from rtsched.model.log import Outcomes, Skipped
from rtsched.replay.engine import Replay
from rtsched.replay.policies import presets
from rtsched.replay.results import Workload
from rtsched.testing import make_events, make_jobs, make_snapshot
from rtsched_plugins.delay_records import Recorded
from rtsched_plugins.sed import Sed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rtsched.model.snapshot import Snapshot

Case = dict[str, Any]
VARIANTS: dict[str, Any] = {
    "SED": {"upgrade": True, "migrate": True},
    "SED-NU": {"upgrade": False, "migrate": True},
    "SED-NM": {"upgrade": True, "migrate": False},
}


def machines(speed_factors: list[float]) -> Cluster:
    """Return nodes whose slowness is given."""
    alpha = np.array(speed_factors, np.float64)
    return Cluster(Nodes.build(len(alpha), speed=1.0 / alpha))


@dataclass(frozen=True)
class Place:
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
        state = replace_occasion(old, occasion)
        return self.plugin.rtsched_partition(snapshot.queued, self.cluster, snapshot, state)

    def after(self, nodes: dict[int, list[int]], kind: EventKind, job: int) -> Place:
        """Return the place after a job started, ended or moved, on the nodes given."""
        then = replace(self, nodes=nodes)
        events = make_events(make_jobs(id=[job]), [(0.0, kind, 0)])
        state = self.plugin.rtsched_observe(events, then.snapshot(), self.state)
        return replace(then, state=state)

    def delays(self) -> dict[int, float]:
        """Return the recorded delay of each job."""
        if self.state is None:
            return {}
        return dict(zip(self.state.job.tolist(), self.state.delay.tolist(), strict=True))

    def assigned(self, job: int, least: int, most: int) -> Place | None:
        """Return the place with one job more, None if it must wait."""
        queued = make_jobs(
            id=[job], submit=[1e6], kind=Kind.MOLDABLE, size=most, size_min=least, size_max=most
        )
        answer = self.asked(EventKind.ARRIVED, queued)
        chosen = answer.node_sets[answer.node_set[0]]
        if not len(chosen):
            return None
        return self.after({**self.nodes, job: chosen.tolist()}, EventKind.STARTED, job)

    def terminated(self, job: int) -> tuple[Place, list[int]]:
        """Return the place without a job, and the jobs that were upgraded."""
        left = {other: nodes for other, nodes in self.nodes.items() if other != job}
        then = self.after(left, EventKind.ENDED, job)
        moves = then.asked(EventKind.ARRIVED).moves
        upgraded = [] if moves is None else sorted(moves.entries.job.tolist())
        for other in upgraded:
            then = then.after(then.nodes, EventKind.MOVED, other)
        return then, upgraded

    def migrated(self) -> Iterator[tuple[Place, int, int]]:
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
        mapping = self.plugin._mapping(snapshot)
        delays = self.delays()
        mapping.record(np.array([delays[job] for job in self.nodes], np.float64))
        return [int(count) for count in mapping.available()]


def replace_occasion(state: Recorded, occasion: EventKind) -> Recorded:
    """Return a state after which something else was the last to happen."""
    return Recorded(state.job, state.delay, int(occasion))


def run_operations(case: Case) -> Case:
    """Assign, terminate and migrate jobs one by one."""
    config = Sed.Config(time_sharing=True, upgrade=case["upgrade"], migrate=case["migrate"])
    place = Place(Sed(config), machines(case["speed_factors"]))
    bounds = place.plugin.rtsched_delay_class(place.snapshot()).bounds
    found: Case = {
        "delay_classes": bounds.tolist(),
        "availability_idle": place.availability(),
        "after_each_operation": [],
    }
    for operation in case["operations"]:
        after: Case = {}
        if operation["op"] == "assign":
            then = place.assigned(operation["job"], operation["minsize"], operation["maxsize"])
            after["mapped"] = then is not None
            place = then or place
        elif operation["op"] == "terminate":
            place, after["upgraded_jobs"] = place.terminated(operation["job"])
        else:
            after["migrations"] = []
            for then, job, moved in list(place.migrated()):
                place = then
                after["migrations"].append({"job": job, "processes_moved": moved})
        delays = place.delays()
        after["availability"] = place.availability()
        after["running"] = {
            str(job): {"machines": sorted(nodes), "delay": delays[job]}
            for job, nodes in place.nodes.items()
        }
        found["after_each_operation"].append(after)
    return found


def run_mapping_diagram(case: Case) -> Case:
    """Follow every way in which jobs may come and end, from the idle machine."""
    config = Sed.Config(time_sharing=True, **VARIANTS[case["variant"]])
    idle = Place(Sed(config), machines(case["speed_factors"]))
    bounds = idle.plugin.rtsched_delay_class(idle.snapshot()).bounds.tolist()
    least, most = case["minsize"], case["maxsize"]
    seen: dict[str, Any] = {}
    edges: dict[str, Any] = {}
    ahead = [idle]
    while ahead:
        place = ahead.pop()
        here = _state(place, bounds)
        if str(here) in seen:
            continue
        seen[str(here)] = here
        for label, then in _next(place, least, most):
            there = _state(then, bounds)
            edges[str((here, label, there))] = [here, label, there]
            ahead.append(then)
    return {"states": sorted(seen.values()), "edges": sorted(edges.values())}


def _next(place: Place, least: int, most: int) -> Iterator[tuple[str, Place]]:
    fresh = max(place.nodes, default=0) + 1
    if (then := place.assigned(fresh, least, most)) is not None:
        yield "arrive", then
    for job in place.nodes:
        left, _ = place.terminated(job)
        if (then := left.assigned(fresh, least, most)) is not None:
            yield "end+queue", then
        settled = [left, *(then for then, _, _ in left.migrated())]
        yield "end", settled[-1]


def _state(place: Place, bounds: list[float]) -> list[list[int]]:
    """Return the sizes of the jobs in each delay class."""
    delays = place.delays()
    return [
        sorted(len(nodes) for job, nodes in place.nodes.items() if delays[job] == bound)
        for bound in bounds
    ]


def run_simulation(case: Case) -> Case:
    """Replay a job stream under each variant, on the simulated time-shared machine."""
    workload = parallel_workload(case["speed_factors"], case["jobs"])
    return {variant: replayed(workload, variant.lower()) for variant in VARIANTS}


def parallel_workload(speed_factors: list[float], jobs: list[Case]) -> Workload:
    """Return a job stream as a workload: demands are seconds on one fastest node."""
    n, demand = len(jobs), np.array([job["demand_s"] for job in jobs], np.float64)
    most = np.array([job["maxsize"] for job in jobs], np.int32)
    table = Jobs.build(
        n,
        id=[job["id"] for job in jobs],
        submit=[job["arrival_time_s"] for job in jobs],
        kind=Kind.MOLDABLE,
        size=most,
        size_min=[job["minsize"] for job in jobs],
        size_max=most,
        wall_time=demand / most,
    )
    order = np.lexsort((table.id, table.submit))
    return Workload(
        table.take(order),
        (demand / most)[order],
        Outcomes.build(n),
        machines(speed_factors),
        Accounts.build(0),
        Edges.build(0),
        (),
        Skipped(),
    )


def replayed(workload: Workload, name: str) -> list[Case]:
    """Return what became of each job under a preset, with its upgrades and migrations."""
    policy = presets()[name]
    run = Replay(name, workload, Chain.load(policy.plugin, policy.planner), policy)
    run.run()
    system: Any = run.system
    course, ids = system.course(), workload.jobs.id
    return [
        {
            "id": int(ids[row]),
            "start_time_s": float(course.start[row]),
            "finish_time_s": float(course.end[row]),
            "processes": int(course.size[row]),
            "upgrades": int(system.upgrades[row]),
            "migrations": int(system.migrations[row]),
        }
        for row in np.argsort(ids)
    ]


RUNNERS: dict[str, Callable[[Case], Case]] = {
    "operations": run_operations,
    "simulation": run_simulation,
    "mapping_diagram": run_mapping_diagram,
}
