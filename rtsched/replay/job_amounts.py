"""Amounts that jobs hold of all that limits and billing weights name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.counting import counted
from rtsched.model.billing import BILLING
from rtsched.model.limit_rules import NODE
from rtsched.model.limits import JOBS
from rtsched.model.resources import CPU, GRES, LICENSE, MEMORY
from rtsched.model.table import amounts_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.billing import BillingWeights
    from rtsched.model.jobs import Jobs

_LARGEST = 2.0**50
"""No job counts for more of anything."""


class JobAmounts:
    """How much jobs ask for in all, with all cores of their nodes where they have whole ones.

    Parameters
    ----------
    jobs : Jobs
        `n` jobs as read; sizes count processors.
    whole : bool[n]
        Which jobs have their nodes to themselves.
    cores : int
        Cores of a node.
    billing : BillingWeights, optional
        What they are billed for; None: not known.
    """

    def __init__(
        self,
        jobs: Jobs,
        whole: NDArray[np.bool_],
        cores: int,
        billing: BillingWeights | None = None,
    ) -> None:
        self.jobs, self._whole, self._cores = jobs, whole, max(cores, 1)
        self.billing = billing
        asked = -(-np.maximum(jobs.size, 1) // self._cores)
        self._nodes = np.where(jobs.node_count > 0, jobs.node_count, asked).astype(np.float64)
        self._found: dict[str, NDArray[np.int64]] = {}

    @property
    def wall(self) -> NDArray[np.float64]:
        """Requested seconds; inf: none."""
        return self.jobs.wall_time

    @property
    def shares_nodes(self) -> bool:
        """Whether some jobs share nodes with others."""
        return not self._whole.all()

    def __contains__(self, thing: str) -> bool:
        """Return whether the log tells how much of something jobs ask for."""
        if thing == BILLING:
            return self.billing is not None
        return thing in {JOBS, NODE, CPU, MEMORY} or thing.startswith((GRES, LICENSE))

    def of(self, thing: str) -> NDArray[np.int64]:
        """Return how much of something each job asks for, int64[n]; billing units rounded down."""
        if thing not in self._found:
            self._found[thing] = np.minimum(self._amount(thing), _LARGEST).astype(np.int64)
        return self._found[thing]

    def _amount(self, thing: str) -> NDArray[np.float64]:
        size = np.maximum(self.jobs.size, 0).astype(np.float64)
        if thing == JOBS:
            return np.ones(len(size))
        if thing == NODE:
            return self._nodes
        if thing == CPU:
            return np.where(self._whole, np.maximum(self._nodes * self._cores, size), size)
        if thing == BILLING:
            return self.billing_units()
        asked = amounts_of(self.jobs, "demand", (self._asked_as(thing),))
        amount = asked[:, 0].astype(np.float64)
        if thing.startswith(LICENSE):
            return amount
        amount *= np.maximum(self.jobs.node_count, 1)
        if thing == MEMORY:
            memory = np.maximum(self.jobs.memory, 0) * size
            return np.where(amount > 0, amount, memory)
        return amount

    def billing_units(self) -> NDArray[np.float64]:
        """Return the billing units of each job while it runs, float64[n]."""
        if self.billing is None:
            return self.of(CPU).astype(np.float64)
        return self.billing.units(
            self.jobs, lambda thing: self.of(thing) if thing in self else None
        )

    def unused_weights(self) -> list[str]:
        """Return the resources with a weight of which the log does not tell what jobs hold."""
        weighted = self.billing.weighted() if self.billing is not None else set()
        return sorted(name for name in weighted if name not in self)

    def _asked_as(self, thing: str) -> str:
        """Return the name that the jobs' resources have, of which Slurm ignores the case."""
        names = {name.lower(): name for name in self.jobs.names("demand")}
        return names.get(thing, thing)


_RULES = {
    "sum": "the sum over all resources",
    "max": "the greatest of cores, memory, nodes and each GRES, and the sum of all others",
    "max-gres": "the greatest of cores, memory and nodes, and the sum of all others",
}


def billing_sentences(amounts: JobAmounts, cores: float) -> list[str]:
    """Return what to say of jobs that are billed, on nodes that have so many cores on average."""
    billing = amounts.billing
    if billing is None:
        return []
    partitions = counted(len(billing.partitions), "partition")
    notes = [
        "Service for fair share counts billing units, as Slurm does: TRESBillingWeights of "
        f"{partitions} ({_RULES[billing.rule]}), the cores of jobs in others. One counts as a "
        f"core: {cores:g} of them, the mean number of cores, are a node."
    ]
    if unused := amounts.unused_weights():
        notes.append(f"Weights in TRESBillingWeights that are not used: {', '.join(unused)}.")
    return notes
