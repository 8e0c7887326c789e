"""Limits of a site on the jobs of a log, and what of them is not replayed.

A job counts with all that it asks for, and with all cores of its nodes where it has these to
itself. Which limits hold for it: `rtsched.model.limits`.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from rtsched.kernels.machine_limits import (
    ALLOTTED,
    HELD,
    NO_LIMIT,
    REMAINING,
    USED,
    USED_AND_ASKED,
)
from rtsched.model.limits import (
    BILLING,
    GROUP_MINUTES,
    GROUP_WALL,
    JOBS,
    LEAST,
    NODE,
    WALL,
    LimitRules,
    Limits,
    kinds_of,
)
from rtsched.model.resources import CPU, GRES, LICENSE, MEMORY, whole_kib
from rtsched.model.table import Ragged, amounts_of, offsets_of
from rtsched.model.units import slurm_time
from rtsched.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from rtsched.model.jobs import Jobs
    from rtsched.model.limits import BillingWeights, JobLimits, Limit, SiteLimits


_RAN = "Slurm would not start them, but they ran, so it does not hold them up"
_BEYOND, _BELOW = f"beyond {{}} by themselves: {_RAN}", f"below {{}}: {_RAN}"
_OTHER = "of accounts or QOS with {}, which does not hold them up in the replay"

Most = dict[tuple[int, str], int]
"""The most that a group may have, by what is compared with it (such as `HELD`) and of what."""


def limits_of_jobs(amounts: JobAmounts, site: SiteLimits, notes: list[str]) -> Limits | None:
    """Return the limits that the simulated system keeps to for jobs; None: there are none.

    Parameters
    ----------
    amounts : JobAmounts
        Of `n` jobs, what they count for.
    site : SiteLimits
        Limits of QOS and associations.
    notes : list of str
        Grows by what is replayed, and by what is not, with counts.
    """
    notes += site.assumptions
    rules = LimitRules(site)
    kinds, kind = kinds_of(amounts.jobs)
    found = [rules.of(names) for names in kinds]
    rows_of = Ragged(offsets_of(np.bincount(kind)), np.argsort(kind, kind="stable"))
    counts = Counter[str]()
    for at, rule in enumerate(found):
        rows = rows_of.row(at)
        counts.update(dict.fromkeys(rule.unknown, len(rows)))
        counts.update({_OTHER.format(name): len(rows) for name in _not_replayed(rule, amounts)})
        for sentence, beyond in _beyond(rule, amounts, rows, site.safe):
            counts[sentence] += int(beyond.sum())
    limits = limits_of_kinds(amounts, found, kind, site.safe, site.half_life)
    if limits is not None:
        notes += _kept(limits, site)
    notes += [f"{counted(n, 'job')} {sentence}." for sentence, n in sorted(counts.items()) if n]
    return limits


class Countable(Protocol):
    """How much jobs ask for in all, of what limits name."""

    @property
    def shares_nodes(self) -> bool:
        """Whether some jobs share nodes with others."""

    def __contains__(self, thing: str) -> bool:
        """Return whether it is known how much of something jobs ask for."""

    def of(self, thing: str) -> NDArray[np.int64]:
        """Return how much of something each job asks for, int64[n]."""


def limits_of_kinds(
    amounts: Countable,
    rules: Sequence[JobLimits],
    kind: NDArray[np.int64],
    safe: bool,
    half_life: float,
) -> Limits | None:
    """Return the limits that the simulated system keeps to for jobs; None: there are none.

    Parameters
    ----------
    amounts : Countable
        Of `n` jobs, what they count for.
    rules : sequence of JobLimits
        The limits of each kind of jobs.
    kind : int64[n]
        Which kind each job is of.
    safe, half_life : bool, float
        As in `SiteLimits`.
    """
    limits = _arrays(amounts, kind, [_groups(rule, amounts, safe) for rule in rules])
    if limits is None:
        return None
    undecayed = set[str]().union(*(rule.undecayed for rule in rules))
    decays = [name not in undecayed for name in limits.names]
    return limits._replace(half_life=np.where(decays, half_life, np.inf))


def _kept(limits: Limits, site: SiteLimits) -> Iterator[str]:
    """Yield what to say of the limits that are kept to."""
    columns = (limits.basis != HELD) & (limits.basis != REMAINING)
    some = (limits.most[:, columns] < NO_LIMIT).any(axis=1)
    used = int(np.isin(limits.kind, limits.groups.rows()[some]).sum())
    within = int((limits.groups.lengths[limits.kind] > 0).sum())
    yield (
        f"{counted(within, 'job')} of accounts, users or QOS with limits of what runs at a "
        f"time{' or was used' if used else ''}: a job over a limit waits, and holds up nobody "
        "(machine 'exclusive' but for its loop 'negotiator'; planners do not know limits)."
    )
    if not used:
        return
    decay = "never decays"
    if site.half_life < np.inf:
        decay = f"decays to the half in {slurm_time(site.half_life)}, but where a QOS has NoDecay"
    start = "starts while some is left, and is not ended when none is"
    if site.safe:
        start = "starts if enough is left for its time limit"
    yield (
        f"{counted(used, 'job')} of accounts or QOS with limits of used time "
        f"({GROUP_MINUTES}, {GROUP_WALL}): none is used when the log begins, it {decay} "
        f"(PriorityDecayHalfLife), and a job {start} (AccountingStorageEnforce "
        f"{'with' if site.safe else 'without'} 'safe')."
    )


def _groups(rule: JobLimits, amounts: Countable, safe: bool) -> dict[str, Most]:
    """Return the groups that jobs count in, and the most that each of them may have."""
    found = {
        group: {(HELD, thing): most for thing, most in held.items()}
        for group, held in rule.groups(partial(_held, amounts)).items()
    }
    for one in rule.seconds:
        if _counts(one, amounts):
            most, key = found[one.group], (_compared(one.word, safe), one.thing)
            most[key] = min(one.most, most.get(key, one.most))
    return found


def _compared(word: str, safe: bool) -> int:
    """Return what Slurm compares with a limit that counts time when a job starts."""
    if word == GROUP_WALL:
        return USED_AND_ASKED if safe else USED
    if word == GROUP_MINUTES:
        return ALLOTTED if safe else USED
    return REMAINING


def _held(amounts: Countable, thing: str) -> bool:
    """Return whether the log tells how much of something jobs hold at a time.

    Slurm counts a node once that several jobs of a group share, so nodes are counted where jobs
    have them to themselves only.
    """
    return thing in amounts and not (thing == NODE and amounts.shares_nodes)


def _counts(one: Limit, amounts: Countable) -> bool:
    """Return whether the log tells how much of it jobs hold, or ask for by the second."""
    return one.thing in amounts if one.per_second else _held(amounts, one.thing)


def _not_replayed(rule: JobLimits, amounts: JobAmounts) -> list[str]:
    """Return the names of the limits that are reported only."""
    limits = (*rule.limits, *rule.seconds, *rule.least)
    unknown = [f"{one.word}={one.thing}" for one in limits if not _counts(one, amounts)]
    return list(dict.fromkeys([*rule.others, *unknown]))


def _beyond(
    rule: JobLimits, amounts: JobAmounts, rows: NDArray[np.int64], safe: bool
) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yield sentences of limits that some jobs are beyond by themselves, with bool[k] of them."""
    found: dict[str, NDArray[np.bool_]] = {}
    wall = amounts.wall[rows]
    if np.isfinite(rule.wall):
        found[_BEYOND.format(WALL)] = np.isfinite(wall) & (wall > rule.wall)
    for one in (*rule.limits, *rule.seconds, *rule.least):
        if not _counts(one, amounts):
            continue
        asked: NDArray[np.float64] = amounts.of(one.thing)[rows].astype(np.float64)
        sentence, more = _BEYOND.format(one.word), asked > one.most
        if one.word == LEAST:
            sentence, more = _BELOW.format(one.word), asked < one.most
        elif one.word in (GROUP_MINUTES, GROUP_WALL) and not safe:
            more = (asked > 0.0) & (one.most == 0)
        elif one.per_second:
            more = asked * np.where(np.isfinite(wall), wall, 0.0) > one.most
        found[sentence] = found[sentence] | more if sentence in found else more
    yield from found.items()


def _arrays(
    amounts: Countable, kind: NDArray[np.int64], kinds: list[dict[str, Most]]
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
        tuple(thing for _, thing in things),
        np.array([basis for basis, _ in things], np.int64),
        np.column_stack([amounts.of(thing) for _, thing in things]),
        kind,
        Ragged.of([[code[group] for group in mine] for mine in members], np.int64),
        np.array([[most.get(thing, NO_LIMIT) for thing in things] for most in held], np.float64),
        np.full(len(code), np.inf),
        tuple(code),
    )


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
            memory = whole_kib(np.maximum(self.jobs.memory, 0) * np.maximum(self.jobs.size, 0))
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
