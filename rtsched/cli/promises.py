"""Promises and their plan, asked of the daemon: `status`, `plan`, `cancel` and `board`."""

from __future__ import annotations

from pathlib import Path
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
from rtsched.errors import ConfigError
from rtsched.text import counted

if TYPE_CHECKING:
    from rich.console import Console

    from rtsched.daemon.questions import CancelReport, PlanReport, StatusReport


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
def status(ctx: click.Context, metrics: bool, as_json: bool, path: str) -> None:
    """Show the state of the daemon and your promises; admins see those of all users.

    The exit status is 1 if the daemon reports a problem, 3 if it does not answer.
    """
    from rtsched.daemon.questions import Status

    report = report_of(Status(metrics), path)
    if as_json:
        print_json(report)
    elif metrics:
        click.echo(report.metrics or "no metrics: the daemon has none, or you are not an admin")
    else:
        show_status(console(), report)
    ctx.exit(Exit.FINDINGS if report.problems else Exit.GOOD)


def show_status(out: Console, report: StatusReport) -> None:
    """Print a report."""
    mode = MODES[report.mode]
    indented(out, f"rtsched {report.version} on {report.system}{mode}", 0, "bold")
    show_facts(out, daemon_facts(report))
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


def daemon_facts(report: StatusReport) -> list[tuple[str, str]]:
    """Return what is said of the daemon itself."""
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
def plan(site_file: Path | None, as_json: bool, path: str) -> None:
    """Print the plan behind all promises: which job starts when, on which nodes. For admins.

    For a daemon in a dry run (`rtsched serve --dry-run`) it also prints what the last cycle would
    have changed in the batch system.
    """
    from rtsched.daemon.questions import Plan

    report = _by_itself(site_file) if site_file is not None else report_of(Plan(), path)
    if as_json:
        print_json(report)
    else:
        show_plan(console(), report)


def _by_itself(site_file: Path) -> PlanReport:
    """Return what a daemon would plan, without one."""
    from rtsched.cli.check import load_checked
    from rtsched.core.plugins import discover
    from rtsched.daemon.start import plan_once
    from rtsched.daemon.systemd import log_events

    log_events("warning")
    return plan_once(load_checked(site_file, discover()))


def show_plan(out: Console, report: PlanReport) -> None:
    """Print a report."""
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


@click.command("cancel")
@click.argument("job", metavar="[JOB]", default="")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Give up all your promises; as an admin, those of all users. Before rtsched is removed.",
)
@json_option
@socket_option
@debug_option
def cancel(job: str, everything: bool, as_json: bool, path: str) -> None:
    """Give up the promise of JOB, or all promises; the jobs go on as best effort.

    What was planned for it is free for others at once. The job itself stays as it is: to remove
    it, use scancel or condor_rm. A job that still has a deadline in Slurm is cancelled by Slurm at
    that time. Only the job's user and admins may do this, and it cannot be undone.
    """
    from rtsched.daemon.questions import Cancel, Status

    if everything == bool(job):
        raise click.UsageError("name one job, or use --all")
    if everything:
        promises = report_of(Status(), path).promises
        open_ = [each.job for each in promises if each.state in {"firm", "at-risk"}]
        reports = [report for each in open_ if (report := _cancelled(each, path)) is not None]
        young = sum(each.state == "provisional" for each in promises)
        if as_json:
            print_json(reports)
        else:
            click.echo(f"{counted(len(reports), 'promise')} cancelled; the users are informed")
        if young:
            click.echo(
                f"{counted(young, 'promise')} of jobs submitted a moment ago cannot be cancelled "
                "yet; run the command again in a few seconds",
                err=True,
            )
        return
    report = report_of(Cancel(job), path)
    if as_json:
        print_json(report)
        return
    click.echo(f"the promise of job {report.promise.job} is {report.promise.why}")
    click.echo("the job goes on as best effort")


def _cancelled(job: str, path: str) -> CancelReport | None:
    """Give up the promise of a job; return None if it was closed meanwhile."""
    from rtsched.daemon.questions import Cancel, RefusedError

    try:
        report: CancelReport = report_of(Cancel(job), path)
    except RefusedError as error:
        if error.code == "not-found":
            return None
        raise
    return report


@click.command("board")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@debug_option
def board(as_json: bool) -> None:
    """Print a link that opens the board in your browser.

    The board shows the plan, your promises, when a job could be had, and why one waits. The link is
    for one visit within a minute; the session that it opens lasts eight hours. Whoever has the link
    sees what you see: do not pass it on. `rtsched rest` must run, and /etc/rtsched/client.toml,
    RTSCHED_SERVER or DNS name it.
    """
    import json

    from rtsched.rest.client import FILE, SERVER, named_server, open_board

    settings = named_server()
    if settings is None:
        raise ConfigError([f"no server is named there; ask an admin, or set {SERVER}"], FILE)
    link = open_board(settings)
    click.echo(json.dumps({"link": link}) if as_json else link)
