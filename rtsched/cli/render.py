"""`rtsched render DIR`: the HTML report of a replay that was kept."""

from __future__ import annotations

import json
from pathlib import Path

import click

from rtsched.cli.common import KEPT, debug_option, refuse_unwritable
from rtsched.cli.options import title_option


@click.command("render")
@click.argument(
    "directory",
    metavar="[DIR]",
    type=click.Path(path_type=Path),
    default=KEPT,
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    default="rtsched-report.html",
    show_default=True,
    help="The HTML page: one file that needs no network.",
)
@title_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@debug_option
def command(directory: Path, output: Path, title: str | None, as_json: bool) -> None:
    """Write the HTML report of the replay kept in DIR (default: rtsched-replay).

    Use it if `rtsched replay` ran without the `report` extra, for example on a head node, or with
    --no-report.
    """
    from rtsched.report import html, store

    refuse_unwritable(output, "-o", is_directory=False, replaces=True)
    kept = store.read(directory)
    page = html.render(kept.workload, kept.runs(), kept.summary, title)
    store.write_text(output, page)
    click.echo(json.dumps({"report": str(output)}) if as_json else f"report: {output}")
