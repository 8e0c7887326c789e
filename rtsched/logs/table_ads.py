"""Tables of ClassAds: what `-af:h` prints, one ad a line behind a line of attribute names.

Source: HTCondor's manual page condor_history, option -autoformat.
"""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING

from rtsched.logs.classads import parse_value
from rtsched.logs.source import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rtsched.logs.classads import Record, Value
    from rtsched.logs.source import Source

_NAME = re.compile(r"[A-Za-z_]\w*")


def header_of(head: bytes) -> tuple[str, list[str]]:
    """Return what is between the columns, and their names in lower case; no names: no table.

    Empty: white space is.
    """
    line = readable(head.lstrip(b"\r\n").partition(b"\n")[0]).rstrip("\r ")
    at = "\t" if "\t" in line.strip("\t") else "," if "," in line else ""
    names = [name.strip().lower() for name in (line.split(at) if at else line.split())]
    while names and not names[-1]:
        names.pop()
    if len(names) < 2 or not all(map(_NAME.fullmatch, names)):
        return "", []
    return at, names


def is_table(head: bytes) -> bool:
    """Return whether a file begins with names of attributes of jobs."""
    return {"clusterid", "procid"} <= set(header_of(head)[1])


def table_ads(
    source: Source, names: frozenset[str], bad: Callable[[str, int], None]
) -> Iterator[tuple[int, Record]]:
    """Yield line and wanted attributes of each ad; arguments as of `read_ads`."""
    at, columns = header_of(source.head)
    before = 0
    for block in source.line_blocks():
        lines = readable(block).split("\n")
        for number, line in enumerate(lines[: len(lines) - (not lines[-1])], before + 1):
            cells = _cells(line, at)
            if not any(cells) or [cell.lower() for cell in cells] == columns:
                continue
            if len(cells) != len(columns):
                bad("the line has another number of fields than the header (use -json)", number)
                continue
            row = zip(columns, cells, strict=True)
            yield number, {name: _value(cell) for name, cell in row if name in names}
        before += len(lines) - 1


def _cells(line: str, at: str) -> list[str]:
    """Return the cells of a line; the last may have what is between them behind it."""
    text = line.strip("\r")
    if not at:
        return text.split() if '"' not in text else _quoted(text.strip(), " ")
    cells = _quoted(text, at) if '"' in text else text.split(at)
    cells = [cell.strip() for cell in cells]
    return cells[:-1] if len(cells) > 1 and not cells[-1] else cells


def _quoted(text: str, at: str) -> list[str]:
    """Return cells of which some are in quotes, as `-af:V` writes texts."""
    try:
        return next(csv.reader([text], delimiter=at, escapechar="\\", skipinitialspace=True), [])
    except csv.Error:
        return []


def _value(cell: str) -> Value:
    """Return the value of a cell; a text has no quotes."""
    value = parse_value(cell)
    return value if value is None or isinstance(value, (bool, float)) else str(value)
