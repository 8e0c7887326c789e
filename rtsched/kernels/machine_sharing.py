"""Nodes that several jobs share: what is left of each resource, now and at the head's shadow time.

A job takes its demand on each of its nodes. An exclusive one takes no more than that, but needs
nodes without any other job, and nobody joins it there. That is one resource more, the tenancy of a
node, and the last: a job takes 1 of it, an exclusive one all.

Licences belong to no node. They are the resources just before tenancy, and what is left of them is
one row more behind the nodes, from which a job takes its demand once. Nodes have no end of
licences, and that row of everything else.

Amounts of several resources are packed into one word (`Lanes`), so that whether a demand exceeds a
room is seen at once. Each resource has a lane of some bits, the last of which, its guard, is 0.
Amounts are rounded down to what fits into their lane, so that a demand that fits into a room never
packs to more than the room does; the reverse need not hold. Only the first resources have lanes
where there are many.

Of the nodes with room a rule (`Placement`) gives a job those of the least scores; of equal ones
those that come first. The rule `FIRST` has no scores: it takes the first nodes that have room.

References
----------
Slurm manual, slurm.conf: SelectTypeParameters, CR_LLN and CR_Pack_Serial_At_End (option
pack_serial_at_end of SchedulerParameters). Weng and others 2023, Beware of fragmentation:
scheduling GPU-sharing workloads with fragmentation gradient descent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.kernels.compiling import outline, part

if TYPE_CHECKING:
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


MOST_LANES = 7
WORD = 63
"""Bits of a word that are used: all but the sign."""


class Lanes(NamedTuple):
    """How amounts of resources are packed."""

    shift: NDArray[np.int64]
    """int64[lanes]: how many of its lowest bits an amount loses."""
    bits: NDArray[np.int64]
    """int64[2]: bits of a lane, and the word of all guards."""


def lanes_for(capacity: NDArray[np.int64]) -> Lanes:
    """Return lanes for amounts up to those of nodes, int64[m, r]; greater ones pack to the most."""
    lanes = min(capacity.shape[1], MOST_LANES)
    bits = WORD // max(lanes, 1)
    most = capacity[:, :lanes].max(axis=0, initial=0).tolist()
    shift = [max(value.bit_length() - bits + 1, 0) for value in most]
    guards = sum(1 << (bits * lane + bits - 1) for lane in range(lanes))
    return Lanes(np.array(shift, np.int64), np.array([bits, guards], np.int64))


@part
def pack(lanes: Lanes, amounts: NDArray[np.int64], at: int) -> int:
    """Return a row of amounts as one word."""
    bits, word = lanes.bits[0], 0
    most = (1 << (bits - 1)) - 1
    for lane in range(len(lanes.shift)):
        value = min(max(amounts[at, lane], 0) >> lanes.shift[lane], most)
        word |= value << (bits * lane)
    return word


@part
def exceeds(lanes: Lanes, demand: int, room: int) -> bool:
    """Return whether a packed demand exceeds a packed room in some resource."""
    guards = lanes.bits[1]
    return bool((((room | guards) - demand) & guards) != guards)


@part
def most_of(lanes: Lanes, first: int, second: int) -> int:
    """Return the greater of each two packed amounts."""
    bits, word = lanes.bits[0], 0
    lane = (1 << (bits - 1)) - 1
    for at in range(len(lanes.shift)):
        mask = lane << (bits * at)
        word |= max(first & mask, second & mask)
    return word


FIRST, BEST_FIT, LEAST_LOADED, SERIAL_AT_END, FEWEST_STRANDED = range(5)


class Placement(NamedTuple):
    """What scores are worked out from, for `m` nodes and `r` resources, the last being tenancy."""

    capacity: NDArray[np.int64]
    """int64[m, r]: what nodes have; empty with the rule `FIRST`."""
    column: NDArray[np.int64]
    """int64[3]: which resource is cores, memory, GPUs; -1: no node has any."""
    score: NDArray[np.float64]
    """Scratch, float64[m]: of each candidate."""


@part
def filled(
    placement: Placement,
    room: NDArray[np.int64],
    at: int,
    node: int,
    demand: NDArray[np.int64],
    row: int,
) -> float:
    """Return how full a node is with the job, by the fullest of the resources it asks for."""
    most = 0.0
    for resource in range(demand.shape[1] - 1):
        has = placement.capacity[node, resource]
        if demand[row, resource] > 0 and has > 0:
            most = max(most, (has - room[at, resource] + demand[row, resource]) / has)
    return most


@part
def stranded(
    placement: Placement,
    room: NDArray[np.int64],
    at: int,
    node: int,
    demand: NDArray[np.int64],
    row: int,
    times: int,
) -> float:
    """Return how many free GPUs a node has no cores or memory for, once the job took its demand.

    An even share of the node's cores and memory is counted for each GPU. `times` 0: without the
    job.
    """
    gpu = placement.column[2]
    if gpu < 0 or placement.capacity[node, gpu] == 0:
        return 0.0
    has = placement.capacity[node, gpu]
    free = float(room[at, gpu] - times * demand[row, gpu])
    usable = free
    for i in range(2):
        other = placement.column[i]
        if other >= 0 and placement.capacity[node, other] > 0:
            left = room[at, other] - times * demand[row, other]
            usable = min(usable, left / placement.capacity[node, other] * has)
    return free - usable


@part
def score_of(
    placement: Placement,
    rule: int,
    room: NDArray[np.int64],
    at: int,
    node: int,
    demand: NDArray[np.int64],
    row: int,
    size: int,
) -> float:
    """Return the score of a node for a job of `size` nodes; less is better.

    Parameters
    ----------
    placement : Placement
    rule : int
        Not `FIRST`.
    room : int64[p, r]
        Its row `at` is what is left on the node.
    at, node : int
        That row, and the node.
    demand : int64[n, r]
        Its row `row` is what the job takes on each of its nodes.
    row, size : int
        That row, and the job's number of nodes.
    """
    cores = placement.column[0]
    if rule == BEST_FIT:
        return -filled(placement, room, at, node, demand, row)
    if rule == LEAST_LOADED:
        return -float(room[at, cores]) if cores >= 0 else 0.0
    if rule == SERIAL_AT_END:
        serial = size == 1 and cores >= 0 and demand[row, cores] <= 1
        return float(-node if serial else node)
    after = stranded(placement, room, at, node, demand, row, 1)
    return after - stranded(placement, room, at, node, demand, row, 0)


@outline
def pick_best(placement: Placement, count: int, size: int, picks: NDArray[np.int64]) -> None:
    """Keep of the first `count` picks the `size` of the least scores, in the order they have.

    Their scores are in `placement`, and are overwritten.
    """
    score = placement.score
    for _ in range(size):
        best = -1
        for i in range(count):
            if score[i] > -np.inf and (best < 0 or score[i] < score[best]):
                best = i
        score[best] = -np.inf
    found = 0
    for i in range(count):
        if score[i] == -np.inf:
            picks[found] = picks[i]
            found += 1


@outline
def pick_by_room(
    placement: Placement,
    rule: int,
    room: NDArray[np.int64],
    demand: NDArray[np.int64],
    row: int,
    size: int,
    count: int,
    picks: NDArray[np.int64],
) -> None:
    """Keep of the first `count` picks the `size` of the least scores by what is left on them now.

    Only a few arrays are handed over, not the whole machine, which would cost its caller time.
    """
    for i in range(count):
        node = picks[i]
        placement.score[i] = score_of(placement, rule, room, node, node, demand, row, size)
    pick_best(placement, count, size, picks)
