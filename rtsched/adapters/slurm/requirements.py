"""Requests in the models: one set of rules for a submission and for a queued job.

Sources: manual page sbatch, for `--dependency` too.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from rtsched.adapters.requirements import Requirements, readable
from rtsched.adapters.slurm.accounts import within_limits
from rtsched.adapters.slurm.comments import NOTHING, CommentOptions
from rtsched.adapters.slurm.node_requests import fitted, hardware_of, part_of, too_few_nodes
from rtsched.adapters.slurm.per_node import Demand, demand_of, per_node, tasks_per_node, written
from rtsched.adapters.slurm.rows import last_task_in
from rtsched.model.jobs import array_width
from rtsched.text import counted

if TYPE_CHECKING:
    from collections.abc import Set

    from rtsched.adapters.slurm.facts import Partition, SlurmFacts
    from rtsched.model.limit_rules import JobLimits

_JOB = r"\d{1,10}(?:_(?:\d+|\*|\[[\d,:-]+\]))?(?:\+\d+)?(?:\(\w+\))?"
_JOBS = re.compile(rf"(after(?:any|ok|notok|corr)?):({_JOB}(?::{_JOB})*)", re.ASCII | re.IGNORECASE)
_SINGLETON = re.compile(r"singleton(?:\(\w+\))?", re.ASCII | re.IGNORECASE)
_CONDITION = re.compile(r"(?:[^,?\[]++|\[[^\[\]]*+\]|\[)++")
"""Up to a comma or question mark that is not inside of task numbers, as in `afterok:5_[1,3]`."""
_PLANNED = "after, afterany, afterok, afternotok, aftercorr or singleton"


class Dependency(NamedTuple):
    """What a job waits for.

    Attributes
    ----------
    jobs : tuple of int
        Job ids; of an array that of all its tasks, also where one of them is named. It counts as
        waiting for their ends, also where it waits for a start.
    singleton : bool
        Whether it waits for the jobs of its user and name.
    problem : str
        Why it cannot be planned with; empty: it can.
    """

    jobs: tuple[int, ...] = ()
    singleton: bool = False
    problem: str = ""


def refused_dependency(text: str, unknown: Set[str]) -> str:
    """Return why Slurm refuses a dependency with jobs that it does not know; empty: it does not.

    Any other dependency on a job that it does not know is satisfied. `unknown` holds the jobs as
    `NUMBER` or `NUMBER_TASK`.
    """
    for condition in _CONDITION.findall(text) if unknown else ():
        match = _JOBS.fullmatch(condition)
        kind = match[1].lower() if match is not None else ""
        if match is None or kind not in {"afterok", "afternotok"}:
            continue
        named = re.findall(r"(?:^|:)(\d+(?:_\d+)?)", match[2], re.ASCII)
        if found := next((job for job in named if job in unknown), ""):
            return (
                f"--dependency={kind} names job {found}, which Slurm does not know: the number is "
                "wrong, or the job ended too long ago (MinJobAge); leave it out"
            )
    return ""


@lru_cache(maxsize=8192)
def dependency_of(text: str) -> Dependency:
    """Return what `afterok:12:13_4,singleton` says, as sbatch takes it or as squeue shows it."""
    found: dict[int, None] = {}
    singleton, problem = False, ""
    for condition in (_CONDITION.findall(text) or [text]) if text else ():
        match = _JOBS.fullmatch(condition)
        if match is None:
            if _SINGLETON.fullmatch(condition):
                singleton = True
            else:
                problem = f"cannot plan with the dependency {condition[:80]!r}; use {_PLANNED}"
            continue
        numbers = re.findall(r"(?:^|:)(\d+)", re.sub(r"\[[^]]*\]", "", match[2]))
        found.update(dict.fromkeys(map(int, numbers)))
        if match[1].lower() == "after" and "+" in match[2]:
            problem = (
                f"cannot plan with a delay after a start ({condition[:80]!r}); leave the delay "
                "out, or use afterany"
            )
    return Dependency(tuple(found), singleton, problem)


@dataclass(frozen=True)
class JobRequest:
    """What somebody asks for, in Slurm's terms; 0, nan or empty where it is not said.

    Times in seconds, `begin` since the epoch; `memory` in bytes per node, `each` processors on
    every node, `cpu_memory` bytes per processor, `disk` MiB of a node's own disk; `per_task` and
    `node_cpus` processors for each task and at least on each node; `all_memory`: all of its nodes'.
    `shortest`: the limit that its user allows at least; inf: only `limit`.
    `clusters`: those that it may be sent to; empty: none is named; None: not known.
    `sockets` to `tasks_per_gpu`: how its tasks lie on sockets, cores and GPUs (0: anyhow); so many
    `threads` of each core are used. `gpu_cpus` and `gpu_memory`: processors and bytes for each GPU.
    `most_nodes`: those of its user's own count. `wishes`: what each node must have, worked out when
    it was submitted, as in our admin comment. `line`: the command line.
    `shown`: what squeue shows of its resources, in place of what its options say. `array`: the
    tasks of a job array, each of which asks for the rest, `parallel` how many may run at a time
    (0: all), as `array_line` says when it is submitted. `het`: it is a heterogeneous job, or a
    component of one; `unlike`: why its components cannot be planned as one job.
    """

    limit: float = math.nan
    shortest: float = math.inf
    deadline: float = math.inf
    min_nodes: int = 0
    max_nodes: int = 0
    cpus: int = 0
    each: int = 0
    memory: int = 0
    cpu_memory: int = 0
    disk: int = 0
    partition: str = ""
    features: str = ""
    prefer: str = ""
    required: str = ""
    excluded: str = ""
    reservation: str = ""
    other: str = ""
    clusters: str | None = None
    licenses: str = ""
    dependency: str = ""
    unknown_jobs: frozenset[str] = frozenset()
    tasks: int = 0
    tasks_per_node: int = 0
    per_task: int = 1
    node_cpus: int = 0
    all_memory: bool = False
    exclusive: bool = False
    most_nodes: int = 0
    sockets: int = 0
    cores_per_socket: int = 0
    threads: int = 0
    tasks_per_core: int = 0
    tasks_per_socket: int = 0
    tasks_per_gpu: int = 0
    gpu_cpus: int = 0
    gpu_memory: int = 0
    switches: int = 0
    contiguous: bool = False
    overcommit: bool = False
    wishes: str = ""
    line: str = ""
    tres_node: str = ""
    tres_job: str = ""
    tres_task: str = ""
    tres_socket: str = ""
    shown: str | None = None
    begin: float = -math.inf
    array: int = 0
    parallel: int = 0
    array_line: str = ""
    het: bool = False
    unlike: str = ""
    held: bool = False
    cron: bool = False
    spec: CommentOptions = NOTHING

    @property
    def needs_rtsched(self) -> bool:
        """Whether it asks for what only rtsched can give."""
        return self.deadline < math.inf or self.spec.present

    @property
    def may_not_start_yet(self) -> bool:
        """Whether it begins later, or waits for other jobs."""
        return self.begin > -math.inf or bool(self.dependency)

    @property
    def tres(self) -> str:
        """What trackable resources it asks for, in whatever form."""
        given = (self.tres_job, self.tres_node, self.tres_socket, self.tres_task)
        return ",".join(filter(None, given))


def requirements_of(
    request: JobRequest, facts: SlurmFacts, *, fresh: bool = True, limits: JobLimits | None = None
) -> Requirements:
    """Return the requirements of a request; `fresh`: nothing was promised to it yet.

    `limits`: those of its account and QOS, None if there are none. What was promised once stays so
    if its partition is closed, or limits are lowered: that is no change of the job, and they may be
    as before in time.

    A job takes whole nodes, or where jobs share nodes what it asks for; a heterogeneous one, and as
    long as it may not start yet any, whole ones there too. One that asks for
    processors takes as many nodes as they need on the smallest nodes of its partition. A range of
    nodes makes a job moldable if it wants something of rtsched and does not say `speedup=none`; its
    time limit is then that on the fewest nodes.
    """
    name = request.partition.split(",", 1)[0] or facts.default
    shared = bool(facts.sharing.resources)
    request = _of_this_cluster(request, facts)
    part, node_request, wrong = part_of(name, request, facts, fresh=fresh)
    limit = request.limit
    if math.isnan(limit):
        limit = part.default_s if part is not None else math.inf
    fewest = -(-request.cpus // part.cores) if part is not None else 1
    least = max(request.min_nodes, fewest, 1)
    if fresh and request.needs_rtsched and part is not None and not wrong:
        whole = not shared or request.het
        each = per_node(request, hardware_of(facts, name, part, node_request), name, whole=whole)
        least, wrong = each.nodes, each.problem
        request = fitted(request, each, facts, name)
        if not wrong:
            part, node_request, wrong = part_of(name, request, facts, fresh=fresh)
            assert part is not None  # noqa: S101 - as above
    if request.spec.divisible and not request.min_nodes and part is not None:
        least = max(least, part.min_nodes)
    most = max(request.max_nodes, least)
    problem = _problem(request, part, limit, shared=shared, several=most > 1)
    if request.needs_rtsched and request.switches and most > 1 and facts.switches:
        problem = problem or (
            "cannot plan with --switches on several nodes; leave it out, or ask for one node"
        )
    problem = problem or (_apart(request, facts) if request.het else "") or wrong
    if fresh and request.needs_rtsched:
        problem = problem or _elsewhere(request, facts) or _beyond_arrays(request, facts)
    demand = Demand({})
    if facts.sharing.resources and part is not None:
        demand = demand_of(request, part, facts.sharing, least)
        problem = problem or (demand.problem if request.needs_rtsched else "")
    if fresh and part is not None and request.needs_rtsched:
        problem = (
            problem or _dependency_problem(request, facts) or _closed(request, part, limit, least)
        )
        if facts.sharing.resources and part.above:  # Slurm keeps room for the jobs that come first
            problem = problem or (
                f"no promise can be given in partition {part.name}: jobs of {part.above}, which "
                "has a higher PriorityTier, start before on the same nodes"
            )
    needs = Requirements(
        partition=name,
        problem=problem,
        demand=demand.amounts,
        exclusive=demand.exclusive,
        tasks_per_node=demand.tasks,
        node_request=node_request,
    )
    if request.array and request.needs_rtsched and part is not None:
        needs = _array(request, part, facts, replace(needs, wall_time=limit + facts.margin))
    elif request.spec.divisible:
        longest = math.inf if limits is None else limits.wall
        needs = _divisible(request, facts, needs, least, part, longest)
    elif most > least and request.needs_rtsched and request.spec.speedup != "none":
        needs = needs.as_moldable(least, most, limit, facts.wide_margin)
    else:
        wait = facts.backfill if request.het else 0.0
        needs = replace(needs, size=least, wall_time=limit + facts.margin + wait)
    if fresh and part is not None:
        if request.needs_rtsched and limits is not None:
            time_limit = math.inf if request.spec.divisible else limit  # rtsched gives it one
            needs = within_limits(request, needs, limits, part, time_limit, facts.billing)
        if node_request:
            problem = needs.problem or too_few_nodes(part, node_request, needs)
            needs = replace(needs, problem=problem)
    elif not fresh:
        needs = replace(needs, problem=problem)
    if shared and request.needs_rtsched and (request.het or request.may_not_start_yet):
        return replace(needs, exclusive=True)
    return needs


def _array(
    request: JobRequest, part: Partition, facts: SlurmFacts, needs: Requirements
) -> Requirements:
    """Return the requirements of an array, whose tasks share the nodes that it is given."""
    hardware = hardware_of(facts, needs.partition, part, needs.node_request)
    fits = tasks_per_node(request, part, facts, hardware)
    per_node, most = array_width(request.array, fits, request.parallel, part.nodes)
    return needs.as_array(request.array, per_node, most)


def _divisible(
    request: JobRequest,
    facts: SlurmFacts,
    needs: Requirements,
    least: int,
    part: Partition | None,
    longest: float,
) -> Requirements:
    """Return the requirements of a load; `longest`, and that of its partition, is its limit."""
    most = request.max_nodes or least
    if not request.max_nodes and part is not None:
        most = int(min(part.nodes, part.max_nodes))
    most = max(most, least)
    load = {k: v for k, v in request.spec.numbers.items() if k != "message_time"}
    load["setup_node"] = load.get("setup_node", 0.0) + facts.wide_margin
    load.setdefault("setup_link", 0.0)
    who = f"partition {needs.partition[:60]!r} allows"
    if part is not None and part.longest_s <= longest:
        longest = part.longest_s + facts.wide_margin
    else:  # the time limit that it is given is not to exceed that by a minute
        longest, who = longest + facts.margin, "MaxWall of its account or QOS allows"
    too_long = f"its load takes longer than {who} on {counted(most, 'node')}"
    needs = replace(needs, rounds=request.spec.rounds, setup_once=facts.wide_margin)
    return needs.as_divisible(load, least, most, longest, too_long)


def _apart(request: JobRequest, facts: SlurmFacts) -> str:
    """Return why a heterogeneous job, or a component of one, gets no promise; empty if it can.

    All its components start together, on as many nodes as they ask for in all. Which component gets
    which of these is Slurm's choice, so each node has to be as each component asks for.
    """
    if not request.needs_rtsched:
        return ""
    for given, what in (
        (request.licenses, "that needs licences"),
        (math.isinf(facts.backfill), "here: Slurm's backfill scheduler, which starts it, is off"),
        (request.spec.divisible, "that is a divisible load"),
        (request.required, "with a list of nodes; leave --nodelist out"),
        (
            request.max_nodes > max(request.min_nodes, 1),
            "with a component of more or fewer nodes; give each --nodes with one number",
        ),
        (request.unlike, f"whose components {request.unlike}"),
    ):
        if given:
            return f"no promise can be given to a heterogeneous job {what}"
    return ""


def _of_this_cluster(request: JobRequest, facts: SlurmFacts) -> JobRequest:
    """Return a request without options that change nothing here.

    These are --clusters that names this cluster alone, and --core-spec where Slurm ignores it.
    """
    if not request.other:
        return request
    idle = set() if facts.core_spec else {"core-spec"}
    if request.clusters and request.clusters == facts.cluster:
        idle.add("clusters")
    left = [name for name in request.other.split(",") if name not in idle]
    return replace(request, other=",".join(left))


def _elsewhere(request: JobRequest, facts: SlurmFacts) -> str:
    """Return why no promise can be given as another cluster may run it; empty if none may.

    In a federation a job is sent to all its clusters, and the first that can start it does. One
    that names a cluster stays there.
    """
    if not facts.federation or request.clusters == facts.cluster:
        return ""
    return (
        f"another cluster of the federation {facts.federation[:60]} may run it, so no promise can "
        f"be given; submit it to this cluster alone, with --clusters={facts.cluster}"
    )


def _problem(
    request: JobRequest, part: Partition | None, limit: float, *, shared: bool, several: bool
) -> str:
    """Return why a request that wants something of rtsched cannot get it; empty if it can.

    `shared`: jobs share nodes; `several`: it asks for more than one.
    """
    if request.spec.problem:
        return request.spec.problem
    if not request.needs_rtsched:
        return ""
    for given, what in (
        (request.array and several, "an array with tasks of several nodes"),
        (request.array and request.spec.divisible, "an array of divisible loads"),
        (request.reservation, "a job in a reservation; leave --reservation out"),
        (
            "license/" in request.tres,
            "a job with licences per task; name all of the job by --licenses",
        ),
        (request.licenses and not shared, "a job that needs licences"),
        (request.licenses and request.array, "an array whose tasks need licences"),
        (request.tres_socket, "a job with --gpus-per-socket; write --gpus-per-node"),
        (request.held, "a job that is submitted held; leave --hold out, or use --begin"),
        (request.cron, "a cron job (scrontab); let it submit a job with a deadline"),
    ):
        if given:
            return f"no promise can be given to {what}"
    if "clusters" in request.other.split(","):
        return "rtsched cannot plan for several or other clusters; name this one in --clusters"
    if "nodes-list" in request.other.split(","):
        size = f"--nodes={request.max_nodes}" if request.max_nodes else "--nodes=2"
        return f"cannot plan with a list of node counts; ask for one of them, such as {size}"
    if request.other:
        names = " and ".join(written(name, request.line) for name in request.other.split(","))
        return f"cannot plan with {readable(names[:160])}; leave it out"
    if request.contiguous and several and not request.required:
        return "its partition does not have that many consecutive nodes; leave --contiguous out"
    if part is None:
        return f"there is no partition {request.partition[:60]!r}"
    if not math.isfinite(limit) and not request.spec.divisible:
        return "has no time limit, so its end cannot be promised; set --time"
    return ""


def _beyond_arrays(request: JobRequest, facts: SlurmFacts) -> str:
    """Return that Slurm takes no array with such task ids; empty if it does."""
    if not request.array_line:
        return ""
    last = last_task_in(request.array_line)
    if last < 0:
        return f"cannot read --array={request.array_line[:60]!r}; write 1-100, 1,3,5 or 0-15:4%2"
    if not 0 < facts.array_size <= last:
        return ""
    return f"--array names task {last}; task ids must be below {facts.array_size} here"


def _closed(request: JobRequest, part: Partition, limit: float, least: int) -> str:
    """Return why its partition cannot take a request as things are; empty if it can."""
    if not part.up:
        return f"partition {part.name} is not starting jobs now"
    if least < part.min_nodes or max(request.max_nodes, least) > part.max_nodes:
        most = f" to {part.max_nodes:g}" if math.isfinite(part.max_nodes) else " or more"
        return f"partition {part.name} accepts jobs of {part.min_nodes}{most} nodes; see --nodes"
    if limit > part.longest_s:
        return f"its time limit exceeds the {part.longest_s / 60:.0f} min of partition {part.name}"
    return ""


def _dependency_problem(request: JobRequest, facts: SlurmFacts) -> str:
    """Return why a request cannot be planned with its dependency; empty if it can."""
    dependency = dependency_of(request.dependency)
    if dependency.singleton and request.array:
        return "no promise can be given to an array with --dependency=singleton; use --array=...%1"
    if dependency.singleton and dependency.jobs:  # pyslurm does not show both
        return "cannot plan with singleton beside other dependencies; use one of them"
    if facts.federation:  # other clusters know other jobs
        return dependency.problem
    return dependency.problem or refused_dependency(request.dependency, request.unknown_jobs)
