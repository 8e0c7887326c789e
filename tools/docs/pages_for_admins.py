"""Reference pages for admins: commands, site.toml, policies, plug-ins, measures."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, get_args, get_origin, get_type_hints

import click
import msgspec
from installed import NOTE, built_in, reasons_of
from litestar import Router
from writing import block, code, doc_of, page, sentences, table

from rtsched.adapters.condor.settings import CondorSettings, Recurring
from rtsched.adapters.slurm.settings import SlurmSettings
from rtsched.cli import main
from rtsched.cli.common import settings_of, toml_text
from rtsched.core import config
from rtsched.daemon.settings import DaemonSettings, LiveSite, Scope
from rtsched.descriptions import field_texts
from rtsched.logs import condor_history, sacct_lines, swf
from rtsched.logs.readers import READERS, ReadOptions
from rtsched.notices import NoticesSettings
from rtsched.replay import policies
from rtsched.replay.measures import MEASURES
from rtsched.report.summary import ASSUMPTIONS, OTHER
from rtsched.rest import endpoints
from rtsched.rest.board import pages
from rtsched.rest.client import ClientSettings
from rtsched.rest.settings import RestSettings
from rtsched.simulator import settings as machines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def plugin_page() -> str:
    """Return the page of built-in plug-ins and their settings."""
    parts = []
    for name, found in built_in().items():
        module = inspect.getmodule(found.plugin)
        doc = doc_of(module)
        parts += [
            f"## {name}",
            doc.text,
            f"Hooks: {', '.join(f'[`{hook}`](hooks.md#{hook})' for hook in found.hooks)}.",
            f"### Settings of {name}",
            _settings(found.config),
        ]
        if own := reasons_of(found.plugin):
            links = ", ".join(f"[`{each.code}`](reasons.md#{each.code})" for each in own)
            parts += [f"Reasons: {links}."]
        if "References" in doc.sections:
            parts += [f"### Sources of {name}", _list(doc.sections["References"])]
    return page(
        "Built-in plug-ins",
        NOTE,
        "`rtsched plugins` prints the same of every plug-in that is installed. Settings go into "
        "the `settings` table of a [`[[plugin]]` table](site.md#plugin).",
        table(
            ("plug-in", "what it does", "hooks"),
            [
                (f"[`{name}`](#{name})", found.summary, ", ".join(map(code, found.hooks)))
                for name, found in built_in().items()
            ],
        ),
        *parts,
    )


def _list(text: str) -> str:
    """Return a References section as a list: one entry per unindented line."""
    items: list[str] = []
    for line in text.splitlines():
        if line.startswith(" ") and items:
            items[-1] += f" {line.strip()}"
        elif line.strip():
            items.append(line.strip())
    # A line that goes on from one which ended no sentence belongs to it.
    merged: list[str] = []
    for item in items:
        if merged and not merged[-1].endswith((".", ")")):
            merged[-1] += f" {item}"
        else:
            merged.append(item)
    return "\n".join(f"* {item}" for item in merged)


def _settings(kind: type[msgspec.Struct]) -> str:
    return table(("setting", "value", "default", "meaning"), _setting_rows(kind))


def _setting_rows(kind: type[msgspec.Struct], prefix: str = "") -> Iterator[Sequence[str]]:
    """Yield one row per setting; tables by name are followed by what stands in them."""
    hints = get_type_hints(kind)
    tag, usual = kind.__struct_config__.tag_field, kind is machines.ExclusiveSettings
    for setting in settings_of(kind):
        if setting.name == tag:
            default = code(toml_text(setting.kind)) if usual else "required"
            yield code(setting.name), code(setting.kind), default, "Which machine."
            continue
        default = "required" if setting.required else code(toml_text(setting.default))
        name = f"{prefix}{setting.name}"
        yield code(name), code(setting.kind), default, setting.description
        inner = get_args(hints[setting.name])[-1:] or [None]
        if get_origin(hints[setting.name]) is dict and _is_table(inner[0]):
            yield from _setting_rows(inner[0], f"{name}.NAME.")


def _is_table(kind: object) -> bool:
    """Return whether a table of settings has no section of its own on the page of site.toml."""
    return msgspec.inspect.is_struct_type(kind) and kind is not policies.Policy


def site_page() -> str:
    """Return the page of a site.toml's tables."""
    kinds = {
        "Top level": LiveSite,
        "[system]": machines.ExclusiveSettings,
        "[system.negotiator]": machines.NegotiatorSettings,
        "[system] of machine sliced": machines.SlicedSettings,
        "[system] of machine time-shared": machines.TimeSharedSettings,
        "[system] of machine preemptive": machines.PreemptiveSettings,
        "[[plugin]]": config.PluginTable,
        "[workload]": type(policies.SiteSettings().workload),
        "[policy.NAME]": policies.Policy,
        "[daemon]": DaemonSettings,
        "[[scope]]": Scope,
        "[slurm]": SlurmSettings,
        "[condor]": CondorSettings,
        "[[condor.recurring]]": Recurring,
    }
    parts = []
    for title, kind in kinds.items():
        doc = doc_of(kind)
        heading = code(title) if title.startswith("[") and title.endswith("]") else title
        parts += [f"## {heading}", doc.text, _settings(kind)]
    return page(
        "site.toml",
        NOTE,
        "`rtsched check site.toml` reports every mistake with its path in the file; "
        "`rtsched check --schema` prints the JSON schema for editors.",
        *parts,
    )


