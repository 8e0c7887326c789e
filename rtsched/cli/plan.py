"""`rtsched plan`: how all promises are to be kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rtsched.cli.asking import (
    json_option,
    print_json,
    promise_rows,
    report_of,
    show_table,
    socket_option,
)
from rtsched.cli.common import console, debug_option, indented

if TYPE_CHECKING:
    from rich.console import Console

    from rtsched.daemon.reports import PlanReport


@click.command("plan")
@json_option
@socket_option
@debug_option
def command(as_json: bool, path: str) -> None:
    """Print the plan behind all promises: which job starts when, on which nodes. For admins.

    Of a daemon in a dry-run (`rtsched serve --dry-run`) it also prints what the last cycle would
    have changed in the batch system.
    """
    from rtsched.daemon.reports import Plan

    report = report_of(Plan(), path)
    if as_json:
        print_json(report)
    else:
        show(console(), report)


def show(out: Console, report: PlanReport) -> None:
    """Print a report."""
    from rtsched.counting import counted

    planned = counted(len(report.entries), "planned job")
    indented(out, f"plan {report.version}: {planned}", 0, "bold")
    if report.entries:
        show_table(out, *promise_rows(report.entries, report.now, everyone=True))
    if report.mode != "dry-run":
        return
    out.print()
    changes = counted(len(report.changes), "change")
    indented(out, f"a dry-run: {changes} would be made, nothing is", 0, "bold")
    if report.changes:
        rows = [(each.kind, each.job, each.text) for each in report.changes]
        show_table(out, ("kind", "job", "what would be done"), rows)
