"""Slurm's multifactor priority of one job: six factors in [0, 1] and their weighted sum.

References
----------
Slurm manual, priority_multifactor, "Job Priority Factors In General" and the sections on each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rtsched.api import EventKind
from rtsched.kernels.billing import charged_nodes
from rtsched.kernels.compiling import compiled
from rtsched_plugins.kernels.fair_share import factor
from rtsched_plugins.kernels.usage import (
    ASSOCIATION,
    FAVOR_SMALL,
    LATER,
    MAX_AGE,
    NODES,
    PARTITION,
    PER_TIME,
    QOS,
    WAIT,
    WEIGHTS,
    charge_nodes,
    period_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rtsched.kernels.hooks import JobColumns
    from rtsched_plugins.kernels.usage import Grid, Line

    Rows = NDArray[np.int64]

FACTORS = ("age", "association", "fair_share", "job_size", "partition", "qos")
AGE, OWN, FAIR, SIZE, PART, QUALITY = range(len(FACTORS))
STARTED, ENDED = int(EventKind.STARTED), int(EventKind.ENDED)


@compiled
def ages(
    now: float, rows: Rows, columns: JobColumns, params: Line, tables: Grid, out: Line
) -> None:
    """Fill `out` with the time waited over the time at which age counts fully."""
    longest, later = params[MAX_AGE], params[LATER] != 0.0
    for at in range(len(rows)):
        row = rows[at]
        waited = now - columns.submit[row]
        if later:
            waited -= tables[WAIT, row]
        out[at] = min(waited / longest, 1.0) if waited > 0.0 else 0.0


@compiled
def job_sizes(rows: Rows, columns: JobColumns, params: Line, out: Line) -> None:
    """Fill `out` with the job's part of the machine, or of the machine for a minute.

    Where small jobs are favoured it is what is left; one node then counts 1.
    """
    nodes, small, per_time = params[NODES], params[FAVOR_SMALL] != 0.0, params[PER_TIME] != 0.0
    for at in range(len(rows)):
        size = float(columns.size[rows[at]])
        if per_time:
            size /= max(columns.wall_time[rows[at]] / 60.0, 1.0)
        elif small:
            size -= 1.0
        part = min(size / nodes, 1.0)
        out[at] = 1.0 - part if small else part


@compiled
def fair_shares(
    now: float,
    rows: Rows,
    columns: JobColumns,
    params: Line,
    tables: Grid,
    state: Grid,
    out: Line,
) -> None:
    """Fill `out` with the fair-share factor of the job's association, 0 where it has none."""
    period = period_of(now, params)
    for at in range(len(rows)):
        account = columns.association[rows[at]]
        out[at] = factor(account, period, params, tables, state) if account >= 0 else 0.0


@compiled
def fill(
    which: int,
    now: float,
    rows: Rows,
    columns: JobColumns,
    params: Line,
    tables: Grid,
    state: Grid,
    out: Line,
) -> None:
    """Fill `out` with one factor of `rows`, the one at place `which` of `FACTORS`."""
    if which == AGE:
        ages(now, rows, columns, params, tables, out)
    elif which == FAIR:
        fair_shares(now, rows, columns, params, tables, state, out)
    elif which == SIZE:
        job_sizes(rows, columns, params, out)
    elif which == OWN:
        for at in range(len(rows)):
            account = columns.association[rows[at]]
            out[at] = tables[ASSOCIATION, account] if account >= 0 else 0.0
    else:
        line = PARTITION if which == PART else QOS
        codes = columns.partition if which == PART else columns.qos
        for at in range(len(rows)):
            out[at] = tables[line, codes[rows[at]] + 1]


@compiled
def factors(
    now: float,
    rows: Rows,
    columns: JobColumns,
    params: Line,
    tables: Grid,
    state: Grid,
    out: Grid,
) -> None:
    """Fill the lines of `out` with the factors of `rows`, in the order of `FACTORS`."""
    for which in range(len(out)):
        fill(which, now, rows, columns, params, tables, state, out[which])


def priorities(
    now: float,
    rows: Rows,
    columns: JobColumns,
    params: Line,
    tables: Grid,
    state: Grid,
    out: Line,
) -> int:
    """Fill `out` with the priorities of `rows`; see `rtsched.kernels.hooks.FAIR_SHARE`.

    Factors are finite and not negative, so one of weight 0 adds nothing and is not worked out.
    """
    value = np.empty(len(rows))
    out[:] = 0.0
    for which in range(len(FACTORS)):
        weight = params[WEIGHTS + which]
        if weight != 0.0:
            fill(which, now, rows, columns, params, tables, state, value)
            for at in range(len(rows)):
                out[at] += weight * value[at]
    for at in range(len(rows)):
        out[at] -= columns.nice[rows[at]]
    return 0


@compiled
def charge_event(
    instant: float, kind: int, account: int, nodes: float, params: Line, tables: Grid, state: Grid
) -> None:
    """Charge an account from a job's start to its end; nothing else is charged."""
    if account >= 0:
        if kind == STARTED:
            charge_nodes(account, instant, nodes, params, tables, state)
        elif kind == ENDED:
            charge_nodes(account, instant, -nodes, params, tables, state)


@compiled
def charge_events(
    instant: Line,
    kind: NDArray[np.int8],
    account: NDArray[np.int32],
    size: NDArray[np.int32],
    asked: NDArray[np.int32],
    billed: Line,
    params: Line,
    tables: Grid,
    state: Grid,
) -> None:
    """Charge a batch of events, in order."""
    for at in range(len(instant)):
        nodes = charged_nodes(float(size[at]), float(asked[at]), billed[at])
        charge_event(instant[at], kind[at], account[at], nodes, params, tables, state)


def observed(
    instant: float,
    kind: int,
    row: int,
    size: int,
    columns: JobColumns,
    params: Line,
    tables: Grid,
    state: Grid,
) -> None:
    """Charge one event; see `rtsched.kernels.hooks.OBSERVE`."""
    nodes = charged_nodes(float(size), float(columns.size[row]), columns.billed[row])
    charge_event(instant, kind, columns.association[row], nodes, params, tables, state)
