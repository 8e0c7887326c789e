"""Preemption by the batch system: what a site has set, and what holds for the jobs of a log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


NONE = "none"
"""Nobody preempts (PreemptType)."""

OFF, CANCEL, REQUEUE, SUSPEND = "off", "cancel", "requeue", "suspend"
"""What happens to a preempted job (PreemptMode); with `OFF` a job is not preempted."""


@dataclass(frozen=True)
class SitePreemption:
    """What a site has set, beside its QOS.

    Attributes
    ----------
    by : str
        By what jobs preempt others (PreemptType): `qos`, `partition_prio`, or `none`.
    mode : str
        What happens to a preempted job where nothing else says so (PreemptMode): `off`, `requeue`,
        `cancel`, `suspend`.
    exempt : float
        Seconds after its start for which a job is not preempted, where its QOS does not say so
        (PreemptExemptTime).
    tiers : mapping of str to int
        PriorityTier of the partitions.
    partition_modes : mapping of str to str
        PreemptMode of the partitions that have their own.
    """

    by: str = NONE
    mode: str = OFF
    exempt: float = 0.0
    tiers: Mapping[str, int] = field(default_factory=dict)
    partition_modes: Mapping[str, str] = field(default_factory=dict)


class Preemption(NamedTuple):
    """Who may preempt whom, of `n` jobs of `k` kinds, row by row with the jobs."""

    kind: NDArray[np.int64]
    """int64[n]"""
    may: NDArray[np.bool_]
    """bool[k, k]: whether waiting jobs of the first kind may preempt running ones of the second."""
    cancels: NDArray[np.bool_]
    """bool[k]: whether a preempted job is cancelled; else it is requeued."""
    rank: NDArray[np.float64]
    """float64[k]: those of the least rank are preempted first."""
    exempt: NDArray[np.float64]
    """float64[k]: seconds after its start for which a job is not preempted."""

    def with_rows(self, more: int) -> Preemption:
        """Return the same with as many further jobs, which preempt nobody and are not preempted."""
        k = len(self.rank)
        may = np.zeros((k + 1, k + 1), np.bool_)
        may[:k, :k] = self.may
        return Preemption(
            np.concatenate([self.kind, np.full(more, k)]),
            may,
            np.append(self.cancels, False),
            np.append(self.rank, 0.0),
            np.append(self.exempt, 0.0),
        )
