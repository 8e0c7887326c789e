"""Accounts of HTCondor: users and groups with shares, use and priority factors.

The negotiator's submitters are `Accounts`. HTCondor has priority factors instead of shares. Those
are what rtsched sets, so the shares are the site's own: `[condor] shares`, by submitter, user or
group, 1 for all others.

HTCondor serves users by their effective priority, the lower the sooner: a measure of their past
use, times a factor. The user whose jobs have the highest value gets the least factor `low` of the
settings, the others more, up to the greatest, `high`:

    factor = low * (high / low) ** min(top - value, 1)

with `value` the highest of the user's jobs and `top` the highest of all. So one who is behind by 1,
the whole range of a term of weight 1, is served last, whatever was used in the past.

The negotiator gives each user a share of the slots that is the larger the lower the effective
priority, and within it the user's jobs by JobPrio, then in order of submission. So jobs come in the
order of `turns_of`: next is a job of the user who has least, cores times effective priority, of
those with the same the one of lower effective priority.

Source: HTCondor's manual, "Accounting ClassAd Attributes", "User Priorities and Negotiation".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.logs.classads import number, text
from rtsched.model.snapshot import Accounts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.logs.classads import Record

MOST_LEVELS = 8
"""Groups in groups that are told apart."""


def factors_of(records: Iterable[Record]) -> dict[str, float]:
    """Return the priority factor of each submitter, as the negotiator has it."""
    found = {text(ad, "name"): number(ad, "priorityfactor") for ad in _submitters(records)}
    return {name: factor for name, factor in found.items() if name and factor > 0}


class Submitter(NamedTuple):
    """How the negotiator serves a user."""

    effective: float
    """The effective user priority: the lower, the larger the share."""
    used: float
    """Cores that the user's jobs have now."""


NEW = Submitter(0.5 * 1000.0, 0.0)
"""A submitter that the negotiator does not know yet, by HTCondor's defaults."""


def submitters_of(records: Iterable[Record]) -> dict[str, Submitter]:
    """Return how the negotiator serves each submitter, as far as its accounting tells."""
    found = {
        text(ad, "name") or "": Submitter(
            number(ad, "priority"), max(np.nan_to_num(number(ad, "weightedresourcesused")), 0.0)
        )
        for ad in _submitters(records)
    }
    return {name: one for name, one in found.items() if name and one.effective > 0}


def turns_of(
    submitter: NDArray[np.int32],
    names: Sequence[str],
    priority: NDArray[np.int64],
    job: NDArray[np.int64],
    cores: NDArray[np.int64],
    known: Mapping[str, Submitter],
) -> NDArray[np.float64]:
    """Return whose turn it is, float64[n]: the highest is first; nan: no submitter is known.

    Parameters
    ----------
    submitter : int32[n]
        Rows of `names`; -1: nobody knows.
    names : sequence of str
        Submitters.
    priority, job, cores : int64[n]
        JobPrio, id and cores of each job.
    known : mapping of str to Submitter
        How the negotiator serves them.
    """
    n = len(submitter)
    if not known:
        return np.full(n, np.nan)
    each = [known.get(name, NEW) for name in (*names, "")]
    effective = np.array([one.effective for one in each])[submitter]
    order = np.lexsort((job, -priority, submitter))
    ahead = np.cumsum(cores[order]) - cores[order]
    first = np.ones(n, np.bool_)
    first[1:] = submitter[order][1:] != submitter[order][:-1]
    ahead -= np.maximum.accumulate(np.where(first, ahead, 0))
    has = np.array([one.used for one in each])[submitter]
    has[order] += ahead
    turn = np.empty(n)
    turn[np.lexsort((job, -priority, effective, has * effective))] = -np.arange(n, dtype=float)
    return turn


