"""Delay classes: give each parallel job the nodes on which it is expected to end soonest.

All processes of a job run at the pace of its slowest one, so a job on nodes of mixed speed, or on
nodes that others use, is as slow as the worst of them: its delay. A job of n processes is mapped to
the class of nodes with the least delay/n, and never where it would slow one that runs. When a job
ends, the others adapt to what the load has become (upgrade), then the queue is served, head first,
and if nobody waits, jobs migrate to faster nodes.

Without time sharing (the batch setting) a node runs one job at a time. The same rule then gives
moldable jobs their size, and every job prefers the fastest nodes. Where jobs share nodes by
resources, the classes hold the nodes that have room for a process of the job.

References
----------
Schnor, Petri, Oleyniczak, Langendoerfer, 1996 (PDCS): shortest expected delay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray  # noqa: TC002 - the state is decoded by its annotations

from rtsched.api import (
    Capabilities,
    DelayClasses,
    EventKind,
    Kind,
    Placement,
    State,
    are_in,
    hookimpl,
)
from rtsched.kernels.delays import MigrationCost, slowness
from rtsched_plugins.kernels.delay_classes import class_bounds
from rtsched_plugins.mapping import (
    Field,
    Mapping,
    Occasion,
    Requests,
    RoomMapping,
    moves,
    placed,
    preferred,
    preferred_with_room,
    waiting,
)

if TYPE_CHECKING:
    from rtsched.api import Cluster, Events, Jobs, PreparedState, Snapshot


class _Scale(NamedTuple):
    """Slownesses of nodes, and their classes."""

    alpha: NDArray[np.float64]
    bounds: NDArray[np.float64]

    @classmethod
    def of(cls, speed: NDArray[np.float64]) -> _Scale:
        """Return those of nodes of these speeds."""
        alpha = slowness(speed)
        return cls(alpha, class_bounds(alpha))


class Sed:
    """Map jobs to the class of nodes with the shortest expected delay; upgrade and migrate them."""

    class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Settings."""

        time_sharing: bool = False
        """Whether a node may run processes of several jobs. If not (the batch setting), the size of
        moldable jobs is chosen, and only jobs that declare checkpoints migrate."""
        upgrade: bool = True
        """Whether jobs adapt when the load of their nodes decreases (SED-NU: no)."""
        migrate: bool = True
        """Whether running jobs migrate to faster nodes when a job ends and none waits, and away
        from nodes that became slow or were shut down (SED-NM: no)."""
        benefit_test: bool = False
        """Whether a job migrates only if its requested time says that this pays off: the rest at
        the old delay takes longer than the pause plus the rest at the new one."""
        migration_cost: MigrationCost = "serial"
        """Cost of a migration in the benefit test: `serial`, 10 s and the transfers of all
        processes one by one (12.7 s each if their size is not known); `parallel`, all transfers at
        once; `none`."""

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or self.Config()

    @property
    def capabilities(self) -> Capabilities:
        """Return for which kind of machine the settings are, and when answers are static."""
        return Capabilities(
            shares_nodes=self.config.time_sharing,
            places_resources=not self.config.time_sharing,
            static_hooks=self._static_hooks,
        )

    @hookimpl
    def rtsched_delay_class(self, snapshot: Snapshot, prepared: PreparedState) -> DelayClasses:
        """Return the delay of a new process on each node, and the classes."""
        mapping = self._room(snapshot, prepared) or self._mapping(snapshot, prepared)
        return DelayClasses(mapping.factors, mapping.field.bounds)

    @hookimpl
    def rtsched_observe(
        self, events: Events, snapshot: Snapshot, state: Recorded | None, prepared: PreparedState
    ) -> Recorded | None:
        """Record the delays of jobs that started or moved."""
        if not len(events):
            return None
        mapping = self._room(snapshot, prepared) or self._mapping(snapshot, prepared)
        return recorded(state, events, snapshot.running.id, mapping.delay)

    @hookimpl
    def rtsched_partition(
        self,
        jobs: Jobs,
        cluster: Cluster,
        snapshot: Snapshot,
        state: Recorded | None,
        prepared: PreparedState,
    ) -> Placement:
        """Map the queue, head first; let running jobs adapt, and one at a time migrate."""
        requests, room = Requests(jobs, cluster), self._room(snapshot, prepared)
        if room is not None:
            return preferred_with_room(room, requests, jobs, cluster)
        mapping = self._mapping(snapshot, prepared)
        mapping.record(delays_of(state, snapshot.running.id, mapping.delay))
        moved, migrates = moves(mapping, snapshot, self._occasion(state, len(jobs)))
        if not self.config.time_sharing:
            return preferred(mapping, requests, jobs, moved)
        return waiting(requests, moved) if migrates else placed(mapping, requests, moved)

    def _static_hooks(self, jobs: Jobs, cluster: Cluster) -> set[str]:
        """Return the hooks whose answers on these jobs depend on them and the cluster alone.

        A rigid job without time sharing wants the fastest nodes, whoever runs where.
        """
        moves = self.config.migrate and bool(jobs.checkpoints.any())
        open_ended = self.config.time_sharing or moves or bool((jobs.kind != Kind.RIGID).any())
        return set() if open_ended or not len(cluster) else {"partition"}

    def _occasion(self, state: Recorded | None, waiting: int) -> Occasion:
        config, last = self.config, EventKind.ARRIVED if state is None else state.occasion
        migrate = config.migrate and last != EventKind.ARRIVED
        return Occasion(
            upgrade=config.upgrade,
            away=migrate,
            ahead=migrate and last == EventKind.ENDED and not waiting,
            cost=config.migration_cost if config.benefit_test else None,
        )

    def _mapping(self, snapshot: Snapshot, prepared: PreparedState) -> Mapping:
        """Return who runs where, with the delays that the present load makes."""
        held = snapshot.allocations
        return Mapping(self._field(snapshot.cluster, prepared), held.indptr, held.nodes)

    def _room(self, snapshot: Snapshot, prepared: PreparedState) -> RoomMapping | None:
        """Return what nodes have left, None where jobs do not share them by resources."""
        if self.config.time_sharing or not snapshot.cluster.shared:
            return None
        return RoomMapping(self._field(snapshot.cluster, prepared), snapshot)

    def _field(self, cluster: Cluster, prepared: PreparedState) -> Field:
        """Return the nodes with their slownesses and the delay classes."""
        scale = prepared.get(_Scale.of, cluster.nodes.speed)
        foreign, shared = cluster.nodes.foreign_load, self.config.time_sharing
        return Field(scale.alpha, scale.bounds, cluster.usable, foreign, shared)


