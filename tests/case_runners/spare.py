"""Runners of worked cases for spare capability: functions, finish times, graphs."""

from collections.abc import Callable
from typing import Any

import numpy as np

from rtsched.kernels.edf import NEVER, hyperperiods, reserve, run
from rtsched_plugins.kernels.spare import earliest_finish
from rtsched_reproductions import spare
from rtsched_reproductions.spare import SILENT, Job, Task, admit_jobs, machines_of

Case = dict[str, Any]
NAMES = ("exec_slots", "period_slots", "relative_deadline_slots", "phase_slots")


def periodic_set(periodic: list[Case]) -> spare.PeriodicSet:
    """Return the periodic jobs of one machine."""
    return spare.PeriodicSet(
        *(np.array([job[name] for job in periodic], np.int64) for name in NAMES)
    )


def spare_function(case: Case) -> Case:
    """P(t), and S(t) in the printed and in the exact form."""
    jobs, at = periodic_set(case["periodic"]), np.array(case["t_slots"])
    return {
        "P_at_t": spare.demand(jobs, at).tolist(),
        "S_next_deadline_form": spare.spare_literal(jobs, at).tolist(),
        "S_exact": spare.spare(jobs, at).tolist(),
    }


def finish_time(case: Case) -> Case:
    """Each task's earliest finish, reserved before the next; S(t0, t) before it is added."""
    work = machines_of([periodic_set(case["periodic"])], len(case["new_tasks"]))
    hyper, utilisation = hyperperiods(work)
    offsets = np.array(case["S_online_at_offsets"])
    now, found = 0, []
    for row, task in enumerate(case["new_tasks"]):
        arrival, cost = task["arrival_slot"], task["exec_slots"]
        run(work, 0, now, arrival, False, SILENT)
        now = arrival
        free = spare.spare_from(work, 0, now, now + offsets)
        finish = earliest_finish(work, 0, now, now, cost, NEVER, hyper[0], utilisation[0])
        reserve(work, 0, row, now, finish, cost)
        found.append({"finish_slot": int(finish), "S_online": free.tolist()})
    run(work, 0, now, now + 1000, False, SILENT)
    return {"tasks": "a deadline was missed" if work.missed[0] else found}


def job_of(job: Case) -> Job:
    """Return one job of a case."""
    tasks = (
        Task(
            task["id"],
            tuple(task["exec_slots_by_machine"]),
            tuple((pred["task"], pred["message_slots"]) for pred in task["preds"]),
        )
        for task in job["tasks"]
    )
    return Job(job["id"], job["arrival_slot"], job["deadline_slot"], tuple(tasks))


def dag(case: Case) -> Case:
    """Admission of graphs under both selections, with the measures of the paper."""
    sets = [periodic_set(machine["periodic"]) for machine in case["machines"]]
    jobs, until = [job_of(job) for job in case["jobs"]], case["observation_slots"]
    result = {}
    for name, last in (("RF", False), ("UF", True)):
        course = admit_jobs(sets, jobs, until, last)
        ratio, response, use = course.measures(until * len(sets))
        result[name] = {
            "jobs": [
                {
                    "id": said.job.key,
                    "accepted": bool(said.places),
                    "placement": {
                        str(key): {"machine": node, "ready_slot": ready, "finish_slot": finish}
                        for key, (node, ready, finish) in said.places.items()
                    },
                }
                for said in course.outcomes
            ],
            "guarantee_ratio": ratio,
            "mean_response_slots": None if np.isnan(response) else response,
            "spare_utilisation": use,
            "missed": course.missed,
        }
    return result


RUNNERS: dict[str, Callable[[Case], Case]] = {
    "spare_function": spare_function,
    "finish_time": finish_time,
    "dag": dag,
}
