"""Write curves on logarithmic axes as an SVG file, without any library."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

WIDTH, HEIGHT = 450, 330
LEFT, RIGHT, TOP, BOTTOM = 58, 36, 44, 84
COLUMNS = 2
COLOURS = ("#0072b2", "#d55e00", "#009e73")
STYLE = """
text { font: 12px sans-serif; fill: #1f2933 }
.title { font-size: 14px; font-weight: bold }
.small { font-size: 11px; fill: #52606d }
.grid { stroke: #e4e7eb }
.frame { fill: none; stroke: #9aa5b1 }
"""


class Line(NamedTuple):
    """One curve and what to call it."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


class Panel(NamedTuple):
    """One plot."""

    title: str
    axis: str
    held: str
    lines: Sequence[Line]


class _Axis(NamedTuple):
    """Whole powers of ten mapped to a span of pixels."""

    low: int
    high: int
    begin: float
    end: float

    @classmethod
    def over(cls, values: Sequence[float], begin: float, end: float) -> _Axis:
        """Return the axis that shows all values."""
        low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        return cls(low, max(high, low + 1), begin, end)

    def place(self, value: float) -> float:
        """Return the pixel of a value."""
        part = (math.log10(value) - self.low) / (self.high - self.low)
        return round(self.begin + part * (self.end - self.begin), 1)

    def ticks(self) -> list[tuple[float, str]]:
        """Return pixels and texts of the powers of ten."""
        powers = range(self.low, self.high + 1)
        return [(self.place(10.0**power), _power(power)) for power in powers]


def write_svg(path: Path, panels: Sequence[Panel], unit: str) -> None:
    """Write the panels, two in a row, all with the same unit upwards."""
    rows = -(-len(panels) // COLUMNS)
    size = f'width="{COLUMNS * WIDTH}" height="{rows * HEIGHT}"'
    view = f'viewBox="0 0 {COLUMNS * WIDTH} {rows * HEIGHT}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} {view}>']
    parts += [f"<style>{STYLE}</style>", '<rect width="100%" height="100%" fill="#ffffff"/>']
    for number, panel in enumerate(panels):
        x, y = number % COLUMNS * WIDTH, number // COLUMNS * HEIGHT
        parts += [f'<g transform="translate({x} {y})">', *_panel(panel, unit), "</g>"]
    path.write_text("\n".join([*parts, "</svg>\n"]))


def _panel(panel: Panel, unit: str) -> list[str]:
    across = _Axis.over([x for line in panel.lines for x in line.x], LEFT, WIDTH - RIGHT)
    up = _Axis.over([y for line in panel.lines for y in line.y], HEIGHT - BOTTOM, TOP)
    parts = [
        _text(LEFT, 18, panel.title, "title"),
        _text(LEFT, 34, f"{unit}; {panel.held}", "small"),
    ]
    for x, name in across.ticks():
        parts.append(f'<path class="grid" d="M{x} {up.begin}V{up.end}"/>')
        parts.append(_text(x, up.begin + 15, name, anchor="middle"))
    for y, name in up.ticks():
        parts.append(f'<path class="grid" d="M{across.begin} {y}H{across.end}"/>')
        parts.append(_text(across.begin - 6, y + 4, name, anchor="end"))
    wide, high = across.end - across.begin, up.begin - up.end
    parts.append(
        f'<rect class="frame" x="{across.begin}" y="{up.end}" width="{wide}" height="{high}"/>'
    )
    middle = (across.begin + across.end) / 2
    parts.append(_text(middle, up.begin + 31, panel.axis, "small", "middle"))
    for number, (line, colour) in enumerate(zip(panel.lines, COLOURS, strict=False)):
        points = [(across.place(x), up.place(y)) for x, y in zip(line.x, line.y, strict=True)]
        path = " ".join(f"{x},{y}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in points]
        at = up.begin + 45 + 13 * number
        parts.append(f'<circle cx="{LEFT + 4}" cy="{at - 4}" r="4" fill="{colour}"/>')
        parts.append(_text(LEFT + 14, at, line.name, "small"))
    return parts


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{named}>{escape(text)}</text>'


def _power(power: int) -> str:
    """Return a power of ten in words: 10 000, 0.01, 10⁻⁵."""
    if -3 <= power <= 0:
        return f"{10.0**power:g}"
    if 0 < power <= 6:
        return f"{10**power:,}".replace(",", "\u202f")
    return "10" + str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
