"""Files of results, written wholly or not at all, and tables as Parquet (with pyarrow) or CSV.

Column names carry their unit (`wait_s`), instants are seconds since the epoch, and a missing value
is null or an empty cell. The bytes depend on the values alone.
"""

from __future__ import annotations

import csv
import io
import os
import secrets
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeVar

import numpy as np

from rtsched.errors import InputError, MissingExtraError, OutputError
from rtsched.model import on_disk
from rtsched.model.table import Amounts, Ragged, Table, Text, amounts_from, encode, resource_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from enum import IntEnum

    from numpy.typing import NDArray


def cause_of(error: Exception) -> str:
    """Return what went wrong, without the path, which the sentence around it has already."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


def unreadable(path: Path, error: Exception, what: str = "cannot be read") -> InputError:
    """Return the refusal of a file of a replay that is kept: why it cannot be read, what helps."""
    helps = "read it as a user who may" if isinstance(error, PermissionError) else "replay again"
    what = "cannot be read" if isinstance(error, PermissionError) else what
    return InputError(path, f"{what} ({cause_of(error)}); {helps}")


@contextmanager
def created(path: Path) -> Iterator[BinaryIO]:
    """Open a new file for writing; it is on the disk when the block ends."""
    with path.open("xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def write_text(path: Path, text: str) -> None:
    """Write one file, under another name first; where a link stands, the file that it names.

    Raises
    ------
    OutputError
        If that fails, or a device or pipe has this name; an earlier file is still there.
    """
    if path.exists() and not path.is_file():
        raise OutputError(path, "cannot be written (it is no regular file); choose another")
    path = path.resolve()
    with _explained(path), _parents(path):
        new = _beside(path)
        try:
            with created(new) as file:
                file.write(text.encode("utf-8", "backslashreplace"))
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)


@contextmanager
def replacing(directory: Path, last: str, stale: Iterable[str] = ()) -> Iterator[Path]:
    """Give an empty directory to fill; at the end its files take their places in `directory`.

    Parameters
    ----------
    directory : Path
        Made if it is not there; otherwise files of other names in it are left alone.
    last : str
        The file that tells what is there. The old one goes first and the new one comes last, so
        it never vouches for a mixture.
    stale : iterable of str
        Files of an earlier time, relative to `directory`, to be removed if they have no successor.

    Raises
    ------
    OutputError
        If that fails. Until everything is written, what was there is left as it was.
    """
    with _explained(directory), _parents(directory):
        fresh = not directory.exists()
        new = _beside(directory) if fresh else _beside(directory / "rtsched")
        new.mkdir()
        try:
            yield new
            if fresh:
                new.rename(directory)
            else:
                _move(new, directory, last, stale)
        finally:
            shutil.rmtree(new, ignore_errors=True)


def _move(new: Path, directory: Path, last: str, stale: Iterable[str]) -> None:
    files = sorted(path.relative_to(new) for path in new.rglob("*") if path.is_file())
    (directory / last).unlink(missing_ok=True)
    for file in files:
        if str(file) != last:
            (directory / file).parent.mkdir(exist_ok=True)
            (new / file).replace(directory / file)
    for name in stale:
        path = directory / name
        if Path(name) not in files and ".." not in path.parts and path.is_file():
            path.unlink()
            if path.parent != directory and not any(path.parent.iterdir()):
                path.parent.rmdir()
    (new / last).replace(directory / last)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name[:40]}-{secrets.token_hex(4)}.partial")


@contextmanager
def _parents(path: Path) -> Iterator[None]:
    """Make the directories above `path`; take away those that were made if the block fails."""
    made: list[Path] = []
    above = path.absolute().parent
    while not above.exists():
        made.append(above)
        above = above.parent
    try:
        path.absolute().parent.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for parent in made:
            if parent.is_dir() and not any(parent.iterdir()):
                parent.rmdir()
        raise


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(
            path, f"cannot be written ({cause_of(error)}); free space or choose another directory"
        ) from error


T = TypeVar("T", bound=Table)

TableFormat = Literal["parquet", "csv"]

PART = 1 << 20
"""Rows that are written at a time."""

SECONDS = frozenset(
    {"submit", "begin", "wall_time", "deadline", "start", "end", "run_time", "wait", "promise"}
    | {"offer", "cms", "cps", "setup_link", "setup_node", "setup_once"}
)
"""Columns of tables that hold seconds."""

TEXTS = frozenset(
    {"job", "label", "user", "account", "partition", "qos", "kind", "fate", "reason"}
    | {"logged_ending", "logged_nodes"}
)
"""Columns of a CSV file that hold text even where they look like numbers."""


@dataclass(frozen=True)
class Cells:
    """One column of a file.

    Attributes
    ----------
    values : array[n]
        Numbers, or codes into `names`, or for lists all values one after the other.
    present : bool[n]
        Where there is a value.
    names : sequence of str or None
        The texts behind the codes.
    indptr : int64[n + 1] or None
        For lists: row `i` has `values[indptr[i]:indptr[i + 1]]`.
    """

    values: NDArray[Any]
    present: NDArray[np.bool_]
    names: Sequence[str] | None = None
    indptr: NDArray[np.int64] | None = None

    def part(self, low: int, high: int) -> Cells:
        """Return the rows `low <= row < high`, with no more names than are worth it."""
        values, present = self.values[low:high], self.present[low:high]
        if self.indptr is not None:
            indptr = self.indptr[low : high + 1]
            return Cells(self.values[indptr[0] : indptr[-1]], present, indptr=indptr - indptr[0])
        if self.names is None or len(self.names) <= 2 * len(values) + 16:
            return Cells(values, present, self.names)
        used, codes = np.unique(values, return_inverse=True)
        missing = int(used.min(initial=0) < 0)
        names = tuple(self.names[code] for code in used[missing:].tolist())
        return Cells((codes - missing).astype(np.int32), present, names)


def titled(column: str) -> str:
    """Return a table's column name with its unit."""
    if column in SECONDS:
        return f"{column}_s"
    if column in {"service", "lost"}:
        return f"{column}_node_s"
    return "memory_bytes" if column == "memory" else column


