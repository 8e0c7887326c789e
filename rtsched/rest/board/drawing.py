"""Nodes and the jobs on them over time, as paths of SVG, which a browser draws by the thousand."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rtsched.model.blocked import Blocked
from rtsched.model.table import Ragged, offsets_of
from rtsched.report.wording import period_name, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from rtsched.daemon.questions import EstimateRecord, PromiseStatus, TimelineReport

WIDTH = 1000
"""Units of a drawing across."""
MARGIN = 12.0
"""Per cent of the width that the names of nodes take."""
PAST = 0.04
"""Part of the width before now."""
SPANS = {"6h": 21_600.0, "1d": 86_400.0, "3d": 259_200.0, "1w": 604_800.0, "4w": 2_419_200.0}
"""How far ahead a drawing may look, seconds."""
KINDS = ("running", "kept", "planned", "reserved")
PROMISED = ("kept", "planned")
STEPS = (60, 300, 900, 1800, 3600, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800)
"""Seconds between two labels of the time axis."""
LABELS = 8
"""At most so many on an axis."""
SAMPLES = 240
"""Instants at which busy nodes are counted."""


class Label(NamedTuple):
    """Text beside an axis, at so many per cent of the drawing."""

    at: float
    text: str


class Mark(NamedTuple):
    """One promised job: its path, its name for links, and what is said about it."""

    path: str
    job: str
    title: str


class Load(NamedTuple):
    """Busy nodes over time: areas in units of `WIDTH` across and one node up."""

    busy: str
    promised: str


class Drawing(NamedTuple):
    """Jobs over nodes and time, the same for all readers.

    Attributes
    ----------
    rows : int
        Nodes.
    height : int
        Pixels.
    paths : dict of str to str
        All bars of a kind, in units of `WIDTH` across and one node down.
    now : float
        Units from the left.
    times, names : tuple of Label
        Of both axes.
    load : Load
        How many nodes are busy.
    axes : Axes
        Where something else stands in it.
    """

    rows: int
    height: int
    paths: dict[str, str]
    now: float
    times: tuple[Label, ...]
    names: tuple[Label, ...]
    load: Load
    axes: Axes


class Axes(NamedTuple):
    """Where instants and nodes are drawn.

    Attributes
    ----------
    begin : float
        At the left edge, seconds since the epoch.
    scale : float
        Units per second.
    row : dict of str to int
        Of each node that is drawn.
    """

    begin: float
    scale: float
    row: dict[str, int]


def drawing(report: TimelineReport, span_s: float, partition: str = "") -> Drawing:
    """Return what a timeline shows of the next `span_s` seconds.

    Parameters
    ----------
    report : TimelineReport
        From the daemon.
    span_s : float
        Seconds ahead.
    partition : str
        Show its nodes only; empty: all.
    """
    shown = _rows(report, partition)
    place = np.full(len(report.nodes), -1, np.int64)
    place[shown] = np.arange(len(shown))
    begin, end = report.now - PAST * span_s, report.now + span_s
    scale = WIDTH / (end - begin)
    starts = np.clip((np.array(report.start) - begin) * scale, 0, WIDTH)
    ends = np.clip((np.array(report.end) - begin) * scale, 0, WIDTH)
    kinds = np.array([KINDS.index(kind) for kind in report.kind], np.int64)
    bars = Ragged.counted(report.count)
    node = place[np.repeat(np.array(report.first, np.int64), bars.lengths) + bars.values]
    seen = (node >= 0) & (ends > starts)[bars.rows()]
    bar, node = bars.rows()[seen], node[seen]
    row, low, height = _some(bar, node, len(starts)).runs()
    paths = {
        kind: _path(starts[row[of]], ends[row[of]], low[of], height[of])
        for number, kind in enumerate(KINDS)
        for of in [kinds[row] == number]
    }
    names = [report.nodes[at] for at in shown.tolist()]
    rows = max(len(shown), 1)
    working = kinds[bar] != KINDS.index("reserved")
    promised = np.isin(kinds[bar], [KINDS.index(kind) for kind in PROMISED])
    load = Load(
        _area(node[working], starts[bar][working], ends[bar][working]),
        _area(node[promised], starts[bar][promised], ends[bar][promised]),
    )
    return Drawing(
        rows,
        int(min(max(rows * 14, 120), 560)),
        paths,
        (report.now - begin) * scale,
        tuple(_times(begin, end)),
        tuple(_names(names)),
        load,
        Axes(begin, scale, {name: at for at, name in enumerate(names)}),
    )


class Bar(NamedTuple):
    """One bar of the record of estimates, per cent of the drawing."""

    kind: str
    x: float
    width: float
    height: float
    wanted: float
    """Height of the line that says how high it should be; negative: there is none."""


class BarGroup(NamedTuple):
    """The bars of a period, at its name."""

    label: Label
    bars: tuple[Bar, ...]


def coverage_bars(record: Sequence[EstimateRecord]) -> tuple[BarGroup, ...]:
    """Return by period how often starts were within their intervals, beside how often they should.

    Periods in which no job started are left out.
    """
    return _groups(
        [
            (
                each.period_s,
                [
                    ("cover80", each.covered_80, 0.8),
                    ("cover90", each.covered_90, 0.9),
                    ("cover95", each.covered_95, 0.95),
                ],
            )
            for each in record
            if each.jobs
        ]
    )


def error_bars(record: Sequence[EstimateRecord]) -> tuple[BarGroup, ...]:
    """Return by period the mean absolute error, beside that of requested times."""
    shown = [each for each in record if each.jobs]
    values = [value for each in shown for value in (each.error_s, each.error_by_limits_s) if value]
    most = max(values, default=1.0)
    return _groups(
        [
            (
                each.period_s,
                [
                    ("error", None if each.error_s is None else each.error_s / most, -1.0),
                    (
                        "limits",
                        None if each.error_by_limits_s is None else each.error_by_limits_s / most,
                        -1.0,
                    ),
                ],
            )
            for each in shown
        ]
    )


def _groups(
    rows: Sequence[tuple[float, Sequence[tuple[str, float | None, float]]]],
) -> tuple[BarGroup, ...]:
    step, found = 100.0 / max(len(rows), 1), []
    for at, (period, values) in enumerate(rows):
        width = 0.7 * step / len(values)
        bars = [
            Bar(
                kind,
                at * step + 0.15 * step + width * place,
                0.9 * width,
                100.0 * value,
                100.0 * wanted,
            )
            for place, (kind, value, wanted) in enumerate(values)
            if value is not None
        ]
        found.append(BarGroup(Label((at + 0.5) * step, period_name(period)), tuple(bars)))
    return tuple(found)


def marks(axes: Axes, promises: Iterable[PromiseStatus]) -> Iterator[Mark]:
    """Yield the promises that can be drawn, one by one: those with nodes and times in it."""
    for promise in promises:
        row = np.sort([axes.row[name] for name in promise.nodes if name in axes.row])
        if promise.start is None or promise.end is None or not len(row):
            continue
        ends = (np.array([promise.start, promise.end]) - axes.begin) * axes.scale
        x, until = np.clip(ends, 0, WIDTH)
        if until <= x:
            continue
        _, low, height = _some(np.zeros(len(row), np.int64), row.astype(np.int64), 1).runs()
        each = np.ones(len(low))
        title = f"{promise.job or promise.name}: {'running' if promise.running else 'planned'}"
        yield Mark(_path(x * each, until * each, low, height), promise.job, title)


def _rows(report: TimelineReport, partition: str) -> NDArray[np.int64]:
    """Return the places of the nodes that are shown."""
    chosen = report.partitions.get(partition)
    return np.arange(len(report.nodes)) if chosen is None else np.array(chosen, np.int64)


def _some(row: NDArray[np.int64], value: NDArray[np.int64], rows: int) -> Ragged:
    """Return values by their rows, which ascend."""
    return Ragged(offsets_of(np.bincount(row, minlength=rows)), value)


def _path(
    start: NDArray[np.float64],
    end: NDArray[np.float64],
    low: NDArray[np.int64],
    height: NDArray[np.int64],
) -> str:
    """Return rectangles as one path."""
    columns = zip(
        start.tolist(), (end - start).tolist(), low.tolist(), height.tolist(), strict=True
    )
    return "".join(f"M{x:.1f} {y}h{w:.1f}v{h}h-{w:.1f}z" for x, w, y, h in columns)


def _area(node: NDArray[np.int64], start: NDArray[np.float64], end: NDArray[np.float64]) -> str:
    """Return how many nodes are busy, as the path of an area; each counts once at a time."""
    spans = Blocked.merged(node, start, end)
    at = np.linspace(0, WIDTH, SAMPLES + 1)
    begun = np.searchsorted(np.sort(spans.start), at, "right")
    busy = begun - np.searchsorted(np.sort(spans.end), at, "right")
    changed = np.flatnonzero(np.diff(busy[:-1], prepend=-1))
    steps = zip(busy[changed].tolist(), at[np.append(changed[1:], SAMPLES)].tolist(), strict=True)
    return "M0 0" + "".join(f"V{number}H{until:.1f}" for number, until in steps) + "V0z"


def _times(begin: float, end: float) -> Iterable[Label]:
    """Return round instants of the local day."""
    step = next((size for size in STEPS if (end - begin) / size <= LABELS), STEPS[-1])
    offset = time.localtime(begin).tm_gmtoff
    at = math.ceil((begin + offset) / step) * step - offset
    while at < end:
        form = "%H:%M" if step < 86_400 else "%a %d %b"
        if step < 86_400 and time.localtime(at)[3:5] == (0, 0):
            form = "%a %d"
        yield Label(100 * (at - begin) / (end - begin), time.strftime(form, time.localtime(at)))
        at += step


def _names(nodes: Sequence[str]) -> Iterable[Label]:
    """Return names of nodes, evenly spaced."""
    step = max(math.ceil(len(nodes) / (2 * LABELS)), 1)
    for row in range(0, len(nodes), step):
        yield Label(100 * (row + 0.5) / len(nodes), shortened(nodes[row], 14))
