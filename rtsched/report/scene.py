"""Scene of a report's figures: the replay, its time axis, each policy's look, its series.

Whatever a log's size, a series over time has `_POINTS` values, each the mean over its span of time,
so that no peak is shown where none lasted, and the area under a curve is right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from plotly.subplots import make_subplots

from rtsched.model.log import FinalState
from rtsched.replay.measures import bounded_slowdown, is_late, logged_results
from rtsched.report.axes import MUTED, TimeAxis, base, literal, look
from rtsched.report.tables import LOGGED
from rtsched.report.wording import duration, shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rtsched.replay.results import PolicyRun, Results, Workload

    Floats = NDArray[np.float64]

NAME_WIDTH = 24


@dataclass(frozen=True)
class Figure:
    """One figure and its words.

    Attributes
    ----------
    key : str
        Its name in the page.
    title : str
        What it shows.
    summary : str
        What is to be seen in it, for those who cannot see it.
    caption : str
        How to read it.
    height : int
        Pixels.
    plot : plotly figure
        In light colours.
    """

    key: str
    title: str
    summary: str
    caption: str
    height: int
    plot: Any


@dataclass(frozen=True)
class FigureSection:
    """A section of the page: rows of one or two figures."""

    key: str
    title: str
    note: str
    rows: tuple[tuple[Figure, ...], ...]


@dataclass(frozen=True)
class Shown:
    """One line of a figure: a policy, or what the log records.

    Attributes
    ----------
    name : str
        What the page calls it.
    results : Results
        What it made of the jobs.
    place : int or None
        Its place among the policies; None: the log itself.
    """

    name: str
    results: Results
    place: int | None

    @property
    def label(self) -> str:
        """Return its name as plots take it."""
        return literal([shortened(self.name, NAME_WIDTH)])[0]

    @property
    def line(self) -> dict[str, Any]:
        """Return how its lines look."""
        how = look(self.place)
        return {"color": how.color, "dash": how.dash, "width": how.width}

    @property
    def trace(self) -> dict[str, Any]:
        """Return what all its lines have in common; the log's own lie on top, being dotted."""
        on_top = 10 if self.place is None else 0
        return {"name": self.label, "line": self.line, "zorder": on_top}


@dataclass(frozen=True)
class Scene:
    """What all figures are drawn from."""

    workload: Workload
    runs: Sequence[PolicyRun]
    shown: tuple[Shown, ...]
    borders: Floats
    time: TimeAxis

    @classmethod
    def of(cls, workload: Workload, runs: Sequence[PolicyRun]) -> Scene:
        """Return the scene of a replay."""
        shown = (
            Shown(LOGGED, logged_results(workload), None),
            *(Shown(run.policy, run.results, place) for place, run in enumerate(runs)),
        )
        submit = workload.jobs.submit
        begin = float(submit.min()) if len(submit) else 0.0
        ends = [entry.results.end[np.isfinite(entry.results.end)] for entry in shown]
        end = max(float(some.max()) for some in (*ends, submit, np.array([begin + 1])) if len(some))
        return cls(workload, runs, shown, _edges(begin, end), TimeAxis.of(begin, end))


def course(plot: Any, scene: Scene, entry: Shown, values: Floats, hover: str) -> None:
    """Add one entry's course over the scene's spans of time."""
    middle = (scene.borders[:-1] + scene.borders[1:]) / 2
    plot.add_scatter(
        x=scene.time.at(middle), y=trimmed(values), mode="lines", hovertemplate=hover,
        **entry.trace,
    )  # fmt: skip


def panels(
    scene: Scene, courses: Sequence[Floats], y: dict[str, Any], hover: str
) -> tuple[Any, int]:
    """Return a plot with a panel for each entry's course over time, and its height in pixels."""
    rows = len(scene.shown)
    height = 62 + rows * 92
    plot = make_subplots(
        rows, 1, shared_xaxes=True, subplot_titles=[entry.label for entry in scene.shown],
        vertical_spacing=min(24 / (height - 62), 0.9 / rows),
    )  # fmt: skip
    middle = scene.time.at((scene.borders[:-1] + scene.borders[1:]) / 2)
    for row, (entry, values) in enumerate(zip(scene.shown, courses, strict=True), 1):
        plot.add_scatter(
            x=middle, y=trimmed(values), name=entry.label, mode="lines", fill="tozeroy",
            line={"color": entry.line["color"], "width": 1.2},
            hovertemplate=f"%{{x}}: {hover}<extra></extra>", row=row, col=1,
        )  # fmt: skip
    plot.update_layout(base(legend=False, margin={"l": 64, "r": 18, "t": 24, "b": 52}))
    plot.update_xaxes(scene.time.layout())
    plot.update_xaxes(title_text="")
    plot.update_xaxes(title_text=scene.time.title, row=rows, col=1)
    plot.update_yaxes(y)
    plot.update_annotations(font={"size": 12.5, "color": MUTED}, x=0, xanchor="left")
    return plot, height


