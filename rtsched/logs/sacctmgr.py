"""Tables that `sacctmgr -P show ...` prints: a header line, and fields between bars.

Source: Slurm manual page sacctmgr.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from rtsched.errors import InputError
from rtsched.logs.source import Source, readable
from rtsched.model.units import slurm_moment

if TYPE_CHECKING:
    from datetime import tzinfo
    from pathlib import Path


class Row(NamedTuple):
    """One line of a file: its cells by column, in lower case; where it stands."""

    path: str
    line: int
    command: str
    cells: dict[str, str]

    def text(self, column: str) -> str:
        """Return a cell, empty where the file has no such column."""
        return self.cells.get(column.lower(), "").strip()

    def moment(self, column: str, zone: tzinfo | None) -> float:
        """Return the time in a cell, seconds since the epoch.

        Raises
        ------
        InputError
            If it is none.
        """
        moment = slurm_moment(self.text(column), 0.0, zone)
        if math.isnan(moment):
            raise self.error(f"{column} is {self.text(column)!r}, which is not a time")
        return moment

    def error(self, what: str) -> InputError:
        """Return an error about this line."""
        return InputError(
            self.path, f"{what}; write the file again with `{self.command}`", line=self.line
        )


def text_of(path: str | Path) -> tuple[str, str]:
    """Return the name and the content of a file."""
    with Source(path) as source:
        return source.path, readable(b"".join(source.line_blocks()))


def rows_of(path: str | Path, needed: tuple[str, ...], command: str) -> list[Row]:
    """Return the lines of a file behind its header, which has the columns that are needed."""
    return rows_in(*text_of(path), needed, command)


def rows_in(name: str, text: str, needed: tuple[str, ...], command: str) -> list[Row]:
    """Return the lines of what a command printed, as `rows_of` a file called `name`."""
    header: list[str] = []
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        cells = line.split("|")
        if not header:
            header = [cell.strip().lower() for cell in cells]
            missing = [column for column in needed if column.lower() not in header]
            if missing:
                raise InputError(
                    name,
                    f"no header line with {' and '.join(missing)}; write the file with "
                    f"`{command}`, without -n",
                    line=number,
                )
            continue
        row = Row(name, number, command, dict(zip(header, cells, strict=False)))
        if len(cells) != len(header):
            raise row.error(f"{len(cells)} fields, where the header has {len(header)}")
        rows.append(row)
    if not header:
        raise InputError(name, f"the file is empty; write it with `{command}`")
    return rows