def accounts_of(
    records: Sequence[Record], queued: Iterable[tuple[str, str]], shares: Mapping[str, float]
) -> tuple[Accounts, dict[str, int]]:
    """Return a tree of groups and submitters, and the row of each submitter.

    Parameters
    ----------
    records : sequence of Record
        The negotiator's accounting.
    queued : iterable of (str, str)
        Submitters with jobs in the queue, and the group of each, empty: none. The negotiator does
        not know those yet that never had a slot.
    shares : mapping of str to float
        Shares by submitter (`group.alice@example.org`), by that without its domain, by user or by
        group.

    Notes
    -----
    A submitter's usage is what it has used since the negotiator began to count, core-seconds; a
    group's is that of its submitters.
    """
    usage = {text(ad, "name") or "": number(ad, "weightedaccumulatedusage") for ad in records}
    groups = dict(queued)
    for ad in _submitters(records):
        name, group = text(ad, "name") or "", text(ad, "accountinggroup") or ""
        groups.setdefault(name, "" if group == "<none>" else group)
    rows = _Rows(shares)
    for name in sorted(groups):
        if name:
            rows.add(name, groups[name], max(np.nan_to_num(usage.get(name, 0.0)), 0.0))
    return rows.table(), rows.submitters


class _Rows:
    """Rows of `Accounts` as they are found, groups before what is in them."""

    def __init__(self, shares: Mapping[str, float]) -> None:
        self._shares = shares
        self._groups: dict[str, int] = {}
        self._rows: list[tuple[str, int, float, bool]] = []
        self._usage: list[float] = []
        self.submitters: dict[str, int] = {}

    def add(self, submitter: str, group: str, usage: float) -> None:
        """Add a submitter, and its groups where they are new."""
        local = submitter.partition("@")[0]
        user = local.removeprefix(f"{group}.") if group else local
        above = self._group(group) if group else -1
        self.submitters[submitter] = self._row(submitter, above, (submitter, local, user), True)
        row = self.submitters[submitter]
        while row >= 0:
            self._usage[row] += usage
            row = self._rows[row][1]

    def _group(self, name: str) -> int:
        """Return the row of a group; `physics.hep` is in `physics`."""
        words = name.split(".", MOST_LEVELS)
        row = -1
        for level in range(1, len(words) + 1):
            above = ".".join(words[:level])
            if above and above not in self._groups:
                self._groups[above] = self._row(above, row, (above,), False)
            row = self._groups.get(above, row)
        return row

    def _row(self, name: str, parent: int, keys: Sequence[str], user: bool) -> int:
        share = next((self._shares[key] for key in keys if key in self._shares), 1.0)
        self._rows.append((name, parent, share, user))
        self._usage.append(0.0)
        return len(self._rows) - 1

    def table(self) -> Accounts:
        """Return the rows."""
        columns = ("name", "parent", "shares", "is_user")
        return Accounts.of_rows(columns, self._rows).replace(usage=self._usage)


def _submitters(records: Iterable[Record]) -> list[Record]:
    """Return those records that are no group's."""
    return [ad for ad in records if ad.get("isaccountinggroup") is not True]


def wanted_factors(
    submitters: Sequence[str], value: NDArray[np.float64], limits: tuple[float, float]
) -> dict[str, float]:
    """Return the factor of each submitter.

    Parameters
    ----------
    submitters : sequence of str
        Who is charged for each job.
    value : float64[n]
        Of each job: higher is sooner.
    limits : (float, float)
        Least and greatest factor.
    """
    best: dict[str, float] = {}
    for name, one in zip(submitters, np.nan_to_num(value).tolist(), strict=True):
        best[name] = max(best.get(name, -np.inf), one)
    top, (low, high) = max(best.values(), default=0.0), limits
    return {name: low * (high / low) ** min(top - one, 1.0) for name, one in best.items()}


def differing(
    wanted: Mapping[str, float], present: Mapping[str, float], step: float
) -> dict[str, float]:
    """Return the factors that are unknown, or off by more than a fraction `step` of the present."""
    return {
        name: factor
        for name, factor in wanted.items()
        if abs(factor - present.get(name, np.inf)) > step * present.get(name, 0.0)
    }
