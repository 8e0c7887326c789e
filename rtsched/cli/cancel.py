"""`rtsched cancel`: give up a promise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rtsched.cli.asking import json_option, print_json, report_of, socket_option
from rtsched.cli.common import debug_option
from rtsched.counting import counted

if TYPE_CHECKING:
    from rtsched.daemon.reports import CancelReport


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
def command(job: str, everything: bool, as_json: bool, path: str) -> None:
    """Give up the promise of JOB, or all promises; the jobs go on as best effort.

    What was planned for it is free for others at once. The job itself stays as it is: to remove
    it, use scancel or condor_rm. A job that still has a deadline in Slurm is cancelled by Slurm at
    that time. Only the job's user and admins may do this, and it cannot be undone.
    """
    from rtsched.daemon.reports import Cancel, Status

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
    from rtsched.daemon.reports import Cancel, RefusedError

    try:
        report: CancelReport = report_of(Cancel(job), path)
    except RefusedError as error:
        if error.code == "not-found":
            return None
        raise
    return report
