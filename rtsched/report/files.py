"""Write files wholly or not at all, and say in one sentence what kept them from being written."""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from rtsched.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def cause_of(error: Exception) -> str:
    """Return what went wrong, without the path, which the sentence around it has already."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


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
