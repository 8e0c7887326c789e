"""`rtsched calibrate LOG...`: what the models need, estimated from a site's own log."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rtsched.cli.common import Exit, console, debug_option, indented, refuse_unwritable, say
from rtsched.cli.options import reading_of, reading_options
from rtsched.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from rtsched.calibrate import Calibration, Estimate, Loads, Refused, RequestedTimes, Speeds

_MOST_SHOWN = 40


@click.command("calibrate")
@click.argument("logs", metavar="LOG...", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--group",
    "groups",
    metavar="PATTERN",
    multiple=True,
    help="Treat nodes with matching names as equal and estimate one speed for them. Repeatable; "
    "the first match counts. Default: one speed per node.",
)
@click.option(
    "--unit",
    type=click.Choice(["auto", "core", "node"]),
    default="auto",
    show_default=True,
    help="What a divisible load is divided over. auto: nodes, if all jobs held the same number of "
    "cores, several, on each of their nodes; else cores.",
)
@click.option(
    "--no-setup", is_flag=True, help="Divisible loads have no set-up times; do not estimate them."
)
@click.option(
    "--within",
    metavar="PERCENT",
    type=float,
    multiple=True,
    default=(90.0, 95.0, 99.0),
    show_default=True,
    help="Show which share of the requested time this share of jobs stays within. Repeatable.",
)
@reading_options
@click.option(
    "--out",
    metavar="SITE.TOML",
    type=click.Path(path_type=Path),
    help="Write the tables of a site.toml to this file, with intervals as comments.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the estimates as one JSON object.")
@debug_option
@click.pass_context
def command(
    ctx: click.Context, /, logs: tuple[Path, ...], out: Path | None, as_json: bool, **given: Any
) -> None:
    """Estimate what the models need from accounting logs, with 95 % intervals.

    Node speeds come from repeated jobs on different nodes; the times to send and to compute a unit
    of load and to set up both, from repeated jobs on different numbers of nodes; margins from run
    times against requested times. What the log does not show is reported with the reason, not
    guessed. The exit status is 1 if it shows nothing.
    """
    import msgspec

    from rtsched.calibrate import Refused
    from rtsched.calibrate.fragment import site_toml

    if not logs:
        raise click.UsageError("give at least one LOG")
    if out is not None:
        refuse_unwritable(out, "--out", is_directory=False, inputs=logs)
    found = estimate(logs, given)
    if as_json:
        click.echo(msgspec.json.encode(as_object(found)).decode())
    else:
        show(found, console())
    if out is not None:
        out.write_text(site_toml(found), "utf-8")
        say(f"wrote {out}")
    parts = (found.speeds, found.loads, found.requests)
    ctx.exit(Exit.FINDINGS if all(isinstance(each, Refused) for each in parts) else Exit.GOOD)


def estimate(logs: Sequence[Path], given: dict[str, Any]) -> Calibration:
    """Return what logs tell under the options given."""
    from rtsched.calibrate import Options, calibrate
    from rtsched.logs.readers import read_logs
    from rtsched.model.units import known_zone

    if any(not each for each in given["groups"]):
        raise ConfigError(["--group: a pattern is empty; write one such as 'fast*'"])
    options = Options(
        given["unit"],
        tuple(dict.fromkeys(given["groups"])),
        tuple(round(percent / 100, 12) for percent in given["within"]),
        not given["no_setup"],
    )
    known_zone(given["timezone"])
    return calibrate(read_logs(logs, reading_of(given, details=True)), options)


def as_object(found: Calibration) -> dict[str, Any]:
    """Return the estimates as JSON has them; a number that is not bounded is null."""
    from rtsched.calibrate import RequestedTimes, Speeds

    table = asdict(found)
    speeds = found.speeds
    if isinstance(speeds, Speeds):
        table["speeds"] |= {
            "node": [found.places[node] for node in speeds.node.tolist()],
            "component": speeds.component.tolist(),
            "fastest": speeds.fastest.tolist(),
            "jobs": speeds.jobs.tolist(),
        }
    if isinstance(found.requests, RequestedTimes):
        quantiles = table["requests"]["quantiles"]
        table["requests"]["quantiles"] = {f"{part:g}": each for part, each in quantiles.items()}
    del table["places"]
    return table


def show(found: Calibration, out: Console) -> None:
    """Print the estimates."""
    from rtsched.calibrate import Refused

    indented(out, ", ".join(found.sources), 0, "bold")
    out.print(f"{found.jobs:,} jobs that ran and ended", markup=False)
    out.print("\nNode speeds", style="bold")
    if isinstance(found.speeds, Refused):
        _refuse(out, found.speeds)
    else:
        _show_speeds(out, found.speeds, found.places)
    out.print("\nDivisible loads", style="bold")
    if isinstance(found.loads, Refused):
        _refuse(out, found.loads)
    else:
        _show_loads(out, found.loads)
    out.print("\nRequested times", style="bold")
    if isinstance(found.requests, Refused):
        _refuse(out, found.requests)
    else:
        _show_requests(out, found.requests)
    if found.notes:
        out.print("\nAssumed", style="bold")
    for sentence in found.notes:
        indented(out, sentence, 2)


def _refuse(out: Console, part: Refused) -> None:
    indented(out, f"no estimate: {part.reason}", 2, "yellow")


def _show_speeds(out: Console, found: Speeds, places: Sequence[str]) -> None:
    used = int(found.jobs.sum())
    indented(
        out,
        f"{used:,} repeated jobs of {found.classes:,} classes on {len(found.node):,} nodes or "
        f"groups; {found.outliers:,} set aside as outliers; run times of one class scatter by "
        f"{found.scatter:.1%}",
        2,
    )
    rows = []
    for k, node in enumerate(found.node.tolist()[:_MOST_SHOWN]):
        part = int(found.component[k])
        notes = ["fastest"] * bool(found.fastest[k]) + [f"compares in part {part + 1}"] * (part > 0)
        rows.append([places[node], *_cells(found.speed[k]), f"{found.jobs[k]:,}", *notes[:2]])
    _table(out, ["node", "speed", "95 % interval", "jobs", ""], rows)
    left = len(found.node) - _MOST_SHOWN
    if left > 0:
        indented(out, f"... and {left:,} more: see --out or --json", 2)
    if found.component.max() > 0:
        indented(
            out,
            "No repeated job connects the parts: speeds compare within a part only, and --out has "
            "those of the first.",
            2,
            "yellow",
        )


def _show_loads(out: Console, found: Loads) -> None:
    unit = "s per MB" if found.sigma_known else "s per unit"
    sizes = ", ".join(str(size) for size in found.sizes[:8])
    more = ", ..." if len(found.sizes) > 8 else ""
    classes = "" if found.sigma_known else f" of {found.classes:,} classes"
    indented(
        out,
        f"{found.jobs:,} jobs{classes} on {sizes}{more} nodes; {found.outliers:,} set aside as "
        f"outliers; run times scatter by {found.scatter:.1%} about the model",
        2,
    )
    if not found.sigma_known:
        indented(out, "the loads are not known: the unit is such that cms + cps = 1 s", 2)
    rows = [
        ["send a unit (cms)", *_cells(found.cms), unit],
        ["compute a unit (cps)", *_cells(found.cps), unit],
        ["cms / (cms + cps)", *_cells(found.ratio), ""],
        ["set up a transmission", *_cells(found.setup_link), "s"],
        ["set up a computation", *_cells(found.setup_node), "s"],
    ]
    _table(out, ["", "estimate", "95 % interval", ""], rows)


def _show_requests(out: Console, found: RequestedTimes) -> None:
    from rtsched.calibrate import Refused

    limit = found.at_limit
    indented(
        out,
        f"{found.jobs:,} jobs of {found.users:,} users; {limit.value:.2%} ({limit.low:.2%} to "
        f"{limit.high:.2%}) were killed at their limit",
        2,
    )
    known = {part: each for part, each in found.quantiles.items() if not isinstance(each, Refused)}
    rows = [[f"{100 * part:.4g} %", *_cells(each)] for part, each in known.items()]
    if rows:
        _table(out, ["of the jobs", "need of the requested time", "95 % interval"], rows)
    refused: dict[str, list[str]] = {}
    for part, each in found.quantiles.items():
        if isinstance(each, Refused):
            refused.setdefault(each.reason, []).append(f"{100 * part:.4g}")
    for reason, parts in refused.items():
        indented(out, f"{', '.join(parts)} % of the jobs: no estimate: {reason}", 2, "yellow")


def _cells(found: Estimate) -> list[str]:
    if found.low == found.high:
        return [f"{found.value:.4g}", "by definition"]
    high = "any" if found.high == float("inf") else f"{found.high:.4g}"
    return [f"{found.value:.4g}", f"{found.low:.4g} to {high}"]


def _table(out: Console, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    from rtsched.report.wording import visible

    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for k, title in enumerate(("  " + titles[0], *titles[1:])):
        table.add_column(title, justify="left" if k in {0, len(titles) - 1} else "right")
    for row in rows:
        table.add_row(*(Text(("" if k else "  ") + visible(cell)) for k, cell in enumerate(row)))
    out.print(table)
