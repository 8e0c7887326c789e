"""The manual pages rtsched(1) and one for each of its commands, made from the commands."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING

import click
from pages_for_admins import commands

from rtsched.cli import COMMANDS, main
from rtsched.cli.common import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HEAD = r"""
.\" Made from the code by `python tools/docs/generate.py`; do not edit.
.TH {title} 1 "" "rtsched" "rtsched"
.SH NAME
{name} \- {summary}
.SH SYNOPSIS
""".lstrip()

WHOLE = "deadlines that are promised, fair shares, and replays of accounting logs"
SYNOPSIS = r"""
.B rtsched
.I command
.RI [ options ]
""".lstrip()

FILES = r"""
.SH FILES
.TP
.I /etc/rtsched/site.toml
The site's settings.
.TP
.I /etc/rtsched/submit.conf
Settings of Slurm's submit filter, or of HTCondor's ClassAd library.
""".lstrip()

OTHERS = (("rtsched-submit", 7), ("sbatch", 1), ("condor_submit", 1))

STATUSES = {
    Exit.GOOD: "All is well.",
    Exit.FINDINGS: "Something was found that should not be so, or cannot be had.",
    Exit.USAGE: "A wrong option, argument or setting.",
    Exit.UNANSWERED: "The daemon or the batch system did not answer.",
    Exit.DEFECT: "A defect of rtsched itself.",
}


def man_pages() -> dict[str, str]:
    """Return every page by its file name."""
    every = commands()
    names = main.list_commands(click.Context(main))
    made = {"rtsched.1": _main_page(names)}
    for name in names:
        parts = {
            inner: command
            for inner, command in every.items()
            if inner.startswith(f"rtsched {name} ")
        }
        made[f"rtsched-{name}.1"] = _page(name, every[f"rtsched {name}"], parts)
    return made


def _main_page(names: Sequence[str]) -> str:
    """Return rtsched(1): what it is, and a list of its commands."""
    parts = [
        HEAD.format(title="RTSCHED", name="rtsched", summary=WHOLE),
        SYNOPSIS,
        ".SH DESCRIPTION\n",
        _text(inspect.cleandoc(main.help or "")),
        "\n.SH COMMANDS\n",
    ]
    parts += [f".TP\n.BR rtsched\\-{name} (1)\n{_escaped(COMMANDS[name])}\n" for name in names]
    parts += [".SH OPTIONS\n", *_options(main), *_completion(), *_statuses(), FILES]
    return "".join([*parts, _see_also(OTHERS)])


def _page(name: str, command: click.Command, parts: dict[str, click.Command]) -> str:
    """Return the page of one command, with those in it."""
    summary = COMMANDS[name].rstrip(".")
    title = f"RTSCHED-{name}".upper()
    head = HEAD.format(
        title=_escaped(title),
        name=f"rtsched\\-{name}",
        summary=_escaped(summary[:1].lower() + summary[1:]),
    )
    shown = parts or {f"rtsched {name}": command}
    lines = [
        f".B {_escaped(_usage(each, what))}\n.RI [ options ]\n" for each, what in shown.items()
    ]
    found = [head, ".br\n".join(lines), ".SH DESCRIPTION\n", _text(_help(command)), "\n"]
    found += [".SH OPTIONS\n", *_options(command)] if not parts else []
    if parts:
        found.append(".SH COMMANDS\n")
    for each, what in parts.items():
        found += [f".SS {_escaped(_usage(each, what))}\n", _text(_help(what)), "\n"]
        found += _options(what)
    return "".join([*found, *_statuses(), FILES, _see_also([("rtsched", 1), *OTHERS])])


def _statuses() -> list[str]:
    rows = [f".TP\n.B {int(code)}\n{text}\n" for code, text in STATUSES.items()]
    return [".SH EXIT STATUS\n", *rows]


def _completion() -> list[str]:
    text = (
        '`eval "$(_RTSCHED_COMPLETE=bash_source rtsched)"` in `~/.bashrc` completes commands, '
        "options and values in bash; `zsh_source` and `fish_source` are for zsh and fish."
    )
    return [".SH ENVIRONMENT\n.TP\n.B _RTSCHED_COMPLETE\n", _escaped(text), "\n"]


def _see_also(pages: Sequence[tuple[str, int]]) -> str:
    rows = [f".BR {_escaped(name)} ({section})" for name, section in pages]
    return ".SH SEE ALSO\n" + ",\n".join(rows) + "\n"


def _usage(name: str, command: click.Command) -> str:
    given = [param for param in command.params if isinstance(param, click.Argument)]
    return " ".join([name, *(param.make_metavar(click.Context(command)) for param in given)])


def _help(command: click.Command) -> str:
    return inspect.cleandoc((command.help or "").partition("\f")[0])


def _options(command: click.Command) -> Iterator[str]:
    for option in command.params:
        if isinstance(option, click.Option):
            flag = getattr(option, "is_flag", False)
            value = "" if flag else f" {option.make_metavar(click.Context(command))}"
            names = ", ".join([*option.opts, *option.secondary_opts])
            text = " ".join((option.help or "").replace("\b", "").split())
            yield f".TP\n.B {_escaped(names + value)}\n{_escaped(text)}\n"


def _text(text: str) -> str:
    """Return paragraphs; those marked for click keep their lines."""
    parts = []
    for paragraph in text.split("\n\n"):
        first, _, rest = paragraph.partition("\n")
        if first.strip() == "\b":
            parts.append(f".nf\n{_escaped(rest)}\n.fi")
        else:
            parts.append(_escaped(" ".join(paragraph.split())))
    return "\n.PP\n".join(parts)


def _escaped(text: str) -> str:
    """Return text in which nothing is read as an instruction to troff; what is code is bold."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    lines = re.sub(r"`([^`\n]+)`", r"\\fB\1\\fR", plain).split("\n")
    return "\n".join(f"\\&{line}" if line[:1] in {".", "'"} else line for line in lines)
