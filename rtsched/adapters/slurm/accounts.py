"""Accounts, shares and use as `sshare` shows them. Source: manual page sshare."""

from __future__ import annotations

from rtsched.model.accounts import Accounts

Associations = dict[tuple[str, str], int]


def accounts_of(output: str) -> tuple[Accounts, Associations]:
    """Return the tree of accounts, and the row of each user in an account.

    Parameters
    ----------
    output : str
        What `sshare -a -P -h -o Account,User,RawShares,RawUsage` prints: one line per association,
        indented by its depth in the tree. A share that is no number (`parent`) counts as 1.
    """
    rows: list[tuple[str, int, float, float, bool]] = []
    found: Associations = {}
    above: list[int] = []
    for line in output.splitlines():
        fields = line.split("|")
        if len(fields) < 4 or not fields[0].strip():
            continue
        depth = len(fields[0]) - len(fields[0].lstrip())
        account, user = fields[0].strip(), fields[1].strip()
        del above[depth:]
        row, parent = len(rows), above[-1] if above else -1
        share, usage = max(_amount(fields[2], 1.0), 1e-6), _amount(fields[3], 0.0)
        rows.append((user or account, parent, share, usage, bool(user)))
        if user:
            found.setdefault((account, user), row)
        else:
            above.append(row)
    return Accounts.of_rows(("name", "parent", "shares", "usage", "is_user"), rows), found


def _amount(text: str, otherwise: float) -> float:
    """Return a number that is not below 0."""
    digits = text.strip()
    whole = digits.isascii() and digits.replace(".", "", 1).isdigit() and len(digits) < 25
    return float(digits) if whole else otherwise