def rest_page() -> str:
    """Return the page of the REST interface: its settings, those of its clients, endpoints."""
    sessions = Router("/", route_handlers=[pages.open_session])
    rows = [
        (code(f"{method} {route.path.replace(':str', '')}"), route_handler.fn.__doc__ or "")
        for route in (*endpoints.router().routes, *sessions.routes)
        for route_handler in route.route_handlers
        for method in sorted(route_handler.http_methods - {"OPTIONS"})
    ]
    errors = [(str(status), text) for status, text in endpoints.ERRORS.items()]
    return page(
        "REST",
        NOTE,
        "What it is for, and how it is set up: [Other hosts and REST](../rest.md). The server "
        "describes itself in OpenAPI 3.1 at `/schema/openapi.json`; the reports are those of "
        "[Questions to the daemon](queries.md).",
        "## rest.toml",
        "`/etc/rtsched/rest.toml`, on the daemon's host.",
        _settings(RestSettings),
        "## client.toml",
        "`/etc/rtsched/client.toml`, on hosts without the daemon's socket. The environment "
        "variables RTSCHED_SERVER and RTSCHED_CA take the place of its settings.",
        _settings(ClientSettings),
        "## Endpoints",
        table(("request", "what it does"), rows),
        "## Refusals",
        'The body is `{"error": "..."}`, one sentence.',
        table(("status", "when"), errors),
    )


def notices_page() -> str:
    """Return the page of the notices' settings."""
    return page(
        "Notices",
        NOTE,
        "What they are for, and how they are set up: [Notices](../notices.md). This is "
        "`/etc/rtsched/notices.toml`, on the daemon's host.",
        _settings(NoticesSettings),
    )


def policy_page() -> str:
    """Return the page of the policies that rtsched ships."""
    presets = policies.presets()
    rows = [(f"[`{name}`](#{name})", policy.description) for name, policy in presets.items()]
    parts = []
    for name, policy in presets.items():
        parts += [f"## {name}", f"{policy.description[:1].upper()}{policy.description[1:]}."]
        parts += [block(_policy_toml(policy), "toml site")]
    return page(
        "Policies",
        NOTE,
        "`rtsched replay LOG --policy NAME` replays a log under one of these. Each is a simulated "
        "batch system's own loop, and plug-ins that steer it. The tables below can stand in a "
        "site.toml as they are: at its top level for the site's own policy, under `[policy.NAME]` "
        "for another one. What each promises and costs: [policies](../policies.md).",
        table(("policy", "rule"), rows),
        *parts,
    )


def _policy_toml(policy: policies.Policy) -> str:
    """Return a policy as the tables of a site.toml, defaults left out."""
    lines = [f"description = {toml_text(policy.description)}"]
    if policy.planner:
        lines.append(f"planner = {toml_text(policy.planner)}")
    usual = msgspec.to_builtins(type(policy.system)()) | msgspec.to_builtins(
        policies.Policy().system
    )
    own = {
        name: value
        for name, value in msgspec.to_builtins(policy.system).items()
        if value != usual[name] or name == "loop"
    }
    lines.append(f"system = {toml_text(own)}")
    for entry in policy.plugin:
        lines += ["", "[[plugin]]", f"name = {toml_text(entry.name)}"]
        if entry.settings:
            lines.append(f"settings = {toml_text(entry.settings)}")
    return "\n".join(lines)


