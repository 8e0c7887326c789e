"""Limits of a site: what QOS and associations allow, which of it holds for a job, and billing.

As in Slurm, the first in this list that defines a limit decides: the partition's QOS, the job's
QOS (before it, with the flag OverPartQOS), the association of the user, the accounts above it; but
limits of all jobs of an account together hold at each account.

References
----------
Slurm manual, "Resource Limits"; slurmctld/acct_policy.c of Slurm 25.11.
"""

from __future__ import annotations

import pickle
import zlib
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from rtsched.model.resources import CPU, GRES, MEMORY
from rtsched.model.table import Ragged, offsets_of
from rtsched.model.units import slurm_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from rtsched.model.jobs import Jobs

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


NODE = "node"
"""Name of the number of nodes, among those of resources."""

WALL, PER_NODE, JOB_MINUTES = "MaxWall", "MaxTRESPerNode", "MaxTRESMins"
"""What Slurm calls limits of a job's time, of what it has on a node, of amounts times minutes."""

LEAST = "MinTRES"
"""What Slurm calls the least that a job asks for."""

GROUP_MINUTES, GROUP_WALL = "GrpTRESMins", "GrpWall"
"""What Slurm calls limits of what a group of jobs has used, in amounts times minutes and in time
(it counts as that of jobs)."""

MINUTES = {
    GROUP_MINUTES: "group",
    "GrpTRESRunMins": "group",
    GROUP_WALL: "group",
    "MaxTRESRunMinsPU": "user",
    "MaxTRESRunMinsPA": "account",
}
"""What Slurm calls limits of groups that count time: of all jobs, or of each user or account."""

USED_TIME = (GROUP_MINUTES, GROUP_WALL)
"""Those of them that count what jobs have used; the others count what running jobs may yet use."""

_WORDS = {
    "group": ("GrpTRES", "GrpJobs"),
    "user": ("MaxTRESPU", "MaxJobsPU"),
    "account": ("MaxTRESPA", "MaxJobsPA"),
    "job": ("MaxTRES", "MaxJobs"),
}
"""What Slurm calls limits of amounts and of jobs."""

_LARGEST = 2**62
"""No limit of amounts is larger."""

_REMEMBERED = 50_000
"""So many names' limits are remembered."""

NO_QOS = "with a QOS that is not among those given, or not in the log: it sets no limits"
NO_ASSOCIATION = (
    "with an account and user that are not among the associations given: these set no limits"
)


def qos_name(name: str) -> str:
    """Return how the group of all jobs of a QOS is called."""
    return f"QOS {name}"


def association_name(account: str, user: str = "", partition: str = "") -> str:
    """Return how the group of the jobs of an account, or of a user in it, is called."""
    where = f" in partition {partition}" if partition else ""
    return f"{f'user {user} of ' if user else ''}account {account.lower()}{where}"


class JobNames(NamedTuple):
    """What limits of a job go by; empty: not known."""

    qos: str
    partition: str
    account: str
    user: str


def kinds_of(jobs: Jobs) -> tuple[list[JobNames], NDArray[np.int64]]:
    """Return the distinct names of jobs, and which of them each job has, int64[n]."""
    codes = np.column_stack([jobs.column(name) for name in JobNames._fields])
    kind = np.zeros(len(jobs), np.int64)
    for column in codes.T:  # many times as fast as to sort rows
        keys = kind * (int(column.max(initial=-1)) + 2) + column
        _, first, kind = np.unique(keys, return_index=True, return_inverse=True)
    distinct = codes[first]
    texts = [(*jobs.names(name), "") for name in JobNames._fields]
    names = [
        JobNames(*(table[code] for table, code in zip(texts, row, strict=True)))
        for row in distinct.tolist()
    ]
    return names, kind.astype(np.int64)


