"""Who ran where and when: bars over neighbouring nodes, of a whole log or its fullest hours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.model.ragged import Ragged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rtsched.replay.results import PolicyRun

MOST_BARS = 1200
"""Per policy; more would be neither readable nor quick to draw."""


@dataclass(frozen=True)
class Bars:
    """Rectangles, one per job and run of neighbouring nodes.

    Attributes
    ----------
    job : int64[k]
        Row of the workload.
    start, end : float64[k]
        Seconds since the epoch, cut to the window.
    low, height : int32[k]
        Lowest node row, and how many from there.
    """

    job: NDArray[np.int64]
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    low: NDArray[np.int32]
    height: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.job)


class Window(NamedTuple):
    """A part of a replay's time."""

    begin: float
    end: float
    is_whole: bool


def is_recorded(run: PolicyRun) -> bool:
    """Return whether a run tells which nodes its jobs were on."""
    return len(run.node_rows[1]) > 0


def bars(run: PolicyRun, begin: float, end: float) -> Bars:
    """Return what ran between two instants."""
    results, nodes = run.results, Ragged(*run.node_rows)
    shown = (results.start < end) & (results.end > begin) & (nodes.lengths > 0)
    jobs = np.flatnonzero(shown)
    drawn = nodes.take(jobs)
    row, low, height = drawn.runs()
    owner = jobs[row].astype(np.int64)
    return Bars(
        owner,
        np.maximum(results.start[owner], begin),
        np.minimum(results.end[owner], end),
        low.astype(np.int32),
        height.astype(np.int32),
    )


def window(
    runs: Sequence[PolicyRun],
    submit: NDArray[np.float64],
    logged: NDArray[np.float64],
    most: int = MOST_BARS,
) -> Window:
    """Return all time, or as much about the longest queue as can be drawn.

    Parameters
    ----------
    runs : sequence of PolicyRun
        With their node rows.
    submit, logged : float64[n]
        When jobs arrived and started by the log, which tells where to look; without any start
        there, the first run does.
    most : int
        Bars per policy.
    """
    starts = [run.results.start[np.isfinite(run.results.start)] for run in runs]
    ends = [run.results.end[np.isfinite(run.results.end)] for run in runs]
    begin = min((float(values.min()) for values in starts if len(values)), default=0.0)
    end = max((float(values.max()) for values in ends if len(values)), default=1.0)
    begin = min(begin, float(submit.min())) if len(submit) else begin
    guide = logged if np.isfinite(logged).any() else runs[0].results.start
    middle = _longest_queue(submit, guide)
    width = end - begin
    low, high = begin, end
    while width > 60 and any(_bound(run, low, high) > most for run in runs):
        width *= 0.5
        low = min(max(begin, middle - width / 2), end - width)
        high = low + width
    return Window(low, high, width == end - begin)


def _bound(run: PolicyRun, begin: float, end: float) -> int:
    """Return how many bars there are between two instants."""
    results = run.results
    running = int(np.count_nonzero((results.start < end) & (results.end > begin)))
    return running if running > MOST_BARS * 20 else len(bars(run, begin, end))


def _longest_queue(submit: NDArray[np.float64], start: NDArray[np.float64]) -> float:
    """Return the first instant at which most jobs wait."""
    waits = np.isfinite(start)
    times = np.concatenate([submit[waits], start[waits]])
    if not len(times):
        return 0.0
    steps = np.repeat([1, -1], np.count_nonzero(waits))
    order = np.argsort(times, kind="stable")
    return float(times[order][np.argmax(np.cumsum(steps[order]))])
