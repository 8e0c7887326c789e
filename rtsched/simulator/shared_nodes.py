"""Lay out what the machine needs where jobs share nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels import machine as kernel
from rtsched.kernels.machine_sharing import TENANCY
from rtsched.kernels.room_profile import RoomProfile
from rtsched.model.ragged import Ragged, offsets_of
from rtsched.model.resources import fitting_nodes
from rtsched.model.table import amounts_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Jobs


def with_shared_nodes(
    machine: kernel.MachineState, jobs: Jobs, cluster: Cluster
) -> kernel.MachineState:
    """Return the machine with the room of its nodes and the demands of its jobs."""
    n, m = len(jobs), len(cluster)
    resources = cluster.nodes.names("capacity")
    room = np.full((max(m, 1), len(resources) + 1), TENANCY, np.int64)
    room[:m, :-1] = cluster.nodes.capacity
    demand = np.ones((n, len(resources) + 1), np.int64)
    demand[:, :-1] = amounts_of(jobs, "demand", resources)
    demand[jobs.exclusive, -1] = TENANCY
    held_at = offsets_of(jobs.size)
    machine.state[0].sharing = 1
    # A job that runs or has a reservation begins and ends two steps on each of its nodes.
    steps = 2 * int(held_at[-1]) + 2 if machine.state[0].loop == kernel.CONSERVATIVE else 0
    return machine._replace(
        ends=np.zeros(n + 1, kernel.TIMED),
        running=np.zeros(n + 1, kernel.TIMED),
        demand=demand,
        fitting=fitting_nodes(jobs, cluster),
        held_at=held_at,
        held=np.zeros(max(held_at[-1], 1), np.int32),
        room=room,
        later=room.copy(),
        most=np.zeros(len(resources) + 1, np.int64),
        candidates=np.zeros(max(m, 1), np.int64),
        step_room=empty_profile(max(m, 1), max(m, 1) + steps, len(resources) + 1),
    )


def empty_profile(nodes: int, steps: int, resources: int) -> RoomProfile:
    """Return a profile of `nodes` nodes with a store of `steps` steps, nothing filled in."""
    return RoomProfile(
        first=np.zeros(nodes, np.int32),
        after=np.zeros(steps, np.int32),
        time=np.zeros(steps),
        room=np.zeros((steps, resources), np.int64),
        unused=np.zeros(1, np.int64),
        fit=np.zeros(nodes),
    )


def held_nodes(
    machine: kernel.MachineState,
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return per job the nodes of its last start, as offsets and nodes."""
    started = np.isfinite(machine.jobs["start"])
    size = np.where(started, machine.jobs["width"], 0)
    offsets, within = Ragged.counted(size)
    return offsets, machine.held[np.repeat(machine.held_at[:-1], size) + within]
