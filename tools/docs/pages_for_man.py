"""The manual page rtsched(1), made from the commands."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING

import click
from pages_for_admins import commands

from rtsched.cli import main
from rtsched.cli.common import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD = r"""
.\" Made from the code by `python tools/docs/generate.py`; do not edit.
.TH RTSCHED 1 "" "rtsched" "rtsched"
.SH NAME
rtsched \- deadlines that are promised, fair shares, and replays of accounting logs
.SH SYNOPSIS
.B rtsched
.I command
.RI [ options ]
.SH DESCRIPTION
""".lstrip()

TAIL = r"""
.SH FILES
.TP
.I /etc/rtsched/site.toml
The site's settings.
.TP
.I /etc/rtsched/submit.conf
Settings of Slurm's submit filter, or of HTCondor's ClassAd library.
.SH SEE ALSO
.BR rtsched-submit (7),
.BR sbatch (1),
.BR condor_submit (1)
""".lstrip()

STATUSES = {
    Exit.GOOD: "All is well.",
    Exit.FINDINGS: "Something was found that should not be so, or cannot be had.",
    Exit.USAGE: "A wrong option, argument or setting.",
    Exit.UNANSWERED: "The daemon or the batch system did not answer.",
    Exit.DEFECT: "A defect of rtsched itself.",
}


def man_page() -> str:
    """Return rtsched(1)."""
    parts = [HEAD, _text(inspect.cleandoc(main.help or "")), "\n.SH COMMANDS\n"]
    for name, command in commands().items():
        if not isinstance(command, click.Group):
            parts += [f".SS {_escaped(_usage(name, command))}\n", _text(_help(command)), "\n"]
            parts += _options(command)
    parts.append(".SH EXIT STATUS\n")
    parts += [f".TP\n.B {int(code)}\n{text}\n" for code, text in STATUSES.items()]
    return "".join([*parts, TAIL])


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
