"""Records of a log that can be replayed, in their order and unit.

The rules are those of the Parallel Workloads Archive's users: jobs that ran, on at least one and
at most all processors; requested size, else the allocated one; requested time no less than the run
time; in order of (submission, job number).

Where nodes are shared, each job takes amounts of resources on each of its nodes. The nodes that
jobs ask for, by features, names and partitions, become node sets of the machine. Components of a
heterogeneous job that ask for alike nodes become one job: all start together, so it is as one that
asks for the nodes of all of them, each component on nodes of its own, and holds them until its last
component ends.

References
----------
Slurm's manual, "Heterogeneous Job Support".
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rtsched.errors import ConfigError
from rtsched.logs.node_requests import LeftOut, RequestedNodes
from rtsched.model.jobs import Edges, Kind
from rtsched.model.log import Ending
from rtsched.model.resources import (
    CPU,
    DISK,
    GRES,
    LICENSE,
    MEMORY,
    allowed_nodes,
    fitting_nodes,
    whole_kib,
)
from rtsched.model.snapshot import places
from rtsched.model.table import Ragged, amounts_of, encode, offsets_of
from rtsched.replay.machine import by_core, by_node, by_resources, cores_per_node
from rtsched.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Jobs
    from rtsched.model.log import Log, Outcomes, Skipped

    Rows = NDArray[np.int64] | None  # None: all rows, as they stand

    Mask = NDArray[np.bool_]


def in_units(
    log: Log, unit: str, machine: Cluster | None, notes: list[str]
) -> tuple[Log, Cluster | None]:
    """Return log and machine in the same unit, noting what was assumed.

    Raises
    ------
    ConfigError
        If jobs are to share nodes of a machine that is not known.
    """
    if unit == "resources":
        return shared_nodes(log, machine, notes)
    if len(log.jobs.names("demand")):
        log = replace(log, jobs=log.jobs.replace(demand=None))
    if machine is None:
        if unit == "node":
            notes.append(
                "Neither log nor options say how many cores a node has: a processor of the log "
                "counts as a node."
            )
        return log, None
    if unit == "core":
        cores = by_core(machine)
        if len(cores) != len(machine):
            notes.append(
                f"Jobs share nodes: {len(machine)} nodes are taken as {len(cores)} single cores."
            )
            if machine.topology.shape or len(machine.topology.link):
                notes.append("The links between nodes are left out: a core has none of its own.")
        return log, cores
    machine = by_node(machine)
    each = cores_per_node(machine)
    if each == 1:
        return log, machine
    notes.append(f"Jobs have nodes to themselves: every {each} processors asked for are one node.")
    sizes = {
        name: np.where(values > 0, -(-values // each), values)
        for name in ("size", "size_min", "size_max")
        if len(values := log.jobs.column(name)) and values.strides != (0,)
    }
    memory = log.jobs.memory
    if (memory >= 0).any():
        sizes["memory"] = np.where(memory >= 0, memory * each, -1)
    jobs = log.jobs.replace(**sizes)
    outcomes = log.outcomes.replace(size=-(-log.outcomes.size // each))
    return replace(log, jobs=jobs, outcomes=outcomes), machine


def run_times(outcomes: Outcomes) -> NDArray[np.float64]:
    """Return how long each job ran, by the log or by its start and end; nan: unknown."""
    missing = np.isnan(outcomes.run_time)
    if not missing.any():
        return outcomes.run_time
    return np.where(missing, outcomes.end - outcomes.start, outcomes.run_time)


def ended(outcomes: Outcomes) -> Outcomes:
    """Return the outcomes in which jobs that still ran when the log was written end then."""
    running = outcomes.ending == Ending.RUNNING
    if not running.any():
        return outcomes
    end = np.where(running, outcomes.start + run_times(outcomes), outcomes.end)
    return outcomes.replace(end=end)


def sizes(jobs: Jobs, outcomes: Outcomes) -> NDArray[np.int32]:
    """Return the units each job asked for, else those it was given."""
    if (jobs.size > 0).all():
        return jobs.size
    return np.where(jobs.size > 0, jobs.size, outcomes.size)


def _flaws(
    jobs: Jobs, outcomes: Outcomes, max_size: int | NDArray[np.int32]
) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yield each reason for which a job cannot be replayed, and the jobs it holds for."""
    run, start = run_times(outcomes), outcomes.start
    yield "its submit time is missing or negative", ~((jobs.submit >= 0) & (jobs.submit < np.inf))
    yield "it had not started when the log was written", outcomes.ending == Ending.PENDING
    yield "it starts before it is submitted", start < jobs.submit
    yield "it ends before it starts", (outcomes.end < start) | (run < 0)
    unknown = np.isnan(run)
    gone = (run == 0) & np.isfinite(outcomes.end)  # cancelled while it waited
    yield "it never started", np.isnan(start) & (unknown | gone)
    if unknown.any():
        yield "how long it ran is not known", unknown
    yield "it ran for no time", run == 0
    yield "its run time is infinite", np.isinf(run)
    size = sizes(jobs, outcomes)
    yield "it asks for no processors", size <= 0
    if isinstance(max_size, int):
        yield "it asks for more processors than the machine has", size > max_size
    else:
        yield "too few nodes have what it asks for", size > max_size