def number_cells(values: NDArray[Any], missing: object = np.nan) -> Cells:
    """Return numbers as cells; nan, infinities and `missing` are no values."""
    if values.dtype.kind == "f":
        return Cells(values, np.isfinite(values))
    return Cells(values, values != missing)


def choice_cells(codes: NDArray[Any], choices: type[IntEnum]) -> Cells:
    """Return codes of an enumeration as cells of its names in lower case."""
    members = list(choices)
    values = np.searchsorted([member.value for member in members], codes).astype(np.int32)
    names = tuple(member.name.lower() for member in members)
    return Cells(values, np.ones(len(codes), np.bool_), names)


def text_cells(codes: NDArray[np.int32], names: Sequence[str]) -> Cells:
    """Return a text column as cells; what UTF-8 cannot hold is written out."""
    try:
        "".join(names).encode()
    except UnicodeEncodeError:
        names = [name.encode("utf-8", "backslashreplace").decode() for name in names]
    return Cells(codes, codes >= 0, tuple(names))


def table_cells(
    table: Table, choices: Mapping[str, type[IntEnum]], always: Sequence[str] = ()
) -> dict[str, Cells]:
    """Return a table's columns as cells by name with unit.

    A column without any value is left out, unless it is among `always`.
    """
    cells: dict[str, Cells] = {}
    for title, amounts in resource_columns(table).items():
        cells[title] = number_cells(amounts)
    for name, column in table.columns().items():
        if isinstance(column, Amounts):
            continue
        values = table.column(name)
        if isinstance(column, Text):
            made = text_cells(values, table.names(name))
        elif name in choices:
            made = choice_cells(values, choices[name])
        else:
            made = number_cells(values, -1 if column.missing == -1 else np.nan)
        default = np.asarray(column.missing, column.dtype)
        kept = name in always or not np.array_equal(
            values, np.broadcast_to(default, values.shape), equal_nan=column.dtype.kind == "f"
        )
        if kept:
            cells[titled(name)] = made
    return cells


