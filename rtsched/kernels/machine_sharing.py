"""Nodes that several jobs share: what is left of each resource, and who is on which node.

A job takes its demand on each of its nodes. An exclusive one takes no more than that, but needs
nodes without any other job, and nobody joins it there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rtsched.kernels.machine_compiling import outline, part
from rtsched.kernels.records import record_type

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rtsched.kernels.machine import MachineState

SHARE = record_type(
    ("guests", "i4"), ("later_guests", "i4"), ("closed", "i1"), ("later_closed", "i1")
)
"""One per node: the jobs that run there, and whether one of them is exclusive.

`later_...` is the same at the head's shadow time, by the requested ends.
"""


@part
def fits(room: NDArray[np.int64], node: int, demand: NDArray[np.int64], row: int) -> bool:
    """Return whether a node has room for a job's demand."""
    enough = True
    for resource in range(demand.shape[1]):
        enough = enough and demand[row, resource] <= room[node, resource]
    return bool(enough)


@part
def fits_now(machine: MachineState, row: int, node: int) -> bool:
    """Return whether a job fits on a node that is up now."""
    share = machine.shares[node]
    if share.closed or (machine.alone[row] and share.guests > 0):
        return False
    return bool(fits(machine.room, node, machine.demand, row))


@part
def fits_later(machine: MachineState, row: int, node: int) -> bool:
    """Return whether a job fits on a node that is up at the head's shadow time."""
    share = machine.shares[node]
    if share.later_closed or (machine.alone[row] and share.later_guests > 0):
        return False
    return bool(fits(machine.later, node, machine.demand, row))


@part
def move_in(machine: MachineState, row: int, size: int) -> int:
    """Give a job its demand on the nodes just chosen, and return the first."""
    at = machine.held_at[row]
    for i in range(size):
        node = machine.picks[i]
        machine.held[at + i] = node
        for resource in range(machine.demand.shape[1]):
            machine.room[node, resource] -= machine.demand[row, resource]
        machine.shares[node].guests += 1
        if machine.alone[row]:
            machine.shares[node].closed = 1
    return int(machine.picks[0])


@part
def move_out(machine: MachineState, row: int) -> None:
    """Give back what a job has on its nodes."""
    at = machine.held_at[row]
    for i in range(machine.jobs[row].width):
        node = machine.held[at + i]
        for resource in range(machine.demand.shape[1]):
            machine.room[node, resource] += machine.demand[row, resource]
        machine.shares[node].guests -= 1
        if machine.alone[row]:
            machine.shares[node].closed = 0


@part
def slowest_held(machine: MachineState, row: int, size: int) -> float:
    """Return the least speed among the nodes of a job that has just been given them."""
    at = machine.held_at[row]
    speed = machine.nodes[machine.held[at]].speed
    for i in range(1, size):
        speed = min(speed, machine.nodes[machine.held[at + i]].speed)
    return float(speed)


@outline
def measure_room(machine: MachineState) -> None:
    """Note the most of each resource that a node has left: whoever asks for more fits nowhere."""
    room = machine.room
    for resource in range(room.shape[1]):
        most = 0
        for node in range(len(room)):
            most = max(most, room[node, resource])
        machine.most[resource] = most
