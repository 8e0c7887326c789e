"""What `sacctmgr -P show event` prints: when nodes were down or drained.

Source: Slurm manual page sacctmgr, "SPECIFICATIONS FOR EVENTS"; node states of sinfo.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from rtsched.logs.sacctmgr import rows_of
from rtsched.model.cluster import NodeState
from rtsched.model.units import known_zone

if TYPE_CHECKING:
    from pathlib import Path


SHOW_EVENTS = "sacctmgr -P show event start=2026-01-01 format=NodeName,TimeStart,TimeEnd,State"
"""The command that writes the file; a reason may have bars in it, and is left out."""

_STATES = {
    "DOWN": NodeState.DOWN,
    "DRAIN": NodeState.DRAINED,
    "DRAINED": NodeState.DRAINED,
    "DRAINING": NodeState.DRAINED,
    "FAIL": NodeState.DRAINED,
    "FAILING": NodeState.DRAINED,
}
"""States in which a node takes no jobs, but for those of power saving."""


class Outage(NamedTuple):
    """A node takes no jobs for some time."""

    node: str
    """Its name."""
    start: float
    """Seconds since the epoch."""
    end: float
    """Seconds since the epoch; inf: it goes on."""
    state: NodeState


def read_outages(path: str | Path, zone: str | None) -> list[Outage]:
    """Return the outages of nodes; events of the cluster and other states of nodes are none.

    Parameters
    ----------
    path : path
        The output of `SHOW_EVENTS`, perhaps with more columns.
    zone : str or None
        The time zone of its times, such as Europe/Berlin; None: this machine's.

    Raises
    ------
    InputError
        If the file cannot be read or is something else.
    """
    found, clock = [], known_zone(zone)
    for row in rows_of(path, ("NodeName", "TimeStart", "TimeEnd", "State"), SHOW_EVENTS):
        state = _state(row.text("State"))
        if not row.text("NodeName") or state == NodeState.UP:
            continue
        start, end = row.moment("TimeStart", clock), math.inf
        if row.text("TimeEnd") != "Unknown":
            end = row.moment("TimeEnd", clock)
        if end > start:
            found.append(Outage(row.text("NodeName"), start, end, state))
    return found


def _state(text: str) -> NodeState:
    """Return what a state such as `IDLE+DRAIN` or `DOWN*` means, the worst of its words."""
    words = text.upper().rstrip("*~#!%$@^-").split("+")
    return max((_STATES.get(word, NodeState.UP) for word in words), default=NodeState.UP)
