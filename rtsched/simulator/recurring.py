"""Periodic work on the simulated machines: whether it can be done in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.errors import ConfigError
from rtsched.kernels.edf import first_miss, hyperperiods, periodic_work
from rtsched.model.jobs import Kind
from rtsched.model.resources import demand_of, room_of
from rtsched.model.verdicts import Finding, Reason

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Jobs, Periodic

CHECKED = 1 << 20
"""Slots of periodic work that are run off, on each node, to see that no deadline is missed."""
TICKS = 1e6
"""Ticks per second in which periods are compared exactly."""

NO_GAP = Reason(
    "periodic.no-gap",
    "requests {nodes:node} for {seconds:time}; periodic work never leaves more than {fits} free "
    "for so long",
)
STARVED = Reason(
    "periodic.starved",
    "no time was found at which {nodes:node} are free of periodic work together for "
    "{seconds:time}, for it or for a job ahead of it",
)


def utilisation(
    periodic: Periodic, cluster: Cluster, slot: int, seconds: float
) -> NDArray[np.float64]:
    """Return float64[m]: the share of each node that periodic work takes under EDF.

    Parameters
    ----------
    slot : int
        The present slot.
    seconds : float
        Seconds per slot.

    Raises
    ------
    ConfigError
        If a node cannot do its work in time: more than one second of work per second, or a
        deadline missed within two hyper-periods (at most `CHECKED` slots are looked at).
    """
    work = periodic_work(periodic, len(cluster), slot, seconds, 0)
    hyper, used = hyperperiods(work)
    longest = int((work.upcoming - slot + work.period).max(initial=0))
    for node in np.unique(periodic.node).tolist():
        horizon = slot + min(2 * int(hyper[node]) + longest, CHECKED)
        if used[node] > 1.0 or first_miss(work, node, horizon) >= 0:
            raise ConfigError(
                [
                    f"workload.periodic: node {called(cluster, node)} cannot do its periodic work "
                    "in time"
                ]
            )
    return used


def called(cluster: Cluster, node: int) -> str:
    """Return a node's name, and where several rows have that name, or none, the row."""
    code, names = int(cluster.nodes.name[node]), cluster.nodes.names("name")
    if code < 0 or not names:
        return f"{node}"
    alone = np.count_nonzero(cluster.nodes.name == code) == 1
    return names[code] if alone else f"{names[code]} (row {node})"


def check_apart(periodic: Periodic, cluster: Cluster) -> None:
    """Refuse periodic jobs of one node whose occurrences overlap at any time without room for both.

    Occurrences of two jobs with periods T and U meet in every phase that differs by a multiple of
    the greatest common divisor g of T and U. They never overlap if the first fits between the
    phases, modulo g, and the second into what is left of g. A node must have room for each
    together with all that overlap with it.

    Raises
    ------
    ConfigError
        Naming the node, and of two jobs the periods.
    """
    period, cost, phase = (
        np.round(column * TICKS).astype(np.int64)
        for column in (periodic.period, periodic.exec_time, periodic.phase)
    )
    order = np.argsort(periodic.node, kind="stable")
    node, demand = periodic.node[order], demand_of(periodic, cluster)
    room, together = room_of(cluster)[periodic.node], demand.copy()
    for apart in range(1, int(np.bincount(node).max(initial=0))):
        first, second = order[:-apart], order[apart:]
        same = node[:-apart] == node[apart:]
        first, second = first[same], second[same]
        divisor = np.gcd(period[first], period[second])
        gap = (phase[second] - phase[first]) % divisor
        meet = (gap < cost[first]) | (divisor - gap < cost[second])
        clash = meet & (demand[first] + demand[second] > room[first]).any(axis=1)
        if clash.any():
            at = int(np.flatnonzero(clash)[0])
            name = called(cluster, int(periodic.node[first[at]]))
            one, other = periodic.period[first[at]], periodic.period[second[at]]
            raise ConfigError(
                [
                    f"workload.periodic: on node {name} occurrences of two periodic jobs overlap "
                    f"(periods of {one:g} s and {other:g} s); give one another first start or node"
                ]
            )
        np.add.at(together, first[meet], demand[second[meet]])
        np.add.at(together, second[meet], demand[first[meet]])
    over = (together > room).any(axis=1)
    if over.any():
        name = called(cluster, int(periodic.node[np.argmax(over)]))
        raise ConfigError(
            [
                f"workload.periodic: node {name} has no room for all periodic jobs of which "
                "occurrences may overlap; give one another first start or node"
            ]
        )


def without_gap(jobs: Jobs, periodic: Periodic, cluster: Cluster) -> tuple[Finding, ...]:
    """Return which rigid jobs fit between no two occurrences on enough nodes, ever.

    A node is left alone for `period - exec_time` of its tightest periodic job at the most, or until
    the first occurrence. Work beside which others may run does not count. Jobs that pass may still
    find no gap that their nodes have in common.
    """
    periodic = periodic.take(np.flatnonzero(periodic.exclusive | (not cluster.shared)))
    if not len(jobs) or not len(periodic):
        return ()
    gap = np.maximum(periodic.period - periodic.exec_time, periodic.phase - jobs.submit[0])
    longest = np.where(cluster.usable, np.inf, 0.0)
    np.minimum.at(longest, periodic.node, gap)
    holds = np.sort(longest * cluster.nodes.speed)
    fits = len(holds) - np.searchsorted(holds, jobs.wall_time, "left")
    bound = (jobs.kind == Kind.RIGID) & np.isfinite(jobs.wall_time)
    never = bound & (fits < jobs.size) & (jobs.size <= int(cluster.usable.sum()))
    if not never.any():
        return ()
    return (Finding.where(never, NO_GAP, nodes=jobs.size, seconds=jobs.wall_time, fits=fits),)
