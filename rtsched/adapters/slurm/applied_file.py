"""What was asked of Slurm that Slurm does not show any more, kept in a file.

Slurm shows only the last node count and node list that were set, and no site factor. Without the
file a process that follows this one would take them for what users asked for: jobs would wait for
just so many nodes, or for one node, for ever.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from rtsched.adapters.files import replace_file

Range = tuple[int, int]

UNSURE = 1 << 40
"""Stands for a site factor that was being set when the process ended."""


class AppliedFile(msgspec.Struct, forbid_unknown_fields=True):
    """What was asked for, by job id.

    Attributes
    ----------
    ranges : dict of int to (int, int)
        Fewest and most nodes that a best-effort job's user asked for, before another count was set.
    sent : dict of int to (str, float)
        The node that a best-effort job was sent to, and when, in seconds since the epoch.
    factors : dict of int to int
        The site factor, or Nice below zero under priority/basic; `UNSURE`: nobody knows.
    """

    ranges: dict[int, Range] = {}
    sent: dict[int, tuple[str, float]] = {}
    factors: dict[int, int] = {}


def read(path: str) -> AppliedFile:
    """Return what a file keeps; nothing where it is missing or damaged."""
    if not path:
        return AppliedFile()
    try:
        found = msgspec.json.decode(Path(path).read_bytes(), type=AppliedFile)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return AppliedFile()
    ranges = {job: (least, most) for job, (least, most) in found.ranges.items()}
    found.ranges = {job: each for job, each in ranges.items() if 0 < each[0] <= each[1]}
    return found


def write(path: str, what: AppliedFile) -> str:
    """Write it, and return what went wrong; empty: nothing, or no file is wanted."""
    if not path:
        return ""
    try:
        replace_file(path, msgspec.json.encode(what))
    except OSError as error:
        return (
            f"{path} cannot be written ({error.strerror}): after a restart, some best-effort jobs "
            "keep the node count, node list or site factor that rtsched set; "
            "make it writable, or set "
            'memory = "" in [slurm]'
        )
    return ""
