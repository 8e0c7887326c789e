"""Runners of the kinds of sed.json."""

from collections.abc import Callable
from typing import Any

import numpy as np

from rtsched.replay.results import Workload
from rtsched_reproductions.sed_runs import VARIANTS, diagram, idle, run, stream

Case = dict[str, Any]


def run_operations(case: Case) -> Case:
    """Assign, terminate and migrate jobs one by one."""
    place = idle(case["speed_factors"], upgrade=case["upgrade"], migrate=case["migrate"])
    found: Case = {
        "delay_classes": place.classes(),
        "availability_idle": place.availability(),
        "after_each_operation": [],
    }
    for operation in case["operations"]:
        after: Case = {}
        if operation["op"] == "assign":
            then = place.assigned(operation["job"], operation["minsize"], operation["maxsize"])
            after["mapped"] = then is not None
            place = then or place
        elif operation["op"] == "terminate":
            place, after["upgraded_jobs"] = place.terminated(operation["job"])
        else:
            after["migrations"] = []
            for then, job, moved in list(place.migrated()):
                place = then
                after["migrations"].append({"job": job, "processes_moved": moved})
        delays = place.delays()
        after["availability"] = place.availability()
        after["running"] = {
            str(job): {"machines": sorted(nodes), "delay": delays[job]}
            for job, nodes in place.nodes.items()
        }
        found["after_each_operation"].append(after)
    return found


def run_mapping_diagram(case: Case) -> Case:
    """Follow every way in which jobs may come and end, from the idle machine."""
    states, edges = diagram(
        case["speed_factors"], case["variant"], case["minsize"], case["maxsize"]
    )
    return {"states": states, "edges": [list(edge) for edge in edges]}


def run_simulation(case: Case) -> Case:
    """Replay a job stream under each variant, on the simulated time-shared machine."""
    workload = parallel_workload(case["speed_factors"], case["jobs"])
    return {variant: replayed(workload, variant) for variant in VARIANTS}


def parallel_workload(speed_factors: list[float], jobs: list[Case]) -> Workload:
    """Return a job stream as a workload: demands are seconds on one fastest node."""
    names = ("arrival_time_s", "demand_s", "minsize", "maxsize", "id")
    return stream(speed_factors, *([job[name] for job in jobs] for name in names))


def replayed(workload: Workload, variant: str) -> list[Case]:
    """Return what became of each job under a variant, with its upgrades and migrations."""
    system = run(workload, variant)
    course, ids = system.job_outcomes(), workload.jobs.id
    return [
        {
            "id": int(ids[row]),
            "start_time_s": float(course.start[row]),
            "finish_time_s": float(course.end[row]),
            "processes": int(course.size[row]),
            "upgrades": int(system.upgrades[row]),
            "migrations": int(system.migrations[row]),
        }
        for row in np.argsort(ids)
    ]


RUNNERS: dict[str, Callable[[Case], Case]] = {
    "operations": run_operations,
    "simulation": run_simulation,
    "mapping_diagram": run_mapping_diagram,
}
