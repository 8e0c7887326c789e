"""Options and output of the commands that ask the daemon."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from rtsched.daemon.query_client import SOCKET

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from rtsched.daemon.questions import PromiseStatus, Question

socket_option: Callable[[Any], Any] = click.option(
    "--socket",
    "path",
    metavar="PATH",
    envvar="RTSCHED_SOCKET",
    default=SOCKET,
    show_default=True,
    help="Socket of the daemon for queries; default from the environment variable RTSCHED_SOCKET. "
    "Where there is none, the server in RTSCHED_SERVER, /etc/rtsched/client.toml or DNS is asked.",
)
json_option: Callable[[Any], Any] = click.option(
    "--json", "as_json", is_flag=True, help="Print the daemon's report as one JSON object."
)

WIDEST = 10_000
"""Characters of a line of a table at most."""


def report_of(question: Question, path: str) -> Any:
    """Return the daemon's report: by its socket, or by the site's server."""
    from rtsched.rest.client import ask_server, server_for

    if (server := server_for(path)) is not None:
        return ask_server(question, server)
    from rtsched.daemon.query_client import ask

    return ask(question, path)


def answers(path: str) -> bool:
    """Return whether there is a daemon to ask: its socket, or the site's server."""
    from rtsched.rest.client import server_for

    return os.path.exists(path) or server_for(path) is not None


def print_json(report: Any) -> None:
    """Print a report as it came."""
    import msgspec

    click.echo(msgspec.json.encode(report).decode())


def when(at: float | None, now: float) -> str:
    """Return an instant in local time, with the date if it is not today."""
    from rtsched.report.wording import MISSING
    from rtsched.text import moment

    return MISSING if at is None else moment(at, now)


def zone(now: float) -> str:
    """Return the local offset from UTC, such as `+0100`, for the head of a table."""
    import time

    return time.strftime("%z", time.localtime(now))


def brief(at: float | None, now: float) -> str:
    """Return an instant as `when` does, without the offset that stands in the table's head."""
    return when(at, now).removesuffix(f" {zone(now)}")


def gap(at: float | None, now: float) -> str:
    """Return how far away an instant is: `in 3m 20s`, `now`, `2h 05m ago`."""
    from rtsched.report.wording import MISSING, duration

    if at is None:
        return MISSING
    away = round(at - now)
    if away == 0:
        return "now"
    return f"in {duration(away)}" if away > 0 else f"{duration(-away)} ago"


def node_list(names: Sequence[str]) -> str:
    """Return nodes as the batch system writes them."""
    from rtsched.logs.hostlist import fold
    from rtsched.report.wording import MISSING

    return fold(names) or MISSING


def show_facts(out: Console, facts: Sequence[tuple[str, str]]) -> None:
    """Print named values, one a line."""
    from rtsched.cli.common import indented

    for name, text in facts:
        indented(out, text, 18, lead=f"  {name}")


def show_table(
    out: Console, titles: Sequence[str], rows: Sequence[Sequence[str]], *, lines: bool = False
) -> None:
    """Print a table; what users named is shown, never obeyed.

    With `lines` it is as wide as it needs, one line a row, for people who search it.
    """
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    from rtsched.report.wording import visible

    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for title in titles:
        table.add_column(Text(title), overflow="fold", no_wrap=lines)
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    if not lines:
        out.print(table)
        return
    width, wide = out.width, out.options.update(max_width=WIDEST)
    out.width = max(width, Measurement.get(out, wide, table).maximum)
    out.print(table)
    out.width = width


def progress(promise: PromiseStatus) -> str:
    """Return how far an array is, to follow its name; empty: it is none."""
    if promise.tasks is None or promise.waiting is None:
        return ""
    return f" ({promise.tasks - promise.waiting:,} of {promise.tasks:,} tasks started)"


def promise_rows(
    promises: Sequence[PromiseStatus], now: float, everyone: bool
) -> tuple[list[str], list[list[str]]]:
    """Return the titles and rows of a table of promises."""
    from rtsched.report.wording import shortened
    from rtsched.text import state_of

    titles = ["job", "name", *(["user"] if everyone else []), "state"]
    titles += [f"finish by ({zone(now)})", "start", "end", "nodes"]
    rows = []
    for promise in promises:
        user = [promise.user] if everyone else []
        start = brief(promise.start, now)
        rows.append(
            [
                promise.job or "(none yet)",
                shortened(promise.name, 24) + progress(promise),
                *user,
                state_of(promise.state, promise.odds, promise.odds_now),
                brief(promise.deadline, now),
                f"{start} ({'suspended' if promise.suspended else 'runs'})"
                if promise.running
                else start,
                brief(promise.end, now),
                node_list(promise.nodes),
            ]
        )
    return titles, rows
