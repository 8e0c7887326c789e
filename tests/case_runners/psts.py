"""Runners of the kinds of psts.json."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from rtsched_plugins.kernels.scan_grid import best_dimension, overhead, sides
from rtsched_plugins.kernels.scans import (
    FIRST,
    INDEX,
    MAJORITY,
    PROPORTIONAL,
    at_home,
    balanced,
    edges,
    exchanged,
    loads,
    placed,
    scan,
)
from rtsched_reproductions.psts import crossover, imbalance, steps

Case = dict[str, Any]


def run_balance(case: Case) -> Case:
    """Balance once: final loads, the exchange on the top axis, cost and crossover point."""
    shape = tuple(case["shape"])
    load, power = np.array(case["load_units"]), np.array(case["power_units_per_time"])
    runs = balanced(np.array(shape), load, power, PROPORTIONAL)
    found: Case = {
        "final_load_units": loads(runs, len(load)).tolist(),
        "steps": steps(shape),
        "overhead_time": overhead(shape, case["comm_step_time"], case["comp_step_time"]),
    }
    if not load[power == 0].any():
        found["imbalance"] = str(imbalance(load, power))
        found["crossover"] = str(crossover(found["overhead_time"], load, power))
    if len(shape) > 1:
        return found | _top_axis(shape, load, power)
    first = scan(load)[runs.src] + runs.first
    moves = zip(runs.src, runs.dst, first, runs.units, strict=True)
    names = ("src", "dst", "first_unit_index", "units")
    found["moves"] = [dict(zip(names, map(int, row), strict=True)) for row in moves]
    return found


def _top_axis(shape: tuple[int, ...], load: np.ndarray, power: np.ndarray) -> Case:  # type: ignore[type-arg]
    runs = exchanged(1, shape[0], at_home(load), power, PROPORTIONAL)
    total, powers = (each.reshape(shape[0], -1).sum(axis=1) for each in (load, power))
    target = np.diff(edges(total.sum(), powers))
    below = len(load) // shape[0]
    away = runs.src // below != runs.dst // below
    leaving = np.bincount(runs.src[away], runs.units[away], len(load)).astype(np.int64)
    leaving = leaving.reshape(shape[0], -1)
    excess = total - target
    words = {1: "sender", -1: "receiver", 0: "balanced"}
    rows = zip(total, powers, target, excess, strict=True)
    names = ("total", "power", "target", "excess")
    top = [
        {**dict(zip(names, map(int, row), strict=True)), "role": words[int(np.sign(row[3]))]}
        for row in rows
    ]
    blocks = scan(np.maximum(-excess, 0))
    order = scan(leaving.ravel())[:-1].reshape(shape[0], -1)
    in_block = order - blocks[np.searchsorted(blocks[:-1], order, "right") - 1]
    stay = load.reshape(shape[0], -1) - leaving
    senders = {
        str(g): {
            "M": leaving[g].tolist(),
            "S_M": in_block[g].tolist(),
            "R": stay[g].tolist(),
            "S_R": scan(stay[g])[:-1].tolist(),
        }
        for g in np.flatnonzero(excess > 0).tolist()
    }
    moved: dict[tuple[int, int], int] = {}
    for src, dst, units in sorted(
        zip(runs.src[away], runs.dst[away], runs.units[away], strict=True)
    ):
        moved[src, dst] = moved.get((src, dst), 0) + int(units)
    found = [{"src": int(a), "dst": int(b), "units": units} for (a, b), units in moved.items()]
    return {"top_level": top, "senders": senders, "inter_row_moves": found}


def run_destination(case: Case) -> Case:
    """Where single units land in their receiver."""
    nodes, places = [], []
    for item in case["items"]:
        at, block = item["global_index_in_receiver_block"], item["block_units"]
        bounds = edges(block, np.array(item["receiver_power_units_per_time"]))
        nodes.append(int(np.searchsorted(bounds[:-1], at, "right")) - 1)
        places.append(str(Fraction(at, block)))
    return {"node_index": nodes, "normalised": places}


def run_dimension(case: Case) -> Case:
    """Find the grid of least steps for a number of nodes."""
    n = case["n_nodes"]
    return {
        "d_optimum": best_dimension(n),
        "least_steps": steps(sides(n)),
        "steps_1d": steps(sides(n, 1)),
    }


def run_place_tasks(case: Case) -> Case:
    """Place whole tasks on a line, by both rules."""
    power = np.array(case["power_units_per_time"])
    owner, units = np.array(case["owner_node"]), np.array(case["task_units"])
    line = np.array([len(power)])
    return {
        "majority": placed(line, owner, units, power, MAJORITY, INDEX),
        "first": placed(line, owner, units, power, FIRST, INDEX),
    }


RUNNERS: dict[str, Callable[[Case], Case]] = {
    "balance": run_balance,
    "destination": run_destination,
    "dimension": run_dimension,
    "place_tasks": run_place_tasks,
}
