"""When nodes of the simulated system are set aside, by the site's own reservations."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rtsched.counting import counted
from rtsched.simulator.interface import Blocked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rtsched.logs.slurm_reservations import Reservation
    from rtsched.model.cluster import Cluster


def blocked_spans(
    reservations: Sequence[Reservation], cluster: Cluster, first: float, said: list[str]
) -> Blocked:
    """Return when nodes are set aside, by node and start; no two spans of a node touch.

    Parameters
    ----------
    reservations : sequence of Reservation
        In any order; they may overlap.
    cluster : Cluster
        The machine; a node may be several rows.
    first : float
        Seconds since the epoch of the first submission: what is over by then is left out.
    said : list of str
        Grows by what is replayed, and what is not.
    """
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(cluster.nodes.texts("name")):
        rows.setdefault(name or "", []).append(row)
    left_out: Counter[str] = Counter()
    meant: list[Reservation] = []
    spans: list[tuple[int, float, float]] = []
    for one in reservations:
        nodes = [row for name in one.nodes for row in rows.get(name, ())]
        if one.end <= max(first, one.start):
            continue
        reason = one.obstacle or ("" if nodes else "of nodes that the machine does not have")
        if not reason and 0 < one.cpus < int(cluster.nodes.cores[nodes].sum()):
            reason = "holds some cores of its nodes"
        if reason:
            left_out[reason] += 1
            continue
        meant.append(one)
        spans += [(row, max(one.start, first), one.end) for row in nodes]
    if meant:
        on = len({row for row, _, _ in spans})
        said.append(
            f"Reservations replayed: {len(meant)}, of {counted(on, 'node')}. No job starts on "
            "their nodes that could run into them. Jobs of the log that belong to one are not told "
            "apart: they run elsewhere or at another time."
        )
    if again := sum(one.recurs for one in meant):
        said.append(f"Reservations that recur, replayed once, as printed: {again}.")
    for reason, count in sorted(left_out.items()):
        said.append(f"Reservations left out, {reason}: {count}.")
    return Blocked.of(_joined(spans))


def _joined(spans: list[tuple[int, float, float]]) -> list[tuple[int, float, float]]:
    """Return spans by node and start, those of a node that overlap or touch as one."""
    found: list[tuple[int, float, float]] = []
    for row, start, end in sorted(spans):
        if found and found[-1][0] == row and start <= found[-1][2]:
            found[-1] = (row, found[-1][1], max(end, found[-1][2]))
        else:
            found.append((row, start, end))
    return found
