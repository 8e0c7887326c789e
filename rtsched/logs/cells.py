"""One column of a text block: where its cells lie, and what they mean."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from itertools import islice, pairwise
from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels import text as kernels
from rtsched.kernels.compiling import COMPILING
from rtsched.logs.source import readable
from rtsched.model.units import epoch_seconds, size_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import tzinfo

    from numpy.typing import NDArray

NO_TIME = frozenset({b"", b"unknown", b"none", b"n/a", b"invalid", b"0", b"na", b"nat", b"nan"})
"""How Slurm writes a time that is not there; the last three: R and pandas."""

MOST = 1e15
"""A larger number of anything is none."""


@dataclass(frozen=True)
class Cells:
    """Spans of a text.

    Attributes
    ----------
    text : bytes
        What they are spans of.
    starts, ends : int32[n]
        Where they lie.
    """

    text: bytes
    starts: NDArray[np.int32]
    ends: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def buffer(self) -> NDArray[np.uint8]:
        """The text as an array."""
        return np.frombuffer(self.text, np.uint8)

    def __getitem__(self, row: int) -> bytes:
        return self.text[self.starts[row] : self.ends[row]]

    def take(self, rows: NDArray[np.int64]) -> list[bytes]:
        """Return the cells of some rows."""
        return Cells(self.text, self.starts[rows], self.ends[rows]).list()

    def list(self) -> list[bytes]:
        """Return the cells."""
        spans = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        return [self.text[start:end] for start, end in spans]


def integers(cells: Cells) -> NDArray[np.float64]:
    """Return whole numbers >= 0, also as `8.0`, `8,0` or `1.50K`; nan where one is no such."""
    out, odd = np.full(len(cells), np.nan), np.ones(len(cells), np.bool_)
    if COMPILING:
        kernels.read_integers(cells.buffer, cells.starts, cells.ends, out, odd)
    for row in np.flatnonzero(odd).tolist():
        number = size_bytes(readable(cells[row]).removesuffix(",0"))
        out[row] = round(number) if number < MOST else np.nan
    return out


def times(
    cells: Cells, zone: tzinfo | None, after: NDArray[np.float64] | None = None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return seconds since the epoch, and the rows that hold no time but should.

    Parameters
    ----------
    cells : Cells
        `YYYY-MM-DDTHH:MM:SS` on a local clock, other ISO 8601 times, or seconds since the epoch;
        `Unknown`, `None` or nothing where there is no time.
    zone : tzinfo or None
        The clock's zone; None: this machine's.
    after : float64[n], optional
        Times that the result is not before, for clocks that are set back.

    Returns
    -------
    seconds : float64[n]
        nan where there is no time.
    bad : int64[m]
        Rows that hold something else.
    """
    local = np.zeros(len(cells), np.int64)
    meaning = np.full(len(cells), kernels.ODD, np.int8)
    if COMPILING:
        kernels.read_times(cells.buffer, cells.starts, cells.ends, local, meaning)
    out = np.where(meaning == kernels.EPOCH, local, np.nan)
    bad = []
    for row in np.flatnonzero(meaning == kernels.ODD).tolist():
        cell = cells[row]
        if cell.lower() in NO_TIME:
            continue
        meaning[row], value = _time(cell)
        if meaning[row] == kernels.LOCAL:
            local[row] = int(value)
        elif meaning[row] == kernels.EPOCH:
            out[row] = value
        else:
            bad.append(row)
    rows = np.flatnonzero(meaning == kernels.LOCAL)
    if len(rows):
        out[rows] = epoch_seconds(local[rows], zone, None if after is None else after[rows])
    return out, np.array(bad, np.int64)


def is_local(cell: bytes) -> bool:
    """Return whether a cell holds a time on a local clock."""
    return _time(cell)[0] == kernels.LOCAL


def _time(cell: bytes) -> tuple[int, float]:
    """Return what a time cell holds and its seconds; the plain form of `read_times`."""
    cell = cell.removesuffix(b".0").removesuffix(b",0")
    if cell.isdigit() and kernels.EPOCH_DIGITS[0] <= len(cell) <= kernels.EPOCH_DIGITS[1]:
        return kernels.EPOCH, float(cell)
    try:
        moment = datetime.fromisoformat(cell.decode("ascii"))
        if not kernels.YEARS[0] <= moment.year < kernels.YEARS[1]:
            return kernels.ODD, 0.0
        if moment.tzinfo is not None:
            return kernels.EPOCH, moment.timestamp()
        return kernels.LOCAL, (moment - datetime(1970, 1, 1)).total_seconds()
    except (ValueError, OverflowError):
        return kernels.ODD, 0.0


def job_ids(cells: Cells) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int8]]:
    """Return number, task or component, and meaning of Slurm's job ids (see `read_job_ids`)."""
    n = len(cells)
    base, part, meaning = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int8)
    if COMPILING:
        kernels.read_job_ids(cells.buffer, cells.starts, cells.ends, base, part, meaning)
    else:
        for row, cell in enumerate(cells.list()):
            base[row], part[row], meaning[row] = _job_id(cell)
    return base, part, meaning


