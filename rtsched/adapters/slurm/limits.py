"""Limits of accounts and QOS: those that a job can never keep to, whatever else runs.

Slurm refuses such a job after it was promised something, or without the flag DenyOnLimit lets it
wait for ever. A job counts here with the least that it takes, so none is refused that might run.

Sources: Slurm manual, "Resource Limits"; manual page sacctmgr.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from rtsched.counting import counted
from rtsched.logs.slurm_limits import limits_in
from rtsched.model.jobs import Kind
from rtsched.model.limit_rules import NODE, WALL, JobLimits, JobNames, LimitRules
from rtsched.model.limits import JOBS
from rtsched.model.resources import CPU, LICENSE, MEMORY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rtsched.adapters.requirements import Requirements
    from rtsched.adapters.slurm.facts import Partition, SlurmFacts
    from rtsched.adapters.slurm.requirements import JobRequest
    from rtsched.model.limit_rules import Limit

_NAMES = {CPU: "processor", NODE: "node", JOBS: "job"}


def limits_of(qos: str, associations: str, partitions: Mapping[str, str]) -> LimitRules | None:
    """Return the limits, by what sacctmgr prints and the QOS of partitions; None: there are none.

    Raises
    ------
    InputError
        If sacctmgr prints something else.
    """
    return LimitRules(limits_in(qos, associations, partitions)) if qos else None


def limits_for(facts: SlurmFacts, names: JobNames) -> JobLimits:
    """Return the limits of a job that may leave its QOS to Slurm."""
    rules = facts.limits
    return JobLimits() if rules is None else rules.of(rules.with_default_qos(names))


def within_limits(
    request: JobRequest, needs: Requirements, limits: JobLimits, part: Partition, limit: float
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
    """
    if needs.problem:
        return needs
    nodes, amounts = _least(request, needs, part)
    amounts = {name.lower(): amount for name, amount in amounts.items()}  # as limits name them
    problem = _too_long(limits, limit) or _too_many(needs, limits)
    problem = problem or _too_much(limits, nodes, amounts, limit)
    most = needs.size_max
    at_a_time = needs.tasks_per_node if needs.kind == Kind.ARRAY else 1
    for one in limits.limits if most > 0 and not problem else ():
        each = {**amounts, NODE: 1, JOBS: 1}.get(one.thing, 0) * at_a_time
        if one.per_second or not each or (needs.kind == Kind.ARRAY and not one.group):
            continue
        if needs.kind != Kind.ARRAY and (one.thing == JOBS or one.thing.startswith(LICENSE)):
            continue  # it is one job, and has its licences once, on however many nodes
        if each > one.most:
            problem = _task_by_task(one, at_a_time, each)
            break
        most = min(most, one.most // each)
    return replace(needs, size_max=most, problem=problem)


def _too_long(limits: JobLimits, limit: float) -> str:
    """Return what is wrong with a time limit in seconds; inf: none is given."""
    if not limits.wall < limit < math.inf:
        return ""
    return (
        f"its time limit of {limit / 60.0:.0f} min exceeds {WALL}={_duration(limits.wall)} of "
        f"{limits.wall_owner}{_shorter(limits.wall)}"
    )


def _too_many(needs: Requirements, limits: JobLimits) -> str:
    """Return which limit of submitted jobs the tasks of an array are beyond."""
    for one in limits.submits:
        if needs.tasks > one.most:
            return (
                f"{counted(needs.tasks, 'job')} would be submitted; {one.text} allows "
                f"{one.most:,}{_instead(one, 'submit')}"
            )
    return ""


def _too_much(limits: JobLimits, nodes: int, amounts: dict[str, int], limit: float) -> str:
    """Return which limit a job is beyond that takes such amounts on each of so many nodes.

    Licences are for all of them.
    """
    for one in limits.per_node:
        if (asked := amounts.get(one.thing, 0)) > one.most:
            return _beyond(one, asked, "per node")
    times = {name: 1 if name.startswith(LICENSE) else nodes for name in amounts}
    whole = {name: amount * times[name] for name, amount in amounts.items()} | {
        NODE: nodes,
        JOBS: 1,
    }
    for one in limits.limits:
        asked = whole.get(one.thing, 0)
        if not one.per_second:
            if asked > one.most:
                return _beyond(one, asked, "in all")
        elif limit < math.inf and asked * limit > one.most:
            what = f"its {_shown(one.thing, asked)} for {limit / 60.0:.0f} min exceed {one.text}"
            return f"{what}{_shorter(one.most / asked)}"
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


def _duration(seconds: float) -> str:
    """Return a time as sacctmgr shows it."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{f'{days}-' if days else ''}{hour:02}:{minute:02}:{second:02}"
