"""Reservations of the site, which set nodes of the simulated system aside, and its recurring work.

Recurring reservations and cron-like jobs come as tables of its configuration.
"""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.errors import ConfigError
from rtsched.model.blocked import WHOLE, Blocked
from rtsched.model.jobs import Periodic
from rtsched.model.resources import CPU
from rtsched.model.table import amounts_of
from rtsched.replay.machine import nodes_like
from rtsched.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.logs.slurm_reservations import Reservation
    from rtsched.model.cluster import Cluster
    from rtsched.model.log import Outcomes
    from rtsched.replay.settings import PeriodicTable

    Span = tuple[float, float, int]

    """Start, end, and how many CPUs of a node, or `WHOLE`."""


_JOBS_UNKNOWN = (
    "The log does not show which jobs belong to one (sacct's column Reservation): these run "
    "elsewhere or at another time."
)


class _Node(NamedTuple):
    """A node of the machine."""

    rows: list[int]
    """Its rows of the cluster: one, or as many as it has CPUs."""
    cpus: int
    divisible: bool
    """Whether jobs may have some of its CPUs."""


def blocked_spans(
    reservations: Sequence[Reservation],
    cluster: Cluster,
    first: float,
    notes: list[str],
    jobs_known: bool = False,
) -> Blocked:
    """Return when nodes are set aside, by node and start; no two spans of a node overlap.

    Parameters
    ----------
    reservations : sequence of Reservation
        In any order; they may overlap.
    cluster : Cluster
        The machine.
    first : float
        Seconds since the epoch of the first submission: what is over by then is left out.
    notes : list of str
        Grows by what is replayed, and what is not.
    jobs_known : bool
        Whether the log says which jobs ran in a reservation (`ran_inside`).
    """
    nodes = _nodes_of(cluster)
    left_out: Counter[str] = Counter()
    meant: list[Reservation] = []
    held: dict[str, list[Span]] = {}
    for one in reservations:
        if one.end <= max(first, one.start):
            continue
        counts = _cpus_held(one, nodes)
        if isinstance(counts, str):
            left_out[counts] += 1
            continue
        meant.append(one)
        for name, count in counts.items():
            held.setdefault(name, []).append((max(one.start, first), one.end, count))
    if meant:
        notes.append(
            f"Reservations replayed: {len(meant)}, of {counted(len(held), 'node')}. No job starts "
            "on their nodes that could run into them." + ("" if jobs_known else f" {_JOBS_UNKNOWN}")
        )
    if again := sum(one.recurs for one in meant):
        notes.append(f"Reservations that recur, replayed once, as printed: {again}.")
    for reason, count in sorted(left_out.items()):
        notes.append(f"Reservations left out, {reason}: {count}.")
    spans: list[tuple[int, float, float, int]] = []
    for name, given in held.items():
        (rows, cpus, _), together = nodes[name], _added_up(given)
        for place, row in enumerate(rows):
            spans += [(row, *span) for span in _of_row(together, cpus, place, len(rows))]
    return Blocked.of(sorted(spans))


def ran_inside(
    outcomes: Outcomes, reservations: Sequence[Reservation], cluster: Cluster, notes: list[str]
) -> dict[str, NDArray[np.bool_]]:
    """Return which jobs ran in a reservation that is replayed, bool[n], by the reason to omit them.

    Its nodes were theirs alone. Jobs that ran in another one, or at another time of one that
    recurs, are counted in a sentence that is added to `notes`.
    """
    names, start = outcomes.names("reservation"), outcomes.start
    if not reservations or not names:
        return {}
    nodes, inside = _nodes_of(cluster), np.zeros(len(start), np.bool_)
    for one in reservations:
        if one.name in names and not isinstance(_cpus_held(one, nodes), str):
            mine = outcomes.reservation == names.index(one.name)
            inside |= mine & (start >= one.start) & (start < one.end)
    if others := int(((outcomes.reservation >= 0) & ~inside & np.isfinite(start)).sum()):
        notes.append(
            f"{counted(others, 'job')} ran in a reservation that is not replayed, or not then: "
            "they are replayed as if they had asked for none."
        )
    return {"it ran in a reservation, whose nodes are set aside": inside}


def _nodes_of(cluster: Cluster) -> dict[str, _Node]:
    """Return the nodes by name."""
    cpus = cluster.nodes.cores.astype(np.int64)
    if cluster.shared and CPU in cluster.nodes.names("capacity"):
        cpus = amounts_of(cluster.nodes, "capacity", (CPU,))[:, 0]
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(cluster.nodes.texts("name")):
        rows.setdefault(name or "", []).append(row)
    return {
        name: _Node(mine, total := int(cpus[mine].sum()), cluster.shared or len(mine) == total)
        for name, mine in rows.items()
    }


def _cpus_held(one: Reservation, nodes: Mapping[str, _Node]) -> dict[str, int] | str:
    """Return how many CPUs of each node a reservation holds, or why it cannot be replayed."""
    if one.obstacle:
        return one.obstacle
    known = [name for name in one.nodes if name in nodes]
    if not known:
        return "of nodes that the machine does not have"
    cpus = dict(zip(one.nodes, one.cpus_on, strict=True)) if one.cpus_on else {}
    if not cpus and 0 < one.cpus < sum(nodes[name].cpus for name in known):
        if len(one.nodes) > 1:
            return "holds some cores of its nodes, and how many of each is not known"
        cpus = {known[0]: one.cpus}
    held = {name: min(cpus.get(name, nodes[name].cpus), nodes[name].cpus) for name in known}
    if any(held[name] < nodes[name].cpus and not nodes[name].divisible for name in known):
        return "holds some cores of its nodes, which are whole here"
    return held


