"""Reservations on nodes that jobs share: the steps of conservative backfilling that differ there.

The pass is that of `rtsched.kernels.machine_profile`. A reservation is the earliest time at which
enough nodes have room for the whole requested time, and of these nodes the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels.machine_compiling import outline, part
from rtsched.kernels.shared_backfill import launch_shared
from rtsched.kernels.shared_profile import earliest_of, occupy_held

if TYPE_CHECKING:
    from rtsched.kernels.machine import MachineState


@outline
def reserve_shared(machine: MachineState, at: int, start: float) -> None:
    """Give the job at one place of the queue its earliest reservation from `start` on."""
    slot = machine.queue[at]
    slot.reserved = earliest_of(machine, slot.row, slot.width, slot.wall, start)
    if slot.reserved < np.inf:
        for i in range(slot.width):
            machine.held[machine.held_at[slot.row] + i] = machine.picks[i]
        end = slot.reserved + slot.wall
        occupy_held(machine, slot.row, slot.width, slot.reserved, end, 1)


@part
def unreserve_shared(machine: MachineState, at: int) -> None:
    """Take the reservation of the job at one place of the queue out of the profile."""
    slot = machine.queue[at]
    end = slot.reserved + slot.wall
    occupy_held(machine, slot.row, slot.width, slot.reserved, end, -1)


@part
def launch_reserved_shared(machine: MachineState, at: int) -> None:
    """Start the job at one place of the queue on the nodes that it has reserved."""
    slot = machine.queue[at]
    for i in range(slot.width):
        machine.picks[i] = machine.held[machine.held_at[slot.row] + i]
    launch_shared(machine, at)
