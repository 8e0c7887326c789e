"""A reproduction as a page of Markdown, plots as SVG files, and all values as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from rtsched.errors import ConfigError, OutputError
from rtsched.reproduce.study import Claim, Findings, Plot, Reproduced, Sheet, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
    """Return cells as text: ours, then expected ± tolerance in brackets, `!` if it differs."""
    columns = (sheet.ours, sheet.expected, sheet.bounds(), sheet.differs())
    return [[_cell(*cell) for cell in zip(*row, strict=True)] for row in zip(*columns, strict=True)]


def _cell(ours: float, expected: float, bound: float, wrong: bool) -> str:
    if np.isnan(expected):
        return number(ours)
    width = f" ± {number(bound)}" if bound else ""
    return f"{number(ours) or 'none'} ({number(expected)}{width})" + (" !" if wrong else "")


def row_verdicts(sheet: Sheet) -> list[str]:
    """Return the verdict on each row in words; nothing where nothing is expected."""
    found = []
    for row in sheet.verdicts():
        judged = [verdict for verdict in row if verdict is not None]
        wrong = judged.count(Verdict.DIFFERS)
        if wrong and len(judged) > 1:
            found.append(f"{wrong} of {len(judged)} differ{'s' * (wrong == 1)}")
        elif wrong:
            found.append(str(Verdict.DIFFERS))
        else:
            found.append(str(judged[0]) if judged else "")
    return found


def verdict(sheet: Sheet) -> str:
    """Return a sheet's verdict in words: how many values agree, how far off the others are."""
    agree, differ, fitted = sheet.tally()
    total = agree + differ + fitted
    if not total:
        return "nothing is printed to compare with"
    text = f"{agree} of {total} values agree"
    if differ:
        off = np.where(sheet.differs(), np.abs(sheet.ours - sheet.expected), 0.0)
        most = float(np.nanmax(off))
        width = f", by {number(most)}" if differ == 1 else f", by up to {number(most)}"
        text += f", {differ} differ{'s' * (differ == 1)}{width if most else ''}"
    return text + (f", {fitted} fitted" if fitted else "")


def notes(sheet: Sheet) -> Iterator[str]:
    """Yield what is to be known of a sheet's verdicts: tolerance, what is fitted, remarks."""
    if sheet.basis:
        yield f"Tolerance: {sheet.basis}."
    if sheet.fitted:
        yield f"Fitted: {sheet.fitted}. A fitted value does not count as agreeing."
    rows_of: dict[str, list[str]] = {}
    for row, why in sheet.why.items():
        if row in sheet.rows:
            rows_of.setdefault(why, []).append(row)
    for why, rows in rows_of.items():
        yield why if len(rows) == len(sheet.rows) else f"{'; '.join(rows)}: {why}"


def claim_verdict(claim: Claim) -> str:
    """Return whether this run agrees with a claim, in words."""
    return str(claim.verdict)


def summary(done: Reproduced) -> str:
    """Return how many values and claims agree and differ, two lines."""
    return f"values: {done.values}\nclaims: {done.claims}"


def markdown(done: Reproduced) -> str:
    """Return the page of one reproduction; equal runs give equal pages."""
    return "\n".join(_lines(done)) + "\n"


def _lines(done: Reproduced) -> Iterator[str]:
    yield f"# Reproduction: {done.name}"
    yield f"\nSource: {done.source}."
    chosen = ", ".join(f"{k} = {v}" for k, v in msgspec.to_builtins(done.parameters).items())
    yield f"\nMade by `rtsched reproduce {done.name}` with {chosen or 'no parameters'}."
    yield "\nA cell holds the computed value, then in brackets the printed or expected one and the"
    yield "tolerance (none: equal), and `!` where they differ by more. Remarks change no verdict."
    yield "\n| | agree | differ | fitted |\n| --- | --- | --- | --- |"
    for what, tally in (("values", done.values), ("claims", done.claims)):
        yield _row([what, *map(str, tally)])
    for sheet in done.findings.sheets:
        yield f"\n## {sheet.title}"
        yield f"\n{sheet.source}. Verdict: {verdict(sheet)}.\n"
        judged = ["verdict"] if sheet.compared().any() else []
        yield _row(["", *sheet.columns, *judged])
        yield _row(["---"] * (len(sheet.columns) + 1 + len(judged)))
        for label, row, outcome in zip(sheet.rows, cells(sheet), row_verdicts(sheet), strict=True):
            yield _row([label, *row, *([outcome] if judged else [])])
        for note in notes(sheet):
            yield f"\n* {note}"
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
    """Return all that a page of one reproduction says, for JSON; nan becomes null."""
    return {
        "name": done.name,
        "source": done.source,
        "parameters": msgspec.to_builtins(done.parameters),
        "values": done.values._asdict(),
        "claim_verdicts": done.claims._asdict(),
        "sheets": [
            {
                "title": sheet.title,
                "source": sheet.source,
                "rows": sheet.rows,
                "columns": sheet.columns,
                "ours": sheet.ours.tolist(),
                "expected": sheet.expected.tolist(),
                "tolerance": np.where(sheet.compared(), sheet.bounds(), np.nan).tolist(),
                "basis": sheet.basis,
                "fitted": sheet.fitted,
                "verdicts": sheet.verdicts(),
                "verdict": verdict(sheet),
                "why": sheet.why,
            }
            for sheet in done.findings.sheets
        ],
        "claims": [
            {
                "text": claim.text,
                "holds": bool(claim.holds),
                "verdict": claim.verdict,
                "evidence": claim.evidence,
                "why": claim.why,
            }
            for claim in done.findings.claims
        ],
        "plots": [{"name": plot.name, "title": plot.title} for plot in done.findings.plots],
    }


def from_object(values: dict[str, Any]) -> Reproduced:
    """Return the reproduction whose `as_object` this is, with plots that have no curves."""
    sheets = (
        Sheet(
            title=sheet["title"],
            source=sheet["source"],
            rows=tuple(sheet["rows"]),
            columns=tuple(sheet["columns"]),
            ours=np.array(sheet["ours"], np.float64),
            expected=np.array(sheet["expected"], np.float64),
            tolerance=np.array(sheet["tolerance"], np.float64),
            why=sheet["why"],
            basis=sheet["basis"],
            fitted=sheet["fitted"],
        )
        for sheet in values["sheets"]
    )
    claims = (
        Claim(claim["text"], claim["holds"], claim["evidence"], claim["why"])
        for claim in values["claims"]
    )
    plots = (Plot(plot["name"], plot["title"], "", "", ()) for plot in values["plots"])
    findings = Findings(tuple(sheets), tuple(claims), tuple(plots))
    parameters = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in values["parameters"].items()
    }
    return Reproduced(values["name"], values["source"], parameters, findings, 0.0)


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
