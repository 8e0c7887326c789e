"""Questions to a planner's test of rows (`rtsched.kernels.hooks.RowTest`) outside of the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.kernels.hooks import RejectedRows, planned_rows, rejected_row
from rtsched.model.schedule import PlanRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def planned_in_turn(
    prepared: Any,
    rows: NDArray[np.int64],
    now: float,
    held_until: NDArray[np.float64],
    plan: PlanRows,
) -> tuple[PlanRows, RejectedRows]:
    """Return the plan with those jobs that a test accepts one by one, and the others.

    The test has a kernel that says why it rejects a job (`rejects_rows`).

    Parameters
    ----------
    prepared
        As `RowTest.prepared`.
    rows, now, held_until, plan
        As in `ReplayPlanner.judge`. The jobs come in order of their rows, as in a replay's loop.
    """
    rejected = list[tuple[float, ...]]()
    free = int(np.count_nonzero(held_until <= now))
    for row in np.sort(rows).tolist():
        found = planned_rows(prepared, plan.row, plan.start, row, now, held_until)
        if found.accepted:
            plan = PlanRows(np.append(plan.row, row), *found[1:5])
            continue
        why = rejected_row(prepared, plan.row, row, now, held_until)
        promised = len(plan.row)
        failed = int(plan.row[found.failed]) if found.failed < promised else -1
        rejected.append((row, now, failed, promised, free, *why))
    return plan, rejected_rows(rejected)


def rejected_rows(rejected: Sequence[tuple[float, ...]]) -> RejectedRows:
    """Return rejections, each given by its values in order of the fields."""
    kinds = (np.int64, np.float64, np.int64, np.int64, np.int64, np.float64, np.float64)
    columns = zip(*rejected, strict=True) if rejected else [()] * len(kinds)
    return RejectedRows._make(np.array(c, k) for c, k in zip(columns, kinds, strict=True))


def planned_again(
    prepared: Any, now: float, held_until: NDArray[np.float64], plan: PlanRows
) -> PlanRows | None:
    """Return a better plan of the same jobs; None: there is none. As `ReplayPlanner.improve`."""
    found = planned_rows(prepared, plan.row, plan.start, -1, now, held_until)
    return PlanRows(plan.row, *found[1:5]) if found.accepted else None
