"""Shared nodes, laid out for the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.kernels import machine as kernel
from rtsched.kernels.machine_sharing import (
    ANYWHERE,
    BEST_FIT,
    FEWEST_STRANDED,
    FIRST,
    LEAST_LOADED,
    SERIAL_AT_END,
    UNKNOWN,
    Placement,
    lanes_for,
)
from rtsched.kernels.room import empty_profile
from rtsched.model.resources import CPU, GPU, MEMORY, demand_of, fitting_nodes, room_of
from rtsched.model.table import Ragged, offsets_of
from rtsched.simulator.views import laid_plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Jobs


RULES = {
    "first": FIRST,
    "best_fit": BEST_FIT,
    "least_loaded": LEAST_LOADED,
    "pack_serial_at_end": SERIAL_AT_END,
    "fewest_stranded_gpus": FEWEST_STRANDED,
}
"""The rule behind each value of the setting `placement`."""

NEVER_TRIED = np.array((UNKNOWN, 0), kernel.TRIED)


def with_shared_nodes(
    machine: kernel.MachineState, jobs: Jobs, cluster: Cluster, placement: str
) -> kernel.MachineState:
    """Return the machine with the room of its nodes and the demands of its jobs.

    `placement` is the setting that says which of the nodes with room a job is given.
    """
    n, m = len(jobs), len(cluster)
    room = room_of(cluster)
    resources = room.shape[1]
    held_at = offsets_of(machine.jobs["width"])
    machine.state[0].sharing = 1
    machine.state[0].licenses = len(cluster.licenses)
    machine.state[0].grown = ANYWHERE
    machine.state[0].placement = RULES[placement]
    steps = _steps_reserved(int(held_at[-1]), n) if _reserves(machine) else 0
    return machine._replace(
        ends=np.zeros(n + 1, kernel.TIMED),
        running=np.zeros(n + 1, kernel.TIMED),
        demand=demand_of(jobs, cluster),
        fitting=fitting_nodes(jobs, cluster),
        held_at=held_at,
        held=np.zeros(max(held_at[-1], 1), np.int32),
        room=room,
        later=room.copy(),
        tried=np.full(n, NEVER_TRIED, kernel.TRIED),
        no_room=np.full(n, UNKNOWN),
        lanes=lanes_for(room[:m]),
        grown=np.zeros(m, np.int64),
        most=np.zeros(resources, np.int64),
        candidates=np.zeros(max(m, 1), np.int64),
        step_room=empty_profile(len(room), len(room) + steps, resources, len(cluster.licenses)),
        placement=(
            no_placement()
            if RULES[placement] == FIRST
            else scored(room, cluster.nodes.names("capacity"))
        ),
    )


def _reserves(machine: kernel.MachineState) -> bool:
    """Return whether waiting jobs have reservations."""
    return bool(machine.state[0].loop == kernel.CONSERVATIVE)


def _steps_reserved(places: int, jobs: int) -> int:
    """Return how many steps jobs that run or have reservations on so many nodes may begin.

    Each begins two on each of its nodes, and of licences.
    """
    return 2 * (places + jobs) + 2


def scored(room: NDArray[np.int64], resources: Sequence[str]) -> Placement:
    """Return what nodes are chosen by: their capacity, and where cores, memory and GPUs stand.

    Licences belong to no node, so those that jobs of a node have do not make it fuller.
    """
    capacity = room.copy()
    capacity[:, len(resources) :] = 0
    column = [resources.index(name) if name in resources else -1 for name in (CPU, MEMORY, GPU)]
    return Placement(capacity, np.array(column, np.int64), np.zeros(len(room)))


def no_placement() -> Placement:
    """Return the same where jobs are given the first nodes."""
    return Placement(np.zeros((1, 0), np.int64), np.zeros(3, np.int64), np.zeros(1))


def with_room_for_plan(
    machine: kernel.MachineState, places: NDArray[np.int64]
) -> kernel.MachineState:
    """Return the machine with room for the nodes and steps of the plan just laid out.

    Parameters
    ----------
    machine : MachineState
        Shared, with its plan.
    places : int64[n]
        How many nodes each job has room for in `held`; grows where its plan gives it more than
        it asked for.
    """
    plan = laid_plan(machine)
    machine = with_room_for_sizes(machine, places, plan["row"], plan["width"])
    m, resources = machine.room.shape
    licenses = int(machine.state[0].licenses)
    steps = 4 * m + 2 * (len(machine.held) + len(machine.plan_nodes))
    if licenses:
        steps += 2 * (len(places) + len(machine.plan))
    if len(machine.step_room.after) < steps:
        machine = machine._replace(step_room=empty_profile(m, 2 * steps, resources, licenses))
    return machine


def with_room_for_sizes(
    machine: kernel.MachineState,
    places: NDArray[np.int64],
    rows: NDArray[np.int64],
    width: NDArray[np.int32],
) -> kernel.MachineState:
    """Return the machine with room in `held` for jobs that are given these numbers of nodes.

    Where that needs more steps of reservations than there are, these are made anew.

    Parameters
    ----------
    machine : MachineState
        Shared.
    places : int64[n]
        How many nodes each job has room for; grows where it is given more.
    rows, width : int64[k], int32[k]
        The jobs, none of which holds nodes, and their numbers of nodes.
    """
    wider = width > places[rows]
    if not wider.any():
        return machine
    rows, width = rows[wider], width[wider]
    places[rows] = width
    held_at = machine.held_at.copy()
    held_at[rows] = len(machine.held) + offsets_of(width)[:-1]
    held = np.concatenate([machine.held, np.zeros(int(width.sum()), np.int32)])
    machine = machine._replace(held_at=held_at, held=held)
    m, resources = machine.room.shape
    steps = m + _steps_reserved(len(held), len(places))
    if _reserves(machine) and len(machine.step_room.after) < steps:
        kernel.scalars(machine)["rebuild"] = 1
        step_room = empty_profile(m, 2 * steps, resources, int(machine.state[0].licenses))
        machine = machine._replace(step_room=step_room)
    return machine


def held_nodes(
    machine: kernel.MachineState,
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return per job the nodes of its last start, as offsets and nodes."""
    started = np.isfinite(machine.jobs["start"])
    size = np.where(started, machine.jobs["width"], 0)
    offsets, within = Ragged.counted(size)
    return offsets, machine.held[np.repeat(machine.held_at[:-1], size) + within]
