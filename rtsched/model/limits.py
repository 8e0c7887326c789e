"""Limits of a site: what QOS and associations allow, and what holds for the jobs of a log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.model.resources import MEMORY
from rtsched.model.table import Ragged, offsets_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

JOBS = "jobs"
"""Name of the number of jobs, among those of resources."""

GROUP_SUBMITS = "GrpSubmit"
"""What Slurm calls the limit of how many jobs of a QOS or account may wait or run."""

HALF_LIFE = 7 * 86400.0
"""Slurm's default of PriorityDecayHalfLife, seconds."""

CALC_PERIOD = 300.0
"""Slurm's default of PriorityCalcPeriod, seconds."""

Amounts = dict[str, int]
"""What may be held at most, by name of the resource; memory in bytes."""


@dataclass(frozen=True)
class LimitSet:
    """The limits that one QOS or association sets; what is not in there is not limited.

    Attributes
    ----------
    group : dict of str to int
        Of all its running jobs together (GrpTRES, GrpJobs).
    user, account : dict of str to int
        Of the running jobs of each user, each account in a QOS (MaxTRESPU and MaxJobsPU; MaxTRESPA
        and MaxJobsPA). Of an association, `user` has MaxJobs.
    job : dict of str to int
        Of each job (MaxTRES).
    job_seconds : dict of str to int
        Of each job, times its requested seconds (MaxTRESMins).
    seconds : dict of str to dict of str to int
        Of groups of jobs, amounts times seconds that running jobs may yet have or that were used,
        by what Slurm calls the limit, such as `GrpTRESMins`. GrpWall is one of jobs.
    per_node : dict of str to int
        Of each job on each of its nodes (MaxTRESPerNode).
    least : dict of str to int
        What each job asks for at least (MinTRES).
    submits : dict of str to int
        How many jobs may wait or run, by what Slurm calls the limit, such as `MaxSubmit`.
    wall : float
        Longest requested time of a job, seconds (MaxWall).
    others : tuple of str
        Names of limits that are set and that replays do not keep to, such as `MaxSubmit`.
    """

    group: Amounts = field(default_factory=dict)
    user: Amounts = field(default_factory=dict)
    account: Amounts = field(default_factory=dict)
    job: Amounts = field(default_factory=dict)
    job_seconds: Amounts = field(default_factory=dict)
    seconds: dict[str, Amounts] = field(default_factory=dict)
    per_node: Amounts = field(default_factory=dict)
    least: Amounts = field(default_factory=dict)
    submits: Amounts = field(default_factory=dict)
    wall: float = np.inf
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Qos:
    """A quality of service: its limits, how they go with others, and whom its jobs preempt.

    Attributes
    ----------
    limits : LimitSet
        Its limits.
    over_partition : bool
        Whether they come before those of the partition's QOS (flag OverPartQOS).
    factor : float
        By which those of the association on amounts are multiplied (LimitFactor).
    decays : bool
        Whether its used time decays (not with the flag NoDecay).
    usage_factor : float
        By which the time that its jobs use is multiplied (UsageFactor).
    preempts : tuple of str
        The QOS whose jobs may be preempted by its jobs (Preempt).
    preempt_mode : str
        What becomes of its jobs when they are preempted (PreemptMode), as in `SitePreemption`;
        empty: what the site says.
    exempt : float or None
        Seconds after its start for which a job is not preempted (PreemptExemptTime); None: what the
        site says.
    grace : float
        Seconds that a job has to end when it is preempted (GraceTime).
    priority : int
        Jobs of the QOS with the least are preempted first.
    """

    limits: LimitSet = LimitSet()
    over_partition: bool = False
    factor: float = 1.0
    decays: bool = True
    usage_factor: float = 1.0
    preempts: tuple[str, ...] = ()
    preempt_mode: str = ""
    exempt: float | None = None
    grace: float = 0.0
    priority: int = 0


