"""Billing: weights of resources by partition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rtsched.model.limit_rules import NODE
from rtsched.model.resources import CPU, GRES, MEMORY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from rtsched.model.jobs import Jobs

BILLING = "billing"
"""Name of billing units, among those of resources."""

_ROUNDING = 1e-6
"""Our sums may be so far below Slurm's, which has other units of memory."""


def whole_units(units: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return billing units rounded down, as Slurm counts them to limits, int64[n]."""
    return np.floor(units + _ROUNDING).astype(np.int64)


@dataclass(frozen=True)
class BillingWeights:
    """TRESBillingWeights of a Slurm site, and how its PriorityFlags combine them.

    Attributes
    ----------
    partitions : mapping of str to mapping of str to float
        By partition, billing units for one of each resource, for a byte of memory. Jobs of a
        partition that is not listed are billed for their CPUs.
    rule : str
        `sum`: of all resources; `max` (MAX_TRES): the greatest of CPUs, memory, nodes and each
        GRES, and the sum of all others; `max-gres` (MAX_TRES_GRES): the greatest of CPUs, memory
        and nodes, and the sum of all others.

    References
    ----------
    Slurm manual page slurm.conf: TRESBillingWeights, PriorityFlags; common/assoc_mgr.c of Slurm
    25.11, `assoc_mgr_tres_weighted`.
    """

    partitions: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    rule: Literal["sum", "max", "max-gres"] = "sum"

    def of(self, partition: str, amounts: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        """Return the billing units of jobs of a partition while they run, float64[n].

        `amounts`: n numbers each, what they hold in all of resources; of others weights do not
        count. Of amounts times seconds it returns billing units times seconds.
        """
        weights = self.partitions.get(partition)
        if not weights:
            return amounts[CPU].astype(np.float64)
        greatest, total = np.zeros(len(amounts[CPU])), np.zeros(len(amounts[CPU]))
        for thing, weight in weights.items():
            if thing == BILLING or thing not in amounts:
                continue
            amount = weight * amounts[thing]
            if self.rule != "sum" and (
                thing in {CPU, MEMORY, NODE} or (self.rule == "max" and thing.startswith(GRES))
            ):
                greatest = np.maximum(greatest, amount)
            else:
                total += amount
        return greatest + total

    def units(
        self, jobs: Jobs, amounts: Callable[[str], NDArray[Any] | None]
    ) -> NDArray[np.float64]:
        """Return the billing units of each job while it runs, float64[n].

        `amounts`: returns what each job holds in all of a resource; None: nobody knows.
        """
        known = {thing: amounts(thing) for thing in self.weighted()}
        held = {thing: amount for thing, amount in known.items() if amount is not None}
        units = held[CPU].astype(np.float64)
        for at, name in enumerate(jobs.names("partition")):
            rows = np.flatnonzero(jobs.partition == at) if name in self.partitions else ()
            if len(rows):
                units[rows] = self.of(name, {thing: some[rows] for thing, some in held.items()})
        return units

    def weighted(self) -> set[str]:
        """Return the resources that have a weight in some partition."""
        return {CPU}.union(*self.partitions.values()) - {BILLING}
