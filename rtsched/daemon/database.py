"""The SQLite file under the store: opened by one daemon at a time, checked, brought up to date."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from contextlib import closing, suppress
from importlib import resources
from typing import TYPE_CHECKING

from rtsched.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

BUSY_SECONDS = 5.0
CHECKED_AT_ONCE = 64 * 2**20
"""Bytes up to which all of a file is checked before it is used; that takes less than a second."""

_APPLICATION = 0x52545351  # "RTSQ", in the file's header


def hold(path: Path, host: str = "") -> int | None:
    """Make the file, for its owner alone, and keep other daemons away from it.

    Where several hosts share it, those of this `host`: among hosts a `Claim` decides.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        lock = f"{path}.{host}.lock" if host else f"{path}.lock"
        held = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(
            path,
            f"cannot be opened ({error.strerror}); its directory must exist and belong to the "
            "daemon's user",
        ) from error
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(held)
        raise StoreError(
            path, "another daemon uses it; stop that daemon, or use another file"
        ) from error
    return held


def connect(path: Path) -> sqlite3.Connection:
    """Return the open file; transactions begin when they are asked to."""
    return sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )


def prepare(base: sqlite3.Connection, path: Path, synchronous: str, shared: bool = False) -> bool:
    """Bring the file to the newest schema; return whether all of it was checked first.

    A write-ahead log needs memory that all who use the file share. A rollback journal needs the
    file system's locks alone, and so serves several hosts (SQLite documentation, wal.html).
    """
    (pages,), (size,) = (base.execute(f"PRAGMA page_{of}").fetchone() for of in ("count", "size"))
    small = bool(pages * size <= CHECKED_AT_ONCE)
    if small:
        check(base, path)
    (application,) = base.execute("PRAGMA application_id").fetchone()
    (tables,) = base.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and application != _APPLICATION:
        raise StoreError(path, "is a database of another program; use another file")
    base.execute(f"PRAGMA journal_mode = {'TRUNCATE' if shared else 'WAL'}")
    base.execute(f"PRAGMA synchronous = {'FULL' if synchronous == 'full' else 'NORMAL'}")
    _migrate(base, path)
    return small


def check(base: sqlite3.Connection, path: Path) -> None:
    """Read all of the file; StoreError if it is damaged."""
    (found,) = base.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
        raise StoreError(path, f"is damaged ({' '.join(found.split())}); {RESTORE}")


def migrations() -> list[tuple[int, str]]:
    """Return the schema's steps: number and SQL, in order."""
    return sorted(
        (int(file.name.removesuffix(".sql")), file.read_text("utf-8"))
        for file in resources.files("rtsched.daemon").joinpath("migrations").iterdir()
        if file.name.endswith(".sql")
    )


def _migrate(base: sqlite3.Connection, path: Path) -> None:
    """Run the steps that this file has not seen, each in a transaction of its own.

    What it was before stays beside it, as `FILE.schema-N`.
    """
    steps = migrations()
    (version,) = base.execute("PRAGMA user_version").fetchone()
    if version > steps[-1][0]:
        raise StoreError(
            path,
            f"has schema {version}, this release of rtsched knows {steps[-1][0]}; install the "
            f"release that wrote it, or restore {path}.schema-{steps[-1][0]}",
        )
    left = [(number, text) for number, text in steps if number > version]
    if version and left:
        _back_up(base, path, version)
    for number, text in left:
        marks = f"PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {number};"
        try:
            base.executescript(f"BEGIN IMMEDIATE; {text} {marks} COMMIT;")
        except sqlite3.Error:
            if base.in_transaction:
                base.execute("ROLLBACK")
            raise


