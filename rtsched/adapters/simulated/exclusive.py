"""A simulated batch system with exclusive nodes: each node runs one job at a time.

    system = ExclusiveNodes(jobs, run_time, cluster, SystemSettings(loop="easy"))
    while not (instant := system.advance()).done:
        ...  # answer what the instant asks: system.apply(actions)
    system.course().start

It takes the same actions as a live batch system would. Between two questions it runs in compiled
code (`rtsched.kernels.pool_loop`), so a log that asks nothing is one call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.adapters.simulated.interface import (
    Asks,
    Course,
    HookCalls,
    Instant,
    NodeEvent,
    Outcome,
    Settled,
    SystemSettings,
)
from rtsched.adapters.simulated.setup import columns_of, lay_out
from rtsched.kernels import pool as kernel
from rtsched.kernels.pool_loop import NO_OBSERVER, NO_PRIORITY, loop_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.kernels.hooks import CompiledHook
    from rtsched.model.accounts import Accounts
    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Edges, Jobs

__all__ = [
    "Asks",
    "Course",
    "ExclusiveNodes",
    "HookCalls",
    "Instant",
    "NodeEvent",
    "Outcome",
    "Settled",
    "SystemSettings",
]


class ExclusiveNodes:
    """A batch system in simulation, from the first submission to the last end.

    Parameters
    ----------
    jobs : Jobs
        The workload, `n` rows in order of (submit, id).
    run_time : float64[n]
        Seconds each job takes at `jobs.size` on nodes of speed 1.
    cluster : Cluster
        The machine, with the nodes' states at the start.
    settings : SystemSettings
        Its own loop.
    accounts, edges : Accounts, Edges, optional
        Passed on in snapshots.
    asks : Asks
        At which occasions to stop.
    settled : Settled
        Answers known before the run.
    compiled : mapping of hook name to CompiledHook
        `fair_share` and `observe`, called from within the loop.
    node_events : sequence of NodeEvent
        Nodes that go down, are drained or come back.
    record_events, record_nodes : bool
        Whether `events` and `node_rows` are wanted.

    Raises
    ------
    ShapeError
        If arrays differ in length or jobs are not in order of (submit, id).
    """

    def __init__(
        self,
        jobs: Jobs,
        run_time: NDArray[np.float64],
        cluster: Cluster,
        settings: SystemSettings = SystemSettings(),  # noqa: B008 - immutable
        *,
        accounts: Accounts | None = None,
        edges: Edges | None = None,
        asks: Asks = Asks(),  # noqa: B008 - immutable
        settled: Settled = Settled(),  # noqa: B008 - immutable
        compiled: Mapping[str, CompiledHook] | None = None,
        node_events: Sequence[NodeEvent] = (),
        record_events: bool = False,
        record_nodes: bool = False,
    ) -> None:
        self.jobs, self.cluster, self.settings = jobs, cluster, settings
        self.accounts, self.edges = accounts, edges
        self.origin = float(jobs.submit[0]) if len(jobs) else 0.0
        self._pool = lay_out(
            jobs, run_time, cluster, settings, asks, settled, node_events, self.origin
        )
        self._state: Any = self._pool.state[0]
        hooks = compiled or {}
        self._state.ranking = "fair_share" in hooks
        self._state.observing = "observe" in hooks
        self._state.keeping = record_events
        self._state.recording = record_events or "observe" in hooks
        self._state.logging = record_nodes
        if record_nodes:
            self._pool = self._pool._replace(log_at=np.full(len(jobs), -1, np.int64))
        self._loop = loop_for(self._pool)
        self._hooks = (
            *hooks.get("fair_share", NO_PRIORITY),
            *hooks.get("observe", NO_OBSERVER),
            *columns_of(jobs, self.origin),
        )

    @property
    def now(self) -> float:
        """Return the present instant, seconds since the epoch."""
        return self.origin + float(self._state.now)

    def advance(self, most: int | None = None) -> Instant:
        """Run until something must be answered, or after about `most` more arrivals."""
        state = self._state
        state.pause_at = len(self.jobs) + 1 if most is None else state.upcoming + most
        while (asks := self._loop(self._pool, *self._hooks)) == kernel.FULL:
            self._grow()
        return Instant(
            time=self.now,
            arrivals=self._pool.asked[: state.asked].copy(),
            passes=bool(asks & kernel.ASK_PASS),
            early_end=bool(asks & kernel.ASK_EARLY_END),
            nodes_changed=bool(asks & kernel.ASK_NODES),
            arrived=int(state.upcoming),
            done=asks == 0,
        )

    def _grow(self) -> None:
        """Make room in the records of events and nodes."""
        room = 8 * len(self.cluster) + 4096
        events, log = self._pool.events, self._pool.log_nodes
        if self._state.recording:
            events = np.concatenate([events, np.zeros(len(events) + room, events.dtype)])
        if self._state.logging:
            log = np.concatenate([log, np.zeros(len(log) + room, log.dtype)])
        self._pool = self._pool._replace(events=events, log_nodes=log)

    def course(self) -> Course:
        """Return what happened to each job so far."""
        table = self._pool.jobs
        status = table["status"]
        ran = np.isfinite(table["start"])
        fate = np.full(len(table), 2, np.int8)
        fate[status == kernel.ENDED] = 0
        fate[status == kernel.REJECTED] = 1
        return Course(
            start=table["start"] + self.origin,
            end=np.where(status == kernel.RUNNING, np.nan, table["end"]) + self.origin,
            size=np.where(ran, table["size"], 0).astype(np.int32),
            fate=fate,
            first_node=table["first"].copy(),
            promise=np.full(len(table), np.inf),
            offer=np.full(len(table), np.inf),
            restarts=np.zeros(len(table), np.int32),
        )

    def hook_calls(self) -> HookCalls:
        """Return how often the compiled hooks were called."""
        state = self._state
        return HookCalls(
            int(state.calls),
            int(state.judged),
            int(state.moved),
            int(state.abstained),
            int(state.observed),
        )
