"""Random cluster states for timing the admission test: loaded, with a queue that stays admitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched_plugins.kernels.admission import DIVISIBLE, MOLDABLE, RIGID, Tasks, task_table

if TYPE_CHECKING:
    from numpy.typing import NDArray


def busy_nodes(n_nodes: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return float64[n_nodes]: when running jobs, each on a block of nodes, leave them.

    About one node in twenty is free now and one in a hundred is down (+inf).
    """
    width = rng.geometric(1 / 12, size=n_nodes)
    ends = rng.exponential(4 * 3600.0, size=n_nodes).round()
    ends[rng.random(n_nodes) < 0.05] = 0.0
    free = np.repeat(ends, width)[:n_nodes]
    free[rng.random(n_nodes) < 0.01] = np.inf
    return free


def queued_tasks(n_waiting: int, n_nodes: int, rng: np.random.Generator, patience: float) -> Tasks:
    """Return tasks of all kinds whose deadlines leave `patience` seconds beyond the run time.

    40 % are rigid, 30 % moldable, 30 % divisible (a third of these with set-up times). At its
    deadline's tightest a task may use four times the nodes it needs when it is in no hurry.
    """
    n = n_waiting
    widest = max(2, min(n_nodes // 8, 256))
    size = np.minimum(rng.geometric(1 / 8, n), widest)
    wall = rng.lognormal(np.log(3600.0), 1.0, n).clip(60.0, 86400.0).round()
    cps = rng.choice([1.0, 10.0, 100.0], n)
    cms = cps * rng.choice([0.001, 0.01, 0.05], n)
    setup = np.where(rng.random(n) < 1 / 3, rng.uniform(0.0, 2.0, n), 0.0)
    kind = rng.choice([RIGID, MOLDABLE, DIVISIBLE], n, p=[0.4, 0.3, 0.3])
    sigma = wall * np.where(kind == DIVISIBLE, rng.uniform(1.0, 8.0, n), 1.0) / cps
    slowest = np.where(kind == RIGID, wall, wall * 2.0) + np.where(
        kind == DIVISIBLE, sigma * (cms + cps), 0.0
    )
    deadline = (slowest * rng.uniform(0.5, 2.0, n) + patience * rng.uniform(1.0, 2.0, n)).round()
    return task_table(
        n,
        arrival=-np.sort(rng.uniform(0.0, 86400.0, n))[::-1].round(),
        rank=np.arange(n),
        deadline=deadline,
        kind=kind,
        size=size,
        size_min=np.maximum(1, size // 4),
        size_max=np.minimum(size * 4, widest),
        wall=wall,
        sigma=sigma,
        cms=cms,
        cps=cps,
        setup_link=setup,
        setup_node=setup,
    )


def random_state(
    n_waiting: int, n_nodes: int, seed: int, *, pressure: float = 1.0
) -> tuple[NDArray[np.float64], Tasks]:
    """Return (free, waiting) of a loaded cluster on which every waiting task stays admitted.

    The deadlines leave the time that the queue's work would take on all nodes, several times
    over; `pressure` > 1 shortens it, until tests begin to fail.
    """
    rng = np.random.default_rng(seed)
    free = busy_nodes(n_nodes, rng)
    work = n_waiting * 8 * 6000.0 / n_nodes
    patience = (20 * 3600.0 + 4.0 * work) / pressure
    return free, queued_tasks(n_waiting, n_nodes, rng, patience)


def newcomer(seed: int, *, deadline: float, n_nodes: int) -> Tasks:
    """Return one new task of a random kind with the given deadline (seconds from now)."""
    rng = np.random.default_rng(seed)
    one = queued_tasks(1, n_nodes, rng, 0.0)
    return one._replace(arrival=np.zeros(1), rank=np.full(1, 2**40), deadline=np.full(1, deadline))
