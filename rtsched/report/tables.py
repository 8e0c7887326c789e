"""Tables on a terminal: policies side by side, and what they rest on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from rtsched.report.rows import LOGGED, best, machine, shown, use_tables
from rtsched.report.wording import (
    clocked,
    compact,
    count,
    duration,
    instant,
    is_dated,
    percent,
    shortened,
    visible,
)
from rtsched.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console, RenderableType

    from rtsched.report.summary import Summary

NAME_WIDTH = 16
"""Characters of a policy's name that a column shows."""

WORDS = {
    "Move": "move running jobs",
    "Place": "choose nodes or sizes",
    "Reserve": "keep nodes for promised jobs",
    "SetPriority": "order the queue by priority",
}
"""What the actions ask for that not every machine can do."""

_LABEL_WIDTH = 18
_GAP = 2


def show(summary: Summary, console: Console) -> None:
    """Print a summary: the log, assumptions, the comparison, plug-ins and skipped records."""
    for part in parts(summary, console.width):
        console.print(part, highlight=False, markup=False, emoji=False)


def parts(summary: Summary, width: int = 100) -> Iterator[RenderableType]:
    """Return what `show` prints, for a terminal of `width` columns.

    Every text out of a log or a configuration goes through `visible` into a `Text`, which obeys
    no markup.
    """
    yield _headline(summary.log)
    if summary.assumptions:
        yield Text("Assumed", style="bold")
        yield from (_item(sentence) for sentence in summary.assumptions.values())
    yield from comparison(summary, width)
    yield from _use(summary, width)
    if any(entry["hooks"] for entry in summary.policies.values()):
        yield _title("Plug-ins")
        yield books(summary)
        yield from _failures(summary)
        yield from (_item(sentence) for sentence in undone(summary))
    yield from _promisable(summary.log)
    if summary.log["skipped"]:
        yield _title("Skipped records")
        yield reasons(summary.log["skipped"], "records")


def comparison(summary: Summary, width: int) -> Iterator[Table]:
    """Return tables with a row per measure and a column per policy, as many as fit side by side.

    The first column is always what the log itself records.
    """
    logged = summary.measures()
    policies = {name: summary.measures(name) for name in summary.policies}
    rows = shown([logged, *policies.values()])
    wins = [best(row, list(policies.values())) for row in rows]
    columns = {name: [row.cell(measures) for row in rows] for name, measures in policies.items()}
    own = [row.cell(logged) for row in rows]
    yield from _side_by_side([row.label for row in rows], own, columns, width, wins)


def _use(summary: Summary, width: int) -> Iterator[RenderableType]:
    """Return what was used of each resource, and by the jobs of each partition."""
    for table in use_tables(summary):
        yield _title(table.title)
        own, *others = zip(*(row.cells for row in table.rows), strict=True)
        columns = dict(zip(summary.policies, others, strict=True))
        yield from _side_by_side([row.label for row in table.rows], own, columns, width)


def _side_by_side(
    labels: Sequence[str],
    own: Sequence[str],
    columns: Mapping[str, Sequence[str]],
    width: int,
    wins: Sequence[set[int]] | None = None,
) -> Iterator[Table]:
    """Return tables of as many policies as fit, each beside the log's own values.

    `wins` are for each row the policies, by their places, whose values are marked.
    """
    places = {name: place for place, name in enumerate(columns)}
    label_width = max(_LABEL_WIDTH, *map(len, labels))
    for group in _groups(own, columns, width - label_width):
        table = _table()
        table.add_column("")
        for name in (LOGGED, *group):
            heading = Text("\n".join(_lines(name)))
            table.add_column(heading, justify="right", no_wrap=True)
        for k, label in enumerate(labels):
            marked = wins[k] if wins else set()
            values = [_marked(columns[name][k], places[name] in marked) for name in group]
            table.add_row(Text(label), Text(own[k]), *values)
        yield table


def _lines(policy: str) -> list[str]:
    """Return a policy's name in lines: a sweep's settings below the policy."""
    name, *settings = policy.split("+")
    return [shortened(line, NAME_WIDTH) for line in (name, *(f"+{each}" for each in settings))]


