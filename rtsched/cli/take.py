"""`rtsched take`: submit a job with what was offered in place of its deadline."""

from __future__ import annotations

import os
import re
import shlex
from typing import TYPE_CHECKING

import click

from rtsched.cli.asking import (
    gap,
    json_option,
    print_json,
    report_of,
    show_facts,
    show_table,
    socket_option,
    when,
)
from rtsched.cli.common import console, debug_option, indented
from rtsched.daemon.stated import per_cent
from rtsched.errors import RtschedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from rtsched.daemon.reports import Choice, ChoicesReport

COMMANDS = {"slurm": ("sbatch", "salloc", "srun"), "condor": ("condor_submit",)}
"""What submits jobs, the one that is meant first."""

FLAGS = frozenset(
    (
        *("contiguous", "exclusive", "get-user-env", "help", "hold", "ignore-pbs", "immediate"),
        *("label", "nice", "no-allocate", "no-bell", "no-kill", "no-requeue", "no-shell"),
        *("overcommit", "oversubscribe", "parsable", "preserve-env", "propagate", "pty", "quiet"),
        *("reboot", "requeue", "spread-job", "stepmgr", "test-only", "unbuffered", "usage"),
        *("use-min-nodes", "verbose", "version", "wait", "wait-all-nodes"),
    )
)
"""Long options of sbatch, salloc and srun whose value, if there is one, is not the next word."""

SHORT_FLAGS = frozenset("EhHIklOQsuvVWXZ")
"""Likewise of one letter."""

_OPTION = re.compile(r"--[a-z-]+=.*", re.DOTALL)
_LINE = re.compile(r"\+?[A-Za-z_]+ = .*")


@click.command(
    "take",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option("--print", "printed", is_flag=True, help="Print the command; do not run it.")
@json_option
@socket_option
@debug_option
@click.argument("number", type=click.IntRange(1), required=False)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS] FILE [ARGUMENTS]")
def command(
    number: int | None, words: tuple[str, ...], printed: bool, as_json: bool, path: str
) -> None:
    """Submit FILE with choice NUMBER of those that a rejection offered.

    FILE, with options and arguments, is what you give sbatch or condor_submit; what the choice
    changes is added, and overrides what the file says. `rtsched take 2 salloc -n4` runs salloc, and
    srun likewise. Without FILE the options are printed; without NUMBER the choices are listed.

    The choices are yours alone, for about a minute. Those that are reserved are promised if you
    submit the same job; the others if nobody was faster.
    """
    from rtsched.daemon.reports import Choices

    report = report_of(Choices(), path)
    if as_json and not words:
        print_json(report)
        return
    if number is None:
        show(console(), report)
        return
    choice = chosen(report, number)
    argv = command_line(report.system, words, choice.options)
    if printed or not words:
        click.echo(shlex.join(argv if words else choice.options))
        return
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - no shell: the words are the user's own
    except OSError as error:
        raise RtschedError(f"{argv[0]} cannot be run: {error.strerror}") from error


def chosen(report: ChoicesReport, number: int) -> Choice:
    """Return the choice of a number.

    Raises
    ------
    RtschedError
        If there is none, or its options are none that can be given.
    """
    if not report.choices:
        raise RtschedError(
            "nothing is offered to you now; submit the job again with the deadline that it needs, "
            "and take one of the choices within the time that the answer names"
        )
    found = next((each for each in report.choices if each.number == number), None)
    if found is None:
        raise RtschedError(f"there is no choice {number}; `rtsched take` lists them")
    known = _OPTION if report.system == "slurm" else _LINE
    given = found.options if report.system == "slurm" else found.options[1::2]
    if not all(known.fullmatch(word) for word in given):
        raise RtschedError("the choice has options that cannot be given; use the same release")
    return found


def command_line(system: str, words: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return the words that submit a job with more options, which override others."""
    words = list(words)[1:] if words and words[0] == "--" else list(words)
    names = COMMANDS[system]
    name = words.pop(0) if words and words[0] in names else names[0]
    at = _queue(words) if system == "condor" else script_place(words)
    return [name, *words[:at], *options, *words[at:]]


def _queue(words: Sequence[str]) -> int:
    """Return where the statement -queue begins, which takes all words behind it."""
    return next((at for at, word in enumerate(words) if word in {"-queue", "-q"}), len(words))


def script_place(words: Sequence[str]) -> int:
    """Return the place of the script among words for sbatch; behind them all if there is none."""
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--" or not word.startswith("-") or word == "-":
            return at
        if word.startswith("--"):
            alone = "=" in word or word[2:] in FLAGS
        else:
            rest = word[1:].lstrip("".join(SHORT_FLAGS))
            alone = len(rest) != 1
        at += 1 if alone else 2
    return len(words)


def show(out: Console, report: ChoicesReport) -> None:
    """Print a menu."""
    if report.expires is None:
        indented(out, "nothing is offered to you now", 0, "bold")
        return
    indented(out, f"offered until {when(report.expires, report.now)}", 0, "bold")
    show_choices(out, report.choices, report.now)
    show_facts(out, [("submit one with", report.choices[0].take)] if report.choices else [])


def show_choices(out: Console, choices: Sequence[Choice], now: float) -> None:
    """Print choices as a table."""
    rows = []
    for choice in choices:
        certain = "guaranteed" if choice.odds is None else per_cent(choice.odds)
        rows.append(
            [
                str(choice.number),
                choice.text,
                f"{when(choice.deadline, now)}, {gap(choice.deadline, now)}",
                f"{len(choice.nodes):,}" if choice.nodes else "",
                certain,
                "yes" if choice.held else "no",
            ]
        )
    show_table(out, ["no", "choice", "finish by", "nodes", "odds", "reserved"], rows)
