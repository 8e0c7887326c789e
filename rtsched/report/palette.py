"""Colours: one per policy in all plots, told apart by colour-blind readers, on light and dark."""

from __future__ import annotations

from dataclasses import dataclass

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
