"""`rtsched board`: a link to the board."""

from __future__ import annotations

import click

from rtsched.cli.common import debug_option
from rtsched.errors import ConfigError


@click.command("board")
@debug_option
def command() -> None:
    """Print a link that opens the board in your browser.

    The board shows the plan, your promises, when a job could be had, and why one waits. The link is
    for one visit within a minute; the session that it opens lasts eight hours. Whoever has the link
    sees what you see: do not pass it on. `rtsched rest` must run, and /etc/rtsched/client.toml or
    RTSCHED_SERVER name it.
    """
    from rtsched.rest.client import FILE, SERVER, named_server, open_board

    settings = named_server()
    if settings is None:
        raise ConfigError([f"no server is named there; ask an admin, or set {SERVER}"], FILE)
    click.echo(open_board(settings))
