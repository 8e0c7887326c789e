"""Recurring work of a site: reservations and cron-like jobs, as tables of its configuration."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np
from msgspec import Meta

from rtsched.errors import ConfigError
from rtsched.model.jobs import Periodic
from rtsched.model.table import amounts_of
from rtsched.replay.machine import nodes_like

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster

Seconds = Annotated[float, Meta(gt=0)]


class PeriodicTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[workload.periodic]]` table: the same work again and again on some nodes."""

    name: str
    """Its name."""
    period: Annotated[float, Meta(gt=0)]
    """Seconds from one start to the next."""
    duration: Annotated[float, Meta(gt=0)]
    """Its duration on each node, seconds."""
    nodes: int | list[str] = 1
    """The nodes, by name (`fast*` is a pattern), or how many: those with the least recurring work
    so far."""
    first: float | datetime = 0.0
    """First start: seconds since the epoch, or a time (UTC if no zone)."""
    amounts: dict[str, Annotated[int, Meta(ge=1)]] | None = None
    """With `unit = "resources"`: what it takes of each of its nodes, such as `{ cpu = 4, "gres/gpu"
    = 1 }`; memory (`mem`) in bytes. All of them if not given."""
    deadline: Seconds | None = None
    """Seconds from a start until it must have ended; the period if not given. It counts where jobs
    can be suspended; elsewhere it ends `duration` after its start."""

    def problems(self, path: str) -> list[str]:
        """Return what is wrong with the table, each with its path."""
        due = self.period if self.deadline is None else self.deadline
        found = []
        if not math.isfinite(self.period + self.duration + due + self.first_start()):
            found.append(f"{path}: first, period, duration and deadline must be finite")
        if self.duration > self.period:
            found.append(
                f"{path}.duration: {self.duration:g} s of work do not fit into a period of "
                f"{self.period:g} s"
            )
        elif self.duration > due:
            found.append(
                f"{path}.deadline: {due:g} s are less than the {self.duration:g} s of work"
            )
        if due > self.period:
            found.append(f"{path}.deadline: {due:g} s are more than the period")
        if isinstance(self.nodes, int) and self.nodes < 1:
            found.append(f"{path}.nodes: {self.nodes} is not above 0")
        if not self.nodes and isinstance(self.nodes, list):
            found.append(f"{path}.nodes: lists no node")
        return found

    def first_start(self) -> float:
        """Return the first start in seconds since the epoch."""
        if isinstance(self.first, datetime):
            moment = self.first if self.first.tzinfo else self.first.replace(tzinfo=UTC)
            return moment.timestamp()
        return float(self.first)


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
