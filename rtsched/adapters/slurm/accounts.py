"""Accounts of Slurm: their shares and use, and what counts against limits on used time.

`sshare` shows accounts, shares and use. `scontrol show assoc_mgr` shows what accounts, users and
QOS have used of GrpTRESMins and GrpWall, and of amounts also what their running jobs may yet use
until their time limits. Of wall time it does not: that follows from the jobs that run.

References
----------
Slurm manual pages sshare and scontrol; slurmctld/acct_policy.c and scontrol/info_assoc_mgr.c of
Slurm 25.11.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.slurm.observation import names_of_job, parts
from rtsched.logs.slurm_text import trackable
from rtsched.model.billing import BILLING
from rtsched.model.limit_rules import NODE, association_name, qos_name
from rtsched.model.limits import JOBS, UsedTime, minute_of
from rtsched.model.resources import CPU
from rtsched.model.snapshot import Accounts

if TYPE_CHECKING:
    from rtsched.adapters.slurm.rows import JobRows
    from rtsched.model.limit_rules import LimitRules

_ASSOCIATION = re.compile(
    r"ClusterName=\S* Account=(\S*) UserName=(?:([^\s(]+)\(\d+\))? Partition=(\S*)"
)
_QOS = re.compile(r"QOS=([^\s(]+)\(\d+\)")
_WALL = re.compile(r" GrpWall=\w+\((\d+(?:\.\d+)?)\)")
_AMOUNTS = re.compile(r" GrpTRES(?:Run)?Mins=(\S+)")
_BILLED = re.compile(r"(?:^|,)billing=(\d{1,15})(?:,|$)")
_AMOUNT = re.compile(r"([^,=]+)=\w+\((\d+)\)")


def used_time(shown: str, rows: JobRows, rules: LimitRules, now: float) -> UsedTime:
    """Return what is used, and what running jobs may yet use.

    Parameters
    ----------
    shown : str
        What `scontrol -o show assoc_mgr flags=assoc,qos` prints.
    rows : JobRows
        The jobs, each task of an array that runs by itself.
    rules : LimitRules
        The limits.
    now : float
        When the jobs were read, just before; seconds since the epoch.
    """
    seconds: dict[tuple[str, str], float] = defaultdict(float, used_in(shown))
    _, running, _ = parts(rows)
    start = np.maximum(rows.start[running], now - rules.calc_period)
    left = np.maximum(rows.start[running] + rows.limit[running] - start, 0.0)
    for i, more in zip(running.tolist(), left.tolist(), strict=True):
        for group in set(rules.of(names_of_job(rows, i)).member_of) if np.isfinite(more) else ():
            seconds[group, JOBS] += more
    return UsedTime(now, dict(seconds))


def with_ended(used: UsedTime, rows: JobRows, rules: LimitRules) -> UsedTime:
    """Return what is used with what jobs used that are not in it and have ended by now."""
    _, _, over = parts(rows)
    new = over[used.lacks(rows.start[over])]
    if not len(new):
        return used
    seconds: dict[tuple[str, str], float] = defaultdict(float, used.seconds)
    for i in new.tolist():
        own = rules.of(names_of_job(rows, i))
        ran = max(float(rows.end[i] - rows.start[i]), 0.0) * own.usage_factor
        amounts = {CPU: int(rows.cpus[i]), **trackable(rows.amounts[i])}
        amounts |= {JOBS: 1, NODE: int(rows.min_nodes[i])}
        billed = _BILLED.search(rows.amounts[i])
        amounts |= {BILLING: int(billed[1])} if billed else {}
        for group in set(own.member_of):
            for thing, amount in amounts.items():
                seconds[group, thing.lower()] += amount * ran
    return used._replace(seconds=dict(seconds))


def used_in(shown: str) -> dict[tuple[str, str], float]:
    """Return what groups have used or may yet use by what scontrol prints, as in `UsedTime`.

    Of wall time what they have used. Lines of something else are passed over.
    """
    found: dict[tuple[str, str], float] = {}
    for line in shown.splitlines():
        if group := _group(line):
            wall = _WALL.search(line)
            found[group, JOBS] = 60.0 * float(wall[1]) if wall else 0.0
            for amounts in _AMOUNTS.findall(line)[:2]:  # what follows is a comment
                for thing, minutes in _AMOUNT.findall(amounts):
                    key = group, thing.lower()
                    found[key] = found.get(key, 0.0) + float(minute_of(thing)) * int(minutes)
    return found


def _group(line: str) -> str:
    """Return whose line it is; empty: nobody's."""
    if found := _ASSOCIATION.match(line):
        account, user, partition = found.groups(default="")
        return association_name(account, user, partition)
    found = _QOS.match(line)
    return qos_name(found[1]) if found else ""


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
