"""Which limits of a site hold for the jobs of a log, and what of them is not replayed.

As in Slurm, the first in this list that defines a limit decides: the partition's QOS, the job's
QOS (before it, with the flag OverPartQOS), the association of the user, the accounts above it; but
limits of all jobs of an account together hold at each account. A job counts with all that it asks
for, and with all cores of its nodes where it has these to itself.

References
----------
Slurm manual, "Resource Limits"; slurmctld/acct_policy.c of Slurm 25.11.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.counting import counted
from rtsched.kernels.machine_limits import NO_LIMIT
from rtsched.model.limits import JOBS, Limits, Qos
from rtsched.model.ragged import Ragged, offsets_of
from rtsched.model.resources import CPU, GRES, LICENSE, MEMORY
from rtsched.model.table import amounts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from rtsched.model.jobs import Jobs
    from rtsched.model.limits import Amounts, Association, LimitSet, SiteLimits

NODE = "node"
"""Name of the number of nodes, among those of resources."""

_LARGEST = 2.0**50
"""No job counts for more of anything."""
_WORDS = {
    "group": ("GrpTRES", "GrpJobs"),
    "user": ("MaxTRESPU", "MaxJobsPU"),
    "account": ("MaxTRESPA", "MaxJobsPA"),
    "job": ("MaxTRES", "MaxJobs"),
}
"""What Slurm calls limits of amounts and of jobs."""

_BEYOND = (
    "beyond {} by themselves: Slurm would not start them, but they ran, so it does not hold them up"
)
_OTHER = "of accounts or QOS with {}, which does not hold them up in the replay"
_NO_QOS = "with a QOS that is not among those given, or not in the log: it sets no limits"
_NO_ASSOCIATION = (
    "with an account and user that are not among the associations given: these set no limits"
)


def limits_of_jobs(
    jobs: Jobs, site: SiteLimits, whole: NDArray[np.bool_], cores: int, said: list[str]
) -> Limits | None:
    """Return the limits that the simulated system keeps to for jobs; None: there are none.

    Parameters
    ----------
    jobs : Jobs
        `n` jobs as read; sizes count processors.
    site : SiteLimits
        Limits of QOS and associations.
    whole : bool[n]
        Which jobs have their nodes to themselves.
    cores : int
        Cores of a node.
    said : list of str
        Grows by what is replayed, and by what is not, with counts.
    """
    said += site.assumptions
    amounts, rules = _JobAmounts(jobs, whole, cores), _Rules(site)
    kinds, kind = _kinds(jobs)
    rows_of = Ragged(offsets_of(np.bincount(kind)), np.argsort(kind, kind="stable"))
    told = Counter[str]()
    groups: list[dict[str, Amounts]] = []
    for at, names in enumerate(kinds):
        rows, rule = rows_of.row(at), rules.of(names)
        told.update(dict.fromkeys(rule.unknown, len(rows)))
        told.update({_OTHER.format(name): len(rows) for name in rule.not_replayed(amounts)})
        for word, beyond in rule.beyond(amounts, rows):
            told[_BEYOND.format(word)] += int(beyond.sum())
        groups.append(rule.groups(amounts))
    limits = _arrays(amounts, kind, groups)
    if limits is not None:
        within = int((limits.groups.lengths[kind] > 0).sum())
        said.append(
            f"{counted(within, 'job')} of accounts, users or QOS with limits of what runs at a "
            "time: a job over a limit waits, and holds up nobody (machine 'exclusive' but for its "
            "loop 'negotiator'; planners do not know limits)."
        )
    said += [f"{counted(n, 'job')} {sentence}." for sentence, n in sorted(told.items()) if n]
    return limits


class _JobNames(NamedTuple):
    """What limits of a job go by; empty: not known."""

    qos: str
    partition: str
    account: str
    user: str


def _kinds(jobs: Jobs) -> tuple[list[_JobNames], NDArray[np.int64]]:
    """Return the kinds of jobs, and the kind of each, int64[n]."""
    codes = np.column_stack([jobs.column(name) for name in _JobNames._fields])
    distinct, kind = np.unique(codes, axis=0, return_inverse=True)
    texts = [(*jobs.names(name), "") for name in _JobNames._fields]
    names = [
        _JobNames(*(table[code] for table, code in zip(texts, row, strict=True)))
        for row in distinct.tolist()
    ]
    return names, kind.ravel().astype(np.int64)


class _JobAmounts:
    """How much jobs ask for in all, of what limits name."""

    def __init__(self, jobs: Jobs, whole: NDArray[np.bool_], cores: int) -> None:
        self._jobs, self._whole, self._cores = jobs, whole, max(cores, 1)
        asked = -(-np.maximum(jobs.size, 1) // self._cores)
        self._nodes = np.where(jobs.node_count > 0, jobs.node_count, asked).astype(np.float64)
        self._found: dict[str, NDArray[np.int64]] = {}

    @property
    def wall(self) -> NDArray[np.float64]:
        """Requested seconds; inf: none."""
        return self._jobs.wall_time

    def __contains__(self, thing: str) -> bool:
        """Return whether the log tells how much of something jobs ask for.

        Slurm counts a node once that several jobs of a group share, so nodes are counted where
        jobs have them to themselves only.
        """
        if thing == NODE:
            return bool(self._whole.all())
        return thing in {JOBS, CPU, MEMORY} or thing.startswith((GRES, LICENSE))

    def of(self, thing: str) -> NDArray[np.int64]:
        """Return how much of something each job asks for, int64[n]."""
        if thing not in self._found:
            self._found[thing] = np.minimum(self._amount(thing), _LARGEST).astype(np.int64)
        return self._found[thing]

    def _amount(self, thing: str) -> NDArray[np.float64]:
        size = np.maximum(self._jobs.size, 0).astype(np.float64)
        if thing == JOBS:
            return np.ones(len(size))
        if thing == NODE:
            return self._nodes
        if thing == CPU:
            return np.where(self._whole, np.maximum(self._nodes * self._cores, size), size)
        amount = amounts_of(self._jobs, "demand", (thing,))[:, 0].astype(np.float64)
        if thing.startswith(LICENSE):
            return amount
        amount *= np.maximum(self._jobs.node_count, 1)
        if thing == MEMORY:
            memory = np.maximum(self._jobs.memory, 0) * size
            return np.where(amount > 0, amount, memory)
        return amount


class _Limit(NamedTuple):
    """One limit that holds for jobs of a kind."""

    group: str
    """Whose running jobs count; empty: each job by itself."""
    word: str
    """What Slurm calls it."""
    thing: str
    most: int
    per_second: bool = False
    """Whether it is of amounts times requested seconds."""


class _Rule:
    """The limits that hold for the jobs of one kind."""

    def __init__(self) -> None:
        self.limits: list[_Limit] = []
        self.member_of: list[str] = []
        self.wall = np.inf
        self.others: list[str] = []
        self.unknown: list[str] = []
        self._defined: set[tuple[str, str]] = set()

    def add_qos(self, name: str, limits: LimitSet, names: _JobNames) -> None:
        """Add what a QOS defines and none before it does."""
        scopes = {
            "group": (f"QOS {name}", limits.group),
            "user": (f"user {names.user} in QOS {name}" if names.user else "", limits.user),
            "account": (
                f"account {names.account} in QOS {name}" if names.account else "",
                limits.account,
            ),
            "job": ("", limits.job),
        }
        for scope, (group, amounts) in scopes.items():
            if scope == "job" or group:
                self._add(scope, group, amounts)
        self._define([(scope, limit) for scope, (_, some) in scopes.items() for limit in some])
        self._add_others(limits)

    def add_association(self, above: list[tuple[str, LimitSet]], factor: float) -> None:
        """Add what associations define and no QOS does: the user's, then the accounts above it."""
        own = above[0][0]
        jobs_defined = {("user", JOBS), ("account", JOBS)} & self._defined
        for name, limits in above:
            self._add("group", name, _scaled(limits.group, factor))
            self._add("job", "", _scaled(limits.job, factor))
            self._define([("job", thing) for thing in limits.job])
            if JOBS in limits.user and not jobs_defined:
                self.limits.append(_Limit(own, "MaxJobs", JOBS, limits.user[JOBS]))
                jobs_defined = {("user", JOBS)}
            self._add_others(limits)

    def _add(self, scope: str, group: str, amounts: Amounts) -> None:
        if group:
            self.member_of.append(group)
        for thing, most in amounts.items():
            if (scope, thing) not in self._defined:
                word = _WORDS[scope][thing == JOBS]
                self.limits.append(_Limit(group, word, thing, most))

    def _define(self, found: Iterable[tuple[str, str]]) -> None:
        self._defined |= set(found)

    def _add_others(self, limits: LimitSet) -> None:
        """Add limits of time, of a job, and those that are not replayed."""
        for thing, most in limits.job_seconds.items():
            if ("seconds", thing) not in self._defined:
                self.limits.append(_Limit("", "MaxTRESMins", thing, most, per_second=True))
        self._define([("seconds", thing) for thing in limits.job_seconds])
        if np.isinf(self.wall):
            self.wall = limits.wall
        self.others += [name for name in limits.others if name not in self.others]

    def groups(self, amounts: _JobAmounts) -> dict[str, Amounts]:
        """Return the groups that jobs of the kind count in, and how much these may hold."""
        found: dict[str, Amounts] = {group: {} for group in self.member_of}
        for limit in self.limits:
            if limit.group and limit.thing in amounts:
                held = found[limit.group]
                held[limit.thing] = min(limit.most, held.get(limit.thing, NO_LIMIT))
        return found

    def not_replayed(self, amounts: _JobAmounts) -> list[str]:
        """Return the names of the limits that are reported only."""
        unknown = [f"{one.word}={one.thing}" for one in self.limits if one.thing not in amounts]
        return list(dict.fromkeys([*self.others, *unknown]))

    def beyond(
        self, amounts: _JobAmounts, rows: NDArray[np.int64]
    ) -> Iterator[tuple[str, NDArray[np.bool_]]]:
        """Yield limits that some jobs are beyond by themselves, with bool[k] for these rows."""
        found: dict[str, NDArray[np.bool_]] = {}
        wall = amounts.wall[rows]
        if np.isfinite(self.wall):
            found["MaxWall"] = np.isfinite(wall) & (wall > self.wall)
        for one in self.limits:
            if one.thing not in amounts:
                continue
            asked: NDArray[np.float64] = amounts.of(one.thing)[rows].astype(np.float64)
            if one.per_second:
                asked = asked * np.where(np.isfinite(wall), wall, 0.0)
            more = asked > one.most
            found[one.word] = found[one.word] | more if one.word in found else more
        yield from found.items()


