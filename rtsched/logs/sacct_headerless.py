"""Text of sacct without its header line (`--noheader`): named columns, or a guess that is certain.

A guess is made where every line looked at fits: the columns of `SACCT_COLUMNS`; or a job id first,
times in the order of Submit, Eligible, Start and End, the run time as their difference, a state
and one column of resources, each in one way only.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from rtsched.errors import ConfigError, InputError
from rtsched.logs.sacct_lines import SACCT_COLUMNS, Header
from rtsched.logs.sacct_repair import begins_record, readings
from rtsched.logs.source import readable

if TYPE_CHECKING:
    from collections.abc import Sequence

_DELIMITERS = (b"|", b"\t", b"^", b";", b",")
_WIDTH = re.compile(r"%-?\d+$")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_MOST_LINES = 200
_LEAST_RUNS = 3
_SHOWN = {name.lower(): name for name in (*SACCT_COLUMNS.split(","), "Elapsed")}
_ID = re.compile(rb"\d+(?:[_+](?:\d+|\[[^|]*\]))?(?:\.[\w+]+)?")
_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d|Unknown|None|N/A")
_MOMENT = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_SPAN = re.compile(rb"(?:(\d+)-)?(\d\d):(\d\d):(\d\d)|(\d+)")
_STATE = re.compile(
    rb"(?:COMPLETED|FAILED|CANCELLED|TIMEOUT|RUNNING|PENDING|NODE_FAIL|PREEMPTED|OUT_OF_MEMORY|"
    rb"REQUEUED|BOOT_FAIL|DEADLINE|SUSPENDED|RESIZING|REVOKED)\+?(?: by \d+)?"
)
_TRES = re.compile(rb"(?=.*\bcpu=\d)(?:[a-z][^=,|]*=[^=,|]+,)*[a-z][^=,|]*=[^=,|]+|")


def columns_named(text: str) -> list[str]:
    """Return the names that a list as for `sacct --format` has, without their widths.

    Raises
    ------
    ConfigError
        If it is no such list.
    """
    names = [_WIDTH.sub("", each.strip()) for each in re.split(r"[,|]", text.strip(" ,|"))]
    wrong = [name for name in names if not _NAME.fullmatch(name)]
    if wrong:
        raise ConfigError(
            [f"--columns: {wrong[0]!r} is no column; list names as for `sacct --format`"]
        )
    missing = Header("|".join(names).encode(), "|").missing()
    if missing:
        raise ConfigError([f"--columns names no {missing}, which every log needs"])
    return names


def is_header(line: bytes) -> bool:
    """Return whether a first line names columns, a job's id among them."""
    return not {"jobid", "jobidraw"}.isdisjoint(Header(line, None).columns)


def is_headerless(head: bytes, columns: str | None, delimiter: str | None) -> bool:
    """Return whether text without a header can be read: its columns are named or certain."""
    return columns is not None or guessed_header(head, delimiter) is not None


def header_of(path: str, head: bytes, columns: Sequence[str], delimiter: str | None) -> bytes:
    """Return the header line that the text of a file would have with these columns.

    Raises
    ------
    InputError
        If its lines have another number of fields.
    """
    sample = _sample(head)
    first = sample[0] if sample else b""
    delimiters = (delimiter.encode(),) if delimiter else _DELIMITERS
    most = max(delimiters, key=lambda each: (first.count(each) + 1 >= len(columns), each in first))
    fields = first.split(most)
    if len(fields) < len(columns):
        raise InputError(
            path,
            f"its first line has {len(fields)} fields, and --columns names {len(columns)}; name "
            "the columns with which sacct was called, in their order",
        )
    ends = len(fields) > len(columns) and all(line.endswith(most) for line in sample)
    return most.join([*(name.encode() for name in columns), *((b"",) if ends else ())])


