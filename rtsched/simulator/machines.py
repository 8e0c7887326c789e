"""The simulated machines by name."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.errors import ConfigError
from rtsched.model.resources import allowed_nodes
from rtsched.simulator.exclusive import ExclusiveNodes
from rtsched.simulator.interface import StaticAnswers, StopConditions
from rtsched.simulator.preemptive import PreemptiveNodes
from rtsched.simulator.recurring import RecurringNodes
from rtsched.simulator.settings import ExclusiveSettings
from rtsched.simulator.sliced import SlicedServers
from rtsched.simulator.time_shared import TimeSharedNodes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Jobs
    from rtsched.simulator.settings import SystemSettings
    from rtsched.simulator.system import System

MACHINES: dict[str, type[System]] = {
    "exclusive": ExclusiveNodes,
    "sliced": SlicedServers,
    "time-shared": TimeSharedNodes,
    "preemptive": PreemptiveNodes,
}
"""The class behind each value of the setting `machine`."""

PERIODIC: dict[str, type[System]] = {"exclusive": RecurringNodes, "preemptive": PreemptiveNodes}
"""The class behind the machines that keep time for periodic work, where there is some."""


def simulate(
    jobs: Jobs,
    run_time: NDArray[np.float64],
    cluster: Cluster,
    settings: SystemSettings,
    **options: Any,
) -> System:
    """Return the system of `settings.machine`; the arguments are those of `System`.

    Raises
    ------
    ConfigError
        If there is periodic work, an outage, a reservation of nodes or preemption, and the machine
        has no place for it.
    """
    if options.get("preemption") is not None and (problem := _unpreempted(settings)):
        raise ConfigError([problem])
    if _reserves_in_sets(jobs, cluster, settings, options):
        jobs, cluster = _node_by_node(jobs, cluster)
    blocked = options.get("blocked")
    if blocked is not None and len(blocked.node):
        if problem := _unreserved(settings):
            raise ConfigError([problem])
        return RecurringNodes(jobs, run_time, cluster, settings, **options)
    periodic = len(options.get("periodic") or ()) > 0
    if periodic and not settings.keeps_periodic:
        raise ConfigError(
            [f"workload.periodic: machine {settings.machine!r} does not support periodic work"]
        )
    if options.get("node_events") and not settings.nodes_change:
        beside = " with periodic work" if periodic else ""
        raise ConfigError(
            [f"outages: nodes of machine {settings.machine!r}{beside} are never out of service"]
        )
    machines = PERIODIC if periodic else MACHINES
    return machines[settings.machine](jobs, run_time, cluster, settings, **options)


def _reserves_in_sets(
    jobs: Jobs, cluster: Cluster, settings: SystemSettings, options: dict[str, Any]
) -> bool:
    """Return whether jobs that have whole nodes, in sets of them, all wait with reservations.

    Reservations of whole nodes are counts, which is not enough where some nodes are of no use to a
    job. Where plug-ins are asked, they see the machine as it is.
    """
    if not isinstance(settings, ExclusiveSettings) or settings.loop != "conservative":
        return False
    asked = (options.get(name) for name in ("compiled", "periodic"))
    if cluster.shared or any(each is not None and len(each) for each in asked):
        return False
    if options.get("stop_at", StopConditions()) != StopConditions():
        return False
    placed = options.get("static", StaticAnswers()).placement is not None
    return not placed and len(allowed_nodes(jobs, cluster)[1]) > 0


def _node_by_node(jobs: Jobs, cluster: Cluster) -> tuple[Jobs, Cluster]:
    """Return jobs and machine with one of a resource on each node, which a job takes."""
    one, each = (np.ones((len(rows), 1), np.int64) for rows in (cluster, jobs))
    nodes = cluster.nodes.replace({"capacity": ("node",)}, capacity=one)
    jobs = jobs.replace({"demand": ("node",)}, demand=each, exclusive=None)
    return jobs, replace(cluster, nodes=nodes, licenses={})


def _unpreempted(settings: SystemSettings) -> str:
    """Return why a system cannot stop jobs for others that may preempt them; empty: it can."""
    if not isinstance(settings, ExclusiveSettings):
        problem = f"machine {settings.machine!r} preempts"
    elif settings.loop not in ("fcfs", "easy"):
        problem = f"loop {settings.loop!r} preempts"
    else:
        return ""
    return f"preemption: {problem} no jobs; use loop fcfs or easy, or `--preempt-type none`"


def _unreserved(settings: SystemSettings) -> str:
    """Return why a system cannot keep nodes free for reservations; empty: it can."""
    if not isinstance(settings, ExclusiveSettings):
        return f"reservations: machine {settings.machine!r} cannot keep nodes free for them"
    if settings.loop not in ("fcfs", "easy", "conservative"):
        return (
            f"reservations: loop {settings.loop!r} does not keep nodes free; use fcfs, easy or "
            "conservative"
        )
    return ""