@dataclass(frozen=True)
class Association:
    """An account (`user` is empty), or a user in it, perhaps for one partition only.

    `parent` is the account above an account; empty: it stands at the top. `qos` are those that its
    jobs may have, and `default_qos` the one that they have if they name none; empty: not set.
    """

    account: str
    user: str = ""
    partition: str = ""
    parent: str = ""
    limits: LimitSet = LimitSet()
    qos: tuple[str, ...] = ()
    default_qos: str = ""


@dataclass(frozen=True)
class SiteLimits:
    """What the site has set.

    Attributes
    ----------
    qos : mapping of str to Qos, or None
        By name; None: not known.
    associations : tuple of Association, or None
        None: not known.
    partition_qos : mapping of str to str
        The QOS of partitions that have one.
    safe : bool
        Whether a job starts only if what is left of used time is enough for its time limit
        (AccountingStorageEnforce with `safe`).
    half_life : float
        Seconds in which used time decays to the half (PriorityDecayHalfLife); inf: it does not.
    calc_period : float
        Seconds between two times at which what running jobs used is counted (PriorityCalcPeriod).
    assumptions : tuple of str
        What had to be assumed, one plain sentence each.
    """

    qos: Mapping[str, Qos] | None = None
    associations: tuple[Association, ...] | None = None
    partition_qos: Mapping[str, str] = field(default_factory=dict)
    safe: bool = False
    half_life: float = HALF_LIFE
    calc_period: float = CALC_PERIOD
    assumptions: tuple[str, ...] = ()


def minute_of(thing: str) -> int:
    """Return what a minute of one of something is, in it times seconds; of memory one of a MiB."""
    return 60 << 20 if thing == MEMORY else 60


class UsedTime(NamedTuple):
    """What groups of jobs have of limits of used time (GrpTRESMins, GrpWall)."""

    at: float
    """When that was so, seconds since the epoch."""
    seconds: Mapping[tuple[str, str], float]
    """By group and thing: amounts times seconds that they had used, and that those of their jobs
    which ran may use until their time limits. Wall time counts as that of `JOBS`."""

    def lacks(self, start: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which jobs are not in it, by their starts, seconds since the epoch, bool[n]."""
        return np.asarray(start > self.at - 1.0)  # batch systems tell whole seconds


class Limits(NamedTuple):
    """Limits of groups of the jobs of a workload, of `r` things that are counted.

    A job counts in the groups of its kind from its start to its end. It starts only if no group
    then holds more than its kind may see there.
    """

    things: tuple[str, ...]
    """What is counted: `jobs`, `cpu`, ..."""
    basis: NDArray[np.int64]
    """int64[r]: what of it is compared with the limit, such as `HELD` or `REMAINING`
    (`rtsched.kernels.machine_limits`)."""
    asked: NDArray[np.int64]
    """int64[n, r]: what each job counts for."""
    kind: NDArray[np.int64]
    """int64[n]: a row of `groups`."""
    groups: Ragged
    """Per kind the groups that its jobs count in."""
    most: NDArray[np.float64]
    """float64[e, r], row by row with `groups.values`: the most that the group may hold, or have
    times seconds; inf: any."""
    half_life: NDArray[np.float64]
    """float64[g]: seconds in which what a group used decays to the half; inf: it does not."""
    names: tuple[str, ...]
    """What each group is, such as `user alice in QOS long`."""
    used: NDArray[np.float64] | None = None
    """float64[g, r]: what each group has used before, amounts times seconds; None: nothing."""

    def take(self, rows: NDArray[np.int64]) -> Limits:
        """Return the limits for some of the jobs, in that order."""
        return self._replace(asked=self.asked[rows], kind=self.kind[rows])

    def with_rows(self, more: int) -> Limits:
        """Return the limits for as many further jobs, which count nowhere."""
        nowhere = len(self.groups.offsets) - 1
        return self._replace(
            asked=np.concatenate([self.asked, np.zeros((more, len(self.things)), np.int64)]),
            kind=np.concatenate([self.kind, np.full(more, nowhere)]),
            groups=Ragged(offsets_of(np.append(self.groups.lengths, 0)), self.groups.values),
        )