class Limit(NamedTuple):
    """One limit that holds for jobs of some names."""

    group: str
    """Whose running jobs count; empty: each job by itself."""
    word: str
    """What Slurm calls it."""
    thing: str
    most: int
    owner: str
    """Whose limit it is, such as `QOS long`."""
    per_second: bool = False
    """Whether it is of amounts times requested seconds."""

    @property
    def text(self) -> str:
        """The limit as Slurm shows it, and whose it is: `GrpTRES=cpu=8 of account physics`."""
        if self.thing == JOBS:
            shown = slurm_time(self.most) if self.per_second else f"{self.most}"
            return f"{self.word}={shown} of {self.owner}"
        most = self.most // 60 if self.per_second else self.most
        shown = f"{most >> 20}M" if self.thing == MEMORY else f"{most}"
        return f"{self.word}={self.thing}={shown} of {self.owner}"


class JobLimits:
    """The limits that hold for the jobs of some names.

    Attributes
    ----------
    limits : list of Limit
        Of amounts: of groups of jobs, and of each job.
    seconds : list of Limit
        Of groups of jobs: of amounts times seconds.
    per_node, submits : list of Limit
        What a job may have on each node, and of how many jobs that wait or run.
    least : list of Limit
        What a job must ask for at least.
    member_of : list of str
        The groups that the jobs count in.
    undecayed : list of str
        Those of them whose used time does not decay.
    usage_factor : float
        By which the time that the jobs use is multiplied (UsageFactor of their QOS).
    wall : float
        Longest requested time of a job, seconds; inf: any.
    wall_owner : str
        Whose limit that is.
    others : list of str
        Names of limits that are set and that replays do not keep to.
    unknown : list of str
        What is not known of the jobs, as it goes on behind `412 jobs`.
    """

    def __init__(self) -> None:
        self.limits: list[Limit] = []
        self.seconds: list[Limit] = []
        self.per_node: list[Limit] = []
        self.least: list[Limit] = []
        self.submits: list[Limit] = []
        self.member_of: list[str] = []
        self.undecayed: list[str] = []
        self.usage_factor = 1.0
        self.wall = np.inf
        self.wall_owner = ""
        self.others: list[str] = []
        self.unknown: list[str] = []
        self._defined: set[tuple[str, str]] = set()

    def add_qos(self, name: str, qos: Qos, names: JobNames) -> None:
        """Add what a QOS defines and none before it does."""
        owner, limits = qos_name(name), qos.limits
        scopes = {
            "group": (owner, limits.group),
            "user": (f"user {names.user} in QOS {name}" if names.user else "", limits.user),
            "account": (
                f"account {names.account} in QOS {name}" if names.account else "",
                limits.account,
            ),
            "job": ("", limits.job),
        }
        for scope, (group, amounts) in scopes.items():
            if scope == "job" or group:
                self._add(scope, group, amounts, owner)
        self._define([(scope, limit) for scope, (_, some) in scopes.items() for limit in some])
        self._add_seconds(limits, {scope: group for scope, (group, _) in scopes.items()}, owner)
        self._define([(word, thing) for word, some in limits.seconds.items() for thing in some])
        self.undecayed += [] if qos.decays else [owner]
        self._add_others(limits, owner)
        self._define([("group", "submits")] * (GROUP_SUBMITS in limits.submits))

    def add_association(self, above: list[tuple[str, LimitSet]], factor: float) -> None:
        """Add what associations define and no QOS does: the user's, then the accounts above it."""
        own = above[0][0]
        jobs_defined = {("user", JOBS), ("account", JOBS)} & self._defined
        for name, limits in above:
            self._add("group", name, _scaled(limits.group, factor), name)
            self._add("job", "", _scaled(limits.job, factor), name)
            self._define([("job", thing) for thing in limits.job])
            if JOBS in limits.user and not jobs_defined:
                most = limits.user[JOBS]
                self.limits.append(Limit(own, "MaxJobs", JOBS, most, name))
                jobs_defined = {("user", JOBS)}
            self._add_seconds(limits, {"group": name}, name)
            self._add_others(limits, name)

    def _add(self, scope: str, group: str, amounts: Amounts, owner: str) -> None:
        if group:
            self.member_of.append(group)
        for thing, most in amounts.items():
            if (scope, thing) not in self._defined:
                word = _WORDS[scope][thing == JOBS]
                self.limits.append(Limit(group, word, thing, most, owner))

    def _add_seconds(self, limits: LimitSet, groups: dict[str, str], owner: str) -> None:
        """Add limits that count time, of the groups that `MINUTES` names."""
        for word, amounts in limits.seconds.items():
            group = groups.get(MINUTES[word], "")
            for thing, most in amounts.items() if group else ():
                if (word, thing) not in self._defined:
                    limit = Limit(group, word, thing, most, owner, per_second=True)
                    self.seconds.append(limit)

    def _define(self, found: Iterable[tuple[str, str]]) -> None:
        self._defined |= set(found)

    def _add_others(self, limits: LimitSet, owner: str) -> None:
        """Add limits of time, of a job, of what waits, and those that are not replayed."""
        for thing, most in limits.job_seconds.items():
            if ("seconds", thing) not in self._defined:
                limit = Limit("", JOB_MINUTES, thing, most, owner, per_second=True)
                self.limits.append(limit)
        self.per_node += [
            Limit("", PER_NODE, thing, most, owner)
            for thing, most in limits.per_node.items()
            if ("node", thing) not in self._defined
        ]
        self._define([("seconds", thing) for thing in limits.job_seconds])
        self._define([("node", thing) for thing in limits.per_node])
        self.least += [
            Limit("", LEAST, thing, least, owner)
            for thing, least in limits.least.items()
            if (LEAST, thing) not in self._defined
        ]
        self._define([(LEAST, thing) for thing in limits.least])
        for word, most in limits.submits.items():
            scope = "group" if word == GROUP_SUBMITS else "own"
            if (scope, "submits") not in self._defined:
                self.submits.append(Limit("", word, JOBS, most, owner))
        own = limits.submits.keys() - {GROUP_SUBMITS}
        self._define([("own", "submits")] * bool(own))
        if np.isinf(self.wall):
            self.wall, self.wall_owner = limits.wall, owner
        self.others += [name for name in limits.others if name not in self.others]

    def groups(self, known: Callable[[str], bool]) -> dict[str, Amounts]:
        """Return the groups that the jobs count in, and how much of what is known these may hold.

        The smallest limit of a group holds. `known` says what can be counted.
        """
        found: dict[str, Amounts] = {group: {} for group in self.member_of}
        for limit in self.limits:
            if limit.group and known(limit.thing):
                held = found[limit.group]
                held[limit.thing] = min(limit.most, held.get(limit.thing, limit.most))
        return found


