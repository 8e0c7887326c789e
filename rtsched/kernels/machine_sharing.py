"""Nodes that several jobs share: what is left of each resource, now and at the head's shadow time.

A job takes its demand on each of its nodes. An exclusive one takes no more than that, but needs
nodes without any other job, and nobody joins it there. That is one resource more, the tenancy of a
node, and the last: a job takes 1 of it, an exclusive one all.

Licences belong to no node. They are the resources just before tenancy, and what is left of them is
one row more behind the nodes, from which a job takes its demand once. Nodes have no end of
licences, and that row of everything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rtsched.kernels.machine_compiling import outline, part

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rtsched.kernels.machine import MachineState

ANYWHERE = -1
"""In place of a length of `grown`: room may have come free on any node."""
TOO_FEW = -1
"""In place of a place: a job has room on too few of its nodes."""
UNKNOWN = -1
"""In place of a scan or of a packed demand: not known."""


@part
def fits(room: NDArray[np.int64], at: int, demand: NDArray[np.int64], row: int) -> bool:
    """Return whether there is room for a job's demand."""
    enough = True
    for resource in range(demand.shape[1]):
        enough = enough and demand[row, resource] <= room[at, resource]
    return bool(enough)


@part
def take(room: NDArray[np.int64], at: int, demand: NDArray[np.int64], row: int, sign: int) -> None:
    """Take a job's demand (sign 1) or give it back (-1)."""
    for resource in range(demand.shape[1]):
        room[at, resource] -= sign * demand[row, resource]


@part
def takes_licenses(demand: NDArray[np.int64], row: int, licenses: int) -> bool:
    """Return whether a job takes any of so many kinds of licences."""
    tenancy, takes = demand.shape[1] - 1, False
    for resource in range(tenancy - licenses, tenancy):
        takes = takes or demand[row, resource] > 0
    return takes


@part
def licenses_left(machine: MachineState, room: NDArray[np.int64], row: int) -> bool:
    """Return whether there are licences enough for a job."""
    licenses = machine.state[0].licenses
    if not takes_licenses(machine.demand, row, licenses):
        return True
    return fits(room, len(room) - 1, machine.demand, row)


@part
def take_licenses(machine: MachineState, room: NDArray[np.int64], row: int, sign: int) -> None:
    """Take a job's licences (sign 1) or give them back (-1)."""
    if takes_licenses(machine.demand, row, machine.state[0].licenses):
        take(room, len(room) - 1, machine.demand, row, sign)


@part
def move_in(machine: MachineState, row: int, size: int) -> int:
    """Give a job its demand on the nodes just chosen, and return the first."""
    at = machine.held_at[row]
    for i in range(size):
        machine.held[at + i] = machine.picks[i]
        take(machine.room, machine.picks[i], machine.demand, row, 1)
    take_licenses(machine, machine.room, row, 1)
    return int(machine.picks[0])


@part
def note_growth(machine: MachineState, node: int) -> None:
    """Note that room came free on a node."""
    state = machine.state[0]
    if state.grown == len(machine.grown):
        state.grown = ANYWHERE
    if state.grown != ANYWHERE:
        machine.grown[state.grown] = node
        state.grown += 1


@part
def move_out(machine: MachineState, row: int) -> None:
    """Give back what a job has on its nodes."""
    at = machine.held_at[row]
    for i in range(machine.jobs[row].width):
        node = machine.held[at + i]
        take(machine.room, node, machine.demand, row, -1)
        note_growth(machine, node)
    take_licenses(machine, machine.room, row, -1)


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
    """Note the most of each resource that a node has left: whoever asks for more fits nowhere.

    It is measured in one of 64 scans; in the others it only grows with what came free.
    """
    state, room = machine.state[0], machine.room
    if state.grown != ANYWHERE and state.scan & 63 != 1:
        for i in range(state.grown):
            for resource in range(room.shape[1]):
                left = room[machine.grown[i], resource]
                machine.most[resource] = max(machine.most[resource], left)
        return
    for resource in range(room.shape[1]):
        most = 0
        for node in range(len(machine.nodes)):
            most = max(most, room[node, resource])
        machine.most[resource] = most
