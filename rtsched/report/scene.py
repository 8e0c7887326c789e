"""Scene of a report's figures: the replay, its time axis, each policy's look."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from plotly.subplots import make_subplots

from rtsched.replay.measures import logged_results
from rtsched.report import series
from rtsched.report.axes import MUTED, TimeAxis, base, literal, look
from rtsched.report.rows import LOGGED
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
class Group:
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
        return cls(workload, runs, shown, series.edges(begin, end), TimeAxis.of(begin, end))


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
