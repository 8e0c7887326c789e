"""Heterogeneous jobs of a log: components that ask for alike nodes become one job.

All components start together, so the job is as one that asks for the nodes of all of them, each
component on nodes of its own. It holds them until its last component ends.

References
----------
Slurm's manual, "Heterogeneous Job Support".
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rtsched.counting import counted
from rtsched.model.jobs import Edges, Kind
from rtsched.model.resources import LICENSE, allowed_nodes, fitting_nodes
from rtsched.model.snapshot import places
from rtsched.model.table import encode
from rtsched.replay.gathering import gathered
from rtsched.replay.normalise import run_times, sizes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Jobs
    from rtsched.model.log import Log, Outcomes


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
        demand = _demand(jobs, np.maximum(size, 1), together)
        columns["demand"] = np.where(several[:, None], demand, jobs.demand[first])
    kept = gathered(jobs, first, columns)
    labels, names = kept.label.copy(), list(jobs.names("label"))
    for row in np.flatnonzero(several & (labels >= 0)).tolist():
        names.append(names[labels[row]].partition("+")[0])
        labels[row] = len(names) - 1
    return kept.replace_text("label", labels, names)


def _total(together: Together, values: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the sum per job of what is known of all its rows, else -1."""
    known = together.fold(np.minimum, values) > 0
    return np.where(known, together.fold(np.add, values), -1)


def _demand(jobs: Jobs, size: NDArray[np.int32], together: Together) -> NDArray[np.int64]:
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
    kept = gathered(outcomes, together.first, columns)
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
    return gathered(edges, once, {"before": before[once], "after": after[once]})
