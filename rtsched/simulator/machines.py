"""The simulated machines by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rtsched.errors import ConfigError
from rtsched.model.actions import Action, Reserve
from rtsched.simulator.exclusive import ExclusiveNodes
from rtsched.simulator.preemptive import PreemptiveNodes
from rtsched.simulator.recurring_nodes import RecurringNodes
from rtsched.simulator.sliced import SlicedServers
from rtsched.simulator.time_shared import TimeSharedNodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from rtsched.simulator.interface import System, SystemSettings

MACHINES: dict[str, Callable[..., System]] = {
    "exclusive": ExclusiveNodes,
    "sliced": SlicedServers,
    "time-shared": TimeSharedNodes,
    "preemptive": PreemptiveNodes,
}
"""The class behind each value of the setting `machine`."""

PERIODIC: dict[str, Callable[..., System]] = {
    "exclusive": RecurringNodes,
    "preemptive": PreemptiveNodes,
}
"""The class behind the machines that keep time for periodic work, where there is some."""


def keeps_plans(machine: str) -> bool:
    """Return whether a machine starts jobs as a plan says."""
    supports: frozenset[type[Action]] = getattr(MACHINES[machine], "supports", frozenset())
    return Reserve in supports


def suspends(settings: SystemSettings) -> float | None:
    """Return the seconds between instants at which a machine may suspend planned jobs, or None."""
    return settings.slot if getattr(MACHINES[settings.machine], "suspends", False) else None


def shares_nodes(machine: str) -> bool:
    """Return whether a machine's nodes run processes of several jobs at a time."""
    return bool(getattr(MACHINES[machine], "shares_nodes", False))


def simulate(*given: Any, settings: SystemSettings, **options: Any) -> System:
    """Return the system of `settings.machine`; the arguments are those of `ExclusiveNodes`.

    Raises
    ------
    ConfigError
        If there is periodic work and the machine has no place for it.
    """
    if not len(options.get("periodic", ())):
        options.pop("periodic", None)
        return MACHINES[settings.machine](*given, settings=settings, **options)
    if settings.machine not in PERIODIC:
        raise ConfigError(
            [f"workload.periodic: machine {settings.machine!r} does not support periodic work"]
        )
    return PERIODIC[settings.machine](*given, settings=settings, **options)