def _added_up(spans: Sequence[Span]) -> list[Span]:
    """Return how many CPUs spans that may overlap hold together, in order of time."""
    changes: Counter[float] = Counter()
    for start, end, cpus in spans:
        changes[start] += cpus
        changes[end] -= cpus
    times = sorted(changes)
    levels = accumulate(changes[time] for time in times)
    return list(zip(times, times[1:], levels, strict=False))


def _of_row(held: Sequence[Span], cpus: int, place: int, rows: int) -> list[Span]:
    """Return the spans of one row of a node, of which CPUs are held; spans that touch differ.

    Of a node with a row for each CPU, as many rows are held, from the first on.
    """
    found: list[Span] = []
    for start, end, level in held:
        if level <= place:
            continue
        count = WHOLE if level >= cpus or rows > 1 else level
        if found and found[-1][1:] == (start, count):
            found[-1] = (found[-1][0], end, count)
        else:
            found.append((start, end, count))
    return found


def periodic_work(tables: Sequence[PeriodicTable], cluster: Cluster) -> tuple[Periodic, list[str]]:
    """Return the periodic jobs of a machine, one per table and node, and what was assumed.

    Raises
    ------
    ConfigError
        If a table names a node or a resource that the machine does not have, or asks for more nodes
        than it has.
    """
    load, rows, problems, notes = np.zeros(len(cluster)), [], [], []
    resources = cluster.nodes.names("capacity")
    load[~cluster.usable] = np.inf
    for index, table in enumerate(tables):
        path = f"workload.periodic[{index}]"
        nodes, wrong = _nodes(table, load, cluster)
        problems += [f"{path}.nodes: {problem}" for problem in wrong]
        problems += [f"{path}.amounts: {problem}" for problem in _amount_problems(table, cluster)]
        load[nodes] += table.duration / table.period
        due = table.period if table.deadline is None else table.deadline
        values = (table.duration, table.period, due, table.first_start())
        amounts = table.amounts or {}
        taken = [amounts.get(name, 0) for name in resources]
        rows += [(node, *values, not amounts, taken) for node in nodes.tolist()]
        what = ", ".join(f"{amount} of {name}" for name, amount in amounts.items())
        notes.append(
            f"{table.name} takes {table.duration:g} s of every {table.period:g} s on "
            f"{len(nodes)} nodes{f': {what} of each' if what else ''}."
        )
    if problems:
        raise ConfigError(problems)
    columns = list(zip(*rows, strict=True)) or [()] * 7
    work = Periodic.build(
        len(rows),
        id=np.arange(len(rows)),
        node=np.array(columns[0], np.int32),
        exec_time=np.array(columns[1], np.float64),
        period=np.array(columns[2], np.float64),
        relative_deadline=np.array(columns[3], np.float64),
        phase=np.array(columns[4], np.float64),
        exclusive=np.array(columns[5], np.bool_),
        demand=np.array(columns[6], np.int64).reshape(len(rows), len(resources)),
        names={"demand": resources},
    )
    return work, notes


def _amount_problems(table: PeriodicTable, cluster: Cluster) -> list[str]:
    """Return what is wrong with what a table takes of its nodes."""
    resources = cluster.nodes.names("capacity")
    if table.amounts is None:
        return []
    if not resources:
        return ["jobs have whole nodes here; remove it, or set `workload.unit` to 'resources'"]
    if not table.amounts:
        return ["names no resource; leave it out for whole nodes"]
    return [
        f"no node has {name!r}; there are {', '.join(resources)}"
        for name in table.amounts
        if name not in resources
    ]


def _nodes(
    table: PeriodicTable, load: NDArray[np.float64], cluster: Cluster
) -> tuple[NDArray[np.int64], list[str]]:
    """Return the nodes of a table, ascending, and what is wrong with them."""
    known = cluster.nodes.names("capacity")
    amounts = {name: n for name, n in (table.amounts or {}).items() if name in known}
    has = amounts_of(cluster.nodes, "capacity", tuple(amounts))
    enough = np.asarray((has >= np.array(list(amounts.values()), np.int64)).all(axis=1))
    if isinstance(table.nodes, int):
        load = np.where(enough, load, np.inf)
        usable = int(np.isfinite(load).sum())
        if table.nodes > usable:
            able = "take jobs" if not amounts else "take jobs and have these amounts"
            return np.zeros(0, np.int64), [f"{table.nodes} asked for, {usable} {able}"]
        return np.sort(np.argsort(load, kind="stable")[: table.nodes]), []
    chosen, problems = np.zeros(len(cluster), np.bool_), []
    for pattern in table.nodes:
        fits = nodes_like(cluster.nodes, pattern)
        chosen |= fits
        if not fits.any():
            problems.append(f"the machine has no node {pattern!r}")
        elif not enough[fits].all():
            problems.append(f"{pattern!r} has a node with less than these amounts")
    return np.flatnonzero(chosen), problems
