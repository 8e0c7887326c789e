"""Arrays on disk, mapped into memory: what is not in use leaves memory for what is.

    workload = mapped(workload)           # the same values; the arrays are in a temporary file
    with path.open("xb") as file:
        write(file, run)                  # any value that can be pickled
    run = read(path)                      # its arrays are read when they are looked at

A file holds the buffers of all arrays, one after the other, and behind them the rest of the value,
pickled. Blocks of zeros are holes that take no room.
"""

from __future__ import annotations

import errno
import mmap
import os
import pickle
import struct
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar
from weakref import WeakSet

import numpy as np

from rtsched.errors import OutputError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

T = TypeVar("T")

LARGE = 1 << 30
"""Bytes from which an array of `zeros` is on disk."""

_BLOCK = 1 << 20
_ALIGNED = 64
_END = struct.Struct("<q8s")
_MAGIC = b"rtsched1"

_shared: WeakSet[mmap.mmap] = WeakSet()
"""Maps of files that hold all that is written to them."""


def scratch_directory() -> Path:
    """Return where temporary files go: $TMPDIR, else /var/tmp, which is on disk on most systems."""
    return Path(os.environ.get("TMPDIR") or "/var/tmp")  # noqa: S108  files there have no name


def zeros(n: int, kind: DTypeLike) -> NDArray[Any]:
    """Return `n` zeros that can be written to, in a temporary file if they are `LARGE`.

    Raises
    ------
    OutputError
        If there is no room for the file.
    """
    size = int(n) * np.dtype(kind).itemsize
    if size < LARGE:
        return np.zeros(int(n), kind)
    where = scratch_directory()
    try:
        with TemporaryFile(dir=where) as file:
            os.posix_fallocate(file.fileno(), 0, size)  # a write to a mapped hole cannot fail
            memory = mmap.mmap(file.fileno(), size)
            _shared.add(memory)
            return np.frombuffer(memory, kind)
    except OSError as error:
        raise _no_room(where, size, error) from error


def let_go() -> None:
    """Give the pages of all arrays on disk back; what is looked at again is read again.

    The operating system would do so too, but late, and meanwhile they count as this process's.
    """
    for memory in list(_shared):
        memory.madvise(mmap.MADV_DONTNEED)


def grown(array: NDArray[Any], n: int) -> NDArray[Any]:
    """Return a longer array of `n` elements that begins with this one; the others are zero."""
    longer = zeros(n, array.dtype)
    longer[: len(array)] = array
    return longer


def mapped(value: T) -> T:
    """Return the same value with its arrays in a temporary file.

    Raises
    ------
    OutputError
        If there is no room for the file.
    """
    where = scratch_directory()
    try:
        with TemporaryFile(dir=where) as file:
            write(file, value)
            file.flush()
            found: T = _read(file.fileno(), writable=False)
            return found
    except OSError as error:
        raise _no_room(where, 0, error) from error


def write(file: BinaryIO, value: object) -> None:
    """Write a value to an empty file.

    Raises
    ------
    OSError
        If that fails, as when the disk is full.
    """
    buffers: list[pickle.PickleBuffer] = []
    rest = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    places, at = [], 0
    for buffer in buffers:
        raw = buffer.raw()
        at += -at % _ALIGNED
        places.append((at, len(raw)))
        for begin in range(0, len(raw), _BLOCK):
            block = raw[begin : begin + _BLOCK]
            if np.frombuffer(block, np.uint8).any():
                file.seek(at + begin)
                file.write(block)
        at += len(raw)
    file.seek(at)
    file.write(pickle.dumps((places, rest)))
    file.write(_END.pack(at, _MAGIC))


def read(path: Path, *, writable: bool = False) -> Any:
    """Return the value in a file that this user wrote.

    Parameters
    ----------
    path : Path
        A file that `write` filled.
    writable : bool
        Whether the arrays may be changed, in memory: the file stays as it is.

    Raises
    ------
    OSError
        If the file cannot be read, or is another user's: reading it would run what it says.
    ValueError
        If it is no such file, not complete, damaged, or of other versions of Python or numpy.
    """
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it is another user's", str(path))
        return _read(file.fileno(), writable=writable)


def _read(descriptor: int, *, writable: bool) -> Any:
    size = os.fstat(descriptor).st_size
    if size < _END.size:
        raise ValueError("it is not complete")
    access = mmap.ACCESS_COPY if writable else mmap.ACCESS_READ
    whole = mmap.mmap(descriptor, size, access=access)
    if not writable:
        _shared.add(whole)
    memory = memoryview(whole)
    at, magic = _END.unpack(memory[-_END.size :])
    if magic != _MAGIC or not 0 <= at < size:
        raise ValueError("it is not complete")
    try:
        places, rest = pickle.loads(memory[at : -_END.size])  # noqa: S301  this user's own file
        buffers = [memory[begin : begin + length] for begin, length in places]
        return pickle.loads(rest, buffers=buffers)  # noqa: S301
    except MemoryError:
        raise
    except Exception as error:  # whatever the file holds
        raise ValueError(f"it cannot be read here ({error})") from error


def _no_room(where: Path, size: int, error: OSError) -> OutputError:
    what = f"{size / 1e9:.1f} GB of " if size else ""
    return OutputError(
        where,
        f"{what}temporary data cannot be written ({error.strerror or error}); free space, or name "
        "a directory with room in TMPDIR",
    )