def replayable(
    log: Log,
    max_size: int | NDArray[np.int32],
    skipped: Skipped,
    others: Mapping[str, NDArray[np.bool_]] | None = None,
) -> Rows:
    """Return the rows of jobs that can be replayed; the others are counted in `skipped`.

    Parameters
    ----------
    log : Log
        As read.
    max_size : int or int32[n]
        Units that the machine has; or on how many nodes each job fits.
    skipped : Skipped
        Grows.
    others : mapping of str to bool[n]
        Jobs to leave out besides, by reason.
    """
    jobs, keep = log.jobs, None
    for reason, fails in chain(_flaws(jobs, log.outcomes, max_size), (others or {}).items()):
        if not fails.any():
            continue
        if keep is None:
            keep = np.ones(len(jobs), np.bool_)
        lost = np.flatnonzero(fails & keep)
        if len(lost):
            skipped.add(reason, f"job {_label(jobs, int(lost[0]))}", len(lost))
            keep[lost] = False
    return None if keep is None else np.flatnonzero(keep)


def _label(jobs: Jobs, row: int) -> str:
    code = int(jobs.label[row])
    return jobs.names("label")[code] if code >= 0 else str(int(jobs.id[row]))


def ordered(jobs: Jobs, rows: Rows) -> Rows:
    """Return `rows` in order of (submit, id)."""
    submit = jobs.submit if rows is None else jobs.submit[rows]
    ids = jobs.id if rows is None else jobs.id[rows]
    in_order = submit[1:] > submit[:-1]
    if not in_order.all():
        in_order |= (submit[1:] == submit[:-1]) & (ids[1:] >= ids[:-1])
    if in_order.all():
        return rows
    order = np.lexsort((ids, submit))
    return order if rows is None else rows[order]


def filled(
    jobs: Jobs,
    rows: Rows,
    size: NDArray[np.int32],
    run_time: NDArray[np.float64],
    notes: list[str],
    *,
    assume_requested: bool = True,
) -> Jobs:
    """Return the jobs of `rows` with sizes, requested times and unique ids, noting assumptions.

    Parameters
    ----------
    jobs : Jobs
        As read.
    rows : int64[k] or None
        Which, in order.
    size : int32[n]
        See `sizes`.
    run_time : float64[k]
        Seconds each ran.
    notes : list of str
        Grows.
    assume_requested : bool
        Whether a job without a requested time counts as if it had requested its run time; else it
        has no limit.
    """
    new: dict[str, Any] = {}
    if size is not jobs.size:
        new["size"] = size if rows is None else size[rows]
    wall = jobs.wall_time if rows is None else jobs.wall_time[rows]
    known = np.isfinite(wall) & (wall > 0)
    short = wall < run_time
    unknown, exceeded = int((~known).sum()), int((known & short).sum())
    if unknown:
        then = (
            "their run time is used" if assume_requested else "they count as jobs without a limit"
        )
        notes.append(f"{unknown:,} of {len(wall):,} jobs had no requested time; {then}.")
    if exceeded:
        notes.append(
            f"{exceeded:,} of {len(wall):,} jobs ran longer than requested; their run time counts "
            "as requested."
        )
    if unknown == len(wall) and assume_requested:
        new["wall_time"] = run_time
    elif unknown or exceeded:
        missing = run_time if assume_requested else np.inf
        new["wall_time"] = np.where(known, np.where(short, run_time, wall), missing)
    kept = jobs if rows is None else jobs.take(rows)
    return _with_unique_ids(kept.replace(**new), notes)


