"""Reference pages for plug-in authors: hooks, reasons, tables and structures, errors."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING

from installed import NOTE, built_in, reasons_of
from writing import (
    anchor,
    block,
    code,
    definitions,
    doc_of,
    entries,
    page,
    sentences,
    table,
)

import rtsched
import rtsched_plugins
from rtsched import errors
from rtsched.cli import EPILOG
from rtsched.core import checks, combine, hookspecs
from rtsched.core.chain import FAILED, HOOKS, Chain, HookMetrics
from rtsched.daemon.messages import REASONS
from rtsched.descriptions import field_texts
from rtsched.model import actions, cluster, jobs, log, schedule, snapshot, state
from rtsched.model import verdicts as answers
from rtsched.model.table import Table, Text
from rtsched.replay import results

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from rtsched.model.verdicts import Reason


def hook_page() -> str:
    """Return the page of all hooks."""
    overview = doc_of(hookspecs)
    rows = []
    parts = []
    for hook in HOOKS:
        function = getattr(hookspecs, f"rtsched_{hook}")
        name, doc = function.__name__, doc_of(function)
        rows.append((f"[`{name}`](#{name})", doc.summary, _answer(function)))
        parts += [
            f"## {name}",
            block(f"def {name}({', '.join(['self', *_arguments(function)])})", "python"),
            doc.text,
            f"**Answer**: {_answer(function)} or None. {_refusal(hook)}",
            f"`Chain.{hook}`: {sentences(getattr(Chain, hook))}{_combiners(hook)}",
        ]
    return page(
        "Hooks",
        NOTE,
        overview.text,
        table(("hook", "question", "answer"), rows),
        "## Arguments",
        overview.sections["Arguments"].partition("\n")[0],
        definitions(overview.sections["Arguments"]),
        overview.sections["Arguments"].rpartition("\n\n")[2],
        "## Answers",
        overview.sections["Answers"],
        *parts,
        "## What is counted per hook and plug-in",
        doc_of(HookMetrics).summary,
        _attributes(doc_of(HookMetrics).sections["Attributes"]),
    )


def _arguments(function: Callable[..., object]) -> list[str]:
    return list(inspect.signature(function).parameters)


def _answer(function: Callable[..., object]) -> str:
    kind = str(inspect.signature(function).return_annotation).partition(" | ")[0]
    return f"[`{kind}`](model.md#{kind.lower()})"


def _refusal(hook: str) -> str:
    """Return what the check of a hook's answer refuses."""
    return sentences(checks.CHECKS[hook]).replace("Refuse ", "The chain refuses ", 1)


def _combiners(hook: str) -> str:
    """Return what the chain's method for a hook combines answers with, in words."""
    used = getattr(Chain, hook).__code__.co_names
    own = {name: thing for name, thing in vars(combine).items() if inspect.isfunction(thing)}
    found = [own[name] for name in used if name in own]
    return "".join(
        f"\n\n`combine.{function.__name__}`: {sentences(function)}" for function in found
    )


def _modules(*packages: ModuleType) -> Iterator[ModuleType]:
    """Yield every module of the packages that can be imported here."""
    for package in packages:
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not info.name.endswith("__main__"):
                with suppress(errors.MissingExtraError):
                    yield importlib.import_module(info.name)


@cache
def reasons() -> dict[str, tuple[Reason, str]]:
    """Return every reason of the core and of built-in plug-ins by code, with who gives it."""
    found = {FAILED.code: (FAILED, "the chain")}
    for name, entry in built_in().items():
        found |= {each.code: (each, name) for each in reasons_of(entry.plugin)}
    for module in _modules(rtsched, rtsched_plugins):
        named = [value for value in vars(module).values() if inspect.isclass(value)]
        for holder in (module, *named):
            found |= {
                each.code: (each, module.__name__)
                for each in reasons_of(holder)
                if each.code not in found
            }
    return dict(sorted(found.items()))


