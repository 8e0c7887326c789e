"""Store of replays: keep one in a directory, and read it back for `explain` and `render`.

    DIR/manifest.json           what is here; written last
    DIR/summary.json            what `--json` prints, without timings
    DIR/log.parquet             the workload: what jobs asked for, what the log says became of them
    DIR/easy/jobs.parquet       what the policy made of each job, row by row with the log
    DIR/easy/decisions.jsonl    one object per finding of a plug-in; equal ones of a job are counted
    DIR/report.html             the page, if there is one

The same replay gives the same bytes. Either all files are replaced or none is: they are written
under another name first, so a full disk leaves behind what was there before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast, overload
from urllib.parse import quote

import msgspec
import numpy as np

from rtsched.core.chain import HookMetrics
from rtsched.errors import InputError
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Edges, Jobs, Kind
from rtsched.model.log import Ending, FinalState, Outcomes, Skipped
from rtsched.model.snapshot import Accounts
from rtsched.model.table import Amounts, Table, Text, amounts_from, resource_columns
from rtsched.replay.results import PolicyRun, PromisableJobs, Results, Workload
from rtsched.report.files import (
    Cells,
    TableFormat,
    choice_cells,
    created,
    number_cells,
    read_cells,
    replacing,
    table_cells,
    table_from,
    text_cells,
    unreadable,
    write_text,
    writer_of,
)
from rtsched.report.summary import Summary
from rtsched.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

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
        raise unreadable(path, error, "is damaged") from error
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


__all__ = ["Findings", "Stored", "folder_of", "read", "write", "write_text"]

SUMMARY = "summary.json"
REPORT = "report.html"
_DECISIONS = "decisions.jsonl"
_LOGGED = "logged_"
_CHOICES = {"kind": Kind, "ending": Ending, "fate": FinalState}
_ALWAYS = ("label", "submit", "wall_time", "deadline", "size", "user", "account")


def write(
    directory: Path,
    workload: Workload,
    runs: Sequence[PolicyRun],
    summary: Summary,
    table_format: TableFormat = "parquet",
    report: str | None = None,
) -> None:
    """Keep a replay in `directory`, which is made if it is not there.

    Parameters
    ----------
    directory : Path
        Files of an earlier replay in it are replaced, others are left alone.
    workload : Workload
        The log.
    runs : sequence of PolicyRun
        What the policies made of it.
    summary : Summary
        Of the same; its timings are left out.
    table_format : {"parquet", "csv"}
        Parquet needs the `replay` extra.
    report : str, optional
        The HTML page, to be kept as `report.html`.

    Raises
    ------
    OutputError
        If the directory cannot be made or written; what was there is still there.
    MissingExtraError
        If pyarrow is needed and missing.
    """
    directory = Path(directory)
    write_table = writer_of(table_format)
    folders = {run.policy: folder_of(run.policy) for run in runs}
    labels = _labels(workload.jobs)
    with replacing(directory, MANIFEST, files_in(directory)) as new:
        with created(new / f"log.{table_format}") as file:
            write_table(file, _log_cells(workload))
        for run in runs:
            folder = new / folders[run.policy]
            folder.mkdir()
            with created(folder / f"jobs.{table_format}") as file:
                write_table(file, _job_cells(workload, run, labels))
            with created(folder / _DECISIONS) as file:
                _write_decisions(file, labels, run.decisions)
        with created(new / SUMMARY) as file:
            file.write(summary.without_timings().encode())
        if report is not None:
            with created(new / REPORT) as file:
                file.write(report.encode())
        files = sorted(str(path.relative_to(new)) for path in new.rglob("*") if path.is_file())
        with created(new / MANIFEST) as file:
            file.write(encoded(manifest_of(workload, folders, table_format, files)))


def read(directory: Path) -> Stored:
    """Open what `write` kept.

    Raises
    ------
    InputError
        If the directory does not hold a replay.
    """
    directory = Path(directory)
    return Stored(directory, read_manifest(directory))


@dataclass(frozen=True)
class Stored:
    """A kept replay. Files are read when they are asked for."""

    directory: Path
    manifest: Manifest

    @property
    def policies(self) -> tuple[str, ...]:
        """Return the policies' names, in the order of the replay."""
        return tuple(self.manifest.policies)

    @cached_property
    def summary(self) -> Summary:
        """Return the summary."""
        path = self.directory / SUMMARY
        try:
            return msgspec.json.decode(path.read_bytes(), type=Summary)
        except (OSError, ValueError) as error:
            raise unreadable(path, error) from error

    @cached_property
    def workload(self) -> Workload:
        """Return the log; edges, partitions and topology are not kept."""
        kept, cells = self.manifest, self._cells(self.directory, "log")
        logged = {
            name.removeprefix(_LOGGED): cell
            for name, cell in cells.items()
            if name.startswith(_LOGGED)
        }
        n = kept.jobs
        return Workload(
            jobs=table_from(Jobs, n, _renamed(cells), _CHOICES),
            run_time=np.where(cells["run_time_s"].present, cells["run_time_s"].values, np.nan),
            outcomes=table_from(Outcomes, n, logged, _CHOICES),
            cluster=Cluster(from_plain(Nodes, kept.nodes, kept.node_columns)),
            accounts=from_plain(Accounts, kept.accounts, kept.account_columns),
            edges=Edges.build(0),
            assumptions=tuple(kept.assumptions),
            skipped=skipped_of(kept),
            sources=tuple(kept.sources),
            format=kept.format,
            price=kept.price,
            promisable=promisable_of(kept),
        )

    def run(self, policy: str) -> PolicyRun:
        """Return one policy's replay, without its timings.

        Raises
        ------
        InputError
            If it is not among the kept ones, or its files are damaged.
        """
        if policy not in self.manifest.policies:
            known = ", ".join(self.policies)
            raise InputError(self.directory, f"contains no policy {policy!r}; it has {known}")
        folder = self.directory / self.manifest.policies[policy]
        n, cells = self.manifest.jobs, self._cells(folder, "jobs")
        results = table_from(
            Results, n, {k: v for k, v in cells.items() if k != "asked_size"}, _CHOICES
        )
        entry = self.summary.policies.get(policy, {})
        nodes, indptr = cells.get("nodes"), np.zeros(n + 1, np.int64)
        rows = np.empty(0, np.int32)
        if nodes is not None and nodes.indptr is not None:
            indptr, rows = nodes.indptr, nodes.values.astype(np.int32)
        hooks = {
            hook: {plugin: _book(book) for plugin, book in books.items()}
            for hook, books in entry.get("hooks", {}).items()
        }
        decisions = Findings(folder / _DECISIONS)
        return PolicyRun(
            policy, results, (indptr, rows), hooks, decisions, entry.get("settings", {}),
            undone=entry.get("not_carried_out", {}),
            released=entry.get("did_not_wait", 0),
            beyond_limits=entry.get("beyond_limits", 0),
            baseline_wait=entry.get("mean_baseline_wait_s"),
        )  # fmt: skip

    def runs(self) -> list[PolicyRun]:
        """Return all policies' replays."""
        return [self.run(policy) for policy in self.policies]

    def findings(self, policy: str, row: int) -> list[dict[str, Any]]:
        """Return what plug-ins said of the job in one row of the workload, in order."""
        folder = self.directory / self.manifest.policies[policy]
        return list(Findings(folder / _DECISIONS, row))

    def _cells(self, folder: Path, name: str) -> dict[str, Cells]:
        path = folder / f"{name}.{self.manifest.table_format}"
        cells = read_cells(path)
        if any(len(cell.present) != self.manifest.jobs for cell in cells.values()):
            raise InputError(path, f"has not {counted(self.manifest.jobs, 'row')}; replay again")
        return cells


