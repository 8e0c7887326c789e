"""`rtsched feasible` and `rtsched take`: which deadline a job could have, and having one."""

from __future__ import annotations

import math
import os
import re
import shlex
import time
from typing import TYPE_CHECKING, Any

import click

from rtsched.cli.asking import (
    gap,
    json_option,
    node_list,
    print_json,
    report_of,
    show_facts,
    show_table,
    socket_option,
    when,
)
from rtsched.cli.common import Exit, console, debug_option, indented
from rtsched.daemon.questions import MOST_COUNTED, MOST_ROUNDS
from rtsched.errors import RtschedError
from rtsched.text import per_cent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from rtsched.daemon.questions import Choice, ChoicesReport, Feasible, FeasibleReport


_NODES = re.compile(r"([0-9]{1,7})(?:-([0-9]{1,7}))?", re.ASCII)
COUNT = click.IntRange(1, MOST_COUNTED)

REQUEST: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "-N", "--nodes", metavar="MIN[-MAX]", default="1", help="Nodes (HTCondor: slots)."
    ),
    click.option(
        "-t",
        "--time",
        "limit",
        metavar="TIME",
        help="Time limit (run time) on MIN nodes: 30, 1:00:00.",
    ),
    click.option("-p", "--partition", default="", help="Partition (HTCondor: RtClass)."),
    click.option("-A", "--account", default="", help="Account; default: your default account."),
    click.option("-q", "--qos", default="", help="Quality of service; default: your default QOS."),
    click.option("-n", "--ntasks", "tasks", type=COUNT, help="Tasks (Slurm)."),
    click.option("-c", "--cpus-per-task", type=COUNT, help="CPUs of a task (RequestCpus)."),
    click.option(
        "--mem", "memory", metavar="SIZE", help="Memory per node: 4G, 500M (RequestMemory)."
    ),
    click.option("--gpus-per-node", "gpus", type=COUNT, help="GPUs per node (RequestGPUs)."),
    click.option("-L", "--licenses", default="", help="Licences: matlab:2,fluent (Slurm)."),
    click.option("-C", "--constraint", default="", help="Features of nodes: 'a&b' (Slurm)."),
    click.option("-w", "--nodelist", default="", help="Nodes to run on (Slurm)."),
    click.option("-x", "--exclude", default="", help="Nodes not to run on (Slurm)."),
    click.option("-a", "--array", default="", help="An array: 1-100%8; HTCondor: 1-100."),
    click.option("--sigma", type=float, help="Divisible load: units of work."),
    click.option("--cms", type=float, help="Divisible load: seconds to send one unit."),
    click.option("--cps", type=float, help="Divisible load: seconds to compute one unit."),
    click.option("--setup-link", type=float, help="Divisible load: seconds to set up a transfer."),
    click.option("--setup-node", type=float, help="Divisible load: seconds to set up a node."),
    click.option(
        "--rounds", type=click.IntRange(1, MOST_ROUNDS), help="Divisible load: most rounds."
    ),
)
"""Options that say what a job asks for."""


def request_options(command: Any) -> Any:
    """Give a command the options that say what a job asks for."""
    for option in reversed(REQUEST):
        command = option(command)
    return command


@click.command("feasible")
@request_options
@click.option("--deadline", metavar="WHEN", help="Check this deadline: 18:30, now+2hours.")
@json_option
@socket_option
@debug_option
@click.pass_context
def feasible(
    ctx: click.Context,
    /,
    nodes: str,
    limit: str | None,
    deadline: str | None,
    memory: str | None,
    as_json: bool,
    path: str,
    **given: Any,
) -> None:
    """Show which deadline such a job could get if it were submitted now.

    Nothing is reserved: another job may take its place. A rejected submission gets a counter-offer
    that is held for a while. In place of a deadline that is not feasible, the choices are shown
    that are: later, smaller, shorter, with fewer or other GPUs, in another partition. The exit
    status is 1 if there is none.
    """
    at = None if deadline is None else moment(deadline)
    question = request_of(nodes, limit, memory, deadline=at, **given)
    report = report_of(question, path)
    if as_json:
        print_json(report)
    else:
        show(console(), report, deadline is not None)
    ctx.exit(Exit.GOOD if report.feasible else Exit.FINDINGS)


def request_of(
    nodes: str,
    limit: str | None,
    memory: str | None,
    *,
    deadline: float | None = None,
    **given: Any,
) -> Feasible:
    """Return what a job asks for by the options of a command.

    Raises
    ------
    click.UsageError
        If it makes no sense.
    """
    from rtsched.daemon.questions import Feasible

    least, most = node_range(nodes)
    return Feasible(
        nodes=least,
        nodes_max=most,
        time_s=None if limit is None else seconds(limit),
        deadline=deadline,
        memory=0 if memory is None else size(memory),
        **_checked(given),
    )


