"""Plug-ins: distributions announce them under the entry point group `rtsched.plugins`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

import msgspec

from rtsched.core.capabilities import Capabilities
from rtsched.core.config import convert
from rtsched.errors import ConfigError, PluginError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rtsched.core.config import PluginTable

GROUP = "rtsched.plugins"


class NoSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `Config` of a plug-in that has no settings."""


@dataclass(frozen=True)
class Found:
    """A plug-in that is installed. It is imported when something of it is asked for.

    Attributes
    ----------
    name : str
        The entry point's name, by which configurations call it.
    distribution, version : str
        The distribution that brings it.
    load : callable
        Import and return its class; raises what its import raises.
    """

    name: str
    distribution: str
    version: str
    load: Callable[[], type[Any]]

    @cached_property
    def _imported(self) -> tuple[type[Any] | None, str]:
        try:
            return self.load(), ""
        except Exception as error:  # whatever its import raises belongs in the list
            return None, f"{type(error).__name__}: {error}"

    @property
    def plugin(self) -> type[Any] | None:
        """Return its class, None if it cannot be imported."""
        return self._imported[0]

    @property
    def cause(self) -> str:
        """Return why it cannot be imported, empty if it can."""
        return self._imported[1]

    @property
    def config(self) -> type[msgspec.Struct]:
        """Return the structure of its settings."""
        kind: type[msgspec.Struct] = getattr(self.plugin, "Config", NoSettings)
        return kind

    @property
    def capabilities(self) -> Capabilities:
        """Return what the class declares, whatever its settings."""
        declared = getattr(self.plugin, "capabilities", None)
        return declared if isinstance(declared, Capabilities) else Capabilities()

    @property
    def hooks(self) -> tuple[str, ...]:
        """Return the names of the hooks it implements."""
        return tuple(name for name in dir(self.plugin) if name.startswith("rtsched_"))

    @property
    def summary(self) -> str:
        """Return the first line of its docstring."""
        return ((self.plugin and self.plugin.__doc__) or "").strip().partition("\n")[0]


def discover() -> dict[str, Found]:
    """Return all installed plug-ins by name, none of them imported yet."""
    found = {}
    releases: dict[object, tuple[str, str]] = {None: ("?", "?")}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        if point.dist and point.dist not in releases:
            metadata = point.dist.metadata
            releases[point.dist] = metadata["Name"], metadata["Version"]
        found[point.name] = Found(point.name, *releases[point.dist], point.load)
    return found


def settings(
    name: str,
    given: Mapping[str, Any],
    found: Mapping[str, Found],
    path: str,
    problems: list[str],
) -> msgspec.Struct | None:
    """Return the typed settings of one plug-in table, or None after adding to `problems`.

    Parameters
    ----------
    name : str
        The plug-in's name.
    given : mapping
        Its settings as TOML gives them.
    found : mapping of str to Found
        Installed plug-ins.
    path : str
        Where the table stands.
    problems : list of str
        One sentence per mistake is appended.
    """
    plugin = found.get(name)
    if plugin is None:
        known = ", ".join(found) or "none"
        problems.append(f"{path}.name: no plug-in {name!r} is installed; installed: {known}")
        return None
    if plugin.plugin is None:
        problems.append(f"{path}.name: {name!r} cannot be imported: {plugin.cause}")
        return None
    return convert(given, plugin.config, f"{path}.settings", problems)


def instantiate(table: PluginTable, found: Mapping[str, Found], path: str = "plugin") -> Any:
    """Return a plug-in made with its settings.

    Raises
    ------
    ConfigError
        If it is not installed or a setting is wrong.
    PluginError
        If its constructor raises.
    """
    problems: list[str] = []
    config = settings(table.name, table.settings, found, path, problems)
    if config is None:
        raise ConfigError(problems)
    plugin = found[table.name].plugin
    if plugin is None:  # pragma: no cover - settings() has reported it
        raise ConfigError(problems)
    try:
        return plugin(config)
    except Exception as error:
        raise PluginError(
            table.name, f"cannot be created: {type(error).__name__}: {error}"
        ) from error