@dataclass(frozen=True)
class Findings:
    """The findings in a file of decisions, of all jobs or of one; read anew at each iteration."""

    path: Path
    row: int | None = None

    def __iter__(self) -> Iterator[dict[str, Any]]:
        begin = b"" if self.row is None else b'{"row":%d,' % self.row
        decode = msgspec.json.Decoder(dict[str, Any]).decode
        try:
            with self.path.open("rb") as file:
                for line in file:
                    if line.startswith(begin):
                        finding = decode(line)
                        finding.update(label=finding["job"], job=finding.pop("row"))
                        yield finding
        except (OSError, ValueError, KeyError) as error:
            raise unreadable(self.path, error) from error


def folder_of(policy: str) -> str:
    """Return a policy's name as a folder's: `/`, dots and whatever else is odd are written `%2F`.

    Names are distinct unless they share the first hundred characters.
    """
    return quote(policy.encode("utf-8", "backslashreplace"), safe="").replace(".", "%2E")[:100]


def _log_cells(workload: Workload) -> dict[str, Cells]:
    cells = table_cells(workload.jobs, _CHOICES, _ALWAYS)
    named = {"id": cells.pop("id", number_cells(workload.jobs.id, -1))}
    named["job"] = cells.pop("label")
    named.update(cells)
    named["run_time_s"] = number_cells(workload.run_time)
    for name, cell in table_cells(workload.outcomes, _CHOICES, ("start", "end")).items():
        named[_LOGGED + name] = cell
    return named


