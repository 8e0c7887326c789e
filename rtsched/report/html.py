"""One page that shows a replay, complete in itself: it opens from a file, without any network.

Texts of logs and configurations are escaped by the template, and whatever is no printable
character is written out; plots get theirs as data. A content security policy, which names the
page's own scripts by their hashes, forbids everything else: other scripts, requests, forms.

Its headline is two sentences, bars, and the table with differences.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from rtsched import __version__
from rtsched.errors import MissingExtraError
from rtsched.replay.measures import MEASURES
from rtsched.replay.policies import baseline
from rtsched.report.axes import DARK, look, variables
from rtsched.report.tables import (
    LOGGED,
    ROWS,
    Row,
    best,
    machine,
    on_shares,
    promisable,
    shown,
    undone,
    use_tables,
)
from rtsched.report.wording import (
    clocked,
    compact,
    count,
    decimal,
    duration,
    instant,
    is_dated,
    percent,
    shortened,
    visible,
)
from rtsched.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rtsched.replay.results import PolicyRun, Workload
    from rtsched.report.scene import Figure
    from rtsched.report.summary import Summary


_BOOK = ("calls", "judged", "changed", "abstained", "errors")
_SAFE = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


def render(
    workload: Workload, runs: Sequence[PolicyRun], summary: Summary, title: str | None = None
) -> str:
    """Return the page.

    Parameters
    ----------
    workload : Workload
        The log.
    runs : sequence of PolicyRun
        What the policies made of it; with node rows there is a chart of nodes.
    summary : Summary
        Of the same. With timings in it, plug-ins' times are shown, and the page differs from run
        to run.
    title : str, optional
        Heading of the page; if None, it names the log.

    Raises
    ------
    MissingExtraError
        If jinja2 or plotly is not installed.
    """
    try:
        import jinja2  # noqa: F401 - missing, it is reported before the figures are made
        import markupsafe
        import plotly.offline  # noqa: F401

        from rtsched.report.figures import groups
    except ImportError as error:
        raise MissingExtraError("the HTML report", "report", str(error)) from error
    trusted: Any = markupsafe.Markup
    return filled(
        "report.html.j2",
        groups=[
            {
                "key": group.key,
                "title": group.title,
                "note": group.note,
                "rows": [[drawn(figure) for figure in row] for row in group.rows],
            }
            for group in groups(workload, runs)
        ],
        **_texts(summary, title),
        settings=[
            (name, trusted(markupsafe.escape(_indented(entry["settings"]))))
            for name, entry in summary.policies.items()
        ],
    )


def filled(template: str, **values: Any) -> str:
    """Return a page of a template: style, scripts and the policy for content are put in here.

    Raises
    ------
    MissingExtraError
        If jinja2 or plotly is not installed.
    """
    try:
        import jinja2
        import markupsafe
        import plotly.offline
    except ImportError as error:
        raise MissingExtraError("the HTML report", "report", str(error)) from error
    templates = files("rtsched.report") / "templates"
    environment = jinja2.Environment(
        autoescape=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    trusted = markupsafe.Markup
    script = (templates / "report.js").read_text("utf-8")
    library = plotly.offline.get_plotlyjs()
    page = environment.from_string((templates / template).read_text("utf-8"))
    return page.render(
        policy=_content_policy(library, script),
        version=__version__,
        css=trusted((templates / "report.css").read_text("utf-8")),
        colours=trusted(variables(dark=False)),
        dark_colours=trusted(variables(dark=True)),
        dark=trusted(json.dumps(DARK)),
        plotly=trusted(library),
        script=trusted(script),
        **values,
    )


def drawn(figure: Figure) -> dict[str, Any]:
    """Return a figure as templates take it."""
    import markupsafe

    trusted: Any = markupsafe.Markup
    return {
        "key": figure.key,
        "title": figure.title,
        "summary": figure.summary,
        "caption": figure.caption,
        "height": figure.height,
        "json": trusted(figure.plot.to_json().translate(_SAFE)),
    }


def _texts(summary: Summary, title: str | None) -> dict[str, Any]:
    """Return everything the template shows that is no figure."""
    books, failures, timed = _books(summary)
    looks = [{"name": LOGGED, "look": look(None)}]
    looks += [{"name": name, "look": look(place)} for place, name in enumerate(summary.policies)]
    return {
        "title": title or _title(summary),
        "facts": _facts(summary),
        "sentences": sentences(summary),
        "some_rejected": any(entry["rejected"] for entry in summary.policies.values()),
        "tiles": tiles(summary),
        "looks": looks,
        "lines": lines(summary),
        "baseline": baseline(summary.policies) if len(summary.policies) > 1 else "",
        "shares": on_shares(summary),
        "uses": use_tables(summary),
        "assumptions": list(summary.assumptions.values()),
        "skipped": _reasons(summary.log["skipped"], "records"),
        "promisable": promisable(summary.log),
        "unpromisable": _reasons(summary.log["promisable"]["others"], "jobs"),
        "books": books,
        "book_columns": [*_BOOK, "time"] if timed else list(_BOOK),
        "failures": failures,
        "definitions": [
            (name, measure.unit if measure.unit != "1" else "", measure.definition)
            for name, measure in MEASURES.items()
        ],
    }


def _reasons(counts: Mapping[str, Mapping[str, Any]], what: str) -> list[tuple[str, str, str]]:
    return [(reason, count(entry[what]), entry["first"]) for reason, entry in counts.items()]


def _title(summary: Summary) -> str:
    sources = [source.rpartition("/")[2] for source in summary.log["sources"]]
    named = shortened(", ".join(sources[:3]), 80) or "A log"
    more = f" and {counted(len(sources) - 3, 'more file')}" if len(sources) > 3 else ""
    return f"{named}{more} under {counted(len(summary.policies), 'policy', 'policies')}"


def _facts(summary: Summary) -> list[tuple[str, str]]:
    log = summary.log
    left_out = sum(entry["records"] for entry in log["skipped"].values())
    facts = [
        ("Jobs", count(log["jobs"])),
        ("with a deadline", count(log["jobs_with_deadline"])),
        ("Users", count(log["users"])),
        ("Accounts", count(log["accounts"])),
        ("Machine", machine(log)),
        ("First submission", _first(log["first_submit_s"])),
        ("Span", duration(log["span_s"])),
        ("Format", log["format"] or "–"),
    ]
    return facts + ([("Records skipped", count(left_out))] if left_out else [])


def _first(seconds: float | None) -> str:
    return instant(seconds) if seconds is not None and is_dated(seconds) else "no dates in the log"


def _books(summary: Summary) -> tuple[list[dict[str, Any]], list[str], bool]:
    """Return the plug-ins' books as rows, a sentence per failure, and whether there are times."""
    rows, failures, timed = [], [], False
    for policy, entry in summary.policies.items():
        for hook, plugins in entry["hooks"].items():
            for plugin, book in plugins.items():
                cells = [compact(book[name]) for name in _BOOK]
                if "seconds" in book:
                    timed = True
                    cells.append(clocked(book["seconds"]))
                named = {"policy": policy, "plugin": plugin, "hook": hook.replace("_", "-")}
                rows.append({**named, "cells": cells})
                if book["errors"]:
                    first_error = shortened(book.get("first_error", ""), 400)
                    failures.append(
                        f"{policy}: {plugin} failed in {hook}; first error: {first_error}"
                    )
    return rows, [*failures, *undone(summary)], timed


