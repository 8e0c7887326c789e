"""Figures of the report, of fairness too, as plotly draws them; a policy has one colour.

The chart of nodes shows which job was where, one panel per policy, over the same window of time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from rtsched.model.resources import CPU
from rtsched.model.table import Ragged, amounts_of
from rtsched.model.units import HOUR
from rtsched.replay.measures import LEVELS, errors, in_order
from rtsched.report.axes import MUTED, PAPER, WAITS, axis, base, literal, log_axis, span_axis
from rtsched.report.scene import (
    QUANTILES,
    Figure,
    FigureSection,
    Scene,
    Shown,
    by_hour,
    course,
    occupancy,
    panels,
    size_classes,
    slowdown_by_class,
    step,
    time_layout,
    trimmed,
    waiting,
    waits,
)
from rtsched.report.wording import count, decimal, duration, instant, percent, shortened
from rtsched.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rtsched.replay.measures import Errors
    from rtsched.replay.results import PolicyRun, Workload


MOST_NAMES = 10
"""Users or accounts whose ranges are drawn, those with the largest errors."""


def fairness_figures(scene: Scene) -> list[tuple[Figure, ...]]:
    """Return course and range of the errors of users, and of accounts; none of a lone one."""
    orders = [in_order(scene.workload, entry.results) for entry in scene.shown]
    found: list[tuple[Figure, ...]] = []
    for level in LEVELS:
        first = errors(scene.workload, scene.shown[0].results, level, orders[0])
        if first is None or len(first.names) < 2:
            continue
        everyone = np.arange(len(first.names))
        known = [
            (entry, error)
            for entry, order in zip(scene.shown, orders, strict=True)
            if (
                error := errors(
                    scene.workload, entry.results, level, order, scene.borders, everyone
                )
            )
        ]
        ranges = _ranges(level, known)
        found.append((_course(scene, level, known, ranges.height), ranges))
    return found


def _course(scene: Scene, level: str, known: list[tuple[Shown, Errors]], height: int) -> Figure:
    """Return the course of the root mean square over all users or accounts."""
    plot, last = go.Figure(), []
    for entry, found in known:
        rms = np.sqrt(np.square(found.error.course).mean(axis=1)) / HOUR
        last.append(f"{entry.name} {decimal(float(rms.max()))}")
        plot.add_scatter(
            x=scene.time.at(scene.borders), y=trimmed(rms), mode="lines", **entry.trace,
            hovertemplate="%{y:.4s} node-h",
        )  # fmt: skip
    time_layout(plot, scene, axis("RMS error, node-hours", rangemode="tozero"))
    return Figure(
        f"fig-fairness-{level}",
        f"Distance of {level}s from their shares",
        f"Greatest root mean square error, node-hours: {', '.join(last)}.",
        f"Root mean square over all {level}s of the service-time error. Lower is fairer.",
        height,
        plot,
    )


def _ranges(level: str, known: list[tuple[Shown, Errors]]) -> Figure:
    """Return least and greatest error of those whose errors are largest, per policy."""
    extent = np.max([_extent(found) for _, found in known], axis=0)
    chosen = np.argsort(-extent, kind="stable")[:MOST_NAMES]
    chosen = chosen[extent[chosen] >= 0]
    names = known[0][1].names
    plot = go.Figure()
    places = np.arange(len(chosen))
    spread = 0.64 / len(known)
    for k, (entry, found) in enumerate(known):
        y = places + (k - (len(known) - 1) / 2) * spread
        least, most = found.error.least[chosen] / HOUR, found.error.most[chosen] / HOUR
        gap = np.full(len(chosen), np.nan)
        plot.add_scatter(
            x=np.ravel(np.column_stack([least, most, gap])),
            y=np.ravel(np.column_stack([y, y, gap])),
            name=entry.label, mode="lines", hoverinfo="skip",
            line={"color": entry.line["color"], "width": max(8.0 - len(known), 2.5)},
            legendgroup=entry.label,
        )  # fmt: skip
        plot.add_scatter(
            x=np.concatenate([least, most]), y=np.concatenate([y, y]), name=entry.label,
            mode="markers", marker={"size": 5, "color": entry.line["color"]},
            showlegend=False, legendgroup=entry.label, hovertemplate="%{x:.4s} node-h",
        )  # fmt: skip
    shown = literal([shortened(names[row], 18) for row in chosen.tolist()])
    plot.update_layout(
        base(
            xaxis=axis("Least to greatest error, node-hours", zeroline=True),
            yaxis=axis(
                "", tickvals=places, ticktext=shown, range=[len(chosen) - 0.5, -0.5],
                showgrid=False, zeroline=False,
            ),
        )
    )  # fmt: skip
    plot.update_xaxes(zerolinecolor=MUTED, zerolinewidth=1.5)
    first = shortened(names[int(chosen[0])], 40) if len(chosen) else "none"
    return Figure(
        f"fig-errors-{level}",
        f"The {level}s furthest from their shares" if len(names) > MOST_NAMES else f"By {level}",
        f"The largest error is that of {level} {first}.",
        f"The {len(chosen)} {level}s with the largest errors of {len(names)}. Right of zero: more "
        "than the share; left: owed.",
        max(360, 90 + len(chosen) * (14 + 6 * len(known))),
        plot,
    )


def _extent(found: Errors) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return each one's largest error either way; -1 where it has none."""
    error = found.error
    return np.where(error.instants > 0, np.maximum(-error.least, error.most), -1.0)


