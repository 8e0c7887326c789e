"""Files that other programs read while they are written anew."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile


def replace_file(path: str | Path, content: str | bytes, mode: int = 0o600) -> None:
    """Put a file in place of the one before; whoever reads sees one of both, and whole.

    Parameters
    ----------
    path : str or Path
        The file.
    content : str or bytes
        What it is to hold; text in UTF-8, with what `surrogateescape` stands for.
    mode : int
        Who may read and write it.

    Raises
    ------
    OSError
        If its directory is missing, not writable or full; the old file stays.
    """
    path = Path(path)
    data = content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape")
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as new:
        try:
            new.write(data)
            new.flush()
            os.fchmod(new.fileno(), mode)
            Path(new.name).replace(path)
        except OSError:
            with suppress(OSError):
                Path(new.name).unlink()
            raise
