"""The simulated machines by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rtsched.errors import ConfigError
from rtsched.simulator.exclusive import ExclusiveNodes
from rtsched.simulator.preemptive import PreemptiveNodes
from rtsched.simulator.recurring import RecurringNodes
from rtsched.simulator.settings import ExclusiveSettings
from rtsched.simulator.sliced import SlicedServers
from rtsched.simulator.time_shared import TimeSharedNodes

if TYPE_CHECKING:
    import numpy as np
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
