"""Lines of `sacct -P`: what the header says, and where the wanted fields of each line lie."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels.scan import count_lines, scan_fields

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROLES: dict[str, tuple[str, ...]] = {
    "id": ("jobid", "jobidraw"),
    "raw": ("jobidraw",),
    "submit": ("submit",),
    "eligible": ("eligible",),
    "start": ("start",),
    "end": ("end",),
    "seconds": ("elapsedraw",),
    "elapsed": ("elapsed",),
    "minutes": ("timelimitraw",),
    "limit": ("timelimit",),
    "asked": ("reqcpus",),
    "asked_tres": ("reqtres",),
    "given": ("alloccpus", "ncpus"),
    "given_tres": ("alloctres",),
    "held_tres": ("alloctres",),
    "gres": ("reqgres", "allocgres"),
    "width": ("nnodes", "allocnodes", "reqnodes"),
    "memory": ("reqmem",),
    "restarts": ("restarts",),
    "state": ("state",),
    "user": ("user", "uid"),
    "account": ("account",),
    "partition": ("partition",),
    "qos": ("qos",),
    "nodes": ("nodelist",),
    "cluster": ("cluster",),
    "submit_line": ("submitline",),
    "extra": ("extra",),
    "comment": ("comment",),
    "name": ("jobname",),
    "constraint": ("constraints",),
    "reservation": ("reservation",),
}
"""What is read, and the columns that say it, best first."""

_INSTEAD = {
    "elapsed": "seconds",
    "limit": "minutes",
    "given_tres": "given",
}
_NAME = re.compile(rb"[A-Za-z][A-Za-z0-9]*")


SACCT_COLUMNS = (
    "JobID,JobIDRaw,User,Account,Partition,QOS,Submit,Eligible,Start,End,ElapsedRaw,TimelimitRaw,"
    "ReqCPUS,NCPUS,NNodes,ReqMem,ReqTRES,AllocTRES,State,NodeList,Restarts,Constraints,"
    "Reservation,Extra,Comment,SubmitLine"
)
"""The columns that a replay can use."""
SACCT = f"sacct --allusers --allocations --duplicates --parsable2 --format {SACCT_COLUMNS}"
"""How an export is made, beside its first and last day."""


class Header:
    """The first line of a file: its columns, and where each role is found.

    Attributes
    ----------
    columns : list of str
        Names in lower case.
    delimiter : bytes
    place : dict of str to int
        Column of each role that the file has.
    guessed : str
        What to say of columns that no line of the file names; empty: one does.
    """

    guessed: str = ""

    def __init__(self, line: bytes, delimiter: str | None) -> None:
        text = line.strip(b"\r\n\t ")
        self.line = text
        self.delimiter = delimiter.encode() if delimiter else _delimiter(text)
        names = text.split(self.delimiter) if self.delimiter else [text]
        self.columns = [name.decode("ascii", "replace").strip().lower() for name in names]
        self.place: dict[str, int] = {}
        for role, choices in ROLES.items():
            for choice in choices:
                if choice in self.columns:
                    self.place[role] = self.columns.index(choice)
                    break
        for role, better in _INSTEAD.items():
            if better in self.place:
                self.place.pop(role, None)

    def missing(self) -> str:
        """Return which columns are missing that no log can do without."""
        lacking = []
        if "id" not in self.place:
            lacking.append("JobID")
        if "submit" not in self.place:
            lacking.append("Submit")
        if not self.place.keys() & {"start", "end", "elapsed", "seconds"}:
            lacking.append("Start, End or Elapsed")
        return " and ".join(lacking)


def _delimiter(line: bytes) -> bytes:
    """Return what stands between the first two names of a header."""
    first = _NAME.search(line)  # a table with row numbers begins with the delimiter
    if first is None:
        return b""
    second = _NAME.search(line, first.end())
    return line[first.end() : second.start()] if second else b""


Split = tuple[
    "NDArray[np.int32]", "NDArray[np.int32]", "NDArray[np.int64]", "NDArray[np.int64]", int
]


def split_lines(
    block: bytes, delimiter: bytes, slots: NDArray[np.int64], key: int, used: int
) -> Split:
    """Return where the fields of whole lines lie (see `scan_fields`)."""
    buffer = np.frombuffer(block, np.uint8)
    most = count_lines(buffer)
    starts, ends = np.empty((2, used, most), np.int32)
    line_of, odd = np.empty(most, np.int64), np.empty((most, 3), np.int64)
    rows, odds, lines = scan_fields(
        buffer,
        np.frombuffer(delimiter, np.uint8),
        slots,
        key,
        starts,
        ends,
        line_of,
        odd,
    )
    return starts[:, :rows], ends[:, :rows], line_of[:rows], odd[:odds], lines


def split_plainly(
    block: bytes, delimiter: bytes, slots: NDArray[np.int64], key: int, used: int
) -> Split:
    """Return the same as `split_lines`, by `bytes.split`."""
    lines = block.split(b"\n")
    if not lines[-1]:
        lines.pop()
    spans: list[list[int]] = []
    line_of: list[int] = []
    odd: list[tuple[int, int, int]] = []
    at = 0
    for number, line in enumerate(lines):
        text = line.removesuffix(b"\r")
        fields = text.split(delimiter)
        if len(fields) == len(slots):
            if b"." not in fields[key]:
                place = at
                span = [0] * (2 * used)
                for slot, field in zip(slots.tolist(), fields, strict=True):
                    if slot >= 0:
                        span[slot], span[used + slot] = place, place + len(field)
                    place += len(field) + len(delimiter)
                spans.append(span)
                line_of.append(number)
        elif text:
            odd.append((at, at + len(text), number))
        at += len(line) + 1
    table = np.array(spans, np.int32).reshape(len(spans), 2, used).transpose(1, 2, 0).copy()
    places = np.array(odd, np.int64).reshape(len(odd), 3)
    return table[0], table[1], np.array(line_of, np.int64), places, len(lines)
