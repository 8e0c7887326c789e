"""What a site bills its jobs for: weights of resources by partition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping


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
    Slurm manual page slurm.conf: TRESBillingWeights, PriorityFlags.
    """

    partitions: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    rule: Literal["sum", "max", "max-gres"] = "sum"
