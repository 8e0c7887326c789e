"""The simulated machines by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rtsched.adapters.simulated.exclusive import ExclusiveNodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from rtsched.adapters.simulated.interface import System, SystemSettings

MACHINES: dict[str, Callable[..., System]] = {"exclusive": ExclusiveNodes}
"""The class behind each value of the setting `machine`."""


def simulate(*given: Any, settings: SystemSettings, **options: Any) -> System:
    """Return the system of `settings.machine`; the arguments are those of `ExclusiveNodes`."""
    return MACHINES[settings.machine](*given, settings=settings, **options)
