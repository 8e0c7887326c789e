"""`rtsched plugins`: what is installed, and how it can be set."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from rtsched.cli.common import (
    Exit,
    console,
    debug_option,
    indented,
    settings_of,
    toml_text,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from rtsched.core.plugins import Found


@click.command("plugins")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
@debug_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """List the plug-ins that are installed: version, hooks, settings and their defaults.

    A plug-in that cannot be used is listed with the cause, and the exit status is 1. Settings go
    into a `[[plugin]]` table of a site.toml: `settings = { NAME = VALUE }`.
    """
    from rtsched.core.plugins import discover

    described = [describe(entry) for entry in discover().values()]
    if as_json:
        click.echo(json.dumps(described, indent=2))
    else:
        _show(described)
    ctx.exit(Exit.FINDINGS if any(entry["error"] for entry in described) else Exit.GOOD)


def describe(entry: Found) -> dict[str, Any]:
    """Return a plug-in as one JSON object; `error` says why it cannot be used, else None."""
    described: dict[str, Any] = {
        "name": entry.name,
        "distribution": entry.distribution,
        "version": entry.version,
        "summary": "",
        "hooks": [],
        "settings": [],
        "error": entry.cause or None,
    }
    if entry.plugin is None:
        return described
    hooks = [name.removeprefix("rtsched_") for name in entry.hooks]
    described.update(summary=entry.summary, hooks=hooks)
    try:
        described["settings"] = [setting._asdict() for setting in settings_of(entry.config)]
    except Exception as cause:  # a third party's Config may be anything
        described["error"] = f"its Config cannot be read: {type(cause).__name__}: {cause}"
    return described


def _show(described: Sequence[dict[str, Any]]) -> None:
    out = console()
    if not described:
        out.print("No plug-in is installed. `pip install rtsched` installs the built-in ones.")
    for index, entry in enumerate(described):
        if index:
            out.print()
        _show_one(out, entry)


def _show_one(out: Console, entry: dict[str, Any]) -> None:
    from rich.text import Text

    head = Text(entry["name"], "bold")
    head.append(f"  {entry['distribution']} {entry['version']}", "not bold dim")
    out.print(head)
    if entry["error"]:
        indented(out, f"cannot be used: {entry['error']}", 2, "red")
    if entry["summary"]:
        indented(out, entry["summary"], 2)
    if entry["hooks"]:
        indented(out, f"hooks: {', '.join(entry['hooks'])}", 2)
    for setting in entry["settings"]:
        default = "(required)" if setting["required"] else f"= {toml_text(setting['default'])}"
        indented(out, f"{setting['name']} {default}  ({setting['kind']})", 2, "bold")
        indented(out, setting["description"], 6)
