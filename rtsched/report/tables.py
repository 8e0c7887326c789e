"""Tables of a replay: rows, for a page too, and how a terminal shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from rtsched.model.resources import CPU, DISK, GPU, GRES, MEMORY
from rtsched.replay.measures import MEASURES
from rtsched.report.wording import (
    MISSING,
    clocked,
    compact,
    count,
    decimal,
    duration,
    instant,
    is_dated,
    percent,
    quantity,
    shortened,
    visible,
)
from rtsched.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console, RenderableType

    from rtsched.report.summary import Summary

LOGGED = "as logged"


@dataclass(frozen=True)
class Row:
    """One line of the comparison.

    Attributes
    ----------
    label : str
        What it is called.
    measure : str
        The measure that is compared.
    count, total : str
        Where `measure` is a ratio: the count that it comes from, shown beside it, and what it is
        a part of where that is not all jobs.
    optional : bool
        Whether the line goes where all have nothing or 0.
    """

    label: str
    measure: str
    count: str = ""
    total: str = ""
    optional: bool = False

    def cell(self, measures: Mapping[str, Any]) -> str:
        """Return the value as people read it."""
        value = measures.get(self.measure)
        if self.total:
            whole = measures.get(self.total) or 0
            return f"{count(value)} of {count(whole)}" if whole else MISSING
        if self.count and value is not None:
            return f"{count(measures.get(self.count))} ({percent(value)})"
        unit = MEASURES[self.measure].unit
        if unit == "node s":  # the label has the unit, so the column stays narrow
            return decimal(None if value is None else value / 3600)
        return quantity(value, self.measure, unit)


_OF_STARTED = frozenset(
    {
        "miss_ratio",
        "mean_wait_s",
        "mean_best_effort_wait_s",
        "median_wait_s",
        "p95_wait_s",
        "max_wait_s",
        "mean_response_s",
        "mean_bounded_slowdown",
    }
)
"""Measures over the jobs that were accepted, or that started."""

ROWS = (
    Row("jobs", "jobs"),
    Row("ended in time", "in_time_ratio", "in_time", optional=True),
    Row("in-time work", "in_time_work_ratio", optional=True),
    Row("rejected", "reject_ratio", "rejected", optional=True),
    Row("rejected work", "rejected_work_ratio", optional=True),
    Row("rejected run time", "rejected_run_ratio", optional=True),
    Row("rejected, ran on", "ran_on", optional=True),
    Row("promised later", "promised_later", optional=True),
    Row("missed deadlines", "miss_ratio", "missed"),
    Row("promises kept", "promises_kept", total="promises", optional=True),
    Row("of whole arrays", "array_promises_kept", total="array_promises", optional=True),
    Row("never finished", "unfinished", optional=True),
    Row("wait, mean", "mean_wait_s"),
    Row("of common jobs", "mean_common_wait_s", optional=True),
    Row("baseline, accepted", "mean_baseline_wait_s", optional=True),
    Row("without deadline", "mean_best_effort_wait_s", optional=True),
    Row("wait, median", "median_wait_s"),
    Row("wait, 95 % below", "p95_wait_s"),
    Row("wait, longest", "max_wait_s"),
    Row("response, mean", "mean_response_s"),
    Row("bounded slowdown", "mean_bounded_slowdown"),
    Row("utilisation", "utilisation"),
    Row("memory utilisation", "memory_utilisation", optional=True),
    Row("GPU utilisation", "gpu_utilisation", optional=True),
    Row("stranded GPU-h", "stranded_gpu_h", optional=True),
    Row("preempted jobs", "preempted", optional=True),
    Row("preempted core-h", "preempted_core_h", optional=True),
    Row("makespan", "makespan_s"),
    Row("user error, node-h", "user_error_rms_node_s"),
    Row("acct error, node-h", "account_error_rms_node_s", optional=True),
)


def shown(columns: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return the rows that say something about these measures."""
    return [
        row
        for row in ROWS
        if not row.optional or any(measures.get(row.total or row.measure) for measures in columns)
    ]


def best(row: Row, columns: Sequence[Mapping[str, Any]]) -> set[int]:
    """Return which of the policies have the best value; none where all are equal, or one is alone.

    Values are compared as they are shown, so nobody wins by what nobody sees. Waits, responses,
    slowdowns and missed deadlines are those of the jobs that were accepted: nobody wins by them
    where policies may have started different jobs, because one rejected or lost some.
    """
    better = MEASURES[row.measure].better
    values = [measures.get(row.measure) for measures in columns]
    known = [value for value in values if value is not None]
    if not better or len(known) < 2:
        return set()
    if row.measure in _OF_STARTED and any(map(_lacks_jobs, columns)):
        return set()
    target = max(known) if better > 0 else min(known)
    cells = [row.cell(measures) for measures in columns]
    winner = cells[values.index(target)]
    if len({cell for cell, value in zip(cells, values, strict=True) if value is not None}) < 2:
        return set()
    return {place for place, cell in enumerate(cells) if cell == winner}


