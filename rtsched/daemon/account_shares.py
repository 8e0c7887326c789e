"""Shares and use of accounts and users."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.daemon.questions import AccountShare

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from rtsched.daemon.cycle import Steered
    from rtsched.model.jobs import Jobs
    from rtsched.model.snapshot import Accounts, Snapshot

MOST = 2000
"""Rows in a report: those with jobs come first."""


def account_shares(
    snapshot: Snapshot, steered: Steered | None, user: str | None
) -> tuple[AccountShare, ...]:
    """Return accounts and users, each account before its users, in the order of their names.

    Parameters
    ----------
    snapshot : Snapshot
        The jobs and the accounts.
    steered : Steered or None
        What fair-share plug-ins said last; None: nothing yet.
    user : str or None
        Only rows of this user, and the accounts above; None: all.
    """
    accounts = snapshot.accounts
    if not len(accounts):
        return ()
    names = [name or "" for name in accounts.texts("name")]
    running = _charged(accounts, snapshot.running, snapshot.running.size.astype(np.float64))
    waiting = _charged(accounts, snapshot.queued, np.ones(len(snapshot.queued)))
    shares, errors = accounts.share(), _errors(accounts, steered)
    rows = np.arange(len(accounts))
    if user is not None:
        own = accounts.is_user & np.array([name == user for name in names], np.bool_)
        rows = np.flatnonzero(_climbed(accounts, own.astype(np.float64)) > 0)
    if len(rows) > MOST:
        busy = np.argsort(-(running + waiting)[rows], kind="stable")[:MOST]
        rows = rows[busy]
    paths = {row: tuple(_path(accounts, names, row)) for row in rows.tolist()}
    return tuple(
        AccountShare(
            name=path[-1],
            account="/".join(path[:-1]),
            user=bool(accounts.is_user[row]),
            share=float(shares[row]),
            nodes=int(running[row]),
            waiting=int(waiting[row]),
            service_error=None if errors is None else float(errors[row]),
        )
        for row, path in sorted(paths.items(), key=lambda pair: pair[1])
    )


def _charged(accounts: Accounts, jobs: Jobs, amounts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return float64[n]: what jobs add up to in each row, those below included."""
    known = jobs.association >= 0
    own = np.bincount(jobs.association[known], amounts[known], minlength=len(accounts))
    return _climbed(accounts, own[: len(accounts)].astype(np.float64))


def _climbed(accounts: Accounts, own: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return float64[n]: amounts of rows, with those of all rows below."""
    total, above = own.copy(), accounts.parent.copy()
    while (below := above >= 0).any():
        np.add.at(total, above[below], own[below])
        above[below] = accounts.parent[above[below]]
    return total


def _path(accounts: Accounts, names: list[str], row: int) -> Iterator[str]:
    parent = int(accounts.parent[row])
    if parent >= 0:
        yield from _path(accounts, names, parent)
    yield names[row]


def _errors(accounts: Accounts, steered: Steered | None) -> NDArray[np.float64] | None:
    """Return the service errors of all rows, node-seconds, of a plug-in that keeps them."""
    for _, order in steered.orders if steered is not None else ():
        for answer in order.answers:
            errors = None if answer.value is None else answer.value.service_error
            if errors is not None and len(errors) == len(accounts):
                return np.asarray(errors)
    return None
