"""Standard Workload Format, version 2.2 (Parallel Workloads Archive): reading and writing.

Source: the format's definition in the Parallel Workloads Archive, version 2.2: comment lines
start with `;` (at the head: `; Name: value`), a job is 18 numbers, -1 is "not known".
"""

from __future__ import annotations

import gzip
import math
import re
from typing import IO, TYPE_CHECKING, Any, ClassVar

import numpy as np

from rtsched.errors import InputError
from rtsched.kernels.compiling import COMPILING
from rtsched.kernels.text import count_lines, scan_numbers
from rtsched.logs.gather import (
    MOST,
    Columns,
    compact,
    number_codes,
    of_jobs,
    unique_ids,
    unless_constant,
    whole,
)
from rtsched.model.cluster import Cluster
from rtsched.model.jobs import Edges, Jobs
from rtsched.model.log import Ending, Log, Outcomes, Skipped

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from rtsched.logs.readers import ReadOptions
    from rtsched.logs.source import Source

_STATUS = {Ending.COMPLETED: 1, Ending.CANCELLED: 5}
_FAILED = (Ending.FAILED, Ending.TIMEOUT, Ending.MISSED, Ending.NODE_FAILURE, Ending.PREEMPTED)
_BATCH = 65536


def write(
    path: str | Path,
    jobs: Jobs,
    outcomes: Outcomes | None = None,
    *,
    cluster: Cluster | None = None,
    header: Mapping[str, object] | None = None,
) -> None:
    """Write jobs as SWF; the same input gives the same bytes.

    Deadlines, moldable sizes and divisible loads have no place in SWF and are left out.

    Parameters
    ----------
    path : path
        Packed with gzip if it ends in `.gz`.
    jobs : Jobs
        Written in their order; `submit` must be known.
    outcomes : Outcomes, optional
        What became of them, same rows; left out: nothing is known.
    cluster : Cluster, optional
        Its length is written as MaxProcs and MaxNodes.
    header : mapping of str to object, optional
        Further header lines, such as Computer or Note; they replace those made here.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    outcomes = outcomes if outcomes is not None else Outcomes.build(len(jobs))
    start = math.floor(jobs.submit.min()) if len(jobs) else 0
    known, numbers = _text_numbers(jobs)
    lines: dict[str, object] = {"Version": "2.2", "MaxJobs": len(jobs), "MaxRecords": len(jobs)}
    if start:
        lines["UnixStartTime"] = start
    if cluster is not None:
        lines |= {"MaxNodes": len(cluster), "MaxProcs": len(cluster)}
    lines |= header or {}
    try:
        with open(path, "wb") as file:
            if str(path).endswith(".gz"):
                # No time stamp and no name inside, so that equal jobs give equal bytes.
                with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
                    _write(packed, lines, known, _fields(jobs, outcomes, start, numbers))
            else:
                _write(file, lines, known, _fields(jobs, outcomes, start, numbers))
    except OSError as error:
        raise InputError(path, f"cannot be written ({error.strerror}); check the place") from error


def _write(
    file: IO[bytes] | gzip.GzipFile,
    header: Mapping[str, object],
    names: list[str],
    fields: list[NDArray[Any]],
) -> None:
    for name, value in header.items():
        for line in str(value).splitlines() or [""]:
            file.write(f"; {name}: {line}\n".encode())
    for line in names:
        file.write(f"; {' '.join(line.split())}\n".encode())
    for first in range(0, len(fields[0]), _BATCH):
        columns = [field[first : first + _BATCH].tolist() for field in fields]
        text = "\n".join(" ".join(map(str, row)) for row in zip(*columns, strict=True))
        file.write(f"{text}\n".encode())


def _text_numbers(jobs: Jobs) -> tuple[list[str], dict[str, NDArray[np.int64]]]:
    """Return header lines for queue names, and the numbers that stand for each text column."""
    lines: list[str] = []
    columns: dict[str, NDArray[np.int64]] = {}
    for column in ("user", "account", "partition"):
        names = jobs.names(column)
        if all(name.isascii() and name.isdigit() and len(name) < 10 for name in names):
            numbers = [int(name) for name in names]
        else:
            numbers = list(range(1, len(names) + 1))
            if column == "partition":
                lines += [f"Queue: {i} {name}" for i, name in zip(numbers, names, strict=True)]
        columns[column] = np.array([*numbers, -1], np.int64)[jobs.column(column)]
    return lines, columns


def _fields(
    jobs: Jobs, outcomes: Outcomes, start: int, numbers: Mapping[str, NDArray[np.int64]]
) -> list[NDArray[Any]]:
    """Return the 18 columns of numbers."""
    n = len(jobs)
    unknown = np.full(n, -1, np.int64)
    memory = np.where(jobs.memory > 0, jobs.memory // 1024, -1)
    return [
        jobs.id if n == 0 or jobs.id.min() >= 0 else np.arange(1, n + 1),
        _plain(jobs.submit - start),
        _plain(outcomes.start - jobs.submit),
        _plain(outcomes.run_time),
        np.where(outcomes.size > 0, outcomes.size, -1),
        unknown,
        unknown,
        jobs.size,
        _plain(jobs.wall_time),
        memory,
        _status(outcomes.ending),
        numbers["user"],
        numbers["account"],
        unknown,
        numbers["partition"],
        unknown,
        unknown,
        unknown,
    ]


def _plain(values: NDArray[np.float64]) -> NDArray[Any]:
    """Return seconds as whole numbers where all are whole, -1 where they are not known."""
    known = np.where(np.isfinite(values), values, -1.0)
    rounded = np.rint(known)
    return rounded.astype(np.int64) if (rounded == known).all() else np.round(known, 3)


def _status(ending: NDArray[np.int8]) -> NDArray[np.int64]:
    """Return SWF's status of each `Ending`."""
    status = np.full(len(ending), -1, np.int64)
    for meaning, code in _STATUS.items():
        status[ending == meaning] = code
    status[np.isin(ending, _FAILED)] = 0
    return status


