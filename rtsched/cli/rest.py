"""`rtsched rest`: the daemon's answers over HTTP."""

from __future__ import annotations

from pathlib import Path

import click

from rtsched.cli.common import debug_option
from rtsched.errors import MissingExtraError


@click.command("rest")
@click.option(
    "--config",
    "rest_file",
    metavar="REST.TOML",
    type=click.Path(path_type=Path),
    default=Path("/etc/rtsched/rest.toml"),
    show_default=True,
    help="Its settings.",
)
@debug_option
def command(rest_file: Path) -> None:
    """Answer queries over HTTP: TCP with TLS, and a Unix socket.

    Runs beside the daemon, as a user of its own whom the daemon's setting `rest_user` names. With
    it, users' commands work on other hosts, and programs have a REST interface, which
    /schema/openapi.json describes. Runs in the foreground until it is stopped (SIGTERM); SIGHUP
    reads certificate and key again. The log is JSON, one event per line.
    """
    try:
        from rtsched.rest.serving import run
    except ImportError as error:
        raise MissingExtraError("rtsched rest", "rest", str(error)) from error
    from rtsched.core.config import read_settings
    from rtsched.rest.settings import RestSettings

    run(read_settings(rest_file, RestSettings))
