"""Runner of the kind of ste.json: one sliced server, in exact fractions."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from rtsched.kernels import sliced
from rtsched.kernels.compiling import plain
from rtsched.simulator.sliced import LOOPS

Case = dict[str, Any]

NAMES = {"STE": "ste", "RR": "round-robin", "FCFS": "fcfs"}


def _exact(values: list[Any]) -> Any:
    return np.array([Fraction(value) for value in values], object)


def serve(case: Case, loop: int) -> sliced.Servers:
    """Return the one server after all tasks of a case, all numbers fractions."""
    tasks, quantum = case["tasks"], Fraction(case["quantum_time"])
    service = _exact([task["service_time"] for task in tasks])
    servers = sliced.lay_out(
        _exact([task["share"] for task in tasks]),
        _exact([task["arrival_time"] for task in tasks]),
        service,
        np.zeros(len(tasks), np.int64),
        1,
        np.array([task["id"] for task in tasks]),
        extremes=True,
        slices=1 + sum(math.ceil(time / quantum) for time in service),
    )
    assert plain(sliced.run)(servers, loop, quantum, 0, math.inf)
    return servers


def run_ste(case: Case) -> Case:
    """Slices, ends and errors under each loop."""
    ids = [task["id"] for task in case["tasks"]]
    found: Case = {}
    for name, loop in NAMES.items():
        done = serve(case, LOOPS[loop])
        log = zip(done.log_row, done.log_begin, done.log_end, strict=True)
        slices = [[ids[row], str(begin), str(end)] for row, begin, end in log]
        found[name] = {
            "slices": slices[: done.logged[0]],
            "finish_time": {str(i): str(end) for i, end in zip(ids, done.end, strict=True)},
            "min_error": str(done.least[0]),
            "max_error": str(done.most[0]),
            "error_at_finish": {str(i): str(e) for i, e in zip(ids, done.error, strict=True)},
        }
    return found


RUNNERS: dict[str, Callable[[Case], Case]] = {"ste": run_ste}
"""Runner by kind."""
