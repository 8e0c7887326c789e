"""The simulated machines by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rtsched.adapters.simulated.exclusive import ExclusiveNodes
from rtsched.adapters.simulated.sliced import SlicedServers
from rtsched.adapters.simulated.time_shared import TimeSharedNodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from rtsched.adapters.simulated.interface import System, SystemSettings

MACHINES: dict[str, Callable[..., System]] = {
    "exclusive": ExclusiveNodes,
    "sliced": SlicedServers,
    "time-shared": TimeSharedNodes,
}
"""The class behind each value of the setting `machine`."""


def simulate(*given: Any, settings: SystemSettings, **options: Any) -> System:
    """Return the system of `settings.machine`; the arguments are those of `ExclusiveNodes`."""
    return MACHINES[settings.machine](*given, settings=settings, **options)
