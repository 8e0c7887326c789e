"""Checks: every mistake of a site.toml in one go, or what it would do; and the `plugins` here."""

from __future__ import annotations

import json
from pathlib import Path
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
from rtsched.errors import ConfigError, PluginError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import msgspec
    from rich.console import Console

    from rtsched.core.config import PluginTable
    from rtsched.core.plugins import Found
    from rtsched.daemon.settings import LiveSite
    from rtsched.replay.policies import Policy
    from rtsched.replay.settings import WorkloadOptions


@click.command("check")
@click.argument("site_file", metavar="SITE.TOML", type=click.Path(path_type=Path), required=False)
@click.option(
    "--schema",
    "as_schema",
    is_flag=True,
    help="Print the JSON schema of a site.toml, with the settings of all installed plug-ins, for "
    "completion and checks in editors.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object; of a file with errors it has only these.",
)
@debug_option
@click.pass_context
def check(ctx: click.Context, /, site_file: Path | None, as_schema: bool, as_json: bool) -> None:
    """Check SITE.TOML and show what it configures.

    All errors are reported at once, each with its path in the file, and the exit status is 2.
    Without errors, the policies are printed: their scheduler, plug-ins in the order in which they
    are called, modes and planner.
    """
    from rtsched.core.plugins import discover

    found = discover()
    if as_schema:
        click.echo(json.dumps(site_schema(found), indent=2))
        return
    if site_file is None:
        raise click.UsageError("give a SITE.TOML or --schema")
    if not as_json:
        _show(site_file, load_checked(site_file, found), found)
        return
    try:
        report = as_object(load_checked(site_file, found), found)
    except ConfigError as error:
        click.echo(_json({"file": str(site_file), "errors": list(error.problems)}))
        ctx.exit(Exit.USAGE)
    click.echo(_json({"file": str(site_file), "errors": [], **report}))


def _json(report: Mapping[str, Any]) -> str:
    import msgspec

    return msgspec.json.encode(report).decode()


def as_object(site: LiveSite, found: Mapping[str, Found]) -> dict[str, Any]:
    """Return what a site.toml configures, as JSON has it: all settings, those not given too."""
    import msgspec

    policies = {
        name: {
            **msgspec.to_builtins(policy),
            "hooks": {
                entry.name: [hook.removeprefix("rtsched_") for hook in found[entry.name].hooks]
                for entry in policy.plugin
            },
            "notes": notes(name, policy, found),
        }
        for name, policy in site.policies().items()
    }
    tables = {
        name: msgspec.to_builtins(getattr(site, name))
        for name in ("workload", "daemon", site.daemon.system, "scope")
    }
    return {
        "policies": policies,
        **tables,
        "changed_defaults": changed_defaults(site, found),
        "refused_by_serve": list(unserved(site, found)),
    }


def load_checked(path: Path, found: Mapping[str, Found]) -> LiveSite:
    """Return a site.toml whose plug-ins could all be made, and whose planners' plans are kept.

    Raises
    ------
    ConfigError
        Listing every mistake; where the tables are right, every plug-in that cannot be made, every
        planner that could not keep its promises, and what is wrong with rules and periodic work.
    """
    from rtsched.daemon.settings import LiveSite
    from rtsched.replay.policies import SITE, load_site

    site = load_site(path, found, LiveSite)
    tables = {
        "" if name == SITE else f"policy.{name}: ": policy
        for name, policy in site.policies().items()
    }
    problems, _ = problems_by_unit(tables, found, site.workload)
    try:
        site.workload.rules()
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(problems, path)
    return site


def problems_by_unit(
    policies: Mapping[str, Policy], found: Mapping[str, Found], workload: WorkloadOptions
) -> tuple[list[str], bool | None]:
    """Return `chain_problems`, and what `prepare` is told of `sharing` where the unit is `auto`."""
    periodic = bool(workload.periodic)
    if workload.unit != "auto":
        shared = workload.unit == "resources"
        return chain_problems(policies, found, periodic=periodic, resources=shared), None
    alone, shared_too = (
        chain_problems(policies, found, periodic=periodic, resources=resources)
        for resources in (False, True)
    )
    if alone and shared_too:
        return alone, None
    if not alone and not shared_too:
        return [], None
    return [], bool(alone)


