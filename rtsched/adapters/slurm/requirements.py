"""Requests in the models: one set of rules for a submission and for a queued job.

Sources: manual page sbatch, for `--dependency` too.

`--constraint`, `--nodelist` and `--exclude` are one request for nodes. A list of more nodes than
the job wants leaves the choice among them; with as many it has them all. So both say on which nodes
a job may run. A list of fewer would have it run on all of these and on others: plans cannot say
that (`_job_create` and `_update_job` in src/slurmctld/job_mgr.c).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.adapters.requirements import Requirements, readable
from rtsched.adapters.slurm.accounts import within_limits
from rtsched.adapters.slurm.comments import NOTHING, CommentOptions
from rtsched.adapters.slurm.per_node import (
    WISHES,
    Demand,
    demand_of,
    per_node,
    tasks_per_node,
    wishes_text,
    written,
)
from rtsched.adapters.slurm.rows import last_task_in
from rtsched.logs.hostlist import expand, fold
from rtsched.logs.node_requests import Hardware, LeftOut, most_named
from rtsched.model.jobs import Kind, array_width
from rtsched.model.resources import GRES
from rtsched.text import counted

if TYPE_CHECKING:
    from collections.abc import Set

    from rtsched.adapters.slurm.facts import Partition, SlurmFacts
    from rtsched.adapters.slurm.per_node import PerNode
    from rtsched.model.limits import JobLimits

_BRACKETS = re.compile(r"\[((?:[^\[\]()*&]|\([^\[\]()*]*\))+)\]")
"""One of several features, the same on all nodes of a job."""
_COUNT = re.compile(r"\*\d+")
_FEATURE = re.compile(r"[^&|,()\[\]]+")
_NESTED = re.compile(r"\([^()]*[(\[]|\[.*\[")
"""What Slurm cannot read: see `_feature_string2list` in src/slurmctld/job_scheduler.c."""
_NODE_LIST = re.compile(r"(?:^|\s)--nodelist=(\S+)")


class _PartitionPart(NamedTuple):
    """The nodes of a partition that a job may use; `problem`: why nothing can be planned there.

    `request` as in `Jobs.node_request`, empty: it may use all nodes of `partition`, which is None
    where there is none.
    """

    partition: Partition | None
    request: str = ""
    problem: str = ""


def part_of(name: str, request: JobRequest, facts: SlurmFacts, *, fresh: bool) -> _PartitionPart:
    """Return the nodes of partition `name` that a request may use.

    `fresh`: nothing was promised to it yet. What was promised once stays so when no node is as it
    asks for any more.
    """
    whole = facts.partitions.get(name)
    text = _text_of(name, request, facts.parts.nodes if facts.parts is not None else 0)
    if not text or whole is None or not request.needs_rtsched:
        return _PartitionPart(whole)
    if facts.parts is None:
        return _PartitionPart(whole, text, "the nodes of the cluster are not known yet")
    part, left_out = facts.parts.asked(name, text)
    problem = _unclear(request, left_out) if left_out else ""
    if not problem and not part.nodes:
        problem = f"no node in partition {name!r} matches {_options(text)}"
        if request.het:
            problem += "; each node of a heterogeneous job must be as each component asks for"
    if problem and not fresh and LeftOut.CONSTRAINT not in left_out:
        return _PartitionPart(whole, text)
    return _PartitionPart(whole if problem else part, text, problem)


def refused_features(request: JobRequest, facts: SlurmFacts) -> str:
    """Return why Slurm refuses what a request says of features; empty: it does not.

    Slurm accepts none that no node of the cluster has, not even as one of several, unless the site
    set `ignore_constraint_validation` or `ignore_prefer_validation` in SchedulerParameters (see
    `_valid_feature_list` in src/slurmctld/job_scheduler.c). Spaces are part of a feature's name.
    """
    if not request.needs_rtsched:
        return ""
    for option, text in (("constraint", request.features), ("prefer", request.prefer)):
        shown = repr(text[:60])
        if _NESTED.search(text):
            return (
                f"Slurm cannot read --{option}={shown}: parentheses and brackets cannot be nested "
                "in parentheses, and only one pair of brackets is allowed"
            )
        if facts.features is None or option in facts.unchecked:
            continue
        names = _FEATURE.findall(_COUNT.sub("", text))
        unknown = next((name for name in names if name not in facts.features), "")
        if unknown:
            remedy = "leave spaces out" if unknown.strip() != unknown else "leave it out"
            return f"no node has the feature {unknown[:60]!r} of --{option}; {remedy}"
    return ""


def hardware_of(facts: SlurmFacts, name: str, part: Partition, text: str) -> Hardware:
    """Return what each node of a part of partition `name` has, by its request for nodes.

    Where that is not known, as much as its smallest one.
    """
    if facts.parts is not None:
        return facts.parts.hardware(name, text)
    cpus, threads = (np.array([n], np.int64) for n in (part.cores, part.threads))
    memory = np.array([part.memory if part.memory > 0 else 1 << 62], np.int64)
    names = {name for node, _ in part.hardware for name in node if name.startswith(GRES)}
    gres = {name: np.array([part.most(name)], np.int64) for name in names}
    sockets = (cpus // threads)[:, None]
    return Hardware(cpus, threads, sockets, memory, np.zeros(1, np.int64), gres)


def _fitted(request: JobRequest, each: PerNode, facts: SlurmFacts, name: str) -> JobRequest:
    """Return a request that says what each of its nodes must have.

    Of features of which all its nodes are to have the same one (`[a|b]`), those that most nodes of
    partition `name` have are chosen; of nodes that follow each other (`--contiguous`) as many as it
    wants, if there are so many.
    """
    wishes = dict(each.wishes)
    most = max(each.nodes, request.max_nodes)
    if request.contiguous and most > 1 and not request.required and facts.parts is not None:
        request = replace(request, wishes=wishes_text(wishes))
        text = _text_of(name, request, facts.parts.nodes)
        run = facts.parts.neighbours(name, text, most, int(min(request.deadline, 1 << 40)))
        request = replace(request, required=fold(run))
    if _BRACKETS.search(request.features) and most > 1:
        wishes["constraint"] = _most_common(request, facts, name)
    return replace(request, wishes=wishes_text(wishes)) if wishes else request


def _most_common(request: JobRequest, facts: SlurmFacts, name: str) -> str:
    """Return the constraint with one of the features in brackets, that of the most nodes."""
    text = _constraint_of(request.features, brackets=True)
    found: list[tuple[int, int, str]] = []
    bracket = _BRACKETS.search(text)
    for one in bracket[1].split("|") if bracket else ():
        chosen = _constraint_of(_BRACKETS.sub(f"({one})", text, count=1))
        nodes = 0
        if facts.parts is not None:
            nodes = facts.parts.asked(name, f"--constraint={chosen} --partition={name}")[0].nodes
        found.append((-nodes, len(found), chosen))
    return min(found)[2]


def _constraint_of(features: str, *, brackets: bool = False) -> str:
    """Return features as a constraint of nodes; a comma between them means `&`.

    `brackets`: those of `[a|b]` stay, else they are parentheses: all nodes of a job are among
    those that have one of the features.
    """
    text = features.replace(",", "&").replace(" ", "")
    return text if brackets else _BRACKETS.sub(r"(\1)", text)


def _text_of(name: str, request: JobRequest, nodes: int) -> str:
    """Return the options by which a request chooses nodes, and its partition; empty: by none.

    Lists are written in one way, whoever wrote them (for features see `_feature_string2list` in
    src/slurmctld/job_scheduler.c).
    """
    options = {
        "constraint": _constraint_of(request.features),
        "nodelist": _listed(request.required, nodes),
        "exclude": _listed(request.excluded, nodes),
    }
    written = [f"--{option}={value}" for option, value in options.items() if value]
    written += [request.wishes] if request.wishes else []
    return " ".join([*written, f"--partition={name}"]) if written else ""


def _listed(text: str, nodes: int) -> str:
    """Return a list in the one way; as it is, if it is none or names more than there are."""
    try:
        return fold(sorted(set(expand(text, most_named(text, nodes)))))
    except ValueError:
        return "".join(text.split())


def _options(text: str) -> str:
    """Return a request without the partition, cut off, for people."""
    return readable(text.rpartition(" --partition=")[0][:80])


def _unclear(request: JobRequest, left_out: tuple[LeftOut, ...]) -> str:
    """Return what is wrong with a request of which something does not count."""
    if LeftOut.NODE_LIST in left_out:
        return "its --nodelist or --exclude names nodes that this cluster does not have"
    if LeftOut.NO_FEATURES in left_out:
        return f"no node has the features {request.features[:60]!r}"
    return (
        f"cannot plan with the constraint {request.features[:60]!r}: it counts nodes "
        "or cannot be read; combine features with & and |, and parentheses"
    )


def _too_few_nodes(part: Partition, text: str, needs: Requirements) -> str:
    """Return why a job cannot have as many nodes as it wants; empty if it can.

    Parameters
    ----------
    part : Partition
        The nodes that it may use.
    text : str
        Its request for nodes.
    needs : Requirements
        How many it wants.
    """
    least = needs.size if needs.kind == Kind.RIGID else needs.size_min
    most = max(needs.size, needs.size_max)
    own = node_list_in(text)
    named = len(expand(own)) if own else most
    if named < most:
        return (
            f"asks for {counted(most, 'node')} and names {named} of them; name as many as it asks "
            "for, or none"
        )
    if part.nodes < least:
        return (
            f"asks for {counted(least, 'node')}; in partition {part.name!r} {part.nodes} "
            f"{'matches' if part.nodes == 1 else 'match'} {_options(text)}"
        )
    return ""


def node_list_in(text: str) -> str:
    """Return the node list in a request for nodes, or in what our admin comment keeps of one."""
    found = _NODE_LIST.search(text)
    return found[1] if found else ""


def wishes_in(text: str) -> str:
    """Return what a request for nodes, or our admin comment, says of each node.

    A request has a constraint of its user's; only a second one was chosen for the job.
    """
    found = dict(WISHES.findall(text))
    if text.count("--constraint=") < 2 and not text.startswith("rtsched:"):
        found.pop("constraint", None)
    return wishes_text(found)


def with_node_list(mark: str, text: str) -> str:
    """Return an admin comment that keeps the node list of a request for nodes, and its wishes.

    ReqNodeList is set to the nodes that are planned for a job, where jobs share nodes; and squeue
    does not show how the tasks of a job lie on its nodes.
    """
    own = node_list_in(text)
    return " ".join(filter(None, (mark, f"--nodelist={own}" if own else "", wishes_in(text))))


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
    oversubscribe: bool = False
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
    own = request.per_task
    if fresh and part is not None:
        request = _with_processors_for_memory(request, part)
    more = request.per_task > own
    limit = request.limit
    if math.isnan(limit):
        limit = part.default_s if part is not None else math.inf
    fewest = -(-request.cpus // part.cores) if part is not None else 1
    least = max(request.min_nodes, fewest, 1)
    if fresh and request.needs_rtsched and part is not None and not wrong:
        whole = not shared or request.het or request.exclusive or part.exclusive
        each = per_node(request, hardware_of(facts, name, part, node_request), name, whole=whole)
        least, wrong = each.nodes, each.problem
        request = _fitted(request, each, facts, name)
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
    uneven = more and request.tasks % least != 0
    needs = Requirements(
        partition=name,
        problem=problem,
        demand=demand.amounts,
        exclusive=demand.exclusive,
        tasks_per_node=0 if uneven else demand.tasks,  # Slurm would never start it
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
            problem = needs.problem or _too_few_nodes(part, node_request, needs)
            needs = replace(needs, problem=problem)
    elif not fresh:
        needs = replace(needs, problem=problem)
    if shared and request.needs_rtsched and (request.het or request.may_not_start_yet):
        return replace(needs, exclusive=True)
    return needs


def _with_processors_for_memory(request: JobRequest, part: Partition) -> JobRequest:
    """Return a request with the processors that Slurm adds for more memory than MaxMemPerCPU.

    For memory per processor to each task, which then has less per processor; for memory per node to
    each node (`_valid_pn_min_mem` in src/slurmctld/job_mgr.c).
    """
    most, each = part.most_core_memory, request.cpu_memory
    if not most or request.shown is not None:
        return request
    if each > most:
        times = -(-each // most)
        per_task = request.per_task * times
        cpus = 0 if request.overcommit else request.tasks * per_task
        on_node = 1 if request.overcommit else max(request.tasks_per_node, 1)
        return replace(
            request,
            per_task=per_task,
            cpu_memory=-(-each // (times << 20)) << 20,
            cpus=max(request.cpus, cpus),
            each=max(request.each, on_node * per_task),
            node_cpus=max(request.node_cpus, per_task),
        )
    memory = max(part.memory, 0) if request.all_memory else request.memory
    needed = -(-memory // most)
    return replace(
        request,
        each=max(request.each, needed),
        node_cpus=max(request.node_cpus, needed),
    )


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

    These are --clusters that names this cluster alone, and where Slurm ignores them --core-spec,
    and --segment of a block of nodes.
    """
    if not request.other:
        return request
    idle = set() if facts.core_spec else {"core-spec"}
    if not facts.switches:
        idle.add("segment")
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
    if part.capped:
        return (
            f"no promise can be given in partition {part.name}: how many of its jobs may run on a "
            f"node by {part.capped} is not planned; use another one"
        )
    if request.oversubscribe and part.oversubscribes:
        return "cannot plan with cores that other jobs have too (--oversubscribe); leave it out"
    if request.all_memory and 0 < part.job_memory < part.memory:
        return (
            f"partition {part.name} lets no job have all memory of a node (--mem=0); ask for at "
            f"most {part.job_memory >> 20} MiB"
        )
    return beyond_limits(request, part, limit, least)


def beyond_limits(request: JobRequest, part: Partition, limit: float, least: int) -> str:
    """Return which limit of a partition a request exceeds; empty: none.

    `limit` is its time limit, seconds, `least` its fewest nodes.
    """
    if least < part.min_nodes or max(request.max_nodes, least) > part.max_nodes:
        most = f" to {part.max_nodes:g}" if math.isfinite(part.max_nodes) else " or more"
        fewest = max(part.min_nodes, 1)
        return f"partition {part.name} accepts jobs of {fewest}{most} nodes; see --nodes"
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
