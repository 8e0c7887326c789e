"""Final states of jobs in a simulated system."""

from __future__ import annotations

from enum import IntEnum


class FinalState(IntEnum):
    """What a policy made of a job."""

    FINISHED = 0
    REJECTED = 1
    """Rejected at submission."""
    UNFINISHED = 2
    """Never started, or lost: more nodes than the machine has up, or a node that died."""
