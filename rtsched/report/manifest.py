"""The manifest of a kept replay: what the directory holds, and the small tables behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from rtsched.errors import InputError
from rtsched.model.log import Skipped
from rtsched.model.table import Amounts, Table, Text, amounts_from, resource_columns
from rtsched.replay.promisable import PromisableJobs
from rtsched.report.columns import TableFormat  # noqa: TC001  (msgspec reads it)
from rtsched.report.files import cause_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rtsched.replay.results import Workload

T = TypeVar("T", bound=Table)

VERSION = 2
MANIFEST = "manifest.json"


class Manifest(msgspec.Struct, frozen=True):
    """What a directory holds, and the small tables behind it."""

    version: int
    table_format: TableFormat
    files: list[str]
    policies: dict[str, str]
    jobs: int
    sources: list[str]
    format: str
    assumptions: list[str]
    skipped: dict[str, int]
    skipped_first: dict[str, str]
    log_jobs: int
    unpromisable: dict[str, int]
    unpromisable_first: dict[str, str]
    nodes: int
    node_columns: dict[str, list[Any]]
    accounts: int
    account_columns: dict[str, list[Any]]
    price: float = 1.0


def read_manifest(directory: Path) -> Manifest:
    """Return the manifest in a directory.

    Raises
    ------
    InputError
        If there is none, or it is damaged or of another version.
    """
    path = directory / MANIFEST
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except (FileNotFoundError, NotADirectoryError) as error:
        message = "contains no replay; save one with `rtsched replay LOG --out DIR`"
        raise InputError(directory, message) from error
    except (OSError, ValueError) as error:
        raise InputError(path, f"is damaged ({cause_of(error)}); replay again") from error
    if manifest.version != VERSION:
        raise InputError(
            path, f"has version {manifest.version}, this rtsched reads {VERSION}; replay again"
        )
    return manifest


def files_in(directory: Path) -> list[str]:
    """Return the files of the replay that a directory holds, none if it holds none."""
    try:
        return msgspec.json.decode((directory / MANIFEST).read_bytes(), type=Manifest).files
    except (OSError, ValueError):
        return []


def manifest_of(
    workload: Workload, folders: dict[str, str], table_format: TableFormat, files: list[str]
) -> Manifest:
    """Return the manifest of a replay that is kept in these folders and files."""
    nodes, accounts = workload.cluster.nodes, workload.accounts
    return Manifest(
        version=VERSION,
        table_format=table_format,
        files=files,
        policies=folders,
        jobs=len(workload.jobs),
        sources=[_utf8(source) for source in workload.sources],
        format=workload.format,
        assumptions=[_utf8(text) for text in workload.assumptions],
        skipped=_count_of(workload.skipped),
        skipped_first=_first_of(workload.skipped),
        log_jobs=workload.promisable.jobs,
        unpromisable=_count_of(workload.promisable.others),
        unpromisable_first=_first_of(workload.promisable.others),
        nodes=len(nodes),
        node_columns=_plain(nodes),
        accounts=len(accounts),
        account_columns=_plain(accounts),
        price=workload.price,
    )


def _plain(table: Table) -> dict[str, list[Any]]:
    """Return a small table as lists, None where a value is missing."""
    named: dict[str, list[Any]] = {
        title: amounts.tolist() for title, amounts in resource_columns(table).items()
    }
    for name, column in table.columns().items():
        if isinstance(column, Amounts):
            continue
        values = table.column(name)
        if isinstance(column, Text):
            texts = table.texts(name)
            if any(text is not None for text in texts):
                named[name] = [None if text is None else _utf8(text) for text in texts]
        elif not np.array_equal(values, np.full_like(values, column.missing), equal_nan=True):
            named[name] = values.tolist()
    return named


def from_plain(kind: type[T], n: int, lists: Mapping[str, list[Any]]) -> T:
    """Return the table that a manifest's lists were made of."""
    columns = kind.columns()
    filled: dict[str, Any] = {}
    amounts, resources = amounts_from(kind, lists)
    for name, values in lists.items():
        column = columns.get(name)
        if column is None:
            continue
        if isinstance(column, Text):
            filled[name] = values
        else:
            numbers = [column.missing if value is None else value for value in values]
            filled[name] = np.array(numbers, column.dtype)
    return kind.build(n, names=resources, **filled, **amounts)


def skipped_of(kept: Manifest) -> Skipped:
    """Return the records that were left out."""
    return _by_reason(kept.skipped, kept.skipped_first)


def promisable_of(kept: Manifest) -> PromisableJobs:
    """Return how many jobs of the log have a form that a deadline can be promised to."""
    others = _by_reason(kept.unpromisable, kept.unpromisable_first)
    return PromisableJobs(kept.log_jobs, others)


def _by_reason(count: Mapping[str, int], first: Mapping[str, str]) -> Skipped:
    found = Skipped()
    for reason, times in count.items():
        found.add(reason, first.get(reason, ""), times)
    return found


def _count_of(counts: Skipped) -> dict[str, int]:
    return {_utf8(reason): times for reason, times in counts.count.items()}


def _first_of(counts: Skipped) -> dict[str, str]:
    return {_utf8(reason): _utf8(where) for reason, where in counts.first.items()}


def _utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def encoded(value: object) -> bytes:
    """Return indented JSON text."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
