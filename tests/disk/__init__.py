"""A disk whose writes are recorded, and what is on it after a power cut at any of them.

A write that no sync followed may be on the disk, or not, or some of its sectors may be; one of
several may be there without those before it. The same holds for creations and removals until their
directory is synced. This is what POSIX allows; most file systems do less harm.
"""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

SECTOR = 512
_SOURCE = Path(__file__).with_name("disk.c")


def compiled(directory: Path) -> Path:
    """Return the library to preload, made in a directory."""
    library = directory / "disk.so"
    command = ["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]
    subprocess.run([*command, str(_SOURCE), "-o", str(library), "-ldl"], check=True)
    return library


class Operation(NamedTuple):
    """One line of a trace: see disk.c."""

    kind: str
    name: str
    offset: int
    data: bytes


def operations(trace: Path) -> Iterator[Operation]:
    """Yield what a recorded process did."""
    with trace.open("rb") as file:
        while line := file.readline():
            kind, name, offset, length = line.decode().split()
            has_data = kind in "WM"
            yield Operation(kind, name, int(offset), file.read(int(length)) if has_data else b"")


@dataclass
class File:
    """A file: as it was last synced, what was done since, and as running programs see it."""

    synced: bytes = b""
    since: list[Operation] = field(default_factory=list)
    now: bytearray = field(default_factory=bytearray)


def _changed(content: bytearray, operation: Operation) -> None:
    if operation.kind == "T":
        del content[operation.offset :]
        content.extend(bytes(operation.offset - len(content)))
        return
    end = operation.offset + len(operation.data)
    content.extend(bytes(max(operation.offset - len(content), 0)))
    content[operation.offset : end] = operation.data


class Disk:
    """What is on a disk after some operations, and after a crash behind them."""

    def __init__(self) -> None:
        self.files: dict[str, File] = {}
        self.synced: dict[str, File | None] = {}
        self.since: list[tuple[str, File | None]] = []

    def do(self, operation: Operation) -> None:
        """Carry out one operation."""
        kind, name = operation.kind, operation.name
        if kind == "C":
            self.files[name] = File()
            self.since.append((name, self.files[name]))
        elif kind == "U":
            del self.files[name]
            self.since.append((name, None))
        elif kind == "S" and name == ".":
            self.synced, self.since = dict(self.files), []
        elif kind == "S":
            file = self.files[name]
            file.synced, file.since = bytes(file.now), []
        elif kind in "WT":
            file = self.files[name]
            _changed(file.now, operation)
            file.since.append(operation)

    def after_kill(self, following: Operation | None, rng: Random) -> dict[str, bytes]:
        """Return the files after kill -9 within the operation that follows: half of it was done."""
        found = {name: bytes(file.now) for name, file in self.files.items()}
        if following is not None and following.kind == "W":
            whole = bytearray(found[following.name])
            _changed(whole, _part(following, rng.randint(0, len(following.data))))
            found[following.name] = bytes(whole)
        return found

    def after_power_cut(self, rng: Random) -> dict[str, bytes]:
        """Return the files after a power cut: of what was not synced, any part is there."""
        keeps = rng.choice((0.0, 0.3, 0.7, 1.0))
        names = self.synced | {name: file for name, file in self.since if rng.random() < keeps}
        return {name: _torn(file, keeps, rng) for name, file in names.items() if file is not None}


def _part(operation: Operation, length: int) -> Operation:
    return operation._replace(data=operation.data[:length])


def _torn(file: File, keeps: float, rng: Random) -> bytes:
    """Return a file of which any part of what was not synced is there."""
    content = bytearray(file.synced)
    for operation in file.since:
        chance = rng.random()
        if chance < keeps:
            _changed(content, operation)
        elif chance < keeps + 0.5 * (1.0 - keeps) and operation.kind == "W":
            for at in range(0, len(operation.data), SECTOR):
                if rng.random() < 0.5:
                    sector = operation.data[at : at + SECTOR]
                    _changed(content, Operation("W", "", operation.offset + at, sector))
    return bytes(content)