def node_range(text: str) -> tuple[int, int | None]:
    """Return fewest and most nodes of `4` or `2-8`."""
    match = _NODES.fullmatch(text.strip())
    least = int(match[1]) if match else 0
    most = int(match[2]) if match and match[2] else None
    if least < 1 or (most is not None and most < least):
        raise click.BadParameter(
            f"{text!r} is not a number of nodes; write 4 or 2-8", param_hint="-N"
        )
    return least, most


def seconds(text: str) -> float:
    """Return the seconds of a time limit."""
    from rtsched.model.units import slurm_duration

    found = slurm_duration(text)
    if not 0 < found < math.inf:
        raise click.BadParameter(
            f"{text!r} is not a time limit; write minutes, H:MM:SS or D-HH:MM", param_hint="-t"
        )
    return found


def size(text: str) -> int:
    """Return the bytes of an amount of memory, as sbatch takes it: MiB where it names no unit."""
    from rtsched.model.units import size_bytes

    found = size_bytes(text, "M")
    if not 1 <= found <= 1 << 60:
        raise click.BadParameter(
            f"{text!r} is not an amount of memory; write 4G or 500M", param_hint="--mem"
        )
    return math.ceil(found)


def moment(text: str) -> float:
    """Return the seconds since the epoch of a deadline."""
    from rtsched.model.units import slurm_moment

    now = time.time()
    found = slurm_moment(text, now, None)
    if not found > now:
        raise click.BadParameter(
            f"{text!r} is not a time in the future; write 18:30, 2026-12-24T08:00 or now+2hours",
            param_hint="--deadline",
        )
    return found


def _checked(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a divisible load and of where to run, refusing what makes no sense."""
    for name in ("sigma", "cms", "cps", "setup_link", "setup_node"):
        value, least = given[name], 0.0
        if value is None:
            continue
        positive = name in {"sigma", "cps"}
        if not math.isfinite(value) or value < least or (positive and value == least):
            bound = "above 0" if positive else "of 0 or more"
            raise click.BadParameter(f"must be a number {bound}", param_hint=_option(name))
    load = {name for name in ("sigma", "cms", "cps") if given[name] is not None}
    if load and len(load) < 3:
        missing = next(name for name in ("sigma", "cms", "cps") if name not in load)
        raise click.UsageError(f"a divisible load needs {_option(missing)} too")
    if given["rounds"] and not load:
        raise click.UsageError("--rounds needs a divisible load: --sigma, --cms, --cps")
    counts = {name: given[name] or 0 for name in ("tasks", "cpus_per_task", "gpus")}
    return given | counts


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def show(out: Console, report: FeasibleReport, asked: bool) -> None:
    """Print a report."""
    now = report.now
    if report.deadline is None:
        indented(out, "no deadline could be promised", 0, "bold")
    elif report.feasible:
        what = "feasible" if asked else "the earliest deadline now"
        indented(
            out, f"{what}: {when(report.deadline, now)}, {gap(report.deadline, now)}", 0, "bold"
        )
    else:
        later = f"the earliest is {when(report.deadline, now)}, {gap(report.deadline, now)}"
        indented(out, f"not feasible; {later}", 0, "bold")
    facts = []
    if report.start is not None:
        facts = [
            ("start", f"{when(report.start, now)}, {gap(max(report.start, now), now)}"),
            ("end", f"{when(report.end, now)} at the latest"),
            ("nodes", f"{len(report.nodes):,}: {node_list(report.nodes)}"),
        ]
    if report.asking:
        facts.append(("ask for it with", report.asking))
    for reason in report.reasons:
        facts.append(("reason", f"{reason.text} ({reason.code})" if reason.code else reason.text))
    show_facts(out, facts)
    if report.choices:
        indented(out, "what could be had instead", 0, "bold")
        show_choices(out, report.choices, now)


SUBMITTERS = {"slurm": ("sbatch", "salloc", "srun"), "condor": ("condor_submit",)}
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
def take(
    number: int | None, words: tuple[str, ...], printed: bool, as_json: bool, path: str
) -> None:
    """Submit FILE with choice NUMBER of those that a rejection offered.

    FILE, with options and arguments, is what you give sbatch or condor_submit; what the choice
    changes is added, and overrides what the file says. `rtsched take 2 salloc -n4` runs salloc, and
    srun likewise. Without FILE the options are printed; without NUMBER the choices are listed.

    The choices are yours alone, for about a minute. Those that are reserved are promised if you
    submit the same job; the others if nobody was faster.
    """
    from rtsched.daemon.questions import Choices

    report = report_of(Choices(), path)
    if as_json and not words:
        print_json(report)
        return
    if number is None:
        show_offers(console(), report)
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
    names = SUBMITTERS[system]
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


def show_offers(out: Console, report: ChoicesReport) -> None:
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