FAR_APART = 12
"""Ratio of the longest queues from which on each is drawn in a panel of its own."""


def groups(workload: Workload, runs: Sequence[PolicyRun]) -> list[FigureSection]:
    """Return the report's figures in sections."""
    scene = Scene.of(workload, runs)
    who_waits = (waits_figure(scene), slowdown_figure(scene))
    busy = [(occupancy_figure(scene),), (waiting_figure(scene),)]
    found = [
        FigureSection("waiting", "Waiting", "", (who_waits,)),
        FigureSection("machine", "Machine and queue over time", "", tuple(busy)),
    ]
    if nodes := nodes_figure(scene):
        found.append(FigureSection("nodes", "Nodes", "", ((nodes,),)))
    if hours := hours_figure(scene):
        found.append(FigureSection("deadlines", "Deadlines", "", ((hours,),)))
    if fair := fairness_figures(scene):
        found.append(FigureSection("fairness", "Fairness", FAIRNESS_NOTE, tuple(fair)))
    return found


FAIRNESS_NOTE = (
    "The service-time error of a user or account is the service it received less the service that "
    "its share of the machine's busy hours entitles it to, in node-hours: above zero it got more "
    "than its share, below zero it is owed."
)


def waits_figure(scene: Scene) -> Figure:
    """Return the distribution of waits."""
    plot, most, medians = go.Figure(), 10.0, []
    p = np.linspace(0, 1, QUANTILES + 1)
    for entry in scene.shown:
        waited = waits(scene.workload, entry.results)
        if not len(waited):
            continue
        at = np.quantile(waited, p)
        most = max(most, float(at[-1]))
        medians.append(f"{entry.name} {duration(float(at[len(at) // 2]))}")
        plot.add_scatter(
            x=np.maximum(at, 1.0), y=100 * p, mode="lines", **entry.trace,
            customdata=[duration(wait) for wait in at.tolist()],
            hovertemplate="%{y:.1f} % of jobs wait at most %{customdata}",
        )  # fmt: skip
    plot.update_layout(
        base(
            xaxis=span_axis("Wait (logarithmic)", 1.0, most),
            yaxis=axis("Jobs that wait at most this long", range=[0, 101], ticksuffix=" %"),
        )
    )
    return Figure(
        "fig-waits",
        "How long jobs wait",
        f"Half of the jobs wait at most: {', '.join(medians)}." if medians else "No job started.",
        "Higher and further left is better. Waits of up to a second are at the left edge.",
        390,
        plot,
    )


def slowdown_figure(scene: Scene) -> Figure:
    """Return the bounded slowdown by size of the job."""
    plot = go.Figure()
    classes, names = size_classes(scene.workload)
    worst, highest = [], 10.0
    for entry in scene.shown:
        means = slowdown_by_class(scene.workload, entry.results, classes, len(names))
        if np.isfinite(means).any():
            widest = int(np.nanargmax(means))
            highest = max(highest, float(means[widest]))
            worst.append(f"{entry.name} {decimal(float(means[widest]))} (size {names[widest]})")
        plot.add_scatter(
            x=list(names), y=means, mode="lines+markers", **entry.trace,
            marker={"size": 7, "color": entry.line["color"]},
            hovertemplate="size %{x}: %{y:.3s}",
        )  # fmt: skip
    plot.update_layout(
        base(
            xaxis=axis("Nodes asked for", type="category"),
            yaxis=log_axis("Mean bounded slowdown (logarithmic)", highest),
        )
    )
    return Figure(
        "fig-slowdown",
        "Who is slowed down: small and wide jobs",
        f"Highest means: {', '.join(worst)}." if worst else "No job finished.",
        "Mean over the finished jobs of each class of size; 1 is no wait at all.",
        390,
        plot,
    )


def occupancy_figure(scene: Scene) -> Figure:
    """Return the busy part of the machine over time."""
    courses = [
        100 * occupancy(scene.workload, entry.results, scene.borders) for entry in scene.shown
    ]
    means = [
        f"{entry.name} {percent(float(course.mean()) / 100)}"
        for entry, course in zip(scene.shown, courses, strict=True)
    ]
    ticks = {"range": [0, 104], "tickvals": [0, 50, 100], "ticktext": ["0 %", "50 %", "100 %"]}
    plot, height = panels(scene, courses, axis("", **ticks), "%{y:.1f} %")
    return Figure(
        "fig-occupancy",
        "Occupancy of the machine",
        f"Busy part of all {_served_by(scene)}, mean over the time shown: {', '.join(means)}.",
        f"Each point is the mean over {step(scene)}.{_shared_words(scene)}",
        height,
        plot,
    )