def books(summary: Summary) -> Table:
    """Return a table of what each plug-in was asked and said, per policy and hook."""
    timed = any("seconds" in entry for entry in summary.policies.values())
    table = _table()
    table.add_column("policy", no_wrap=True)
    table.add_column("plug-in", no_wrap=True)
    table.add_column("hook", no_wrap=True)
    numbers = ["calls", "judged", "changed", "abstained"] + (["time"] if timed else [])
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    for policy, entry in summary.policies.items():
        first = True
        for hook, plugins in entry["hooks"].items():
            for plugin, book in plugins.items():
                cells = [compact(book[name]) for name in numbers[:4]]
                if timed:
                    cells.append(clocked(book["seconds"]))
                table.add_row(
                    Text("\n".join(_lines(policy)) if first else ""),
                    Text(shortened(plugin, 15)),
                    Text(hook.replace("_", "-")),
                    *cells,
                )
                first = False
        table.add_section()
    return table


def reasons(counts: Mapping[str, Mapping[str, Any]], what: str) -> Table:
    """Return a table of records or jobs by reason, each with the first that it holds for."""
    table = _table()
    table.add_column(what, justify="right", no_wrap=True)
    table.add_column("reason")
    table.add_column("first", overflow="fold")
    for reason, entry in counts.items():
        table.add_row(
            Text(count(entry[what])), Text(visible(reason)), Text(visible(entry["first"]))
        )
    return table


def promisable(log: Mapping[str, Any]) -> str:
    """Return in a sentence how many jobs have a form that a deadline can be promised to."""
    found = log["promisable"]
    return (
        f"{count(found['promisable'])} of {counted(found['jobs'], 'job')} in the log "
        f"({percent(found['share'])}) have a form that a deadline can be promised to."
    )


def _promisable(log: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Return the share of the jobs that can be promised a deadline, and why others cannot."""
    if log["promisable"]["jobs"]:
        yield _title("Promisable jobs")
        yield _item(promisable(log))
        if others := log["promisable"]["others"]:
            yield reasons(others, "jobs")


def _headline(log: Mapping[str, Any]) -> Text:
    """Return in two lines which log this is."""
    sources = ", ".join(visible(source) for source in log["sources"])
    begin = log["first_submit_s"]
    since = f" from {instant(begin)}" if begin is not None and is_dated(begin) else ""
    left_out = sum(entry["records"] for entry in log["skipped"].values())
    facts = [
        counted(log["jobs"], "job"),
        counted(log["users"], "user"),
        machine(log),
        f"{duration(log['span_s'])}{since}",
    ]
    if left_out:
        facts.append(f"{counted(left_out, 'record')} skipped")
    return Text.assemble((sources or "log", "bold"), "\n", " · ".join(facts))


def _groups(
    own: Sequence[str], cells: Mapping[str, Sequence[str]], width: int
) -> Iterator[list[str]]:
    """Return the policies in groups whose columns fit into `width` beside the log's own."""

    def needed(name: str, values: Sequence[str]) -> int:
        return max(map(len, (*_lines(name), *values))) + _GAP

    room = width - needed(LOGGED, own)
    group: list[str] = []
    taken = 0
    for name, values in cells.items():
        size = needed(name, values)
        if group and taken + size > room:
            yield group
            group, taken = [], 0
        group.append(name)
        taken += size
    yield group


def _failures(summary: Summary) -> Iterator[RenderableType]:
    """Return one sentence per plug-in that failed."""
    for policy, entry in summary.policies.items():
        for hook, plugins in entry["hooks"].items():
            for plugin, book in plugins.items():
                if book["errors"]:
                    yield _item(
                        f"{policy}: {plugin} failed in {counted(book['errors'], 'call')} of "
                        f"{hook.replace('_', '-')}; the first said: {book.get('first_error', '')}"
                    )


def undone(summary: Summary) -> Iterator[str]:
    """Return one sentence per policy and kind of what its system could not do as asked."""
    for policy, entry in summary.policies.items():
        machine = entry["settings"].get("system", {}).get("machine", "exclusive")
        for kind, jobs in entry.get("not_carried_out", {}).items():
            yield (
                f"{policy}: plug-ins asked to {WORDS.get(kind, kind)} ({counted(jobs, 'time')}, "
                f"counted by job); machine {machine} does not support that as configured; nothing "
                "was changed"
            )
        if entry.get("did_not_wait"):
            yield (
                f"{policy}: {counted(entry['did_not_wait'], 'job')} did not wait for one that "
                "they depend on, as it was rejected or never started"
            )
        if entry.get("beyond_limits"):
            yield (
                f"{policy}: {counted(entry['beyond_limits'], 'job')} started as planned though "
                "their account, user or QOS was at a limit: planners do not know limits"
            )


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)


def _title(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _item(sentence: str) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column()
    table.add_column(overflow="fold")
    table.add_row("-", Text(visible(sentence)))
    return table


def _marked(cell: str, wins: bool) -> Text:
    return Text(cell, style="bold green" if wins else "")