def _renamed(cells: Mapping[str, Cells]) -> dict[str, Cells]:
    """Return the log's cells under the names that a table of jobs has for them."""
    return {("label" if name == "job" else name): cell for name, cell in cells.items()}


def _job_cells(workload: Workload, run: PolicyRun, labels: Cells) -> dict[str, Cells]:
    """Return what one policy made of each job, beside what was asked for."""
    jobs, results = workload.jobs, run.results
    indptr, rows = run.node_rows
    cells = {
        "job": labels,
        "submit_s": number_cells(jobs.submit),
        "wall_time_s": number_cells(jobs.wall_time),
        "deadline_s": number_cells(jobs.deadline),
        "asked_size": number_cells(jobs.size, None),
        "user": text_cells(jobs.user, jobs.names("user")),
        "account": text_cells(jobs.account, jobs.names("account")),
        "start_s": number_cells(results.start),
        "end_s": number_cells(results.end),
        "wait_s": number_cells(results.start - jobs.submit),
        "size": number_cells(results.size, None),
        "fate": choice_cells(results.fate, FinalState),
        "promise_s": number_cells(results.promise),
        "offer_s": number_cells(results.offer),
        "reason": text_cells(results.reason, results.names("reason")),
        "first_node": number_cells(results.first_node, -1),
    }
    if np.isfinite(results.service).any():
        cells["service_node_s"] = number_cells(results.service)
    if results.ran_on.any():
        cells["ran_on"] = Cells(results.ran_on, np.ones(len(jobs), np.bool_))
    if workload.preemption is not None:
        cells["preempted"] = number_cells(results.preempted, None)
        cells["lost_node_s"] = number_cells(results.lost)
    if len(rows):
        cells["nodes"] = Cells(rows, np.ones(len(jobs), np.bool_), indptr=indptr)
    return cells


def _labels(jobs: Jobs) -> Cells:
    """Return what the batch system calls each job, its id where it has no other name."""
    unnamed = np.flatnonzero(jobs.label < 0)
    known = text_cells(jobs.label, jobs.names("label"))
    if not len(unnamed):
        return known
    names = _Names(known.names or (), jobs.id if len(unnamed) == len(jobs) else jobs.id[unnamed])
    codes = jobs.label.copy()
    codes[unnamed] = np.arange(len(unnamed)) + len(names.texts)
    return Cells(codes, np.ones(len(codes), np.bool_), names)


class _Names(Sequence[str]):
    """Texts, and behind them numbers as texts, which are made when they are asked for."""

    def __init__(self, texts: Sequence[str], numbers: NDArray[np.int64]) -> None:
        self.texts, self._numbers = texts, numbers

    def __len__(self) -> int:
        return len(self.texts) + len(self._numbers)

    def __iter__(self) -> Iterator[str]:
        yield from self.texts
        yield from map(str, self._numbers.tolist())

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[str]: ...
    def __getitem__(self, place: int | slice) -> str | Sequence[str]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        beyond = place - len(self.texts)
        if beyond < 0:
            return self.texts[place]
        return str(int(self._numbers[beyond]))


def _write_decisions(
    file: BinaryIO, labels: Cells, decisions: Iterable[Mapping[str, object]]
) -> None:
    """Write one line per finding: the job's row and name, then what the plug-in said."""
    encode = msgspec.json.Encoder().encode
    codes, names = labels.values, labels.names or ()
    for finding in decisions:
        row = cast("int", finding["job"])
        rest = {key: value for key, value in finding.items() if key not in {"job", "label"}}
        file.write(encode({"row": row, "job": names[codes[row]], **rest}))
        file.write(b"\n")


def _book(book: Mapping[str, Any]) -> HookMetrics:
    return HookMetrics(
        calls=book["calls"],
        judged=book["judged"],
        changed=book["changed"],
        abstained=book["abstained"],
        errors=book["errors"],
        first_error=book.get("first_error", ""),
    )
