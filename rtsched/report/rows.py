"""Rows of the comparison of policies, and of resources, the same on a terminal and on the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from rtsched.model.resources import CPU, DISK, GPU, GRES, MEMORY
from rtsched.replay.measures import MEASURES
from rtsched.report.wording import MISSING, count, decimal, duration, percent, quantity, shortened
from rtsched.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


OF_STARTED = frozenset(
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
    if row.measure in OF_STARTED and any(map(_lacks_jobs, columns)):
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


MOST_PARTITIONS = 12
"""Partitions in a table, those with most jobs; the summary has all."""

_NAMES = {CPU: "cores", MEMORY: "memory", GPU: "GPUs", DISK: "disk"}


class UseRow(NamedTuple):
    """One row: what it is of, and a cell for the log and for each policy."""

    label: str
    cells: tuple[str, ...]


class UseTable(NamedTuple):
    """A table of what was used."""

    title: str
    caption: str
    rows: list[UseRow]


def use_tables(summary: Summary) -> list[UseTable]:
    """Return the tables that have a row: of resources, and of partitions."""
    found = (
        UseTable(
            "Hours used (of those available)",
            "Amounts that jobs asked for, while they ran, times hours; in brackets which part that "
            "is of what usable nodes have, from the first submission to the last end.",
            resource_rows(summary),
        ),
        UseTable(
            "Partitions (jobs)",
            "Mean wait of each partition's jobs, and which part of the resources of its nodes they "
            "used. Nodes in several partitions count in each.",
            partition_rows(summary),
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


def resource_rows(summary: Summary) -> list[UseRow]:
    """Return per resource the hours used and, in brackets, which part of those available it is.

    Empty where jobs do not share nodes. What nobody used is left out.
    """
    entries = _entries(summary)
    names = list(dict.fromkeys(name for entry in entries for name in entry.get("resources", {})))
    rows = []
    for name in names:
        used = [entry.get("resources", {}).get(name) for entry in entries]
        if any(use and use["used_h"] for use in used):
            rows.append(UseRow(_hours(name), tuple(map(_used, used))))
    return rows


def partition_rows(summary: Summary) -> list[UseRow]:
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
    for name in sorted(jobs, key=lambda name: (-jobs[name], name))[:MOST_PARTITIONS]:
        found = [entry.get("partitions", {}).get(name, {}) for entry in entries]
        label = f"{shortened(name, 24)} ({count(jobs[name])})"
        waits = tuple(duration(use.get("mean_wait_s")) for use in found)
        rows.append(UseRow(f"{label}: mean wait", waits))
        for resource, word in _NAMES.items():
            parts = [use.get("resources", {}).get(resource) for use in found]
            if any(part and part["available_h"] for part in parts):
                cells = tuple(percent(part and part["utilisation"]) for part in parts)
                rows.append(UseRow(f"  {word}", cells))
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