__all__ = [
    "COMMENT",
    "FIELDS",
    "HEADER",
    "NAMED",
    "NUMBERED",
    "SwfReader",
    "header_name",
    "parse_lines",
    "write",
]

FIELDS = (
    "job",
    "submit",
    "wait",
    "run",
    "allocated",
    "cpu",
    "used_memory",
    "requested",
    "requested_time",
    "requested_memory",
    "status",
    "user",
    "group",
    "application",
    "queue",
    "partition",
    "before",
    "think",
)
"""The 18 fields of a line, in order."""

_KEPT = ("job", "status", "user", "group", "application", "queue", "partition", "before")
_LARGEST = 2.0**53
_DATED = 20 * 365.25 * 86400.0
"""Seconds from 1970 to 1990. No log lasts as long: a submit time that is larger is a date."""
COMMENT = (b";", b"#")
"""How a comment begins; by the format's definition with `;` only."""
HEADER = re.compile(rb"\s*[;#]\s*([A-Za-z]+)\s*:\s*(.*?)\s*")
NAMED = re.compile(rb"(-?\d+)\s+(\S.*)")
_NAMES = re.compile(rb';"?\w+"?;')
NUMBERED = (
    *("Version", "UnixStartTime", "TimeZone", "MaxJobs", "MaxRecords", "MaxNodes", "MaxProcs"),
    *("MaxRuntime", "MaxMemory", "MaxQueues", "MaxPartitions"),
)
"""Names of header lines that say a number."""
_SPELT = {name.lower(): name for name in (*NUMBERED, "Queue", "Partition")}
_MACHINE = ("MaxProcs", "MaxNodes")
_SIZE = re.compile(rb"[+-]?[0-9]{1,20}")
_ENDINGS = {0: Ending.FAILED, 1: Ending.COMPLETED, 5: Ending.CANCELLED}
_PARTIAL = (2, 3, 4)  # status of lines that are part of a job with a line of its own

Lines = tuple["NDArray[np.float64]", "NDArray[np.int64]", list[tuple[int, bytes]], int, int]


def header_name(text: bytes) -> str:
    """Return the name of a header line as the format spells it, whatever its case."""
    name = text.decode()
    return _SPELT.get(name.lower(), name)


