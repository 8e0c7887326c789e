"""Gates: jobs of the exclusive machine that wait for others, and when they are let go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels import machine as kernel
from rtsched.kernels.machine_gates import ARRAY, DEPENDENT, GATE
from rtsched.model.table import Ragged, offsets_of
from rtsched.simulator.system import RowsById

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.jobs import Edges, Jobs

    Rows = NDArray[np.int64]


def with_gates(machine: kernel.MachineState, jobs: Jobs, edges: Edges) -> kernel.MachineState:
    """Return the machine with the gates of the jobs that wait for others.

    Parameters
    ----------
    machine : MachineState
        As laid out for `jobs`.
    jobs : Jobs
        `n` rows in order of (submit, id), with `array` and `array_limit`.
    edges : Edges
        Dependencies; those of or on other jobs are left out. So is one on a job that stands
        behind, for no jobs to wait for each other.
    """
    before, after, at_start = _links(jobs, edges)
    tasks, arrays, array_of, place = _arrays(jobs)
    if not len(after) and not len(tasks):
        return machine
    n = len(jobs)
    rows = max(n, int(before.max(initial=-1)) + 1)
    gates = np.zeros(rows, GATE)
    gates["missing"] = np.bincount(after, minlength=rows)
    gates["array"] = -1
    gates["array"][tasks], gates["place"][tasks] = array_of, place
    order = np.argsort(before, kind="stable")
    dependents = np.zeros(max(len(order), 1), DEPENDENT)
    dependents["row"][: len(order)] = after[order]
    dependents["at_start"][: len(order)] = at_start[order]
    machine.state[0].gated = 1
    return machine._replace(
        gates=gates,
        dependent_of=offsets_of(np.bincount(before, minlength=rows)),
        dependents=dependents,
        arrays=arrays,
        tasks=tasks if len(tasks) else machine.tasks,
        opened=np.zeros(2 * n + 2, np.int64),
        dependent_rows=np.union1d(after[after < n], tasks),
    )


def _links(jobs: Jobs, edges: Edges) -> tuple[Rows, Rows, NDArray[np.bool_]]:
    """Return the rows of those that others wait for and of those that wait, and how.

    For an array the tasks stand before a row behind the jobs, and this stands before who waits.
    """
    if not len(edges):
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.bool_)
    place = RowsById(jobs.id)
    edges = edges.take(np.flatnonzero(np.isin(edges.after, jobs.id)))
    single = edges.take(np.flatnonzero(~edges.whole_array & np.isin(edges.before, jobs.id)))
    before, after = place.find(single.before), place.find(single.after)
    good = before < after
    parts = [(before[good], after[good], single.at_start[good])]
    whole = edges.take(np.flatnonzero(edges.whole_array & np.isin(edges.before, jobs.array)))
    if len(whole):
        keys = np.column_stack([whole.before, whole.at_start])
        kinds, of = np.unique(keys, axis=0, return_inverse=True)
        behind = Ragged(
            offsets_of(np.bincount(of.ravel())),
            place.find(whole.after)[np.argsort(of.ravel(), kind="stable")],
        )
        order = np.argsort(jobs.array, kind="stable")
        first, last = (
            np.searchsorted(jobs.array, kinds[:, 0], side, sorter=order)
            for side in ("left", "right")
        )
        for at, at_start in enumerate(kinds[:, 1].tolist()):
            tasks, mine = order[first[at] : last[at]], behind.row(at)
            mine = mine[mine > tasks[-1]]
            row = np.int64(len(jobs) + at)
            parts.append((tasks, np.full(len(tasks), row), np.full(len(tasks), at_start > 0)))
            parts.append((np.full(len(mine), row), mine, np.zeros(len(mine), np.bool_)))
    table = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
    return table[0], table[1], table[2]


def _arrays(jobs: Jobs) -> tuple[Rows, NDArray[np.void], NDArray[np.int32], Rows]:
    """Return the tasks of arrays with a limit, the arrays, and of each task its array and place."""
    limited = np.flatnonzero((jobs.array >= 0) & (jobs.array_limit > 0))
    if not len(limited):
        return _arrays_without_limit()
    tasks = limited[np.argsort(jobs.array[limited], kind="stable")]
    _, first, array_of, count = np.unique(
        jobs.array[tasks], return_index=True, return_inverse=True, return_counts=True
    )
    if (count <= jobs.array_limit[tasks[first]]).all():
        return _arrays_without_limit()
    arrays = np.zeros(len(first), ARRAY)
    arrays["next"] = arrays["last"] = first + count
    arrays["limit"] = jobs.array_limit[tasks[first]]
    return tasks, arrays, array_of.astype(np.int32), np.arange(len(tasks))


def _arrays_without_limit() -> tuple[Rows, NDArray[np.void], NDArray[np.int32], Rows]:
    nothing = np.zeros(0, np.int64)
    return nothing, np.zeros(1, ARRAY), nothing.astype(np.int32), nothing


def open_stuck_gates(machine: kernel.MachineState) -> bool:
    """Free the jobs that wait for jobs which never start, when nothing else happens any more.

    Return whether there are any. Those that wait for other waiting jobs only stay.
    """
    state = kernel.scalars(machine)
    if not state["gated"]:
        return False
    stuck = machine.dependent_rows[
        machine.jobs["status"][machine.dependent_rows] == kernel.SLEEPING
    ]
    stuck = stuck[machine.gates["missing"][stuck] > 0]
    if not len(stuck):
        return False
    behind = _dependents(machine, stuck)
    arrays = np.unique(behind[behind >= len(machine.jobs)])
    rows = np.setdiff1d(stuck, np.concatenate([behind, _dependents(machine, arrays)]))
    machine.gates["missing"][rows] = 0
    machine.gates["released"][rows] = 1
    machine.opened[: len(rows)] = rows
    state["opened"] = len(rows)
    return True


def _dependents(machine: kernel.MachineState, rows: Rows) -> Rows:
    """Return who still waits for these."""
    places = Ragged(machine.dependent_of, machine.dependents).places(rows)
    links = machine.dependents[places.values]
    return np.asarray(links["row"][links["over"] == 0], np.int64)


def released(machine: kernel.MachineState) -> int:
    """Return how many jobs did not wait for a job that they depend on, as it did not run."""
    return int(np.count_nonzero(machine.gates["released"][: len(machine.jobs)]))
