"""The runs behind the reproduction of the service-time error paper."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rtsched.kernels import sliced
from rtsched.kernels.compiling import plain
from rtsched.simulator.sliced import LOOPS, SLACK, deal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

NAMES = {"FCFS": "fcfs", "RR": "round-robin", "STE": "ste", "least-error": "least-error"}
"""The rules, in the order of the results' first axis."""
FCFS, RR, STE, LEAST = range(4)
LEAST_ERROR, MOST_ERROR, COMPLETION, MAKESPAN, FINAL, BUSY, LATE = range(7)
"""What is measured in each run: the results' last axis."""

Study = tuple[int, int, int]
"""Tasks, queues, widest share."""

LOADS = (0.3, 0.5, 0.7)
BATCHES = 20
"""Batches of consecutive tasks of a queue, each taken as a run of its own."""


class Tasks(NamedTuple):
    """One drawing of the paper's frame: 200-400 MIPS, 1000-5000 MI, whole numbers."""

    share: NDArray[np.float64]
    service: NDArray[np.float64]
    server: NDArray[np.int64]


def draw(study: Study, seed: int) -> Tasks:
    """Return the tasks of a study, all there from the start."""
    tasks, queues, widest = study
    random = np.random.default_rng(seed)
    mips, mi = random.integers(200, 401, queues), random.integers(1000, 5001, tasks)
    share = random.integers(1, widest + 1, tasks).astype(np.float64)
    server = deal(tasks, queues, "blocks")
    return Tasks(share, mi / mips[server], server)


def serve(study: Study, seeds: int, quantum: float) -> NDArray[np.float64]:
    """Return float64[rule, seed, measure] of a study."""
    found = np.zeros((len(NAMES), seeds, 7))
    for seed in range(seeds):
        tasks = draw(study, seed)
        shares = np.bincount(tasks.server, tasks.share)[tasks.server]
        ideal = tasks.service * shares / tasks.share
        for rule, loop in enumerate(NAMES.values()):
            done = sliced.lay_out(
                tasks.share,
                np.zeros(study[0]),
                tasks.service,
                tasks.server,
                study[1],
                extremes=True,
            )
            sliced.run(done, LOOPS[loop], quantum, SLACK * quantum, np.inf)
            final = np.bincount(tasks.server, done.error)
            found[rule, seed] = (
                done.least.min() / quantum,
                done.most.max() / quantum,
                done.end.mean(),
                done.end.max(),
                np.abs(final).max() / quantum,
                done.got.sum(),
                np.mean(done.end > ideal + SLACK),
            )
    return found


def hand_example(shares: Sequence[int], lengths: Sequence[int]) -> list[tuple[int, Any, Any, Any]]:
    """Return (task, begin, end, its error then) of every slice of STE, in exact fractions."""
    exact = [
        np.array([Fraction(value) for value in values], object) for values in (shares, lengths)
    ]
    count = len(shares)
    zero = np.array([Fraction(0)] * count, object)
    room = sum(lengths)
    servers = sliced.lay_out(
        exact[0], zero, exact[1], np.zeros(count, np.int64), 1, slices=room + 1
    )
    found = []
    for slices in range(room):
        plain(sliced.run)(servers, sliced.SERVICE_ERROR, Fraction(1), 0, slices + 2)
        row = int(servers.log_row[slices])
        error = servers.error[row]
        if error != error:  # nan: it goes on
            error = plain(sliced.error_of)(servers, 0, row)
        found.append((row, servers.log_begin[slices], servers.log_end[slices], error))
    return found


def wait(load: float, tasks: int, constant: bool) -> NDArray[np.float64]:
    """Return mean wait and 1/mu on one server with Poisson arrivals, first come first served.

    Constant service, or that of the paper's frame on 300 MIPS.

    Returns
    -------
    float64[BATCHES, 2]
    """
    random = np.random.default_rng(7)
    service = np.full(tasks, 10.0) if constant else random.integers(1000, 5001, tasks) / 300.0
    arrival = np.cumsum(random.exponential(service.mean() / load, tasks))
    server = np.zeros(tasks, np.int64)
    done = sliced.lay_out(np.ones(tasks), arrival, service, server, 1)
    sliced.run(done, sliced.FCFS, 1.0, 0.0, np.inf)
    even = tasks // BATCHES * BATCHES
    measured = np.stack([done.start - arrival, service], axis=-1)[:even]
    batches: NDArray[np.float64] = measured.reshape(BATCHES, -1, 2).mean(axis=1)
    return batches


def waits(tasks: int) -> NDArray[np.float64]:
    """Return float64[2, load, BATCHES, 2]: mean wait and 1/mu; constant and the frame's service."""
    return np.array([[wait(load, tasks, constant) for load in LOADS] for constant in (True, False)])