def time_layout(plot: Any, scene: Scene, y: dict[str, Any]) -> None:
    """Set the layout of a course over time with this vertical axis."""
    plot.update_layout(base(xaxis=scene.time.layout(), yaxis=y, hovermode="x unified"))


def trimmed(values: Floats) -> Floats:
    """Return values in half the bytes, with all the digits that a plot can show."""
    return values.astype(np.float32)


def step(scene: Scene) -> str:
    """Return the length of the spans of time, in words."""
    return duration(float(scene.borders[1] - scene.borders[0]))


_POINTS = 360
"""Spans of time in a course."""

QUANTILES = 400
"""Points of a distribution."""


class _Hours(NamedTuple):
    """What became of the jobs submitted in each hour of the day; nan where there were none."""

    jobs: NDArray[np.int64]
    """int64[24]."""
    rejected: Floats
    """float64[24], as a fraction of them."""
    missed: Floats
    """float64[24], as a fraction of them."""


def _edges(begin: float, end: float, points: int = _POINTS) -> Floats:
    """Return the borders of equal spans of time, float64[points + 1]."""
    return np.linspace(begin, max(end, begin + 1.0), points + 1)


def mean_level(begin: Floats, end: Floats, weight: Floats, borders: Floats) -> Floats:
    """Return the mean over each span of time of a level that each row raises while it lasts.

    Parameters
    ----------
    begin, end : float64[n]
        When each row begins and ends; rows with nan are left out.
    weight : float64[n]
        By how much it raises the level.
    borders : float64[m + 1]
        Ascending instants.

    Returns
    -------
    float64[m]
    """
    good = end > begin
    area = _since(begin[good], weight[good], borders) - _since(end[good], weight[good], borders)
    mean: Floats = np.diff(area) / np.diff(borders)
    # What remains of subtracted sums is not a level.
    return np.where(np.abs(mean) < 1e-9 * max(float(np.abs(mean).max()), 1.0), 0.0, mean)


def _since(times: Floats, weight: Floats, borders: Floats) -> Floats:
    """Return at each border the sum of weight times the time since, of what lies before it."""
    origin = borders[0]
    places = np.searchsorted(borders, times, side="left")
    n = len(borders)
    total = np.cumsum(np.bincount(places, weight, n + 1)[:n])
    moment = np.cumsum(np.bincount(places, weight * (times - origin), n + 1)[:n])
    since: Floats = (borders - origin) * total - moment
    return since


def occupancy(workload: Workload, results: Results, borders: Floats) -> Floats:
    """Return the busy fraction of the machine's nodes, per span of time.

    A job that shares nodes counts as far as it was served, evenly from its start to its end.
    """
    serving = results.serving().astype(np.float64)
    busy = mean_level(results.start, results.end, serving, borders)
    return busy / max(len(workload.cluster), 1)


def waiting(workload: Workload, results: Results, borders: Floats) -> Floats:
    """Return the mean number of jobs that wait, per span of time; rejected ones never do."""
    let_in = results.fate != FinalState.REJECTED
    until = np.where(np.isfinite(results.start), results.start, borders[-1])[let_in]
    return mean_level(workload.jobs.submit[let_in], until, np.ones(len(until)), borders)


def waits(workload: Workload, results: Results) -> Floats:
    """Return the waits of all jobs that started, seconds, ascending."""
    wait = results.start - workload.jobs.submit
    return np.sort(wait[np.isfinite(wait)])


def by_hour(workload: Workload, results: Results) -> _Hours:
    """Return rejects and misses by the hour of the day (UTC) at which jobs were submitted."""
    jobs = workload.jobs
    hour = (jobs.submit // 3600 % 24).astype(np.int64)
    rejected = results.fate == FinalState.REJECTED
    missed = ~rejected & is_late(results.end, jobs.deadline, jobs.submit)
    total = np.bincount(hour, minlength=24)
    parts = [np.bincount(hour[mask], minlength=24) for mask in (rejected, missed)]
    whole = np.where(total > 0, total, np.nan)
    return _Hours(total, parts[0] / whole, parts[1] / whole)


def size_classes(workload: Workload) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return each job's class of size, and the classes' names: `1`, `2`, `3-4`, `5-8`, ..."""
    size = np.maximum(workload.jobs.size.astype(np.float64), 1)
    power = np.ceil(np.log2(size)).astype(np.int64)
    present, classes = np.unique(power, return_inverse=True)
    names = tuple(
        str(2**k) if k < 2 else f"{2 ** (k - 1) + 1:,}–{2**k:,}" for k in present.tolist()
    )
    return classes.astype(np.int64), names


def slowdown_by_class(
    workload: Workload, results: Results, classes: NDArray[np.int64], n: int
) -> Floats:
    """Return the mean bounded slowdown of the finished jobs of each class; nan where none is."""
    done = np.isfinite(results.end) & np.isfinite(results.start)
    slowdown = bounded_slowdown(workload.jobs.submit[done], results.start[done], results.end[done])
    count = np.bincount(classes[done], minlength=n)
    total = np.bincount(classes[done], slowdown, n)
    return total / np.where(count > 0, count, np.nan)
