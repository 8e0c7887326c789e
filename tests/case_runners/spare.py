"""Runners of worked cases for spare capability: functions, finish times, graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.kernels.edf import NEVER, hyperperiods, reserve, run, work_of
from rtsched_plugins.kernels import spare
from rtsched_plugins.kernels.spare_graph import Machine, Places, Tasks, place_graph

if TYPE_CHECKING:
    from collections.abc import Callable

    from rtsched.kernels.edf import Work

Case = dict[str, Any]
SILENT = np.empty((0, 3), np.int64)


def _columns(periodic: list[Case]) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    names = ("exec_slots", "period_slots", "relative_deadline_slots", "phase_slots")
    return [np.array([job[name] for job in periodic], np.int64) for name in names]


def machine_work(machines: list[list[Case]], tasks: int) -> Work:
    """Return the work of machines given by their periodic jobs, at slot 0."""
    node = np.repeat(np.arange(len(machines)), [len(jobs) for jobs in machines])
    columns = _columns([job for jobs in machines for job in jobs])
    return work_of(len(machines), tasks, node, *columns)


def spare_function(case: Case) -> Case:
    """P(t), and S(t) in the printed and in the exact form."""
    jobs, at = spare.PeriodicSet(*_columns(case["periodic"])), np.array(case["t_slots"])
    return {
        "P_at_t": spare.demand(jobs, at).tolist(),
        "S_next_deadline_form": spare.spare_literal(jobs, at).tolist(),
        "S_exact": spare.spare(jobs, at).tolist(),
    }


def finish_time(case: Case) -> Case:
    """Each task's earliest finish, reserved before the next; S(t0, t) before it is added."""
    work = machine_work([case["periodic"]], len(case["new_tasks"]))
    hyper, utilisation = hyperperiods(work)
    offsets = np.array(case["S_online_at_offsets"])
    now, found = 0, []
    for row, task in enumerate(case["new_tasks"]):
        arrival, cost = task["arrival_slot"], task["exec_slots"]
        run(work, 0, now, arrival, False, SILENT)
        now = arrival
        free = spare.spare_from(work, 0, now, now + offsets)
        finish = spare.earliest_finish(work, 0, now, now, cost, NEVER, hyper[0], utilisation[0])
        reserve(work, 0, row, now, finish, cost)
        found.append({"finish_slot": int(finish), "S_online": free.tolist()})
    run(work, 0, now, now + 1000, False, SILENT)
    if work.missed[0]:
        return {"tasks": "a deadline was missed"}
    return {"tasks": found}


def _graph(job: Case) -> tuple[Tasks, list[int]]:
    """Return a job's tasks in the order in which they are placed, and their ids."""
    left = {task["id"]: task for task in job["tasks"]}
    order: list[int] = []
    while left:
        ready = [t for t, task in left.items() if all(p["task"] in order for p in task["preds"])]
        order.append(min(ready))
        del left[order[-1]]
    by_id = {task["id"]: task for task in job["tasks"]}
    tasks = [by_id[key] for key in order]
    preds = [pred for task in tasks for pred in task["preds"]]
    return Tasks(
        np.full(len(tasks), job["arrival_slot"], np.int64),
        np.array([task["exec_slots_by_machine"] for task in tasks], np.int64),
        np.full(len(tasks), job["deadline_slot"], np.int64),
        np.cumsum([0, *(len(task["preds"]) for task in tasks)]).astype(np.int64),
        np.array([order.index(pred["task"]) for pred in preds], np.int64),
        np.array([pred["message_slots"] for pred in preds], np.int64),
    ), order


def admit_graphs(
    machines: list[list[Case]], jobs: list[Case], until: int, last: bool
) -> tuple[list[Case], int, int, int]:
    """Judge jobs in order of arrival while the machines run.

    Returns
    -------
    list of dict, int, int, int
        Per job whether it was accepted, and where; the slots that new tasks and that periodic jobs
        took up to `until`; the deadlines missed.
    """
    room = max((len(job["tasks"]) for job in jobs), default=0)
    work = machine_work(machines, room + sum(len(job["tasks"]) for job in jobs))
    hyper, utilisation = hyperperiods(work)
    now, row, used, kept, log = 0, room, 0, [], np.zeros((4096, 3), np.int64)

    def advance(then: int) -> int:
        new = 0
        for node in range(len(machines)):
            at = now
            while at < then:
                at, _, count = run(work, node, at, then, False, log)
                new += int(np.clip(np.diff(np.minimum(log[:count, 1:], until)), 0, None).sum())
        return new

    for job in sorted(jobs, key=lambda entry: (entry["arrival_slot"], entry["id"])):
        used += advance(job["arrival_slot"])
        now = job["arrival_slot"]
        tasks, order = _graph(job)
        places = Places(*(np.zeros(len(order), np.int64) for _ in range(3)))
        machine = Machine(now, work, hyper, utilisation)
        failed, _ = place_graph(machine, tasks, places, last, False)
        placed = {}
        for task, key in enumerate(order if failed < 0 else []):
            node, ready, finish = (int(column[task]) for column in places)
            reserve(work, node, row, ready, finish, int(tasks.cost[task, node]))
            row += 1
            placed[str(key)] = {"machine": node, "ready_slot": ready, "finish_slot": finish}
        kept.append({"id": job["id"], "accepted": failed < 0, "placement": placed})
    used += advance(max(until, now, int(work.deadline[:row].max(initial=0))) + 1)
    alone = machine_work(machines, 0)
    periodic = 0
    for node in range(len(machines)):
        run(alone, node, 0, until, False, SILENT)
        rows = slice(int(alone.first[node]), int(alone.first[node + 1]))
        begun = (alone.upcoming[rows] - np.array(_columns(machines[node])[3])) // alone.period[rows]
        periodic += int((begun * alone.cost[rows] - alone.rest[rows]).sum())
    return kept, used, periodic, int(work.missed.sum())


def dag(case: Case) -> Case:
    """Admission of graphs under both selections, with the measures of the paper."""
    machines = [machine["periodic"] for machine in case["machines"]]
    until, arrival = case["observation_slots"], {j["id"]: j["arrival_slot"] for j in case["jobs"]}
    result = {}
    for name, last in (("RF", False), ("UF", True)):
        kept, used, periodic, missed = admit_graphs(machines, case["jobs"], until, last)
        responses = [
            max(place["finish_slot"] for place in job["placement"].values()) - arrival[job["id"]]
            for job in kept
            if job["accepted"]
        ]
        spare_slots = until * len(machines) - periodic
        result[name] = {
            "jobs": kept,
            "guarantee_ratio": len(responses) / len(kept),
            "mean_response_slots": float(np.mean(responses)) if responses else None,
            "spare_utilisation": used / spare_slots,
            "missed": missed,
        }
    return result


RUNNERS: dict[str, Callable[[Case], Case]] = {
    "spare_function": spare_function,
    "finish_time": finish_time,
    "dag": dag,
}
