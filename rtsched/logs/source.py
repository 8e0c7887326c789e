"""One input file, opened once and read in blocks: plain or packed, checked, with clear errors.

A table of sacct's columns with fields in quotes (RFC 4180), as R and pandas write them, is read as
plain text.
"""

from __future__ import annotations

import bz2
import csv
import errno
import gzip
import lzma
import os
import re
import zlib
from itertools import chain
from typing import IO, TYPE_CHECKING, Any, Self

import numpy as np

from rtsched.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

BLOCK = 4 << 20
"""Bytes read at a time."""

HEAD = 1 << 16
"""Bytes looked at to tell the format."""

LONGEST_LINE = 32 << 20
"""A longer line is no line of an accounting log."""

_BOM = b"\xef\xbb\xbf"
_PACKED: dict[bytes, tuple[str, Callable[[Any], Any]]] = {
    b"\x1f\x8b": ("gzip", lambda packed: gzip.GzipFile(fileobj=packed, mode="rb")),
    b"BZh": ("bzip2", bz2.BZ2File),
    b"\xfd7zXZ\x00": ("xz", lzma.LZMAFile),
}
"""How packed files begin, what packed them, and how they are opened."""
_OTHER = {
    b"\x28\xb5\x2f\xfd": ("zstd", "unzstd"),
    b"\x5d\x00\x00": ("lzma", "unlzma"),
    b"\x1f\x9d": ("compress", "uncompress"),
    b"\x04\x22\x4d\x18": ("lz4", "unlz4"),
    b"PK\x03\x04": ("zip", "unzip"),
    b"7z\xbc\xaf\x27\x1c": ("7-Zip", "7z x"),
    b"\x1f\x8b": ("gzip twice", "gunzip"),
}
"""How files begin that are packed otherwise, and what unpacks them."""
_UTF_16 = re.compile(rb"\xff\xfe|\xfe\xff|(?:[^\0]\0){8}|(?:\0[^\0]){8}")
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError)
_WHY = {
    errno.ENOENT: "there is no such file; check the name",
    errno.EISDIR: "this is a directory; name the log files in it",
    errno.EACCES: "permission denied; read it as a user who may, or copy it",
    errno.EPERM: "permission denied; read it as a user who may, or copy it",
}


MESSAGE = "it is a message before the log"


class Source:
    """A file being read. `head` is its first piece; `blocks` gives all of it, head included.

    `messages` are the lines before the log, as of a shell; they read as blank.
    """

    head: bytes
    messages: Sequence[int] = ()

    def __init__(self, path: str | Path) -> None:
        self.path = os.fspath(path)
        try:
            # A file object that outlives this call; `close` is the context manager's task.
            self._file: IO[bytes] = open(self.path, "rb")  # noqa: SIM115
        except OSError as error:
            raise self._unreadable(error) from error
        except ValueError as error:
            raise InputError(self.path, "this is not a file name; check it") from error
        self._packed = self._file
        try:
            self._start()
        except InputError:
            self.close()
            raise

    def begin(self, at: int) -> None:
        """Have the log begin at a place in `head`: the lines before it are messages."""
        before = self.head[:at].split(b"\n")
        more = (number for number, line in enumerate(before, 1) if line.strip())
        self.messages = (*self.messages, *more)
        self.head = b"\n" * (len(before) - 1) + self.head[at:]

    def _start(self) -> None:
        """Read the head: the first bytes, unpacked, without a byte order mark."""
        try:
            start = self._file.peek(6)[:6]  # type: ignore[attr-defined]
        except OSError as error:
            raise self._unreadable(error) from error
        self._by = ""
        for magic, (name, opened) in _PACKED.items():
            if start.startswith(magic):
                self._file, self._by = opened(self._file), name
        self._mac = False  # whether lines end with a carriage return alone
        head = self._read(HEAD)
        self._mac = b"\r" in head and b"\n" not in head
        for magic, (name, tool) in _OTHER.items():
            if head.startswith(magic):
                raise InputError(self.path, f"packed with {name}; unpack it first ({tool})")
        if head[257:262] == b"ustar":
            raise InputError(self.path, "packed with tar; unpack it first (tar xf)")
        if _UTF_16.match(head):
            raise InputError(
                self.path, "text in UTF-16; convert it first (iconv -f UTF-16 -t UTF-8)"
            )
        self.head = head.removeprefix(_BOM)
        if self._mac:
            self.head = self.head.replace(b"\r", b"\n")
        for at in (0, *(line.start() for line in _TABLE.finditer(self.head))):
            if delimiter := quoted_by(self.head[at:]):
                self.begin(at)
                self._unquote(delimiter)
                break

    def _unquote(self, delimiter: str) -> None:
        table = self._file
        rest = iter(lambda: self._read(BLOCK, table), b"")
        self._file = Unquoted(chain([self.head], rest), delimiter)  # type: ignore[assignment]
        self.head = self._read(HEAD)

    def _unreadable(self, error: OSError) -> InputError:
        why = _WHY.get(error.errno or 0, f"cannot be read ({error.strerror or error}); check it")
        if self.path == "-" and error.errno == errno.ENOENT:
            why = "there is no such file; for what a pipe gives name /dev/stdin"
        return InputError(self.path, why)

    def _damaged(self, error: Exception) -> InputError:
        return InputError(
            self.path, f"damaged {self._by} data ({error}); fetch it again, or unpack what is left"
        )

    def _read(self, size: int, file: IO[bytes] | None = None) -> bytes:
        """Return up to `size` bytes, fewer only at the end."""
        pieces = []
        file = file or self._file
        try:
            while size > 0 and (piece := file.read(size)):
                pieces.append(piece)
                size -= len(piece)
        except csv.Error as error:
            raise InputError(
                self.path, f"a quoted field does not end ({error}); write the table again"
            ) from error
        except _DAMAGED as error:
            raise self._damaged(error) from error
        except OSError as error:
            if error.errno is None and self._by:
                raise self._damaged(error) from error  # as bz2 says it
            raise self._unreadable(error) from error
        text = b"".join(pieces)
        return text.replace(b"\r", b"\n") if self._mac else text

    def blocks(self) -> Iterator[bytes]:
        """Yield the whole text piece by piece."""
        if self.head:
            yield self.head
        while block := self._read(BLOCK):
            yield block

    def line_blocks(self) -> Iterator[bytes]:
        """Yield the whole text in pieces that end with a line, or with the file."""
        rest = b""
        for block in self.blocks():
            cut = block.rfind(b"\n") + 1
            if cut:
                yield b"".join((rest, memoryview(block)[:cut]))
                rest = block[cut:]
            else:
                rest += block
            if len(rest) > LONGEST_LINE:
                raise InputError(
                    self.path,
                    f"a line is longer than {LONGEST_LINE >> 20} MB, so this is not an accounting "
                    "log; check the file",
                )
        if rest:
            yield rest

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        self._packed.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def readable(text: bytes) -> str:
    """Return text as str; bytes that are not UTF-8 show as their numbers, so that none is lost."""
    return text.decode("utf-8", "backslashreplace")


