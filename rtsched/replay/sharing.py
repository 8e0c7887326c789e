"""A log on nodes that jobs share: each job takes amounts of resources on each of its nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rtsched.counting import counted
from rtsched.errors import ConfigError
from rtsched.model.jobs import Kind
from rtsched.model.resources import CPU, DISK, GRES, LICENSE, MEMORY
from rtsched.model.table import amounts_of
from rtsched.replay.gathering import gathered
from rtsched.replay.machine import by_resources, cores_per_node

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.model.cluster import Cluster
    from rtsched.model.jobs import Jobs
    from rtsched.model.log import Log


_UNKNOWN_LICENSES = (
    "how many there are is not known; append the output of `scontrol show licenses` to the file of "
    "--cluster"
)


def shared_nodes(log: Log, machine: Cluster | None, notes: list[str]) -> tuple[Log, Cluster]:
    """Return a log whose sizes count nodes, with demands, and the machine with its capacities.

    Parameters
    ----------
    log : Log
        As read; sizes count processors.
    machine : Cluster or None
        The machine.
    notes : list of str
        Grows by what had to be assumed.

    Raises
    ------
    ConfigError
        If the machine is not known.
    """
    if machine is None:
        raise ConfigError(
            [
                "workload.unit: 'resources' needs to know what each node has; give --cluster with "
                "the output of `scontrol show nodes` or `condor_status -long`"
            ]
        )
    machine = by_resources(machine)
    jobs = log.jobs
    each = cores_per_node(machine)
    nodes = np.where(jobs.node_count > 0, jobs.node_count, -(-np.maximum(jobs.size, 0) // each))
    nodes = nodes.astype(np.int32)
    resources = _counted(jobs, machine, notes)
    columns = {
        "size": nodes,
        "cores": jobs.size,
        "demand": _demand(jobs, nodes, resources, notes),
        "kind": np.where(jobs.kind == Kind.MOLDABLE, np.int8(Kind.RIGID), jobs.kind),
    }
    moldable = int((jobs.kind == Kind.MOLDABLE).sum())
    if moldable:
        notes.append(
            f"{counted(moldable, 'job')} that may have fewer or more nodes: the number asked for."
        )
    shared = gathered(
        jobs, None, columns, {"demand": resources}, without=("size_min", "size_max", "memory")
    )
    given = np.where(log.outcomes.size > 0, nodes, np.int32(0))
    outcomes = gathered(log.outcomes, None, {"size": given})
    notes.append(
        f"Jobs share {counted(len(machine), 'node')}: each takes what it asks for of "
        f"{', '.join(resources)}."
    )
    return replace(log, jobs=shared, outcomes=outcomes), machine


def _counted(jobs: Jobs, machine: Cluster, notes: list[str]) -> tuple[str, ...]:
    """Return the resources that count: those of nodes, licences, and GRES that no node has."""
    resources = (*machine.nodes.names("capacity"), *machine.licenses)
    asked = jobs.names("demand")
    for at, name in enumerate(asked):
        n = int((jobs.demand[:, at] > 0).sum()) if name not in resources else 0
        if n and not name.startswith(GRES):
            what = "every node's is not known" if name in {MEMORY, DISK} else "no node has it"
            what = _UNKNOWN_LICENSES if name.startswith(LICENSE) else what
            notes.append(f"{name} is not modelled ({counted(n, 'job')}): {what}.")
    others = (name for name in asked if name.startswith(GRES) and name not in resources)
    return (*resources, *others)


def _demand(
    jobs: Jobs, nodes: NDArray[np.int32], resources: tuple[str, ...], notes: list[str]
) -> NDArray[np.int64]:
    """Return what each job takes on each of its nodes, int64[n, r]."""
    demand = amounts_of(jobs, "demand", resources).copy()
    cores = resources.index(CPU) if CPU in resources else -1
    unknown = demand[:, cores] <= 0 if cores >= 0 else np.zeros(len(jobs), np.bool_)
    if not unknown.any():
        return demand
    width = np.maximum(nodes, 1)
    demand[:, cores] = np.where(unknown, -(-np.maximum(jobs.size, 0) // width), demand[:, cores])
    if MEMORY in resources:
        at = resources.index(MEMORY)
        each = np.maximum(jobs.memory, 0) * demand[:, cores]
        demand[:, at] = np.where(unknown & (demand[:, at] <= 0), each, demand[:, at])
    notes.append(
        f"{counted(int(unknown.sum()), 'job')} of which the log has no ReqTRES: processors and "
        "memory are divided evenly among the nodes."
    )
    return demand
