"""Questions to a planner's policy (`rtsched.kernels.policy`) outside of the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.kernels.policy import ADMIT, REJECT, RejectedRows, admit, reject
from rtsched.model.schedule import PlanRows

if TYPE_CHECKING:
    from numpy.typing import NDArray

_KINDS = (np.int64, np.float64, np.int64, np.int64, np.int64, np.float64, np.float64)
"""Of the columns of `RejectedRows`."""


def planned_in_turn(
    policy: Any,
    rows: NDArray[np.int64],
    now: float,
    held_until: NDArray[np.float64],
    plan: PlanRows,
) -> tuple[PlanRows, RejectedRows, NDArray[np.bool_]]:
    """Return the plan with the jobs that a policy admits one by one, and the others.

    Of each of the others, bool[k] says whether it is rejected for good.

    Parameters
    ----------
    policy
        A planner's; see `rtsched.kernels.policy.policy_kernels`.
    rows, now, held_until, plan
        As in `ReplayPlanner.judge`. The jobs come in order of their rows, as in a replay's loop.
    """
    others, final = list[tuple[float, ...]](), list[bool]()
    free = int(np.count_nonzero(held_until <= now))
    for row in np.sort(rows).tolist():
        found = admit(policy, plan.row, plan.start, row, now, held_until)
        if found.code == ADMIT:
            plan = PlanRows(np.append(plan.row, row), *found[1:5])
            continue
        why = reject(policy, plan.row, row, now, held_until)
        promised = len(plan.row)
        failed = int(plan.row[found.failed]) if 0 <= found.failed < promised else -1
        others.append((row, now, failed, promised, free, *why))
        final.append(found.code == REJECT)
    columns = zip(*others, strict=True) if others else [()] * len(_KINDS)
    rejected = RejectedRows._make(np.array(c, k) for c, k in zip(columns, _KINDS, strict=True))
    return plan, rejected, np.array(final, np.bool_)


def planned_again(
    policy: Any, now: float, held_until: NDArray[np.float64], plan: PlanRows
) -> PlanRows | None:
    """Return a better plan of the same jobs; None: there is none. As `ReplayPlanner.improve`."""
    found = admit(policy, plan.row, plan.start, -1, now, held_until)
    return PlanRows(plan.row, *found[1:5]) if found.code == ADMIT else None