def _served_by(scene: Scene) -> str:
    """Return what serves jobs: nodes, or their cores where jobs share nodes by resources."""
    cluster = scene.workload.cluster
    if cluster.shared and CPU in cluster.nodes.names("capacity"):
        return counted(int(amounts_of(cluster.nodes, "capacity", (CPU,)).sum()), "core")
    return counted(len(cluster), "node")


def _shared_words(scene: Scene) -> str:
    """Return what to say of occupancy where jobs share nodes; nothing if none do."""
    names = ", ".join(run.policy for run in scene.runs if run.shares_nodes)
    return names and (
        f" Under {names} jobs share nodes; what a job was served is spread evenly from its start "
        "to its end, so the sum may pass 100 % for a while."
    )


def waiting_figure(scene: Scene) -> Figure:
    """Return the number of waiting jobs over time; in panels if the queues are far apart."""
    queues = [waiting(scene.workload, entry.results, scene.borders) for entry in scene.shown]
    peaks = [float(queue.max()) for queue in queues]
    names = [entry.name for entry in scene.shown]
    text = ", ".join(f"{name} {decimal(peak)}" for name, peak in zip(names, peaks, strict=True))
    note = "Jobs submitted and not yet started."
    if max(peaks) > FAR_APART * max(min(peaks), 1.0):
        y = axis("", range=[0, 1.05 * max(peaks)], nticks=4)
        plot, height = panels(scene, queues, y, "%{y:.4s} jobs")
        note += " All panels have the same scale."
    else:
        plot, height = go.Figure(), 350
        for entry, queue in zip(scene.shown, queues, strict=True):
            course(plot, scene, entry, queue, "%{y:.4s} jobs")
        time_layout(plot, scene, axis("Waiting jobs", rangemode="tozero"))
    return Figure(
        "fig-waiting",
        "Length of the queue",
        f"Longest queues, each a mean over {step(scene)}: {text} jobs.",
        note,
        height,
        plot,
    )


def hours_figure(scene: Scene) -> Figure | None:
    """Return rejects and misses by hour of the day; None where there are neither."""
    hours = [by_hour(scene.workload, entry.results) for entry in scene.shown]
    kinds = {
        "Missed deadlines": [some.missed for some in hours],
        "Rejected": [some.rejected for some in hours],
    }
    kinds = {title: of for title, of in kinds.items() if np.nansum(of) > 0}
    if not kinds:
        return None
    plot = make_subplots(
        1, len(kinds), subplot_titles=list(kinds), horizontal_spacing=0.09, shared_yaxes="all"
    )
    for column, of in enumerate(kinds.values(), 1):
        for entry, part in zip(scene.shown, of, strict=True):
            if column > 1 and not np.nansum(part):
                continue
            plot.add_scatter(
                x=list(range(24)), y=100 * part, mode="lines+markers", **entry.trace,
                marker={"size": 5}, legendgroup=entry.label,
                showlegend=column == 1, hovertemplate="%{x}:00: %{y:.2f} %", row=1, col=column,
            )  # fmt: skip
    dated = scene.time.is_date
    title = "Hour of submission (UTC)" if dated else "Hour of submission (of the log's own days)"
    plot.update_layout(base(margin={"l": 64, "r": 18, "t": 74, "b": 52}))
    plot.update_layout(legend_y=1.12)
    plot.update_xaxes(axis(title, tickvals=[0, 4, 8, 12, 16, 20, 23], range=[-0.6, 23.6]))
    plot.update_yaxes(axis("Jobs submitted in this hour", rangemode="tozero", ticksuffix=" %"))
    plot.update_annotations(font={"size": 13.5, "color": MUTED}, yshift=2)
    totals = hours[0].jobs
    busiest = int(np.argmax(totals))
    return Figure(
        "fig-hours",
        "Missed and rejected jobs by hour of the day",
        f"Most jobs ({count(int(totals[busiest]))}) are submitted between {busiest}:00 and "
        f"{busiest + 1}:00.",
        "Of the jobs submitted in an hour, the part that missed its deadline or was rejected. "
        "For the log itself, deadlines are those of the log or of the rule stated above.",
        370,
        plot,
    )


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
        f"job had waited before.{_sharing_words(scene, runs)}",
        height,
        plot,
    )


def _sharing_words(scene: Scene, runs: list[PolicyRun]) -> str:
    """Return what to say of bars that lie over one another; nothing if none do."""
    if scene.workload.cluster.shared:
        return " Jobs share nodes: bars lie over one another."
    names = ", ".join(shortened(run.policy, 24) for run in runs if run.shares_nodes)
    return names and (
        f" Under {names} jobs share nodes: bars lie over one another, a job is drawn from its "
        "first start to its end on the nodes it had last, and may be suspended in between."
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