def _scaled(amounts: Amounts, factor: float) -> Amounts:
    """Return limits of an association by its QOS's LimitFactor, which is of resources."""
    if factor == 1.0:
        return amounts
    return {
        thing: most if thing == JOBS else int(min(most * factor, NO_LIMIT))
        for thing, most in amounts.items()
    }


class _Rules:
    """The limits of a site by what they go by."""

    def __init__(self, site: SiteLimits) -> None:
        self._site = site
        self._associations: dict[tuple[str, str, str], Association] = {
            (one.account.lower(), one.user, one.partition): one for one in site.associations or ()
        }

    def of(self, names: _JobNames) -> _Rule:
        """Return the limits of jobs of such names."""
        rule, factor = _Rule(), 1.0
        qos = self._qos(names, rule)
        for name, one in qos:
            rule.add_qos(name, one.limits, names)
            factor = one.factor if factor == 1.0 else factor
        if self._site.associations is not None:
            above = self._above(names)
            if above:
                rule.add_association(above, factor)
            else:
                rule.unknown.append(_NO_ASSOCIATION)
        return rule

    def _qos(self, names: _JobNames, rule: _Rule) -> list[tuple[str, Qos]]:
        """Return the QOS whose limits hold, the first one's before the second's."""
        known = self._site.qos
        if known is None:
            return []
        if names.qos not in known:
            rule.unknown.append(_NO_QOS)
        own = known.get(names.qos, Qos())
        found = [self._site.partition_qos.get(names.partition, ""), names.qos]
        if own.over_partition:
            found.reverse()
        return [(name, known[name]) for name in dict.fromkeys(found) if name in known]

    def _above(self, names: _JobNames) -> list[tuple[str, LimitSet]]:
        """Return the user's association and the accounts above it, each with its name."""
        account, user = names.account.lower(), names.user
        for partition in (names.partition, ""):
            own = self._associations.get((account, user, partition))
            if user and own is not None:
                break
        else:
            return []
        where = f" in partition {own.partition}" if own.partition else ""
        found = {f"user {user} of account {account}{where}": own.limits}
        while account and f"account {account}" not in found:
            one = self._associations.get((account, "", ""))
            if one is None:
                break
            found[f"account {account}"] = one.limits
            account = one.parent.lower()
        return list(found.items())


def _arrays(
    amounts: _JobAmounts, kind: NDArray[np.int64], kinds: list[dict[str, Amounts]]
) -> Limits | None:
    """Return limits as arrays, without groups that no limit is set for; None: no group is left."""
    limited = [(group, most) for groups in kinds for group, most in groups.items() if most]
    if not limited:
        return None
    code = {group: at for at, group in enumerate(dict(limited))}
    things = tuple(dict.fromkeys(thing for _, most in limited for thing in most))
    members = [[group for group in groups if group in code] for groups in kinds]
    held = [groups[one] for groups, mine in zip(kinds, members, strict=True) for one in mine]
    return Limits(
        things,
        np.column_stack([amounts.of(thing) for thing in things]),
        kind,
        Ragged.of([[code[group] for group in mine] for mine in members], np.int64),
        np.array([[most.get(thing, NO_LIMIT) for thing in things] for most in held], np.int64),
        tuple(code),
    )
