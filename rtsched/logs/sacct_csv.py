"""Tables of sacct's columns with fields in quotes, as R and pandas write them, as plain text.

Source: RFC 4180.
"""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MARK = "\x1f"
"""It stands between the fields of the plain text: it is in no field."""
_QUOTED = re.compile(rb'(?:^|[,;\t])"(?:[^"]|"")*"(?:[,;\t\r]|$)', re.MULTILINE)
_LOOKED_AT = 1 << 14
_JOB = frozenset(("jobid", "jobidraw"))


def quoted_by(head: bytes) -> str:
    """Return what separates the fields of a table with quotes and a job's id; empty: it is none."""
    if not _QUOTED.search(head[:_LOOKED_AT]):
        return ""
    line = head.lstrip(b"\r\n ").partition(b"\n")[0].decode("utf-8", "replace").replace("\r", " ")
    for delimiter in ",;\t":
        names = next(csv.reader([line], delimiter=delimiter), [])
        if len(names) > 1 and _JOB & {name.strip().lower() for name in names}:
            return delimiter
    return ""


class Unquoted:
    """A file of such a table, read as plain text of as many lines.

    Parameters
    ----------
    pieces : iterator of bytes
        The table.
    delimiter : str
    """

    def __init__(self, pieces: Iterator[bytes], delimiter: str) -> None:
        self._rows = _plain(pieces, delimiter)
        self._rest = b""

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes, fewer only at the end.

        Raises
        ------
        csv.Error
            If a field is longer than any, as where its quote does not end.
        """
        parts = [self._rest]
        found = len(self._rest)
        while found < size and (row := next(self._rows, b"")):
            parts.append(row)
            found += len(row)
        text = b"".join(parts)
        self._rest = text[size:]
        return text[:size]

    def close(self) -> None:
        """Do nothing: the table is closed by who opened it."""


def _plain(pieces: Iterator[bytes], delimiter: str) -> Iterator[bytes]:
    """Yield the lines; a break in a field becomes a blank, and a blank line follows for it."""
    reader = csv.reader(_lines(pieces), delimiter=delimiter)
    before = 0
    for row in reader:
        line = MARK.join(row).replace("\r", " ").replace("\n", " ")
        ends = "\n" * (reader.line_num - before)
        before = reader.line_num
        yield f"{line}{ends}".encode("utf-8", "surrogateescape")


def _lines(pieces: Iterator[bytes]) -> Iterator[str]:
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        yield from (f"{line.decode('utf-8', 'surrogateescape')}\n" for line in whole)
    if rest:
        yield rest.decode("utf-8", "surrogateescape")
