"""The nodes that a job asks for: `--constraint`, `--nodelist` and `--exclude` as one request.

A list of more nodes than the job wants leaves the choice among them; with as many it has them all.
So both say on which nodes a job may run. A list of fewer would have it run on all of these and on
others: plans cannot say that.

Sources: manual page sbatch; `_job_create` and `_update_job` in src/slurmctld/job_mgr.c.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.adapters.requirements import readable
from rtsched.adapters.slurm.per_node import WISHES, wishes_text
from rtsched.logs.hostlist import expand, fold
from rtsched.logs.node_requests import Hardware, LeftOut, most_named
from rtsched.model.jobs import Kind
from rtsched.model.resources import GRES
from rtsched.text import counted

if TYPE_CHECKING:
    from rtsched.adapters.requirements import Requirements
    from rtsched.adapters.slurm.facts import Partition, SlurmFacts
    from rtsched.adapters.slurm.per_node import PerNode
    from rtsched.adapters.slurm.requirements import JobRequest

_BRACKETS = re.compile(r"\[((?:[^\[\]()*&]|\([^\[\]()*]*\))+)\]")
"""One of several features, the same on all nodes of a job."""
_COUNT = re.compile(r"\*\d+")
_FEATURE = re.compile(r"[^&|,()\[\]]+")
_NESTED = re.compile(r"\([^()]*[(\[]|\[.*\[")
"""What Slurm cannot read: see `_feature_string2list` in src/slurmctld/job_scheduler.c."""
_NODE_LIST = re.compile(r"(?:^|\s)--nodelist=(\S+)")


class PartitionPart(NamedTuple):
    """The nodes of a partition that a job may use; `problem`: why nothing can be planned there.

    `request` as in `Jobs.node_request`, empty: it may use all nodes of `partition`, which is None
    where there is none.
    """

    partition: Partition | None
    request: str = ""
    problem: str = ""


def part_of(name: str, request: JobRequest, facts: SlurmFacts, *, fresh: bool) -> PartitionPart:
    """Return the nodes of partition `name` that a request may use.

    `fresh`: nothing was promised to it yet. What was promised once stays so when no node is as it
    asks for any more.
    """
    whole = facts.partitions.get(name)
    text = _text_of(name, request, facts.parts.nodes if facts.parts is not None else 0)
    if not text or whole is None or not request.needs_rtsched:
        return PartitionPart(whole)
    if facts.parts is None:
        return PartitionPart(whole, text, "the nodes of the cluster are not known yet")
    part, left_out = facts.parts.asked(name, text)
    problem = _unclear(request, left_out) if left_out else ""
    if not problem and not part.nodes:
        problem = f"no node in partition {name!r} matches {_options(text)}"
        if request.het:
            problem += "; each node of a heterogeneous job must be as each component asks for"
    if problem and not fresh and LeftOut.CONSTRAINT not in left_out:
        return PartitionPart(whole, text)
    return PartitionPart(whole if problem else part, text, problem)


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
    cpus, threads, sockets = (np.array([n], np.int64) for n in (part.cores, part.threads, 1))
    memory = np.array([part.memory if part.memory > 0 else 1 << 62], np.int64)
    names = {name for node, _ in part.hardware for name in node if name.startswith(GRES)}
    gres = {name: np.array([part.most(name)], np.int64) for name in names}
    return Hardware(cpus, threads, sockets, memory, np.zeros(1, np.int64), gres)


def fitted(request: JobRequest, each: PerNode, facts: SlurmFacts, name: str) -> JobRequest:
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
    text = constraint_of(request.features, brackets=True)
    found: list[tuple[int, int, str]] = []
    bracket = _BRACKETS.search(text)
    for one in bracket[1].split("|") if bracket else ():
        chosen = constraint_of(_BRACKETS.sub(f"({one})", text, count=1))
        nodes = 0
        if facts.parts is not None:
            nodes = facts.parts.asked(name, f"--constraint={chosen} --partition={name}")[0].nodes
        found.append((-nodes, len(found), chosen))
    return min(found)[2]


def constraint_of(features: str, *, brackets: bool = False) -> str:
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
        "constraint": constraint_of(request.features),
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


def too_few_nodes(part: Partition, text: str, needs: Requirements) -> str:
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
