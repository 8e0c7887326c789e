"""Records of delay classes: the delay with which each running job was mapped or moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray  # noqa: TC002 - the state is decoded by its annotations

from rtsched.api import EventKind, State

if TYPE_CHECKING:
    from rtsched.api import Events

OCCASIONS = (EventKind.ARRIVED, EventKind.ENDED, EventKind.NODE_CHANGED)
"""What may be the cause of the next question."""


class Recorded(State, frozen=True):
    """Delays of running jobs, and what happened last.

    Attributes
    ----------
    job : int64[r]
        Ids, ascending.
    delay : float64[r]
        Recorded delay of each (paper: D).
    occasion : int
        The last of an arrival, an end and a change of a node: an `EventKind`.
    """

    job: NDArray[np.int64]
    delay: NDArray[np.float64]
    occasion: int


def delays_of(
    state: Recorded | None, job: NDArray[np.int64], present: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return float64[r]: each running job's recorded delay, the present one where none is."""
    if state is None or not len(state.job):
        return present
    place = np.minimum(np.searchsorted(state.job, job), len(state.job) - 1)
    return np.where(state.job[place] == job, state.delay[place], present)


def recorded(
    state: Recorded | None, events: Events, job: NDArray[np.int64], present: NDArray[np.float64]
) -> Recorded:
    """Return the state after `events`.

    A job that started or was moved is recorded with its present delay; the others that run keep
    theirs, and those that do not run any more are forgotten.

    Parameters
    ----------
    state : Recorded or None
        The state before.
    events : Events
        What happened, at least one event.
    job, present : int64[r], float64[r]
        The jobs that run now, and the delay that each has by the load of its nodes.
    """
    kinds = events.rows.kind
    last = np.flatnonzero(np.isin(kinds, OCCASIONS))
    occasion = int(EventKind.ARRIVED) if state is None else state.occasion
    if len(last):
        occasion = int(kinds[last[-1]])
    anew = np.isin(kinds, (EventKind.STARTED, EventKind.MOVED))
    renewed = np.isin(job, events.jobs.id[anew]) if anew.any() else np.zeros(len(job), np.bool_)
    delay = np.where(renewed, present, delays_of(state, job, present))
    order = np.argsort(job, kind="stable")
    return Recorded(job[order], delay[order], occasion)
