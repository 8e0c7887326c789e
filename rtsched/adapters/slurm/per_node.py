"""Requests per node: what a job wants and takes of each of its nodes, and how many hold its tasks.

Where nodes of a partition lack what is wanted, it becomes a part of the job's request for nodes: so
a job that gets whole nodes gets such as have enough processors, memory, disk and GPUs, and as its
layout of tasks (`--ntasks-per-core`, `--threads-per-core`, ...) needs. Where jobs share nodes, a
job takes the amounts that it asks for.

Slurm takes most of its options apart before a submit filter sees them: `--cpus-per-task=2` is
`cpu=2` for each task, `--gpus-per-task=1` is `gres/gpu:1`, `--hint=nomultithread` one thread of
each core. Messages name options as users write them.

Sources: manual page sbatch; slurm_opt.c and gres.c in src/ of Slurm 25.11.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.adapters.requirements import readable
from rtsched.adapters.slurm.rows import nodes_in
from rtsched.logs.node_requests import MIB, OPTIONS
from rtsched.logs.slurm_text import gres, licenses_in, trackable
from rtsched.model.jobs import most_together
from rtsched.model.resources import CPU, GPU, GRES, LICENSE, MEMORY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.adapters.slurm.facts import Partition, Sharing, SlurmFacts
    from rtsched.adapters.slurm.requirements import JobRequest
    from rtsched.logs.node_requests import Hardware

_HINT = "--hint"
_EXTRA_NODE_INFO = "-B"

WRITTEN: dict[str, tuple[str, ...]] = {
    "threads-per-core": ("--threads-per-core", _HINT, _EXTRA_NODE_INFO),
    "cores-per-socket": ("--cores-per-socket", _EXTRA_NODE_INFO, _HINT),
    "sockets-per-node": ("--sockets-per-node", _EXTRA_NODE_INFO),
    "ntasks-per-core": ("--ntasks-per-core", _HINT),
    "nodes-list": ("--nodes",),
    "core-spec": ("--core-spec", "--thread-spec"),
    "cluster-constraint": ("--cluster-constraint",),
    "mem-per-cpu": ("--mem-per-cpu",),
    "mincpus": ("--mincpus", "--cpus-per-task", "--ntasks"),
}
"""Options that a field is made of, where these are not one of the same name."""

_SPELLINGS = {
    _EXTRA_NODE_INFO: ("-B", "--extra-node-info"),
    "--nodes": ("-N", "--nodes"),
    "--core-spec": ("-S", "--core-spec"),
    "--cpus-per-task": ("-c", "--cpus-per-task"),
    "--ntasks": ("-n", "--ntasks"),
}
"""Options that have a short form, which its value may follow without a space."""


def written(name: str, line: str) -> str:
    """Return an option as its user wrote it, or the options that it may have been.

    Parameters
    ----------
    name : str
        Of the field, such as `threads-per-core`.
    line : str
        The command line; empty: not known.
    """
    options = WRITTEN.get(name, (f"--{name}",))
    words = [word.partition("=")[0] for word in line.split()]
    for option in options:
        short, long = _SPELLINGS.get(option, ("", option))
        if long in words or (short and any(word.startswith(short) for word in words)):
            return option
    return " or ".join(options)


WISHES = re.compile(rf"(?:^|\s)--({'|'.join((*OPTIONS, 'constraint'))})=(\S+)")
"""What each node must have, in a request for nodes; the last constraint, if there are two."""
_NOT_OF_NODES = re.compile(rf"(?:cpu|mem|node|billing|energy|fs|ic|pages|vmem|bb|{LICENSE})\b")
_MOST = 1 << 31


class PerNode(NamedTuple):
    """What a job wants of each of its nodes.

    Attributes
    ----------
    nodes : int
        The fewest nodes that hold it.
    wishes : dict of str to str
        What not all nodes that it may use have, as options of sbatch (`node_requests.OPTIONS`).
    problem : str
        Why no node is enough; empty: some are.
    """

    nodes: int
    wishes: dict[str, str]
    problem: str = ""


def generic(text: str) -> dict[str, int]:
    """Return the generic resources in `cpu=2,gres/gpu:a:2`; older releases write `gres:gpu:2`.

    Processors, memory and licences are no generic resources.
    """
    if not text:
        return {}
    parts = (part.strip() for part in text.replace("=", ":").split(","))
    plain = (re.sub(r"^gres[/:]", "", part) for part in parts if not _NOT_OF_NODES.match(part))
    return gres(",".join(filter(None, plain)))


def processors_in(text: str) -> int:
    """Return the processors for each task in `cpu=2,gres/gpu:1`; 0: none are named."""
    found = re.search(r"(?:^|,)cpu[=:](\d{1,9})(?:,|$)", text)
    return int(found[1]) if found else 0


def count_for_gpus(text: str) -> int:
    """Return the number that goes with each GPU in `gres/gpu:4`; 0: none is named."""
    found = re.search(r"(?:^|,)(?:gres[/:])?gpu(?:[:=][A-Za-z][\w.-]*)?[:=](\d{1,12})(?:,|$)", text)
    return int(found[1]) if found else 0


SOCKET_WISHES = frozenset(("sockets-per-node", "cores-per-socket", "ntasks-per-socket"))
"""Wishes of a job that shares nodes that say how it lies on sockets."""


def wishes_of(text: str) -> dict[str, int]:
    """Return the numbers of wishes."""
    return {name: int(value) for name, value in WISHES.findall(text) if value.isdecimal()}


def wishes_text(wishes: dict[str, str]) -> str:
    """Return wishes as options, in one order."""
    names = (*OPTIONS, "constraint")
    return " ".join(f"--{name}={wishes[name]}" for name in names if name in wishes)


def tasks_of(request: JobRequest, nodes: int) -> int:
    """Return how many tasks a job has, at least one on each of so many nodes.

    `--ntasks-per-gpu` gives as many as it has GPUs for.
    """
    gpus = gpus_of(request, nodes, 0)
    if request.tasks_per_gpu and gpus:
        return max(gpus * request.tasks_per_gpu, nodes)
    return request.tasks or request.tasks_per_node * nodes or nodes


def gpus_of(request: JobRequest, nodes: int, tasks: int) -> int:
    """Return the GPUs of a job, of so many nodes and tasks, that it names; 0: none."""
    job, node = generic(request.tres_job).get(GPU, 0), generic(request.tres_node).get(GPU, 0)
    return max(job, node * nodes, generic(request.tres_task).get(GPU, 0) * tasks)


def generic_per_node(request: JobRequest, nodes: int, each: int) -> dict[str, int]:
    """Return the generic resources of each of so many nodes that has so many tasks."""
    amounts = dict(generic(request.tres_node))
    for name, amount in generic(request.tres_task).items():
        amounts[name] = amounts.get(name, 0) + amount * each
    for name, amount in generic(request.tres_job).items():
        amounts[name] = max(amounts.get(name, 0), -(-amount // nodes))
    if request.tasks_per_gpu and not amounts.get(GPU):
        amounts[GPU] = -(-each // request.tasks_per_gpu)
    return amounts


def per_node(request: JobRequest, hardware: Hardware, name: str, *, whole: bool) -> PerNode:
    """Return what a request wants of each of its nodes.

    Parameters
    ----------
    request : JobRequest
        What somebody asks for.
    hardware : Hardware
        Of the nodes that it may use, by features and names.
    name : str
        Their partition.
    whole : bool
        Whether it gets whole nodes: otherwise only how tasks lie on cores and sockets matters here,
        and amounts are planned.
    """
    holds = _tasks_held(request, hardware)
    usable = hardware.usable(request.threads)
    job = generic(request.tres_job)
    enough = (holds > 0) & hardware.having(_at_least(request))
    for wanted, amount in generic(request.tres_node).items():
        enough &= hardware.amount(wanted) >= amount
    for wanted in job:
        enough &= hardware.amount(wanted) > 0
    nodes = _fewest(request, hardware, enough, holds, usable)
    for wanted in generic(request.tres):
        if not hardware.amount(wanted).any():
            return PerNode(nodes, {}, f"no node of partition {name} has {readable(wanted)}")
    wishes = _wishes(request, nodes, whole=whole)
    if not wishes:
        return PerNode(nodes, {})
    having = hardware.having(wishes)
    if having.all():
        kept = not whole and _matters(request, wishes, hardware)
        return PerNode(nodes, wishes if kept else {})
    if not having.any():
        return PerNode(nodes, wishes, _missing(request, hardware, wishes, name))
    return PerNode(nodes, wishes)


def _matters(request: JobRequest, wishes: dict[str, str], hardware: Hardware) -> bool:
    """Return whether a job on shared nodes takes more of them than squeue shows while it waits.

    One that uses some of the threads of its cores takes these cores, and one that lies on several
    sockets is planned without others.
    """
    in_cores = request.threads or request.tasks_per_core
    on_sockets = not SOCKET_WISHES.isdisjoint(wishes)
    return on_sockets or bool(in_cores and (hardware.threads > 1).any())


def _tasks_held(request: JobRequest, hardware: Hardware) -> NDArray[np.int64]:
    """Return how many tasks of a job each node holds at most, int64[m]."""
    holds = np.full(len(hardware), _MOST, np.int64)
    if not request.overcommit:
        holds = np.minimum(holds, hardware.usable(request.threads) // max(request.per_task, 1))
    if request.tasks_per_core:
        holds = np.minimum(holds, hardware.cores * request.tasks_per_core)
    if request.tasks_per_socket:
        holds = np.minimum(holds, hardware.on_sockets(request.tasks_per_socket))
    if request.tasks_per_node:
        holds = np.minimum(holds, request.tasks_per_node)
    for name, amount in generic(request.tres_task).items():
        holds = np.minimum(holds, hardware.amount(name) // amount)
    return holds


def _fewest(
    request: JobRequest,
    hardware: Hardware,
    enough: NDArray[np.bool_],
    holds: NDArray[np.int64],
    usable: NDArray[np.int64],
) -> int:
    """Return the fewest nodes that hold a job, whichever of those that are `enough` these are.

    As many as its user says, if she does.
    """
    least = max(request.min_nodes, 1)
    if not enough.any():
        enough = np.ones(len(hardware), np.bool_)
    if not len(enough):
        return least
    needed = [least]
    if request.tasks:
        needed.append(-(-request.tasks // max(int(holds[enough].min()), 1)))
    if not request.overcommit:
        needed.append(-(-request.cpus // max(int(usable[enough].min()), 1)))
    for name, amount in generic(request.tres_job).items():
        needed.append(-(-amount // max(int(hardware.amount(name)[enough].min()), 1)))
    return min(max(needed), max(request.most_nodes, least)) if request.most_nodes else max(needed)


def _at_least(request: JobRequest) -> dict[str, str]:
    """Return what each node must have whatever runs on it."""
    wishes = {
        "threads-per-core": request.threads,
        "sockets-per-node": request.sockets if request.sockets > 1 else 0,
        "cores-per-socket": request.cores_per_socket if request.cores_per_socket > 1 else 0,
        "tmp": request.disk,
    }
    return {name: str(number) for name, number in wishes.items() if number > 0}


def _on_each(request: JobRequest, nodes: int) -> tuple[int, dict[str, int]]:
    """Return the tasks on each of so many nodes, and their generic resources there."""
    each = request.tasks_per_node or -(-tasks_of(request, nodes) // nodes)
    return each, generic_per_node(request, nodes, each)


def _wishes(request: JobRequest, nodes: int, *, whole: bool) -> dict[str, str]:
    """Return what a job wants of each of so many nodes."""
    each, amounts = _on_each(request, nodes)
    gpus = amounts.get(GPU, 0)
    wishes: dict[str, int] = {}
    if request.tasks_per_core or 0 < request.tasks_per_socket < each:
        wishes["ntasks-per-node"] = each
        wishes["ntasks-per-core"] = request.tasks_per_core
    if 0 < request.tasks_per_socket < each:
        wishes["ntasks-per-socket"] = request.tasks_per_socket
    if whole:
        cpus = 1 if request.overcommit else each * request.per_task
        total = 0 if request.overcommit else -(-request.cpus // nodes)
        wishes["mincpus"] = max(
            cpus, total, request.node_cpus, request.each, request.gpu_cpus * gpus
        )
        own = wishes["mincpus"] * request.cpu_memory if request.array else 0
        wishes["mem"] = -(-max(request.memory, own) // MIB)
        if not request.array:  # it gets all processors and GPUs of its nodes
            wishes["mem-per-cpu"] = -(-request.cpu_memory // MIB)
            wishes["mem-per-gpu"] = -(-request.gpu_memory // MIB)
    found = _at_least(request)
    found |= {name: str(number) for name, number in wishes.items() if number > 0}
    if whole and amounts:
        shown = (f"{name.removeprefix(GRES)}:{amount}" for name, amount in amounts.items())
        found["gres"] = ",".join(shown)
    return found


def _missing(request: JobRequest, hardware: Hardware, wishes: dict[str, str], name: str) -> str:
    """Return what of a request no node has."""
    nobody = f"no node of partition {name} has"
    memory, cpus = hardware.memory // MIB, hardware.usable(request.threads)
    most_of = {
        **{wanted: hardware.amount(wanted) for wanted in gres(wishes.get("gres", ""))},
        "processors": cpus,
        "MiB of memory": memory,
    }
    asked = {
        **gres(wishes.get("gres", "")),
        "processors": int(wishes.get("mincpus", 0)),
        "MiB of memory": int(wishes.get("mem", 0)),
    }
    for what, amount in asked.items():
        most = int(most_of[what].max(initial=0))
        if amount > most:
            return f"requests {amount} {what} per node; {nobody} more than {most}"
    if int(wishes.get("mem-per-cpu", 0)) > (most := int((memory // hardware.cpus).max(initial=0))):
        return (
            f"requests {wishes['mem-per-cpu']} MiB per processor, and gets all processors of its "
            f"nodes; {nobody} more than {most} for each; use --mem"
        )
    for option in wishes:
        alone = {option: wishes[option], "ntasks-per-node": wishes.get("ntasks-per-node", "0")}
        if option != "ntasks-per-node" and not hardware.having(alone).any():
            return f"{nobody} what {written(option, request.line)} asks for"
    return f"{nobody} all that it asks for on one node"


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


def needed_licenses(asked: str) -> str:
    """Return a request for licences without those of which it needs none, as of `matlab:0`."""
    parts = re.split("[,;]", asked)
    return ",".join(part for part in parts if 0 not in licenses_in(part).values())


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
    each, amounts = _on_each(request, nodes)
    gpus = amounts.get(GPU, 0)
    amounts[CPU], memory = _cpus_and_memory(request, each, part, gpus)
    exclusive = request.exclusive or part.exclusive or _lies_on_sockets(request, each)
    if MEMORY in sharing.resources:
        exclusive |= not memory  # it gets all of its nodes'
        amounts[MEMORY] = memory
    known = {name: amount for name, amount in amounts.items() if amount > 0}
    problem = _unknown(known, part, sharing.resources)
    if request.licenses:
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
    tasks = max(request.tasks, request.tasks_per_node, 1)
    amounts = generic_per_node(request, 1, tasks)
    cpus, memory = _cpus_and_memory(request, tasks, part, amounts.get(GPU, 0))
    cpus = max(cpus, -(-request.cpus // part.threads) * part.threads)
    if request.shown is not None:
        memory = request.memory * cpus or memory  # squeue may show it per processor
    fits = part.cores // cpus
    for name, amount in amounts.items():
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
    request: JobRequest, each: int, part: Partition, gpus: int = 0
) -> tuple[int, int]:
    """Return the processors of `each` tasks on a node, in whole cores, and their bytes there.

    0 bytes: they get all memory of the node. `gpus`: those that they have there.
    """
    cpus = 1 if request.overcommit else each * request.per_task
    of_gpu = request.gpu_cpus or (part.gpu_cores if request.per_task == 1 else 0)
    cpus = max(cpus, request.node_cpus, of_gpu * gpus)
    wishes = {
        "threads-per-core": request.threads,
        "ntasks-per-core": request.tasks_per_core,
        "ntasks-per-node": each,
    }
    cpus = _in_cores(cpus, wishes, part)
    memory = request.memory or request.gpu_memory * gpus or request.cpu_memory * cpus
    if not memory and not request.all_memory:
        memory = part.gpu_memory * gpus or part.node_memory or part.core_memory * cpus
    if most := part.most_core_memory:
        cpus = max(cpus, -(-memory // most))
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
    """Return why a job cannot be planned with these licences; empty: it can."""
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
            kind = readable(name)
            if name.partition(":")[0] in resources and name.startswith(GRES):
                return f"cannot plan with the type {kind}; add it to AccountingStorageTRES"
            return f"cannot plan with {kind}; the admin may add it to AccountingStorageTRES"
        most = part.most(name)
        if amount > most:
            shown, there = (f"{n >> 20} MiB" if name == MEMORY else n for n in (amount, most))
            what = {CPU: "processors", MEMORY: "of memory"}.get(name, readable(name))
            return (
                f"requests {shown} {what} per node; no node of partition {part.name} has more "
                f"than {there}"
            )
    return ""
