"""Accounts of Slurm: their shares and use, and the limits of accounts and QOS.

`sshare` shows accounts, shares and use. `scontrol show assoc_mgr` shows what accounts, users and
QOS have used of GrpTRESMins and GrpWall, and of amounts also what their running jobs may yet use
until their time limits. Of wall time it does not: that follows from the jobs that run.

Slurm refuses a job that can never keep to a limit, whatever else runs, after it was promised
something, or without the flag DenyOnLimit lets it wait for ever. So it is promised nothing. A job
counts here with the least that it takes, so none is refused that might run.

References
----------
Slurm manual, "Resource Limits"; manual pages sshare, scontrol and sacctmgr;
slurmctld/acct_policy.c and scontrol/info_assoc_mgr.c of Slurm 25.11.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rtsched.adapters.slurm.rows import names_of_job, parts
from rtsched.logs.slurm_limits import limits_in
from rtsched.logs.slurm_text import trackable
from rtsched.model.jobs import Kind
from rtsched.model.limits import (
    BILLING,
    CALC_PERIOD,
    GROUP_WALL,
    HALF_LIFE,
    JOBS,
    NODE,
    WALL,
    JobLimits,
    JobNames,
    LimitRules,
    UsedTime,
    association_name,
    minute_of,
    qos_name,
    whole_units,
)
from rtsched.model.resources import CPU, GRES, LICENSE, MEMORY
from rtsched.model.snapshot import Accounts
from rtsched.model.units import slurm_time
from rtsched.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rtsched.adapters.requirements import Requirements
    from rtsched.adapters.slurm.facts import Partition, SlurmFacts
    from rtsched.adapters.slurm.requirements import JobRequest
    from rtsched.adapters.slurm.rows import JobRows
    from rtsched.model.limits import BillingWeights, Limit


_ASSOCIATION = re.compile(
    r"ClusterName=\S* Account=(\S*) UserName=(?:([^\s(]+)\(\d+\))? Partition=(\S*)"
)
_USER = re.compile(r"^UserName=(\S+)\(\d+\) DefAccount=([^\s(]+)", re.MULTILINE)
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


def default_accounts_in(shown: str) -> dict[str, str]:
    """Return users' default accounts; `scontrol -o show assoc_mgr flags=users` prints them."""
    return dict(_USER.findall(shown))


def accounts_above(accounts: Accounts) -> dict[str, str]:
    """Return the account above each."""
    names = [name or "" for name in accounts.texts("name")]
    own = zip(names, accounts.parent.tolist(), accounts.is_user.tolist(), strict=True)
    return {name: names[parent] for name, parent, user in own if parent >= 0 and not user}


def _amount(text: str, otherwise: float) -> float:
    """Return a number that is not below 0."""
    digits = text.strip()
    whole = digits.isascii() and digits.replace(".", "", 1).isdigit() and len(digits) < 25
    return float(digits) if whole else otherwise


# --- limits ---------------------------------------------------------------------------------------

_NAMES = {CPU: "processor", NODE: "node", JOBS: "job", BILLING: "billing unit"}


def limits_of(
    qos: str,
    associations: str,
    partitions: Mapping[str, str],
    calc_period: float = CALC_PERIOD,
    *,
    safe: bool = False,
    half_life: float = HALF_LIFE,
) -> LimitRules | None:
    """Return the limits, by what sacctmgr prints and the QOS of partitions; None: there are none.

    `calc_period`, `safe` and `half_life` as in `SiteLimits`.

    Raises
    ------
    InputError
        If sacctmgr prints something else.
    """
    if not qos:
        return None
    site = limits_in(qos, associations, partitions, calc_period, safe=safe, half_life=half_life)
    return LimitRules(site)


def limits_for(facts: SlurmFacts, names: JobNames) -> JobLimits:
    """Return the limits of a job that may leave its QOS to Slurm."""
    rules = facts.limits
    return JobLimits() if rules is None else rules.applied_to(names)