def table_from(
    kind: type[T], n: int, cells: Mapping[str, Cells], choices: Mapping[str, type[IntEnum]]
) -> T:
    """Return the table that `table_cells` made these cells of; other cells are left alone."""
    values: dict[str, NDArray[Any]] = {}
    amounts, names = amounts_from(kind, {title: cell.values for title, cell in cells.items()})
    values |= amounts
    for name, column in kind.columns().items():
        cell = cells.get(titled(name))
        if cell is None or isinstance(column, Amounts):
            continue
        if isinstance(column, Text):
            names[name] = tuple(cell.names or ())
            values[name] = np.where(cell.present, cell.values, -1).astype(np.int32)
            continue
        found = cell.values
        if name in choices and cell.names is not None:
            codes = [choices[name][text.upper()].value for text in cell.names]
            found = np.array([*codes, column.missing])[np.where(cell.present, found, -1)]
        absent = np.asarray(column.missing, column.dtype)
        values[name] = np.where(cell.present, found, absent).astype(column.dtype)
    return kind.build(n, names=names, **values)


def ranges(rows: NDArray[np.int32]) -> str:
    """Return ascending node rows as text: `0-3,7`."""
    if not len(rows):
        return ""
    ends = np.append(np.flatnonzero(np.diff(rows) != 1), len(rows) - 1)
    begins = np.append(0, ends[:-1] + 1)
    pairs = zip(rows[begins].tolist(), rows[ends].tolist(), strict=True)
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in pairs)


def rows_of(text: str) -> list[int]:
    """Return the node rows of `0-3,7`."""
    rows: list[int] = []
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        rows += range(int(low), int(high or low) + 1)
    return rows


def writer_of(table_format: TableFormat) -> Callable[[BinaryIO, Mapping[str, Cells]], None]:
    """Return what writes a file of this format.

    Raises
    ------
    MissingExtraError
        If it is Parquet and pyarrow is not installed.
    """
    if table_format == "csv":
        return _write_csv
    _arrow()
    return _write_parquet


def read_cells(path: Path) -> dict[str, Cells]:
    """Return the columns of a file by name.

    Raises
    ------
    InputError
        If the file cannot be read as what its name says.
    MissingExtraError
        If it is Parquet and pyarrow is not installed.
    """
    try:
        return _read_parquet(path) if path.suffix == ".parquet" else _read_csv(path)
    except (OSError, ValueError, IndexError, UnicodeError, csv.Error) as error:
        raise unreadable(path, error, "is not a table written by rtsched") from error


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("reading and writing Parquet", "replay", str(error)) from error
    return pyarrow, pyarrow.parquet


def _parts(cells: Mapping[str, Cells]) -> Iterator[dict[str, Cells]]:
    """Yield the columns some rows at a time, at least once."""
    rows = max((len(cell.present) for cell in cells.values()), default=0)
    for low in range(0, max(rows, 1), PART):
        on_disk.let_go()
        whole = rows <= PART
        yield {
            name: cell if whole else cell.part(low, min(low + PART, rows))
            for name, cell in cells.items()
        }


def _write_parquet(file: BinaryIO, cells: Mapping[str, Cells]) -> None:
    _, parquet = _arrow()
    tables = map(_arrow_table, _parts(cells))
    first = next(tables)
    options: dict[str, Any] = {"compression": "zstd", "use_dictionary": True}
    with parquet.ParquetWriter(file, first.schema, **options) as writer:
        for table in chain([first], tables):
            writer.write_table(table)