def guessed_header(head: bytes, delimiter: str | None = None) -> bytes | None:
    """Return the header line that text without one seems to lack; None: it cannot be told."""
    sample = _sample(head)
    mark = delimiter.encode() if delimiter else b"|"
    if not sample or mark not in sample[0]:
        return None
    names = SACCT_COLUMNS.split(",")
    for ends in (0, 1):
        header = mark.join([*(name.encode() for name in names), *((b"",) * ends)])
        columns = Header(header, readable(mark)).columns
        records = [line for line in sample if begins_record(line, columns, mark)]
        if records and all(readings(columns, line.split(mark), mark) for line in records):
            return header
    found = _by_form([line.split(mark) for line in sample])
    return mark.join(name.encode() for name in found) if found else None


def guess_said(columns: list[str]) -> str:
    """Return what is assumed of a file without a header line."""
    shown = ", ".join(_SHOWN[name] for name in columns if name in _SHOWN)
    number = sum(name not in _SHOWN for name in columns if name)
    others = f"; {number} others are not read" if number else ""
    return (
        f"the log has no header line: by their form its columns are taken to be {shown}{others} "
        "(`--columns` names them)"
    )


def _sample(head: bytes) -> list[bytes]:
    """Return the first lines, the last one only if it is whole."""
    lines = head.lstrip().split(b"\n")
    whole = lines[:-1] if len(lines) > 1 else lines
    return [line.rstrip(b"\r") for line in whole[:_MOST_LINES] if line.strip()]


def _by_form(rows: list[list[bytes]]) -> list[str] | None:
    """Return names of columns, `Other` for those not known; None where there are several ways."""
    width = len(rows[0])
    if any(len(row) != width for row in rows):
        return None
    columns = list(zip(*rows, strict=True))
    alike = {
        kind: [at for at, cells in enumerate(columns) if all(map(form.fullmatch, cells))]
        for kind, form in (("id", _ID), ("time", _TIME), ("state", _STATE), ("tres", _TRES))
    }
    tres = [at for at in alike["tres"] if any(columns[at])]
    if alike["id"][:1] != [0] or len(alike["state"]) != 1 or len(tres) != 1:
        return None
    names = ["Other"] * width
    names[0], names[alike["state"][0]], names[tres[0]] = "JobID", "State", "AllocTRES"
    times = _times([columns[at] for at in alike["time"]])
    if times is None:
        return None
    for at, name in zip(alike["time"], times, strict=True):
        names[at] = name
    start, end = (columns[names.index(name)] for name in ("Start", "End"))
    started = [bool(_MOMENT.fullmatch(cell)) for cell in start]
    if sum(bool(_MOMENT.fullmatch(cell)) for cell in end) < _LEAST_RUNS:
        return None
    if any(cell for cell, did in zip(columns[tres[0]], started, strict=True) if not did):
        names[tres[0]] = "ReqTRES"
    spans = [
        at
        for at, cells in enumerate(columns)
        if names[at] == "Other" and all(map(_lasts, start, end, cells))
    ]
    if not spans:
        return None
    for at in spans:
        names[at] = "ElapsedRaw" if all(cell.isdigit() for cell in columns[at]) else "Elapsed"
    return names


def _times(columns: list[tuple[bytes, ...]]) -> tuple[str, ...] | None:
    """Return the names of columns of times, if they come in the order in which jobs pass them."""
    names = {3: ("Submit", "Start", "End"), 4: ("Submit", "Eligible", "Start", "End")}
    order = names.get(len(columns))
    for moments in zip(*columns, strict=True):
        known = [moment for moment in moments if _MOMENT.fullmatch(moment)]
        if known != sorted(known):
            return None
    return order


def _lasts(start: bytes, end: bytes, cell: bytes) -> bool:
    """Return whether a cell may be the seconds from `start` to `end`."""
    match = _SPAN.fullmatch(cell)
    if match is None:
        return False
    if not (_MOMENT.fullmatch(start) and _MOMENT.fullmatch(end)):
        return True
    days, hours, minutes, seconds, whole = (int(each or 0) for each in match.groups())
    span = timedelta(days, seconds + whole, minutes=minutes, hours=hours)
    try:
        return datetime.fromisoformat(end.decode()) - datetime.fromisoformat(start.decode()) == span
    except ValueError:
        return False
