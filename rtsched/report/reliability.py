"""Stated odds against what was kept: by classes of odds, in numbers and as a plot.

Odds are right if of the promises that were stated with odds of 95 % so many were kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from rtsched.model.wilson import wilson
from rtsched.report.axes import GRID, INK, MUTED, POLICIES
from rtsched.report.wording import percent
from rtsched.text import counted

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


EDGES = (0.0, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.925, 0.95, 0.975, 0.99, 1.0)
"""Between two of them odds are counted together."""

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 420, 380, 58, 46, 12, 14
"""Of a drawing, and of its margins."""


@dataclass(frozen=True)
class Reliability:
    """How many promises of each class of stated odds were kept; classes without any are left out.

    Attributes
    ----------
    stated : float64[k]
        Mean of the stated odds, 0 to 1, ascending.
    promises : int64[k]
        How many there were, >= 1.
    kept : float64[k]
        Share of them that was kept, 0 to 1.
    low, high : float64[k]
        Wilson's 95 % interval of that share.
    """

    stated: NDArray[np.float64]
    promises: NDArray[np.int64]
    kept: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.stated)

    def sentence(self) -> str:
        """Return how many were stated and kept on the whole."""
        number = int(self.promises.sum())
        if not number:
            return "No promise with odds has come to its end yet."
        stated = float(self.stated @ self.promises) / number
        kept = float(self.kept @ self.promises) / number
        many = counted(number, "promise")
        return f"Of {many}, stated with odds of {percent(stated)} on average, {percent(kept)} kept."


def reliability(stated: ArrayLike, kept: ArrayLike) -> Reliability:
    """Return how many promises of each class of stated odds were kept.

    Parameters
    ----------
    stated : float64[n]
        Odds that were stated, 0 to 1.
    kept : bool[n]
        Whether the promise was kept.

    Raises
    ------
    ValueError
        If the odds are not within 0 and 1, or the arrays differ in length.
    """
    odds, good = np.asarray(stated, np.float64), np.asarray(kept, np.bool_)
    if odds.shape != good.shape or odds.ndim != 1:
        raise ValueError(f"{odds.shape} odds and {good.shape} outcomes do not belong together")
    if not ((odds >= 0) & (odds <= 1)).all():
        raise ValueError("odds must be within 0 and 1")
    number = len(EDGES) - 1
    row = np.minimum(np.searchsorted(EDGES, odds, side="right") - 1, number - 1)
    many = np.bincount(row, minlength=number)
    there = many > 0
    means = np.bincount(row, odds, number)[there] / many[there]
    part = np.bincount(row, good, number)[there] / many[there]
    return Reliability(means, many[there], part, *wilson(part, many[there]))


def reliability_drawing(found: Reliability, standalone: bool = True) -> str:
    """Return the plot as SVG.

    Parameters
    ----------
    found : Reliability
        What is drawn.
    standalone : bool
        For a file: with colours of its own. Else the page's style sheet has them, by the classes
        `grid`, `line`, `point` and `text`.
    """
    low, right, bottom = min(_least(found), _lowest(found)), _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def x(odds: float) -> float:
        return _LEFT + (odds - low) / (1 - low) * (right - _LEFT)

    def y(part: float) -> float:
        return bottom - (part - low) / (1 - low) * (bottom - _TOP)

    def look(kind: str) -> str:
        own = {
            "grid": f'stroke="{GRID}" fill="none"',
            "line": f'stroke="{MUTED}" stroke-dasharray="5 4" fill="none"',
            "point": f'stroke="{POLICIES[0]}" fill="{POLICIES[0]}" stroke-width="1.5"',
            "text": f'fill="{INK}" font-size="12" font-family="sans-serif"',
        }
        return own[kind] if standalone else f'class="{kind}"'

    parts = [f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>'] if standalone else []
    for at in np.arange(round(low * 10), 11) / 10:
        label = f"{100 * at:.0f} %"
        parts += [
            f'<path d="M{x(at):.1f} {_TOP}V{bottom}M{_LEFT} {y(at):.1f}H{right}" {look("grid")}/>',
            f'<text x="{x(at):.1f}" y="{bottom + 16}" text-anchor="middle" {look("text")}>'
            f"{label}</text>",
            f'<text x="{_LEFT - 6}" y="{y(at) + 4:.1f}" text-anchor="end" {look("text")}>'
            f"{label}</text>",
        ]
    parts.append(f'<path d="M{x(low):.1f} {y(low):.1f}L{x(1):.1f} {y(1):.1f}" {look("line")}/>')
    columns = (found.stated, found.kept, found.low, found.high, found.promises)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for stated, kept, least, most, number in rows:
        text = (
            f"stated {percent(stated)}: {percent(kept)} of {number:,} kept, "
            f"{percent(least)} to {percent(most)}"
        )
        parts.append(
            f"<g {look('point')}><title>{escape(text)}</title>"
            f'<path d="M{x(stated):.1f} {y(least):.1f}V{y(most):.1f}"/>'
            f'<circle cx="{x(stated):.1f}" cy="{y(kept):.1f}" r="4"/></g>'
        )
    middle = (_TOP + bottom) / 2
    parts += [
        f'<text x="{(_LEFT + right) / 2:.0f}" y="{_HEIGHT - 8}" text-anchor="middle" '
        f"{look('text')}>Stated odds</text>",
        f'<text transform="translate(14 {middle:.0f}) rotate(-90)" text-anchor="middle" '
        f"{look('text')}>Promises kept</text>",
    ]
    title = f'role="img" aria-label="{escape(found.sentence())}"'
    size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {title}>{"".join(parts)}</svg>'


def _least(found: Reliability) -> float:
    """Return from where on the odds are drawn: a round number, at most 90 %."""
    lowest = float(found.stated.min(initial=1.0))
    return min(np.floor(lowest * 10) / 10, 0.9) if len(found) else 0.5


def _lowest(found: Reliability) -> float:
    """Return from where on shares are drawn."""
    return float(np.floor(found.low.min(initial=1.0) * 10) / 10)
