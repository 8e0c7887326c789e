"""What was used of each resource, where jobs share nodes, row by row as a table shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rtsched.counting import counted
from rtsched.model.resources import CPU, DISK, GPU, GRES, MEMORY
from rtsched.report.wording import MISSING, count, decimal, duration, percent, shortened

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rtsched.report.summary import Summary

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
