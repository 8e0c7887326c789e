"""Who is charged, with which share and what use: the negotiator's submitters as `Accounts`.

HTCondor has priority factors instead of shares. Those are what rtsched sets, so the shares are the
site's own: `[condor] shares`, by submitter, user or group, 1 for all others.

Source: HTCondor's manual, "Accounting ClassAd Attributes", "User Priorities and Negotiation".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.logs.classads import number, text
from rtsched.model.accounts import Accounts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rtsched.logs.classads import Record

MOST_LEVELS = 8
"""Groups in groups that are told apart."""


def factors_of(records: Iterable[Record]) -> dict[str, float]:
    """Return the priority factor of each submitter, as the negotiator has it."""
    found = {text(ad, "name"): number(ad, "priorityfactor") for ad in _submitters(records)}
    return {name: factor for name, factor in found.items() if name and factor > 0}


def accounts_of(
    records: Sequence[Record],
    queued: Iterable[tuple[str, str]],
    shares: Mapping[str, float],
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
        names, parents, shares, users = zip(*self._rows, strict=True) if self._rows else ((),) * 4
        return Accounts.build(
            len(names),
            name=names,
            parent=np.array(parents, np.int32),
            shares=np.array(shares, np.float64),
            is_user=np.array(users, np.bool_),
            usage=np.array(self._usage, np.float64),
        )


def _submitters(records: Iterable[Record]) -> list[Record]:
    """Return those records that are no group's."""
    return [ad for ad in records if ad.get("isaccountinggroup") is not True]
