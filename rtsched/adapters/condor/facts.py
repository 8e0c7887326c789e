"""What the translator must know of a pool: margins, slots, who is charged."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from rtsched.adapters.condor.parts import Parts


@dataclass(frozen=True)
class CondorFacts:
    """What a poll found out about the configuration; times in seconds, memory in bytes.

    Attributes
    ----------
    version : str
        HTCondor's version, such as `25.14.1`.
    margin : float
        By how much a job outlives its stated run time at the latest, counted from its planned
        start: negotiation, overrun, the slot's way back.
    start_delay : float
        Of it, from the planned start to the job's start at the latest.
    parts : Parts
        The partitions of the models: which slots a job of some class and size may have
        (`parts.parts_of` makes them, and the masks of `Cluster.partitions`).
    run_time : float
        Of a job that states none; inf: no end.
    associations : dict of str to int
        Row of `Accounts` by submitter, such as `alice@example.org` or `group.alice@example.org`.
    domain : str
        UID_DOMAIN: what stands behind a user's name in a submitter's.
    """

    version: str = ""
    margin: float = 0.0
    start_delay: float = 0.0
    parts: Parts = field(default_factory=Parts)
    run_time: float = math.inf
    associations: dict[str, int] = field(default_factory=dict)
    domain: str = ""

    @property
    def tail(self) -> float:
        """By how much a job that runs outlives its stated run time at the latest."""
        return self.margin - self.start_delay
