"""The nodes that a job asks for: `--constraint`, `--nodelist` and `--exclude` as one request.

A list of more nodes than the job wants leaves the choice among them; with as many it has them all.
So both say on which nodes a job may run. A list of fewer would have it run on all of these and on
others: plans cannot say that.

Sources: manual page sbatch; `_job_create` and `_update_job` in src/slurmctld/job_mgr.c.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from rtsched.counting import counted
from rtsched.logs.hostlist import expand, fold
from rtsched.logs.node_requests import LeftOut, most_named
from rtsched.model.jobs import Kind

if TYPE_CHECKING:
    from rtsched.adapters.requirements import Requirements
    from rtsched.adapters.slurm.facts import Partition, SlurmFacts
    from rtsched.adapters.slurm.requirements import JobRequest

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
        problem = f"no node of partition {name} is as it asks for ({_options(text)})"
        if request.het:
            problem += "; each node of a heterogeneous job must be as each component asks for"
    if problem and not fresh and LeftOut.CONSTRAINT not in left_out:
        return PartitionPart(whole, text)
    return PartitionPart(whole if problem else part, text, problem)


def _text_of(name: str, request: JobRequest, nodes: int) -> str:
    """Return the options by which a request chooses nodes, and its partition; empty: by none.

    Lists are written in one way, whoever wrote them. A comma between features means `&`
    (`_feature_string2list`, src/slurmctld/job_scheduler.c).
    """
    options = {
        "constraint": request.features.replace(",", "&").replace(" ", ""),
        "nodelist": _listed(request.required, nodes),
        "exclude": _listed(request.excluded, nodes),
    }
    said = [f"--{option}={value}" for option, value in options.items() if value]
    return " ".join([*said, f"--partition={name}"]) if said else ""


def _listed(text: str, nodes: int) -> str:
    """Return a list in the one way; as it is, if it is none or names more than there are."""
    try:
        return fold(sorted(set(expand(text, most_named(text, nodes)))))
    except ValueError:
        return "".join(text.split())


def _options(text: str) -> str:
    """Return a request without the partition, cut off, for people."""
    options = text.rpartition(" --partition=")[0][:80]
    return options if options.isprintable() else repr(options)


def _unclear(request: JobRequest, left_out: tuple[LeftOut, ...]) -> str:
    """Return what is wrong with a request of which something does not count."""
    if LeftOut.NODE_LIST in left_out:
        return "its --nodelist or --exclude names nodes that this cluster does not have"
    if LeftOut.NO_FEATURES in left_out:
        return f"no node has the features {request.features[:60]!r}"
    return (
        f"cannot plan with the constraint {request.features[:60]!r}: it counts nodes, has brackets "
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
            f"asks for {counted(least, 'node')}, and partition {part.name} has {part.nodes} as it "
            f"asks for ({_options(text)})"
        )
    return ""


def node_list_in(text: str) -> str:
    """Return the node list in a request for nodes, or in what our admin comment keeps of one."""
    found = _NODE_LIST.search(text)
    return found[1] if found else ""


def with_node_list(mark: str, text: str) -> str:
    """Return an admin comment that keeps the node list of a request for nodes.

    ReqNodeList is set to the nodes that are planned for a job, where jobs share nodes.
    """
    own = node_list_in(text)
    return f"{mark} --nodelist={own}" if own else mark