def _job_id(cell: bytes) -> tuple[int, int, int]:
    """Return what a cell says; the plain form of `read_job_ids`."""
    number = cell[: len(cell) - len(cell.lstrip(b"0123456789"))]
    mark, part = cell[len(number) : len(number) + 1], cell[len(number) + 1 :]
    if not _is_number(number):
        return -1, 0, kernels.NO_ID
    if not mark:
        return int(number), 0, kernels.SINGLE
    if mark == b"_" and part.startswith(b"["):
        return int(number), 0, kernels.PENDING_ARRAY
    if mark not in {b"_", b"+"}:
        return int(number), 0, kernels.NO_ID
    if not _is_number(part):
        return int(number), -1, kernels.NO_ID
    return int(number), int(part), kernels.ARRAY if mark == b"_" else kernels.HET


def _is_number(text: bytes) -> bool:
    return text.isdigit() and len(text) <= kernels.LONG_NUMBER


def marked(cells: Cells, *words: bytes) -> NDArray[np.bool_]:
    """Return which cells hold one of the words."""
    out = np.zeros(len(cells), np.bool_)
    for word in words:
        if COMPILING:
            kernels.has_word(
                cells.buffer, cells.starts, cells.ends, np.frombuffer(word, np.uint8), out
            )
        else:
            out |= np.array([word in cell for cell in cells.list()], np.bool_)
    return out


def telling(cells: Cells) -> NDArray[np.bool_]:
    """Return which submit lines may hold an option that only they tell, such as `--dependency`."""
    if not COMPILING:
        return np.array([_TELLING.search(cell) is not None for cell in cells.list()], np.bool_)
    out = np.zeros(len(cells), np.bool_)
    kernels.has_option(cells.buffer, cells.starts, cells.ends, kernels.LETTERS, kernels.WORDS, out)
    return out


_TELLING = re.compile(
    rb"(?:^|\s)-(?:[CLdwx]|-(?:con|dea|dep|exc|lic|nod)"
    rb"|(?:p|-par[^\s=]*)[\s=]*[^\s,]*,|(?:a|-arr[^\s=]*)[\s=]*[^\s%]*%)"
)


def with_node_range(cells: Cells) -> NDArray[np.bool_]:
    """Return which cells may hold an option such as `-N 2-4`."""
    out = np.zeros(len(cells), np.bool_)
    if COMPILING:
        kernels.has_node_range(cells.buffer, cells.starts, cells.ends, out)
    else:
        out |= np.array([b"-N" in cell or b"--nodes" in cell for cell in cells.list()], np.bool_)
    return out


class Interner:
    """Codes for the texts of one column, block after block, in order of first appearance."""

    def __init__(self) -> None:
        self._table: dict[bytes, int] = {}  # the plain form
        self._count = 0
        self._slots = np.full(256, -1, np.int32)
        self._hashes = np.empty(64, np.uint64)
        self._offsets = np.zeros(65, np.int64)
        self._arena = np.empty(1024, np.uint8)

    def codes(self, cells: Cells) -> NDArray[np.int32]:
        """Return the code of each cell, -1 where it is empty."""
        if not COMPILING:
            table = self._table
            found = [table.setdefault(cell, len(table)) if cell else -1 for cell in cells.list()]
            return np.array(found, np.int32)
        codes = np.empty(len(cells), np.int32)
        row = 0
        while True:
            row, self._count = kernels.intern_cells(
                cells.buffer,
                cells.starts,
                cells.ends,
                row,
                codes,
                self._count,
                self._slots,
                self._hashes,
                self._offsets,
                self._arena,
            )
            if row == len(cells):
                return codes
            self._grow(int(cells.ends[row] - cells.starts[row]))

    def _grow(self, width: int) -> None:
        """Make room for more texts, the next of which has `width` bytes."""
        count, used = self._count, int(self._offsets[self._count])
        if count == len(self._hashes):
            self._hashes = np.concatenate([self._hashes, np.empty(count, np.uint64)])
            self._offsets = np.concatenate([self._offsets, np.empty(count, np.int64)])
            self._slots = np.full(4 * len(self._hashes), -1, np.int32)
            kernels.place_codes(self._hashes[:count], self._slots)
        if used + width > len(self._arena):
            room = np.empty(max(len(self._arena), width), np.uint8)
            self._arena = np.concatenate([self._arena, room])

    def texts(self, first: int = 0) -> list[bytes]:
        """Return the texts behind the codes, from code `first` on."""
        if not COMPILING:
            return list(islice(self._table, first, None))
        offsets = self._offsets[first : self._count + 1].tolist()
        arena = self._arena[offsets[0] : offsets[-1]].tobytes()
        cuts = [offset - offsets[0] for offset in offsets]
        return [arena[start:end] for start, end in pairwise(cuts)]

    def names(self) -> tuple[str, ...]:
        """Return the texts behind the codes, readable."""
        return tuple(map(readable, self.texts()))


class Meanings:
    """What the texts of a column stand for: each different text is looked at once."""

    def __init__(self, *meanings: Callable[[str], float]) -> None:
        self.interner = Interner()
        self._meanings = meanings
        self._values = np.full((len(meanings), 1), np.nan)

    def __call__(self, cells: Cells) -> NDArray[np.float64]:
        """Return float64[meanings, n], nan where a cell is empty."""
        return self.look_up(cells)[1]

    def look_up(self, cells: Cells) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Return the code of each cell, and what `self(cells)` returns."""
        codes = self.interner.codes(cells)
        known = self._values.shape[1] - 1
        new = [readable(text) for text in self.interner.texts(known)]
        if new:
            more = np.array([[*map(meaning, new), np.nan] for meaning in self._meanings])
            self._values = np.concatenate([self._values[:, :-1], more], axis=1)
        return codes, self._values[:, codes]
