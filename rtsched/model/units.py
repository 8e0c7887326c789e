"""The only converters between a batch system's units and ours: seconds, bytes, epoch."""

from __future__ import annotations

import math
import re

_DURATION = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?(?:\.(\d+))?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTPE]?)(?:i?B)?[cn]?", re.IGNORECASE)
_POWER = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


def slurm_duration(text: str) -> float:
    """Return the seconds of a Slurm duration, +inf for `UNLIMITED`, nan if it is none.

    Slurm writes and reads `minutes`, `minutes:seconds`, `hours:minutes:seconds`, `days-hours`,
    `days-hours:minutes` and `days-hours:minutes:seconds` (manual page sbatch, `--time`).
    """
    text = text.strip()
    if text.upper() in {"UNLIMITED", "INFINITE"}:
        return math.inf
    match = _DURATION.fullmatch(text)
    if match is None:
        return math.nan
    days, first, second, third, fraction = match.groups()
    numbers = [int(first), int(second or 0), int(third or 0)]
    if days is not None or third is not None:
        hours, minutes, seconds = numbers
    else:
        hours, minutes, seconds = 0, numbers[0], numbers[1]
    whole = int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds
    return whole + (float(f"0.{fraction}") if fraction else 0.0)


def size_bytes(text: str, default_unit: str = "") -> float:
    """Return the bytes of `4G`, `50M`, `2048` (in `default_unit`), nan if it is no size.

    Slurm counts in powers of 1024 (manual page sbatch, `--mem`); a trailing `c` or `n` (per core,
    per node, as old sacct wrote it) is left to the caller.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return math.nan
    number, unit = match.groups()
    return float(number) * 1024.0 ** _POWER[(unit or default_unit).upper()]