def _scaled(amounts: Amounts, factor: float) -> Amounts:
    """Return limits of an association by its QOS's LimitFactor, which is of resources."""
    if factor == 1.0:
        return amounts
    return {
        thing: most if thing == JOBS else int(min(most * factor, _LARGEST))
        for thing, most in amounts.items()
    }


class LimitRules:
    """The limits of a site by what they go by.

    A process that receives them from another one again and again, unchanged, has one object of
    them: a site with many users has many limits, which seldom change.
    """

    def __init__(self, site: SiteLimits) -> None:
        self._site = site
        self._found: dict[JobNames, JobLimits] = {}
        self._associations: dict[tuple[str, str, str], Association] = {
            (one.account.lower(), one.user, one.partition): one for one in site.associations or ()
        }

    @cached_property
    def qos_names(self) -> frozenset[str]:
        """The names of all QOS, in lower case."""
        return frozenset(name.lower() for name in self._site.qos or {})

    @property
    def calc_period(self) -> float:
        """Seconds between two times at which what running jobs used is counted."""
        return self._site.calc_period

    @property
    def safe(self) -> bool:
        """Whether a job starts only if what is left of used time is enough for its time limit."""
        return self._site.safe

    @property
    def half_life(self) -> float:
        """Seconds in which used time decays to the half; inf: it does not."""
        return self._site.half_life

    @cached_property
    def words(self) -> frozenset[str]:
        """What Slurm calls the limits that are set of those of `MINUTES`."""
        qos, associations = self._site.qos or {}, self._site.associations or ()
        limits = (*(one.limits for one in qos.values()), *(one.limits for one in associations))
        return frozenset(word for one in limits for word in one.seconds)

    @cached_property
    def _packed(self) -> bytes:
        return zlib.compress(pickle.dumps(self._site), 1)

    def __reduce__(self) -> tuple[Callable[[bytes], LimitRules], tuple[bytes]]:
        return _unpacked, (self._packed,)

    def of(self, names: JobNames) -> JobLimits:
        """Return the limits of jobs of such names, to be read only."""
        if names not in self._found:
            if len(self._found) == _REMEMBERED:
                self._found.clear()  # users may name any account
            self._found[names] = self._of(names)
        return self._found[names]

    def _of(self, names: JobNames) -> JobLimits:
        rule, factor = JobLimits(), 1.0
        qos = self._qos(names, rule)
        rule.usage_factor = (self._site.qos or {}).get(names.qos, Qos()).usage_factor
        for name, one in qos:
            rule.add_qos(name, one, names)
            factor = one.factor if factor == 1.0 else factor
        if self._site.associations is not None:
            above = self._above(names)
            if above:
                rule.add_association(above, factor)
            else:
                rule.unknown.append(NO_ASSOCIATION)
        return rule

    def applied_to(self, names: JobNames) -> JobLimits:
        """Return the limits of jobs of such names, whose users may have named no QOS."""
        return self.of(self.with_default_qos(names))

    def with_default_qos(self, names: JobNames) -> JobNames:
        """Return the names with the QOS that Slurm gives jobs whose users name none."""
        if names.qos:
            return names
        own, root = self._own(names), self._associations.get(("root", "", ""))
        qos = own.default_qos if own is not None else ""
        if not qos and own is not None and len(own.qos) == 1:
            qos = own.qos[0]
        if not qos and root is not None:
            qos = root.default_qos
        return names._replace(qos=qos or "normal")

    def _qos(self, names: JobNames, rule: JobLimits) -> list[tuple[str, Qos]]:
        """Return the QOS whose limits hold, the first one's before the second's."""
        known = self._site.qos
        if known is None:
            return []
        if names.qos not in known:
            rule.unknown.append(NO_QOS)
        own = known.get(names.qos, Qos())
        found = [self._site.partition_qos.get(names.partition, ""), names.qos]
        if own.over_partition:
            found.reverse()
        return [(name, known[name]) for name in dict.fromkeys(found) if name in known]

    def _own(self, names: JobNames) -> Association | None:
        """Return the association of the user in the account; None: there is none."""
        for partition in (names.partition, ""):
            own = self._associations.get((names.account.lower(), names.user, partition))
            if names.user and own is not None:
                return own
        return None

    def _above(self, names: JobNames) -> list[tuple[str, LimitSet]]:
        """Return the user's association and the accounts above it, each with its name."""
        own = self._own(names)
        if own is None:
            return []
        account = names.account.lower()
        found = {association_name(account, names.user, own.partition): own.limits}
        while account and association_name(account) not in found:
            one = self._associations.get((account, "", ""))
            if one is None:
                break
            found[association_name(account)] = one.limits
            account = one.parent.lower()
        return list(found.items())


@lru_cache(maxsize=1)
def _unpacked(packed: bytes) -> LimitRules:
    return LimitRules(pickle.loads(zlib.decompress(packed)))  # noqa: S301 -- from our own process


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
