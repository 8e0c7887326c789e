"""What a job takes on each of its nodes, where jobs share them.

Slurm gives a job processors as they come, unless the number of tasks per node is given.
So a promised job on several nodes has a number of tasks per node: that of its user, or as few as
hold them all.

Sources: manual pages sbatch, slurm.conf (`DefMemPerCPU`, `MaxMemPerCPU`, `SelectTypeParameters`).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from rtsched.adapters.slurm.per_node import (
    GPU,
    SOCKET_WISHES,
    generic_per_node,
    tasks_of,
    wishes_of,
)
from rtsched.adapters.slurm.rows import nodes_in
from rtsched.logs.slurm_text import licenses_in, trackable
from rtsched.model.array_rounds import most_together
from rtsched.model.resources import CPU, GRES, LICENSE, MEMORY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rtsched.adapters.slurm.facts import Partition, Sharing, SlurmFacts
    from rtsched.adapters.slurm.requirements import JobRequest
    from rtsched.logs.node_hardware import Hardware


class Demand(NamedTuple):
    """What a job takes on each node.

    Attributes
    ----------
    amounts : dict of str to int
        By name of the resource, memory in bytes; licences for all nodes together.
    exclusive : bool
        Whether nobody else runs there.
    tasks : int
        The most tasks on a node; 0: not said.
    problem : str
        Why it is not known; empty: it is known.
    """

    amounts: dict[str, int]
    exclusive: bool = False
    tasks: int = 0
    problem: str = ""


def shown_demand(amounts: str, nodes: int = 0) -> dict[str, int]:
    """Return what a job takes on each node, by what squeue shows of it on all together.

    Parameters
    ----------
    amounts : str
        Such as `cpu=8,mem=4G,node=2,billing=8,gres/gpu=4`.
    nodes : int
        How many it has; 0: as many as `amounts` says.

    Where it is not the same on all nodes, as much as on the one that has the most, if the others
    have as much as they can.
    """
    count = max(nodes or nodes_in(amounts), 1)
    return {
        name: -(-amount // count)
        for name, amount in trackable(amounts).items()
        if not name.startswith(LICENSE)
    }


def shown_licenses(asked: str) -> dict[str, int]:
    """Return the licences of a job that Slurm shows; where it may choose (`|`), of each kind."""
    return licenses_in(asked.replace("|", ","))


def demand_of(request: JobRequest, part: Partition, sharing: Sharing, nodes: int) -> Demand:
    """Return what a request takes on each of so many nodes, and its licences, which are for all.

    Resources and licences that are not known are a problem.
    """
    if request.shown is not None:
        shown = shown_demand(request.shown) | shown_licenses(request.licenses)
        wishes = wishes_of(request.wishes)
        if CPU in shown:
            shown[CPU] = _in_cores(shown[CPU], wishes, part)
        all_memory = MEMORY in sharing.resources and not request.memory
        whole = all_memory or SOCKET_WISHES & wishes.keys()
        return Demand(shown, request.exclusive or part.exclusive or bool(whole))
    tasks = tasks_of(request, nodes)
    each = request.tasks_per_node or -(-tasks // nodes)
    amounts = generic_per_node(request, nodes, each)
    gpus = amounts.get(GPU, 0)
    amounts[CPU], memory = _cpus_and_memory(request, each, part, sharing, gpus)
    exclusive = request.exclusive or part.exclusive or _lies_on_sockets(request, each)
    if MEMORY in sharing.resources:
        exclusive |= not memory  # it gets all of its nodes'
        amounts[MEMORY] = memory
    known = {name: amount for name, amount in amounts.items() if amount > 0}
    problem = _unknown(known, part, sharing.resources)
    problem = problem or _license_problem(request.licenses, sharing)
    return Demand(known | licenses_in(request.licenses), exclusive, each, problem)


def tasks_per_node(
    request: JobRequest, part: Partition, facts: SlurmFacts, hardware: Hardware
) -> int:
    """Return how many tasks of an array run at a time on each of its nodes, at least.

    Parameters
    ----------
    request : JobRequest
        What one task asks for.
    part : Partition
        Its partition. Where promised jobs share nodes, its nodes that take fewer tasks are left
        out if more run at a time without them; else its smallest nodes count.
    facts : SlurmFacts
        What Slurm gives jobs of nodes.
    hardware : Hardware
        What each of its nodes has.
    """
    if facts.sharing.resources:
        return _most_together(demand_of(request, part, facts.sharing, 1), part)
    given = facts.given
    if not given.resources or request.exclusive or part.exclusive:
        return 1
    if not (part.node_memory or part.core_memory):
        part = replace(part, node_memory=given.node_memory, core_memory=given.core_memory)
    tasks = max(request.tasks, request.tasks_per_node, 1)
    cpus, memory = _cpus_and_memory(request, tasks, part, given)
    cpus = max(cpus, -(-request.cpus // part.threads) * part.threads)
    if request.shown is not None:
        memory = request.memory * cpus or memory  # squeue may show it per processor
    fits = part.cores // cpus
    for name, amount in generic_per_node(request, 1, tasks).items():
        fits = min(fits, int(hardware.amount(name).min(initial=fits * amount)) // amount)
    if MEMORY in given.resources and part.memory > 0:
        fits = min(fits, part.memory // memory) if memory else 1
    return max(fits, 1)


def _most_together(task: Demand, part: Partition) -> int:
    """Return so many tasks on a node that the most of them run at a time in the partition."""
    if task.exclusive:
        return 1
    fits = [
        min((node.get(name, 0) // n for name, n in task.amounts.items()), default=0)
        for node, _ in part.hardware
    ]
    return most_together(fits, [count for _, count in part.hardware])


def _cpus_and_memory(
    request: JobRequest, each: int, part: Partition, sharing: Sharing, gpus: int = 0
) -> tuple[int, int]:
    """Return the processors of `each` tasks on a node, in whole cores, and their bytes there.

    0 bytes: they get all memory of the node. `gpus`: those that they have there.
    """
    cpus = 1 if request.overcommit else each * request.per_task
    cpus = max(cpus, request.node_cpus, request.gpu_cpus * gpus)
    wishes = {
        "threads-per-core": request.threads,
        "ntasks-per-core": request.tasks_per_core,
        "ntasks-per-node": each,
    }
    cpus = _in_cores(cpus, wishes, part)
    memory = request.memory or request.gpu_memory * gpus or request.cpu_memory * cpus
    if not memory and not request.all_memory:
        memory = part.node_memory or part.core_memory * cpus
    if sharing.most_core_memory > 0:
        cpus = max(cpus, -(-memory // sharing.most_core_memory))
    return -(-cpus // part.threads) * part.threads, memory


def _in_cores(cpus: int, wishes: Mapping[str, int], part: Partition) -> int:
    """Return the processors of the cores that a job takes which wants so many processors."""
    threads = min(wishes.get("threads-per-core", 0) or part.threads, part.threads)
    cores = -(-cpus // threads)
    if tasks := wishes.get("ntasks-per-core", 0):
        cores = max(cores, -(-wishes.get("ntasks-per-node", 0) // tasks))
    return cores * part.threads


def _lies_on_sockets(request: JobRequest, each: int) -> bool:
    """Return whether how a job lies on sockets decides if it fits beside others.

    Which of a node's cores are free is not planned: so it is planned without others there.
    """
    spread = 0 < request.tasks_per_socket < each
    return spread or request.sockets > 1 or request.cores_per_socket > 1


def _license_problem(asked: str, sharing: Sharing) -> str:
    """Return why a job cannot be planned with these licences; empty: it can, or asks for none."""
    if not asked:
        return ""
    if sharing.licenses is None:
        return (
            "no promise can be given to a job that needs licences; the admin may add bf_licenses "
            "to SchedulerParameters in slurm.conf"
        )
    if "|" in asked:
        return f"cannot plan with a choice of licences ({asked[:80]!r}); name those of one kind"
    for part in re.split("[,;]", asked):
        if not licenses_in(part):
            return f"cannot plan with the licences {part[:80]!r}; write NAME:COUNT"
    for name, count in licenses_in(asked).items():
        short, there = name.removeprefix(LICENSE), sharing.licenses.get(name)
        if there is None:
            return f"Slurm has no licences {short!r}; see scontrol show licenses"
        if count > there:
            return f"requests {count} licences {short!r}; there are {there} for jobs"
    return ""


def _unknown(amounts: dict[str, int], part: Partition, resources: Sequence[str]) -> str:
    """Return which resource of a request Slurm does not show, or no node has so much of."""
    for name, amount in amounts.items():
        if name not in resources:
            if name.partition(":")[0] in resources and name.startswith(GRES):
                return f"cannot plan with the type {name}; add it to AccountingStorageTRES"
            return f"cannot plan with {name}; the admin may add it to AccountingStorageTRES"
        most = part.most(name)
        if amount > most:
            shown, there = (f"{n >> 20} MiB" if name == MEMORY else n for n in (amount, most))
            what = {CPU: "processors", MEMORY: "of memory"}.get(name, name)
            return (
                f"requests {shown} {what} per node; no node of partition {part.name} has more "
                f"than {there}"
            )
    return ""
