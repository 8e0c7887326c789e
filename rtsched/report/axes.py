"""Axes and colours of figures: dates where the log has them, one colour per policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rtsched.report.wording import is_dated, tick

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

LOGGED = "#6b7280"
POLICIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f6a00")
"""The colours of Okabe and Ito, 2008, darkest contrasts first; a further round is dashed."""

WAITS = ("#c6dbef", "#6baed6", "#2171b5", "#08306b")
"""From short to long waits."""

INK, MUTED, GRID, PAPER = "#1f2933", "#52606d", "#e4e7eb", "#ffffff"

DARK = {
    LOGGED: "#a3abb8",
    "#0072b2": "#4aa8e8",
    "#d55e00": "#ff8a4c",
    "#009e73": "#2ec99a",
    "#cc79a7": "#e39cc4",
    "#e69f00": "#f2b84b",
    "#56b4e9": "#9fd8ff",
    "#7f6a00": "#cdb84a",
    "#c6dbef": "#1d3a57",
    "#6baed6": "#2f6da3",
    "#2171b5": "#5ba3de",
    "#08306b": "#b9dcff",
    INK: "#e6e9ee",
    MUTED: "#a7b1be",
    GRID: "#2b323c",
    PAPER: "#161b22",
}
"""What stands for each colour on a dark page."""

_DASHES = ("solid", "dash", "dashdot")


@dataclass(frozen=True)
class Look:
    """How one policy is drawn."""

    color: str
    dash: str
    width: float = 2.0

    @property
    def dasharray(self) -> str:
        """Return its dashes as an SVG line takes them, 4 units wide."""
        return {"dash": "7 3", "dashdot": "6 2 2 2", "dot": "3 2"}.get(self.dash, "none")

    @property
    def variable(self) -> str:
        """Return the name of the page's variable that holds its colour, light or dark."""
        return f"policy-{self.color[1:]}"


def look(position: int | None) -> Look:
    """Return the look of the policy at this position of the run; None: what the log records."""
    if position is None:
        return Look(LOGGED, "dot", 2.2)
    colours = len(POLICIES)
    return Look(POLICIES[position % colours], _DASHES[position // colours % len(_DASHES)])


def variables(dark: bool) -> str:
    """Return the looks' colours as variables of a style sheet."""
    return " ".join(
        f"--{Look(color, '').variable}: {DARK[color] if dark else color};"
        for color in (LOGGED, *POLICIES)
    )


SPANS = (
    1, 10, 60, 600, 3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400, 365 * 86400,
)  # fmt: skip
"""Ticks of a logarithmic axis of spans, seconds."""

FONT = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', Arial, sans-serif"


@dataclass(frozen=True)
class TimeAxis:
    """Instants as a plot wants them.

    Attributes
    ----------
    origin : float
        The instant that is 0 where there are no dates.
    unit : float
        Milliseconds of a date, or seconds of an hour or day.
    title : str
        What the axis says.
    """

    origin: float
    unit: float
    title: str

    @classmethod
    def of(cls, begin: float, end: float) -> TimeAxis:
        """Return an axis for instants between two."""
        if is_dated(begin):
            return cls(0.0, 1e-3, "Date and time (UTC)")
        unit, name = (86400.0, "Days") if end - begin > 2 * 86400 else (3600.0, "Hours")
        return cls(begin, unit, f"{name} since the start of the log")

    @property
    def is_date(self) -> bool:
        """Return whether instants are dates."""
        return self.unit < 1

    def at(self, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return instants in the axis's unit."""
        return np.round((seconds - self.origin) / self.unit, 0 if self.is_date else 5)

    def span(self, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return durations in the axis's unit."""
        return np.round(seconds / self.unit, 0 if self.is_date else 5)

    def layout(self, **more: Any) -> dict[str, Any]:
        """Return the axis's layout."""
        kind = {"type": "date"} if self.is_date else {"type": "linear", "rangemode": "tozero"}
        return axis(self.title, **kind, **more)


def axis(title: str, **more: Any) -> dict[str, Any]:
    """Return the layout of an axis in the house's style."""
    return {
        "title": {"text": title, "standoff": 10, "font": {"size": 12.5, "color": MUTED}},
        "gridcolor": GRID,
        "linecolor": GRID,
        "zerolinecolor": GRID,
        "tickfont": {"size": 12, "color": MUTED},
        "automargin": True,
        **more,
    }


def span_axis(title: str, least: float, most: float, **more: Any) -> dict[str, Any]:
    """Return the layout of a logarithmic axis of spans, ticks in seconds to days."""
    low, high = max(least, 1.0), max(most, 10.0)
    shown = [float(span) for span in SPANS if low / 1.01 <= span <= high * 1.01] or [low, high]
    return axis(
        title,
        type="log",
        range=[float(np.log10(low)) - 0.03, float(np.log10(high)) + 0.03],
        tickvals=shown,
        ticktext=[tick(span) for span in shown],
        **more,
    )


def log_axis(title: str, most: float, **more: Any) -> dict[str, Any]:
    """Return the layout of a logarithmic axis of plain numbers from 1 on."""
    high = max(float(np.log10(max(most, 1.0))), 0.5) + 0.05
    digits = (1, 2, 5) if high < 3 else (1,)
    ticks = [digit * 10**power for power in range(int(high) + 1) for digit in digits]
    return axis(
        title,
        type="log",
        range=[-0.02, high],
        tickvals=ticks,
        ticktext=[f"{number:,}" for number in ticks],
        **more,
    )


def base(legend: bool = True, **more: Any) -> dict[str, Any]:
    """Return the layout that all figures share; the page gives titles, so there are none here."""
    return {
        "template": "none",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 12.5, "color": INK},
        "margin": {"l": 64, "r": 18, "t": 40 if legend else 14, "b": 52, "pad": 2},
        "showlegend": legend,
        "legend": {
            "orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom",
            "font": {"size": 12.5}, "itemsizing": "constant", "tracegroupgap": 4,
        },
        "hoverlabel": {"namelength": -1, "font": {"family": FONT, "size": 12.5}},
        "autosize": True,
        **more,
    }  # fmt: skip


def literal(texts: Sequence[str]) -> list[str]:
    """Return texts that a plot shows as they are: its own little markup taken apart."""
    return [text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") for text in texts]
