"""Recovery at a start: open promises, the plan, the plug-ins' states."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import structlog

from rtsched.adapters.live import FIRST_OWN_ID, PART
from rtsched.daemon.promises import OpenPromises, decode_jobs, encode_jobs
from rtsched.daemon.site import LikelyPromises, Site, in_order, ledger_of
from rtsched.errors import RtschedError
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import NOBODY, Jobs
from rtsched.model.schedule import Schedule
from rtsched.model.snapshot import Snapshot, are_in
from rtsched.model.state import State, decode_state, encode_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rtsched.daemon.promises import StoredState

log = structlog.get_logger(__name__)

_OWN = "rtsched"
"""Key of the daemon's own state among those of the plug-ins; no plug-in has this name."""


class ReportedState(State, frozen=True):
    """What had been reported to the plug-ins when their states were written down.

    `seen` is the last poll; `queued` and `running` are its jobs (`encode_jobs`), empty where no
    plug-in keeps a state. `nodes` are the names of the nodes that the plan's rows mean, where a
    release wrote them that did not keep them beside the plan.
    """

    seen: float
    queued: bytes
    running: bytes
    nodes: list[str] = []  # noqa: RUF012  msgspec copies it


def states_to_store(site: Site, stateful: bool) -> dict[str, bytes]:
    """Return what has to be written down of a site beside its promises and plan.

    `stateful` says whether any plug-in keeps a state; else the jobs need not be stored.
    """
    snapshot = site.snapshot
    queued = snapshot.queued.take(snapshot.queued.id < FIRST_OWN_ID) if stateful else NOBODY
    running = snapshot.running if stateful else NOBODY
    own = ReportedState(site.seen, encode_jobs(queued), encode_jobs(running))
    states: Mapping[str, State] = {**snapshot.states, _OWN: own}
    return {f"{name}:{_kind(type(state))}": encode_state(state) for name, state in states.items()}


def recovered(stored: StoredState) -> Site:
    """Return the site as it was left; what cannot be read is left out, and said in the log."""
    states = dict(_states(stored.states))
    reported = states.pop(_OWN, None)
    guaranteed = [promise for promise in stored.promises if promise.odds is None]
    requested = Jobs.joined([_row(promise.job, promise.id) for promise in guaranteed])
    queued, running, seen = requested, NOBODY, -np.inf
    names: Sequence[str] = stored.nodes or ()
    if isinstance(reported, ReportedState):
        before = decode_jobs(reported.queued)
        others = before.take(~are_in(before.id, requested.id))
        queued, running = in_order(Jobs.joined([others, requested])), decode_jobs(reported.running)
        names = reported.nodes if stored.nodes is None else stored.nodes
        seen = reported.seen if len(queued) + len(running) + len(states) else -np.inf
    plan = stored.plan if stored.plan is not None else Schedule.empty()
    if len(plan.nodes) and plan.nodes.max() >= len(names):
        plan = Schedule.empty()
    promises = OpenPromises({promise.id: promise for promise in guaranteed})
    likely = LikelyPromises().learnt(stored.likely_outcomes)
    for promise in stored.promises:
        if promise.odds is not None:
            likely = likely.with_new(promise, _row(promise.job, promise.id))
    snapshot = Snapshot(
        now=0.0,
        cluster=Cluster(Nodes.build(len(names), name=names)),
        queued=queued,
        running=running,
        promises=ledger_of(promises.values()),
        plan=plan.take(np.flatnonzero(are_in(plan.entries.job, queued.id))),
        states=states,
        version=stored.version,
    )
    next_id = max([FIRST_OWN_ID - 1, *promises, *likely.promises]) + 1
    return Site(
        snapshot,
        promises,
        requested,
        seen=seen,
        next_id=next_id,
        unused=stored.unused,
        likely=likely,
    )


def _row(job: bytes, key: int) -> Jobs:
    """Return the row that is kept of a promised job.

    Once the nodes of a Slurm partition that have a feature were a partition `name@feature`.
    """
    row = decode_jobs(job).replace(id=np.array([key]))
    name, _, feature = (row.texts("partition")[0] or "").partition("@")
    if not feature or PART in feature:
        return row
    asked = f"--constraint={feature} --partition={name}"
    return row.replace_text("partition", [0], (name,)).replace_text("node_request", [0], (asked,))


_STORED_KINDS: dict[type[State], str] = {ReportedState: "rtsched.daemon.memory.Told"}
"""Names under which databases hold types that have another name now."""


def _kind(kind: type[State]) -> str:
    """Return the name under which the database holds a type of state."""
    if kind in _STORED_KINDS:
        return _STORED_KINDS[kind]
    return f"{kind.__module__}.{kind.__qualname__}"


def _states(stored: Mapping[str, bytes]) -> Iterator[tuple[str, State]]:
    """Yield the states whose types are still there."""
    known = {_kind(kind): kind for kind in _kinds(State)}
    for key, data in stored.items():
        name, _, kind = key.partition(":")
        try:
            yield name, decode_state(data, known[kind])
        except (KeyError, RtschedError) as error:
            log.warning("state_dropped", plugin=name, error=str(error))


def _kinds(base: type[State]) -> Iterator[type[State]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _kinds(kind)
