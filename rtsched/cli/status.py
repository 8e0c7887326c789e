"""`rtsched status`: how the daemon is, and what you are promised."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rtsched.cli.asking import (
    gap,
    json_option,
    print_json,
    promise_rows,
    report_of,
    show_facts,
    show_table,
    socket_option,
    when,
)
from rtsched.cli.common import Exit, console, debug_option, indented

if TYPE_CHECKING:
    from rich.console import Console

    from rtsched.daemon.reports import StatusReport


MODES = {
    "live": "",
    "dry-run": ", dry run (changes nothing)",
    "standby": ", on standby",
}
"""What is said of a daemon's mode."""


@click.command("status")
@click.option("--metrics", is_flag=True, help="Print the metrics in Prometheus text format.")
@json_option
@socket_option
@debug_option
@click.pass_context
def command(ctx: click.Context, metrics: bool, as_json: bool, path: str) -> None:
    """Show the state of the daemon and your promises; admins see those of all users.

    The exit status is 1 if the daemon reports a problem, 3 if it does not answer.
    """
    from rtsched.daemon.reports import Status

    report = report_of(Status(metrics), path)
    if as_json:
        print_json(report)
    elif metrics:
        click.echo(report.metrics or "no metrics: the daemon has none, or you are not an admin")
    else:
        show(console(), report)
    ctx.exit(Exit.FINDINGS if report.problems else Exit.GOOD)


def show(out: Console, report: StatusReport) -> None:
    """Print a report."""
    mode = MODES[report.mode]
    indented(out, f"rtsched {report.version} on {report.system}{mode}", 0, "bold")
    show_facts(out, facts(report))
    for problem in report.problems:
        indented(out, problem, 18, "yellow", lead="  problem")
    out.print()
    if report.mode == "standby":
        out.print("promises are shown where the active daemon runs")
        return
    if not report.promises:
        out.print("no promises" if report.everyone else "you have no promises")
        return
    show_table(out, *promise_rows(report.promises, report.now, report.everyone), lines=True)


def facts(report: StatusReport) -> list[tuple[str, str]]:
    """Return what is said of the daemon itself."""
    from rtsched.counting import counted
    from rtsched.report.wording import clocked

    now = report.now
    peers = [
        (f"on {each.host}", each.state + (f", seen {when(each.seen, now)}" if each.seen else ""))
        for each in report.peers
    ]
    if report.mode == "standby":
        return [("running since", when(report.started, now)), *peers]
    looked = "never" if report.looked is None else gap(min(report.looked, now), now)
    found = [
        ("running since", when(report.started, now)),
        ("last poll", looked),
        (
            "sees",
            f"{counted(report.queued, 'job')} waiting, {report.running:,} running; "
            f"{counted(report.nodes, 'node')}, {report.usable:,} of them accept jobs",
        ),
    ]
    if report.cycle_s is not None:
        found.append(("last cycle", clocked(report.cycle_s)))
    if report.lag_s is not None and report.everyone:
        late = " (the submit filter may time out)" if report.lag_s >= 0.05 else ""
        found.append(("longest delay", f"{report.lag_s * 1000:.0f} ms{late}"))
    if report.states:
        counts = (f"{number:,} {name}" for name, number in report.states.items())
        found.append(("promises", ", ".join(counts)))
    return [*found, *peers]
