"""Which limits of a site hold for the jobs of a log, and what of them is not replayed.

A job counts with all that it asks for, and with all cores of its nodes where it has these to
itself. Which limits hold for it: `rtsched.model.limit_rules`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from rtsched.counting import counted
from rtsched.kernels.machine_limits import NO_LIMIT
from rtsched.model.limit_rules import NODE, WALL, LimitRules, kinds_of
from rtsched.model.limits import JOBS, Limits
from rtsched.model.ragged import Ragged, offsets_of
from rtsched.model.resources import CPU, GRES, LICENSE, MEMORY
from rtsched.model.table import amounts_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from rtsched.model.jobs import Jobs
    from rtsched.model.limit_rules import JobLimits
    from rtsched.model.limits import Amounts, SiteLimits

_LARGEST = 2.0**50
"""No job counts for more of anything."""

_BEYOND = (
    "beyond {} by themselves: Slurm would not start them, but they ran, so it does not hold them up"
)
_OTHER = "of accounts or QOS with {}, which does not hold them up in the replay"


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
    amounts, rules = _JobAmounts(jobs, whole, cores), LimitRules(site)
    kinds, kind = kinds_of(jobs)
    rows_of = Ragged(offsets_of(np.bincount(kind)), np.argsort(kind, kind="stable"))
    told = Counter[str]()
    groups: list[dict[str, Amounts]] = []
    for at, names in enumerate(kinds):
        rows, rule = rows_of.row(at), rules.of(names)
        told.update(dict.fromkeys(rule.unknown, len(rows)))
        told.update({_OTHER.format(name): len(rows) for name in _not_replayed(rule, amounts)})
        for word, beyond in _beyond(rule, amounts, rows):
            told[_BEYOND.format(word)] += int(beyond.sum())
        groups.append(rule.groups(amounts.__contains__))
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


def _not_replayed(rule: JobLimits, amounts: _JobAmounts) -> list[str]:
    """Return the names of the limits that are reported only."""
    unknown = [f"{one.word}={one.thing}" for one in rule.limits if one.thing not in amounts]
    return list(dict.fromkeys([*rule.others, *unknown]))


def _beyond(
    rule: JobLimits, amounts: _JobAmounts, rows: NDArray[np.int64]
) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yield limits that some jobs are beyond by themselves, with bool[k] for these rows."""
    found: dict[str, NDArray[np.bool_]] = {}
    wall = amounts.wall[rows]
    if np.isfinite(rule.wall):
        found[WALL] = np.isfinite(wall) & (wall > rule.wall)
    for one in rule.limits:
        if one.thing not in amounts:
            continue
        asked: NDArray[np.float64] = amounts.of(one.thing)[rows].astype(np.float64)
        if one.per_second:
            asked = asked * np.where(np.isfinite(wall), wall, 0.0)
        more = asked > one.most
        found[one.word] = found[one.word] | more if one.word in found else more
    yield from found.items()


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