def _back_up(base: sqlite3.Connection, path: Path, version: int) -> None:
    copy = path.with_name(f"{path.name}.schema-{version}")
    copy.unlink(missing_ok=True)
    os.close(os.open(copy, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    with closing(sqlite3.connect(copy)) as target:
        base.backup(target)


class FileOnDisk:
    """The file as it is on the disk, beside the one that this process has open.

    What is removed or replaced stays open, and takes what is written to it into nowhere.

    It is read through one descriptor that stays open: a process that closes any descriptor of a
    file loses all its POSIX locks on it, those of SQLite's connections too.

    Parameters
    ----------
    path : Path
        It exists, and no other process writes to it.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._log = path, path.with_name(f"{path.name}-wal")
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._opened, self._log_opened = _stat(path), _stat(self._log)
        self.corrupt = ""
        """What SQLite found damaged in it."""

    def damage(self) -> str:
        """Return what was done to the file since it was opened; empty: it is there as it was."""
        try:
            found = os.stat(self._path)
            header = os.pread(self._descriptor, len(_HEADER), 0)
            with open(self._log, "rb") as file:  # it holds no locks
                log, log_found = file.read(4), os.fstat(file.fileno())
        except FileNotFoundError:
            return "was removed while the daemon ran"
        except OSError as error:
            return f"can no longer be read ({error.strerror})"
        before, self._opened = self._opened, found
        self._log_opened = self._log_opened or log_found
        if (
            not before
            or not _same_file(before, found)
            or not _same_file(self._log_opened, log_found)
        ):
            self._opened = before
            return "was replaced while the daemon ran"
        if found.st_size < before.st_size:
            self._opened = before  # it never shrinks by itself
            return "was truncated while the daemon ran"
        if not os.access(self._path, os.R_OK | os.W_OK):
            return "can no longer be read and written by the daemon's user"
        if header != _HEADER or (log and log not in _LOG_HEADERS):
            return "was overwritten while the daemon ran"
        return self.corrupt

    def close(self) -> None:
        """Close the file; after SQLite's connections to it."""
        os.close(self._descriptor)


_HEADER = b"SQLite format 3\0"
_LOG_HEADERS = {b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83"}


def _stat(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _same_file(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def set_aside(path: Path, suffix: str) -> None:
    """Rename what is left of a file, and of its write-ahead log, so that it can be looked at."""
    for end in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            old = path.with_name(path.name + end)
            old.rename(path.with_name(f"{path.name}.{suffix}{end}"))


def copied(base: sqlite3.Connection, path: Path) -> bool:
    """Copy what an open database holds to a new file; return whether all of it is sound."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(path)) as target:
            base.backup(target)
            check(target, path)
    except (sqlite3.Error, StoreError, OSError):
        path.unlink(missing_ok=True)
        return False
    return True


RESTORE = (
    "restore a backup, recover what can be read with `sqlite3 FILE .recover`, or move the file "
    "away to start without promises"
)
_REMEDIES = {
    "SQLITE_FULL": "free space on its file system; it works again as soon as there is space",
    "SQLITE_BUSY": "another process has it locked; end that process",
    "SQLITE_LOCKED": "another process has it locked; end that process",
    "SQLITE_READONLY": "make it and its directory writable for the daemon's user",
    "SQLITE_CANTOPEN": "its directory must exist and belong to the daemon's user",
    "SQLITE_PERM": "make it and its directory writable for the daemon's user",
    "SQLITE_IOERR": "free space on its file system, and check the system log for disk errors",
    "SQLITE_NOTADB": RESTORE,
    "SQLITE_CORRUPT": RESTORE,
}


def is_damage(error: sqlite3.Error) -> bool:
    """Return whether SQLite found the file damaged."""
    code = getattr(error, "sqlite_errorname", "") or ""
    return code.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB"))


def sentence(error: sqlite3.Error) -> str:
    """Return what happened and what to do."""
    code = getattr(error, "sqlite_errorname", "") or ""
    for name, remedy in _REMEDIES.items():
        if code.startswith(name):
            return f"{error} ({code}); {remedy}"
    return f"{error} ({code or type(error).__name__})"


class WriterEpoch:
    """One daemon's right to write.

    Parameters
    ----------
    host : str
        Where the daemon runs.

    Attributes
    ----------
    epoch : int
        The number that this daemon wrote; 0: it has not taken the file over yet.
    lost_to : str
        Host of the daemon that took the file over after this one; empty: none did.
    """

    def __init__(self, host: str) -> None:
        self.host, self.epoch, self.lost_to = host, 0, ""

    def take(self, base: sqlite3.Connection) -> None:
        """Take the file over, whoever has it."""
        base.execute("BEGIN IMMEDIATE")
        base.execute("UPDATE holder SET epoch = epoch + 1, host = ?", (self.host,))
        (self.epoch,) = base.execute("SELECT epoch FROM holder").fetchone()
        base.execute("COMMIT")

    def check(self, base: sqlite3.Connection, path: Path) -> None:
        """Compare the epochs; within a transaction that is to write, nobody can change them.

        Raises
        ------
        StoreError
            If another daemon took the file over.
        """
        epoch, host = base.execute("SELECT epoch, host FROM holder").fetchone()
        if epoch != self.epoch:
            self.lost_to = host or "another host"
            raise StoreError(
                path,
                f"was taken over by the daemon on {self.lost_to}; this one is on standby now",
            )
