"""Runners of the kinds of mcdf.json."""

from collections.abc import Callable
from typing import Any

import dlt_reference
import numpy as np
from numpy.typing import NDArray

from rtsched.kernels import dlt
from rtsched.kernels.loads import Load
from rtsched.model.cluster import Cluster, Nodes
from rtsched.model.jobs import Edges, Jobs, Kind
from rtsched.model.log import FinalState, Outcomes, Skipped
from rtsched.model.snapshot import Accounts
from rtsched.replay.engine import replay
from rtsched.replay.measures import measure
from rtsched.replay.policies import presets
from rtsched.replay.results import Workload
from rtsched_plugins.kernels.admission import task_table
from rtsched_plugins.mcdf import NODE_RULES, ORDERS
from rtsched_plugins.planners import Rules, Varied

Case = dict[str, Any]


def _costs(case: Case) -> dict[str, float]:
    return {
        "cms": case["cms_time_per_unit"],
        "cps": case["cps_time_per_unit"],
        "setup_link": case["setup_link_time"],
        "setup_node": case["setup_node_time"],
    }


def _load(case: Case) -> Load:
    return Load(float(case["sigma_units"]), **{k: float(v) for k, v in _costs(case).items()})


def run_dlt(case: Case) -> Case:
    """Fractions, run time, fastest node count and cost of one load on n nodes."""
    n, load = case["n_nodes"], _load(case)
    alphas = dlt.fractions(n, load)
    return {
        "alphas": alphas,
        "exec_time": dlt.exec_time(n, load),
        "all_fractions_positive": bool((alphas > 0).all()),
        "n_star_up_to_64": dlt.fastest_count(64, load),
        "cost_node_time": dlt_reference.cost(n, load),
        "cost_derivative": dlt_reference.cost_derivative(n, load),
    }


def run_nmin(case: Case) -> Case:
    """Fewest nodes that meet a deadline."""
    load = _load(case)
    n = dlt_reference.least_count(case["slack_time"], case["N_nodes"], load)
    time = dlt.exec_time(n, load) if n else None
    return {"n_min": n or None, "exec_time_at_n_min": time}


def run_plan(case: Case) -> Case:
    """Run the admission test of each policy, as the mcdf plug-in calls it."""
    now, tasks = case["now"], case["tasks"]
    arrival = np.array([task["arrival_time"] for task in tasks])
    deadline = np.array([task["relative_deadline_time"] for task in tasks]) + arrival
    table = task_table(
        len(tasks),
        arrival=arrival - now,
        rank=[task["id"] for task in tasks],
        deadline=deadline - now,
        kind=Kind.DIVISIBLE,
        sigma=[task["sigma_units"] for task in tasks],
        **_costs(case),
    )
    free = np.array(case["node_free_times"], np.float64) - now
    schedules: Case = {}
    for name, preset in presets().items():
        if preset.planner != "mcdf":
            continue
        chosen = preset.plugin[0].settings
        planner = Rules(ORDERS[chosen["order"]], NODE_RULES[chosen["nodes"]], 1.0)
        plan = planner.admit(planner.prepare(free, table), None, 0.0)
        nodes_used = np.diff(plan.indptr)
        schedules[name.upper()] = plan.accepted and [
            {
                "id": tasks[i]["id"],
                "start_time": plan.start[i] + now,
                "finish_time": plan.end[i] + now,
                "nodes_used": int(nodes_used[i]),
            }
            for i in plan.order.tolist()
        ]
        schedules[name.upper()] = schedules[name.upper()] or None
    return {"schedule_by_policy": schedules}


def divisible_workload(case: Case) -> Workload:
    """Return the task stream of a `sim` case as a workload."""
    tasks, n = case["tasks"], len(case["tasks"])
    arrival = np.array([task["arrival_time"] for task in tasks], np.float64)
    jobs = Jobs.build(
        n,
        id=[task["id"] for task in tasks],
        submit=arrival,
        deadline=arrival + [task["relative_deadline_time"] for task in tasks],
        kind=Kind.DIVISIBLE,
        sigma=[task["sigma_units"] for task in tasks],
        **_costs(case),
    )
    return Workload(
        jobs,
        np.ones(n),
        Outcomes.build(n),
        Cluster.uniform(case["N_nodes"]),
        Accounts.build(0),
        Edges.build(0),
        (),
        Skipped(),
    )