def _arrow_table(cells: Mapping[str, Cells]) -> Any:
    pa, _ = _arrow()
    arrays = []
    for cell in cells.values():
        absent = None if cell.present.all() else ~cell.present
        if cell.indptr is not None:
            offsets = pa.array(cell.indptr.astype(np.int32))
            arrays.append(pa.ListArray.from_arrays(offsets, pa.array(cell.values)))
        elif cell.names is not None:
            codes = pa.array(cell.values, pa.int32(), mask=absent)
            arrays.append(
                pa.DictionaryArray.from_arrays(codes, pa.array(list(cell.names), pa.string()))
            )
        else:
            arrays.append(pa.array(cell.values, mask=absent))
    return pa.Table.from_arrays(arrays, names=list(cells))


def _read_parquet(path: Path) -> dict[str, Cells]:
    pa, parquet = _arrow()
    with path.open("rb") as file:  # no threads: one that still runs at the exit would abort it
        table = parquet.ParquetFile(file, pre_buffer=False).read(use_threads=False)
    cells = {}
    for name, chunked in zip(table.column_names, table.columns, strict=True):
        array = pa.concat_arrays(chunked.chunks) if chunked.num_chunks else chunked.combine_chunks()
        present = array.is_valid().to_numpy(zero_copy_only=False)
        if pa.types.is_list(array.type):
            values, indptr = array.values.to_numpy(), array.offsets.to_numpy().astype(np.int64)
            cells[name] = Cells(values, present, indptr=indptr)
            continue
        names = None
        if pa.types.is_dictionary(array.type):
            names = tuple(array.dictionary.to_pylist())
            array = array.indices
        if array.null_count:
            array = array.fill_null(-1 if pa.types.is_integer(array.type) else 0)
        cells[name] = Cells(array.to_numpy(zero_copy_only=False), present, names)
    return cells


def _as_whole(cell: Cells) -> Cells:
    """Return seconds and the like as int64 if none has a fraction, as the CSV file has them."""
    if cell.indptr is None and cell.names is None and cell.values.dtype.kind == "f":
        filled = np.where(cell.present, cell.values, 0.0)
        if bool((filled == np.floor(filled)).all()) and bool((np.abs(filled) < 2**53).all()):
            return replace(cell, values=filled.astype(np.int64))
    return cell


def _texts(cell: Cells) -> list[Any]:
    """Return one column as what the CSV writer takes."""
    if cell.indptr is not None:
        pairs = zip(cell.indptr[:-1].tolist(), cell.indptr[1:].tolist(), strict=True)
        return [ranges(cell.values[low:high]) for low, high in pairs]
    if cell.names is not None:
        names = (*cell.names, "")
        return [names[code] for code in np.where(cell.present, cell.values, -1).tolist()]
    listed: list[Any] = cell.values.tolist()
    if cell.present.all():
        return listed
    return [
        value if there else "" for value, there in zip(listed, cell.present.tolist(), strict=True)
    ]


def _write_csv(file: BinaryIO, cells: Mapping[str, Cells]) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=False)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(cells)
    for part in _parts({name: _as_whole(cell) for name, cell in cells.items()}):
        writer.writerows(zip(*map(_texts, part.values()), strict=True))
    text.flush()
    text.detach()


def _read_csv(path: Path) -> dict[str, Cells]:
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file)
        header = next(reader, None)
        if not header:
            raise ValueError("it is empty")
        columns = list(zip(*reader, strict=True)) or [()] * len(header)
    return {name: _parsed(name, texts) for name, texts in zip(header, columns, strict=True)}


def _parsed(name: str, texts: Sequence[str]) -> Cells:
    present = np.array([text != "" for text in texts], np.bool_)
    if name == "nodes":
        indptr, flat = Ragged.of([rows_of(text) for text in texts])
        return Cells(flat, np.ones(len(texts), np.bool_), indptr=indptr)
    if name in TEXTS:
        codes, names = encode(text or None for text in texts)
        return Cells(codes, present, names)
    if {"true", "false"} >= {text.lower() for text in texts}:
        return Cells(np.array([text.lower() == "true" for text in texts], np.bool_), present)
    return Cells(np.array([float(text or "nan") for text in texts]), present)
