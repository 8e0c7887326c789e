"""Files that other programs read while they are written anew."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile


def replace_file(path: str | Path, text: str) -> None:
    """Put a file in place of the one before, readable for all; whoever reads sees one of both.

    Raises
    ------
    OSError
        If its directory is missing, not writable or full; the old file stays.
    """
    path = Path(path)
    with NamedTemporaryFile(
        "w", dir=path.parent, prefix=f".{path.name}.", encoding="utf-8", delete=False
    ) as new:
        try:
            new.write(text)
            new.flush()
            os.fchmod(new.fileno(), 0o644)
            Path(new.name).replace(path)
        except OSError:
            with suppress(OSError):
                Path(new.name).unlink()
            raise