def parse_lines(block: bytes) -> Lines:
    """Return the numbers in whole lines: the plain form of the compiled scanner.

    Returns
    -------
    numbers : float64[18, rows]
        One good line per column.
    line_of : int64[rows]
        Its line, from 0.
    odd : list of (int, bytes)
        Line and text of every other line that is not blank.
    lines : int
        How many lines there are.
    longer : int
        Good lines with more behind the 18 numbers, which is passed over.
    """
    longer = 0
    rows: list[list[float]] = []
    line_of: list[int] = []
    odd: list[tuple[int, bytes]] = []
    lines = block.split(b"\n")
    if not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines):
        fields = line.split()
        try:
            values = [float(field) for field in fields[: len(FIELDS)]]
        except ValueError:
            values = []
        if len(values) == len(FIELDS) and not any(b"_" in text for text in fields[: len(FIELDS)]):
            rows.append(values)
            line_of.append(number)
            longer += len(fields) > len(FIELDS)
        elif fields:
            odd.append((number, line))
    numbers = np.array(rows, np.float64).reshape(len(rows), len(FIELDS)).T
    return numbers, np.array(line_of, np.int64), odd, len(lines), longer


def scan_lines(block: bytes) -> Lines:
    """Return the same as `parse_lines`, by the compiled scanner."""
    buffer = np.frombuffer(block, np.uint8)
    most = count_lines(buffer)
    numbers = np.empty((len(FIELDS), most))
    line_of = np.empty(most, np.int64)
    odd = np.empty((most, 3), np.int64)
    rows, odds, lines, longer = scan_numbers(buffer, numbers, line_of, odd)
    numbers, line_of = numbers[:, :rows], line_of[:rows]
    strange: list[tuple[int, bytes]] = []
    late: list[tuple[int, NDArray[np.float64]]] = []
    for start, end, line in odd[:odds].tolist():
        text = block[start:end]
        if text.lstrip().startswith(COMMENT):
            strange.append((line, text))
            continue
        values, _, _, _, more = parse_lines(text)
        if values.shape[1] == 0:
            strange.append((line, text))
        else:
            late.append((line, values))
            longer += more
    if late:
        numbers = np.concatenate([numbers, *(values for _, values in late)], axis=1)
        line_of = np.concatenate([line_of, [line for line, _ in late]])
        order = np.argsort(line_of)
        numbers, line_of = numbers[:, order], line_of[order]
    return numbers, line_of, strange, lines, longer