def _with_unique_ids(jobs: Jobs, notes: list[str]) -> Jobs:
    """Return the jobs with unique ids: the first of each keeps its own, labels stay."""
    ids = jobs.id
    if (ids[1:] > ids[:-1]).all():
        return jobs
    order = np.argsort(ids, kind="stable")
    again = np.sort(order[1:][ids[order[1:]] == ids[order[:-1]]])
    if not len(again):
        return jobs
    notes.append(f"{len(again)} jobs have the number of another job and got a new one.")
    fresh = ids.copy()
    fresh[again] = max(int(ids.max()), 0) + 1 + np.arange(len(again))
    labels, names = jobs.label.copy(), list(jobs.names("label"))
    for row in again[labels[again] < 0].tolist():
        labels[row] = len(names)
        names.append(str(int(ids[row])))
    return jobs.replace({"label": names}, id=fresh, label=labels)


_UNKNOWN_LICENSES = (
    "how many there are is not known; append the output of `scontrol show licenses` to the file of "
    "--cluster"
)


def shared_nodes(log: Log, machine: Cluster | None, notes: list[str]) -> tuple[Log, Cluster]:
    """Return a log whose sizes count nodes, with demands, and the machine with its capacities.

    Parameters
    ----------
    log : Log
        As read; sizes count processors.
    machine : Cluster or None
        The machine.
    notes : list of str
        Grows by what had to be assumed.

    Raises
    ------
    ConfigError
        If the machine is not known.
    """
    if machine is None:
        raise ConfigError(
            [
                "workload.unit: 'resources' needs to know what each node has; give --cluster with "
                "the output of `scontrol show nodes` or `condor_status -long`"
            ]
        )
    machine = by_resources(machine)
    jobs = log.jobs
    each = cores_per_node(machine)
    nodes = np.where(jobs.node_count > 0, jobs.node_count, -(-np.maximum(jobs.size, 0) // each))
    nodes = nodes.astype(np.int32)
    resources = _counted(jobs, machine, notes)
    demand = _demand(jobs, nodes, resources, notes)
    moldable = int((jobs.kind == Kind.MOLDABLE).sum())
    if moldable:
        notes.append(
            f"{counted(moldable, 'job')} that may have fewer or more nodes: the number asked for."
        )
    shared = jobs.replace(
        {"demand": resources},
        size=nodes,
        size_min=None,
        size_max=None,
        cores=jobs.size,
        memory=None,
        demand=demand,
        kind=np.where(jobs.kind == Kind.MOLDABLE, np.int8(Kind.RIGID), jobs.kind),
    )
    given = np.where(log.outcomes.size > 0, nodes, np.int32(0))
    outcomes = log.outcomes.replace(size=given)
    notes.append(
        f"Jobs share {counted(len(machine), 'node')}: each takes what it asks for of "
        f"{', '.join(resources)}."
    )
    return replace(log, jobs=shared, outcomes=outcomes), machine


def _counted(jobs: Jobs, machine: Cluster, notes: list[str]) -> tuple[str, ...]:
    """Return the resources that count: those of nodes, licences, and GRES that no node has."""
    resources = (*machine.nodes.names("capacity"), *machine.licenses)
    asked = jobs.names("demand")
    for at, name in enumerate(asked):
        n = int((jobs.demand[:, at] > 0).sum()) if name not in resources else 0
        if n and not name.startswith(GRES):
            what = "every node's is not known" if name in {MEMORY, DISK} else "no node has it"
            what = _UNKNOWN_LICENSES if name.startswith(LICENSE) else what
            notes.append(f"{name} is not modelled ({counted(n, 'job')}): {what}.")
    others = (name for name in asked if name.startswith(GRES) and name not in resources)
    return (*resources, *others)


def _demand(
    jobs: Jobs, nodes: NDArray[np.int32], resources: tuple[str, ...], notes: list[str]
) -> NDArray[np.int64]:
    """Return what each job takes on each of its nodes, int64[n, r]."""
    demand = amounts_of(jobs, "demand", resources).copy()
    cores = resources.index(CPU) if CPU in resources else -1
    unknown = demand[:, cores] <= 0 if cores >= 0 else np.zeros(len(jobs), np.bool_)
    if not unknown.any():
        return demand
    width = np.maximum(nodes, 1)
    demand[:, cores] = np.where(unknown, -(-np.maximum(jobs.size, 0) // width), demand[:, cores])
    if MEMORY in resources:
        at = resources.index(MEMORY)
        each = whole_kib(np.maximum(jobs.memory, 0) * demand[:, cores])
        demand[:, at] = np.where(unknown & (demand[:, at] <= 0), each, demand[:, at])
    notes.append(
        f"{counted(int(unknown.sum()), 'job')} of which the log has no ReqTRES: processors and "
        "memory are divided evenly among the nodes."
    )
    return demand


def with_node_requests(
    log: Log, machine: Cluster, size: NDArray[np.int32], notes: list[str]
) -> tuple[Log, Cluster]:
    """Return the log with the requests that are replayed, and the machine with their node sets.

    Parameters
    ----------
    log : Log
        As read, in the machine's unit; each `node_request` holds options of sbatch.
    machine : Cluster
        With the features of its nodes.
    size : int32[n]
        Units that each job has.
    notes : list of str
        Grows by what is replayed, and by what is not, with counts.
    """
    jobs = log.jobs
    texts = jobs.names("node_request")
    asking = np.flatnonzero(jobs.node_request >= 0)
    if not len(asking):
        return log, machine
    single = size == 1
    keys = [column[asking] for column in (jobs.node_request, jobs.partition, single)]
    kinds, of = np.unique(np.column_stack(keys), axis=0, return_inverse=True)
    alike = Ragged(offsets_of(np.bincount(of.ravel())), asking[np.argsort(of.ravel())])
    nodes = RequestedNodes(machine.nodes, machine.partitions)
    counts = Counter[str]()
    sets: dict[str, Mask] = {}
    code = np.full(len(jobs), -1, np.int32)
    code_of: dict[bytes, int] = {}
    partitions = (*jobs.names("partition"), "")
    for at, (request, partition, alone) in enumerate(kinds.tolist()):
        rows = alike.row(at)
        own = machine.partitions.get(partitions[partition])
        mask, left_out = nodes.meant(texts[request], own, single=bool(alone))
        counts.update({_SENTENCES[some]: len(rows) for some in left_out})
        enough = size[rows] <= (mask & machine.usable).sum()
        counts[_TOO_FEW] += int((~enough).sum())
        if enough.any() and (~mask if own is None else mask != own).any():
            key = np.packbits(mask).tobytes()
            code[rows[enough]] = code_of.setdefault(key, len(sets))
            if len(code_of) > len(sets):
                where = f" ({partitions[partition]})" if partition >= 0 else ""
                sets[f"{texts[request]}{where}{', one node' if alone else ''}"] = mask
    replayed = int((code >= 0).sum())
    if replayed:
        notes.append(
            f"{counted(replayed, 'job')} with a --constraint, --nodelist, --exclude or several "
            "partitions: they run on such nodes only (planners may ignore that; machine 'sliced' "
            "does)."
        )
    notes += [f"{counted(n, 'job')} {sentence}." for sentence, n in counts.items() if n]
    jobs = jobs.replace({"node_request": tuple(sets)}, node_request=code if sets else None)
    return replace(log, jobs=jobs), replace(machine, node_sets=sets)


_TOO_FEW = "with a request for nodes that too few of the machine meet: it is not replayed"
_SENTENCES = {
    LeftOut.NO_FEATURES: (
        "with a --constraint, of a machine whose features are not known: it is not replayed"
    ),
    LeftOut.CONSTRAINT: (
        "with a --constraint that counts nodes or has brackets, or cannot be read: it is not "
        "replayed"
    ),
    LeftOut.NODE_LIST: (
        "with a --nodelist or --exclude that is no list of the machine's nodes: it is not replayed"
    ),
    LeftOut.PARTITIONS: (
        "of more than one node or processor, with several partitions: the one "
        "that the log ends with counts"
    ),
}


class Together(NamedTuple):
    """Which of `n` rows of a log become one job, `k` jobs in all."""

    order: NDArray[np.int64]
    """int64[n]: the rows, those of one job one after the other."""
    begin: NDArray[np.int64]
    """int64[k]: where in `order` each job's rows begin."""
    apart: NDArray[np.bool_]
    """bool[k]: which jobs are components that start by themselves."""

    @property
    def first(self) -> NDArray[np.int64]:
        """Return int64[k]: the first row of each job."""
        return self.order[self.begin]

    @property
    def rows(self) -> NDArray[np.int64]:
        """Return int64[k]: how many rows each job has."""
        return np.diff(self.begin, append=len(self.order))

    def fold(self, how: np.ufunc, values: NDArray[Any]) -> NDArray[Any]:
        """Return one value per job, such as the sum or the greatest of its rows'."""
        folded: NDArray[Any] = how.reduceat(values[self.order], self.begin)
        return folded


def alike_components(log: Log, machine: Cluster, notes: list[str]) -> Together | None:
    """Return which components of heterogeneous jobs become one job; None: there are none.

    They must ask for the same nodes and for the same on each node, and there must be nodes enough
    for all of them.

    Parameters
    ----------
    log : Log
        In the machine's unit; sizes and demands are known, and so are the nodes asked for.
    machine : Cluster
        The machine.
    notes : list of str
        Grows by what is replayed, and by what is not, with counts.
    """
    jobs = log.jobs
    parts = np.flatnonzero(jobs.het_job >= 0)
    if not len(parts):
        return None
    _, at, of = np.unique(jobs.het_job[parts], return_index=True, return_inverse=True)
    form = _form(jobs.take(parts), machine)
    differs = np.bincount(of, (form != form[at[of]]).any(axis=1)) > 0
    size = sizes(jobs, log.outcomes)[parts]
    room = fitting_nodes(jobs.take(parts[at]), machine, machine.usable)
    several = np.bincount(of) > 1  # others are alone in the log
    apart = several & (differs | (np.bincount(of, size) > room))
    joins = ~apart[of]
    owner = np.arange(len(jobs))
    owner[parts[joins]] = parts[at][of[joins]]
    join = several & ~apart
    if join.any():
        notes.append(
            f"{counted(int(join.sum()), 'heterogeneous job')} of {int(join[of].sum())} components "
            "in all: the components start together, and hold their nodes until the last one ends."
        )
    if apart.any():
        notes.append(
            f"{counted(int((~joins).sum()), 'component')} of "
            f"{counted(int(apart.sum()), 'heterogeneous job')}: each starts by itself, as they ask "
            "for different nodes, or in all for more than there are."
        )
    order = np.argsort(owner, kind="stable")
    begin = np.flatnonzero(np.diff(owner[order], prepend=-1))
    return Together(order, begin, np.isin(order[begin], parts[~joins]))


def _form(jobs: Jobs, machine: Cluster) -> NDArray[np.int64]:
    """Return what must be the same in all components, int64[n, k]; of licences any number may."""
    names = jobs.names("demand")
    on_nodes = [at for at, name in enumerate(names) if not name.startswith(LICENSE)]
    code, masks = allowed_nodes(jobs, machine)
    first: dict[bytes, int] = {}
    same = [first.setdefault(mask.tobytes(), at) for at, mask in enumerate(masks)]
    code = np.array([*same, -1])[code]
    return np.column_stack(
        [code, jobs.exclusive & machine.shared, jobs.demand[:, on_nodes]]
    ).astype(np.int64)


def joined(log: Log, together: Together) -> Log:
    """Return the log with one row per job.

    Parameters
    ----------
    log : Log
        With `n` jobs, in any unit.
    together : Together
        Which of them become one.
    """
    several = together.rows > 1
    return replace(
        log,
        jobs=_jobs(log, together, several),
        outcomes=_outcomes(log.outcomes, together, several),
        edges=_edges(log.edges, log.jobs.id, together),
    )


def _jobs(log: Log, together: Together, several: NDArray[np.bool_]) -> Jobs:
    """Return the jobs; those of several rows ask for what all components ask for."""
    jobs, first = log.jobs, together.first
    size, fold = sizes(jobs, log.outcomes), together.fold
    merged: dict[str, Any] = {
        "submit": fold(np.minimum, jobs.submit),
        "begin": fold(np.maximum, jobs.begin),
        "wall_time": fold(np.maximum, jobs.wall_time),
        "deadline": fold(np.minimum, jobs.deadline),
        "kind": np.int8(Kind.RIGID),
        "size": fold(np.add, size),
        "size_min": np.int32(-1),
        "size_max": np.int32(-1),
        "node_count": _total(together, jobs.node_count),
        "cores": _total(together, jobs.cores),
        "memory": fold(np.maximum, jobs.memory),
    }
    columns = {
        name: np.where(several, values, jobs.column(name)[first]) for name, values in merged.items()
    }
    columns["het_job"] = np.where(together.apart, jobs.het_job[first], -1)
    if jobs.names("demand"):
        demand = _amounts_of_components(jobs, np.maximum(size, 1), together)
        columns["demand"] = np.where(several[:, None], demand, jobs.demand[first])
    kept = jobs.take(first).replace(**columns)
    labels, names = kept.label.copy(), list(jobs.names("label"))
    for row in np.flatnonzero(several & (labels >= 0)).tolist():
        names.append(names[labels[row]].partition("+")[0])
        labels[row] = len(names) - 1
    return kept.replace_text("label", labels, names)


def _total(together: Together, values: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the sum per job of what is known of all its rows, else -1."""
    known = together.fold(np.minimum, values) > 0
    return np.where(known, together.fold(np.add, values), -1)


def _amounts_of_components(
    jobs: Jobs, size: NDArray[np.int32], together: Together
) -> NDArray[np.int64]:
    """Return what jobs take on each node: of what all components take, rounded up.

    Licences are taken once, those of all components together.
    """
    of_nodes = np.array([not name.startswith(LICENSE) for name in jobs.names("demand")])
    count = np.where(jobs.node_count > 0, jobs.node_count, size).astype(np.int64)[:, None]
    total = together.fold(np.add, jobs.demand * np.where(of_nodes, count, 1))
    return -(-total // np.where(of_nodes, together.fold(np.add, count), 1))


def _outcomes(outcomes: Outcomes, together: Together, several: NDArray[np.bool_]) -> Outcomes:
    """Return what became of each job; of several endings the one of the highest code counts."""
    columns: dict[str, Any] = {
        "start": together.fold(np.fmin, outcomes.start),
        "end": together.fold(np.fmax, outcomes.end),
        "run_time": together.fold(np.fmax, run_times(outcomes)),
        "size": together.fold(np.add, outcomes.size),
        "ending": together.fold(np.maximum, outcomes.ending),
        "restarts": together.fold(np.maximum, outcomes.restarts),
    }
    kept = outcomes.take(together.first).replace(**columns)
    if not outcomes.names("nodes"):
        return kept
    lists, texts = outcomes.texts("nodes"), kept.texts("nodes")
    end = together.begin + together.rows
    for row in np.flatnonzero(several).tolist():
        parts = [lists[i] for i in together.order[together.begin[row] : end[row]].tolist()]
        texts[row] = ",".join(part for part in parts if part is not None) or None
    return kept.replace_text("nodes", *encode(texts))


def _edges(edges: Edges, ids: NDArray[np.int64], together: Together) -> Edges:
    """Return the dependencies between jobs, each once; within a job there are none."""
    if not len(edges):
        return edges
    ids, owner = ids[together.order], np.repeat(ids[together.first], together.rows)
    at, known = places(ids, edges.before)
    before = np.where(known & ~edges.whole_array, owner[at], edges.before)
    at, known = places(ids, edges.after)
    after = np.where(known, owner[at], edges.after)
    keys = np.column_stack([before, after, edges.at_start, edges.whole_array])
    once = np.sort(np.unique(keys, axis=0, return_index=True)[1])
    once = once[(before != after)[once] | edges.whole_array[once]]
    return edges.take(once).replace(before=before[once], after=after[once])
