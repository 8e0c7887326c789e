"""Commands that stay: the daemon (`serve`), its HTTP server (`rest`) and its `notices`."""

from __future__ import annotations

from pathlib import Path

import click

from rtsched.cli.common import SITE, debug_option, path_option
from rtsched.errors import MissingExtraError
from rtsched.loading import loading


@click.command("serve")
@path_option(
    "--config", "SITE.TOML", "The site's settings; `rtsched check` shows what they configure.", SITE
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Evaluate and plan for the live cluster without changing anything: `rtsched plan` shows "
    "what would be changed. Promises of a dry run are not binding and are discarded at its end.",
)
@debug_option
def serve(config: Path, dry_run: bool) -> None:
    """Answer the submit filter, keep promises, and control the batch system.

    Runs in the foreground until it is stopped (SIGTERM); on a head node it is started by systemd.
    It does not need root. The log is JSON, one event per line.
    """
    with loading():
        from rtsched.cli.check import load_checked
        from rtsched.core.plugins import discover
        from rtsched.daemon import start

    start.serve(lambda: load_checked(config, discover()), dry_run)


@click.command("rest")
@path_option("--config", "REST.TOML", "Its settings.", Path("/etc/rtsched/rest.toml"))
@debug_option
def rest(config: Path) -> None:
    """Answer queries over HTTP: TCP with TLS, and a Unix socket.

    Runs beside the daemon, as a user of its own whom the daemon's setting `rest_user` names. With
    it, users' commands work on other hosts, and programs have a REST interface, which
    /schema/openapi.json describes. Runs in the foreground until it is stopped (SIGTERM); SIGHUP
    reads certificate and key again. The log is JSON, one event per line.
    """
    try:
        with loading():
            from rtsched.rest.serving import run
    except ImportError as error:
        raise MissingExtraError("rtsched rest", "rest", str(error)) from error
    from rtsched.core.config import read_settings
    from rtsched.rest.settings import RestSettings

    run(read_settings(config, RestSettings))


@click.command("notices")
@path_option("--config", "NOTICES.TOML", "Its settings.", Path("/etc/rtsched/notices.toml"))
@debug_option
def notices(config: Path) -> None:
    """Notify users of changes to their promises, by mail, webhook or a program.

    Runs beside the daemon, as a user of its own, which `admins` in site.toml must list. Events of a
    user's jobs are collected into one notice; a broken promise is sent immediately. The number of
    notices per user and hour is limited, and users choose which events they receive. Runs in the
    foreground until it is stopped (SIGTERM). The log is JSON, one event per line.
    """
    from rtsched.core.config import read_settings
    from rtsched.notices import NoticesSettings, run

    run(read_settings(config, NoticesSettings))