def chain_problems(
    policies: Mapping[str, Policy],
    found: Mapping[str, Found],
    *,
    periodic: bool,
    resources: bool,
) -> list[str]:
    """Return what is wrong with policies as a whole, each sentence behind its policy's key."""
    from rtsched.replay.planners import load_chain

    problems: list[str] = []
    for prefix, policy in policies.items():
        try:
            found_problems = load_chain(policy, found, periodic=periodic, resources=resources)[1]
        except ConfigError as error:
            found_problems = list(error.problems)
        except PluginError as error:
            found_problems = [str(error)]
        problems += [f"{prefix}{problem}" for problem in found_problems]
    return problems


def _show(path: Path, site: LiveSite, found: Mapping[str, Found]) -> None:
    out = console()
    out.print(f"{path}: no errors", style="green", markup=False)
    for name, policy in site.policies().items():
        out.print()
        _show_policy(out, name, policy, found)
    out.print()
    out.print("workload", style="bold")
    _show_settings(out, site.workload)
    for name in ("daemon", site.daemon.system):
        out.print()
        out.print(name, style="bold")
        _show_settings(out, getattr(site, name))
    for text in changed_defaults(site, found):
        indented(out, f"note: {text}", 0, "yellow")
    for scope in site.scope:
        out.print(f"scope: {toml_text(_given(scope))}", markup=False)
    for problem in unserved(site, found):
        indented(out, f"note: `rtsched serve` refuses this file: {problem}", 0, "yellow")


def changed_defaults(site: LiveSite, found: Mapping[str, Found]) -> list[str]:
    """Return which settings have another default than in earlier releases, if it is in effect."""
    import msgspec

    from rtsched.daemon.settings import FORMER_DEFAULTS, DaemonSettings
    from rtsched.daemon.start import live_settings_of

    values, defaults = msgspec.to_builtins(site.daemon), msgspec.to_builtins(DaemonSettings())
    texts = [
        f"daemon.{name} is now {toml_text(values[name])} by default; it was {toml_text(former)}"
        for name, former in FORMER_DEFAULTS.items()
        if values[name] == defaults[name]
    ]
    texts += [
        f"{name} of plug-in {table.name} is now {toml_text(value)} by default on live systems; it "
        f"was {toml_text(getattr(found[table.name].config(), name))}"
        for table in site.plugin
        for name, value in live_settings_of(table.name, found).items()
        if name not in table.settings
    ]
    if site.workload.unit == "auto":
        texts.append('workload.unit is now "auto" by default; it was "core"')
    return texts


def unserved(site: LiveSite, found: Mapping[str, Found]) -> Sequence[str]:
    """Return why no batch system could follow the plug-ins, which a replay can."""
    from rtsched.daemon.start import policy_of

    try:
        policy_of(site, found)
    except ConfigError as error:
        return error.problems
    return ()


def _show_policy(out: Console, name: str, policy: Policy, found: Mapping[str, Found]) -> None:
    from rich.text import Text

    from rtsched.replay.policies import Policy

    head = Text(f"policy {name}", "bold")
    if policy.description:
        head.append(f"  {policy.description}", "not bold")
    out.print(head)
    hidden = () if policy.system.loop == "negotiator" else ("negotiator",)
    _show_settings(out, policy.system, hidden, Policy().system)
    out.print(f"  planner = {policy.planner or 'none'}", markup=False)
    if not policy.plugin:
        out.print("  plug-ins: none, the batch system's own scheduler decides alone")
    else:
        _show_plugins(out, policy, found)
    for note in notes(name, policy, found):
        indented(out, f"note: {note}", 2, "yellow")


def _show_plugins(out: Console, policy: Policy, found: Mapping[str, Found]) -> None:
    from rich.table import Table
    from rich.text import Text

    out.print("  plug-ins, in the order in which they are called:")
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for title in ("    #", "plug-in", "mode", "hooks", "on error", "weight", "settings"):
        table.add_column(title, overflow="fold")
    for place, entry in enumerate(policy.plugin, 1):
        table.add_row(*(Text(cell) for cell in _plugin_cells(place, entry, found)))
    out.print(table)


