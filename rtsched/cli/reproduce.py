"""`rtsched reproduce NAME`: a paper's tables and figures, ours beside the printed values."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from rtsched.cli.common import (
    Exit,
    Group,
    ProgressBars,
    console,
    debug_option,
    refuse_unwritable,
    say,
)
from rtsched.cli.options import from_options, options_of
from rtsched.reproduce import executor, reproduce, reproductions
from rtsched.reproduce.pages import (
    as_object,
    cells,
    claim_verdict,
    notes,
    row_verdicts,
    summary,
    verdict,
    write,
)
from rtsched.reproduce.study import WHERE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from rtsched.reproduce import Parameters, Reproduced, Reproduction


class Papers(Group):
    """One command per reproduction, made from its parameters."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of the reproductions."""
        return list(reproductions())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return the command of one reproduction; None if there is none of this name."""
        kind = reproductions().get(cmd_name)
        return None if kind is None else _command_of(kind)


@click.command("reproduce", cls=Papers, subcommand_metavar="NAME [OPTIONS]")
@debug_option
def command() -> None:
    """Reproduce a paper's tables and figures next to the printed values.

    All values are computed in the run; parameters change them. A full run may take minutes;
    --reduced does fewer runs, so that tolerances are wider. The exit status is 1 if any value or
    claim differs, whether or not the reason is known: for most papers some do.
    """


def _common(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(
        [
            click.option(
                "--reduced", is_flag=True, help="Reduced size: seconds instead of minutes."
            ),
            click.option(
                "--executor",
                "where",
                type=click.Choice(list(WHERE)),
                default="processes",
                show_default=True,
                help="Where to run the parts: "
                + "; ".join(f"{name}: {text}" for name, text in WHERE.items())
                + ".",
            ),
            click.option(
                "--workers", type=click.IntRange(1), help="Number of parts to run in parallel."
            ),
            click.option("--scheduler", default="", help="Address of a Dask scheduler."),
            click.option(
                "--out",
                metavar="DIR",
                type=click.Path(path_type=Path),
                help=(
                    "Write the page (Markdown), the values (JSON) and the plots "
                    "(SVG) to this directory."
                ),
            ),
            click.option("--json", "as_json", is_flag=True, help="Print the values as JSON."),
        ]
    ):
        function = option(function)
    return function


def _command_of(kind: type[Reproduction]) -> click.Command:
    @_common
    @debug_option
    @click.pass_context
    def run(
        ctx: click.Context,
        /,
        reduced: bool,
        where: Any,
        workers: int | None,
        scheduler: str,
        out: Path | None,
        as_json: bool,
        **given: Any,
    ) -> None:
        if out is not None:
            refuse_unwritable(out, "--out", is_directory=True)
        base = kind.reduced if reduced else kind.full
        parameters: Parameters = from_options(type(base), given, msgspec.to_builtins(base))
        with (
            executor(where, workers, scheduler) as pool,
            ProgressBars(wanted=not as_json) as bars,
            bars.step(kind.name) as advance,
        ):
            done = reproduce(kind(), parameters, pool, advance)
        if as_json:
            click.echo(msgspec.json.encode(as_object(done)).decode())
        else:
            show(done, console())
        for path in write(done, out) if out is not None else ():
            say(f"wrote {path}")
        ctx.exit(Exit.FINDINGS if done.differ else Exit.GOOD)

    text = f"{kind.source}.\n\n{(kind.__doc__ or '').strip()}"
    return click.command(kind.name, help=text)(options_of(type(kind.full))(run))


def show(done: Reproduced, out: Console) -> None:
    """Print a reproduction: sheets, claims, and what it comes to."""
    out.print(f"{done.name}: {done.source}", style="bold", markup=False)
    for sheet in done.findings.sheets:
        out.print(f"\n{sheet.title} ({sheet.source})", style="bold", markup=False)
        _print_table(
            out,
            ["", *sheet.columns, "verdict"],
            [
                [label, *row, remark]
                for label, row, remark in zip(
                    sheet.rows, cells(sheet), row_verdicts(sheet), strict=True
                )
            ],
        )
        out.print(f"  {verdict(sheet)}", markup=False)
        for note in notes(sheet):
            out.print(f"  {note}", markup=False)
    if done.findings.claims:
        out.print("\nClaims", style="bold")
    for claim in done.findings.claims:
        out.print(f"  {claim.text}: {claim_verdict(claim)} ({claim.evidence})", markup=False)
        if claim.why:
            out.print(f"    {claim.why}", markup=False)
    out.print(f"\n{summary(done)}", style="bold", markup=False)


def _print_table(out: Console, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, in as many pieces side by side as the terminal's width wants."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    lead = max(len(row[0]) for row in rows) if rows else 0
    widths = [
        max([len(columns[k]), *(len(row[k]) for row in rows)]) for k in range(1, len(columns))
    ]
    at = 1
    while at < len(columns):
        used, end = lead + widths[at - 1] + 4, at + 1
        while end < len(columns) and used + widths[end - 1] + 2 <= out.width:
            used, end = used + widths[end - 1] + 2, end + 1
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
        table.add_column("")
        for name in columns[at:end]:
            table.add_column(Text(name), justify="right", no_wrap=True)
        for row in rows:
            table.add_row(Text(row[0]), *(Text(cell) for cell in row[at:end]))
        out.print(table)
        at = end