def log_page() -> str:
    """Return the page of log formats."""
    formats = [
        (code(reader.format), sentences(inspect.getmodule(reader)), sentences(reader))
        for reader in READERS
    ]
    fields = [(number, code(name)) for number, name in enumerate(swf.FIELDS, 1)]
    roles = [(role, ", ".join(map(code, names))) for role, names in sacct_lines.ROLES.items()]
    attributes = ", ".join(map(code, sorted(condor_history.ATTRIBUTES)))
    options = [
        (code(f"--{name}"), meaning)
        for name, meaning in field_texts(ReadOptions).items()
        if name != "details"  # what a command says for itself, no option
    ]
    return page(
        "Log formats",
        NOTE,
        "What is made of them, and what is filled in: [logs](../logs.md).",
        table(("format", "files", "units"), formats),
        "## Options",
        table(("option", "meaning"), options),
        "## SWF fields",
        table(("field", "name"), fields),
        "## sacct columns",
        "Upper and lower case do not matter. Of the columns for one thing the first in the row "
        "that the file has is read; other columns are passed over.",
        table(("what", "columns, best first"), roles),
        "## HTCondor attributes",
        "Upper and lower case do not matter.",
        attributes,
    )


def measure_page() -> str:
    """Return the page of measures."""
    better = {-1: "less", 0: "", 1: "more"}
    rows = [
        (code(name), each.unit, each.definition, better[each.better])
        for name, each in MEASURES.items()
    ]
    return page(
        "Measures",
        NOTE,
        "One value per policy, under these names in `--json` and in the kept summary; null where "
        "nothing ran. A name ends in its unit; a name without one is a pure number (1) or a "
        "count. The same measures of what the log itself records stand under `as_logged`.",
        table(("measure", "unit", "definition", "better"), rows),
        "## What was assumed",
        "`--json` and the kept summary hold, under `assumptions`, a sentence by each of these "
        f"names that applies; {code(OTHER)} is any other. A second sentence of a name stands under "
        "the name with `_2` behind it, and so on.",
        table(
            ("name", "what it tells"),
            ((code(name), each.meaning) for name, each in ASSUMPTIONS.items()),
        ),
        "## Time in plug-ins",
        "With `--json`, `seconds` of a policy's hooks is the time that a plug-in took. It is null, "
        "and a dash in the table, for a compiled policy: that is asked from within the simulated "
        "system's loop, and each call is too short to be timed.",
    )


def commands() -> dict[str, click.Command]:
    """Return every command by its full name, groups before what is in them."""
    found: dict[str, click.Command] = {}

    def walk(name: str, command: click.Command) -> None:
        found[name] = command
        if isinstance(command, click.Group):
            context = click.Context(command, info_name=name)
            for each in command.list_commands(context):
                inner = command.get_command(context, each)
                if inner is not None:
                    walk(f"{name} {each}", inner)

    walk("rtsched", main)
    return found


def command_page() -> str:
    """Return the page of commands."""
    parts = []
    for name, command in commands().items():
        given = [p for p in command.params if isinstance(p, click.Argument)]
        options = [p for p in command.params if isinstance(p, click.Option)]
        usage = " ".join([name, "[OPTIONS]", *map(_argument, given)])
        if isinstance(command, click.Group):
            usage += f" {command.subcommand_metavar or 'COMMAND ...'}"
        parts += [f"## {name}", block(usage, "text"), _help(command.help or "")]
        parts += [table(("option", "value", "default", "meaning"), map(_option, options))]
    return page(
        "Commands",
        NOTE,
        "Every command also takes `-h` and `--help`.",
        *parts,
    )


def _argument(param: click.Parameter) -> str:
    name = (param.metavar or param.name or "").upper()
    name = name.removesuffix("...")
    name = name if param.required else f"[{name.strip('[]')}]"
    return f"{name}..." if param.nargs == -1 else name


def _option(option: click.Parameter) -> tuple[str, str, str, str]:
    kind = "" if getattr(option, "is_flag", False) else option.metavar or _click_type(option.type)
    if getattr(option, "multiple", False):
        kind += ", repeatable"
    default = option.default
    plain = isinstance(default, (str, int, float, Path)) and default is not False
    names = ", ".join(map(code, [*option.opts, *option.secondary_opts]))
    shown = code(default) if plain else ""
    return names, code(kind), shown, _oneline(getattr(option, "help", "") or "")


def _click_type(kind: click.ParamType) -> str:
    if isinstance(kind, click.Choice):
        return " | ".join(str(getattr(choice, "value", choice)) for choice in kind.choices)
    return {"integer": "int", "text": "text"}.get(kind.name, kind.name)


def _help(text: str) -> str:
    """Return click's help text as paragraphs; marked ones keep their lines."""
    parts = []
    for paragraph in inspect.cleandoc(text.partition("\f")[0]).split("\n\n"):
        first, _, rest = paragraph.partition("\n")
        kept = first.strip() == "\b"
        parts.append(block(rest, "text") if kept else " ".join(paragraph.split()))
    return "\n\n".join(parts)


def _oneline(text: str) -> str:
    return " ".join(text.replace("\b", "").split())
