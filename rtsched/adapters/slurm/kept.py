"""Node counts that jobs asked for before rtsched set another, kept in a file.

Slurm shows only the last count that was set. Without the file a process that follows would take
that for what the user asked for, and the job would wait for just so many nodes.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

Range = tuple[int, int]


def read(path: str) -> dict[int, Range]:
    """Return the fewest and most nodes by job id; none where the file is missing or damaged."""
    if not path:
        return {}
    try:
        found = msgspec.json.decode(Path(path).read_bytes(), type=dict[int, Range])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}
    return {job: (least, most) for job, (least, most) in found.items() if 0 < least <= most}


def write(path: str, ranges: dict[int, Range]) -> str:
    """Write them, and return what went wrong; empty: nothing, or no file is wanted."""
    if not path:
        return ""
    beside = Path(f"{path}.new")
    try:
        beside.write_bytes(msgspec.json.encode(ranges))
        os.replace(beside, path)
    except OSError as error:
        return (
            f"{path} cannot be written ({error.strerror}): after a restart some best-effort jobs "
            'keep the node count that was set; make it writable, or set memory = "" in [slurm]'
        )
    return ""
