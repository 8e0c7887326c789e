"""`rtsched explain JOB`: why a job was rejected, or waited; of a replay, or of the live cluster."""

from __future__ import annotations

import os
from pathlib import Path

import click

from rtsched.cli.asking import answers, socket_option
from rtsched.cli.common import KEPT, debug_option


@click.command("explain")
@click.argument("job", metavar="[JOB]", required=False)
@click.option(
    "--from",
    "directory",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help=f"Directory with saved results of `rtsched replay`. Default: {KEPT}, if it exists.",
)
@click.option(
    "--policy",
    "names",
    metavar="NAME",
    multiple=True,
    help="Explain only this policy; repeatable. Default: all of the replay.",
)
@click.option("--live", is_flag=True, help="Query the daemon even if there is a replay.")
@click.option(
    "--last",
    metavar="N",
    type=click.IntRange(1, 1000),
    is_flag=False,
    flag_value=1,
    help="Query the daemon for the replies to your last N submissions, including rejected ones.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object: the daemon's report, or what the replay has of the job.",
)
@socket_option
@debug_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    job: str | None,
    directory: Path | None,
    names: tuple[str, ...],
    live: bool,
    last: int | None,
    as_json: bool,
    path: str,
) -> None:
    """Explain why JOB was rejected or waits, on the live cluster or in a replay.

    JOB is the batch system's own name of the job (`4711`, `4711_3`, `12.0`). If there are saved
    results of `rtsched replay`, they are read; otherwise the daemon is queried. For a replay, a
    rejection is explained by the plug-in, its reason and numbers and the counter-offer, under each
    policy; a wait by the state of the queue, the jobs ahead of it and those that overtook it. The
    daemon shows what was promised and planned, why the job waits, and what would help. Times are
    local; set TZ for another zone.
    """
    asks = live or last is not None or (as_json and not os.path.exists(KEPT))
    if directory is None and not names and _asks_daemon(asks, path):
        from rtsched.cli.explain_live import explain_live

        if job is None and last is None:
            raise click.UsageError("give a JOB or --last")
        ctx.exit(explain_live(job or "", last or 5, path, as_json))
    if job is None or live or last is not None:
        raise click.UsageError("for a replay, give a JOB; --live and --last apply to the daemon")
    from rtsched.cli.explain_replay import explain_replay

    explain_replay(job, directory or Path(KEPT), names, as_json)


def _asks_daemon(wanted: bool, path: str) -> bool:
    """Return whether the daemon is meant: asked for, or no replay here but a daemon's socket."""
    return wanted or (not os.path.exists(KEPT) and answers(path))
