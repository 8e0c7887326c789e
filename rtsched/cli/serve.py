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
    help="The site's settings; `rtsched check` says what they would do.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Judge and plan for the live cluster, and touch nothing: `rtsched plan` shows what would "
    "be done. Promises of a dry-run bind nobody and are forgotten at its end.",
)
@debug_option
def command(site_file: Path, dry_run: bool) -> None:
    """Answer the submit filter, keep promises, and steer the batch system.

    Runs in the foreground until it is stopped (SIGTERM); systemd starts it on a head node. It needs
    no root. What it logs is JSON, one event a line.
    """
    from rtsched.cli.check import load_checked
    from rtsched.core.plugins import discover
    from rtsched.daemon.start import serve

    serve(lambda: load_checked(site_file, discover()), dry_run)