class SwfReader:
    """Reads SWF. Sizes count processors; `partition` is the queue, else the partition."""

    format: ClassVar[str] = "swf"

    def __init__(self, options: ReadOptions) -> None:
        self._details = options.details
        self._columns = Columns()
        self._skipped = Skipped()
        self._sources: list[str] = []
        self._headers: list[dict[str, str]] = []
        self._names: dict[str, dict[int, str]] = {"queue": {}, "partition": {}}
        self._longer = 0
        self._dated = 0

    @staticmethod
    def claims(head: bytes) -> bool:
        """Return whether the first line with text is a comment or begins with 18 numbers.

        Comments with `#`, and one line of names, may stand before. `;JobID;Submit` are names of a
        table with numbered rows.
        """
        text = head.lstrip()
        lines = [line for line in text.split(b"\n", 100)[:100] if not line.startswith(b"#")]
        comment = text.startswith(b";") and not _NAMES.match(text)
        return comment or len(parse_lines(b"\n".join(lines[:2]))[1]) > 0

    def read(self, source: Source) -> None:
        """Take in one file."""
        self._sources.append(source.path)
        header: dict[str, str] = {}
        self._headers.append(header)
        before = rows = 0
        for block in source.line_blocks():
            numbers, line_of, odd, lines, longer = (scan_lines if COMPILING else parse_lines)(block)
            self._longer += longer
            first = line_of[0] if len(line_of) else lines
            for line, text in odd:
                if not text.lstrip().startswith(COMMENT):
                    self._skip_odd(text, f"{source.path}:{before + line + 1}")
                elif rows == 0 and line < first:
                    self._note(text, header, before + line + 1)
            self._append(numbers, line_of + before, _start(header) or 0)
            before += lines
            rows += numbers.shape[1]

    def _skip_odd(self, text: bytes, where: str) -> None:
        if len(text.split()) < len(FIELDS):
            self._skipped.add(f"the line has fewer than {len(FIELDS)} fields", where)
        else:
            self._skipped.add("a field is not a number", where)

    def _note(self, text: bytes, header: dict[str, str], line: int) -> None:
        """Take in a comment line of the header; the first of a name counts."""
        match = HEADER.fullmatch(text)
        if match is None:
            return
        name, value = header_name(match[1]), match[2]
        named = NAMED.fullmatch(value)
        if name in {"Queue", "Partition"} and named is not None:
            shown = named[2].decode("utf-8", "backslashreplace")
            self._names[name.lower()].setdefault(int(named[1][:18]), shown)
        header.setdefault(name, value.decode("utf-8", "backslashreplace"))
        size = _SIZE.match(value) if name in _MACHINE else None
        if size is not None and not 0 < int(size[0]) <= MOST:
            message = (
                f"{name} is {size[0].decode()}, but a machine has 1 to {MOST:,} processors; put "
                "the line right or take it out"
            )
            raise InputError(self._sources[-1], message, line=line)

    def _append(self, numbers: NDArray[np.float64], line_of: NDArray[np.int64], start: int) -> None:
        """Append the rows that are possible."""
        field = dict(zip(FIELDS, numbers, strict=True))
        given, machine = field["allocated"], _machine(self._headers[-1]) or MOST
        asked = np.where(field["requested"] > 0, field["requested"], given)
        bad = {
            "a number is out of range": ~(np.abs(numbers) < _LARGEST).all(axis=0),
            "the submit time is missing or negative": field["submit"] < 0,
            "the wait time is negative": (field["wait"] < 0) & (field["wait"] != -1),
            "the run time is negative": (field["run"] < 0) & (field["run"] != -1),
            "it asks for no processors": ~(asked > 0),
            "it asks for impossibly many processors": asked > MOST,
            "it was given more processors than the machine has": given > np.maximum(machine, asked),
        }
        keep = np.ones(numbers.shape[1], np.bool_)
        for reason, rows in bad.items():
            wrong = np.flatnonzero(keep & rows)
            if len(wrong):
                where = f"{self._sources[-1]}:{line_of[wrong[0]] + 1}"
                self._skipped.add(reason, where, len(wrong))
                keep[wrong] = False
        if not keep.all():
            field = {name: values[keep] for name, values in field.items()}
            asked = asked[keep]
        submit = self._since_1970(field["submit"], start)
        wait = np.where(field["wait"] < 0, np.nan, field["wait"])
        run = np.where(field["run"] < 0, np.nan, field["run"])
        limit = field["requested_time"]
        self._columns.append(
            len(submit),
            {
                "submit": submit,
                "start": submit + wait,
                "end": submit + wait + run,
                "run_time": run,
                "wall_time": np.where(limit > 0, limit, np.inf),
                "size": whole(asked),
                "allocated": whole(field["allocated"]),
                "memory": compact(field["requested_memory"]),
                **{name: compact(np.floor(field[name])) for name in _KEPT},
            },
        )

    def _since_1970(self, submit: NDArray[np.float64], start: int) -> NDArray[np.float64]:
        """Return submit times as seconds since 1970; `start` is the UnixStartTime.

        Some logs give one although their times count from 1970 already.
        """
        if start < _DATED:
            return submit + start
        dated = submit >= _DATED
        self._dated += int(dated.sum())
        return np.where(dated, submit, submit + start)

    def log(self) -> Log:
        """Return everything taken in."""
        if self._columns.rows == 0:
            return self._log(Jobs.build(0), Outcomes.build(0), [], None)
        keep = self._whole_jobs()
        take = self._columns.take if keep is None else lambda name: self._columns.take(name)[keep]
        assumptions: list[str] = []
        numbers = take("job").astype(np.int64)
        ids = unique_ids(numbers)
        labels = None
        if ids is not None:
            labels = [str(number) for number in numbers.tolist()]
            assumptions.append("job numbers occur twice, so jobs are distinguished by their rows")
        memory = take("memory").astype(np.int64)
        texts = {
            "user": number_codes(take("user"), {}),
            "account": number_codes(take("group"), {}),
            "partition": number_codes(take("queue"), self._names["queue"]),
        }
        if self._details:
            texts["name"] = number_codes(take("application"), {})
        partition = take("partition")
        if texts["partition"] is None:
            texts["partition"] = number_codes(partition, self._names["partition"])
        wall_time = unless_constant(take("wall_time"), np.inf)
        if wall_time is None:
            assumptions.append("the log has no requested times")
        jobs = Jobs.build(
            len(numbers),
            id=numbers if ids is None else ids,
            label=labels,
            submit=take("submit"),
            wall_time=wall_time,
            size=take("size"),
            memory=unless_constant(np.where(memory > 0, memory * 1024, -1), -1),
            names={name: coded[1] for name, coded in texts.items() if coded},
            **{name: coded[0] for name, coded in texts.items() if coded},
        )
        edges = self._edges(numbers, jobs.id, take("before"), assumptions)
        outcomes = Outcomes.build(
            len(jobs),
            start=unless_constant(take("start"), np.nan),
            end=unless_constant(take("end"), np.nan),
            run_time=take("run_time"),
            size=unless_constant(take("allocated"), 0),
            ending=_endings(take("status")),
        )
        return self._log(jobs, outcomes, assumptions, edges)

    def _whole_jobs(self) -> NDArray[np.bool_] | None:
        """Return which lines are not parts of a job that has a line of its own; None: all."""
        part = np.isin(self._columns.look("status"), _PARTIAL)
        if not part.any():
            return None
        numbers = self._columns.look("job")
        part &= np.isin(numbers, numbers[~part])
        self._skipped.add(
            "the line is a part of a job that has a line of its own",
            self._sources[0],
            int(part.sum()),
        )
        return ~part if part.any() else None

    def _edges(
        self,
        numbers: NDArray[np.int64],
        ids: NDArray[np.int64],
        before: NDArray[np.int64],
        assumptions: list[str],
    ) -> Edges | None:
        """Return which job follows which (fields 17), as far as both are in the log."""
        after = np.flatnonzero(before > 0)
        if len(after) == 0:
            return None
        order = np.argsort(numbers, kind="stable")
        place = np.searchsorted(numbers, before[after], sorter=order)
        found = order[np.minimum(place, len(order) - 1)]
        known = numbers[found] == before[after]
        found, after = found[known], after[known]
        assumptions.append(
            of_jobs("a job follows the one it names; think times are left out", len(after))
        )
        return Edges.build(len(after), before=ids[found], after=ids[after])

    def _log(
        self, jobs: Jobs, outcomes: Outcomes, assumptions: list[str], edges: Edges | None
    ) -> Log:
        cluster, notes = self._cluster()
        if self._dated:
            dated = "a submit time counts from 1970 already: UnixStartTime is not added"
            notes.append(of_jobs(dated, self._dated))
        if self._longer:
            more = f"fields beyond the {len(FIELDS)} of SWF are not read"
            notes.append(of_jobs(more, self._longer))
        return Log(
            jobs,
            outcomes,
            tuple(self._sources),
            self.format,
            edges=edges if edges is not None else Edges.build(0),
            cluster=cluster,
            assumptions=(*assumptions, *notes),
            skipped=self._skipped,
        )

    def _cluster(self) -> tuple[Cluster | None, list[str]]:
        """Return the machine of the headers: MaxProcs processors, else MaxNodes."""
        notes: list[str] = []
        sizes = set()
        for header in self._headers:
            size = _machine(header)
            if size is not None and _integer(header.get("MaxProcs")) is None:
                notes.append("the log gives no MaxProcs: MaxNodes is taken for it")
            sizes.add(size)
        known = sorted(size for size in sizes if size is not None)
        if len(sizes) > 1 and known:
            notes.append(f"the logs' machines differ: the largest, {known[-1]}, is taken")
        starts = [_start(header) for header in self._headers]
        missing, since = starts.count(None), "times count from 1970-01-01"
        if missing == len(starts):
            notes.append(f"the log gives no UnixStartTime: its {since}")
        elif missing:
            notes.append(f"{missing} of {len(starts)} logs give no UnixStartTime: their {since}")
        return (Cluster.uniform(known[-1]) if known else None), list(dict.fromkeys(notes))


def _machine(header: Mapping[str, str]) -> int | None:
    """Return the processors of the machine that a header describes."""
    return _integer(header.get("MaxProcs")) or _integer(header.get("MaxNodes"))


def _start(header: Mapping[str, str]) -> int | None:
    """Return the UnixStartTime that a header gives, None if it gives no number of seconds."""
    text = header.get("UnixStartTime", "")
    return 0 if text.strip() == "0" else _integer(text)


def _integer(text: str | None) -> int | None:
    """Return the whole number > 0 that a header value starts with."""
    match = re.match(r"\s*(\d{1,3}(?:,\d{3}){1,3}|\d{1,12})\b", text or "", re.ASCII)
    value = int(match[1].replace(",", "")) if match else 0
    return value if value > 0 else None


def _endings(status: NDArray[np.int32]) -> NDArray[np.int8]:
    """Return the `Ending` of each status."""
    ending = np.full(len(status), Ending.UNKNOWN, np.int8)
    for code, meaning in _ENDINGS.items():
        ending[status == code] = meaning
    return ending
