"""Arrays of a log that get one promise for all of their tasks, as from the daemon."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rtsched.model.jobs import Kind, array_width, most_together
from rtsched.model.resources import allowed_nodes, asking_for, whole_kib
from rtsched.model.snapshot import places
from rtsched.model.table import Ragged, amounts_of, offsets_of
from rtsched.text import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Edges, Jobs

    Rows = NDArray[np.int64]

_TASK = re.compile(r"[0-9][_.][0-9]+$")
"""What the name of a task ends in: `123_4`, `12.0`."""

_REQUEST = (
    *("begin", "deadline", "kind", "size", "node_count", "demand", "exclusive", "memory"),
    *("partition", "node_request", "qos", "user", "account", "nice", "array_limit", "pinned"),
)
"""What the tasks of an array must have in common."""

_ANY_NUMBER = np.iinfo(np.int32).max
"""Of tasks fit on a node where it does not matter how much it has."""

_SEVERAL = "need several nodes each"
_SEVERAL_CORES = "need several cores each, which only --unit node and --unit resources know as one"
_LICENSES = "need licences"
_DIFFER = "do not all ask for the same"
_DEPEND = "wait for others, or are waited for, one by one"
_CUT = "may have other sizes"


@dataclass(frozen=True)
class Arrays:
    """Arrays of a workload that get one promise each."""

    tasks: Ragged
    """Of each array its rows of the workload, ascending."""
    per_node: NDArray[np.int32]
    """int32[a]: how many tasks run on a node at a time."""
    most: NDArray[np.int32]
    """int32[a]: on how many nodes at most."""
    alone: bool = True
    """Whether nobody else runs on the nodes of an array meanwhile."""

    @classmethod
    def none(cls) -> Arrays:
        """Return no arrays."""
        nothing = np.zeros(0, np.int32)
        return cls(Ragged.of([], np.int64), nothing, nothing)

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return len(self.per_node) > 0

    def first(self) -> Rows:
        """Return the row of the first task of each array, which stands for it, int64[a]."""
        return np.asarray(self.tasks.values[self.tasks.offsets[:-1]], np.int64)

    def wall_time(self, jobs: Jobs) -> NDArray[np.float64]:
        """Return the requested seconds of a task of each array, the most of any, float64[a]."""
        if not self:
            return np.zeros(0)
        each = jobs.wall_time[self.tasks.values]
        return np.asarray(np.maximum.reduceat(each, self.tasks.offsets[:-1]))

    def as_asked(self, jobs: Jobs) -> Jobs:
        """Return the jobs, tasks with number and least requested time of their whole array."""
        if not self:
            return jobs
        rounds = -(-self.tasks.lengths // (self.per_node.astype(np.int64) * self.most))
        wall, ids = jobs.wall_time.copy(), jobs.id.copy()
        of, rows = self.tasks.rows(), self.tasks.values
        wall[rows] = (rounds * self.wall_time(jobs))[of]
        ids[rows] = jobs.id[self.first()][of]
        return jobs.replace(wall_time=wall, id=ids)

    def take(self, which: NDArray[np.bool_]) -> Arrays:
        """Return those for which `which`, bool[a], is true."""
        rows = np.flatnonzero(which)
        return replace(
            self, tasks=self.tasks.take(rows), per_node=self.per_node[rows], most=self.most[rows]
        )


def are_tasks(jobs: Jobs) -> NDArray[np.bool_]:
    """Return which jobs are tasks of an array, by the name of one of them, bool[n].

    Jobs of one name that run one at a time have a key in common too.
    """
    tasks, names = np.zeros(len(jobs), np.bool_), jobs.names("label")
    rows = np.flatnonzero(jobs.array >= 0)
    _, first, of = np.unique(jobs.array[rows], return_index=True, return_inverse=True)
    codes = jobs.label[rows[first]].tolist()
    named = [code >= 0 and _TASK.search(names[code]) is not None for code in codes]
    tasks[rows] = np.array(named, np.bool_)[of.ravel()]
    return tasks


def whole_arrays(
    jobs: Jobs,
    edges: Edges,
    cluster: Cluster,
    processors: NDArray[np.int32],
    unit: str,
    *,
    fills_nodes: bool,
    all_due: bool,
    notes: list[str],
) -> Arrays:
    """Return the arrays among the jobs that the daemon would answer as a whole.

    These are tasks of one array that were submitted together and ask for the same.

    Parameters
    ----------
    jobs : Jobs
        `n` jobs in order of (submit, id).
    edges : Edges
        Dependencies between them, and others.
    cluster : Cluster
        The machine.
    processors : int32[n]
        How many each asks for.
    unit : str
        What is given to one job at a time: `core`, `node` or `resources`.
    fills_nodes : bool
        Whether tasks fill whole nodes, as on Slurm; else they are spread over nodes that others
        share, as on HTCondor.
    all_due : bool
        Whether jobs get a deadline that have none; else their arrays are left out.
    notes : list of str
        Grows by what arrays stay single jobs, with counts.
    """
    tasks = _groups(jobs)
    first = tasks.values[tasks.offsets[:-1]]
    tasks = tasks.take(np.flatnonzero(np.isfinite(jobs.deadline[first]) | all_due))
    if not len(tasks.lengths):
        return Arrays.none()
    first = tasks.values[tasks.offsets[:-1]]
    asked = jobs.take(first)
    licenses = list(cluster.licenses)
    several = _SEVERAL_CORES if unit == "core" else _SEVERAL
    holds = {
        _CUT: asked.kind != Kind.RIGID,
        several: asked.size != 1,
        _LICENSES: asking_for(asked, licenses),
        _DIFFER: _differ(jobs, tasks),
        _DEPEND: _depend_by_task(jobs, tasks, edges),
    }
    whole = np.ones(len(first), np.bool_)
    for reason, mask in holds.items():
        if lost := int(np.count_nonzero(mask & whole)):
            notes.append(
                f"{counted(lost, 'array')} whose tasks {reason}: each task is a job with a promise "
                "of its own."
            )
        whole &= ~mask
    rows = np.flatnonzero(whole)
    fits, request = _fitting(asked.take(rows), cluster, processors[first[rows]], unit)
    alone = fills_nodes or not cluster.shared
    parallel = asked.array_limit[rows].tolist()
    width = np.ones((len(rows), 2), np.int32)
    for at, count in enumerate(tasks.lengths[rows].tolist()):
        sorts, nodes = fits[request[at]]
        each = most_together(sorts, nodes, None if alone else count)
        width[at] = array_width(count, each, parallel[at], int(nodes[sorts >= each].sum()))
    return Arrays(tasks.take(rows), width[:, 0].copy(), width[:, 1].copy(), alone)


def _groups(jobs: Jobs) -> Ragged:
    """Return the rows of tasks that were submitted together, several each, by the first row."""
    if not (jobs.array >= 0).any():
        return Ragged.of([], np.int64)
    rows = np.flatnonzero(are_tasks(jobs))
    rows = rows[np.lexsort((rows, jobs.submit[rows], jobs.array[rows]))]
    same = np.diff(jobs.array[rows]) == 0
    same &= np.diff(jobs.submit[rows]) == 0
    of = np.cumsum(np.concatenate([[0], ~same])) if len(rows) else rows
    groups = Ragged(offsets_of(np.bincount(of)), rows)
    several = np.flatnonzero(groups.lengths > 1)
    return groups.take(several[np.argsort(rows[groups.offsets[several]])])


def _differ(jobs: Jobs, tasks: Ragged) -> NDArray[np.bool_]:
    """Return of which arrays the tasks do not all ask for the same, bool[a]."""
    rows, first = tasks.values, tasks.values[tasks.offsets[:-1]][tasks.rows()]
    other = np.zeros(len(rows), np.bool_)
    for name in _REQUEST:
        column = jobs.column(name)
        unequal = column[rows] != column[first]
        other |= unequal.any(axis=1) if unequal.ndim > 1 else unequal
    return np.asarray(np.bincount(tasks.rows()[other], minlength=len(tasks.lengths)) > 0)


def _depend_by_task(jobs: Jobs, tasks: Ragged, edges: Edges) -> NDArray[np.bool_]:
    """Return of which arrays single tasks wait for others or are waited for, bool[a].

    So it is where a job waits for all to have started: they do so in rounds, one job at once.
    """
    found = np.zeros(len(tasks.lengths), np.bool_)
    if not len(edges):
        return found
    array_of = np.full(len(jobs), -1)
    array_of[tasks.values] = tasks.rows()

    def arrays_of(ids: Rows) -> Rows:
        row, known = places(jobs.id, ids)
        return np.where(known, array_of[row], -1)

    before = arrays_of(edges.before[~edges.whole_array])
    found[before[before >= 0]] = True
    begun = edges.before[edges.whole_array & edges.at_start]
    found |= np.isin(jobs.array[tasks.values[tasks.offsets[:-1]]], begun)
    after = arrays_of(edges.after)
    waits = np.flatnonzero(after >= 0)
    table = [after, edges.before, edges.at_start, edges.whole_array]
    alike, count = np.unique(
        np.column_stack([column[waits] for column in table]), axis=0, return_counts=True
    )
    found[alike[count != tasks.lengths[alike[:, 0]], 0]] = True
    return found


def _fitting(
    tasks: Jobs, cluster: Cluster, processors: NDArray[np.int32], unit: str
) -> tuple[list[tuple[Rows, Rows]], Rows]:
    """Return for each different request how many tasks nodes take, and the number of such nodes.

    Nodes that take none are left out. The second array tells the request of each job.
    """
    code, masks = allowed_nodes(tasks, cluster)
    nodes, usable = cluster.nodes, cluster.usable
    demand = amounts_of(tasks, "demand", nodes.names("capacity"))
    each = processors if unit == "node" else np.zeros(len(tasks), np.int32)
    keys = np.column_stack([demand, code, tasks.pinned, tasks.exclusive, each, tasks.memory])
    distinct, request = np.unique(keys, axis=0, return_inverse=True)
    found = []
    for *asked, which, pinned, alone, cores, memory in distinct.tolist():
        room = usable & masks[which] if which >= 0 else usable
        room = room & (np.arange(len(cluster)) == pinned) if pinned >= 0 else room
        most = np.full(len(cluster), _ANY_NUMBER)
        for amount, has in zip(asked, nodes.capacity.T, strict=True):
            most = np.minimum(most, has // amount) if amount > 0 else most
        if cores > 0:
            most = np.maximum(nodes.cores // cores, 1)
            if memory > 0 and (nodes.memory > 0).all():  # `memory` is that of a whole node
                share = np.int64(memory * cores) // np.maximum(nodes.cores, 1)
                own = np.maximum(whole_kib(share), 1)
                most = np.minimum(most, np.maximum(nodes.memory // own, 1))
        if alone or unit == "core":
            most = np.minimum(most, 1)
        found.append(np.unique(most[room & (most > 0)], return_counts=True))
    return found, request.ravel()
