"""Room on nodes and of licences over time, as planners take spans of time off it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rtsched.kernels.room import RoomProfile, empty_profile, fill_room
from rtsched_plugins.kernels.resource_plan import in_node_order

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rtsched.api import Ragged


def left_beside(
    room: NDArray[np.int64],
    start: NDArray[np.float64],
    end: NDArray[np.float64],
    nodes: Ragged,
    demand: NDArray[np.int64],
    now: float,
    licenses: int,
) -> RoomProfile:
    """Return what is left from now on, each node's steps in order of time, with some to spare.

    Parameters
    ----------
    room : int64[m, r]
        What empty nodes have (`room_of`).
    start, end : float64[n]
        From when to when each span takes its demand, seconds.
    nodes : Ragged
        The nodes of each.
    demand : int64[n, r]
        What it takes on each of them.
    now : float
        Seconds.
    licenses : int
        How many kinds of licences there are.
    """
    steps = 3 * len(room) + 2 * (len(nodes.values) + len(start))
    shape = len(room), steps, room.shape[1], licenses
    profile, ordered = empty_profile(*shape), empty_profile(*shape)
    fill_room(profile, room, start, end, nodes.offsets.copy(), nodes.values.copy(), demand, now)
    in_node_order(profile, ordered)
    return ordered


def copied(profile: RoomProfile, more: int) -> RoomProfile:
    """Return a profile of its own with some more steps in its store."""
    used = int(profile.unused[1])
    steps, resources = used + more, profile.room.shape[1]
    copy = empty_profile(len(profile.first), steps, resources, profile.licenses)
    copy.first[:], copy.unused[:] = profile.first, profile.unused
    for name in ("after", "time", "room"):
        getattr(copy, name)[:used] = getattr(profile, name)[:used]
    return copy
