"""Figures of fairness: the service-time error of users and accounts, its course and its range."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from rtsched.model.units import HOUR
from rtsched.replay.fairness import LEVELS, errors, in_order
from rtsched.report.axes import axis, base, literal
from rtsched.report.palette import MUTED
from rtsched.report.scene import Figure, Scene, Shown, time_layout, trimmed
from rtsched.report.wording import decimal, shortened

if TYPE_CHECKING:
    from rtsched.replay.fairness import Errors

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