def notes(name: str, policy: Policy, found: Mapping[str, Found]) -> list[str]:
    """Return what is no mistake but has perhaps another effect than was meant."""
    from rtsched.replay.policies import presets

    enforced = [entry.name for entry in policy.plugin if entry.mode == "enforce"]
    givers = [name for name in enforced if "rtsched_fair_share" in found[name].hooks]
    remarks = []
    if name in presets():
        remarks.append(
            f"a preset is named {name} too: with this file `--policy {name}` means this one"
        )
    if policy.system.order == "priority" and not givers:
        remarks.append("order = priority, but no enforced plug-in sets priorities: all are equal")
    if policy.system.order != "priority" and givers:
        order = policy.system.order
        remarks.append(f"{', '.join(givers)} sets priorities, which order = {order} does not use")
    if policy.planner is not None and policy.planner not in enforced:
        remarks.append(f"the planner {policy.planner} is not enforced: no promises will be given")
    return remarks


def _plugin_cells(place: int, entry: PluginTable, found: Mapping[str, Found]) -> Sequence[str]:
    hooks = ", ".join(hook.removeprefix("rtsched_") for hook in found[entry.name].hooks)
    settings = ", ".join(f"{key} = {toml_text(value)}" for key, value in entry.settings.items())
    return (
        f"    {place}",
        entry.name,
        entry.mode,
        hooks,
        entry.on_error,
        f"{entry.weight:g}",
        settings or "defaults",
    )


def _show_settings(
    out: Console,
    settings: msgspec.Struct,
    hidden: Collection[str] = (),
    usual: msgspec.Struct | None = None,
) -> None:
    """Print a structure's settings but for the hidden ones; mark what is not the default.

    That is the value of `usual`, which may have other settings, and where it has none, its own.
    """
    import msgspec

    values = msgspec.to_builtins(settings)
    defaults = msgspec.to_builtins(type(settings)())
    defaults |= {} if usual is None else msgspec.to_builtins(usual)
    for name in (name for name in values if name not in hidden):
        value = values[name]
        mark = "" if value == defaults[name] else "  (set here)"
        out.print(f"  {name} = {toml_text(value)}{mark}", markup=False)


def _given(scope: msgspec.Struct) -> dict[str, Any]:
    """Return what a scope says."""
    import msgspec

    return {k: v for k, v in msgspec.to_builtins(scope).items() if v is not None}


def site_schema(found: Mapping[str, Found]) -> dict[str, Any]:
    """Return the JSON schema of a site.toml; a plug-in table's settings depend on its name."""
    import msgspec

    from rtsched.daemon.settings import LiveSite
    from rtsched.descriptions import described

    schema: dict[str, Any] = msgspec.json.schema(described(LiveSite))
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "rtsched site.toml"
    usable = {name: entry for name, entry in found.items() if entry.plugin is not None}
    choices = []
    for name, entry in usable.items():
        (reference,), definitions = msgspec.json.schema_components(
            [described(entry.config)], ref_template=f"#/$defs/plugin.{name}.{{name}}"
        )
        schema["$defs"].update(
            {f"plugin.{name}.{kind}": value for kind, value in definitions.items()}
        )
        choices.append(
            {
                "if": {"properties": {"name": {"const": name}}, "required": ["name"]},
                "then": {"properties": {"settings": reference}},
            }
        )
    table = schema["$defs"]["PluginTable"]
    table["properties"]["name"]["enum"] = list(usable)
    if choices:
        table["allOf"] = choices
    return schema


@click.command("plugins")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
@debug_option
@click.pass_context
def plugins(ctx: click.Context, as_json: bool) -> None:
    """List the plug-ins that are installed: version, hooks, settings and their defaults.

    A plug-in that cannot be used is listed with the cause, and the exit status is 1. Settings go
    into a `[[plugin]]` table of a site.toml: `settings = { NAME = VALUE }`.
    """
    from rtsched.core.plugins import discover

    described = [_describe(entry) for entry in discover().values()]
    if as_json:
        click.echo(json.dumps(described, indent=2))
    else:
        _show_found(described)
    ctx.exit(Exit.FINDINGS if any(entry["error"] for entry in described) else Exit.GOOD)


def _describe(entry: Found) -> dict[str, Any]:
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


def _show_found(described: Sequence[dict[str, Any]]) -> None:
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
