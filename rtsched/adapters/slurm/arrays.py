"""Job arrays: one promise for all tasks of an array, and so one row.

Slurm shows the tasks of an array that wait as one job, and each other one as a job of its own. A
promised array has a reservation of whole nodes, also where other promised jobs share nodes. In it
its tasks run side by side, as many at a time as fit, until none is left. From the start of that
reservation on the array counts as one job that runs on these nodes; before, as one that waits.

Source: https://slurm.schedmd.com/job_array.html, manual pages sbatch, squeue.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from rtsched.adapters.slurm.completions import place_of_ending
from rtsched.adapters.slurm.demand import tasks_per_node
from rtsched.adapters.slurm.layout import PREFIX, is_ours
from rtsched.adapters.slurm.node_requests import hardware_of, part_of
from rtsched.adapters.slurm.observation import is_admitted, request_in
from rtsched.adapters.slurm.rows import WAITING, alive, taken, with_joined
from rtsched.adapters.slurm.spec import NOTHING
from rtsched.adapters.slurm.texts import Texts
from rtsched.logs.hostlist import fold, names_of
from rtsched.model.array_rounds import last_end

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rtsched.adapters.slurm.facts import SlurmFacts
    from rtsched.adapters.slurm.rows import JobRows, ReservationRow


def joined_arrays(
    rows: JobRows, reservations: Sequence[ReservationRow], facts: SlurmFacts, now: float
) -> JobRows:
    """Return the rows with one for each array that was promised something.

    Parameters
    ----------
    rows : JobRows
        As Slurm shows them.
    reservations : sequence of ReservationRow
        All there are.
    facts : SlurmFacts
        Partitions, and what Slurm gives jobs of their nodes.
    now : float
        Seconds since the epoch.

    Of one that runs, `tasks` are those that still wait, and `limit` reaches until all have ended at
    the latest. One that waits loses nothing by tasks that Slurm started early: these are rows of
    their own.
    """
    members: dict[int, list[int]] = {}
    admitted = rows.mark.map(is_admitted, np.bool_)
    for at in np.flatnonzero((rows.array >= 0) & admitted).tolist():
        members.setdefault(int(rows.array[at]), []).append(at)
    if not members:
        return rows
    ours = {row.name: row for row in reservations if is_ours(row.name)}
    joined, dropped = [], set[int]()
    for array, which in members.items():
        tasks = _Tasks.of(rows, array, which, ours.get(f"{PREFIX}{array}"))
        if tasks.waits and not tasks.begun(now):
            joined.append(_as_array(taken(rows, tasks.waits[:1]), tasks))
            dropped.update(set(which).difference(tasks.runs))
            continue
        goes_on = tasks.waits or tasks.runs
        joined.append(_running(tasks, facts, now) if goes_on else _over(tasks, which))
        dropped.update(which)
    return with_joined(rows, dropped, joined)


@dataclass(frozen=True)
class _Tasks:
    """The tasks of an array: rows of those that wait, and of those that run."""

    rows: JobRows
    array: int
    waits: list[int]
    runs: list[int]
    reservation: ReservationRow | None

    @classmethod
    def of(
        cls, rows: JobRows, array: int, which: list[int], reservation: ReservationRow | None
    ) -> Self:
        """Return the tasks that these rows show."""
        waits = [at for at in which if rows.state[at] in WAITING]
        runs = [at for at in which if at not in waits and alive(rows.state[at])]
        return cls(rows, array, waits, runs, reservation)

    @property
    def left(self) -> int:
        """How many wait."""
        return int(self.rows.tasks[self.waits].sum())

    def begun(self, now: float) -> bool:
        """Return whether their reservation has begun, or all of them were started once.

        The last of them that is started has the number of the array.
        """
        if any(self.rows.id[at] == self.array for at in self.runs):
            return True
        kept = self.reservation
        if kept is None or kept.start > now:
            return False
        return any(self.rows.reservation[at] == kept.name for at in self.waits + self.runs)


def _running(tasks: _Tasks, facts: SlurmFacts, now: float) -> JobRows:
    """Return the row of an array that runs on its reserved nodes, and wherever its tasks do."""
    rows, runs, kept = tasks.rows, tasks.runs, tasks.reservation
    row = _as_array(taken(rows, (tasks.waits or runs)[:1]), tasks)
    names = {name for at in runs for name in names_of(rows.nodes[at])}
    if kept is not None and tasks.waits:
        names |= set(kept.nodes)
    begun = np.where(np.isnan(rows.start[runs]), now, rows.start[runs])
    start = float(begun.min(initial=now if kept is None else min(kept.start, now)))
    until = last_end(
        np.maximum(begun + rows.limit[runs], now),
        tasks.left,
        _at_a_time(tasks, len(names), facts),
        float(row.limit[0]) + facts.margin,
        now,
    )
    return replace(
        row,
        state=Texts.of(["RUNNING"]),
        nodes=Texts.of([fold(sorted(names))]),
        start=np.array([start]),
        limit=np.array([until - start]),
        end=np.array([until]),
        reservation=Texts.of([kept.name if kept is not None else ""]),
    )


def _at_a_time(tasks: _Tasks, nodes: int, facts: SlurmFacts) -> int:
    """Return how many tasks run at a time on so many nodes, by what one of them asks for."""
    rows, at = tasks.rows, (tasks.waits or tasks.runs)[0]
    request = request_in(rows, at, NOTHING, None, facts)
    name = rows.partition[at].split(",", 1)[0]
    part, asked, _ = part_of(name, request, facts, fresh=False)
    each = 1
    if part is not None:
        each = tasks_per_node(request, part, facts, hardware_of(facts, name, part, asked))
    most = max(nodes, 1) * each
    parallel = int(rows.parallel[at])
    return min(most, parallel) if parallel else most


def _over(tasks: _Tasks, which: list[int]) -> JobRows:
    """Return the row of an array of which no task waits or runs."""
    rows = tasks.rows
    row = _as_array(taken(rows, [which[place_of_ending(rows.state[at] for at in which)]]), tasks)
    start, end = rows.start[which], rows.end[which]
    return replace(
        row,
        start=np.array([np.fmin.reduce(start)]),
        end=np.array([np.fmax.reduce(end)]),
        exit_code=Texts.of(["0:0"]),
        requeue=np.array([False]),
    )


def _as_array(row: JobRows, tasks: _Tasks) -> JobRows:
    """Return a row of one task as that of the array."""
    number = tasks.array
    return replace(row, id=np.array([number]), label=Texts.of([""]), tasks=np.array([tasks.left]))
