"""The simulated machines by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rtsched.adapters.simulated.exclusive import ExclusiveNodes
from rtsched.adapters.simulated.preemptive import PreemptiveNodes
from rtsched.adapters.simulated.sliced import SlicedServers
from rtsched.adapters.simulated.time_shared import TimeSharedNodes
from rtsched.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rtsched.adapters.simulated.interface import System, SystemSettings

MACHINES: dict[str, Callable[..., System]] = {
    "exclusive": ExclusiveNodes,
    "sliced": SlicedServers,
    "time-shared": TimeSharedNodes,
    "preemptive": PreemptiveNodes,
}
"""The class behind each value of the setting `machine`."""

PERIODIC = frozenset({"exclusive", "preemptive"})
"""The machines that keep time for periodic work."""


def simulate(*given: Any, settings: SystemSettings, **options: Any) -> System:
    """Return the system of `settings.machine`; the arguments are those of `ExclusiveNodes`.

    Raises
    ------
    ConfigError
        If there is periodic work and the machine has no place for it.
    """
    if not len(options.get("periodic", ())):
        options.pop("periodic", None)
    elif settings.machine not in PERIODIC:
        raise ConfigError(
            [f"workload.periodic: machine {settings.machine!r} does no periodic work"]
        )
    return MACHINES[settings.machine](*given, settings=settings, **options)