def run_sim(case: Case) -> Case:
    """Replay a task stream under each policy, on the simulated exclusive nodes."""
    workload = divisible_workload(case)
    found: Case = {}
    for name, preset in presets().items():
        serial = preset.system.loop == "serial"
        if preset.planner != "mcdf" and not serial:
            continue
        run = replay(workload, name, preset)
        measures = measure(workload, run.results)
        outcome: Case = {"arrived": len(workload.jobs), "missed": measures["missed"]}
        if not serial:
            accepted = np.flatnonzero(run.results.fate != FinalState.REJECTED)
            ids = workload.jobs.id
            outcome["accepted_ids"] = ids[accepted].tolist()
            outcome["rejected"] = measures["rejected"]
            outcome["starts"] = {str(ids[i]): float(run.results.start[i]) for i in accepted}
        found[name.upper()] = outcome
    return {"by_policy": found}


def run_hetero(case: Case) -> Case:
    """Fractions over unequal nodes and links."""
    load = {name: np.array(values, np.float64) for name, values in _costs(case).items()}
    alphas, time = dlt.unequal_fractions(case["sigma_units"], **load)
    if (alphas > 0).all() and (np.diff(load["cms"]) >= 0).all():
        agree_with_hook(case["sigma_units"], Nodes.build(len(alphas), **load), alphas, time)
    return {
        "alphas": alphas,
        "exec_time": time,
        "all_fractions_positive": bool((alphas > 0).all()),
    }


def agree_with_hook(sigma: float, nodes: Nodes, alphas: NDArray[np.float64], end: float) -> None:
    """Check that the admission hook's planner cuts the load as the formula does, in this order."""
    task = task_table(1, kind=Kind.DIVISIBLE, sigma=sigma)
    planner = Varied(Rules(ORDERS["arrival"], NODE_RULES["fastest"], 1.0), staggered=False).on(
        nodes, nodes.speed
    )
    plan = planner.admit(planner.prepare(np.zeros(len(nodes)), task), None, 0.0)
    if len(plan.nodes) == len(nodes) and (np.diff(plan.nodes) > 0).all():
        np.testing.assert_allclose(planner.division(plan, task).fractions, alphas, rtol=1e-6)
        np.testing.assert_allclose(plan.end, end, rtol=1e-9)


def run_avail(case: Case) -> Case:
    """Earliest common end on nodes that become free at different times."""
    release = np.array(case["release_times"], np.float64)
    found = dlt_reference.staggered(release, _load(case))
    task = task_table(1, kind=Kind.DIVISIBLE, **_load(case)._asdict())
    rules = Rules(ORDERS["arrival"], NODE_RULES["fastest"], 1.0)
    planner = Varied(rules, staggered=True).on(Nodes.build(len(release)), np.ones(len(release)))
    plan = planner.admit(planner.prepare(release, task), None, 0.0)
    np.testing.assert_allclose(plan.end, found.end, rtol=1e-9)
    np.testing.assert_allclose(planner.division(plan, task).fractions, found.alpha, atol=1e-6)
    return {
        "finish_time": found.end,
        "nodes_used": len(found.alpha),
        "alphas": found.alpha,
        "send_starts": found.send,
    }


def run_umr(case: Case) -> Case:
    """Chunks of a load sent in several rounds."""
    rounds, n = case["rounds"], case["n_nodes"]
    found = dlt.multi_round(rounds, n, _load(case))
    return {
        "chunk_units_per_node_by_round": found.chunk,
        "makespan_time": found.makespan,
        "all_chunks_positive": bool((found.chunk > 0).all()),
    }


RUNNERS: dict[str, Callable[[Case], Case]] = {
    "dlt": run_dlt,
    "nmin": run_nmin,
    "plan": run_plan,
    "sim": run_sim,
    "hetero": run_hetero,
    "avail": run_avail,
    "umr": run_umr,
}
