"""Which limits of a site hold for the jobs of a log, and what of them is not replayed.

A job counts with all that it asks for, and with all cores of its nodes where it has these to
itself. Which limits hold for it: `rtsched.model.limit_rules`.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from rtsched.counting import counted
from rtsched.kernels.machine_limits import NO_LIMIT
from rtsched.model.limit_rules import NODE, WALL, LimitRules, kinds_of
from rtsched.model.limits import Limits
from rtsched.model.ragged import Ragged, offsets_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from rtsched.model.limit_rules import JobLimits, Limit
    from rtsched.model.limits import Amounts, SiteLimits
    from rtsched.replay.job_amounts import JobAmounts

_BEYOND = (
    "beyond {} by themselves: Slurm would not start them, but they ran, so it does not hold them up"
)
_OTHER = "of accounts or QOS with {}, which does not hold them up in the replay"


def limits_of_jobs(amounts: JobAmounts, site: SiteLimits, said: list[str]) -> Limits | None:
    """Return the limits that the simulated system keeps to for jobs; None: there are none.

    Parameters
    ----------
    amounts : JobAmounts
        Of `n` jobs, what they count for.
    site : SiteLimits
        Limits of QOS and associations.
    said : list of str
        Grows by what is replayed, and by what is not, with counts.
    """
    said += site.assumptions
    rules = LimitRules(site)
    kinds, kind = kinds_of(amounts.jobs)
    rows_of = Ragged(offsets_of(np.bincount(kind)), np.argsort(kind, kind="stable"))
    told = Counter[str]()
    groups: list[dict[str, Amounts]] = []
    for at, names in enumerate(kinds):
        rows, rule = rows_of.row(at), rules.of(names)
        told.update(dict.fromkeys(rule.unknown, len(rows)))
        told.update({_OTHER.format(name): len(rows) for name in _not_replayed(rule, amounts)})
        for word, beyond in _beyond(rule, amounts, rows):
            told[_BEYOND.format(word)] += int(beyond.sum())
        groups.append(rule.groups(partial(_held, amounts)))
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


def _held(amounts: JobAmounts, thing: str) -> bool:
    """Return whether the log tells how much of something jobs hold at a time.

    Slurm counts a node once that several jobs of a group share, so nodes are counted where jobs
    have them to themselves only.
    """
    return thing in amounts and not (thing == NODE and amounts.shares_nodes)


def _counts(one: Limit, amounts: JobAmounts) -> bool:
    """Return whether the log tells how much of it jobs hold, or ask for by the second."""
    return one.thing in amounts if one.per_second else _held(amounts, one.thing)


def _not_replayed(rule: JobLimits, amounts: JobAmounts) -> list[str]:
    """Return the names of the limits that are reported only."""
    unknown = [f"{one.word}={one.thing}" for one in rule.limits if not _counts(one, amounts)]
    return list(dict.fromkeys([*rule.others, *unknown]))


def _beyond(
    rule: JobLimits, amounts: JobAmounts, rows: NDArray[np.int64]
) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yield limits that some jobs are beyond by themselves, with bool[k] for these rows."""
    found: dict[str, NDArray[np.bool_]] = {}
    wall = amounts.wall[rows]
    if np.isfinite(rule.wall):
        found[WALL] = np.isfinite(wall) & (wall > rule.wall)
    for one in rule.limits:
        if not _counts(one, amounts):
            continue
        asked: NDArray[np.float64] = amounts.of(one.thing)[rows].astype(np.float64)
        if one.per_second:
            asked = asked * np.where(np.isfinite(wall), wall, 0.0)
        more = asked > one.most
        found[one.word] = found[one.word] | more if one.word in found else more
    yield from found.items()


def _arrays(
    amounts: JobAmounts, kind: NDArray[np.int64], kinds: list[dict[str, Amounts]]
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