def _indented(settings: Any) -> str:
    return json.dumps(settings, indent=2)


def _content_policy(*scripts: str) -> str:
    """Return the policy that lets nothing run but these scripts, and nothing be fetched."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
    )


TILES = ("mean_wait_s", "mean_bounded_slowdown", "in_time_ratio", "reject_ratio", "utilisation")
"""Measures shown as bars; those that are 0 for all are left out."""

MOST_NAMED = 5
"""Policies that a sentence names one by one."""


@dataclass(frozen=True)
class Bar:
    """One policy in a tile."""

    name: str
    value: str
    share: float
    variable: str
    wins: bool


@dataclass(frozen=True)
class Tile:
    """One measure of all policies, as bars from zero."""

    label: str
    hint: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Cell:
    """One policy's value of one measure.

    Attributes
    ----------
    value : str
        As people read it.
    difference : str
        From the value of the `baseline`; empty where that is not known or there is none.
    course : str
        `better`, `worse` or empty.
    wins : bool
        Whether no policy is better.
    """

    value: str
    difference: str = ""
    course: str = ""
    wins: bool = False


@dataclass(frozen=True)
class Line:
    """One row of the comparison."""

    label: str
    definition: str
    cells: tuple[Cell, ...]


def columns(summary: Summary) -> dict[str, Mapping[str, Any]]:
    """Return the measures by what they are of: the log itself, then the policies in order."""
    return {LOGGED: summary.measures()} | {
        name: summary.measures(name) for name in summary.policies
    }


def tiles(summary: Summary) -> list[Tile]:
    """Return the measures that a head of computing asks for first."""
    named = columns(summary)
    made = []
    rows = {row.measure: row for row in ROWS}
    for name in TILES:
        values = [measures.get(name) for measures in named.values()]
        top = max((value for value in values if value is not None), default=0.0)
        if not top:
            continue
        row = rows[name]
        wins = best(row, list(named.values())[1:])
        bars = tuple(
            Bar(
                policy,
                _short(row, measures),
                max((measures.get(name) or 0.0) / top, 0.0),
                look(place - 1 if place else None).variable,
                place - 1 in wins,
            )
            for place, (policy, measures) in enumerate(named.items())
        )
        hint = "higher is better" if MEASURES[name].better > 0 else "lower is better"
        if name == "in_time_ratio" and "deadlines" in summary.assumptions:
            hint += "; deadlines are assumed"
        made.append(Tile(_TITLES[name], hint, bars))
    return made


_TITLES = {
    "mean_wait_s": "Mean wait",
    "mean_bounded_slowdown": "Bounded slowdown",
    "in_time_ratio": "Ended in time",
    "reject_ratio": "Rejected jobs",
    "utilisation": "Utilisation",
}


def _short(row: Row, measures: Mapping[str, Any]) -> str:
    value = measures.get(row.measure)
    return percent(value) if row.count else row.cell(measures)


def lines(summary: Summary) -> list[Line]:
    """Return the comparison, each policy's value with its difference from the `baseline`'s."""
    named = columns(summary)
    base = named.get(baseline(summary.policies), {})
    made = []
    for row in shown(list(named.values())):
        wins = best(row, list(named.values())[1:])
        cells = tuple(
            Cell(row.cell(measures), *_difference(row, measures, base), place - 1 in wins)
            if place and measures is not base
            else Cell(row.cell(measures), wins=place - 1 in wins)
            for place, measures in enumerate(named.values())
        )
        made.append(Line(row.label, MEASURES[row.measure].definition, cells))
    return made


def _difference(row: Row, measures: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[str, str]:
    """Return how far a value is from another, and whether that is for the better."""
    value, base = measures.get(row.measure), other.get(row.measure)
    if value is None or base is None or row.total or row.measure == "jobs":
        return "", ""
    if row.count or row.measure.endswith("ratio") or row.measure.endswith("utilisation"):
        gap = 100 * (value - base)
        text = f"{gap:+.1f} pp"
    elif not base:
        return "", ""
    else:
        gap = 100 * (value / base - 1)
        text = f"×{decimal(value / base)}" if gap >= 1000 else f"{gap:+.1f} %"
    if abs(gap) < 0.05:
        return "±0", ""
    good = (gap > 0) == (MEASURES[row.measure].better > 0)
    return text.replace("-", "−"), "better" if good else "worse"


def sentences(summary: Summary) -> list[str]:
    """Return what stands out, in words: the shortest waits, and deadlines."""
    policies = {name: summary.measures(name) for name in summary.policies}
    return [
        *_on_waits(policies, baseline(policies)),
        *_on_deadlines(policies, summary.log.get("jobs_with_deadline", 0), summary.log["jobs"]),
    ]


def _on_waits(policies: Mapping[str, Mapping[str, Any]], base: str) -> list[str]:
    """Tell who waits least; of those that turn jobs away and of those that do not, apart."""
    known = {name: some for name, some in policies.items() if some.get("mean_wait_s") is not None}
    if not known:
        return ["No job started under any of the policies."]
    all_in = {name: some for name, some in known.items() if not some.get("reject_ratio")}
    notes = [_on_least(all_in, base)] if all_in else []
    least, wait = _least(known)
    if least not in all_in:
        turned = percent(known[least]["reject_ratio"])
        than = " less still," if all_in else ""
        alone = known[least].get("mean_baseline_wait_s")
        others = ""
        if alone is not None and base != least:
            others = f"; under {base} the others alone would wait {duration(alone)}"
        notes.append(
            f"Under {least} jobs wait{than} {duration(wait)}, but {turned} of them are rejected"
            f"{others}."
        )
    return notes


def _least(policies: Mapping[str, Mapping[str, Any]]) -> tuple[str, float]:
    name = min(policies, key=lambda key: float(policies[key]["mean_wait_s"]))
    return name, policies[name]["mean_wait_s"]


def _on_least(policies: Mapping[str, Mapping[str, Any]], base: str) -> str:
    """Tell whose jobs wait least, and how much less than under the `baseline`."""
    name, wait = _least(policies)
    text = f"Under {name} jobs wait {duration(wait)} on average"
    if len({duration(some["mean_wait_s"]) for some in policies.values()}) > 1:
        text += f", the least of the {len(policies)} policies that accept every job"
    usual = policies[base]["mean_wait_s"] if base in policies else 0.0
    if usual > 0 and (less := 1 - wait / usual) >= 0.005:
        text += f"; that is {percent(less)} less than under {base}"
    return f"{text}."


def _on_deadlines(
    policies: Mapping[str, Mapping[str, Any]], with_deadline: int, jobs: int
) -> list[str]:
    if not with_deadline:
        return ["No job has a deadline."]
    who = (
        "Every job has"
        if with_deadline == jobs
        else f"{percent(with_deadline / jobs)} of the jobs have"
    )
    parts = []
    for name, measures in policies.items():
        rejected, in_time = measures.get("reject_ratio"), measures.get("in_time_ratio")
        more = f" ({percent(rejected)} rejected)" if rejected else ""
        parts.append((in_time or 0.0, f"{name} {percent(in_time)}{more}"))
    if len(parts) > MOST_NAMED:
        few, most = min(parts)[1], max(parts)[1]
        return [f"{who} a deadline. Most end in time under {most}, fewest under {few}."]
    named = ", ".join(text for _, text in parts)
    return [f"{who} a deadline. In time end, of all that were submitted: {named}."]
