"""One page that shows a replay, complete in itself: it opens from a file, without any network.

Texts of logs and configurations are escaped by the template, and whatever is no printable
character is written out; plots get theirs as data. A content security policy, which names the
page's own scripts by their hashes, forbids everything else: other scripts, requests, forms.
"""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from rtsched import __version__
from rtsched.counting import counted
from rtsched.errors import MissingExtraError
from rtsched.replay.measures import MEASURES
from rtsched.replay.policies import baseline
from rtsched.report.axes import DARK, look, variables
from rtsched.report.headline import lines, sentences, tiles
from rtsched.report.rows import LOGGED, machine, use_tables
from rtsched.report.tables import promisable, undone
from rtsched.report.wording import (
    clocked,
    compact,
    count,
    duration,
    instant,
    is_dated,
    shortened,
    visible,
)

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
                "rows": [[shown(figure) for figure in row] for row in group.rows],
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


def shown(figure: Figure) -> dict[str, Any]:
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
