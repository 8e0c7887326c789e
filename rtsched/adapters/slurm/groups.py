"""Arrays and heterogeneous jobs: one promise for all tasks or components, and so one row.

Slurm shows the tasks of an array that wait as one job, and each other one as a job of its own. A
promised array has a reservation of whole nodes, also where other promised jobs share nodes. In it
its tasks run side by side, as many at a time as fit, until none is left. From the start of that
reservation on the array counts as one job that runs on these nodes; before, as one that waits.

Of a heterogeneous job Slurm shows each component as a job of its own. It starts all of them
together, and its backfill scheduler alone does. It makes them under one lock, so a poll shows all
of them or none. What is asked of the first one by its number, such as a change, a release or a
cancellation, is asked of all, and a component that waits cannot be cancelled alone (seen on 26.05;
`update_job_str` in src/slurmctld/job_mgr.c of 25.11). In a reservation of as many whole nodes as
they want in all, each of which is as every component asks for, they start whichever gets which. So
it is where promised jobs share nodes, too: a node list, by which other jobs are bound there, would
be one of each component.

Sources: https://slurm.schedmd.com/job_array.html, https://slurm.schedmd.com/heterogeneous_jobs.html,
manual pages sbatch, squeue.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from rtsched.adapters.slurm.comments import NOTHING
from rtsched.adapters.slurm.completions import place_of_ending
from rtsched.adapters.slurm.layout import PREFIX, is_ours
from rtsched.adapters.slurm.observation import is_admitted, request_in
from rtsched.adapters.slurm.per_node import shown_demand, tasks_per_node
from rtsched.adapters.slurm.requirements import hardware_of, part_of
from rtsched.adapters.slurm.rows import (
    MEGABYTE,
    TRES,
    WAITING,
    Components,
    Texts,
    alive,
    is_held,
    taken,
    with_joined,
)
from rtsched.logs.hostlist import fold, names_of
from rtsched.model.jobs import last_end
from rtsched.model.resources import MEMORY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

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
        if tasks.held or (tasks.waits and not tasks.begun(now)):
            joined.append(_as_array(taken(rows, tasks.waits[:1]), tasks))
            dropped.update(set(which).difference(tasks.runs))
            continue
        goes_on = tasks.waits or tasks.runs
        joined.append(_running(tasks, facts, now) if goes_on else _over(tasks, which))
        dropped.update(which)
    return with_joined(rows, dropped, joined)


@dataclass(frozen=True)
class _Tasks:
    """The tasks of an array: rows of those that wait, held ones last, and of those that run."""

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
        waits.sort(key=lambda at: is_held(rows.reason[at]))
        return cls(rows, array, waits, runs, reservation)

    @property
    def held(self) -> bool:
        """Whether only held tasks are left: nobody knows when they will be released."""
        return not self.runs and bool(self.waits) and is_held(self.rows.reason[self.waits[0]])

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


def joined_components(rows: JobRows, facts: SlurmFacts) -> JobRows:
    """Return the rows with one for each heterogeneous job that has a deadline, or was held for us.

    It has the number of its first component, the nodes of all of them, the longest time limit and
    the earliest deadline, and on each node the most that one of them takes.
    """
    members: dict[int, list[int]] = {}
    for at in np.flatnonzero(rows.het >= 0).tolist():
        members.setdefault(int(rows.het[at]), []).append(at)
    wanted = {
        job: sorted(which, key=lambda at: int(rows.id[at]))
        for job, which in members.items()
        if any(rows.deadline[at] < math.inf or is_admitted(rows.mark[at]) for at in which)
    }
    if not wanted:
        return rows
    joined = [_joined(rows, job, which, facts) for job, which in wanted.items()]
    dropped = {at for which in wanted.values() for at in which}
    return with_joined(rows, dropped, joined)


def _joined(rows: JobRows, job: int, which: list[int], facts: SlurmFacts) -> JobRows:
    """Return the row of a heterogeneous job with these components, in the order of their ids."""
    runs = [at for at in which if alive(rows.state[at]) and rows.state[at] not in WAITING]
    waits = [at for at in which if rows.state[at] in WAITING]
    shown = runs or waits or which
    sizes = _sizes(rows, which, facts)
    components = Components(
        tuple(rows.id[which].tolist()),
        int((-(-rows.cpus[which] // sizes)).max()),
        _unlike(rows, which, several=bool((rows.max_nodes[which] > sizes).any())),
    )
    held = min(waits or shown, key=lambda at: int(rows.priority[at]))
    tres: dict[str, Any] = {name: Texts.of([_listed(getattr(rows, name), which)]) for name in TRES}
    start = float(np.fmin.reduce(rows.start[shown]))
    ends = np.where(np.isnan(rows.start[shown]), start, rows.start[shown]) + rows.limit[shown]
    limit = float(ends.max() - start) if runs and not math.isnan(start) else rows.limit[which].max()
    return replace(
        taken(rows, which[:1]),
        id=np.array([job]),
        label=Texts.of([""]),
        state=Texts.of([rows.state[_telling(rows, shown, over=not runs and not waits)]]),
        reason=Texts.of([rows.reason[held]]),
        priority=rows.priority[[held]],
        nodes=Texts.of([fold(_names(rows.nodes[at] for at in shown))]),
        features=Texts.of([_together([rows.features[at] for at in which])]),
        required=Texts.of([",".join(_names(rows.required[at] for at in which))]),
        excluded=Texts.of([fold(_names(rows.excluded[at] for at in which))]),
        reservation=Texts.of([_reservation([rows.reservation[at] for at in shown])]),
        licenses=Texts.of([_listed(rows.licenses, which)]),
        **tres,
        mark=Texts.of([next((rows.mark[at] for at in which if is_admitted(rows.mark[at])), "")]),
        submit=np.array([rows.submit[which].min()]),
        eligible=np.array([np.fmax.reduce(rows.eligible[which])]),
        start=np.array([start]),
        end=np.array([np.fmax.reduce(rows.end[shown])]),
        limit=np.array([limit]),
        deadline=np.array([np.fmin.reduce(rows.deadline[which])]),
        amounts=Texts.of([_amounts([rows.amounts[at] for at in which], sizes.tolist())]),
        cpus=np.array([rows.cpus[which].sum()]),
        memory=np.array([rows.memory[which].max()]),
        min_nodes=np.array([sizes.sum()]),
        max_nodes=np.array([sizes.sum()]),
        requeue=np.array([rows.requeue[which].all()]),
        restarts=np.array([rows.restarts[which].max()]),
        components={job: components},
    )


def _listed(column: Texts, which: Sequence[int]) -> str:
    """Return all that is in some rows of a column of lists."""
    return ",".join(filter(None, (column[at] for at in which)))


def _sizes(rows: JobRows, which: Sequence[int], facts: SlurmFacts) -> NDArray[np.int64]:
    """Return the nodes of each component: by its own count, or its processors."""
    part = facts.partitions.get(rows.partition[which[0]].split(",", 1)[0])
    least = np.maximum(rows.min_nodes[which], 1)
    fewest = -(-rows.cpus[which] // (part.cores if part is not None else 1))
    sizes: NDArray[np.int64] = np.where(
        rows.max_nodes[which] <= least, least, np.maximum(least, fewest)
    )
    return sizes


def _amounts(shown: Sequence[str], sizes: Sequence[int]) -> str:
    """Return what all nodes together have if each has the most of what components have on theirs.

    `sizes` are the nodes of each component.
    """
    most: dict[str, int] = {}
    for text, size in zip(shown, sizes, strict=True):
        for name, amount in shown_demand(text, size).items():
            most[name] = max(most.get(name, 0), amount)
    nodes = sum(sizes)
    whole = [
        f"{name}={-(-amount // MEGABYTE) * nodes}M"
        if name == MEMORY
        else f"{name}={amount * nodes}"
        for name, amount in most.items()
    ]
    return ",".join([*whole, f"node={nodes}"])


def _unlike(rows: JobRows, which: Sequence[int], *, several: bool) -> str:
    """Return why components cannot be planned as one job; empty: they can.

    `several`: one of them may have more nodes than it needs.
    """
    for name, what in (
        ("partition", "are in different partitions"),
        ("account", "are charged to different accounts"),
        ("qos", "have different QOS"),
    ):
        if len({getattr(rows, name)[at] for at in which}) > 1:
            return what
    return "want more or fewer nodes; give each --nodes with one number" if several else ""


def _telling(rows: JobRows, shown: Sequence[int], *, over: bool) -> int:
    """Return the component whose state is that of the whole job."""
    if over:
        return shown[place_of_ending(rows.state[at] for at in shown)]
    return next((at for at in shown if rows.state[at] != "COMPLETING"), shown[0])


def _names(lists: Iterable[str]) -> list[str]:
    """Return the nodes of all lists, each once."""
    return sorted({name for text in set(lists) for name in names_of(text)})


def _together(features: Sequence[str]) -> str:
    """Return a constraint that nodes meet which meet all of these."""
    different = list(dict.fromkeys(filter(None, features)))
    return "&".join(f"({each})" for each in different) if len(different) > 1 else "".join(different)


def _reservation(names: Sequence[str]) -> str:
    """Return the reservation that the components are in; one of ours only if all of them are."""
    different = set(names)
    if len(different) == 1:
        return different.pop()
    return next((name for name in names if name and not is_ours(name)), "")
