"""`rtsched feasible`: which deadline a job could have now."""

from __future__ import annotations

import math
import re
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
    socket_option,
    when,
)
from rtsched.cli.common import Exit, console, debug_option, indented
from rtsched.daemon.reports import MOST_COUNTED, MOST_ROUNDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from rtsched.daemon.reports import Feasible, FeasibleReport

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
def command(
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
    from rtsched.daemon.reports import Feasible

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
        from rtsched.cli.take import show_choices

        indented(out, "what could be had instead", 0, "bold")
        show_choices(out, report.choices, now)
