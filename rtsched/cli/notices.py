"""`rtsched notices`: tell users what becomes of their promises."""

from __future__ import annotations

from pathlib import Path

import click

from rtsched.cli.common import debug_option


@click.command("notices")
@click.option(
    "--config",
    "file",
    metavar="NOTICES.TOML",
    type=click.Path(path_type=Path),
    default=Path("/etc/rtsched/notices.toml"),
    show_default=True,
    help="Its settings.",
)
@debug_option
def command(file: Path) -> None:
    """Tell users by mail, webhook or a program what becomes of their promises.

    Runs beside the daemon, as a user of its own whom `admins` in site.toml names. What happens to a
    user's jobs is put together, a broken promise is told at once, and nobody gets more than so many
    notices per hour. Users choose what they are told. Runs in the foreground until it is stopped
    (SIGTERM). The log is JSON, one event per line.
    """
    from rtsched.core.config import read_settings
    from rtsched.notices.serving import run
    from rtsched.notices.settings import NoticesSettings

    run(read_settings(file, NoticesSettings))
