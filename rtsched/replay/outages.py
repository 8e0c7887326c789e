"""When nodes of the simulated system are out of service, by the site's own events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.counting import counted
from rtsched.simulator.interface import NodeEvent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rtsched.logs.sacctmgr import Outage
    from rtsched.model.cluster import Cluster


def node_events(
    outages: Sequence[Outage], cluster: Cluster, first: float, said: list[str]
) -> tuple[NodeEvent, ...]:
    """Return the changes of nodes' states that outages mean, in order of time.

    Where outages of a node overlap the worst state counts. A node that is out of service in the
    description of the machine stays so.

    Parameters
    ----------
    outages : sequence of Outage
        In any order.
    cluster : Cluster
        The machine; a node may be several rows.
    first : float
        Seconds since the epoch of the first submission: what is over before changes nothing.
    said : list of str
        Grows by what is replayed, and what is not.
    """
    if not outages:
        return ()
    rows: dict[str, list[int]] = {}
    pairs = zip(cluster.nodes.texts("name"), cluster.usable.tolist(), strict=True)
    for row, (name, usable) in enumerate(pairs):
        of_name = rows.setdefault(name or "", [])
        of_name += [row] if usable else []
    meant = [one for one in outages if one.node in rows and one.end > first]
    foreign = sum(one.node not in rows for one in outages)
    of_node: dict[str, list[Outage]] = {}
    for one in meant:
        of_node.setdefault(one.node, []).append(one)
    events = [
        NodeEvent(max(time, first), row, state)
        for name, some in of_node.items()
        for time, state in _changes(some)
        for row in rows[name]
    ]
    said.append(
        f"Outages replayed: {len(meant)}, of {counted(len(of_node), 'node')}. A job on a node that "
        "goes down is requeued, or lost where `requeue` is off; a drained node ends what it runs."
    )
    if foreign:
        said.append(f"Outages left out, of nodes that the machine does not have: {foreign}.")
    return tuple(sorted(events, key=lambda event: event.time))


def _changes(outages: Sequence[Outage]) -> list[tuple[float, int]]:
    """Return when a node changes its state, and to which."""
    times = sorted({time for one in outages for time in (one.start, one.end) if np.isfinite(time)})
    found: list[tuple[float, int]] = []
    for time in times:
        states = [int(one.state) for one in outages if one.start <= time < one.end]
        state = max(states, default=0)
        if state != (found[-1][1] if found else 0):
            found.append((time, state))
    return found