def _lacks_jobs(measures: Mapping[str, Any]) -> bool:
    rejected = (measures.get("rejected") or 0) - (measures.get("ran_on") or 0)
    return bool(rejected or measures.get("unfinished"))


_MOST_PARTITIONS = 12
"""Partitions in a table, those with most jobs; the summary has all."""

_NAMES = {CPU: "cores", MEMORY: "memory", GPU: "GPUs", DISK: "disk"}


class _UseRow(NamedTuple):
    """One row: what it is of, and a cell for the log and for each policy."""

    label: str
    cells: tuple[str, ...]


class _UseTable(NamedTuple):
    """A table of what was used."""

    title: str
    caption: str
    rows: list[_UseRow]


def use_tables(summary: Summary) -> list[_UseTable]:
    """Return the tables that have a row: of resources, and of partitions."""
    found = (
        _UseTable(
            "Hours used (of those available)",
            "Amounts that jobs asked for, while they ran, times hours; in brackets which part that "
            "is of what usable nodes have, from the first submission to the last end.",
            _resource_rows(summary),
        ),
        _UseTable(
            "Partitions (jobs)",
            "Mean wait of each partition's jobs, and which part of the resources of its nodes they "
            "used. Nodes in several partitions count in each.",
            _partition_rows(summary),
        ),
    )
    return [table for table in found if table.rows]


def machine(log: Mapping[str, Any]) -> str:
    """Return the size of the machine: nodes, where they are shared with their cores and GPUs."""
    nodes, has = counted(log["machine_nodes"], "node"), log["machine_resources"]
    inside = [
        counted(has[name], word) for name, word in ((CPU, "core"), (GPU, "GPU")) if has.get(name)
    ]
    return f"{nodes} with {' and '.join(inside)}" if inside else nodes


def _resource_rows(summary: Summary) -> list[_UseRow]:
    """Return per resource the hours used and, in brackets, which part of those available it is.

    Empty where jobs do not share nodes. What nobody used is left out.
    """
    entries = _entries(summary)
    names = list(dict.fromkeys(name for entry in entries for name in entry.get("resources", {})))
    rows = []
    for name in names:
        used = [entry.get("resources", {}).get(name) for entry in entries]
        if any(use and use["used_h"] for use in used):
            rows.append(_UseRow(_hours(name), tuple(map(_used, used))))
    return rows


def _partition_rows(summary: Summary) -> list[_UseRow]:
    """Return per partition its jobs' mean wait, and which part of its nodes' resources they used.

    Empty where there are less than two partitions.
    """
    entries = _entries(summary)
    jobs = {
        name: use["jobs"] for entry in entries for name, use in entry.get("partitions", {}).items()
    }
    if len(jobs) < 2:
        return []
    rows = []
    for name in sorted(jobs, key=lambda name: (-jobs[name], name))[:_MOST_PARTITIONS]:
        found = [entry.get("partitions", {}).get(name, {}) for entry in entries]
        label = f"{shortened(name, 24)} ({count(jobs[name])})"
        waits = tuple(duration(use.get("mean_wait_s")) for use in found)
        rows.append(_UseRow(f"{label}: mean wait", waits))
        for resource, word in _NAMES.items():
            parts = [use.get("resources", {}).get(resource) for use in found]
            if any(part and part["available_h"] for part in parts):
                cells = tuple(percent(part and part["utilisation"]) for part in parts)
                rows.append(_UseRow(f"  {word}", cells))
    return rows


def _entries(summary: Summary) -> list[Mapping[str, Any]]:
    return [summary.entry(), *(summary.entry(name) for name in summary.policies)]


def _hours(resource: str) -> str:
    """Return what hours of a resource are called: `core-hours`, `gpu:a100-hours`."""
    if resource in {MEMORY, DISK}:
        return f"{'memory' if resource == MEMORY else 'disk'}, GiB-hours"
    if resource == CPU:
        return "core-hours"
    return f"{'GPU' if resource == GPU else resource.removeprefix(GRES)}-hours"


def _used(use: Mapping[str, float | None] | None) -> str:
    if use is None:
        return MISSING
    return f"{decimal(use['used_h'])} ({percent(use['utilisation'])})"


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
    if shares := on_shares(summary):
        yield _item(shares)
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


def on_shares(summary: Summary) -> str:
    """Return in a sentence what shares of jobs are shares of; empty where all have a deadline.

    Empty too where the comparison does not show how many ended in time.
    """
    due, jobs = summary.log["jobs_with_deadline"], summary.log["jobs"]
    columns = [summary.measures(name) for name in (None, *summary.policies)]
    if due == jobs or not any(measures.get("in_time_ratio") for measures in columns):
        return ""
    return (
        f"ended in time: share of the {counted(due, 'job')} with a deadline; missed deadlines and "
        f"rejected: shares of all {counted(jobs, 'job')}."
    )


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
                        f"{hook.replace('_', '-')}; the first error: {book.get('first_error', '')}"
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
