"""Sweeps: policies once for each value of a setting."""

from __future__ import annotations

import tomllib
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from rtsched.core.config import convert
from rtsched.errors import ConfigError
from rtsched.replay.policies import Policy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
