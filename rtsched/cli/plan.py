"""`rtsched plan`: how all promises are to be kept."""

from __future__ import annotations

from pathlib import Path
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
@click.option(
    "--config",
    "site_file",
    metavar="SITE.TOML",
    type=click.Path(path_type=Path),
    help="Do not query a daemon: poll the batch system once and print what a daemon with these "
    "settings would plan and change. Nothing is changed.",
)
@json_option
@socket_option
@debug_option
def command(site_file: Path | None, as_json: bool, path: str) -> None:
    """Print the plan behind all promises: which job starts when, on which nodes. For admins.

    For a daemon in a dry run (`rtsched serve --dry-run`) it also prints what the last cycle would
    have changed in the batch system.
    """
    from rtsched.daemon.reports import Plan

    report = _by_itself(site_file) if site_file is not None else report_of(Plan(), path)
    if as_json:
        print_json(report)
    else:
        show(console(), report)


def _by_itself(site_file: Path) -> PlanReport:
    """Return what a daemon would plan, without one."""
    from rtsched.cli.check import load_checked
    from rtsched.core.plugins import discover
    from rtsched.daemon.start import plan_once
    from rtsched.daemon.systemd import log_events

    log_events("warning")
    return plan_once(load_checked(site_file, discover()))


def show(out: Console, report: PlanReport) -> None:
    """Print a report."""
    from rtsched.counting import counted

    planned = counted(len(report.entries), "planned job")
    indented(out, f"plan {report.version}: {planned}", 0, "bold")
    if report.entries:
        show_table(out, *promise_rows(report.entries, report.now, everyone=True), lines=True)
    if report.mode != "dry-run":
        return
    out.print()
    changes = counted(len(report.changes), "change")
    indented(out, f"dry run: {changes} would be made, none is", 0, "bold")
    if report.changes:
        rows = [(each.kind, each.job, each.text) for each in report.changes]
        show_table(out, ("kind", "job", "what would be changed"), rows)
