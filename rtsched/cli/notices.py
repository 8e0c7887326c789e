"""`rtsched notices`: notify users of changes to their promises."""

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
    """Notify users of changes to their promises, by mail, webhook or a program.

    Runs beside the daemon, as a user of its own, which `admins` in site.toml must list. Events of a
    user's jobs are collected into one notice; a broken promise is sent immediately. The number of
    notices per user and hour is limited, and users choose which events they receive. Runs in the
    foreground until it is stopped (SIGTERM). The log is JSON, one event per line.
    """
    from rtsched.core.config import read_settings
    from rtsched.notices.serving import run
    from rtsched.notices.settings import NoticesSettings

    run(read_settings(file, NoticesSettings))
