"""What accounts and users have, beside their shares: values by hand."""

from typing import Any

import numpy as np
import pytest

from rtsched.core.chain import Answer, Priorities
from rtsched.daemon import account_shares as shares
from rtsched.daemon.account_shares import account_shares
from rtsched.daemon.cycle import Steered
from rtsched.model.snapshot import Accounts, Snapshot
from rtsched.model.verdicts import Terms
from rtsched.testing import make_cluster, make_jobs

ACCOUNTS = Accounts.build(
    5,
    name=["phys", "chem", "ann", "bob", "ann"],
    parent=[-1, -1, 0, 0, 1],
    shares=[3.0, 1.0, 1.0, 2.0, 1.0],
    is_user=[False, False, True, True, True],
)


def snapshot(accounts: Accounts = ACCOUNTS) -> Snapshot:
    """Return one in which ann runs on 4 and 1 nodes for two accounts, and bob waits twice."""
    running = make_jobs(association=np.array([2, 4], np.int32), size=[4, 1])
    queued = make_jobs(association=np.array([3, 3, -1], np.int32), size=[8, 8, 8])
    return Snapshot(0.0, make_cluster(8), queued, running, accounts=accounts)


def steered(errors: Any) -> Steered:
    """Return what a fair-share plug-in said that measures errors."""
    terms = Terms({"user": np.zeros(3)}, service_error=errors)
    answers = (Answer("a", "enforce", None), Answer("ste", "enforce", terms))
    return Steered({}, (), ((np.arange(3), Priorities(np.zeros(3), answers)),))


def rows(found: Any) -> list[tuple[Any, ...]]:
    """Return the rows as tuples."""
    return [
        (each.account, each.name, each.share, each.nodes, each.waiting, each.service_error)
        for each in found
    ]


def test_accounts_have_what_is_below_them() -> None:
    """Shares are fractions of the machine: 3 of 4 for phys, of which ann has a third."""
    errors = np.array([16.0, -16.0, 4.0, -4.0, 0.0])
    found = account_shares(snapshot(), steered(errors), None)
    assert rows(found) == [
        ("", "chem", 0.25, 1, 0, -16.0),
        ("chem", "ann", 0.25, 1, 0, 0.0),
        ("", "phys", 0.75, 4, 2, 16.0),
        ("phys", "ann", pytest.approx(0.25), 4, 0, 4.0),
        ("phys", "bob", pytest.approx(0.5), 0, 2, -4.0),
    ]
    assert [each.user for each in found] == [False, True, False, True, True]


def test_a_user_sees_no_other() -> None:
    """Her rows and the accounts above them; whom no account has sees nothing."""
    found = account_shares(snapshot(), None, "bob")
    assert rows(found) == [
        ("", "phys", 0.75, 4, 2, None),
        ("phys", "bob", pytest.approx(0.5), 0, 2, None),
    ]
    assert account_shares(snapshot(), None, "chem") == account_shares(snapshot(), None, "x") == ()


def test_too_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with jobs are shown; errors of other accounts than these are none."""
    monkeypatch.setattr(shares, "MOST", 2)
    found = account_shares(snapshot(), steered(np.zeros(3)), None)
    assert rows(found) == [("", "phys", 0.75, 4, 2, None), ("phys", "ann", 0.25, 4, 0, None)]
    assert account_shares(snapshot(Accounts.build(0)), None, None) == ()
