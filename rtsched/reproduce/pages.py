"""A reproduction as a page of Markdown, plots as SVG files, and all values as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from rtsched.errors import ConfigError, OutputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rtsched.reproduce.running import Reproduced
    from rtsched.reproduce.study import Claim, Plot, Sheet

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")


def number(value: float) -> str:
    """Return a value with the digits that matter."""
    if np.isnan(value):
        return ""
    if value == int(value) and abs(value) < 1e9:
        return str(int(value))
    digits = 1 if abs(value) >= 100 else 2 if abs(value) >= 10 else 3
    return f"{value:.{digits}f}"


def cells(sheet: Sheet) -> list[list[str]]:
    """Return cells as text: ours, the expected value in brackets, `!` where they differ."""
    differs = sheet.differs()
    return [
        [
            number(ours)
            + (f" ({number(expected)})" if np.isfinite(expected) else "")
            + (" !" if wrong else "")
            for ours, expected, wrong in zip(*row, strict=True)
        ]
        for row in zip(sheet.ours, sheet.expected, differs, strict=True)
    ]


def verdict(sheet: Sheet) -> str:
    """Return a sheet's verdict in words: how many values match, how far off the others are."""
    compared = np.isfinite(sheet.expected)
    if not compared.any():
        return "nothing is printed to compare with"
    differs, total = sheet.differs(), int(compared.sum())
    if not differs.any():
        return f"matches: {total} of {total} values within {_tolerance(sheet)}"
    worst = float(np.abs(np.where(differs, sheet.ours - sheet.expected, 0.0)).max())
    unexplained = int(sheet.unexplained().sum())
    tail = f"; {unexplained} unexplained" if unexplained else "; explained below"
    return (
        f"differs: {int(differs.sum())} of {total} values by more than {_tolerance(sheet)}, "
        f"at most by {number(worst)}{tail}"
    )


def _tolerance(sheet: Sheet) -> str:
    bounds = np.broadcast_to(np.asarray(sheet.tolerance, np.float64), sheet.ours.shape)
    bounds = bounds[np.isfinite(sheet.expected)]
    low, high = number(float(bounds.min())), number(float(bounds.max()))
    return low if low == high else f"{low} to {high}"


def claim_verdict(claim: Claim) -> str:
    """Return whether a claim came out as expected, in words."""
    said = "holds" if claim.holds else "does not hold"
    return said if claim.holds == claim.expected else f"{said}, unlike expected"


def markdown(done: Reproduced) -> str:
    """Return the page of one reproduction; equal runs give equal pages."""
    return "\n".join(_lines(done)) + "\n"


def _lines(done: Reproduced) -> Iterator[str]:
    yield f"# Reproduction: {done.name}"
    yield f"\nSource: {done.source}."
    chosen = ", ".join(f"{k} = {v}" for k, v in msgspec.to_builtins(done.parameters).items())
    yield f"\nMade by `rtsched reproduce {done.name}` with {chosen or 'no parameters'}."
    yield "Cells hold our value, then the printed or expected one in brackets, and `!` where"
    yield "they differ by more than the tolerance."
    for sheet in done.findings.sheets:
        yield f"\n## {sheet.title}"
        yield f"\n{sheet.source}. Verdict: {verdict(sheet)}.\n"
        yield _row(["", *sheet.columns])
        yield _row(["---"] * (len(sheet.columns) + 1))
        for label, row in zip(sheet.rows, cells(sheet), strict=True):
            yield _row([label, *row])
        for label, why in sheet.why.items():
            yield f"\n* {label}: {why}"
    if done.findings.claims:
        yield "\n## Claims\n"
        yield _row(["Claim", "Verdict", "Evidence", "Remark"])
        yield _row(["---"] * 4)
        for claim in done.findings.claims:
            yield _row([claim.text, claim_verdict(claim), claim.evidence, claim.why])
    for plot in done.findings.plots:
        yield f"\n![{plot.title}]({done.name}-{plot.name}.svg)"


def _row(texts: list[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"


def as_object(done: Reproduced) -> dict[str, Any]:
    """Return all values of one reproduction, for JSON; nan becomes null."""
    return {
        "name": done.name,
        "source": done.source,
        "parameters": msgspec.to_builtins(done.parameters),
        "unexplained": done.unexplained,
        "sheets": [
            {
                "title": sheet.title,
                "rows": sheet.rows,
                "columns": sheet.columns,
                "ours": sheet.ours.tolist(),
                "expected": sheet.expected.tolist(),
                "tolerance": np.asarray(sheet.tolerance).tolist(),
                "verdict": verdict(sheet),
                "why": sheet.why,
            }
            for sheet in done.findings.sheets
        ],
        "claims": [
            {
                "text": claim.text,
                "holds": bool(claim.holds),
                "expected": claim.expected,
                "evidence": claim.evidence,
                "why": claim.why,
            }
            for claim in done.findings.claims
        ],
    }


def write(done: Reproduced, directory: Path) -> list[Path]:
    """Write page, values and plots into a directory and return the files.

    Raises
    ------
    ConfigError
        If there is something to plot and matplotlib is not installed.
    OutputError
        If a file cannot be written.
    """
    page = directory / f"{done.name}.md"
    values = directory / f"{done.name}.json"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        page.write_text(markdown(done), "utf-8")
        values.write_bytes(msgspec.json.format(msgspec.json.encode(as_object(done))) + b"\n")
        drawings = [
            draw(plot, directory / f"{done.name}-{plot.name}.svg") for plot in done.findings.plots
        ]
    except OSError as cause:
        raise OutputError(directory, f"cannot be written ({cause.strerror})") from cause
    return [page, values, *drawings]


def draw(plot: Plot, path: Path) -> Path:
    """Draw one plot as an SVG file; equal plots give equal files."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as cause:
        raise ConfigError(["plots need matplotlib; install rtsched[reproduce]"]) from cause
    with mpl.rc_context({"svg.hashsalt": plot.name, "svg.fonttype": "none"}):
        figure = Figure(figsize=(7, 4.2), layout="constrained")
        axes = figure.add_subplot()
        for colour, curve in zip(COLOURS * len(plot.curves), plot.curves, strict=False):
            axes.plot(curve.x, curve.y, marker="o", ms=3.5, color=colour, label=curve.label)
        axes.set(title=plot.title, xlabel=plot.x_label, ylabel=plot.y_label)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize="small")
        figure.savefig(path, metadata={"Date": None})
    return path
