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

import math
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray  # noqa: TC002 - states are decoded by their annotations

from rtsched.api import Capabilities, State, Terms, hookimpl, job_columns
from rtsched_plugins.kernels import multifactor as kernel
from rtsched_plugins.kernels import usage as at
from rtsched_plugins.kernels.usage import KEPT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rtsched.api import Accounts, Cluster, Events, Jobs, Snapshot

    Floats = NDArray[np.float64]

_ROOT = "root"
"""Slurm's name of the account that stands for the whole machine."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How factors are worked out; names and defaults are slurm.conf's without `Priority`."""

    algorithm: Literal["fair-tree", "classic"] = "fair-tree"
    """Fair share by rank in the tree, or by 2^(-usage/share/damping)."""
    damping: Annotated[float, Meta(gt=0)] = 1.0
    """Damping of the classic formula (FairShareDampeningFactor)."""
    decay_half_life: Annotated[float, Meta(ge=0)] = 7 * 86400.0
    """Half-life of past usage, seconds; 0: usage does not decay."""
    calc_period: Annotated[int, Meta(gt=0)] = 300
    """Seconds between recalculations of fair share."""
    max_age: Annotated[float, Meta(gt=0)] = 7 * 86400.0
    """Waiting time, seconds, at which the age factor reaches 1."""
    favor_small: bool = False
    """Whether smaller jobs get the larger size factor."""
    small_relative_to_time: bool = False
    """Whether a job's size is divided by its requested minutes."""
    association_priority: dict[str, int] = {}
    """Priority by account or user; one that is not listed inherits its parent's."""
    partition_priority: dict[str, int] = {}
    """PriorityJobFactor by partition; 1 where not listed."""
    qos_priority: dict[str, int] = {}
    """Priority by quality of service; 0 where not listed."""


class Tree(NamedTuple):
    """Accounts as rows of `state`: 0 is the machine, `a + 1` is row `a` of `Accounts`.

    Attributes
    ----------
    parent, depth : int64[a + 1]
        Row above, and how many rows stand between a row and the machine.
    leaf : bool[a + 1]
        Whether no row is below: a user.
    """

    parent: NDArray[np.int64]
    depth: NDArray[np.int64]
    leaf: NDArray[np.bool_]

    @classmethod
    def of(cls, accounts: Accounts) -> Tree:
        """Return the tree of `accounts`; a top level `root` is replaced by the machine itself."""
        parent = np.concatenate(([0], accounts.parent.astype(np.int64) + 1))
        leaf = np.ones(len(parent), np.bool_)
        leaf[parent] = False
        names = accounts.texts("name")
        for root in [a + 1 for a, name in enumerate(names) if name == _ROOT and parent[a + 1] == 0]:
            parent[parent == root] = 0
        depth, above = np.zeros(len(parent), np.int64), parent.copy()
        while above.any():
            depth += above > 0
            above = parent[above]
        return cls(parent, depth, leaf)

    def summed(self, values: Floats) -> Floats:
        """Return per row the sum of `values` over the users below it."""
        total = np.where(self.leaf, values, 0.0)
        for depth in range(int(self.depth.max()), -1, -1):
            rows = np.flatnonzero((self.depth == depth) & (np.arange(len(total)) > 0))
            np.add.at(total, self.parent[rows], total[rows])
        return total

    def by_depth(self) -> NDArray[np.int64]:
        """Return all rows but the machine's, top tier first."""
        return 1 + np.argsort(self.depth[1:], kind="stable")