def within_limits(
    request: JobRequest,
    needs: Requirements,
    limits: JobLimits,
    part: Partition,
    limit: float,
    billing: BillingWeights | None = None,
) -> Requirements:
    """Return the requirements with no more nodes than the limits let the job have by itself.

    Where it can never keep to one, that and what would be accepted is the problem.

    Parameters
    ----------
    request : JobRequest
        What somebody asks for.
    needs : Requirements
        What that means.
    limits : JobLimits
        What holds for it.
    part : Partition
        Its partition.
    limit : float
        Its time limit, seconds; of a divisible load inf if it gives none.
    billing : BillingWeights, optional
        What it is billed for; None: not known.
    """
    if needs.problem:
        return needs
    nodes, amounts = _least(request, needs, part)
    amounts = {name.lower(): amount for name, amount in amounts.items()}  # as limits name them
    problem = _too_long(limits, limit) or _too_many(needs, limits)
    whole = _in_all(nodes, amounts, part, billing)
    problem = problem or _too_much(limits, whole, amounts, limit)
    problem = problem or _too_little(limits, request, needs, part, amounts)
    most = needs.size_max
    at_a_time = needs.tasks_per_node if needs.kind == Kind.ARRAY else 1
    on_one = _in_all(1, amounts, part, billing)
    for one in limits.limits if most > 0 and not problem else ():
        each = on_one.get(one.thing, 0) * at_a_time
        if one.per_second or each <= 0 or (needs.kind == Kind.ARRAY and not one.group):
            continue
        if needs.kind != Kind.ARRAY and (one.thing == JOBS or one.thing.startswith(LICENSE)):
            continue  # it is one job, and has its licences once, on however many nodes
        fit = math.ceil((one.most + 1) / each) - 1  # so many times, rounded down, is no more
        if not fit:
            problem = _task_by_task(one, at_a_time, int(each))
            break
        most = min(most, fit)
    return replace(needs, size_max=most, problem=problem)


def _too_long(limits: JobLimits, limit: float) -> str:
    """Return what is wrong with a time limit in seconds; inf: none is given."""
    walls = [(float(one.most), one.text) for one in limits.seconds if one.word == GROUP_WALL]
    if limits.wall < math.inf:
        text = f"{WALL}={slurm_time(limits.wall)} of {limits.wall_owner}"
        walls.insert(0, (limits.wall, text))
    for most, text in walls:
        if most < limit < math.inf:
            return f"its time limit of {limit / 60.0:.0f} min exceeds {text}{_shorter(most)}"
    return ""


def _too_many(needs: Requirements, limits: JobLimits) -> str:
    """Return which limit of submitted jobs the tasks of an array are beyond."""
    for one in limits.submits:
        if needs.tasks > one.most:
            return (
                f"{counted(needs.tasks, 'job')} would be submitted; {one.text} allows "
                f"{one.most:,}{_instead(one, 'submit')}"
            )
    return ""


def _in_all(
    nodes: int, amounts: dict[str, int], part: Partition, billing: BillingWeights | None
) -> dict[str, float]:
    """Return what a job has in all that takes such amounts on each of so many nodes.

    Licences are for all of them; billing units are not rounded.
    """
    times = {name: 1 if name.startswith(LICENSE) else nodes for name in amounts}
    whole = {name: amount * times[name] for name, amount in amounts.items()} | {NODE: nodes}
    held = {name: np.array([amount]) for name, amount in whole.items()}
    billed = {} if billing is None else {BILLING: float(billing.of(part.name, held)[0])}
    return {**whole, **billed, JOBS: 1}


def _too_much(
    limits: JobLimits, whole: dict[str, float], amounts: dict[str, int], limit: float
) -> str:
    """Return which limit a job is beyond by what it has in all, or its amounts on each node."""
    units = int(whole_units(np.array([whole.get(BILLING, 0.0)]))[0])
    for one in limits.per_node:
        if (asked := amounts.get(one.thing, 0)) > one.most:
            return _beyond(one, asked, "per node")
    for one in (*limits.limits, *limits.seconds):
        if one.word == GROUP_WALL:
            continue
        asked = units if one.thing == BILLING else int(whole.get(one.thing, 0))
        if not one.per_second:
            if asked > one.most:
                return _beyond(one, asked, "in all")
        elif limit < math.inf and asked * limit > one.most:
            what = f"its {_shown(one.thing, asked)} for {limit / 60.0:.0f} min exceed {one.text}"
            return f"{what}{_shorter(one.most / asked)}"
    return ""