OCCASIONS = (EventKind.ARRIVED, EventKind.ENDED, EventKind.NODE_CHANGED)
"""What may be the cause of the next question."""


class Recorded(State, frozen=True):
    """Delays of running jobs, and what happened last.

    Attributes
    ----------
    job : int64[r]
        Ids, ascending.
    delay : float64[r]
        Recorded delay of each (paper: D).
    occasion : int
        The last of an arrival, an end and a change of a node: an `EventKind`.
    """

    job: NDArray[np.int64]
    delay: NDArray[np.float64]
    occasion: int


def delays_of(
    state: Recorded | None, job: NDArray[np.int64], present: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return float64[r]: each running job's recorded delay, the present one where none is."""
    if state is None or not len(state.job):
        return present
    place = np.minimum(np.searchsorted(state.job, job), len(state.job) - 1)
    return np.where(state.job[place] == job, state.delay[place], present)


def recorded(
    state: Recorded | None, events: Events, job: NDArray[np.int64], present: NDArray[np.float64]
) -> Recorded:
    """Return the state after `events`.

    A job that started or was moved is recorded with its present delay; the others that run keep
    theirs, and those that do not run any more are forgotten.

    Parameters
    ----------
    state : Recorded or None
        The state before.
    events : Events
        What happened, at least one event.
    job, present : int64[r], float64[r]
        The jobs that run now, and the delay that each has by the load of its nodes.
    """
    kinds = events.rows.kind
    last = np.flatnonzero(np.isin(kinds, OCCASIONS))
    occasion = int(EventKind.ARRIVED) if state is None else state.occasion
    if len(last):
        occasion = int(kinds[last[-1]])
    anew = np.isin(kinds, (EventKind.STARTED, EventKind.MOVED))
    renewed = are_in(job, events.jobs.id[anew]) if anew.any() else np.zeros(len(job), np.bool_)
    delay = np.where(renewed, present, delays_of(state, job, present))
    order = np.argsort(job, kind="stable")
    return Recorded(job[order], delay[order], occasion)
