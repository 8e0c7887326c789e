"""`rtsched cancel`: give up a promise."""

from __future__ import annotations

import click

from rtsched.cli.asking import json_option, print_json, report_of, socket_option
from rtsched.cli.common import debug_option
from rtsched.counting import counted


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
        status = report_of(Status(), path)
        jobs = [each.job for each in status.promises if each.standing in {"firm", "at-risk"}]
        reports = [report_of(Cancel(each), path) for each in jobs]
        if as_json:
            print_json(reports)
            return
        click.echo(f"{counted(len(reports), 'promise')} cancelled; the users are informed")
        return
    report = report_of(Cancel(job), path)
    if as_json:
        print_json(report)
        return
    click.echo(f"the promise of job {report.promise.job} is {report.promise.why}")
    click.echo("the job goes on as best effort")
