"""`rtsched serve`: the daemon."""

from __future__ import annotations

from pathlib import Path

import click

from rtsched.cli.common import debug_option

DEFAULT = Path("/etc/rtsched/site.toml")


@click.command("serve")
@click.option(
    "--config",
    "site_file",
    metavar="SITE.TOML",
    type=click.Path(path_type=Path),
    default=DEFAULT,
    show_default=True,
    help="The site's settings; `rtsched check` shows what they configure.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Evaluate and plan for the live cluster without changing anything: `rtsched plan` shows "
    "what would be changed. Promises of a dry run are not binding and are discarded at its end.",
)
@debug_option
def command(site_file: Path, dry_run: bool) -> None:
    """Answer the submit filter, keep promises, and control the batch system.

    Runs in the foreground until it is stopped (SIGTERM); on a head node it is started by systemd.
    It does not need root. The log is JSON, one event per line.
    """
    from rtsched.cli.check import load_checked
    from rtsched.core.plugins import discover
    from rtsched.daemon.start import serve

    serve(lambda: load_checked(site_file, discover()), dry_run)