def plain(template: str) -> str:
    """Return a reason's sentence as people read it: spans by name alone, counts in the plural."""
    things = re.sub(r"\{(\w+):(?!time)([^}|]+)\}", r"{\1} \2s", template)
    things = re.sub(r"\{(\w+):[^}|]+\|([^}]+)\}", r"{\1} \2", things)
    return re.sub(r":time( up)?}", "}", things)


def reason_page() -> str:
    """Return the page of reasons."""
    parts = []
    for name, (reason, giver) in reasons().items():
        parts += [
            anchor(name),
            f"## {name}",
            block(plain(reason.template)),
            f"Given by `{giver}`." if giver != "the chain" else "Given by the chain itself.",
        ]
    for name, meaning in REASONS.items():
        parts += [anchor(name), f"## {name}", meaning, "Given by the daemon."]
    return page(
        "Reasons",
        NOTE,
        "A reason is a stable code, a sentence and numbers. `rtsched explain JOB` shows the "
        "sentence with the numbers of that job; results and reports count jobs by code. Words in "
        "braces are numbers.",
        *parts,
    )


MODELS: dict[str, tuple[ModuleType, ...]] = {
    "What plug-ins are given": (snapshot, jobs, cluster, schedule, state),
    "What plug-ins answer": (answers,),
    "What the batch system is asked to do": (actions,),
    "What a log becomes": (log,),
    "What a replay gives": (results,),
}


def model_page() -> str:
    """Return the page of tables, structures and enumerations."""
    parts = []
    for title, modules in MODELS.items():
        parts.append(f"## {title}")
        for module in modules:
            for kind in vars(module).values():
                if inspect.isclass(kind) and kind.__module__ == module.__name__:
                    parts += _model(kind)
    return page(
        "Tables and structures",
        NOTE,
        "All arrays are read-only. Times are seconds since the epoch, durations seconds, memory "
        "bytes. In a text column the table holds codes; `names(column)` is what they stand for.",
        *parts,
    )


def _model(kind: type) -> list[str]:
    if kind.__name__.startswith("_"):
        return []
    doc = doc_of(kind)
    head = [f"### {kind.__name__}", f"`{kind.__module__}.{kind.__name__}`", doc.text]
    if issubclass(kind, Table):
        rows = []
        for name, column in kind.columns().items():
            text = isinstance(column, Text)
            dtype, missing = ("text", "") if text else (column.dtype.name, f"{column.missing:g}")
            rows.append((code(name), dtype, code(missing), column.__doc__))
        return [*head, table(("column", "type", "missing", "meaning"), rows)]
    if issubclass(kind, Enum):
        meanings = field_texts(kind)
        members = [(code(each.name), each.value, meanings.get(each.name, "")) for each in kind]
        return [*head, table(("name", "value", "meaning"), members)]
    if is_dataclass(kind) and "Attributes" in doc.sections:
        return [*head, _attributes(doc.sections["Attributes"])]
    if is_dataclass(kind):
        own = [f"`{each.name}`: {each.type}" for each in fields(kind)]
        return [*head, f"Fields: {', '.join(own)}."]
    return head


def _attributes(section: str) -> str:
    rows = []
    for head, text in entries(section):
        names, _, kind = head.partition(" : ")
        rows.append((", ".join(map(code, names.split(", "))), kind, text))
    return table(("attribute", "type", "meaning"), rows)


def error_page() -> str:
    """Return the page of exit statuses and errors."""
    kinds = [kind for kind in vars(errors).values() if inspect.isclass(kind)]
    rows = [
        (code(kind.__name__), kind.exit_status, sentences(kind))
        for kind in kinds
        if issubclass(kind, errors.RtschedError)
    ]
    return page(
        "Exit statuses and errors",
        NOTE,
        "An error ends a command with one sentence on standard error, `rtsched: error: ...`, and "
        "an exit status. With `--debug` the traceback is shown too.",
        "## Exit statuses",
        table(("status", "meaning"), _statuses()),
        "## Errors",
        table(("error", "status", "when"), rows),
    )


def _statuses() -> list[list[str]]:
    lines = EPILOG.partition("Exit status:\n")[2].splitlines()
    return [line.split(maxsplit=1) for line in lines if line.strip()]