def lay_out(
    config: Settings,
    weights: Mapping[str, float],
    jobs: Jobs,
    accounts: Accounts,
    cluster: Cluster,
    origin: float = 0.0,
) -> tuple[Floats, Floats]:
    """Return `params` and `tables` as `rtsched_plugins.kernels.usage` lays them out."""
    tree = Tree.of(accounts)
    decay = (
        math.log(2) * config.calc_period / config.decay_half_life if config.decay_half_life else 0.0
    )
    wait = np.maximum(jobs.begin - jobs.submit, 0.0)
    later = bool((wait > 0).any())
    levels = np.cumsum(np.bincount(tree.depth[1:])) if len(accounts) else np.empty(0)
    lines = {
        at.GROWTH: np.exp(np.minimum(decay * np.arange(at.PERIODS), at.MOST)),
        at.SERIES: _series(decay),
        at.PARENT: tree.parent,
        at.SHARES: np.concatenate(([1.0], accounts.shares)),
        at.SIBLINGS: np.concatenate(([1.0], _of_siblings(accounts))),
        at.NORMAL: np.concatenate(([1.0], accounts.share())),
        at.LEAVES: tree.summed(tree.leaf.astype(np.float64)),
        at.LEAF: tree.leaf,
        at.LEVEL_END: levels,
        at.ASSOCIATION: _inherited(config.association_priority, accounts),
        at.PARTITION: _by_code(config.partition_priority, jobs.names("partition"), 1),
        at.QOS: _by_code(config.qos_priority, jobs.names("qos"), 0),
        at.WAIT: wait if later else np.empty(0),
    }
    tables = np.zeros((len(lines), max(map(len, lines.values()))))
    for line, values in lines.items():
        tables[line, : len(values)] = values
    params = np.zeros(at.WEIGHTS + len(weights))
    params[at.PERIOD], params[at.PHASE] = config.calc_period, origin % config.calc_period
    params[at.DECAY], params[at.MAX_AGE] = decay, config.max_age
    params[at.NODES], params[at.FAVOR_SMALL] = max(len(cluster), 1), config.favor_small
    params[at.PER_TIME], params[at.DAMPING] = config.small_relative_to_time, config.damping
    params[at.TREE], params[at.DEPTHS] = config.algorithm == "fair-tree", len(levels)
    params[at.LATER], params[at.WEIGHTS :] = later, list(weights.values())
    return params, tables


def begin(accounts: Accounts, cluster: Cluster) -> Floats:
    """Return `state` before anything is charged: usage as the accounts have it."""
    tree = Tree.of(accounts)
    cores = float(cluster.nodes.cores.mean()) if len(cluster) else 1.0
    state = np.zeros((at.LINES, len(accounts) + 1))
    state[at.CLOSED] = tree.summed(np.concatenate(([0.0], accounts.usage / cores)))
    state[(at.AT, at.REFERENCE, at.FRESH), :] = np.nan
    state[at.ORDER, :-1] = tree.by_depth()
    state[at.BUSY, 1:] = -1.0
    return state


def _resume(charges: Floats, fresh: Floats) -> Floats:
    """Return `fresh` with what was charged before; rows that were added since begin at 0."""
    fresh[: at.KEPT] = 0.0
    fresh[(at.SINCE, at.AT), :] = charges[(at.SINCE, at.AT), :1]
    fresh[: at.KEPT, : charges.shape[1]] = charges
    return fresh


def _series(decay: float) -> Floats:
    """Return 1 + D + ... + D ** (m - 1) for m = 0, 1, ... with D = exp(-decay)."""
    m = np.arange(at.PERIODS, dtype=np.float64)
    return m if decay == 0.0 else np.expm1(-decay * m) / math.expm1(-decay)


def _of_siblings(accounts: Accounts) -> Floats:
    """Return for each row the shares of all rows with its parent."""
    total = np.bincount(accounts.parent + 1, accounts.shares, len(accounts) + 1)
    return np.asarray(total[accounts.parent + 1], np.float64)


def _by_code(priority: Mapping[str, int], names: tuple[str, ...], otherwise: int) -> Floats:
    """Return the factor of a missing code, then that of each code: priority over the highest."""
    values = [otherwise] + [priority.get(name, otherwise) for name in names]
    return _normalised(values, [*priority.values(), otherwise])


def _inherited(priority: Mapping[str, int], accounts: Accounts) -> Floats:
    """Return each account's factor: its own priority or that of the next row above with one."""
    names, parent = accounts.texts("name"), accounts.parent.tolist()
    values = []
    for account in range(len(accounts)):
        while account >= 0 and names[account] not in priority:
            account = parent[account]
        values.append(priority[str(names[account])] if account >= 0 else 0)
    return _normalised(values, list(priority.values()))


def _normalised(values: list[int], among: list[int]) -> Floats:
    """Return `values` over the highest of `among`, 0 where that is 0 or below."""
    highest = max(among, default=0)
    if highest <= 0:
        return np.zeros(len(values))
    return np.clip(np.array(values, np.float64) / highest, 0.0, 1.0)


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
    ) -> kernel.MultifactorCharges:
        """Return both hooks in compiled form."""
        arrays = lay_out(self.config, self.weights, jobs, accounts, cluster, origin)
        state = begin(accounts, cluster)
        return kernel.MultifactorCharges(job_columns(jobs, origin), *arrays, state)

    @staticmethod
    def _state(state: Usage | None, accounts: Accounts, cluster: Cluster) -> NDArray[np.float64]:
        """Return the kernels' array: as remembered, or as it is before anything is charged."""
        fresh = begin(accounts, cluster)
        return fresh if state is None else _resume(state.charges, fresh)
