"""Cases of nodes that jobs share by resources: who starts when, and where."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Jobs
from rtsched.simulator.exclusive import ExclusiveNodes
from rtsched.simulator.settings import ExclusiveSettings

Case = dict[str, Any]


RESOURCES = ("cpu", "mem", "gres/gpu")


def amounts(rows: list[Case], *fields: str) -> NDArray[np.int64]:
    """Return int64[n, 3], the amounts of the resources in these fields."""
    table = [[row[field] for field in fields] for row in rows]
    return np.array(table, np.int64).reshape(len(rows), 3)


def workload(case: Case) -> tuple[Jobs, NDArray[np.float64], Cluster]:
    """Return the jobs, how long each runs in seconds, and the nodes that they share."""
    nodes, rows = case["nodes"], case["jobs"]
    capacity = amounts(nodes, "cores", "memory_mb", "gpus")
    cluster = Cluster(Nodes.build(len(nodes), names={"capacity": RESOURCES}, capacity=capacity))
    jobs = Jobs.build(
        len(rows),
        names={"demand": RESOURCES},
        id=[row["id"] for row in rows],
        submit=np.array([row["submit_s"] for row in rows], np.float64),
        wall_time=np.array([row["requested_s"] for row in rows], np.float64),
        size=[row["nodes"] for row in rows],
        demand=amounts(rows, "cores_per_node", "memory_mb_per_node", "gpus_per_node"),
        exclusive=[row["exclusive"] for row in rows],
    )
    return jobs, np.array([row["run_s"] for row in rows], np.float64), cluster


def tres(case: Case) -> Case:
    """Run the jobs under FCFS and EASY."""
    jobs, run_time, cluster = workload(case)
    return {"by_policy": {loop: starts(jobs, run_time, cluster, loop) for loop in ("fcfs", "easy")}}


def starts(jobs: Jobs, run_time: NDArray[np.float64], cluster: Cluster, loop: Any) -> Case:
    """Return start and nodes of each job that started under a loop."""
    system = ExclusiveNodes(
        jobs, run_time, cluster, ExclusiveSettings(loop=loop), record_nodes=True
    )
    assert system.advance().done
    begun, (offsets, nodes) = system.job_outcomes().start, system.node_rows()
    return {
        str(key): {"start_s": begun[row], "nodes": nodes[offsets[row] : offsets[row + 1]].tolist()}
        for row, key in enumerate(jobs.id.tolist())
        if np.isfinite(begun[row])
    }


RUNNERS: dict[str, Callable[[Case], Case]] = {"tres": tres}
