"""The chart of nodes: which job was where, one panel per policy, over the same window of time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from plotly.subplots import make_subplots

from rtsched.counting import counted
from rtsched.model.table import Ragged
from rtsched.report.axes import MUTED, PAPER, WAITS, axis, base, literal
from rtsched.report.scene import Figure, Scene
from rtsched.report.wording import duration, instant, shortened

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


MOST_PANELS = 6
LIMITS = (60.0, 3600.0, 86400.0)
"""Borders between classes of waits, seconds."""

THROUGH = 0.6
"""Opacity of bars that may lie over one another."""

CLASSES = ("waited up to a minute", "up to an hour", "up to a day", "longer")


def nodes_figure(scene: Scene) -> Figure | None:
    """Return the chart, of all time or of a window about the longest queue; None without nodes."""
    entries = [
        (entry.label, run)
        for entry, run in zip(scene.shown[1:], scene.runs, strict=True)
        if is_recorded(run)
    ]
    left_out = entries[MOST_PANELS:]
    entries = entries[:MOST_PANELS]
    if not entries:
        return None
    runs = [run for _, run in entries]
    begin, end, whole = window(runs, scene.workload.jobs.submit, scene.workload.outcomes.start)
    drawn = [bars(run, begin, end) for run in runs]
    nodes = len(scene.workload.cluster)
    panel = int(np.clip(90 + 5 * nodes, 130, 260))
    height = 40 + 62 + len(entries) * (panel + 34)
    plot = make_subplots(
        len(entries), 1, shared_xaxes=True, subplot_titles=[name for name, _ in entries],
        vertical_spacing=34 / (height - 100) if len(entries) > 1 else 0,
    )  # fmt: skip
    named = set[int]()
    for row, ((_, run), some) in enumerate(zip(entries, drawn, strict=True), 1):
        _panel(plot, scene, run, some, row, named)
    plot.update_layout(
        base(barmode="overlay", bargap=0, margin={"l": 64, "r": 18, "t": 66, "b": 52})
    )
    legend_lift = 30 / (height - 118)
    plot.update_layout(legend={"y": 1 + legend_lift, "traceorder": "normal"})
    span = scene.time.at(np.array([begin, end])).tolist()
    plot.update_xaxes(scene.time.layout(range=span, showgrid=False))
    plot.update_xaxes(title_text="", row=None)
    plot.update_xaxes(title_text=scene.time.title, row=len(entries), col=1)
    plot.update_yaxes(axis("Nodes", range=[-0.5, nodes - 0.5], showgrid=False, zeroline=False))
    plot.update_annotations(font={"size": 13.5, "color": MUTED}, x=0, xanchor="left")
    words = "all time" if whole else f"{duration(end - begin)} about the log's longest queue"
    more = f" {len(left_out)} more policies are left out." if left_out else ""
    return Figure(
        "fig-nodes",
        "Who ran where",
        f"Shown is {words}, from {instant(begin)} to {instant(end)}.{more}",
        "One bar per job and run of neighbouring nodes; the stronger its colour, the longer the "
        f"job had waited before.{_shared_words(scene, runs)}",
        height,
        plot,
    )


def _shared_words(scene: Scene, runs: list[PolicyRun]) -> str:
    """Return what to say of bars that lie over one another; nothing if none do."""
    if scene.workload.cluster.shared:
        return " Jobs share nodes: bars lie over one another."
    names = ", ".join(shortened(run.policy, 24) for run in runs if run.shares_nodes)
    return names and (
        f" Under {names} jobs share nodes: bars lie over one another, a job is drawn from its "
        "first start to its end on the nodes it had last, and may stand still in between."
    )


def _overlap(scene: Scene, run: PolicyRun) -> bool:
    """Return whether a node may have been given to several jobs at a time."""
    return run.shares_nodes or scene.workload.cluster.shared


def _panel(plot: Any, scene: Scene, run: PolicyRun, some: Bars, row: int, named: set[int]) -> None:
    """Draw one policy's bars, one trace per class of waits."""
    jobs, results = scene.workload.jobs, run.results
    wait = results.start[some.job] - jobs.submit[some.job]
    kinds = np.searchsorted(LIMITS, wait, side="left")
    edge = 0.6 if len(scene.workload.cluster) <= 200 else 0.0
    for kind, label in enumerate(CLASSES):
        mine = np.flatnonzero(kinds == kind)
        if not len(mine):
            continue
        plot.add_bar(
            orientation="h",
            base=scene.time.at(some.start[mine]),
            x=scene.time.span(some.end[mine] - some.start[mine]),
            y=some.low[mine] + (some.height[mine] - 1) / 2,
            width=some.height[mine].astype(np.float64),
            marker={
                "color": WAITS[kind],
                "line": {"color": PAPER, "width": edge},
                "opacity": THROUGH if _overlap(scene, run) else 1.0,
            },
            name=label,
            legendgroup=label,
            legendrank=kind,
            showlegend=kind not in named,
            text=_words(scene, run, some.job[mine]),
            textposition="none",
            hovertemplate="%{text}<extra></extra>",
            row=row,
            col=1,
        )
        named.add(kind)


def _words(scene: Scene, run: PolicyRun, rows: NDArray[np.int64]) -> list[str]:
    """Return what to say of jobs when one points at them."""
    jobs = scene.workload.jobs.take(rows)
    results = run.results.take(rows)
    users = jobs.texts("user")
    sentences = []
    for k, label in enumerate(jobs.labels()):
        name, user = literal([shortened(label, 30), shortened(users[k] or "?", 30)])
        wait = duration(float(results.start[k] - jobs.submit[k]))
        ran = duration(float(results.end[k] - results.start[k]))
        sentences.append(
            f"job {name}, user {user}<br>{counted(int(results.size[k]), 'node')} for {ran}, "
            f"waited {wait}"
        )
    return sentences
