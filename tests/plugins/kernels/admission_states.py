"""Small random states for the tests of the admission kernel, and a run loop of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rtsched_plugins.kernels.admission import (
    ARRAY,
    BY_COST,
    DIVISIBLE,
    LEAST_NODES,
    Plan,
    Tasks,
    task_table,
)
from rtsched_plugins.planners import Rules


def plan(
    free: NDArray[np.float64],
    tasks: Tasks,
    order: int = BY_COST,
    node_rule: int = LEAST_NODES,
    *,
    efficiency: float = 1.0,
    rounds: int = 1,
    now: float = 0.0,
) -> Plan:
    """Return the plan that the planner makes of tasks that all wait."""
    planner = Rules(order, node_rule, efficiency, rounds)
    return planner.admit(planner.prepare(free, tasks), None, now)


def sizes(plan: Plan) -> list[int]:
    """Return how many nodes each task of a plan has."""
    return np.diff(plan.indptr).tolist()


class State(NamedTuple):
    """A cluster with waiting tasks, and how to test them."""

    free: NDArray[np.float64]
    tasks: Tasks
    order: int
    node_rule: int
    efficiency: float
    now: float
    rounds: int = 1

    def planned(self, planner: Callable[..., Plan], tasks: Tasks | None = None) -> Plan:
        """Return what a planner makes of the state."""
        return planner(
            self.free,
            self.tasks if tasks is None else tasks,
            self.order,
            self.node_rule,
            efficiency=self.efficiency,
            rounds=self.rounds,
            now=self.now,
        )

    @property
    def planner(self) -> Rules:
        """Return how the state is planned."""
        return Rules(self.order, self.node_rule, self.efficiency, self.rounds)


def random_tasks(rng: np.random.Generator, n: int, room: float) -> Tasks:
    """Return n tasks of all kinds, many of them with equal numbers so that ties occur."""

    def rough(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.round(values) if rng.random() < 0.5 else values

    size_min, kind = rng.integers(1, 4, n), rng.integers(0, 4, n)
    sigma = rough(rng.uniform(0.5, 5.0, n)) + 0.5
    setup_node = rng.choice([0.0, 0.5], n)
    return task_table(
        n,
        arrival=-rng.integers(0, 3, n),
        rank=rng.permutation(n),
        kind=kind,
        size=rng.integers(1, 5, n),
        size_min=size_min,
        size_max=size_min + rng.integers(0, 7, n),
        wall=rough(rng.uniform(0.0, 10.0, n)),
        sigma=np.where(kind == ARRAY, np.ceil(3 * sigma), sigma),
        cms=rng.choice([0.0, 0.001, 0.1, 1.0], n),
        cps=rng.choice([0.0, 0.1, 1.0, 5.0], n) + 0.01,
        setup_link=rng.choice([0.0, 0.0, 0.1, 1.0], n),
        setup_node=setup_node,
        rounds=rng.choice([1, 2, 3, 64], n),
        setup_once=np.where(rng.random(n) < 0.5, setup_node, 0.0),
        deadline=np.where(
            rng.random(n) < 0.1, np.inf, rough(rng.uniform(0.5, 30.0 + room, n) + room)
        ),
    )


def random_state(seed: int, *, most_tasks: int = 9, most_nodes: int = 12) -> State:
    """Return a state of few nodes (some busy, some unusable) and few tasks, feasible or not."""
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(1, most_nodes))
    free = np.where(rng.random(nodes) < 0.5, 0.0, rng.integers(-2, 12, nodes))
    if rng.random() < 0.5:
        free += rng.random(nodes) * (free > 0)
    free[rng.random(nodes) < 0.1] = np.inf
    room = float(rng.choice([3.0, 10.0, 30.0, 60.0]))
    tasks = random_tasks(rng, int(rng.integers(0, most_tasks)), room)
    efficiency = float(rng.choice([1.0, 1.0, 0.5, 0.8, 1.2]))
    order, node_rule = int(rng.integers(0, 3)), int(rng.integers(0, 2))
    now = float(rng.choice([0.0, 0.0, 1.5]))
    rounds = int(rng.choice([1, 1, 2, 5, 64]))
    return State(free, tasks, order, node_rule, efficiency, now, rounds)


def taken(tasks: Tasks, rows: Any) -> Tasks:
    """Return some rows."""
    return Tasks(*(column[rows] for column in tasks))


def admitted_ones(state: State, planner: Callable[..., Plan]) -> Tasks:
    """Return the tasks of a state that are admitted when they are tested one by one."""
    rows: list[int] = []
    for i in range(len(state.tasks.arrival)):
        if state.planned(planner, taken(state.tasks, [*rows, i])).accepted:
            rows.append(i)
    return taken(state.tasks, rows)


class Stream(NamedTuple):
    """A worked run: divisible tasks arriving at a cluster of `nodes` nodes, times absolute."""

    nodes: int
    ids: NDArray[np.int64]
    arrival: NDArray[np.float64]
    deadline: NDArray[np.float64]
    sigma: NDArray[np.float64]
    costs: dict[str, float]

    @classmethod
    def of(cls, values: dict[str, Any]) -> Stream:
        """Return the stream of a worked case."""
        rows = values["tasks"]
        arrival = np.array([row["arrival_time"] for row in rows], float)
        return cls(
            values["N_nodes"],
            np.array([row["id"] for row in rows]),
            arrival,
            arrival + [row["relative_deadline_time"] for row in rows],
            np.array([row["sigma_units"] for row in rows], float),
            {
                "cms": values["cms_time_per_unit"],
                "cps": values["cps_time_per_unit"],
                "setup_link": values["setup_link_time"],
                "setup_node": values["setup_node_time"],
            },
        )

    def table(self, rows: list[int], now: float) -> Tasks:
        """Return some tasks with times relative to `now`."""
        return task_table(
            len(rows),
            kind=DIVISIBLE,
            arrival=self.arrival[rows] - now,
            rank=self.ids[rows],
            deadline=self.deadline[rows] - now,
            sigma=self.sigma[rows],
            **self.costs,
        )


def run_stream(
    stream: Stream, planner: Callable[..., Plan], order: int, node_rule: int
) -> dict[int, tuple[float, float]]:
    """Return start and end of every admitted task: at each instant dispatch, then test.

    A task that arrives is tested with all that wait; the whole new plan replaces the old one.
    """
    free = np.zeros(stream.nodes)
    planned: dict[int, tuple[float, float, Any]] = {}
    begun: dict[int, tuple[float, float]] = {}

    def dispatch(until: float) -> None:
        for row in [row for row, entry in planned.items() if entry[0] <= until]:
            start, end, nodes = planned.pop(row)
            free[nodes] = end
            begun[int(stream.ids[row])] = (start, end)

    for now in np.unique(stream.arrival):
        dispatch(now)
        batch = np.flatnonzero(stream.arrival == now)
        for row in batch[np.argsort(stream.ids[batch])]:
            rows = [*planned, int(row)]
            plan = planner(free - now, stream.table(rows, now), order, node_rule)
            if plan.accepted:
                for k, other in enumerate(rows):
                    nodes = plan.nodes[plan.indptr[k] : plan.indptr[k + 1]]
                    planned[other] = (plan.start[k] + now, plan.end[k] + now, nodes)
    dispatch(np.inf)
    return begun
