"""When jobs may start on the nodes that they are planned on, which others share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rtsched.kernels.compiling import compiled
from rtsched.kernels.room_profile import (
    RoomProfile,
    first_fit,
    licenses_fit,
    occupy,
    occupy_licenses,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]


@compiled
def first_starts(
    profile: RoomProfile,
    order: Integers,
    ready: Floats,
    latest: Floats,
    otherwise: Floats,
    wall: Floats,
    indptr: Integers,
    nodes: NDArray[np.int32],
    demand: Integers,
    start: Floats,
) -> None:
    """Write when each entry of a plan first finds room on its own nodes, one after the other.

    Parameters
    ----------
    profile : RoomProfile
        What there is; it is changed. With two unused steps for each of `nodes` and each entry.
    order : int64[n]
        The entries in order: none gives way to a later one.
    ready : float64[n]
        From when each may start, seconds.
    latest : float64[n]
        One that finds room by then takes it from its start on ...
    otherwise : float64[n]
        ... any other from here on, whether there is room or not; inf: it takes none.
    wall : float64[n]
        For how long each has its nodes, seconds.
    indptr, nodes
        Entry i has the nodes `nodes[indptr[i]:indptr[i + 1]]`.
    demand : int64[n, r]
        What it takes on each.
    start : float64[n]
        Is given the starts, seconds; inf: never.
    """
    for i in order:
        first, end = indptr[i], indptr[i + 1]
        time, k = ready[i], first
        settled = 0  # nodes in a row that have room from `time` on
        while settled < end - first and time < math.inf:
            fit = first_fit(profile, nodes[k], time, wall[i], demand, i)
            settled = settled + 1 if fit <= time else 1
            time = fit
            k = k + 1 if k + 1 < end else first
            if settled == end - first:
                time = licenses_fit(profile, fit, wall[i], demand, i)
                settled = settled if time <= fit else 0
        start[i] = time
        taken = time if time <= latest[i] else otherwise[i]
        for k in range(first, end):
            occupy(profile, nodes[k], taken, taken + wall[i], demand, i, 1)
        occupy_licenses(profile, taken, taken + wall[i], demand, i, 1)
