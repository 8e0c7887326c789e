"""Command-line options made from a structure of settings: one per field, with its description."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from rtsched.cli.common import settings_of, toml_text
from rtsched.core.config import convert
from rtsched.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rtsched.logs.readers import ReadOptions

T = TypeVar("T", bound=msgspec.Struct)
F = TypeVar("F", bound="Callable[..., Any]")


FORMATS = "swf|sacct|sacct-json|condor-history"
"""What `--format` takes."""


title_option: Callable[[Any], Any] = click.option(
    "--title", metavar="TEXT", help="Heading of the HTML report. Default: names the log."
)


columns_option: Callable[[Any], Any] = click.option(
    "--columns",
    metavar="NAMES",
    help="Columns of `sacct` text without a header line (`--noheader`), as given to `sacct "
    "--format`. Default: by their form, if that is certain.",
)


def reading_options(function: F) -> F:
    """Add the options that say how logs are to be read."""
    for option in (
        click.option(
            "--delimiter",
            metavar="D",
            help="Delimiter given to `sacct --delimiter`. Default: detected from the header.",
        ),
        columns_option,
        click.option(
            "--clusters",
            metavar="NAMES",
            help="Clusters whose jobs are read, of a `sacct` log of several. Default: all, as one "
            "machine.",
        ),
        click.option(
            "--timezone",
            metavar="ZONE",
            help="Time zone of times in the log that have none, such as Europe/Berlin. Default: "
            "this machine's.",
        ),
        click.option(
            "--format",
            "log_format",
            metavar=FORMATS,
            help="Format of the logs. Default: detected from their content.",
        ),
    ):
        function = option(function)
    return function


def reading_of(
    given: Mapping[str, Any], *, details: bool = False, resources: bool = False
) -> ReadOptions:
    """Return the `ReadOptions` that `reading_options` were given for."""
    from rtsched.logs.readers import ReadOptions

    return ReadOptions(
        given["log_format"],
        given["delimiter"],
        given["timezone"],
        details=details,
        resources=resources,
        columns=given["columns"],
        clusters=given["clusters"],
    )


def options_of(kind: type[msgspec.Struct]) -> Callable[[F], F]:
    """Return a decorator that adds one option per setting of a structure, unset by default."""

    def decorate(function: F) -> F:
        for setting in reversed(settings_of(kind)):
            flag, text = "--" + setting.name.replace("_", "-"), setting.description
            more: dict[str, Any] = {"metavar": _metavar(setting.kind)}
            if setting.kind == "bool":
                flag, more = f"{flag}/--no-{flag[2:]}", {"default": None}
            if setting.kind == "table":
                more["multiple"] = True
                text += " Repeatable."
            elif setting.default is not None:
                text += f" Default: {toml_text(setting.default).strip(chr(34))}."
            function = click.option(flag, setting.name, help=text, **more)(function)
        return function

    return decorate


def _metavar(kind: str) -> str:
    """Return what to show for a value: the choices, or which kind of value it is."""
    if kind == "table":
        return "NAME=VALUE"
    if kind.startswith(("int", "float")):
        return "NUMBER"
    return f"[{kind.replace(' ', '')}]" if "|" in kind else kind.upper()


def from_options(
    kind: type[T], given: Mapping[str, Any], base: Mapping[str, Any] | None = None
) -> T:
    """Return a structure: the defaults, over them the table `base`, over it the given options.

    Raises
    ------
    ConfigError
        Listing every option whose value is wrong.
    """
    raw = dict(base or {})
    for setting in settings_of(kind):
        value = given.get(setting.name)
        if setting.kind == "table":
            raw[setting.name] = {**raw.get(setting.name, {}), **_pairs(setting.name, value or ())}
        elif value is not None:
            is_written = setting.kind.startswith(("int", "float", "list"))
            raw[setting.name] = _literal(value) if is_written else value
    problems: list[str] = []
    made = convert(raw, kind, "", problems)
    if made is None:
        split = (problem.partition(":") for problem in problems)
        raise ConfigError([f"--{name.replace('_', '-')}:{text}" for name, _, text in split])
    return made


def _pairs(name: str, texts: tuple[str, ...]) -> dict[str, Any]:
    """Return the table that `--shares alice=2 --shares bob=1` spells."""
    table = {}
    for text in texts:
        key, sign, value = text.rpartition("=")
        if not sign:
            raise ConfigError([f"--{name.replace('_', '-')}: {text!r} is not NAME=VALUE"])
        table[key] = _literal(value)
    return table


def _literal(text: str) -> Any:
    """Return the TOML value that a text spells, else the text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
