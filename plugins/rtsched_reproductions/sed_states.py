"""States of delay-class mapping, without a clock: which jobs run where after which events."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.core.capabilities import PreparedState
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Kind
from rtsched.model.state import EventKind
from rtsched.testing import make_events, make_jobs, make_snapshot
from rtsched_plugins.sed import Recorded, Sed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rtsched.model.jobs import Jobs
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
        state = Recorded(old.job, old.delay, int(occasion))
        return self.plugin.rtsched_partition(
            snapshot.queued, self.cluster, snapshot, state, PreparedState()
        )

    def after(self, nodes: dict[int, list[int]], kind: EventKind, job: int) -> Place:
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


def idle(speed_factors: list[float], **settings: Any) -> Place:
    """Return idle machines under the plug-in with these settings."""
    return Place(Sed(Sed.Config(time_sharing=True, **settings)), machines(speed_factors))


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
