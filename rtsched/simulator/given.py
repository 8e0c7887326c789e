"""Checks of what every simulated machine is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.errors import ShapeError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rtsched.model.jobs import Jobs
    from rtsched.simulator.interface import NodeEvent


def check_lengths(jobs: Jobs, given: Mapping[str, NDArray[Any] | None]) -> None:
    """Refuse arrays, by name, that do not hold one value per job; None is not given."""
    n = len(jobs)
    for name, array in given.items():
        if array is not None and array.shape != (n,):
            raise ShapeError(f"{n} jobs with {name} {array.shape}")


def check_order(jobs: Jobs) -> None:
    """Refuse jobs that are not in order of (submit, id)."""
    step = np.diff(jobs.submit)
    if (step < 0).any() or (np.diff(jobs.id)[step == 0] <= 0).any():
        raise ShapeError("jobs must be in order of (submit, id)")


def check_node_events(events: Sequence[NodeEvent], nodes: int) -> None:
    """Refuse events of nodes that a machine of `nodes` nodes does not have."""
    if any(not 0 <= event.node < nodes for event in events):
        raise ShapeError("a node event names a node that does not exist")
