"""Policies: a simulated batch system's loop plus plug-ins, as tables; and sweeps of a setting."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from rtsched.core.config import PluginTable, convert, read_toml, with_tags
from rtsched.core.plugins import discover, settings
from rtsched.errors import ConfigError
from rtsched.replay.settings import WorkloadOptions
from rtsched.simulator.settings import ExclusiveSettings, MachineSettings
from rtsched.text import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from rtsched.core.plugins import Found

RECOMMENDED = "portfolio-run"
"""Name of the policy to begin with, where a site has no reason for another one."""

SITE = "site"
"""Name of the policy that stands at a site.toml's top level."""


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A batch system's own loop, and the plug-ins that steer it."""

    description: str = ""
    """One line for tables and reports."""
    system: MachineSettings = ExclusiveSettings()
    """The simulated batch system's own loop."""
    planner: str | None = None
    """The admission plug-in whose plan fulfils the promises."""
    plugin: list[PluginTable] = []
    """The plug-ins, in the order in which they are called."""


class SiteSettings(Policy, frozen=True, forbid_unknown_fields=True):
    """A site.toml: how logs are prepared, the site's own policy, and others to compare with."""

    workload: WorkloadOptions = WorkloadOptions()
    """How a log is prepared for replay."""
    policy: dict[str, Policy] = {}
    """Further policies by name, for `--policy NAME`."""

    def policies(self) -> dict[str, Policy]:
        """Return the site's policies by name, its own as `site`."""
        own = Policy(self.description, self.system, self.planner, self.plugin)
        return {SITE: own, **self.policy}


def presets() -> dict[str, Policy]:
    """Return the policies that rtsched ships, by name."""
    path = files("rtsched.replay") / "presets.toml"
    raw = tomllib.loads(path.read_text("utf-8"))
    policies = dict[str, Policy]
    return msgspec.convert(with_tags(raw["policy"], policies), policies)


S = TypeVar("S", bound="SiteSettings")


def load_site(
    path: Path,
    found: Mapping[str, Found] | None = None,
    kind: type[S] = SiteSettings,  # type: ignore[assignment]  # a default of a type variable
) -> S:
    """Return a site.toml, checked down to the settings of its plug-ins.

    `kind` is `SiteSettings`, or what it became where more tables are known.

    Raises
    ------
    ConfigError
        Listing every mistake in the file with its path.
    """
    raw = read_toml(path)
    problems: list[str] = []
    site = convert(raw, kind, "", problems)
    _check_policies(raw, discover() if found is None else found, problems)
    if problems or site is None:
        raise ConfigError(problems, path)
    return site


def choose(names: Sequence[str], site: SiteSettings | None) -> dict[str, Policy]:
    """Return the policies of these names, the site's before the presets, in the order asked.

    Raises
    ------
    ConfigError
        For a name that is neither in the site's file nor a preset.
    """
    known = {**presets(), **({} if site is None else site.policies())}
    problems = []
    for name in names:
        if name not in known:
            hint = f"{did_you_mean(name, known)} known: {', '.join(known)}".lstrip()
            problems.append(f"no policy {name!r}; {hint}")
    if problems:
        raise ConfigError(problems)
    return {name: known[name] for name in names}


def baseline(names: Iterable[str]) -> str:
    """Return the site-like policy: `site` from a configuration, else the first; empty: none."""
    known = list(names)
    return SITE if SITE in known else next(iter(known), "")


def _check_policies(
    raw: Mapping[str, Any], found: Mapping[str, Found], problems: list[str]
) -> None:
    """Add what is wrong with names, plug-in settings and planners, in all policies."""
    tables = {"": raw}
    others = raw.get("policy")
    for name, table in others.items() if isinstance(others, dict) else ():
        problems += _misnamed(name)
        if isinstance(table, dict):
            tables[f"policy.{name}."] = table
    for prefix, table in tables.items():
        entries = table.get("plugin")
        names = []
        for index, entry in enumerate(entries if isinstance(entries, list) else []):
            path = f"{prefix}plugin[{index}]"
            name = entry.get("name") if isinstance(entry, dict) else None
            if not isinstance(name, str):
                continue  # reported with its path by the conversion of the whole file
            if name in names:
                problems.append(f"{path}.name: {name!r} is listed twice")
            names.append(name)
            if isinstance(given := entry.get("settings", {}), dict):
                settings(name, given, found, path, problems)
        planner = table.get("planner")
        if isinstance(planner, str) and planner not in names:
            problems.append(f"{prefix}planner: {planner!r} is not among this policy's plug-ins")


def _misnamed(name: str) -> list[str]:
    """Return what is wrong with a policy's name."""
    if name == SITE:
        return [f"policy.{name}: is the policy at the file's top level; take another name"]
    if not name.strip() or name != name.strip() or "," in name:
        return [
            f"policy.{name!r}: `--policy` cannot name it; take a name without commas and without "
            "blanks at its ends"
        ]
    return []


SYSTEM = "system"
"""The table of the simulated batch system's own settings."""


class Sweep(NamedTuple):
    """One setting, and the values that it takes in turn."""

    table: str
    """`system`, or the name of a plug-in."""
    key: str
    values: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Sweep:
        """Return the sweep that `TABLE.KEY=VALUE,VALUE` says.

        Raises
        ------
        ConfigError
            If it is none.
        """
        name, equals, values = text.partition("=")
        table, dot, key = name.strip().rpartition(".")
        found = tuple(dict.fromkeys(value.strip() for value in values.split(",")))
        if not (table and dot and key and equals and all(found)):
            raise ConfigError([f"--sweep: {text!r} is not TABLE.KEY=VALUE,VALUE"])
        return cls(table, key, found)

    def applies(self, policy: Policy) -> bool:
        """Return whether a policy has the table."""
        return self.table == SYSTEM or any(entry.name == self.table for entry in policy.plugin)

    def change(self, tables: dict[str, Any], value: str) -> None:
        """Give the setting one value, in a policy as tables."""
        if self.table == SYSTEM:
            tables[SYSTEM][self.key] = _parsed(value)
        for entry in tables["plugin"]:
            if entry["name"] == self.table:
                entry["settings"][self.key] = _parsed(value)


def swept(policies: Mapping[str, Policy], sweeps: Sequence[Sweep]) -> dict[str, Policy]:
    """Return each policy once for each combination of values of the settings that it has.

    Those are called `POLICY+KEY=VALUE`. A policy that has none of the tables stays as it is.

    Raises
    ------
    ConfigError
        If no policy has a table, or the batch system's own settings do not take a value. (Those of
        plug-ins are checked when these are loaded.)
    """
    problems = [
        f"--sweep: no policy has the plug-in {sweep.table!r}; name one of its plug-ins or `system`"
        for sweep in sweeps
        if not any(map(sweep.applies, policies.values()))
    ]
    found: dict[str, Policy] = {}
    for name, policy in policies.items():
        own = [sweep for sweep in sweeps if sweep.applies(policy)]
        for values in product(*(sweep.values for sweep in own)):
            pairs = list(zip(own, values, strict=True))
            title = "".join([name, *(f"+{sweep.key}={value}" for sweep, value in pairs)])
            tables = msgspec.to_builtins(policy)
            for sweep, value in pairs:
                sweep.change(tables, value)
            wrong: list[str] = []
            changed = convert(tables, Policy, "", wrong)
            problems += [f"policy {title}: {problem}" for problem in wrong]
            if changed is not None:
                found[title] = changed
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return found


def _parsed(text: str) -> Any:
    """Return a value as TOML has it; what is none is a text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
