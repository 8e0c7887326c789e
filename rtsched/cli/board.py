"""`rtsched board`: a link to the board."""

from __future__ import annotations

import json

import click

from rtsched.cli.common import debug_option
from rtsched.errors import ConfigError


@click.command("board")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@debug_option
def command(as_json: bool) -> None:
    """Print a link that opens the board in your browser.

    The board shows the plan, your promises, when a job could be had, and why one waits. The link is
    for one visit within a minute; the session that it opens lasts eight hours. Whoever has the link
    sees what you see: do not pass it on. `rtsched rest` must run, and /etc/rtsched/client.toml,
    RTSCHED_SERVER or DNS name it.
    """
    from rtsched.rest.client import FILE, SERVER, named_server, open_board

    settings = named_server()
    if settings is None:
        raise ConfigError([f"no server is named there; ask an admin, or set {SERVER}"], FILE)
    link = open_board(settings)
    click.echo(json.dumps({"link": link}) if as_json else link)
