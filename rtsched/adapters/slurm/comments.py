"""What stands in a job's Comment: the record of a promise that TaskProlog reads, and our words."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST = 4096
"""Characters of a user's own comment that are kept behind a record."""

_RECORD = re.compile(r"^\s*rtsched:promise(?: (?:deadline|nodes|fractions|on)=\S*)*")


def record_of(deadline: float, names: Sequence[str], shares: Sequence[float]) -> str:
    """Return the record of a promise (contrib/slurm/task_prolog.sh).

    Parameters
    ----------
    deadline : float
        Seconds since the epoch; inf: none is said.
    names, shares : sequence of str, of float
        The nodes in sending order, and the fraction of the load on each.
    """
    words = ["rtsched:promise"]
    if math.isfinite(deadline):
        words.append(f"deadline={deadline:.0f}")
    words.append(f"nodes={len(names)}")
    words.append("fractions=" + ":".join(f"{share:.9f}" for share in shares))
    words.append("on=" + ":".join(names))
    return " ".join(words)


def with_record(comment: str, record: str) -> str:
    """Return a comment that begins with the record, then what its user wrote."""
    kept = _RECORD.sub("", comment).strip()
    return f"{record} {kept}" if kept and len(kept) <= LONGEST else record