MARK = "\x1f"
"""It stands between the fields of the plain text: it is in no field."""
_QUOTED = re.compile(rb'(?:^|[,;\t|])"(?:[^"]|"")*"(?:[,;\t|\r]|$)', re.MULTILINE)
_TABLE = re.compile(rb"^(?=[^\n]*\bJobID)[^\n]*\bSubmit\b", re.MULTILINE | re.IGNORECASE)
"""A line that may be the header of a table of jobs."""
_JSON = re.compile(rb'\s*(?:\[\s*)?\{\s*"')
_LOOKED_AT = 1 << 14
_JOB = frozenset(("jobid", "jobidraw"))


def quoted_by(head: bytes) -> str:
    """Return what separates the fields of a table with quotes and a job's id; empty: it is none."""
    if not _QUOTED.search(head[:_LOOKED_AT]):
        return ""
    line = head.lstrip(b"\r\n ").partition(b"\n")[0].decode("utf-8", "replace").replace("\r", " ")
    for delimiter in ",;\t|" if line.startswith('"') else ",;\t":  # sacct itself writes no quotes
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


LONGEST = 64 << 20
"""A longer object is no job."""

JOBS = re.compile(rb'"jobs"\s*:\s*\[')
"""What is before a list of jobs."""
_AT_ONCE = 4096


def is_json(head: bytes) -> bool:
    """Return whether a file begins with an object of JSON, or a list of some."""
    return _JSON.match(head) is not None


def json_records(source: Source) -> Iterator[tuple[int, bytes]]:
    """Yield `json_objects` of a file that is a list of them, or has one after another.

    Or of the list `jobs` of an object, as of sacct, or of several, of which `jq -s` makes a list.
    """
    if JOBS.search(source.head):
        return json_objects(source, 2, "jobs")
    return json_objects(source, int(source.head.lstrip().startswith(b"[")))


def json_objects(source: Source, level: int, key: str = "") -> Iterator[tuple[int, bytes]]:
    """Yield line (from 1) and text of each object that lies in `level` lists or objects.

    The rest of the file is not looked at, so a file that is damaged elsewhere is still read. An
    object that the end of the file cuts short is yielded as far as it goes.

    Parameters
    ----------
    source : Source
    level : int
        0 for objects one after another, 1 for a list of them, 2 for a list in an object, which may
        be one of a list of objects.
    key : str
        For level 2: the list's name.
    """
    from rtsched.kernels.text import scan_objects  # compiled: live systems need sources without

    name = np.frombuffer(f'"{key}"'.encode() if key else b"", np.uint8)
    around = int(level == 2 and source.head.lstrip().startswith(b"["))
    state = np.array([0, -around, 0, -1, 0, 0], np.int64)
    spans = np.empty((_AT_ONCE, 3), np.int64)
    text = b""
    for block in source.blocks():
        text += block
        buffer = np.frombuffer(text, np.uint8)
        found = _AT_ONCE
        while found == _AT_ONCE:
            found = scan_objects(buffer, level, name, state, spans)
            for start, end, line in spans[:found].tolist():
                yield line + 1, text[start:end]
        keep = int(state[3]) if state[3] >= 0 else int(state[0])
        text = text[keep:]
        state[0] -= keep
        if state[3] >= 0:
            state[3] -= keep
        if len(text) > LONGEST:
            raise InputError(
                source.path,
                f"a JSON object or string is longer than {LONGEST >> 20} MB; the file is damaged",
                line=int(state[5]) + 1,
            )
    if state[3] >= 0:
        yield int(state[5]) + 1, text