def _too_little(
    limits: JobLimits,
    request: JobRequest,
    needs: Requirements,
    part: Partition,
    amounts: dict[str, int],
) -> str:
    """Return which limit a job is below that takes such amounts on each of its nodes.

    It counts with the most nodes that it may have, and all processors of those that it has to
    itself; memory that it does not ask for, and what else comes with whole nodes, may be enough.
    """
    array = needs.kind == Kind.ARRAY
    nodes = 1 if array else max(needs.size, needs.size_max)
    whole = request.exclusive or part.exclusive  # an array's own nodes are shared by its tasks
    whole = whole or (not array and (needs.exclusive or not needs.demand))
    most = {**amounts, NODE: 1}
    if whole:
        largest = max((node.get(CPU, 0) for node, _ in part.hardware), default=0)
        most = {NODE: 1, CPU: max(largest, part.cores)}
    for one in limits.least:
        known = one.thing in most or (not whole and one.thing.startswith((GRES, LICENSE)))
        asked = most.get(one.thing, 0) * (1 if one.thing.startswith(LICENSE) else nodes)
        if not known or asked >= one.most or (one.thing == MEMORY and not asked):
            continue
        return (
            f"requests {_shown(one.thing, asked)} in all; {one.text} asks for "
            f"{_shown(one.thing, one.most)}; request at least that, or use another QOS"
        )
    return ""


def _task_by_task(one: Limit, tasks: int, together: int) -> str:
    """Return that the tasks of an array that run on one node are beyond a limit."""
    return (
        f"{tasks} of its tasks run on a node at a time, with {_shown(one.thing, together)}; "
        f"{one.text} allows {_shown(one.thing, one.most)}; use "
        f"--array=...%{one.most * tasks // together}"
    )


def _least(request: JobRequest, needs: Requirements, part: Partition) -> tuple[int, dict[str, int]]:
    """Return on how many nodes at least a job runs, and what it takes on each at least.

    Of an array, a task: each is a job.
    """
    if needs.kind == Kind.ARRAY:
        per_node = max(needs.tasks_per_node, 1)
        task = {name: amount // per_node for name, amount in needs.demand.items()}
        cpus = max(request.cpus, request.each, 1)
        return 1, {CPU: cpus, MEMORY: request.memory or request.cpu_memory * cpus} | task
    nodes = needs.size_min if needs.size_min > 0 else needs.size
    if not needs.demand:  # it has whole nodes
        return nodes, {CPU: part.cores, MEMORY: request.memory or request.cpu_memory * part.cores}
    least = min((node.get(CPU, 0) for node, _ in part.hardware), default=0)
    cpus = max(needs.demand.get(CPU, 0), least if needs.exclusive else 0)
    return nodes, needs.demand | {CPU: cpus}


def _beyond(one: Limit, asked: int, where: str) -> str:
    return (
        f"requests {_shown(one.thing, asked)} {where}; {one.text} allows "
        f"{_shown(one.thing, one.most)}{_instead(one, 'request')}"
    )


def _instead(one: Limit, do: str) -> str:
    """Return what would be accepted."""
    if one.most > 0:
        return f"; {do} at most that, or use another account or QOS"
    return "; use another account or QOS"


def _shorter(seconds: float) -> str:
    """Return what time limit would be accepted; Slurm takes 0 minutes as none."""
    minutes = math.floor(seconds / 60.0)
    return f"; use --time={minutes} or less" if minutes else "; use another account or QOS"


def _shown(thing: str, amount: int) -> str:
    if thing == MEMORY:
        return f"{amount >> 20} MiB of memory"
    return counted(amount, _NAMES[thing]) if thing in _NAMES else f"{amount} {thing}"
