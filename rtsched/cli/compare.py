"""Replays that were kept: `compare` several, policy beside policy, or `render` the page of one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rtsched.cli.common import KEPT, console, debug_option, refuse_unwritable
from rtsched.cli.options import title_option
from rtsched.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rtsched.report.comparison import Difference, Values
    from rtsched.report.files import TableFormat


SHOWN = (
    "mean_wait_s",
    "mean_bounded_slowdown",
    "utilisation",
    "reject_ratio",
    "in_time_ratio",
    "miss_ratio",
    "promises_kept",
)
"""Measures that are printed where no others are asked for."""


LAST = "comparison.json"
"""The file that is written last: with it, a directory is complete."""


@click.command("compare")
@click.argument("directories", metavar="DIR...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--baseline", metavar="POLICY", help="Compare with this one; default: the first.")
@click.option(
    "--measure",
    "measures",
    metavar="NAME[,NAME]",
    help="Measures to print; `all` for all. They are listed in the reference.",
)
@click.option(
    "--confidence",
    type=click.FloatRange(0.5, 0.9999),
    default=0.95,
    show_default=True,
    help="Of the intervals.",
)
@click.option(
    "--out",
    metavar="OUT",
    type=click.Path(path_type=Path),
    help="Directory for values and differences as tables, and a plot of each measure.",
)
@click.option(
    "--format",
    "table_format",
    type=click.Choice(["parquet", "csv"]),
    default="parquet",
    show_default=True,
    help="Of the tables.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the differences as JSON.")
@debug_option
def compare(
    directories: tuple[Path, ...],
    baseline: str | None,
    measures: str | None,
    confidence: float,
    out: Path | None,
    table_format: TableFormat,
    as_json: bool,
) -> None:
    """Compare the policies of replays kept in DIRs, pair by pair.

    Each DIR is what `rtsched replay --out DIR` kept: of another log, or of another seed of
    `rtsched synth`. On each, every policy is compared with the baseline; the means of these pairs,
    with intervals from six pairs on, say more than means over logs that differ.
    """
    from rtsched.report.comparison import as_json as rows_of
    from rtsched.report.comparison import differences, read_values

    if not directories:
        raise click.UsageError("give the directories of replays: `rtsched replay LOG --out DIR`")
    if out is not None:
        refuse_unwritable(out, "--out", is_directory=True)
    values = read_values(directories, baseline)
    chosen = _measures(measures, values)
    found = differences(values, confidence)
    written = [] if out is None else _write(values, found, out, table_format)
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode(rows_of(found)).decode())
        return
    _show(values, [each for each in found if each.measure in chosen], confidence)
    if written:
        click.echo(f"\nwritten to {out}: {', '.join(written)}")


def _measures(text: str | None, values: Values) -> Sequence[str]:
    """Return the measures to print.

    Raises
    ------
    ConfigError
        If one is unknown.
    """
    from rtsched.replay.measures import MEASURES

    if text is None:
        return SHOWN
    if text == "all":
        return list(values.values)
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in MEASURES]:
        raise ConfigError([f"--measure: there is no measure {unknown[0]!r}"])
    return names


def _write(
    values: Values, found: Sequence[Difference], out: Path, table_format: TableFormat
) -> list[str]:
    """Write the tables, the plots and, last, the differences as JSON; return the files' names."""
    import msgspec

    from rtsched.report.comparison import as_json, difference_cells, draw, value_cells
    from rtsched.report.files import created, replacing, writer_of

    write, names = writer_of(table_format), []
    tables = {"values": value_cells(values), "differences": difference_cells(found)}
    with replacing(out, LAST) as new:
        for name, cells in tables.items():
            names.append(f"{name}.{table_format}")
            with created(new / names[-1]) as file:
                write(file, cells)
        names += draw(values, found, new)
        with created(new / LAST) as file:
            file.write(msgspec.json.format(msgspec.json.encode(as_json(found))))
    return [*names, LAST]


def _show(values: Values, found: Sequence[Difference], confidence: float) -> None:
    import numpy as np
    from rich.table import Table
    from rich.text import Text

    from rtsched.replay.measures import MEASURES
    from rtsched.report.wording import MISSING, quantity, visible
    from rtsched.text import counted

    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    first = visible(values.policies[0])
    titles = ("measure", "policy", first, "mean", "difference", f"{confidence:.0%} interval")
    for title in (*titles, "better, worse"):
        table.add_column(Text(title), overflow="fold")
    for each in found:
        unit = MEASURES[each.measure].unit

        def shown(value: float, name: str = each.measure, unit: str = unit) -> str:
            return quantity(value, name, unit)

        between = MISSING
        if np.isfinite(each.low):
            between = f"{shown(each.low)} to {shown(each.high)}"
        cells = [each.measure, each.policy, shown(each.baseline), shown(each.mean)]
        cells += [shown(each.difference), between, f"{each.better}, {each.worse}"]
        table.add_row(*(Text(visible(cell)) for cell in cells))
    out = console()
    out.print(f"{counted(len(values.replays), 'replay')}; baseline {first}", markup=False)
    if values.left_out:
        names = visible(", ".join(values.left_out))
        out.print(f"left out, as they are not in all replays: {names}", markup=False)
    out.print()
    out.print(table)


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
def render(directory: Path, output: Path, title: str | None, as_json: bool) -> None:
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
