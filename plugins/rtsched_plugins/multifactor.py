"""Slurm's multifactor priority: age, association, fair share, job size, partition, QOS and nice.

The names and meanings of the settings are those of slurm.conf without `Priority`. What Slurm has
beside them (TRES weights, the site factor, resets of usage) has no counterpart in a job's columns.
Slurm cuts the sum to an integer; here it is left as it is, so ties are rarer.

A job's nodes, or what the site bills for it (`Jobs.billed`), are charged to its association and to
every account above it from its start to its end. `Accounts.usage` of users (rows without rows
below) is where usage begins; rows that are added later begin at 0. A top level account named `root`
stands for the machine and takes no part.

References
----------
Slurm manual: priority_multifactor, fair_tree, classic_fair_share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray  # noqa: TC002 - states are decoded by their annotations

from rtsched.api import Capabilities, State, Terms, hookimpl, job_columns
from rtsched_plugins.accounting import Settings, begin, lay_out, resume
from rtsched_plugins.kernels import multifactor as kernel
from rtsched_plugins.kernels.usage import KEPT

if TYPE_CHECKING:
    from rtsched.api import Accounts, Cluster, Events, Jobs, Snapshot

MOST = 2**32 - 1
"""Slurm's weights are unsigned 32-bit integers."""


class Usage(State, frozen=True):
    """What has been charged: one row for the machine, then one per row of `Accounts`.

    The columns of `charges`: node-seconds used when the row's present period began, decayed;
    node-seconds since; nodes held now; up to when (seconds since the epoch); that period's number.
    """

    charges: NDArray[np.float64]


class Multifactor:
    """Order jobs as Slurm's multifactor priority does."""

    class Config(Settings, frozen=True, forbid_unknown_fields=True):
        """Settings, with slurm.conf's defaults and the weights of its manual's example."""

        weight_age: Annotated[float, Meta(ge=0, le=MOST)] = 1000.0
        """Weight of the waiting time."""
        weight_association: Annotated[float, Meta(ge=0, le=MOST)] = 0.0
        """Weight of the account's own priority."""
        weight_fair_share: Annotated[float, Meta(ge=0, le=MOST)] = 10000.0
        """Weight of the fair-share factor."""
        weight_job_size: Annotated[float, Meta(ge=0, le=MOST)] = 1000.0
        """Weight of the job's size."""
        weight_partition: Annotated[float, Meta(ge=0, le=MOST)] = 1000.0
        """Weight of the partition's priority."""
        weight_qos: Annotated[float, Meta(ge=0, le=MOST)] = 0.0
        """Weight of the quality of service's priority."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.weights: dict[str, float] = {
            name: getattr(config, f"weight_{name}") for name in kernel.FACTORS
        }

    @hookimpl
    def rtsched_fair_share(
        self,
        jobs: Jobs,
        cluster: Cluster,
        accounts: Accounts,
        snapshot: Snapshot,
        state: Usage | None,
    ) -> Terms | None:
        """Give one term per factor; nice is taken off."""
        if not len(jobs):
            return None
        params, tables = lay_out(self.config, self.weights, jobs, accounts, cluster)
        usage = self._state(state, accounts, cluster)
        rows, values = np.arange(len(jobs)), np.empty((len(kernel.FACTORS), len(jobs)))
        kernel.factors(snapshot.now, rows, job_columns(jobs), params, tables, usage, values)
        by_name = dict(zip(kernel.FACTORS, values, strict=True))
        return Terms(by_name, self.weights, offset=-jobs.nice)

    @hookimpl
    def rtsched_observe(
        self, events: Events, snapshot: Snapshot, state: Usage | None
    ) -> Usage | None:
        """Charge associations for the nodes that their jobs hold."""
        kind, account = events.rows.kind, events.jobs.association
        charged = np.isin(kind, (kernel.STARTED, kernel.ENDED)) & (account >= 0)
        if not charged.any():
            return None
        accounts, cluster = snapshot.accounts, snapshot.cluster
        laid_out = lay_out(self.config, self.weights, events.jobs, accounts, cluster)
        after = self._state(state, accounts, cluster)
        rows, jobs = events.rows.take(charged), events.jobs.take(charged)
        sizes = rows.size, jobs.size, np.ascontiguousarray(jobs.billed)
        kernel.charge_events(rows.time, kind[charged], jobs.association, *sizes, *laid_out, after)
        return Usage(after[:KEPT].copy())

    @property
    def capabilities(self) -> Capabilities:
        """Return that both hooks have a compiled form."""
        return Capabilities(compiled_policy=self._compiled_policy)

    def _compiled_policy(
        self, jobs: Jobs, accounts: Accounts, cluster: Cluster, origin: float
    ) -> kernel.Charged:
        """Return both hooks in compiled form."""
        arrays = lay_out(self.config, self.weights, jobs, accounts, cluster, origin)
        state = begin(accounts, cluster)
        return kernel.Charged(job_columns(jobs, origin), *arrays, state)

    @staticmethod
    def _state(state: Usage | None, accounts: Accounts, cluster: Cluster) -> NDArray[np.float64]:
        """Return the kernels' array: as remembered, or as it is before anything is charged."""
        fresh = begin(accounts, cluster)
        return fresh if state is None else resume(state.charges, fresh)
