"""Reservations on nodes that jobs share: the steps of conservative backfilling that differ there.

The pass is that of `rtsched.kernels.machine_profile`. A reservation is the earliest time at which
enough nodes have room for the whole requested time, and of these nodes the first, or those that
another rule prefers (`rtsched.kernels.placement`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels.machine_compiling import only_with, outline
from rtsched.kernels.placement import FIRST, pick_best, score_of
from rtsched.kernels.room_profile import first_fit, step_of
from rtsched.kernels.shared_backfill import launch_shared
from rtsched.kernels.shared_profile import earliest_of, list_candidates, occupy_held

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.kernels.machine import MachineState
    from rtsched.kernels.placement import Placement
    from rtsched.kernels.room_profile import RoomProfile


@outline
def pick_reserved(
    placement: Placement,
    rule: int,
    profile: RoomProfile,
    candidates: NDArray[np.int64],
    count: int,
    start: float,
    wall: float,
    demand: NDArray[np.int64],
    row: int,
    size: int,
    picks: NDArray[np.int64],
) -> None:
    """Pick the nodes for a reservation whose time is known, among the first `count` candidates.

    They are chosen by what is left on them when the job starts.
    """
    found = 0
    for i in range(count):
        node = candidates[i]
        if first_fit(profile, node, start, wall, demand, row) <= start:
            at = step_of(profile, node, start)
            picks[found] = node
            placement.score[found] = score_of(
                placement, rule, profile.room, at, node, demand, row, size
            )
            found += 1
    pick_best(placement, found, size, picks)


@only_with("step_room")
def reserve_shared(machine: MachineState, at: int, start: float) -> None:
    """Give the job at one place of the queue its earliest reservation from `start` on."""
    slot = machine.queue[at]
    slot.reserved = earliest_of(machine, slot.row, slot.width, slot.wall, start)
    if slot.reserved < np.inf:
        if machine.state[0].placement != FIRST:
            count = list_candidates(machine, slot.row)
            pick_reserved(
                machine.placement,
                machine.state[0].placement,
                machine.step_room,
                machine.candidates,
                count,
                slot.reserved,
                slot.wall,
                machine.demand,
                slot.row,
                slot.width,
                machine.picks,
            )
        for i in range(slot.width):
            machine.held[machine.held_at[slot.row] + i] = machine.picks[i]
        end = slot.reserved + slot.wall
        occupy_held(machine, slot.row, slot.width, slot.reserved, end, 1)


@only_with("step_room")
def unreserve_shared(machine: MachineState, at: int) -> None:
    """Take the reservation of the job at one place of the queue out of the profile."""
    slot = machine.queue[at]
    end = slot.reserved + slot.wall
    occupy_held(machine, slot.row, slot.width, slot.reserved, end, -1)


@only_with("step_room")
def launch_reserved_shared(machine: MachineState, at: int) -> None:
    """Start the job at one place of the queue on the nodes that it has reserved."""
    slot = machine.queue[at]
    for i in range(slot.width):
        machine.picks[i] = machine.held[machine.held_at[slot.row] + i]
    launch_shared(machine, at)
